//! Time that purges of a million entries take. Run by hand, for it needs half a minute and a
//! gigabyte:
//!
//! ```text
//! cargo test --release -p millpond-cache --test purge_million -- --ignored --nocapture
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_cache::head::{FieldsWriter, StoredHead};
use millpond_cache::purge::{Mode, Target};
use millpond_cache::tag::TagWriter;
use millpond_cache::variant::RequestFields;
use millpond_cache::zone::{CacheZone, LookedUp, PrimaryKey};
use millpond_semantics::vary::Spelling;
use millpond_store::{SystemClock, Zone, ZoneConf};

const ENTRIES: u64 = 1_000_000;
const BODY: &[u8] = &[b'x'; 200];
/// Longest time that a purge may take, whatever it is about.
const LIMIT: Duration = Duration::from_secs(1);

fn text(number: u64) -> Bytes {
    Bytes::from(format!("http://example.com/shop/{}/{number}", number % 10))
}

fn fill(zone: &CacheZone) {
    for number in 0..ENTRIES {
        let mut fields = FieldsWriter::default();
        fields.push(b"Content-Type", b"text/plain");
        let mut tags = TagWriter::new(b"example.com", b"example.com");
        tags.push_all(format!("product-{number} every").as_bytes());
        let mut head = StoredHead::new(200, fields);
        head.key = text(number);
        head.valid_until = i64::MAX;
        head.tags = tags.finish();
        head.serial = zone.purges.newest();
        let key = zone.primary(head.key.clone());
        // The queue of writes may be full for a moment.
        while {
            let mut writer = zone
                .store
                .begin(key.key, Some(BODY.len() as u64))
                .expect("begun");
            writer.set_head(head.encode());
            let appended = writer.append(Bytes::from_static(BODY));
            appended.and_then(|()| writer.finish().map(drop)).is_err()
        } {
            zone.store.flush();
        }
    }
    zone.store.flush();
}

/// Number of a thousand entries that are found, and the time that a look-up takes.
fn found(zone: &CacheZone) -> (usize, Duration) {
    let keys = (0..ENTRIES).step_by(ENTRIES as usize / 1000);
    let keys: Vec<PrimaryKey> = keys.map(|number| zone.primary(text(number))).collect();
    let began = Instant::now();
    let fields = RequestFields {
        lookup: &|_| Vec::new(),
        spelling: Spelling::AsNginx,
    };
    let is_found = |key: &&PrimaryKey| matches!(zone.look_up(key, &fields), LookedUp::Found(_));
    let count = keys.iter().filter(is_found).count();
    (count, began.elapsed() / 1000)
}

#[test]
#[ignore = "a measurement: half a minute and a gigabyte"]
fn purges_of_a_million_entries() {
    let dir = tempfile::tempdir().expect("directory");
    let mut conf = ZoneConf::new("million", dir.path());
    conf.max_size = Some(4 << 30);
    let store = Zone::open(conf, Arc::new(SystemClock)).expect("open");
    let zone = CacheZone::new("million".to_string(), store);
    fill(&zone);
    assert_eq!(zone.store.usage().entries, ENTRIES);
    println!("{:>24} {:?}", "a look-up takes", found(&zone).1);
    let shop = Target::Prefix(Bytes::from_static(b"http://example.com/shop/"));
    let began = Instant::now();
    assert_eq!(zone.count_purged(&shop, &|| false), Some(ENTRIES));
    println!("{:>24} {:?}", "a dry run takes", began.elapsed());
    let tag = Target::Tags(vec![Bytes::from_static(b"every")]);
    let targets = [
        ("soft, one key", Target::Key(text(500)), Mode::Soft, 1000),
        ("soft, prefix", shop.clone(), Mode::Soft, 1000),
        ("soft, tag", tag.clone(), Mode::Soft, 1000),
        ("hard, one key", Target::Key(text(0)), Mode::Hard, 999),
        ("hard, prefix", shop, Mode::Hard, 0),
        ("hard, tag", tag, Mode::Hard, 0),
        (
            "hard, host",
            Target::Host(Bytes::from_static(b"example.com")),
            Mode::Hard,
            0,
        ),
        ("hard, everything", Target::All, Mode::Hard, 0),
    ];
    for (name, target, mode, left) in targets {
        let began = Instant::now();
        zone.purge(&target, mode, 1000).expect("purged");
        let took = began.elapsed();
        let (count, look_up) = found(&zone);
        println!("{name:>24} {took:?}, then a look-up {look_up:?}");
        assert_eq!(count, left, "{name}");
        assert!(took < LIMIT, "{name} took {took:?}");
    }
    let began = Instant::now();
    let swept = zone.sweep_purges(u64::MAX, &|| false).expect("due");
    println!("{:>24} {:?}", "the sweep takes", began.elapsed());
    assert_eq!((swept.removed, swept.is_complete), (ENTRIES - 1, true));
    assert_eq!(
        (zone.store.usage().entries, zone.purges.rule_count()),
        (0, 0)
    );
}
