//! Walks over a real zone in a directory of their own, with a scripted origin and a paused clock.
//!
//! [`Bench`] holds zone, origin and policies; [`Bench::send`] runs a client's request; its
//! [`Answer`] says label, status, body and trail. Answers of the origin are used in the order in
//! which they were scripted.

mod body;
mod collide;
mod lag;
mod loading;
mod lookup;
mod origin;
mod purge;
mod reason;
mod revalidate;
mod slice;
mod stale;
mod stall;
mod variant;
mod wait;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::{Flags, OffOr, Offset};
use millpond_store::{Fault, ManualClock, Platform, Region, SimIo, ViewState, Zone, ZoneConf};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use super::*;
use crate::exchange::{Ask, FetchEnd, Fetched, Purpose};
use crate::fill::rest::Look;
use crate::max_variants::VariantCount;
use crate::reason::Account;
use crate::refresh_backoff::{Backoff, RefreshFailure};
use crate::use_stale::StaleCause;
use crate::valid::{LineTime, ValidTime};
use origin::{Fail, FakeExchange, Origin, Script};

const SECOND: Duration = Duration::from_secs(1);
const EPOCH: i64 = 1_700_000_000;

/// Everything around a walk.
struct Bench {
    _dir: tempfile::TempDir,
    io: Arc<SimIo>,
    clock: Arc<ManualClock>,
    zone: Arc<CacheZone>,
    policies: Policies,
    /// The key that all texts have; none for keys of their own.
    all: Option<Key>,
    world: Rc<World>,
}

type Listener = Box<dyn Fn(Note)>;

/// World that exchanges see.
struct World {
    origin: RefCell<Origin>,
    began: Instant,
    /// Called once, when the time is asked for: between look-up and entering a fill.
    between: Cell<Option<Box<dyn FnOnce()>>>,
    /// Called with whatever is noted.
    noted: RefCell<Option<Listener>>,
}

impl World {
    fn now(&self) -> i64 {
        EPOCH + self.began.elapsed().as_secs() as i64
    }
}

/// A request.
#[derive(Clone, Default)]
struct Client {
    key: &'static str,
    fields: Vec<(&'static str, String)>,
    is_bypassed: bool,
    is_not_stored: bool,
    policies: Option<Policies>,
    rules: Rules,
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    /// The label, or `shared` or `failed` when there was no answer.
    label: &'static str,
    status: u16,
    /// The body; what came before its end when it broke off.
    body: Result<String, String>,
    trail: String,
    account: Account,
}

impl Answer {
    /// Label and body as one text.
    fn text(&self) -> String {
        match &self.body {
            Ok(body) => format!("{} {body}", self.label),
            Err(body) => format!("{} {body}!", self.label),
        }
    }
}

pub(super) fn policies() -> Policies {
    Policies {
        valid: ValidPolicy { times: vec![] },
        lock: LockPolicy {
            enabled: true,
            timeout: 5 * SECOND,
            age: 5 * SECOND,
            wait_time: Duration::from_millis(500),
        },
        disk: DiskPolicy { timeout: SECOND },
        max_variants: MaxVariantsPolicy {
            max: VariantCount(64),
        },
        hit_for_pass: HitForPassPolicy {
            time: OffOr::On(10 * SECOND),
        },
        stale: StalePolicy {
            causes: Flags::empty(),
        },
        revalidate: RevalidatePolicy {
            conditional: false,
            in_background: false,
        },
        backoff: BackoffPolicy {
            backoff: OffOr::Off,
        },
        range: RangePolicy {
            max_offset: None,
            fill: crate::range::RangeFill::Whole,
            resume: true,
        },
        admission: AdmissionPolicy { min_uses: 1 },
        ignore: IgnorePolicy { fields: None },
        targeted: TargetedPolicy { names: None },
        lag: LagPolicy::default(),
    }
}

/// A time for statuses; none means any.
fn valid(statuses: &[u16], seconds: u64) -> ValidTime {
    ValidTime {
        statuses: (!statuses.is_empty()).then(|| statuses.to_vec()),
        time: LineTime::Fixed(Duration::from_secs(seconds)),
        stale: LineTime::Fixed(Duration::ZERO),
    }
}

/// Runs a test on a paused clock.
fn run<F: Future<Output = ()>>(test: impl FnOnce(Bench) -> F) {
    run_on(|conf| conf, test);
}

fn run_on<F: Future<Output = ()>>(
    adjust: impl FnOnce(ZoneConf) -> ZoneConf,
    test: impl FnOnce(Bench) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let bench = Bench::new(adjust);
        let zone = Arc::clone(&bench.zone);
        let _unstalls = Unstalls(Arc::clone(&bench.io));
        test(bench).await;
        pass_time(600 * SECOND).await;
        assert!(zone.fills.is_empty(), "a fill was left in the table");
    });
}

/// Lets the paused clock run.
async fn pass_time(by: Duration) {
    let _ = tokio::time::timeout(by, std::future::pending::<()>()).await;
}

/// A test that fails must not wait for its disk.
struct Unstalls(Arc<SimIo>);

impl Drop for Unstalls {
    fn drop(&mut self) {
        self.0.set(Fault::None);
    }
}

impl Bench {
    fn new(adjust: impl FnOnce(ZoneConf) -> ZoneConf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let io = Arc::new(SimIo::new());
        let conf = adjust(ZoneConf {
            max_size: Some(64 << 20),
            flush: Duration::ZERO,
            ..ZoneConf::new("test", dir.path().join("zone"))
        });
        let platform = Platform {
            io: io.clone(),
            ..Platform::default()
        };
        let clock = Arc::new(ManualClock::new(EPOCH as u64 * 1000));
        let store = Zone::open_on(conf, clock.clone(), platform).unwrap();
        Bench {
            _dir: dir,
            io,
            clock,
            zone: Arc::new(CacheZone::new("test".to_string(), store)),
            policies: policies(),
            all: None,
            world: Rc::new(World {
                origin: RefCell::default(),
                began: Instant::now(),
                between: Cell::default(),
                noted: RefCell::default(),
            }),
        }
    }

