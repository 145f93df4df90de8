//! Scripts: texts of modules, which are only read, and calls of all that scripts find.
//!
//! Time is that of a clock which moves when it is asked, so that the same bytes lead to the same
//! steps.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_script::{
    Bound, Cached, Dict, DictSpec, Engine, Entry, Errand, Fault, Fetched, Ground, Header, Host,
    Import, Level, Limits, Lines, LoadError, Operation, Order, Program, Reply, SessionOrder, Text,
    Turn,
};

const CALLS: &str = include_str!("script.js");
/// Memory of all scripts.
const MEMORY: usize = 16 << 20;
/// The most ends of operations that a script is told.
const MOST_ENDS: usize = 16;

/// Reads a module of these bytes, and runs calls that they mean.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((b'm', text)) => read_module(text),
        Some((_, calls)) => run_calls(calls),
        None => {}
    }
}

fn read_module(text: &[u8]) {
    let loaded = load(text.to_vec());
    if let Err(error) = loaded {
        assert!(!error.message.contains('\n'), "{error}");
    }
}

fn load(text: Vec<u8>) -> Result<Arc<Program>, LoadError> {
    let import = Import {
        name: "main".to_string(),
        file: "/main.js".to_string(),
    };
    let lines = Lines {
        imports: vec![import],
        ..Lines::default()
    };
    Program::load(&lines, move |path| {
        let is_main = path.as_os_str() == "/main.js";
        is_main
            .then(|| text.clone())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    })
}

fn run_calls(data: &[u8]) {
    thread_local! {
        static PROGRAM: Arc<Program> = load(CALLS.into()).expect("it is a module");
    }
    let program = PROGRAM.with(Arc::clone);
    let engine = fresh();
    let limits = Limits {
        memory: MEMORY,
        time: Duration::from_secs(1),
        idle: 1,
    };
    let notes = Notes {
        body: Bytes::copy_from_slice(data),
        dict: dict(),
        ordered: Vec::new(),
    };
    {
        let mut instance = engine.lend(&program, limits).expect("the engine lives");
        let (mut host, mut turn) = instance.call(notes, &entry("main.calls"));
        for _ in 0..MOST_ENDS {
            let Some(mut notes) = host.take_if(|it| !it.ordered.is_empty()) else {
                break;
            };
            if turn != Ok(Turn::Waits) {
                break;
            }
            let operation = notes.ordered.remove(0);
            let end = (operation.id, reply(&operation.order));
            (host, turn) = instance.resume(notes, 1, end);
        }
        check(&turn);
    }
    assert!(engine.memory() <= MEMORY * 2, "{}", engine.memory());
    if engine.is_dead() {
        return;
    }
    // Whatever has happened, another request is served.
    let next = if engine.idle_count() > 0 {
        engine
    } else {
        fresh()
    };
    let mut instance = next.lend(&program, limits).expect("the engine lives");
    let notes = Notes {
        body: Bytes::new(),
        dict: dict(),
        ordered: Vec::new(),
    };
    let (_, turn) = instance.call(notes, &entry("main.alive"));
    check(&turn);
}

fn fresh() -> Rc<Engine<Notes>> {
    let ground = Ground {
        clock: moving,
        random: |bytes| bytes.fill(7),
    };
    Engine::new(ground).expect("there is memory for one")
}

fn check(turn: &Result<Turn, Fault>) {
    if let Err(fault) = turn {
        let told = fault.to_string();
        assert!(!told.contains('\n') && told.len() < 1 << 20, "{told}");
    }
}

fn entry(function: &str) -> Entry<'_> {
    Entry {
        function,
        request: 1,
        errand: Errand::Call,
    }
}

/// A clock that a millisecond passes on for each look.
fn moving() -> Instant {
    thread_local! {
        static FIRST: Instant = Instant::now();
        static PASSED: Cell<u64> = const { Cell::new(0) };
    }
    let passed = PASSED.get() + 1;
    PASSED.set(passed);
    FIRST.with(|first| *first) + Duration::from_millis(passed)
}

fn reply(order: &Order) -> Reply {
    let field = |name: &'static str| {
        (
            Bytes::from_static(b"A"),
            Bytes::from_static(name.as_bytes()),
        )
    };
    match order {
        Order::Timer(_) => Reply::Elapsed,
        Order::Subrequest { uri, .. } => Reply::Answer {
            status: 200,
            headers: vec![field("b"), field("\u{ff}")],
            body: Bytes::from_static(b"{\"a\":1}\xff"),
            asked: BTreeMap::from([("uri", Bytes::from(uri.clone()))]),
        },
        Order::Fetch(_) => Reply::Fetched(Box::new(Fetched {
            status: 404,
            reason: Bytes::from_static(b"\xff"),
            headers: vec![field("c")],
            body: Bytes::from_static(b"[]"),
        })),
        Order::Purge(_) => Reply::Failed("no cache".to_string()),
    }
}

