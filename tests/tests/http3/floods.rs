//! Floods of HTTP/3: work that costs a client little is expensive for nobody.
//!
//! ```text
//! victim   GET, GET, GET …  on a connection of its own: the median of its times
//! beside   a client that asks as much as it can, and is well-behaved     (the usual time)
//!          a client that floods, and connects again when it is told off  (at most twice that)
//! ```
//!
//! 1. One worker serves both, so what costs the server time costs the victim time.
//! 2. For every connection that a flood has cost its client there is one line in the log, and one
//!    in the counter of its kind.
//! 3. The memory of the server has the same bound for all.
//!
//! Streams are QUIC's own, and frames written by hand: no library sends what is tried here. Frames
//! of QUIC come of aioquic (`tests/clients/quic_floods.py`), into which others can be put. What
//! QUIC itself bounds (streams at once, so those of unknown kinds too, and windows) is quinn's.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Deadline, Kind, LogCheck, Proxy, offset_bytes, skip};
use quinn::{
    ApplicationClose, Connection, ConnectionError, Endpoint, RecvStream, SendStream,
    TransportConfig, VarInt,
};

use crate::kit::WAIT as WAIT_ALL;
use crate::kit::{Connected, Identity, client_config, connect, get, identity, run, run_within};

const WAIT: Duration = Duration::from_secs(30);

const CONF: &str = "%%GLOBALS%%
    worker_processes 1;
    events {}
    http {
        %%HTTP%%
        access_log off;
        keepalive_requests 10000000;
        root %%DIR%%;
        ssl_certificate %%DIR%%/cert.pem;
        ssl_certificate_key %%DIR%%/key.pem;
        server {
            listen 127.0.0.1:%%PORT%% quic;
            server_name localhost;
            location /few { return 200 few; }
            location /metrics { metrics; }
            # A body that is read, and goes nowhere.
            location /up { proxy_pass http://127.0.0.1:%%PORT_PLAIN%%; }
        }
        server {
            listen 127.0.0.1:%%PORT_SLOW%% quic;
            client_header_timeout 1s;
            send_timeout 1s;
        }
        server {
            listen 127.0.0.1:%%PORT_PLAIN%%;
            location / { return 200 few; }
        }
    }";

/// Memory that the server may take for one flood, beyond what it had.
const MEMORY_KIB: u64 = 24 << 10;
/// Bytes of the long answer: more than all streams of a connection may have waiting.
const LONG: u64 = 1 << 20;

const EXCESSIVE_LOAD: u64 = 0x107;
const FRAME_UNEXPECTED: u64 = 0x105;
const ID_ERROR: u64 = 0x108;
const REQUEST_INCOMPLETE: u64 = 0x10d;

const DATA: u64 = 0;
const HEADERS: u64 = 1;
const CANCEL_PUSH: u64 = 3;
const SETTINGS: u64 = 4;
const GOAWAY: u64 = 7;
const MAX_PUSH_ID: u64 = 0xd;
const GREASE: u64 = 0x21;
const PRIORITY_UPDATE: u64 = 0xf_0700;

/// Heads that need no table: method, scheme, `:path`, `:authority`.
const GET_FEW: &[u8] = b"\0\0\xd1\xd7\x51\x04/few\x50\x09localhost";
const GET_LONG: &[u8] = b"\0\0\xd1\xd7\x51\x05/long\x50\x09localhost";
const POST_UP: &[u8] = b"\0\0\xd4\xd7\x51\x03/up\x50\x09localhost";
/// A head with a field of HTTP/1.
const BAD: &[u8] = b"\0\0\xd1\xd7\x51\x04/few\x50\x09localhost\x27\x03connection\x05close";
/// A block that waits for an insertion that never comes.
const BLOCKED: &[u8] = b"\x02\0\xd1\xd7\x51\x04/few\x50\x09localhost\x80";

fn integer(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![value as u8],
        0x40..0x4000 => (0x4000 | value as u16).to_be_bytes().to_vec(),
        _ => (0x8000_0000 | value as u32).to_be_bytes().to_vec(),
    }
}

