//! `keepalive_timeout`, `keepalive_requests`, `keepalive_time`, `keepalive_disable`,
//! `lingering_close` and their like: the life of a connection after an answer.
//!
//! The decision about a connection is made in `downstream/http1/keep_alive.rs`.

use std::time::Duration;

/// Browsers whose keep-alive is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum DistrustedBrowser {
    /// None.
    #[word("none")]
    None,
    /// Old MSIE, after a POST.
    #[word("msie6")]
    Msie6,
    /// Safari, on macOS.
    #[word("safari")]
    Safari,
}

/// Settings of connections that serve further requests, and of their close.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct KeepAlivePolicy {
    /// Time for which an idle connection is kept, and optionally the one that the Keep-Alive field
    /// says; 0 closes after each answer.
    #[directive(name = "keepalive_timeout", default = "75s")]
    pub timeout: Vec<Duration>,
    /// Requests after which a connection is closed.
    #[directive(name = "keepalive_requests", default = "1000")]
    pub requests: u32,
    /// Age of a connection after which it is closed with its next answer.
    #[directive(name = "keepalive_time", default = "1h")]
    pub time: Duration,
    /// The time that an idle connection is kept when the configuration or the process ends, at
    /// least: a client that was just told that it may send another request finds somebody there.
    ///
    /// # Differs from nginx
    ///
    /// It is never less than 200 ms, so that a request that follows an answer at once is not lost.
    #[directive(name = "keepalive_min_timeout", default = "0")]
    pub min_timeout: Duration,
    /// Browsers whose connections are not kept alive.
    #[directive(name = "keepalive_disable", default = "msie6", union)]
    pub disable: millpond_conf::Flags<DistrustedBrowser>,
    /// Makes the server go on reading from a client that it has answered early, so that the answer
    /// is not lost.
    #[directive(name = "lingering_close", default = "on")]
    pub lingering_close: LingeringClose,
    /// The longest time for which such reading goes on.
    #[directive(name = "lingering_time", default = "30s")]
    pub lingering_time: Duration,
    /// The longest wait for more in such reading.
    #[directive(name = "lingering_timeout", default = "5s")]
    pub lingering_timeout: Duration,
    /// Closes a connection whose request timed out, or was answered with 444, with a reset, so that
    /// nothing of it stays in the kernel. Idle connections are closed in the ordinary way.
    #[directive(name = "reset_timedout_connection", default = "off")]
    pub reset_timed_out: bool,
}

/// Condition under which a connection lingers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum LingeringClose {
    /// Never.
    #[word("off")]
    Off,
    /// Connections linger if the client may still be sending.
    #[word("on")]
    On,
    /// Always.
    #[word("always")]
    Always,
}

impl KeepAlivePolicy {
    /// Time for which an idle connection is kept; zero when it is not.
    pub fn idle_timeout(&self) -> Duration {
        self.timeout.first().copied().unwrap_or_default()
    }

    /// True if a connection that has had so many requests may have another one.
    pub fn keeps(&self, requests: u32) -> bool {
        !self.idle_timeout().is_zero() && requests < self.requests
    }

    /// The value of the Keep-Alive field, seconds.
    pub fn header_timeout(&self) -> Option<u64> {
        self.timeout
            .get(1)
            .map(Duration::as_secs)
            .filter(|seconds| *seconds > 0)
    }
}
