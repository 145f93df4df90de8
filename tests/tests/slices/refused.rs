//! Slices that the zone does not take, or evicts before they are read.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Kind, Manners, Origin, Proxy, Resource, offset_bytes};

const MIB: u64 = 1 << 20;
/// Length that one request to the origin asks for.
const LEN: u64 = 16 * MIB;
/// Clients that read at once.
const CLIENTS: u64 = 6;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m %%ADMISSION%%;
    server {
        listen 127.0.0.1:%%PORT%%;
        slice 1m;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_valid 200 206 1h;
        }
        location /small/ {
            slice 0;
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_valid 200 1h;
        }
    }";

fn origin(len: u64) -> Result<Origin> {
    let origin = Origin::start()?;
    origin.resource("/*", &Resource::new(Manners::of(len)));
    origin.route("/small/*", Answer::new(200).offset_body(MIB, 1));
    Ok(origin)
}

fn get(port: u16, path: &str, expected: &[u8]) -> Result<()> {
    let response = Client::new(port).get(path)?;
    let body = &response.body;
    ensure!(response.status == 200, "{path}: {}", response.status);
    ensure!(
        body.len() == expected.len(),
        "{path}: {} of {}",
        body.len(),
        expected.len()
    );
    ensure!(body == expected, "{path}: another body");
    Ok(())
}

/// A zone that takes only what is asked for twice: each body costs one request, and its bytes.
#[test]
fn a_body_whose_slices_are_refused_costs_one_request() -> Result<()> {
    let count: u64 = std::env::var("BODIES").map_or(Ok(3), |count| count.parse())?;
    let origin = origin(LEN)?;
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .value("ADMISSION", "admission=second-hit")
        .start()?;
    for number in 0..40 {
        let small = Client::new(proxy.port()).get(&format!("/small/{number}"))?;
        assert_eq!(small.body.len() as u64, MIB);
    }
    origin.forget_requests();
    let expected = offset_bytes(0..LEN, 1);
    let before = origin.sent_bytes();
    for number in 0..count {
        get(proxy.port(), &format!("/{number}"), &expected)?;
    }
    let (asked, sent) = (origin.requests().len() as u64, origin.sent_bytes() - before);
    println!("{count} bodies of {LEN} bytes: {asked} requests, {sent} bytes");
    assert_eq!(asked, count);
    // Heads are sent, too.
    assert!(sent < count * (LEN + MIB), "{sent} bytes");
    // Nothing of it was stored.
    get(proxy.port(), "/0", &expected)?;
    // The second request is taken, and the body alone is more than the zone holds: what it evicts
    // of itself may be asked for once more after this one.
    let requests = origin.requests();
    let again = requests.get(asked as usize).context("not asked again")?;
    let whole = format!("bytes=0-{}", LEN - 1);
    assert_eq!(again.path(), "/0");
    assert_eq!(again.header("Range"), Some(whole.as_str()));
    Ok(())
}

/// Clients read more bodies than the zone holds, again and again: each is whole.
#[test]
fn no_body_is_cut_while_the_zone_turns() -> Result<()> {
    let rounds: u64 = std::env::var("ROUNDS").map_or(Ok(8), |rounds| rounds.parse())?;
    let len = 5 * MIB + 77;
    let origin = origin(len)?;
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .value("ADMISSION", "")
        .start()?;
    let (port, expected) = (proxy.port(), &offset_bytes(0..len, 1));
    let read = |client: u64| -> Result<()> {
        for round in 0..rounds {
            // Neighbours read the same at about the same time, and all others in between.
            let path = format!("/{}", (round * 5 + client / 2) % 9);
            get(port, &path, expected)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let reading: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || read(client)))
            .collect();
        let mut ends = reading.into_iter().map(|one| one.join());
        ends.try_for_each(|end| end.expect("a client does not panic"))
    })
    .with_context(|| proxy.error_log())
}
