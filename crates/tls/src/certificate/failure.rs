//! Failures of loading, in the words of nginx's log.
//!
//! nginx writes the call that failed and then OpenSSL's queue of errors:
//! `PEM_read_bio_X509() failed (SSL: error:CODE:LIBRARY::REASON:DATA error:…)`. What OpenSSL said
//! is kept as it said it; what it was not asked about (a missing file, a missing block) is written
//! as it would have said it.

use std::fmt;
use std::io;

use openssl::error::{Error, ErrorStack};

/// A step of loading that failed, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    step: &'static str,
    causes: Vec<String>,
}

/// The thing that could not be loaded, as nginx calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A certificate with its chain, or certificates that are trusted.
    Certificate,
    /// A private key.
    Key,
    /// Lists of revoked certificates.
    Revocations,
}

impl Thing {
    /// The line of the log: `cannot load certificate "x": …`.
    pub fn cannot_load(self, source: &str, failure: &Failure) -> String {
        let thing = match self {
            Self::Certificate => "certificate",
            Self::Key => "certificate key",
            Self::Revocations => "CRL",
        };
        format!("cannot load {thing} \"{source}\": {failure}")
    }
}

impl Failure {
    /// A file that cannot be opened, by the error of the system.
    pub fn open(path: &str, error: &io::Error) -> Self {
        let number = error.raw_os_error().unwrap_or(0);
        let words = io::Error::from_raw_os_error(number).to_string();
        let text = words.split(" (os error").next().unwrap_or_default();
        let system = 0x8000_0000_u32 | u32::try_from(number).unwrap_or(0);
        let second = match error.kind() {
            io::ErrorKind::NotFound => "error:10000080:BIO routines::no such file",
            _ => "error:10080002:BIO routines::system lib",
        };
        Self {
            step: "BIO_new_file() failed",
            causes: vec![
                format!("error:{system:08X}:system library::{text}:calling fopen({path}, r)"),
                second.to_owned(),
            ],
        }
    }

    /// A block of PEM that is not there.
    pub(crate) fn no_block(step: &'static str, expected: &str) -> Self {
        Self {
            step,
            causes: vec![format!(
                "error:0480006C:PEM routines::no start line:Expecting: {expected}"
            )],
        }
    }

    /// A failure that OpenSSL explained.
    pub(crate) fn openssl(step: &'static str, stack: &ErrorStack) -> Self {
        Self {
            step,
            causes: stack.errors().iter().map(cause).collect(),
        }
    }

    /// A failure that has no explanation but its name.
    pub(crate) fn plain(step: &'static str) -> Self {
        Self {
            step,
            causes: Vec::new(),
        }
    }

    /// A failure with one cause, as OpenSSL would write it.
    pub(crate) fn because(step: &'static str, cause: impl Into<String>) -> Self {
        Self {
            step,
            causes: vec![cause.into()],
        }
    }

    /// The line of the log for a key that does not belong to its certificate.
    pub fn of_key(&self, source: &str) -> String {
        let mut text = format!("{}(\"{source}\") failed", self.step);
        write_causes(&mut text, &self.causes);
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.step.to_owned();
        write_causes(&mut text, &self.causes);
        f.write_str(&text)
    }
}

/// Appends the causes as nginx does (`ngx_ssl_error`).
fn write_causes(text: &mut String, causes: &[String]) {
    if causes.is_empty() {
        return;
    }
    text.push_str(" (SSL:");
    for cause in causes {
        text.push(' ');
        text.push_str(cause);
    }
    text.push(')');
}

/// One error of OpenSSL's queue: `error:CODE:LIBRARY::REASON:DATA`.
fn cause(error: &Error) -> String {
    let code = error.code();
    let library = error.library().map_or_else(
        || format!("lib({})", error.library_code()),
        ToOwned::to_owned,
    );
    let reason = error.reason().map_or_else(
        || format!("reason({})", error.reason_code()),
        ToOwned::to_owned,
    );
    let mut text = format!("error:{code:08X}:{library}::{reason}");
    if let Some(data) = error.data().filter(|data| !data.is_empty()) {
        text.push(':');
        text.push_str(data);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_reads_as_in_nginx() {
        let failure = Failure::open("/x.crt", &io::Error::from_raw_os_error(2));
        assert_eq!(
            Thing::Certificate.cannot_load("/x.crt", &failure),
            "cannot load certificate \"/x.crt\": BIO_new_file() failed (SSL: error:80000002:system \
             library::No such file or directory:calling fopen(/x.crt, r) error:10000080:BIO \
             routines::no such file)"
        );
    }

    #[test]
    fn a_file_that_may_not_be_read_is_named_so() {
        let failure = Failure::open("/k", &io::Error::from_raw_os_error(13));
        assert_eq!(
            Thing::Key.cannot_load("/k", &failure),
            "cannot load certificate key \"/k\": BIO_new_file() failed (SSL: error:8000000D:system \
             library::Permission denied:calling fopen(/k, r) error:10080002:BIO routines::system \
             lib)"
        );
    }
}
