//! `mp4`, `mp4_buffer_size`, `mp4_max_buffer_size`, `mp4_start_key_frame`: films from one time to
//! another.
//!
//! A player that jumps asks for `?start=SECONDS`, or for a part with `end=SECONDS`; it gets a film
//! of that part. How it is made is in `mp4/`. What is no file is answered as if the directive were
//! not there.
//!
//! Source: nginx ngx_http_mp4_module.

use bytes::Bytes;
use millpond_conf::{ByteSize, Contexts, Family, Statement};
use millpond_mp4::{Begin, Error, Film, Part, Wish};
use millpond_system::body::{BodyError, FileRegion, FileSource};
use millpond_system::log::error::Level;

use super::{part_or_files, static_file};
use crate::content::open_file::OpenFile;
use crate::content::{ContentHandler, Explained, Handler};
use crate::log::request_error;
use crate::phase::Begun;
use crate::request::Request;
use crate::var::request::argument;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::{RangeRule, Response};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::level::{Closing, OwnFamily};

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "mp4",
    contexts: Contexts::LOCATION,
    syntax: "",
    is_block: false,
    pass: Pass::First,
    doc: "Answers with files; with the arguments `start` and `end` in the query, which are seconds \
          with up to three decimals, with that part of an MP4 film.\n\n\
          # Differs from nginx\n\n\
          Films whose samples all have one size (plain sound), and parts that are shorter than a \
          chunk, are cut, too; nginx answers 500.",
    apply: mp4,
}];

/// The settings of this file.
pub const FAMILY: OwnFamily = OwnFamily::of::<Mp4Policy>();

/// The way in which films are read.
#[derive(Clone, Debug, Family)]
#[family(http, server, location)]
pub struct Mp4Policy {
    /// The memory for reading a film, at first.
    ///
    /// # Differs from nginx
    ///
    /// As much is read as a film's description is long. The size counts only where it is larger
    /// than `mp4_max_buffer_size`.
    #[directive(name = "mp4_buffer_size", default = "512k")]
    pub buffer_size: ByteSize,
    /// The longest description (`moov`) of a film that is cut; a longer one is answered with 500.
    #[directive(name = "mp4_max_buffer_size", default = "10m")]
    pub max_buffer_size: ByteSize,
    /// Begins a part with the whole picture before the part's start, so that no player shows half a
    /// picture; players that know edit lists skip what comes before the start.
    #[directive(name = "mp4_start_key_frame", default = "off")]
    pub start_key_frame: bool,
}

fn mp4(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if builder.has_arguments(statement, 0..=0) {
        // Those that hold where nothing is said, until the block is closed.
        let policy = Mp4Policy::resolve(&[], &mut builder.cx);
        draft.put(ContentHandler::own(Mp4 { policy }));
    }
}

/// Films, and parts of them.
#[derive(Debug)]
struct Mp4 {
    policy: Mp4Policy,
}

impl Handler for Mp4 {
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure> {
        let part = run(req, &self.policy)?;
        part_or_files(req, part)
    }

    fn explain(&self) -> Explained {
        Explained::Files
    }

    fn settle(&mut self, level: &mut Closing<'_>) {
        self.policy = level.own();
    }
}

/// Answers with the film or a part of it; `None` for what is no file.
fn run(req: &mut Request, policy: &Mp4Policy) -> Result<Option<Response>, Failure> {
    let Some(file) = static_file::open_only(req)? else {
        return Ok(None);
    };
    let Some(wish) = wish(req, policy) else {
        return static_file::answer(req, &file).map(Some);
    };
    let mut response = match cut(req, &file, (&wish, policy))? {
        Some(part) => static_file::answer_part(req, &file, (part.head, part.data))?,
        None => static_file::answer(req, &file)?,
    };
    response.parts.rule = RangeRule::Single;
    Ok(Some(response))
}

fn cut(
    req: &Request,
    file: &OpenFile,
    (wish, policy): (&Wish, &Mp4Policy),
) -> Result<Option<Part>, Failure> {
    let most = policy.max_buffer_size.as_usize();
    let film = Film {
        len: file.len,
        read: |at, len| read(file, at, len),
        moov_max: most.max(policy.buffer_size.as_usize()) as u64,
    };
    millpond_mp4::cut(&film, wish).map_err(|error| match error {
        Error::Fault(fault) => {
            let uri = String::from_utf8_lossy(&req.uri);
            request_error::write(req, Level::Error, format_args!("{fault} in \"{uri}\""));
            Failure::Status(500)
        }
        Error::Read(error) => Failure::disk(std::io::Error::other(error.to_string())),
    })
}

fn read(file: &OpenFile, offset: u64, len: u64) -> Result<Bytes, BodyError> {
    let file = FileSource::Plain(file.file.clone());
    FileRegion { file, offset, len }.read()
}

/// The part that is asked for; `None` for the whole film.
fn wish(req: &Request, policy: &Mp4Policy) -> Option<Wish> {
    let begin = if policy.start_key_frame {
        Begin::KeyFrame
    } else {
        Begin::Frame
    };
    let (start_ms, length_ms) = times(&req.args)?;
    Some(Wish {
        start_ms,
        length_ms,
        begin,
    })
}

/// Start and length in milliseconds.
fn times(args: &[u8]) -> Option<(u64, Option<u64>)> {
    let time = |name| argument(args, name).and_then(milliseconds);
    let end = time(b"end").filter(|end| *end > 0);
    let start = match (time(b"start"), end) {
        (None, None) => return None,
        (start, _) => start.unwrap_or_default(),
    };
    // nginx: an end that is not behind the start is none.
    let length = end.and_then(|end| end.checked_sub(start));
    Some((start, length.filter(|length| *length > 0)))
}

/// Seconds with decimals, of which three count.
fn milliseconds(text: &[u8]) -> Option<u64> {
    let at = text.iter().position(|byte| *byte == b'.');
    let (seconds, decimals) = text.split_at(at.unwrap_or(text.len()));
    let decimals = decimals.strip_prefix(b".").unwrap_or(decimals);
    let has_digits_only = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    if text.is_empty() || !has_digits_only(seconds) || !has_digits_only(decimals) {
        return None;
    }
    let decimals = decimals.iter().copied().chain(std::iter::repeat(b'0'));
    let digits = seconds.iter().copied().chain(decimals.take(3));
    let mut numbers = digits.map(|digit| u64::from(digit - b'0'));
    let total = numbers.try_fold(0_u64, |total, digit| {
        total.checked_mul(10)?.checked_add(digit)
    });
    total.filter(|total| i64::try_from(*total).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_with_decimals() {
        for (args, expected) in [
            ("", None),
            ("start=", None),
            ("start=x", None),
            ("start=-1", None),
            ("start=1.2.3", None),
            ("start=0", Some((0, None))),
            ("start=.", Some((0, None))),
            ("start=2", Some((2000, None))),
            ("start=2.71828", Some((2718, None))),
            ("START=.5&end=2", Some((500, Some(1500)))),
            ("end=2.5", Some((0, Some(2500)))),
            ("end=0", None),
            ("start=1&end=1", Some((1000, None))),
            ("start=1&end=0", Some((1000, None))),
            ("start=x&end=1", Some((0, Some(1000)))),
            (
                "start=9223372036854775",
                Some((9_223_372_036_854_775_000, None)),
            ),
            ("start=9223372036854776", None),
            ("start=99999999999999999999", None),
        ] {
            assert_eq!(times(args.as_bytes()), expected, "{args}");
        }
    }
}
