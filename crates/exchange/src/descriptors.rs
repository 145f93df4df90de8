//! Division of the descriptors of the process.
//!
//! A part is for the files of cache segments, a part for all that is no connection (logs, disks,
//! listeners, files that are sent), and the rest for connections (`quota.rs`). When the division
//! turns out wrong, because more files are sent at once than was thought, idle connections are
//! closed for them (`reserve.rs`).

use crate::settings::Conf;

/// Files of segments have at most one descriptor in so many: the others are for connections, of
/// clients and to upstreams.
pub const SEGMENT_SHARE: u64 = 4;
/// The least that they have: one for each thread that reads or writes, and some to choose from.
const LEAST_SEGMENT_FILES: u64 = 8;
/// The most. What is not among the files that were used last is seldom in the page cache either, so
/// opening it costs little beside reading it.
pub const MOST_SEGMENT_FILES: u64 = 16_384;
/// Descriptors that a worker has open besides connections: its event loop, and what wakes it.
const EACH_WORKER: u64 = 8;
/// Descriptors that a folder of a zone has open besides segments: its superblock, journal and uses,
/// and one more of each while it is written anew.
const EACH_FOLDER: u64 = 6;
/// Descriptors that the process has open besides: logs, sockets, the pid file, what a file is
/// served from.
const OTHERS: u64 = 64;
/// Connections have at least one descriptor in so many, however few there are.
const CONNECTION_SHARE: u64 = 4;

/// Number of descriptors, of so many, that are for the files of segments.
pub fn segment_files(count: u64) -> usize {
    let share = (count / SEGMENT_SHARE).clamp(LEAST_SEGMENT_FILES, MOST_SEGMENT_FILES);
    // At most `MOST_SEGMENT_FILES`.
    share as usize
}

/// Number of descriptors that a configuration has open besides connections and segments.
pub fn others(conf: &Conf) -> u64 {
    let zones = &conf.declared.zones;
    let folders: u64 = zones.iter().map(|zone| zone.paths().count() as u64).sum();
    OTHERS + conf.main.process.worker_count() as u64 * EACH_WORKER + folders * EACH_FOLDER
}

/// Number of descriptors, of so many, that are for connections.
pub fn connections(conf: &Conf, count: u64) -> u64 {
    let segments = if conf.declared.zones.is_empty() {
        0
    } else {
        segment_files(count) as u64
    };
    let left = count.saturating_sub(segments + others(conf));
    left.max(count / CONNECTION_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_a_share_within_bounds() {
        let table = [
            (0, 8),
            (64, 16),
            (1024, 256),
            (20_000, 5_000),
            (1 << 20, 16_384),
        ];
        for (count, expected) in table {
            assert_eq!(segment_files(count), expected, "{count}");
        }
    }
}
