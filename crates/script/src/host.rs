//! The server, as scripts see it: a trait that a request implements, and what passes through it.
//!
//! A script reaches nothing else. The host is asked while the script runs, and never waits; what
//! takes time is an [`Operation`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::dict::{Dict, DictSpec};
use crate::url::Url;

/// The weight of a line that a script logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `r.log`, `ngx.INFO`.
    Info,
    /// `r.warn`, `ngx.WARN`.
    Warn,
    /// `r.error`, `ngx.ERR`.
    Error,
}

/// A text that a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// `r.method`.
    Method,
    /// `r.uri`.
    Uri,
    /// The query, of which `r.args` is made.
    Args,
    /// `r.httpVersion`.
    HttpVersion,
    /// `r.remoteAddress`.
    RemoteAddress,
    /// `r.requestLine`.
    RequestLine,
}

/// A header field: its name and its value.
pub type Header = (Bytes, Bytes);

/// The type of bytes in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A text.
    Text,
    /// A `Buffer`.
    Buffer,
}

/// A direction of a session, by the side that its bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From the client to the peer: `upload`, `upstream`.
    Client,
    /// From the peer to the client: `download`, `downstream`.
    Peer,
}

/// An order of a script to the session that it runs for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionOrder {
    /// `s.send` and its like: bytes as if this side had sent them.
    Send(Side, Bytes),
    /// `s.done` and its like: nginx's code for the end of a phase, or a status.
    Decide(i32),
    /// `s.on`, `s.off`: the form in which a function gets what this side sends; none: no function
    /// waits for it.
    Listen(Side, Option<Form>),
}

/// A number that a script asks the process for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `ngx.worker_id`.
    WorkerId,
}

/// Something that a script waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The number by which its end is told; 0: nobody waits for it.
    pub id: u32,
    /// The thing to be done.
    pub order: Order,
}

/// The kinds of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// `setTimeout`.
    Timer(Duration),
    /// `r.subrequest`.
    Subrequest {
        /// The path, as the script wrote it.
        uri: String,
        /// The query.
        args: String,
        /// The method.
        method: String,
        /// The body; none for that of the request.
        body: Option<Bytes>,
    },
    /// `ngx.fetch`.
    Fetch(Box<Fetch>),
    /// `r.cache.purge`.
    Purge(Box<Purge>),
}

/// A request to another server; its parts may stand in a message as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The place that is asked.
    pub url: Url,
    /// The method.
    pub method: String,
    /// The fields that the script gives.
    pub headers: Vec<Header>,
    /// The body; empty for none.
    pub body: Bytes,
    /// The longest body of an answer, where the script says it.
    pub most: Option<usize>,
    /// Verification of the server's certificate, where the script says it.
    pub verify: Option<bool>,
}

/// A purge of what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The kind: `exact`, `prefix`, `wildcard`, `host`, `site`, `tag`, `all`.
    pub kind: &'static str,
    /// The thing that it is about; none: the key of the request.
    pub what: Option<Bytes>,
    /// The name of the zone; none: that of the request.
    pub zone: Option<String>,
    /// True if the entries become stale, and stay.
    pub is_soft: bool,
}

/// An entry of the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// The status.
    pub status: u16,
    /// The age in seconds.
    pub age: u64,
    /// The seconds for which it is fresh yet; negative for a stale one.
    pub ttl: i64,
    /// The length of its body.
    pub size: u64,
    /// The number of times that it was found.
    pub hits: u64,
    /// The tags that it can be purged by.
    pub tags: Vec<Bytes>,
}

/// An answer to a [`Fetch`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Its status.
    pub status: u16,
    /// The words behind the status.
    pub reason: Bytes,
    /// Its fields.
    pub headers: Vec<Header>,
    /// Its body.
    pub body: Bytes,
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The time is over.
    Elapsed,
    /// A subrequest was answered.
    Answer {
        /// Its status.
        status: u16,
        /// The fields of its answer.
        headers: Vec<Header>,
        /// The body of its answer.
        body: Bytes,
        /// The subrequest as it was in the end: method, path, query.
        asked: BTreeMap<&'static str, Bytes>,
    },
    /// Another server has answered.
    Fetched(Box<Fetched>),
    /// A purge is in force; false if there was nothing.
    Purged(bool),
    /// A failure; the promise is rejected with this.
    Failed(String),
}

