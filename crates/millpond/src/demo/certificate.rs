//! The demo's certificate: made at the start, for the loopback interface, gone at the end.
//!
//! It signs itself, so whoever wants to trust it is given the file and the fingerprint. The key is
//! readable by its owner alone.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use aws_lc_rs::digest::{SHA256, digest};
use millpond_semantics::date::civil;
use millpond_system::clock;
use rcgen::{CertificateParams, DnType, KeyPair};

/// Names that it is for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Days that it is valid for; clocks that are a day behind take it, too.
const DAYS: i64 = 30;
const DAY: i64 = 24 * 3600;

/// A certificate in a directory.
pub(super) struct Certificate {
    /// File of the certificate, in PEM.
    pub(super) path: PathBuf,
    /// SHA-256 of its DER, as browsers and OpenSSL show it.
    pub(super) fingerprint: String,
}

impl Certificate {
    /// Makes a certificate, `demo.pem`, and its key, `demo.key`.
    pub(super) fn make(dir: &Path) -> Result<Certificate> {
        let key = KeyPair::generate().context("making a key")?;
        let mut params = CertificateParams::new(NAMES.map(str::to_string).to_vec())?;
        let name = "millpond demo";
        params.distinguished_name.push(DnType::CommonName, name);
        let now = clock::now_ms().div_euclid(1000);
        let date = |time: i64| {
            let day = civil(time);
            rcgen::date_time_ymd(i32::from(day.year), day.month, day.day)
        };
        params.not_before = date(now - DAY);
        params.not_after = date(now + DAYS * DAY);
        let made = params.self_signed(&key).context("making a certificate")?;
        let path = dir.join("demo.pem");
        std::fs::write(&path, made.pem()).with_context(|| path.display().to_string())?;
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(dir.join("demo.key"))?;
        file.write_all(key.serialize_pem().as_bytes())?;
        Ok(Certificate {
            path,
            fingerprint: fingerprint(made.der()),
        })
    }
}

/// SHA-256, each byte in two hexadecimal digits, with colons between.
fn fingerprint(der: &[u8]) -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, der).as_ref() {
        let colon = if text.is_empty() { "" } else { ":" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{colon}{byte:02X}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4: SHA-256 of "abc".
    #[test]
    fn fingerprints_are_written_as_browsers_show_them() {
        let text = fingerprint(b"abc");
        assert!(text.starts_with("BA:78:16:BF:8F:01:CF:EA"), "{text}");
        assert_eq!(text.len(), 32 * 3 - 1);
    }
}
