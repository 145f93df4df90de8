//! The scripted origin and the exchange that asks it.

use std::collections::VecDeque;

use super::*;
use crate::tag::TagWriter;
use crate::targeted::EachField;

/// Answers that the origin will give, and requests that it got.
#[derive(Default)]
pub(super) struct Origin {
    pub(super) scripts: VecDeque<Script>,
    pub(super) asks: Vec<Ask>,
}

/// One answer of the origin.
#[derive(Clone)]
pub(super) struct Script {
    delay: Duration,
    reply: Reply,
}

#[derive(Clone)]
enum Reply {
    Answer(FakeFetched),
    Failure(Fail),
}

/// No answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fail {
    pub(super) cause: Option<StaleCause>,
    pub(super) status: u16,
    pub(super) is_shared: bool,
}

impl FetchFailure for Fail {
    fn cause(&self) -> Option<StaleCause> {
        self.cause
    }

    fn status(&self) -> u16 {
        self.status
    }

    fn shared(status: u16) -> Self {
        Fail {
            cause: None,
            status,
            is_shared: true,
        }
    }

    fn unvalidated(self) -> Self {
        Fail {
            status: 504,
            ..self
        }
    }
}

/// A part of a body as it comes.
#[derive(Clone)]
enum Piece {
    Bytes(Bytes),
    Pause(Duration),
    PausedUntil(Instant),
    Fail(FetchEnd),
}

/// A scripted answer.
#[derive(Clone)]
pub(super) struct FakeFetched {
    status: u16,
    length: Option<u64>,
    is_delimited: bool,
    fields: Vec<(&'static str, String)>,
    pieces: VecDeque<Piece>,
}

/// An answer with this status and no body.
pub(super) fn status(status: u16) -> Script {
    Script {
        delay: Duration::ZERO,
        reply: Reply::Answer(FakeFetched {
            status,
            length: None,
            is_delimited: true,
            fields: vec![],
            pieces: VecDeque::new(),
        }),
    }
}

/// A 200 with this body, fresh for a minute.
pub(super) fn ok(body: &str) -> Script {
    status(200).piece(body).cc("max-age=60")
}

/// No answer at all.
pub(super) fn failure(cause: StaleCause, status: u16) -> Script {
    Script {
        delay: Duration::ZERO,
        reply: Reply::Failure(Fail {
            cause: Some(cause),
            status,
            is_shared: false,
        }),
    }
}

impl Script {
    /// The head comes after this many milliseconds.
    pub(super) fn after(mut self, ms: u64) -> Self {
        self.delay = Duration::from_millis(ms);
        self
    }

    pub(super) fn field(mut self, name: &'static str, value: &str) -> Self {
        self.fetched().fields.push((name, value.to_string()));
        self
    }

    /// Replaces Cache-Control.
    pub(super) fn cc(mut self, value: &str) -> Self {
        self.fetched()
            .fields
            .retain(|(name, _)| *name != "Cache-Control");
        self.field("Cache-Control", value)
    }

    /// Answer without any word about freshness.
    pub(super) fn silent(mut self) -> Self {
        self.fetched().fields.clear();
        self
    }

    pub(super) fn length(mut self, length: u64) -> Self {
        self.fetched().length = Some(length);
        self
    }

    /// Only the end of the connection ends the body.
    pub(super) fn until_close(mut self) -> Self {
        self.fetched().is_delimited = false;
        self
    }

    pub(super) fn piece(mut self, piece: &str) -> Self {
        let bytes = Bytes::copy_from_slice(piece.as_bytes());
        self.fetched().pieces.push_back(Piece::Bytes(bytes));
        self
    }

    /// The body pauses for this many milliseconds.
    pub(super) fn pause(mut self, ms: u64) -> Self {
        let pause = Piece::Pause(Duration::from_millis(ms));
        self.fetched().pieces.push_back(pause);
        self
    }

    /// The body breaks off.
    pub(super) fn broken(mut self) -> Self {
        self.fetched()
            .pieces
            .push_back(Piece::Fail(FetchEnd::Truncated));
        self
    }

