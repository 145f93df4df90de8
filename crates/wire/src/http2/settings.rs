//! Settings (RFC 9113 §6.5): what an end tells of itself, and what it obeys.
//!
//! 1. A value that a setting cannot have is an error of the connection (§6.5.2); a setting that is
//!    not known is ignored.
//! 2. Of a setting that comes twice in a frame the last value counts (§6.5.3).
//!
//! What a change leads to is the connection's business.

use bytes::{BufMut, BytesMut};

use super::code::Fault;
use super::connection::Role;
use super::flow::{DEFAULT_WINDOW, MAX_WINDOW};
use super::frame::{self, ACK, DEFAULT_MAX_LEN, Kind, MOST_MAX_LEN};

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
/// RFC 8441 §3.
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// RFC 9218 §2.1.
const NO_RFC7540_PRIORITIES: u16 = 9;

/// Settings that a peer has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Most bytes of the table that its reader of blocks keeps.
    pub header_table_size: u32,
    /// Streams that it bears at once.
    pub max_concurrent_streams: u32,
    /// The window of its streams.
    pub initial_window: u32,
    /// The longest payload that it reads.
    pub max_frame_len: u32,
    /// The longest list of fields that it reads, as it advises.
    pub max_header_list: u32,
    /// True if it lets a CONNECT name a protocol (RFC 8441).
    pub has_connect_protocol: bool,
    /// True if its dependencies of streams mean nothing (RFC 9218 §2.1).
    pub has_no_tree: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        PeerSettings {
            header_table_size: 4096,
            max_concurrent_streams: u32::MAX,
            initial_window: DEFAULT_WINDOW,
            max_frame_len: DEFAULT_MAX_LEN,
            max_header_list: u32::MAX,
            has_connect_protocol: false,
            has_no_tree: false,
        }
    }
}

impl PeerSettings {
    /// Takes the settings of a frame over, which has come to us in this role.
    ///
    /// # Errors
    /// INVARIANT 1.
    pub(crate) fn read(&mut self, payload: &[u8], role: Role) -> Result<(), Fault> {
        let (rows, _) = payload.as_chunks::<6>();
        for [a, b, value @ ..] in rows {
            let setting = u16::from_be_bytes([*a, *b]);
            self.set(setting, u32::from_be_bytes(*value), role)?;
        }
        Ok(())
    }

    fn set(&mut self, setting: u16, value: u32, role: Role) -> Result<(), Fault> {
        match setting {
            HEADER_TABLE_SIZE => self.header_table_size = value,
            // §6.5.2: a server has none that it could let its client send.
            ENABLE_PUSH if value > u32::from(role == Role::Server) => {
                return Err(Fault::SettingValue);
            }
            MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
            INITIAL_WINDOW_SIZE if value > MAX_WINDOW => return Err(Fault::SettingWindow),
            INITIAL_WINDOW_SIZE => self.initial_window = value,
            MAX_FRAME_SIZE if !(DEFAULT_MAX_LEN..=MOST_MAX_LEN).contains(&value) => {
                return Err(Fault::SettingValue);
            }
            MAX_FRAME_SIZE => self.max_frame_len = value,
            MAX_HEADER_LIST_SIZE => self.max_header_list = value,
            // RFC 8441 §3: once it is told, it is not taken back.
            ENABLE_CONNECT_PROTOCOL if value > 1 || (value == 0 && self.has_connect_protocol) => {
                return Err(Fault::SettingValue);
            }
            ENABLE_CONNECT_PROTOCOL => self.has_connect_protocol = value == 1,
            NO_RFC7540_PRIORITIES if value > 1 => return Err(Fault::SettingValue),
            NO_RFC7540_PRIORITIES => self.has_no_tree = value == 1,
            _ => {}
        }
        Ok(())
    }
}

/// The settings that we tell, of those that differ from their defaults.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnSettings {
    pub(crate) header_table_size: Option<u32>,
    pub(crate) refuses_push: bool,
    pub(crate) max_concurrent_streams: Option<u32>,
    pub(crate) initial_window: Option<u32>,
    pub(crate) max_frame_len: Option<u32>,
    pub(crate) has_connect_protocol: bool,
}

