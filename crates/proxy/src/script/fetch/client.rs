//! One request to another server, and its answer.
//!
//! 1. A kept connection carries a request only if nothing was heard on it since it was idle; what
//!    fails on one before anything was answered is asked once more on a new one, if it may be.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use millpond_conf::OffOr;
use millpond_exchange::settings::Location;
use millpond_exchange::worker::Worker;
use millpond_script::{Fetch, Fetched, Forward, Url};
use millpond_system::address::Address;
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::os_error;
use millpond_system::quota::{Seat, Side};
use millpond_system::socket::More;
use millpond_system::timer::Timer;
use millpond_system::transport::Transport;
use millpond_wire::base64;
use millpond_wire::http1::Method;
use millpond_wire::http1::chunked::{ChunkEvent, ChunkedDecoder, Strictness, TrailerLimits};
use millpond_wire::http1::response::{
    Fault, Framing, MAX_INTERIM, Progress, ResponseHead, ResponseParser,
};

use super::idle::{IdleFetches, Key};
use super::{Fetching, MOST_TIMES};
use crate::request::Request;
use crate::script::Scripts;
use crate::tls::origins::Origin;
use crate::upstream::connect::{self, ConnectPolicy};
use crate::upstream::encryption::{self, Encryption};
use crate::upstream::peer::{Peer, PeerSettings};

/// Bytes asked of the kernel at once.
const READ: usize = 16 * 1024;

/// A connection to another server.
pub(super) struct Link {
    pub(super) transport: Transport,
    inbox: BytesMut,
    timer: Timer,
    requests: u32,
    young_until: Instant,
    // Given back with the connection.
    _seat: Seat,
}

/// The end of a request without an answer.
enum Failed {
    /// Nothing was answered: a kept connection may have been closed meanwhile.
    Unheard(String),
    /// Anything else.
    Told(String),
}

impl Failed {
    fn why(self) -> String {
        match self {
            Failed::Unheard(why) | Failed::Told(why) => why,
        }
    }
}

/// A request's way to other servers.
pub(in crate::script) struct Asking {
    worker: Rc<Worker>,
    location: Arc<Location>,
    by: Arc<Fetching>,
    /// The proxy that is asked.
    forward: Option<Arc<Forward>>,
}

impl Asking {
    /// The way of a request.
    pub(super) fn of(req: &mut Request) -> Result<Asking, String> {
        let location = Arc::clone(&req.location);
        let scripts: Option<&Scripts> = location.parts.get();
        let Some(by) = scripts.map(|scripts| Arc::clone(&scripts.fetching)) else {
            return Err("ngx.fetch() cannot be used here".to_string());
        };
        let forward = match (&by.forward, &by.policy.proxy) {
            (None, Some(template)) => {
                let text = req.eval(template);
                let read = Forward::read(&String::from_utf8_lossy(&text));
                read.map_err(|_| "failed to evaluate proxy URL")?
                    .map(Arc::new)
            }
            (fixed, _) => fixed.clone(),
        };
        Ok(Asking {
            worker: Rc::clone(req.worker()),
            location,
            by,
            forward,
        })
    }

    /// The longest time of a request.
    pub(super) fn most_time(&self) -> Duration {
        self.by.policy.timeout.saturating_mul(MOST_TIMES)
    }

    /// Asks, and reads the whole answer.
    pub(super) async fn exchange(&self, fetch: &Fetch) -> Result<Fetched, String> {
        let origin = self.origin(fetch)?;
        let key = Key {
            location: Arc::as_ptr(&self.location) as usize,
            host: fetch.url.host.clone(),
            port: fetch.url.port,
            origin: origin.clone(),
        };
        let may_keep = self.may_keep(&key);
        let forward = self.forward.as_deref().filter(|_| origin.is_none());
        let message = message(fetch, (!may_keep).then_some("close"), forward);
        let idle = self.worker.of::<IdleFetches>();
        if let Some(link) = idle.take(&key).filter(|_| may_keep) {
            match self.on(link, (fetch, &message), &key).await {
                Err(Failed::Unheard(_)) if is_safe(&fetch.method) => {}
                outcome => return outcome.map_err(Failed::why),
            }
        }
        let link = self.connect(fetch, origin.as_ref()).await?;
        let outcome = self.on(link, (fetch, &message), &key).await;
        outcome.map_err(Failed::why)
    }

