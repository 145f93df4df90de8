//! One origin request per missing thing, however many ask at once, and whoever leaves.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Connection, Deadline, End, Framing, Gate, Kind, Origin, Protocol, Proxy,
    Ranges, Request, offset_bytes,
};
use std::time::Duration;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_valid 200 1h;
        location /locked { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; }
        location /free { proxy_pass http://%%ORIGIN%%; }
    }";

const CLIENTS: usize = 100;
const LEN: u64 = 1 << 20;
/// Longest time from the first of all first bytes to the middle one, on a machine that does other
/// work, too; below the polling interval of old, which is 500 ms.
const TOGETHER: Duration = Duration::from_millis(400);

fn start(protocol: Protocol) -> Result<(Origin, Proxy, Client)> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .over(protocol)
        .origin(&origin)
        .start()?;
    let client = protocol.client(proxy.port());
    Ok((origin, proxy, client))
}

/// Sends `path` on so many connections, without reading.
fn ask(client: &Client, path: &str, count: usize) -> Result<Vec<Connection>> {
    let request = Request::get(path).header("Connection", "close");
    (0..count)
        .map(|_| {
            let mut connection = client.connect()?;
            connection.ask(&request)?;
            Ok(connection)
        })
        .collect()
}

/// Reads the heads, which must come together; then lets the bodies come, and checks them.
fn all_get_the_body(mut connections: Vec<Connection>, rest: &Gate) -> Result<()> {
    let mut responses = Vec::new();
    for connection in &mut connections {
        responses.push(connection.read_head("GET")?.context("a head")?);
    }
    let mut firsts: Vec<_> = responses.iter().map(|it| it.first_byte).collect();
    firsts.sort();
    let middle = firsts.get(firsts.len() / 2).context("answers")?;
    let apart = middle.saturating_duration_since(firsts[0]);
    assert!(apart < TOGETHER, "first bytes are {apart:?} apart");
    rest.open();
    let expected = offset_bytes(0..LEN, 1);
    for (connection, response) in connections.iter_mut().zip(&mut responses) {
        connection.read_body(response)?;
        assert_eq!((response.status, &response.end), (200, &End::Complete));
        assert!(response.body == expected, "a body differs");
    }
    Ok(())
}

/// With the lock, all who ask before the origin has answered share one fill; chunked, too.
fn many_clients_of_a_missing_entry_make_one_request(protocol: Protocol) -> Result<()> {
    for framing in [Framing::Length, Framing::Chunked] {
        let (origin, _proxy, client) = start(protocol)?;
        let (gate, rest) = (Gate::new(), Gate::new());
        let answer = Answer::new(200).offset_body(LEN, 1).framing(framing);
        let answer = answer.hold_head(&gate).hold_body_at(LEN / 2, &rest);
        origin.route("/locked", answer);
        let connections = ask(&client, "/locked", CLIENTS)?;
        origin.wait_for_requests(1)?;
        gate.open();
        all_get_the_body(connections, &rest)?;
        assert_eq!(origin.requests().len(), 1, "{framing:?}");
    }
    Ok(())
}

/// Without the lock, those who come when the head is there share the running fill.
fn a_running_fill_is_shared_without_the_lock(protocol: Protocol) -> Result<()> {
    let (origin, _proxy, client) = start(protocol)?;
    let gate = Gate::new();
    let answer = Answer::new(200).offset_body(LEN, 1);
    origin.route("/free", answer.hold_body_at(LEN / 2, &gate));
    let mut leader = client.connect()?;
    leader.ask(&Request::get("/free"))?;
    let _head = leader.read_head("GET")?.context("a head")?;
    let connections = ask(&client, "/free", CLIENTS)?;
    all_get_the_body(connections, &gate)?;
    assert_eq!(origin.requests().len(), 1);
    Ok(())
}

/// The fill belongs to nobody: when its first client leaves, the others get all of it.
fn the_fill_goes_on_when_its_first_client_leaves(protocol: Protocol) -> Result<()> {
    let (origin, _proxy, client) = start(protocol)?;
    let gate = Gate::new();
    let answer = Answer::new(200).offset_body(LEN, 1);
    origin.route("/locked", answer.hold_body_at(LEN / 2, &gate));
    let mut leader = client.connect()?;
    leader.ask(&Request::get("/locked"))?;
    let _head = leader.read_head("GET")?.context("a head")?;
    let connections = ask(&client, "/locked", 10)?;
    drop(leader);
    gate.open();
    for mut connection in connections {
        let response = connection.read_response("GET")?;
        assert!(response.body == offset_bytes(0..LEN, 1), "a body differs");
    }
    assert!(client.get("/locked")?.body == offset_bytes(0..LEN, 1));
    assert_eq!(origin.requests().len(), 1);
    Ok(())
}

