//! `gzip` and its directives: compression of answers while they are sent.
//!
//! An answer is compressed when its status, type and length allow it and the client takes it; of
//! several codings `coding` chooses, and `compressor` runs the stream.
//!
//! Sources: RFC 1952; nginx ngx_http_gzip_filter, ngx_http_gzip_ok.

use std::io;
use std::sync::Arc;

use flate2::{Compress, Compression, FlushCompress, Status};
use millpond_conf::{ArgError, Args, Buffers, ByteSize, Flags, FromArgs};
use millpond_semantics::accept_encoding::{Coding, accepts_gzip};
use millpond_semantics::date::parse_http_date;
use millpond_semantics::list::has_token;
use millpond_system::clock;
use millpond_wire::header::{Fields, Known};
use millpond_wire::http1::Version;

use super::coding;
use super::compressor::{Compressor, Level};
use crate::filter::settings::FilterSettings;
use crate::request::Request;
use crate::route::captures::RequestRegex as _;
use crate::var::Variable;
use millpond_exchange::expression::{Case, Regex};
use millpond_exchange::response::type_set::TypeSet;

/// The least room that is given to the compressor at a time (found good: a small answer fits into
/// it whole).
const OUTPUT_STEP: usize = 1024;

/// Settings of the compression of answers.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct GzipPolicy {
    /// Compresses answers.
    #[directive(
        name = "gzip",
        default = "off",
        contexts(http, server, location, if_location)
    )]
    pub enabled: bool,
    /// The media types that are compressed, beside text/html.
    #[directive(name = "gzip_types", default = "text/html", repeat)]
    pub types: Vec<TypeSet>,
    /// Effort of the compression, from 1 (fast) to 9 (small).
    #[directive(name = "gzip_comp_level", default = "1")]
    pub level: Level<1, 9>,
    /// The shortest answer of known length that is compressed.
    #[directive(name = "gzip_min_length", default = "20")]
    pub min_length: ByteSize,
    /// The oldest version of HTTP that answers are compressed for.
    #[directive(name = "gzip_http_version", default = "1.1")]
    pub version: HttpVersion,
    /// Kinds of requests that came through a proxy (they have a Via field) and still get compressed
    /// answers.
    #[directive(name = "gzip_proxied", default = "off", union)]
    pub proxied: Flags<Proxied>,
    /// Makes answers that depend on what the client takes say so in Vary.
    #[directive(name = "gzip_vary", default = "off")]
    pub vary: bool,
    /// Expressions for User-Agent fields whose clients get no compressed answers; `msie6` stands
    /// for old MSIE.
    #[directive(name = "gzip_disable", repeat)]
    pub disable: Vec<Disable>,
    /// Distance within which repeated text is looked for.
    #[directive(name = "gzip_window", default = "32k")]
    pub window: Window,
    /// Number and size of buffers.
    ///
    /// # Differs from nginx
    ///
    /// The memory of one answer is bounded without it; the value is only checked.
    #[directive(name = "gzip_buffers", default = "32 4k")]
    pub buffers: Buffers,
    /// The memory for the compressor's tables.
    ///
    /// # Differs from nginx
    ///
    /// The compressor chooses it itself; the value is only checked.
    #[directive(name = "gzip_hash", default = "128k")]
    pub hash: HashSize,
    /// Amount of an answer that is gathered before its compression begins.
    ///
    /// # Differs from nginx
    ///
    /// Compression begins at once; the value is only checked.
    #[directive(name = "postpone_gzipping", default = "0")]
    pub postpone: ByteSize,
    /// Hands compressed data on at once.
    ///
    /// # Differs from nginx
    ///
    /// Data is handed on when the source pauses, with both values.
    #[directive(name = "gzip_no_buffer", default = "off")]
    pub no_buffer: bool,
}

/// The size of the window, as a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(u8);

