//! Floods of HTTP/2: work that costs a client little is expensive for nobody.
//!
//! ```text
//! victim   GET, GET, GET …  on a connection of its own: the median of its times
//! beside   a client that asks as much as it can, and is well-behaved     (the usual time)
//!          a client that floods, and connects again when it is told off  (at most twice that)
//! ```
//!
//! 1. One worker serves both, so what costs the server time costs the victim time.
//! 2. For every connection that a flood has cost its client there is one line in the log, with the
//!    flood and the client, and one in the counter of its kind.
//! 3. The memory of the server has the same bound for all.
//!
//! Frames are written by hand: no library sends what is tried here.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Deadline, Kind, LogCheck, Proxy, offset_bytes};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(30);

const CONF: &str = "%%GLOBALS%%
    worker_processes 1;
    events {}
    http {
        %%HTTP%%
        access_log off;
        keepalive_requests 10000000;
        root %%DIR%%;
        server {
            listen 127.0.0.1:%%PORT%% http2;
            location /few { return 200 few; }
            location /metrics { metrics; }
        }
        server {
            listen 127.0.0.1:%%PORT_SLOW%% http2;
            client_header_timeout 1s;
            keepalive_timeout 1s;
            client_body_timeout 1s;
            send_timeout 1s;
            # A body that is read, and goes nowhere.
            location /up { proxy_pass http://127.0.0.1:%%PORT%%; }
        }
    }";

/// Memory that the server may take for one flood, beyond what it had.
const MEMORY_KIB: u64 = 24 << 10;
/// Bytes of the long answer: more than all streams of a connection may have waiting.
const LONG: u64 = 1 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const PRIORITY_UPDATE: u8 = 16;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
/// A head that is all of its request.
const WHOLE: u8 = END_STREAM | END_HEADERS;

const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const CALM: u32 = 11;

/// Heads without a table: `:method`, `:scheme`, `:path`, `:authority`.
const GET_FEW: &[u8] = b"\x82\x86\x04\x04/few\x01\x01a";
const GET_LONG: &[u8] = b"\x82\x86\x04\x05/long\x01\x01a";
const GET_METRICS: &[u8] = b"\x82\x86\x04\x08/metrics\x01\x01a";
const POST_FEW: &[u8] = b"\x83\x86\x04\x04/few\x01\x01a";
const POST_UP: &[u8] = b"\x83\x86\x04\x03/up\x01\x01a";

/// The bytes of a frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The payload of SETTINGS with one setting.
fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// SETTINGS of an initial window.
fn window(len: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &setting(4, len))
}

/// A frame that was read.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// The code of a GOAWAY, or of a reset.
    fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        let code = self
            .payload
            .get(at..at + 4)
            .and_then(|it| it.try_into().ok());
        code.map_or(u32::MAX, u32::from_be_bytes)
    }
}

/// A connection.
struct Raw {
    socket: TcpStream,
    came: Vec<u8>,
    /// The last stream that was begun.
    stream: u32,
}

