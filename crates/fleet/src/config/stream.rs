//! Orders, bundles and reports in NATS JetStream: a stream of the fleet, `MPCONF_FLEET`, with the
//! newest message of each subject (which is what a bucket of keys and values is).
//!
//! | subject | message |
//! |---|---|
//! | `mp.FLEET.conf.order.N` | the order of this number; written once |
//! | `mp.FLEET.conf.verdict.N` | the verdict on it; written once |
//! | `mp.FLEET.conf.node.NODE` | report of a node |
//! | `mp.FLEET.confpart.DIGEST.N` | a part of a bundle |
//!
//! A bundle is at most `BUNDLE_MAX` (16 MiB), in parts of half a megabyte, because a message of
//! NATS has one at most. The last `ORDERS_KEPT` orders stay, with their bundles.

use std::collections::{BTreeMap, BTreeSet};

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::push::{Config as PushConfig, Messages};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{self, Info, LastRawMessageErrorKind, Stream};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, StreamExt as _};

use super::bundle::{BUNDLE_MAX, Digest, hex};
use super::order::{Order, Signed};
use super::report::{Report, Verdict};
use crate::entry::token;
use crate::log::LogError;
use crate::nats::{NatsLog, failed};

/// Bytes of a part.
const PART_LEN: usize = 512 << 10;
/// Orders that stay.
pub const ORDERS_KEPT: usize = 16;
/// Messages of the stream: the parts of all bundles that stay, and the words of many nodes.
const MESSAGES_MAX: i64 = 65_536;

/// Something that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// An order with its number; its signature is to be checked.
    Order(u64, Bytes),
    /// The verdict on an order.
    Verdict(u64, Verdict),
    /// Words of a node, and the time at which the servers got them, milliseconds since 1970.
    Report(Report, u64),
    /// Something that is not understood.
    Unknown,
}

/// News as they come.
pub struct NewsFeed {
    messages: Messages,
    prefix: String,
}

impl std::fmt::Debug for NewsFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewsFeed").finish_non_exhaustive()
    }
}

impl NewsFeed {
    /// The next news, with the number of those that are there already behind it.
    pub async fn next(&mut self) -> Result<(News, u64), LogError> {
        let of = failed("reading the configuration of the fleet");
        let next = self.messages.next().await;
        let message = next
            .ok_or_else(|| of(&"the connection ended"))?
            .map_err(|it| of(&it))?;
        let info = message.info().map_err(|it| of(&it))?;
        let (pending, at) = (info.pending, info.published.unix_timestamp_nanos());
        let at_ms = u64::try_from(at / 1_000_000).unwrap_or(0);
        let place = message.subject.strip_prefix(&self.prefix).unwrap_or("");
        Ok((news(place, &message.payload, at_ms), pending))
    }

    /// The next news, if there are any yet.
    pub fn ready(&mut self) -> Option<Result<(News, u64), LogError>> {
        self.next().now_or_never()
    }
}

fn news(place: &str, payload: &Bytes, at_ms: u64) -> News {
    let (kind, rest) = place.split_once('.').unwrap_or_default();
    let number = || rest.parse::<u64>().ok();
    let found = match kind {
        "order" => number().map(|number| News::Order(number, payload.clone())),
        "verdict" => number()
            .zip(Verdict::decode(payload.clone()))
            .map(|(number, verdict)| News::Verdict(number, verdict)),
        "node" => Report::decode(payload.clone())
            .filter(|report| token(report.node.as_bytes()) == rest)
            .map(|report| News::Report(report, at_ms)),
        _ => None,
    };
    found.unwrap_or(News::Unknown)
}

impl NatsLog {
    fn conf_subject(&self, rest: &str) -> String {
        format!("mp.{}.conf.{rest}", self.fleet())
    }

    fn part_subject(&self, digest: &Digest, rest: &str) -> String {
        format!("mp.{}.confpart.{}.{rest}", self.fleet(), hex(digest))
    }

    async fn conf_stream(&self) -> Result<Stream<Info>, LogError> {
        let fleet = self.fleet();
        let wanted = stream::Config {
            name: self.name("MPCONF"),
            subjects: vec![
                format!("mp.{fleet}.conf.>"),
                format!("mp.{fleet}.confpart.>"),
            ],
            max_messages_per_subject: 1,
            max_messages: MESSAGES_MAX,
            num_replicas: self.replicas(),
            ..stream::Config::default()
        };
        self.found_or_made(wanted).await
    }

    /// Everything that is known, and then what comes; and whether there is anything at present.
    pub async fn news(&self) -> Result<(NewsFeed, u64), LogError> {
        let of = failed("reading the configuration of the fleet");
        self.check_connected(&of)?;
        let wanted = PushConfig {
            deliver_policy: DeliverPolicy::LastPerSubject,
            filter_subject: self.conf_subject(">"),
            ..self.reader()
        };
        let made = self.conf_stream().await?.create_consumer(wanted).await;
        let consumer = made.map_err(|it| of(&it))?;
        let pending = consumer.cached_info().num_pending;
        let messages = consumer.messages().await.map_err(|it| of(&it))?;
        let prefix = self.conf_subject("");
        Ok((NewsFeed { messages, prefix }, pending))
    }

