//! Catalogue of a zone, entry by entry: for lists, and for questions about one of them.
//!
//! An entry whose body is in slices is one entry, however many records it has: the records of its
//! slices are passed over, and what of them is held is asked of the index by their keys.
//!
//! 1. Nothing is marked used and nothing changes.
//! 2. What a purge is about that is in force is not there, whether or not it was swept.
//! 3. What is in memory at one time does not grow with the zone.
//!
//! It is for a thread that may wait for the disk.

use std::ops::{ControlFlow, Range, RangeInclusive};
use std::path::PathBuf;

use bytes::Bytes;
use millpond_store::{EntrySummary, Glance, Key, Looked};

use crate::head::{SliceSet, StoredHead};
use crate::purge::Judged;
use crate::slice::SLICES_MAX;
use crate::tag;
use crate::zone::CacheZone;

/// An entry as it is listed.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Key under which the entry is stored.
    pub key: Key,
    /// Head of the entry, as purges left it.
    pub head: StoredHead,
    /// Facts about the entry's first record that the index knows.
    pub summary: EntrySummary,
    /// Directory that the entry's first record is in.
    pub dir: PathBuf,
    /// The segment.
    pub segment: u32,
    /// Bytes of the entry's body that are stored.
    pub held: u64,
}

impl Listed {
    /// Length of the body, stored or not.
    pub fn length(&self) -> u64 {
        let whole = self.summary.body_len;
        self.head.sliced.map_or(whole, |set| set.total)
    }

    /// True if the entry is fresh in this second, since the epoch.
    pub fn is_fresh(&self, now: i64) -> bool {
        now <= self.head.valid_until && !self.head.bounds.must_validate
    }

    /// Content-Type of the entry as the origin wrote it; empty without one.
    pub fn content_type(&self) -> Bytes {
        self.head.field(b"content-type").unwrap_or_default()
    }
}

/// Freshness that a listed entry must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The entry is fresh in this second, since the epoch.
    FreshAt(i64),
    /// The entry is not fresh in this second.
    StaleAt(i64),
}

impl Freshness {
    fn is_that_of(self, listed: &Listed) -> bool {
        match self {
            Freshness::FreshAt(now) => listed.is_fresh(now),
            Freshness::StaleAt(now) => !listed.is_fresh(now),
        }
    }
}

/// True if a Content-Type is of a media type, or of one of a kind: `image/png`, or `image`. Case
/// and parameters do not count.
fn is_of_type(content_type: &[u8], wanted: &[u8]) -> bool {
    let mut parts = content_type.splitn(2, |byte| *byte == b';');
    let own = parts.next().unwrap_or_default().trim_ascii();
    let kind = own.splitn(2, |byte| *byte == b'/').next();
    let wanted = wanted.trim_ascii();
    own.eq_ignore_ascii_case(wanted) || kind.is_some_and(|it| it.eq_ignore_ascii_case(wanted))
}

/// Conditions for listed entries, all of which an entry must meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The cache key begins with this.
    pub prefix: Option<Bytes>,
    /// Filled by this site.
    pub site: Option<Bytes>,
    /// Filled for requests to this host.
    pub host: Option<Bytes>,
    /// Tag that the entry has.
    pub tag: Option<Bytes>,
    /// Stored in this second or before, since the epoch.
    pub stored_upto: Option<i64>,
    /// Stored in this second or later.
    pub stored_from: Option<i64>,
    /// Last used in this second or before.
    pub used_upto: Option<i64>,
    /// Least number of bytes of the body that are stored.
    pub held_min: Option<u64>,
    /// Greatest number of bytes of the body that are stored.
    pub held_max: Option<u64>,
    /// Found at least so often.
    pub hits_min: Option<u64>,
    /// Found at most so often.
    pub hits_max: Option<u64>,
    /// Statuses, of which the entry has one.
    pub status: Option<RangeInclusive<u16>>,
    /// Media type of the entry, or its kind.
    pub content_type: Option<Bytes>,
    /// Freshness of the entry.
    pub freshness: Option<Freshness>,
}

impl Filter {
    /// True unless what the index knows rules the entry out.
    fn may_pass(&self, summary: &EntrySummary) -> bool {
        let used = i64::try_from(summary.used_ms / 1000).unwrap_or(i64::MAX);
        self.used_upto.is_none_or(|upto| used <= upto)
            && self.hits_min.is_none_or(|min| hits(summary) >= min)
            && self.hits_max.is_none_or(|max| hits(summary) <= max)
    }