impl OwnSettings {
    /// Writes the frame that tells them.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        let rows = [
            (HEADER_TABLE_SIZE, self.header_table_size),
            (ENABLE_PUSH, self.refuses_push.then_some(0)),
            (MAX_CONCURRENT_STREAMS, self.max_concurrent_streams),
            (INITIAL_WINDOW_SIZE, self.initial_window),
            (MAX_FRAME_SIZE, self.max_frame_len),
            (
                ENABLE_CONNECT_PROTOCOL,
                self.has_connect_protocol.then_some(1),
            ),
        ];
        let told = rows.iter().filter(|(_, value)| value.is_some()).count();
        out.put_slice(&frame::head(told * 6, (Kind::Settings, 0), 0));
        for (setting, value) in rows {
            if let Some(value) = value {
                out.put_u16(setting);
                out.put_u32(value);
            }
        }
    }
}

/// Writes the acknowledgement of settings.
pub(crate) fn write_ack(out: &mut BytesMut) {
    out.put_slice(&frame::head(0, (Kind::Settings, ACK), 0));
}

#[cfg(test)]
mod tests {
    use super::super::code::Code;
    use super::*;

    fn payload(rows: &[(u16, u32)]) -> BytesMut {
        let mut out = BytesMut::new();
        for (setting, value) in rows {
            out.put_u16(*setting);
            out.put_u32(*value);
        }
        out
    }

    /// RFC 9113 §6.5.2, RFC 8441 §3, RFC 9218 §2.1.
    #[test]
    fn values_that_a_setting_cannot_have_are_refused() {
        for (setting, value, code) in [
            (2, 2, Code::PROTOCOL_ERROR),
            (4, 1 << 31, Code::FLOW_CONTROL_ERROR),
            (5, 16_383, Code::PROTOCOL_ERROR),
            (5, 1 << 24, Code::PROTOCOL_ERROR),
            (8, 2, Code::PROTOCOL_ERROR),
            (9, 2, Code::PROTOCOL_ERROR),
        ] {
            let outcome = PeerSettings::default().read(&payload(&[(setting, value)]), Role::Server);
            assert_eq!(outcome.unwrap_err().code(), code, "{setting}");
        }
        let taken_back = payload(&[(8, 1), (8, 0)]);
        assert_eq!(
            PeerSettings::default().read(&taken_back, Role::Server),
            Err(Fault::SettingValue)
        );
    }

    /// RFC 9113 §6.5.2: a server does not set ENABLE_PUSH to 1.
    #[test]
    fn push_is_enabled_by_clients_only() {
        let outcome = |value, role| PeerSettings::default().read(&payload(&[(2, value)]), role);
        assert!(outcome(1, Role::Server).is_ok());
        assert!(outcome(0, Role::Client).is_ok());
        assert_eq!(outcome(1, Role::Client), Err(Fault::SettingValue));
    }

    /// RFC 9113 §6.5.3: in order, the last one counts, unknown ones are ignored.
    #[test]
    fn settings_are_taken_over_in_order() {
        let mut settings = PeerSettings::default();
        let rows = [
            (4, 42),
            (4, 43),
            (0xabcd, 7),
            (1, 0),
            (3, 9),
            (5, 16_385),
            (6, 1000),
            (9, 1),
        ];
        settings.read(&payload(&rows), Role::Server).unwrap();
        let expected = PeerSettings {
            header_table_size: 0,
            max_concurrent_streams: 9,
            initial_window: 43,
            max_frame_len: 16_385,
            max_header_list: 1000,
            has_connect_protocol: false,
            has_no_tree: true,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn what_differs_from_the_defaults_is_told() {
        let own = OwnSettings {
            max_concurrent_streams: Some(128),
            initial_window: Some(10),
            ..OwnSettings::default()
        };
        let mut out = BytesMut::new();
        own.write(&mut out);
        assert_eq!(out[..9], [0, 0, 12, 4, 0, 0, 0, 0, 0]);
        assert_eq!(out[9..], payload(&[(3, 128), (4, 10)]));
    }
}
