//! Frames of QUIC (RFC 9000 §19, and those of draft-ietf-quic-ack-frequency) as qlog writes them,
//! in JSON.
//!
//! What cannot be read ends the list, with the kind that it had: the machine judges packets, not
//! this.

use std::fmt::Write as _;

use millpond_semantics::hex::Hex;

/// The exponent of delays in ACK that both sides have unless they say otherwise (RFC 9000 §18.2).
const DELAY_EXPONENT: u32 = 3;
/// Ranges of one ACK that are written (arbitrary: losses leave a few).
const RANGES_MOST: u64 = 64;

/// Writes the frames of a packet, each as an object, with commas between.
pub(super) fn write(mut rest: &[u8], out: &mut String) {
    let mut is_first = true;
    while !rest.is_empty() {
        let Some(kind) = integer(&mut rest) else {
            return;
        };
        if !std::mem::take(&mut is_first) {
            out.push(',');
        }
        if write_frame(kind, &mut rest, out).is_none() {
            // Writing into a text never fails; neither does it below.
            let _ = write!(out, r#"{{"frame_type":"unknown","raw_frame_type":{kind}}}"#);
            return;
        }
    }
}

/// Reads an integer (RFC 9000 §16).
fn integer(rest: &mut &[u8]) -> Option<u64> {
    let first = *rest.first()?;
    let len = 1 << (first >> 6);
    let (bytes, after) = rest.split_at_checked(len)?;
    let value = bytes
        .iter()
        .fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    *rest = after;
    Some(value & (u64::MAX >> (66 - 8 * len as u32)))
}

fn take<'a>(rest: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (bytes, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *rest = after;
    Some(bytes)
}