impl FromArgs for Window {
    const SYNTAX: &'static str = "size";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        args.one()?;
        let ByteSize(size) = args.word(0)?;
        match size {
            512..=32_768 if size.is_power_of_two() => Ok(Window(size.trailing_zeros() as u8)),
            _ => {
                let sizes = "must be 512, 1k, 2k, 4k, 8k, 16k, or 32k";
                let message = format!("\"{}\" directive {sizes}", args.name.text);
                Err(ArgError::value(0, message))
            }
        }
    }
}

/// The memory for tables, as nginx bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSize(pub ByteSize);

impl FromArgs for HashSize {
    const SYNTAX: &'static str = "size";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        args.one()?;
        let ByteSize(size) = args.word(0)?;
        if (512..=131_072).contains(&size) && size.is_power_of_two() {
            return Ok(HashSize(ByteSize(size)));
        }
        let sizes = "must be 512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k";
        let message = format!("\"{}\" directive {sizes}", args.name.text);
        Err(ArgError::value(0, message))
    }
}

/// A version of HTTP in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum HttpVersion {
    /// HTTP/1.0.
    #[word("1.0")]
    Http10,
    /// HTTP/1.1.
    #[word("1.1")]
    Http11,
}

/// Kinds of answers to proxied requests that are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum Proxied {
    /// None.
    #[word("off")]
    Off,
    /// Answers that have expired.
    #[word("expired")]
    Expired,
    /// With Cache-Control: no-cache.
    #[word("no-cache")]
    NoCache,
    /// With Cache-Control: no-store.
    #[word("no-store")]
    NoStore,
    /// With Cache-Control: private.
    #[word("private")]
    Private,
    /// Without Last-Modified.
    #[word("no_last_modified")]
    NoLastModified,
    /// Without ETag.
    #[word("no_etag")]
    NoEtag,
    /// To requests with Authorization.
    #[word("auth")]
    Auth,
    /// All.
    #[word("any")]
    Any,
}

/// The clients of one `gzip_disable`.
#[derive(Clone, Debug)]
pub struct Disable {
    old_msie: bool,
    expressions: Vec<Arc<Regex>>,
}

impl FromArgs for Disable {
    const SYNTAX: &'static str = "regex ... | msie6";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let mut disable = Disable {
            old_msie: false,
            expressions: Vec::new(),
        };
        for (at, word) in args.at_least(1)?.iter().enumerate() {
            match word.text.as_str() {
                "msie6" => disable.old_msie = true,
                // nginx: memory is short; there is no such state here.
                "degradation" => {}
                source => {
                    let variables = &mut args.cx.variables;
                    let regex = Regex::new(source, Case::Insensitive, |name| {
                        variables.store(name, word.span)
                    });
                    let regex = regex.map_err(|why| {
                        let message = format!("invalid regular expression \"{source}\": {why}");
                        ArgError::value(at, message)
                    })?;
                    disable.expressions.push(Arc::new(regex));
                }
            }
        }
        Ok(disable)
    }
}

impl Disable {
    fn has(&self, req: &Request, agent: &[u8]) -> bool {
        let mut expressions = self.expressions.iter();
        (self.old_msie && is_old_msie(agent))
            || expressions.any(|regex| regex.is_match_for(req, agent))
    }
}

/// nginx: MSIE 4, 5, and 6 before its second service pack.
fn is_old_msie(agent: &[u8]) -> bool {
    let has = |text: &[u8], word: &[u8]| memchr::memmem::find(text, word).is_some();
    let Some(at) = memchr::memmem::find(agent, b"MSIE ") else {
        return false;
    };
    let old = match agent.get(at + 5..) {
        Some([b'4' | b'5', b'.', _, ..]) => true,
        Some([b'6', b'.', _, rest @ ..]) => !has(rest, b"SV1"),
        _ => false,
    };
    old && !has(agent, b"Opera")
}

/// The variables of this file.
pub const VARIABLES: &[Variable] = &[Variable {
    name: "gzip_ratio",
    doc: "How many times longer the answer was before its compression, with two decimals.",
    write: |req, out| coding::write_ratio(req, Coding::Gzip, out),
}];

