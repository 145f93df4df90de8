//! Rules: what was purged, how and when, in memory and in the journal.
//!
//! A record of the journal, integers little-endian:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | version | 1, or 2 where there is a position |
//! | 1 | 1 | kind | 0: none, 1: key, 2: prefix, 3: wildcard, 4: tags, 5: everything |
//! | 2 | 1 | mode | 1: hard, 2: soft |
//! | 3 | 1 | reserved | |
//! | 4 | 4 | count | how many texts follow |
//! | 8 | 8 | serial | of the purge |
//! | 16 | 8 | at | when, seconds since the epoch |
//! | 24 | 32 | position | in version 2 only: up to where the log of a fleet was taken (`position.rs`) |
//! | then | | texts | for each: length (4) and bytes |
//!
//! The text of a key is its hash of 16 bytes. A record of kind 0 says that serials up to this one
//! were used. A record is valid if and only if version, kind and mode are known, the texts end at
//! its end, and their number fits the kind. One that is not valid is read as a hard purge of
//! everything: what it said was acknowledged.

use bytes::{BufMut, Bytes, BytesMut};
use millpond_store::{Key, Keys};

use super::position::{self, Position};
use crate::tag;

const VERSION: u8 = 1;
/// Version of records with a position. Who does not know it reads a purge of everything.
const VERSION_OF_FLEET: u8 = 2;
const FIXED: usize = 24;

/// Effect of a purge on what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The entry is not found any more.
    Hard,
    /// The entry is stale from now on: served where stale answers may be, and revalidated.
    Soft,
}

impl Mode {
    /// Word for the mode.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Hard => "hard",
            Mode::Soft => "soft",
        }
    }
}

/// Target of a purge, as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The entry of this cache key, with all its variants.
    Key(Bytes),
    /// Entries whose cache key begins with this.
    Prefix(Bytes),
    /// Entries whose whole cache key matches; `*` stands for any bytes, or none.
    Wildcard(Bytes),
    /// Entries that were filled for requests to this host.
    Host(Bytes),
    /// Entries that were filled by this site: the first name of a server.
    Site(Bytes),
    /// Entries with at least one of these tags.
    Tags(Vec<Bytes>),
    /// The whole zone.
    All,
}

impl Target {
    /// Kind of the target, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Target::Key(_) => "exact",
            Target::Prefix(_) => "prefix",
            Target::Wildcard(_) => "wildcard",
            Target::Host(_) => "host",
            Target::Site(_) => "site",
            Target::Tags(tags) if tags.first().is_some_and(|tag| tag::is_group(tag)) => "group",
            Target::Tags(_) => "tag",
            Target::All => "all",
        }
    }

    /// Text of the target, in full.
    pub fn text(&self) -> Bytes {
        match self {
            Target::Key(text)
            | Target::Prefix(text)
            | Target::Wildcard(text)
            | Target::Host(text)
            | Target::Site(text) => text.clone(),
            Target::Tags(tags) => tag::texts(tags).into(),
            Target::All => Bytes::new(),
        }
    }
}

/// Entries that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Matter {
    /// Nothing: the serial is used up.
    None,
    Key(Key),
    Prefix(Bytes),
    Wildcard(Bytes),
    /// Tags as they stand in heads.
    Tags(Vec<Bytes>),
    All,
}

/// A purge in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) serial: u64,
    /// Seconds since the epoch.
    pub(crate) at: i64,
    pub(crate) mode: Mode,
    pub(crate) matter: Matter,
    /// Place in the log of a fleet up to which all is in force once this rule is.
    pub(crate) position: Option<Position>,
}

impl Matter {
    /// Matter of a target, in the words of heads.
    pub(crate) fn of(target: &Target, keys: &Keys) -> Matter {
        match target {
            Target::Key(text) => Matter::Key(keys.of(text)),
            Target::Prefix(text) if text.is_empty() => Matter::All,
            Target::Prefix(text) => Matter::Prefix(text.clone()),
            Target::Wildcard(text) if text.iter().all(|byte| *byte == b'*') => Matter::All,
            Target::Wildcard(text) => Matter::Wildcard(text.clone()),
            Target::Host(name) => Matter::Tags(vec![tag::of_host(name)]),
            Target::Site(name) => Matter::Tags(vec![tag::of_site(name)]),
            Target::Tags(tags) => {
                Matter::Tags(tags.iter().map(|tag| tag::cut(tag.clone())).collect())
            }
            Target::All => Matter::All,
        }
    }

    fn code(&self) -> u8 {
        match self {
            Matter::None => 0,
            Matter::Key(_) => 1,
            Matter::Prefix(_) => 2,
            Matter::Wildcard(_) => 3,
            Matter::Tags(_) => 4,
            Matter::All => 5,
        }
    }

    fn texts(&self) -> Vec<&[u8]> {
        match self {
            Matter::None | Matter::All => Vec::new(),
            Matter::Key(key) => vec![&key.0],
            Matter::Prefix(text) | Matter::Wildcard(text) => vec![text],
            Matter::Tags(tags) => tags.iter().map(|tag| &tag[..]).collect(),
        }
    }

    fn read(code: u8, texts: Vec<Bytes>) -> Option<Matter> {
        let one = || match texts.as_slice() {
            [text] => Some(text.clone()),
            _ => None,
        };
        Some(match code {
            0 if texts.is_empty() => Matter::None,
            1 => Matter::Key(Key(one()?.as_ref().try_into().ok()?)),
            2 => Matter::Prefix(one()?),
            3 => Matter::Wildcard(one()?),
            4 => Matter::Tags(texts),
            5 if texts.is_empty() => Matter::All,
            _ => return None,
        })
    }
}

