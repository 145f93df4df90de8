//! Entries of the log: purges, and beats of nodes, as bytes and by subject.
//!
//! An entry, integers little-endian:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | version | 1 |
//! | 1 | 1 | kind | 0: beat, 1: purge |
//! | 2 | 16 | run | the process that wrote it |
//! | 18 | 8 | count | of what the process wrote, or for a beat of its beats |
//! | 26 | | of a beat | sequence up to which the node has all purges (8), its name (rest, or up to a
//! zero byte, behind which it announces itself) |
//! | 26 | | of a purge | mode (1: hard, 2: soft), target (1), length of the zone's name (2), the
//! name, then each text behind its length (4) |
//!
//! Targets are 1: key, 2: prefix, 3: wildcard, 4: host, 5: site, 6: tags, 7: everything. An entry
//! is valid if version, kind, mode and target are known, and texts fill it and are as many as the
//! target has. One that is not valid makes a reader purge everything: somebody acknowledged it.
//!
//! An announcement is 3 (its version), the weight (2), the requests of peers that the node has to
//! do (4), milliseconds since it had everything (4; all ones for never), the name of the log that
//! it follows (16; zeros for none), the length of the name of its software's version (1) and that,
//! and the address at which peers ask it (rest; empty if it owns nothing). Version 4 has the length
//! of the name of the node's pool (1) and that before the address; without it the node is in the
//! pool `default`. Version 2 does not name the log; one of another version announces nothing.
//! Version 255, alone, makes the entry a farewell: somebody else says for the node, which is
//! silent, that it will not come back. So it stands in place of the node's last beat, and who does
//! not know of farewells reads a beat.
//!
//! Who knows of no pools must not take a node of one for the owner of its keys: so only a node of
//! another pool than `default` writes version 4, which such a reader does not understand.
//!
//! The log keeps the newest entry of each subject. So a subject names all that makes a newer entry
//! stand for an older one: the zone, the mode and the target of a purge, the node of a beat.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use millpond_cache::purge::{Mode, Target};
use sha2::{Digest, Sha256};

const VERSION: u8 = 1;
/// Version of announcements.
const ANNOUNCED_VERSION: u8 = 3;
/// Version of those that name a pool.
const WITH_POOL: u8 = 4;
/// Version of those that do not name the log.
const WITHOUT_LOG: u8 = 2;
/// The same of a farewell.
const FAREWELL_VERSION: u8 = 255;
/// Bytes of the digest of a target that its subject has: enough that nobody finds two alike.
const DIGEST_LEN: usize = 20;
/// Tags of a purge; as many as a request may name.
const TEXTS_MAX: usize = 256;

/// Name of the pool of nodes that say none.
pub const DEFAULT_POOL: &str = "default";
/// Bytes of names of fleets, nodes and pools, at most: they stand in the names of streams and
/// subjects, and in beats.
pub const NAME_LEN_MAX: usize = 64;

/// True for the name of a fleet, or of a pool of its nodes.
pub fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_letter)
}

/// Name of a process that lives once.
pub type Run = [u8; 16];

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A node lives.
    Beat(Beat),
    /// A node that was silent has left for good, by the word of an operator.
    Farewell {
        /// Process that wrote it, which is of another node.
        run: Run,
        /// Name of the node that has left.
        node: String,
    },
    /// Something was purged.
    Purge(Purge),
}

/// A sign of life, which comes back to the node behind all that was acknowledged before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Process that wrote it.
    pub run: Run,
    /// Number of the beat in its process.
    pub count: u64,
    /// Sequence up to which all zones of the node have every purge in force.
    pub taken: u64,
    /// Name of the node.
    pub node: String,
    /// Words of the node about itself; none that this version understands.
    pub announced: Option<Announced>,
}

/// Words of a node about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Address at which peers ask it, as text; empty if it owns nothing.
    pub address: String,
    /// Share of the keys, beside the weights of other nodes.
    pub weight: u16,
    /// Requests of peers that it has to do.
    pub load: u32,
    /// Milliseconds since everything that was acknowledged was in force there; none for never.
    pub lag_ms: Option<u32>,
    /// Name of the log that the node follows, of which what it has taken is a sequence.
    pub log: Option<[u8; 16]>,
    /// Version of its software.
    pub version: String,
    /// Name of its pool.
    pub pool: String,
}

impl Default for Announced {
    fn default() -> Self {
        Announced {
            address: String::new(),
            weight: 0,
            load: 0,
            lag_ms: None,
            log: None,
            version: String::new(),
            pool: DEFAULT_POOL.to_owned(),
        }
    }
}

/// Writes a text of at most 255 bytes behind its length.
fn put_short(out: &mut BytesMut, text: &str) {
    let whole = text.as_bytes();
    let text = whole.get(..usize::from(u8::MAX)).unwrap_or(whole);
    // At most 255 by the line above.
    out.put_u8(text.len() as u8);
    out.put_slice(text);
}

