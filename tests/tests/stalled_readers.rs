//! Clients that stop reading cost a zone a bounded share of its entries, and get their bodies.
//!
//! A zone of 256 MB has 14 bodies of 14 MiB, which came at the same time, and 280 of 16 KiB, which
//! came after them. Some clients ask for large ones and read no more than the head; then 150 MiB
//! come that nobody asked for before, for which the oldest 100 leave. For what is still read at
//! most a quarter more leaves: the small bodies are among the newest, so they stay.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Connection, Deadline, Kind, Origin, Proxy, Request, Response,
};

const LARGE: usize = 14 << 20;
const LARGES: usize = 14;
const SMALLS: usize = 280;
const NEWS: usize = 150;
/// Number of answers that come when nobody reads any more.
const AFTER: usize = 8;

const CONF: &str = "
    proxy_cache_path %%DIR%%/zone keys_zone=zone:10m max_size=256m admission=all;
    server {
        listen 127.0.0.1:%%PORT%%;
        send_timeout 1h;
        proxy_cache zone;
        proxy_cache_valid 200 1h;
        add_header X-Cache $upstream_cache_status;
        location / {
            proxy_pass http://%%ORIGIN%%;
        }
        location /large/ {
            # Together 42 MB a second, which most disks take.
            proxy_limit_rate 3m;
            proxy_pass http://%%ORIGIN%%;
        }
    }";

fn len(path: &str) -> usize {
    match path.get(1..2) {
        Some("l") => LARGE,
        Some("s") => 16 << 10,
        _ => 1 << 20,
    }
}

/// Bodies that differ from path to path.
fn body(path: &str) -> Vec<u8> {
    let mut body = path.repeat(len(path) / path.len() + 1).into_bytes();
    body.truncate(len(path));
    body
}

fn ask(client: Client, path: &str) -> Result<Response> {
    let response = client.get(path).with_context(|| path.to_string())?;
    ensure!(response.status == 200, "{path}: {}", response.status);
    ensure!(response.body == body(path), "{path}: another body");
    Ok(response)
}

fn is_hit(response: &Response) -> bool {
    response.header("X-Cache") == Some("HIT")
}

/// Number of these paths that are hits.
fn hits(client: Client, paths: impl Iterator<Item = String>) -> Result<usize> {
    let answers: Result<Vec<Response>> = paths.map(|path| ask(client, &path)).collect();
    Ok(answers?.iter().filter(|answer| is_hit(answer)).count())
}

fn larges() -> impl Iterator<Item = String> {
    (0..LARGES).map(|number| format!("/large/{number}"))
}

fn smalls() -> impl Iterator<Item = String> {
    (0..SMALLS).map(|number| format!("/small/{number}"))
}

fn news() -> impl Iterator<Item = String> {
    (0..NEWS + AFTER).map(|number| format!("/new/{number}"))
}

/// Asks for a body and reads its head only.
fn stall(client: Client, path: &str) -> Result<(Connection, Response)> {
    let mut connection = client.connect()?;
    connection.send_raw(&Request::get(path).encode())?;
    let head = connection.read_head("GET")?.context("no answer")?;
    ensure!(is_hit(&head), "{path} is not a hit");
    Ok((connection, head))
}

/// False if the disk was behind and has not taken all of the large bodies at once: what it took of
/// those that were given up is room that others miss.
fn fill(client: Client) -> Result<bool> {
    let asking: Vec<_> = larges()
        .map(|path| thread::spawn(move || ask(client, &path)))
        .collect();
    for asking in asking {
        asking.join().expect("a client does not panic")?;
    }
    if hits(client, larges())? < LARGES {
        return Ok(false);
    }
    hits(client, smalls())?;
    Ok(true)
}

/// A zone that has all large and small bodies.
fn filled(origin: &Origin) -> Result<Proxy> {
    let deadline = Deadline::after(Duration::from_secs(120));
    let filled = || {
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(origin).start();
        let is_full = |proxy: &Proxy| fill(Client::new(proxy.port()));
        let proxy = proxy.and_then(|proxy| Ok(is_full(&proxy)?.then_some(proxy)));
        proxy.transpose()
    };
    deadline
        .poll(filled)
        .context("a disk that takes all large bodies")?
}

fn stalled(readers: usize) -> Result<()> {
    let origin = Origin::start()?;
    origin.answer_with("/*", |request| Answer::new(200).body(body(request.path())));
    let proxy = filled(&origin)?;
    let client = Client::new(proxy.port());
    let stalled: Result<Vec<_>> = larges()
        .take(readers)
        .map(|path| stall(client, &path))
        .collect();
    hits(client, news().take(NEWS))?;
    let kept = hits(client, smalls())?;
    println!("{readers} readers: {kept} of {SMALLS} small bodies are left");
    ensure!(kept == SMALLS, "{kept} of the small bodies are left");
    for ((mut connection, mut response), path) in stalled?.into_iter().zip(larges()) {
        connection.read_body(&mut response)?;
        ensure!(response.is_complete(), "{path} is cut");
        ensure!(response.body == body(&path), "{path}: another body");
    }
    // A file that could not be created is tried again by whoever asks next.
    let after = || hits(client, news().skip(NEWS));
    after()?;
    after()?;
    ensure!(after()? == AFTER, "nothing is stored though nobody reads");
    Ok(())
}

#[test]
fn three_clients_that_stall_leave_the_entries_of_others() -> Result<()> {
    stalled(3)
}

#[test]
fn fourteen_clients_that_stall_leave_the_entries_of_others() -> Result<()> {
    stalled(14)
}
