//! `flv`: Flash videos from a place in the middle on.
//!
//! A player that jumps asks for `?start=BYTES`, where it knows a tag of the video to begin; it gets
//! the rest of the file from there on, behind the head that a video begins with. What is no file is
//! answered as if the directive were not there.
//!
//! Source: nginx ngx_http_flv_module.

use bytes::Bytes;
use millpond_conf::{Contexts, Statement};

use super::{part_or_files, static_file};
use crate::content::{ContentHandler, Explained, Handler};
use crate::phase::Begun;
use crate::request::Request;
use crate::var::request::argument;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;

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
        draft.put(ContentHandler::own(Flv));
    }
}

/// Files, and what is left of them from an offset on.
#[derive(Debug)]
struct Flv;

impl Handler for Flv {
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure> {
        let part = run(req)?;
        part_or_files(req, part)
    }

    fn explain(&self) -> Explained {
        Explained::Files
    }
}

/// Answers with the file or the rest of it; `None` for what is no file.
fn run(req: &mut Request) -> Result<Option<Response>, Failure> {
    let Some(file) = static_file::open_only(req)? else {
        return Ok(None);
    };
    let response = match start(&req.args).filter(|start| *start < file.len) {
        Some(start) => {
            let part = (Bytes::from_static(HEAD), start..file.len);
            static_file::answer_part(req, &file, part)?
        }
        None => static_file::answer(req, &file)?,
    };
    Ok(Some(response))
}

/// The offset at which the video is to begin; `None` for the whole file.
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
