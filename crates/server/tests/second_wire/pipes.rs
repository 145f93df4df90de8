//! A made-up protocol of several streams on one connection, over in-memory pipes: what HTTP/2 needs
//! of [`Stream`], in a hundred lines.
//!
//! ```text
//! frame = stream(1) kind(1) length(2) payload
//! client ► H head as HTTP/1 text   D body   E end of body   W bytes of credit (4)   R reset
//! server ► I interim answer        H head   D body          E end, with trailers    R reset
//! ```
//!
//! A stream may send as many bytes of its body as it was given credit for.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use millpond_exchange::client::Came;
use millpond_exchange::client::Client;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::client::send::AnswerHead;
use millpond_exchange::client::wire::{Broken, Stream, Wire};
use millpond_exchange::failure::{ClientGone, Failure};
use millpond_exchange::settings::listen::Listen;
use millpond_exchange::worker::Generation;
use millpond_proxy::downstream::serve;
use millpond_system::address::Address;
use millpond_system::clock;
use millpond_wire::header::Fields;
use millpond_wire::http1::encode;
use millpond_wire::http1::request::{Connect, Framing, Limits, Progress, RequestParser};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// Bytes of a pipe; frames wait beyond.
const PIPE: usize = 4096;
/// The largest payload.
const FRAME: usize = 1024;
/// Nothing takes so long, unless a test fails.
const PATIENCE: Duration = Duration::from_secs(30);

type Frame = (u8, u8, Bytes);

async fn read_frame(pipe: &mut ReadHalf<DuplexStream>) -> Option<Frame> {
    let mut head = [0; 4];
    pipe.read_exact(&mut head).await.ok()?;
    let [stream, kind, high, low] = head;
    let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
    pipe.read_exact(&mut payload).await.ok()?;
    Some((stream, kind, Bytes::from(payload)))
}

async fn write_frame(pipe: &mut WriteHalf<DuplexStream>, (stream, kind, payload): &Frame) {
    let [high, low] = u16::try_from(payload.len()).expect("short").to_be_bytes();
    // A test that has ended reads no more.
    let _ = pipe.write_all(&[*stream, *kind, high, low]).await;
    let _ = pipe.write_all(payload).await;
}

/// The server's side of a stream.
struct Lane {
    number: u8,
    out: mpsc::UnboundedSender<Frame>,
    body: RefCell<VecDeque<Bytes>>,
    is_body_whole: Cell<bool>,
    credit: Cell<usize>,
    has_left: Cell<bool>,
    has_ended: Cell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

impl Lane {
    fn new(number: u8, out: mpsc::UnboundedSender<Frame>) -> Rc<Self> {
        Rc::new(Lane {
            number,
            out,
            body: RefCell::default(),
            is_body_whole: Cell::new(false),
            credit: Cell::new(0),
            has_left: Cell::new(false),
            has_ended: Cell::new(false),
            wakers: RefCell::default(),
        })
    }

    fn send(&self, kind: u8, payload: Bytes) {
        // The pipe's end is the end of all streams.
        let _ = self.out.send((self.number, kind, payload));
    }

    /// Something has changed.
    fn wake(&self) {
        self.wakers.take().into_iter().for_each(Waker::wake);
    }

    fn wait<T>(&self, cx: &Context<'_>) -> Poll<T> {
        self.wakers.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }
}

impl Stream for Lane {
    fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Failure>> {
        match self.body.borrow_mut().pop_front() {
            Some(bytes) => Poll::Ready(Ok(bytes)),
            None if self.is_body_whole.get() => Poll::Ready(Ok(Bytes::new())),
            None if self.has_left.get() => Poll::Ready(Err(ClientGone::Closed.into())),
            None => self.wait(cx),
        }
    }

    fn is_body_done(&self) -> bool {
        self.is_body_whole.get() && self.body.borrow().is_empty()
    }

    fn become_tunnel(&self) {}

    fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_left.get() {
            Poll::Ready(())
        } else {
            self.wait(cx)
        }
    }

