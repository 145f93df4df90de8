//! `error_page`, `recursive_error_pages`: answers instead of errors.
//!
//! ```text
//! status ─► page of the location? ─ no ─► built-in page
//!              │ /path            ─► internal redirect, as GET, from the server's rewrites on
//!              │ @name            ─► the named location
//!              └ anything else    ─► 302 to it, or the redirect that `=code` names
//! ```
//!
//! Invariants:
//! 1. The answer gets the status of the error, or `=code`, or with a lone `=` its own.
//! 2. Unless `recursive_error_pages` is on, the error of an error page gets the built-in page.
//!
//! Sources: nginx's special responses.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{Template, Word};
use millpond_wire::header::Known;
use millpond_wire::http1::Method;

use super::{redirect, special};
use crate::client::body::RequestBody;
use crate::failure::{CLOSE_WITHOUT_ANSWER, Failure};
use crate::handler::settings::HandlerSettings;
use crate::phase::{self, Flow, Next};
use crate::protocol::Protocol;
use crate::request::Request;
use crate::response::Response;

/// The answers that errors turn into.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, if_location)]
pub struct ErrorPolicy {
    /// The answer in place of an error: a path, a named location or a redirect, for each of the
    /// statuses.
    #[directive(name = "error_page", repeat)]
    pub pages: Vec<ErrorPages>,
    /// Looks up the error of an error page in the pages again.
    #[directive(
        name = "recursive_error_pages",
        default = "off",
        contexts(http, server, location)
    )]
    pub is_recursive: bool,
}

/// The arguments of one `error_page`.
#[derive(Clone, Debug)]
pub struct ErrorPages {
    statuses: Vec<u16>,
    page: Arc<ErrorPage>,
}

/// The answer in place of an error.
#[derive(Debug)]
pub(crate) struct ErrorPage {
    status: PageStatus,
    to: Template,
}

/// The status that the answer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageStatus {
    /// The status of the error.
    Error,
    /// The status of the page (`=`).
    Own,
    /// The status of `=code`.
    Code(u16),
}

impl FromArgs for ErrorPages {
    const SYNTAX: &'static str = "code ... [=[response]] uri";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(2)?;
        let to = args.word(words.len() - 1)?;
        let before = words.get(..words.len() - 1).unwrap_or_default();
        let (codes, status) = match before.split_last() {
            Some((last, codes)) if last.text.starts_with('=') => {
                let status = parse_status(last, codes.is_empty())
                    .ok_or_else(|| invalid(before.len() - 1, last))?;
                (codes, status)
            }
            _ => (before, PageStatus::Error),
        };
        let mut statuses = Vec::with_capacity(codes.len());
        for (index, word) in codes.iter().enumerate() {
            statuses.push(parse_code(index, word)?);
        }
        let page = Arc::new(ErrorPage { status, to });
        Ok(ErrorPages { statuses, page })
    }
}

fn parse_status(word: &Word, is_first: bool) -> Option<PageStatus> {
    match word.text.strip_prefix('=')? {
        _ if is_first => None,
        "" => Some(PageStatus::Own),
        code => Some(PageStatus::Code(number(code)?)),
    }
}

fn parse_code(index: usize, word: &Word) -> Result<u16, ArgError> {
    match number(&word.text) {
        None | Some(499) => Err(invalid(index, word)),
        Some(code) if !(300..=599).contains(&code) => Err(ArgError::value(
            index,
            format!("value \"{}\" must be between 300 and 599", word.text),
        )),
        Some(code) => Ok(code),
    }
}

fn number(text: &str) -> Option<u16> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

fn invalid(index: usize, word: &Word) -> ArgError {
    ArgError::value(index, format!("invalid value \"{}\"", word.text))
}

/// True when an error page takes the place of an answer that an upstream gave.
pub(crate) fn takes_over(req: &Request, response: &Response) -> bool {
    response.orders.may_be_intercepted
        && response.status >= 300
        && find(req, response.status).is_some()
}

/// True when an error page will take the place of an upstream's answer with this status.
pub(crate) fn is_intercepted(req: &Request, protocol: Protocol, status: u16) -> bool {
    let policy = &req.location.settings.pass(protocol).answer;
    policy.intercept_errors && status >= 300 && find(req, status).is_some()
}

