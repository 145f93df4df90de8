//! `empty_gif`: a picture of one transparent pixel, from memory.
//!
//! For pages that count their readers by a picture: no file is opened for it. It is never
//! changed, so that a client's copy may be confirmed by its date.

use bytes::Bytes;
use millpond_conf::{Contexts, Statement};
use millpond_wire::header::Known;
use millpond_wire::http1::Method;

use crate::content::{ContentHandler, Explained, Handler};
use crate::phase::Begun;
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "empty_gif",
    contexts: Contexts::LOCATION,
    syntax: "",
    is_block: false,
    pass: Pass::First,
    doc: "Answers with a picture of one transparent pixel.",
    apply: empty_gif,
}];

/// The time of the picture's last change that is told: 1970-09-28, as in nginx.
const MODIFIED: i64 = 23_349_600;
/// The time of [`MODIFIED`] as the value of a field.
const MODIFIED_TEXT: &str = "Mon, 28 Sep 1970 06:00:00 GMT";

/// The picture, part by part as GIF89a has them.
const PICTURE: &[u8] = b"GIF89a\
    \x01\0\x01\0\x80\x01\0\
    \0\0\0\xff\xff\xff\
    \x21\xf9\x04\x01\0\0\x01\0\
    \x2c\0\0\0\0\x01\0\x01\0\0\
    \x02\x02\x4c\x01\0\
    \x3b";

fn empty_gif(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if builder.has_arguments(statement, 0..=0) {
        draft.put(ContentHandler::own(EmptyGif));
    }
}

/// The picture.
#[derive(Debug)]
struct EmptyGif;

impl Handler for EmptyGif {
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure> {
        run(req).map(Begun::answer)
    }

    fn explain(&self) -> Explained {
        Explained::Itself("empty_gif")
    }
}

/// Answers with the picture.
fn run(req: &mut Request) -> Result<Response, Failure> {
    if !matches!(req.method, Method::Get | Method::Head) {
        return Err(Failure::Status(405));
    }
    let content_type = Bytes::from_static(b"image/gif");
    let mut response = Response::text(200, content_type, Bytes::from_static(PICTURE));
    response.last_modified = Some(MODIFIED);
    let modified = Bytes::from_static(MODIFIED_TEXT.as_bytes());
    response.fields.push_known(Known::LastModified, modified);
    Ok(response)
}
