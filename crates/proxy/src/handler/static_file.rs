//! `etag`, `gzip_static`: files of this machine.
//!
//! A path is mapped (`path.rs`), opened once and answered from its descriptor: a small file is read
//! into memory, so that head and body leave in one write; a larger one is left to `sendfile`. A
//! folder is redirected to its path with a slash.
//!
//! What it does not do: it makes no list of a folder (`autoindex.rs`).
//!
//! Sources: nginx ngx_http_static_handler, ngx_http_gzip_static_handler, ngx_http_set_etag.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use millpond_semantics::accept_encoding::Coding;
use millpond_semantics::date::format_http_date;
use millpond_system::body::{Body, FileRegion, FileSource, Piece};
use millpond_system::log::error::Level;
use millpond_wire::header::{Fields, Known};
use millpond_wire::http1::Method;

use super::redirect;
use crate::content::open_file::{self, Kind, OpenFile};
use crate::content::path::{self, FilePath};
use crate::content::settings::ContentSettings;
use crate::filter::coding::CODINGS;
use crate::filter::gzip;
use crate::filter::settings::FilterSettings;
use crate::handler::settings::HandlerSettings;
use crate::log::request_error;
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::{Parts, RangeRule, Response};

/// A file up to this size is read into memory: one copy costs less than a second call for
/// `sendfile`.
const SMALL_FILE: u64 = 8 * 1024;

/// The way in which files are answered.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct StaticPolicy {
    /// Gives files an ETag, made from the time of their change and their length.
    #[directive(name = "etag", default = "on")]
    pub etag: bool,
    /// Sends a file with `.gz` behind its name in the file's place: to clients that take it, or to
    /// all.
    #[directive(name = "gzip_static", default = "off")]
    pub gzip_static: StaticCoding,
    /// Sends a file with `.br` behind its name in the file's place: to clients that take brotli, or
    /// to all.
    ///
    /// Of several compressed files that a client takes, that of brotli is sent before that of zstd
    /// before that of gzip.
    #[directive(name = "brotli_static", default = "off")]
    pub brotli_static: StaticCoding,
    /// Sends a file with `.zst` behind its name in the file's place: to clients that take zstd, or
    /// to all.
    #[directive(name = "zstd_static", default = "off")]
    pub zstd_static: StaticCoding,
}

/// The clients for whom compressed files are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum StaticCoding {
    /// Never.
    #[word("off")]
    Off,
    /// Compressed files are sent to clients that take them.
    #[word("on")]
    On,
    /// Compressed files are sent to all clients.
    #[word("always")]
    Always,
}

/// Answers with the file of the path.
pub(crate) fn run(req: &mut Request) -> Result<Response, Failure> {
    if !matches!(req.method, Method::Get | Method::Head | Method::Post) {
        return Err(Failure::Status(405));
    }
    let compressed = find_compressed(req)?;
    if let Compressed::Found(response) = compressed {
        return Ok(*response);
    }
    let path = path::map(req)?;
    let file = match open_file::open(req, &path.bytes) {
        Ok(file) => file,
        Err(error) => {
            if matches!(compressed, Compressed::NotTaken) {
                // nginx: another client would have got the compressed file.
                let value = Bytes::from_static(b"Accept-Encoding");
                req.answer_fields.set(Known::Vary, value);
            }
            return Err(error.fail(req, &path.bytes));
        }
    };
    match file.kind {
        Kind::Directory => {
            let uri = req.uri.clone();
            return Err(redirect::add_slash(req, &uri));
        }
        Kind::Other => return Err(not_regular(req, &path)),
        Kind::File if req.method == Method::Post => return Err(Failure::Status(405)),
        Kind::File => {}
    }
    let mut response = answer(req, &file)?;
    response.changes.are_by_coding = matches!(compressed, Compressed::NotTaken);
    Ok(response)
}

fn not_regular(req: &Request, path: &FilePath) -> Failure {
    let path = String::from_utf8_lossy(&path.bytes);
    request_error::write(
        req,
        Level::Crit,
        format_args!("\"{path}\" is not a regular file"),
    );
    Failure::Status(404)
}

/// Opens the file of a request for what answers with files alone; `None` for what is no file.
pub(crate) fn open_only(req: &mut Request) -> Result<Option<OpenFile>, Failure> {
    if !matches!(req.method, Method::Get | Method::Head) {
        return Err(Failure::Status(405));
    }
    if req.uri.last() == Some(&b'/') {
        return Ok(None);
    }
    let path = path::map(req)?;
    let file = open_file::open(req, &path.bytes).map_err(|error| error.fail(req, &path.bytes))?;
    Ok((file.kind == Kind::File).then_some(file))
}

/// The answer with a head of ours and a region of a file behind it, instead of the whole file.
pub(crate) fn answer_part(
    req: &Request,
    file: &OpenFile,
    (head, region): (Bytes, Range<u64>),
) -> Result<Response, Failure> {
    let mut response = answer(req, file)?;
    let region = FileRegion {
        file: FileSource::Plain(file.file.clone()),
        offset: region.start,
        len: region.end.saturating_sub(region.start),
    };
    let len = head.len() as u64 + region.len;
    response.length = Some(len);
    if response.fields.contains(Known::ETag) {
        // nginx: the tag is that of what is sent.
        response.fields.set(Known::ETag, etag(file.modified, len));
    }
    if !req.is_head() {
        let pieces = [Piece::Memory(head), Piece::File(region)];
        response.body = Body::from(VecDeque::from(pieces));
    }
    Ok(response)
}