/// The bytes of a frame.
fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [
        integer(kind),
        integer(payload.len() as u64),
        payload.to_vec(),
    ]
    .concat()
}

/// A client whose control stream has told its settings.
struct Raw {
    quic: Connection,
    control: SendStream,
    _endpoint: Endpoint,
}

impl Raw {
    async fn connect(port: u16, identity: &Identity, window: Option<u32>) -> Result<Raw> {
        let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into())?;
        let mut config = client_config(identity)?;
        let mut transport = TransportConfig::default();
        if let Some(window) = window {
            transport.stream_receive_window(window.into());
        }
        transport.max_idle_timeout(Some(WAIT.try_into()?));
        config.transport_config(Arc::new(transport));
        endpoint.set_default_client_config(config);
        let quic = endpoint
            .connect(([127, 0, 0, 1], port).into(), "localhost")?
            .await?;
        let mut control = quic.open_uni().await?;
        control
            .write_all(&[&[0], &frame(SETTINGS, &[])[..]].concat())
            .await?;
        Ok(Raw {
            quic,
            control,
            _endpoint: endpoint,
        })
    }

    /// A stream of one direction with its kind.
    async fn open(&self, kind: u8) -> Result<SendStream> {
        let mut stream = self.quic.open_uni().await?;
        stream.write_all(&[kind]).await?;
        Ok(stream)
    }

    /// A request's stream with its head.
    async fn ask(&self, block: &[u8]) -> Result<(SendStream, RecvStream)> {
        let (mut send, receive) = self.quic.open_bi().await?;
        send.write_all(&frame(HEADERS, block)).await?;
        Ok((send, receive))
    }

    /// The code that the server has closed the connection with. The packet that says it may be
    /// lost; then a stateless reset says that the connection is gone.
    async fn end(&self) -> Result<u64> {
        let closed = tokio::time::timeout(WAIT, self.quic.closed()).await;
        match closed.context("the connection goes on")? {
            ConnectionError::ApplicationClosed(ApplicationClose { error_code, .. }) => {
                Ok(error_code.into_inner())
            }
            ConnectionError::Reset => Ok(EXCESSIVE_LOAD),
            other => Err(other.into()),
        }
    }
}

type Turns<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// A flood.
struct Case {
    what: &'static str,
    /// The kind, as the counter has it.
    kind: &'static str,
    /// The words of the log.
    words: &'static str,
    /// Sends without end; an error is the end of the connection.
    flood: for<'a> fn(&'a mut Raw) -> Turns<'a>,
}

/// Bytes of a piece: many small frames at once.
const PIECE: usize = 16 * 1024;

/// Writes a frame again and again.
async fn repeat(stream: &mut SendStream, bytes: Vec<u8>) -> Result<()> {
    let piece = bytes.repeat(PIECE.div_ceil(bytes.len()));
    loop {
        stream.write_all(&piece).await?;
    }
}

