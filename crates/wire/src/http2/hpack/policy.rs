//! The treatment of fields by a writer of blocks: which go into a table, and where they are looked
//! for there.
//!
//! Fields that repeat from answer to answer (Server, Date, Content-Type …) go into the dynamic
//! table at once, other ones when they come a second time; what is new in each answer (ETag,
//! Location …) never does.
//!
//! 1. Values that are secrets stand in no table (RFC 7541 §7.1.3, RFC 9204 §7.1.3).

use crate::header::{Known, KnownSet};

/// Fields of answers and requests whose values repeat on a connection.
const REPEATING: KnownSet = KnownSet::of(&[
    Known::Server,
    Known::Date,
    Known::ContentType,
    Known::CacheControl,
    Known::Vary,
    Known::AcceptRanges,
    Known::ContentEncoding,
    Known::ContentLanguage,
    Known::StrictTransportSecurity,
    Known::Via,
    Known::Allow,
    Known::XCacheStatus,
    Known::Accept,
    Known::AcceptEncoding,
    Known::AcceptLanguage,
    Known::UserAgent,
    Known::XForwardedProto,
    Known::XForwardedHost,
]);

/// Fields whose values are others in each message.
const CHANGING: KnownSet = KnownSet::of(&[
    Known::ContentLength,
    Known::ContentRange,
    Known::ETag,
    Known::LastModified,
    Known::Location,
    Known::ContentLocation,
    Known::Age,
    Known::Expires,
    Known::IfModifiedSince,
    Known::IfNoneMatch,
    Known::IfRange,
    Known::Range,
    Known::Traceparent,
    // Secrets of users. (nginx: without an index, too.)
    Known::SetCookie,
    Known::Cookie,
]);

/// Fields whose values no proxy behind may index either.
const SECRET: KnownSet = KnownSet::of(&[Known::Authorization, Known::ProxyAuthorization]);

/// The treatment of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Repeating,
    Changing,
    Secret,
    Unknown,
}

impl Policy {
    /// The treatment of fields of a name.
    #[inline]
    pub(crate) fn of(known: Known) -> Self {
        // There are no more than 127.
        POLICIES[known as usize & 127]
    }
}

/// The treatment of each known name.
static POLICIES: [Policy; 128] = policies();

const fn policies() -> [Policy; 128] {
    let mut policies = [Policy::Unknown; 128];
    let mut at = 0;
    while at < Known::ALL.len() {
        let known = Known::ALL[at];
        policies[known as usize] = if REPEATING.contains(known) {
            Policy::Repeating
        } else if CHANGING.contains(known) {
            Policy::Changing
        } else if SECRET.contains(known) {
            Policy::Secret
        } else {
            Policy::Unknown
        };
        at += 1;
    }
    policies
}

/// Names that have a list of entries each: the known ones, and as many for all others.
pub(crate) const LISTS: usize = 256;
/// The list of pseudo fields: a number that no known name has.
pub(crate) const PSEUDO_LIST: usize = LISTS / 2 - 1;
/// Values of which it is remembered that they came once (arbitrary; two bytes each).
const REMEMBERED: usize = 64;

/// The list that entries of a name are on.
#[inline]
pub(crate) fn list_of(known: Known, name: &[u8]) -> usize {
    match known {
        Known::Other => {
            let mix = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add(u32::from(*byte));
            LISTS / 2 + name.iter().fold(0, mix) as usize % (LISTS / 2)
        }
        known => known as usize,
    }
}

/// True if a list has entries of several names.
#[inline]
pub(crate) fn is_mixed(list: usize) -> bool {
    list >= PSEUDO_LIST
}

/// The memory of values that came once; without memory before the first one.
#[derive(Debug, Default)]
pub(crate) struct Seen(Vec<u16>);

impl Seen {
    /// True if a value of a list has come before; notes it if not.
    pub(crate) fn is_second(&mut self, list: usize, value: &[u8]) -> bool {
        let mark = mark_of(list, value);
        let place = usize::from(mark) % REMEMBERED;
        if self.0.is_empty() {
            self.0.resize(REMEMBERED, 0);
        }
        match self.0.get_mut(place) {
            Some(seen) if *seen != mark => {
                *seen = mark;
                false
            }
            _ => true,
        }
    }
}

/// The mark of a field by which it is known again; never zero.
fn mark_of(list: usize, value: &[u8]) -> u16 {
    // FNV-1a, by words: strangers gain nothing from two values of one mark.
    const PRIME: u64 = 0x0100_0000_01b3;
    let (words, rest) = value.as_chunks::<8>();
    let start = 0xcbf2_9ce4_8422_2325 ^ list as u64;
    let of_words = words.iter().fold(start, |sum, word| {
        (sum ^ u64::from_le_bytes(*word))
            .wrapping_mul(PRIME)
            .rotate_left(29)
    });
    let sum = rest.iter().fold(of_words, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(PRIME)
    });
    (sum >> 40) as u16 | 1
}

/// Writes a name in small letters, without bytes that no name has.
pub(crate) fn lower(name: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let is_good = |byte: &&u8| **byte > b' ' && **byte < 0x7f && **byte != b':';
    out.extend(name.iter().filter(is_good).map(u8::to_ascii_lowercase));
}

/// Writes a value without what would end a line, nor white space around it.
pub(crate) fn mend(value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mended = value.iter().map(|byte| match byte {
        b'\0' | b'\r' | b'\n' => b' ',
        byte => *byte,
    });
    let is_space = |byte: &u8| *byte == b' ' || *byte == b'\t';
    out.extend(mended.skip_while(is_space));
    while out.last().is_some_and(is_space) {
        out.pop();
    }
}