/// Writes one frame behind its kind; none for one that is not known, or cut.
fn write_frame(kind: u64, rest: &mut &[u8], out: &mut String) -> Option<()> {
    let fields: &[&str] = match kind {
        0 => {
            let count = rest.iter().take_while(|byte| **byte == 0).count();
            take(rest, count as u64)?;
            let len = count + 1;
            let _ = write!(out, r#"{{"frame_type":"padding","length":{len}}}"#);
            return Some(());
        }
        2 | 3 => return write_ack(kind, rest, out),
        6 => {
            let (offset, len) = (integer(rest)?, integer(rest)?);
            take(rest, len)?;
            let _ = write!(
                out,
                r#"{{"frame_type":"crypto","offset":{offset},"length":{len}}}"#
            );
            return Some(());
        }
        7 => {
            let len = integer(rest)?;
            take(rest, len)?;
            &[]
        }
        8..=0xf => return write_stream(kind, rest, out),
        0x18 => return write_new_id(rest, out),
        0x1a | 0x1b => {
            take(rest, 8)?;
            &[]
        }
        0x1c | 0x1d => return write_close(kind, rest, out),
        1 | 0x1e | 0x1f => &[],
        0xaf => &[
            "sequence_number",
            "ack_eliciting_threshold",
            "requested_max_ack_delay",
            "reordering_threshold",
        ],
        4 => &["stream_id", "error_code", "final_size"],
        5 => &["stream_id", "error_code"],
        0x10 => &["maximum"],
        0x11 => &["stream_id", "maximum"],
        0x12 | 0x13 => &["maximum"],
        0x14 => &["limit"],
        0x15 => &["stream_id", "limit"],
        0x16 | 0x17 => &["limit"],
        0x19 => &["sequence_number"],
        _ => return None,
    };
    let mut values = String::new();
    for field in fields {
        let _ = write!(values, r#","{field}":{}"#, integer(rest)?);
    }
    let name = name_of(kind);
    let _ = write!(out, r#"{{"frame_type":"{name}"{values}"#);
    match kind {
        0x12 | 0x16 => out.push_str(r#","stream_type":"bidirectional""#),
        0x13 | 0x17 => out.push_str(r#","stream_type":"unidirectional""#),
        _ => {}
    }
    out.push('}');
    Some(())
}

fn name_of(kind: u64) -> &'static str {
    match kind {
        1 => "ping",
        4 => "reset_stream",
        5 => "stop_sending",
        7 => "new_token",
        0x10 => "max_data",
        0x11 => "max_stream_data",
        0x12 | 0x13 => "max_streams",
        0x14 => "data_blocked",
        0x15 => "stream_data_blocked",
        0x16 | 0x17 => "streams_blocked",
        0x19 => "retire_connection_id",
        0x1a => "path_challenge",
        0x1b => "path_response",
        0x1e => "handshake_done",
        0x1f => "immediate_ack",
        0xaf => "ack_frequency",
        _ => "unknown",
    }
}

/// RFC 9000 §19.3.
fn write_ack(kind: u64, rest: &mut &[u8], out: &mut String) -> Option<()> {
    let (largest, delay) = (integer(rest)?, integer(rest)?);
    let (count, first) = (integer(rest)?, integer(rest)?);
    let mut low = largest.checked_sub(first)?;
    let mut ranges = format!("[{low},{largest}]");
    for turn in 0..count {
        let (gap, len) = (integer(rest)?, integer(rest)?);
        let high = low.checked_sub(gap.checked_add(2)?)?;
        low = high.checked_sub(len)?;
        if turn < RANGES_MOST {
            let _ = write!(ranges, ",[{low},{high}]");
        }
    }
    if kind == 3 {
        for _ in 0..3 {
            integer(rest)?;
        }
    }
    let delay_ms = (delay << DELAY_EXPONENT) as f64 / 1000.0;
    let _ = write!(
        out,
        r#"{{"frame_type":"ack","ack_delay":{delay_ms},"acked_ranges":[{ranges}]}}"#
    );
    Some(())
}

/// RFC 9000 §19.8.
fn write_stream(kind: u64, rest: &mut &[u8], out: &mut String) -> Option<()> {
    let id = integer(rest)?;
    let offset = if kind & 4 != 0 { integer(rest)? } else { 0 };
    let len = if kind & 2 != 0 {
        integer(rest)?
    } else {
        rest.len() as u64
    };
    take(rest, len)?;
    let is_end = kind & 1 != 0;
    let _ = write!(
        out,
        r#"{{"frame_type":"stream","stream_id":{id},"offset":{offset},"length":{len},"fin":{is_end}}}"#
    );
    Some(())
}

/// RFC 9000 §19.15; the token of resets is a secret.
fn write_new_id(rest: &mut &[u8], out: &mut String) -> Option<()> {
    let (number, before) = (integer(rest)?, integer(rest)?);
    let len = *take(rest, 1)?.first()?;
    let id = Hex(take(rest, u64::from(len))?);
    take(rest, 16)?;
    let _ = write!(
        out,
        r#"{{"frame_type":"new_connection_id","sequence_number":{number},"retire_prior_to":{before},"connection_id":"{id}"}}"#
    );
    Some(())
}

/// RFC 9000 §19.19; the words of the reason are left out.
fn write_close(kind: u64, rest: &mut &[u8], out: &mut String) -> Option<()> {
    let code = integer(rest)?;
    let space = if kind == 0x1c {
        integer(rest)?;
        "transport"
    } else {
        "application"
    };
    let len = integer(rest)?;
    take(rest, len)?;
    let _ = write!(
        out,
        r#"{{"frame_type":"connection_close","error_space":"{space}","error_code":{code}}}"#
    );
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: [(&[u8], &str); 22] = [
        (&[0, 0, 0], r#"{"frame_type":"padding","length":3}"#),
        (&[1], r#"{"frame_type":"ping"}"#),
        (
            &[2, 9, 0x7d, 0, 1, 2, 1, 3],
            r#"{"frame_type":"ack","ack_delay":124.928,"acked_ranges":[[7,9],[1,4]]}"#,
        ),
        (
            &[3, 0, 0, 0, 0, 1, 2, 3],
            r#"{"frame_type":"ack","ack_delay":0,"acked_ranges":[[0,0]]}"#,
        ),
        (
            &[4, 0, 1, 2],
            r#"{"frame_type":"reset_stream","stream_id":0,"error_code":1,"final_size":2}"#,
        ),
        (
            &[5, 4, 0x41, 0],
            r#"{"frame_type":"stop_sending","stream_id":4,"error_code":256}"#,
        ),
        (
            &[6, 7, 2, 0xff, 0xff],
            r#"{"frame_type":"crypto","offset":7,"length":2}"#,
        ),
        (&[7, 2, 0, 0], r#"{"frame_type":"new_token"}"#),
        (
            &[8, 0, 9, 9],
            r#"{"frame_type":"stream","stream_id":0,"offset":0,"length":2,"fin":false}"#,
        ),
        (
            &[0xf, 4, 5, 1, 9],
            r#"{"frame_type":"stream","stream_id":4,"offset":5,"length":1,"fin":true}"#,
        ),
        (&[0x10, 5], r#"{"frame_type":"max_data","maximum":5}"#),
        (
            &[0x11, 4, 5],
            r#"{"frame_type":"max_stream_data","stream_id":4,"maximum":5}"#,
        ),
        (
            &[0x12, 5],
            r#"{"frame_type":"max_streams","maximum":5,"stream_type":"bidirectional"}"#,
        ),
        (&[0x14, 5], r#"{"frame_type":"data_blocked","limit":5}"#),
        (
            &[0x15, 4, 5],
            r#"{"frame_type":"stream_data_blocked","stream_id":4,"limit":5}"#,
        ),
        (
            &[0x17, 5],
            r#"{"frame_type":"streams_blocked","limit":5,"stream_type":"unidirectional"}"#,
        ),
        (
            &[0x19, 5],
            r#"{"frame_type":"retire_connection_id","sequence_number":5}"#,
        ),
        (
            &[0x1b, 1, 2, 3, 4, 5, 6, 7, 8],
            r#"{"frame_type":"path_response"}"#,
        ),
        (
            &[0x1c, 1, 0, 1, b'x'],
            r#"{"frame_type":"connection_close","error_space":"transport","error_code":1}"#,
        ),
        (
            &[0x1d, 0x41, 0, 0],
            r#"{"frame_type":"connection_close","error_space":"application","error_code":256}"#,
        ),
        (&[0x1e], r#"{"frame_type":"handshake_done"}"#),
        (&[0x1f], r#"{"frame_type":"immediate_ack"}"#),
    ];

    #[test]
    fn every_kind_of_frame_is_read_to_its_end() {
        for (bytes, json) in FRAMES {
            let mut out = String::new();
            write(bytes, &mut out);
            assert_eq!(out, json);
            // Another one behind it; of data without a length there is none.
            if bytes.first() != Some(&8) {
                let mut out = String::new();
                write(&[bytes, &[1]].concat(), &mut out);
                assert_eq!(out, format!(r#"{json},{{"frame_type":"ping"}}"#));
            }
        }
    }

    #[test]
    fn new_ids_are_written_without_their_token() {
        let mut out = String::new();
        let frame = [&[0x18, 3, 1, 2, 0xab, 0xcd][..], &[7; 16]].concat();
        write(&frame, &mut out);
        let json = r#"{"frame_type":"new_connection_id","sequence_number":3,"retire_prior_to":1,"connection_id":"abcd"}"#;
        assert_eq!(out, json);
    }

    #[test]
    fn what_is_cut_or_not_known_ends_the_list() {
        for bytes in [
            &[0x06, 0, 9, 1][..],
            &[2, 0, 0, 0, 5],
            &[2, 5, 0, 9, 5],
            &[0x21, 1],
            &[0x18, 0, 0, 40],
        ] {
            let mut out = String::new();
            write(bytes, &mut out);
            let kind = bytes[0];
            let json = format!(r#"{{"frame_type":"unknown","raw_frame_type":{kind}}}"#);
            assert_eq!(out, json, "{bytes:?}");
        }
    }
}