    /// The encryption that a URL asks for.
    fn origin(&self, fetch: &Fetch) -> Result<Option<Arc<Origin>>, String> {
        if !fetch.url.is_encrypted {
            return Ok(None);
        }
        if !fetch.verify.unwrap_or(self.by.policy.verify) {
            return Ok(Some(Arc::clone(&self.by.unverified)));
        }
        let unknown = "connect failed: no \"js_fetch_trusted_certificate\" to verify the server by";
        let verified = self.by.verified.as_ref().ok_or(unknown)?;
        Ok(Some(Arc::clone(verified)))
    }

    fn may_keep(&self, key: &Key) -> bool {
        let is_unverified = key
            .origin
            .as_ref()
            .is_some_and(|origin| Arc::ptr_eq(origin, &self.by.unverified));
        // One of another request may go through another proxy.
        let is_fixed = self.by.policy.proxy.is_none() || self.by.forward.is_some();
        self.by.policy.idle > 0 && !is_unverified && is_fixed
    }

    /// Sends a request on a connection, and reads its answer; the connection is kept if it may be.
    async fn on(
        &self,
        mut link: Link,
        (fetch, message): (&Fetch, &[u8]),
        key: &Key,
    ) -> Result<Fetched, Failed> {
        link.requests += 1;
        self.send(&link, message).await?;
        let head = self.head(&mut link).await?;
        let method = Method::of(fetch.method.to_ascii_uppercase().as_bytes());
        let told = |fault: Fault| Failed::Told(fault.to_string());
        let framing = head.framing(method).map_err(told)?;
        let most = fetch.most.unwrap_or_else(|| self.by.policy.body.as_usize());
        let read = self.body(&mut link, framing, most).await;
        let body = read.map_err(Failed::Told)?;
        let policy = &self.by.policy;
        let is_whole = !matches!(framing, Framing::UntilClose | Framing::Switched);
        let is_young = link.requests < policy.requests && clock::instant() < link.young_until;
        if self.may_keep(key) && is_whole && is_young && head.keeps_alive() && link.inbox.is_empty()
        {
            let idle = self.worker.of::<IdleFetches>();
            let until = clock::instant() + policy.idle_time;
            idle.put(&self.worker, (key, policy.idle), (link, until));
        }
        Ok(fetched(&head, body))
    }

