//! A token as it is sent: three parts in Base64, with points between them (RFC 7515 §7.1).
//!
//! ```text
//! BASE64URL(header) "." BASE64URL(claims) "." BASE64URL(signature)
//! └──────────── what is signed ────────┘
//! ```
//!
//! A parsed token is believed only once [`super::keys`] has verified the signature.
//!
//! Invariants:
//! 1. A token has one reading: no padding, no other alphabet, no spare bits, no doubled members.
//! 2. An algorithm is one that this file names; `none` is not.
//! 3. A header that says that something must be understood (`crit`) is refused, since nothing is.

use millpond_wire::base64;
use serde_json::{Map, Value};

use super::json;

/// The longest token (arbitrary: twice what a field of a request may be by default).
const MAX_TOKEN: usize = 16 * 1024;

/// A signature algorithm (RFC 7518 §3.1, RFC 8037 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSA of PKCS #1 with SHA-256.
    Rs256,
    /// RSA of PKCS #1 with SHA-384.
    Rs384,
    /// RSA of PKCS #1 with SHA-512.
    Rs512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// The algorithm of a name.
    pub(super) fn of(name: &str) -> Option<Algorithm> {
        Some(match name {
            "HS256" => Algorithm::Hs256,
            "HS384" => Algorithm::Hs384,
            "HS512" => Algorithm::Hs512,
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "ES512" => Algorithm::Es512,
            "EdDSA" => Algorithm::EdDsa,
            _ => return None,
        })
    }
}

/// The reason why a text is no token, or one that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Too many bytes.
    #[error("the token is longer than {MAX_TOKEN} bytes")]
    Long,
    /// Not three parts.
    #[error("the token has not three parts")]
    Parts,
    /// A part is no Base64.
    #[error("a part of the token is no base64url")]
    Base64,
    /// The header is no JSON object.
    #[error("the header of the token is no JSON object with single members")]
    Header,
    /// The claims are no JSON object.
    #[error("the claims of the token are no JSON object with single members")]
    Claims,
    /// The algorithm is missing or unknown.
    #[error("the algorithm of the token is none that is known")]
    Algorithm,
    /// Something must be understood.
    #[error("the token has \"crit\", and extensions are not known")]
    Critical,
    /// The name of the key is no text.
    #[error("\"kid\" of the token is no text")]
    KeyName,
    /// No key has signed it.
    #[error("no key verifies the signature of the token")]
    Signature,
    /// A time is none.
    #[error("a time of the token is no number")]
    Time,
    /// The time of its end is over.
    #[error("the token has expired")]
    Expired,
    /// The time of its begin is still to come.
    #[error("the token is not valid yet")]
    Early,
}

/// A token taken apart, its signature not verified.
#[derive(Debug)]
pub struct Token {
    /// The header.
    pub header: Map<String, Value>,
    /// The claims.
    pub claims: Map<String, Value>,
    /// The text of the claims.
    pub payload: Vec<u8>,
    /// The algorithm that it says.
    pub algorithm: Algorithm,
    /// The text that is signed.
    pub(super) signed: Vec<u8>,
    pub(super) signature: Vec<u8>,
}

impl Token {
    /// Takes a token apart.
    ///
    /// # Errors
    /// The text is none, or one that no key could make acceptable.
    pub fn parse(text: &[u8]) -> Result<Token, Fault> {
        if text.len() > MAX_TOKEN {
            return Err(Fault::Long);
        }
        let mut parts = text.split(|byte| *byte == b'.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Fault::Parts);
        };
        let signed = text.get(..header.len() + 1 + payload.len());
        let header = json::object(&decode(header)?).ok_or(Fault::Header)?;
        // INVARIANT 2.
        let algorithm = header
            .get("alg")
            .and_then(Value::as_str)
            .and_then(Algorithm::of)
            .ok_or(Fault::Algorithm)?;
        // INVARIANT 3.
        if header.contains_key("crit") {
            return Err(Fault::Critical);
        }
        if header.get("kid").is_some_and(|name| !name.is_string()) {
            return Err(Fault::KeyName);
        }
        let payload = decode(payload)?;
        Ok(Token {
            claims: json::object(&payload).ok_or(Fault::Claims)?,
            header,
            payload,
            algorithm,
            signed: signed.unwrap_or_default().to_vec(),
            signature: decode(signature)?,
        })
    }

    /// The name of its key.
    pub(super) fn key_name(&self) -> Option<&str> {
        self.header.get("kid")?.as_str()
    }

    /// Checks the times, with as many seconds of leeway (RFC 7519 §4.1.4, §4.1.5).
    pub(super) fn check_times(&self, now: f64, leeway: f64) -> Result<(), Fault> {
        if self.time("exp")?.is_some_and(|end| now >= end + leeway) {
            return Err(Fault::Expired);
        }
        if self.time("nbf")?.is_some_and(|begin| now < begin - leeway) {
            return Err(Fault::Early);
        }
        Ok(())
    }

