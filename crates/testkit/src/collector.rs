//! A collector of OpenTelemetry: gRPC over HTTP/2 and POSTs of HTTP/1.1 on one port, each signal by
//! its path.
//!
//! Records are read by a decoder of its own, from the field numbers of `opentelemetry-proto`.
//! HTTP/2 is the crate `h2`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Deadline;

/// The time that a test waits for spans.
const PATIENCE: Duration = Duration::from_secs(20);

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
    /// A list of texts.
    List(Vec<String>),
}

/// A span as it came; ids are hexadecimal, and empty where there is none.
#[derive(Clone, Debug, Default)]
pub struct CollectedSpan {
    /// The trace.
    pub trace: String,
    /// The span.
    pub id: String,
    /// The span above it.
    pub parent: String,
    /// The state of the trace.
    pub state: String,
    /// The name.
    pub name: String,
    /// The kind: 1 internal, 2 server, 3 client.
    pub kind: u64,
    /// Begin and end, nanoseconds since 1970.
    pub times: (u64, u64),
    /// The attributes.
    pub attributes: BTreeMap<String, Attribute>,
    /// Trace and span of each link.
    pub links: Vec<(String, String)>,
    /// The code of the status: 2 is an error.
    pub status: u64,
}

impl CollectedSpan {
    /// The text of an attribute; empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        match self.attributes.get(name) {
            Some(Attribute::Text(text)) => text,
            _ => "",
        }
    }

    /// The number of an attribute.
    pub fn number(&self, name: &str) -> Option<i64> {
        match self.attributes.get(name) {
            Some(Attribute::Number(number)) => Some(*number),
            _ => None,
        }
    }
}

/// A point of a metric as it came.
#[derive(Clone, Debug, Default)]
pub struct CollectedPoint {
    /// The name of the metric.
    pub metric: String,
    /// The field of its shape: 5 gauge, 7 sum, 9 histogram, 11 summary.
    pub shape: u64,
    /// Labels by their names.
    pub labels: BTreeMap<String, Attribute>,
    /// Begin of the process and time of the point, nanoseconds since 1970.
    pub times: (u64, u64),
    /// The number, or the count of a histogram or a summary.
    pub number: f64,
    /// The sum of a histogram or a summary.
    pub sum: f64,
    /// The counts of a histogram, and its bounds.
    pub buckets: (Vec<u64>, Vec<f64>),
}

/// A line of a log as it came.
#[derive(Clone, Debug, Default)]
pub struct CollectedLine {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The severity by number and name.
    pub severity: (u64, String),
    /// The message.
    pub body: String,
    /// The attributes.
    pub attributes: BTreeMap<String, Attribute>,
}

/// A request with a batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Path and fields of the request.
    pub path: String,
    /// The fields, names in small letters.
    pub fields: BTreeMap<String, String>,
    /// The attributes of the resource.
    pub resource: BTreeMap<String, Attribute>,
    /// The spans.
    pub spans: Vec<CollectedSpan>,
    /// The points of metrics.
    pub points: Vec<CollectedPoint>,
    /// The lines of logs.
    pub lines: Vec<CollectedLine>,
}

/// The manner in which a collector answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Everything is taken.
    Takes,
    /// Everything is refused: grpc-status 14, or 503.
    Refuses,
    /// Nothing is answered.
    Hangs,
    /// Each connection is closed after one answer.
    Closes,
}

/// A collector that runs.
pub struct Collector {
    port: u16,
    batches: Arc<Mutex<Vec<Batch>>>,
    mood: Arc<Mutex<Mood>>,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Clone)]
struct Served {
    batches: Arc<Mutex<Vec<Batch>>>,
    mood: Arc<Mutex<Mood>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Collector {
    /// Starts one on a port of its own.
    pub fn start() -> Result<Collector> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        let served = Served {
            batches: Arc::default(),
            mood: Arc::new(Mutex::new(Mood::Takes)),
        };
        let collector = Collector {
            port,
            batches: Arc::clone(&served.batches),
            mood: Arc::clone(&served.mood),
            _runtime: runtime,
        };
        collector._runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, served.clone()));
            }
        });
        Ok(collector)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the manner of the answers from now on.
    pub fn set_mood(&self, mood: Mood) {
        *lock(&self.mood) = mood;
    }

    /// The batches so far.
    pub fn batches(&self) -> Vec<Batch> {
        lock(&self.batches).clone()
    }

    /// The spans so far.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        let batches = self.batches();
        batches.into_iter().flat_map(|batch| batch.spans).collect()
    }

    /// Waits until something is found among the batches.
    pub fn wait_for<T>(&self, find: impl Fn(&[Batch]) -> Option<T>) -> Result<T> {
        let found = Deadline::after(PATIENCE).poll(|| find(&self.batches()));
        found.with_context(|| format!("not found in {:#?}", self.batches()))
    }

    /// Waits until so many spans have come; more are an error.
    pub fn wait(&self, count: usize) -> Result<Vec<CollectedSpan>> {
        let deadline = Deadline::after(PATIENCE);
        let found = deadline.poll(|| {
            let spans = self.spans();
            (spans.len() >= count).then_some(spans)
        });
        let spans = found.with_context(|| format!("of {count} spans: {:#?}", self.spans()))?;
        ensure!(spans.len() == count, "more than {count}: {spans:#?}");
        Ok(spans)
    }
}

