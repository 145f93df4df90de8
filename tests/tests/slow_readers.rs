//! `proxy_buffers`, `proxy_buffer_size`: the memory of an answer that is not stored, while its
//! client takes nothing.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Connection, Deadline, Framing, Kind, Origin, Proxy, Request, offset_bytes,
};
use std::thread;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);
/// Length of each answer; no socket takes as much.
const LEN: u64 = 4 << 20;
const READERS: usize = 100;
/// Memory that a request has besides its body: the connections, the heads, the tasks, the task that
/// writes a file. (Found: 15 KiB, and 18 to 20 KiB with a file.)
const BESIDES: u64 = 22 << 10;
/// Looks at the origin, 5 ms apart, that find it stalled.
const STILL: u32 = 40;

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%% sndbuf=16k;
        proxy_max_temp_file_size 0;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /few/ { proxy_pass http://%%ORIGIN%%; proxy_buffers 4 4k; }
        location /many/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_buffers 8 16k;
            proxy_buffer_size 16k;
            proxy_busy_buffers_size 32k;
        }
        location /large/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_buffers 8 64k;
            proxy_buffer_size 64k;
            proxy_busy_buffers_size 128k;
        }
        location /off/ { proxy_pass http://%%ORIGIN%%; proxy_buffering off; }
        location /rate/ { proxy_pass http://%%ORIGIN%%; proxy_limit_rate 100m; }
        location /gzip/ {
            proxy_pass http://%%ORIGIN%%;
            gzip on;
            gzip_types *;
            gzip_min_length 0;
        }
        location /sub/ {
            proxy_pass http://%%ORIGIN%%;
            sub_filter_types *;
            sub_filter 'never there' 'x';
        }
        location /store/ {
            proxy_pass http://%%ORIGIN%%;
            root %%DIR%%/stored;
            proxy_store on;
        }
    }";

fn start() -> Result<(Origin, Proxy)> {
    let origin = Origin::start()?;
    origin.answer_with("/*", |request| {
        let framing = match request.path() {
            path if path.ends_with("chunked") => Framing::Chunked,
            path if path.ends_with("close") => Framing::UntilClose,
            _ => Framing::Length,
        };
        Answer::new(200).offset_body(LEN, 1).framing(framing)
    });
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    Ok((origin, proxy))
}

/// Memory of the process that no file stands behind, bytes.
fn memory(proxy: &Proxy) -> Result<u64> {
    let pid = proxy.pid().context("it runs")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"));
    let number = line.and_then(|it| it.split_whitespace().next());
    Ok(number.context("RssAnon")?.parse::<u64>()? << 10)
}

/// Connects so many clients that ask and take nothing, once the origin has stalled.
fn crowd(origin: &Origin, client: Client, path: &str) -> Result<Vec<Connection>> {
    let begin = || -> Result<Connection> {
        let mut connection = client.connect()?;
        connection.send_raw(&Request::get(path).encode())?;
        Ok(connection)
    };
    let before = origin.exchanges().len();
    let crowd: Vec<_> = (0..READERS).map(|_| begin()).collect::<Result<_>>()?;
    let (mut sent, mut still) = (0, 0);
    let stalled = Deadline::after(WAIT).poll(|| {
        let now = origin.sent_bytes();
        still = if now == sent { still + 1 } else { 0 };
        sent = now;
        let all_begun = origin.exchanges().len() - before == READERS;
        (all_begun && still >= STILL).then_some(())
    });
    stalled.context("the origin never stalls")?;
    Ok(crowd)
}

/// Bytes that each of a crowd takes.
fn each(path: &str) -> Result<u64> {
    let (origin, proxy) = start()?;
    let before = memory(&proxy)?;
    let crowd = crowd(&origin, Client::new(proxy.port()), path)?;
    let taken = memory(&proxy)?.saturating_sub(before) / READERS as u64;
    drop(crowd);
    println!("{path}: {taken} bytes each");
    Ok(taken)
}

/// nginx: a buffer for the head, and the others if the answer is read ahead; here never less than
/// is read with a head.
#[test]
fn stalled_readers_hold_their_buffers_and_no_more() -> Result<()> {
    for (folder, bound) in [
        ("", 36 << 10),
        ("few/", 20 << 10),
        ("off/", 16 << 10),
        ("store/", 36 << 10),
    ] {
        for framing in ["length", "chunked"] {
            let path = format!("/{folder}{framing}");
            let taken = each(&path)?;
            ensure!(taken <= bound + BESIDES, "{path}: {taken} bytes each");
        }
    }
    Ok(())
}

#[test]
fn memory_of_readers_that_left_is_there_for_the_next() -> Result<()> {
    for path in ["/length", "/off/chunked"] {
        let (origin, proxy) = start()?;
        let client = Client::new(proxy.port());
        let before = memory(&proxy)?;
        let open = |proxy: &Proxy| -> Result<usize> {
            let pid = proxy.pid().context("it runs")?;
            Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
        };
        let quiet = open(&proxy)?;
        let mut first = None;
        for _ in 0..3 {
            let crowd = crowd(&origin, client, path)?;
            let taken = memory(&proxy)?.saturating_sub(before);
            let first = *first.get_or_insert(taken);
            ensure!(taken <= first + first / 4, "{path}: {first}, then {taken}");
            drop(crowd);
            let left = || open(&proxy).ok().filter(|count| *count <= quiet + 2);
            let left = Deadline::after(WAIT).poll(left);
            left.with_context(|| format!("{path}: connections stay open"))?;
        }
    }
    Ok(())
}

/// Whatever stands between upstream and client, and however little memory there is.
#[test]
fn reader_that_goes_on_gets_every_byte() -> Result<()> {
    let (_origin, proxy) = start()?;
    let client = Client::new(proxy.port());
    let folders = [
        "", "few/", "many/", "large/", "off/", "rate/", "gzip/", "sub/", "store/",
    ];
    let paths = folders.iter().flat_map(|folder| {
        ["length", "chunked", "close"].map(|framing| format!("/{folder}{framing}"))
    });
    let read = move |path: String| -> Result<()> {
        let mut connection = client.connect()?;
        let request = Request::get(&path).header("Accept-Encoding", "gzip");
        connection.send_raw(&request.encode())?;
        let mut response = connection.read_head("GET")?.context("no answer")?;
        connection.read_body(&mut response)?;
        let mut body = response.body.clone();
        if response.header("Content-Encoding") == Some("gzip") {
            body.clear();
            let mut decoder = flate2::read::GzDecoder::new(&response.body[..]);
            std::io::Read::read_to_end(&mut decoder, &mut body)?;
        }
        ensure!(response.is_complete(), "{path} is cut");
        ensure!(body == offset_bytes(0..LEN, 1), "{path}: another body");
        Ok(())
    };
    let reading: Vec<_> = paths
        .map(|path| thread::spawn(move || read(path)))
        .collect();
    for reading in reading {
        reading.join().expect("a client does not panic")?;
    }
    Ok(())
}