impl Raw {
    /// A connection of which the preface was sent, with what follows it.
    fn open(port: u16, first: &[u8]) -> Result<Raw> {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(WAIT))?;
        socket.set_write_timeout(Some(WAIT))?;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        socket.write_all(&[preface, &frame(SETTINGS, 0, 0, &[])[..], first].concat())?;
        Ok(Raw {
            socket,
            came: Vec::new(),
            stream: u32::MAX,
        })
    }

    /// A connection of a client that has room for all that it asks for.
    fn well_behaved(port: u16) -> Result<Raw> {
        let room = frame(WINDOW_UPDATE, 0, 0, &[0x3f, 0, 0, 0]);
        Raw::open(port, &[window(1 << 30), room].concat())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.socket.write_all(bytes)?)
    }

    /// A frame that has come already.
    fn take(&mut self) -> Option<Frame> {
        let [a, b, c, kind, flags, stream @ ..] = self.came.first_chunk::<9>()?;
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let (kind, flags, stream) = (*kind, *flags, u32::from_be_bytes(*stream));
        let payload = self.came.get(9..9 + len)?.to_vec();
        self.came.drain(..9 + len);
        Some(Frame {
            kind,
            flags,
            stream,
            payload,
        })
    }

    /// The next frame; none at the end of the connection.
    fn next(&mut self) -> Result<Option<Frame>> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(frame) = self.take() {
                return Ok(Some(frame));
            }
            match self.socket.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.came.extend(&buffer[..count]),
                // What was not read by the server makes its end a reset.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error).context("reading a frame"),
            }
        }
    }

    /// The body of an answer.
    fn get(&mut self, block: &[u8]) -> Result<Vec<u8>> {
        self.stream = self.stream.wrapping_add(2);
        self.send(&frame(HEADERS, WHOLE, self.stream, block))?;
        let mut body = Vec::new();
        loop {
            let frame = self.next()?.context("the connection has ended")?;
            ensure!(
                frame.kind != GOAWAY && frame.kind != RST_STREAM,
                "no answer"
            );
            if frame.stream == self.stream {
                if frame.kind == DATA {
                    body.extend(&frame.payload);
                }
                if frame.flags & END_STREAM != 0 {
                    return Ok(body);
                }
            }
        }
    }

    /// Asks for so many short answers at once, and reads them.
    fn get_many(&mut self, count: u32) -> Result<()> {
        let mut heads = Vec::new();
        for _ in 0..count {
            self.stream = self.stream.wrapping_add(2);
            heads.extend(frame(HEADERS, WHOLE, self.stream, GET_FEW));
        }
        self.send(&heads)?;
        let mut left = count;
        while left > 0 {
            let frame = self.next()?.context("the connection has ended")?;
            let is_end = frame.kind <= HEADERS && frame.flags & END_STREAM != 0;
            left -= u32::from(is_end);
        }
        Ok(())
    }
}

/// A flood.
struct Case {
    what: &'static str,
    /// The kind, as the counter has it.
    kind: &'static str,
    /// The words of the log.
    words: &'static str,
    /// The code of GOAWAY.
    code: u32,
    /// Bytes behind the preface.
    first: fn() -> Vec<u8>,
    /// Bytes of each turn, which are many in all.
    next: fn(u32) -> Vec<u8>,
}

/// Streams whose answers have no room to go.
fn blocked_streams() -> Vec<u8> {
    let mut all = window(0);
    for turn in 0..100 {
        all.extend(frame(HEADERS, WHOLE, 2 * turn + 1, GET_FEW));
    }
    all
}

fn nothing() -> Vec<u8> {
    Vec::new()
}

/// A request whose body is to come.
fn open_body() -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, POST_UP)
}

fn ask(turn: u32) -> (u32, Vec<u8>) {
    let stream = 2 * turn + 1;
    (stream, frame(HEADERS, WHOLE, stream, GET_FEW))
}

/// A request with one more field, none of which has an end of its own.
fn post_with(turn: u32, name: &str, value: &str) -> (u32, Vec<u8>) {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let block = [POST_FEW, &[0], &text(name), &text(value)].concat();
    let stream = 2 * turn + 1;
    (stream, frame(HEADERS, END_HEADERS, stream, &block))
}

/// A short block that stands for a long head: an entry of nearly 4 KiB, many times.
fn bomb() -> Vec<u8> {
    // 0x40: a literal that is kept. The length has a prefix of seven bits: 3900 = 127 + 3773.
    let mut block = GET_FEW.to_vec();
    block.extend(b"\x40\x01x\x7f\xbd\x1d");
    block.extend([b'y'; 3900]);
    // 0xbe: the entry that was added last.
    block.extend([0xbe; 12_000]);
    block
}

