//! The field `Millpond-Peer` of requests and answers between nodes of a fleet.
//!
//! | of a request | |
//! |---|---|
//! | `v` | 1 |
//! | `zone` | the zone's name, in hexadecimal digits |
//! | `key` | digest of the cache key's text |
//! | `log`, `at` | the position that the owner must have come to before it looks up |
//! | `time` | seconds since 1970 |
//! | `from` | name of the node that asks, in hexadecimal digits |
//! | `extent` | number of the extent that the range lies in; left out for a whole body |
//! | `gone` | digest of a validator whose version is gone at the origin; may be left out |
//! | `mac` | HMAC-SHA256 of method, host, target and all before, under the secret of the fleet |
//!
//! | of an answer | |
//! |---|---|
//! | `v` | 1 |
//! | `log`, `at` | the position that the owner had come to before it looked up |
//! | `fresh` | seconds for which the answer is fresh yet; left out if it was not stored |
//!
//! Members are written `name=value` and stand behind each other with `;` between, in this order.
//!
//! 1. What is not signed, or was signed longer than [`TIME_MAX_S`] ago or ahead, is refused.

use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use millpond_cache::purge::position::Position;
use millpond_fleet::peers::Secret;
use millpond_semantics::hex::Hex;
use millpond_wire::header::Fields;
use sha2::{Digest, Sha256};

/// The name.
pub(crate) const NAME: &str = "Millpond-Peer";

/// Seconds by which clocks of nodes may differ (arbitrary; a replayed request tells no more than
/// who recorded it knows).
const TIME_MAX_S: i64 = 300;
/// Bytes of a digest.
pub(super) const DIGEST_LEN: usize = 16;

/// A request as it is signed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) method: &'a [u8],
    pub(super) host: &'a [u8],
    pub(super) uri: &'a [u8],
}

/// Question to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Name of the zone.
    pub(super) zone: Vec<u8>,
    /// Digest of the key's text.
    pub(super) key: [u8; DIGEST_LEN],
    /// The position that the owner must have come to.
    pub(super) position: Position,
    /// Name of the node that asks.
    pub(super) from: Vec<u8>,
    /// Number of the extent that the range lies in; none for a whole body.
    pub(super) extent: Option<u32>,
    /// Digest of a validator whose version who asks found to be gone at the origin.
    pub(super) gone: Option<[u8; DIGEST_LEN]>,
}

/// Words of an owner about its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// The position that the owner had come to.
    pub(super) position: Position,
    /// Seconds for which the answer is fresh yet.
    pub(super) fresh: Option<i64>,
}

/// Digest of a key's text, or of a validator.
pub(super) fn digest(text: &[u8]) -> [u8; DIGEST_LEN] {
    let digest = Sha256::digest(text);
    digest.first_chunk().copied().unwrap_or_default()
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| {
        let pair: &[u8; 2] = pair.try_into().ok()?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()
    });
    pairs.collect()
}

fn array_of<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    bytes_of(text)?.try_into().ok()
}

/// Reads the next member, which must have this name.
fn member<'t>(parts: &mut impl Iterator<Item = &'t str>, name: &str) -> Option<&'t str> {
    parts.next()?.strip_prefix(name)?.strip_prefix('=')
}

fn position_of<'t>(parts: &mut impl Iterator<Item = &'t str>) -> Option<Position> {
    Some(Position {
        log: array_of(member(parts, "log")?)?,
        sequence: member(parts, "at")?.parse().ok()?,
        at_ms: 0,
    })
}

