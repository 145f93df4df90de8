//! Networks that lose, delay, and change addresses: answers come whole through them, and as fast as
//! the congestion controller of QUIC lets them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Datagrams, Gate, Network, Origin, number_from_env, offset_bytes};
use quinn::{Endpoint, ServerConfig};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;

use super::kit::{Identity, client_config, connect, get, identity, proxy, run};

/// Bytes of the long answers: some hundred round trips of losses.
const LEN: u64 = 1_000_000;

/// A path around half of the world, with one packet of a hundred lost each way.
fn far_away() -> Network {
    let seed = number_from_env("SEED", 7);
    eprintln!("SEED={seed}");
    Network {
        delay: Duration::from_millis(50),
        lost_per_mille: 10,
        seed,
        ..Network::default()
    }
}

/// No server of HTTP/3 is at hand to be compared with (Debian's nginx has none), so the bound is
/// the bare machine of QUIC: a client and a server of `quinn` with nothing but bytes on a stream,
/// through the same network at the same time.
#[test]
fn losses_and_delay_slow_an_answer_no_more_than_bare_quic() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    origin.route("/large", Answer::new(200).offset_body(LEN, 1));
    let proxy = proxy(&origin, &identity).start()?;
    let network = Datagrams::before(proxy.port(), far_away())?;
    run(async {
        let (bare, port) = bare_server(&identity)?;
        let bare_network = Datagrams::before(port, far_away())?;
        let (ours, theirs) = tokio::try_join!(
            async {
                let mut client = connect(network.port(), &identity).await?;
                let began = Instant::now();
                let answer = get(&mut client, "/large").await?;
                ensure!(answer.body == offset_bytes(0..LEN, 1));
                anyhow::Ok(began.elapsed())
            },
            bare_client(bare_network.port(), &identity)
        )?;
        bare.close(0u32.into(), b"");
        let [[lost, moved], bare_counts] = [network.counts(), bare_network.counts()];
        eprintln!("{ours:?}, bare {theirs:?}; lost {lost} of {moved}, bare {bare_counts:?}");
        ensure!(lost > 0, "nothing was lost");
        // Which packets are lost depends on how many acknowledgements there are.
        ensure!(ours < theirs * 2, "{ours:?} for {theirs:?}");
        Ok(())
    })
}

/// A server that sends bytes on each stream that it gets.
fn bare_server(identity: &Identity) -> Result<(Endpoint, u16)> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(identity.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.der.clone()], key.into())?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls)?;
    let config = ServerConfig::with_crypto(Arc::new(crypto));
    let endpoint = Endpoint::server(config, ([127, 0, 0, 1], 0).into())?;
    let port = endpoint.local_addr()?.port();
    let accepting = endpoint.clone();
    tokio::spawn(async move {
        let incoming = accepting.accept().await.context("a client")?;
        let connection = incoming.await?;
        let (mut send, _receive) = connection.accept_bi().await?;
        send.write_all(&offset_bytes(0..LEN, 1)).await?;
        send.finish()?;
        send.stopped().await?;
        anyhow::Ok(())
    });
    Ok((endpoint, port))
}

async fn bare_client(port: u16, identity: &Identity) -> Result<Duration> {
    let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into())?;
    endpoint.set_default_client_config(client_config(identity)?);
    let address = ([127, 0, 0, 1], port).into();
    let connection = endpoint.connect(address, "localhost")?.await?;
    let began = Instant::now();
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(b"all").await?;
    let came = receive.read_to_end(LEN as usize).await?;
    ensure!(came == offset_bytes(0..LEN, 1));
    Ok(began.elapsed())
}

/// RFC 9002 §6.2: what begins a connection is sent again, by either side.
#[test]
fn connections_begin_although_the_first_packets_are_lost() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let proxy = proxy(&origin, &identity).start()?;
    run(async {
        for (lost_first_up, lost_first_down) in [(1, 0), (2, 0), (0, 1), (0, 3), (2, 2)] {
            let loses = Network {
                lost_first_up,
                lost_first_down,
                ..Network::default()
            };
            let network = Datagrams::before(proxy.port(), loses)?;
            let mut client = connect(network.port(), &identity).await?;
            ensure!(get(&mut client, "/few").await?.text() == "few");
        }
        Ok(())
    })
}

/// RFC 9000 §9: a client goes on with another address, in the middle of an answer, and requests are
/// told of the one that it has now.
#[test]
fn clients_go_on_with_another_address() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let gate = Gate::new();
    let long = Answer::new(200).offset_body(LEN, 1);
    origin.route("/plain", long.hold_body_at(LEN / 2, &gate));
    let proxy = proxy(&origin, &identity).start()?;
    let network = Datagrams::before(proxy.port(), Network::default())?;
    run(async {
        let mut client = connect(network.port(), &identity).await?;
        let first = get(&mut client, "/address").await?.text();
        let mut send = client.send.clone();
        let long = super::request("GET", "/plain")?;
        let waiting = tokio::spawn(async move { super::ask(&mut send, long, &[]).await });
        tokio::task::block_in_place(|| origin.wait_for_requests(1))?;
        network.move_clients();
        let second = get(&mut client, "/address").await?.text();
        let connection = |text: &str| text.split_once(' ').map(|(it, _)| it.to_owned());
        ensure!(
            connection(&first) == connection(&second),
            "{first}, {second}"
        );
        ensure!(first != second, "the same address: {first}");
        gate.open();
        ensure!(waiting.await??.body == offset_bytes(0..LEN, 1));
        network.move_clients();
        let third = get(&mut client, "/address").await?.text();
        ensure!(third != second && connection(&third) == connection(&first));
        Ok(())
    })
}

/// RFC 9001 §6: the keys change as often as a client wants, between and within answers.
#[test]
fn keys_are_updated() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    origin.route("/large", Answer::new(200).offset_body(LEN, 1));
    let proxy = proxy(&origin, &identity).start()?;
    run(async {
        let mut client = connect(proxy.port(), &identity).await?;
        for path in ["/few", "/large", "/large"] {
            let mut send = client.send.clone();
            let asked = super::request("GET", path)?;
            let waiting = tokio::spawn(async move { super::ask(&mut send, asked, &[]).await });
            client.quic.force_key_update();
            ensure!(waiting.await??.head.status() == 200, "{path}");
            client.quic.force_key_update();
            ensure!(get(&mut client, "/address").await?.head.status() == 200);
        }
        ensure!(client.quic.close_reason().is_none());
        Ok(())
    })
}