const CASES: &[Case] = &[
    Case {
        what: "rapid reset (CVE-2023-44487)",
        kind: "resets",
        words: "RST_STREAM frames",
        code: CALM,
        first: nothing,
        next: |turn| {
            let (stream, head) = ask(turn);
            [head, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
        },
    },
    Case {
        what: "made to reset (CVE-2025-8671): WINDOW_UPDATE by nothing",
        kind: "made_resets",
        words: "faulty streams, each to be reset",
        code: CALM,
        first: nothing,
        next: |turn| {
            let (stream, head) = ask(turn);
            [head, frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
        },
    },
    Case {
        what: "made to reset: a window that overflows",
        kind: "made_resets",
        words: "faulty streams, each to be reset",
        code: CALM,
        first: nothing,
        next: |turn| {
            let (stream, head) = ask(turn);
            let most = [0x7f, 0xff, 0xff, 0xff];
            [head, frame(WINDOW_UPDATE, 0, stream, &most)].concat()
        },
    },
    Case {
        what: "made to reset: DATA behind the end",
        kind: "made_resets",
        words: "faulty streams, each to be reset",
        code: CALM,
        first: nothing,
        next: |turn| {
            let (stream, head) = ask(turn);
            [head, frame(DATA, 0, stream, b"x")].concat()
        },
    },
    Case {
        what: "made to reset: a body of another length",
        kind: "made_resets",
        words: "faulty streams, each to be reset",
        code: CALM,
        first: nothing,
        next: |turn| {
            let (stream, head) = post_with(turn, "content-length", "3");
            [head, frame(DATA, END_STREAM, stream, b"x")].concat()
        },
    },
    Case {
        what: "made to reset: a malformed head",
        kind: "made_resets",
        words: "faulty streams, each to be reset",
        code: CALM,
        first: nothing,
        next: |turn| post_with(turn, "connection", "close").1,
    },
    Case {
        what: "streams beyond those that may be at once",
        kind: "refused_streams",
        words: "refused streams",
        // nginx.
        code: NO_ERROR,
        first: blocked_streams,
        next: |turn| frame(HEADERS, WHOLE, 2 * (turn + 100) + 1, GET_FEW),
    },
    Case {
        what: "CONTINUATION without end (CVE-2024-27316)",
        kind: "continuations",
        words: "CONTINUATION frames",
        code: CALM,
        first: || frame(HEADERS, END_STREAM, 1, GET_FEW),
        next: |_| frame(CONTINUATION, 0, 1, b"\x00\x01x\x01y"),
    },
    Case {
        what: "empty CONTINUATION without end",
        kind: "continuations",
        words: "CONTINUATION frames",
        code: CALM,
        first: || frame(HEADERS, END_STREAM, 1, GET_FEW),
        next: |_| frame(CONTINUATION, 0, 1, &[]),
    },
    Case {
        what: "much empty CONTINUATION with an end",
        kind: "continuations",
        words: "CONTINUATION frames",
        code: CALM,
        first: nothing,
        next: |turn| {
            let mut all = frame(HEADERS, END_STREAM, 2 * turn + 1, GET_FEW);
            all.extend(frame(CONTINUATION, 0, 2 * turn + 1, &[]).repeat(100));
            all.extend(frame(CONTINUATION, END_HEADERS, 2 * turn + 1, &[]));
            all
        },
    },
    Case {
        what: "long CONTINUATION without end",
        kind: "long_heads",
        words: "long heads",
        code: CALM,
        first: || frame(HEADERS, END_STREAM, 1, GET_FEW),
        next: |_| frame(CONTINUATION, 0, 1, &[0; 16_000]),
    },
    Case {
        what: "an HPACK bomb",
        kind: "long_heads",
        words: "long heads",
        code: CALM,
        first: nothing,
        next: |turn| frame(HEADERS, WHOLE, 2 * turn + 1, &bomb()),
    },
    Case {
        what: "SETTINGS",
        kind: "settings",
        words: "SETTINGS frames",
        code: CALM,
        first: nothing,
        next: |_| frame(SETTINGS, 0, 0, &[]),
    },
    Case {
        what: "small windows: an initial window that changes, and many streams that wait for it",
        kind: "settings",
        words: "SETTINGS frames",
        code: CALM,
        first: blocked_streams,
        next: |turn| window(turn % 2),
    },
    Case {
        what: "huge tables of heads, that come and go",
        kind: "settings",
        words: "SETTINGS frames",
        code: CALM,
        first: nothing,
        next: |turn| {
            let size = if turn.is_multiple_of(2) { u32::MAX } else { 0 };
            let mut all = frame(SETTINGS, 0, 0, &setting(1, size));
            // No more streams than may be.
            if turn % 50 == 0 {
                all.extend(ask(turn).1);
            }
            all
        },
    },
    Case {
        what: "PING",
        kind: "pings",
        words: "PING frames",
        code: CALM,
        first: nothing,
        next: |_| frame(PING, 0, 0, &[7; 8]),
    },
    Case {
        what: "PRIORITY",
        kind: "priorities",
        words: "PRIORITY frames",
        code: CALM,
        first: blocked_streams,
        next: |turn| {
            let parent = (2 * (turn % 50) + 101).to_be_bytes();
            let payload = [&parent[..], &[9]].concat();
            frame(PRIORITY, 0, 2 * (turn % 50) + 1, &payload)
        },
    },
    Case {
        what: "PRIORITY_UPDATE",
        kind: "priorities",
        words: "PRIORITY frames",
        code: CALM,
        first: blocked_streams,
        next: |turn| {
            let stream = (2 * (turn % 100) + 1).to_be_bytes();
            let payload = [&stream[..], b"u=", &[b'0' + (turn % 8) as u8]].concat();
            frame(PRIORITY_UPDATE, 0, 0, &payload)
        },
    },
    Case {
        what: "empty DATA (CVE-2019-9518)",
        kind: "empty_data",
        words: "empty DATA frames",
        code: CALM,
        first: open_body,
        next: |_| frame(DATA, 0, 1, &[]),
    },
    Case {
        what: "DATA that is padding",
        kind: "empty_data",
        words: "empty DATA frames",
        code: CALM,
        first: open_body,
        next: |_| frame(DATA, PADDED, 1, &[&[255][..], &[0; 255]].concat()),
    },
    Case {
        what: "WINDOW_UPDATE by one, of streams that wait for it (CVE-2019-9511)",
        kind: "window_updates",
        words: "WINDOW_UPDATE frames",
        code: CALM,
        first: blocked_streams,
        next: |turn| frame(WINDOW_UPDATE, 0, 2 * (turn % 100) + 1, &[0, 0, 0, 1]),
    },
    Case {
        what: "WINDOW_UPDATE by one, of a connection",
        kind: "window_updates",
        words: "WINDOW_UPDATE frames",
        code: CALM,
        first: nothing,
        next: |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
    },
    Case {
        what: "frames of unknown kinds",
        kind: "unknown_frames",
        words: "frames of unknown kinds",
        code: CALM,
        first: nothing,
        next: |turn| frame(0xaa, 0, turn, b"unknown"),
    },
    Case {
        what: "frames that carry nothing",
        kind: "overhead",
        words: "frames without payload",
        code: CALM,
        first: blocked_streams,
        next: |_| frame(GOAWAY, 0, 0, &[0; 16_000]),
    },
    Case {
        what: "SETTINGS of many settings",
        kind: "long_frames",
        words: "long frames",
        code: CALM,
        first: nothing,
        next: |_| frame(SETTINGS, 0, 0, &setting(0xabcd, 1).repeat(200)),
    },
];

impl Case {
    /// Floods on a connection until the server ends it; gives the code of GOAWAY.
    fn flood(&self, port: u16) -> Result<u32> {
        let raw = Raw::open(port, &(self.first)())?;
        let mut writer = raw.socket.try_clone()?;
        let mut reader = raw;
        let reading = std::thread::spawn(move || -> Result<Option<u32>> {
            let mut code = None;
            while let Some(frame) = reader.next()? {
                if frame.kind == GOAWAY {
                    code = Some(frame.code());
                    break;
                }
            }
            Ok(code)
        });
        let mut turns = 0..2_000_000;
        while !reading.is_finished() {
            let mut some = Vec::new();
            while some.len() < 16 * 1024
                && let Some(turn) = turns.next()
            {
                some.extend((self.next)(turn));
            }
            ensure!(!some.is_empty(), "{}: nobody has minded", self.what);
            if writer.write_all(&some).is_err() {
                break;
            }
        }
        let code = reading.join().map_err(|_| anyhow::anyhow!("a panic"))??;
        code.with_context(|| format!("{}: no GOAWAY", self.what))
    }
}

/// Runs something beside the victim until that has its times: the median of them, and what the
/// other has to say of its own turns.
fn beside<T: Send>(
    victim: &mut Raw,
    turn: impl Fn() -> Result<T> + Send + Sync,
) -> Result<(Duration, Vec<T>)> {
    /// Requests whose times count.
    const REQUESTS: usize = 101;
    let (is_over, turn) = (AtomicBool::new(false), &turn);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut all = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                all.push(turn()?);
            }
            anyhow::Ok(all)
        });
        let mut times = Vec::new();
        let mut measure = || -> Result<()> {
            while times.len() < REQUESTS {
                let begin = Instant::now();
                ensure!(victim.get(GET_FEW)? == b"few");
                times.push(begin.elapsed());
            }
            Ok(())
        };
        let measured = measure();
        is_over.store(true, Ordering::Relaxed);
        let all = other.join().map_err(|_| anyhow::anyhow!("a panic"))??;
        measured?;
        times.sort();
        Ok((times[REQUESTS / 2], all))
    })
}

