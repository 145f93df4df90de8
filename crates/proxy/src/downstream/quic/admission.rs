//! The decision about clients that begin a connection, and what they get to know of us.
//!
//! | | |
//! |---|---|
//! | `quic_retry on` | each has to show its address first |
//! | more than a bound of handshakes under way | so does each that comes then |
//! | no place among `worker_connections` | refused |

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use millpond_system::address::Address;
use millpond_system::quota::{Seat, Side};
use millpond_tls::quic::{HostKey, Starter};
use millpond_tls::tap::Watch;
use millpond_tls::{ClientHello, Error, UNRECOGNIZED_NAME, quic};
use quinn_proto::{
    IdleTimeout, Incoming, ServerConfig, TransportConfig, ValidationTokenConfig, VarInt,
};

use super::canonical;
use super::endpoint::{Admission, HANDSHAKES_MOST, Host};
use super::handshake;
use super::link::Link;
use super::qlog::{Folder, Record};
use super::tokens::{self, UsedTokens};
use crate::downstream::encryption;
use crate::downstream::quic::Directory;
use crate::tls::contexts::Encryption;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::settings::Server;
use millpond_exchange::settings::listen::{Binding, Listen};
use millpond_exchange::worker::Generation;

/// Streams on which only the client sends: those that HTTP/3 has (nginx: 3).
const UNI_STREAMS: u32 = 3;

/// Bytes of all streams that a connection may send us before they are read (nginx: those of a
/// stream, 16 times over).
const CONNECTION_WINDOWS: u32 = 16;

/// Bytes of a connection that wait to be acknowledged: more than most paths hold.
const SEND_WINDOW: u64 = 2 * 1024 * 1024;

/// Time for which a token of Retry is good: nginx has 3 s.
const RETRY_LIFETIME: Duration = Duration::from_secs(3);

/// The host of an address in one generation.
pub(super) struct Admitting {
    binding: Arc<Binding>,
    generation: Rc<Generation>,
    /// The configuration of each listen of the binding.
    configs: Vec<(Arc<Listen>, Arc<ServerConfig>)>,
    /// The folder that connections are written down in (`quic_qlog`).
    records: Option<Arc<Folder>>,
}

/// Settings of QUIC that a listen has.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub streams: u32,
    pub stream_window: u32,
    pub idle_timeout: Duration,
    pub uses_segments: bool,
    pub retries: bool,
}

impl Admitting {
    /// The host of a binding.
    pub(super) fn new(
        binding: Arc<Binding>,
        generation: Rc<Generation>,
        key: &HostKey,
    ) -> Result<Self, Error> {
        let directory = Directory::of(&generation.worker.shared);
        let tokens = &directory.tokens;
        let first = binding.listens.first();
        let policy = first.map(|listen| &listen.names.default_server().settings.quic);
        let records = policy.and_then(|it| it.records.as_deref()).map(Folder::new);
        let watch = records
            .as_ref()
            .map(|folder| Arc::new(Watch::new(Arc::clone(folder) as Arc<_>)));
        let configs = binding.listens.iter().map(|listen| {
            let limits = Limits::of(listen.names.default_server());
            let chooser = Arc::new(Contexts(Arc::clone(listen)));
            let starter = Arc::new(Starter::new(chooser, watch.clone())?);
            Ok((
                Arc::clone(listen),
                Arc::new(config(starter, (key, tokens), &limits)),
            ))
        });
        Ok(Admitting {
            configs: configs.collect::<Result<_, Error>>()?,
            binding,
            generation,
            records,
        })
    }

    /// The configuration for those who meet no listen of their own.
    pub(super) fn first(&self) -> Option<Arc<ServerConfig>> {
        self.configs.first().map(|(_, config)| Arc::clone(config))
    }

    fn find(&self, local: Option<IpAddr>) -> Option<&(Arc<Listen>, Arc<ServerConfig>)> {
        let address = match (local, &self.binding.bound) {
            (Some(ip), Address::Inet(bound)) => {
                Address::Inet(SocketAddr::new(ip.to_canonical(), bound.port()))
            }
            (_, bound) => bound.clone(),
        };
        let listen = self.binding.listen_for(&address)?;
        self.configs.iter().find(|(it, _)| Arc::ptr_eq(it, listen))
    }

