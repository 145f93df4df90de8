//! Paths that a crowd asks for.

use std::io::Write as _;

use super::CrowdConf;

/// Paths, each with a number.
#[derive(Clone, Debug)]
pub enum Paths {
    /// One path.
    One(String),
    /// A number behind this, one more each time.
    Rising {
        /// Text before the number.
        before: String,
        /// The next number.
        next: u64,
    },
    /// A number behind this, by chance.
    Any {
        /// Text before the number.
        before: String,
        /// Numbers are below this.
        count: u64,
        /// Chances.
        random: fastrand::Rng,
    },
}

impl Paths {
    /// Numbers from 0.
    pub fn rising(before: &str) -> Self {
        Self::Rising {
            before: before.to_owned(),
            next: 0,
        }
    }

    /// Numbers below `count`, by chance, the same ones in each run.
    pub fn any(before: &str, count: u64) -> Self {
        Self::Any {
            before: before.to_owned(),
            count: count.max(1),
            random: fastrand::Rng::with_seed(count),
        }
    }

    /// Number of the next path.
    pub(super) fn next(&mut self) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Rising { next, .. } => {
                *next += 1;
                *next - 1
            }
            Self::Any { count, random, .. } => random.u64(..*count),
        }
    }

    /// Makes the text of a request.
    pub(super) fn write(&self, number: u64, conf: &CrowdConf, text: &mut Vec<u8>) {
        text.clear();
        // Writing into memory never fails.
        let _ = match self {
            Self::One(path) => write!(text, "GET {path}"),
            Self::Rising { before, .. } | Self::Any { before, .. } => {
                write!(text, "GET {before}{number}")
            }
        };
        text.extend_from_slice(b" HTTP/1.1\r\nHost: localhost\r\n");
        text.extend_from_slice(conf.fields.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
}
