//! Orders: which bundle is the configuration of a fleet from now on, and who tries it first; and
//! the keys that they are signed with (Ed25519, RFC 8032).
//!
//! An order, integers little-endian:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 1 | version | 1 |
//! | 1 | kind | 0: push, 1: promotion, 2: rollback |
//! | 8 | revision | number of the order |
//! | 8 | of | number of the order that brought the bundle; its own for a push |
//! | 8 | time | milliseconds since 1970, for people |
//! | 8 | length | of the bundle |
//! | 32 | digest | SHA-256 of the bundle |
//! | 8 | watch | milliseconds for which canaries are watched |
//! | 2, 2 | errors, hits | thousandths by which canaries may do worse |
//! | 1 | length | of the fleet's name, which follows |
//! | 2 | count | of canaries; of each the length of the name (1) and the name |
//! | 64 | signature | of `PURPOSE` and all before it |
//!
//! A file of public keys has a line `ed25519 HEX` for each, one of a secret key the line
//! `ed25519-secret HEX`; what begins with `#` is for people.
//!
//! 1. What is signed says what it is for and for which fleet: no other signature of the key, and no
//!    order of another fleet, is taken for it.

use std::fmt;

use aws_lc_rs::rand;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::bundle::{BUNDLE_MAX, Digest, hex};

const VERSION: u8 = 1;
const PURPOSE: &[u8] = b"millpond fleet configuration order\0";
const SIGNATURE_LEN: usize = 64;
/// Bytes of an order, at most: a message of NATS has a megabyte.
const ORDER_MAX: usize = 64 << 10;
/// Nodes that try an order first, at most (arbitrary: a twentieth of five thousand).
pub const CANARIES_MAX: usize = 256;
const PUBLIC: &str = "ed25519";
const SECRET: &str = "ed25519-secret";
/// Keys of a file, at most (arbitrary: one that goes and one that comes are two).
const KEYS_MAX: usize = 64;

/// Purpose of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bundle that is new.
    Push,
    /// For all nodes, as canaries have it.
    Promote,
    /// A bundle that was in force before.
    Rollback,
}

impl Kind {
    /// The purpose in a word.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Push => "push",
            Kind::Promote => "promotion",
            Kind::Rollback => "rollback",
        }
    }
}

/// An order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Purpose.
    pub kind: Kind,
    /// Number of the order.
    pub revision: u64,
    /// Number of the order that brought the bundle.
    pub of: u64,
    /// The time when it was made, for people.
    pub at_ms: u64,
    /// Length of the bundle.
    pub len: u64,
    /// Digest of the bundle.
    pub digest: Digest,
    /// Milliseconds for which canaries are watched.
    pub watch_ms: u64,
    /// Thousandths of the answers by which more of them may be errors.
    pub more_errors: u16,
    /// Thousandths of the answers by which fewer of them may be from the cache.
    pub fewer_hits: u16,
    /// Name of the fleet.
    pub fleet: String,
    /// Nodes that try it first; all at once if there are none.
    pub canaries: Vec<String>,
}

/// An order whose signature is right, with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The order.
    pub order: Order,
    /// The bytes, signature included.
    pub bytes: Bytes,
}

/// A key that signatures are checked with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

/// A key that orders are signed with.
pub struct SecretKey {
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::try_from(digit(2 * at)? << 4 | digit(2 * at + 1)?).ok()?;
    }
    Some(bytes)
}

/// Lines of a file of keys: the kind of each, and its bytes.
fn lines(text: &str) -> Result<Vec<(&str, [u8; 32])>, String> {
    let trimmed = text.lines().map(str::trim);
    let lines = trimmed.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = lines.take(KEYS_MAX).map(|line| {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let key = unhex(rest.trim()).ok_or("a line of it is no key")?;
        Ok((kind, key))
    });
    read.collect()
}

/// Reads a file of public keys; the error says what is wrong.
pub fn public_keys(text: &str) -> Result<Vec<PublicKey>, String> {
    let mut keys = Vec::new();
    for (kind, key) in lines(text)? {
        match kind {
            PUBLIC => keys.push(PublicKey(key)),
            // It would be on all nodes.
            SECRET => return Err("it has a secret key, where a public one belongs".to_owned()),
            _ => return Err("a line of it is no key".to_owned()),
        }
    }
    if keys.is_empty() {
        return Err("there is no key in it".to_owned());
    }
    Ok(keys)
}

