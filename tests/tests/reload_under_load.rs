//! A reload under load drops no request; a bad one changes nothing; a graceful end lets answers
//! end.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, End, Gate, Kind, LogCheck, Origin, Proxy, Request,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /stored/ { proxy_pass http://%%ORIGIN%%; proxy_cache z; proxy_cache_valid 200 1h; }
        location /generation { return 200 GENERATION; }
    }";

const LEN: u64 = 1 << 20;
const WAIT: Duration = Duration::from_secs(20);

fn conf(generation: &str) -> String {
    CONF.replace("GENERATION", generation)
}

fn generation(client: &Client) -> Option<String> {
    client
        .get("/generation")
        .ok()
        .map(|response| response.text())
}

/// Waits until the server answers with this generation.
fn wait_for(client: &Client, wanted: &str) -> Result<()> {
    Deadline::after(WAIT)
        .poll(|| generation(client).filter(|text| text == wanted))
        .with_context(|| format!("generation {wanted} does not come"))?;
    Ok(())
}

/// While clients ask without a pause, the configuration is replaced ten times.
#[test]
fn a_reload_drops_no_request() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    let long = Answer::new(200).offset_body(LEN, 1);
    origin.route("/long", long.hold_body_at(LEN / 2, &gate));
    origin.route("/short", Answer::new(200).body("short"));
    origin.route("/stored/*", Answer::new(200).body("stored"));
    let mut proxy = Proxy::new(Kind::Millpond, &conf("g0"))
        .origin(&origin)
        .start()?;
    let client = Client::new(proxy.port());
    let mut long = client.connect()?;
    long.send_raw(&Request::get("/long").encode())?;
    let mut long_answer = long.read_head("GET")?.context("a head")?;
    let mut half = client.connect()?;
    half.send_raw(b"GET /short HTTP/1.1\r\nHo")?;
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| -> Result<()> {
        let (is_over, asked) = (&is_over, &asked);
        let clients: Vec<_> = ["/short", "/stored/a", "/generation"]
            .into_iter()
            .map(|path| {
                scope.spawn(move || -> Result<()> {
                    while !is_over.load(Ordering::Relaxed) {
                        assert_eq!(client.get(path)?.status, 200, "{path}");
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        let reloaded = (1..=10).try_for_each(|number| {
            let name = format!("g{number}");
            proxy.set_conf(&conf(&name))?;
            proxy.reload()?;
            wait_for(&client, &name)
        });
        is_over.store(true, Ordering::Relaxed);
        for thread in clients {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a client failed"))??;
        }
        reloaded
    })?;
    assert!(asked.into_inner() > 30);
    half.send_raw(b"st: h\r\n\r\n")?;
    assert_eq!(half.read_response("GET")?.text(), "short");
    gate.open();
    long.read_body(&mut long_answer)?;
    assert_eq!(long_answer.end, End::Complete);
    assert_eq!(long_answer.body.len() as u64, LEN);
    Ok(())
}

/// A client that was told to go on, and has sent its next request while the configuration changed,
/// is answered.
#[test]
fn a_reload_drops_no_request_that_a_kept_connection_has_sent() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    let long = Answer::new(200).offset_body(LEN, 1);
    origin.route("/long", long.hold_body_at(LEN / 2, &gate));
    origin.route("/short", Answer::new(200).body("short"));
    let mut proxy = Proxy::new(Kind::Millpond, &conf("old"))
        .origin(&origin)
        .start()?;
    let client = Client::new(proxy.port());
    let mut connection = client.connect()?;
    connection.send_raw(&Request::get("/long").encode())?;
    let mut response = connection.read_head("GET")?.context("a head")?;
    assert_eq!(response.header("Connection"), Some("keep-alive"));
    proxy.set_conf(&conf("new"))?;
    proxy.reload()?;
    wait_for(&client, "new")?;
    connection.send_raw(&Request::get("/short").encode())?;
    gate.open();
    connection.read_body(&mut response)?;
    assert_eq!(response.end, End::Complete);
    assert_eq!(connection.read_response("GET")?.text(), "short");
    connection.expect_close()
}

/// A configuration with an error is not taken, and the old one goes on.
#[test]
fn a_bad_reload_changes_nothing() -> Result<()> {
    let origin = Origin::start()?;
    let mut proxy = Proxy::new(Kind::Millpond, &conf("good"))
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    for bad in [
        conf("bad").replace("listen", "lissen"),
        format!("{} }}", conf("bad")),
        conf("bad").replace("127.0.0.1:%%PORT%%", "192.0.2.1:%%PORT%%"),
        conf("bad").replace("proxy_cache z", "proxy_cache unknown"),
    ] {
        let emergencies = || proxy.error_log().matches("[emerg]").count();
        let before = emergencies();
        proxy.set_conf(&bad)?;
        proxy.reload()?;
        let said = || proxy.error_log().matches("[emerg]").count() > before;
        Deadline::after(WAIT)
            .poll(|| said().then_some(()))
            .context("nothing was said")?;
        assert_eq!(generation(&client).as_deref(), Some("good"), "{bad}");
    }
    Ok(())
}

/// QUIT waits for an answer that is being sent, and for a fill whose client has left.
#[test]
fn a_graceful_end_lets_answers_and_fills_end() -> Result<()> {
    let origin = Origin::start()?;
    let (gate, fill_gate) = (Gate::new(), Gate::new());
    let long = Answer::new(200).offset_body(LEN, 1);
    origin.route("/long", long.clone().hold_body_at(LEN / 2, &gate));
    origin.route("/stored/long", long.hold_body_at(LEN / 2, &fill_gate));
    let mut proxy = Proxy::new(Kind::Millpond, &conf("g"))
        .origin(&origin)
        .start()?;
    let client = Client::new(proxy.port());
    let mut answer = client.connect()?;
    answer.send_raw(&Request::get("/long").encode())?;
    let mut response = answer.read_head("GET")?.context("a head")?;
    let mut leaver = client.connect()?;
    leaver.send_raw(&Request::get("/stored/long").encode())?;
    leaver.read_head("GET")?.context("a head")?;
    drop(leaver);
    let reader = std::thread::spawn(move || {
        let refused = Deadline::after(WAIT).poll(|| client.connect().err());
        gate.open();
        fill_gate.open();
        let read = answer.read_body(&mut response);
        (
            refused.is_some(),
            read.is_ok() && response.end == End::Complete,
        )
    });
    proxy.quit()?;
    let (is_refused, is_whole) = reader.join().map_err(|_| anyhow::anyhow!("panic"))?;
    assert!(is_refused, "new connections are taken");
    assert!(is_whole, "the running answer is cut");
    proxy.restart()?;
    origin.forget_requests();
    assert_eq!(client.get("/stored/long")?.body.len() as u64, LEN);
    assert_eq!(origin.requests().len(), 0, "the fill was not kept");
    Ok(())
}

/// Settings of a series of reloads under load.
struct Series {
    reloads: usize,
    clients: usize,
    /// Least time of the series, spread over the reloads.
    lasts: Duration,
}

/// Memory of the process, in KiB.
fn memory(proxy: &Proxy) -> Result<u64> {
    let pid = proxy.pid().context("it runs")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.context("no VmRSS")?.split_whitespace().next();
    Ok(words.context("no number")?.parse()?)
}

/// Keeps a connection busy for a while, and opens a new one when it is closed between answers.
fn ask_for(client: &Client, path: &str, is_over: &AtomicBool) -> Result<usize> {
    let mut asked = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut connection = client.connect()?;
        for _ in 0..50 {
            connection.send_raw(&Request::get(path).encode())?;
            // A connection that was closed before anything was sent may have missed the request.
            let Some(mut response) = connection.read_head("GET")? else {
                break;
            };
            connection.read_body(&mut response)?;
            assert_eq!(response.status, 200, "{path}");
            assert_eq!(response.end, End::Complete, "{path}");
            asked += 1;
            if response.header("Connection") == Some("close") {
                break;
            }
        }
    }
    Ok(asked)
}

/// Waits for an answer that stands still longer than a minute.
fn patient(generation: &str) -> String {
    format!(
        "proxy_read_timeout 5m; send_timeout 5m; {}",
        conf(generation)
    )
}

/// Reloads again and again, under load and with an answer that is being sent all the while; tells
/// how many requests were answered, and the memory before and after.
fn run_series(series: &Series) -> Result<(usize, u64, u64)> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    let long = Answer::new(200).offset_body(LEN, 1);
    origin.route("/long", long.hold_body_at(LEN / 2, &gate));
    origin.route("/short", Answer::new(200).body("short"));
    origin.route("/stored/*", Answer::new(200).offset_body(10_000, 1));
    let mut proxy = Proxy::new(Kind::Millpond, &patient("g"))
        .origin(&origin)
        .start()?;
    let client = Client::new(proxy.port());
    let mut long = client.connect()?;
    long.send_raw(&Request::get("/long").encode())?;
    let mut answer = long.read_head("GET")?.context("a head")?;
    let is_over = AtomicBool::new(false);
    let (asked, before) = std::thread::scope(|scope| -> Result<(usize, u64)> {
        let (client, is_over) = (&client, &is_over);
        let paths = ["/short", "/stored/a", "/generation"].into_iter().cycle();
        let clients: Vec<_> = paths
            .take(series.clients)
            .map(|path| scope.spawn(move || ask_for(client, path, is_over)))
            .collect();
        let mut before = 0;
        let mut reloaded = Ok(());
        for number in 0..series.reloads {
            let pace = Deadline::after(series.lasts / series.reloads as u32);
            let name = format!("g{number}");
            reloaded = proxy
                .set_conf(&patient(&name))
                .and_then(|()| proxy.reload())
                .and_then(|()| wait_for(client, &name));
            if reloaded.is_err() {
                break;
            }
            // The first ones let the allocator have what a reload takes.
            if number == series.reloads / 4 {
                before = memory(&proxy)?;
            }
            pace.poll(|| None::<()>);
        }
        is_over.store(true, Ordering::Relaxed);
        let mut asked = 0;
        for thread in clients {
            let outcome = thread.join();
            asked += outcome.map_err(|_| anyhow::anyhow!("a client failed"))??;
        }
        reloaded.map(|()| (asked, before))
    })?;
    gate.open();
    long.read_body(&mut answer)?;
    assert_eq!(answer.end, End::Complete);
    let after = memory(&proxy)?;
    proxy.quit()?;
    Ok((asked, before, after))
}

/// Thirty reloads leave nothing behind.
#[test]
fn reloads_leave_no_memory_behind() -> Result<()> {
    let (asked, before, after) = run_series(&Series {
        reloads: 30,
        clients: 3,
        lasts: Duration::ZERO,
    })?;
    assert!(asked > 30);
    assert!(
        after < before + before / 4,
        "{before} KiB, then {after} KiB"
    );
    Ok(())
}

/// Two hundred in a minute; to be run by name, because it takes that minute.
#[test]
#[ignore = "takes a minute"]
fn two_hundred_reloads_in_a_minute_leave_no_memory_behind() -> Result<()> {
    let (asked, before, after) = run_series(&Series {
        reloads: 200,
        clients: 8,
        lasts: Duration::from_secs(60),
    })?;
    println!("{asked} requests; {before} KiB after 50 reloads, {after} KiB after 200");
    assert!(
        after < before + before / 4,
        "{before} KiB, then {after} KiB"
    );
    Ok(())
}
