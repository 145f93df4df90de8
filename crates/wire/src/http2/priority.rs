//! Priorities of streams (RFC 9218): `priority` of a request, and PRIORITY_UPDATE.
//!
//! 1. What cannot be read changes nothing: a client loses its wish, not its request.
//!
//! Which stream is served next is decided by the [`scheduler`](super::scheduler).

/// Urgencies: the lower, the sooner.
pub const URGENCIES: usize = 8;
/// The urgency of what says nothing.
const DEFAULT_URGENCY: u8 = 3;

/// The way in which a body is useful before all of it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// In parts: it takes turns with others.
    Incremental,
    /// As a whole: one after the other.
    Whole,
}

/// The priority of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Zero to seven; the lower, the sooner.
    pub urgency: u8,
    /// The way in which it shares with others of its urgency.
    pub manner: Manner,
}

/// The priority of a stream whose client says nothing by RFC 9218. It takes turns with those of its
/// place in the [`tree`](super::tree) of RFC 7540, as streams of equal weight do in nginx; RFC 9218
/// §10 leaves that to servers.
impl Default for Priority {
    fn default() -> Self {
        Priority {
            urgency: DEFAULT_URGENCY,
            manner: Manner::Incremental,
        }
    }
}

impl Priority {
    /// Reads a priority (a dictionary of RFC 9651 with `u` and `i`); `None` if it is none.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        // RFC 9218 §4: who says something gets the defaults for the rest.
        let mut priority = Priority {
            urgency: DEFAULT_URGENCY,
            manner: Manner::Whole,
        };
        for member in value.split(|byte| *byte == b',') {
            match member.trim_ascii().split(|byte| *byte == b';').next()? {
                b"i" | b"i=?1" => priority.manner = Manner::Incremental,
                b"i=?0" => priority.manner = Manner::Whole,
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                // RFC 9218 §4.1: out of range, or of another type, is as if it was not there.
                [b'u' | b'i', b'=', ..] | b"u" => {}
                // A member of another name; one that has no name is no dictionary.
                [b'a'..=b'z' | b'*', ..] => {}
                _ => return None,
            }
        }
        Some(priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9218 §4.
    #[test]
    fn priorities_are_read_and_what_is_none_is_none() {
        let whole = |urgency| {
            Some(Priority {
                urgency,
                manner: Manner::Whole,
            })
        };
        let incremental = |urgency| {
            Some(Priority {
                urgency,
                manner: Manner::Incremental,
            })
        };
        for (value, priority) in [
            ("u=0", whole(0)),
            ("u=7, i", incremental(7)),
            ("i", incremental(3)),
            ("i=?0", whole(3)),
            ("u=5,i=?1", incremental(5)),
            ("u=1;x=2 , i;y", incremental(1)),
            ("u=8", whole(3)),
            ("u=-1", whole(3)),
            ("u=\"1\"", whole(3)),
            ("i=1", whole(3)),
            ("foo=bar, u=2", whole(2)),
            ("u=2, u=4", whole(4)),
            ("", None),
            (",", None),
            ("U=1", None),
            ("=1", None),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), priority, "{value:?}");
        }
    }
}