    fn passes(&self, listed: &Listed) -> bool {
        let head = &listed.head;
        let has_name = |name: &Option<Bytes>, of: fn(&[u8]) -> Bytes| {
            let tagged = |name: &Bytes| tag::of_head(&head.tags).any(|tag| tag == of(name));
            name.as_ref().is_none_or(tagged)
        };
        self.stored_upto.is_none_or(|upto| head.stored_at <= upto)
            && self.stored_from.is_none_or(|from| head.stored_at >= from)
            && self.held_min.is_none_or(|min| listed.held >= min)
            && self.held_max.is_none_or(|max| listed.held <= max)
            && self.freshness.is_none_or(|it| it.is_that_of(listed))
            && (self.status.as_ref()).is_none_or(|range| range.contains(&head.status))
            && (self.content_type.as_ref())
                .is_none_or(|wanted| is_of_type(&listed.content_type(), wanted))
            && has_name(&self.site, tag::of_site)
            && has_name(&self.host, tag::of_host)
            && has_name(&self.tag, |name| tag::cut(Bytes::copy_from_slice(name)))
    }
}

/// Number of times that an entry was found, as far as the index counts.
pub fn hits(summary: &EntrySummary) -> u64 {
    u64::from(summary.hits)
}

/// Result of a step of a walk through a zone.
#[derive(Clone, Debug)]
pub enum Shown {
    /// An entry that is listed.
    Entry(Box<Listed>),
    /// A record that is not, for one reason or another.
    Other,
    /// A record that is not what was written.
    Corrupt(Key),
    /// A record that the disk does not give.
    Unread(Key),
}