    fn seat(&self) -> Option<Seat> {
        self.generation.worker.seat_now(Side::Client)
    }
}

impl Host for Admitting {
    fn admit(&self, incoming: &Incoming, handshakes: usize) -> Admission {
        let Some((listen, config)) = self.find(incoming.local_ip()) else {
            return Admission::Refuse;
        };
        let policy = &listen.names.default_server().settings.quic;
        let must_show = policy.retries || handshakes >= HANDSHAKES_MOST;
        if must_show && !incoming.remote_address_validated() {
            return Admission::Retry;
        }
        match self.seat() {
            Some(seat) => Admission::Take(Arc::clone(config), seat),
            None => Admission::Refuse,
        }
    }

    fn record(&self) -> Option<Arc<Record>> {
        self.records.as_ref()?.take()
    }

    fn start(&self, link: Rc<Link>, [peer, local]: [SocketAddr; 2]) {
        let Some((listen, _)) = self.find(Some(local.ip())) else {
            return;
        };
        let worker = &self.generation.worker;
        let number = worker.shared.connections.accept(worker.index);
        let canonical = |address| Address::Inet(canonical(address));
        let connection = Rc::new(Connection::new(
            Rc::clone(&self.generation),
            number,
            [canonical(peer), canonical(local)],
            millpond_system::clock::instant(),
        ));
        let member = self.generation.enter();
        let slot = member.slot();
        let known = Rc::downgrade(&connection);
        let serving = handshake::serve(link, (connection, Arc::clone(listen)), member);
        let task = tokio::task::spawn_local(serving);
        self.generation.adopt(slot, (task.abort_handle(), known));
    }
}

impl Limits {
    fn of(server: &Server) -> Self {
        let settings = &server.settings;
        Limits {
            streams: settings.quic.max_streams,
            stream_window: settings.quic.stream_buffer.0.min(u64::from(u32::MAX / 32)) as u32,
            idle_timeout: match server.location.settings.keep_alive.idle_timeout() {
                Duration::ZERO => server.location.settings.send.timeout,
                timeout => timeout,
            },
            uses_segments: settings.quic.uses_segments,
            retries: settings.quic.retries,
        }
    }
}

fn config(
    starter: Arc<Starter>,
    (key, tokens): (&HostKey, &Arc<UsedTokens>),
    limits: &Limits,
) -> ServerConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(limits.streams.into())
        .max_concurrent_uni_streams(UNI_STREAMS.into())
        .stream_receive_window(limits.stream_window.into())
        .receive_window((limits.stream_window * CONNECTION_WINDOWS).into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .enable_segmentation_offload(limits.uses_segments)
        .max_idle_timeout(idle(limits.idle_timeout));
    let mut known = ValidationTokenConfig::default();
    known
        .lifetime(tokens::LIFETIME)
        .log(Arc::clone(tokens) as Arc<_>)
        // nginx: they are of use where clients have to show their address.
        .sent(u32::from(limits.retries));
    let mut config = ServerConfig::new(starter, key.token());
    config
        .validation_token_config(known)
        .transport_config(Arc::new(transport))
        .retry_token_lifetime(RETRY_LIFETIME);
    config
}

fn idle(timeout: Duration) -> Option<IdleTimeout> {
    let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    (millis > 0).then(|| IdleTimeout::from(VarInt::from_u32(millis)))
}

/// Chooses the context of a handshake among the servers of a listen.
struct Contexts(Arc<Listen>);

impl quic::Chooser for Contexts {
    fn choose(&self, hello: &ClientHello) -> quic::Choice {
        let listen = &*self.0;
        let server = encryption::choose(listen, hello);
        let own = Encryption::of(server);
        let Some(own) = own.and_then(|own| own.certified_or(listen.names.default_server())) else {
            return quic::Choice::Refuse(UNRECOGNIZED_NAME);
        };
        if own.ordered.is_some() || own.named.is_some() {
            return quic::Choice::Wait;
        }
        encryption::refresh_staples(&own.staplers);
        quic::Choice::Serve(Box::new(own.context.clone()), None)
    }
}