fn mac(secret: &Secret, target: &Target<'_>, text: &str) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).ok()?;
    for part in [target.method, target.host, target.uri, text.as_bytes()] {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    Some(mac)
}

impl Asked {
    /// Value of the field, signed at a time.
    pub(super) fn sign(&self, secret: &Secret, target: &Target<'_>, now_s: i64) -> Option<Bytes> {
        let Position { log, sequence, .. } = self.position;
        let (zone, key, log, from) = (Hex(&self.zone), Hex(&self.key), Hex(&log), Hex(&self.from));
        let mut text =
            format!("v=1;zone={zone};key={key};log={log};at={sequence};time={now_s};from={from}");
        if let Some(extent) = self.extent {
            text += &format!(";extent={extent}");
        }
        if let Some(gone) = &self.gone {
            text += &format!(";gone={}", Hex(gone));
        }
        let mac = mac(secret, target, &text)?.finalize().into_bytes();
        Some(Bytes::from(format!("{text};mac={}", Hex(&mac))))
    }

    /// Reads a field whose signature holds at a time.
    pub(super) fn verify(
        value: &[u8],
        secret: &Secret,
        target: &Target<'_>,
        now_s: i64,
    ) -> Option<Asked> {
        let value = std::str::from_utf8(value).ok()?;
        let (text, signature) = value.rsplit_once(";mac=")?;
        // Compared in constant time.
        mac(secret, target, text)?
            .verify_slice(&bytes_of(signature)?)
            .ok()?;
        let mut parts = text.split(';');
        if member(&mut parts, "v")? != "1" {
            return None;
        }
        let zone = bytes_of(member(&mut parts, "zone")?)?;
        let key = array_of(member(&mut parts, "key")?)?;
        let position = position_of(&mut parts)?;
        let time: i64 = member(&mut parts, "time")?.parse().ok()?;
        let from = bytes_of(member(&mut parts, "from")?)?;
        let (mut extent, mut gone) = (None, None);
        for part in parts {
            match part.split_once('=')? {
                ("extent", number) => extent = Some(number.parse().ok()?),
                ("gone", digest) => gone = Some(array_of(digest)?),
                // A newer node's.
                _ => {}
            }
        }
        // INVARIANT 1.
        let is_now = now_s.abs_diff(time) <= TIME_MAX_S.unsigned_abs();
        is_now.then_some(Asked {
            zone,
            key,
            position,
            from,
            extent,
            gone,
        })
    }
}

impl Told {
    /// Value of the field.
    pub(super) fn value(&self) -> Bytes {
        let Position { log, sequence, .. } = self.position;
        let member = self.fresh.map(|fresh| format!(";fresh={fresh}"));
        let fresh = member.unwrap_or_default();
        Bytes::from(format!("v=1;log={};at={sequence}{fresh}", Hex(&log)))
    }

    /// Takes the field out of an answer.
    pub(super) fn take(fields: &mut Fields) -> Option<Told> {
        let found = fields.find(NAME.as_bytes()).cloned();
        remove(fields);
        let text = found.as_ref().map(|value| std::str::from_utf8(value));
        let mut parts = text?.ok()?.split(';');
        if member(&mut parts, "v")? != "1" {
            return None;
        }
        let position = position_of(&mut parts)?;
        let fresh = match member(&mut parts, "fresh") {
            Some(fresh) => Some(fresh.parse().ok()?),
            None => None,
        };
        Some(Told { position, fresh })
    }
}

/// Removes the field.
pub(super) fn remove(fields: &mut Fields) {
    fields.retain(|field| !field.name.eq_ignore_ascii_case(NAME.as_bytes()));
}

#[cfg(test)]
mod tests {
    use millpond_wire::header::Field;

    use super::*;

    const TARGET: Target<'static> = Target {
        method: b"GET",
        host: b"a.example",
        uri: b"/a?b",
    };

    fn asked() -> Asked {
        Asked {
            zone: b"z;1".to_vec(),
            key: digest(b"key"),
            position: Position {
                log: [7; 16],
                sequence: 42,
                at_ms: 0,
            },
            from: b"n1".to_vec(),
            extent: None,
            gone: None,
        }
    }

    #[test]
    fn parts_and_versions_read_back() {
        let secret = Secret::new(b"secret".to_vec());
        for (extent, gone) in [
            (Some(0), None),
            (Some(u32::MAX), Some(digest(b"\"1\""))),
            (None, Some([0; DIGEST_LEN])),
        ] {
            let asked = Asked {
                extent,
                gone,
                ..asked()
            };
            let value = asked.sign(&secret, &TARGET, 1000).unwrap();
            let read = Asked::verify(&value, &secret, &TARGET, 1000);
            assert_eq!(read, Some(asked));
        }
    }

    #[test]
    fn what_is_signed_reads_back_and_nothing_else_does() {
        let secret = Secret::new(b"secret".to_vec());
        let value = asked().sign(&secret, &TARGET, 1000).unwrap();
        fn read(value: &[u8], secret: &Secret, target: &Target<'_>, now_s: i64) -> Option<Asked> {
            Asked::verify(value, secret, target, now_s)
        }
        assert_eq!(read(&value, &secret, &TARGET, 1000), Some(asked()));
        assert_eq!(read(&value, &secret, &TARGET, 700), Some(asked()));
        assert_eq!(read(&value, &secret, &TARGET, 1301), None);
        assert_eq!(read(&value, &secret, &TARGET, 699), None);
        let other = Secret::new(b"other".to_vec());
        assert_eq!(read(&value, &other, &TARGET, 1000), None);
        for target in [
            Target {
                method: b"HEAD",
                ..TARGET
            },
            Target {
                host: b"b.example",
                ..TARGET
            },
            Target {
                uri: b"/a?c",
                ..TARGET
            },
        ] {
            assert_eq!(read(&value, &secret, &target, 1000), None, "{target:?}");
        }
        for place in 0..value.len() {
            let mut bytes = value.to_vec();
            bytes[place] ^= 1;
            assert_eq!(read(&bytes, &secret, &TARGET, 1000), None, "{place}");
            assert_eq!(
                read(&value[..place], &secret, &TARGET, 1000),
                None,
                "{place}"
            );
        }
    }

    #[test]
    fn what_is_told_is_taken_out_of_the_answer() {
        for fresh in [None, Some(7), Some(-3)] {
            let told = Told {
                position: asked().position,
                fresh,
            };
            let mut fields = Fields::new();
            fields.push(Field::new(
                Bytes::from_static(b"millpond-peer"),
                told.value(),
            ));
            assert_eq!(Told::take(&mut fields), Some(told));
            assert!(fields.is_empty());
        }
        for value in ["", "v=2;log=00;at=1", "v=1;log=00;at=1", "v=1;at=1"] {
            let mut fields = Fields::new();
            fields.push(Field::new(
                Bytes::from_static(b"Millpond-Peer"),
                Bytes::from(value),
            ));
            assert_eq!(Told::take(&mut fields), None, "{value}");
            assert!(fields.is_empty());
        }
    }
}
