//! Functions that fail in each hook in which scripts run: what becomes of the request, and that all
//! others are served as before.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, End, Kind, LogCheck, Proxy};

/// The ways in which a function fails, and the words of the log about it.
const KINDS: [(&str, &str); 7] = [
    ("throws", "Error: on purpose"),
    ("null", "js "),
    ("loops", "js script was stopped after 100 ms"),
    ("recurses", "js exception: RangeError"),
    ("allocates", "\"js_memory_limit\""),
    ("rejects", "Error: later"),
    ("getter", "js "),
];

const BAD: &str = "
    function throws() { throw new Error('on purpose'); }
    function fails_null() { throw null; }
    function loops() { for (;;); }
    function recurses() { return recurses() + 1; }
    function allocates() { const all = []; for (;;) all.push(new Uint8Array(1 << 20)); }
    async function rejects() { throw new Error('later'); }
    function getter() { throw { get name() { for (;;); }, toString() { for (;;); } }; }
    async function stuck() { await new Promise(() => {}); }
    const odd = (value) => () => value;
    export default { throws, null: fails_null, loops, recurses, allocates, rejects, getter, stuck,
        number: odd(NaN), symbol: odd(Symbol('x')), object: odd({ toString: 1 }),
        nothing: odd(null), proxy: odd(new Proxy({}, { get() { throw 1; } })) };";

fn conf(kinds: &[&str]) -> String {
    let mut text = String::from(
        "js_import bad.js; js_time_limit 100ms; js_memory_limit 32m;
         server { listen 127.0.0.1:%%PORT%%; root %%DIR%%/html;
         location = /alive { return 200 alive; }",
    );
    for kind in kinds {
        text += &format!(
            "js_set $v_{kind} bad.{kind};
             location /content/{kind} {{ js_content bad.{kind}; }}
             location /access/{kind} {{ js_access bad.{kind}; try_files /page.txt =404; }}
             location /head/{kind} {{ js_header_filter bad.{kind}; try_files /page.txt =404; }}
             location /body/{kind} {{ js_body_filter bad.{kind}; try_files /page.txt =404; }}
             location /value/{kind} {{ return 200 '[$v_{kind}]'; }}"
        );
    }
    text + "}"
}

fn proxy(kinds: &[&str]) -> Result<Proxy> {
    Proxy::new(Kind::Millpond, &conf(kinds))
        .file("bad.js", BAD)
        .file("html/page.txt", "page")
        .log_check(LogCheck::Off)
        .start()
}

#[test]
fn what_fails_ends_its_own_request_only() -> Result<()> {
    let kinds = KINDS.map(|(kind, _)| kind);
    let proxy = proxy(&kinds)?;
    let client = Client::new(proxy.port());
    for (kind, words) in KINDS {
        for (hook, status, text) in [
            ("content", 500, None),
            ("access", 500, None),
            ("head", 200, Some("page")),
            ("value", 200, Some("[]")),
        ] {
            let response = client.get(&format!("/{hook}/{kind}"))?;
            ensure!(
                response.status == status,
                "{hook} {kind}: {}",
                response.status
            );
            if let Some(text) = text {
                ensure!(
                    response.text() == text,
                    "{hook} {kind}: {}",
                    response.text()
                );
            }
            ensure!(client.get("/alive")?.text() == "alive", "{hook} {kind}");
        }
        let response = client.get(&format!("/body/{kind}"))?;
        ensure!(response.end != End::Complete, "body {kind}");
        ensure!(
            proxy.error_log().contains(words),
            "{kind}: {}",
            proxy.error_log()
        );
    }
    Ok(())
}

#[test]
fn values_of_any_type_do_no_harm() -> Result<()> {
    let kinds = ["number", "symbol", "object", "nothing", "proxy", "stuck"];
    let proxy = proxy(&kinds)?;
    let client = Client::new(proxy.port());
    for kind in kinds {
        let status = |hook: &str| -> Result<u16> {
            let response = client.get(&format!("/{hook}/{kind}"));
            Ok(response.with_context(|| format!("{hook} {kind}"))?.status)
        };
        // Nothing was answered.
        ensure!(status("content")? == 500, "{kind}");
        // What a gate returns does not count; one that never ends lets nobody in.
        let expected = if kind == "stuck" {
            500
        } else {
            status("access")?
        };
        ensure!(
            status("access")? == expected && [200, 500].contains(&expected),
            "{kind}"
        );
        ensure!(status("head")? == 200, "{kind}");
        ensure!(status("value")? == 200, "{kind}");
        ensure!(client.get("/alive")?.text() == "alive", "{kind}");
    }
    Ok(())
}
