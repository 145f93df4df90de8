//! The built-in pages: what a status without a page of its own looks like.
//!
//! The pages have nginx's text, so that whoever looks for it finds it; at their end stands this
//! server's name, as `server_tokens` says. A status that has no page is answered with an empty
//! body.

use bytes::{BufMut, Bytes, BytesMut};

use crate::request::Request;
use millpond_exchange::response::Response;

/// Status and reason as pages write them.
const TITLES: &[(u16, &str)] = &[
    (301, "301 Moved Permanently"),
    (302, "302 Found"),
    (303, "303 See Other"),
    (307, "307 Temporary Redirect"),
    (308, "308 Permanent Redirect"),
    (400, "400 Bad Request"),
    (401, "401 Authorization Required"),
    (402, "402 Payment Required"),
    (403, "403 Forbidden"),
    (404, "404 Not Found"),
    (405, "405 Not Allowed"),
    (406, "406 Not Acceptable"),
    (407, "407 Proxy Authentication Required"),
    (408, "408 Request Time-out"),
    (409, "409 Conflict"),
    (410, "410 Gone"),
    (411, "411 Length Required"),
    (412, "412 Precondition Failed"),
    (413, "413 Request Entity Too Large"),
    (414, "414 Request-URI Too Large"),
    (415, "415 Unsupported Media Type"),
    (416, "416 Requested Range Not Satisfiable"),
    (421, "421 Misdirected Request"),
    (429, "429 Too Many Requests"),
    (498, "404 Not Found"),
    (500, "500 Internal Server Error"),
    (501, "501 Not Implemented"),
    (502, "502 Bad Gateway"),
    (503, "503 Service Temporarily Unavailable"),
    (504, "504 Gateway Time-out"),
    (505, "505 HTTP Version Not Supported"),
    (507, "507 Insufficient Storage"),
];

/// Statuses of nginx's own that go out as 400, with what their pages say.
const BAD_REQUESTS: &[(u16, &str)] = &[
    (494, "Request Header Or Cookie Too Large"),
    (495, "The SSL certificate error"),
    (496, "No required SSL certificate was sent"),
    (497, "The plain HTTP request was sent to HTTPS port"),
];

/// The status that the client sees.
pub(crate) fn wire_status(status: u16) -> u16 {
    match status {
        494..=497 => 400,
        status => status,
    }
}

/// True for errors after which the connection is not trusted to be in step (nginx's list).
pub(crate) fn closes_connection(status: u16) -> bool {
    matches!(status, 400 | 413 | 414 | 495..=497 | 500 | 501)
}

/// The built-in page of a status.
pub(crate) fn page(req: &Request, status: u16) -> Response {
    let name = req.location.settings.tokens.server_field();
    match body(status, name) {
        Some(body) => {
            let content_type = Bytes::from_static(b"text/html");
            Response::text(wire_status(status), content_type, body)
        }
        None => Response::empty(wire_status(status)),
    }
}

fn body(status: u16, server: &[u8]) -> Option<Bytes> {
    let find = |table: &[(u16, &'static str)]| {
        table
            .iter()
            .find(|(code, _)| *code == status)
            .map(|(_, text)| *text)
    };
    let mut body = BytesMut::with_capacity(256);
    if let Some(title) = find(TITLES) {
        put_head(&mut body, &[title]);
        put_all(&mut body, &["<center><h1>", title, "</h1></center>\r\n"]);
    } else {
        let reason = find(BAD_REQUESTS)?;
        put_head(&mut body, &["400 ", reason]);
        put_all(
            &mut body,
            &["<center><h1>400 Bad Request</h1></center>\r\n"],
        );
        put_all(&mut body, &["<center>", reason, "</center>\r\n"]);
    }
    body.put_slice(b"<hr><center>");
    body.put_slice(server);
    body.put_slice(b"</center>\r\n</body>\r\n</html>\r\n");
    Some(body.freeze())
}

fn put_head(body: &mut BytesMut, title: &[&str]) {
    body.put_slice(b"<html>\r\n<head><title>");
    put_all(body, title);
    body.put_slice(b"</title></head>\r\n<body>\r\n");
}

fn put_all(body: &mut BytesMut, parts: &[&str]) {
    for part in parts {
        body.put_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_name_the_status_and_the_server() {
        let page = body(404, b"millpond").unwrap();
        let expected = "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n\
            <center><h1>404 Not Found</h1></center>\r\n<hr><center>millpond</center>\r\n\
            </body>\r\n</html>\r\n";
        assert_eq!(page, expected);
        assert_eq!(body(418, b"millpond"), None);
    }

    #[test]
    fn statuses_of_nginx_alone_go_out_as_400() {
        for (status, reason) in BAD_REQUESTS {
            let page = body(*status, b"x").unwrap();
            let page = String::from_utf8_lossy(&page).into_owned();
            assert!(page.contains("<h1>400 Bad Request</h1>"), "{page}");
            assert!(
                page.contains(&format!("<title>400 {reason}</title>")),
                "{page}"
            );
            assert_eq!(wire_status(*status), 400);
        }
    }
}