async fn serve(stream: TcpStream, served: Served) {
    let mut first = [0; 3];
    while let Ok(1..=2) = stream.peek(&mut first).await {}
    // Whoever tests sees what is missing.
    let _ = match &first {
        b"PRI" => serve_grpc(stream, served).await,
        _ => serve_http(stream, served).await,
    };
}

async fn serve_grpc(stream: TcpStream, served: Served) -> Result<()> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        let served = served.clone();
        let (head, mut body) = request.into_parts();
        let mood = *lock(&served.mood);
        if mood == Mood::Closes {
            connection.graceful_shutdown();
        }
        tokio::spawn(async move {
            let mut message = BytesMut::new();
            while let Some(bytes) = body.data().await {
                let bytes = bytes?;
                body.flow_control().release_capacity(bytes.len())?;
                message.extend_from_slice(&bytes);
            }
            let fields = head.headers.iter().map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                (name.as_str().to_owned(), value)
            });
            let prefix = message.get(..5).context("no message")?;
            let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
            ensure!(prefix[0] == 0 && len as usize == message.len() - 5);
            let path = head.uri.path();
            let batch = Batch {
                path: path.to_owned(),
                fields: fields.collect(),
                ..batch(path, &message[5..])
            };
            let code = match mood {
                Mood::Hangs => return std::future::pending().await,
                Mood::Refuses => "14",
                Mood::Takes | Mood::Closes => {
                    lock(&served.batches).push(batch);
                    "0"
                }
            };
            let answer = http::Response::builder().header("content-type", "application/grpc");
            let mut stream = respond.send_response(answer.body(())?, false)?;
            if code == "0" {
                stream.send_data(Bytes::from_static(&[0; 5]), false)?;
            }
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static(code));
            trailers.insert("grpc-message", http::HeaderValue::from_static("not%20now"));
            stream.send_trailers(trailers)?;
            anyhow::Ok(())
        });
    }
    Ok(())
}

async fn serve_http(mut stream: TcpStream, served: Served) -> Result<()> {
    let mut bytes = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            ensure!(stream.read_buf(&mut bytes).await? > 0);
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let target = lines.next().and_then(|line| line.split(' ').nth(1));
        let path = target.context("no path")?.to_owned();
        let pairs = lines.filter_map(|line| line.split_once(": "));
        let fields: BTreeMap<String, String> = pairs
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let len: usize = fields.get("content-length").context("no length")?.parse()?;
        while bytes.len() < end + 4 + len {
            ensure!(stream.read_buf(&mut bytes).await? > 0);
        }
        let mood = *lock(&served.mood);
        let read = batch(&path, &bytes[end + 4..end + 4 + len]);
        let batch = Batch {
            path,
            fields,
            ..read
        };
        bytes.drain(..end + 4 + len);
        let status = match mood {
            Mood::Hangs => return std::future::pending().await,
            Mood::Refuses => "503 No",
            Mood::Takes | Mood::Closes => {
                lock(&served.batches).push(batch);
                "200 OK"
            }
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await?;
        if mood == Mood::Closes {
            return Ok(());
        }
    }
}