/// Goes from an error to its page, or to the built-in one.
pub(crate) fn follow_status(req: &mut Request, status: u16) -> Next {
    // nginx: these end the connection; nobody is there to read a page.
    if matches!(status, CLOSE_WITHOUT_ANSWER | 408 | 499) {
        req.error.status = 0;
        return Next::Answer(Box::new(Response::empty(status)));
    }
    if special::closes_connection(status) {
        req.client.end_connection();
    }
    req.error.status = status;
    let page = if req.error.had_page {
        None
    } else {
        find(req, status)
    };
    match page {
        Some(page) => follow(req, &page, status),
        None => built_in(req, status),
    }
}

fn find(req: &Request, status: u16) -> Option<Arc<ErrorPage>> {
    let pages = &req.location.settings.of::<HandlerSettings>().error.pages;
    let of_status = pages
        .iter()
        .find(|pages| pages.statuses.contains(&status))?;
    Some(Arc::clone(&of_status.page))
}

fn follow(req: &mut Request, page: &ErrorPage, status: u16) -> Next {
    req.error.had_page = !req
        .location
        .settings
        .of::<HandlerSettings>()
        .error
        .is_recursive;
    req.error.status = match page.status {
        PageStatus::Error => special::wire_status(status),
        PageStatus::Own => 0,
        PageStatus::Code(code) => code,
    };
    let to = req.eval(&page.to);
    if status == 413 {
        // nginx: a body that was refused is discarded; it is none of the page's.
        req.body = RequestBody::None;
    }
    let flow = match to.first() {
        Some(b'/') => redirect(req, &to),
        Some(b'@') => phase::redirect_named(req, &to),
        _ => return redirect_client(req, page, to),
    };
    match flow {
        Ok(Flow::Jump(phase)) => Next::Run(phase),
        Ok(_) => built_in(req, 500),
        Err(failure) => {
            crate::log::request_error::failure(req, &failure);
            built_in(req, failure.status())
        }
    }
}

/// nginx: pages are fetched, whatever the request was.
fn redirect(req: &mut Request, to: &Bytes) -> Result<Flow, Failure> {
    if req.method != Method::Head {
        req.method = Method::Get;
    }
    let (path, args) = match memchr::memchr(b'?', to) {
        Some(mark) => (to.slice(..mark), to.slice(mark + 1..)),
        None => (to.clone(), Bytes::new()),
    };
    phase::redirect(req, path, args)
}

fn redirect_client(req: &mut Request, page: &ErrorPage, to: Bytes) -> Next {
    let status = match page.status {
        PageStatus::Code(code @ (301 | 302 | 303 | 307 | 308)) => code,
        _ => 302,
    };
    req.answer_fields.set(Known::Location, to);
    built_in(req, status)
}

fn built_in(req: &mut Request, status: u16) -> Next {
    if req.is_clients_own() && req.client.discard_ready().is_err() {
        // Nobody knows where the next request begins.
        req.client.end_connection();
    }
    if let Some(page) = redirect::refresh_page(req, status) {
        req.error.status = page.status;
        return Next::Answer(Box::new(page));
    }
    req.error.status = special::wire_status(status);
    Next::Answer(Box::new(special::page(req, status)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{ParseContext, Span};

    fn read(text: &str) -> Result<(Vec<u16>, PageStatus, String), ArgError> {
        let word = |text: &str| Word {
            text: text.to_string(),
            span: Span::NONE,
            quoted: false,
        };
        let words: Vec<Word> = text.split(' ').map(word).collect();
        let mut cx = ParseContext::default();
        let pages = ErrorPages::from_args(&mut Args {
            name: &word("error_page"),
            words: &words,
            body: None,
            cx: &mut cx,
        })?;
        Ok((
            pages.statuses,
            pages.page.status,
            pages.page.to.source.to_string(),
        ))
    }

    #[test]
    fn codes_come_before_an_optional_status_and_the_target() {
        for (text, statuses, status, to) in [
            ("404 /x", vec![404], PageStatus::Error, "/x"),
            (
                "500 502 =200 @a",
                vec![500, 502],
                PageStatus::Code(200),
                "@a",
            ),
            ("404 = /x?y=$args", vec![404], PageStatus::Own, "/x?y=$args"),
            (
                "404 =301 http://a/",
                vec![404],
                PageStatus::Code(301),
                "http://a/",
            ),
        ] {
            assert_eq!(read(text), Ok((statuses, status, to.to_string())), "{text}");
        }
        for text in [
            "404",
            "=200 /x",
            "404 =x /x",
            "200 /x",
            "600 /x",
            "499 /x",
            "x /x",
            "404 $",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
