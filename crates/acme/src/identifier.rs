//! Names that a certificate is ordered for.
//!
//! | word | names |
//! |---|---|
//! | `example.com` | that one, in lower case |
//! | `.example.com` | `www.example.com` and `example.com` |
//! | `192.0.2.1`, `2001:db8::1` | the address |
//! | `*.example.com`, `www.example.*` | none: neither way of validation here can prove them |
//!
//! Source of the rules: nginx ngx_http_acme_module, RFC 8555 §7.1.3, RFC 8738.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

/// A name that a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(tag = "type", content = "value", rename_all = "lowercase")]
pub enum Identifier {
    /// A host.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

/// The reason for which a word is no name that can be ordered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A byte that no name has.
    #[error("invalid character {0:x} at position {1}")]
    Invalid(u8, usize),
    /// A character in a place where it may not stand.
    #[error("unexpected character '{0}' at position {1}")]
    Unexpected(char, usize),
    /// A dot, or nothing, at its end.
    #[error("does not end with a label")]
    NotALabel,
    /// A star.
    #[error(
        "a name with a wildcard is validated by records of DNS alone, which this server does not \
         make"
    )]
    Wildcard,
}

impl Identifier {
    /// The names that a word stands for.
    pub fn read(word: &str) -> Result<Vec<Identifier>, NameError> {
        if let Ok(ip) = word.parse() {
            return Ok(vec![Identifier::Ip(ip)]);
        }
        check(word)?;
        let name = word.to_ascii_lowercase();
        // nginx: a dot before a name stands for two in a certificate.
        Ok(match name.strip_prefix('.') {
            Some(host) => vec![
                Identifier::Dns(format!("www.{host}")),
                Identifier::Dns(host.to_owned()),
            ],
            None => vec![Identifier::Dns(name)],
        })
    }

    /// The name that an authority tells in a handshake that validates this one (RFC 8737 §3, RFC
    /// 8738 §6).
    pub(crate) fn told(&self) -> String {
        match self {
            Identifier::Dns(name) => name.clone(),
            Identifier::Ip(IpAddr::V4(ip)) => {
                let [a, b, c, d] = ip.octets();
                format!("{d}.{c}.{b}.{a}.in-addr.arpa")
            }
            Identifier::Ip(IpAddr::V6(ip)) => {
                let bytes = ip.octets().into_iter().rev();
                let digits = bytes.flat_map(|byte| [byte & 15, byte >> 4]);
                let labels: String = digits.map(|digit| format!("{digit:x}.")).collect();
                format!("{labels}ip6.arpa")
            }
        }
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identifier::Dns(name) => f.write_str(name),
            Identifier::Ip(ip) => write!(f, "{ip}"),
        }
    }
}

/// The first of several that is no address, or the first of all: certificates are known by it.
pub(crate) fn first(names: &[Identifier]) -> Option<&Identifier> {
    let dns = names.iter().find(|name| matches!(name, Identifier::Dns(_)));
    dns.or(names.first())
}

fn check(word: &str) -> Result<(), NameError> {
    let mut before = None;
    for (at, byte) in word.bytes().enumerate() {
        match byte {
            0..=0x20 | 0x7f.. => return Err(NameError::Invalid(byte, at)),
            b'*' => return Err(NameError::Wildcard),
            b'.' if before == Some(b'.') => return Err(NameError::Unexpected('.', at)),
            b'.' | b'%' | b'-' | b'_' | b'~' => {}
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'+' | b',' | b';' | b'=' => {}
            _ if byte.is_ascii_alphanumeric() => {}
            _ => return Err(NameError::Unexpected(char::from(byte), at)),
        }
        before = Some(byte);
    }
    match before {
        None | Some(b'.') => Err(NameError::NotALabel),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_names() {
        for (word, expected) in [
            ("example", Ok(vec!["example"])),
            ("Example.COM", Ok(vec!["example.com"])),
            (".Example.com", Ok(vec!["www.example.com", "example.com"])),
            ("xn--e1afmkfd.example", Ok(vec!["xn--e1afmkfd.example"])),
            ("192.0.2.1", Ok(vec!["192.0.2.1"])),
            ("2001:DB8:0::1", Ok(vec!["2001:db8::1"])),
            ("example.", Err(NameError::NotALabel)),
            ("", Err(NameError::NotALabel)),
            ("a..b", Err(NameError::Unexpected('.', 2))),
            ("a/b", Err(NameError::Unexpected('/', 1))),
            ("a\u{10}b", Err(NameError::Invalid(0x10, 1))),
            ("пример", Err(NameError::Invalid(0xd0, 0))),
            ("*.example.com", Err(NameError::Wildcard)),
            ("www.example.*", Err(NameError::Wildcard)),
        ] {
            let read = Identifier::read(word)
                .map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            let expected = expected.map(|all| all.iter().map(ToString::to_string).collect());
            assert_eq!(read, expected, "{word}");
        }
    }

    #[test]
    fn addresses_are_told_the_other_way_round() {
        for (word, told) in [
            ("127.0.0.1", "1.0.0.127.in-addr.arpa"),
            (
                "fe80::fed:cba1",
                "1.a.b.c.d.e.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.e.f.ip6.arpa",
            ),
            ("a.example", "a.example"),
        ] {
            assert_eq!(Identifier::read(word).unwrap()[0].told(), told);
        }
    }

    #[test]
    fn names_are_written_with_their_type() {
        let names = [
            Identifier::Dns("a.example".into()),
            Identifier::Ip([192, 0, 2, 1].into()),
        ];
        assert_eq!(
            serde_json::to_string(&names).unwrap(),
            r#"[{"type":"dns","value":"a.example"},{"type":"ip","value":"192.0.2.1"}]"#
        );
    }
}
