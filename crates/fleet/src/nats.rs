//! The log in NATS JetStream: one stream of a fleet, written by requests, read by a consumer.
//!
//! | stream | |
//! |---|---|
//! | name | `MP_FLEET` |
//! | subjects | `mp.FLEET.beat.>`, `mp.FLEET.purge.>`, one message each |
//! | storage | files, as many replicas as are configured |
//! | age | `retain` |
//!
//! Questions to nodes are messages on `mp.FLEET.ask.NODE` and `mp.FLEET.lease.NODE`, which no
//! stream keeps.
//!
//! Tallies have a stream of their own, `MPSITES_FLEET`, with the subjects `mp.FLEET.sites.>`, one
//! message each, which are kept for ever and are 65,536 at most; configuration has `MPCONF_FLEET`
//! (`config/stream.rs`).
//!
//! The name of the log is the time at which the servers made the stream, in nanoseconds: a stream
//! that is made anew has another. The consumer is one of this session, and numbers what it sends:
//! where a number is missing, the feed ends, and the next one begins behind what was taken.
//!
//! 1. A feed is opened between two looks at the stream that found the same one: a consumer ends
//!    with its stream.
//! 2. A stream that is there is not made smaller or kept for less time; it is taken as it is.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::push::{Config as PushConfig, Messages};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::stream::{self, Info, Stream};
use async_nats::jetstream::{self, Context, Message};
use async_nats::rustls::crypto::aws_lc_rs::default_provider;
use async_nats::rustls::pki_types::pem::PemObject;
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use async_nats::rustls::sign::CertifiedKey;
use async_nats::{Client, ConnectOptions, ServerAddr, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;

use crate::entry::{Entry, token};
use crate::log::{Feed, FleetLog, LogError, Opened, Record, Standing};
use crate::tally::{self, LedgerId};

/// Time in which the servers answer. Shorter than the limit of a lag that anybody wants.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which an idle consumer is heard of; only to see that it is gone.
const IDLE: Duration = Duration::from_secs(5);
/// Time between two questions to a server that says nothing: a link that is cut is noticed after
/// two of them.
const PING_EVERY: Duration = Duration::from_secs(2);
/// Time between two tries to connect.
const CONNECT_EVERY: Duration = Duration::from_millis(500);
/// Time in which a message that was sent again is told from a new one.
const DUPLICATES: Duration = Duration::from_secs(120);

/// Messages of the stream of tallies: as many nodes as are remembered have so many parts.
const TALLIES_MAX: i64 = 65_536;

/// Servers, and the stream that is wanted there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsConf {
    /// Name of the fleet.
    pub fleet: String,
    /// URLs of servers.
    pub servers: Vec<String>,
    /// Content of the file with the credentials.
    pub credentials: Option<String>,
    /// File with the authorities that the servers' certificates are from.
    pub trusted_certificate: Option<PathBuf>,
    /// Files with the certificate that servers are shown, and its key.
    pub client_certificate: Option<[PathBuf; 2]>,
    /// Domain of JetStream.
    pub domain: Option<String>,
    /// Name of this node, for the servers' own lists.
    pub node: String,
    /// Replicas of the stream.
    pub replicas: usize,
    /// Time for which entries are kept.
    pub retain: Duration,
}

/// The log.
#[derive(Clone, Debug)]
pub struct NatsLog {
    conf: NatsConf,
    context: Context,
}

/// Checks the URL of a server; the error says what is wrong.
pub fn check_url(text: &str) -> Result<(), String> {
    let parsed = text.parse::<ServerAddr>();
    let address = parsed.map_err(|why| why.to_string())?;
    let is_empty = address.host().is_empty();
    match address.into_inner().scheme() {
        _ if is_empty => Err("there is no host in it".to_owned()),
        "nats" | "tls" => Ok(()),
        other => Err(format!("\"{other}\" is neither \"nats\" nor \"tls\"")),
    }
}