/// Plan by which an answer is compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(super) level: u32,
    pub(super) window_bits: u8,
}

impl Plan {
    /// The plan for an answer of that length.
    pub(crate) fn new(policy: &GzipPolicy, length: Option<u64>) -> Self {
        Plan {
            level: policy.level.0,
            window_bits: window_bits(policy.window, length),
        }
    }

    /// The compressor of the answer's body.
    pub(crate) fn compressor(&self) -> Gzip {
        Gzip(Compress::new_gzip(
            Compression::new(self.level),
            self.window_bits,
        ))
    }
}

/// nginx: a short body needs no larger window than itself; the last 262 bytes of one are not used.
fn window_bits(window: Window, length: Option<u64>) -> u8 {
    let mut bits = window.0;
    let length = length.filter(|length| *length > 0).unwrap_or(u64::MAX);
    while bits > 9 && length < (1 << (bits - 1)) - 262 {
        bits -= 1;
    }
    bits
}

/// True if the client takes gzip, under the settings of the location; `fields` are those of the
/// answer.
pub(crate) fn is_taken(req: &Request, fields: &Fields) -> bool {
    let policy = &req.location.settings.of::<FilterSettings>().gzip;
    let Some(accepted) = req.field(Known::AcceptEncoding) else {
        return false;
    };
    let oldest = match policy.version {
        HttpVersion::Http10 => Version::Http10,
        HttpVersion::Http11 => Version::Http11,
    };
    if !accepts_gzip(accepted) || req.head.version() < oldest {
        return false;
    }
    if req.head.has(Known::Via) && !is_taken_by_proxies(req, policy.proxied, fields) {
        return false;
    }
    match req.field(Known::UserAgent) {
        Some(agent) => !policy.disable.iter().any(|disable| disable.has(req, agent)),
        None => true,
    }
}

fn is_taken_by_proxies(req: &Request, proxied: Flags<Proxied>, fields: &Fields) -> bool {
    if proxied.contains(Proxied::Off) {
        return false;
    }
    if proxied.contains(Proxied::Any)
        || (proxied.contains(Proxied::Auth) && req.head.has(Known::Authorization))
    {
        return true;
    }
    if let Some(expires) = fields.get(Known::Expires) {
        return proxied.contains(Proxied::Expired) && is_expired(expires, fields);
    }
    if fields.contains(Known::CacheControl) {
        let words: [(Proxied, &[u8]); 3] = [
            (Proxied::NoCache, b"no-cache"),
            (Proxied::NoStore, b"no-store"),
            (Proxied::Private, b"private"),
        ];
        return words.iter().any(|(flag, word)| {
            proxied.contains(*flag)
                && fields
                    .get_all(Known::CacheControl)
                    .any(|value| has_token(value, word))
        });
    }
    !(proxied.contains(Proxied::NoLastModified) && fields.contains(Known::LastModified)
        || proxied.contains(Proxied::NoEtag) && fields.contains(Known::ETag))
}

fn is_expired(expires: &[u8], fields: &Fields) -> bool {
    let now = match fields.get(Known::Date) {
        Some(date) => parse_http_date(date),
        None => Some(clock::now_ms().div_euclid(1000)),
    };
    match (parse_http_date(expires), now) {
        (Some(expires), Some(now)) => expires < now,
        _ => false,
    }
}

/// A stream of gzip.
pub(crate) struct Gzip(Compress);

impl Compressor for Gzip {
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.run(input, FlushCompress::None, out)
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.run(&[], FlushCompress::Sync, out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.run(&[], FlushCompress::Finish, out)
    }
}