const CASES: &[Case] = &[
    Case {
        what: "rapid reset (CVE-2023-44487)",
        kind: "resets",
        words: "reset requests",
        flood: |raw| {
            Box::pin(async {
                loop {
                    let (mut send, mut receive) = raw.ask(GET_FEW).await?;
                    send.reset(VarInt::from_u32(0x10c))?;
                    receive.stop(VarInt::from_u32(0x10c))?;
                }
            })
        },
    },
    Case {
        what: "answers that nobody wants",
        kind: "resets",
        words: "reset requests",
        flood: |raw| {
            Box::pin(async {
                loop {
                    let (send, mut receive) = raw.ask(GET_LONG).await?;
                    receive.stop(VarInt::from_u32(0x10c))?;
                    drop(send);
                }
            })
        },
    },
    Case {
        what: "made to reset (CVE-2025-8671): requests without a head",
        kind: "made_resets",
        words: "faulty streams, each to be reset",
        flood: |raw| {
            Box::pin(async {
                loop {
                    let (mut send, _receive) = raw.quic.open_bi().await?;
                    send.finish()?;
                }
            })
        },
    },
    Case {
        what: "made to reset: malformed heads",
        kind: "made_resets",
        words: "faulty streams, each to be reset",
        flood: |raw| {
            Box::pin(async {
                loop {
                    let (mut send, mut receive) = raw.ask(BAD).await?;
                    // It may have been stopped before.
                    let _ = send.finish();
                    receive.read_to_end(PIECE).await?;
                }
            })
        },
    },
    Case {
        what: "PRIORITY_UPDATE",
        kind: "priorities",
        words: "PRIORITY_UPDATE frames",
        flood: |raw| Box::pin(repeat(&mut raw.control, frame(PRIORITY_UPDATE, b"\0u=1"))),
    },
    Case {
        what: "long PRIORITY_UPDATE",
        kind: "long_frames",
        words: "long frames",
        flood: |raw| Box::pin(repeat(&mut raw.control, frame(PRIORITY_UPDATE, &[0; 1000]))),
    },
    Case {
        what: "MAX_PUSH_ID",
        kind: "unknown_frames",
        words: "frames of unknown kinds",
        flood: |raw| Box::pin(repeat(&mut raw.control, frame(MAX_PUSH_ID, &[7]))),
    },
    Case {
        what: "GOAWAY",
        kind: "unknown_frames",
        words: "frames of unknown kinds",
        flood: |raw| Box::pin(repeat(&mut raw.control, frame(GOAWAY, &[0]))),
    },
    Case {
        what: "GREASE on the control stream",
        kind: "unknown_frames",
        words: "frames of unknown kinds",
        flood: |raw| Box::pin(repeat(&mut raw.control, frame(GREASE, &[]))),
    },
    Case {
        what: "GREASE on a request's stream",
        kind: "unknown_frames",
        words: "frames of unknown kinds",
        flood: |raw| {
            Box::pin(async {
                let (mut send, _receive) = raw.ask(POST_UP).await?;
                repeat(&mut send, frame(GREASE, b"x")).await
            })
        },
    },
    Case {
        what: "empty DATA (CVE-2019-9518)",
        kind: "empty_data",
        words: "empty DATA frames",
        flood: |raw| {
            Box::pin(async {
                let (mut send, _receive) = raw.ask(POST_UP).await?;
                repeat(&mut send, frame(DATA, &[])).await
            })
        },
    },
    Case {
        what: "copies of an entry of the table",
        kind: "table_instructions",
        words: "instructions for the table",
        flood: |raw| {
            Box::pin(async {
                let mut encoder = raw.open(2).await?;
                // A capacity of 4096, and an entry of most of it.
                let begin = [&b"\x3f\xe1\x1f\xc0\x7f\xb1\x1e"[..], &[b'a'; 4016]].concat();
                encoder.write_all(&begin).await?;
                repeat(&mut encoder, vec![0]).await
            })
        },
    },
    Case {
        what: "cancellations of streams",
        kind: "acknowledgements",
        words: "acknowledgements of the table",
        flood: |raw| {
            Box::pin(async {
                let mut decoder = raw.open(3).await?;
                repeat(&mut decoder, vec![0x44]).await
            })
        },
    },
];

impl Case {
    /// Floods until it is told off; gives the code.
    async fn flood(&self, (port, identity): (u16, &Identity)) -> Result<u64> {
        let mut raw = Raw::connect(port, identity, None).await?;
        let sent = tokio::time::timeout(WAIT, (self.flood)(&mut raw)).await;
        ensure!(sent.is_ok(), "{}: nobody has minded", self.what);
        raw.end().await.context(self.what)
    }
}

/// A server, and who asks it.
struct Site {
    proxy: Proxy,
    identity: Identity,
}

impl Site {
    fn start() -> Result<Site> {
        let identity = identity()?;
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .file("cert.pem", &identity.pem)
            .file("key.pem", &identity.key)
            .file("long", offset_bytes(0..LONG, 1))
            .log_check(LogCheck::Off)
            .start()?;
        Ok(Site { proxy, identity })
    }

