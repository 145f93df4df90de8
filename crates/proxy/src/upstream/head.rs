//! The head of an upstream's answer, whatever its protocol.
//!
//! ```text
//! Http     ── interim answers are told ──► head
//! FastCgi  ── records: errors are told, STDOUT is put together ──► head, and the body in records
//! Cgi      ── a status line, or none ──► head
//! Keyed    ── a line about a key ──► head, and the body with a trailer
//! ```
//!
//! 1. No more than the limit of a head is kept, however it comes.

use bytes::{Bytes, BytesMut};
use millpond_wire::fastcgi::answer::{Expected, StdoutBody};
use millpond_wire::fastcgi::record::{Event, RecordDecoder};
use millpond_wire::header::{Fields, Known, KnownSet};
use millpond_wire::http1::response::cgi::CgiParser;
use millpond_wire::http1::response::{Fault, Framing, Progress, ResponseHead, ResponseParser};
use millpond_wire::http1::{Method, content_length};
use millpond_wire::memcached::ValueBody;

use super::http2::body::StreamBody;
use super::memcached::KeyedHead;
use crate::request::Request;

/// Reads one head.
pub(crate) enum HeadReader {
    /// A head of HTTP.
    Http {
        /// The parser.
        parser: ResponseParser,
        /// Interim answers that may still come.
        interim_left: u32,
        /// Meaning of a 101 to this request.
        switching: Switching,
    },
    /// A head of FastCGI.
    FastCgi(Box<StdoutHead>),
    /// A head of SCGI or uwsgi: with a status line until there is none.
    Cgi(Option<Box<ResponseParser>>, Box<CgiParser>),
    /// A head of memcached.
    Keyed(Box<KeyedHead>),
}

/// The head of a FastCGI answer while it comes.
pub(crate) struct StdoutHead {
    decoder: RecordDecoder,
    parser: CgiParser,
    stdout: BytesMut,
}

/// Meaning of a 101, which is an answer only if the client asked to switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switching {
    /// The client asked for another protocol, and was passed on.
    Asked,
    /// The client did not ask to switch.
    Unasked,
}

impl Switching {
    /// nginx: a client that sent Upgrade can be given another protocol; a request that this server
    /// makes for itself cannot.
    pub(super) fn of(req: &Request) -> Self {
        if req.field(Known::Upgrade).is_some() && req.is_clients_own() {
            Switching::Asked
        } else {
            Switching::Unasked
        }
    }
}

/// Result of a look at the inbox.
pub enum HeadStep {
    /// More bytes are needed.
    NeedMore,
    /// Text that the application wrote to its error stream.
    Stderr(Bytes),
    /// An interim answer; more is to come.
    Interim(ResponseHead),
    /// The head, and how the body comes.
    Done(ResponseHead, Coding),
    /// The answer cannot be used; the text is for the log.
    Refuse(String),
}

/// Coding in which the body comes.
pub enum Coding {
    /// The head says how the body comes.
    ByHead,
    /// In records.
    Records(Box<StdoutBody>),
    /// The body comes as a value of memcached.
    Value(ValueBody),
    /// In a stream of HTTP/2.
    Stream(Box<StreamBody>),
    /// There is none: the connection is the client's from here on.
    Tunnel,
}

/// Length and framing of a body.
pub enum BodyPlan {
    /// HTTP frames the body.
    Framed(Framing),
    /// In records.
    Records(Box<StdoutBody>),
    /// The body comes as a value of memcached.
    Value(ValueBody),
    /// In a stream of HTTP/2, with the length that it has.
    Stream(Box<StreamBody>, Option<u64>),
}

impl HeadReader {
    /// Goes on with what is in the inbox; `max` is the longest head.
    pub(crate) fn read(&mut self, inbox: &mut BytesMut, max: usize) -> HeadStep {
        match self {
            HeadReader::Http {
                parser,
                interim_left,
                switching,
            } => read_http((parser, interim_left), *switching, inbox, max),
            HeadReader::FastCgi(head) => head.read(inbox, max),
            HeadReader::Keyed(head) => head.read(inbox, max),
            HeadReader::Cgi(with_status, parser) => {
                if let Some(http) = with_status {
                    match http.parse(inbox, max) {
                        Progress::NotHttp => *with_status = None,
                        Progress::Done(head) if head.status < 200 => {
                            return HeadStep::Refuse(Fault::InvalidStatus.to_string());
                        }
                        other => return step(other),
                    }
                }
                step(parser.parse(inbox, max))
            }
        }
    }
}

fn step(progress: Progress) -> HeadStep {
    match progress {
        Progress::NeedMore => HeadStep::NeedMore,
        Progress::Done(head) => HeadStep::Done(head, Coding::ByHead),
        Progress::Refuse(fault) => HeadStep::Refuse(fault.to_string()),
        Progress::NotHttp => HeadStep::Refuse("upstream sent no valid HTTP/1.0 header".to_string()),
    }
}