/// The victim's usual time: beside a client that asks as much as it can.
fn usual_time(victim: &mut Raw, port: u16) -> Result<Duration> {
    let busy = Arc::new(std::sync::Mutex::new(Raw::well_behaved(port)?));
    let (median, _) = beside(victim, || {
        let mut busy = busy.lock().map_err(|_| anyhow::anyhow!("a panic"))?;
        busy.get_many(100)
    })?;
    Ok(median)
}

fn start() -> Result<Proxy> {
    Proxy::new(Kind::Millpond, CONF)
        .file("long", offset_bytes(0..LONG, 1))
        .log_check(LogCheck::Off)
        .start()
}

/// A counter, as the victim gets it.
fn counter(victim: &mut Raw, name: &str) -> Result<u64> {
    let page = String::from_utf8(victim.get(GET_METRICS)?)?;
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    let number = line.with_context(|| format!("no {name} in {page}"))?;
    Ok(number.trim().parse()?)
}

/// Lines of the log that tell of a flood by this client.
fn told(proxy: &Proxy, words: &str) -> u64 {
    let log = proxy.error_log();
    let words =
        format!("http2 flood: {words} while processing HTTP/2 connection, client: 127.0.0.1");
    let lines = log.lines().filter(|line| line.contains(&words));
    lines.filter(|line| line.contains("[warn]")).count() as u64
}