/// A field of a message: its number, and a number or bytes.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    let varint = |bytes: &mut &[u8]| {
        let mut value = 0;
        for shift in 0.. {
            let (first, rest) = bytes.split_first().expect("a varint that ends");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << (7 * shift);
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    };
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let len = match key & 7 {
            0 => {
                fields.push((key >> 3, Value::Number(varint(&mut bytes))));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (value, rest) = bytes.split_at(len);
        bytes = rest;
        let number = || {
            let low_first = value.iter().rev();
            low_first.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        fields.push((
            key >> 3,
            match key & 7 {
                2 => Value::Bytes(value),
                _ => Value::Number(number()),
            },
        ));
    }
    fields
}

fn messages(bytes: &[u8], wanted: u64) -> Vec<&[u8]> {
    let fields = fields(bytes).into_iter();
    fields
        .filter_map(|(number, value)| match value {
            Value::Bytes(bytes) if number == wanted => Some(bytes),
            _ => None,
        })
        .collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("texts are UTF-8")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn batch(path: &str, message: &[u8]) -> Batch {
    let mut batch = Batch::default();
    for group in messages(message, 1) {
        for resource in messages(group, 1) {
            batch
                .resource
                .extend(messages(resource, 1).into_iter().map(attribute));
        }
        for scope in messages(group, 2) {
            let records = messages(scope, 2).into_iter();
            match path {
                path if path.contains("metrics") => batch.points.extend(records.flat_map(points)),
                path if path.contains("logs") => batch.lines.extend(records.map(line)),
                _ => batch.spans.extend(records.map(span)),
            }
        }
    }
    batch
}

fn attribute(bytes: &[u8]) -> (String, Attribute) {
    let key = text(messages(bytes, 1)[0]);
    let value = messages(bytes, 2)[0];
    let (number, value) = fields(value).pop().expect("a value");
    let value = match (number, value) {
        (1, Value::Bytes(bytes)) => Attribute::Text(text(bytes)),
        (2, Value::Number(flag)) => Attribute::Flag(flag != 0),
        (3, Value::Number(number)) => Attribute::Number(number as i64),
        (5, Value::Bytes(list)) => {
            let values = messages(list, 1).into_iter();
            Attribute::List(values.map(|value| text(messages(value, 1)[0])).collect())
        }
        (other, _) => panic!("a value of kind {other}"),
    };
    (key, value)
}

fn span(bytes: &[u8]) -> CollectedSpan {
    let mut span = CollectedSpan::default();
    for (number, value) in fields(bytes) {
        match (number, value) {
            (1, Value::Bytes(id)) => span.trace = hex(id),
            (2, Value::Bytes(id)) => span.id = hex(id),
            (3, Value::Bytes(state)) => span.state = text(state),
            (4, Value::Bytes(id)) => span.parent = hex(id),
            (5, Value::Bytes(name)) => span.name = text(name),
            (6, Value::Number(kind)) => span.kind = kind,
            (7, Value::Number(time)) => span.times.0 = time,
            (8, Value::Number(time)) => span.times.1 = time,
            (9, Value::Bytes(bytes)) => span.attributes.extend([attribute(bytes)]),
            (13, Value::Bytes(link)) => {
                let of = |number| hex(messages(link, number)[0]);
                span.links.push((of(1), of(2)));
            }
            (15, Value::Bytes(status)) => {
                for (number, value) in fields(status) {
                    if let (3, Value::Number(code)) = (number, value) {
                        span.status = code;
                    }
                }
            }
            (16, Value::Number(_)) => {}
            (other, _) => panic!("field {other} of a span"),
        }
    }
    span
}

fn points(bytes: &[u8]) -> Vec<CollectedPoint> {
    let name = text(messages(bytes, 1)[0]);
    let (shape, data) = fields(bytes)
        .into_iter()
        .find_map(|(number, value)| match value {
            Value::Bytes(data) if number >= 5 => Some((number, data)),
            _ => None,
        })
        .expect("a shape");
    let of = |bytes| CollectedPoint {
        metric: name.clone(),
        shape,
        ..point(bytes, shape)
    };
    messages(data, 1).into_iter().map(of).collect()
}

fn point(bytes: &[u8], shape: u64) -> CollectedPoint {
    let mut point = CollectedPoint::default();
    let packed = |bytes: &[u8]| -> Vec<u64> {
        let eights = bytes.chunks_exact(8);
        eights
            .map(|eight| u64::from_le_bytes(eight.try_into().expect("eight bytes")))
            .collect()
    };
    let is_number = matches!(shape, 5 | 7);
    for (number, value) in fields(bytes) {
        match (number, value) {
            (2, Value::Number(time)) => point.times.0 = time,
            (3, Value::Number(time)) => point.times.1 = time,
            (4, Value::Number(bits)) if is_number => point.number = f64::from_bits(bits),
            (4, Value::Number(count)) => point.number = count as f64,
            (5, Value::Number(bits)) => point.sum = f64::from_bits(bits),
            (6, Value::Number(count)) => point.number = count as f64,
            (6, Value::Bytes(counts)) => point.buckets.0 = packed(counts),
            (7, Value::Bytes(bounds)) if shape == 9 => {
                point.buckets.1 = packed(bounds).into_iter().map(f64::from_bits).collect();
            }
            (7 | 9, Value::Bytes(label)) => point.labels.extend([attribute(label)]),
            (other, _) => panic!("field {other} of a point"),
        }
    }
    point
}

fn line(bytes: &[u8]) -> CollectedLine {
    let mut line = CollectedLine::default();
    for (number, value) in fields(bytes) {
        match (number, value) {
            (1, Value::Number(time)) => line.time = time,
            (2, Value::Number(severity)) => line.severity.0 = severity,
            (3, Value::Bytes(name)) => line.severity.1 = text(name),
            (5, Value::Bytes(body)) => line.body = text(messages(body, 1)[0]),
            (6, Value::Bytes(pair)) => line.attributes.extend([attribute(pair)]),
            (11, Value::Number(_)) => {}
            (other, _) => panic!("field {other} of a line"),
        }
    }
    line
}
