//! pebble, an authority for tests, and clients that look at what it issued.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Deadline, Kind, LogCheck, NameServer, Proxy, ProxyBuilder, free_port, skip,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for something that must come: an order takes a few seconds.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// The names that lead to this machine.
pub(crate) const NAMES: [&str; 3] = ["a.example", "b.example", "www.a.example"];

/// Differences of an authority from the usual one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// Seconds for which certificates are valid, if not 90 days.
    pub(crate) lifetime: Option<u64>,
    /// Accounts belong to customers.
    pub(crate) customers: bool,
    /// Chains beside the usual one.
    pub(crate) chains: usize,
}

/// The key of the customer `kid-1`.
pub(crate) const CUSTOMER_KEY: &str =
    "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

/// An authority that runs.
pub(crate) struct Pebble {
    child: Child,
    dir: tempfile::TempDir,
    /// The ports: of the authority, of its management, and those on which it looks.
    ports: [u16; 4],
    /// The certificate that its own connections are trusted by.
    authority: String,
    names: NameServer,
}

impl Drop for Pebble {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// The program, where `cargo xtask setup` installs it; tells that a test is skipped without it.
fn program() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let path = root.join("target/tools/bin/pebble");
    if !path.is_file() {
        skip("pebble is not installed: `cargo xtask setup`, where there is Go");
        return None;
    }
    Some(path)
}

impl Pebble {
    /// Starts an authority; none where it is not installed.
    pub(crate) fn start(options: Options) -> Result<Option<Pebble>> {
        let Some(program) = program() else {
            return Ok(None);
        };
        let dir = tempfile::Builder::new().prefix("pebble-").tempdir()?;
        let (authority, [certificate, key]) = own_certificate()?;
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("cert.pem"), certificate)?;
        std::fs::write(path("key.pem"), key)?;
        let ports = [free_port()?, free_port()?, free_port()?, free_port()?];
        std::fs::write(path("conf.json"), conf(dir.path(), ports, options))?;
        let names = NameServer::start()?;
        for name in NAMES {
            names.addresses(name, &["127.0.0.1"]);
        }
        let mut command = Command::new(program);
        command
            .arg("-config")
            .arg(path("conf.json"))
            .args(["-strict", "-dnsserver", &names.address()])
            .env("PEBBLE_VA_NOSLEEP", "1")
            // A part of all messages is refused for their nonces, and has to be sent again.
            .env("PEBBLE_WFE_NONCEREJECT", "20")
            .env("PEBBLE_AUTHZREUSE", "0")
            .env("PEBBLE_ALTERNATE_ROOTS", options.chains.to_string())
            .stdin(Stdio::null())
            .stdout(File::create(path("log"))?)
            .stderr(File::create(path("errors"))?);
        let child = command.spawn()?;
        let pebble = Pebble {
            child,
            dir,
            ports,
            authority,
            names,
        };
        let listens = || {
            let mut ports = pebble.ports.iter().take(2);
            ports
                .all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok())
                .then_some(())
        };
        let found = Deadline::after(WAIT).poll(listens);
        found.with_context(|| format!("pebble does not listen: {}", pebble.log()))?;
        Ok(Some(pebble))
    }

    /// A proxy with an `acme_issuer` for each `%%ISSUER%%`-like value of the configuration.
    pub(crate) fn proxy(&self, conf: &str) -> ProxyBuilder {
        let [port, _, http, tls] = self.ports.map(|port| port.to_string());
        Proxy::new(Kind::Millpond, conf)
            .value("URI", &format!("https://localhost:{port}/dir"))
            .value("HTTP_01", &http)
            .value("TLS_01", &tls)
            .value("CUSTOMER_KEY", CUSTOMER_KEY)
            .file("pebble.pem", &self.authority)
            .log_check(LogCheck::Off)
    }

    /// The port on which names are validated by handshakes.
    pub(crate) fn tls_port(&self) -> u16 {
        self.ports[3]
    }

    /// The name server that it asks.
    pub(crate) fn names(&self) -> &NameServer {
        &self.names
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        let read = |name| std::fs::read(self.dir.path().join(name)).unwrap_or_default();
        let text = [read("log"), read("errors")].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The count of orders so far.
    pub(crate) fn orders(&self) -> usize {
        self.log().matches("Added order").count()
    }

    /// The settings of a client that trusts what it issues.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>> {
        self.client_of(0)
    }

    /// The settings of a client that trusts one of its chains.
    pub(crate) fn client_of(&self, chain: usize) -> Result<Arc<ClientConfig>> {
        trusting(&self.manage(&format!("GET /roots/{chain}"), "")?)
    }

    /// The name of who has issued the top of a chain.
    pub(crate) fn root_name(&self, chain: usize) -> Result<String> {
        const BEGIN: &str = "Pebble Root CA ";
        let pem = self.manage(&format!("GET /roots/{chain}"), "")?;
        let root = CertificateDer::from_pem_slice(pem.as_bytes())?;
        let text = String::from_utf8_lossy(&root).into_owned();
        let (_, rest) = text.split_once(BEGIN).context("no name")?;
        let number = rest.chars().take_while(char::is_ascii_hexdigit).take(6);
        Ok(format!("{BEGIN}{}", number.collect::<String>()))
    }

    /// Sends a request to the management; returns the body of the answer.
    pub(crate) fn manage(&self, line: &str, body: &str) -> Result<String> {
        let config = trusting(&self.authority)?;
        let mut stream = connect(&config, self.ports[1], "localhost")?;
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.0\r\nHost: localhost\r\nUser-Agent: test\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        // Its end is not always said.
        let _end = stream.read_to_string(&mut answer);
        ensure!(answer.contains(" 200 "), "{line}: {answer:?}");
        let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
        Ok(body.to_owned())
    }
}

