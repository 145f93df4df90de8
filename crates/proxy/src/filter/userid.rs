//! `userid` and its directives: a cookie that tells clients apart, and `$uid_got`, `$uid_set`,
//! `$uid_reset`.
//!
//! An id has sixteen bytes, in the cookie as Base64 and in the variables in hexadecimal digits:
//!
//! | bytes | of the second version (`on`) | of the first (`v1`) |
//! |---|---|---|
//! | 0..4 | `userid_service`, or the server's IPv4 address | `userid_service`, or 0 |
//! | 4..8 | seconds since 1970 | the same |
//! | 8..12 | when the process started, mixed with its number | the same |
//! | 12..16 | a number that grows with each id | the same |
//!
//! The numbers of the second version have their most significant byte first, those of the first the
//! order of the machine, as the variables have them. With `userid_mark` the first padding character
//! of the cookie is another; a cookie with the wrong one is set again with the same id.
//!
//! Invariants:
//! 1. What the answer says of the id is decided once for a request, by whoever asks first.
//! 2. The last four bytes of an id are not all zero.
//!
//! Sources: nginx ngx_http_userid_filter_module.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::{ArgError, Args, Flags, FromArgs, OffOr};
use millpond_system::clock;
use millpond_system::cookie_time::cookie_time;
use millpond_system::log::error::Level;
use millpond_wire::base64;
use millpond_wire::header::{Field, Known};

use crate::filter::settings::FilterSettings;
use crate::log::request_error;
use crate::request::Request;
use crate::var::request::cookie;
use crate::var::{self, ComposedVariable, Variable};
use millpond_exchange::response::Response;

/// Characters of an id in Base64, without padding.
const TEXT_LEN: usize = 22;
/// The latest time that old clients understand, as nginx has it: 2037-12-31T23:55:55Z.
const FOREVER: i64 = 2_145_916_555;
/// Numbers of ids differ by so much, and begin here (nginx's).
const STEP: u32 = 0x100;
const FIRST_V1: u32 = 1;
const FIRST_V2: u32 = 0x0303_0302;

/// Settings of the cookies by which clients are told apart.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct UserIdPolicy {
    /// Gives clients without an id a cookie with one: ids of the second version (`on`) or of the
    /// first; with `log` ids are only read, for `$uid_got`.
    #[directive(name = "userid", default = "off")]
    pub mode: UserIdMode,
    /// A number that tells servers apart which give ids; without one, ids of the second version
    /// have the address that the client came to.
    #[directive(name = "userid_service")]
    pub service: Option<u32>,
    /// The name of the cookie.
    #[directive(name = "userid_name", default = "uid")]
    pub name: String,
    /// For which domain the cookie is; `none` for the server that gave it.
    #[directive(name = "userid_domain", default = "none", syntax = "name | none")]
    pub domain: String,
    /// For which paths the cookie is.
    #[directive(name = "userid_path", default = "/")]
    pub path: String,
    /// Time for which the cookie is kept: a time, `max` for until the end of 2037, or with `off` as
    /// long as the browser runs.
    #[directive(name = "userid_expires", default = "off")]
    pub expires: OffOr<UserIdExpires>,
    /// Attributes of the cookie.
    #[directive(name = "userid_flags", default = "off", union)]
    pub flags: Flags<CookieFlag>,
    /// The value of a P3P field that goes with the cookie; `none` for no such field.
    #[directive(name = "userid_p3p", default = "none", syntax = "string | none")]
    pub p3p: String,
    /// A letter, a digit or `=` that cookies have in place of the first padding character; those
    /// that have another are set again, with the same id.
    #[directive(name = "userid_mark", default = "off")]
    pub mark: OffOr<Mark>,
}

/// Treatment of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum UserIdMode {
    /// Nothing.
    #[word("off")]
    Off,
    /// Ids are read.
    #[word("log")]
    Log,
    /// Ids are read, and given in the first version.
    #[word("v1")]
    V1,
    /// Ids are read, and given in the second version.
    #[word("on")]
    On,
}

/// An attribute of the cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum CookieFlag {
    /// None.
    #[word("off")]
    Off,
    /// Over TLS only.
    #[word("secure")]
    Secure,
    /// Not for scripts.
    #[word("httponly")]
    HttpOnly,
    /// Not from other sites.
    #[word("samesite=strict")]
    Strict,
    /// From other sites by links only.
    #[word("samesite=lax")]
    Lax,
    /// From anywhere.
    #[word("samesite=none")]
    Anywhere,
}

