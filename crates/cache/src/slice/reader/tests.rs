//! Readers that are far behind a run: when it is cut for them, and when not.
//!
//! Reader and run are polled by hand, so that either can be kept from its turn, and the clock is
//! moved by hand. The origin is a queue.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use bytes::Bytes;
use millpond_store::{Key, ManualClock, Platform, SimIo, Zone, ZoneConf};
use tokio::sync::mpsc;

use super::*;
use crate::exchange::{Ask, FetchEnd, FetchFailure, Fetched};
use crate::head::{FieldsWriter, SliceSet, StoredHead};
use crate::slice::DEEP;
use crate::slice::run::LOOKS_MAX;

const SIZE: u64 = DEEP;
const SLICES: u64 = 4;
/// Range that the reader wants: the last slice, far behind the beginning of the run.
const WANTED: Range<u64> = (SLICES - 1) * SIZE..SLICES * SIZE;
/// Bytes of a run that is slow, in one look.
const LITTLE: u64 = 1 << 10;

/// Answer whose bytes are those that were put into a queue.
struct Queued(mpsc::UnboundedReceiver<Bytes>);

impl Fetched for Queued {
    fn status(&self) -> u16 {
        206
    }

    fn length(&self) -> Option<u64> {
        Some(SLICES * SIZE)
    }

    fn each_field(&self, _each: &mut dyn FnMut(&[u8], &[u8])) {}

    async fn next(&mut self) -> Option<Result<Bytes, FetchEnd>> {
        self.0.recv().await.map(Ok)
    }

    fn next_ready(&mut self) -> Option<Option<Result<Bytes, FetchEnd>>> {
        self.0.try_recv().ok().map(|bytes| Some(Ok(bytes)))
    }
}

/// No answer.
struct NoAnswer;

impl FetchFailure for NoAnswer {
    fn cause(&self) -> Option<StaleCause> {
        None
    }

    fn status(&self) -> u16 {
        502
    }

    fn shared(_status: u16) -> Self {
        NoAnswer
    }

    fn unvalidated(self) -> Self {
        self
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Exchange that keeps the tasks that are to ask the origin, and starts none.
#[derive(Clone, Default)]
struct Keeping {
    tasks: Rc<RefCell<Vec<Task>>>,
}

impl Exchange for Keeping {
    type Fetched = Queued;
    type Failure = NoAnswer;
    type Background = Keeping;

    fn now(&self) -> i64 {
        0
    }

    fn is_background(&self) -> bool {
        true
    }

    fn field(&self, _name: &[u8]) -> Vec<&[u8]> {
        Vec::new()
    }

    fn must_bypass(&mut self) -> bool {
        false
    }

    fn must_not_store(&mut self) -> bool {
        false
    }

    async fn fetch(&mut self, _ask: Ask) -> Result<Queued, NoAnswer> {
        Err(NoAnswer)
    }

    fn background(&self) -> Keeping {
        self.clone()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.borrow_mut().push(Box::pin(task));
    }
}

/// A run for the whole body, whose answer is there, and a reader of its last slice.
struct Scene {
    _dir: tempfile::TempDir,
    x: Keeping,
    run: Arc<Run>,
    origin: mpsc::UnboundedSender<Bytes>,
    driver: Task,
    reader: SliceReader<Keeping>,
}

fn generation(dir: &tempfile::TempDir) -> Arc<Generation> {
    let platform = Platform {
        io: Arc::<SimIo>::default(),
        ..Platform::default()
    };
    let conf = ZoneConf::new("slices", dir.path());
    let store = Zone::open_on(conf, Arc::new(ManualClock::new(1000)), platform).unwrap();
    let head = StoredHead::new(200, FieldsWriter::default());
    let set = SliceSet {
        generation: [1; 16],
        total: SLICES * SIZE,
        size: SIZE,
    };
    Arc::new(Generation::new(store, Key::of(b"owner"), &head, set))
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let generation = generation(&dir);
        let x = Keeping::default();
        let (origin, queue) = mpsc::unbounded_channel();
        let whole = 0..SLICES * SIZE;
        let driven = pump::Driven::adopt(&generation, whole.clone(), Purpose::Cache).unwrap();
        let Some(Source::Run(run)) = generation.source(&whole, Purpose::Readers) else {
            panic!("nobody brings it");
        };
        let driver = pump::adopt(x.background(), driven, Queued(queue));
        Scene {
            _dir: dir,
            run,
            origin,
            driver: Box::pin(driver),
            reader: SliceReader::new(x.background(), &generation, WANTED),
            x,
        }
    }

    /// The origin sends so many bytes.
    fn send(&self, count: u64) {
        let bytes = vec![b'x'; usize::try_from(count).unwrap()];
        self.origin.send(bytes.into()).unwrap();
    }

    /// The task that drives the run has its turn, and another for what it has put off.
    fn drive(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        if self.driver.as_mut().poll(&mut cx).is_pending() {
            let _ended = self.driver.as_mut().poll(&mut cx);
        }
    }

    /// The reader has its turn; true if it has bytes.
    fn read(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = || self.reader.poll_ready(&mut cx).map(|ready| ready.unwrap());
        // One that finds nothing lets others go first.
        read().is_ready() || read().is_ready()
    }

    /// The reader looks, when it is time.
    async fn look(&mut self) {
        tokio::time::advance(LOOK_INTERVAL + Duration::from_millis(1)).await;
        assert!(!self.read(), "what it wants is not there");
    }

    fn is_cut(&self) -> bool {
        self.run.end() < SLICES * SIZE
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_run_is_cut_before_the_slice_that_is_waited_for() {
    let mut scene = Scene::new();
    scene.drive();
    assert!(!scene.read());
    scene.send(LITTLE);
    scene.drive();
    scene.look().await;
    scene.drive();
    assert_eq!(scene.run.end(), WANTED.start);
    assert!(!scene.read());
    assert_eq!(
        scene.x.tasks.borrow().len(),
        1,
        "the reader asks for itself"
    );
}

#[tokio::test(start_paused = true)]
async fn what_has_come_and_was_not_read_yet_is_not_asked_for_again() {
    let mut scene = Scene::new();
    scene.drive();
    assert!(!scene.read());
    scene.send(LITTLE);
    scene.drive();
    // The rest is there, and the worker of the run has no time for it.
    scene.send(SLICES * SIZE - LITTLE);
    scene.look().await;
    scene.look().await;
    scene.drive();
    assert!(!scene.is_cut() && scene.read());
    assert!(scene.x.tasks.borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_is_judged_by_what_came_since_its_answer() {
    let mut scene = Scene::new();
    assert!(!scene.read());
    for _ in 0..2 * LOOKS_MAX {
        scene.look().await;
    }
    // The answer comes just before the next look.
    scene.send(LITTLE);
    scene.drive();
    scene.look().await;
    scene.drive();
    assert!(!scene.is_cut());
    scene.send(LITTLE);
    scene.drive();
    scene.look().await;
    scene.drive();
    assert!(scene.is_cut());
}

#[tokio::test(start_paused = true)]
async fn a_run_may_stand_still_for_a_moment() {
    let mut scene = Scene::new();
    scene.drive();
    assert!(!scene.read());
    for _ in 1..LOOKS_MAX {
        scene.look().await;
        scene.drive();
        assert!(!scene.is_cut());
    }
    scene.look().await;
    scene.drive();
    assert!(scene.is_cut());
}
