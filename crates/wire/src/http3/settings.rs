//! Settings (RFC 9114 §7.2.4, RFC 9204 §5, RFC 9220 §3, RFC 9297 §2.1.1).
//!
//! 1. Settings of the peer come once, each at most once; those that are not known are ignored.

use bytes::{BufMut, BytesMut};

use super::code::Fault;
use super::frame::{integer_len, read_integer, write_integer};

const MAX_TABLE_CAPACITY: u64 = 1;
const MAX_FIELD_SECTION: u64 = 6;
const BLOCKED_STREAMS: u64 = 7;
const ENABLE_CONNECT_PROTOCOL: u64 = 8;
const DATAGRAMS: u64 = 0x33;

/// The settings of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Bytes that the table of blocks to the peer may have.
    pub table_capacity: u64,
    /// Bytes that a head may have, as the peer counts them.
    pub max_field_section: u64,
    /// Streams that may wait for the table.
    pub blocked_streams: u64,
    /// True if a CONNECT may name a protocol.
    pub has_connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        PeerSettings {
            table_capacity: 0,
            max_field_section: u64::MAX,
            blocked_streams: 0,
            has_connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Reads the payload of a SETTINGS frame.
    ///
    /// # Errors
    /// A setting that may not be, twice the same one, or half of one.
    pub(crate) fn read(payload: &[u8]) -> Result<Self, Fault> {
        let mut settings = PeerSettings::default();
        // Those that have come: no more than fit a frame.
        let mut seen = Vec::new();
        let mut rest = payload;
        while !rest.is_empty() {
            let id = read_integer(&mut rest).ok_or(Fault::FrameLength)?;
            let value = read_integer(&mut rest).ok_or(Fault::FrameLength)?;
            seen.push(id);
            settings.set(id, value)?;
        }
        // RFC 9114 §7.2.4: the same identifier must not occur more than once.
        seen.sort_unstable();
        if seen.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Fault::Settings);
        }
        Ok(settings)
    }

    fn set(&mut self, id: u64, value: u64) -> Result<(), Fault> {
        match id {
            // RFC 9114 §7.2.4.1: those of HTTP/2 that there are not.
            0 | 2..=5 => return Err(Fault::Settings),
            ENABLE_CONNECT_PROTOCOL | DATAGRAMS if value > 1 => return Err(Fault::Settings),
            MAX_TABLE_CAPACITY => self.table_capacity = value,
            MAX_FIELD_SECTION => self.max_field_section = value,
            BLOCKED_STREAMS => self.blocked_streams = value,
            ENABLE_CONNECT_PROTOCOL => self.has_connect_protocol = value == 1,
            _ => {}
        }
        Ok(())
    }
}

/// Our settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnSettings {
    pub(crate) table_capacity: u64,
    pub(crate) max_field_section: u64,
    pub(crate) blocked_streams: u64,
    pub(crate) has_connect_protocol: bool,
}

impl OwnSettings {
    /// Writes a SETTINGS frame with what differs from the defaults.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        let rows = [
            (MAX_TABLE_CAPACITY, self.table_capacity, 0),
            (MAX_FIELD_SECTION, self.max_field_section, u64::MAX),
            (BLOCKED_STREAMS, self.blocked_streams, 0),
            (
                ENABLE_CONNECT_PROTOCOL,
                u64::from(self.has_connect_protocol),
                0,
            ),
        ];
        let told = rows.iter().filter(|(_, value, default)| value != default);
        let lens = told
            .clone()
            .map(|row| integer_len(row.0) + integer_len(row.1));
        out.put_u8(4);
        write_integer(out, lens.sum::<usize>() as u64);
        for (id, value, _) in told {
            write_integer(out, *id);
            write_integer(out, *value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::Code;
    use super::*;

    fn payload(rows: &[(u64, u64)]) -> BytesMut {
        let mut out = BytesMut::new();
        for (id, value) in rows {
            write_integer(&mut out, *id);
            write_integer(&mut out, *value);
        }
        out
    }

    /// RFC 9114 §7.2.4, §7.2.4.1; RFC 9220 §3; RFC 9297 §2.1.1.
    #[test]
    fn settings_that_may_not_be_are_refused() {
        for rows in [
            &[(0, 1)][..],
            &[(2, 1)],
            &[(3, 1)],
            &[(4, 1)],
            &[(5, 1)],
            &[(8, 2)],
            &[(0x33, 2)],
            &[(6, 1), (6, 1)],
            &[(0x21, 1), (1, 7), (0x21, 2)],
        ] {
            let fault = PeerSettings::read(&payload(rows)).unwrap_err();
            assert_eq!(fault.code(), Code::SETTINGS_ERROR, "{rows:?}");
        }
        let cut = payload(&[(6, 1000)]);
        for len in 1..cut.len() {
            let fault = PeerSettings::read(&cut[..len]).unwrap_err();
            assert_eq!(fault.code(), Code::FRAME_ERROR, "{len}");
        }
    }

    /// RFC 9114 §7.2.4: in any order, unknown ones are ignored.
    #[test]
    fn settings_are_what_was_told_and_else_the_defaults() {
        let rows = [(0x4040, 9), (7, 16), (1, 4096), (8, 1), (6, 70_000)];
        let expected = PeerSettings {
            table_capacity: 4096,
            max_field_section: 70_000,
            blocked_streams: 16,
            has_connect_protocol: true,
        };
        assert_eq!(PeerSettings::read(&payload(&rows)), Ok(expected));
        assert_eq!(PeerSettings::read(&[]), Ok(PeerSettings::default()));
    }

    #[test]
    fn what_differs_from_the_defaults_is_told() {
        let own = OwnSettings {
            table_capacity: 4096,
            max_field_section: u64::MAX,
            blocked_streams: 16,
            has_connect_protocol: true,
        };
        let mut out = BytesMut::new();
        own.write(&mut out);
        assert_eq!(out[..], [4, 7, 1, 0x50, 0, 7, 16, 8, 1]);
    }
}
