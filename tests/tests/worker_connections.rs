//! `worker_connections`, and what becomes of connections when descriptors are few.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Connection, Deadline, Gate, Kind, LogCheck, Origin, Proxy, Request, Response,
    binary,
};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(30);

const SERVER: &str = "
    proxy_cache_path %%DIR%%/zone keys_zone=z:1m max_size=64m;
    client_header_timeout 1h;
    keepalive_timeout 1h;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache z; proxy_cache_valid 200 1h; }
        location /passed/ { proxy_pass http://%%ORIGIN%%; }
        location /files/ { root %%DIR%%; }
        location /told { return 200 told; }
        METRICS
    }";

/// A server whose workers may have so many connections.
fn conf(kind: Kind, connections: u32) -> String {
    let metrics = match kind {
        Kind::Millpond => "location /metrics { metrics; }",
        Kind::Nginx => "",
    };
    let server = SERVER.replace("METRICS", metrics);
    format!(
        "%%GLOBALS%% events {{ worker_connections {connections}; }} http {{ %%HTTP%% {server} }}"
    )
}

/// The server's binary behind a shell that sets a limit first.
fn limited(home: &tempfile::TempDir, kind: Kind, limit: u32) -> Result<PathBuf> {
    let binary = binary(kind).context("the binary")?;
    let path = home.path().join("limited");
    let script = format!(
        "#!/bin/sh\nulimit -n {limit}\nexec {} \"$@\"\n",
        binary.display()
    );
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Raises the limit for open descriptors of this process as far as it may.
fn unlimited() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("descriptors")
}

fn origin() -> Result<Origin> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("body"));
    Ok(origin)
}

/// Opens so many connections that ask for nothing, every other one after a request.
fn idle(client: Client, count: usize) -> Result<Vec<Connection>> {
    let idle = |number: usize| -> Result<Connection> {
        let mut connection = client.connect()?;
        if number % 2 == 1 {
            ensure!(connection.exchange(&Request::get("/told"))?.status == 200);
        }
        Ok(connection)
    };
    (0..count).map(idle).collect()
}

/// New clients ask for what is stored, and others for what is not.
fn ask_anew(client: Client, round: &str) -> Result<()> {
    for number in 0..10 {
        let response = client.get("/stored")?;
        ensure!(
            response.text() == "body",
            "{round}: client {number} got {}",
            response.status
        );
    }
    for number in 0..5 {
        let response = client.get(&format!("/{round}/{number}"))?;
        ensure!(
            response.text() == "body",
            "{round}: miss {number} got {}",
            response.status
        );
    }
    Ok(())
}

fn displaced(client: Client) -> Result<u64> {
    let text = client.get("/metrics")?.text();
    let name = "millpond_connections_displaced_total ";
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.context("no counter")?.trim().parse()?)
}

#[test]
fn clients_and_misses_are_served_beside_more_idle_connections_than_descriptors() -> Result<()> {
    unlimited()?;
    for (kind, connections) in Kind::both().flat_map(|kind| [(kind, 512), (kind, 4096)]) {
        if (kind, connections) == (Kind::Nginx, 4096) {
            // It does not look at how many descriptors there are, and accepts no more.
            continue;
        }
        let home = tempfile::tempdir()?;
        let origin = origin()?;
        let mut proxy = Proxy::new(kind, &conf(kind, connections))
            .origin(&origin)
            .binary(&limited(&home, kind, 1024)?)
            .log_check(LogCheck::Off)
            .start()?;
        let client = Client::new(proxy.port());
        client.get("/stored")?;
        let crowd = idle(client, 1200)?;
        ask_anew(client, "beside")?;
        let log = proxy.error_log();
        ensure!(log.contains("reusing connections"), "{log}");
        ensure!(!log.contains("Too many open files"), "{log}");
        proxy.reload()?;
        let again = idle(client, 1200)?;
        ask_anew(client, "after")?;
        if kind == Kind::Millpond {
            // What is left of both is at most what there may be.
            let count = displaced(client)?;
            ensure!(count >= 2400 - 2 * 690, "{count} were closed");
        }
        drop((crowd, again));
        proxy.quit()?;
    }
    Ok(())
}

/// Connections that make room are, as in nginx, not the client's to know; all that ask are
/// answered.
#[test]
fn few_connections_are_enough_for_many_clients_one_after_the_other() -> Result<()> {
    for kind in Kind::both() {
        let origin = origin()?;
        let mut proxy = Proxy::new(kind, &conf(kind, 20))
            .origin(&origin)
            .log_check(LogCheck::Off)
            .start()?;
        let client = Client::new(proxy.port());
        client.get("/stored")?;
        let crowd = idle(client, 60)?;
        ask_anew(client, "beside")?;
        let log = proxy.error_log();
        let expected = "20 worker_connections are not enough, reusing connections";
        ensure!(log.contains(expected), "{log}");
        drop(crowd);
        proxy.quit()?;
    }
    Ok(())
}