/// Time for which a cookie is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserIdExpires {
    /// The longest time that can be said.
    Max,
    /// Time until then.
    After(Duration),
}

impl FromArgs for UserIdExpires {
    const SYNTAX: &'static str = "max | time";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        match args.one()?.text.as_str() {
            "max" => Ok(UserIdExpires::Max),
            _ => args.word(0).map(UserIdExpires::After),
        }
    }
}

/// Character that marks a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u8);

impl FromArgs for Mark {
    const SYNTAX: &'static str = "letter | digit | =";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        match args.one()?.text.as_bytes() {
            [byte] if byte.is_ascii_alphanumeric() || *byte == b'=' => Ok(Mark(*byte)),
            _ => {
                let words = "value must be \"off\" or a single letter, digit or \"=\"";
                let message = format!("\"{}\" directive {words}", args.name.text);
                Err(ArgError::value(0, message))
            }
        }
    }
}

/// An id.
type Id = [u8; 16];

/// Id of a client, as far as it is known.
#[derive(Clone, Debug)]
pub struct UserId {
    brought: Option<Brought>,
    /// None as long as nothing was decided.
    given: Option<Given>,
}

/// An id that a client has already.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Brought {
    id: Id,
    /// Id as its cookie has it, without padding.
    text: Bytes,
    /// True when the cookie is marked as the settings want it.
    is_marked: bool,
}

/// Cookie that the answer sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Nothing,
    /// The client's own, with another mark.
    Marked,
    New(Id),
}

/// The variable that a configuration may set.
pub const VARIABLES: &[Variable] = &[Variable {
    name: RESET,
    doc: "When set to anything but an empty string or `0`, the client gets a new id although it has \
          one; with `log`, that is logged.",
    write: |_, _| true,
}];

const RESET: &str = "uid_reset";

/// The variables that tell of ids.
pub const COMPOSED: &[ComposedVariable] = &[
    ComposedVariable {
        name: "uid_got",
        doc: "Name of the cookie and id that the client brought, see `userid`.",
        write: |req, out| {
            let location = Arc::clone(&req.location);
            let policy = &location.settings.of::<FilterSettings>().userid;
            if policy.mode == UserIdMode::Off {
                return false;
            }
            let brought = state(req, policy).brought;
            write_id(policy, brought.map(|it| it.id), out)
        },
    },
    ComposedVariable {
        name: "uid_set",
        doc: "Name of the cookie and id that the answer gives to the client, see `userid`.",
        write: |req, out| {
            let location = Arc::clone(&req.location);
            let policy = &location.settings.of::<FilterSettings>().userid;
            let id = match decide(req, policy) {
                Given::Nothing => None,
                Given::New(id) => Some(id),
                Given::Marked => state(req, policy).brought.map(|it| it.id),
            };
            write_id(policy, id, out)
        },
    },
];

fn write_id(policy: &UserIdPolicy, id: Option<Id>, out: &mut Vec<u8>) -> bool {
    if let Some(id) = id {
        out.extend_from_slice(format!("{}={}", policy.name, digits(&id)).as_bytes());
    }
    id.is_some()
}

/// An id as nginx writes it: four numbers in the order of the machine.
fn digits(id: &Id) -> String {
    let (words, _) = id.as_chunks::<4>();
    let words = words.iter().map(|word| u32::from_ne_bytes(*word));
    words.map(|word| format!("{word:08X}")).collect()
}

/// Gives the client a cookie, if it needs one.
pub(crate) fn run(req: &mut Request, response: &mut Response) {
    if !req.location.filters.marks_clients {
        return;
    }
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<FilterSettings>().userid;
    let Some(text) = cookie_text(req, policy) else {
        return;
    };
    let cookie = policy.cookie(&text, req.now_s());
    response.fields.push_known(Known::SetCookie, cookie);
    if policy.p3p != "none" {
        let value = Bytes::copy_from_slice(policy.p3p.as_bytes());
        let field = Field::new(Bytes::from_static(b"P3P"), value);
        response.fields.push(field);
    }
}

