//! Proofs for an authority that validates a name: by HTTP a text, by TLS a certificate.
//!
//! ```text
//! order ─show─► table ◄─look─ any worker whom the authority asks
//!    └─ guard dropped: gone again
//! ```
//!
//! 1. An entry is there from before the authority is told until the validation has ended, however
//!    it ends.
//!
//! Whoever asks for it need not be the authority: it proves nothing to others. Sources: RFC 8555
//! §8.3, RFC 8737.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use millpond_tls::certificate::load;
use millpond_tls::{CertificateDer, Identity};
use openssl::asn1::{Asn1Object, Asn1OctetString, Asn1Time};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::x509::extension::{BasicConstraints, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Extension, X509NameBuilder};

use crate::identifier::Identifier;
use crate::key::{Key, KeyError, KeyKind};

/// The path below which tokens are asked for (RFC 8555 §8.3).
const PATH: &[u8] = b"/.well-known/acme-challenge/";

/// The protocol of handshakes that validate a name (RFC 8737 §6.2).
pub const ALPN: &[u8] = b"acme-tls/1";

/// id-pe-acmeIdentifier (RFC 8737 §6.1).
const ACME_IDENTIFIER: &str = "1.3.6.1.5.5.7.1.31";

/// The way of validation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// A request for a text.
    #[default]
    Http,
    /// A handshake.
    Tls,
}

impl Way {
    /// The way that a word names.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "http" | "http-01" => Some(Way::Http),
            "tls-alpn" | "tls-alpn-01" => Some(Way::Tls),
            _ => None,
        }
    }

    /// The name that the protocol has for it.
    pub fn name(self) -> &'static str {
        match self {
            Way::Http => "http-01",
            Way::Tls => "tls-alpn-01",
        }
    }
}

/// Everything that is shown at the moment, by all orders of the process.
static SHOWN: LazyLock<Mutex<Shown>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Shown {
    /// Texts by their tokens.
    texts: HashMap<String, Arc<str>>,
    /// Certificates by the names that are told in handshakes.
    certificates: HashMap<String, Arc<Identity>>,
}

/// Something that is shown as long as this lives.
#[derive(Debug)]
pub(crate) enum Entry {
    Text(String),
    Certificate(String, Arc<Identity>),
}

impl Drop for Entry {
    fn drop(&mut self) {
        match self {
            Entry::Text(token) => drop(shown().texts.remove(token)),
            // Another issuer may validate the same name meanwhile.
            Entry::Certificate(name, own) => {
                let certificates = &mut shown().certificates;
                if certificates
                    .get(name)
                    .is_some_and(|it| Arc::ptr_eq(it, own))
                {
                    certificates.remove(name);
                }
            }
        }
    }
}

/// The text that a request for a path is answered with, if a name is validated by it now.
pub fn text(path: &[u8]) -> Option<Arc<str>> {
    let token = std::str::from_utf8(path.strip_prefix(PATH)?).ok()?;
    shown().texts.get(token).cloned()
}

/// The certificate for a handshake with [`ALPN`] that asks for a name, if that is validated now.
pub fn certificate(name: &str) -> Option<Arc<Identity>> {
    let certificates = &shown().certificates;
    certificates.get(&name.to_ascii_lowercase()).cloned()
}

/// Shows what proves that a name is ours: a token, and the proof of the key (RFC 8555 §8.1).
pub(crate) fn show(
    way: Way,
    name: &Identifier,
    token: &str,
    proof: &str,
) -> Result<Entry, KeyError> {
    match way {
        Way::Http => {
            let text = Arc::from(proof);
            shown().texts.insert(token.to_owned(), text);
            Ok(Entry::Text(token.to_owned()))
        }
        Way::Tls => {
            let identity = certified(name, proof)?;
            let told = name.told();
            let certificates = &mut shown().certificates;
            certificates.insert(told.clone(), Arc::clone(&identity));
            Ok(Entry::Certificate(told, identity))
        }
    }
}

