//! `nats tls://…`, `nats_ssl_trusted_certificate`, `nats_ssl_certificate`: the way to the log is
//! encrypted, servers are those of the named authority, and servers see whom they let in.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Deadline, Kind, Origin, Proxy, ProxyBuilder};

use crate::kit::{Nats, Node, WAIT, page};
use crate::peer_certificates::{Authority, End};

/// Inside of the http block of a node.
const NODE: &str = "
    fleet edge {
        nats tls://127.0.0.1:%%NATS%%;
        node %%NODE%%;
        replicas 1;
        max_lag 3s;
        %%LINES%%
    }
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m fleet=edge;
    proxy_cache z;
    proxy_cache_key $uri;
    proxy_cache_valid 200 1h;
    proxy_cache_purge PURGE from 127.0.0.1;
    add_header X-Cache $upstream_cache_status always;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location = /ready { health; }
        location = /metrics { metrics; }
    }";

const TRUSTED: &str = "nats_ssl_trusted_certificate trusted.pem;";
const OWN: &str = "nats_ssl_certificate own.pem; nats_ssl_certificate_key own.key;";

/// Texts of a node's files: its certificate, its key, the authority that it trusts.
type Files<'a> = [&'a str; 3];

fn builder(name: &str, nats: u16, origin: &Origin, (lines, files): (&str, Files)) -> ProxyBuilder {
    let conf = NODE.replace("%%LINES%%", lines);
    let node = Proxy::new(Kind::Millpond, &conf)
        .origin(origin)
        .value("NODE", name)
        .value("NATS", &nats.to_string());
    let [certificate, key, trusted] = files;
    node.file("own.pem", certificate)
        .file("own.key", key)
        .file("trusted.pem", trusted)
}

/// A server that speaks TLS only, to those who show a certificate of the authority.
fn server(ours: &Authority, dir: &std::path::Path) -> Result<Option<Nats>> {
    let [certificate, key] = ours.sign("127.0.0.1", End::Ahead)?;
    let files = [
        ("--tlscert", "server.pem", &certificate),
        ("--tlskey", "server.key", &key),
        ("--tlscacert", "ca.pem", &ours.text),
    ];
    let mut words = vec!["--tlsverify".to_owned()];
    for (word, name, text) in files {
        let path = dir.join(name);
        std::fs::write(&path, text)?;
        words.extend([word.to_owned(), path.display().to_string()]);
    }
    Nats::start_with(words)
}

#[test]
fn nodes_follow_a_log_behind_tls_and_purge_through_it() -> Result<()> {
    let (dir, ours) = (tempfile::tempdir()?, Authority::new("ours")?);
    let Some(nats) = server(&ours, dir.path())? else {
        return Ok(());
    };
    let origin = Origin::start()?;
    let lines = format!("{TRUSTED} {OWN}");
    let start = |name: &str| {
        let [certificate, key] = ours.sign(name, End::Ahead)?;
        let files = [&certificate[..], &key, &ours.text];
        Node::start(builder(name, nats.port, &origin, (&lines, files)))
    };
    let nodes = [start("n0")?, start("n1")?];
    origin.route("/a", page("old"));
    for node in &nodes {
        node.warm("/a")?;
    }
    origin.route("/a", page("new"));
    nodes[0].purge_everywhere("/a")?;
    assert_eq!(nodes[1].page("/a")?.1, "new");
    Ok(())
}

#[test]
fn servers_of_another_authority_and_nodes_without_a_certificate_are_refused_in_plain_words()
-> Result<()> {
    let (dir, ours) = (tempfile::tempdir()?, Authority::new("ours")?);
    let others = Authority::new("others")?;
    let Some(nats) = server(&ours, dir.path())? else {
        return Ok(());
    };
    let origin = Origin::start()?;
    let own = ours.sign("n0", End::Ahead)?;
    let foreign = others.sign("n0", End::Ahead)?;
    let both = format!("{TRUSTED} {OWN}");
    let cases = [
        (
            &both[..],
            &own,
            &others.text,
            "invalid peer certificate: UnknownIssuer",
        ),
        (TRUSTED, &own, &ours.text, "CertificateRequired"),
        (&both, &foreign, &ours.text, "received fatal alert"),
    ];
    for (lines, [certificate, key], trusted, said) in cases {
        let files = [&certificate[..], key, trusted];
        let proxy = builder("n0", nats.port, &origin, (lines, files)).start()?;
        let is_told = || {
            let log = proxy.error_log();
            let mut lines = log.lines();
            let line = lines.find(|it| it.contains("fleet \"edge\": connecting: "))?;
            Some(line.to_owned())
        };
        let line = Deadline::after(WAIT)
            .poll(is_told)
            .with_context(|| format!("never told: {}", proxy.error_log()))?;
        ensure!(line.contains(said), "{said}: {line}");
        let ready = millpond_testkit::Client::new(proxy.port()).get("/ready")?;
        assert_eq!(ready.status, 503, "{said}");
    }
    Ok(())
}

#[test]
fn files_that_cannot_be_right_are_refused() -> Result<()> {
    let (origin, ours) = (Origin::start()?, Authority::new("ours")?);
    let [certificate, key] = ours.sign("n0", End::Ahead)?;
    let other = ours.sign("n0", End::Ahead)?;
    let cases = [
        (
            "nats_ssl_certificate own.pem;",
            &key,
            &ours.text[..],
            "stand together",
        ),
        (OWN, &other[1], &ours.text, "\"nats_ssl_certificate\": "),
        (
            OWN,
            &certificate,
            &ours.text,
            "\"nats_ssl_certificate_key\": ",
        ),
        (
            TRUSTED,
            &key,
            "nothing",
            "there is no certificate in the file",
        ),
        (
            "nats_ssl_trusted_certificate none.pem;",
            &key,
            "",
            "none.pem\" failed",
        ),
    ];
    for (lines, key, trusted, said) in cases {
        let files = [&certificate[..], key, trusted];
        let refused = builder("n0", 4222, &origin, (lines, files)).start();
        let why = refused.err().context("it starts")?.to_string();
        ensure!(why.contains(said), "{lines}: {why}");
    }
    Ok(())
}
