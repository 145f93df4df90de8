//! `flv`: Flash videos from a place in the middle on.
//!
//! A player that jumps asks for `?start=BYTES`, where it knows a tag of the video to begin; it gets
//! the rest of the file from there on, behind the head that a video begins with. What is no file is
//! answered as if the directive were not there.
//!
//! Source: nginx ngx_http_flv_module.

use std::collections::VecDeque;

use bytes::Bytes;
use millpond_conf::{Contexts, Statement};

use super::open_file::{self, Kind};
use super::{ContentHandler, path, static_file};
use crate::body::{Body, FileRegion, FileSource, Piece};
use crate::failure::Failure;
use crate::header::Known;
use crate::http1::Method;
use crate::request::Request;
use crate::response::Response;
use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;
use crate::var::request::argument;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "flv",
    contexts: Contexts::LOCATION,
    syntax: "",
    is_block: false,
    pass: Pass::First,
    doc: "Answers with files; with the argument `start` in the query, from that byte on behind the \
          head of a Flash video.",
    apply: flv,
}];

/// The head of a video with sound and pictures, and the length of the tag before the first: none.
const HEAD: &[u8] = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";

fn flv(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if builder.has_arguments(statement, 0..=0) {
        draft.handler = Some(ContentHandler::Flv);
    }
}

/// Answers with the file or the rest of it; `None` for what is no file.
pub fn run(req: &mut Request) -> Result<Option<Response>, Failure> {
    if !matches!(req.method, Method::Get | Method::Head) {
        return Err(Failure::Status(405));
    }
    if req.uri.last() == Some(&b'/') {
        return Ok(None);
    }
    let path = path::map(req)?;
    let file = open_file::open(req, &path.bytes).map_err(|error| error.fail(req, &path.bytes))?;
    if file.kind != Kind::File {
        return Ok(None);
    }
    let mut response = static_file::answer(req, &file)?;
    let Some(start) = start(&req.args).filter(|start| *start < file.len) else {
        return Ok(Some(response));
    };
    let region = FileRegion {
        file: FileSource::Plain(file.file.clone()),
        offset: start,
        len: file.len - start,
    };
    let len = HEAD.len() as u64 + region.len;
    response.length = Some(len);
    if response.fields.contains(Known::ETag) {
        // nginx: the tag is that of what is sent.
        let tag = static_file::etag(file.modified, len);
        response.fields.set(Known::ETag, tag);
    }
    if !req.is_head() {
        let head = Piece::Memory(Bytes::from_static(HEAD));
        response.body = Body::from(VecDeque::from([head, Piece::File(region)]));
    }
    Ok(Some(response))
}

/// Where the video is to begin; `None` for the whole file.
fn start(args: &[u8]) -> Option<u64> {
    let text = argument(args, b"start")?;
    let is_number = text.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(text).ok().filter(|_| is_number)?;
    text.parse().ok().filter(|start| *start > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_a_number_of_bytes() {
        for (args, expected) in [
            ("", None),
            ("start=", None),
            ("start=0", None),
            ("start=12", Some(12)),
            ("a=b&START=012", Some(12)),
            ("start=+1", None),
            ("start=-1", None),
            ("start=1.5", None),
            ("start=99999999999999999999", None),
        ] {
            assert_eq!(start(args.as_bytes()), expected, "{args}");
        }
    }
}
