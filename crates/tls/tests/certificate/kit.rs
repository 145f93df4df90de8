//! Certificates of every kind, made in a moment.

use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, KeyUsage};
use openssl::x509::{
    X509, X509Builder, X509CrlBuilder, X509Extension, X509Name, X509RevokedBuilder,
};
use rustls::pki_types::CertificateDer;
use std::time::{SystemTime, UNIX_EPOCH};

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Party {
    pub(crate) certificate: X509,
    pub(crate) key: PKey<Private>,
}

/// A certificate to be made.
pub(crate) struct Make<'a> {
    name: &'a str,
    issuer: Option<&'a Party>,
    version: i32,
    days: (i64, i64),
    serial: u32,
    key: PKey<Private>,
    extensions: Vec<X509Extension>,
    digest: MessageDigest,
}

/// An extension that must be understood, or need not be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Critical,
    Plain,
}

/// Seconds since 1970.
pub(crate) fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

pub(crate) fn ec_key(curve: Nid) -> PKey<Private> {
    let group = EcGroup::from_curve_name(curve).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn time(days: i64) -> Asn1Time {
    Asn1Time::from_unix(now_s() + days * 86_400).unwrap()
}

pub(crate) fn name(common: &str) -> X509Name {
    let mut name = X509Name::builder().unwrap();
    name.append_entry_by_nid(Nid::COMMONNAME, common).unwrap();
    name.build()
}

impl<'a> Make<'a> {
    /// A certificate of a name, signed by itself.
    pub(crate) fn new(name: &'a str) -> Self {
        Self {
            name,
            issuer: None,
            version: 2,
            days: (-1, 30),
            serial: 1,
            key: ec_key(Nid::X9_62_PRIME256V1),
            extensions: Vec::new(),
            digest: MessageDigest::sha256(),
        }
    }

    /// An authority that signs itself.
    pub(crate) fn root(name: &'a str) -> Self {
        Self::new(name).ca(None)
    }

    pub(crate) fn by(mut self, issuer: &'a Party) -> Self {
        self.issuer = Some(issuer);
        self
    }

    pub(crate) fn ca(self, path: Option<u32>) -> Self {
        let mut constraints = BasicConstraints::new();
        constraints.critical().ca();
        if let Some(path) = path {
            constraints.pathlen(path);
        }
        self.extension(constraints.build().unwrap())
    }

    pub(crate) fn extension(mut self, extension: X509Extension) -> Self {
        self.extensions.push(extension);
        self
    }

    /// An extension by its object, with its DER.
    pub(crate) fn raw(self, object: &str, weight: Weight, der: &[u8]) -> Self {
        let object = Asn1Object::from_str(object).unwrap();
        let content = Asn1OctetString::new_from_bytes(der).unwrap();
        let is_critical = weight == Weight::Critical;
        self.extension(X509Extension::new_from_der(&object, is_critical, &content).unwrap())
    }

    /// For servers only.
    pub(crate) fn for_servers(self) -> Self {
        let usage = ExtendedKeyUsage::new().server_auth().build().unwrap();
        self.extension(usage)
    }

    pub(crate) fn key_usage(self, usage: &KeyUsage) -> Self {
        let usage = usage.build().unwrap();
        self.extension(usage)
    }

    /// Hosts and addresses as alternative names: `DNS:x`, `IP:1.2.3.4`.
    pub(crate) fn names(self, names: &[&str]) -> Self {
        let mut content = Vec::new();
        for name in names {
            let (kind, value) = name.split_once(':').unwrap();
            let (tag, bytes) = match kind {
                "DNS" => (0x82, value.as_bytes().to_vec()),
                "IP" => match value.parse().unwrap() {
                    std::net::IpAddr::V4(address) => (0x87, address.octets().to_vec()),
                    std::net::IpAddr::V6(address) => (0x87, address.octets().to_vec()),
                },
                _ => (0x81, value.as_bytes().to_vec()),
            };
            content.extend([tag, u8::try_from(bytes.len()).unwrap()]);
            content.extend(bytes);
        }
        let der = [&[0x30, u8::try_from(content.len()).unwrap()], &content[..]].concat();
        self.raw("2.5.29.17", Weight::Plain, &der)
    }

    /// X.509 version 1: no extensions.
    pub(crate) fn v1(mut self) -> Self {
        self.version = 0;
        self
    }

    pub(crate) fn days(mut self, from: i64, to: i64) -> Self {
        self.days = (from, to);
        self
    }

    pub(crate) fn serial(mut self, serial: u32) -> Self {
        self.serial = serial;
        self
    }

    pub(crate) fn key(mut self, key: PKey<Private>) -> Self {
        self.key = key;
        if self.key.id() == openssl::pkey::Id::ED25519 {
            self.digest = MessageDigest::null();
        }
        self
    }

    /// A key of any kind, for a certificate that an authority signs.
    pub(crate) fn key_signed_by_issuer(mut self, key: PKey<Private>) -> Self {
        self.key = key;
        self
    }

    pub(crate) fn make(self) -> Party {
        self.make_named(None)
    }

    pub(crate) fn make_named(self, subject: Option<X509Name>) -> Party {
        let subject = subject.unwrap_or_else(|| name(self.name));
        let mut builder = X509Builder::new().unwrap();
        builder.set_version(self.version).unwrap();
        let serial = BigNum::from_u32(self.serial).unwrap();
        builder
            .set_serial_number(&Asn1Integer::from_bn(&serial).unwrap())
            .unwrap();
        builder.set_subject_name(&subject).unwrap();
        let (issuer, signer) = match self.issuer {
            Some(issuer) => (issuer.certificate.subject_name(), &issuer.key),
            None => (&*subject, &self.key),
        };
        builder.set_issuer_name(issuer).unwrap();
        builder.set_not_before(&time(self.days.0)).unwrap();
        builder.set_not_after(&time(self.days.1)).unwrap();
        builder.set_pubkey(&self.key).unwrap();
        for extension in self.extensions {
            builder.append_extension(extension).unwrap();
        }
        builder.sign(signer, self.digest).unwrap();
        Party {
            certificate: builder.build(),
            key: self.key,
        }
    }
}

impl Party {
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.certificate.to_der().unwrap())
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    pub(crate) fn key_pem(&self) -> Vec<u8> {
        self.key.private_key_to_pem_pkcs8().unwrap()
    }

    /// A list of the serial numbers that this authority has revoked, good for some days.
    pub(crate) fn revokes(&self, serials: &[u32], days: (i64, i64)) -> Vec<u8> {
        let mut list = X509CrlBuilder::new().unwrap();
        list.set_issuer_name(self.certificate.subject_name())
            .unwrap();
        list.set_last_update(&time(days.0)).unwrap();
        list.set_next_update(&time(days.1)).unwrap();
        for serial in serials {
            let mut revoked = X509RevokedBuilder::new().unwrap();
            revoked.set_revocation_date(&time(-1)).unwrap();
            let serial = Asn1Integer::from_bn(&BigNum::from_u32(*serial).unwrap()).unwrap();
            revoked.set_serial_number(&serial).unwrap();
            list.add_revoked(revoked.build()).unwrap();
        }
        // An identifier of its key that names nothing, and a number.
        for (object, der) in [("2.5.29.35", &[0x30, 0][..]), ("2.5.29.20", &[2, 1, 1])] {
            let object = Asn1Object::from_str(object).unwrap();
            let content = Asn1OctetString::new_from_bytes(der).unwrap();
            let extension = X509Extension::new_from_der(&object, false, &content).unwrap();
            list.append_extension(extension).unwrap();
        }
        list.sign(&self.key, MessageDigest::sha256()).unwrap();
        list.build().unwrap().to_pem().unwrap()
    }
}

/// Certificates as one text.
pub(crate) fn bundle(parties: &[&Party]) -> Vec<u8> {
    parties.iter().flat_map(|party| party.pem()).collect()
}

/// Certificates as a peer sends them.
pub(crate) fn sent(parties: &[&Party]) -> Vec<CertificateDer<'static>> {
    parties.iter().map(|party| party.der()).collect()
}
