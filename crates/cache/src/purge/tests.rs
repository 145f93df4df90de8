//! The book against a list of orders; what it keeps over restarts, folds and damage.

use std::sync::Arc;

use bytes::Bytes;
use millpond_store::{Key, Keys, ManualClock, SimIo, SiteBook, Zone, ZoneConf};

use super::book::{Judged, PurgeBook, Subject};
use super::position::Position;
use super::rule::{Matter, Mode, Rule, Target, is_match};
use crate::head::{FieldsWriter, SliceSet, StoredHead, classify};
use crate::shared_head::SharedHead;
use crate::tag;
use crate::upkeep::Readers;
use crate::zone::{CacheZone, FoundEntry};

/// A small generator; the seed is printed when a test fails.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    /// A short text of few letters, so that texts begin with and match each other.
    fn text(&mut self, letters: &[u8], most: u64) -> Bytes {
        let len = self.roll(most + 1);
        let mut letter = || letters[self.roll(letters.len() as u64) as usize];
        (0..len).map(|_| letter()).collect::<Vec<u8>>().into()
    }

    fn matter(&mut self) -> Matter {
        match self.roll(40) {
            0 => Matter::All,
            1..10 => Matter::Key(Key::of(&self.text(b"ab", 4))),
            10..24 => {
                let text = self.text(b"ab", 5);
                Matter::of(&super::Target::Prefix(text), &Keys::for_tests())
            }
            24..28 => Matter::of(
                &super::Target::Wildcard(self.text(b"ab*", 5)),
                &Keys::for_tests(),
            ),
            _ => Matter::Tags(
                (0..1 + self.roll(2))
                    .map(|_| self.text(b"xyz", 2))
                    .collect(),
            ),
        }
    }
}

/// Judgement of an entry by a list of orders.
fn by_list(rules: &[Rule], subject: &Subject<'_>) -> Judged {
    let newer = rules.iter().filter(|rule| rule.serial > subject.serial);
    let about = newer.filter(|rule| match &rule.matter {
        Matter::None => false,
        Matter::Key(key) => *key == Key::of(subject.text),
        Matter::Prefix(text) => subject.text.starts_with(text),
        Matter::Wildcard(text) => is_match(text, subject.text),
        Matter::Tags(tags) => tags
            .iter()
            .any(|tag| tag::of_head(subject.tags).any(|it| it == tag)),
        Matter::All => true,
    });
    let about: Vec<&Rule> = about.collect();
    if about.iter().any(|rule| rule.mode == Mode::Hard) {
        return Judged::Gone;
    }
    let newest = about.iter().max_by_key(|rule| rule.serial);
    newest.map_or(Judged::Untouched, |rule| Judged::Stale {
        since: rule.at,
        serial: rule.serial,
    })
}

fn zone(dir: &std::path::Path, max_size: u64) -> Arc<Zone> {
    let conf = ZoneConf {
        max_size: Some(max_size),
        ..ZoneConf::new("book", dir)
    };
    let platform = millpond_store::Platform {
        io: Arc::new(SimIo::new()),
        sites: Arc::new(SiteBook::new(classify)),
        ..Default::default()
    };
    Zone::open_on(conf, Arc::new(ManualClock::new(1000)), platform).unwrap()
}

fn loaded(store: &Zone) -> PurgeBook {
    let book = PurgeBook::new(Keys::for_tests());
    book.load(&store.take_journal());
    book
}

/// For random orders the book says what a list of them says, in memory and after a restart.
#[test]
fn the_book_agrees_with_a_list() {
    for seed in 1..=60_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let dir = tempfile::tempdir().unwrap();
        let mut store = zone(dir.path(), 8 << 20);
        let mut book = loaded(&store);
        let mut rules: Vec<Rule> = Vec::new();
        for step in 0..60_u64 {
            let mode = [Mode::Hard, Mode::Soft][dice.roll(2) as usize];
            let matter = dice.matter();
            let now_ms = step * 700;
            let serial = book
                .enforce(&store, (mode, matter.clone()), now_ms)
                .unwrap();
            assert!(rules.last().is_none_or(|last| last.serial < serial));
            rules.push(Rule {
                serial,
                at: (now_ms / 1000) as i64,
                mode,
                matter,
                position: None,
            });
            if dice.roll(20) == 0 {
                let upto = rules[dice.roll(rules.len() as u64) as usize].serial;
                // Whoever retires rules has seen to it that no older entry is left.
                book.retire(&store, upto).unwrap();
                rules.retain(|rule| rule.serial > upto);
            }
            if dice.roll(20) == 0 {
                drop(store);
                store = zone(dir.path(), 8 << 20);
                book = loaded(&store);
            }
            for _ in 0..20 {
                let text = dice.text(b"ab", 6);
                let tags = dice.text(b"xyz ", 8);
                let oldest = rules.first().map_or(0, |rule| rule.serial - 1);
                let subject = Subject {
                    text: &text,
                    tags: &tags,
                    serial: oldest + dice.roll(serial + 1 - oldest),
                };
                let expected = by_list(&rules, &subject);
                assert_eq!(
                    book.judge(&subject),
                    expected,
                    "seed {seed}, {subject:?} {rules:?}"
                );
            }
        }
    }
}