    fn inform(&self, status: u16, fields: &Fields) {
        let mut text = BytesMut::new();
        encode::write_status(&mut text, status);
        encode::write_fields(&mut text, fields);
        self.send(b'I', text.freeze());
    }

    fn begin(&self, head: &AnswerHead<'_>, _: usize) -> u64 {
        let mut text = BytesMut::new();
        encode::write_status(&mut text, head.status);
        encode::write_fields(&mut text, head.fields);
        if let Some(length) = head.content_length() {
            encode::write_content_length(&mut text, length);
        }
        let len = text.len() as u64;
        self.send(b'H', text.freeze());
        len
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<usize, ClientGone>> {
        match self.credit.get() {
            _ if self.has_left.get() => Poll::Ready(Err(ClientGone::Closed)),
            0 => self.wait(cx),
            credit => Poll::Ready(Ok(credit.min(FRAME))),
        }
    }

    fn push(&self, bytes: Bytes) {
        self.credit.set(self.credit.get() - bytes.len());
        self.send(b'D', bytes);
    }

    fn end(&self, trailers: Option<&Fields>) {
        let mut text = BytesMut::new();
        if let Some(trailers) = trailers {
            encode::write_fields(&mut text, trailers);
        }
        self.has_ended.set(true);
        self.send(b'E', text.freeze());
    }

    fn poll_sent(&self, _: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        Poll::Ready(Ok(()))
    }

    fn reset(&self, _: Broken) {
        self.has_ended.set(true);
        self.send(b'R', Bytes::new());
    }
}

/// The server's side of a connection.
struct Session {
    connection: Rc<Connection>,
    listen: Arc<Listen>,
    lanes: HashMap<u8, Rc<Lane>>,
    out: mpsc::UnboundedSender<Frame>,
}

impl Session {
    fn heed(&mut self, (number, kind, payload): Frame) {
        if kind == b'H' {
            return self.begin(number, payload);
        }
        let lane = &self.lanes[&number];
        match kind {
            b'D' => lane.body.borrow_mut().push_back(payload),
            b'E' => lane.is_body_whole.set(true),
            b'W' => lane
                .credit
                .set(lane.credit.get() + payload.clone().get_u32() as usize),
            b'R' => lane.has_left.set(true),
            kind => panic!("a frame of kind {kind}"),
        }
        lane.wake();
    }

    fn begin(&mut self, number: u8, text: Bytes) {
        let mut text = BytesMut::from(&*text);
        let parsed = RequestParser::default().parse(&mut text, &Limits::default());
        let Progress::Done(head) = parsed else {
            panic!("a head that is none");
        };
        let now = clock::instant();
        let framing = head.check(Connect::Refuse).expect("a head in order");
        let came = Came {
            head,
            started: now,
            at: now,
            is_pipelined: false,
        };
        let lane = Lane::new(number, self.out.clone());
        lane.is_body_whole.set(framing == Framing::None);
        self.lanes.insert(number, Rc::clone(&lane));
        let body = match framing {
            Framing::None => RequestBody::None,
            Framing::Length(length) => RequestBody::Unread {
                length: Some(length),
            },
            _ => RequestBody::Unread { length: None },
        };
        let wire = Wire::Stream(Rc::clone(&lane) as Rc<dyn Stream>);
        let client = Client::next(Rc::clone(&self.connection), wire, &came);
        let listen = Arc::clone(&self.listen);
        tokio::task::spawn_local(async move {
            let served = serve::serve(Rc::new(client), &listen, came, body).await;
            drop(served);
            if !lane.has_ended.get() {
                lane.reset(Broken::Failed);
            }
        });
    }
}

/// Serves a connection of the made-up protocol.
fn accept(pipe: DuplexStream, generation: &Rc<Generation>, listen: Arc<Listen>) {
    let address = |port| Address::Inet(([127, 0, 0, 1], port).into());
    let addresses = [address(4711), address(80)];
    let connection = Connection::new(Rc::clone(generation), 1, addresses, clock::instant());
    let (mut reader, mut writer) = tokio::io::split(pipe);
    let (out, mut frames) = mpsc::unbounded_channel();
    tokio::task::spawn_local(async move {
        while let Some(frame) = frames.recv().await {
            write_frame(&mut writer, &frame).await;
        }
    });
    let mut session = Session {
        connection: Rc::new(connection),
        listen,
        lanes: HashMap::new(),
        out,
    };
    tokio::task::spawn_local(async move {
        while let Some(frame) = read_frame(&mut reader).await {
            session.heed(frame);
        }
    });
}

/// An answer as its client has it so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) interim: Vec<String>,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    pub(super) trailers: String,
    pub(super) is_whole: bool,
    pub(super) is_reset: bool,
}