impl PublicKey {
    /// Line of a file.
    pub fn line(&self) -> String {
        format!("{PUBLIC} {}\n", hex(&self.0))
    }
}

impl SecretKey {
    /// A new key; none if the system has no randomness.
    pub fn generate() -> Option<SecretKey> {
        let mut seed = [0; 32];
        rand::fill(&mut seed).ok()?;
        SecretKey::of(seed)
    }

    fn of(seed: [u8; 32]) -> Option<SecretKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
        Some(SecretKey { seed, pair })
    }

    /// Reads the file of a key; the error says what is wrong.
    pub fn read(text: &str) -> Result<SecretKey, String> {
        match lines(text)?.as_slice() {
            [(SECRET, seed)] => SecretKey::of(*seed).ok_or_else(|| "it is no key".to_owned()),
            [(PUBLIC, _), ..] => Err("it has a public key, where a secret one belongs".to_owned()),
            _ => Err("it must have one secret key".to_owned()),
        }
    }

    /// Line of a file.
    pub fn line(&self) -> String {
        format!("{SECRET} {}\n", hex(&self.seed))
    }

    /// The key that signatures of this one are checked with.
    pub fn public(&self) -> PublicKey {
        let mut key = [0; 32];
        let bytes = self.pair.public_key().as_ref();
        key.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        PublicKey(key)
    }
}

impl Order {
    /// True if nodes are to try it first that it names.
    pub fn has_canaries(&self) -> bool {
        !self.canaries.is_empty()
    }

    /// True if a node is to try it first.
    pub fn is_tried_by(&self, node: &str) -> bool {
        self.canaries.iter().any(|it| it == node)
    }

    /// Signs the order.
    pub fn sign(self, key: &SecretKey) -> Signed {
        let mut out = BytesMut::from(PURPOSE);
        out.put_u8(VERSION);
        out.put_u8(match self.kind {
            Kind::Push => 0,
            Kind::Promote => 1,
            Kind::Rollback => 2,
        });
        for number in [self.revision, self.of, self.at_ms, self.len] {
            out.put_u64_le(number);
        }
        out.put_slice(&self.digest);
        out.put_u64_le(self.watch_ms);
        out.put_u16_le(self.more_errors);
        out.put_u16_le(self.fewer_hits);
        put_name(&mut out, &self.fleet);
        out.put_u16_le(u16::try_from(self.canaries.len()).unwrap_or(u16::MAX));
        for name in &self.canaries {
            put_name(&mut out, name);
        }
        let signature = key.pair.sign(&out);
        out.put_slice(signature.as_ref());
        Signed {
            order: self,
            bytes: out.freeze().slice(PURPOSE.len()..),
        }
    }

    /// Reads what was signed, without a look at the signature.
    fn decode(mut rest: Bytes) -> Option<Order> {
        if rest.try_get_u8().ok()? != VERSION {
            return None;
        }
        let kind = match rest.try_get_u8().ok()? {
            0 => Kind::Push,
            1 => Kind::Promote,
            2 => Kind::Rollback,
            _ => return None,
        };
        let mut numbers = [0; 4];
        for number in &mut numbers {
            *number = rest.try_get_u64_le().ok()?;
        }
        let [revision, of, at_ms, len] = numbers;
        let mut digest = Digest::default();
        rest.try_copy_to_slice(&mut digest).ok()?;
        let watch_ms = rest.try_get_u64_le().ok()?;
        let more_errors = rest.try_get_u16_le().ok()?;
        let fewer_hits = rest.try_get_u16_le().ok()?;
        let fleet = read_name(&mut rest)?;
        let count = usize::from(rest.try_get_u16_le().ok()?);
        let names = (0..count.min(CANARIES_MAX + 1)).map(|_| read_name(&mut rest));
        let canaries: Vec<String> = names.collect::<Option<_>>()?;
        let is_right = rest.is_empty()
            && canaries.len() <= CANARIES_MAX
            && revision > 0
            && of <= revision
            && len <= BUNDLE_MAX as u64;
        is_right.then_some(Order {
            kind,
            revision,
            of,
            at_ms,
            len,
            digest,
            watch_ms,
            more_errors,
            fewer_hits,
            fleet,
            canaries,
        })
    }
}