    fn fetched(&mut self) -> &mut FakeFetched {
        match &mut self.reply {
            Reply::Answer(fetched) => fetched,
            Reply::Failure(_) => panic!("a failure has no head"),
        }
    }
}

impl Fetched for FakeFetched {
    fn status(&self) -> u16 {
        self.status
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn is_delimited(&self) -> bool {
        self.is_delimited
    }

    fn each_field(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for (name, value) in &self.fields {
            each(name.as_bytes(), value.as_bytes());
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, FetchEnd>> {
        loop {
            if let Some(ready) = self.next_ready() {
                return ready;
            }
            if let Some(Piece::PausedUntil(deadline)) = self.pieces.front() {
                pass_time(*deadline - Instant::now()).await;
            }
        }
    }

    fn next_ready(&mut self) -> Option<Option<Result<Bytes, FetchEnd>>> {
        if let Some(piece) = self.pieces.front_mut()
            && let Piece::Pause(pause) = piece
        {
            *piece = Piece::PausedUntil(Instant::now() + *pause);
        }
        if let Some(Piece::PausedUntil(deadline)) = self.pieces.front() {
            if *deadline > Instant::now() {
                return None;
            }
            self.pieces.pop_front();
        }
        Some(match self.pieces.pop_front() {
            None => None,
            Some(Piece::Bytes(bytes)) => Some(Ok(bytes)),
            Some(Piece::Fail(end)) => Some(Err(end)),
            Some(pause) => {
                self.pieces.push_front(pause);
                return None;
            }
        })
    }
}

/// A request of a client, or a background update for it.
pub(super) struct FakeExchange {
    world: Rc<World>,
    client: Client,
    is_background: bool,
    /// Label of the request so far.
    pub(super) label: Option<CacheStatus>,
    /// Account of the request.
    pub(super) account: Account,
}

impl FakeExchange {
    pub(super) fn new(world: Rc<World>, client: Client) -> Self {
        FakeExchange {
            world,
            client,
            is_background: false,
            label: None,
            account: Account::default(),
        }
    }
}

impl Exchange for FakeExchange {
    type Fetched = FakeFetched;
    type Failure = Fail;
    type Background = FakeExchange;

    fn now(&self) -> i64 {
        if let Some(between) = self.world.between.take() {
            between();
        }
        self.world.now()
    }

    fn is_background(&self) -> bool {
        self.is_background
    }

    fn field(&self, wanted: &[u8]) -> Vec<&[u8]> {
        let named = |name: &str| name.as_bytes().eq_ignore_ascii_case(wanted);
        let fields = self.client.fields.iter();
        fields
            .filter(|(name, _)| named(name))
            .map(|(_, value)| value.as_bytes())
            .collect()
    }

    fn must_bypass(&mut self) -> bool {
        self.client.is_bypassed
    }

    fn must_not_store(&mut self) -> bool {
        self.client.is_not_stored
    }

    /// The values of the field `tags`, for the host `host` and the site `site`.
    fn tags(&mut self, _: EachField<'_>, _: &[Bytes]) -> Bytes {
        let mut tags = TagWriter::new(b"host", b"site");
        for value in self.field(b"tags") {
            tags.push_all(value);
        }
        tags.finish()
    }

    fn label(&mut self, status: CacheStatus) {
        self.label = Some(status);
    }

    fn note(&mut self, note: Note) {
        self.account.note(note);
        if let Some(noted) = &*self.world.noted.borrow() {
            noted(note);
        }
    }

    async fn fetch(&mut self, ask: Ask) -> Result<FakeFetched, Fail> {
        let script = {
            let mut origin = self.world.origin.borrow_mut();
            origin.asks.push(ask.clone());
            origin.scripts.pop_front()
        };
        let script = script.expect("the origin was asked more often than scripted");
        if !script.delay.is_zero() {
            pass_time(script.delay).await;
        }
        match script.reply {
            Reply::Answer(fetched) => Ok(fetched),
            Reply::Failure(failure) => Err(failure),
        }
    }

    fn background(&self) -> FakeExchange {
        FakeExchange {
            world: Rc::clone(&self.world),
            client: self.client.clone(),
            is_background: true,
            label: None,
            account: Account::default(),
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        tokio::task::spawn_local(task);
    }
}
