//! The origin of the demo's fleet: pages of which there are newer editions when somebody says so.
//!
//! Invariants:
//! 1. A page tells its edition in its body, in its ETag and in a tag, so that a cache's list of
//!    entries says which one it has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::http::{Answer, Request, Site, Stop};

/// Time that a page takes to make: enough to tell it from a hit.
const THINKING: Duration = Duration::from_millis(100);
/// Tag of an edition, before its number.
const EDITION: &str = "edition-";

/// A page.
#[derive(Debug)]
pub(super) struct Page {
    /// Path of the page.
    pub(super) path: &'static str,
    /// Tag of the page, which others may have, too.
    pub(super) tag: &'static str,
    edition: AtomicU64,
    asked: AtomicU64,
}

impl Page {
    fn new(path: &'static str, tag: &'static str) -> Page {
        Page {
            path,
            tag,
            edition: AtomicU64::new(1),
            asked: AtomicU64::new(0),
        }
    }

    /// The newest edition.
    pub(super) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Relaxed)
    }

    /// Number of requests for the page.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Makes a newer edition.
    pub(super) fn edit(&self) {
        self.edition.fetch_add(1, Ordering::Relaxed);
    }
}

/// The origin.
#[derive(Debug)]
pub(super) struct Origin {
    /// Pages, in the order in which they are shown.
    pub(super) pages: [Page; 4],
    stop: Arc<Stop>,
}

impl Origin {
    /// An origin whose pages are all new.
    pub(super) fn new(stop: Arc<Stop>) -> Origin {
        Origin {
            pages: [
                Page::new("/", "front"),
                Page::new("/news", "front"),
                Page::new("/prices", "shop"),
                Page::new("/offers", "shop"),
            ],
            stop,
        }
    }

    /// The page at a path.
    pub(super) fn page(&self, path: &str) -> Option<&Page> {
        self.pages.iter().find(|page| page.path == path)
    }
}

/// The edition that the tags of an entry tell.
pub(super) fn edition_of(tags: &[String]) -> Option<u64> {
    let mut numbers = tags.iter().filter_map(|tag| tag.strip_prefix(EDITION));
    numbers.next()?.parse().ok()
}

impl Site for Origin {
    fn answer(&self, request: &Request) -> io::Result<Answer> {
        let Some(page) = self.page(request.path()) else {
            return Ok(Answer::text(404, "The origin has no such page.\n"));
        };
        page.asked.fetch_add(1, Ordering::Relaxed);
        self.stop.wait(THINKING)?;
        let (path, edition) = (page.path, page.edition());
        let etag = format!("\"{edition}\"");
        let answer = match request.field("If-None-Match") {
            Some(known) if known == etag => Answer::text(304, ""),
            _ => Answer::text(200, &format!("{path}, edition {edition}\n")),
        };
        let tags = format!("{} {EDITION}{edition}", page.tag);
        Ok(answer.field("ETag", etag).field("xkey", tags))
    }
}