fn take_short(rest: &mut Bytes) -> Option<String> {
    let len = usize::from(rest.try_get_u8().ok()?);
    String::from_utf8(take(rest, len)?.to_vec()).ok()
}

impl Announced {
    fn put(&self, out: &mut BytesMut) {
        let has_pool = self.pool != DEFAULT_POOL;
        out.put_u8(0);
        out.put_u8(if has_pool {
            WITH_POOL
        } else {
            ANNOUNCED_VERSION
        });
        out.put_u16_le(self.weight);
        out.put_u32_le(self.load);
        out.put_u32_le(self.lag_ms.unwrap_or(u32::MAX));
        out.put_slice(&self.log.unwrap_or_default());
        put_short(out, &self.version);
        if has_pool {
            put_short(out, &self.pool);
        }
        out.put_slice(self.address.as_bytes());
    }

    fn read(mut rest: Bytes) -> Option<Announced> {
        let (names_log, has_pool) = match rest.try_get_u8().ok()? {
            WITH_POOL => (true, true),
            ANNOUNCED_VERSION => (true, false),
            WITHOUT_LOG => (false, false),
            _ => return None,
        };
        let (weight, load) = (rest.try_get_u16_le().ok()?, rest.try_get_u32_le().ok()?);
        let lag_ms = rest.try_get_u32_le().ok()?;
        let mut log = [0; 16];
        if names_log {
            rest.try_copy_to_slice(&mut log).ok()?;
        }
        let version = take_short(&mut rest)?;
        let pool = if has_pool {
            take_short(&mut rest)?
        } else {
            DEFAULT_POOL.to_owned()
        };
        Some(Announced {
            address: String::from_utf8(rest.to_vec()).ok()?,
            weight,
            load,
            lag_ms: Some(lag_ms).filter(|lag_ms| *lag_ms != u32::MAX),
            log: Some(log).filter(|log| *log != [0; 16]),
            version,
            pool,
        })
    }
}

/// A purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Process that wrote it, where it is in force already.
    pub run: Run,
    /// Number of the purge in its process.
    pub count: u64,
    /// Name of the zone.
    pub zone: Bytes,
    /// Effect.
    pub mode: Mode,
    /// Entries of the cache that it is about.
    pub target: Target,
}

impl Entry {
    /// Bytes of the entry.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        match self {
            Entry::Beat(beat) => {
                out.put_u8(0);
                out.put_slice(&beat.run);
                out.put_u64_le(beat.count);
                out.put_u64_le(beat.taken);
                out.put_slice(beat.node.as_bytes());
                if let Some(announced) = &beat.announced {
                    announced.put(&mut out);
                }
            }
            Entry::Farewell { run, node } => {
                out.put_u8(0);
                out.put_slice(run);
                // Neither its number nor what the node had says anything any more.
                out.put_u64_le(0);
                out.put_u64_le(0);
                out.put_slice(node.as_bytes());
                out.put_slice(&[0, FAREWELL_VERSION]);
            }
            Entry::Purge(purge) => {
                out.put_u8(1);
                out.put_slice(&purge.run);
                out.put_u64_le(purge.count);
                purge.put_matter(&mut out);
            }
        }
        out.freeze()
    }

    /// Reads an entry; `None` if it is not valid.
    pub fn decode(bytes: &Bytes) -> Option<Entry> {
        let mut rest = bytes.clone();
        let (version, kind) = (rest.try_get_u8().ok()?, rest.try_get_u8().ok()?);
        if version != VERSION {
            return None;
        }
        let mut run = Run::default();
        rest.try_copy_to_slice(&mut run).ok()?;
        let count = rest.try_get_u64_le().ok()?;
        match kind {
            0 => {
                let taken = rest.try_get_u64_le().ok()?;
                let end = rest.iter().position(|byte| *byte == 0);
                let name = rest.split_to(end.unwrap_or(rest.len()));
                let node = std::str::from_utf8(&name).ok()?.to_owned();
                if *rest == [0, FAREWELL_VERSION] {
                    return Some(Entry::Farewell { run, node });
                }
                Some(Entry::Beat(Beat {
                    run,
                    count,
                    taken,
                    node,
                    announced: end.and_then(|_| Announced::read(rest.slice(1..))),
                }))
            }
            1 => Purge::read(run, count, rest).map(Entry::Purge),
            _ => None,
        }
    }

    /// Subject of the entry in the log of a fleet.
    pub fn subject(&self, fleet: &str) -> String {
        let of_node = |node: &str| format!("mp.{fleet}.beat.{}", token(node.as_bytes()));
        match self {
            Entry::Beat(beat) => of_node(&beat.node),
            Entry::Farewell { node, .. } => of_node(node),
            Entry::Purge(purge) => {
                let mut matter = BytesMut::new();
                purge.put_matter(&mut matter);
                let digest = Sha256::digest(&matter);
                let hex = digest.iter().take(DIGEST_LEN);
                let name: String = hex.map(|byte| format!("{byte:02x}")).collect();
                let (zone, mode) = (token(&purge.zone), purge.mode.word());
                let kind = purge.target.kind();
                format!("mp.{fleet}.purge.{zone}.{mode}.{kind}.{name}")
            }
        }
    }
}