    async fn connect(&self, fetch: &Fetch, origin: Option<&Arc<Origin>>) -> Result<Link, String> {
        let (host, port) = match &self.forward {
            Some(forward) => (&forward.host, forward.port),
            None => (&fetch.url.host, fetch.url.port),
        };
        let resolver = &self.location.settings.resolver;
        let asked = resolver.addresses(host, port).await;
        let found = asked.map_err(|unresolved| {
            let why = unresolved.why();
            format!("\"{host}\" could not be resolved ({why})")
        })?;
        let mut outcome = Err("connect failed: there is no address".to_string());
        for address in found {
            outcome = self.connect_to(address, fetch, origin).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
        fetch: &Fetch,
        origin: Option<&Arc<Origin>>,
    ) -> Result<Link, String> {
        let failed = |why: &dyn std::fmt::Display| format!("connect failed: {why}");
        let Some(seat) = self.worker.seat(Side::Upstream).await else {
            return Err(failed(&"worker_connections are not enough"));
        };
        let policy = ConnectPolicy {
            timeout: self.by.policy.timeout,
            bind: OffOr::Off,
            keepalive: false,
        };
        let timer = Timer::new();
        let address = Address::Inet(address);
        let connected = connect::plain(&address, &policy, (None, &timer)).await;
        let socket = connected.map_err(|error| failed(&error))?;
        let mut link = Link {
            transport: Transport::Plain(socket),
            inbox: BytesMut::new(),
            timer,
            requests: 0,
            young_until: clock::instant() + self.by.policy.age,
            _seat: seat,
        };
        let Some(origin) = origin else {
            return Ok(link);
        };
        if let Some(forward) = &self.forward {
            let dug = self.tunnel(&mut link, forward, fetch).await;
            dug.map_err(|why| failed(&why))?;
        }
        let Transport::Plain(socket) = link.transport else {
            return Err(failed(&"it is encrypted already"));
        };
        let peer = Peer::new(address, PeerSettings::new(&fetch.url.host), None);
        let by = Encryption::to(origin, &fetch.url.host);
        let within = (&link.timer, policy.timeout);
        let encrypted = encryption::encrypt(socket, &peer, &by, within).await;
        let transport = encrypted.map_err(|error| failed(&error))?;
        Ok(Link { transport, ..link })
    }

    /// Has a proxy dig a tunnel to the server of a URL (RFC 9110 §9.3.6).
    async fn tunnel(
        &self,
        link: &mut Link,
        forward: &Forward,
        fetch: &Fetch,
    ) -> Result<(), String> {
        let url = &fetch.url;
        let host = if url.host.contains(':') {
            format!("[{}]", url.host)
        } else {
            url.host.clone()
        };
        let place = format!("{host}:{}", url.port);
        let mut text = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
        if let Some(told) = &forward.credentials {
            text += &format!("Proxy-Authorization: Basic {}\r\n", base64::encode(told));
        }
        text += "\r\n";
        self.send(link, text.as_bytes())
            .await
            .map_err(Failed::why)?;
        let head = self.head(link).await.map_err(Failed::why)?;
        if !(200..300).contains(&head.status) {
            let status = head.status;
            return Err(format!("proxy CONNECT failed with status {status}"));
        }
        if !link.inbox.is_empty() {
            return Err("proxy has sent more than its answer to CONNECT".to_string());
        }
        Ok(())
    }

    async fn send(&self, link: &Link, message: &[u8]) -> Result<(), Failed> {
        let mut left = message;
        while !left.is_empty() {
            let slices = [IoSlice::new(left)];
            let sending = poll_fn(|cx| link.transport.poll_send(cx, &slices, More::Nothing));
            match self.step(&link.timer, sending, "write").await {
                Ok(sent) => left.advance(sent),
                // What the server has said before it closed is read.
                Err(_) if !link.inbox.is_empty() || link.transport.has_unread() => break,
                Err(why) => return Err(Failed::Unheard(why)),
            }
        }
        Ok(())
    }

    async fn head(&self, link: &mut Link) -> Result<ResponseHead, Failed> {
        let most = self.by.policy.head.as_usize();
        let mut parser = ResponseParser::new();
        let mut is_heard = false;
        let mut interim_left = MAX_INTERIM;
        loop {
            match parser.parse(&mut link.inbox, most) {
                Progress::Done(head) if head.status < 200 && head.status != 101 => {
                    let left = interim_left.checked_sub(1);
                    let told = || Failed::Told("too many interim answers".to_string());
                    interim_left = left.ok_or_else(told)?;
                    parser = ResponseParser::new();
                }
                Progress::Done(head) => return Ok(head),
                Progress::NotHttp => {
                    return Err(Failed::Told("invalid http status line".to_string()));
                }
                Progress::Refuse(fault) => {
                    return Err(Failed::Told(format!("invalid http header: {fault}")));
                }
                Progress::NeedMore => {
                    let failed = if is_heard {
                        Failed::Told
                    } else {
                        Failed::Unheard
                    };
                    self.receive(link).await.map_err(failed)?;
                    is_heard = true;
                }
            }
        }
    }

    async fn body(&self, link: &mut Link, framing: Framing, most: usize) -> Result<Bytes, String> {
        let is_long = |length: usize| length > most;
        match framing {
            Framing::None | Framing::Switched => Ok(Bytes::new()),
            Framing::Length(length) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if is_long(length) {
                    return Err("http content length is too large".to_string());
                }
                while link.inbox.len() < length {
                    self.receive(link).await?;
                }
                Ok(link.inbox.split_to(length).freeze())
            }
            Framing::Chunked => self.chunks(link, most).await,
            Framing::UntilClose => {
                while !is_long(link.inbox.len()) {
                    if self.received(link).await? == 0 {
                        if link.transport.is_truncated() {
                            return Err("prematurely closed connection".to_string());
                        }
                        return Ok(link.inbox.split().freeze());
                    }
                }
                Err("http response body is too large".to_string())
            }
        }
    }

