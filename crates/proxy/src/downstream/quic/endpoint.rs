//! A worker's endpoint of one address: packets of all its connections come and go here.
//!
//! ```text
//! socket ─batch─► Endpoint ─► machines of connections ─wake─► connections' tasks: read, write
//!    ▲                                                                 │ queue
//!    └────────batch──── what the queued machines have to say ◄─────────┘
//! ```
//!
//! The endpoint's task runs after the tasks that it woke, so what a batch of packets has caused
//! goes out together: answers, acknowledgements, windows.
//!
//! It outlives generations: a reload replaces what new connections get ([`Endpoint::serve`]), and
//! those that are there keep what they began with. It ends when nothing is served and no connection
//! is left.
//!
//! Invariants:
//! 1. A connection is at its endpoint from its accept until its machine has drained.
//! 2. A machine that was changed is in the queue, or its task is about to be woken.
//! 3. At most [`HANDSHAKES_MOST`] handshakes are under way without the client's address being known
//!    for true: further clients have to show first that they get our packets (RFC 9000 §8.1.2).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use millpond_system::clock::{self, Instant};
use millpond_system::quota::Seat;
use millpond_system::udp::{self, Packet, ReceiveSpace, UdpSocket};
use quinn_proto::{
    ConnectionHandle, DatagramEvent, EcnCodepoint, EndpointConfig, Incoming, ServerConfig, Transmit,
};
use tokio::sync::mpsc;
use tokio::time::Sleep;

use super::directory::{Handed, Serving};
use super::identifier::Owner;
use super::link::Link;
use super::qlog::Record;
use crate::downstream::quic::Directory;

/// Batches that are received before other tasks have their turn (arbitrary).
const ROUNDS: usize = 4;

/// Packets that are sent at once to one client: what pacing lets through is seldom more.
const SEGMENTS: usize = 16;

/// Times that a connection sends before others have their turn (arbitrary: of 16 packets each).
const TURNS: usize = 4;

/// Answers of the endpoint by itself that wait for room in the socket (guessed).
const RESPONSES_MOST: usize = 256;

/// Handshakes under way from which on clients have to show their address (guessed: more than a
/// worker completes in 10 ms).
pub(super) const HANDSHAKES_MOST: usize = 64;

/// The decision about a client that begins a connection.
pub(super) enum Admission {
    /// Yes, with this configuration, in this place.
    Take(Arc<ServerConfig>, Seat),
    /// Not before it has shown its address.
    Retry,
    /// There is no room, or nothing is served.
    Refuse,
}

/// Decides about new connections, and starts their tasks.
pub(super) trait Host {
    /// Decides about a client that comes from `remote`; `handshakes` are under way, and its address
    /// was shown to be its own or not.
    fn admit(&self, incoming: &Incoming, handshakes: usize) -> Admission;

    /// The record of the connection that was accepted last, where one is kept.
    fn record(&self) -> Option<Arc<Record>>;

    /// Starts the task of a connection.
    fn start(&self, link: Rc<Link>, addresses: [SocketAddr; 2]);
}

/// The place of an endpoint among all of the process.
pub(super) struct Post {
    /// The begin of its connection ids.
    pub(super) owner: Owner,
    /// The address of its socket.
    pub(super) address: SocketAddr,
    /// All endpoints of the process.
    pub(super) directory: Arc<Directory>,
}

/// An endpoint.
pub(super) struct Endpoint {
    socket: UdpSocket,
    post: Post,
    machine: RefCell<quinn_proto::Endpoint>,
    host: RefCell<Option<Rc<dyn Host>>>,
    /// Connections by their handle, which are small numbers.
    links: RefCell<Vec<Option<Rc<Link>>>>,
    count: Cell<usize>,
    /// Connections whose handshake is under way.
    handshakes: Cell<usize>,
    /// Connections that may have something to send.
    queue: RefCell<VecDeque<Rc<Link>>>,
    /// One alarm for each connection.
    alarms: RefCell<BTreeSet<(Instant, usize)>>,
    /// Packets that the socket had no room for.
    unsent: RefCell<VecDeque<(Transmit, Vec<u8>)>>,
    task: RefCell<Option<Waker>>,
}

