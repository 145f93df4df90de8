//! A certificate that was issued, with its key.
//!
//! Whether the two belong together is looked at when they are read, wherever they come from.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use millpond_tls::certificate::load;
use millpond_tls::{CertificateDer, Identity};
use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::nid::Nid;
use openssl::x509::X509;
use zeroize::Zeroizing;

use crate::base64url;
use crate::identifier::Identifier;

/// A certificate with its key.
#[derive(Debug)]
pub struct Issued {
    /// The two, for handshakes.
    pub identity: Arc<Identity>,
    /// The chain in PEM, its own certificate first.
    pub chain: String,
    /// The key in PEM.
    pub key: Zeroizing<String>,
    /// The time for which it is valid, in seconds since 1970.
    pub valid: Range<i64>,
    /// The name that the authority's advice about it has (RFC 9773 §4.1); none without the fields
    /// that it is made of.
    pub(crate) id: Option<String>,
}

impl Issued {
    /// Reads a chain and its key; why not, if they are none or do not belong together.
    pub(crate) fn read(chain: &str, key: &str) -> Result<Self, String> {
        let certificates = load::chain(chain.as_bytes()).map_err(|why| why.to_string())?;
        let facts = facts(&certificates);
        let loaded = load::key(key.as_bytes(), &[]).map_err(|why| why.to_string())?;
        let certified = load::certified(certificates, &loaded)
            .map_err(|why| why.of_key("its key").to_string())?;
        let (valid, id) = facts.ok_or("the certificate cannot be read")?;
        Ok(Self {
            identity: Arc::new(Identity::new(certified.cert, certified.key)),
            chain: chain.to_owned(),
            key: Zeroizing::new(key.to_owned()),
            valid,
            id,
        })
    }
}

impl Issued {
    /// The reason why the certificate cannot serve these names at a time (seconds since 1970): an
    /// authority that errs must not put a good one out of force.
    pub(crate) fn flaw(&self, names: &[Identifier], now_s: i64) -> Option<String> {
        // One that is not valid yet says as much about this machine's clock.
        if self.valid.end <= now_s {
            return Some("it has expired".to_owned());
        }
        let chain = X509::stack_from_pem(self.chain.as_bytes()).ok();
        let leaf = chain.as_ref().and_then(|chain| chain.first());
        let missing = names
            .iter()
            .find(|name| !leaf.is_some_and(|leaf| is_for(leaf, name)));
        missing.map(|name| format!("it is not for {name}"))
    }
}

/// RFC 8555 §7.4: a certificate has the names of its order.
fn is_for(leaf: &X509, name: &Identifier) -> bool {
    let names = leaf.subject_alt_names();
    names.into_iter().flatten().any(|told| match name {
        Identifier::Dns(host) => told
            .dnsname()
            .is_some_and(|it| it.eq_ignore_ascii_case(host)),
        Identifier::Ip(IpAddr::V4(ip)) => told.ipaddress() == Some(&ip.octets()[..]),
        Identifier::Ip(IpAddr::V6(ip)) => told.ipaddress() == Some(&ip.octets()[..]),
    })
}

