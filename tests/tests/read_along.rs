//! Whoever has begun to read an answer that is being stored gets all of it, also when the zone has
//! no room for it half-way: every byte, in order, whatever the others who read along do.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Connection, Framing, Gate, Kind, Origin, Protocol, Proxy, Ranges, Request,
    Response, offset_bytes,
};

const MIB: u64 = 1 << 20;
/// Number of readers of a body; the last one stops for as long as the others read.
const READERS: usize = 4;
/// Bytes that are read before the origin goes on.
const FIRST: u64 = 64 << 10;
/// Far more than the connections on the way hold.
const LONG: u64 = 24 * MIB;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_valid 200 1h;
            proxy_cache_lock on;
            proxy_cache_lock_timeout 60s;
        }
    }";

/// A client that has read the first part of a body.
struct Reading {
    connection: Connection,
    response: Response,
}

impl Reading {
    fn begin(client: &Client, path: &str) -> Result<Reading> {
        let mut connection = client.connect()?;
        connection.ask(&Request::get(path))?;
        let head = connection.read_head("GET")?;
        let response = head.context("no answer")?;
        ensure!(response.status == 200, "status {}", response.status);
        Ok(Reading {
            connection,
            response,
        })
    }

    fn go_on(mut self) -> Result<Reading> {
        self.connection
            .read_some(&mut self.response, FIRST as usize)?;
        Ok(self)
    }

    fn end(mut self, expected: &[u8]) -> Result<()> {
        self.connection.read_body(&mut self.response)?;
        let body = &self.response.body;
        ensure!(
            body.len() == expected.len(),
            "{} of {} bytes",
            body.len(),
            expected.len()
        );
        ensure!(body == expected, "another body");
        Ok(())
    }
}

/// Several who read each of these paths, all of which have begun before the origin goes on.
fn read_all(client: &Client, paths: &[String], gate: &Gate, len: u64) -> Result<()> {
    let mut bodies = Vec::new();
    for path in paths {
        let readers = (0..READERS).map(|_| Reading::begin(client, path)?.go_on());
        bodies.push(readers.collect::<Result<Vec<_>>>().context("begin")?);
    }
    gate.open();
    let expected = offset_bytes(0..len, 1);
    std::thread::scope(|scope| {
        let reading: Vec<_> = bodies
            .into_iter()
            .map(|mut readers| {
                let expected = &expected;
                scope.spawn(move || {
                    let slow = readers.pop();
                    std::thread::scope(|scope| {
                        let quick: Vec<_> = readers
                            .into_iter()
                            .map(|reader| scope.spawn(|| reader.end(expected)))
                            .collect();
                        let mut ends = quick.into_iter().map(|one| one.join());
                        ends.try_for_each(|end| end.expect("a client does not panic"))
                    })
                    .context("who kept up")?;
                    let slow = slow.context("one of them is slow")?;
                    slow.end(expected).context("who stopped")
                })
            })
            .collect();
        let mut ends = reading.into_iter().map(|one| one.join());
        ends.try_for_each(|end| end.expect("a client does not panic"))
    })
}

/// Six bodies of 6 MiB and more arrive at once in a zone of 16 MiB.
fn all_who_read_along_get_the_whole_while_the_zone_is_full_of_what_arrives(
    protocol: Protocol,
) -> Result<()> {
    let (origin, gate) = (Origin::start()?, Gate::new());
    let answer = Answer::new(200)
        .etag("\"1\"")
        .ranges(Ranges::Supported)
        .offset_body(LONG / 4, 1)
        .hold_bytes(2 * FIRST..LONG, &gate);
    origin.route("/*", answer);
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .over(protocol)
        .origin(&origin)
        .start()?;
    let paths: Vec<String> = (0..6).map(|number| format!("/{number}")).collect();
    read_all(&protocol.client(proxy.port()), &paths, &gate, LONG / 4)
        .with_context(|| proxy.error_log())?;
    let asked = origin.requests();
    let whole = asked.iter().filter(|one| one.header("range").is_none());
    ensure!(whole.count() == paths.len(), "{} requests", asked.len());
    Ok(())
}

/// One body that is longer than the zone, and does not say so.
fn all_who_read_along_get_a_body_that_turns_out_longer_than_the_zone(
    protocol: Protocol,
) -> Result<()> {
    let (origin, gate) = (Origin::start()?, Gate::new());
    let answer = Answer::new(200)
        .offset_body(LONG, 1)
        .framing(Framing::Chunked)
        .hold_bytes(2 * FIRST..LONG, &gate);
    origin.route("/*", answer);
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .over(protocol)
        .origin(&origin)
        .start()?;
    let mut readers: Vec<_> = (0..READERS)
        .map(|_| Reading::begin(&protocol.client(proxy.port()), "/long"))
        .collect::<Result<_>>()?;
    gate.open();
    let expected = &offset_bytes(0..LONG, 1);
    std::thread::scope(|scope| {
        let reading: Vec<_> = readers
            .drain(..)
            .map(|reader| scope.spawn(move || reader.end(expected)))
            .collect();
        let mut ends = reading.into_iter().map(|one| one.join());
        ends.try_for_each(|end| end.expect("a client does not panic"))
    })?;
    ensure!(origin.requests().len() == 1, "asked more than once");
    Ok(())
}

millpond_testkit::each_protocol!(
    all_who_read_along_get_the_whole_while_the_zone_is_full_of_what_arrives,
    all_who_read_along_get_a_body_that_turns_out_longer_than_the_zone,
);
