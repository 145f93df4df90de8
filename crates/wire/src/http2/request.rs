//! Requests (RFC 9113 §8.3.1): the fields of a block become the head that all protocols share.
//!
//! ```text
//! :method :scheme :path :authority ─► "GET /a HTTP/2.0" (as logs have it)   then the fields
//! ```
//!
//! 1. A head that comes out has a method, a path, a scheme and a Host field that is well-formed, or
//!    it is a CONNECT.
//! 2. A fault of a request is the request's alone: it is answered by 400, as nginx does, and RFC
//!    9113 §8.1.1 lets a server do.
//! 3. Of several faults the one that comes first counts.
//!
//! Sources: RFC 9113 §8; RFC 8441; nginx for the order of checks, their words and their answers.

use smallvec::SmallVec;

use super::hpack::decode::{Decoded, Sink};
use super::hpack::encode::OF_CONNECTIONS;
use super::hpack::name::Class;
use super::message::BodyLength;
use crate::head::builder::OpenHead;
use crate::head::place::{Extent, NameKind};
use crate::head::{Connect, Limits, Method, Refusal, Version, content_length};
use crate::header::{Known, KnownSet};
use crate::seek;

/// The protocol that an extended CONNECT may be for.
const WEBSOCKET: &[u8] = b"websocket";

/// A choice to let a CONNECT name a protocol (RFC 8441), or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedConnect {
    /// `:protocol` is a pseudo field like any that is not known.
    Refuse,
    /// `:protocol` may stand in a CONNECT, and is `websocket`.
    Allow,
}

/// The path of an OPTIONS that is about no resource (RFC 9113 §8.3.1).
const ASTERISK: &[u8] = b"*";

/// The rules that requests are read by.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Bounds of a head, and what is let through.
    pub limits: Limits,
    /// The choice to serve CONNECT.
    pub connect: Connect,
    /// The choice to let it name a protocol.
    pub extended_connect: ExtendedConnect,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            limits: Limits::default(),
            connect: Connect::Refuse,
            extended_connect: ExtendedConnect::Refuse,
        }
    }
}

/// The end of a request's stream with its head, or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    WithHead,
    Later,
}

/// Pseudo fields that have come.
#[derive(Debug, Default)]
struct Pseudo {
    method: Option<Extent>,
    scheme: Option<Extent>,
    path: Option<Extent>,
    authority: Option<Extent>,
    protocol: Option<Extent>,
}

/// Takes the fields of a request.
#[derive(Debug)]
pub(crate) struct RequestReader<'a> {
    rules: &'a Rules,
    head: OpenHead<'a>,
    pseudo: Pseudo,
    has_line: bool,
    /// Names and values of the crumbs of the Cookie field.
    crumbs: SmallVec<[(Extent, Extent); 4]>,
    refusal: Option<Refusal>,
}

impl<'a> RequestReader<'a> {
    /// A reader of one request.
    pub(crate) fn new(rules: &'a Rules, head: OpenHead<'a>, version: Version) -> Self {
        head.parts.version = version;
        RequestReader {
            rules,
            head,
            pseudo: Pseudo::default(),
            has_line: false,
            crumbs: SmallVec::new(),
            refusal: None,
        }
    }

    /// The length of the body, or why the request is refused.
    pub(crate) fn finish(mut self, ends: Ends) -> Result<BodyLength, Refusal> {
        match self.refusal {
            Some(why) => Err(why),
            None => self.check(ends),
        }
    }

    #[inline]
    fn add(&mut self, field: Decoded<'_>) -> Result<(), Refusal> {
        let (known, kind) = match field.class {
            Class::Field(known) => (known, NameKind::Plain),
            Class::Underscored => (Known::Other, NameKind::Underscored),
            Class::Odd => (Known::Other, NameKind::Odd),
            Class::Bad => return Err(Refusal::InvalidName),
            _ => return self.add_pseudo(field),
        };
        if !field.is_good {
            return Err(Refusal::InvalidValue);
        }
        if !self.has_line {
            self.make_line()?;
        }
        if known == Known::Cookie {
            let name = self.head.push(field.name);
            let value = self.head.push(field.value);
            self.crumbs.push((name, value));
            return Ok(());
        }
        let texts = (field.name, field.value);
        self.head
            .add_field((known, kind), texts, &self.rules.limits)
    }

