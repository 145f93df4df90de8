//! The application: a scripted FastCGI responder in the test's process.
//!
//! A test gives it one script, which computes the reply to every request, and reads back what was
//! asked. Every connection has a thread. Requests are read strictly: a record of another version,
//! id or order than the specification has is a fault, and closes the connection.
//!
//! ```text
//! BEGIN_REQUEST ─► PARAMS … PARAMS(empty) ─► STDIN … STDIN(empty) ─► script ─► reply
//!       ▲                                                                        │
//!       └──────────────── when the request asked to keep the connection ◄────────┘
//! ```
//!
//! 1. A request is recorded before the first byte of its reply is sent.
//! 2. What a connection did wrong is in [`Application::faults`].
//! 3. Dropping the application closes its port.

use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time for which a connection may be silent.
const SILENCE: Duration = Duration::from_secs(30);
/// The most content of a record.
const MOST_CONTENT: usize = 0xffff;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// A request that the application saw.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Names and values, in the order they came.
    pub params: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Number of records that the body came in.
    pub body_records: usize,
    /// True if the connection is to be kept.
    pub keeps: bool,
    /// Number of the connection that the request came on, counted from 1.
    pub connection: u64,
}

impl Asked {
    /// The first value of a parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        let found = self.params.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Bytes that the application sends for a request.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
    is_over: bool,
}

impl Reply {
    /// An answer of CGI, head and body, in one record, and the end of the request.
    pub fn cgi(text: &str) -> Reply {
        Reply::default().stdout(text.as_bytes()).end()
    }

    /// Adds output, in as many records as it takes, with padding.
    pub fn stdout(mut self, bytes: &[u8]) -> Reply {
        for part in bytes.chunks(MOST_CONTENT) {
            self.bytes.extend(record(STDOUT, part, 3));
        }
        self
    }

    /// Adds a message on the error stream.
    pub fn stderr(mut self, message: &str) -> Reply {
        self.bytes.extend(record(STDERR, message.as_bytes(), 0));
        self
    }

    /// Adds any bytes.
    pub fn raw(mut self, bytes: &[u8]) -> Reply {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds the end of the output and of the request; without it the connection closes.
    pub fn end(mut self) -> Reply {
        self.bytes.extend(record(STDOUT, b"", 0));
        self.bytes.extend(record(END_REQUEST, &[0; 8], 0));
        self.is_over = true;
        self
    }
}

/// A record of request 1.
pub fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap_or(u16::MAX);
    let [high, low] = len.to_be_bytes();
    let mut out = vec![1, kind, 0, 1, high, low, padding, 0];
    out.extend_from_slice(content);
    out.resize(out.len() + usize::from(padding), 0);
    out
}

type Script = dyn Fn(&Asked) -> Reply + Send + Sync;

struct Shared {
    script: Box<Script>,
    asked: Mutex<Vec<Asked>>,
    faults: Mutex<Vec<String>>,
    connections: AtomicU64,
    stopped: AtomicBool,
}

/// A scripted FastCGI application.
pub struct Application {
    port: u16,
    shared: Arc<Shared>,
}

impl Application {
    /// Starts on a port of 127.0.0.1 that the system chooses.
    pub fn start(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Result<Application> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            asked: Mutex::default(),
            faults: Mutex::default(),
            connections: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let on_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if on_thread.stopped.load(Ordering::Relaxed) {
                    break;
                }
                let shared = Arc::clone(&on_thread);
                let connection = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
                std::thread::spawn(move || {
                    if let Err(error) = shared.serve(stream, connection) {
                        lock(&shared.faults).push(format!("{error:#}"));
                    }
                });
            }
        });
        Ok(Application { port, shared })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Every request so far, in the order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }

    /// Faults of connections.
    pub fn faults(&self) -> Vec<String> {
        lock(&self.shared.faults).clone()
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // A last connection wakes the accepting thread, which then sees that it is stopped.
        let _woken = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream, connection: u64) -> Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        while let Some(asked) = read_request(&mut stream, connection)? {
            lock(&self.asked).push(asked.clone());
            let reply = (self.script)(&asked);
            // The other side may have closed a reply that it does not want.
            let is_sent = stream.write_all(&reply.bytes).is_ok();
            if !(is_sent && reply.is_over && asked.keeps) {
                break;
            }
        }
        Ok(())
    }
}

/// A request; none when the connection ends before one.
fn read_request(stream: &mut TcpStream, connection: u64) -> Result<Option<Asked>> {
    let Some((kind, content)) = read_record(stream)? else {
        return Ok(None);
    };
    ensure!(kind == BEGIN_REQUEST, "a request begins with kind {kind}");
    let [0, 1, flags @ (0 | 1), 0, 0, 0, 0, 0] = content.as_slice() else {
        bail!("a request begins with {content:?}");
    };
    let (params, _) = read_stream(stream, PARAMS)?;
    let (body, body_records) = read_stream(stream, STDIN)?;
    Ok(Some(Asked {
        params: read_params(&params)?,
        body,
        body_records,
        keeps: *flags == 1,
        connection,
    }))
}

/// All content of a stream, and the number of records that had some.
fn read_stream(stream: &mut TcpStream, expected: u8) -> Result<(Vec<u8>, usize)> {
    let (mut all, mut count) = (Vec::new(), 0);
    loop {
        let (kind, content) = read_record(stream)?.context("a stream breaks off")?;
        ensure!(kind == expected, "kind {kind} in a stream of {expected}");
        if content.is_empty() {
            return Ok((all, count));
        }
        all.extend(content);
        count += 1;
    }
}

/// Kind and content of a record; none at the end of the connection.
fn read_record(stream: &mut TcpStream) -> Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 8];
    match stream.read(&mut head[..1])? {
        0 => return Ok(None),
        _ => stream.read_exact(&mut head[1..])?,
    }
    let [1, kind, 0, 1, high, low, padding, 0] = head else {
        bail!("a record begins with {head:?}");
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let mut content = vec![0; len + usize::from(padding)];
    stream.read_exact(&mut content)?;
    content.truncate(len);
    Ok(Some((kind, content)))
}

fn read_params(mut bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let mut params = Vec::new();
    while !bytes.is_empty() {
        let name = read_len(&mut bytes)?;
        let value = read_len(&mut bytes)?;
        let name = take(&mut bytes, name)?;
        let value = take(&mut bytes, value)?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        params.push((text(name), text(value)));
    }
    Ok(params)
}

fn read_len(bytes: &mut &[u8]) -> Result<usize> {
    let first = *bytes.first().context("a length is missing")?;
    if first < 128 {
        take(bytes, 1)?;
        return Ok(usize::from(first));
    }
    let len = <[u8; 4]>::try_from(take(bytes, 4)?)?;
    let len = u32::from_be_bytes(len) & 0x7fff_ffff;
    ensure!(len > 127, "a length of {len} takes four bytes");
    Ok(usize::try_from(len)?)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count).context("a pair is cut")?;
    *bytes = rest;
    Ok(taken)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
