//! `peer_ssl_certificate`, `peer_ssl_certificate_key`, `peer_ssl_trusted_certificate`: nodes ask
//! each other encrypted, and who shows no good certificate gets nothing but what the origin has.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Deadline, Kind, Origin, Proxy, ProxyBuilder, free_port};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::kit::{Nats, Node, WAIT, page};
use crate::nats;
use crate::peers::{ask, count, outcome, wait_until_known};

/// Inside of the http block of a node, whose peers come to an address of their own.
const NODE: &str = "
    fleet edge {
        nats nats://127.0.0.1:%%NATS%%;
        node %%NODE%% address=127.0.0.1:%%ADDRESS%%;
        replicas 1;
        max_lag 3s;
        peer_secret secret;
        %%LINES%%
    }
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m fleet=edge;
    proxy_cache z;
    proxy_cache_key $uri;
    proxy_cache_valid 200 1h;
    proxy_cache_peers owner hedge=5s;
    server {
        listen 127.0.0.1:%%PORT%%;
        listen 127.0.0.1:%%TLS%% ssl;
        ssl_certificate own.pem;
        ssl_certificate_key own.key;
        ssl_verify_client optional_no_ca;
        add_header X-Cache $upstream_cache_status always;
        add_header X-Node $upstream_node always;
        location / { proxy_pass http://%%ORIGIN%%; }
        location = /ready { health; }
        location = /metrics { metrics; }
    }";

const LINES: &str = "peer_ssl_certificate own.pem; peer_ssl_certificate_key own.key; \
                     peer_ssl_trusted_certificate trusted.pem;";

/// An authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) text: String,
}

/// The end of a certificate.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Ahead,
    Past,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Result<Authority> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let text = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        Ok(Authority { issuer, text })
    }

    /// A certificate for a node, and its key.
    pub(crate) fn sign(&self, node: &str, end: End) -> Result<[String; 2]> {
        let (key, hour) = (KeyPair::generate()?, Duration::from_secs(3600));
        let mut params = CertificateParams::new(vec![node.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, node);
        params.not_before = (SystemTime::now() - 2 * hour).into();
        params.not_after = match end {
            End::Ahead => (SystemTime::now() + hour).into(),
            End::Past => (SystemTime::now() - hour).into(),
        };
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok([certificate.pem(), key.serialize_pem()])
    }
}

/// Files of a node: its certificate and key, and whom it trusts.
type Files = ([String; 2], String);

/// A node whose peers come encrypted, to a port of its own.
fn builder(name: &str, nats: u16, origin: &Origin, files: &Files) -> Result<ProxyBuilder> {
    let (conf, port) = (NODE.replace("%%LINES%%", LINES), free_port()?.to_string());
    let builder = at(&conf, (name, nats), origin).value("ADDRESS", &port);
    Ok(with(builder.value("TLS", &port), files))
}

fn with(builder: ProxyBuilder, ([certificate, key], trusted): &Files) -> ProxyBuilder {
    builder
        .file("own.pem", certificate)
        .file("own.key", key)
        .file("trusted.pem", trusted)
}

fn at(conf: &str, (name, nats): (&str, u16), origin: &Origin) -> ProxyBuilder {
    Proxy::new(Kind::Millpond, conf)
        .origin(origin)
        .value("NODE", name)
        .value("NATS", &nats.to_string())
        .file("secret", "a secret of all nodes\n")
}

/// Pages of which a node owns none, each asked of it once; the pages for which others were asked.
fn answered_by_peers(node: &Node, origin: &Origin, prefix: &str) -> Result<usize> {
    let mut asked = 0;
    for number in 0..20 {
        let path = format!("/{prefix}/{number}");
        origin.route(&path, page("page"));
        let (body, name) = ask(node, &path)?;
        ensure!(body == "page", "{path}");
        asked += usize::from(name.is_some());
        ensure!(count(origin, &path) >= 1, "{path}");
    }
    Ok(asked)
}

#[test]
fn nodes_with_certificates_of_their_authority_ask_each_other_encrypted() -> Result<()> {
    let nats = nats!();
    let (origin, ours) = (Origin::start()?, Authority::new("ours")?);
    let start = |name: &str| {
        let files = (ours.sign(name, End::Ahead)?, ours.text.clone());
        Node::start(builder(name, nats.port, &origin, &files)?)
    };
    let nodes = [start("n0")?, start("n1")?];
    wait_until_known(&nodes)?;
    ensure!(
        answered_by_peers(&nodes[0], &origin, "good")? > 0,
        "nobody was asked"
    );
    ensure!(outcome(&nodes[0], "answered")? > 0.0, "nobody has answered");
    for result in ["slow", "failed", "refused", "rejected", "behind"] {
        ensure!(outcome(&nodes[0], result)? == 0.0, "{result}");
        ensure!(outcome(&nodes[1], result)? == 0.0, "{result}");
    }
    Ok(())
}