/// The answer with an open file.
pub(crate) fn answer(req: &Request, file: &OpenFile) -> Result<Response, Failure> {
    let settings = &req.location.settings;
    let mut fields = Fields::with_capacity(8);
    let content_type = settings.of::<ContentSettings>().types.type_of(&req.uri);
    if !content_type.is_empty() {
        fields.push_known(Known::ContentType, content_type);
    }
    let date = Bytes::copy_from_slice(&format_http_date(file.modified));
    fields.push_known(Known::LastModified, date);
    if settings.of::<HandlerSettings>().static_files.etag {
        fields.push_known(Known::ETag, etag(file.modified, file.len));
    }
    Ok(Response {
        status: 200,
        fields,
        length: Some(file.len),
        body: body(req, file)?,
        last_modified: Some(file.modified),
        parts: Parts {
            rule: RangeRule::Allowed,
            ..Parts::default()
        },
        ..Response::default()
    })
}

fn body(req: &Request, file: &OpenFile) -> Result<Body, Failure> {
    if req.is_head() || file.len == 0 {
        return Ok(Body::Empty);
    }
    let region = FileRegion {
        file: FileSource::Plain(file.file.clone()),
        offset: 0,
        len: file.len,
    };
    if file.len > SMALL_FILE {
        return Ok(Body::One(Piece::File(region)));
    }
    let bytes = region
        .read()
        .map_err(|error| Failure::disk(std::io::Error::other(error.to_string())))?;
    Ok(Body::from(bytes))
}

/// nginx's tag: time and length in hexadecimal, `"5e9f1a2b-264"`.
pub(crate) fn etag(modified: i64, len: u64) -> Bytes {
    let mut text = Vec::with_capacity(36);
    text.push(b'"');
    if modified < 0 {
        text.push(b'-');
    }
    push_hex(modified.unsigned_abs(), &mut text);
    text.push(b'-');
    push_hex(len, &mut text);
    text.push(b'"');
    Bytes::from(text)
}

fn push_hex(number: u64, text: &mut Vec<u8>) {
    let digits = (16 - number.leading_zeros() / 4).max(1);
    for place in (0..digits).rev() {
        // A nibble is below 16.
        let nibble = (number >> (place * 4)) as u8 & 15;
        text.push(if nibble < 10 {
            b'0' + nibble
        } else {
            b'a' + nibble - 10
        });
    }
}

/// The result of looking for a compressed file.
enum Compressed {
    /// The compressed file is the answer.
    Found(Box<Response>),
    /// The file has a compressed one, but the client does not take that.
    NotTaken,
    /// The file has no compressed one, or none is wanted.
    Nothing,
}

fn find_compressed(req: &mut Request) -> Result<Compressed, Failure> {
    let policy = &req.location.settings.of::<HandlerSettings>().static_files;
    let modes = [policy.brotli_static, policy.zstd_static, policy.gzip_static];
    if modes == [StaticCoding::Off; 3] || !matches!(req.method, Method::Get | Method::Head) {
        return Ok(Compressed::Nothing);
    }
    let mut is_left_out = false;
    for (coding, mode) in CODINGS.into_iter().zip(modes) {
        match find_coded(req, coding, mode)? {
            Compressed::Found(mut response) => {
                response.changes.are_by_coding |= is_left_out;
                return Ok(Compressed::Found(response));
            }
            Compressed::NotTaken => is_left_out = true,
            Compressed::Nothing => {}
        }
    }
    Ok(if is_left_out {
        Compressed::NotTaken
    } else {
        Compressed::Nothing
    })
}

/// Looks for the file of one coding.
fn find_coded(
    req: &mut Request,
    coding: Coding,
    mode: StaticCoding,
) -> Result<Compressed, Failure> {
    if mode == StaticCoding::Off {
        return Ok(Compressed::Nothing);
    }
    let is_taken = mode == StaticCoding::Always || is_taken(req, coding);
    if !is_taken && !req.location.settings.of::<FilterSettings>().gzip.vary {
        return Ok(Compressed::Nothing);
    }
    let mut path = path::map(req)?;
    path.bytes.extend_from_slice(suffix(coding));
    let file = match open_file::open(req, &path.bytes) {
        Ok(file) => file,
        Err(error) => {
            if !error.is_missing() {
                let level = if error.is_denied() {
                    Level::Error
                } else {
                    Level::Crit
                };
                error.log(req, level, &path.bytes);
            }
            return Ok(Compressed::Nothing);
        }
    };
    match file.kind {
        _ if !is_taken => return Ok(Compressed::NotTaken),
        Kind::Directory => return Ok(Compressed::Nothing),
        Kind::Other => return Err(not_regular(req, &path)),
        Kind::File => {}
    }
    let mut response = answer(req, &file)?;
    let name = Bytes::from_static(coding.name().as_bytes());
    response.fields.push_known(Known::ContentEncoding, name);
    response.changes.are_by_coding = mode == StaticCoding::On;
    Ok(Compressed::Found(Box::new(response)))
}

fn is_taken(req: &Request, coding: Coding) -> bool {
    match coding {
        Coding::Gzip => gzip::is_taken(req, &Fields::new()),
        Coding::Brotli | Coding::Zstd => req.coding_quality(coding) > 0,
    }
}

fn suffix(coding: Coding) -> &'static [u8] {
    match coding {
        Coding::Brotli => b".br",
        Coding::Zstd => b".zst",
        Coding::Gzip => b".gz",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etag_is_time_and_length_in_hexadecimal() {
        for (modified, len, expected) in [
            (0, 0, "\"0-0\""),
            (0x5e9f_1a2b, 0x264, "\"5e9f1a2b-264\""),
            (-1, u64::MAX, "\"-1-ffffffffffffffff\""),
            (16, 10, "\"10-a\""),
        ] {
            assert_eq!(etag(modified, len), expected);
        }
    }
}
