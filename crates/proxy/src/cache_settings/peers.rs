//! `proxy_cache_peers`: whether a miss is asked of the node of the fleet that owns its key.
//!
//! `cache/peers` asks it, and answers.

use std::sync::Arc;
use std::time::Duration;

use millpond_conf::OffOr;
use millpond_conf::value::{ArgError, Args, FromArgs, parse_duration, parse_offset};
use millpond_fleet::entry::is_name;
use millpond_fleet::peers::Choice;

/// The part of its share that a node may have to do, in hundredths.
const BOUND: u32 = 125;
/// Time in which an owner must have given a sign of life.
const HEDGE: Duration = Duration::from_millis(200);

/// Bytes of an extent.
const EXTENT: u64 = 64 << 20;

/// Choice of who fills.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct PeersPolicy {
    /// With `owner`, what is missing in the cache, or has to be validated, is asked of the node of
    /// the fleet that owns its key, and only that node asks the origin; the zone must have
    /// `fleet=`, and the fleet a `peer_secret`. The other nodes store what they are asked for a
    /// second time. The owner is chosen among the nodes of the pool `pool` (`node … pool=`), or
    /// without it among those of the node's own pool: with `pool=shield` on all nodes those of the
    /// pool `shield` ask the origin for all others; while none of them lives, each node asks it.
    /// An owner that gives no sign of life within `hedge` (200ms), or fails, is passed
    /// by: the origin is asked. A node with more than `bound` (1.25) times its share of requests
    /// to do is passed over for the next owner. Of bodies that `slice` with a size cuts, each
    /// `extent` (64m, in whole slices) has an owner of its own. It turns on `proxy_cache_lock`.
    /// Owners make the cache key by themselves, so that it must not have what belongs to a
    /// connection, such as `$scheme`. See docs/fleet.md.
    #[directive(name = "proxy_cache_peers", default = "off")]
    pub peers: OffOr<PeersRule>,
}

/// Rule for asking owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersRule {
    /// The pool whose nodes own keys; none for that of the node itself.
    pub pool: Option<Arc<str>>,
    /// The part of its share that a node may have to do, in hundredths.
    pub bound: u32,
    /// Time in which an owner must have given a sign of life.
    pub hedge: Duration,
    /// Bytes of a body in slices that have one owner.
    pub extent: u64,
}

impl PeersRule {
    /// The choice of an owner.
    pub fn choice(&self) -> Choice<'_> {
        Choice {
            pool: self.pool.as_deref(),
            bound: self.bound,
        }
    }
}

impl FromArgs for PeersRule {
    const SYNTAX: &'static str = "owner [pool=name] [bound=number] [hedge=time] [extent=size]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let [first, more @ ..] = args.words else {
            return Err(ArgError::Count);
        };
        if first.text != "owner" {
            return Err(ArgError::value(0, "it must be \"off\" or \"owner\""));
        }
        let mut rule = PeersRule {
            pool: None,
            bound: BOUND,
            hedge: HEDGE,
            extent: EXTENT,
        };
        for (place, word) in more.iter().enumerate() {
            let wrong = |why: &'static str| ArgError::value(place + 1, why);
            match word.text.split_once('=') {
                Some(("pool", name)) if is_name(name) => rule.pool = Some(Arc::from(name)),
                Some(("pool", _)) => {
                    return Err(wrong(
                        "a pool has a name of letters, digits, \"-\" and \"_\"",
                    ));
                }
                Some(("bound", value)) => {
                    rule.bound = hundredths(value)
                        .ok_or_else(|| wrong("the bound must be a number from 1 to 100"))?;
                }
                Some(("hedge", value)) => {
                    let time = parse_duration(value).filter(|time| !time.is_zero());
                    rule.hedge = time.ok_or_else(|| wrong("the hedge must be a time above 0"))?;
                }
                Some(("extent", value)) => {
                    let size = parse_offset(value).filter(|size| *size > 0);
                    rule.extent = size.ok_or_else(|| wrong("an extent must be a size above 0"))?;
                }
                _ => {
                    let all = "it must be \"pool=name\", \"bound=number\", \"hedge=time\" or \
                               \"extent=size\"";
                    return Err(wrong(all));
                }
            }
        }
        Ok(rule)
    }
}

/// A number from 1 to 100, in hundredths.
fn hundredths(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    let number: f64 = text.parse().ok().filter(|_| is_plain)?;
    (1.0..=100.0)
        .contains(&number)
        .then(|| (number * 100.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::hundredths;

    #[test]
    fn bounds_are_plain_numbers_from_one_on() {
        for (text, expected) in [("1", 100), ("1.25", 125), ("2.5", 250), ("100", 10_000)] {
            assert_eq!(hundredths(text), Some(expected), "{text}");
        }
        for text in ["", "0.5", "101", "nan", "1e1", "-2", "+2", "1.2.3"] {
            assert_eq!(hundredths(text), None, "{text}");
        }
    }
}
