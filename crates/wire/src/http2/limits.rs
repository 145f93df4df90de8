//! Bounds of what a peer may make us do, and of what is held for it.
//!
//! Work that costs a peer little is paid from allowances ([`Allowance`]): so much at once, and so
//! much a second. Which is what an honest client needs many times over, and what a flood has used
//! up soon.
//!
//! | bound | of | nginx |
//! |---|---|---|
//! | `max_concurrent_streams` | streams that are open, or whose exchange still runs | the same |
//! | `STREAMS_PER_READ` times that | new streams in one read | the same |
//! | `REFUSED_MOST` | streams that were refused on a connection | the same |
//! | `OVERHEAD_MOST` | bytes that carried nothing, beyond seven eighths | the same |
//! | `resets` | streams that the peer resets | by the two above |
//! | `made_resets` | streams that we reset for what the peer sent, or refuse | none |
//! | `control` | SETTINGS, PING, frames of unknown kinds | by bytes only |
//! | `priorities` | PRIORITY, PRIORITY_UPDATE | the same |
//! | `small_data` | DATA of less than `SMALL_DATA` bytes that nobody takes, but for messages of tunnels | by bytes only |
//! | `empty_data` | DATA without a byte but padding, and without an end | by bytes only |
//! | `CONTINUATIONS_MOST` | CONTINUATION frames of a block | by bytes only |
//! | `window_updates` | WINDOW_UPDATE, but one for each `UPDATED` bytes of bodies | by bytes only |
//! | `DEPENDENCIES_KEPT` | streams without a life of which a dependency was told | the same |
//! | `LATE_HEADS_MOST` | heads of streams that we have reset, by the last reset | by bytes only |
//! | `ACKS_MOST` | acknowledgements that the peer does not read | none |
//! | `WAITING_MOST` | bytes of bodies that wait in all streams | none |
//! | `OUTPUT_MOST` | bytes that wait for the peer, beyond which nothing is read | none |

use std::time::Duration;

/// New streams of one read, in times of those that may be at once (nginx: 2).
pub(crate) const STREAMS_PER_READ: u32 = 2;
/// Streams that may be refused, unless more may be at once (nginx: 100).
pub(crate) const REFUSED_MOST: u32 = 100;
/// Bytes that may carry nothing (nginx: 1 MiB).
pub(crate) const OVERHEAD_MOST: u64 = 1 << 20;
/// DATA of fewer bytes than this is small (arbitrary: a frame's head and as much again).
pub(crate) const SMALL_DATA: u32 = 16;
/// Small frames that nobody has taken: more than the messages of gRPC, of five bytes at least, that
/// the connection's window of 1 MiB holds. A server that pauses lets its client send as many.
pub(crate) const SMALL_UNREAD_MOST: u32 = (1 << 20) / 4;
/// Bytes of bodies that pay for a WINDOW_UPDATE (arbitrary: readers of a few KiB at a time tell of
/// each read twice, and half of them would do).
pub(crate) const UPDATED: u64 = 256;
/// CONTINUATION frames of one block (arbitrary: a block of 64 KiB in the smallest frames that
/// anybody makes on purpose).
pub(crate) const CONTINUATIONS_MOST: u32 = 64;
/// Heads of streams that we have reset, since the last of those resets (arbitrary: twice as many
/// interim answers as a client bears, which may be on their way then).
pub(crate) const LATE_HEADS_MOST: u32 = 200;
/// Acknowledgements that wait at once (arbitrary: 17 KiB of them).
pub(crate) const ACKS_MOST: u32 = 1000;
/// Bytes of output beyond which no input is read (arbitrary: the heads of a few hundred answers).
pub(crate) const OUTPUT_MOST: usize = 256 * 1024;
/// Bytes of bodies that wait in all streams of a connection, but for a frame in each (arbitrary:
/// what eight streams may have at most).
pub(crate) const WAITING_MOST: usize = 512 * 1024;
/// Bytes of a SETTINGS frame (arbitrary: a hundred settings, of which a dozen are known).
pub(crate) const SETTINGS_LEN_MOST: u32 = 600;
/// Bytes of a PRIORITY_UPDATE frame (arbitrary: a dozen times what is said in one).
pub(crate) const PRIORITY_UPDATE_LEN_MOST: u32 = 256;
/// Streams that we reset and whose late frames are known (arbitrary: a window of the network).
pub(crate) const RESETS_REMEMBERED: usize = 256;
/// Streams that the peer has reset, and of which it is to send nothing more (arbitrary: a page).
pub(crate) const PEER_RESETS_REMEMBERED: usize = 64;
/// Streams without a life of whose dependencies something was said (RFC 7540 §5.3.4; nginx: the
/// same).
pub(crate) const DEPENDENCIES_KEPT: usize = 32;
/// Priorities of streams that are to come (RFC 9218 §7.1; arbitrary).
pub(crate) const EARLY_PRIORITIES: usize = 32;

