//! A list of a hundred thousand entries takes little time and hardly any memory.
//!
//! `cargo test -p millpond-proxy --test large_list -- --nocapture` prints the figures; `ENTRIES=n`
//! is for other numbers.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::head::{FieldsWriter, StoredHead};
use millpond_cache::zone::CacheZone;
use millpond_server::control::api::{Ask, Body, Lines, Scene, SceneZone, Standing, Verb, answer};
use millpond_server::control::rest::ZonePath;
use millpond_store::{SystemClock, Zone, ZoneConf};

const ENTRIES: u32 = 100_000;
/// What a list may need: the slots of a shard, a head and a piece; not the list.
const MEMORY_MAX: u64 = 16 << 20;

#[derive(Default)]
struct Counted {
    lines: u64,
    bytes: u64,
}

impl Lines for Counted {
    fn push(&mut self, line: &str) -> io::Result<()> {
        self.lines += 1;
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn push_now(&mut self, line: &str) -> io::Result<()> {
        self.push(line)
    }

    fn is_wanted(&mut self) -> bool {
        true
    }
}

fn fill(zone: &Zone, entries: u32) {
    for number in 0..entries {
        let text = format!("http://site{}/page/{number}", number % 10);
        let mut fields = FieldsWriter::default();
        fields.push(b"Content-Type", b"text/html");
        let mut head = StoredHead::new(200, fields);
        head.key = Bytes::from(text.into_bytes());
        // A full queue means not stored; here it is wanted all the same.
        while !is_put(zone, &head) {
            zone.flush();
        }
    }
    zone.flush();
}

fn is_put(zone: &Zone, head: &StoredHead) -> bool {
    let Ok(mut writer) = zone.begin(zone.keys().of(&head.key), None) else {
        return false;
    };
    writer.set_head(head.encode());
    writer.append(Bytes::from_static(b"body")).is_ok() && writer.finish().is_ok()
}

/// Kilobytes that the process has in memory, and the most that it ever had.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("this process");
    let value = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.and_then(|it| it.parse().ok()).expect("a number")
    };
    (value("VmRSS:"), value("VmHWM:"))
}

fn list(scene: &Scene, parameters: &[(&str, &'static str)]) -> Counted {
    let parameters = parameters
        .iter()
        .map(|(name, value)| (name.to_string(), Bytes::from_static(value.as_bytes())));
    let parameters = parameters.collect();
    let ask = Ask::new(Verb::Get, &["zones", "z", "entries"], parameters);
    let mut counted = Counted::default();
    match answer(scene, &ask).body {
        Body::Lines(make) | Body::Events(make) => make(&mut counted).expect("a list"),
        Body::Json(text) => panic!("{text}"),
    }
    counted
}

#[test]
fn a_hundred_thousand_entries_are_listed_in_bounded_memory() {
    let entries = std::env::var("ENTRIES").map_or(ENTRIES, |it| it.parse().expect("a number"));
    let dir = tempfile::tempdir().expect("a directory");
    let mut conf = ZoneConf::new("z", dir.path());
    conf.memory = 0;
    let store = Zone::open(conf, Arc::new(SystemClock)).expect("a zone");
    fill(&store, entries);
    let scene = Scene {
        zones: vec![SceneZone {
            declared: ZonePath::new("z", dir.path()),
            zone: Arc::new(CacheZone::new("z".to_string(), store)),
        }],
        standing: Standing::AtRest,
    };
    // Once before, so that what stays for good is there.
    list(&scene, &[("limit", "1000")]);
    let (before, _) = memory();
    let began = std::time::Instant::now();
    let all = list(&scene, &[]);
    let took = began.elapsed();
    let (_, most) = memory();
    assert_eq!(all.lines, u64::from(entries) + 1);
    let few = list(&scene, &[("prefix", "http://site3/page/9")]);
    assert!(few.lines > 1 && few.lines < all.lines / 10);
    let grown = most.saturating_sub(before) * 1024;
    println!(
        "{entries} entries: {:.2} s, {} bytes of JSON, {grown} bytes of memory",
        took.as_secs_f64(),
        all.bytes
    );
    assert!(all.bytes > MEMORY_MAX || entries < ENTRIES);
    assert!(grown < MEMORY_MAX, "{grown} bytes");
    assert!(took.as_secs() < 30, "{took:?}");
}