    fn time(&self, name: &str) -> Result<Option<f64>, Fault> {
        match self.claims.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or(Fault::Time),
        }
    }
}

/// Decodes Base64 of the alphabet for URLs, in the one way in which bytes are encoded
/// (INVARIANT 1).
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, Fault> {
    let digit = |byte: &u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => Some(*byte),
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        _ => None,
    };
    let translated: Option<Vec<u8>> = text.iter().map(digit).collect();
    let digits = translated.ok_or(Fault::Base64)?;
    let bytes = base64::decode(&digits).ok_or(Fault::Base64)?;
    let again = base64::encode(&bytes);
    let is_exact = again.trim_end_matches('=').as_bytes() == digits;
    is_exact.then_some(bytes).ok_or(Fault::Base64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(text: &str) -> String {
        let text = base64::encode(text.as_bytes());
        text.trim_end_matches('=')
            .replace('+', "-")
            .replace('/', "_")
    }

    fn parse(header: &str, claims: &str) -> Result<Token, Fault> {
        Token::parse(format!("{}.{}.AAAA", encode(header), encode(claims)).as_bytes())
    }

    #[test]
    fn hostile_tokens_are_refused_before_any_key_is_asked() {
        let good = r#"{"alg":"HS256"}"#;
        assert!(parse(good, "{}").is_ok());
        for (header, claims, fault) in [
            (r#"{"alg":"none"}"#, "{}", Fault::Algorithm),
            (r#"{"alg":"None"}"#, "{}", Fault::Algorithm),
            (r#"{"alg":"hs256"}"#, "{}", Fault::Algorithm),
            (r#"{"alg":["HS256"]}"#, "{}", Fault::Algorithm),
            ("{}", "{}", Fault::Algorithm),
            (r#"{"alg":"HS256","alg":"none"}"#, "{}", Fault::Header),
            (
                r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
                "{}",
                Fault::Critical,
            ),
            (r#"{"alg":"HS256","crit":[]}"#, "{}", Fault::Critical),
            (r#"{"alg":"HS256","kid":1}"#, "{}", Fault::KeyName),
            ("[]", "{}", Fault::Header),
            (good, "[]", Fault::Claims),
            (good, r#"{"sub":"a","sub":"b"}"#, Fault::Claims),
            (good, "", Fault::Claims),
        ] {
            assert_eq!(
                parse(header, claims).err(),
                Some(fault),
                "{header} {claims}"
            );
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
        assert_eq!(parse(good, &deep).err(), Some(Fault::Claims));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_TOKEN));
        assert_eq!(parse(good, &long).err(), Some(Fault::Long));
    }

    #[test]
    fn a_token_has_one_spelling() {
        let (header, claims) = (encode(r#"{"alg":"HS256"}"#), encode("{}"));
        for (text, fault) in [
            (String::new(), Fault::Parts),
            (header.clone(), Fault::Parts),
            (format!("{header}.{claims}"), Fault::Parts),
            (format!("{header}.{claims}.AAAA.AAAA"), Fault::Parts),
            (format!("{header}.{claims}.AAAA.AAAA.AAAA"), Fault::Parts),
            (format!("{header}.{claims}.AA=="), Fault::Base64),
            (format!("{header}.{claims}.A"), Fault::Base64),
            (format!("{header}.{claims}.AB"), Fault::Base64),
            (format!("{header}.{claims}.AA+/"), Fault::Base64),
            (format!("{header}.{claims}.AA A"), Fault::Base64),
            (format!(".{claims}.AAAA"), Fault::Header),
        ] {
            assert_eq!(Token::parse(text.as_bytes()).err(), Some(fault), "{text}");
        }
    }

    #[test]
    fn times_have_an_end_and_a_leeway() {
        let at = |claims: &str, now: f64, leeway: f64| {
            let token = parse(r#"{"alg":"HS256"}"#, claims).unwrap();
            token.check_times(now, leeway).err()
        };
        for (claims, now, leeway, expected) in [
            ("{}", 1e9, 0.0, None),
            (r#"{"exp":100}"#, 99.9, 0.0, None),
            (r#"{"exp":100}"#, 100.0, 0.0, Some(Fault::Expired)),
            (r#"{"exp":100}"#, 104.0, 5.0, None),
            (r#"{"exp":100}"#, 105.0, 5.0, Some(Fault::Expired)),
            (r#"{"nbf":100}"#, 99.0, 0.0, Some(Fault::Early)),
            (r#"{"nbf":100}"#, 95.0, 5.0, None),
            (r#"{"nbf":100.5}"#, 100.4, 0.0, Some(Fault::Early)),
            (r#"{"exp":"100"}"#, 1.0, 0.0, Some(Fault::Time)),
            (r#"{"exp":null}"#, 1.0, 0.0, Some(Fault::Time)),
        ] {
            assert_eq!(at(claims, now, leeway), expected, "{claims} {now} {leeway}");
        }
    }
}
