//! Scripts that never end, or need too much.

use super::*;

#[test]
fn what_never_ends_is_cut_off() {
    for body in [
        "for (;;);",
        "while (true) { try { for (;;); } catch (e) { } }",
        "return 'a'.repeat(30000).match(/(a+)+$b/)",
        "const f = () => Promise.resolve().then(f); return f()",
        "throw { get stack() { for (;;); }, toString() { for (;;); } }",
        "try { for (;;); } finally { for (;;); }",
        "function* g() { for (;;) yield 1 } return [...{ [Symbol.iterator]: () => ({ next: () => \
         ({ value: 0, done: false }) }) }].length",
    ] {
        let start = Instant::now();
        let fault = value(body).unwrap_err();
        assert!(!matches!(fault, Fault::Engine(_)), "{body}: {fault:?}");
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{body}: {:?}",
            start.elapsed()
        );
    }
    let fault = value("for (;;);").unwrap_err();
    assert!(
        matches!(&fault, Fault::Time { limit_ms: 1000, stack } if stack.contains("main.js:2")),
        "{fault:?}"
    );
}

#[test]
fn what_needs_too_much_is_cut_off() {
    for body in [
        "const a = []; for (;;) a.push(new Uint8Array(1 << 20))",
        "let s = 'x'; for (;;) s += s + Math.random()",
        "return Buffer.alloc(1 << 30)",
        "const f = (n) => f(n + 1) + 1; return f(0)",
        "return JSON.stringify(Array(1e7).fill(Array(1e4).fill(1)))",
    ] {
        let fault = value(body).unwrap_err();
        assert!(
            matches!(
                fault,
                Fault::Thrown(_) | Fault::Memory { .. } | Fault::Time { .. }
            ),
            "{fault:?}"
        );
    }
    let fault = value("return Buffer.alloc(1 << 30)").unwrap_err();
    assert_eq!(
        fault,
        Fault::Memory {
            limit: LIMITS.memory
        }
    );
}

#[test]
fn engine_works_on_after_scripts_that_were_cut_off() {
    let place = Place::new();
    let text = "const waits = [];
        function bad() { for (let i = 0; i < 5000; i++) Promise.resolve().then(() => {});
            for (;;); }
        function big() { for (;;) waits.push(new Uint8Array(1 << 20)); }
        function good() { return 'good' } export default { bad, big, good };";
    let program = place.file("main.js", text).program().unwrap();
    let mut engine = Rc::clone(&place.engine);
    for name in ["main.bad", "main.big", "main.bad"] {
        let mut instance = engine.lend(&program, LIMITS).unwrap();
        assert!(instance.call(Notes::default(), &entry(name)).1.is_err());
        drop(instance);
        if engine.is_dead() {
            engine = super::tests::engine();
        }
        let mut instance = engine.lend(&program, LIMITS).unwrap();
        let (_, turn) = instance.call(Notes::default(), &entry("main.good"));
        assert_eq!(turn, Ok(Turn::Done(Some(Bytes::from_static(b"good")))));
    }
}