impl Purge {
    fn put_matter(&self, out: &mut BytesMut) {
        out.put_u8(match self.mode {
            Mode::Hard => 1,
            Mode::Soft => 2,
        });
        let (code, texts): (u8, &[Bytes]) = match &self.target {
            Target::Key(text) => (1, std::slice::from_ref(text)),
            Target::Prefix(text) => (2, std::slice::from_ref(text)),
            Target::Wildcard(text) => (3, std::slice::from_ref(text)),
            Target::Host(text) => (4, std::slice::from_ref(text)),
            Target::Site(text) => (5, std::slice::from_ref(text)),
            Target::Tags(tags) => (6, tags),
            Target::All => (7, &[]),
        };
        out.put_u8(code);
        // Names of zones stand in a configuration: words of it are shorter.
        out.put_u16_le(u16::try_from(self.zone.len()).unwrap_or(u16::MAX));
        out.put_slice(&self.zone);
        for text in texts {
            // Fields of requests, which have limits far below.
            out.put_u32_le(u32::try_from(text.len()).unwrap_or(u32::MAX));
            out.put_slice(text);
        }
    }

    fn read(run: Run, count: u64, mut rest: Bytes) -> Option<Purge> {
        let mode = match rest.try_get_u8().ok()? {
            1 => Mode::Hard,
            2 => Mode::Soft,
            _ => return None,
        };
        let code = rest.try_get_u8().ok()?;
        let len = usize::from(rest.try_get_u16_le().ok()?);
        let zone = take(&mut rest, len)?;
        let mut texts = Vec::new();
        while !rest.is_empty() && texts.len() < TEXTS_MAX {
            let len = rest.try_get_u32_le().ok()? as usize;
            texts.push(take(&mut rest, len)?);
        }
        if !rest.is_empty() {
            return None;
        }
        Some(Purge {
            run,
            count,
            zone,
            mode,
            target: target(code, texts)?,
        })
    }
}

fn take(rest: &mut Bytes, len: usize) -> Option<Bytes> {
    (len <= rest.len()).then(|| rest.split_to(len))
}

fn target(code: u8, texts: Vec<Bytes>) -> Option<Target> {
    let one = match texts.as_slice() {
        [text] => Some(text.clone()),
        _ => None,
    };
    match code {
        1 => one.map(Target::Key),
        2 => one.map(Target::Prefix),
        3 => one.map(Target::Wildcard),
        4 => one.map(Target::Host),
        5 => one.map(Target::Site),
        6 if !texts.is_empty() => Some(Target::Tags(texts)),
        7 if texts.is_empty() => Some(Target::All),
        _ => None,
    }
}