    /// Runs something, again and again, beside the victim until that has its times: the median of
    /// them, and what the other has to say of its own turns.
    async fn beside<T: Send, F: Future<Output = Result<T>>>(
        &self,
        victim: &mut Connected,
        turn: impl Fn(u16) -> F + Send,
    ) -> Result<(Duration, Vec<T>)> {
        /// Requests whose times count.
        const REQUESTS: usize = 41;
        let (over, port) = (AtomicBool::new(false), self.proxy.port());
        let (is_over, runtime) = (&over, tokio::runtime::Handle::current());
        std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                let own = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                own.block_on(async {
                    let mut all = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        all.push(turn(port).await?);
                    }
                    anyhow::Ok(all)
                })
            });
            let mut times = Vec::new();
            let measured = tokio::task::block_in_place(|| {
                runtime.block_on(async {
                    while times.len() < REQUESTS {
                        let begin = Instant::now();
                        ensure!(get(victim, "/few").await?.text() == "few");
                        times.push(begin.elapsed());
                    }
                    Ok(())
                })
            });
            is_over.store(true, Ordering::Relaxed);
            let all = other.join().map_err(|_| anyhow::anyhow!("a panic"))??;
            measured?;
            times.sort();
            Ok((times[REQUESTS / 2], all))
        })
    }

    /// The victim's usual time: beside a client that asks as much as it can.
    async fn usual_time(&self, victim: &mut Connected) -> Result<Duration> {
        let identity = &self.identity;
        let (median, _) = self
            .beside(victim, |port| async move {
                let busy = Raw::connect(port, identity, None).await?;
                for _ in 0..5 {
                    let mut asked = Vec::new();
                    for _ in 0..100 {
                        let (mut send, receive) = busy.ask(GET_FEW).await?;
                        send.finish()?;
                        asked.push(receive);
                    }
                    for mut receive in asked {
                        receive.read_to_end(PIECE).await?;
                    }
                }
                Ok(())
            })
            .await?;
        Ok(median)
    }

    /// A number of `/proc/PID/status`, KiB.
    fn memory(&self, name: &str) -> Result<u64> {
        let pid = self.proxy.pid().context("it runs")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.context("no such line")?.parse()?)
    }

    fn forget_peak(&self) -> Result<()> {
        let pid = self.proxy.pid().context("it runs")?;
        Ok(std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
    }

    /// Lines of the log that tell of a flood.
    fn told(&self, words: &str) -> usize {
        let words =
            format!("http3 flood: {words} while processing HTTP/3 connection, client: 127.0.0.1");
        let log = self.proxy.error_log();
        let lines = log.lines().filter(|line| line.contains(&words));
        lines.filter(|line| line.contains("[warn]")).count()
    }

    /// One flood, in all that is asked of it; gives the victim's usual time and that beside the
    /// flood.
    async fn try_case(&self, victim: &mut Connected, case: &Case) -> Result<(Duration, Duration)> {
        let name = format!("millpond_http3_floods_total{{kind=\"{}\"}} ", case.kind);
        let usual = self.usual_time(victim).await?;
        let (count, lines) = (counter(victim, &name).await?, self.told(case.words));
        let before = self.memory("VmRSS:")?;
        self.forget_peak()?;
        let identity = &self.identity;
        let turn = |port| case.flood((port, identity));
        let (during, codes) = self.beside(victim, turn).await?;
        let grown = self.memory("VmHWM:")?.saturating_sub(before);
        ensure!(
            codes.iter().all(|code| *code == EXCESSIVE_LOAD),
            "codes {codes:x?}"
        );
        ensure!(grown < MEMORY_KIB, "{grown} KiB more");
        let count = counter(victim, &name).await? - count;
        ensure!(count == codes.len() as u64, "{count} of {}", codes.len());
        let is_told = || (self.told(case.words) - lines >= codes.len()).then_some(());
        let told = Deadline::after(WAIT).poll(is_told);
        told.context("no line in the log")?;
        let lines = self.told(case.words) - lines;
        ensure!(lines == codes.len(), "{lines} lines for {}", codes.len());
        Ok((usual, during))
    }
}

/// A counter, as the victim gets it.
async fn counter(victim: &mut Connected, name: &str) -> Result<u64> {
    let page = get(victim, "/metrics").await?.text();
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    let number = line.with_context(|| format!("no {name} in {page}"))?;
    Ok(number.trim().parse()?)
}

