//! Bounds of what a peer may make us do, and of what is held for it.
//!
//! Work that costs a peer little is paid from allowances, as in HTTP/2: so many at once, and so
//! many a second.
//!
//! | bound | of |
//! |---|---|
//! | `max_concurrent_streams` | requests whose exchange runs; QUIC bounds those that are open |
//! | `REJECTED_MOST` | requests that were rejected on a connection |
//! | `resets` | requests that the peer resets, answers that it stops |
//! | `made_resets` | streams that we reset for what the peer sent |
//! | `control` | frames and streams of unknown kinds |
//! | `priorities` | PRIORITY_UPDATE |
//! | `small_data`, `empty_data` | DATA of less than `SMALL_DATA` bytes that nobody takes, or of
//! none |
//! | `blocked_streams` | blocks of fields that wait for the table |
//! | `instructions` | instructions for our table, each of which may copy an entry |
//! | `acknowledgements` | cancellations and increments of the peer's table |
//! | `pings`, `identifiers` | PING and PATH_CHALLENGE, and connection IDs, of QUIC |
//! | `SECTIONS_MOST` | our blocks that refer to the table and are not acknowledged |
//! | `ACKS_LEN_MOST` | bytes of acknowledgements that the peer does not read |
//! | `ENCODER_LEN_MOST` | bytes of instructions that the peer does not read, beyond which none are
//! made |
//! | `WAITING_MOST` | bytes of bodies that wait in all streams |

use crate::http2::limits::{Allowance, SMALL_UNREAD_MOST};

/// Requests that may be rejected, unless more may be at once (as in HTTP/2).
pub(crate) const REJECTED_MOST: u32 = 100;
/// DATA of fewer bytes than this is small (as in HTTP/2).
pub(crate) const SMALL_DATA: u64 = 16;
/// Bytes of a SETTINGS frame (arbitrary: dozens of settings, of which six are known).
pub(crate) const SETTINGS_LEN_MOST: u64 = 1024;
/// Bytes of a PRIORITY_UPDATE frame (arbitrary: a dozen times what is said in one).
pub(crate) const PRIORITY_UPDATE_LEN_MOST: u64 = 256;
/// Priorities of streams that are to come (RFC 9218 §7.2; as in HTTP/2).
pub(crate) const EARLY_PRIORITIES: usize = 32;
/// Bytes of bodies that wait in all streams of a connection, but for a turn of each (as in HTTP/2).
pub(crate) const WAITING_MOST: usize = 512 * 1024;
/// Our blocks that refer to the table and are not acknowledged (arbitrary: as many as requests are
/// at once; those beyond refer to nothing).
pub(crate) const SECTIONS_MOST: usize = 128;
/// Bytes of acknowledgements that wait (arbitrary: some thousand).
pub(crate) const ACKS_LEN_MOST: usize = 4096;
/// Bytes of instructions for the peer's table that wait (arbitrary: as much as the table has).
pub(crate) const ENCODER_LEN_MOST: usize = 4096;

/// The allowances of a connection. The numbers are arbitrary, and many times what browsers and load
/// generators need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowances {
    /// A page that is left resets all its streams at once.
    pub(crate) resets: Allowance,
    pub(crate) made_resets: Allowance,
    /// A frame and a stream of GREASE come with a connection, or with each request: these earn one.
    pub(crate) control: Allowance,
    pub(crate) priorities: Allowance,
    pub(crate) small_data: Allowance,
    pub(crate) empty_data: Allowance,
    /// Each request earns what its fields may need.
    pub(crate) instructions: Allowance,
    /// Each request earns one, and each of our insertions.
    pub(crate) acknowledgements: Allowance,
    /// A client asks for a sign of life when it hears nothing, and for the size of the path.
    pub(crate) pings: Allowance,
    /// A client has a few, and others with each network that it moves to.
    pub(crate) identifiers: Allowance,
}

/// Instructions that a request may need (arbitrary: the fields of most have fewer new ones).
pub(crate) const INSTRUCTIONS_PER_REQUEST: u32 = 32;

impl Allowances {
    pub(crate) fn new(max_concurrent_streams: u32) -> Self {
        let streams = max_concurrent_streams.max(REJECTED_MOST);
        Allowances {
            resets: Allowance::new(streams.saturating_mul(2), streams),
            made_resets: Allowance::new(streams.saturating_mul(2), 10),
            control: Allowance::new(1000, 100),
            priorities: Allowance::new(streams.saturating_mul(10), 10),
            small_data: Allowance::new(SMALL_UNREAD_MOST, 1000),
            empty_data: Allowance::new(1000, 100),
            instructions: Allowance::new(5000, 500),
            acknowledgements: Allowance::new(1000, 100),
            pings: Allowance::new(1000, 100),
            identifiers: Allowance::new(500, 10),
        }
    }
}