/// A number of `/proc/PID/status`, KiB.
fn memory(proxy: &Proxy, name: &str) -> Result<u64> {
    let pid = proxy.pid().context("it runs")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("no such line")?.parse()?)
}

/// Forgets the peak of the memory.
fn forget_peak(proxy: &Proxy) -> Result<()> {
    let pid = proxy.pid().context("it runs")?;
    Ok(std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
}

/// One flood, in all that is asked of it; gives the victim's usual time and that beside the flood.
fn try_case(proxy: &Proxy, victim: &mut Raw, case: &Case) -> Result<(Duration, Duration)> {
    let name = format!("millpond_http2_floods_total{{kind=\"{}\"}} ", case.kind);
    let usual = usual_time(victim, proxy.port())?;
    let (count, lines) = (counter(victim, &name)?, told(proxy, case.words));
    let before = memory(proxy, "VmRSS:")?;
    forget_peak(proxy)?;
    let (during, codes) = beside(victim, || case.flood(proxy.port()))?;
    let peak = memory(proxy, "VmHWM:")?;
    ensure!(
        codes.iter().all(|code| *code == case.code),
        "codes {codes:?}"
    );
    let grown = peak.saturating_sub(before);
    ensure!(grown < MEMORY_KIB, "{grown} KiB more");
    let (count, floods) = (counter(victim, &name)? - count, codes.len() as u64);
    ensure!(count == floods, "{count} were counted of {floods}");
    let is_told = || (told(proxy, case.words) - lines >= floods).then_some(());
    Deadline::after(WAIT)
        .poll(is_told)
        .context("no line in the log")?;
    let lines = told(proxy, case.words) - lines;
    ensure!(lines == floods, "{lines} lines for {floods}");
    Ok((usual, during))
}

/// CVE-2023-44487, CVE-2024-27316, CVE-2025-8671, CVE-2019-9511 to 9518, and their kin.
#[test]
fn who_floods_is_ended_and_named_and_others_are_served_as_usual() -> Result<()> {
    /// Tries, since other programs take their share of the machine too.
    const TRIES: usize = 5;
    let proxy = start()?;
    let mut victim = Raw::well_behaved(proxy.port())?;
    // What is made once is no flood's memory.
    victim.get_many(100)?;
    for case in CASES {
        let mut all = Vec::new();
        let is_good = loop {
            let (usual, during) = try_case(&proxy, &mut victim, case).context(case.what)?;
            all.push((usual, during));
            if during <= usual * 2 {
                break true;
            }
            if all.len() == TRIES {
                break false;
            }
        };
        println!("{}: {all:?}", case.what);
        ensure!(is_good, "{}: usual and during {all:?}", case.what);
    }
    Ok(())
}

/// Waits for a counter to have grown by so much.
fn wait_for(victim: &mut Raw, name: &str, count: u64) -> Result<()> {
    let mut last = 0;
    let has_grown = || {
        last = counter(victim, name).ok()?;
        (last >= count).then_some(())
    };
    let outcome = Deadline::after(WAIT).poll(has_grown);
    outcome.with_context(|| format!("{name}: {last} of {count}"))
}

/// Lines of the log with a client that was too slow.
fn told_slow(proxy: &Proxy, words: &str) -> usize {
    let log = proxy.error_log();
    let lines = log.lines().filter(|line| line.contains(words));
    lines
        .filter(|line| line.contains(", client: 127.0.0.1"))
        .count()
}

/// The counter of clients that were too slow with a part.
fn slow(part: &str) -> String {
    format!("millpond_http2_slow_total{{part=\"{part}\"}} ")
}

/// Resets of streams that come until there are so many; what else comes is passed over.
fn resets(raw: &mut Raw, count: usize) -> Result<Vec<u32>> {
    let mut codes = Vec::new();
    while codes.len() < count {
        let frame = raw.next()?.context("the connection has ended")?;
        ensure!(frame.kind != GOAWAY, "GOAWAY {}", frame.code());
        if frame.kind == RST_STREAM {
            codes.push(frame.code());
        }
    }
    Ok(codes)
}

/// Windows that never open: `send_timeout` ends the streams, which hold no body meanwhile.
#[test]
fn answers_that_have_no_room_end_and_hold_no_memory() -> Result<()> {
    const CONNECTIONS: usize = 10;
    const STREAMS: u32 = 100;
    let proxy = start()?;
    let mut victim = Raw::well_behaved(proxy.port())?;
    victim.get_many(100)?;
    let before = memory(&proxy, "VmRSS:")?;
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut first = window(0);
        for turn in 0..STREAMS {
            first.extend(frame(HEADERS, WHOLE, 2 * turn + 1, GET_LONG));
        }
        all.push(Raw::open(proxy.named_port("PORT_SLOW"), &first)?);
    }
    let mut most = 0;
    for raw in &mut all {
        // The victim is served while they wait.
        ensure!(victim.get(GET_FEW)? == b"few");
        most = most.max(memory(&proxy, "VmRSS:")?);
        let codes = resets(raw, STREAMS as usize)?;
        ensure!(
            codes.iter().all(|code| *code == PROTOCOL_ERROR),
            "{codes:?}"
        );
        // The connection goes on.
        raw.send(&frame(PING, 0, 0, &[1; 8]))?;
        while raw.next()?.context("the connection has ended")?.kind != PING {}
    }
    let grown = most.saturating_sub(before);
    // A thousand streams; a body's first piece alone is 32 KiB.
    ensure!(grown < MEMORY_KIB, "{grown} KiB more");
    let count = CONNECTIONS * STREAMS as usize;
    wait_for(&mut victim, &slow("answer"), count as u64)?;
    let is_told = || (told_slow(&proxy, "client timed out") == count).then_some(());
    let told = Deadline::after(WAIT).poll(is_told);
    told.with_context(|| format!("{} lines", told_slow(&proxy, "client timed out")))
}