/// The task of an endpoint.
pub(super) struct EndpointTask {
    endpoint: Rc<Endpoint>,
    out: Vec<u8>,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// A handshake that counts as under way as long as this lives. INVARIANT 3.
pub(in crate::downstream) struct UnderWay(Rc<Endpoint>);

impl UnderWay {
    pub(super) fn new(endpoint: &Rc<Endpoint>) -> Self {
        endpoint.handshakes.set(endpoint.handshakes.get() + 1);
        UnderWay(Rc::clone(endpoint))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let count = self.0.handshakes.get();
        self.0.handshakes.set(count.saturating_sub(1));
    }
}

impl Endpoint {
    /// An endpoint on a socket that serves nothing yet, and its task.
    pub(super) fn new(
        socket: UdpSocket,
        post: Post,
        config: Arc<EndpointConfig>,
    ) -> (Rc<Self>, EndpointTask) {
        let may_probe = !socket.may_fragment();
        let endpoint = Rc::new(Endpoint {
            socket,
            post,
            // Without a configuration it would answer no client at all; each gets its own when it
            // is accepted.
            machine: RefCell::new(quinn_proto::Endpoint::new(config, None, may_probe, None)),
            host: RefCell::default(),
            links: RefCell::default(),
            count: Cell::default(),
            handshakes: Cell::default(),
            queue: RefCell::default(),
            alarms: RefCell::default(),
            unsent: RefCell::default(),
            task: RefCell::default(),
        });
        let task = EndpointTask {
            endpoint: Rc::clone(&endpoint),
            out: Vec::new(),
            sleep: None,
        };
        (endpoint, task)
    }

    /// Serves new connections by `host` from now on, with `config` where it says nothing else; none
    /// are taken without a host.
    pub(super) fn serve(&self, host: Option<(Rc<dyn Host>, Arc<ServerConfig>)>) {
        let (host, config) = host.unzip();
        let directory = &self.post.directory;
        let serving = match host {
            Some(_) => Serving::New,
            None => Serving::Old,
        };
        directory.note(self.post.owner, serving);
        self.machine.borrow_mut().set_server_config(config);
        *self.host.borrow_mut() = host;
        self.wake();
    }

    /// Has a connection send what it has to say. INVARIANT 2.
    pub(super) fn queue(&self, link: &Rc<Link>) {
        if !link.is_queued.replace(true) {
            self.queue.borrow_mut().push_back(Rc::clone(link));
            self.wake();
        }
    }

    fn wake(&self) {
        let task = self.task.borrow().clone();
        task.iter().for_each(Waker::wake_by_ref);
    }

    fn link(&self, handle: usize) -> Option<Rc<Link>> {
        self.links.borrow().get(handle)?.clone()
    }

    fn enter(&self, link: &Rc<Link>) {
        let mut links = self.links.borrow_mut();
        let at = link.handle.0;
        if links.len() <= at {
            links.resize(at + 1, None);
        }
        if let Some(place) = links.get_mut(at) {
            *place = Some(Rc::clone(link));
        }
        self.count.set(self.count.get() + 1);
    }

    fn remove(&self, link: &Link) {
        let mut links = self.links.borrow_mut();
        let taken = links.get_mut(link.handle.0).and_then(Option::take);
        drop(links);
        if taken.is_some() {
            self.count.set(self.count.get().saturating_sub(1));
        }
        if let Some(at) = link.alarm.take() {
            self.alarms.borrow_mut().remove(&(at, link.handle.0));
        }
    }

    /// True if nothing is served, and no connection is left.
    fn is_over(&self) -> bool {
        self.count.get() == 0 && self.host.borrow().is_none()
    }

    /// Hands a packet that came to this socket to whoever it belongs to.
    fn sort(self: &Rc<Self>, packet: &Packet<'_>, out: &mut Vec<u8>) {
        let directory = &self.post.directory;
        let owner = Owner::of_packet(packet.bytes);
        let is_handed = match owner {
            Some(owner) if owner == self.post.owner => false,
            Some(owner) if directory.hand_over(owner, packet) => true,
            // It may begin a connection, and this endpoint takes none.
            _ if self.host.borrow().is_none() => {
                directory.hand_to_serving(self.post.address, packet)
                    || directory.hand_to_kin(self.post.address, packet)
            }
            Some(_) if !begins(packet.bytes) => directory.hand_to_kin(self.post.address, packet),
            _ => false,
        };
        if !is_handed {
            self.handle(packet, out);
        }
    }

