//! Complex values: compiled, put together again, and evaluated for a request.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use millpond_conf::{LoadOptions, ParseContext, Part, Span, Template, load_text};
use millpond_exchange::settings::Conf;
use millpond_proxy::request::Request;
use millpond_proxy::route::target;
use millpond_server::directives;
use millpond_system::address::Address;
use millpond_wire::http1::request::{Limits, Progress, RequestHead, RequestParser};
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
    let (Some(conf), _) = directives::build(&tree, cx) else {
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
    let server = Arc::clone(conf.bindings[0].listens[0].names.default_server());
    let [peer, local] = [4711, 80].map(|port| Address::Inet(([127, 0, 0, 1], port).into()));
    let mut req = Request::imagined(&conf, head, [peer, local], server);
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
