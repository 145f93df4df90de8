//! DNS messages (RFC 1035, 2782, 3596): questions out, answers in. Pure, over bytes.
//!
//! A message is, all numbers in network order:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 2 | id | of the question, repeated by the answer |
//! | 2 | 2 | flags | 0x8000 answer, 0x7800 kind, 0x0200 truncated, 0x0100 recursion, 0x000f code |
//! | 4 | 2 × 4 | counts | questions, answers, authorities, more |
//! | 12 | … | question | name, type, class |
//! | … | … | records | name, type, class, time to live (4), length (2), data |
//!
//! A name is labels (a length below 64, then as many bytes) up to an empty one, or to a pointer
//! (0xc0 and an offset of 14 bits) to more of it.
//!
//! An answer is believed if and only if its flags are those of an answer to a plain question, it
//! has one question, which is the one that was asked, and its answers are whole and of class IN.
//! Names in front of records are passed over, as nginx does: whatever addresses the answer has are
//! those of the name. Authorities and what follows them are not read.
//!
//! No crate is used for this: those that were looked at refuse names over 255 bytes, which nginx
//! takes, or bring a hundred others along.
//!
//! Invariants:
//! 1. No bytes make it panic, and a message costs no more than its length times [`MOST_POINTERS`].
//! 2. A name that came is of visible characters without quotes, so that it can be logged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Where a service is.
    Srv,
}

const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;
const TYPE_SRV: u16 = 33;
const CLASS_IN: u16 = 1;

/// Pointers that one name may follow (nginx's number).
const MOST_POINTERS: usize = 128;

/// The longest name, as text (arbitrary: four labels of 63 bytes, which nginx allows, and room).
pub const NAME_MAX: usize = 512;

/// Answers that are read of one message (arbitrary: a message of 64 KiB has no room for more).
const MOST_RECORDS: usize = 4096;

impl Kind {
    fn number(self) -> u16 {
        match self {
            Kind::A => TYPE_A,
            Kind::Aaaa => TYPE_AAAA,
            Kind::Srv => TYPE_SRV,
        }
    }
}

/// A target of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The lowest is asked first.
    pub priority: u16,
    /// Its share.
    pub weight: u16,
    /// The port.
    pub port: u16,
    /// The host.
    pub host: String,
}

/// What an answer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its code; 0 when all is well.
    pub code: u8,
    /// It did not fit and has to be asked for again over TCP.
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

/// Why a message is no answer to the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It ends early.
    #[error("short DNS response")]
    Short,
    /// It is not an answer to a plain question.
    #[error("invalid DNS response")]
    Flags,
    /// It answers something else.
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

/// The bytes of a question; none when the name cannot be asked for.
pub fn question(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    if name.is_empty() || name.len() > NAME_MAX {
        return None;
    }
    let mut message = Vec::with_capacity(name.len() + 18);
    message.extend(id.to_be_bytes());
    // Recursion is wanted; one question, no answers.
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        let len = u8::try_from(label.len())
            .ok()
            .filter(|len| (1..64).contains(len))?;
        if !label.bytes().all(is_plain) {
            return None;
        }
        message.push(len);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(kind.number().to_be_bytes());
    message.extend(CLASS_IN.to_be_bytes());
    Some(message)
}

/// INVARIANT 2.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'.' | b'"')
}

