//! A body that is stored whole, without slices, and comes back byte for byte: as it arrives, as a
//! hit, in ranges on both sides of 4 GiB, and after a restart.
//!
//! Each line of sixteen bytes says where it stands, so an offset that is counted in 32 bits shows.
//! By itself the body is a short one; `BODY_MB=4400` runs the long form, beyond 4 GiB, which takes
//! as much room on the disk.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Kind, Origin, Proxy, Ranges, Request, Response, offset_bytes,
};

const MIB: u64 = 1 << 20;
/// First offset beyond 32 bits.
const EDGE: u64 = 1 << 32;
const VERSION: u16 = 9;
/// Megabytes of the short form.
const BODY_MB: u64 = 48;
/// No multiple of a line, a page, or anything else.
const ODD: u64 = 777;
/// Bytes that a client has at once.
const PIECE: u64 = 4 * MIB;
/// Memory that the process may ever take: far less than the body of the long form.
const MEMORY: u64 = 150 * MIB;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=%%MAX%%m memory=8m;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_valid 200 1d;
            add_header X-Cache $upstream_cache_status;
        }
    }";

struct Bench {
    origin: Origin,
    proxy: Proxy,
    len: u64,
}

impl Bench {
    fn start() -> Result<Bench> {
        let asked = std::env::var("BODY_MB").ok();
        let body_mb = asked.map_or(Ok(BODY_MB), |asked| asked.parse())?;
        let len = body_mb * MIB + ODD;
        let origin = Origin::start()?;
        let answer = Answer::new(200).offset_body(len, VERSION);
        origin.route("/body", answer.etag("\"v\"").ranges(Ranges::Supported));
        let max_mb = (body_mb + body_mb / 2).to_string();
        let proxy = Proxy::new(Kind::Millpond, CONF).value("MAX", &max_mb);
        let proxy = proxy.origin(&origin).start()?;
        Ok(Bench { origin, proxy, len })
    }

    /// Asks for some of the body, or all of it, and compares every byte.
    fn ask(&self, range: Option<&str>, wanted: Range<u64>, cache: &str) -> Result<()> {
        let began = Instant::now();
        let mut connection = Client::new(self.proxy.port()).connect()?;
        let mut request = Request::get("/body").header("Connection", "close");
        if let Some(range) = range {
            request = request.header("Range", &format!("bytes={range}"));
        }
        connection.send_raw(&request.encode())?;
        let mut response = connection.read_head("GET")?.context("closed")?;
        self.check_head(&response, range.map(|_| &wanted), cache)?;
        let told = response.header("Content-Length").map(str::to_owned);
        let len = wanted.end - wanted.start;
        ensure!(told == Some(len.to_string()), "{range:?}: {told:?}");
        let mut at = wanted.start;
        while at < wanted.end {
            let end = wanted.end.min(at + PIECE);
            response.body.clear();
            connection.read_some(&mut response, (end - at) as usize)?;
            ensure!(response.is_complete(), "{range:?}: {:?}", response.end);
            let is_same = response.body == offset_bytes(at..end, VERSION);
            ensure!(is_same, "{range:?}: other bytes between {at} and {end}");
            at = end;
        }
        println!("{range:?}, {cache}: {len} bytes in {:?}", began.elapsed());
        Ok(())
    }

    fn check_head(
        &self,
        response: &Response,
        part: Option<&Range<u64>>,
        cache: &str,
    ) -> Result<()> {
        let total = self.len;
        let told = part.map(|part| format!("bytes {}-{}/{total}", part.start, part.end - 1));
        let status = if told.is_some() { 206 } else { 200 };
        ensure!(response.status == status, "{told:?}: {}", response.status);
        ensure!(
            response.header("Content-Range") == told.as_deref(),
            "{told:?}: {:?}",
            response.headers
        );
        ensure!(
            response.header("X-Cache") == Some(cache),
            "{told:?}: {:?}",
            response.headers
        );
        Ok(())
    }

    /// Ranges around the edge, beyond it, across it, and at the end.
    fn ask_for_ranges(&self) -> Result<()> {
        let len = self.len;
        let edge = if len > EDGE + 20 * MIB {
            EDGE
        } else {
            // In the short form somewhere in the middle.
            len / 2 + 11
        };
        let ranges = [
            edge - 1..edge,
            edge..edge + 1,
            edge - 70_001..edge + 70_003,
            edge + 5 * MIB + 3..edge + 20 * MIB,
            len - 1..len,
        ];
        for wanted in ranges {
            let text = format!("{}-{}", wanted.start, wanted.end - 1);
            self.ask(Some(&text), wanted, "HIT")?;
        }
        self.ask(Some(&format!("{edge}-")), edge..len, "HIT")?;
        self.ask(Some("-5000"), len - 5000..len, "HIT")
    }

    /// The most memory that the process ever had.
    fn most_memory(&self) -> Result<u64> {
        let pid = self.proxy.pid().context("it runs")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.context("no peak is given")?.trim();
        Ok(kib.trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

#[test]
fn body_that_is_stored_whole_is_a_hit_byte_for_byte() -> Result<()> {
    let mut bench = Bench::start()?;
    bench.ask(None, 0..bench.len, "MISS")?;
    bench.ask(None, 0..bench.len, "HIT")?;
    bench.ask_for_ranges()?;
    let memory = bench.most_memory()?;
    println!("{} MiB of memory at most", memory / MIB);
    ensure!(memory <= MEMORY, "{memory} bytes of memory");
    bench.proxy.restart()?;
    bench.ask_for_ranges()?;
    bench.ask(None, 0..bench.len, "HIT")?;
    // It was asked once, and sent no byte twice.
    ensure!(bench.origin.requests().len() == 1);
    let sent = bench.origin.sent_bytes();
    ensure!(sent == bench.len, "{sent} bytes from the origin");
    Ok(())
}