impl Signed {
    /// Reads an order of a fleet that was signed with one of these keys; the error says why it is
    /// none.
    pub fn read(bytes: &Bytes, keys: &[PublicKey], fleet: &str) -> Result<Signed, &'static str> {
        const NONE: &str = "it is no order";
        let end = bytes.len().checked_sub(SIGNATURE_LEN).ok_or(NONE)?;
        if bytes.len() > ORDER_MAX {
            return Err(NONE);
        }
        let (matter, signature) = (bytes.slice(..end), bytes.slice(end..));
        let signed = [PURPOSE, &matter].concat();
        // INVARIANT 1.
        let holds = |key: &PublicKey| {
            let key = UnparsedPublicKey::new(&ED25519, &key.0);
            key.verify(&signed, &signature).is_ok()
        };
        if !keys.iter().any(holds) {
            return Err("it is not signed with a key that is trusted");
        }
        let order = Order::decode(matter).ok_or(NONE)?;
        if order.fleet != fleet {
            return Err("it is an order of another fleet");
        }
        Ok(Signed {
            order,
            bytes: bytes.clone(),
        })
    }
}

fn put_name(out: &mut BytesMut, name: &str) {
    // Names of fleets and nodes have 64 bytes at most.
    let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
    out.put_u8(len);
    out.put_slice(name.as_bytes().get(..usize::from(len)).unwrap_or_default());
}

fn read_name(rest: &mut Bytes) -> Option<String> {
    let len = usize::from(rest.try_get_u8().ok()?);
    let name = (len <= rest.len()).then(|| rest.split_to(len))?;
    String::from_utf8(name.to_vec()).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn key(number: u8) -> SecretKey {
        SecretKey::of([number; 32]).unwrap()
    }

    pub(crate) fn order(revision: u64, digest: u8, canaries: &[&str]) -> Order {
        Order {
            kind: Kind::Push,
            revision,
            of: revision,
            at_ms: 1,
            len: 10,
            digest: [digest; 32],
            watch_ms: 10_000,
            more_errors: 10,
            fewer_hits: 200,
            fleet: "edge".to_owned(),
            canaries: canaries.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn orders_are_taken_as_they_were_signed_for_their_fleet() {
        let (own, other) = (key(1), key(2));
        let meant = order(7, 3, &["n1", "n2"]);
        let signed = meant.clone().sign(&own);
        let keys = [other.public(), own.public()];
        assert_eq!(
            Signed::read(&signed.bytes, &keys, "edge"),
            Ok(signed.clone())
        );
        assert_eq!(signed.order, meant);
        let read = |bytes: &Bytes, keys: &[PublicKey], fleet| Signed::read(bytes, keys, fleet);
        assert!(read(&signed.bytes, &keys[..1], "edge").is_err());
        assert!(read(&signed.bytes, &[], "edge").is_err());
        assert!(read(&signed.bytes, &keys, "core").is_err());
        for end in 0..signed.bytes.len() {
            assert!(
                read(&signed.bytes.slice(..end), &keys, "edge").is_err(),
                "{end}"
            );
        }
        for at in 0..signed.bytes.len() {
            let mut bytes = signed.bytes.to_vec();
            bytes[at] ^= 1;
            assert!(read(&bytes.into(), &keys, "edge").is_err(), "{at}");
        }
    }

    #[test]
    fn what_is_signed_and_wrong_makes_no_panic() {
        let bytes = order(7, 3, &["n1", "n2"]).sign(&key(1)).bytes;
        let matter = bytes.slice(..bytes.len() - SIGNATURE_LEN);
        for end in 0..matter.len() {
            assert_eq!(Order::decode(matter.slice(..end)), None, "{end}");
        }
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut bytes = matter.to_vec();
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
            let _any = Order::decode(bytes.into());
        }
    }

    #[test]
    fn files_of_keys_have_what_belongs_into_them() {
        let own = SecretKey::generate().unwrap();
        let again = SecretKey::read(&format!("# mine\n{}", own.line())).unwrap();
        assert_eq!(again.public(), own.public());
        let text = own.public().line() + "\n# old\n" + &key(1).public().line();
        let keys = [own.public(), key(1).public()];
        assert_eq!(public_keys(&text).as_deref(), Ok(&keys[..]));
        for text in [
            own.line(),
            String::new(),
            "ed25519 12".to_owned(),
            "x".to_owned(),
        ] {
            assert!(public_keys(&text).is_err(), "{text}");
        }
        for text in [own.public().line(), String::new(), own.line() + &own.line()] {
            assert!(SecretKey::read(&text).is_err(), "{text}");
        }
    }
}
