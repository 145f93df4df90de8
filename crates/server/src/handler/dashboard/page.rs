//! The page: three files that are put together into one, once.
//!
//! Style and script stand inside the page and are named by their hashes in its
//! Content-Security-Policy, so that the browser runs those and nothing else, and asks no other
//! server for anything.

use std::sync::OnceLock;

use bytes::Bytes;
use millpond_exchange::response::Response;
use millpond_wire::base64;
use millpond_wire::header::{Field, Known};
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The mark in the page that the style replaces.
const STYLE_PLACE: &str = "/*style*/";
const SCRIPT_PLACE: &str = "/*script*/";

/// The page as it is sent.
struct Page {
    text: Bytes,
    policy: Bytes,
}

/// Answers with the page.
pub(super) fn answer() -> Response {
    static MADE: OnceLock<Page> = OnceLock::new();
    let page = MADE.get_or_init(make);
    let content_type = Bytes::from_static(b"text/html; charset=utf-8");
    let mut response = Response::text(200, content_type, page.text.clone());
    response.fields.push(Field::new(
        Bytes::from_static(b"Content-Security-Policy"),
        page.policy.clone(),
    ));
    response
        .fields
        .set(Known::ContentLanguage, Bytes::from_static(b"en"));
    response
}

fn make() -> Page {
    let text = PAGE
        .replacen(STYLE_PLACE, STYLE, 1)
        .replacen(SCRIPT_PLACE, SCRIPT, 1);
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
        base64::encode(&Sha256::digest(SCRIPT.as_bytes())),
        base64::encode(&Sha256::digest(STYLE.as_bytes())),
    );
    Page {
        text: Bytes::from(text),
        policy: Bytes::from(policy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_all_that_it_needs_and_names_no_other_server() {
        let page = make();
        let text = std::str::from_utf8(&page.text).unwrap();
        assert!(!text.contains(STYLE_PLACE) && !text.contains(SCRIPT_PLACE));
        for other in ["http://", "https://", "src=", "@import", "url("] {
            let is_there = text
                .replace("http://www.w3.org/2000/svg", "")
                .contains(other);
            assert!(!is_there, "{other}");
        }
        // The policy forbids them.
        for inline in [" style=", " onclick="] {
            assert!(!text.contains(inline), "{inline}");
        }
    }
}