fn conf(dir: &Path, [port, management, http, tls]: [u16; 4], options: Options) -> String {
    let dir = dir.display();
    let lifetime = options.lifetime.unwrap_or(90 * 86_400);
    let customers = options.customers;
    format!(
        r#"{{"pebble": {{
            "listenAddress": "127.0.0.1:{port}",
            "managementListenAddress": "127.0.0.1:{management}",
            "certificate": "{dir}/cert.pem",
            "privateKey": "{dir}/key.pem",
            "httpPort": {http},
            "tlsPort": {tls},
            "ocspResponderURL": "",
            "domainBlocklist": ["blocked.example"],
            "externalAccountBindingRequired": {customers},
            "externalAccountMACKeys": {{"kid-1": "{CUSTOMER_KEY}"}},
            "retryAfter": {{"authz": 1, "order": 1}},
            "keyAlgorithm": "ecdsa",
            "profiles": {{
                "usual": {{"description": "usual", "validityPeriod": {lifetime}}}
            }}
        }}}}"#
    )
}

/// An authority, and the certificate of the host that pebble runs on, with its key.
fn own_certificate() -> Result<(String, [String; 2])> {
    let root_key = KeyPair::generate()?;
    let mut root = CertificateParams::new(Vec::new())?;
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.distinguished_name.push(DnType::CommonName, "root");
    let pem = root.self_signed(&root_key)?.pem();
    let key = KeyPair::generate()?;
    let mut leaf = CertificateParams::new(vec!["localhost".to_owned()])?;
    leaf.distinguished_name
        .push(DnType::CommonName, "localhost");
    let leaf = leaf.signed_by(&key, &Issuer::new(root, root_key))?;
    Ok((pem, [leaf.pem(), key.serialize_pem()]))
}

/// An encrypted connection of a client.
pub(crate) type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// The settings of a client that trusts nobody.
pub(crate) fn trusting_nobody() -> Result<Arc<ClientConfig>> {
    let (pem, _) = own_certificate()?;
    trusting(&pem)
}

fn trusting(root: &str) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes())?)?;
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let mut config = builder.with_no_client_auth();
    // A session that is resumed shows the certificate of the first handshake.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Makes an encrypted connection to a port, for a name that the certificate must have.
pub(crate) fn connect(config: &Arc<ClientConfig>, port: u16, name: &str) -> Result<Encrypted> {
    let name = ServerName::try_from(name.to_owned())?;
    let session = ClientConnection::new(Arc::clone(config), name)?;
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(WAIT))?;
    let mut stream = StreamOwned::new(session, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// The certificate of a connection.
pub(crate) fn certificate(stream: &Encrypted) -> Result<Vec<u8>> {
    let chain = stream.conn.peer_certificates().context("a chain")?;
    Ok(chain.first().context("a certificate")?.to_vec())
}

/// Sends a request on a connection that is kept, and reads the answer up to a text.
pub(crate) fn ask(stream: &mut Encrypted, host: &str, end: &str) -> Result<String> {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut told = Vec::new();
    while !told.ends_with(end.as_bytes()) {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece)?;
        ensure!(count > 0, "it ends: {}", String::from_utf8_lossy(&told));
        told.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    Ok(String::from_utf8(told)?)
}

/// Waits until a server's log has a text so many times.
pub(crate) fn says(proxy: &Proxy, text: &str, times: usize) -> Result<()> {
    let is_there = || (proxy.error_log().matches(text).count() >= times).then_some(());
    let found = Deadline::after(WAIT).poll(is_there);
    found.with_context(|| format!("nobody says {text}: {}", proxy.error_log()))
}