/// Reads the answer to a question.
pub fn answer(message: &[u8], (id, name, kind): (u16, &str, Kind)) -> Result<Answer, Unfit> {
    let mut reader = Reader { message, at: 0 };
    let came_id = reader.number()?;
    let flags = reader.number()?;
    let questions = reader.number()?;
    let answers = reader.number()?;
    reader.skip(4)?;
    if flags & 0xf870 != 0x8000 {
        return Err(Unfit::Flags);
    }
    let code = (flags & 0x0f) as u8;
    if came_id != id {
        return Err(Unfit::Other);
    }
    if code == 1 {
        // nginx asks another server instead, and ends only when the time is over.
        return Err(Unfit::Format);
    }
    if questions != 1 || code > 5 {
        return Err(Unfit::Other);
    }
    let asked = reader.name()?;
    let number = reader.number()?;
    let class = reader.number()?;
    if !asked.eq_ignore_ascii_case(name) || number != kind.number() || class != CLASS_IN {
        return Err(Unfit::Other);
    }
    let is_truncated = flags & 0x0200 != 0;
    let mut answer = Answer {
        code,
        is_truncated,
        ..Answer::default()
    };
    if is_truncated || code != 0 {
        return Ok(answer);
    }
    for _ in 0..usize::from(answers).min(MOST_RECORDS) {
        reader.record(kind, &mut answer)?;
    }
    Ok(answer)
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Unfit> {
        let end = self.at.checked_add(len).ok_or(Unfit::Short)?;
        let bytes = self.message.get(self.at..end).ok_or(Unfit::Short)?;
        self.at = end;
        Ok(bytes)
    }

    fn skip(&mut self, len: usize) -> Result<(), Unfit> {
        self.take(len).map(|_| ())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unfit> {
        self.take(N)?.try_into().map_err(|_| Unfit::Short)
    }

    fn number(&mut self) -> Result<u16, Unfit> {
        self.array().map(u16::from_be_bytes)
    }

    /// Passes over a name.
    fn skip_name(&mut self) -> Result<(), Unfit> {
        loop {
            let [len] = self.array()?;
            match len {
                0 => return Ok(()),
                pointer if pointer & 0xc0 != 0 => return self.skip(1),
                len => self.skip(usize::from(len))?,
            }
        }
    }

    /// Reads a name as text, without the dot at its end.
    fn name(&mut self) -> Result<String, Unfit> {
        let mut name = String::new();
        let mut pointers = 0;
        // Where reading goes on after the first pointer.
        let mut after = None;
        loop {
            let [len] = self.array()?;
            if len == 0 {
                break;
            }
            if len & 0xc0 != 0 {
                let [low] = self.array()?;
                after.get_or_insert(self.at);
                self.at = (usize::from(len & 0x3f) << 8) | usize::from(low);
                pointers += 1;
                if pointers > MOST_POINTERS {
                    return Err(Unfit::Name);
                }
                continue;
            }
            let label = self.take(usize::from(len))?;
            if !label.iter().copied().all(is_plain) {
                return Err(Unfit::Name);
            }
            if !name.is_empty() {
                name.push('.');
            }
            name.extend(
                label
                    .iter()
                    .map(|byte| char::from(byte.to_ascii_lowercase())),
            );
            if name.len() > NAME_MAX {
                return Err(Unfit::Name);
            }
        }
        if let Some(after) = after {
            self.at = after;
        }
        Ok(name)
    }

    fn record(&mut self, kind: Kind, answer: &mut Answer) -> Result<(), Unfit> {
        self.skip_name()?;
        let number = self.number()?;
        let class = self.number()?;
        let ttl = u32::from_be_bytes(self.array()?);
        let len = usize::from(self.number()?);
        let end = self
            .at
            .checked_add(len)
            .filter(|end| *end <= self.message.len());
        let end = end.ok_or(Unfit::Short)?;
        if class != CLASS_IN {
            return Err(Unfit::Record);
        }
        // RFC 2181 §8: a time with the highest bit set is none.
        let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
        answer.ttl = Some(answer.ttl.map_or(ttl, |least| least.min(ttl)));
        match (number, kind) {
            (TYPE_A, Kind::A) if len == 4 => {
                let octets: [u8; 4] = self.array()?;
                answer.addresses.push(IpAddr::V4(Ipv4Addr::from(octets)));
            }
            (TYPE_AAAA, Kind::Aaaa) if len == 16 => {
                let octets: [u8; 16] = self.array()?;
                answer.addresses.push(IpAddr::V6(Ipv6Addr::from(octets)));
            }
            (TYPE_A | TYPE_AAAA, Kind::A | Kind::Aaaa) => return Err(Unfit::Record),
            (TYPE_SRV, Kind::Srv) => answer.targets.push(Target {
                priority: self.number()?,
                weight: self.number()?,
                port: self.number()?,
                host: self.name()?,
            }),
            (TYPE_CNAME, _) => answer.alias = Some(self.name()?),
            _ => {}
        }
        self.at = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