/// Checks the text of a file with authorities, and those of a certificate and its key; the error
/// says what is wrong.
pub fn check_certificates(
    trusted: Option<&str>,
    client: Option<(&str, &str)>,
) -> Result<(), String> {
    if let Some(text) = trusted {
        certificates(text).map_err(|why| format!("\"nats_ssl_trusted_certificate\": {why}"))?;
    }
    let Some((certificate, key)) = client else {
        return Ok(());
    };
    let of = |why: String| format!("\"nats_ssl_certificate\": {why}");
    let chain = certificates(certificate).map_err(of)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|why| format!("\"nats_ssl_certificate_key\": {why}"))?;
    CertifiedKey::from_der(chain, key, &default_provider()).map_err(|why| of(why.to_string()))?;
    Ok(())
}

fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() => Err("there is no certificate in the file".to_owned()),
        Ok(found) => Ok(found),
        Err(why) => Err(why.to_string()),
    }
}

pub(crate) fn failed(what: &'static str) -> impl Fn(&dyn Display) -> LogError {
    move |why| LogError {
        what,
        why: why.to_string(),
    }
}

impl NatsLog {
    /// Connects to one of the servers. The connection comes back by itself when it is lost.
    pub async fn connect(conf: NatsConf) -> Result<NatsLog, LogError> {
        let of = failed("connecting");
        let mut options = ConnectOptions::new()
            .name(format!("millpond {}", conf.node))
            .connection_timeout(ANSWER_TIMEOUT)
            .ping_interval(PING_EVERY)
            .reconnect_delay_callback(|tries| {
                if tries < 2 {
                    Duration::ZERO
                } else {
                    CONNECT_EVERY
                }
            })
            .request_timeout(Some(ANSWER_TIMEOUT));
        if let Some(credentials) = &conf.credentials {
            options = options.credentials(credentials).map_err(|it| of(&it))?;
        }
        if let Some(path) = &conf.trusted_certificate {
            options = options.add_root_certificates(path.clone());
        }
        if let Some([certificate, key]) = conf.client_certificate.clone() {
            options = options.add_client_certificate(certificate, key);
        }
        let client: Client = options
            .connect(conf.servers.clone())
            .await
            .map_err(|it| of(&it))?;
        let mut context = match &conf.domain {
            Some(domain) => jetstream::with_domain(client, domain),
            None => jetstream::new(client),
        };
        context.set_timeout(ANSWER_TIMEOUT);
        Ok(NatsLog { conf, context })
    }

    /// Name of the fleet.
    pub(crate) fn fleet(&self) -> &str {
        &self.conf.fleet
    }

    /// Replicas of streams that are made.
    pub(crate) fn replicas(&self) -> usize {
        self.conf.replicas
    }

    /// Requests to JetStream.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Name of a stream.
    pub(crate) fn name(&self, kind: &str) -> String {
        let fleet = token(self.conf.fleet.as_bytes()).replace('=', "_");
        format!("{kind}_{fleet}")
    }

    /// The stream as it is now; made, if there is none.
    async fn stream(&self) -> Result<Stream<Info>, LogError> {
        let fleet = &self.conf.fleet;
        let wanted = stream::Config {
            name: self.name("MP"),
            subjects: vec![format!("mp.{fleet}.beat.>"), format!("mp.{fleet}.purge.>")],
            max_messages_per_subject: 1,
            max_age: self.conf.retain,
            num_replicas: self.conf.replicas,
            duplicate_window: DUPLICATES.min(self.conf.retain),
            ..stream::Config::default()
        };
        self.found_or_made(wanted).await
    }

    /// The stream of tallies.
    async fn tallies(&self) -> Result<Stream<Info>, LogError> {
        let wanted = stream::Config {
            name: self.name("MPSITES"),
            subjects: vec![format!("mp.{}.sites.>", self.conf.fleet)],
            max_messages_per_subject: 1,
            max_messages: TALLIES_MAX,
            num_replicas: self.conf.replicas,
            ..stream::Config::default()
        };
        self.found_or_made(wanted).await
    }

