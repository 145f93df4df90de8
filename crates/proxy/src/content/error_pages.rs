//! `error_page`, `recursive_error_pages`: the pages that stand for errors.
//!
//! This file says which answers they take the place of; `handler/error_page.rs` puts them there.

use std::sync::Arc;

use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{Template, Word};

use super::settings::ContentSettings;
use crate::request::Request;
use millpond_exchange::response::Response;

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
    /// The status that the answer gets.
    pub status: PageStatus,
    /// The place where the page is.
    pub to: Template,
}

/// The status that the answer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageStatus {
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

/// True when an error page takes the place of answers of upstreams with this status, where those
/// are intercepted.
pub(crate) fn stands_for(req: &Request, status: u16) -> bool {
    status >= 300 && find(req, status).is_some()
}

/// The page of the location for a status.
pub(crate) fn find(req: &Request, status: u16) -> Option<Arc<ErrorPage>> {
    let pages = &req.location.settings.of::<ContentSettings>().error.pages;
    let of_status = pages
        .iter()
        .find(|pages| pages.statuses.contains(&status))?;
    Some(Arc::clone(&of_status.page))
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
