//! nats-server, a link to it that can be cut, and the nodes of a fleet.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, Origin, Proxy, ProxyBuilder, Request, Response, free_port, skip,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The longest wait for something that must come.
pub(crate) const WAIT: Duration = Duration::from_secs(60);
/// `max_lag` of all nodes.
pub(crate) const MAX_LAG: Duration = Duration::from_secs(3);

/// Server of NATS with JetStream, on a port that stays its own.
pub(crate) struct Nats {
    program: PathBuf,
    /// More arguments of its command line.
    more: Vec<String>,
    child: Child,
    pub(crate) port: u16,
    dir: tempfile::TempDir,
}

/// The program, where `cargo xtask setup` installs it; tells that a test is skipped without it.
pub(crate) fn program() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let path = named.unwrap_or_else(|| root.join("target/tools/bin/nats-server"));
    if !path.is_file() {
        skip("nats-server is not installed: `cargo xtask setup`, where there is Go");
        return None;
    }
    Some(path)
}

impl Nats {
    /// Starts a server; none where it is not installed.
    pub(crate) fn start() -> Result<Option<Nats>> {
        Nats::start_with(Vec::new())
    }

    /// Starts a server with more arguments.
    pub(crate) fn start_with(more: Vec<String>) -> Result<Option<Nats>> {
        let Some(program) = program() else {
            return Ok(None);
        };
        let (port, dir) = (free_port()?, tempfile::tempdir()?);
        let child = launch((&program, &more), port, dir.path())?;
        Ok(Some(Nats {
            program,
            more,
            child,
            port,
            dir,
        }))
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts the server again, with what it had stored.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.child = launch((&self.program, &self.more), self.port, self.dir.path())?;
        Ok(())
    }

    /// Removes the log of a fleet, as an operator's mistake would.
    pub(crate) fn delete_log(&self, fleet: &str) -> Result<()> {
        self.delete_stream(&format!("MP_{fleet}"))
    }

    /// Removes a stream.
    pub(crate) fn delete_stream(&self, name: &str) -> Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let request = format!(
            "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\n\
             PUB $JS.API.STREAM.DELETE.{name} answer 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let lines = BufReader::new(stream).lines();
        let mut answers = lines
            .map_while(Result::ok)
            .filter(|it| it.contains("\"type\""));
        let answer = answers.next().context("an answer")?;
        ensure!(answer.contains("\"success\":true"), "{answer}");
        Ok(())
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn launch((program, more): (&Path, &[String]), port: u16, dir: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(more);
    command.args(["-a", "127.0.0.1", "-js", "-p", &port.to_string(), "-sd"]);
    command.arg(dir).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn()?;
    let listens = || TcpStream::connect(("127.0.0.1", port)).ok();
    Deadline::after(WAIT)
        .poll(listens)
        .context("nats-server does not listen")?;
    Ok(child)
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

/// A relay to a port, whose connections can be cut, so that none is made, or held one way: what is
/// sent there arrives when the link is mended, as packets do that are sent again.
pub(crate) struct Relay {
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    link: Mutex<Link>,
    changed: Condvar,
}

#[derive(Default)]
struct Link {
    is_cut: bool,
    held: Option<Direction>,
    streams: Vec<TcpStream>,
}

fn copy([mut from, mut to]: [TcpStream; 2], direction: Direction, state: &State) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let link = state.link.lock().unwrap();
        let is_held = |link: &mut Link| link.held == Some(direction);
        drop(state.changed.wait_while(link, is_held).unwrap());
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _closed = to.shutdown(Shutdown::Both);
}

impl Relay {
    pub(crate) fn start(target: u16) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut link = shared.link.lock().unwrap();
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
                    continue;
                };
                if link.is_cut {
                    continue;
                }
                let ways = [
                    (&client, &server, Direction::ToServer),
                    (&server, &client, Direction::ToClient),
                ];
                for (from, to, direction) in ways {
                    let ends = [from.try_clone().unwrap(), to.try_clone().unwrap()];
                    let state = Arc::clone(&shared);
                    std::thread::spawn(move || copy(ends, direction, &state));
                }
                link.streams.extend([client, server]);
            }
        });
        Ok(Relay { port, state })
    }

    pub(crate) fn cut(&self) {
        let mut link = self.state.link.lock().unwrap();
        link.is_cut = true;
        for stream in link.streams.drain(..) {
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }

    /// Holds what is sent one way from now on; connections stay, and new ones are made.
    pub(crate) fn hold(&self, direction: Direction) {
        self.state.link.lock().unwrap().held = Some(direction);
    }

    pub(crate) fn mend(&self) {
        let mut link = self.state.link.lock().unwrap();
        (link.is_cut, link.held) = (false, None);
        drop(link);
        self.state.changed.notify_all();
    }
}

