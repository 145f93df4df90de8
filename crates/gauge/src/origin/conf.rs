//! Behaviour of an origin.

use std::net::SocketAddr;
use std::time::Duration;

use super::spoken::Spoken;

/// Behaviour of an origin.
#[derive(Clone, Debug)]
pub struct OriginConf {
    /// Address that the origin listens on.
    pub listen: SocketAddr,
    /// Protocol that it is asked in.
    pub spoken: Spoken,
    /// True if it speaks that inside of TLS, with a certificate of its own making.
    pub is_https: bool,
    /// Time between a request and the head of its answer.
    pub delay: Duration,
    /// Up to this much more, at random.
    pub jitter: Duration,
    /// Bytes a second on each connection; none: no limit.
    pub rate: Option<u64>,
    /// Bytes a second on all connections together; none: no limit.
    pub rate_total: Option<u64>,
    /// The part of requests that are answered with 503.
    pub failures: f64,
    /// The part of answers that end in the middle of their body.
    pub cuts: f64,
    /// All resources change once in so much time; none: never.
    pub change: Option<Duration>,
    /// True if ranges are answered with 206.
    pub has_ranges: bool,
    /// True if answers have `ETag` and `Last-Modified`, and conditions are obeyed.
    pub has_validators: bool,
    /// Value of `Cache-Control`; none: there is no such field.
    pub cache_control: Option<String>,
    /// Seed of the origin's chances.
    pub seed: u64,
}

impl OriginConf {
    /// One that answers at once and never changes, on a port of the loopback interface that the
    /// system chooses.
    pub fn new() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            spoken: Spoken::Http,
            is_https: false,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            rate_total: None,
            failures: 0.0,
            cuts: 0.0,
            change: None,
            has_ranges: true,
            has_validators: true,
            cache_control: None,
            seed: 1,
        }
    }
}

impl Default for OriginConf {
    fn default() -> Self {
        Self::new()
    }
}