    /// Gives a packet to its connection, or begins one with it.
    fn handle(self: &Rc<Self>, packet: &Packet<'_>, out: &mut Vec<u8>) {
        let now = clock::instant().into_std();
        let ecn = packet
            .ecn
            .and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
        let bytes = BytesMut::from(packet.bytes);
        out.clear();
        let event =
            self.machine
                .borrow_mut()
                .handle(now, packet.remote, packet.local, ecn, bytes, out);
        match event {
            None => {}
            Some(DatagramEvent::Response(transmit)) => self.respond(transmit, out),
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(link) = self.link(handle.0) {
                    link.drive(|machine| machine.handle_event(event));
                    self.settle(&link);
                    link.wake();
                    self.queue(&link);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.begin(incoming, out),
        }
    }

    fn begin(self: &Rc<Self>, incoming: Incoming, out: &mut Vec<u8>) {
        let host = self.host.borrow().clone();
        let admission = host.as_ref().map_or(Admission::Refuse, |host| {
            host.admit(&incoming, self.handshakes.get())
        });
        let mut machine = self.machine.borrow_mut();
        let response = match admission {
            Admission::Refuse => Some(machine.refuse(incoming, out)),
            Admission::Retry => match machine.retry(incoming, out) {
                Ok(transmit) => Some(transmit),
                // It has shown its address.
                Err(error) => Some(machine.refuse(error.into_incoming(), out)),
            },
            Admission::Take(config, seat) => {
                let ip = incoming.local_ip().unwrap_or(self.post.address.ip());
                let local = SocketAddr::new(ip, self.post.address.port());
                let addresses = [incoming.remote_address(), local];
                let now = clock::instant().into_std();
                match machine.accept(incoming, now, out, Some(config)) {
                    Ok(accepted) => {
                        drop(machine);
                        self.start(accepted, (seat, addresses), host.as_deref());
                        return;
                    }
                    Err(error) => error.response,
                }
            }
        };
        drop(machine);
        if let Some(transmit) = response {
            self.respond(transmit, out);
        }
    }

    fn start(
        self: &Rc<Self>,
        accepted: (ConnectionHandle, quinn_proto::Connection),
        (seat, addresses): (Seat, [SocketAddr; 2]),
        host: Option<&dyn Host>,
    ) {
        let record = host.and_then(Host::record);
        let link = Link::new(accepted, Rc::clone(self), (seat, record));
        self.enter(&link);
        self.settle(&link);
        self.queue(&link);
        if let Some(host) = host {
            host.start(link, addresses);
        }
    }

    /// Does what a machine asks of the endpoint, sets its alarm, and lets it go once it has
    /// drained.
    fn settle(&self, link: &Rc<Link>) {
        let mut endpoint = self.machine.borrow_mut();
        let (deadline, has_drained) = link.drive(|machine| {
            while let Some(event) = machine.poll_endpoint_events() {
                if let Some(event) = endpoint.handle_event(link.handle, event) {
                    machine.handle_event(event);
                }
            }
            (machine.poll_timeout(), machine.is_drained())
        });
        drop(endpoint);
        if has_drained {
            // INVARIANT 1.
            self.remove(link);
            link.wake();
            return;
        }
        if let Some(deadline) = deadline {
            self.set_alarm(link, Instant::from_std(deadline));
        }
    }

    /// Sets a connection's alarm, unless it is set for an earlier time: then it is set anew when it
    /// goes off.
    fn set_alarm(&self, link: &Link, deadline: Instant) {
        if link.alarm.get().is_some_and(|at| at <= deadline) {
            return;
        }
        let mut alarms = self.alarms.borrow_mut();
        if let Some(at) = link.alarm.replace(Some(deadline)) {
            alarms.remove(&(at, link.handle.0));
        }
        alarms.insert((deadline, link.handle.0));
    }

    /// Wakes the machines whose alarm has gone off.
    fn heed_alarms(&self) {
        let now = clock::instant();
        loop {
            let due = {
                let mut alarms = self.alarms.borrow_mut();
                match alarms.first().copied() {
                    Some(first) if first.0 <= now => alarms.pop_first(),
                    _ => None,
                }
            };
            let Some((_, handle)) = due else { return };
            let Some(link) = self.link(handle) else {
                continue;
            };
            link.alarm.set(None);
            let is_due = link.drive(|machine| {
                let is_due = machine
                    .poll_timeout()
                    .is_some_and(|at| at <= now.into_std());
                if is_due {
                    machine.handle_timeout(now.into_std());
                }
                is_due
            });
            self.settle(&link);
            if is_due {
                link.wake();
                self.queue(&link);
            }
        }
    }

    /// Sends what an endpoint answers by itself; it is lost where there is no room.
    fn respond(&self, transmit: Transmit, out: &[u8]) {
        let mut unsent = self.unsent.borrow_mut();
        if unsent.len() < RESPONSES_MOST {
            let contents = out.get(..transmit.size).unwrap_or(out);
            unsent.push_back((transmit, contents.to_vec()));
        }
    }

    /// Sends what could not be sent before; ready when nothing is left.
    fn poll_unsent(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut unsent = self.unsent.borrow_mut();
        while let Some((transmit, contents)) = unsent.front() {
            // What cannot be sent is lost, and its connection sees that.
            let _ = std::task::ready!(self.poll_send(cx, transmit, contents));
            unsent.pop_front();
        }
        Poll::Ready(())
    }

    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        transmit: &Transmit,
        contents: &[u8],
    ) -> Poll<std::io::Result<()>> {
        let ecn = transmit.ecn;
        let transmit = udp::Transmit {
            destination: transmit.destination,
            ecn: ecn.and_then(|ecn| udp::EcnCodepoint::from_bits(ecn as u8)),
            contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        self.socket.poll_send(cx, &transmit)
    }

    /// Has the queued connections send; true if some are left for the next turn.
    fn send(&self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> bool {
        let most = self.queue.borrow().len();
        for _ in 0..most {
            if self.poll_unsent(cx).is_pending() {
                // The task is woken when there is room.
                return false;
            }
            let next = self.queue.borrow_mut().pop_front();
            let Some(link) = next else { break };
            link.is_queued.set(false);
            let has_more = self.send_of(&link, cx, out);
            link.note_metrics();
            self.settle(&link);
            if has_more {
                self.queue(&link);
            }
        }
        !self.queue.borrow().is_empty()
    }

    /// Sends what a connection has to say; true if it has more.
    fn send_of(&self, link: &Link, cx: &mut Context<'_>, out: &mut Vec<u8>) -> bool {
        let segments = self.socket.segments().clamp(1, SEGMENTS);
        for _ in 0..TURNS {
            out.clear();
            let now = clock::instant().into_std();
            let transmit = link.drive(|machine| machine.poll_transmit(now, segments, out));
            let Some(transmit) = transmit else {
                link.note_flushed();
                return false;
            };
            let contents = out.get(..transmit.size).unwrap_or(out);
            if self.poll_send(cx, &transmit, contents).is_pending() {
                let kept = contents.to_vec();
                self.unsent.borrow_mut().push_back((transmit, kept));
                return true;
            }
        }
        true
    }

    fn note_task(&self, cx: &Context<'_>) {
        let mut task = self.task.borrow_mut();
        if task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }
}

/// True for a packet that may begin a connection: an Initial one (RFC 9000 §17.2.2).
fn begins(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first & 0xb0 == 0x80)
}

impl EndpointTask {
    /// Goes on until nothing is served and no connection is left.
    pub(super) async fn run(
        mut self,
        mut handed: mpsc::Receiver<Handed>,
        space: Rc<RefCell<ReceiveSpace>>,
    ) {
        std::future::poll_fn(|cx| self.poll((&mut handed, &space), cx)).await;
    }