fn judge(book: &PurgeBook, text: &str, tags: &str, serial: u64) -> Judged {
    book.judge(&Subject {
        text: text.as_bytes(),
        tags: tags.as_bytes(),
        serial,
    })
}

#[test]
fn a_full_book_purges_too_much_and_never_too_little() {
    let dir = tempfile::tempdir().unwrap();
    // So small a zone has a journal of one block.
    let store = zone(dir.path(), 64 << 10);
    let book = loaded(&store);
    let key = |number: u64| Matter::Key(Key::of(number.to_string().as_bytes()));
    let mut serials = Vec::new();
    for number in 0..1000 {
        serials.push(book.enforce(&store, (Mode::Hard, key(number)), 0).unwrap());
    }
    assert!(book.rule_count() < 100, "{}", book.rule_count());
    let again = zone_again(store, dir.path());
    for book in [&book, &loaded(&again)] {
        for (number, serial) in serials.iter().enumerate() {
            let text = number.to_string();
            assert_eq!(judge(book, &text, "", serial - 1), Judged::Gone, "{number}");
        }
        assert_eq!(
            judge(book, "other", "", *serials.last().unwrap()),
            Judged::Untouched
        );
        assert_eq!(judge(book, "other", "", serials[990]), Judged::Untouched);
        assert_eq!(judge(book, "other", "", serials[0]), Judged::Gone);
    }
}

fn zone_again(store: Arc<Zone>, dir: &std::path::Path) -> Arc<Zone> {
    drop(store);
    zone(dir, 64 << 10)
}

#[test]
fn wildcards_are_few() {
    let dir = tempfile::tempdir().unwrap();
    let store = zone(dir.path(), 8 << 20);
    let book = loaded(&store);
    for number in 0..300 {
        let pattern = Matter::Wildcard(Bytes::from(format!("*{number}*")));
        book.enforce(&store, (Mode::Soft, pattern), 0).unwrap();
    }
    assert!(book.rule_count() <= 257);
    assert!(matches!(judge(&book, "-0-", "", 0), Judged::Stale { .. }));
    assert!(matches!(
        judge(&book, "-299-", "", 299),
        Judged::Stale { .. }
    ));
}

#[test]
fn a_journal_that_may_have_lost_something_purges_everything() {
    let dir = tempfile::tempdir().unwrap();
    let store = zone(dir.path(), 8 << 20);
    let old = loaded(&store);
    let first = old.enforce(&store, (Mode::Soft, Matter::All), 500).unwrap();
    drop(store);
    let path = dir.path().join("millpond.journal");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let store = zone(dir.path(), 8 << 20);
    let book = loaded(&store);
    assert!(book.newest() > first, "{} {first}", book.newest());
    assert_eq!(judge(&book, "a", "", first), Judged::Gone);
    // A record that is not understood is as bad as one that cannot be read.
    store
        .rewrite_journal(&[Bytes::from_static(b"from the future")])
        .unwrap();
    drop(store);
    let book = loaded(&zone(dir.path(), 8 << 20));
    assert_eq!(judge(&book, "a", "", 1), Judged::Gone);
}

#[test]
fn serials_never_come_again_even_without_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let store = zone(dir.path(), 8 << 20);
    let book = loaded(&store);
    let before = book
        .enforce(&store, (Mode::Hard, Matter::All), 5_000)
        .unwrap();
    book.retire(&store, before).unwrap();
    drop(store);
    let store = zone(dir.path(), 8 << 20);
    assert_eq!(loaded(&store).newest(), before);
    drop(store);
    std::fs::remove_file(dir.path().join("millpond.journal")).unwrap();
    let store = zone(dir.path(), 8 << 20);
    let after = loaded(&store).enforce(&store, (Mode::Hard, Matter::All), 5_001);
    assert!(after.unwrap() > before);
}