    fn add_pseudo(&mut self, field: Decoded<'_>) -> Result<(), Refusal> {
        if !field.is_good {
            return Err(Refusal::InvalidValue);
        }
        // RFC 9113 §8.3: before all fields.
        if self.has_line {
            return Err(Refusal::LatePseudo);
        }
        let is_extended = self.rules.extended_connect == ExtendedConnect::Allow;
        let (name, place) = match field.class {
            Class::Method => ("method", &mut self.pseudo.method),
            Class::Scheme => ("scheme", &mut self.pseudo.scheme),
            Class::Path => ("path", &mut self.pseudo.path),
            Class::Authority => ("authority", &mut self.pseudo.authority),
            Class::Protocol if is_extended => ("protocol", &mut self.pseudo.protocol),
            _ => return Err(Refusal::UnknownPseudo),
        };
        if place.is_some() {
            return Err(Refusal::DuplicatePseudo(name));
        }
        if field.value.is_empty() && field.class != Class::Authority {
            return Err(Refusal::EmptyPseudo(name));
        }
        if !is_value_of(field.class, field.value) {
            return Err(match field.class {
                Class::Method => Refusal::InvalidMethod,
                _ => Refusal::InvalidPseudo(name),
            });
        }
        *place = Some(self.head.push(field.value));
        if field.class == Class::Method {
            // Known before anything can fail: an answer to HEAD has no body.
            self.head.parts.method = Method::of(field.value);
        }
        Ok(())
    }

    /// Writes the request line, once all pseudo fields are there.
    fn make_line(&mut self) -> Result<(), Refusal> {
        let pseudo = &self.pseudo;
        let method = pseudo.method.ok_or(Refusal::MissingPseudo("method"))?;
        let target = if self.head.parts.method == Method::Connect {
            self.connect_target()?
        } else if self.pseudo.protocol.is_some() {
            // RFC 8441 §4: only with CONNECT.
            return Err(Refusal::UnknownPseudo);
        } else {
            pseudo.scheme.ok_or(Refusal::MissingPseudo("scheme"))?;
            pseudo.path.ok_or(Refusal::MissingPseudo("path"))?
        };
        let is_of_server = self.head.text(target) == ASTERISK;
        if is_of_server && self.head.parts.method != Method::Options {
            return Err(Refusal::InvalidPseudo("path"));
        }
        let start = self.head.len();
        let method = self.head.push_again(method);
        self.head.push(b" ");
        let target = self.head.push_again(target);
        self.head.push(b" ");
        let protocol = self.head.push(self.head.parts.version.as_str().as_bytes());
        let line = self.head.extent(start);
        let (scheme, connect_protocol) = (self.pseudo.scheme, self.pseudo.protocol);
        let parts = &mut *self.head.parts;
        parts.line = line;
        parts.method_bytes = method;
        parts.target = target;
        parts.protocol = protocol;
        parts.scheme = scheme.unwrap_or_default();
        parts.connect_protocol = connect_protocol.unwrap_or_default();
        if is_of_server {
            // It has no path to be looked up by.
        } else if self.pseudo.path.is_some() {
            parts.uri = target;
        } else {
            parts.authority = target;
        }
        self.has_line = true;
        Ok(())
    }

    /// The target of a CONNECT: a path if it names a protocol (RFC 8441 §4), else an authority
    /// (RFC 9113 §8.5).
    fn connect_target(&self) -> Result<Extent, Refusal> {
        let pseudo = &self.pseudo;
        let authority = pseudo.authority.ok_or(Refusal::NoAuthority);
        if pseudo.protocol.is_some() {
            pseudo.scheme.ok_or(Refusal::MissingPseudo("scheme"))?;
            return pseudo.path.ok_or(Refusal::MissingPseudo("path"));
        }
        match (pseudo.path, self.rules.connect) {
            // It is answered by 405, whatever its shape is.
            (Some(path), Connect::Refuse) => Ok(path),
            (Some(_), Connect::Allow) => Err(Refusal::InvalidPseudo("path")),
            (None, Connect::Allow) if pseudo.scheme.is_some() => {
                Err(Refusal::InvalidPseudo("scheme"))
            }
            (None, _) => authority,
        }
    }

    /// The checks that need the whole head, in nginx's order, and the length of the body.
    fn check(&mut self, ends: Ends) -> Result<BodyLength, Refusal> {
        if !self.has_line {
            self.make_line()?;
        }
        self.add_cookie()?;
        self.check_connection_fields()?;
        self.add_host()?;
        let body = self.body_length(ends)?;
        let parts = &*self.head.parts;
        match parts.method {
            Method::Connect if self.head.text(parts.connect_protocol) == WEBSOCKET => {}
            Method::Connect if !parts.connect_protocol.is_empty() => {
                return Err(Refusal::UnknownProtocol);
            }
            Method::Connect if self.rules.connect == Connect::Refuse => {
                return Err(Refusal::ConnectNotAllowed);
            }
            Method::Trace => return Err(Refusal::TraceNotAllowed),
            Method::Options if self.head.text(parts.target) == ASTERISK => {
                return Err(Refusal::OptionsOfServer);
            }
            _ => {}
        }
        Ok(body)
    }