#[test]
fn who_floods_is_ended_and_named_and_others_are_served_as_usual() -> Result<()> {
    /// Tries, since other programs take their share of the machine too.
    const TRIES: usize = 5;
    let site = Site::start()?;
    run_within(3 * WAIT_ALL, async {
        let mut victim = connect(site.proxy.port(), &site.identity).await?;
        // What is made once is no flood's memory.
        site.usual_time(&mut victim).await?;
        for case in CASES {
            let mut all = Vec::new();
            while all
                .last()
                .is_none_or(|(usual, during): &(Duration, Duration)| *during > *usual * 2)
            {
                ensure!(all.len() < TRIES, "{}: usual, during {all:?}", case.what);
                all.push(site.try_case(&mut victim, case).await.context(case.what)?);
            }
            println!("{}: {all:?}", case.what);
        }
        Ok(())
    })
}

/// RFC 9114 §7.2.3, §7.2.4: what may come once only, or not at all, is a fault at once.
#[test]
fn frames_that_may_not_come_end_their_connection_at_once() -> Result<()> {
    let site = Site::start()?;
    run(async {
        let mut victim = connect(site.proxy.port(), &site.identity).await?;
        for (kind, payload, code) in [
            (SETTINGS, &[][..], FRAME_UNEXPECTED),
            (CANCEL_PUSH, &[0], ID_ERROR),
            (DATA, b"x", FRAME_UNEXPECTED),
        ] {
            let mut raw = Raw::connect(site.proxy.port(), &site.identity, None).await?;
            // The connection may end before all is written.
            let _ = repeat(&mut raw.control, frame(kind, payload)).await;
            ensure!(raw.end().await? == code, "{kind}");
            ensure!(get(&mut victim, "/few").await?.text() == "few");
        }
        Ok(())
    })
}

/// Waits for the end of streams that the server resets, and gives the codes.
async fn resets(streams: Vec<(SendStream, RecvStream)>) -> Result<Vec<u64>> {
    let mut codes = Vec::new();
    for (_send, mut receive) in streams {
        let reset = async {
            match receive.received_reset().await {
                Ok(Some(code)) => Ok(code.into_inner()),
                Ok(None) => anyhow::bail!("an end"),
                Err(error) => Err(anyhow::Error::from(error)),
            }
        };
        codes.push(tokio::time::timeout(WAIT, reset).await??);
    }
    Ok(codes)
}

/// RFC 9204 §2.1.2: blocks that wait for an insertion that never comes hold their streams for
/// `client_header_timeout`, and the connection goes on.
#[test]
fn blocked_streams_end_in_time() -> Result<()> {
    const STREAMS: usize = 100;
    let site = Site::start()?;
    run(async {
        let mut victim = connect(site.proxy.port(), &site.identity).await?;
        let raw = Raw::connect(site.proxy.named_port("PORT_SLOW"), &site.identity, None).await?;
        // A capacity, so that there may be such an insertion.
        let mut encoder = raw.open(2).await?;
        encoder.write_all(b"\x3f\xe1\x1f").await?;
        // One that has asked for something is no newcomer.
        let (mut send, mut receive) = raw.ask(GET_FEW).await?;
        send.finish()?;
        receive.read_to_end(PIECE).await?;
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            streams.push(raw.ask(BLOCKED).await?);
        }
        ensure!(get(&mut victim, "/few").await?.text() == "few");
        let codes = resets(streams).await?;
        ensure!(
            codes.iter().all(|code| *code == REQUEST_INCOMPLETE),
            "{codes:x?}"
        );
        ensure!(raw.quic.close_reason().is_none());
        Ok(())
    })
}