fn dict() -> Arc<Dict> {
    Arc::new(Dict::new(DictSpec {
        name: "d".to_string(),
        capacity: 1 << 16,
        timeout: Some(Duration::from_secs(60)),
        is_of_numbers: false,
        evicts: true,
        state: None,
    }))
}

/// A host that has a body, and notes what it is to begin.
struct Notes {
    body: Bytes,
    dict: Arc<Dict>,
    ordered: Vec<Operation>,
}

impl Host for Notes {
    fn log(&mut self, _level: Level, _text: &str) {}
    fn unhandled(&mut self, text: &str) {
        assert!(!text.contains('\n'), "{text}");
    }
    fn text(&mut self, _text: Text) -> Bytes {
        Bytes::from_static(b"a=1&b=%41+x&a=%ff")
    }
    fn is_internal(&mut self) -> bool {
        false
    }
    fn is_subrequest(&mut self) -> bool {
        false
    }
    fn variable(&mut self, _name: &str) -> Option<Bytes> {
        Some(Bytes::from_static(b"\xff\x00a"))
    }
    fn set_variable(&mut self, _name: &str, _value: Bytes) -> Result<(), String> {
        Ok(())
    }
    fn js_var_names(&mut self) -> Vec<String> {
        vec!["a".to_string()]
    }
    fn headers_in(&mut self) -> Vec<Header> {
        vec![(Bytes::from_static(b"Cookie"), Bytes::from_static(b"\xff"))]
    }
    fn headers_out(&mut self) -> Vec<Header> {
        vec![(Bytes::from_static(b"Set-Cookie"), Bytes::from_static(b"a"))]
    }
    fn set_header_out(&mut self, name: &str, values: Vec<Bytes>) -> Result<(), String> {
        assert!(!name.is_empty() && name.bytes().all(|it| it > b' ' && it < 127));
        let is_clean = |value: &Bytes| !value.iter().any(|it| matches!(it, b'\r' | b'\n' | 0));
        assert!(values.iter().all(is_clean), "a field is one line");
        Ok(())
    }
    fn status(&mut self) -> u16 {
        200
    }
    fn set_status(&mut self, _status: u16) -> Result<(), String> {
        Ok(())
    }
    fn request_body(&mut self) -> Result<Option<Bytes>, String> {
        Ok(Some(self.body.clone()))
    }
    fn send_header(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn send(&mut self, _data: Bytes) -> Result<(), String> {
        Ok(())
    }
    fn send_buffer(&mut self, _data: Bytes) -> Result<(), String> {
        Err("it is no filter".to_string())
    }
    fn done(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn return_(&mut self, status: u16, _text: Option<Bytes>) -> Result<(), String> {
        assert!(status < 1000, "{status}");
        Ok(())
    }
    fn decline(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn internal_redirect(&mut self, _target: Bytes) -> Result<(), String> {
        Ok(())
    }
    fn begin(&mut self, operation: Operation) -> Result<(), String> {
        if self.ordered.len() >= MOST_ENDS {
            return Err("too many".to_string());
        }
        if let Order::Fetch(fetch) = &operation.order {
            assert!(fetch.method.bytes().all(|it| it > b' ' && it != 127));
        }
        self.ordered.push(operation);
        Ok(())
    }
    fn cancel(&mut self, id: u32) {
        self.ordered.retain(|operation| operation.id != id);
    }
    fn dicts(&mut self) -> Vec<DictSpec> {
        vec![self.dict.spec.clone()]
    }
    fn dict(&mut self, name: &str) -> Option<Arc<Dict>> {
        (name == "d").then(|| Arc::clone(&self.dict))
    }
    fn cache_key(&mut self) -> Result<Option<Bytes>, String> {
        Ok(Some(Bytes::from_static(b"key")))
    }
    fn cached(&mut self, _: Option<Bytes>, _: Option<&str>) -> Result<Option<Cached>, String> {
        Ok(Some(Cached::default()))
    }
    fn environment(&mut self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn arguments(&mut self) -> Vec<String> {
        Vec::new()
    }
    fn number(&mut self, _bound: Bound) -> u32 {
        0
    }
    fn session(&mut self, _order: SessionOrder) -> Result<(), String> {
        Ok(())
    }
    fn place(&mut self, _name: &str) -> String {
        "1.2.3".to_string()
    }
}