/// An allowance of something: so many at once, so many a second.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    left: u32,
    most: u32,
    per_second: u32,
    since: Duration,
}

impl Allowance {
    /// An allowance that is whole.
    #[must_use]
    pub fn new(most: u32, per_second: u32) -> Self {
        Allowance {
            left: most,
            most,
            per_second,
            since: Duration::ZERO,
        }
    }

    /// Spends one at a time since the connection's begin; false if none is left.
    #[must_use]
    pub fn spend(&mut self, now: Duration) -> bool {
        self.spend_all(1, now)
    }

    /// Spends so many at a time since the connection's begin; false if fewer are left.
    #[must_use]
    pub fn spend_all(&mut self, count: u32, now: Duration) -> bool {
        let seconds = now.saturating_sub(self.since).as_secs();
        if seconds > 0 {
            let more = u64::from(self.per_second).saturating_mul(seconds);
            let left = u64::from(self.left).saturating_add(more);
            self.left = u32::try_from(left).unwrap_or(u32::MAX).min(self.most);
            self.since += Duration::from_secs(seconds);
        }
        let has_all = self.left >= count;
        self.left = self.left.saturating_sub(count);
        has_all
    }

    /// Adds some for work that was useful.
    pub fn earn(&mut self, more: u32) {
        self.left = self.left.saturating_add(more).min(self.most);
    }
}

/// Takes from the small frames that nobody has taken those that were among `len` of `held` bytes.
pub(crate) fn take_read(small_unread: &mut u32, len: u64, held: u64) -> u32 {
    let all = *small_unread;
    let share = if len < held {
        u64::from(all) * len / held
    } else {
        u64::from(all)
    };
    let read = u32::try_from(share).unwrap_or(all);
    *small_unread -= read;
    read
}

/// The allowances of a connection. The numbers are arbitrary, and many times what browsers, load
/// generators and gRPC need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowances {
    /// A page that is left resets all its streams at once.
    pub(crate) resets: Allowance,
    /// Every way in which the peer makes us reset a stream (CVE-2025-8671): a body of another
    /// length, a head or trailers that are malformed, a frame behind the end, a window that
    /// overflows or grows by nothing, a stream too many. Resets behind a whole answer (RFC 9113
    /// §8.1), and those of clients that are too slow, cost the peer an exchange or a timeout each.
    pub(crate) made_resets: Allowance,
    /// gRPC asks for a sign of life with each window of data.
    pub(crate) control: Allowance,
    /// As in nginx: so many for each new stream.
    pub(crate) priorities: Allowance,
    pub(crate) small_data: Allowance,
    pub(crate) empty_data: Allowance,
    pub(crate) window_updates: Allowance,
}

impl Allowances {
    pub(crate) fn new(max_concurrent_streams: u32) -> Self {
        let streams = max_concurrent_streams.max(REFUSED_MOST);
        Allowances {
            resets: Allowance::new(streams.saturating_mul(2), streams),
            made_resets: Allowance::new(streams.saturating_mul(2), 10),
            control: Allowance::new(1000, 100),
            priorities: Allowance::new(streams.saturating_mul(10), 0),
            small_data: Allowance::new(SMALL_UNREAD_MOST, 1000),
            empty_data: Allowance::new(1000, 100),
            window_updates: Allowance::new(20_000, 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_spent_and_comes_again_with_time() {
        let at = Duration::from_millis;
        let mut allowance = Allowance::new(3, 2);
        let spent =
            |allowance: &mut Allowance, now| (0..10).take_while(|_| allowance.spend(now)).count();
        assert_eq!(spent(&mut allowance, at(0)), 3);
        assert_eq!(spent(&mut allowance, at(999)), 0);
        assert_eq!(spent(&mut allowance, at(1000)), 2);
        assert_eq!(spent(&mut allowance, at(1999)), 0);
        assert_eq!(spent(&mut allowance, at(2500)), 2);
        assert_eq!(spent(&mut allowance, at(3_600_000)), 3);
        assert!(!allowance.spend_all(1, at(3_600_000)));
        assert!(!allowance.spend_all(3, at(3_601_000)), "two have come");
        assert!(allowance.spend_all(2, at(3_602_000)));
        allowance.earn(2);
        assert_eq!(
            spent(&mut allowance, at(0)),
            2,
            "time that goes back is no time"
        );
    }
}
