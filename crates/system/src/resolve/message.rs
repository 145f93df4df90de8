//! DNS messages (RFC 1035, 2782, 3596): questions out, answers in. Pure, over bytes.
//!
//! Messages are written and read by `hickory-proto`; here stands what of an answer is believed, and
//! the words for what is not:
//!
//! - its flags are those of an answer to a plain question;
//! - its question is the one that was asked, byte for byte but for the case of letters;
//! - its answers are whole and of class IN, and those that are asked for can be read.
//!
//! Records are read one by one and not as a whole message, because what nobody asked for must not
//! spoil an answer. Names in front of records are passed over, as nginx does: whatever addresses
//! the answer has are those of the name. Authorities and what follows them are not read.
//!
//! The crate's names end at the 255 bytes of RFC 1035, nginx's do not; what is longer is the
//! business of `name.rs`.
//!
//! Invariants:
//! 1. No bytes make it panic or read for ever: the pointers of a name only lead backwards, and a
//!    name is at most [`NAME_MAX`] long.
//! 2. A name that came is of visible characters without quotes, so that it can be logged.

mod name;

use std::net::IpAddr;

use hickory_proto::op::{Header, Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder, DecodeError};

/// Kind of record that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Record of the servers of a service.
    Srv,
}

/// The longest name, as text (arbitrary: four labels of 63 bytes, which nginx allows, and room).
pub(crate) const NAME_MAX: usize = 512;

/// Answers that are read of one message (arbitrary: a message of 64 KiB has no room for more).
const MOST_RECORDS: usize = 4096;

impl Kind {
    fn record_type(self) -> RecordType {
        match self {
            Kind::A => RecordType::A,
            Kind::Aaaa => RecordType::AAAA,
            Kind::Srv => RecordType::SRV,
        }
    }
}

/// A target of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The lowest is asked first.
    pub priority: u16,
    /// Share of the target.
    pub weight: u16,
    /// The port.
    pub port: u16,
    /// The host.
    pub host: String,
}

/// Content of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Code of the answer; 0 when all is well.
    pub code: u8,
    /// True if the answer did not fit and has to be asked for again over TCP.
    pub is_truncated: bool,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Targets of a service.
    pub targets: Vec<Target>,
    /// The last name that the name is an alias of.
    pub alias: Option<String>,
    /// The least time to live of all answers, in seconds.
    pub ttl: Option<u32>,
}

/// The reason why a message is no answer to the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// The message ends early.
    #[error("short DNS response")]
    Short,
    /// The message is not an answer to a plain question.
    #[error("invalid DNS response")]
    Flags,
    /// The message answers something else.
    #[error("unexpected DNS response")]
    Other,
    /// The server could not read the question.
    #[error("DNS error (1: Format error)")]
    Format,
    /// A record that does not belong there.
    #[error("invalid record in DNS response")]
    Record,
    /// A name that is none.
    #[error("invalid name in DNS response")]
    Name,
}

impl From<DecodeError> for Unfit {
    fn from(why: DecodeError) -> Self {
        match why {
            DecodeError::InsufficientBytes => Unfit::Short,
            DecodeError::DomainNameTooLong(_)
            | DecodeError::LabelBytesTooLong(_)
            | DecodeError::LabelOverlapsWithOther { .. }
            | DecodeError::PointerNotPriorToLabel { .. }
            | DecodeError::UnrecognizedLabelCode(_) => Unfit::Name,
            _ => Unfit::Record,
        }
    }
}

/// The bytes of a question; none when the name cannot be asked for.
pub(crate) fn question(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let is_askable = |label: &str| (1..64).contains(&label.len()) && label.bytes().all(is_plain);
    if name.len() > NAME_MAX || !name.split('.').all(is_askable) {
        return None;
    }
    match Name::from_labels(name.split('.').map(str::as_bytes)) {
        Ok(name) => plain_question(id, name, kind),
        Err(_) => name::insert(plain_question(id, Name::root(), kind)?, name),
    }
}

