//! Complex values: compiled, put together again, and evaluated for a request.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use millpond_conf::{LoadOptions, ParseContext, Part, Span, Template, load_text};
use millpond_proxy::clock;
use millpond_proxy::downstream::Downstream;
use millpond_proxy::downstream::address::Address;
use millpond_proxy::downstream::timer::Timer;
use millpond_proxy::http1::request::{Limits, Progress, RequestHead, RequestParser};
use millpond_proxy::request::Request;
use millpond_proxy::route::target;
use millpond_proxy::scope::{self, Conf};
use millpond_proxy::socket::Socket;
use millpond_proxy::worker::{Generation, LocalConf, Shared, Worker};
use tokio::runtime::Runtime;

/// The configuration that values are evaluated under.
const CONF: &str = "events {} http {
    map $uri $mapped { default $host; ~(?<named>b+) $named$args; /x \"$1-$mapped\"; }
    map $arg_a $second { hostnames; *.a.b 1; default $mapped; }
    geo $near { default far; 127.0.0.0/8 near; }
    split_clients $args $half { 50% a; * b; }
    server { listen 127.0.0.1:1; server_name ~^(?<sub>.+)\\.test$ test;
        set $own \"$mapped.$second\";
        location / { return 200 $own; } } }";

/// No value of a short template for a short head is longer.
const MAX_VALUE: usize = 1 << 20;

thread_local! {
    static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

/// Compiles the first line and evaluates it for the request behind it.
pub fn run(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let Some(Ok(text)) = parts.next().map(std::str::from_utf8) else {
        return;
    };
    let mut cx = ParseContext::new("/nonexistent", "/nonexistent");
    let Ok(template) = Template::parse(text, Span::NONE, &mut cx.variables) else {
        return;
    };
    check_parts(&template, text, &cx);
    let Some(head) = parts.next().and_then(head) else {
        return;
    };
    let tree = load_text(
        "fuzz.conf",
        CONF,
        &LoadOptions::default(),
        &mut cx.diagnostics,
    );
    let (Some(conf), _) = scope::build(&tree, cx) else {
        panic!("the configuration of the target is wrong");
    };
    RUNTIME.with_borrow_mut(|runtime| {
        let runtime = runtime.get_or_insert_with(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("an event loop")
        });
        let _guard = runtime.enter();
        evaluate(&template, Arc::new(conf), head);
    });
}

/// Literals are not empty and not neighbours, and their bytes are those of the text.
fn check_parts(template: &Template, text: &str, cx: &ParseContext) {
    let mut was_literal = false;
    let mut len = 0;
    for part in template.parts.iter() {
        let is_literal = matches!(part, Part::Literal(_));
        assert!(!(is_literal && was_literal), "two literals are neighbours");
        was_literal = is_literal;
        len += match part {
            Part::Literal(bytes) => bytes.len(),
            Part::Variable(id) => 1 + cx.variables.name(*id).len(),
            Part::Capture(number) => {
                assert!((1..=9).contains(number));
                2
            }
        };
    }
    assert!(len <= text.len());
}

fn head(bytes: &[u8]) -> Option<Rc<RequestHead>> {
    match RequestParser::new().parse(&mut BytesMut::from(bytes), &Limits::default()) {
        Progress::Done(head) => Some(head),
        _ => None,
    }
}

fn evaluate(template: &Template, conf: Arc<Conf>, head: Rc<RequestHead>) {
    let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
    let server = Arc::clone(conf.bindings[0].listens[0].names.default_server());
    let worker = Rc::new(Worker::new(0, Arc::new(Shared::default())));
    let down = Rc::new(downstream(
        OwnedFd::from(ours),
        Generation::new(worker, Arc::clone(&conf)),
    ));
    let head = (head, clock::instant());
    let mut req = Request::new(LocalConf::new(conf), down, head, server);
    if target::apply(&mut req).is_err() {
        return;
    }
    let first = req.eval(template);
    assert!(first.len() <= MAX_VALUE, "{} bytes", first.len());
    // The first time sets captures and what maps remember; from then on nothing changes.
    let second = req.eval(template);
    let third = req.eval(template);
    // Clocks and addresses of memory may move; what a request is made of may not.
    if !["msec", "time", "pid", "request_id"]
        .iter()
        .any(|name| template.source.contains(name))
    {
        assert_eq!(
            second, third,
            "evaluated again, {} differs",
            template.source
        );
    }
}

fn downstream(fd: OwnedFd, generation: Rc<Generation>) -> Downstream {
    let now = clock::instant();
    let peer = Address::Inet(([127, 0, 0, 1], 4711).into());
    Downstream {
        socket: Socket::new(fd).expect("a socket on the event loop"),
        inbox: BytesMut::new().into(),
        incoming: Default::default(),
        timer: Timer::new(),
        remote: peer.clone().into(),
        local: Address::Inet(([127, 0, 0, 1], 80).into()),
        peer,
        number: 1,
        accepted: now,
        requests: 1.into(),
        request_started: now.into(),
        request_bytes: 0.into(),
        is_pipelined: false.into(),
        wants_continue: false.into(),
        generation,
        behind: Default::default(),
        told: Default::default(),
    }
}
