//! The origin and the client against each other: what a test may rely on.

use millpond_testkit::{Answer, Client, End, Framing, Gate, Origin, Ranges, Request, offset_bytes};
use std::time::Duration;

#[test]
fn routes_are_chosen_by_the_longest_match_and_requests_are_recorded() {
    let origin = Origin::start().unwrap();
    origin.route("/a*", Answer::new(200).body("prefix"));
    origin.route("/a/b", Answer::new(201).body("exact"));
    let client = Client::new(origin.port());
    for (path, status, body) in [
        ("/a/c?x=1", 200, "prefix"),
        ("/a/b?x=1", 201, "exact"),
        ("/b", 404, "no route\n"),
    ] {
        let response = client.get(path).unwrap();
        assert_eq!(
            (response.status, response.text().as_str()),
            (status, body),
            "{path}"
        );
    }
    let targets: Vec<String> = origin.requests().into_iter().map(|r| r.target).collect();
    assert_eq!(targets, ["/a/c?x=1", "/a/b?x=1", "/b"]);
}

#[test]
fn a_sequence_ends_with_its_last_answer() {
    let origin = Origin::start().unwrap();
    origin.sequence("/", vec![Answer::new(500), Answer::new(200)]);
    let client = Client::new(origin.port());
    let statuses = [(); 3].map(|()| client.get("/").unwrap().status);
    assert_eq!(statuses, [500, 200, 200]);
}

#[test]
fn ranges_and_conditions_are_honoured_where_asked_for() {
    let origin = Origin::start().unwrap();
    let answer = Answer::new(200).offset_body(1000, 1).etag("\"v1\"");
    origin.route("/", answer.ranges(Ranges::Supported).revalidates());
    let client = Client::new(origin.port());
    for (name, value, status, range) in [
        ("Range", "bytes=10-19", 206, 10..20),
        ("Range", "bytes=990-", 206, 990..1000),
        ("Range", "bytes=-5", 206, 995..1000),
        ("Range", "bytes=2000-", 416, 0..0),
        ("Range", "bytes=1-2,4-5", 200, 0..1000),
        ("If-None-Match", "\"v1\"", 304, 0..0),
        ("If-None-Match", "\"v2\"", 200, 0..1000),
    ] {
        let request = Request::get("/").header(name, value);
        let response = client.send(&request).unwrap();
        assert_eq!(response.status, status, "{value}");
        assert_eq!(response.body, offset_bytes(range, 1), "{value}");
    }
}

#[test]
fn framings_tell_the_end_and_a_drop_is_seen() {
    let origin = Origin::start().unwrap();
    for (path, framing) in [
        ("/length", Framing::Length),
        ("/chunked", Framing::Chunked),
        ("/close", Framing::UntilClose),
    ] {
        let answer = Answer::new(200).offset_body(20_000, 0).framing(framing);
        origin.route(path, answer.clone().trailer("X-End", "1"));
        let dropped = format!("{path}/dropped");
        origin.route(&dropped, answer.drop_after(9_000));
        let client = Client::new(origin.port());
        let whole = client.get(path).unwrap();
        assert_eq!(
            (whole.body.len(), whole.end),
            (20_000, End::Complete),
            "{path}"
        );
        let chunked = framing == Framing::Chunked;
        assert_eq!(whole.trailers.contains("X-End"), chunked);
        let part = client.get(&dropped).unwrap();
        assert_eq!(part.body.len(), 9_000);
        assert_eq!(part.end == End::Complete, framing == Framing::UntilClose);
    }
}

#[test]
fn gates_hold_the_head_and_the_body() {
    let origin = Origin::start().unwrap();
    let gate = Gate::new();
    origin.route(
        "/",
        Answer::new(200).offset_body(100, 0).hold_body_at(10, &gate),
    );
    let mut connection = Client::new(origin.port()).connect().unwrap();
    connection.send_raw(&Request::get("/").encode()).unwrap();
    let mut response = connection.read_head("GET").unwrap().unwrap();
    connection.read_some(&mut response, 10).unwrap();
    assert!(
        !connection
            .is_closed_within(Duration::from_millis(20))
            .unwrap()
    );
    gate.open();
    connection.read_body(&mut response).unwrap();
    assert_eq!(response.body, offset_bytes(0..100, 0));
}

#[test]
fn connections_are_kept_and_request_bodies_are_read() {
    let origin = Origin::start().unwrap();
    origin.route("/", Answer::new(200));
    let mut connection = Client::new(origin.port()).connect().unwrap();
    let chunked = Request::new("POST", "/").chunks(&["ab", "c"]);
    for request in [Request::post("/", "abc"), chunked, Request::head("/")] {
        assert_eq!(connection.exchange(&request).unwrap().status, 200);
    }
    let requests = origin.requests();
    assert_eq!(requests[0].body, b"abc");
    assert_eq!(requests[1].body, b"abc");
    assert!(requests.iter().all(|request| request.connection == 1));
    assert!(origin.faults().is_empty(), "{:?}", origin.faults());
}

#[test]
fn a_request_that_is_not_http_is_a_fault() {
    let origin = Origin::start().unwrap();
    let mut connection = Client::new(origin.port()).connect().unwrap();
    connection.send_raw(b"GET /\r\n\r\n").unwrap();
    connection.expect_close().unwrap();
    assert_eq!(origin.faults().len(), 1);
}
