//! Each function that scripts find, called with values of all types: nothing of them panics, and
//! the engine works on.

use super::*;

const SCRIPT: &str = r#"
    import fsless, { Buffer as B } from 'buffer';
    import cryptography from 'crypto';
    import query from 'querystring';
    import files from 'fs';
    import pack from 'zlib';
    import markup from 'xml';

    let seen = new Set();
    let calls = 0;

    const odd = () => [undefined, null, true, NaN, -1, 7, 2 ** 31, 1e99, '', 'utf8', '\ud800\0',
        'http://a/', Symbol('x'), 7n, {}, [], [1, [2]], () => { throw 1; }, new Uint8Array(3),
        new DataView(new ArrayBuffer(2)), new Date(NaN), Object.create(null), /a/,
        new Proxy({}, { get() { throw new Error('trap'); } }),
        { toString() { throw new Error('text'); } }, { valueOf: () => -1, length: 1e9 }];

    // These end or replace what the test itself stands on.
    const left = ['eval', 'Function', 'constructor', 'repeat', 'padStart', 'padEnd', 'fill'];

    function names(object) {
        const all = new Set();
        for (let at = object; at && at !== Object.prototype && at !== Function.prototype;
            at = Object.getPrototypeOf(at)) {
            try {
                Reflect.ownKeys(at).forEach((name) => all.add(name));
            } catch (_) {
                break;
            }
        }
        return all;
    }

    function attempt(action) {
        calls++;
        try {
            const value = action();
            if (value instanceof Promise) {
                value.catch(() => {});
            }
        } catch (error) {
            String(error && error.message);
        }
    }

    function tried(root) {
        for (const name of names(root)) {
            if (left.includes(name)) {
                continue;
            }
            let value;
            attempt(() => { value = root[name]; });
            if (typeof value !== 'function' || seen.has(value)) {
                continue;
            }
            seen.add(value);
            for (const one of odd()) {
                attempt(() => value.call(root, one));
                attempt(() => value.call(one, one));
                attempt(() => new value(one, one));
                for (const two of odd()) {
                    attempt(() => value.call(root, one, two, one));
                }
            }
        }
    }

    // What does no harm where the test runs.
    const { accessSync, closeSync, existsSync, fstatSync, lstatSync, openSync, readFileSync,
        readSync, readdirSync, readlinkSync, realpathSync, statSync, readFile, stat } = files;

    function all(r) {
        [r, r.variables, r.rawVariables, r.headersIn, r.headersOut, r.cache, ngx, ngx.shared.d,
            crypto, crypto.subtle, pack, markup, markup.parse("<a b='c'>d<e/></a>"),
            markup.parse("<a b='c'>d<e/></a>").a, { accessSync, closeSync, existsSync, fstatSync, lstatSync,
                openSync, readFileSync, readSync, readdirSync, readlinkSync, realpathSync, statSync,
                readFile, stat }, cryptography, cryptography.createHash('sha256'),
            cryptography.createHmac('sha1', 'k'), query, B, new B(3), Headers,
            new Headers({ a: 'b' }), new Request('http://a/'), new Response('b'), console, njs,
            new TextEncoder(), new TextDecoder(), { setTimeout, clearTimeout, setImmediate },
            { Headers, Request, Response, Buffer, TextEncoder, TextDecoder }].forEach(tried);
        return String(calls);
    }

    function fields(r) {
        let made = 0;
        for (const target of [r, r.headersOut, r.headersIn, r.variables, ngx, r.cache,
            new Headers(), new Request('http://a/'), new Response()]) {
            for (const value of odd()) {
                for (const name of [...names(target), 'X-Any', 'content-length', 'toString', '',
                    Symbol('y'), '\ud800', '__proto__']) {
                    attempt(() => { target[name] = value; made++; });
                    attempt(() => delete target[name]);
                    attempt(() => Object.defineProperty(target, name, { value }));
                }
            }
        }
        return String(made > 0);
    }
    function good() { return 'good' }
    export default { all, fields, good };
"#;

#[test]
fn functions_take_values_of_all_types() {
    let place = Place::new();
    let program = place.file("main.js", SCRIPT).program().unwrap();
    let limits = Limits {
        memory: 256 << 20,
        time: Duration::from_secs(60),
        idle: 0,
    };
    for name in ["main.all", "main.fields"] {
        let mut instance = place.engine.lend(&program, limits).unwrap();
        let (host, turn) = instance.call(Notes::default(), &entry(name));
        let is_end = matches!(
            turn,
            Ok(Turn::Done(_) | Turn::Waits) | Err(Fault::Thrown(_) | Fault::Rejected(_))
        );
        assert!(is_end, "{name}: {turn:?}");
        let host = host.unwrap();
        assert!(!host.operations.is_empty() || name == "main.fields");
        for operation in host.operations {
            let Order::Fetch(fetch) = operation.order else {
                continue;
            };
            let is_fit = |text: &[u8]| text.iter().all(|byte| !matches!(byte, b'\r' | b'\n' | 0));
            assert!(fetch.url.may_be_asked() && is_fit(fetch.method.as_bytes()));
            assert!(
                fetch
                    .headers
                    .iter()
                    .all(|(name, value)| is_fit(name) && is_fit(value))
            );
        }
        for (name, value) in host.headers {
            assert!(!name.contains(&b'\n') && !value.contains(&b'\n'));
        }
        drop(instance);
        let mut instance = place.engine.lend(&program, LIMITS).unwrap();
        let (_, turn) = instance.call(Notes::default(), &entry("main.good"));
        assert_eq!(turn, Ok(Turn::Done(Some(Bytes::from_static(b"good")))));
    }
}
