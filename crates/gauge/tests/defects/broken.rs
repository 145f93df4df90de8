//! A small cache with one defect: a thread for each connection, everything in memory.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use millpond_gauge::resource::Resource;

/// Defect of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Nothing.
    None,
    /// One bit in the middle of hits.
    WrongByte,
    /// The second half of hits is of the next version.
    Mixed,
    /// A byte is missing in the middle of hits.
    Shifted,
    /// A block of hits was never written.
    Hole,
    /// Hits end in the middle.
    Truncated,
    /// Nothing is stored.
    NeverHit,
    /// Ranges begin a byte too late.
    RangeOffByOne,
    /// A purge is acknowledged and does nothing.
    PurgeForgotten,
    /// One of those who wait for a fill is never woken.
    LostWaiter,
    /// Each request for what is missing goes to the origin.
    AsksForEach,
    /// The cache's word about itself counts one entry too many.
    Miscounts,
}

/// State of a path in the cache.
#[derive(Clone)]
enum State {
    Filling,
    Stored(u64, Arc<Vec<u8>>),
}

struct Cache {
    defect: Defect,
    origin: SocketAddr,
    entries: Mutex<HashMap<String, State>>,
    filled: Condvar,
    waiters: AtomicUsize,
}

/// A running cache; its threads end with the process.
pub(crate) struct Broken {
    address: SocketAddr,
}

impl Broken {
    /// Starts the cache.
    pub(crate) fn start(defect: Defect, origin: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let cache = Arc::new(Cache {
            defect,
            origin,
            entries: Mutex::new(HashMap::new()),
            filled: Condvar::new(),
            waiters: AtomicUsize::new(0),
        });
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let cache = Arc::clone(&cache);
                // The client went away: nothing is left to do for it.
                std::thread::spawn(move || cache.serve(stream.expect("a connection")).ok());
            }
        });
        Self { address }
    }

    /// Address that the cache listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A request line and the field that matters.
struct Request {
    method: String,
    path: String,
    range: Option<String>,
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader
        .read_line(&mut line)
        .ok()
        .filter(|count| *count > 0)?;
    let mut words = line.split(' ');
    let mut request = Request {
        method: words.next()?.to_owned(),
        path: words.next()?.to_owned(),
        range: None,
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => return Some(request),
            line => {
                if let Some(range) = line.strip_prefix("Range: bytes=") {
                    request.range = Some(range.to_owned());
                }
            }
        }
    }
}