#[test]
fn an_entry_with_too_many_tags_is_hit_by_any_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = zone(dir.path(), 8 << 20);
    let book = loaded(&store);
    let matter = Matter::Tags(vec![Bytes::from_static(b"t")]);
    book.enforce(&store, (Mode::Hard, matter), 0).unwrap();
    assert_eq!(judge(&book, "a", "x y", 0), Judged::Untouched);
    assert_eq!(judge(&book, "a", "x \x03", 0), Judged::Gone);
}

#[test]
fn the_rules_that_are_about_an_entry_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = zone(dir.path(), 1 << 20);
    let book = loaded(&store);
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    for (mode, matter) in [
        (Mode::Hard, Matter::Key(Key::of(b"/img/a"))),
        (Mode::Hard, Matter::Key(Key::of(b"/img/b"))),
        (Mode::Soft, Matter::Prefix(text("/img/"))),
        (Mode::Hard, Matter::Prefix(text("/css/"))),
        (Mode::Hard, Matter::Wildcard(text("*a"))),
        (Mode::Hard, Matter::Tags(vec![tag::of_site(b"shop")])),
        (Mode::Hard, Matter::Tags(vec![text("other")])),
    ] {
        book.enforce(&store, (mode, matter), 5_000).unwrap();
    }
    let tags = tag::TagWriter::new(b"host", b"shop").finish();
    let subject = Subject {
        text: b"/img/a",
        tags: &tags,
        serial: 0,
    };
    let about = book.about(&subject);
    let told = about.iter().map(|rule| {
        let what = String::from_utf8_lossy(&rule.what).into_owned();
        (rule.kind, what, rule.mode, rule.at.is_some())
    });
    let expected = [
        ("key", "", Mode::Hard, false),
        ("site", "shop", Mode::Hard, false),
        ("prefix", "/img/", Mode::Soft, true),
        ("wildcard", "*a", Mode::Hard, false),
    ];
    let expected = expected.map(|(kind, what, mode, is_dated)| {
        let what = what.to_string();
        (kind, what, mode, is_dated)
    });
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn slices_go_with_their_entry() {
    let dir = tempfile::tempdir().unwrap();
    let zone = CacheZone::new("z".to_string(), zone(dir.path(), 8 << 20));
    let put = |key: &Key, head: Bytes| {
        let mut writer = zone.store.begin(*key, None).unwrap();
        writer.set_head(head);
        writer.append(Bytes::from_static(b"0123456789")).unwrap();
        writer.finish().unwrap();
    };
    let mut sets = Vec::new();
    for text in ["/a", "/b", "/c"] {
        let set = SliceSet {
            generation: [text.as_bytes()[1]; 16],
            total: 25,
            size: 10,
        };
        let mut head = StoredHead::new(200, FieldsWriter::default());
        head.key = Bytes::from_static(text.as_bytes());
        head.sliced = Some(set);
        let owner = zone.keys().of(text.as_bytes());
        put(&owner, head.encode());
        for index in [0, 2] {
            put(
                &set.key(zone.keys(), index),
                set.record_head((&owner, b""), index),
            );
        }
        // Of a version that was there before.
        let older = SliceSet {
            generation: [7; 16],
            ..set
        };
        if text == "/c" {
            put(
                &older.key(zone.keys(), 1),
                older.record_head((&owner, b""), 1),
            );
        }
        sets.push(set);
    }
    assert_eq!(zone.store.usage().entries, 10);
    let exact = |text: &'static str| Target::Key(Bytes::from_static(text.as_bytes()));
    zone.purge(&exact("/a"), Mode::Hard, 1000).unwrap();
    zone.purge(&Target::Prefix(Bytes::from_static(b"/b")), Mode::Hard, 1000)
        .unwrap();
    let swept = zone.sweep_purges(u64::MAX, &|| false).unwrap();
    assert!(swept.is_complete);
    let is_held = |set: &SliceSet, index| zone.store.peek(&set.key(zone.keys(), index));
    let held = |set: &SliceSet| is_held(set, 0) && is_held(set, 2);
    assert_eq!(
        sets.iter().map(held).collect::<Vec<_>>(),
        [false, false, true]
    );
    assert_eq!(zone.store.usage().entries, 3);
}