/// Validity and name of a chain's first certificate.
fn facts(chain: &[CertificateDer<'_>]) -> Option<(Range<i64>, Option<String>)> {
    let leaf = X509::from_der(chain.first()?).ok()?;
    let valid = seconds(leaf.not_before())?..seconds(leaf.not_after())?;
    Some((valid, id(&leaf)))
}

fn seconds(time: &Asn1TimeRef) -> Option<i64> {
    let since = Asn1Time::from_unix(0).ok()?.diff(time).ok()?;
    Some(i64::from(since.days) * 86_400 + i64::from(since.secs))
}

/// RFC 9773 §4.1: the authority's key and the serial number, as they stand in the certificate.
fn id(leaf: &X509) -> Option<String> {
    let authority = leaf.authority_key_id()?;
    let number = leaf.serial_number().to_bn().ok()?;
    let mut serial = number.to_vec();
    // The first bit of a DER integer is its sign.
    if serial.first().is_none_or(|byte| *byte >= 0x80) {
        serial.insert(0, 0);
    }
    if number.is_negative() {
        return None;
    }
    let authority = base64url::encode(authority.as_slice());
    Some(format!("{authority}.{}", base64url::encode(&serial)))
}

/// True if the topmost certificate of a chain was issued by a name (`preferred_chain`).
pub(crate) fn leads_to(chain: &str, name: &str) -> bool {
    let chain = X509::stack_from_pem(chain.as_bytes()).unwrap_or_default();
    let mut entries = chain
        .last()
        .into_iter()
        .flat_map(|top| top.issuer_name().entries_by_nid(Nid::COMMONNAME));
    entries.any(|entry| entry.data().as_slice() == name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::challenge::self_made;
    use crate::key::{Key, KeyKind};

    /// The certificate of RFC 9773, appendix A.
    const EXAMPLE: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBQzCB66ADAgECAgUAh2VDITAKBggqhkjOPQQDAjAVMRMwEQYDVQQDEwpFeGFt\n\
        cGxlIENBMCIYDzAwMDEwMTAxMDAwMDAwWhgPMDAwMTAxMDEwMDAwMDBaMBYxFDAS\n\
        BgNVBAMTC2V4YW1wbGUuY29tMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEeBZu\n\
        7cbpAYNXZLbbh8rNIzuOoqOOtmxA1v7cRm//AwyMwWxyHz4zfwmBhcSrf47NUAFf\n\
        qzLQ2PPQxdTXREYEnKMjMCEwHwYDVR0jBBgwFoAUaYhba4dGQEHhs3uEe6CuLN4B\n\
        yNQwCgYIKoZIzj0EAwIDRwAwRAIge09+S5TZAlw5tgtiVvuERV6cT4mfutXIlwTb\n\
        +FYN/8oCIClDsqBklhB9KAelFiYt9+6FDj3z4KGVelYM5MdsO3pK\n\
        -----END CERTIFICATE-----\n";

    #[test]
    fn the_name_of_advice_is_that_of_the_example() {
        let leaf = X509::from_pem(EXAMPLE.as_bytes()).unwrap();
        let expected = "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE";
        assert_eq!(id(&leaf).as_deref(), Some(expected));
    }

    #[test]
    fn chains_lead_to_who_issued_the_last() {
        assert!(leads_to(EXAMPLE, "Example CA"));
        assert!(!leads_to(EXAMPLE, "example.com"));
        assert!(!leads_to("", "Example CA"));
    }

    #[test]
    fn certificate_for_other_names_or_of_yesterday_has_a_flaw() {
        let host = |name: &str| Identifier::Dns(name.to_owned());
        let key = Key::generate(KeyKind::default()).unwrap();
        let made = self_made(&host("a.test"), "proof", &key).unwrap();
        let pem = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let chain = pem(made.to_pem().unwrap());
        let issued = Issued::read(&chain, &pem(key.to_pem().unwrap().to_vec())).unwrap();
        let now_s = issued.valid.start;
        assert_eq!(issued.flaw(&[host("a.test")], now_s), None);
        assert_eq!(issued.flaw(&[host("A.test")], now_s), None);
        let both = [host("a.test"), host("b.test")];
        let why = issued.flaw(&both, now_s).unwrap();
        assert_eq!(why, "it is not for b.test");
        let ip = [Identifier::Ip([127, 0, 0, 1].into())];
        assert!(issued.flaw(&ip, now_s).is_some());
        let why = issued.flaw(&[host("a.test")], issued.valid.end).unwrap();
        assert_eq!(why, "it has expired");
    }

    #[test]
    fn texts_that_are_damaged_are_refused() {
        for text in ["", "-----BEGIN", EXAMPLE] {
            assert!(Issued::read(text, text).is_err(), "{text}");
        }
    }
}