/// The value of the cookie, if there is to be one.
fn cookie_text(req: &mut Request, policy: &UserIdPolicy) -> Option<Vec<u8>> {
    let mut text = match decide(req, policy) {
        Given::Nothing => return None,
        Given::New(id) => base64::encode(&id).into_bytes(),
        Given::Marked => {
            let brought = state(req, policy).brought?;
            [&brought.text[..], b"=="].concat()
        }
    };
    if let (OffOr::On(Mark(mark)), Some(padding)) = (policy.mark, text.get_mut(TEXT_LEN)) {
        *padding = mark;
    }
    Some(text)
}

impl UserIdPolicy {
    /// The Set-Cookie field with a value.
    fn cookie(&self, text: &[u8], now: i64) -> Vec<u8> {
        let mut cookie = Vec::with_capacity(128);
        cookie.extend_from_slice(self.name.as_bytes());
        cookie.push(b'=');
        cookie.extend_from_slice(text);
        let end = self.expires.on().map(|expires| match expires {
            UserIdExpires::Max => FOREVER,
            // Durations of the configuration are far below the end of time.
            UserIdExpires::After(time) => now.saturating_add(time.as_secs() as i64),
        });
        if let Some(end) = end {
            cookie.extend_from_slice(format!("; expires={}", cookie_time(end)).as_bytes());
        }
        if self.domain != "none" {
            cookie.extend_from_slice(format!("; domain={}", self.domain).as_bytes());
        }
        cookie.extend_from_slice(format!("; path={}", self.path).as_bytes());
        let flags = self.flags.iter().filter(|flag| *flag != CookieFlag::Off);
        for flag in flags {
            cookie.extend_from_slice(b"; ");
            cookie.extend_from_slice(millpond_conf::Words::word(flag).as_bytes());
        }
        cookie
    }
}

/// Known state of the client's id; the cookie is looked for with the first use.
fn state(req: &mut Request, policy: &UserIdPolicy) -> UserId {
    if let Some(known) = req.notes.get::<UserId>() {
        return known.clone();
    }
    let found = UserId {
        brought: read(req, policy),
        given: None,
    };
    req.notes.put(found.clone());
    found
}

/// The id in the client's cookie.
fn read(req: &Request, policy: &UserIdPolicy) -> Option<Brought> {
    let mut lines = req.head.get_all(Known::Cookie);
    let (line, text) =
        lines.find_map(|line| Some((line, cookie(line, policy.name.as_bytes())?)))?;
    match parse(text, policy.mark) {
        Ok(brought) => brought,
        Err(why) => {
            let line = String::from_utf8_lossy(line);
            let message = format_args!("client sent {why} userid cookie \"{line}\"");
            request_error::write(req, Level::Error, message);
            None
        }
    }
}

/// The id of a cookie's value; none for one that is no id of anybody (INVARIANT 2).
fn parse(text: &[u8], mark: OffOr<Mark>) -> Result<Option<Brought>, &'static str> {
    let (digits, padding) = text.split_at_checked(TEXT_LEN).ok_or("too short")?;
    let decoded = base64::decode(digits).ok_or("invalid")?;
    let Ok(id) = Id::try_from(decoded) else {
        return Ok(None);
    };
    let brought = Brought {
        id,
        text: Bytes::copy_from_slice(digits),
        is_marked: match mark {
            OffOr::Off => true,
            OffOr::On(Mark(mark)) => padding.starts_with(&[mark, b'=']),
        },
    };
    Ok(Some(brought).filter(|it| !it.id.ends_with(&[0; 4])))
}

/// Decides which id the answer gives (INVARIANT 1).
fn decide(req: &mut Request, policy: &UserIdPolicy) -> Given {
    if matches!(policy.mode, UserIdMode::Off | UserIdMode::Log) {
        return Given::Nothing;
    }
    let known = state(req, policy);
    if let Some(given) = known.given {
        return given;
    }
    let given = match &known.brought {
        Some(brought) if !is_reset(req, policy, brought) => {
            if brought.is_marked {
                Given::Nothing
            } else {
                Given::Marked
            }
        }
        _ => Given::New(make(req, policy)),
    };
    req.notes.put(UserId {
        given: Some(given),
        ..known
    });
    given
}

