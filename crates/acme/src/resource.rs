//! Answers of an authority, in JSON (RFC 8555 §7.1, RFC 9773 §4.2).
//!
//! Members that are not used are not read; a value that is not known is kept as [`Status::Other`].

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;

/// The directory.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Directory {
    pub(crate) new_nonce: String,
    pub(crate) new_account: String,
    pub(crate) new_order: String,
    pub(crate) renewal_info: Option<String>,
    #[serde(default)]
    pub(crate) meta: Meta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    pub(crate) terms_of_service: Option<String>,
    #[serde(default)]
    pub(crate) external_account_required: bool,
    #[serde(default)]
    pub(crate) profiles: HashMap<String, serde_json::Value>,
}

/// The state of an account, an order, an authorization or a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Pending,
    Processing,
    Ready,
    Valid,
    Invalid,
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Account {
    pub(crate) status: Status,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Order {
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) authorizations: Vec<String>,
    pub(crate) finalize: String,
    pub(crate) certificate: Option<String>,
    pub(crate) error: Option<Problem>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Authorization {
    pub(crate) identifier: Named,
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) challenges: Vec<Challenge>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Named {
    pub(crate) value: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Challenge {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) token: String,
    pub(crate) error: Option<Problem>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RenewalInfo {
    pub(crate) suggested_window: SuggestedWindow,
    #[serde(rename = "explanationURL")]
    pub(crate) explanation: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SuggestedWindow {
    pub(crate) start: String,
    pub(crate) end: String,
}

/// The reason for which an authority refuses something (RFC 7807).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Problem {
    /// The kind, with or without the prefix of ACME's.
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    subproblems: Vec<Problem>,
}

impl Problem {
    /// A refusal of which only the status is known.
    pub(crate) fn of_status(status: u16) -> Self {
        Problem {
            detail: format!("status {status}"),
            ..Problem::default()
        }
    }

    /// The kind, without the prefix that all of ACME's have.
    pub(crate) fn kind(&self) -> &str {
        self.kind
            .strip_prefix("urn:ietf:params:acme:error:")
            .unwrap_or(&self.kind)
    }

    /// True where no other try makes sense with this account as it is configured.
    pub(crate) fn is_of_account(&self) -> bool {
        matches!(
            self.kind(),
            "accountDoesNotExist"
                | "badPublicKey"
                | "badSignatureAlgorithm"
                | "externalAccountRequired"
                | "invalidContact"
                | "malformed"
                | "unsupportedContact"
                | "userActionRequired"
        )
    }

    /// True where no other try makes sense with these names and this key.
    pub(crate) fn is_of_order(&self) -> bool {
        matches!(
            self.kind(),
            "badCSR"
                | "caa"
                | "invalidProfile"
                | "malformed"
                | "rejectedIdentifier"
                | "unsupportedIdentifier"
        )
    }

    /// True where the certificate that an order replaces may be the reason (RFC 9773 §5).
    pub(crate) fn may_be_of_replaced(&self) -> bool {
        !matches!(
            self.kind(),
            "badNonce"
                | "caa"
                | "invalidProfile"
                | "rateLimited"
                | "rejectedIdentifier"
                | "unsupportedIdentifier"
                | "userActionRequired"
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind(), self.detail.as_str()) {
            ("", "") => f.write_str("no reason")?,
            (kind, "") => f.write_str(kind)?,
            ("", detail) => f.write_str(detail)?,
            (kind, detail) => write!(f, "{kind}: {detail}")?,
        }
        for problem in &self.subproblems {
            write!(f, "; {problem}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_told_with_their_parts() {
        let text = r#"{"type":"urn:ietf:params:acme:error:rejectedIdentifier","detail":"no",
            "subproblems":[{"type":"x","detail":"a.example"}],"status":400}"#;
        let problem: Problem = serde_json::from_str(text).unwrap();
        assert_eq!(problem.to_string(), "rejectedIdentifier: no; x: a.example");
        assert!(problem.is_of_order() && !problem.is_of_account());
        assert_eq!(Problem::default().to_string(), "no reason");
    }

    #[test]
    fn states_that_are_not_known_are_read() {
        for (text, status) in [
            ("\"valid\"", Status::Valid),
            ("\"deactivated\"", Status::Other),
        ] {
            assert_eq!(serde_json::from_str::<Status>(text).unwrap(), status);
        }
    }
}
