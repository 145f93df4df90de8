//! `js_*`: scripts on the way of requests, the examples of their document, and their bounds.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, End, Kind, LogCheck, Proxy, Request};

const CONF: &str = "
    js_import one.js;
    js_import two from lib/two.js;
    js_path lib;
    js_time_limit 100ms;
    js_memory_limit 32m;
    js_set $computed one.computed;
    js_set $counted one.counted nocache;
    js_set $outer one.outer;
    js_set $broken one.broken;
    js_set $slow one.slow;
    js_var $kept start;
    subrequest_output_buffer_size 64k;
    server {
        listen 127.0.0.1:%%PORT%%;
        client_body_buffer_size 16k;
        root %%DIR%%/html;
        location /set { return 200 '$computed|$computed|$counted|$counted'; }
        location /nested { return 200 $outer; }
        location /var { js_content one.keep; }
        location /broken { return 200 '[$broken]'; }
        location /slow { return 200 '[$slow]'; }
        location /loop { js_content one.slow; }
        location /big { js_content one.big; }
        location /echo { js_content one.echo; }
        location /late { js_content one.late; }
        location /redirect { js_content one.redirect; }
        location /parts { js_content one.parts; }
        location /part { return 200 '$arg_n$request_method'; }
        location /two { js_content two.answer; }
        location /none { js_content one.none; }
        location /nothing { js_content one.nothing; }
        location /status { js_content one.status; error_page 404 /gone; }
        location /gone { return 200 gone; }
        location /alive { return 200 alive; }
        location /doubled { js_body_filter one.doubled; try_files /page.txt =404; }
        location /bytes { js_body_filter one.bytes buffer_type=buffer; try_files /page.txt =404; }
        location /first { js_body_filter one.first; try_files /page.txt =404; }
        location /torn { js_body_filter one.torn; try_files /page.txt =404; }
        location /any/ {
            satisfy any;
            deny all;
            js_access one.gate;
            try_files /page.txt =404;
        }
        location /alone/ { satisfy any; js_access one.gate; try_files /page.txt =404; }
    }";

const ONE: &str = "
    let calls = 0;
    function computed(r) { return `${r.method} ${r.uri} ${++calls}`; }
    function counted() { return ++calls; }
    function outer(r) { return `<${r.variables.computed}>`; }
    function broken() { throw new TypeError('on purpose'); }
    function slow() { for (;;); }
    function big(r) { const all = []; for (;;) all.push(new Uint8Array(1 << 20)); }
    function keep(r) {
        const before = r.variables.kept;
        r.variables.kept = r.args.v;
        r.return(200, `${before} ${r.variables.kept} ${r.jsVarNames()}`);
    }
    function echo(r) {
        r.status = 201;
        r.headersOut['X-Length'] = r.requestBuffer.length;
        r.sendHeader();
        r.send(r.requestText.toUpperCase());
        r.finish();
    }
    function late(r) { setTimeout(() => r.return(200, 'late'), 10); }
    function redirect(r) { r.internalRedirect('/part?n=7'); }
    async function parts(r) {
        const replies = await Promise.all([1, 2, 3].map((n) =>
            r.subrequest('/part', { args: `n=${n}`, method: n === 2 ? 'POST' : 'GET' })));
        r.return(200, replies.map((it) => it.status + it.responseText).join());
    }
    function nothing() {}
    function doubled(r, data, flags) {
        r.sendBuffer(data + data, flags);
        if (flags.last) r.sendBuffer(`|${r.headersOut['Content-Type']}|${r.status}`);
    }
    function bytes(r, data, flags) {
        r.sendBuffer(flags.last ? 'end' : Buffer.from(data).reverse());
    }
    function first(r, data) { r.sendBuffer('first:'); r.sendBuffer(data); r.done(); }
    function torn(r, data, flags) {
        r.sendBuffer(data);
        if (flags.last) throw new Error('torn on purpose');
    }
    function gate(r) {
        switch (r.args.gate) {
        case 'open': return;
        case 'silent': return r.decline();
        case 'text': return r.return(418, 'no');
        default: r.return(Number(r.args.gate));
        }
    }
    function status(r) { r.return(Number(r.args.s), r.args.t); }
    export default { computed, counted, outer, broken, slow, big, keep, echo, late, redirect,
        parts, nothing, status, doubled, bytes, first, torn, gate };";