#[test]
fn longest_idle_connection_goes_first_and_one_that_has_sent_a_part_of_a_head_last() -> Result<()> {
    let origin = origin()?;
    let mut proxy = Proxy::new(Kind::Millpond, &conf(Kind::Millpond, 20))
        .origin(&origin)
        .start()?;
    let client = Client::new(proxy.port());
    let begin = || -> Result<Connection> {
        let mut connection = client.connect()?;
        connection.send_raw(b"GET /told HTTP/1.1\r\n")?;
        Ok(connection)
    };
    let mut begun: Vec<_> = (0..6).map(|_| begin()).collect::<Result<_>>()?;
    let mut crowd = idle(client, 7)?;
    ask_anew(client, "beside")?;
    let late = idle(client, 8)?;
    // Of those that are idle the first have gone, and of the others none.
    let (first, rest) = crowd.split_first_mut().context("there are some")?;
    first.expect_close()?;
    for connection in &mut begun {
        connection.send_raw(b"Host: x\r\n\r\n")?;
        ensure!(connection.read_response("GET")?.text() == "told");
    }
    drop((late, rest.len()));
    // Nothing but begun heads: they make room, too, and are told of.
    let heads: Vec<_> = (0..30).map(|_| begin()).collect::<Result<_>>()?;
    ask_anew(client, "heads")?;
    let told = || {
        let log = proxy.error_log();
        log.contains("connection closed to make room").then_some(())
    };
    Deadline::after(WAIT)
        .poll(told)
        .context("nothing is told")?;
    drop(heads);
    proxy.quit()
}

#[test]
fn connections_that_are_answered_stay_and_others_are_refused() -> Result<()> {
    let origin = origin()?;
    let gate = Gate::new();
    origin.route("/passed/*", Answer::new(200).body("held").hold_head(&gate));
    let mut proxy = Proxy::new(Kind::Millpond, &conf(Kind::Millpond, 8))
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    let ask = |number: usize| -> Result<Connection> {
        let mut connection = client.connect()?;
        connection.send_raw(&Request::get(&format!("/passed/{number}")).encode())?;
        origin.wait_for_requests(number + 1)?;
        Ok(connection)
    };
    // Each is two.
    let mut busy: Vec<_> = (0..4).map(ask).collect::<Result<_>>()?;
    ensure!(client.get("/told").is_err(), "there is room for no more");
    let log = proxy.error_log();
    let expected = "[alert] ";
    let line = log
        .lines()
        .find(|line| line.contains("8 worker_connections are not enough"));
    ensure!(line.is_some_and(|line| line.contains(expected)), "{log}");
    gate.open();
    for connection in &mut busy {
        ensure!(connection.read_response("GET")?.text() == "held");
    }
    let told = client.get("/told")?;
    ensure!(told.text() == "told");
    proxy.quit()
}

#[test]
fn idle_connections_make_room_for_files() -> Result<()> {
    const FILES: usize = 380;
    unlimited()?;
    let home = tempfile::tempdir()?;
    let origin = origin()?;
    let mut proxy = Proxy::new(Kind::Millpond, &conf(Kind::Millpond, 4096))
        .origin(&origin)
        .binary(&limited(&home, Kind::Millpond, 1024)?)
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    std::fs::create_dir(proxy.dir().join("files"))?;
    for number in 0..FILES {
        let file = std::fs::File::create(proxy.dir().join(format!("files/{number}")))?;
        // No socket takes as much.
        file.set_len(64 << 20)?;
    }
    let crowd = idle(client, 300)?;
    // Each has a connection and a file, and reads neither.
    let read = |number: usize| -> Result<(Connection, Response)> {
        let mut connection = client.connect()?;
        connection.send_raw(&Request::get(&format!("/files/{number}")).encode())?;
        let head = connection.read_head("GET")?.context("no answer")?;
        Ok((connection, head))
    };
    let mut wrong = String::new();
    let mut reading = Vec::new();
    for number in 0..FILES {
        let (connection, head) = read(number)?;
        if head.status != 200 {
            write!(wrong, "{number}: {}, ", head.status)?;
        }
        reading.push(connection);
    }
    ensure!(wrong.is_empty(), "{wrong}");
    ask_anew(client, "beside")?;
    drop((crowd, reading));
    proxy.quit()
}

/// nginx: who cannot be accepted for want of descriptors stays in the queue (ngx_event_accept).
#[test]
fn clients_wait_where_there_are_fewer_descriptors_than_connections() -> Result<()> {
    const CLIENTS: usize = 60;
    const EACH: usize = 4;
    unlimited()?;
    let home = tempfile::tempdir()?;
    let origin = origin()?;
    let body = "x".repeat(100_000);
    origin.route("/passed/*", Answer::new(200).body(body.as_bytes()));
    for limit in [64, 128] {
        let mut proxy = Proxy::new(Kind::Millpond, &conf(Kind::Millpond, 4096))
            .origin(&origin)
            .binary(&limited(&home, Kind::Millpond, limit)?)
            .log_check(LogCheck::Off)
            .start()?;
        let client = Client::new(proxy.port());
        let ask = |number: usize| -> Result<()> {
            for turn in 0..EACH {
                let response = client.get(&format!("/passed/{number}/{turn}"))?;
                ensure!(response.status == 200 && response.body.len() == body.len());
            }
            Ok(())
        };
        let results: Vec<Result<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|number| scope.spawn(move || ask(number)))
                .collect();
            threads
                .into_iter()
                .map(|it| it.join().expect("no panic"))
                .collect()
        });
        for result in results {
            result.with_context(|| format!("{limit} descriptors"))?;
        }
        proxy.quit()?;
    }
    Ok(())
}