impl Answer {
    pub(super) fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.is_whole || self.is_reset
    }
}

/// The client's side of a connection.
pub(super) struct Caller {
    reader: ReadHalf<DuplexStream>,
    writer: WriteHalf<DuplexStream>,
    pub(super) answers: HashMap<u8, Answer>,
}

impl Caller {
    /// A connection to a server of that configuration.
    pub(super) fn connect(generation: &Rc<Generation>) -> Self {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let listen = Arc::clone(&generation.conf.bindings[0].listens[0]);
        accept(theirs, generation, listen);
        let (reader, writer) = tokio::io::split(ours);
        Caller {
            reader,
            writer,
            answers: HashMap::new(),
        }
    }

    async fn send(&mut self, stream: u8, kind: u8, payload: impl Into<Bytes>) {
        write_frame(&mut self.writer, &(stream, kind, payload.into())).await;
    }

    /// Sends a request without a body, and credit for `credit` bytes of its answer's.
    pub(super) async fn ask(&mut self, stream: u8, (path, fields): (&str, &str), credit: u32) {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        self.send(stream, b'H', head).await;
        self.give(stream, credit).await;
    }

    /// Begins a request with a body of so many bytes.
    pub(super) async fn post(&mut self, stream: u8, path: &str, len: usize) {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
        self.send(stream, b'H', head).await;
        self.give(stream, u32::MAX / 2).await;
    }

    /// Sends a piece of a body; an empty one is its end.
    pub(super) async fn body(&mut self, stream: u8, piece: &'static [u8]) {
        let kind = if piece.is_empty() { b'E' } else { b'D' };
        self.send(stream, kind, Bytes::from_static(piece)).await;
    }

    /// Gives the answer on a stream so much more credit.
    pub(super) async fn give(&mut self, stream: u8, credit: u32) {
        self.send(stream, b'W', Bytes::copy_from_slice(&credit.to_be_bytes()))
            .await;
    }

    /// Leaves a stream.
    pub(super) async fn reset(&mut self, stream: u8) {
        self.send(stream, b'R', Bytes::new()).await;
    }

    /// The answer on a stream as far as it has come.
    pub(super) fn so_far(&self, stream: u8) -> Answer {
        self.answers.get(&stream).cloned().unwrap_or_default()
    }

    /// Reads frames of all streams until the answer on one of them is as wanted.
    pub(super) async fn until(&mut self, stream: u8, is_so: impl Fn(&Answer) -> bool) -> Answer {
        while !is_so(&self.so_far(stream)) {
            let frame = tokio::time::timeout(PATIENCE, read_frame(&mut self.reader)).await;
            let Ok(Some((number, kind, payload))) = frame else {
                panic!("{stream}: {:?}", self.so_far(stream));
            };
            let answer = self.answers.entry(number).or_default();
            assert!(!answer.has_ended(), "{number}: a frame behind the end");
            let text = || String::from_utf8_lossy(&payload).into_owned();
            match kind {
                b'I' => answer.interim.push(text()),
                b'H' => answer.head = text(),
                b'D' => answer.body.extend_from_slice(&payload),
                b'E' => (answer.trailers, answer.is_whole) = (text(), true),
                b'R' => answer.is_reset = true,
                kind => panic!("a frame of kind {kind}"),
            }
        }
        self.so_far(stream)
    }

    /// The answer on a stream once it has ended.
    pub(super) async fn answer(&mut self, stream: u8) -> Answer {
        self.until(stream, Answer::has_ended).await
    }
}