fn plain_question(id: u16, name: Name, kind: Kind) -> Option<Vec<u8>> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name, kind.record_type()));
    message.to_vec().ok()
}

/// INVARIANT 2.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'.' | b'"')
}

/// Reads the answer to a question.
pub(crate) fn answer(message: &[u8], (id, name, kind): (u16, &str, Kind)) -> Result<Answer, Unfit> {
    let mut decoder = BinDecoder::new(message);
    let Header { metadata, counts } = Header::read(&mut decoder)?;
    let is_plain_answer = metadata.message_type == MessageType::Response
        && metadata.op_code == OpCode::Query
        && !metadata.authentic_data
        && !metadata.checking_disabled;
    if !is_plain_answer {
        return Err(Unfit::Flags);
    }
    let code = metadata.response_code.low();
    if metadata.id != id {
        return Err(Unfit::Other);
    }
    if code == 1 {
        // nginx asks another server instead, and ends only when the time is over.
        return Err(Unfit::Format);
    }
    if counts.queries != 1 || code > 5 {
        return Err(Unfit::Other);
    }
    let question = question(id, name, kind).ok_or(Unfit::Other)?;
    let asked = question.get(decoder.index()..).unwrap_or_default();
    // Lengths and numbers of a question are no letters: lengths are below 64, numbers below 34.
    let came = decoder.read_slice(asked.len())?.unverified();
    if !came.eq_ignore_ascii_case(asked) {
        return Err(Unfit::Other);
    }
    let mut answer = Answer {
        code,
        is_truncated: metadata.truncation,
        ..Answer::default()
    };
    if answer.is_truncated || code != 0 {
        return Ok(answer);
    }
    for _ in 0..usize::from(counts.answers).min(MOST_RECORDS) {
        record(&mut decoder, kind, &mut answer)?;
    }
    Ok(answer)
}

/// Reads one record of an answer.
fn record(decoder: &mut BinDecoder<'_>, kind: Kind, answer: &mut Answer) -> Result<(), Unfit> {
    name::skip(decoder)?;
    let record_type = RecordType::read(decoder)?;
    let class = DNSClass::read(decoder)?;
    let ttl = decoder.read_u32()?.unverified();
    let len = decoder.read_u16()?.unverified();
    let start = u16::try_from(decoder.index()).map_err(|_| Unfit::Short)?;
    let mut data = decoder.clone(start);
    decoder.read_slice(usize::from(len))?;
    if class != DNSClass::IN {
        return Err(Unfit::Record);
    }
    // RFC 2181 §8: a time with the highest bit set is none.
    let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
    answer.ttl = Some(answer.ttl.map_or(ttl, |least| least.min(ttl)));
    match (record_type, kind) {
        (RecordType::A, Kind::A) => {
            let A(ip) = A::read(&mut data)?;
            answer.addresses.push(IpAddr::V4(ip));
        }
        (RecordType::AAAA, Kind::Aaaa) => {
            let AAAA(ip) = AAAA::read(&mut data)?;
            answer.addresses.push(IpAddr::V6(ip));
        }
        (RecordType::A | RecordType::AAAA, Kind::A | Kind::Aaaa) => return Err(Unfit::Record),
        // The crate's own `SRV` has no room for a long name.
        (RecordType::SRV, Kind::Srv) => answer.targets.push(Target {
            priority: data.read_u16()?.unverified(),
            weight: data.read_u16()?.unverified(),
            port: data.read_u16()?.unverified(),
            host: name::read(&mut data)?,
        }),
        (RecordType::CNAME, _) => answer.alias = Some(name::read(&mut data)?),
        _ => return Ok(()),
    }
    if data.index() == decoder.index() {
        Ok(())
    } else {
        Err(Unfit::Record)
    }
}

#[cfg(test)]
mod tests;