    async fn chunks(&self, link: &mut Link, most: usize) -> Result<Bytes, String> {
        let mut decoder = ChunkedDecoder::new(Strictness::Upstream, TrailerLimits::default());
        let mut body = BytesMut::new();
        loop {
            let event = decoder.decode(&mut link.inbox);
            match event.map_err(|_| "invalid http chunked response".to_string())? {
                ChunkEvent::Data(bytes) => {
                    if body.len() + bytes.len() > most {
                        return Err("very large http chunked response".to_string());
                    }
                    body.extend_from_slice(&bytes);
                }
                ChunkEvent::End { .. } => return Ok(body.freeze()),
                ChunkEvent::NeedMore => self.receive(link).await?,
            }
        }
    }

    /// Receives something.
    async fn receive(&self, link: &mut Link) -> Result<(), String> {
        if self.received(link).await? > 0 {
            return Ok(());
        }
        Err("prematurely closed connection".to_string())
    }

    async fn received(&self, link: &mut Link) -> Result<usize, String> {
        link.inbox.reserve(READ);
        let Link {
            transport,
            inbox,
            timer,
            ..
        } = link;
        let receiving = poll_fn(|cx| transport.poll_recv(cx, inbox));
        self.step(timer, receiving, "read").await
    }

    /// A step of a request, within the time that it has.
    async fn step(
        &self,
        timer: &Timer,
        step: impl Future<Output = io::Result<usize>>,
        name: &str,
    ) -> Result<usize, String> {
        match timer.guard_for(self.by.policy.timeout, step).await {
            Err(_) => Err(format!("{name} timed out")),
            Ok(Err(error)) => Err(format!("{name} failed: {}", os_error(&error))),
            Ok(Ok(count)) => Ok(count),
        }
    }
}

/// True for a method that may be asked twice (RFC 9110 §9.2.2).
fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// The bytes of a request; to a proxy, with the whole URL.
fn message(fetch: &Fetch, connection: Option<&str>, forward: Option<&Forward>) -> Vec<u8> {
    let Url {
        authority, path, ..
    } = &fetch.url;
    let method = &fetch.method;
    let line = match forward {
        Some(_) => format!("{method} http://{authority}{path} HTTP/1.1\r\n"),
        None => format!("{method} {path} HTTP/1.1\r\n"),
    };
    let mut text = line.into_bytes();
    let mut field = |name: &[u8], value: &[u8]| {
        text.extend_from_slice(name);
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    };
    let given = |name: &str| {
        let mut fields = fetch.headers.iter();
        fields.find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()))
    };
    let host = given("Host").map_or(fetch.url.authority.as_bytes(), |(_, value)| value);
    field(b"Host", host);
    let agent = given("User-Agent").map_or(&b"nginx-js"[..], |(_, value)| value);
    field(b"User-Agent", agent);
    for (name, value) in &fetch.headers {
        let is_ours = |own: &&str| name.eq_ignore_ascii_case(own.as_bytes());
        if !OURS.iter().any(is_ours) {
            field(name, value);
        }
    }
    if let Some(connection) = connection {
        field(b"Connection", connection.as_bytes());
    }
    if let Some(told) = forward.and_then(|forward| forward.credentials.as_ref()) {
        let told = format!("Basic {}", base64::encode(told));
        field(b"Proxy-Authorization", told.as_bytes());
    }
    let has_body = !fetch.body.is_empty() || matches!(fetch.method.as_str(), "POST" | "PUT");
    if has_body {
        field(b"Content-Length", fetch.body.len().to_string().as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(&fetch.body);
    text
}

/// Fields that a script does not give, or that stand before the others.
const OURS: [&str; 7] = [
    "Host",
    "User-Agent",
    "Content-Length",
    "Connection",
    "Transfer-Encoding",
    "Keep-Alive",
    "Upgrade",
];

fn fetched(head: &ResponseHead, body: Bytes) -> Fetched {
    let fields = head.fields.iter();
    Fetched {
        status: head.status,
        reason: Bytes::copy_from_slice(head.reason()),
        headers: fields
            .map(|field| (field.name.clone(), field.value.clone()))
            .collect(),
        body,
    }
}