#[test]
fn slices_of_what_left_are_removed_when_nobody_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    let zone = CacheZone::new("z".to_string(), zone(dir.path(), 8 << 20));
    let set = |generation: u8| SliceSet {
        generation: [generation; 16],
        total: 25,
        size: 10,
    };
    let owner = zone.keys().of(b"/a");
    let put = |key: &Key, head: Bytes, body: &'static [u8]| {
        let mut writer = zone.store.begin(*key, None).unwrap();
        writer.set_head(head);
        writer.append(Bytes::from_static(body)).unwrap();
        writer.finish().unwrap();
    };
    let put_version = |generation: u8| {
        let set = set(generation);
        let mut head = StoredHead::new(200, FieldsWriter::default());
        head.key = Bytes::from_static(b"/a");
        head.sliced = Some(set);
        put(&owner, head.encode(), b"");
        for index in [0, 2] {
            let record = set.record_head((&owner, b""), index);
            put(&set.key(zone.keys(), index), record, b"0123456789");
        }
    };
    let held = |generation: u8| {
        let set = set(generation);
        let is_held = |index: &u64| zone.store.peek(&set.key(zone.keys(), *index));
        (0..3).filter(is_held).count()
    };
    put_version(1);
    let entry = zone.store.find(&owner).unwrap();
    let first = FoundEntry {
        key: owner,
        head: SharedHead::of(&zone.store, &entry).unwrap(),
        entry,
    };
    let read = zone.slices.open(&zone.store, &first).unwrap();
    put_version(2);
    // Somebody reads the first version.
    assert_eq!(zone.sweep_orphans(Readers::Stay), 0);
    drop(read);
    zone.store.flush();
    assert_eq!(zone.sweep_orphans(Readers::Stay), 2);
    assert_eq!((held(1), held(2)), (0, 2));
    // It is opened again by whoever found it before.
    drop(zone.slices.open(&zone.store, &first).unwrap());
    put(
        &set(1).key(zone.keys(), 1),
        set(1).record_head((&owner, b""), 1),
        b"0123456789",
    );
    assert_eq!(zone.sweep_orphans(Readers::Stay), 1);
    assert_eq!((held(1), held(2)), (0, 2));
    // Nobody was told of these.
    put(
        &set(3).key(zone.keys(), 1),
        set(3).record_head((&owner, b""), 1),
        b"0123456789",
    );
    assert_eq!(zone.review_orphans(&|| false), None);
    zone.slices.note_unknown();
    assert_eq!(zone.review_orphans(&|| false), Some(1));
    assert_eq!((held(2), held(3)), (2, 0));
    zone.store.remove(&owner);
    assert_eq!(zone.sweep_orphans(Readers::Stay), 2);
    assert_eq!(zone.store.usage().entries, 0);
}

/// Rules and the position behind them are one: whatever ends the process, both are there or none,
/// also after the journal was written anew, and a position before it replaces one behind it.
#[test]
fn positions_are_found_again_with_their_rules() {
    let position = |sequence| Position {
        log: [4; 16],
        sequence,
        at_ms: 1000 + sequence,
    };
    let dir = tempfile::tempdir().unwrap();
    // So small a zone has a journal of one block, which is written anew every few rules.
    let mut store = zone(dir.path(), 64 << 10);
    let mut book = loaded(&store);
    assert_eq!(book.position(), None);
    let mut noted = None;
    for sequence in 1..300_u64 {
        let key = |number: u64| Matter::Key(Key::of(number.to_string().as_bytes()));
        let purges = vec![
            (Mode::Soft, Matter::Tags(vec![Bytes::from_static(b"t")])),
            (Mode::Hard, key(sequence)),
        ];
        let before = book.newest();
        match sequence % 3 {
            0 => book.note_position(&store, position(sequence)).unwrap(),
            1 => drop(
                book.enforce_together(&store, (purges, Some(position(sequence))), 0)
                    .unwrap(),
            ),
            _ => drop(
                book.enforce(&store, (Mode::Hard, key(sequence)), 0)
                    .unwrap(),
            ),
        }
        if sequence % 3 != 2 {
            noted = Some(position(sequence));
        }
        if sequence % 7 == 0 {
            store = zone_again(store, dir.path());
            book = loaded(&store);
        }
        assert_eq!(book.position(), noted, "{sequence}");
        if sequence % 3 == 1 {
            let text = sequence.to_string();
            assert_eq!(judge(&book, &text, "", before), Judged::Gone, "{sequence}");
        }
    }
    // A log that has lost its end.
    book.note_position(&store, position(5)).unwrap();
    assert_eq!(
        loaded(&zone_again(store, dir.path())).position(),
        Some(position(5))
    );
}
