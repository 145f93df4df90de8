//! Reasons for which an authority has not done what it was asked for.
//!
//! They say whether another try makes sense, and when.

use openssl::error::ErrorStack;

use crate::key::KeyError;
use crate::resource::Problem;

/// The reason for a failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The authority could not be asked, or did not answer.
    #[error("{0}")]
    Connection(String),
    /// The authority refuses; it may have said after how many seconds it may be asked again.
    #[error("{problem}")]
    Problem {
        problem: Problem,
        after: Option<i64>,
    },
    /// The answer is none that the protocol has.
    #[error("{0}")]
    Answer(String),
    /// A name could not be validated.
    #[error("\"{name}\" could not be validated by {way} ({problem})")]
    Validation {
        name: String,
        way: &'static str,
        problem: Problem,
    },
    /// The configuration lacks what the authority demands.
    #[error("{0}")]
    Configuration(String),
    /// Failure of OpenSSL.
    #[error("{0}")]
    Crypto(#[from] ErrorStack),
    /// A key cannot be used.
    #[error("the key cannot be used: {0}")]
    Key(#[from] KeyError),
}

impl Error {
    /// The seconds after which the authority may be asked again, if it has said so.
    pub(crate) fn after(&self) -> Option<i64> {
        match self {
            Error::Problem { after, .. } => *after,
            _ => None,
        }
    }

    /// The authority's reason.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        match self {
            Error::Problem { problem, .. } => Some(problem),
            _ => None,
        }
    }
}