fn read_http(
    (parser, interim_left): (&mut ResponseParser, &mut u32),
    switching: Switching,
    inbox: &mut BytesMut,
    max: usize,
) -> HeadStep {
    match parser.parse(inbox, max) {
        Progress::Done(head) if head.status == 101 && switching == Switching::Unasked => {
            let what = "upstream switched protocols without being asked to";
            HeadStep::Refuse(what.to_string())
        }
        Progress::Done(head) if head.status == 101 => HeadStep::Done(head, Coding::ByHead),
        Progress::Done(head) if head.status < 200 && *interim_left == 0 => {
            let what = "upstream sent too many interim answers";
            HeadStep::Refuse(what.to_string())
        }
        Progress::Done(head) if head.status < 200 => {
            *interim_left -= 1;
            *parser = ResponseParser::new();
            HeadStep::Interim(head)
        }
        other => step(other),
    }
}

impl StdoutHead {
    /// A reader that has got nothing yet.
    pub(super) fn new() -> Self {
        StdoutHead {
            decoder: RecordDecoder::new(),
            parser: CgiParser::new(),
            stdout: BytesMut::new(),
        }
    }

    fn read(&mut self, inbox: &mut BytesMut, max: usize) -> HeadStep {
        // Each round takes a piece from the inbox.
        loop {
            let refuse = |what: &str| HeadStep::Refuse(what.to_string());
            match self.decoder.decode(inbox) {
                Err(fault) => return HeadStep::Refuse(fault.to_string()),
                Ok(Event::NeedMore) => return HeadStep::NeedMore,
                Ok(Event::Stderr(message)) => return HeadStep::Stderr(message),
                Ok(Event::StdoutEnd) => {
                    return refuse("upstream prematurely closed FastCGI stdout");
                }
                Ok(Event::EndRequest) => {
                    return refuse("upstream sent unexpected FastCGI record: 3");
                }
                Ok(Event::Stdout(bytes)) => {
                    self.stdout.extend_from_slice(&bytes);
                    match self.parser.parse(&mut self.stdout, max) {
                        Progress::NeedMore => {}
                        Progress::Done(head) => {
                            return HeadStep::Done(head, Coding::Records(Box::new(self.body())));
                        }
                        other => return step(other),
                    }
                }
            }
        }
    }

    /// Decoder of the body that follows the head; how much of it, the head says.
    fn body(&mut self) -> StdoutBody {
        let decoder = std::mem::take(&mut self.decoder);
        StdoutBody::new(decoder, self.stdout.split().freeze())
    }
}

impl Coding {
    /// Plan of the body that belongs to a head.
    ///
    /// # Errors
    /// Nobody can tell.
    pub fn plan(self, head: &ResponseHead, request: Method) -> Result<BodyPlan, Fault> {
        let framing = head.framing(request)?;
        let mut body = match self {
            Coding::ByHead => return Ok(BodyPlan::Framed(framing)),
            Coding::Tunnel => return Ok(BodyPlan::Framed(Framing::Switched)),
            Coding::Value(body) => return Ok(BodyPlan::Value(body)),
            Coding::Stream(stream) => {
                let length = stream.left().filter(|_| framing != Framing::None);
                return Ok(BodyPlan::Stream(stream, length));
            }
            Coding::Records(body) => body,
        };
        let announced = head.fields.get(Known::ContentLength);
        let announced = announced.and_then(|value| content_length(value));
        body.expect(match framing {
            Framing::None if request == Method::Head => Expected::NoneOr(announced),
            Framing::None => Expected::Exactly(0),
            Framing::Length(length) => Expected::Exactly(length),
            Framing::Chunked | Framing::UntilClose | Framing::Switched => Expected::Any,
        });
        Ok(BodyPlan::Records(body))
    }
}

/// nginx: of these fields an answer has one; later ones are ignored.
pub(super) fn drop_duplicates(fields: &mut Fields) {
    const UNIQUE: KnownSet = KnownSet::of(&[
        Known::Status,
        Known::ContentType,
        Known::Date,
        Known::LastModified,
        Known::ETag,
        Known::Server,
        Known::Location,
        Known::Refresh,
        Known::Expires,
        Known::XAccelExpires,
        Known::XAccelRedirect,
        Known::XAccelLimitRate,
        Known::XAccelBuffering,
        Known::XAccelCharset,
    ]);
    let mut seen = KnownSet::default();
    fields.retain(|field| {
        let is_first = !UNIQUE.contains(field.known) || !seen.contains(field.known);
        seen.insert(field.known);
        is_first
    });
}