/// True if the configuration wants another id for the client.
fn is_reset(req: &mut Request, policy: &UserIdPolicy, brought: &Brought) -> bool {
    let mut value = Vec::new();
    var::write_named(req, RESET, &mut value);
    if matches!(&value[..], b"" | b"0") {
        return false;
    }
    if value == b"log" {
        let (name, id) = (&policy.name, digits(&brought.id));
        let message = format_args!("userid cookie \"{name}={id}\" was reset");
        request_error::write(req, Level::Notice, message);
    }
    true
}

/// A new id.
fn make(req: &Request, policy: &UserIdPolicy) -> Id {
    static LAST_V1: AtomicU32 = AtomicU32::new(FIRST_V1);
    static LAST_V2: AtomicU32 = AtomicU32::new(FIRST_V2);
    // nginx: microseconds of the start in units of 20, which fit into sixteen bits.
    static START: LazyLock<u32> = LazyLock::new(|| {
        let fraction = clock::now_us().rem_euclid(1_000_000) as u32 / 20;
        fraction << 16 | std::process::id()
    });
    // nginx: only the low 32 bits of the time go into an id.
    let now = req.now_s() as u32;
    if policy.mode == UserIdMode::V1 {
        let number = LAST_V1.fetch_add(STEP, Ordering::Relaxed);
        let words = [policy.service.unwrap_or(0), now, *START, number];
        return id_of(words.map(u32::to_ne_bytes));
    }
    let number = LAST_V2
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            Some(last.checked_add(STEP).unwrap_or(FIRST_V2))
        })
        .unwrap_or(FIRST_V2);
    let service = match policy.service {
        Some(service) => service.to_be_bytes(),
        None => address(req.client.connection.local.ip()),
    };
    let [now, start, number] = [now, *START, number].map(u32::to_be_bytes);
    id_of([service, now, start, number])
}

/// nginx: the last four bytes of an address, and zeros for a unix socket.
fn address(ip: Option<IpAddr>) -> [u8; 4] {
    match ip {
        Some(IpAddr::V4(ip)) => ip.octets(),
        Some(IpAddr::V6(ip)) => {
            let [.., a, b, c, d] = ip.octets();
            [a, b, c, d]
        }
        None => [0; 4],
    }
}

fn id_of(words: [[u8; 4]; 4]) -> Id {
    let mut id = Id::default();
    for (place, byte) in id.iter_mut().zip(words.as_flattened()) {
        *place = *byte;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_read_without_their_padding() {
        let id: Id = *b"\x7f\0\0\x01abcdefgh\x03\x03\x03\x02";
        let text = base64::encode(&id);
        let (digits, _) = text.split_at(TEXT_LEN);
        let ids = |text: &str| parse(text.as_bytes(), OffOr::Off).map(|it| it.map(|it| it.id));
        assert_eq!(ids(&text), Ok(Some(id)));
        assert_eq!(ids(&format!("{digits}garbage")), Ok(Some(id)));
        assert_eq!(ids(&digits[1..]), Err("too short"));
        assert_eq!(ids(&text.replace('A', "*")), Err("invalid"));
        // INVARIANT 2.
        assert_eq!(ids(&"A".repeat(22)), Ok(None));
    }

    #[test]
    fn another_mark_is_seen() {
        let digits = "fwAAAWFiY2RlZmdoAwMDAg";
        for (padding, mark, expected) in [
            ("==", OffOr::Off, true),
            ("x=", OffOr::Off, true),
            ("==", OffOr::On(Mark(b'=')), true),
            ("x=", OffOr::On(Mark(b'x')), true),
            ("==", OffOr::On(Mark(b'x')), false),
            ("x", OffOr::On(Mark(b'x')), false),
            ("", OffOr::On(Mark(b'x')), false),
        ] {
            let brought = parse(format!("{digits}{padding}").as_bytes(), mark);
            let is_marked = brought.unwrap().unwrap().is_marked;
            assert_eq!(is_marked, expected, "{padding} {mark:?}");
        }
    }

    #[test]
    fn ids_are_shown_as_numbers_of_the_machine() {
        let id = id_of([1u32, 2, 0xabcd, 0x0303_0302].map(u32::to_ne_bytes));
        assert_eq!(digits(&id), "00000001000000020000ABCD03030302");
        assert_eq!(address(None), [0; 4]);
        assert_eq!(address("::1:2".parse().ok()), [0, 1, 0, 2]);
        assert_eq!(address("1.2.3.4".parse().ok()), [1, 2, 3, 4]);
    }
}