fn proxy() -> Result<Proxy> {
    Proxy::new(Kind::Millpond, CONF)
        .file("one.js", ONE)
        .file(
            "lib/two.js",
            "import text from 'three.js'; export default { answer: (r) => r.return(200, text) };",
        )
        .file("html/page.txt", "abc")
        .file("lib/three.js", "export default 'three';")
        .log_check(LogCheck::Off)
        .start()
}

#[test]
fn scripts_do_what_they_say() -> Result<()> {
    let proxy = proxy()?;
    let client = Client::new(proxy.port());
    for (target, status, text) in [
        ("/set", 200, "GET /set 1|GET /set 1|2|3"),
        ("/nested", 200, "<GET /nested "),
        ("/var?v=x", 200, "start x kept"),
        ("/late", 200, "late"),
        ("/redirect", 200, "7GET"),
        ("/parts", 200, "2001GET,2002POST,2003GET"),
        ("/two", 200, "three"),
        ("/nothing", 500, ""),
        ("/none", 500, ""),
        ("/status?s=404", 404, "gone"),
        ("/status?s=404&t=text", 404, "text"),
        ("/status?s=x", 500, ""),
        ("/broken", 200, "[]"),
    ] {
        let response = client.get(target)?;
        ensure!(response.status == status, "{target}: {}", response.status);
        ensure!(
            response.text().starts_with(text),
            "{target}: {}",
            response.text()
        );
    }
    let response = client.get("/status?s=302&t=/there")?;
    ensure!(
        response
            .header("Location")
            .is_some_and(|it| it.ends_with("/there"))
    );
    let response = client.send(&Request::new("POST", "/echo").body("body"))?;
    ensure!(
        response.status == 201 && response.text() == "BODY",
        "{}",
        response.text()
    );
    ensure!(response.header("X-Length") == Some("4"));
    let log = proxy.error_log();
    ensure!(
        log.contains("js exception: TypeError: on purpose at broken ("),
        "{log}"
    );
    ensure!(log.contains("one.js:6:"), "{log}");
    ensure!(log.contains("js function \"one.none\" not found"), "{log}");
    Ok(())
}

#[test]
fn bodies_are_what_functions_make_of_them() -> Result<()> {
    let proxy = proxy()?;
    let client = Client::new(proxy.port());
    for (target, text) in [
        ("/doubled", "abcabc|text/plain|200"),
        ("/bytes", "cbaend"),
        ("/first", "first:abc"),
    ] {
        let response = client.get(target)?;
        ensure!(response.text() == text, "{target}: {}", response.text());
        ensure!(response.header("Content-Length").is_none(), "{target}");
        let part = Request::new("GET", target).header("Range", "bytes=0-0");
        ensure!(client.send(&part)?.status == 200, "{target}");
        ensure!(client.send(&Request::new("HEAD", target))?.status == 200);
    }
    // An answer that is not whole is not ended as if it were.
    ensure!(client.get("/torn")?.end != End::Complete);
    ensure!(
        proxy
            .error_log()
            .contains("js exception: Error: torn on purpose")
    );
    Ok(())
}

#[test]
fn a_function_is_one_of_the_gates_of_which_any_opens() -> Result<()> {
    let proxy = proxy()?;
    let client = Client::new(proxy.port());
    for (target, status) in [
        ("/any/?gate=open", 200),
        ("/any/?gate=silent", 403),
        ("/any/?gate=403", 403),
        ("/any/?gate=401", 401),
        ("/any/?gate=text", 418),
        ("/any/?gate=200", 200),
        ("/alone/?gate=open", 200),
        ("/alone/?gate=403", 403),
        ("/alone/?gate=silent", 200),
    ] {
        let response = client.get(target)?;
        ensure!(response.status == status, "{target}: {}", response.status);
    }
    Ok(())
}

#[test]
fn script_that_does_not_end_ends_its_request_only() -> Result<()> {
    let proxy = proxy()?;
    let client = Client::new(proxy.port());
    for (target, status) in [
        ("/loop", 500),
        ("/slow", 200),
        ("/big", 500),
        ("/loop", 500),
    ] {
        let start = Instant::now();
        let response = client.get(target)?;
        ensure!(response.status == status, "{target}: {}", response.status);
        ensure!(
            start.elapsed() < Duration::from_secs(10),
            "{target}: {:?}",
            start.elapsed()
        );
        ensure!(client.get("/alive")?.text() == "alive");
        ensure!(client.get("/late")?.text() == "late");
    }
    let log = proxy.error_log();
    ensure!(
        log.contains("js script was stopped after 100 ms (\"js_time_limit\") at slow ("),
        "{log}"
    );
    ensure!(log.contains("of \"js_memory_limit\""), "{log}");
    Ok(())
}

