//! Scripts that are wrong, hostile or slow, on an engine with a host that only notes.

mod bindings;
mod bounds;
mod built_in;
mod xml;

use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::*;

const LIMITS: Limits = Limits {
    memory: 32 << 20,
    // As long as an honest script may wait for a machine that is busy with other tests.
    time: Duration::from_secs(1),
    idle: 4,
};

#[derive(Default)]
struct Notes {
    lines: Vec<String>,
    sent: Vec<u8>,
    returned: Option<(u16, Option<Bytes>)>,
    headers: Vec<Header>,
    operations: Vec<Operation>,
    inner: Option<Inner>,
    dict: Option<Arc<Dict>>,
}

impl Notes {
    fn shared(&mut self) -> Arc<Dict> {
        let made = || {
            Arc::new(Dict::new(DictSpec {
                name: "d".to_string(),
                capacity: 1000,
                timeout: None,
                is_of_numbers: false,
                evicts: false,
                state: None,
            }))
        };
        Arc::clone(self.dict.get_or_insert_with(made))
    }
}

type Inner = Box<dyn Fn() -> Option<Bytes>>;

impl Host for Notes {
    fn log(&mut self, _level: Level, text: &str) {
        self.lines.push(text.to_string());
    }
    fn unhandled(&mut self, text: &str) {
        self.lines.push(format!("unhandled {text}"));
    }
    fn text(&mut self, text: Text) -> Bytes {
        match text {
            Text::Method => Bytes::from_static(b"GET"),
            Text::Uri => Bytes::from_static(b"/path"),
            Text::Args => Bytes::from_static(b"a=1&b=%41+x&a=2"),
            _ => Bytes::from_static(b"?"),
        }
    }
    fn is_internal(&mut self) -> bool {
        false
    }
    fn is_subrequest(&mut self) -> bool {
        false
    }
    fn variable(&mut self, name: &str) -> Option<Bytes> {
        match (name, &self.inner) {
            ("inner", Some(inner)) => inner(),
            ("bytes", _) => Some(Bytes::from_static(b"\xff\x00a")),
            ("host", _) => Some(Bytes::from_static(b"here")),
            _ => None,
        }
    }
    fn set_variable(&mut self, name: &str, _value: Bytes) -> Result<(), String> {
        Err(format!("\"{name}\" cannot be set"))
    }
    fn js_var_names(&mut self) -> Vec<String> {
        Vec::new()
    }
    fn headers_in(&mut self) -> Vec<Header> {
        let field = |name: &'static str, value: &'static str| {
            (
                Bytes::from_static(name.as_bytes()),
                Bytes::from_static(value.as_bytes()),
            )
        };
        vec![
            field("Cookie", "a"),
            field("X-Foo", "1"),
            field("cookie", "b"),
            field("x-foo", "2"),
        ]
    }
    fn headers_out(&mut self) -> Vec<Header> {
        self.headers.clone()
    }
    fn set_header_out(&mut self, name: &str, values: Vec<Bytes>) -> Result<(), String> {
        let is_other = |(own, _): &Header| !own.eq_ignore_ascii_case(name.as_bytes());
        self.headers.retain(is_other);
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.headers
            .extend(values.into_iter().map(|value| (name.clone(), value)));
        Ok(())
    }
    fn status(&mut self) -> u16 {
        200
    }
    fn set_status(&mut self, _status: u16) -> Result<(), String> {
        Ok(())
    }
    fn request_body(&mut self) -> Result<Option<Bytes>, String> {
        Ok(None)
    }
    fn send_header(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn send(&mut self, data: Bytes) -> Result<(), String> {
        self.sent.extend_from_slice(&data);
        Ok(())
    }
    fn send_buffer(&mut self, data: Bytes) -> Result<(), String> {
        self.send(data)
    }
    fn done(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn return_(&mut self, status: u16, text: Option<Bytes>) -> Result<(), String> {
        self.returned = Some((status, text));
        Ok(())
    }
    fn decline(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn internal_redirect(&mut self, _target: Bytes) -> Result<(), String> {
        Ok(())
    }
    fn begin(&mut self, operation: Operation) -> Result<(), String> {
        self.operations.push(operation);
        Ok(())
    }
    fn cancel(&mut self, id: u32) {
        self.operations.retain(|operation| operation.id != id);
    }
    fn dicts(&mut self) -> Vec<DictSpec> {
        vec![self.shared().spec.clone()]
    }
    fn dict(&mut self, name: &str) -> Option<Arc<Dict>> {
        (name == "d").then(|| self.shared())
    }
    fn cache_key(&mut self) -> Result<Option<Bytes>, String> {
        Ok(Some(Bytes::from_static(b"key")))
    }
    fn cached(&mut self, _: Option<Bytes>, _: Option<&str>) -> Result<Option<Cached>, String> {
        Ok(None)
    }
    fn environment(&mut self) -> Vec<(String, String)> {
        vec![("A".to_string(), "b".to_string())]
    }
    fn arguments(&mut self) -> Vec<String> {
        vec!["program".to_string()]
    }
    fn number(&mut self, _bound: Bound) -> u32 {
        0
    }
    fn session(&mut self, order: SessionOrder) -> Result<(), String> {
        self.lines.push(format!("{order:?}"));
        Ok(())
    }
    fn place(&mut self, _name: &str) -> String {
        "1.2.3".to_string()
    }
}

/// A folder with modules, and an engine.
struct Place {
    folder: tempfile::TempDir,
    engine: Rc<Engine<Notes>>,
}

impl Place {
    fn new() -> Place {
        Place {
            folder: tempfile::tempdir().unwrap(),
            engine: engine(),
        }
    }

    fn file(&self, name: &str, text: &str) -> &Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn program(&self) -> Result<Arc<Program>, LoadError> {
        let main = Import {
            name: "main".to_string(),
            file: "main.js".to_string(),
        };
        let lines = Lines {
            imports: vec![main],
            folders: vec![self.folder.path().into(), self.folder.path().join("lib")],
            ..Lines::default()
        };
        Program::load(&lines, read)
    }

    fn instance(&self, text: &str) -> Instance<Notes> {
        let program = self.file("main.js", text).program().unwrap();
        self.engine.lend(&program, LIMITS).unwrap()
    }
}

fn engine() -> Rc<Engine<Notes>> {
    let ground = Ground {
        clock: Instant::now,
        random: |bytes| bytes.fill(7),
    };
    Engine::new(ground).unwrap()
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

fn entry(function: &str) -> Entry<'_> {
    Entry {
        function,
        request: 1,
        errand: Errand::Call,
    }
}

/// The value of a body of a function of `r`.
fn value(body: &str) -> Result<String, Fault> {
    let place = Place::new();
    let text = format!(
        "import qs from 'querystring'; import cr from 'crypto';
         function f(r) {{ {body} }} export default {{ f }};"
    );
    let (_, turn) = place
        .instance(&text)
        .call(Notes::default(), &entry("main.f"));
    match turn? {
        Turn::Done(Some(value)) => Ok(String::from_utf8_lossy(&value).into_owned()),
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn functions_see_the_request() {
    for (body, expected) in [
        ("return r.method + r.uri", "GET/path"),
        ("return r.args.a.join() + r.args.b", "1,2A x"),
        (
            "return r.headersIn.cookie + '|' + r.headersIn['X-FOO']",
            "a; b|1, 2",
        ),
        ("return Object.keys(r.headersIn).join()", "Cookie,X-Foo"),
        (
            "return typeof r.variables.none + r.variables.host",
            "undefinedhere",
        ),
        ("return r.rawVariables.bytes.toString('hex')", "ff0061"),
        (
            "r.headersOut.Foo = ['a', 'b']; return r.headersOut.foo",
            "a, b",
        ),
        (
            "r.headersOut.Foo = 'a'; delete r.headersOut.foo; return 'foo' in r.headersOut",
            "false",
        ),
        ("r.setReturnValue('set'); return 'returned'", "set"),
        (
            "const d = ngx.shared.d; d.set('a', 'x').add('a', 'y'); return d.pop('a') + d.size()",
            "x0",
        ),
        (
            "try { ngx.shared.d.set('a', 'x'.repeat(1000)) } catch (e) { return e.name }",
            "SharedMemoryError",
        ),
        ("return null", ""),
        ("return Buffer.from([65, 66])", "AB"),
    ] {
        assert_eq!(value(body).as_deref(), Ok(expected), "{body}");
    }
}

#[test]
fn what_njs_has_beside_the_language_is_there() {
    for (body, expected) in [
        ("return Buffer.from('äb').toString('hex')", "c3a462"),
        (
            "return Buffer.from('68656c6c6f', 'hex').toString('base64')",
            "aGVsbG8=",
        ),
        (
            "return Buffer.from('_-8', 'base64url').toString('hex')",
            "ffef",
        ),
        (
            "return Buffer.concat([Buffer.from('a'), Buffer.from('b')]).equals(Buffer.from('ab'))",
            "true",
        ),
        (
            "const b = Buffer.alloc(8); b.writeUInt32BE(1, 2); return b.readInt16LE(4)",
            "256",
        ),
        ("return Buffer.from('abcabc').lastIndexOf('bc')", "4"),
        (
            "return qs.stringify({a: [1, 2], b: 'x y'})",
            "a=1&a=2&b=x%20y",
        ),
        ("return qs.parse('a=%zz&a=b+c').a.join()", "%zz,b c"),
        (
            "return cr.createHash('sha1').update('A').update('B').digest('hex')",
            "06d945942aa26a61be18c3e22bf19bbca8dd2b5d",
        ),
        (
            "return cr.createHmac('md5', 'k').update('A').digest('base64')",
            "9LIIGZsuNhtTSF1Q6Mq52Q==",
        ),
        (
            "return new TextDecoder().decode(new TextEncoder().encode('ä'))",
            "ä",
        ),
        (
            "return crypto.getRandomValues(new Uint8Array(2)).join()",
            "7,7",
        ),
        ("return njs.dump({a: [1, 'x']})", "{a:[1,'x']}"),
    ] {
        assert_eq!(value(body).as_deref(), Ok(expected), "{body}");
    }
}

#[test]
fn what_throws_is_told_with_its_place() {
    for (body, name) in [
        ("throw new Error('so')", "Error: so"),
        ("return {}.a.a", "TypeError"),
        ("null.x", "TypeError"),
        ("return r.return('x')", "TypeError: is not a number"),
        (
            "return r.return(1000)",
            "RangeError: number is out of range",
        ),
        (
            "r.headersOut.a = 'b\\r\\nc'",
            "TypeError: invalid header value",
        ),
        (
            "r.headersOut['a b'] = 'c'",
            "TypeError: invalid header name",
        ),
        ("r.variables.a = 1", "TypeError: \"a\" cannot be set"),
        ("r.method = 'POST'", "TypeError"),
        (
            "Buffer.from(5)",
            "TypeError: first argument is not a string",
        ),
        ("Buffer.alloc(-1)", "RangeError: invalid size"),
        ("Buffer.alloc(2).readInt32LE(0)", "RangeError"),
        (
            "cr.createHash('md4')",
            "TypeError: not supported algorithm: \"md4\"",
        ),
        ("r.subrequest()", "TypeError: uri is required"),
        ("throw {toString() { throw 1 }}", ""),
        ("throw undefined", "a value of type undefined"),
    ] {
        let fault = value(body).unwrap_err();
        let Fault::Thrown(text) = &fault else {
            panic!("{body}: {fault:?}");
        };
        assert!(text.starts_with(name), "{body}: {text}");
        if name.contains("so") {
            assert!(
                text.contains(" at f (") && text.contains("main.js:2:"),
                "{text}"
            );
        }
    }
}

#[test]
fn operations_end_when_they_are_told() {
    let place = Place::new();
    let mut instance = place.instance(
        "async function f(r) {
             const reply = await r.subrequest('/sub', { args: 'a=1', method: 'post', body: 'b' });
             await new Promise((done) => setTimeout(done, 5));
             const id = setTimeout(() => { throw 1 }, 5); clearTimeout(id);
             r.return(reply.status, reply.responseText + reply.headersOut.a);
         } export default { f };",
    );
    let (host, turn) = instance.call(Notes::default(), &entry("main.f"));
    assert_eq!(turn, Ok(Turn::Waits));
    let mut host = host.unwrap();
    let Operation { id, order } = host.operations.remove(0);
    let expected = Order::Subrequest {
        uri: "/sub".to_string(),
        args: "a=1".to_string(),
        method: "POST".to_string(),
        body: Some(Bytes::from_static(b"b")),
    };
    assert_eq!(order, expected);
    let reply = Reply::Answer {
        status: 201,
        headers: vec![(Bytes::from_static(b"A"), Bytes::from_static(b"x"))],
        body: Bytes::from_static(b"body"),
        asked: Default::default(),
    };
    let (host, turn) = instance.resume(host, 1, (id, reply));
    assert_eq!(turn, Ok(Turn::Waits));
    let mut host = host.unwrap();
    let Operation { id, order } = host.operations.remove(0);
    assert_eq!(order, Order::Timer(Duration::from_millis(5)));
    let (host, turn) = instance.resume(host, 1, (id, Reply::Elapsed));
    assert_eq!(turn, Ok(Turn::Done(Some(Bytes::new()))));
    let host = host.unwrap();
    assert_eq!(
        host.returned,
        Some((201, Some(Bytes::from_static(b"bodyx"))))
    );
    assert!(host.operations.is_empty());
}

#[test]
fn contexts_are_reused_unless_they_failed() {
    let place = Place::new();
    let text = "let n = 0; function count() { return ++n } function bad() { throw 1 }
        export default { count, bad };";
    let program = place.file("main.js", text).program().unwrap();
    let call = |name: &str| {
        let mut instance = place.engine.lend(&program, LIMITS).unwrap();
        instance.call(Notes::default(), &entry(name)).1
    };
    let counted = |n: &'static str| Ok(Turn::Done(Some(Bytes::from_static(n.as_bytes()))));
    assert_eq!(call("main.count"), counted("1"));
    assert_eq!(call("main.count"), counted("2"));
    assert_eq!(place.engine.idle_count(), 1);
    assert!(call("main.bad").is_err());
    assert_eq!(place.engine.idle_count(), 0);
    assert_eq!(call("main.count"), counted("1"));
}

#[test]
fn requests_are_kept_apart() {
    let place = Place::new();
    let text = "let kept; function keep(r) { kept = r } function use() { return kept.uri }
        export default { keep, use };";
    let mut instance = place.instance(text);
    assert!(
        instance
            .call(Notes::default(), &entry("main.keep"))
            .1
            .is_ok()
    );
    let other = Entry {
        function: "main.use",
        request: 2,
        errand: Errand::Call,
    };
    let fault = instance.call(Notes::default(), &other).1.unwrap_err();
    assert!(
        fault
            .to_string()
            .contains("not the one that the script runs for"),
        "{fault}"
    );
}

#[test]
fn variable_may_be_computed_by_another_engine() {
    let place = Place::new();
    let text =
        "function outer(r) { return r.variables.inner + '!' } function inner() { return 'in' }
        export default { outer, inner };";
    let program = place.file("main.js", text).program().unwrap();
    let (of_inner, second) = (Arc::clone(&program), engine());
    let host = Notes {
        inner: Some(Box::new(move || {
            let mut instance = second.lend(&of_inner, LIMITS).unwrap();
            match instance.call(Notes::default(), &entry("main.inner")).1 {
                Ok(Turn::Done(value)) => value,
                other => panic!("{other:?}"),
            }
        })),
        ..Notes::default()
    };
    let mut instance = place.engine.lend(&program, LIMITS).unwrap();
    let (_, turn) = instance.call(host, &entry("main.outer"));
    assert_eq!(turn, Ok(Turn::Done(Some(Bytes::from_static(b"in!")))));
}

#[test]
fn mistakes_in_modules_are_found_at_start_and_nothing_runs() {
    for (text, line, message) in [
        ("function f() {\n  let 1;\n}", Some(2), "SyntaxError"),
        ("let a;\nlet a;", Some(2), "SyntaxError"),
        ("function f() {}", None, "SyntaxError"),
        (
            "import x from './none.js';\nexport default {};",
            None,
            "could not load module",
        ),
        (
            "import l from 'broken.js';\nexport default {};",
            Some(1),
            "SyntaxError",
        ),
    ] {
        let place = Place::new();
        place.file("lib/broken.js", "export default {");
        let error = place.file("main.js", text).program().unwrap_err();
        assert!(error.message.contains(message), "{text}: {error}");
        if line.is_some() {
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.file.as_deref().unwrap().ends_with(".js"), "{error}");
        }
    }
    let place = Place::new();
    let text = "throw new Error('at once'); export default {};";
    let mut instance = place.instance(text);
    let fault = instance
        .call(Notes::default(), &entry("main.f"))
        .1
        .unwrap_err();
    assert!(fault.to_string().contains("at once"), "{fault}");
}

#[test]
fn modules_import_each_other() {
    let place = Place::new();
    place.file(
        "lib/one.js",
        "import two from './sub/two.js'; export default 'one' + two;",
    );
    place.file("lib/sub/two.js", "export default 'two';");
    let mut instance = place.instance(
        "import one from 'one.js'; const later = await Promise.resolve('later');
         function f() { return one + later } export default { f };",
    );
    let (_, turn) = instance.call(Notes::default(), &entry("main.f"));
    assert_eq!(
        turn,
        Ok(Turn::Done(Some(Bytes::from_static(b"onetwolater"))))
    );
    let missing = instance
        .call(Notes::default(), &entry("main.none"))
        .1
        .unwrap_err();
    assert!(
        missing
            .to_string()
            .contains("js function \"main.none\" not found"),
        "{missing}"
    );
}

#[test]
fn rejections_that_nobody_handles_are_told() {
    let place = Place::new();
    let text = "function lost() { Promise.reject(new Error('lost')); return 'on' }
        function caught() { Promise.reject(1).catch(() => {}); return 'on' }
        async function main() { throw new Error('late') } export default { lost, caught, main };";
    let program = place.file("main.js", text).program().unwrap();
    let call = |name: &str| {
        let mut instance = place.engine.lend(&program, LIMITS).unwrap();
        let (host, turn) = instance.call(Notes::default(), &entry(name));
        (host.unwrap().lines, turn)
    };
    let on = Ok(Turn::Done(Some(Bytes::from_static(b"on"))));
    for _ in 0..2 {
        let (lines, turn) = call("main.lost");
        assert_eq!(turn, on);
        assert!(
            lines[0].starts_with("unhandled Error: lost at lost ("),
            "{lines:?}"
        );
    }
    assert_eq!(call("main.caught"), (Vec::new(), on));
    let (_, turn) = call("main.main");
    let Err(Fault::Rejected(text)) = turn else {
        panic!("{turn:?}");
    };
    assert!(text.starts_with("Error: late at main ("), "{text}");
}

#[test]
fn contexts_that_have_no_room_are_told_as_such() {
    let place = Place::new();
    let text = "function wait() { setTimeout(() => {}, 1000) } export default { wait };";
    let program = place.file("main.js", text).program().unwrap();
    let limits = Limits {
        memory: 4 << 20,
        ..LIMITS
    };
    let mut waiting = Vec::new();
    let fault = loop {
        let mut instance = place.engine.lend(&program, limits).unwrap();
        match instance.call(Notes::default(), &entry("main.wait")).1 {
            Ok(Turn::Waits) => waiting.push(instance),
            Ok(other) => panic!("{other:?}"),
            Err(fault) => break fault,
        }
        assert!(waiting.len() < 100);
    };
    assert_eq!(fault, Fault::Memory { limit: 4 << 20 });
    assert!(waiting.len() > 4, "{}", waiting.len());
    waiting.clear();
    let mut instance = place.engine.lend(&program, limits).unwrap();
    let (_, turn) = instance.call(Notes::default(), &entry("main.wait"));
    assert_eq!(turn, Ok(Turn::Waits));
}

#[test]
fn context_that_is_thrown_away_leaves_nothing() {
    let place = Place::new();
    let text = "const kept = new Uint8Array(4 << 20);
        function fail() { throw new Error('on purpose') } function use() { return kept.length }
        export default { fail, use };";
    let program = place.file("main.js", text).program().unwrap();
    let before = place.engine.memory();
    for _ in 0..3 {
        let mut instance = place.engine.lend(&program, LIMITS).unwrap();
        let (_, turn) = instance.call(Notes::default(), &entry("main.use"));
        assert!(turn.is_ok() && place.engine.memory() > 4 << 20);
        let (_, turn) = instance.call(Notes::default(), &entry("main.fail"));
        assert!(turn.is_err());
        let left = place.engine.memory().saturating_sub(before);
        assert!(left < 1 << 20, "{left}");
    }
}

/// The kilobytes that a context takes which has called a function with this body.
fn kilobytes(body: &str) -> usize {
    let place = Place::new();
    let text = format!("function f(r) {{ {body} }} export default {{ f }};");
    let program = place.file("main.js", &text).program().unwrap();
    let run = || {
        let mut instance = place.engine.lend(&program, LIMITS).unwrap();
        let (_, turn) = instance.call(Notes::default(), &entry("main.f"));
        assert!(turn.is_ok(), "{body}: {turn:?}");
        instance
    };
    // The first one brings names into the engine that all share.
    let _first = run();
    let before = place.engine.memory();
    let _second = run();
    (place.engine.memory() - before) / 1000
}

#[test]
fn contexts_take_memory_for_what_they_use() {
    // Measured, and a tenth more.
    for (body, most) in [
        ("return 'a'", 190),
        ("r.headersOut.a = 'b'; return r.args.a", 204),
        ("console.log('a')", 198),
        ("return Buffer.from('a')", 252),
        ("require('crypto').createHash('md5')", 205),
        ("require('fs')", 251),
        ("require('zlib')", 197),
        ("crypto.subtle", 277),
        ("new Headers()", 244),
    ] {
        let taken = kilobytes(body);
        assert!(taken <= most, "{body}: {taken} kB");
    }
}

#[test]
fn what_is_read_later_may_be_replaced_before() {
    for (body, expected) in [
        ("globalThis.Buffer = 7; return Buffer", "7"),
        (
            "const own = Headers; return own === Headers && ngx.fetch === ngx.fetch",
            "true",
        ),
        ("ngx.fetch = () => 'mine'; return ngx.fetch()", "mine"),
        (
            "delete globalThis.console; return typeof console",
            "undefined",
        ),
        ("return Object.keys(ngx).includes('fetch')", "true"),
    ] {
        assert_eq!(value(body).as_deref(), Ok(expected), "{body}");
    }
}

#[test]
fn what_is_to_run_at_the_end_of_a_request_does() {
    let place = Place::new();
    let program = place
        .file(
            "main.js",
            "let ends = 0;
             function f(r) {
                 ngx.shared.d.set('a', 'b');
                 njs.on('exit', () => { throw new Error('the last one counts'); });
                 njs.on('exit', () => { ends++; ngx.shared.d.delete('a'); });
             }
             function g(r) { return `${ends}${ngx.shared.d.size()}`; }
             function h(r) { njs.on('exit', () => { while (true); }); }
             function i(r) { njs.on('none', () => {}); }
             export default { f, g, h, i };",
        )
        .program()
        .unwrap();
    let limits = Limits {
        time: Duration::from_millis(300),
        ..LIMITS
    };
    let mut notes = Notes::default();
    let mut run = |function: &str| {
        let mut instance = place.engine.lend(&program, limits).unwrap();
        let (host, turn) = instance.call(std::mem::take(&mut notes), &entry(function));
        notes = host.unwrap();
        turn
    };
    for _ in 0..2 {
        assert_eq!(run("main.f"), Ok(Turn::Done(Some(Bytes::new()))));
    }
    assert_eq!(run("main.g"), Ok(Turn::Done(Some(Bytes::from("20")))));
    // A context that does not come to its end is not used again.
    assert_eq!(run("main.h"), Ok(Turn::Done(Some(Bytes::new()))));
    assert_eq!(run("main.g"), Ok(Turn::Done(Some(Bytes::from("00")))));
    assert!(matches!(run("main.i"), Err(Fault::Thrown(_))));
}