/// A fill goes on also when its first client leaves before the origin has answered at all.
fn the_fill_goes_on_when_its_first_client_leaves_before_the_head(protocol: Protocol) -> Result<()> {
    let (origin, _proxy, client) = start(protocol)?;
    let gate = Gate::new();
    let answer = Answer::new(200).offset_body(LEN, 1);
    origin.route("/locked", answer.hold_head(&gate));
    let leader = ask(&client, "/locked", 1)?;
    origin.wait_for_requests(1)?;
    let connections = ask(&client, "/locked", 10)?;
    drop(leader);
    gate.open();
    for mut connection in connections {
        let response = connection.read_response("GET")?;
        assert!(response.body == offset_bytes(0..LEN, 1), "a body differs");
    }
    assert_eq!(origin.requests().len(), 1);
    Ok(())
}

/// A failure that the origin reports is told to all who waited for the answer, and the origin is
/// asked once.
fn a_failure_of_the_origin_is_shared(protocol: Protocol) -> Result<()> {
    let (origin, _proxy, client) = start(protocol)?;
    let gate = Gate::new();
    origin.route("/locked", Answer::new(503).hold_head(&gate));
    let connections = ask(&client, "/locked", 20)?;
    origin.wait_for_requests(1)?;
    // What is in the queue of the accepting socket is waiting, too: they are all let in first.
    let probe = client.get("/none")?;
    assert_eq!(probe.status, 404);
    gate.open();
    for mut connection in connections {
        assert_eq!(connection.read_response("GET")?.status, 503);
    }
    assert_eq!(origin.requests().len(), 1);
    Ok(())
}

/// Without the lock, an answer that passes beside another one is cut into the range that its client
/// wants, which the origin was not asked for.
fn without_the_lock_each_gets_its_range(protocol: Protocol) -> Result<()> {
    let (origin, _proxy, client) = start(protocol)?;
    let gate = Gate::new();
    let answer = Answer::new(200).offset_body(LEN, 1).etag("\"a\"");
    origin.route("/free", answer.ranges(Ranges::Supported).hold_head(&gate));
    let request = Request::get("/free").header("Range", "bytes=1000-1009");
    let mut connections = Vec::new();
    for count in 1..=3 {
        let mut connection = client.connect()?;
        connection.ask(&request)?;
        connections.push(connection);
        origin.wait_for_requests(count)?;
    }
    gate.open();
    for mut connection in connections {
        let response = connection.read_response("GET")?;
        assert_eq!(response.status, 206);
        let place = format!("bytes 1000-1009/{LEN}");
        assert_eq!(response.header("Content-Range"), Some(place.as_str()));
        assert!(response.body == offset_bytes(1000..1010, 1), "other bytes");
    }
    let ranges = origin
        .requests()
        .into_iter()
        .map(|it| it.header("Range").map(str::to_string));
    assert_eq!(ranges.collect::<Vec<_>>(), [None, None, None]);
    Ok(())
}

/// Without the lock, an answer that comes while another is being written passes beside it, whole
/// and unstored; one that comes later replaces it.
fn without_the_lock_one_answer_at_a_time_is_written(protocol: Protocol) -> Result<()> {
    let (origin, _proxy, client) = start(protocol)?;
    let [head, second, rest] = [Gate::new(), Gate::new(), Gate::new()];
    let body = |version| Answer::new(200).offset_body(LEN, version);
    origin.sequence(
        "/free",
        vec![
            body(1).hold_head(&head).hold_body_at(LEN / 2, &rest),
            body(2).hold_head(&second),
        ],
    );
    let mut connections = ask(&client, "/free", 1)?;
    origin.wait_for_requests(1)?;
    connections.extend(ask(&client, "/free", 1)?);
    origin.wait_for_requests(2)?;
    head.open();
    let mut first = connections[0].read_head("GET")?.context("a head")?;
    second.open();
    let passed = connections[1].read_response("GET")?;
    assert!(
        passed.body == offset_bytes(0..LEN, 2),
        "the second is whole"
    );
    rest.open();
    connections[0].read_body(&mut first)?;
    assert!(first.body == offset_bytes(0..LEN, 1), "the first is whole");
    assert!(client.get("/free")?.body == offset_bytes(0..LEN, 1), "kept");
    assert_eq!(origin.requests().len(), 2);
    Ok(())
}