#[test]
fn mistakes_in_scripts_are_mistakes_of_the_configuration() -> Result<()> {
    for (line, module, expected) in [
        (
            "js_import one.js;",
            "\n\nlet let = 1;",
            "one.js:3: SyntaxError",
        ),
        (
            "js_import one.js;",
            "import x from 'nowhere.js';",
            "could not load module \"nowhere.js\"",
        ),
        (
            "js_import none.js;",
            "",
            "could not load module \"none.js\"",
        ),
        ("js_set $a one.;", "", "invalid function \"one.\""),
        ("js_set $uri one.a;", "", "the duplicate \"uri\" variable"),
        (
            "server { js_access one.a; listen 127.0.0.1:%%PORT_B%%; }",
            "",
            "no imports defined for \"js_access\" \"one.a\"",
        ),
        (
            "server { location / { js_content one.a; } listen 127.0.0.1:%%PORT_B%%; }",
            "",
            "no imports defined for \"js_content\" \"one.a\"",
        ),
        ("js_engine v8;", "", "invalid value \"v8\""),
        ("js_periodic one.a;", "", "js_periodic"),
        (
            "js_shared_dict_zone zone=a:1k;",
            "",
            "zone \"a\" is too small",
        ),
    ] {
        let conf = format!("{line} server {{ listen 127.0.0.1:%%PORT%%; }}");
        let builder = Proxy::new(Kind::Millpond, &conf).file("one.js", module);
        let Err(error) = builder.start() else {
            anyhow::bail!("{line} is taken");
        };
        let text = format!("{error:#}");
        ensure!(text.contains(expected), "{line}: {text}");
    }
    Ok(())
}

/// An example of the document: its module, its configuration, and lines of requests.
struct Example {
    name: String,
    module: String,
    conf: String,
    /// The file `limits.json`.
    limits: String,
    requests: Vec<String>,
}

fn examples() -> Result<Vec<Example>> {
    let text = fs::read_to_string("../docs/script.md")?;
    let sections = text.split("\n### ").skip(1);
    let block = |section: &str, kind: &str| -> Result<String> {
        let start = format!("```{kind}\n");
        let (_, rest) = section.split_once(&start).context(start)?;
        Ok(rest.split_once("```").context("no end")?.0.to_string())
    };
    let mut examples = Vec::new();
    for section in sections {
        examples.push(Example {
            name: section.lines().next().unwrap_or_default().to_string(),
            module: block(section, "js")?,
            conf: block(section, "nginx")?
                .replace("8080", "%%PORT%%")
                .replace("8081", "%%PORT_B%%"),
            limits: block(section, "json").unwrap_or_default(),
            requests: block(section, "http")?
                .lines()
                .map(str::to_string)
                .collect(),
        });
    }
    Ok(examples)
}

#[test]
fn examples_of_the_document_do_what_it_says() -> Result<()> {
    let examples = examples()?;
    ensure!(examples.len() >= 10, "{}", examples.len());
    for example in examples {
        let proxy = Proxy::new(Kind::Millpond, &example.conf)
            .file("example.js", &example.module)
            .file("limits.json", &example.limits)
            .start()
            .with_context(|| example.name.clone())?;
        for line in &example.requests {
            let (request, expected) = line.split_once(" -> ").context("no answer")?;
            let (expected, field) = expected.split_once(" | ").unwrap_or((expected, ""));
            let (status, text) = expected.split_once(' ').unwrap_or((expected, ""));
            let target = request.strip_prefix("GET ").context("no GET")?;
            let response = Client::new(proxy.port()).get(target)?;
            ensure!(
                response.status.to_string() == status,
                "{line}: {}",
                response.status
            );
            ensure!(
                text.is_empty() || response.text() == text,
                "{line}: {}",
                response.text()
            );
            if let Some((name, value)) = field.split_once(": ") {
                ensure!(
                    response.header(name) == Some(value),
                    "{line}: {:?}",
                    response.header(name)
                );
                ensure!(response.header("X-Internal-Node").is_none());
            }
        }
    }
    Ok(())
}
