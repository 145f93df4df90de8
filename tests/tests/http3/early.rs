//! `ssl_early_data` over QUIC: requests that are answered before the handshake is over, those that
//! wait for its end, and what somebody gets who sends a first flight again (RFC 8470, RFC 9001
//! §9.2).

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use millpond_testkit::{
    Answer, Datagrams, Deadline, Gate, Hold, Kind, LogCheck, Network, Origin, Proxy, Recorded,
};
use quinn::{ClientConfig, Endpoint, ZeroRttAccepted};
use tokio::task::JoinHandle;

use super::kit::{
    Identity, WAIT, Whole, ask, asked, client_config, connect, identity, request, run,
};

const CONF: &str = "%%GLOBALS%%
    worker_processes 1;
    events {}
    http {
        %%HTTP%%
        proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
        ssl_certificate %%DIR%%/cert.pem;
        ssl_certificate_key %%DIR%%/key.pem;
        ssl_early_data on;
        add_header X-Early '[$ssl_early_data]' always;
        server {
            listen 127.0.0.1:%%PORT%% quic;
            server_name localhost;
            location / { proxy_pass http://%%ORIGIN%%; }
            location /cached {
                proxy_pass http://%%ORIGIN%%;
                proxy_cache z;
                proxy_cache_valid 200 1h;
                proxy_cache_lock on;
            }
            location /told {
                proxy_pass http://%%ORIGIN%%;
                proxy_set_header Early-Data $ssl_early_data;
            }
            location /here { return 200 here; }
        }
        server {
            listen 127.0.0.1:%%PORT_SHORT%% quic;
            server_name localhost;
            client_header_timeout 2s;
            location / { proxy_pass http://%%ORIGIN%%; }
            location /here { return 200 here; }
        }
    }";

/// Begins HTTP/3 on a connection.
async fn speak(quic: &quinn::Connection) -> Result<(Sending, Driving)> {
    let made = h3::client::new(h3_quinn::Connection::new(quic.clone())).await;
    let (mut driver, send) = made?;
    let task = tokio::spawn(async move { driver.wait_idle().await });
    Ok((send, task))
}

/// The part of a connection that sends requests.
type Sending = SendRequest<OpenStreams, Bytes>;

/// The part that moves its streams.
type Driving = JoinHandle<h3::error::ConnectionError>;

/// A network that leaves a client time to say all that it has to say before it hears of the server.
const SLOW: Network = Network {
    delay: Duration::from_millis(300),
    lost_per_mille: 0,
    lost_first_up: 0,
    lost_first_down: 0,
    seed: 0,
};

/// A request that is under way.
type Asking = JoinHandle<Result<Whole>>;

/// A client that has got tickets.
struct Visitor {
    config: ClientConfig,
}

/// A connection whose first flight has requests in it.
struct Flight {
    send: Sending,
    accepted: ZeroRttAccepted,
    _endpoint: Endpoint,
    _task: Driving,
}

impl Visitor {
    async fn new(identity: &Identity, port: u16) -> Result<Visitor> {
        let config = client_config(identity)?;
        let visitor = Visitor { config };
        visitor.look(port).await?;
        Ok(visitor)
    }

    /// A visit, which brings tickets.
    async fn look(&self, port: u16) -> Result<()> {
        let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into())?;
        endpoint.set_default_client_config(self.config.clone());
        let address = ([127, 0, 0, 1], port).into();
        let quic = endpoint.connect(address, "localhost")?.await?;
        let (mut send, task) = speak(&quic).await?;
        let here = ask(&mut send, request("GET", "/here")?, &[]).await?;
        ensure!(here.text() == "here" && here.header("x-early") == "[]");
        quic.close(0x100u32.into(), b"");
        endpoint.wait_idle().await;
        drop(task);
        Ok(())
    }

    /// A connection that begins with early data.
    async fn begin(&self, port: u16) -> Result<Flight> {
        let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into())?;
        endpoint.set_default_client_config(self.config.clone());
        let quic = endpoint.connect(([127, 0, 0, 1], port).into(), "localhost")?;
        let begun = quic.into_0rtt();
        let (quic, accepted) = begun.map_err(|_| anyhow::anyhow!("no session to begin with"))?;
        let (send, task) = speak(&quic).await?;
        Ok(Flight {
            send,
            accepted,
            _endpoint: endpoint,
            _task: task,
        })
    }
}

impl Flight {
    fn ask(&self, method: &str, path: &str) -> Result<Asking> {
        self.send_body(method, path, "")
    }