    /// Refuses without a connection: a message that waits for one would be sent when nobody waits
    /// for it any more.
    pub(crate) fn check_connected(
        &self,
        of: &impl Fn(&dyn Display) -> LogError,
    ) -> Result<(), LogError> {
        match self.context.client().connection_state() {
            State::Connected => Ok(()),
            _ => Err(of(&"no server is connected")),
        }
    }

    pub(crate) async fn found_or_made(
        &self,
        wanted: stream::Config,
    ) -> Result<Stream<Info>, LogError> {
        let of = failed("the stream of the fleet");
        let name = wanted.name.clone();
        if let Ok(stream) = self.context.get_stream(&name).await {
            return Ok(stream);
        }
        match self.context.create_stream(wanted).await {
            Ok(stream) => Ok(stream),
            // Another node was first.
            Err(error) if matches!(error.kind(), CreateStreamErrorKind::JetStream(_)) => {
                let found = self.context.get_stream(&name).await;
                found.map_err(|_| of(&error))
            }
            Err(error) => Err(of(&error)),
        }
    }

    /// Puts records of parts of a ledger's tally in place of those before.
    pub async fn put_tally(
        &self,
        ledger: &LedgerId,
        records: impl Iterator<Item = (usize, &Bytes)>,
    ) -> Result<(), LogError> {
        let of = failed("writing the counters of sites");
        self.check_connected(&of)?;
        self.tallies().await?;
        for (part, record) in records {
            let place = tally::subject(ledger, part);
            let subject = format!("mp.{}.sites.{place}", self.conf.fleet);
            let sent = self.context.publish(subject, record.clone()).await;
            sent.map_err(|it| of(&it))?.await.map_err(|it| of(&it))?;
        }
        Ok(())
    }

    /// The newest record of each place, as they come, and how many there are.
    async fn newest_tallies(
        &self,
        of: &impl Fn(&dyn Display) -> LogError,
    ) -> Result<(u64, Messages), LogError> {
        let wanted = PushConfig {
            deliver_policy: DeliverPolicy::LastPerSubject,
            filter_subject: format!("mp.{}.sites.>", self.conf.fleet),
            ..self.reader()
        };
        let made = self.tallies().await?.create_consumer(wanted).await;
        let consumer = made.map_err(|it| of(&it))?;
        let pending = consumer.cached_info().num_pending;
        let messages = consumer.messages().await.map_err(|it| of(&it))?;
        Ok((pending, messages))
    }

    /// Puts records without a name in place of those of a node; how many.
    pub(crate) async fn disown_tallies(&self, node: &str) -> Result<u64, LogError> {
        let of = failed("writing the counters of sites");
        self.check_connected(&of)?;
        let (mut pending, mut messages) = self.newest_tallies(&of).await?;
        let mut count = 0;
        while pending > 0 {
            let next = messages.next().await;
            let message = next
                .ok_or_else(|| of(&"the connection ended"))?
                .map_err(|it| of(&it))?;
            pending = message.info().map_err(|it| of(&it))?.pending;
            let Some(record) = tally::disowned(&message.payload, node) else {
                continue;
            };
            let sent = self.context.publish(message.subject.clone(), record).await;
            sent.map_err(|it| of(&it))?.await.map_err(|it| of(&it))?;
            count += 1;
        }
        Ok(count)
    }

    /// Questions to a node of this name.
    pub(crate) async fn questions(&self, node: &str) -> Result<Subscriber, LogError> {
        let subscribed = self
            .context
            .client()
            .subscribe(self.questions_to(node))
            .await;
        subscribed.map_err(|it| failed("hearing questions")(&it))
    }

