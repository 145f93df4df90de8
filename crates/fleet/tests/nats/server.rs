//! Servers of NATS as children of the test, and a relay that can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millpond_fleet::nats::NatsConf;

use crate::node::wait_for;

pub(crate) struct Servers {
    children: Vec<(Child, u16)>,
    _dir: tempfile::TempDir,
}

fn program() -> Option<PathBuf> {
    let tools = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(tools).chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join("nats-server"));
    named.into_iter().chain(found).find(|path| path.is_file())
}

fn free_ports(count: usize) -> Vec<u16> {
    let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners: Vec<TcpListener> = (0..count).map(|_| bind()).collect();
    let port = |it: &TcpListener| it.local_addr().unwrap().port();
    listeners.iter().map(port).collect()
}

impl Servers {
    /// Servers that are one cluster; `None` where there is no program.
    pub(crate) fn start(count: usize) -> Option<Servers> {
        let program = program()?;
        let dir = tempfile::tempdir().unwrap();
        let ports = free_ports(count * 2);
        let (clients, routes) = ports.split_at(count);
        let urls = routes.iter().map(|port| format!("nats://127.0.0.1:{port}"));
        let joined = urls.collect::<Vec<_>>().join(",");
        let mut children = Vec::new();
        for (number, (port, route)) in clients.iter().zip(routes).enumerate() {
            let mut command = Command::new(&program);
            let store = dir.path().join(number.to_string());
            command.args(["-a", "127.0.0.1", "-js", "-p", &port.to_string(), "-sd"]);
            command.arg(store).args(["-n", &format!("s{number}")]);
            if count > 1 {
                let own = format!("nats://127.0.0.1:{route}");
                command.args([
                    "--cluster_name",
                    "t",
                    "--cluster",
                    &own,
                    "--routes",
                    &joined,
                ]);
            }
            let child = command.stdout(Stdio::null()).stderr(Stdio::null());
            children.push((child.spawn().unwrap(), *port));
        }
        let servers = Servers {
            children,
            _dir: dir,
        };
        for (_, port) in &servers.children {
            wait_for("a server listens", || {
                TcpStream::connect(("127.0.0.1", *port)).is_ok()
            });
        }
        Some(servers)
    }

    pub(crate) fn port(&self, number: usize) -> u16 {
        self.children[number].1
    }

    pub(crate) fn conf(&self) -> NatsConf {
        let urls = self
            .children
            .iter()
            .map(|(_, port)| format!("nats://127.0.0.1:{port}"));
        NatsConf {
            fleet: "test".to_owned(),
            servers: urls.collect(),
            credentials: None,
            trusted_certificate: None,
            client_certificate: None,
            domain: None,
            node: String::new(),
            replicas: self.children.len(),
            retain: Duration::from_secs(3600),
        }
    }

    pub(crate) fn kill(&mut self, number: usize) {
        let (child, _) = &mut self.children[number];
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn delete_stream(&self) {
        let url = format!("nats://127.0.0.1:{}", self.port(0));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let client = async_nats::connect(url).await.unwrap();
            let context = async_nats::jetstream::new(client);
            context.delete_stream("MP_test").await.unwrap();
        });
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A relay to a port, whose connections can be cut; while it is cut, none is made.
pub(crate) struct Relay {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_cut: bool,
    streams: Vec<TcpStream>,
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

impl Relay {
    pub(crate) fn start(target: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut state = shared.lock().unwrap();
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
                    continue;
                };
                if state.is_cut {
                    continue;
                }
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || copy(from, to));
                }
                state.streams.extend([client, server]);
            }
        });
        Relay { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_cut = true;
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn mend(&self) {
        self.state.lock().unwrap().is_cut = false;
    }
}
