//! versitygw, an S3 server with a bucket, and a relay to it that misbehaves as it is told.

use anyhow::{Context, Result};
use millpond_testkit::{Deadline, free_port, skip};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use crate::kit::WAIT;

/// Credentials that the server has been told.
pub(crate) const ID: &str = "pond";
pub(crate) const SECRET: &str = "a secret of the store";
const REGION: &str = "eu-north-1";

/// The server.
pub(crate) struct Store {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Store {
    /// Starts a server; none where it is not installed.
    pub(crate) fn start() -> Result<Option<Store>> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = own.parent().context("a root")?;
        let named = std::env::var_os("VERSITYGW").map(PathBuf::from);
        let program = named.unwrap_or_else(|| root.join("target/tools/bin/versitygw"));
        if !program.is_file() {
            skip("versitygw is not installed: `cargo xtask setup`, where there is Go");
            return Ok(None);
        }
        let (port, dir) = (free_port()?, tempfile::tempdir()?);
        let (objects, sidecar) = (dir.path().join("objects"), dir.path().join("sidecar"));
        std::fs::create_dir_all(objects.join("bucket"))?;
        std::fs::create_dir(&sidecar)?;
        let mut command = Command::new(program);
        command.args(["--port", &format!("127.0.0.1:{port}")]);
        command.args(["--access", ID, "--secret", SECRET]);
        command.args(["--region", REGION, "posix", "--sidecar"]);
        command.arg(sidecar).arg(objects);
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let store = Store { child, port, dir };
        let listens = || TcpStream::connect(("127.0.0.1", port)).ok();
        Deadline::after(WAIT)
            .poll(listens)
            .context("versitygw does not listen")?;
        Ok(Some(store))
    }

    /// Files of the objects.
    pub(crate) fn objects(&self) -> Result<Vec<PathBuf>> {
        files(&self.dir.path().join("objects/bucket"))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// The files below a folder.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// Behaviour of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// All passes.
    None,
    /// Requests with this method are passed on when the fault is over.
    Hold(&'static str),
    /// Each request is answered with this status.
    Status(u16),
    /// Connections end behind so many bytes of a body.
    Cut(usize),
    /// A byte of each body is another one.
    Flip,
    /// Connections end at once.
    Gone,
}

#[derive(Default)]
struct Shared {
    fault: Mutex<Option<Fault>>,
    changed: Condvar,
    /// Method and path of each request.
    seen: Mutex<Vec<String>>,
}

/// A relay to the server.
pub(crate) struct FaultyRelay {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

impl FaultyRelay {
    pub(crate) fn start(store: &Store) -> Result<FaultyRelay> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (port, target) = (listener.local_addr()?.port(), store.port);
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&of_thread);
                // A connection that fails is one of those that it is here for.
                std::thread::spawn(move || relay(client, target, &shared).is_ok());
            }
        });
        Ok(FaultyRelay { port, shared })
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap() = Some(fault);
        self.shared.changed.notify_all();
    }

    /// Requests so far whose method and path begin so.
    pub(crate) fn count(&self, begin: &str) -> usize {
        let seen = self.shared.seen.lock().unwrap();
        seen.iter().filter(|it| it.starts_with(begin)).count()
    }
}

/// A message: its head, and its body.
struct Message {
    head: String,
    body: Vec<u8>,
}

/// Kind of a message that comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// One that has a body of the length that it says.
    Whole,
    /// The answer to HEAD.
    Head,
}

fn read(from: &mut BufReader<TcpStream>, expected: Expected) -> Result<Option<Message>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let lower = head.to_ascii_lowercase();
    let mut lines = lower.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    let has_body = |_: &&str| expected == Expected::Whole;
    let len = length.filter(has_body).unwrap_or("0").parse()?;
    let mut body = vec![0; len];
    from.read_exact(&mut body)?;
    Ok(Some(Message { head, body }))
}

fn relay(client: TcpStream, target: u16, shared: &Shared) -> Result<()> {
    let server = TcpStream::connect(("127.0.0.1", target))?;
    let (mut to_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (mut client, mut server) = (BufReader::new(client), BufReader::new(server));
    while let Some(request) = read(&mut client, Expected::Whole)? {
        let line = request.head.lines().next().unwrap_or_default().to_owned();
        shared.seen.lock().unwrap().push(line.clone());
        let mut fault = shared.fault.lock().unwrap();
        while matches!(*fault, Some(Fault::Hold(method)) if line.starts_with(method)) {
            fault = shared.changed.wait(fault).unwrap();
        }
        let fault = fault.unwrap_or(Fault::None);
        match fault {
            Fault::Gone => return Ok(()),
            Fault::Status(status) => {
                write!(
                    to_client,
                    "HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n"
                )?;
                continue;
            }
            _ => {}
        }
        to_server.write_all(request.head.as_bytes())?;
        to_server.write_all(&request.body)?;
        let expected = if line.starts_with("HEAD ") {
            Expected::Head
        } else {
            Expected::Whole
        };
        let Some(mut answer) = read(&mut server, expected)? else {
            return Ok(());
        };
        to_client.write_all(answer.head.as_bytes())?;
        match fault {
            Fault::Cut(len) if answer.body.len() > len => {
                to_client.write_all(&answer.body[..len])?;
                return Ok(());
            }
            Fault::Flip => {
                let middle = answer.body.len() / 2;
                answer
                    .body
                    .iter_mut()
                    .skip(middle)
                    .take(1)
                    .for_each(|it| *it ^= 0x20);
            }
            _ => {}
        }
        to_client.write_all(&answer.body)?;
    }
    Ok(())
}