    fn questions_to(&self, node: &str) -> String {
        format!("mp.{}.ask.{}", self.conf.fleet, token(node.as_bytes()))
    }

    /// Questions for leases of limits that are put to a node of this name.
    pub(crate) async fn lease_questions(&self, node: &str) -> Result<Subscriber, LogError> {
        let subject = self.lease_questions_to(node);
        let subscribed = self.context.client().subscribe(subject).await;
        subscribed.map_err(|it| failed("hearing questions")(&it))
    }

    fn lease_questions_to(&self, node: &str) -> String {
        format!("mp.{}.lease.{}", self.conf.fleet, token(node.as_bytes()))
    }

    /// Asks a node for leases of limits, and waits for its answer.
    pub(crate) async fn ask_for_leases(
        &self,
        node: &str,
        question: Bytes,
    ) -> Result<Bytes, LogError> {
        let of = failed("asking for a lease");
        self.check_connected(&of)?;
        let subject = self.lease_questions_to(node);
        let answer = self.context.client().request(subject, question).await;
        answer.map(|it| it.payload).map_err(|it| of(&it))
    }

    /// Questions for slots of limits that are put to a node of this name.
    pub(crate) async fn slot_questions(&self, node: &str) -> Result<Subscriber, LogError> {
        let subject = self.slot_questions_to(node);
        let subscribed = self.context.client().subscribe(subject).await;
        subscribed.map_err(|it| failed("hearing questions")(&it))
    }

    fn slot_questions_to(&self, node: &str) -> String {
        format!("{}.slots", self.lease_questions_to(node))
    }

    /// Asks a node for slots of limits, and waits for its answer.
    pub(crate) async fn ask_for_slots(
        &self,
        node: &str,
        question: Bytes,
    ) -> Result<Bytes, LogError> {
        let of = failed("asking for slots");
        self.check_connected(&of)?;
        let subject = self.slot_questions_to(node);
        let answer = self.context.client().request(subject, question).await;
        answer.map(|it| it.payload).map_err(|it| of(&it))
    }

    /// Sends the answer to a question.
    pub(crate) async fn reply(&self, to: Subject, answer: Bytes) -> Result<(), LogError> {
        let sent = self.context.client().publish(to, answer).await;
        sent.map_err(|it| failed("answering a question")(&it))
    }

    /// Asks a node, and waits for its answer. `make` is told where the answer goes to.
    pub(crate) async fn ask(
        &self,
        node: &str,
        make: impl FnOnce(&str) -> Bytes,
    ) -> Result<Bytes, LogError> {
        let of = failed("asking the node");
        self.check_connected(&of)?;
        let client = self.context.client();
        let inbox = client.new_inbox();
        let question = make(&inbox);
        let mut answers = client
            .subscribe(inbox.clone())
            .await
            .map_err(|it| of(&it))?;
        let to = self.questions_to(node);
        let sent = client.publish_with_reply(to, inbox, question).await;
        sent.map_err(|it| of(&it))?;
        match answers.next().await {
            Some(answer) if answer.status == Some(StatusCode::NO_RESPONDERS) => {
                Err(of(&"it is not connected, or has no secret"))
            }
            Some(answer) => Ok(answer.payload),
            None => Err(of(&"the connection ended")),
        }
    }

    /// A reader of its own, which acknowledges nothing and is forgotten when it goes.
    pub(crate) fn reader(&self) -> PushConfig {
        PushConfig {
            deliver_subject: self.context.client().new_inbox(),
            ack_policy: AckPolicy::None,
            max_deliver: 1,
            memory_storage: true,
            num_replicas: 1,
            flow_control: true,
            idle_heartbeat: IDLE,
            ..PushConfig::default()
        }
    }

