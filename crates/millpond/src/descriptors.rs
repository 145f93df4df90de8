//! `worker_rlimit_nofile`: how many files and connections the process may have open.
//!
//! Without the directive the process takes what it may: the soft limit becomes the hard one. Of all
//! descriptors a part is for the files of cache segments, which are closed and opened again as they
//! are used (`millpond_store::OpenFiles`); the rest is for connections, of which idle ones are
//! closed when there are too many (`millpond_system::quota`). Whoever has configured more
//! connections and zones than that is told so, and what to set, when the process starts and when
//! the configuration is tested.

use millpond_exchange::descriptors::{MOST_SEGMENT_FILES, SEGMENT_SHARE, others};
use millpond_exchange::settings::Conf;
use millpond_proxy::cache::zones::most_segments;
use millpond_system::log::error::{self, Level, os_error};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Puts the limit into force: `wanted`, or as much as the process may have.
pub(crate) fn limit(wanted: Option<u32>) {
    let limits = match wanted {
        Some(count) => Rlimit {
            current: Some(u64::from(count)),
            maximum: Some(u64::from(count)),
        },
        None => {
            let now = getrlimit(Resource::Nofile);
            Rlimit {
                current: now.maximum,
                ..now
            }
        }
    };
    if let Err(errno) = setrlimit(Resource::Nofile, limits) {
        let (count, reason) = (limits.current.unwrap_or(u64::MAX), os_error(&errno.into()));
        let level = match wanted {
            Some(_) => Level::Alert,
            // It goes on with what it had.
            None => Level::Notice,
        };
        let message = format_args!("setrlimit(RLIMIT_NOFILE, {count}) failed ({reason})");
        error::process(level, message);
    }
}

/// Limit for open descriptors that the process has by now.
pub(crate) fn count() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Limit for open descriptors that the process would have with a configuration, started as this
/// process was.
pub(crate) fn count_with(conf: &Conf) -> u64 {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    match conf.main.process.open_files.map(u64::from) {
        // As a rule it may raise its own limits.
        Some(wanted) if rustix::process::geteuid().is_root() => wanted,
        Some(wanted) => wanted.min(most),
        None => most,
    }
}

/// Descriptors that a configuration needs, by their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Need {
    workers: u64,
    /// Connections of each worker, clients and upstreams together.
    connections: u64,
    segments: u64,
    others: u64,
}

impl Need {
    fn of(conf: &Conf) -> Self {
        let zones = &conf.declared.zones;
        let segments = zones.iter().map(|zone| most_segments(zone.max_size));
        let segments: u64 = segments
            .map(|count| count.unwrap_or(MOST_SEGMENT_FILES))
            .sum();
        Self {
            workers: conf.main.process.worker_count() as u64,
            connections: u64::from(conf.main.connections.connections),
            segments: segments.min(MOST_SEGMENT_FILES),
            others: others(conf),
        }
    }

    fn all(&self) -> u64 {
        // What is for segments is at most a share, so that there must be more than their number.
        let others = self.workers * self.connections + self.others;
        others + self.segments.min(others / (SEGMENT_SHARE - 1))
    }
}

/// Warning about a configuration that needs more than `count` descriptors.
pub(crate) fn shortage(conf: &Conf, count: u64) -> Option<String> {
    let need = Need::of(conf);
    let all = need.all();
    (count < all).then(|| {
        let Need {
            workers,
            connections,
            segments,
            others,
        } = need;
        format!(
            "{count} open files are allowed and {all} wanted: {connections} worker_connections of \
             {workers} workers, {segments} segments of caches at best, {others} others; set \
             \"worker_rlimit_nofile {all};\", or raise the limit (ulimit -n, LimitNOFILE=)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_needed_and_segments_are_at_best() {
        let need = |connections, segments| Need {
            workers: 2,
            connections,
            segments,
            others: 100,
        };
        assert_eq!(need(512, 0).all(), 1124);
        assert_eq!(need(512, 50).all(), 1174);
        // A zone of any size works with a quarter.
        assert_eq!(need(512, 16_384).all(), 1124 + 374);
    }
}