    fn send_body(&self, method: &str, path: &str, body: &'static str) -> Result<Asking> {
        let (mut send, request) = (self.send.clone(), request(method, path)?);
        let body = Some(Bytes::from(body)).filter(|body| !body.is_empty());
        let pieces: Vec<_> = body.into_iter().collect();
        Ok(tokio::spawn(async move {
            ask(&mut send, request, &pieces).await
        }))
    }

    /// An answer for a path that came when the server's handshake was over.
    async fn later_of(&self, path: &str) -> Result<Whole> {
        let deadline = Deadline::after(WAIT);
        loop {
            let answer = self.ask("GET", path)?.await??;
            if answer.header("x-early") == "[]" {
                return Ok(answer);
            }
            ensure!(!deadline.is_over(), "the handshake does not end");
        }
    }
}

fn start(origin: &Origin) -> Result<(Proxy, Identity)> {
    let identity = identity()?;
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .file("cert.pem", &identity.pem)
        .file("key.pem", &identity.key)
        .origin(origin)
        .log_check(LogCheck::Off)
        .start()?;
    Ok((proxy, identity))
}

/// RFC 8470 §5.1: the origin is told of what may be a replay.
#[test]
fn safe_requests_are_answered_before_the_handshake_is_over() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("served."));
    let (proxy, identity) = start(&origin)?;
    let network = Datagrams::before(proxy.port(), SLOW)?;
    run(async {
        let visitor = Visitor::new(&identity, proxy.port()).await?;
        network.hold(Hold::Handshakes);
        let mut flight = visitor.begin(network.port()).await?;
        let cases = [
            ("GET", "/get"),
            ("HEAD", "/head"),
            ("OPTIONS", "/options"),
            ("GET", "/told"),
            ("GET", "/here"),
        ];
        let asking = cases.map(|(method, path)| flight.ask(method, path));
        for ((_, path), asking) in cases.into_iter().zip(asking) {
            let answer = asking?.await??;
            ensure!(answer.head.status() == 200, "{path}");
            let early = answer.header("x-early");
            ensure!(early == "[1]", "{path}: {early}");
            let passed = asked(&origin, path);
            ensure!(passed.len() == usize::from(path != "/here"), "{path}");
            let told = passed.iter().flat_map(|it| it.headers.all("Early-Data"));
            ensure!(told.eq(passed.iter().map(|_| "1")), "{path}");
        }
        network.hold(Hold::Nothing);
        ensure!((&mut flight.accepted).await);
        // The client's view is ahead of the server's.
        let later = flight.later_of("/later").await?;
        ensure!(later.header("x-early") == "[]");
        let last = asked(&origin, "/later").pop().context("a request")?;
        ensure!(last.header("Early-Data").is_none());
        Ok(())
    })
}

/// RFC 8470 §3: a request that is not safe waits for the end of the handshake, with its body.
#[test]
fn others_wait_until_nobody_can_have_repeated_them() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("served."));
    let (proxy, identity) = start(&origin)?;
    let network = Datagrams::before(proxy.port(), SLOW)?;
    run(async {
        let visitor = Visitor::new(&identity, proxy.port()).await?;
        network.hold(Hold::Handshakes);
        let flight = visitor.begin(network.port()).await?;
        let methods = ["POST", "PUT", "DELETE", "PATCH", "PURGE"];
        let waiting = methods.map(|method| flight.send_body(method, "/page", "body"));
        let safe = flight.ask("GET", "/behind")?.await??;
        ensure!(safe.header("x-early") == "[1]");
        ensure!(asked(&origin, "/page").is_empty(), "too early");
        network.hold(Hold::Nothing);
        for asking in waiting {
            let answer = asking?.await??;
            ensure!(answer.text() == "served." && answer.header("x-early") == "[]");
        }
        let requests = asked(&origin, "/page");
        let came: BTreeSet<_> = requests.iter().map(|it| it.method.as_str()).collect();
        ensure!(requests.len() == methods.len() && came == BTreeSet::from(methods));
        let is_told = |it: &Recorded| it.header("Early-Data").is_some();
        ensure!(!requests.iter().any(is_told));
        ensure!(requests.iter().all(|it| it.body == b"body"));
        Ok(())
    })
}

