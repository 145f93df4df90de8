//! Resources with versions, the lies about their ranges, and the log of what was sent.

use anyhow::Result;
use millpond_testkit::{
    Client, Gate, Lie, Manners, Origin, Outage, Ranges, Request, Resource, Response, Turn,
    Validator, offset_bytes,
};
use std::ops::Range;

const LEN: u64 = 10_000;

fn serve(manners: Manners) -> Result<(Origin, Resource, Client)> {
    let origin = Origin::start()?;
    let film = Resource::new(manners);
    origin.resource("/film", &film);
    let client = Client::new(origin.port());
    Ok((origin, film, client))
}

fn get(client: &Client, range: &str) -> Result<Response> {
    let request = Request::get("/film").header("Range", range);
    client.send(&request)
}

#[test]
fn a_lie_is_told_in_answers_to_ranges_only() {
    let cases: [(Option<Lie>, Option<&str>, Range<u64>); 10] = [
        (None, Some("bytes 10-19/10000"), 10..20),
        (Some(Lie::NoContentRange), None, 10..20),
        (
            Some(Lie::GarbledContentRange),
            Some("bytes here-there/everywhere"),
            10..20,
        ),
        (Some(Lie::UnknownTotal), Some("bytes 10-19/*"), 10..20),
        (Some(Lie::Total(7)), Some("bytes 10-19/7"), 10..20),
        (Some(Lie::OtherBytes(5)), Some("bytes 15-24/10000"), 15..25),
        (Some(Lie::OtherPlace(5)), Some("bytes 15-24/10000"), 10..20),
        (Some(Lie::Fewer(5)), Some("bytes 10-14/10000"), 10..15),
        (Some(Lie::More(5)), Some("bytes 10-24/10000"), 10..25),
        (Some(Lie::FewerUntold(5)), Some("bytes 10-19/10000"), 10..15),
    ];
    let (_origin, film, client) = serve(Manners::of(LEN)).unwrap();
    for (lie, content_range, sent) in cases {
        film.change(|manners| manners.lie = lie);
        let part = get(&client, "bytes=10-19").unwrap();
        assert_eq!(part.status, 206, "{lie:?}");
        assert_eq!(part.header("Content-Range"), content_range, "{lie:?}");
        assert_eq!(part.body, offset_bytes(sent, 1), "{lie:?}");
        assert!(client.get("/film").unwrap().body == film.bytes(0..LEN));
    }
}

#[test]
fn validators_follow_the_version() {
    let cases = [
        (Validator::Strong, Some("\"v3\""), None),
        (Validator::Weak, Some("W/\"v3\""), None),
        (Validator::Date, None, Some("Mon, 03 Jan 2022 00:00:00 GMT")),
        (
            Validator::StrongAndDate,
            Some("\"v3\""),
            Some("Mon, 03 Jan 2022 00:00:00 GMT"),
        ),
        (Validator::Unchanging, Some("\"v\""), None),
        (Validator::None, None, None),
    ];
    let (_origin, film, client) = serve(Manners::of(LEN)).unwrap();
    film.change(|manners| manners.version = 3);
    for (validator, etag, modified) in cases {
        film.change(|manners| manners.validator = validator);
        let whole = client.get("/film").unwrap();
        let seen = (whole.header("ETag"), whole.header("Last-Modified"));
        assert_eq!(seen, (etag, modified), "{validator:?}");
        assert!(whole.body == offset_bytes(0..LEN, 3));
    }
}

#[test]
fn the_version_turns_at_a_request_or_after_so_many_bytes() {
    let (_origin, film, client) = serve(Manners::of(LEN)).unwrap();
    film.change(|manners| manners.turn = Turn::EveryRequests(2));
    let versions = [(); 5].map(|()| get(&client, "bytes=0-3").unwrap().text());
    assert_eq!(versions, ["0001", "0001", "0002", "0002", "0003"]);
    let (_origin, film, client) = serve(Manners::of(LEN)).unwrap();
    film.change(|manners| manners.turn = Turn::AfterBytes(8));
    let versions = [(); 5].map(|()| get(&client, "bytes=0-3").unwrap().text());
    assert_eq!(versions, ["0001", "0001", "0002", "0002", "0002"]);
}

#[test]
fn if_range_is_obeyed_or_not_looked_at() {
    let (_origin, film, client) = serve(Manners::of(LEN)).unwrap();
    let ask = |tag: &str| {
        let request = Request::get("/film").header("Range", "bytes=0-3");
        client
            .send(&request.header("If-Range", tag))
            .unwrap()
            .status
    };
    assert_eq!([ask("\"v1\""), ask("\"v2\"")], [206, 200]);
    film.change(|manners| manners.ranges = Ranges::Unconditional);
    assert_eq!([ask("\"v1\""), ask("\"v2\"")], [206, 206]);
    film.change(|manners| manners.ranges = Ranges::Ignored);
    assert_eq!([ask("\"v1\""), ask("\"v2\"")], [200, 200]);
}

#[test]
fn held_bytes_hold_the_answers_that_have_them() {
    let gate = Gate::new();
    let (_origin, film, client) = serve(Manners::of(LEN)).unwrap();
    film.change(|manners| manners.held = vec![(100..200, gate.clone())]);
    assert_eq!(
        get(&client, "bytes=200-299").unwrap().body,
        film.bytes(200..300)
    );
    let mut held = client.connect().unwrap();
    let request = Request::get("/film").header("Range", "bytes=50-250");
    held.send_raw(&request.encode()).unwrap();
    let mut response = held.read_head("GET").unwrap().unwrap();
    held.read_some(&mut response, 50).unwrap();
    gate.open();
    held.read_body(&mut response).unwrap();
    assert_eq!(response.body, film.bytes(50..251));
}

#[test]
fn what_was_sent_is_logged_with_its_place_and_version() {
    let (origin, film, client) = serve(Manners::of(LEN)).unwrap();
    film.change(|manners| (manners.version, manners.drop_at) = (2, Some(50)));
    let cut = get(&client, "bytes=40-99").unwrap();
    assert_eq!((cut.body.len(), cut.is_complete()), (10, false));
    film.change(|manners| manners.outage = Outage::Status(500));
    assert_eq!(get(&client, "bytes=0-9").unwrap().status, 500);
    film.change(|manners| manners.outage = Outage::Closes);
    assert!(client.get("/film").is_err());
    let exchanges = origin.exchanges();
    let seen: Vec<_> = exchanges
        .iter()
        .map(|exchange| (exchange.status, exchange.version, exchange.sent_range()))
        .collect();
    assert_eq!(seen, [(206, 2, 40..50), (500, 0, 0..17)]);
    assert_eq!(exchanges[0].request.header("Range"), Some("bytes=40-99"));
}

#[test]
fn variants_have_versions_of_their_own() {
    let (_origin, film, client) = serve(Manners::of(LEN)).unwrap();
    film.change(|manners| manners.varies_by = Some("X-Lang"));
    let request = Request::get("/film").header("X-Lang", "2");
    let response = client.send(&request).unwrap();
    assert_eq!(response.header("Vary"), Some("X-Lang"));
    assert!(response.body == offset_bytes(0..LEN, Resource::variant(1, 2)));
}