impl Gzip {
    /// Runs the compressor until it has taken the input and given what it is asked for.
    fn run(&mut self, input: &[u8], flush: FlushCompress, out: &mut Vec<u8>) -> io::Result<()> {
        let mut rest = input;
        // Each round makes room first, so the compressor always gets further.
        loop {
            out.reserve(OUTPUT_STEP);
            let before = self.0.total_in();
            let status = self.0.compress_vec(rest, out, flush)?;
            let taken = (self.0.total_in() - before) as usize;
            rest = rest.get(taken..).unwrap_or_default();
            let has_room = out.len() < out.capacity();
            // The compressor has nothing more to give when it left room.
            let is_done = rest.is_empty() && has_room && !is_finish(flush);
            if is_done || matches!(status, Status::StreamEnd) {
                return Ok(());
            }
        }
    }
}

fn is_finish(flush: FlushCompress) -> bool {
    matches!(flush, FlushCompress::Finish)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::compressor::compress_body;
    use bytes::Bytes;
    use millpond_system::body::{Body, FILE_READ_SIZE};
    use std::cell::Cell;
    use std::io::Read;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    fn compressed(body: Body) -> Body {
        let plan = Plan {
            level: 1,
            window_bits: 15,
        };
        compress_body(body, plan.compressor(), Rc::default())
    }

    fn pieces(mut body: Body) -> Vec<Bytes> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut pieces = Vec::new();
        loop {
            match body.poll_next(&mut cx) {
                Poll::Ready(Some(piece)) => pieces.push(piece.unwrap().take_memory().unwrap()),
                Poll::Ready(None) => return pieces,
                Poll::Pending => {}
            }
        }
    }

    fn unzip(bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(bytes)
            .read_to_end(&mut text)
            .unwrap();
        text
    }

    #[test]
    fn small_bodies_have_the_sizes_of_zlib() {
        for (text, len) in [(&b""[..], 20), (b"SEE-THIS", 28)] {
            let found = pieces(compressed(Body::from(Bytes::from_static(text))));
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].len(), len);
            assert_eq!(unzip(&found[0]), text);
        }
    }

    #[test]
    fn body_that_shrinks_to_nothing_lets_others_have_their_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let zeros = Bytes::from(vec![0; 4 << 20]);
        let mut body = compressed(Body::from(zeros.clone()));
        let turns = Rc::new(Cell::new(0));
        let others = Rc::clone(&turns);
        let set = tokio::task::LocalSet::new();
        set.spawn_local(async move {
            loop {
                others.set(others.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let compressing = set.run_until(async move {
            let mut whole = Vec::new();
            while let Some(piece) = std::future::poll_fn(|cx| body.poll_next(cx)).await {
                whole.extend_from_slice(&piece.unwrap().take_memory().unwrap());
            }
            whole
        });
        let whole = runtime.unwrap().block_on(compressing);
        assert_eq!(unzip(&whole), zeros);
        // 128 parts, sixteen in a turn.
        assert!(turns.get() >= 6, "{}", turns.get());
    }

    #[test]
    fn large_body_is_handed_on_in_pieces() {
        let mut seed = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        })
        .take(300_000)
        .collect();
        let found = pieces(compressed(Body::from(Bytes::from(noise.clone()))));
        assert!(found.len() > 5 && found.iter().all(|piece| piece.len() < 3 * FILE_READ_SIZE));
        assert_eq!(unzip(&found.concat()), noise);
    }

    #[test]
    fn old_msie_is_told_by_its_version() {
        for (agent, old) in [
            ("Mozilla/4.0 (compatible; MSIE 5.5; Windows)", true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows)", true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows; SV1)", false),
            ("Mozilla/4.0 (compatible; MSIE 7.0; Windows)", false),
            ("Mozilla/4.0 (compatible; MSIE 5.0; Windows) Opera 7", false),
            ("curl", false),
            ("MSIE ", false),
        ] {
            assert_eq!(is_old_msie(agent.as_bytes()), old, "{agent}");
        }
    }

    #[test]
    fn window_is_no_larger_than_the_body_needs() {
        for (length, bits) in [
            (None, 15),
            (Some(0), 15),
            (Some(100), 9),
            (Some(4000), 13),
            (Some(1 << 20), 15),
        ] {
            assert_eq!(window_bits(Window(15), length), bits, "{length:?}");
        }
    }
}