    /// Reads all records, with the times at which the log got them.
    pub async fn read_tallies(&self, mut take: impl FnMut(&Bytes, u64)) -> Result<(), LogError> {
        let of = failed("reading the counters of sites");
        self.check_connected(&of)?;
        let (mut pending, messages) = self.newest_tallies(&of).await?;
        let mut feed = NatsFeed { messages, sent: 0 };
        while pending > 0 {
            let records = feed.next(1).await?;
            for record in records {
                take(&record.payload, record.at_ms);
                pending = record.pending;
            }
        }
        Ok(())
    }
}

/// Name of the log that a stream is.
fn log_of(info: &Info) -> [u8; 16] {
    info.created.unix_timestamp_nanos().to_be_bytes()
}

impl FleetLog for NatsLog {
    type Feed = NatsFeed;

    async fn append(&self, entry: &Entry) -> Result<u64, LogError> {
        let of = failed("writing to the log");
        self.check_connected(&of)?;
        let subject = entry.subject(&self.conf.fleet);
        let sent = self.context.publish(subject, entry.encode()).await;
        let acknowledged = sent.map_err(|it| of(&it))?.await;
        acknowledged.map(|it| it.sequence).map_err(|it| of(&it))
    }

    async fn standing(&self) -> Result<Standing, LogError> {
        let stream = self.stream().await?;
        let info = stream.cached_info();
        let last_at = info.state.last_timestamp.unix_timestamp_nanos() / 1_000_000;
        Ok(Standing {
            log: log_of(info),
            last: info.state.last_sequence,
            last_at_ms: u64::try_from(last_at).unwrap_or(0),
            retain: info.config.max_age,
        })
    }

    async fn read_behind(&self, sequence: u64) -> Result<Opened<NatsFeed>, LogError> {
        let of = failed("reading the log");
        let stream = self.stream().await?;
        let wanted = PushConfig {
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: sequence.saturating_add(1),
            },
            ..self.reader()
        };
        let made = stream.create_consumer(wanted).await;
        let consumer = made.map_err(|it| of(&it))?;
        let pending = consumer.cached_info().num_pending;
        let messages = consumer.messages().await.map_err(|it| of(&it))?;
        // INVARIANT 1.
        let (before, after) = (log_of(stream.cached_info()), self.standing().await?.log);
        if before != after {
            return Err(of(&"the stream was made anew"));
        }
        Ok(Opened {
            feed: NatsFeed { messages, sent: 0 },
            pending,
            log: after,
        })
    }
}

/// Messages of a consumer.
pub struct NatsFeed {
    messages: Messages,
    /// Number of the last message that the consumer sent.
    sent: u64,
}

impl std::fmt::Debug for NatsFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsFeed")
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl NatsFeed {
    fn record(&mut self, message: &Message) -> Result<Record, LogError> {
        let of = failed("reading the log");
        let info = message.info().map_err(|it| of(&it))?;
        if info.consumer_sequence != self.sent + 1 {
            return Err(of(&"a record was lost on its way"));
        }
        self.sent = info.consumer_sequence;
        let at = info.published.unix_timestamp_nanos() / 1_000_000;
        Ok(Record {
            sequence: info.stream_sequence,
            at_ms: u64::try_from(at).unwrap_or(0),
            pending: info.pending,
            payload: message.payload.clone(),
        })
    }
}

impl Feed for NatsFeed {
    async fn next(&mut self, most: usize) -> Result<Vec<Record>, LogError> {
        let of = failed("reading the log");
        let mut records = Vec::new();
        let first = self.messages.next().await;
        let message = first
            .ok_or_else(|| of(&"the connection ended"))?
            .map_err(|it| of(&it))?;
        records.push(self.record(&message)?);
        while records.len() < most {
            // What is there already is taken together.
            let Some(message) = futures_util::FutureExt::now_or_never(self.messages.next()) else {
                break;
            };
            let message = message
                .ok_or_else(|| of(&"the connection ended"))?
                .map_err(|it| of(&it))?;
            records.push(self.record(&message)?);
        }
        Ok(records)
    }
}
