//! `js_periodic`, `js_preload_object`: functions that run by themselves, and values that are read
//! with the configuration.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy};

const CONF: &str = "
    %%GLOBALS%%
    worker_processes 3;
    worker_shutdown_timeout 100ms;
    events {}
    http {
    %%HTTP%%
    js_import run.js;
    js_shared_dict_zone zone=seen:64k type=number;
    js_shared_dict_zone zone=texts:64k;
    js_var $declared there;
    js_var $asked http://127.0.0.1:%%PORT%%/answer;
    js_set $computed run.computed;
    js_preload_object outer.json;
    js_preload_object both from outer.json;
    server {
        listen 127.0.0.1:%%PORT%%;
        js_time_limit 100ms;
        js_preload_object both from inner;
        location @runs {
            js_periodic run.counted interval=10ms jitter=1ms;
            js_periodic run.everywhere interval=20ms worker_affinity=all;
            js_periodic run.chosen interval=20ms worker_affinity=010;
            js_periodic run.asks interval=30ms;
            js_periodic run.session interval=50ms;
            js_periodic run.throws interval=50ms;
            js_periodic run.loops interval=500ms;
            js_periodic run.late interval=30ms;
        }
        location /seen { js_content run.seen; }
        location /text { js_content run.text; }
        location /answer { return 200 answer; }
        location /values { js_content run.values; }
    }
    }";

const RUN: &str = "
    function computed() { return 'so'; }
    function counted() { ngx.shared.seen.incr('counted', 1); }
    function everywhere() { ngx.shared.seen.set(`everywhere${ngx.worker_id}`, 1); }
    function chosen() { ngx.shared.seen.set(`chosen${ngx.worker_id}`, 1); }
    async function asks(s) {
        const reply = await ngx.fetch(s.variables.asked);
        ngx.shared.texts.set('asks', await reply.text());
    }
    function session(s) {
        const v = s.variables;
        v.declared += '!';
        const told = [s[Symbol.toStringTag], v.declared, v.computed, s.rawVariables.uri,
            typeof s.subrequest + typeof s.return];
        ngx.shared.texts.set('session', told.join(' '));
    }
    function throws() { throw new Error('run on purpose'); }
    function loops() { for (;;); }
    function late() { ngx.shared.seen.incr('late', 1); setTimeout(() => {}, 3600000); }
    function seen(r) { r.return(200, ngx.shared.seen.keys().sort().join() + '|'
        + ngx.shared.seen.get('counted')); }
    function text(r) { r.return(200, String(ngx.shared.texts.get(r.args.name))); }
    function values(r) {
        const refused = [];
        for (const change of [
            () => { outer.a.b = 1; }, () => { outer.list.push(1); }, () => { delete outer.a; },
            () => { outer = 1; }, () => { globalThis.both = 1; },
        ]) {
            try { change(); } catch (error) { refused.push(error.name); }
        }
        r.return(200, `${outer.a.b} ${outer.list.map((it) => it + 1)} ${both} ${refused}`);
    }
    export default { computed, counted, everywhere, chosen, asks, session, throws, loops, late,
        seen, text, values };";

fn proxy() -> Result<Proxy> {
    Proxy::new(Kind::Millpond, CONF)
        .file("outer.json", r#"{"a": {"b": 7}, "list": [1, 2]}"#)
        .file("inner", r#""inner text""#)
        .log_check(LogCheck::Off)
        .file("run.js", RUN)
        .start()
}

/// Asks until an answer is as it should be.
fn until(client: &Client, target: &str, is_right: impl Fn(&str) -> bool) -> Result<String> {
    let deadline = Deadline::after(Duration::from_secs(10));
    let found = deadline.poll(|| {
        let text = client.get(target).ok()?.text();
        is_right(&text).then_some(text)
    });
    found.with_context(|| {
        let last = client.get(target).map(|it| it.text());
        format!("{target}: {last:?}")
    })
}

#[test]
fn functions_run_without_requests() -> Result<()> {
    let mut proxy = proxy()?;
    let client = Client::new(proxy.port());
    until(&client, "/seen", |text| {
        let (names, count) = text.split_once('|').unwrap_or_default();
        count.parse().is_ok_and(|count: u32| count >= 3)
            && names == "chosen1,counted,everywhere0,everywhere1,everywhere2,late"
    })?;
    until(&client, "/text?name=asks", |text| text == "answer")?;
    until(&client, "/text?name=session", |text| {
        text == "PeriodicSession there! so / undefinedundefined"
    })?;
    let deadline = Deadline::after(Duration::from_secs(10));
    for words in [
        "js exception: Error: run on purpose",
        "js script was stopped after 100 ms",
        "js periodic \"run.late\" is already running, killing previous instance",
    ] {
        let found = deadline.poll(|| proxy.error_log().contains(words).then_some(()));
        found.with_context(|| format!("{words}: {}", proxy.error_log()))?;
    }
    // The run that waits for an hour does not hold the process.
    proxy.quit()
}

#[test]
fn a_reload_ends_the_runs_of_the_configuration_before() -> Result<()> {
    let mut proxy = proxy()?;
    let client = Client::new(proxy.port());
    until(&client, "/seen", |text| text.contains("counted"))?;
    proxy.set_conf(&CONF.replace("run.counted interval=10ms", "run.chosen interval=10ms"))?;
    proxy.reload()?;
    // A dictionary outlives a reload: what is counted there stands still from some moment on.
    let count = |text: &str| text.rsplit('|').next().map(str::to_string);
    let mut last = None;
    let deadline = Deadline::after(Duration::from_secs(10));
    let mut same = 0;
    let still = deadline.poll(|| {
        let now = count(&client.get("/seen").ok()?.text());
        same = if now == last { same + 1 } else { 0 };
        last = now;
        (same > 20).then_some(())
    });
    still.context("the run of the configuration before goes on")?;
    Ok(())
}

#[test]
fn values_of_files_are_there_and_stay_as_they_are() -> Result<()> {
    let proxy = proxy()?;
    let response = Client::new(proxy.port()).get("/values")?;
    let refused = ["TypeError"; 5].join(",");
    ensure!(
        response.text() == format!("7 2,3 inner text {refused}"),
        "{}",
        response.text()
    );
    Ok(())
}

#[test]
fn what_is_wrong_is_told_at_the_start() -> Result<()> {
    for (line, words) in [
        ("js_periodic;", "method name is required"),
        ("js_periodic run;", "no imports"),
        (
            "js_periodic run.f interval=0;",
            "invalid parameter \"interval=0\"",
        ),
        ("js_periodic run.f often;", "invalid parameter \"often\""),
        (
            "js_periodic run.f jitter=x;",
            "invalid parameter \"jitter=x\"",
        ),
        (
            "js_periodic run.f worker_affinity=12;",
            "invalid character \"2\"",
        ),
        (
            "js_periodic run.f worker_affinity=0101;",
            "the number of \"worker_processes\" is not equal to the size",
        ),
    ] {
        let conf = format!("server {{ listen 127.0.0.1:%%PORT%%; location @x {{ {line} }} }}");
        let started = Proxy::new(Kind::Millpond, &conf).start();
        let error = started.err().with_context(|| line.to_string())?;
        ensure!(format!("{error:#}").contains(words), "{line}: {error:#}");
    }
    Ok(())
}
