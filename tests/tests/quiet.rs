//! Connections of clients that have been quiet for a while have no task any more; what happens to
//! them is the same as to others.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Connection, Deadline, Kind, Proxy, Request};

const WAIT: Duration = Duration::from_secs(30);

const CONF: &str = "
    keepalive_timeout 1h;
    client_header_timeout 1h;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /told { return 200 \"$connection $connection_requests\"; }
        location /short { keepalive_timeout 10s; return 200 short; }
        location /metrics { metrics; }
    }";

fn start(connections: u32) -> Result<Proxy> {
    let conf = format!(
        "%%GLOBALS%% events {{ worker_connections {connections}; }} http {{ %%HTTP%% {CONF} }}"
    );
    Proxy::new(Kind::Millpond, &conf).start()
}

/// Connections, each after so many requests.
fn open(client: Client, requests: &[usize]) -> Result<Vec<Connection>> {
    let open = |&count: &usize| -> Result<Connection> {
        let mut connection = client.connect()?;
        for _ in 0..count {
            told(&mut connection)?;
        }
        Ok(connection)
    };
    requests.iter().map(open).collect()
}

/// The number of a connection, and that of its request.
fn told(connection: &mut Connection) -> Result<(u64, u64)> {
    let response = connection.exchange(&Request::get("/told"))?;
    ensure!(response.status == 200, "{}", response.status);
    let text = response.text();
    let (number, request) = text.split_once(' ').context("two numbers")?;
    Ok((number.parse()?, request.parse()?))
}

/// The connections without a task.
fn quiet(client: Client) -> Result<usize> {
    let text = client.get("/metrics")?.text();
    let name = "millpond_connections_quiet ";
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.context("no gauge")?.trim().parse()?)
}

fn wait_until_quiet(client: Client, count: usize) -> Result<()> {
    let mut last = Ok(0);
    let found = Deadline::after(WAIT).poll(|| {
        last = quiet(client);
        last.as_ref().is_ok_and(|it| *it == count).then_some(())
    });
    found.with_context(|| format!("{last:?} are quiet, not {count}"))
}

#[test]
fn quiet_connections_are_served_again_and_those_whose_client_leaves_end() -> Result<()> {
    let mut proxy = start(100)?;
    let client = Client::new(proxy.port());
    let mut open = open(client, &[0, 1, 2, 3])?;
    wait_until_quiet(client, 4)?;
    let mut numbers = Vec::new();
    for (requests, connection) in (0..).zip(&mut open) {
        let (number, request) = told(connection)?;
        assert_eq!(request, requests + 1, "requests are counted on");
        numbers.push(number);
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4, "a connection has one number for life");
    wait_until_quiet(client, 4)?;
    // A head that comes in parts, to one that has sent some before and to one that has not.
    for connection in &mut open {
        connection.send_raw(b"GET /told HTTP/1.1\r\nHo")?;
        connection.send_raw(b"st: localhost\r\n\r\n")?;
        ensure!(connection.read_response("GET")?.status == 200);
    }
    wait_until_quiet(client, 4)?;
    open.truncate(1);
    wait_until_quiet(client, 1)?;
    drop(open);
    wait_until_quiet(client, 0)?;
    proxy.quit()
}

#[test]
fn a_quiet_connection_ends_after_its_time() -> Result<()> {
    let mut proxy = start(100)?;
    let client = Client::new(proxy.port());
    let mut short = client.connect()?;
    ensure!(short.exchange(&Request::get("/short"))?.text() == "short");
    let mut kept = open(client, &[1])?;
    wait_until_quiet(client, 2)?;
    short.set_timeout(WAIT)?;
    short.expect_close()?;
    wait_until_quiet(client, 1)?;
    let (_, request) = told(kept.first_mut().context("kept")?)?;
    assert_eq!(request, 2);
    proxy.quit()
}

#[test]
fn quiet_connections_end_with_their_configuration() -> Result<()> {
    let mut proxy = start(100)?;
    let client = Client::new(proxy.port());
    let open = open(client, &[0, 1, 1])?;
    wait_until_quiet(client, 3)?;
    proxy.reload()?;
    for mut connection in open {
        connection.set_timeout(WAIT)?;
        connection.expect_close()?;
    }
    wait_until_quiet(client, 0)?;
    // The process does not wait for quiet ones, either.
    let mut last = client.connect()?;
    told(&mut last)?;
    wait_until_quiet(client, 1)?;
    proxy.quit()
}

#[test]
fn quiet_connections_make_room_for_others() -> Result<()> {
    let mut proxy = start(20)?;
    let client = Client::new(proxy.port());
    let crowd = open(client, &[1; 12])?;
    wait_until_quiet(client, 12)?;
    // Of 20, 2 are for upstreams only, and one is kept free.
    let mut others = open(client, &[1; 15])?;
    for connection in &mut others {
        assert_eq!(told(connection)?.1, 2, "none of the new ones was closed");
    }
    drop((crowd, others));
    wait_until_quiet(client, 0)?;
    proxy.quit()
}
