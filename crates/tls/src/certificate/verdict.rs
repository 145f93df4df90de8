//! Verdicts on the chain of a peer, and what follows from them.
//!
//! nginx lets every handshake go on and looks at OpenSSL's last error when a request comes. So a
//! verdict is a value: `$ssl_client_verify` prints it, [`Verdict::refusal`] says whether a request
//! may go on.

use std::fmt;

use openssl::x509::X509VerifyResult;

/// Errors of OpenSSL's verifier that are told apart here (`X509_V_ERR_…`).
pub(crate) mod code {
    pub(crate) const NO_ISSUER: i32 = 2;
    pub(crate) const NO_REVOCATIONS: i32 = 3;
    pub(crate) const REVOCATIONS_SIGNATURE: i32 = 8;
    pub(crate) const REVOCATIONS_NOT_YET_VALID: i32 = 11;
    pub(crate) const REVOCATIONS_EXPIRED: i32 = 12;
    pub(crate) const SELF_SIGNED_LEAF: i32 = 18;
    pub(crate) const SELF_SIGNED_IN_CHAIN: i32 = 19;
    pub(crate) const NO_LOCAL_ISSUER: i32 = 20;
    pub(crate) const LEAF_SIGNATURE: i32 = 21;
    pub(crate) const REVOKED: i32 = 23;
    pub(crate) const CHAIN_TOO_LONG: i32 = 22;
    pub(crate) const UNTRUSTED: i32 = 27;
    pub(crate) const REJECTED: i32 = 28;
    pub(crate) const NO_AUTHORITY: i32 = 79;
}

/// An error of the verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// OpenSSL's number of it.
    pub code: i32,
    /// OpenSSL's text of it.
    pub text: &'static str,
}

impl Fault {
    /// The issuer of a certificate that is trusted, but not by itself, is unknown.
    pub(crate) const NO_ISSUER: Self = Self {
        code: code::NO_ISSUER,
        text: "unable to get issuer certificate",
    };
    /// No list of revocations is there for a certificate.
    pub(crate) const NO_REVOCATIONS: Self = Self {
        code: code::NO_REVOCATIONS,
        text: "unable to get certificate CRL",
    };
    /// A certificate came alone, and its issuer is unknown.
    pub(crate) const LEAF_SIGNATURE: Self = Self {
        code: code::LEAF_SIGNATURE,
        text: "unable to verify the first certificate",
    };
    /// A trusted certificate has rules that do not let it be used for this.
    pub(crate) const PURPOSE: Self = Self {
        code: 26,
        text: "unsuitable certificate purpose",
    };
    /// The word of a responder that the certificate was taken back.
    pub const STATUS_REVOKED: Self = Self {
        code: 0,
        text: "certificate revoked",
    };
    /// The word of a responder that it does not know the certificate.
    pub const STATUS_UNKNOWN: Self = Self {
        code: 0,
        text: "certificate status unknown",
    };
    /// No responder has told the status of the certificate.
    pub const NO_STATUS: Self = Self {
        code: 0,
        text: "certificate status request failed",
    };
    /// The library gave no verdict.
    pub(crate) const UNSPECIFIED: Self = Self {
        code: 1,
        text: "unspecified certificate verification error",
    };

    /// The error with this number, as this build of OpenSSL words it.
    pub(crate) fn of(result: X509VerifyResult) -> Self {
        Self {
            code: result.as_raw(),
            text: result.error_string(),
        }
    }

    /// An error that is there only because nobody who is trusted stands behind it: what
    /// `optional_no_ca` lets through (`ngx_ssl_verify_error_optional`).
    pub fn is_about_trust(self) -> bool {
        matches!(
            self.code,
            code::SELF_SIGNED_LEAF
                | code::SELF_SIGNED_IN_CHAIN
                | code::NO_LOCAL_ISSUER
                | code::UNTRUSTED
                | code::LEAF_SIGNATURE
        )
    }
}

/// As in nginx's log: `(10:certificate has expired)`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            // A status, which no verifier has a number for.
            0 => f.write_str(self.text),
            code => write!(f, "({code}:{})", self.text),
        }
    }
}

/// The verdict on a peer's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No certificate was sent.
    None,
    /// The chain is good.
    Success,
    /// The chain is not.
    Failed(Fault),
}

/// `$ssl_client_verify`.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("NONE"),
            Self::Success => f.write_str("SUCCESS"),
            Self::Failed(fault) => write!(f, "FAILED:{}", fault.text),
        }
    }
}

/// `ssl_verify_client`, where it is not `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// `on`: a good certificate is required.
    On,
    /// `optional`: a certificate that is sent must be good.
    Optional,
    /// `optional_no_ca`: a certificate that is sent may be of anybody.
    OptionalNoCa,
}

/// The reason for which requests of a connection are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// nginx's status 495, answered as 400.
    #[error("client SSL certificate verify error: {0}")]
    BadCertificate(Fault),
    /// nginx's status 496, answered as 400.
    #[error("client sent no required SSL certificate")]
    NoCertificate,
}

impl Verdict {
    /// The refusal that a demand makes of it.
    pub fn refusal(self, demand: Demand) -> Option<Refusal> {
        match (self, demand) {
            (Self::None, Demand::On) => Some(Refusal::NoCertificate),
            (Self::Failed(fault), Demand::OptionalNoCa) if fault.is_about_trust() => None,
            (Self::Failed(fault), _) => Some(Refusal::BadCertificate(fault)),
            (Self::None | Self::Success, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPIRED: Verdict = Verdict::Failed(Fault {
        code: 10,
        text: "certificate has expired",
    });
    const UNKNOWN: Verdict = Verdict::Failed(Fault {
        code: code::LEAF_SIGNATURE,
        text: "unable to verify the first certificate",
    });

    #[test]
    fn demands_refuse_as_in_nginx() {
        for (verdict, demand, text) in [
            (
                Verdict::None,
                Demand::On,
                Some("client sent no required SSL certificate"),
            ),
            (Verdict::None, Demand::Optional, None),
            (Verdict::Success, Demand::On, None),
            (UNKNOWN, Demand::OptionalNoCa, None),
            (
                UNKNOWN,
                Demand::Optional,
                Some(
                    "client SSL certificate verify error: (21:unable to verify the first \
                     certificate)",
                ),
            ),
            (
                EXPIRED,
                Demand::OptionalNoCa,
                Some("client SSL certificate verify error: (10:certificate has expired)"),
            ),
        ] {
            let refusal = verdict.refusal(demand).map(|refusal| refusal.to_string());
            assert_eq!(refusal.as_deref(), text, "{verdict} {demand:?}");
        }
    }

    #[test]
    fn verdicts_are_words() {
        assert_eq!(Verdict::None.to_string(), "NONE");
        assert_eq!(Verdict::Success.to_string(), "SUCCESS");
        assert_eq!(EXPIRED.to_string(), "FAILED:certificate has expired");
    }
}