impl Rule {
    /// The rule's record.
    pub(crate) fn encode(&self) -> Bytes {
        let texts = self.matter.texts();
        let mut out = BytesMut::with_capacity(FIXED + 64);
        out.put_u8(match self.position {
            None => VERSION,
            Some(_) => VERSION_OF_FLEET,
        });
        out.put_u8(self.matter.code());
        out.put_u8(match self.mode {
            Mode::Hard => 1,
            Mode::Soft => 2,
        });
        out.put_u8(0);
        out.put_u32_le(texts.len() as u32);
        out.put_u64_le(self.serial);
        out.put_i64_le(self.at);
        if let Some(position) = &self.position {
            position.put(&mut out);
        }
        for text in texts {
            out.put_u32_le(text.len() as u32);
            out.put_slice(text);
        }
        out.freeze()
    }

    /// Reads a record; `None` if it is not valid.
    pub(crate) fn decode(record: &Bytes) -> Option<Rule> {
        let fixed: &[u8; FIXED] = record.get(..FIXED)?.try_into().ok()?;
        let [version, code, mode, _, count @ ..] = fixed;
        let (position, texts_at) = match *version {
            VERSION => (None, FIXED),
            VERSION_OF_FLEET => {
                let bytes = record.get(FIXED..FIXED + position::LEN)?;
                let position = Position::read(bytes.try_into().ok()?)?;
                (Some(position), FIXED + position::LEN)
            }
            _ => return None,
        };
        let mode = match mode {
            1 => Mode::Hard,
            2 => Mode::Soft,
            _ => return None,
        };
        let (count, rest) = count.split_first_chunk::<4>()?;
        let (serial, rest) = rest.split_first_chunk::<8>()?;
        let at = i64::from_le_bytes(rest.try_into().ok()?);
        let texts = texts(record.slice(texts_at..), u32::from_le_bytes(*count))?;
        Some(Rule {
            serial: u64::from_le_bytes(*serial),
            at,
            mode,
            matter: Matter::read(*code, texts)?,
            position,
        })
    }
}

fn texts(mut rest: Bytes, count: u32) -> Option<Vec<Bytes>> {
    let mut texts = Vec::new();
    for _ in 0..count {
        let len = u32::from_le_bytes(*rest.first_chunk::<4>()?) as usize;
        let end = len.checked_add(4).filter(|end| *end <= rest.len())?;
        texts.push(rest.slice(4..end));
        rest = rest.slice(end..);
    }
    rest.is_empty().then_some(texts)
}

/// True if the whole text matches; `*` stands for any bytes, or none. Takes time proportional to
/// both lengths at most.
pub(crate) fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where the last star was, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match (pattern.get(at), text.get(from)) {
            (Some(b'*'), _) => {
                star = Some((at, from));
                at += 1;
            }
            (Some(expected), Some(byte)) if expected == byte => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((position, taken)) = star else {
                    return false;
                };
                star = Some((position, taken + 1));
                at = position + 1;
                from = taken + 1;
            }
        }
    }
    let rest = pattern.get(at..).unwrap_or_default();
    rest.iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_bytes_or_none() {
        let table = [
            ("/a*c", "/abc", true),
            ("/a*c", "/ac", true),
            ("/a*c", "/acb", false),
            ("/a*c", "/acbc", true),
            ("*.png", "http://a/b.png", true),
            ("*.png", "http://a/b.pngx", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("**", "", true),
            ("", "", true),
            ("", "x", false),
            ("a?", "ab", false),
            ("a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, text, expected) in table {
            let matched = is_match(pattern.as_bytes(), text.as_bytes());
            assert_eq!(matched, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn rules_read_back_as_they_were_written() {
        let text = Bytes::from_static(b"http://a/b");
        let matters = [
            Matter::None,
            Matter::Key(Key::of(&text)),
            Matter::Prefix(text.clone()),
            Matter::Wildcard(Bytes::from_static(b"*a*")),
            Matter::Tags(vec![text.clone(), Bytes::from_static(b"b")]),
            Matter::All,
        ];
        for matter in matters {
            let position = Position {
                log: [7; 16],
                sequence: u64::MAX - 3,
                at_ms: 1,
            };
            for (mode, position) in [
                (Mode::Hard, None),
                (Mode::Soft, None),
                (Mode::Hard, Some(position)),
            ] {
                let rule = Rule {
                    serial: u64::MAX - 1,
                    at: -5,
                    mode,
                    matter: matter.clone(),
                    position,
                };
                let record = rule.encode();
                assert_eq!(Rule::decode(&record), Some(rule));
                for len in 0..record.len() {
                    assert_eq!(Rule::decode(&record.slice(..len)), None, "{len}");
                }
            }
        }
    }

    #[test]
    fn records_of_other_makings_are_none() {
        let rule = Rule {
            serial: 1,
            at: 0,
            mode: Mode::Hard,
            matter: Matter::Prefix(Bytes::from_static(b"p")),
            position: None,
        };
        let good = rule.encode();
        for (at, byte) in [
            (0, 2),
            (0, 3),
            (1, 6),
            (1, 1),
            (2, 0),
            (4, 2),
            (4, 0),
            (24, 9),
            (27, 255),
        ] {
            let mut bytes = good.to_vec();
            bytes[at] = byte;
            assert_eq!(Rule::decode(&Bytes::from(bytes)), None, "{at} {byte}");
        }
    }
}