/// Windows that let a byte through now and then are slow, and hold no more than others.
#[test]
fn answers_that_go_byte_by_byte_hold_no_memory() -> Result<()> {
    const STREAMS: u32 = 100;
    let proxy = start()?;
    let mut victim = Raw::well_behaved(proxy.port())?;
    victim.get_many(100)?;
    let before = memory(&proxy, "VmRSS:")?;
    let mut first = window(1);
    for turn in 0..STREAMS {
        first.extend(frame(HEADERS, WHOLE, 2 * turn + 1, GET_LONG));
    }
    let mut raw = Raw::open(proxy.port(), &first)?;
    for _ in 0..50 {
        let mut updates = Vec::new();
        for turn in 0..STREAMS {
            updates.extend(frame(WINDOW_UPDATE, 0, 2 * turn + 1, &[0, 0, 0, 1]));
        }
        raw.send(&updates)?;
        let mut bytes = 0;
        while bytes < STREAMS as usize {
            let frame = raw.next()?.context("the connection has ended")?;
            if frame.kind == DATA {
                ensure!(frame.payload.len() < 3, "{} bytes", frame.payload.len());
                bytes += frame.payload.len();
            }
        }
        ensure!(victim.get(GET_FEW)? == b"few");
    }
    let grown = memory(&proxy, "VmRSS:")?.saturating_sub(before);
    ensure!(grown < MEMORY_KIB, "{grown} KiB more");
    Ok(())
}