    /// Scripts the origin's next answers.
    fn script<const N: usize>(&self, scripts: [Script; N]) {
        self.world.origin.borrow_mut().scripts.extend(scripts);
    }

    /// Takes back what was not asked for.
    fn unscript(&self) {
        self.world.origin.borrow_mut().scripts.clear();
    }

    /// Number of requests to the origin.
    fn asked(&self) -> usize {
        self.world.origin.borrow().asks.len()
    }

    /// Request number `index` to the origin.
    fn ask(&self, index: usize) -> Ask {
        self.world.origin.borrow().asks[index].clone()
    }

    fn key(&self, client: &Client) -> PrimaryKey {
        let text = Bytes::from_static(client.key.as_bytes());
        match self.all {
            Some(key) => PrimaryKey { text, key },
            None => self.zone.primary(text),
        }
    }

    fn walk(&self, client: &Client) -> Walk {
        let policies = client.policies.as_ref().unwrap_or(&self.policies);
        Walk {
            zone: Arc::clone(&self.zone),
            key: self.key(client),
            policies: Arc::new(policies.clone()),
            rules: client.rules,
            slicing: None,
            past: None,
        }
    }

    /// A request for `key` that runs by itself.
    fn start(&self, client: Client) -> JoinHandle<Answer> {
        self.start_walk(self.walk(&client), client)
    }

    fn start_walk(&self, walk: Walk, client: Client) -> JoinHandle<Answer> {
        let mut x = FakeExchange::new(Rc::clone(&self.world), client);
        tokio::task::spawn_local(async move {
            let mut trail = Trail::new();
            let served = serve(&mut x, &walk, &mut |step| trail.push(step)).await;
            let label = x.label.map_or("", CacheStatus::as_str);
            let mut answer = answer(served, label, trail.join(" ")).await;
            answer.account = x.account;
            answer
        })
    }

    async fn send(&self, client: Client) -> Answer {
        self.start(client).await.unwrap()
    }

    /// Label and body of a plain request.
    async fn get(&self, key: &'static str) -> String {
        self.send(client(key)).await.text()
    }

    /// Label and body of a request with a field.
    async fn get_with(&self, key: &'static str, name: &'static str, value: &str) -> String {
        self.send(client(key).field(name, value)).await.text()
    }
}

fn client(key: &'static str) -> Client {
    Client {
        key,
        ..Client::default()
    }
}

impl Client {
    fn field(mut self, name: &'static str, value: &str) -> Self {
        self.fields.push((name, value.to_string()));
        self
    }

    fn bypassed(mut self) -> Self {
        self.is_bypassed = true;
        self
    }

    fn not_stored(mut self) -> Self {
        self.is_not_stored = true;
        self
    }

    fn under(mut self, policies: Policies) -> Self {
        self.policies = Some(policies);
        self
    }
}

/// `label` is the request's own, for a failure.
async fn answer(
    served: Result<Served<origin::FakeFetched>, Fail>,
    label: &'static str,
    trail: String,
) -> Answer {
    let (label, status, body) = match served {
        Ok(Served::Entry(found, label)) => {
            let body = regions(found.entry.regions(0..found.entry.len()));
            assert_eq!(body.len() as u64, found.entry.len());
            (label.as_str(), found.head.status, Ok(body))
        }
        Ok(Served::Filling(streaming, reader, label)) => {
            (label.as_str(), streaming.head.status, read(reader).await)
        }
        Ok(Served::Passed(fetched, label)) => {
            (label.as_str(), fetched.status(), drain(fetched).await)
        }
        Err(Fail {
            status, is_shared, ..
        }) => {
            let how = if is_shared { "shared" } else { "failed" };
            (label, status, Ok(format!("{how} {status}").into_bytes()))
        }
    };
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Answer {
        label,
        status,
        body: body.map(text).map_err(text),
        trail,
        account: Account::default(),
    }
}

/// Reads a running fill as a proxy would.
async fn read(reader: Reader) -> Result<Vec<u8>, Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let state = reader.view.state();
        let seen = body.len() as u64;
        body.extend(regions(reader.view.regions(seen..u64::MAX)));
        let at = body.len() as u64;
        match state {
            ViewState::Complete => return Ok(body),
            ViewState::Filling => {
                reader.view.changed(at).await;
                continue;
            }
            ViewState::Abandoned(_) => {}
        }
        match reader.seat.look(&(at..u64::MAX)) {
            Look::InView => {}
            Look::Bytes(bytes) => body.extend(regions(bytes)),
            Look::Wait(version) => reader.seat.changed(version).await,
            Look::End(Ok(())) => return Ok(body),
            Look::LetGo | Look::End(Err(_)) => return Err(body),
        }
    }
}

async fn drain(mut fetched: origin::FakeFetched) -> Result<Vec<u8>, Vec<u8>> {
    let mut body = Vec::new();
    while let Some(piece) = fetched.next().await {
        match piece {
            Ok(bytes) => body.extend_from_slice(&bytes),
            Err(_) => return Err(body),
        }
    }
    Ok(body)
}

fn regions(regions: impl IntoIterator<Item = Region>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for region in regions {
        match region {
            Region::Memory(memory) => bytes.extend_from_slice(&memory),
            Region::File { file, offset, len } => {
                let start = bytes.len();
                bytes.resize(start + len as usize, 0);
                file.read_exact_at(&mut bytes[start..], offset).unwrap();
            }
        }
    }
    bytes
}