/// Inside of the http block of a node.
pub(crate) const NODE: &str = "
    fleet edge {
        nats nats://127.0.0.1:%%NATS%%;
        node %%NODE%%;
        replicas 1;
        max_lag 3s;
    }
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m fleet=edge;
    proxy_cache z;
    proxy_cache_key $uri;
    proxy_cache_valid 200 1h;
    proxy_cache_revalidate on;
    proxy_cache_tag $upstream_http_xkey;
    proxy_cache_purge PURGE from 127.0.0.1 types=tag,all;
    add_header X-Cache $upstream_cache_status always;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /serve/ { proxy_pass http://%%ORIGIN%%; proxy_cache_on_lag serve; }
        location /miss/ { proxy_pass http://%%ORIGIN%%; proxy_cache_on_lag miss; }
        location = /ready { health; }
        location = /metrics { metrics; }
        location /api/ { api write=on; }
    }";

/// A node on a server of NATS.
pub(crate) fn node(name: &str, nats: u16, origin: &Origin) -> ProxyBuilder {
    node_of(NODE, (name, nats), origin)
}

/// A node with another configuration.
pub(crate) fn node_of(conf: &str, (name, nats): (&str, u16), origin: &Origin) -> ProxyBuilder {
    Proxy::new(Kind::Millpond, conf)
        .origin(origin)
        .value("NODE", name)
        .value("NATS", &nats.to_string())
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) proxy: Proxy,
    pub(crate) client: Client,
}

impl Node {
    /// Starts a node, and waits until it has caught up with the log.
    pub(crate) fn start(builder: ProxyBuilder) -> Result<Node> {
        let proxy = builder.start()?;
        let client = Client::new(proxy.port());
        let node = Node { proxy, client };
        node.wait_until_ready()?;
        Ok(node)
    }

    pub(crate) fn wait_until_ready(&self) -> Result<()> {
        let is_ready = || (self.client.get("/ready").ok()?.status == 200).then_some(());
        Deadline::after(WAIT)
            .poll(is_ready)
            .with_context(|| format!("never ready: {}", self.proxy.error_log()))
    }

    /// Waits until a page is served from the cache without a question to the origin.
    pub(crate) fn warm(&self, path: &str) -> Result<()> {
        let is_hit = || (self.page(path).ok()?.0 == "HIT").then_some(());
        Deadline::after(WAIT)
            .poll(is_hit)
            .with_context(|| format!("{path} is never a hit: {}", self.proxy.error_log()))
    }

    /// Label that the cache gives a page, and its body.
    pub(crate) fn page(&self, path: &str) -> Result<(String, String)> {
        let answer = self.client.get(path)?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        let label = answer.header("X-Cache").context("a label")?.to_string();
        Ok((label, answer.text()))
    }

    /// Waits until a page is the new one.
    pub(crate) fn wait_for(&self, path: &str, body: &str) -> Result<()> {
        let is_new = || (self.page(path).ok()?.1 == body).then_some(());
        Deadline::after(WAIT)
            .poll(is_new)
            .with_context(|| format!("{path} is never {body}: {}", self.proxy.error_log()))
    }

    pub(crate) fn purge(&self, path: &str, fields: &[(&str, &str)]) -> Result<Response> {
        let mut request = Request::new("PURGE", path);
        for (name, value) in fields {
            request = request.header(name, value);
        }
        self.client.send(&request)
    }

    /// Purges, which must hold everywhere when it is answered.
    pub(crate) fn purge_everywhere(&self, path: &str) -> Result<()> {
        let answer = self.purge(path, &[("Purge-Wait", "fleet")])?;
        let reach = answer.header("Purge-Fleet").unwrap_or("none");
        ensure!(
            (answer.status, reach) == (200, "everywhere"),
            "{} {reach}: {}",
            answer.status,
            answer.text()
        );
        Ok(())
    }

    /// Value of a metric of the fleet.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let page = self.client.get("/metrics")?.text();
        let mut lines = page.lines();
        let found = lines.find(|line| line.starts_with(name));
        let line = found.with_context(|| format!("no {name}: {page}"))?;
        let value = line.rsplit_once(' ').context("a value")?.1;
        Ok(value.parse()?)
    }
}

/// A page with a tag, whose validator changes with it.
pub(crate) fn page(body: &str) -> Answer {
    let etag = format!("\"{body}\"");
    let page = Answer::new(200).body(body).header("xkey", "page");
    page.etag(&etag).revalidates()
}