/// A client that takes no byte of what it has asked for: its connection is closed.
#[test]
fn a_client_that_reads_nothing_is_left() -> Result<()> {
    let proxy = start()?;
    let mut victim = Raw::well_behaved(proxy.port())?;
    victim.get_many(100)?;
    let before = memory(&proxy, "VmRSS:")?;
    let mut first = [
        window(1 << 30),
        frame(WINDOW_UPDATE, 0, 0, &[0x3f, 0, 0, 0]),
    ]
    .concat();
    for turn in 0..100 {
        first.extend(frame(HEADERS, WHOLE, 2 * turn + 1, GET_LONG));
    }
    let raw = Raw::open(proxy.named_port("PORT_SLOW"), &first)?;
    wait_for(&mut victim, &slow("connection"), 1)?;
    let grown = memory(&proxy, "VmRSS:")?.saturating_sub(before);
    ensure!(grown < MEMORY_KIB, "{grown} KiB more");
    let words = "client timed out while processing HTTP/2 connection";
    let is_told = || (told_slow(&proxy, words) == 1).then_some(());
    Deadline::after(WAIT)
        .poll(is_told)
        .context("no line in the log")?;
    drop(raw);
    Ok(())
}

/// A head byte by byte: `client_header_timeout` counts from its first, and resets its stream.
/// Behind a head that goes on for ever nothing else can come: `keepalive_timeout` ends its
/// connection.
#[test]
fn a_head_that_comes_byte_by_byte_ends_its_stream_and_then_its_connection() -> Result<()> {
    let proxy = start()?;
    let mut victim = Raw::well_behaved(proxy.port())?;
    let first = frame(HEADERS, END_STREAM, 1, b"\x82");
    let mut raw = Raw::open(proxy.named_port("PORT_SLOW"), &first)?;
    // Slow enough that they are no flood.
    raw.socket
        .set_read_timeout(Some(Duration::from_millis(100)))?;
    let deadline = Deadline::after(WAIT);
    let mut said = Vec::new();
    while !deadline.is_over() && said.len() < 2 {
        // The end of a connection is seen by the read.
        let _ = raw.send(&frame(CONTINUATION, 0, 1, b"\x86"));
        match raw.next() {
            Ok(Some(frame)) if [RST_STREAM, GOAWAY].contains(&frame.kind) => {
                said.push((frame.kind, frame.code()));
            }
            Ok(None) => break,
            // Nothing has come.
            Ok(Some(_)) | Err(_) => {}
        }
        ensure!(victim.get(GET_FEW)? == b"few");
    }
    ensure!(
        said == [(RST_STREAM, PROTOCOL_ERROR), (GOAWAY, PROTOCOL_ERROR)],
        "{said:?}"
    );
    wait_for(&mut victim, &slow("head"), 2)?;
    let words = "client timed out while reading a request's head";
    ensure!(told_slow(&proxy, words) == 2, "{}", proxy.error_log());
    Ok(())
}

