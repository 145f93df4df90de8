//! `http3_hq`: HTTP/0.9 over QUIC, for those who ask for `hq-interop`.

use anyhow::{Result, ensure};
use millpond_testkit::{Answer, Origin, offset_bytes};
use quinn::{Connection, Endpoint};

use crate::kit::{CONF, Identity, client_config_for, connect, get, identity, proxy, proxy_of, run};

const HQ: &[u8] = b"hq-interop";

async fn connect_plain(
    (port, name): (u16, &str),
    identity: &Identity,
) -> Result<(Endpoint, Connection)> {
    let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into())?;
    endpoint.set_default_client_config(client_config_for(identity, HQ)?);
    let connecting = endpoint.connect(([127, 0, 0, 1], port).into(), name)?;
    let connection = connecting.await?;
    Ok((endpoint, connection))
}

async fn ask_plain(connection: &Connection, line: &str) -> Result<Vec<u8>> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(line.as_bytes()).await?;
    send.finish()?;
    Ok(receive.read_to_end(10_000_000).await?)
}

#[test]
fn lines_are_answered_by_bytes_where_it_is_on() -> Result<()> {
    const LEN: u64 = 1_000_000;
    let (origin, identity) = (Origin::start()?, identity()?);
    origin.route("/large", Answer::new(200).offset_body(LEN, 1));
    let conf = CONF
        .replace("http3_advertise on;", "http3_advertise on; http3_hq on;")
        .replace("http3 off;", "http3 off; http3_hq on; return 200 only;");
    let proxy = proxy_of(&conf, &origin, &identity).start()?;
    run(async {
        let (_endpoint, connection) = connect_plain((proxy.port(), "localhost"), &identity).await?;
        for _ in 0..2 {
            let body = ask_plain(&connection, "GET /large\r\n").await?;
            ensure!(body == offset_bytes(0..LEN, 1), "{}", body.len());
        }
        let told = ask_plain(&connection, "GET /told\r\n").await?;
        ensure!(told == b" hq https TLSv1.3 localhost", "{told:?}");
        let refused = ask_plain(&connection, "POST /told\r\n").await?;
        ensure!(refused.windows(3).any(|it| it == b"400"), "{refused:?}");
        // Beside it, HTTP/3 is spoken.
        let mut client = connect(proxy.port(), &identity).await?;
        ensure!(get(&mut client, "/few").await?.text() == "few");
        let (_endpoint, only) = connect_plain((proxy.port(), "off.localhost"), &identity).await?;
        let alone = ask_plain(&only, "GET /\r\n").await?;
        ensure!(alone == b"only", "{}", String::from_utf8_lossy(&alone));
        Ok(())
    })?;
    ensure!(origin.requests().len() == 1, "the second one was a hit");
    let lines = proxy.wait_for_lines("h3.log", 6)?;
    ensure!(
        lines[0] == format!("GET /large 200 {LEN} - hq"),
        "{lines:?}"
    );
    Ok(())
}

/// RFC 7301 §3.2: without a protocol in common there is no connection.
#[test]
fn who_asks_for_it_where_it_is_off_gets_no_connection() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let proxy = proxy(&origin, &identity).start()?;
    run(async {
        let refused = connect_plain((proxy.port(), "localhost"), &identity).await;
        let why = refused.err().map(|error| format!("{error:#}"));
        let is_told = |why: &String| why.contains("protocol");
        ensure!(why.as_ref().is_some_and(is_told), "{why:?}");
        Ok(())
    })
}