/// Windows that never open: `send_timeout` ends the streams, which hold no body meanwhile.
#[test]
fn answers_that_have_no_room_end_and_hold_no_memory() -> Result<()> {
    const CONNECTIONS: usize = 5;
    const STREAMS: usize = 100;
    let site = Site::start()?;
    run(async {
        let mut victim = connect(site.proxy.port(), &site.identity).await?;
        site.usual_time(&mut victim).await?;
        let before = site.memory("VmRSS:")?;
        let mut all = Vec::new();
        for _ in 0..CONNECTIONS {
            let port = site.proxy.named_port("PORT_SLOW");
            let raw = Raw::connect(port, &site.identity, Some(1)).await?;
            let mut streams = Vec::new();
            for _ in 0..STREAMS {
                let (mut send, receive) = raw.ask(GET_LONG).await?;
                send.finish()?;
                streams.push((send, receive));
            }
            all.push((raw, streams));
        }
        let mut most = 0;
        for (raw, streams) in all {
            ensure!(get(&mut victim, "/few").await?.text() == "few");
            most = most.max(site.memory("VmRSS:")?);
            let codes = resets(streams).await?;
            ensure!(codes.len() == STREAMS);
            ensure!(raw.quic.close_reason().is_none());
        }
        let grown = most.saturating_sub(before);
        ensure!(grown < MEMORY_KIB, "{grown} KiB more");
        Ok(())
    })
}

/// RFC 9000 §3.5: requests that come with the end of a handshake may be taken back with it.
#[test]
fn answers_that_are_not_wanted_from_the_first_packet_on_are_reset() -> Result<()> {
    const STREAMS: usize = 100;
    let site = Site::start()?;
    run(async {
        let raw = Raw::connect(site.proxy.port(), &site.identity, None).await?;
        let mut sent = Vec::new();
        for _ in 0..STREAMS {
            let (send, mut receive) = raw.ask(GET_LONG).await?;
            receive.stop(VarInt::from_u32(0x10c))?;
            sent.push(send);
        }
        for send in sent {
            let stopped = async {
                // The server reads no more of a request whose answer it was not to send.
                let code = send.stopped().await?;
                anyhow::Ok(code.map(VarInt::into_inner))
            };
            let code = tokio::time::timeout(WAIT, stopped).await??;
            ensure!(code == Some(0x10c), "{code:x?}");
        }
        Ok(())
    })
}

/// Frames of QUIC itself, which the library's machine answers: others are served meanwhile, and the
/// connection ends with a code, a line and a count.
#[test]
fn who_floods_with_frames_of_quic_is_ended_and_named() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let libraries = root.join("target/tools/python");
    if !libraries.join("aioquic").is_dir() {
        skip("aioquic is not installed: `cargo xtask setup`");
        return Ok(());
    }
    let site = Site::start()?;
    for (deed, kind, words) in [
        ("pings", "pings", "PING and PATH_CHALLENGE frames"),
        ("challenges", "pings", "PING and PATH_CHALLENGE frames"),
        ("given", "identifiers", "connection IDs"),
        ("taken", "identifiers", "connection IDs"),
    ] {
        let mut client = Command::new("timeout");
        client.args(["60", "python3"]);
        client.arg(root.join("tests/clients/quic_floods.py"));
        client.arg(site.proxy.port().to_string());
        client.arg(site.proxy.dir().join("cert.pem")).arg(deed);
        client.env("PYTHONPATH", &libraries).stdout(Stdio::piped());
        run_within(WAIT_ALL, async {
            let mut victim = connect(site.proxy.port(), &site.identity).await?;
            let name = format!("millpond_http3_floods_total{{kind=\"{kind}\"}} ");
            let (count, lines) = (counter(&mut victim, &name).await?, site.told(words));
            let mut flooding = client.spawn()?;
            while flooding.try_wait()?.is_none() {
                ensure!(get(&mut victim, "/few").await?.text() == "few", "{deed}");
            }
            let output = flooding.wait_with_output()?;
            let code = String::from_utf8(output.stdout)?;
            ensure!(code.trim() == EXCESSIVE_LOAD.to_string(), "{deed}: {code}");
            ensure!(counter(&mut victim, &name).await? == count + 1, "{deed}");
            let is_told = || (site.told(words) == lines + 1).then_some(());
            Deadline::after(WAIT).poll(is_told).context("no line")
        })?;
    }
    Ok(())
}