fn shown() -> MutexGuard<'static, Shown> {
    // It is right after any panic: each change is one call.
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn certified(name: &Identifier, proof: &str) -> Result<Arc<Identity>, KeyError> {
    let key = Key::generate(KeyKind::P256)?;
    let certificate = self_made(name, proof, &key)?;
    let chain = vec![CertificateDer::from(certificate.to_der()?)];
    let loaded = load::key(&key.to_pem()?, &[]).map_err(|_| KeyError::Unsupported)?;
    // Key and certificate were made for one another.
    let certified = load::certified(chain, &loaded).map_err(|_| KeyError::Unsupported)?;
    Ok(Arc::new(Identity::new(certified.cert, certified.key)))
}

/// The certificate of RFC 8737 §3: for the one name, with the digest of the proof.
pub(crate) fn self_made(name: &Identifier, proof: &str, key: &Key) -> Result<X509, ErrorStack> {
    let mut who = X509NameBuilder::new()?;
    who.append_entry_by_text("CN", "ACME challenge")?;
    let who = who.build();
    let mut builder = X509Builder::new()?;
    builder.set_version(2)?;
    builder.set_subject_name(&who)?;
    builder.set_issuer_name(&who)?;
    builder.set_pubkey(key.openssl())?;
    let (start, end) = (Asn1Time::days_from_now(0)?, Asn1Time::days_from_now(1)?);
    builder.set_not_before(&start)?;
    builder.set_not_after(&end)?;
    builder.append_extension(BasicConstraints::new().critical().build()?)?;
    builder.append_extension(KeyUsage::new().critical().digital_signature().build()?)?;
    let names = alternative_names([name]).build(&builder.x509v3_context(None, None))?;
    builder.append_extension(names)?;
    // An OCTET STRING of 32 bytes.
    let mut digest = vec![4, 32];
    digest.extend(openssl::sha::sha256(proof.as_bytes()));
    let (oid, digest) = (
        Asn1Object::from_str(ACME_IDENTIFIER)?,
        Asn1OctetString::new_from_bytes(&digest)?,
    );
    builder.append_extension(X509Extension::new_from_der(&oid, true, &digest)?)?;
    builder.sign(key.openssl(), MessageDigest::sha256())?;
    Ok(builder.build())
}

/// The extension with these names.
pub(crate) fn alternative_names<'a>(
    names: impl IntoIterator<Item = &'a Identifier>,
) -> SubjectAlternativeName {
    let mut extension = SubjectAlternativeName::new();
    for name in names {
        match name {
            Identifier::Dns(name) => extension.dns(name),
            Identifier::Ip(ip) => extension.ip(&ip.to_string()),
        };
    }
    extension
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shown_as_long_as_they_are_wanted() {
        let name = Identifier::Dns("a.example".into());
        let entry = show(Way::Http, &name, "token-1", "token-1.print").unwrap();
        let path = b"/.well-known/acme-challenge/token-1";
        assert_eq!(text(path).as_deref(), Some("token-1.print"));
        for other in [
            &b"/.well-known/acme-challenge/"[..],
            b"/.well-known/acme-challenge/token-2",
            b"/token-1",
            b"/.well-known/acme-challenge/\xff",
        ] {
            assert_eq!(text(other), None);
        }
        drop(entry);
        assert_eq!(text(path), None);
    }

    #[test]
    fn certificates_have_the_name_and_the_digest() {
        for name in ["b.example", "192.0.2.7", "2001:db8::7"] {
            let name = Identifier::read(name).unwrap().remove(0);
            let entry = show(Way::Tls, &name, "t", "t.print").unwrap();
            let told = name.told().to_ascii_uppercase();
            let chain = certificate(&told).unwrap().chain();
            let shown = X509::from_der(&chain[0]).unwrap();
            let text = String::from_utf8(shown.to_text().unwrap()).unwrap();
            assert!(text.contains("1.3.6.1.5.5.7.1.31: critical"), "{text}");
            assert_eq!(shown.subject_alt_names().unwrap().len(), 1);
            let digest = openssl::sha::sha256(b"t.print");
            assert!(chain[0].windows(32).any(|bytes| bytes == digest));
            drop(entry);
            assert!(certificate(&told).is_none());
        }
    }
}