    fn poll(
        &mut self,
        (handed, space): (&mut mpsc::Receiver<Handed>, &RefCell<ReceiveSpace>),
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let endpoint = Rc::clone(&self.endpoint);
        endpoint.note_task(cx);
        let mut has_more = endpoint.send(cx, &mut self.out);
        has_more |= self.receive(&mut space.borrow_mut(), cx);
        while let Poll::Ready(Some(handed)) = handed.poll_recv(cx) {
            endpoint.handle(&handed.packet(), &mut self.out);
        }
        endpoint.heed_alarms();
        // What is left is sent when there is room.
        let _ = endpoint.poll_unsent(cx);
        if endpoint.is_over() {
            return Poll::Ready(());
        }
        self.wait(cx);
        if has_more {
            // The tasks that were woken before have their turn first.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Receives some batches; true if there may be more.
    fn receive(&mut self, space: &mut ReceiveSpace, cx: &mut Context<'_>) -> bool {
        let EndpointTask { endpoint, out, .. } = self;
        for _ in 0..ROUNDS {
            let received = endpoint.socket.poll_recv(cx, space, |packet| {
                endpoint.sort(&packet, out);
            });
            match received {
                Poll::Pending => return false,
                // An error tells of a packet that we sent; what has come is still there.
                Poll::Ready(_) => {}
            }
        }
        true
    }

    /// Waits for the next alarm.
    fn wait(&mut self, cx: &mut Context<'_>) {
        let first = self.endpoint.alarms.borrow().first().map(|(at, _)| *at);
        let Some(at) = first else { return };
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                if sleep.deadline() != at {
                    sleep.as_mut().reset(at);
                }
                sleep
            }
            none => none.insert(Box::pin(tokio::time::sleep_until(at))),
        };
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}
