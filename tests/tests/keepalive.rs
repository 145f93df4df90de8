//! Idle connections to origins end when nobody can use them any more: with their configuration,
//! with the origin's end of them, and after their time.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Kind, Proxy};

/// The longest time that anything here may take.
const WAIT: Duration = Duration::from_secs(20);

const CONF: &str = "
    upstream u { server 127.0.0.1:ORIGIN; keepalive 4; keepalive_timeout TIMEOUT; }
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass http://u;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
        }
    }";

/// An origin that answers one request and keeps the connection, as it sees it; and the proxy.
fn start_idle(timeout: &str) -> Result<(TcpStream, Proxy)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port().to_string();
    let conf = CONF.replace("ORIGIN", &port).replace("TIMEOUT", timeout);
    let proxy = Proxy::new(Kind::Millpond, &conf).start()?;
    let answers = std::thread::spawn(move || -> Result<TcpStream> {
        let (mut connection, _) = listener.accept()?;
        connection.set_read_timeout(Some(WAIT))?;
        let mut head = [0; 4096];
        ensure!(connection.read(&mut head)? > 0, "no request");
        connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        Ok(connection)
    });
    let response = Client::new(proxy.port()).get("/")?;
    assert_eq!(response.text(), "ok");
    let connection = answers.join().ok().context("the origin panicked")??;
    Ok((connection, proxy))
}

/// Waits until the proxy has closed its end.
fn wait_for_end(mut connection: TcpStream) -> Result<()> {
    let more = connection.read(&mut [0]).context("it is not closed")?;
    assert_eq!(more, 0, "bytes that nobody asked for");
    Ok(())
}

/// A reload closes idle connections: under the new configuration nobody would use them.
#[test]
fn idle_connections_end_with_their_configuration() -> Result<()> {
    let (connection, proxy) = start_idle("1h")?;
    proxy.reload()?;
    wait_for_end(connection)
}

/// An origin that closes its end gets ours, though nobody asks for anything.
#[test]
fn a_connection_that_the_origin_closed_is_closed() -> Result<()> {
    let (connection, _proxy) = start_idle("1h")?;
    connection.shutdown(Shutdown::Write)?;
    wait_for_end(connection)
}

/// A connection that was idle for `keepalive_timeout` is closed, though nobody asks for anything.
#[test]
fn a_connection_that_was_idle_for_its_time_is_closed() -> Result<()> {
    let (connection, _proxy) = start_idle("1s")?;
    wait_for_end(connection)
}