impl Cache {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut out = stream;
        while let Some(request) = read_request(&mut reader) {
            if request.method == "PURGE" {
                if self.defect != Defect::PurgeForgotten {
                    self.entries.lock().expect("whole").remove(&request.path);
                }
                out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
                continue;
            }
            if request.path.starts_with("/api/") {
                let told = self.told();
                let len = told.len();
                write!(
                    out,
                    "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{told}"
                )?;
                continue;
            }
            let (is_hit, generation, body) = self.find(&request.path);
            let body = if is_hit {
                self.spoiled(&request.path, generation, &body)
            } else {
                body.to_vec()
            };
            self.answer(&mut out, &request, is_hit, generation, &body)?;
            if is_hit && self.defect == Defect::Truncated {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Content of the cache: a zone and its sites in one.
    fn told(&self) -> String {
        let entries = self.entries.lock().expect("whole");
        let (mut count, mut bytes) = (0, 0);
        for state in entries.values() {
            if let State::Stored(_, body) = state {
                count += 1;
                bytes += body.len();
            }
        }
        count += usize::from(self.defect == Defect::Miscounts);
        format!(
            "{{\"bytes\":{bytes},\"max_size\":null,\
             \"sites\":[{{\"entries\":{count},\"body_bytes\":{bytes}}}]}}"
        )
    }

    /// Finds what is stored, or stores it.
    fn find(&self, path: &str) -> (bool, u64, Arc<Vec<u8>>) {
        let mut entries = self.entries.lock().expect("whole");
        let mut has_waited = false;
        loop {
            match entries.get(path).cloned() {
                Some(State::Stored(generation, body)) => return (true, generation, body),
                Some(State::Filling) if self.defect != Defect::AsksForEach => {
                    let is_first = !has_waited && self.waiters.fetch_add(1, Ordering::SeqCst) == 0;
                    has_waited = true;
                    if self.defect == Defect::LostWaiter && is_first {
                        drop(entries);
                        loop {
                            std::thread::park();
                        }
                    }
                    entries = self.filled.wait(entries).expect("whole");
                }
                _ => break,
            }
        }
        entries.insert(path.to_owned(), State::Filling);
        drop(entries);
        let (generation, body) = self.fetch(path);
        let body = Arc::new(body);
        let mut entries = self.entries.lock().expect("whole");
        match self.defect {
            Defect::NeverHit => entries.remove(path),
            _ => entries.insert(
                path.to_owned(),
                State::Stored(generation, Arc::clone(&body)),
            ),
        };
        self.filled.notify_all();
        (false, generation, body)
    }

    fn fetch(&self, path: &str) -> (u64, Vec<u8>) {
        let mut stream = TcpStream::connect(self.origin).expect("the origin");
        write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head");
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix("X-Generation: "));
        let generation = line.expect("a generation").parse().expect("a number");
        (generation, answer[end + 4..].to_vec())
    }

    /// A stored body as the defect makes it.
    fn spoiled(&self, path: &str, generation: u64, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        let middle = body.len() / 2;
        match self.defect {
            Defect::WrongByte => body[middle] ^= 4,
            Defect::Mixed => {
                let next = Resource::of_path(path)
                    .expect("a length")
                    .content(generation + 1);
                next.write(middle as u64, &mut body[middle..]);
            }
            Defect::Shifted => {
                body.remove(middle);
                body.push(0);
            }
            Defect::Hole => body[8192..12288].fill(0),
            _ => {}
        }
        body
    }

    fn answer(
        &self,
        out: &mut TcpStream,
        request: &Request,
        is_hit: bool,
        generation: u64,
        body: &[u8],
    ) -> std::io::Result<()> {
        let len = body.len();
        let piece = request.range.as_deref().map(|range| piece(range, len));
        let (start, end) = piece.unwrap_or((0, len));
        let status = if piece.is_some() {
            "206 Partial Content"
        } else {
            "200 OK"
        };
        let cache = if is_hit { "HIT" } else { "MISS" };
        write!(
            out,
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nX-Generation: {generation}\r\n\
             X-Cache-Status: {cache}\r\n",
            end - start
        )?;
        if piece.is_some() {
            write!(out, "Content-Range: bytes {start}-{}/{len}\r\n", end - 1)?;
        }
        out.write_all(b"\r\n")?;
        if request.method == "HEAD" {
            return Ok(());
        }
        if piece.is_some() && self.defect == Defect::RangeOffByOne {
            let late = (start + 1).min(len);
            let mut piece = body[late..(end + 1).min(len)].to_vec();
            piece.resize(end - start, b'x');
            return out.write_all(&piece);
        }
        let end = if is_hit && self.defect == Defect::Truncated {
            start + (end - start) / 2
        } else {
            end
        };
        out.write_all(&body[start..end])
    }
}

/// `0-9`, `5-`, `-5`: start and end (excluded).
fn piece(range: &str, len: usize) -> (usize, usize) {
    let (first, last) = range.split_once('-').expect("a range");
    let number = |text: &str| text.parse::<usize>().ok();
    match (number(first), number(last)) {
        (Some(first), Some(last)) => (first, (last + 1).min(len)),
        (Some(first), None) => (first, len),
        (None, Some(count)) => (len.saturating_sub(count), len),
        (None, None) => panic!("{range}"),
    }
}
