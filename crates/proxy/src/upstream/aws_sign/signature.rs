//! The key, the scope and the sum of a signature.
//!
//! ```text
//! HMAC("AWS4" + secret, date) ─► region ─► service ─► "aws4_request" = the key of a day
//! HMAC(key, "AWS4-HMAC-SHA256" \n time \n scope \n hash of what is signed) = the signature
//! ```

use hmac::{Hmac, KeyInit, Mac};
use millpond_semantics::date;
use millpond_semantics::hex::Hex;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The algorithm of heads.
pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A key of a day, for a region and a service.
pub(super) type Key = Zeroizing<[u8; 32]>;

/// A moment as it is signed: `20130524T000000Z`.
#[derive(Clone, Debug)]
pub(super) struct Time(String);

impl Time {
    /// The second of seconds since 1970.
    pub(super) fn of(seconds: i64) -> Time {
        let at = date::civil(seconds);
        Time(format!(
            "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
            at.year, at.month, at.day, at.hour, at.minute, at.second
        ))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The day: `20130524`.
    fn day(&self) -> &str {
        self.0.split('T').next().unwrap_or_default()
    }
}

/// Day, region and service that a signature holds for.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    day: String,
    region: String,
    service: String,
}

impl Scope {
    /// The scope of a time.
    ///
    /// # Errors
    /// The region or the service is no name.
    pub(super) fn new(time: &Time, region: &[u8], service: &[u8]) -> Result<Scope, String> {
        Ok(Scope {
            day: time.day().to_string(),
            region: name("region", region)?,
            service: name("service", service)?,
        })
    }

    /// The scope as it is signed, and as it follows an access key.
    pub(super) fn text(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.day, self.region, self.service)
    }

    /// The key that a secret has in the scope.
    pub(super) fn key(&self, secret: &str) -> Key {
        let begin = Zeroizing::new(format!("AWS4{secret}"));
        let day = hmac(begin.as_bytes(), self.day.as_bytes());
        let region = hmac(&*day, self.region.as_bytes());
        let service = hmac(&*region, self.service.as_bytes());
        hmac(&*service, b"aws4_request")
    }
}

fn name(of: &str, bytes: &[u8]) -> Result<String, String> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_text = |text: &&str| !text.is_empty() && text.bytes().all(|byte| is_name(&byte));
    let text = str::from_utf8(bytes).ok().filter(is_text);
    text.map(str::to_string)
        .ok_or_else(|| format!("the {of} is empty or no name"))
}

fn hmac(key: &[u8], text: &[u8]) -> Key {
    // A key of any length is one.
    let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(key) else {
        return Key::default();
    };
    mac.update(text);
    Zeroizing::new(mac.finalize().into_bytes().into())
}

/// The signature of lines below the name of their algorithm.
pub(super) fn signature(
    key: &Key,
    (algorithm, time, scope): (&str, &Time, &Scope),
    lines: &str,
) -> String {
    let text = format!("{algorithm}\n{}\n{}\n{lines}", time.as_str(), scope.text());
    Hex(&*hmac(&**key, text.as_bytes())).to_string()
}

/// The hash of bytes in digits.
pub(super) fn digits(bytes: &[u8]) -> String {
    Hex(&Sha256::digest(bytes)).to_string()
}
