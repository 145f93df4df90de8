//! Entries that left the cache, by site: evicted, not used, purged, and so on, over restarts.
//!
//! A store counts what leaves its index. The thread that sweeps, and whoever asks, adds what is new
//! to the rows of the sites, which the ledger keeps; so a process that is killed loses at most what
//! left in the last second.
//!
//! 1. What left is added once, whoever asks and however many ask at once.

use millpond_store::{Departed, Zone};

use super::site::{CELLS, Counting, SiteId, Sites};
use super::site_names::Claim;

/// The cells of a row, in the order of [`cells`].
const FIRST: usize = 24;
const COUNT: usize = 6;
const _: () = assert!(FIRST + COUNT <= CELLS);

/// The name in statistics of what names no site.
pub const NAMELESS: &[u8] = b"-";

impl Sites {
    /// Adds what has left a store since the last time.
    pub fn gather(&self, store: &Zone) {
        for (name, departed) in store.take_departed() {
            let name = if name.is_empty() { NAMELESS } else { &name };
            let counting = self.enter(0);
            // The site had something stored.
            counting.departed(counting.id(name, Claim::Kept), &departed);
        }
    }
}

impl Counting<'_> {
    fn departed(&self, site: SiteId, departed: &Departed) {
        self.with_row(site, |row| {
            for (index, value) in cells(departed).into_iter().enumerate() {
                row.add(FIRST + index, value);
            }
        });
    }
}

/// Departures that the cells of a row say.
pub(super) fn of_row(row: &[u64]) -> Departed {
    let cell = |index: usize| row.get(FIRST + index).copied().unwrap_or(0);
    Departed {
        evicted: cell(0),
        swept: cell(1),
        removed: cell(2),
        replaced: cell(3),
        corrupt: cell(4),
        lost: cell(5),
    }
}

fn cells(departed: &Departed) -> [u64; COUNT] {
    [
        departed.evicted,
        departed.swept,
        departed.removed,
        departed.replaced,
        departed.corrupt,
        departed.lost,
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use millpond_cache::head::{FieldsWriter, StoredHead, classify};
    use millpond_cache::tag::TagWriter;
    use millpond_store::{Key, Platform, SiteBook, SystemClock, ZoneConf};

    use super::*;

    #[test]
    fn what_left_is_added_once() {
        let dir = tempfile::tempdir().unwrap();
        let platform = Platform {
            sites: Arc::new(SiteBook::new(classify)),
            ..Platform::default()
        };
        let conf = ZoneConf::new("z", dir.path());
        let zone = Zone::open_on(conf, Arc::new(SystemClock), platform).unwrap();
        let sites = Sites::default();
        for site in [&b"one"[..], b"", b"one"] {
            let mut head = StoredHead::new(200, FieldsWriter::default());
            head.tags = TagWriter::new(b"host", site).finish();
            let mut writer = zone.begin(Key::of(b"key"), None).unwrap();
            writer.set_head(head.encode());
            writer.append(Bytes::from_static(b"body")).unwrap();
            writer.finish().unwrap();
        }
        assert!(zone.remove(&Key::of(b"key")));
        let counted = |name: &[u8]| {
            let all = sites.snapshot().into_iter();
            let found = all.filter(|(known, _)| known == name);
            found
                .map(|(_, count)| count.departed)
                .next()
                .unwrap_or_default()
        };
        for _ in 0..3 {
            sites.gather(&zone);
            let one = counted(b"one");
            assert_eq!((one.replaced, one.removed), (1, 1));
            assert_eq!(counted(NAMELESS).replaced, 1);
        }
    }
}