    /// RFC 9113 §8.2.3: crumbs are one field, joined by a semicolon and a space.
    fn add_cookie(&mut self) -> Result<(), Refusal> {
        let places = match self.crumbs.as_slice() {
            [] => return Ok(()),
            [crumb] => *crumb,
            _ => self.join_crumbs(),
        };
        self.head
            .add_placed(Known::Cookie, places, &self.rules.limits)
    }

    /// Writes the field of several crumbs; gives the places of its name and its value.
    fn join_crumbs(&mut self) -> (Extent, Extent) {
        let name = self.head.push(b"cookie");
        let start = self.head.len();
        for (index, (_, crumb)) in std::mem::take(&mut self.crumbs).into_iter().enumerate() {
            if index > 0 {
                self.head.push(b"; ");
            }
            self.head.push_again(crumb);
        }
        (name, self.head.extent(start))
    }

    /// RFC 9113 §8.2.2: no fields of HTTP/1 connections, and no TE but `trailers`.
    fn check_connection_fields(&self) -> Result<(), Refusal> {
        const WATCHED: KnownSet = OF_CONNECTIONS.or(KnownSet::of(&[Known::Te]));
        let parts = &*self.head.parts;
        if parts.present.and(WATCHED).is_empty() {
            return Ok(());
        }
        let mut has_te = false;
        for span in &parts.spans {
            if OF_CONNECTIONS.contains(span.known) {
                return Err(Refusal::ConnectionField(span.known));
            }
            if span.known == Known::Te {
                let value = self.head.value(span);
                if has_te || !value.eq_ignore_ascii_case(b"trailers") {
                    return Err(Refusal::InvalidTe);
                }
                has_te = true;
            }
        }
        Ok(())
    }

    /// RFC 9113 §8.3.1: `:authority` is the host; nginx: a Host field beside it is the same.
    fn add_host(&mut self) -> Result<(), Refusal> {
        let host = self
            .head
            .parts
            .spans
            .iter()
            .find(|span| span.known == Known::Host);
        match (self.pseudo.authority, host) {
            (None, None) => Err(Refusal::NoAuthority),
            (None, Some(_)) => Ok(()),
            (Some(authority), Some(host)) => {
                if self.head.value(host) == self.head.text(authority) {
                    Ok(())
                } else {
                    Err(Refusal::TwoHosts)
                }
            }
            (Some(authority), None) => {
                let name = self.head.push(b"host");
                // nginx does not count it.
                let limits = Limits {
                    fields: usize::MAX,
                    ..self.rules.limits
                };
                self.head
                    .add_placed(Known::Host, (name, authority), &limits)
                    .map_err(|_| Refusal::InvalidPseudo("authority"))
            }
        }
    }

    /// RFC 9113 §8.1.1: a length is that of the bytes to come.
    fn body_length(&self, ends: Ends) -> Result<BodyLength, Refusal> {
        let spans = &self.head.parts.spans;
        let length = spans.iter().find(|span| span.known == Known::ContentLength);
        let Some(length) = length else {
            return Ok(match ends {
                Ends::WithHead => BodyLength::None,
                Ends::Later => BodyLength::Unknown,
            });
        };
        match (content_length(self.head.value(length)), ends) {
            (None, _) => Err(Refusal::InvalidLength),
            (Some(0), Ends::WithHead) => Ok(BodyLength::None),
            (Some(_), Ends::WithHead) => Err(Refusal::PrematureEnd),
            (Some(length), Ends::Later) => Ok(BodyLength::Known(length)),
        }
    }
}

impl Sink for RequestReader<'_> {
    #[inline]
    fn take(&mut self, field: Decoded<'_>) {
        // INVARIANT 3.
        if self.refusal.is_none()
            && let Err(why) = self.add(field)
        {
            self.refusal = Some(why);
        }
    }
}

/// True if a pseudo field may have a value, as far as its bytes say.
fn is_value_of(class: Class, value: &[u8]) -> bool {
    match class {
        Class::Method => value
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'-')),
        // RFC 9113 §8.3.1: path and query. HTTP/1 bears a fragment behind them, as nginx does.
        Class::Path if value == ASTERISK => true,
        Class::Path => {
            value.first() == Some(&b'/')
                && seek::end_of_target(value) == value.len()
                && memchr::memchr(b'#', value).is_none()
        }
        Class::Scheme => {
            value.first().is_some_and(u8::is_ascii_alphabetic)
                && value
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests;
