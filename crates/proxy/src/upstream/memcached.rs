//! `memcached_next_upstream`, `memcached_gzip_flag`: values of a memcached server as answers.
//!
//! ```text
//! $memcached_key ─► "get KEY" ─► value      200, of the type that the request's name says
//!                             ─► no value   404, for the other peers and `error_page`
//! ```
//!
//! A value goes to the client while it comes, and no cache stores it: it is in one already.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use millpond_conf::{Flags, Words};
use millpond_semantics::uri::{EscapeKind, escape};
use millpond_system::log::error::Level;
use millpond_wire::header::{Fields, Known};
use millpond_wire::http1::response::ResponseHead;
use millpond_wire::http1::{Method, Version};
use millpond_wire::memcached::{self, Found, ValueBody, ValueHead};

use super::answer::{self, Stored};
use super::ask::Ask;
use super::exchange;
use super::head::{Coding, HeadStep};
use super::next::NextCause;
use super::pass::PassTarget;
use super::request::{OutBody, OutFraming, Prepared};
use crate::content;
use crate::content::settings::ContentSettings;
use crate::log::request_error;
use crate::phase::Begun;
use crate::request::Request;
use crate::upstream::pass_settings::PassSettings;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::settings::level::Closing;

/// The variable with the key that is asked for.
pub const KEY: &str = "$memcached_key";

/// Entry of the variable in the manual.
pub const KEY_DOC: &str = "The key that `memcached_pass` asks for; `set`, `map` or another directive \
                           defines it.";

/// Cause that lets a request go to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum MemcachedCause {
    /// Connecting, sending or reading failed.
    #[word("error")]
    Error,
    /// The server took too long.
    #[word("timeout")]
    Timeout,
    /// The answer was none of memcached's.
    #[word("invalid_response")]
    InvalidResponse,
    /// There is no such key.
    #[word("not_found")]
    NotFound,
    /// Nothing.
    #[word("off")]
    Off,
}

/// Settings that only memcached servers have.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct MemcachedPolicy {
    /// After what the request goes to the next server of the group, as long as nothing was sent to
    /// the client.
    #[directive(name = "memcached_next_upstream", default = "error timeout", union)]
    pub causes: Flags<MemcachedCause>,
    /// Bits of a value's flags by which its writer says that it is compressed: it is sent with
    /// `Content-Encoding: gzip`.
    #[directive(name = "memcached_gzip_flag", default = "0")]
    pub gzip_flag: u32,
}

impl From<MemcachedCause> for NextCause {
    fn from(cause: MemcachedCause) -> Self {
        match cause {
            MemcachedCause::Error => NextCause::Error,
            MemcachedCause::Timeout => NextCause::Timeout,
            MemcachedCause::InvalidResponse => NextCause::InvalidHeader,
            MemcachedCause::NotFound => NextCause::Http404,
            MemcachedCause::Off => NextCause::Off,
        }
    }
}

impl MemcachedPolicy {
    /// Sets what is the same for all memcached servers, as nginx has it.
    pub fn settle(&self, settings: &mut PassSettings) {
        settings.next.causes = self.causes.iter().map(NextCause::from).collect();
        settings.buffer.buffering = false;
        settings.request.pass_body = false;
        settings.answer.intercept_errors = true;
        settings.answer.force_ranges = true;
    }
}

/// Settles what memcached's settings say of its upstreams' own.
pub fn close(level: &mut Closing<'_>) {
    let all = level.settings.of_mut::<UpstreamSettings>();
    all.memcached_server.settle(&mut all.memcached);
}

/// Encodes the request.
pub fn encode(req: &mut Request, target: &PassTarget) -> Result<Prepared, Failure> {
    let key = target.key.as_ref().map(|key| req.eval(key));
    let Some(key) = key.filter(|key| !key.is_empty()) else {
        let message = format!("the \"{KEY}\" variable is not set");
        return Err(Failure::Internal(message));
    };
    Ok(Prepared {
        encryption: None,
        head: memcached::request(&escape(&key, EscapeKind::Memcached)),
        body: OutBody::None,
        framing: OutFraming::Plain,
        method: req.method,
    })
}

/// Reads the head of an answer.
pub struct KeyedHead {
    /// Key that was asked for.
    key: Bytes,
    gzip_flag: u64,
}

impl KeyedHead {
    /// A reader of the answer to a request.
    pub fn new(prepared: &Prepared, policy: &MemcachedPolicy) -> Self {
        let line = &prepared.head;
        KeyedHead {
            key: line.slice(memcached::key_range(line)),
            gzip_flag: u64::from(policy.gzip_flag),
        }
    }

    /// Goes on with what is in the inbox; `max` is the longest head.
    pub fn read(&self, inbox: &mut BytesMut, max: usize) -> HeadStep {
        let (found, head_len) = match memcached::read_head(inbox, &self.key, max) {
            Ok(None) => return HeadStep::NeedMore,
            Ok(Some(read)) => read,
            Err(fault) => return HeadStep::Refuse(fault.to_string()),
        };
        let mut fields = Fields::new();
        let (status, coding) = match found {
            Found::Nothing => {
                fields.set(Known::ContentLength, Bytes::from_static(b"0"));
                (404, Coding::ByHead)
            }
            Found::Value(value) => match self.is_gzip(value) {
                Err(what) => return HeadStep::Refuse(what),
                Ok(is_gzip) => {
                    if is_gzip {
                        fields.set(Known::ContentEncoding, Bytes::from_static(b"gzip"));
                    }
                    (200, Coding::Value(ValueBody::new(value)))
                }
            },
        };
        let head = ResponseHead {
            version: Version::Http11,
            status,
            status_line: Bytes::new(),
            fields,
            head_len,
        };
        HeadStep::Done(head, coding)
    }

    /// nginx: the flags must be a number only where they are looked at.
    fn is_gzip(&self, value: ValueHead) -> Result<bool, String> {
        match value.flags {
            _ if self.gzip_flag == 0 => Ok(false),
            Some(flags) => Ok(flags & self.gzip_flag != 0),
            None => {
                let key = String::from_utf8_lossy(&self.key);
                Err(format!("memcached sent invalid flags for key \"{key}\""))
            }
        }
    }
}

/// Answers with a value.
pub fn begin<'a>(req: &'a mut Request, target: &Arc<PassTarget>) -> Result<Begun<'a>, Failure> {
    if !matches!(req.method, Method::Get | Method::Head) {
        return Err(Failure::Status(405));
    }
    let target = Arc::clone(target);
    Ok(Begun::waits(req, async move |req| {
        let response = run(req, &target).await?;
        content::respond(req, response)
    }))
}

async fn run(req: &mut Request, target: &PassTarget) -> Result<Box<Response>, Failure> {
    let mut fetched = Box::pin(exchange::fetch(req, target, &Ask::default())).await?;
    if fetched.head.status == 404 {
        let key = target.key.as_ref().map(|key| req.eval(key));
        let key = key.unwrap_or_default();
        let key = String::from_utf8_lossy(&key);
        let message = format_args!("key: \"{key}\" was not found by memcached");
        request_error::write(req, Level::Info, message);
        return Err(Failure::Status(404));
    }
    let location = Arc::clone(&req.location);
    let media_type = location
        .settings
        .of::<ContentSettings>()
        .types
        .type_of(&req.uri);
    fetched.head.fields.set(Known::ContentType, media_type);
    answer::from_fetched(req, target, fetched, Stored::No)
}
