//! Versions of TLS: `ssl_protocols`.
//!
//! There are two, 1.2 and 1.3.

use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

static BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

/// The versions that are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.2 alone.
    Tls12,
    /// TLS 1.3 alone.
    Tls13,
    /// Both.
    #[default]
    Both,
}

impl Versions {
    pub(crate) fn supported(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Versions::Tls12 => &BOTH[..1],
            Versions::Tls13 => &BOTH[1..],
            Versions::Both => BOTH,
        }
    }

    /// The number of the newest of them.
    pub(crate) fn newest(self) -> u16 {
        match self {
            Versions::Tls12 => 0x0303,
            Versions::Tls13 | Versions::Both => 0x0304,
        }
    }

    /// The suites that these versions can use.
    pub(crate) fn filter(self, suites: Vec<SupportedCipherSuite>) -> Vec<SupportedCipherSuite> {
        let mut suites = suites;
        suites.retain(|suite| self.supported().contains(&suite.version()));
        suites
    }
}