/// A name as one token of a subject.
pub(crate) fn token(name: &[u8]) -> String {
    let mut out = String::new();
    for byte in name {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => out.push(char::from(*byte)),
            _ => out.push_str(&format!("={byte:02x}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge(mode: Mode, target: Target) -> Entry {
        Entry::Purge(Purge {
            run: [9; 16],
            count: 77,
            zone: Bytes::from_static(b"a.b"),
            mode,
            target,
        })
    }

    fn entries() -> Vec<Entry> {
        let text = Bytes::from_static(b"http://a/b");
        let beat = Beat {
            run: [3; 16],
            count: 1,
            taken: u64::MAX,
            node: "edge-1.example".to_owned(),
            announced: None,
        };
        let announced = Announced {
            address: "[::1]:8080".to_owned(),
            weight: 700,
            load: 70_000,
            lag_ms: Some(1_003),
            log: Some([5; 16]),
            version: "1.2.3".to_owned(),
            pool: DEFAULT_POOL.to_owned(),
        };
        let shield = Announced {
            pool: "shield".to_owned(),
            ..announced.clone()
        };
        vec![
            Entry::Beat(beat.clone()),
            Entry::Beat(Beat {
                announced: Some(announced),
                node: "edge-2".to_owned(),
                ..beat.clone()
            }),
            Entry::Beat(Beat {
                announced: Some(shield),
                node: "shield-1".to_owned(),
                ..beat.clone()
            }),
            Entry::Beat(Beat {
                announced: Some(Announced::default()),
                node: "edge-3".to_owned(),
                ..beat
            }),
            Entry::Farewell {
                run: [4; 16],
                node: "edge-4".to_owned(),
            },
            purge(Mode::Hard, Target::Key(text.clone())),
            purge(Mode::Soft, Target::Prefix(Bytes::new())),
            purge(Mode::Hard, Target::Wildcard(text.clone())),
            purge(Mode::Hard, Target::Host(text.clone())),
            purge(Mode::Hard, Target::Site(text.clone())),
            purge(
                Mode::Hard,
                Target::Tags(vec![text.clone(), Bytes::new(), text]),
            ),
            purge(Mode::Soft, Target::All),
        ]
    }

    #[test]
    fn entries_read_back_as_they_were_written() {
        for entry in entries() {
            let bytes = entry.encode();
            assert_eq!(Entry::decode(&bytes), Some(entry.clone()));
            // The name of a node has no end of its own.
            let shortest = if matches!(entry, Entry::Beat(_) | Entry::Farewell { .. }) {
                34
            } else {
                bytes.len()
            };
            for len in 0..shortest {
                let cut = Entry::decode(&bytes.slice(..len));
                let is_all = matches!(&cut, Some(Entry::Purge(cut)) if cut.target == Target::All);
                let is_fewer = matches!(
                    &cut,
                    Some(Entry::Purge(Purge {
                        target: Target::Tags(_),
                        ..
                    }))
                );
                assert!(
                    cut.is_none() || is_fewer && !is_all,
                    "{entry:?} {len} {cut:?}"
                );
            }
        }
    }

    /// Beats from before there were pools read as they were meant, and who wrote those reads nodes
    /// of the pool `default`, and no others.
    #[test]
    fn nodes_of_the_usual_pool_are_announced_as_before_there_were_pools() {
        let version_of = |pool: &str| {
            let beat = Entry::Beat(Beat {
                run: [3; 16],
                count: 1,
                taken: 0,
                node: "n".to_owned(),
                announced: Some(Announced {
                    pool: pool.to_owned(),
                    ..Announced::default()
                }),
            });
            beat.encode()[36]
        };
        assert_eq!((version_of("default"), version_of("shield")), (3, 4));
        let mut before = b"\x01\x00".to_vec();
        before.extend([0; 32]);
        before.extend(b"n\0\x03\x64\0\0\0\0\0\xff\xff\xff\xff");
        before.extend([5; 16]);
        before.extend(b"\x031.0127.0.0.1:1");
        let Some(Entry::Beat(beat)) = Entry::decode(&Bytes::from(before)) else {
            panic!("no beat");
        };
        let announced = beat.announced.unwrap();
        assert_eq!(
            (&*announced.pool, &*announced.address, announced.weight),
            ("default", "127.0.0.1:1", 100)
        );
    }

    #[test]
    fn entries_of_other_makings_are_none() {
        let good = purge(Mode::Hard, Target::Key(Bytes::from_static(b"k"))).encode();
        for (at, byte) in [
            (0, 2),
            (1, 2),
            (26, 0),
            (27, 0),
            (27, 7),
            (28, 200),
            (33, 9),
        ] {
            let mut bytes = good.to_vec();
            bytes[at] = byte;
            assert_eq!(Entry::decode(&Bytes::from(bytes)), None, "{at} {byte}");
        }
    }

    /// The newest of a subject stands for all of it, so all that differs in effect differs there.
    #[test]
    fn subjects_differ_where_effects_do_and_are_tokens() {
        let mut subjects: Vec<String> = entries().iter().map(|it| it.subject("edge")).collect();
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let others = [
            Target::Tags(vec![text("a"), text("b")]),
            Target::Tags(vec![text("ab")]),
            Target::Tags(vec![text("a b")]),
        ];
        subjects.extend(others.map(|target| purge(Mode::Hard, target).subject("edge")));
        assert_eq!(subjects[0], "mp.edge.beat.edge-1=2eexample");
        assert_eq!(subjects[1], "mp.edge.beat.edge-2");
        assert_eq!(subjects[4], "mp.edge.beat.edge-4");
        for subject in &subjects[5..] {
            assert!(subject.starts_with("mp.edge.purge.a=2eb."), "{subject}");
            assert_eq!(subject.split('.').count(), 7, "{subject}");
        }
        let count = subjects.len();
        subjects.sort();
        subjects.dedup();
        assert_eq!(subjects.len(), count);
    }

    #[test]
    fn the_same_purge_of_another_process_has_the_same_subject() {
        let entry = |run| {
            Entry::Purge(Purge {
                run,
                count: u64::from(run[0]),
                zone: Bytes::from_static(b"z"),
                mode: Mode::Hard,
                target: Target::All,
            })
        };
        assert_eq!(entry([1; 16]).subject("f"), entry([2; 16]).subject("f"));
    }
}