/// An answer that may not be stored is remembered: requests for it go to the origin side by side,
/// and the first that may be stored ends it.
fn nobody_waits_for_what_may_not_be_stored(protocol: Protocol) -> Result<()> {
    let (origin, _proxy, client) = start(protocol)?;
    let (private, public) = (Gate::new(), Gate::new());
    let held = Answer::new(200).header("Cache-Control", "no-store");
    let held = held.hold_head(&private);
    let mut answers = vec![Answer::new(200).header("Cache-Control", "no-store")];
    answers.extend(std::iter::repeat_n(held, 10));
    answers.push(Answer::new(200).body("public").hold_head(&public));
    origin.sequence("/locked", answers);
    client.get("/locked")?;
    let connections = ask(&client, "/locked", 10)?;
    origin.wait_for_requests(11)?;
    private.open();
    for mut connection in connections {
        assert_eq!(connection.read_response("GET")?.status, 200);
    }
    let mut last = ask(&client, "/locked", 1)?;
    origin.wait_for_requests(12)?;
    public.open();
    assert_eq!(last[0].read_response("GET")?.text(), "public");
    assert_eq!(client.get("/locked")?.text(), "public");
    assert_eq!(origin.requests().len(), 12);
    Ok(())
}

/// A fill outlives the configuration under which it began, and the time that its connections get:
/// who reads along under the next one gets all of it.
fn a_fill_outlives_its_generation(protocol: Protocol) -> Result<()> {
    let origin = Origin::start()?;
    let conf = CONF.replace(
        "proxy_cache_valid",
        "add_header X-Round %%ROUND%%; proxy_cache_valid",
    );
    let conf = format!(
        "%%GLOBALS%% worker_shutdown_timeout 100ms; events {{}} http {{ %%HTTP%% {conf} }}"
    );
    let text = |round: &str| conf.replace("%%ROUND%%", round);
    let mut proxy = Proxy::new(Kind::Millpond, &text("1"))
        .over(protocol)
        .origin(&origin)
        .start()?;
    let client = protocol.client(proxy.port());
    let gate = Gate::new();
    let answer = Answer::new(200).offset_body(LEN, 1);
    origin.route("/locked", answer.hold_body_at(LEN / 2, &gate));
    origin.route("/free", Answer::new(200));
    let mut leader = ask(&client, "/locked", 1)?;
    let mut cut = leader[0].read_head("GET")?.context("a head")?;
    proxy.set_conf(&text("2"))?;
    proxy.reload()?;
    let next = Deadline::after(Duration::from_secs(10)).poll(|| {
        let probe = client.get("/free").ok()?;
        (probe.header("X-Round") == Some("2")).then_some(())
    });
    next.context("the configuration never changed")?;
    // The connection of the generation before is ended when its time is over.
    leader[0].read_body(&mut cut)?;
    assert_ne!(cut.end, End::Complete);
    let connections = ask(&client, "/locked", 10)?;
    gate.open();
    for mut connection in connections {
        let response = connection.read_response("GET")?;
        assert!(response.body == offset_bytes(0..LEN, 1), "a body differs");
    }
    assert_eq!(
        origin
            .requests()
            .iter()
            .filter(|it| it.path() == "/locked")
            .count(),
        1
    );
    Ok(())
}

/// A client that has the range it wanted is let go, whatever of the file is still to come.
#[test]
fn a_fill_holds_no_connection() -> Result<()> {
    let (origin, _proxy, client) = start(Protocol::Http1)?;
    let gate = Gate::new();
    let answer = Answer::new(200).offset_body(LEN, 1).etag("\"1\"");
    let answer = answer.ranges(Ranges::Supported);
    origin.route("/locked", answer.hold_body_at(LEN / 2, &gate));
    let mut connection = client.connect()?;
    let request = Request::get("/locked").header("Range", "bytes=0-9");
    let response = connection.exchange(&request.header("Connection", "close"))?;
    assert_eq!(response.body, offset_bytes(0..10, 1));
    assert!(connection.is_closed_within(Duration::from_secs(5))?);
    gate.open();
    Ok(())
}

millpond_testkit::each_protocol!(
    many_clients_of_a_missing_entry_make_one_request,
    a_running_fill_is_shared_without_the_lock,
    the_fill_goes_on_when_its_first_client_leaves,
    the_fill_goes_on_when_its_first_client_leaves_before_the_head,
    a_failure_of_the_origin_is_shared,
    without_the_lock_each_gets_its_range,
    without_the_lock_one_answer_at_a_time_is_written,
    nobody_waits_for_what_may_not_be_stored,
    a_fill_outlives_its_generation,
);
