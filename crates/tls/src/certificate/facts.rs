//! Facts of a certificate as text: the variables `$ssl_client_…`, and what `check` prints.
//!
//! Each is made when it is asked for; what cannot be read is empty, as in nginx.
//!
//! Time is an argument.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::x509::X509;
use rustls::pki_types::CertificateDer;

use super::name;

/// Seconds of a day.
const DAY_S: i64 = 86_400;

/// A certificate that can be read.
#[derive(Clone, Debug)]
pub struct Certificate(X509);

/// A name that a certificate is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName {
    /// A host, perhaps with a wildcard.
    Host(String),
    /// An address.
    Address(IpAddr),
}

impl Certificate {
    /// Reads DER.
    pub fn parse(der: &[u8]) -> Option<Self> {
        X509::from_der(der).ok().map(Self)
    }

    /// The bytes; empty if the library fails.
    pub fn der(&self) -> CertificateDer<'static> {
        self.0.to_der().unwrap_or_default().into()
    }

    /// `$ssl_client_raw_cert`: PEM.
    pub fn pem(&self) -> String {
        let pem = self.0.to_pem().unwrap_or_default();
        String::from_utf8(pem).unwrap_or_default()
    }

    /// `$ssl_client_cert`: PEM in which every line but the first begins with a tab.
    pub fn folded_pem(&self) -> String {
        let pem = self.pem();
        pem.strip_suffix('\n').unwrap_or(&pem).replace('\n', "\n\t")
    }

    /// `$ssl_client_escaped_cert`: PEM as part of a URI.
    pub fn escaped_pem(&self) -> String {
        let pem = self.pem();
        let mut text = String::with_capacity(pem.len() * 3 / 2);
        for byte in pem.bytes() {
            // nginx: NGX_ESCAPE_URI_COMPONENT leaves what RFC 3986 §2.3 calls unreserved.
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                text.push(char::from(byte));
            } else {
                let _ = write!(text, "%{byte:02X}");
            }
        }
        text
    }

    /// `$ssl_client_s_dn`: the subject by RFC 2253.
    pub fn subject(&self) -> String {
        name::rfc2253(self.0.subject_name()).unwrap_or_default()
    }

    /// `$ssl_client_i_dn`: the issuer by RFC 2253.
    pub fn issuer(&self) -> String {
        name::rfc2253(self.0.issuer_name()).unwrap_or_default()
    }

    /// `$ssl_client_s_dn_legacy`: the subject in one line.
    pub fn legacy_subject(&self) -> String {
        name::one_line(self.0.subject_name()).unwrap_or_default()
    }

    /// `$ssl_client_i_dn_legacy`: the issuer in one line.
    pub fn legacy_issuer(&self) -> String {
        name::one_line(self.0.issuer_name()).unwrap_or_default()
    }

    /// `$ssl_client_serial`: the number in hexadecimal digits.
    pub fn serial(&self) -> String {
        let digits = self
            .0
            .serial_number()
            .to_bn()
            .and_then(|number| number.to_hex_str());
        match digits.map(|digits| digits.to_string()) {
            Ok(digits) if digits == "0" => "00".to_owned(),
            Ok(digits) => digits,
            Err(_) => String::new(),
        }
    }

    /// `$ssl_client_fingerprint`: SHA-1 of the certificate.
    pub fn fingerprint(&self) -> String {
        let mut text = String::with_capacity(40);
        if let Ok(digest) = self.0.digest(MessageDigest::sha1()) {
            for byte in digest.iter() {
                let _ = write!(text, "{byte:02x}");
            }
        }
        text
    }

    /// `$ssl_client_v_start`: the beginning of its validity, as `Feb  3 00:55:52 2015 GMT`.
    pub fn not_before(&self) -> String {
        self.0.not_before().to_string()
    }

    /// `$ssl_client_v_end`: the end of its validity.
    pub fn not_after(&self) -> String {
        self.0.not_after().to_string()
    }

    /// Seconds until its end; negative when it is over.
    pub fn remaining_s(&self, now_s: i64) -> Option<i64> {
        let now = Asn1Time::from_unix(now_s).ok()?;
        let left = now.diff(self.0.not_after()).ok()?;
        Some(i64::from(left.days) * DAY_S + i64::from(left.secs))
    }

    /// `$ssl_client_v_remain`: whole days until its end, never less than none.
    pub fn remaining_days(&self, now_s: i64) -> String {
        match self.remaining_s(now_s) {
            Some(left) => (left.max(0) / DAY_S).to_string(),
            None => String::new(),
        }
    }

    /// The names that it is good for.
    pub fn alternative_names(&self) -> Vec<AlternativeName> {
        let Some(names) = self.0.subject_alt_names() else {
            return Vec::new();
        };
        let name = |name: &openssl::x509::GeneralNameRef| {
            let host = || {
                name.dnsname()
                    .map(|host| AlternativeName::Host(host.to_owned()))
            };
            name.ipaddress()
                .and_then(address)
                .map(AlternativeName::Address)
                .or_else(host)
        };
        names.iter().filter_map(name).collect()
    }
}

/// An address of four or sixteen bytes.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = || {
        <[u8; 4]>::try_from(bytes)
            .map(Ipv4Addr::from)
            .map(IpAddr::from)
    };
    let sixteen = |_| {
        <[u8; 16]>::try_from(bytes)
            .map(Ipv6Addr::from)
            .map(IpAddr::from)
    };
    four().or_else(sixteen).ok()
}