#[test]
fn who_shows_another_certificate_or_none_is_refused_and_the_origin_is_asked() -> Result<()> {
    let nats = nats!();
    let (origin, ours) = (Origin::start()?, Authority::new("ours")?);
    let others = Authority::new("others")?;
    let files = |name: &str| anyhow::Ok((ours.sign(name, End::Ahead)?, ours.text.clone()));
    let port = free_port()?.to_string();
    // Its plain port is what it tells: who has no certificate finds it.
    let told = NODE
        .replace("%%LINES%%", LINES)
        .replace("%%ADDRESS%%", "%%PORT%%");
    let plain = with(at(&told, ("n0", nats.port), &origin), &files("n0")?);
    let first = Node::start(plain.value("TLS", &port))?;
    let (conf, port) = (NODE.replace("%%LINES%%", ""), free_port()?.to_string());
    let bare = with(at(&conf, ("n1", nats.port), &origin), &files("n1")?);
    let pair = [
        first,
        Node::start(bare.value("TLS", &port).value("ADDRESS", &port))?,
    ];
    wait_until_known(&pair)?;
    answered_by_peers(&pair[1], &origin, "none")?;
    ensure!(outcome(&pair[1], "answered")? == 0.0, "it was answered");
    ensure!(outcome(&pair[1], "refused")? > 0.0, "it was not refused");
    ensure!(outcome(&pair[0], "rejected")? > 0.0, "it was not rejected");
    let line = "node \"n1\" is refused by its certificate: it shows none";
    ensure!(
        pair[0].proxy.error_log().contains(line),
        "{}",
        pair[0].proxy.error_log()
    );
    drop(pair);

    // One of another authority, which itself trusts everybody.
    let nats = nats!();
    let both = format!("{}{}", ours.text, others.text);
    let foreign = (others.sign("n1", End::Ahead)?, both);
    let pair = [
        Node::start(builder("n0", nats.port, &origin, &files("n0")?)?)?,
        Node::start(builder("n1", nats.port, &origin, &foreign)?)?,
    ];
    wait_until_known(&pair)?;
    answered_by_peers(&pair[1], &origin, "other")?;
    ensure!(outcome(&pair[1], "answered")? == 0.0, "it was answered");
    ensure!(outcome(&pair[1], "refused")? > 0.0, "it was not refused");
    let log = pair[0].proxy.error_log();
    ensure!(
        log.contains("node \"n1\" is refused by its certificate: ("),
        "{log}"
    );
    // It is not asked either.
    answered_by_peers(&pair[0], &origin, "asked")?;
    ensure!(outcome(&pair[0], "answered")? == 0.0, "it was believed");
    ensure!(outcome(&pair[0], "failed")? > 0.0, "it was not asked");
    let log = pair[0].proxy.error_log();
    let line = "node \"n1\", which owns the key, was not reached: upstream SSL certificate verify";
    ensure!(log.contains(line), "{log}");
    Ok(())
}

#[test]
fn certificates_that_have_ended_cost_requests_to_the_origin_until_a_reload_has_new_ones()
-> Result<()> {
    let nats = nats!();
    let (origin, ours) = (Origin::start()?, Authority::new("ours")?);
    let start = |name: &str, end| {
        let files = (ours.sign(name, end)?, ours.text.clone());
        Node::start(builder(name, nats.port, &origin, &files)?)
    };
    let nodes = [start("n0", End::Ahead)?, start("n1", End::Past)?];
    wait_until_known(&nodes)?;
    for node in &nodes {
        answered_by_peers(node, &origin, "ended")?;
        ensure!(outcome(node, "answered")? == 0.0, "answered");
        ensure!(outcome(node, "failed")? > 0.0, "not tried");
    }
    let logs = [nodes[0].proxy.error_log(), nodes[1].proxy.error_log()];
    let not_reached = "was not reached: upstream SSL certificate verify error: (10:certificate has \
                       expired)";
    ensure!(logs[0].contains(not_reached), "{}", logs[0]);
    let own = "the own peer_ssl_certificate is not good: (10:certificate has expired)";
    ensure!(
        logs[1].matches(own).count() == 1,
        "once a minute: {}",
        logs[1]
    );

    let new = ours.sign("n1", End::Ahead)?;
    nodes[1].proxy.write_file("own.pem", &new[0])?;
    nodes[1].proxy.write_file("own.key", &new[1])?;
    nodes[1].proxy.reload()?;
    for (at, node) in nodes.iter().enumerate() {
        let round = std::cell::Cell::new(0);
        let is_answered = || {
            round.set(round.get() + 1);
            let prefix = format!("new/{at}/{}", round.get());
            answered_by_peers(node, &origin, &prefix).ok()?;
            (outcome(node, "answered").ok()? > 0.0).then_some(())
        };
        Deadline::after(WAIT)
            .poll(is_answered)
            .context("never answered")?;
    }
    Ok(())
}

#[test]
fn lines_that_cannot_be_right_are_refused() -> Result<()> {
    let (origin, ours) = (Origin::start()?, Authority::new("ours")?);
    let (own, other) = (ours.sign("n0", End::Ahead)?, ours.sign("n0", End::Ahead)?);
    let secretless = NODE.replace("peer_secret secret;", "%%LINES%%");
    for (conf, node, lines, said) in [
        (
            NODE,
            "n0",
            "peer_ssl_certificate own.pem;",
            "stand together",
        ),
        (
            NODE,
            "n1",
            LINES,
            "\"peer_ssl_certificate\" is not for node \"n1\"",
        ),
        (
            NODE,
            "n0",
            &LINES.replace("own.key", "other.key"),
            "\"peer_ssl_certificate_key\": ",
        ),
        (&secretless, "n0", LINES, "needs \"peer_secret\""),
    ] {
        let conf = conf
            .replacen("%%LINES%%", lines, 1)
            .replace("%%LINES%%", "");
        let port = free_port()?.to_string();
        let files = [
            ("own.pem", &own[0]),
            ("own.key", &own[1]),
            ("trusted.pem", &ours.text),
        ];
        let mut builder = at(&conf, (node, 4222), &origin).file("other.key", &other[1]);
        for (name, text) in files {
            builder = builder.file(name, text);
        }
        let refused = builder.value("TLS", &port).value("ADDRESS", &port).start();
        let why = refused.err().context("it starts")?.to_string();
        ensure!(why.contains(said), "{lines}: {why}");
    }
    Ok(())
}