    async fn put_once(&self, subject: String, payload: Bytes) -> Result<(), LogError> {
        let of = failed("writing the configuration of the fleet");
        self.check_connected(&of)?;
        let message = PublishMessage::build()
            .payload(payload)
            .expected_last_subject_sequence(0);
        let sent = self.context().send_publish(subject, message).await;
        let stored = sent.map_err(|it| of(&it))?.await;
        stored.map(drop).map_err(|it| of(&it))
    }

    async fn put(&self, subject: String, payload: Bytes) -> Result<(), LogError> {
        let of = failed("writing the configuration of the fleet");
        self.check_connected(&of)?;
        let sent = self.context().publish(subject, payload).await;
        let stored = sent.map_err(|it| of(&it))?.await;
        stored.map(drop).map_err(|it| of(&it))
    }

    /// Puts words of a node in place of those before.
    pub async fn put_report(&self, report: &Report) -> Result<(), LogError> {
        let place = token(report.node.as_bytes());
        let subject = self.conf_subject(&format!("node.{place}"));
        self.put(subject, report.encode()).await
    }

    /// Puts the verdict on an order; nothing happens if there is one already.
    pub async fn put_verdict(&self, number: u64, verdict: &Verdict) -> Result<(), LogError> {
        let subject = self.conf_subject(&format!("verdict.{number}"));
        self.put_once(subject, verdict.encode()).await
    }

    /// Gives an order; fails if there is one with its number.
    pub async fn put_order(&self, signed: &Signed) -> Result<(), LogError> {
        self.conf_stream().await?;
        let number = signed.order.revision;
        let subject = self.conf_subject(&format!("order.{number}"));
        self.put_once(subject, signed.bytes.clone()).await
    }

    /// Puts the parts of a bundle, before its order.
    pub async fn put_bundle(&self, digest: &Digest, bytes: &Bytes) -> Result<(), LogError> {
        self.conf_stream().await?;
        for (number, part) in bytes.chunks(PART_LEN).enumerate() {
            let subject = self.part_subject(digest, &number.to_string());
            self.put(subject, bytes.slice_ref(part)).await?;
        }
        Ok(())
    }

    /// The bundle of an order, as long as it says; what is in it is to be compared with its digest.
    /// None if it is not there.
    pub async fn bundle(&self, order: &Order) -> Result<Option<Bytes>, LogError> {
        let of = failed("reading a bundle of the fleet");
        self.check_connected(&of)?;
        let stream = self.conf_stream().await?;
        let len = usize::try_from(order.len)
            .unwrap_or(usize::MAX)
            .min(BUNDLE_MAX);
        let mut bytes = BytesMut::new();
        for number in 0..len.div_ceil(PART_LEN) {
            let subject = self.part_subject(&order.digest, &number.to_string());
            let found = stream.get_last_raw_message_by_subject(&subject).await;
            let part = match found {
                Ok(message) => message.payload,
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                    return Ok(None);
                }
                Err(error) => return Err(of(&error)),
            };
            if part.len() > PART_LEN {
                return Err(of(&"a part of it is too long"));
            }
            bytes.extend_from_slice(&part);
        }
        Ok(Some(bytes.freeze()))
    }

    /// Removes orders that are too old, and bundles that none of the others names.
    pub async fn forget(&self, orders: &BTreeMap<u64, Signed>) -> Result<(), LogError> {
        let of = failed("removing old configuration of the fleet");
        let stream = self.conf_stream().await?;
        let kept: Vec<&Signed> = orders.values().rev().take(ORDERS_KEPT).collect();
        let needed: BTreeSet<Digest> = kept.iter().map(|it| it.order.digest).collect();
        for (number, signed) in orders {
            if kept.iter().any(|it| it.order.revision == *number) {
                continue;
            }
            let mut subjects = vec![
                self.conf_subject(&format!("order.{number}")),
                self.conf_subject(&format!("verdict.{number}")),
            ];
            let digest = &signed.order.digest;
            if !needed.contains(digest) {
                subjects.push(self.part_subject(digest, "*"));
            }
            for subject in subjects {
                let purged = stream.purge().filter(subject).await;
                purged.map_err(|it| of(&it))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_what_their_place_says() {
        let report = Report {
            node: "n 1".to_owned(),
            ..Report::default()
        };
        let place = format!("node.{}", token(b"n 1"));
        let payload = report.encode();
        assert_eq!(news(&place, &payload, 5), News::Report(report, 5));
        // Nobody speaks for another one.
        let other = format!("node.{}", token(b"n2"));
        let verdict = Verdict::Promoted {
            node: "n1".to_owned(),
        };
        let told = verdict.encode();
        assert_eq!(news("verdict.7", &told, 5), News::Verdict(7, verdict));
        let order = Bytes::from_static(b"x");
        assert_eq!(news("order.7", &order, 5), News::Order(7, order));
        for (place, payload) in [
            (other.as_str(), &payload),
            ("verdict.x", &told),
            ("verdict.7", &payload),
            ("order.", &told),
            ("", &told),
            ("other.7", &told),
        ] {
            assert_eq!(news(place, payload, 5), News::Unknown, "{place}");
        }
    }
}