/// The ruling of a script about an answer that may be stored; what it does not say is left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// True if the answer is not stored.
    pub keeps_out: bool,
    /// The time for which it is fresh.
    pub fresh: Option<Duration>,
    /// The time after that in which it may be served stale.
    pub stale: Option<Duration>,
    /// Tags that it can be purged by.
    pub tags: Vec<String>,
    /// The names of the fields that its variants differ in.
    pub vary: Option<String>,
}

/// A request, and the server around it.
///
/// An error that is returned is thrown in the script as a `TypeError`.
pub trait Host: 'static {
    /// Writes a line to the error log.
    fn log(&mut self, level: Level, text: &str);

    /// Notes a promise that was rejected, which nobody has handled.
    fn unhandled(&mut self, text: &str);

    /// A text of the request.
    fn text(&mut self, text: Text) -> Bytes;

    /// True for a request that came from inside of the server.
    fn is_internal(&mut self) -> bool;

    /// True for a subrequest.
    fn is_subrequest(&mut self) -> bool;

    /// The value of a variable; none where it has none.
    fn variable(&mut self, name: &str) -> Option<Bytes>;

    /// Gives a variable its value.
    fn set_variable(&mut self, name: &str, value: Bytes) -> Result<(), String>;

    /// The names that `js_var` has declared.
    fn js_var_names(&mut self) -> Vec<String>;

    /// The fields of the request, as they came.
    fn headers_in(&mut self) -> Vec<Header>;

    /// The fields of the answer.
    fn headers_out(&mut self) -> Vec<Header>;

    /// Puts fields of one name in place of those that the answer has; none removes them.
    fn set_header_out(&mut self, name: &str, values: Vec<Bytes>) -> Result<(), String>;

    /// The status of the answer.
    fn status(&mut self) -> u16;

    /// Sets the status of the answer.
    fn set_status(&mut self, status: u16) -> Result<(), String>;

    /// The request's body; none while it was not read or where there is none.
    fn request_body(&mut self) -> Result<Option<Bytes>, String>;

    /// `r.sendHeader()`.
    fn send_header(&mut self) -> Result<(), String>;

    /// `r.send()`.
    fn send(&mut self, data: Bytes) -> Result<(), String>;

    /// `r.sendBuffer()`.
    fn send_buffer(&mut self, data: Bytes) -> Result<(), String>;

    /// `r.done()`.
    fn done(&mut self) -> Result<(), String>;

    /// `r.finish()`.
    fn finish(&mut self) -> Result<(), String>;

    /// `r.return()`.
    fn return_(&mut self, status: u16, text: Option<Bytes>) -> Result<(), String>;

    /// `r.decline()`.
    fn decline(&mut self) -> Result<(), String>;

    /// `r.internalRedirect()`.
    fn internal_redirect(&mut self, target: Bytes) -> Result<(), String>;

    /// Takes an operation; it must not end before the turn is over.
    fn begin(&mut self, operation: Operation) -> Result<(), String>;

    /// Forgets an operation whose end nobody waits for.
    fn cancel(&mut self, id: u32);

    /// The shared dictionaries.
    fn dicts(&mut self) -> Vec<DictSpec>;

    /// A shared dictionary.
    fn dict(&mut self, name: &str) -> Option<Arc<Dict>>;

    /// The key of the request in the cache; none where its location has no cache.
    fn cache_key(&mut self) -> Result<Option<Bytes>, String>;

    /// The entry under a key, or that of the request, in a zone, or that of the request.
    fn cached(&mut self, key: Option<Bytes>, zone: Option<&str>) -> Result<Option<Cached>, String>;

    /// The variables of the process's environment that scripts may see.
    fn environment(&mut self) -> Vec<(String, String)>;

    /// The words of the process's command line.
    fn arguments(&mut self) -> Vec<String>;

    /// A number of the process.
    fn number(&mut self, bound: Bound) -> u32;

    /// Obeys an order that only a session has.
    fn session(&mut self, order: SessionOrder) -> Result<(), String>;

    /// A text of the process: `prefix`, `conf_prefix`, `conf_file_path`, `error_log_path`.
    fn place(&mut self, name: &str) -> String;
}