/// A head of which nothing more comes at all holds its connection no longer than that.
#[test]
fn a_head_without_its_rest_ends_its_connection() -> Result<()> {
    let proxy = start()?;
    let first = frame(HEADERS, END_STREAM, 1, b"\x82");
    let mut raw = Raw::open(proxy.named_port("PORT_SLOW"), &first)?;
    let mut last = None;
    while let Some(frame) = raw.next()? {
        last = Some((frame.kind, frame.code()));
    }
    ensure!(last == Some((GOAWAY, PROTOCOL_ERROR)), "{last:?}");
    Ok(())
}

/// Bodies byte by byte, that then stop: `client_body_timeout` ends each of their streams.
#[test]
fn bodies_that_come_byte_by_byte_and_stop_end_their_streams() -> Result<()> {
    const STREAMS: u32 = 100;
    let proxy = start()?;
    let mut victim = Raw::well_behaved(proxy.port())?;
    victim.get_many(100)?;
    let before = memory(&proxy, "VmRSS:")?;
    let mut first = Vec::new();
    for turn in 0..STREAMS {
        first.extend(frame(HEADERS, END_HEADERS, 2 * turn + 1, POST_UP));
    }
    let mut raw = Raw::open(proxy.named_port("PORT_SLOW"), &first)?;
    for _ in 0..20 {
        for turn in 0..STREAMS {
            raw.send(&frame(DATA, 0, 2 * turn + 1, b"x"))?;
        }
        ensure!(victim.get(GET_FEW)? == b"few");
    }
    let codes = resets(&mut raw, STREAMS as usize)?;
    ensure!(
        codes.iter().all(|code| *code == PROTOCOL_ERROR),
        "{codes:?}"
    );
    let grown = memory(&proxy, "VmRSS:")?.saturating_sub(before);
    ensure!(grown < MEMORY_KIB, "{grown} KiB more");
    wait_for(&mut victim, &slow("body"), u64::from(STREAMS))?;
    let count = told_slow(&proxy, "client timed out");
    ensure!(
        count == STREAMS as usize,
        "{count} lines: {}",
        proxy.error_log()
    );
    Ok(())
}