impl CacheZone {
    /// Shows every record of the zone until told to stop, in no order. `Break` if not all were
    /// shown.
    pub fn catalogue(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Shown) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.store.inspect(&mut |glance| {
            each(if filter.may_pass(&glance.summary()) {
                self.show(glance, filter)
            } else {
                Shown::Other
            })
        })
    }

    /// Entries that are stored under the key of a cache key's text, and for its other variants:
    /// those are looked for among all entries.
    pub fn listed(&self, text: &[u8]) -> Vec<Listed> {
        let Some(first) = self.listed_at(&self.keys().of(text)) else {
            return Vec::new();
        };
        if first.head.key != text {
            return Vec::new();
        }
        if first.head.vary.is_empty() {
            return vec![first];
        }
        let (seed, own) = (first.head.seed, first.key);
        let mut found = vec![first];
        let same = Filter {
            prefix: Some(Bytes::copy_from_slice(text)),
            ..Filter::default()
        };
        // A zone that is closed meanwhile has given what it had.
        let _ = self.catalogue(&same, &mut |shown| {
            if let Shown::Entry(listed) = shown
                && listed.head.key == text
                && listed.head.seed == seed
                && listed.key != own
            {
                found.push(*listed);
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// The entry that is stored under a key of the store.
    pub fn listed_at(&self, key: &Key) -> Option<Listed> {
        let glance = self.store.glance(key)?;
        match self.show(&glance, &Filter::default()) {
            Shown::Entry(listed) => Some(*listed),
            _ => None,
        }
    }

    /// The cache key of a record's entry, if its head can be read.
    pub fn text_of(&self, glance: &Glance) -> Option<String> {
        let Looked::Found(record) = glance.read() else {
            return None;
        };
        let owner = crate::head::set::owner(&record.head).and_then(|key| self.store.glance(&key));
        let head = match owner.map(|owner| owner.read()) {
            Some(Looked::Found(owner)) => owner.head,
            _ => record.head,
        };
        let head = StoredHead::decode(&head)?;
        Some(String::from_utf8_lossy(&head.key).into_owned())
    }

    /// Ranges of an entry's body that are stored, in order.
    pub fn held(&self, listed: &Listed) -> Vec<Range<u64>> {
        let Some(set) = listed.head.sliced else {
            return std::iter::once(0..listed.summary.body_len).collect();
        };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for span in self.held_slices(set) {
            match ranges.last_mut() {
                Some(last) if last.end == span.start => last.end = span.end,
                _ => ranges.push(span),
            }
        }
        ranges
    }

    /// True if all slices of a body are stored.
    pub fn holds_whole(&self, set: SliceSet) -> bool {
        self.holds(set, &(0..set.total))
    }

    /// True if the slices of a stretch of a body are there.
    pub fn holds(&self, set: SliceSet, stretch: &Range<u64>) -> bool {
        if stretch.is_empty() {
            return true;
        }
        let (first, last) = (set.index_of(stretch.start), set.index_of(stretch.end - 1));
        let peeks = self.store.peeks();
        let is_held = |index| peeks.is_there(&set.key(self.keys(), index));
        last - first < SLICES_MAX && (first..=last).all(is_held)
    }

    fn held_slices(&self, set: SliceSet) -> impl Iterator<Item = Range<u64>> {
        let count = set.count().min(SLICES_MAX);
        let peeks = self.store.peeks();
        let is_held = move |index: &u64| peeks.is_there(&set.key(self.keys(), *index));
        (0..count).filter(is_held).map(move |index| set.span(index))
    }

    fn show(&self, glance: &Glance, filter: &Filter) -> Shown {
        let record = match glance.read() {
            Looked::Found(record) => record,
            Looked::Gone => return Shown::Other,
            Looked::Corrupt => return Shown::Corrupt(*glance.key()),
            Looked::Unread => return Shown::Unread(*glance.key()),
        };
        // The record of a slice has no such head, and an encoding is no entry of its own.
        let decoded = StoredHead::decode(&record.head);
        let Some(mut head) = decoded.filter(|head| head.encoding_of().is_none()) else {
            return Shown::Other;
        };
        let prefix = filter.prefix.as_deref().unwrap_or_default();
        if !head.key.starts_with(prefix) {
            return Shown::Other;
        }
        match self.purges.judge(&head.subject()) {
            Judged::Untouched => {}
            Judged::Stale { since, .. } => head.expire(since),
            Judged::Gone => return Shown::Other,
        }
        let summary = glance.summary();
        let held = match head.sliced {
            Some(set) => self
                .held_slices(set)
                .map(|span| span.end - span.start)
                .sum(),
            None => summary.body_len,
        };
        let listed = Listed {
            key: *glance.key(),
            head,
            summary,
            dir: glance.dir().to_owned(),
            segment: record.segment,
            held,
        };
        if filter.passes(&listed) {
            Shown::Entry(Box::new(listed))
        } else {
            Shown::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millpond_store::{SystemClock, Zone, ZoneConf};

    use super::*;
    use crate::head::FieldsWriter;
    use crate::purge::{Mode, Target};
    use crate::tag::TagWriter;

    struct Bench {
        zone: CacheZone,
        _dir: tempfile::TempDir,
    }

    fn bench() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let store = Zone::open(ZoneConf::new("z", dir.path()), Arc::new(SystemClock)).unwrap();
        Bench {
            zone: CacheZone::new("z".to_string(), store),
            _dir: dir,
        }
    }

    impl Bench {
        fn put(&self, key: &Key, head: Bytes, body: &'static [u8]) {
            let mut writer = self.zone.store.begin(*key, None).unwrap();
            writer.set_head(head);
            writer.append(Bytes::from_static(body)).unwrap();
            writer.finish().unwrap();
        }

        fn put_entry(&self, text: &'static str, (site, tag): (&str, &str), stored_at: i64) {
            let mut head = head(text);
            let mut tags = TagWriter::new(b"h", site.as_bytes());
            tags.push_all(tag.as_bytes());
            head.tags = tags.finish();
            head.stored_at = stored_at;
            self.put(
                &self.zone.keys().of(text.as_bytes()),
                head.encode(),
                text.as_bytes(),
            );
        }

        fn list(&self, filter: &Filter) -> Vec<String> {
            let mut found = Vec::new();
            let flow = self.zone.catalogue(filter, &mut |shown| {
                if let Shown::Entry(listed) = shown {
                    found.push(String::from_utf8(listed.head.key.to_vec()).unwrap());
                }
                ControlFlow::Continue(())
            });
            assert!(flow.is_continue());
            found.sort();
            found
        }
    }

    #[test]
    fn status_type_and_freshness_are_filters() {
        let bench = bench();
        let put = |text: &'static str, status, content_type: &[u8], valid_until| {
            let mut fields = FieldsWriter::default();
            fields.push(b"Content-Type", content_type);
            let mut head = StoredHead::new(status, fields);
            head.key = Bytes::from_static(text.as_bytes());
            head.valid_until = valid_until;
            head.bounds.must_validate = text == "/never";
            let key = bench.zone.keys().of(text.as_bytes());
            bench.put(&key, head.encode(), b"body");
        };
        put("/page", 200, b"text/html; charset=utf-8", 100);
        put("/image", 200, b"Image/PNG", 50);
        put("/gone", 404, b"text/plain", 200);
        put("/never", 301, b"", 200);
        let name = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        let (fresh, stale) = (Freshness::FreshAt(100), Freshness::StaleAt(100));
        let any = Filter::default;
        #[rustfmt::skip]
        let table: Vec<(Filter, &[&str])> = vec![
            (Filter { status: Some(404..=404), ..any() }, &["/gone"]),
            (Filter { status: Some(200..=299), ..any() }, &["/image", "/page"]),
            (Filter { content_type: name("TEXT/html"), ..any() }, &["/page"]),
            (Filter { content_type: name("text"), ..any() }, &["/gone", "/page"]),
            (Filter { content_type: name("image/"), ..any() }, &[]),
            (Filter { content_type: name(""), ..any() }, &["/never"]),
            (Filter { freshness: Some(fresh), ..any() }, &["/gone", "/page"]),
            (Filter { freshness: Some(stale), ..any() }, &["/image", "/never"]),
        ];
        for (filter, expected) in table {
            assert_eq!(bench.list(&filter), expected, "{filter:?}");
        }
    }

    fn head(text: &'static str) -> StoredHead {
        let mut head = StoredHead::new(200, FieldsWriter::default());
        head.key = Bytes::from_static(text.as_bytes());
        head
    }

    #[test]
    fn filters_pass_what_has_all_of_it() {
        let bench = bench();
        bench.put_entry("/a/1", ("one", "x y"), 100);
        bench.put_entry("/a/22", ("two", "x"), 200);
        bench.put_entry("/b/333", ("one", ""), 300);
        bench
            .zone
            .store
            .find(&bench.zone.keys().of(b"/b/333"))
            .unwrap();
        let name = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        let any = Filter::default;
        #[rustfmt::skip]
        let table: Vec<(Filter, &[&str])> = vec![
            (any(), &["/a/1", "/a/22", "/b/333"]),
            (Filter { prefix: name("/a"), ..any() }, &["/a/1", "/a/22"]),
            (Filter { prefix: name("/a/1x"), ..any() }, &[]),
            (Filter { site: name("ONE"), ..any() }, &["/a/1", "/b/333"]),
            (Filter { host: name("h"), site: name("two"), ..any() }, &["/a/22"]),
            (Filter { host: name("one"), ..any() }, &[]),
            (Filter { tag: name("x"), ..any() }, &["/a/1", "/a/22"]),
            (Filter { tag: name("y"), ..any() }, &["/a/1"]),
            (Filter { stored_upto: Some(200), ..any() }, &["/a/1", "/a/22"]),
            (Filter { stored_from: Some(200), ..any() }, &["/a/22", "/b/333"]),
            (Filter { used_upto: Some(1), ..any() }, &[]),
            (Filter { held_min: Some(5), ..any() }, &["/a/22", "/b/333"]),
            (Filter { held_max: Some(5), ..any() }, &["/a/1", "/a/22"]),
            (Filter { hits_min: Some(1), ..any() }, &["/b/333"]),
            (Filter { hits_max: Some(0), ..any() }, &["/a/1", "/a/22"]),
        ];
        for (filter, expected) in table {
            assert_eq!(bench.list(&filter), expected, "{filter:?}");
        }
    }

    #[test]
    fn slices_are_part_of_their_entry() {
        let bench = bench();
        let key = bench.zone.keys().of(b"/video");
        let set = SliceSet {
            generation: [3; 16],
            total: 25,
            size: 10,
        };
        let mut sliced = head("/video");
        sliced.sliced = Some(set);
        bench.put(&key, sliced.encode(), b"");
        for (index, body) in [(0, &b"0123456789"[..]), (2, b"01234")] {
            let keys = bench.zone.keys();
            bench.put(
                &set.key(keys, index),
                set.record_head((&key, b""), index),
                body,
            );
        }
        assert_eq!(bench.list(&Filter::default()), ["/video"]);
        let listed = bench.zone.listed(b"/video").pop().unwrap();
        assert_eq!((listed.length(), listed.held), (25, 15));
        assert_eq!(bench.zone.held(&listed), [0..10, 20..25]);
    }

    #[test]
    fn all_variants_of_a_key_are_found_and_others_are_not() {
        let bench = bench();
        let put = |key: &[u8], text, seed, variant: &'static str| {
            let mut head = head(text);
            head.vary = Bytes::from_static(b"accept");
            head.seed = seed;
            head.variant = Bytes::from_static(variant.as_bytes());
            bench.put(&bench.zone.keys().of(key), head.encode(), b"body");
        };
        put(b"/v", "/v", 7, "a");
        put(b"second", "/v", 7, "b");
        put(b"left from before", "/v", 6, "c");
        put(b"longer", "/vv", 7, "d");
        let variants = bench.zone.listed(b"/v");
        let variants: Vec<_> = variants.iter().map(|it| &it.head.variant[..]).collect();
        assert_eq!(variants, [b"a", b"b"]);
        assert!(bench.zone.listed(b"/x").is_empty());
        assert!(
            bench
                .zone
                .listed_at(&bench.zone.keys().of(b"longer"))
                .is_some()
        );
    }

    #[test]
    fn what_is_purged_is_not_listed() {
        let bench = bench();
        bench.put_entry("/a", ("one", ""), 100);
        bench.put_entry("/b", ("one", ""), 100);
        let target = Target::Prefix(Bytes::from_static(b"/a"));
        bench.zone.purge(&target, Mode::Hard, 1_000).unwrap();
        assert_eq!(bench.list(&Filter::default()), ["/b"]);
        bench.zone.purge(&Target::All, Mode::Soft, 5_000).unwrap();
        let listed = bench.zone.listed(b"/b").pop().unwrap();
        assert!(listed.head.valid_until < 5);
    }
}