/// RFC 8446 §8.1: a session is good once. Whoever sends a first flight again, from wherever, gets
/// no request through, neither while the handshake is under way nor after it.
#[test]
fn first_flight_that_is_sent_again_asks_nothing() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("served."));
    let (proxy, identity) = start(&origin)?;
    let network = Datagrams::before(proxy.port(), SLOW)?;
    run(async {
        let visitor = Visitor::new(&identity, proxy.port()).await?;
        network.hold(Hold::Handshakes);
        let flight = visitor.begin(network.port()).await?;
        let early = flight.ask("GET", "/page")?.await??;
        ensure!(early.header("x-early") == "[1]");
        let sent = network.first_flights();
        for hold in [Hold::Handshakes, Hold::Nothing] {
            network.hold(hold);
            for _ in 0..3 {
                let thief = UdpSocket::bind("127.0.0.1:0")?;
                thief.set_read_timeout(Some(WAIT))?;
                for packet in &sent {
                    thief.send_to(packet, ("127.0.0.1", proxy.port()))?;
                }
                // The worker, which is one, has seen them.
                visitor.look(proxy.port()).await?;
            }
            ensure!(asked(&origin, "/page").len() == 1);
        }
        ensure!(flight.later_of("/other").await?.text() == "served.");
        ensure!(asked(&origin, "/page").len() == 1);
        Ok(())
    })
}

/// Somebody is faster than the client whose flight it is, and takes its session and its connection:
/// nothing is asked for it, and when that connection is given up the client's handshake goes on
/// without early data. What was in it is to be asked again.
#[test]
fn client_whose_flight_was_stolen_is_served() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("served."));
    let (proxy, identity) = start(&origin)?;
    let port = proxy.named_port("PORT_SHORT");
    // The client's own packets come nowhere at first.
    let nowhere = Network {
        lost_first_up: 2,
        ..SLOW
    };
    let network = Datagrams::before(port, nowhere)?;
    run(async {
        let visitor = Visitor::new(&identity, port).await?;
        let mut flight = visitor.begin(network.port()).await?;
        let stolen = flight.send_body("POST", "/page", "body")?;
        let thief = UdpSocket::bind("127.0.0.1:0")?;
        let sent = || Some(network.first_flights()).filter(|sent| sent.len() >= 2);
        for packet in Deadline::after(WAIT).poll(sent).context("a flight")? {
            thief.send_to(&packet, ("127.0.0.1", port))?;
        }
        ensure!(stolen.await?.is_err());
        ensure!(!(&mut flight.accepted).await);
        ensure!(asked(&origin, "/page").is_empty());
        let mut client = connect(port, &identity).await?;
        let body = [Bytes::from("body")];
        let again = ask(&mut client.send, request("POST", "/page")?, &body).await?;
        ensure!(again.text() == "served.");
        ensure!(asked(&origin, "/page").len() == 1);
        Ok(())
    })
}

/// RFC 8470 §5.2: 425 of the origin goes to the client, which asks again; it is not stored, and
/// those who wait for the same are not told.
#[test]
fn answer_too_early_is_for_those_who_were() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    let held = gate.clone();
    origin.answer_with("/*", move |request| match request.header("Early-Data") {
        Some("1") => Answer::new(425).hold_head(&held),
        _ => Answer::new(200).body("served."),
    });
    let (proxy, identity) = start(&origin)?;
    let network = Datagrams::before(proxy.port(), SLOW)?;
    run(async {
        let visitor = Visitor::new(&identity, proxy.port()).await?;
        network.hold(Hold::Handshakes);
        let flight = visitor.begin(network.port()).await?;
        let early = flight.ask("GET", "/cached")?;
        tokio::task::block_in_place(|| origin.wait_for_requests(1))?;
        let other = visitor.begin(proxy.port()).await?;
        ensure!(other.accepted.await);
        let (mut send, cached) = (other.send.clone(), request("GET", "/cached")?);
        let waiting = tokio::spawn(async move { ask(&mut send, cached, &[]).await });
        gate.open();
        ensure!(early.await??.head.status() == 425);
        ensure!(waiting.await??.text() == "served.");
        network.hold(Hold::Nothing);
        ensure!(flight.later_of("/cached").await?.text() == "served.");
        Ok(())
    })
}

/// A handshake that does not end has its time, whatever its client has asked.
#[test]
fn handshake_that_does_not_end_is_given_up() -> Result<()> {
    let origin = Origin::start()?;
    let (proxy, identity) = start(&origin)?;
    let port = proxy.named_port("PORT_SHORT");
    let network = Datagrams::before(port, SLOW)?;
    run(async {
        let visitor = Visitor::new(&identity, port).await?;
        network.hold(Hold::Handshakes);
        let flight = visitor.begin(network.port()).await?;
        ensure!(flight.ask("GET", "/here")?.await??.text() == "here");
        // The client may not hear of it: it gets three times what it has sent, and no more.
        let told = "client timed out while SSL handshaking";
        let is_told = || proxy.error_log().contains(told).then_some(());
        let waited = tokio::task::block_in_place(|| Deadline::after(WAIT).poll(is_told));
        waited.context("a handshake without an end")
    })
}
