//! `split_clients`: a value for a share of all strings.
//!
//! A string's hash (MurmurHash2, 32 bits, seed 0) falls into the share of one value. Shares have
//! two decimals and are counted in hundredths of a percent; the bounds are computed as nginx
//! computes them, so that a client gets the same value from both.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{Statement, Template, Word};

use super::Lookup;
use crate::request::Request;
use crate::rewrite::variable_name;
use crate::var::{self, Definition};
use millpond_exchange::scope::block::Draft;
use millpond_exchange::scope::build::Builder;

/// The whole of all values, in hundredths of a percent.
const WHOLE: u32 = 10_000;

/// A compiled `split_clients`.
#[derive(Debug)]
pub struct SplitClients {
    source: Template,
    parts: Vec<Part>,
}

/// A value and the hashes that it is for.
#[derive(Debug)]
struct Part {
    /// Hashes below this one; none for all that are left.
    below: Option<u32>,
    value: Bytes,
}

/// Compiles the block and defines its variable.
pub(super) fn split_clients(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 2..=2) {
        return;
    }
    let [source, name] = statement.args.as_slice() else {
        return;
    };
    let source = builder.template(source);
    let id = variable_name(builder, name);
    if let Some(id) = id {
        // Known from here on, so that a mistake in the block is told once.
        var::define(builder, id, Definition::Stored);
    }
    let body = statement.body.as_deref().unwrap_or_default();
    let mut shares = Vec::new();
    for line in body {
        let [value] = line.args.as_slice() else {
            let message = "invalid number of arguments in \"split_clients\" directive";
            builder.error(line.span, message);
            return;
        };
        match parse_share(&line.name) {
            Some(share) => shares.push((share, Bytes::from(value.text.clone()))),
            None => {
                let message = format!("invalid percent value \"{}\"", line.name.text);
                builder.error(line.name.span, message);
                return;
            }
        }
    }
    let Some(parts) = bounds(shares) else {
        builder.error(statement.span, "percent total is greater than 100%");
        return;
    };
    if let (Some(source), Some(id)) = (source, id) {
        let lookup = Arc::new(Lookup::SplitClients(SplitClients { source, parts }));
        var::define(builder, id, Definition::Lookup(lookup));
    }
}

/// `0.5%` in hundredths; 0 for `*`, the rest.
fn parse_share(word: &Word) -> Option<u32> {
    if word.text == "*" {
        return Some(0);
    }
    let text = word.text.strip_suffix('%')?;
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() || decimals.len() > 2 || !is_number(whole) || !is_number(decimals) {
        return None;
    }
    let number = |text: &str| {
        if text.is_empty() {
            Ok(0)
        } else {
            text.parse::<u32>()
        }
    };
    let hundredths = number(&format!("{decimals:0<2}")).ok()?;
    let share = number(whole)
        .ok()?
        .checked_mul(100)?
        .checked_add(hundredths)?;
    (share > 0).then_some(share)
}

/// The bounds of the shares; none if they are more than the whole.
fn bounds(shares: Vec<(u32, Bytes)>) -> Option<Vec<Part>> {
    let mut sum = 0u32;
    let mut last = 0u32;
    let mut parts = Vec::with_capacity(shares.len());
    for (share, value) in shares {
        sum = if share == 0 {
            WHOLE
        } else {
            sum.checked_add(share)?
        };
        if sum > WHOLE {
            return None;
        }
        if share == 0 || sum == WHOLE {
            parts.push(Part { below: None, value });
            continue;
        }
        // nginx rounds each share down before it adds them up.
        let width = u64::from(share) * u64::from(u32::MAX) / u64::from(WHOLE);
        last = last.saturating_add(u32::try_from(width).unwrap_or(u32::MAX));
        parts.push(Part {
            below: Some(last),
            value,
        });
    }
    Some(parts)
}

impl SplitClients {
    /// The value for this request.
    pub(super) fn evaluate(&self, req: &mut Request) -> Bytes {
        let source = req.eval(&self.source);
        choose(&self.parts, murmur_hash2(&source))
    }
}

fn choose(parts: &[Part], hash: u32) -> Bytes {
    let part = parts
        .iter()
        .find(|part| part.below.is_none_or(|below| hash < below));
    part.map(|part| part.value.clone()).unwrap_or_default()
}

/// MurmurHash2 of Austin Appleby, 32 bits, seed 0.
pub(super) fn murmur_hash2(data: &[u8]) -> u32 {
    const FACTOR: u32 = 0x5bd1_e995;
    let mut hash = data.len() as u32;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(FACTOR);
        word ^= word >> 24;
        hash = hash.wrapping_mul(FACTOR) ^ word.wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(FACTOR);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::Span;

    fn share(text: &str) -> Option<u32> {
        parse_share(&Word {
            text: text.to_string(),
            span: Span::NONE,
            quoted: false,
        })
    }

    #[test]
    fn shares_have_at_most_two_decimals() {
        for (text, expected) in [
            ("*", Some(0)),
            ("50%", Some(5000)),
            ("0.5%", Some(50)),
            ("0.51%", Some(51)),
            ("33.33%", Some(3333)),
            ("1.%", Some(100)),
            ("0%", None),
            ("0.555%", None),
            ("5", None),
            ("%", None),
            ("-1%", None),
            ("99999999999%", None),
        ] {
            assert_eq!(share(text), expected, "{text}");
        }
    }

    #[test]
    fn hashes_are_the_published_ones() {
        for (text, hash) in [
            ("", 0),
            ("a", 0x9268_5f5e),
            ("abc", 0x13577c9b),
            ("abcd", 0x2687_3021),
        ] {
            assert_eq!(murmur_hash2(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn the_last_share_gets_what_is_left_over() {
        let parts = bounds(vec![(5000, "a".into()), (5000, "b".into())]).unwrap();
        assert_eq!(choose(&parts, 0), "a");
        assert_eq!(choose(&parts, u32::MAX / 2 - 1), "a");
        assert_eq!(choose(&parts, u32::MAX / 2), "b");
        assert_eq!(choose(&parts, u32::MAX), "b");
        let parts = bounds(vec![(1, "a".into())]).unwrap();
        assert_eq!(choose(&parts, u32::MAX), "");
        assert!(bounds(vec![(5000, "a".into()), (5001, "b".into())]).is_none());
    }
}
