//! `proxy_status_header`: failures as clients are told of them (Proxy-Status, RFC 9209).
//!
//! The member of this server is left among the fields that the answer gets whoever makes it, so
//! that a page of `error_page` has it, too.

use bytes::Bytes;
use millpond_conf::OffOr;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_semantics::proxy_status::{ProxyError, is_name, member};
use millpond_wire::header::{Field, Fields};

use super::Failure;

/// The field.
const FIELD: &[u8] = b"Proxy-Status";

/// Name of this server where the configuration gives it none.
const NAME: &str = "millpond";

/// Settings of the field that tells clients why there is an error instead of an answer.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct ProxyStatusPolicy {
    /// Says in the Proxy-Status of errors (RFC 9209) what has failed: `on`, or the name that this
    /// server has in it; `on` stands for "millpond". The member of this server has `error`, such as
    /// `connection_refused` or `connection_read_timeout`; with `details` it has also the message of
    /// the error log, in which addresses of origins may stand. Only errors that this server answers
    /// with in place of an upstream's answer have it; the Proxy-Status of an upstream is passed on.
    #[directive(name = "proxy_status_header", default = "off")]
    pub header: OffOr<ProxyStatus>,
}

/// Name with which this server stands in Proxy-Status, and what it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyStatus {
    name: String,
    has_details: bool,
}

impl FromArgs for ProxyStatus {
    const SYNTAX: &'static str = "on | name [details]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let has_details = match args.at_least(1)? {
            [_] => false,
            [_, word] if word.text == "details" => true,
            [_, _] => return Err(ArgError::value(1, "it must be \"details\"")),
            _ => return Err(ArgError::Count),
        };
        let word: String = args.word(0)?;
        let name = if word == "on" { NAME.to_owned() } else { word };
        if is_name(&name) {
            Ok(ProxyStatus { name, has_details })
        } else {
            Err(ArgError::value(0, "it must be of printable ASCII"))
        }
    }
}

impl ProxyStatusPolicy {
    /// Adds the member of a failure to the fields that the answer gets, if it is to be told.
    pub fn tell(&self, failure: &Failure, fields: &mut Fields) {
        let OffOr::On(header) = &self.header else {
            return;
        };
        let Some(error) = error_of(failure) else {
            return;
        };
        let details = header.has_details.then(|| failure.to_string());
        if let Some(member) = member(&header.name, error, details.as_deref()) {
            fields.remove_name(FIELD);
            fields.push(Field::new(Bytes::from_static(FIELD), Bytes::from(member)));
        }
    }
}

/// True for the field of a failure.
pub fn is_of_failure(field: &Field) -> bool {
    field.name.eq_ignore_ascii_case(FIELD)
}

/// Kind of a failure; none where a handler chose a status, or no client is there to be told.
fn error_of(failure: &Failure) -> Option<ProxyError> {
    match failure {
        Failure::Status(508) => Some(ProxyError::Loop),
        Failure::Status(_) | Failure::Client(_) => None,
        Failure::Request { .. } => Some(ProxyError::HttpRequest),
        Failure::Upstream(failure) => Some(failure.error),
        Failure::Disk(_) | Failure::Internal(_) => Some(ProxyError::Internal),
    }
}
