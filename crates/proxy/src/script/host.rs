//! A request as the host of a script: what it is asked, and what it is told to do.
//!
//! While a script runs, the request is here; what is to become of it is noted in [`Out`], and done
//! when the script has ended.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use millpond_exchange::response::Response;
use millpond_script::dict::Dicts;
use millpond_script::{
    Bound, Cached, Dict, DictSpec, Form, Header, Host, Level, Operation, SessionOrder, Text,
};
use millpond_system::log::error;
use millpond_wire::header::{Field, Fields, Known};
use millpond_wire::http1::Version;

use super::variable::ScriptNames;
use super::{Scripts, cache, operation};
use crate::log::request_error;
use crate::request::{Request, Value};
use crate::rewrite::set::Variable;
use crate::var::{self, VariableTable};

/// The most operations that a script waits for at a time.
const MOST_OPERATIONS: usize = 1000;
/// The longest answer of a script (arbitrary: `js_memory_limit` is as large).
const MAX_BODY: usize = 64 << 20;

/// The part of a request that a script has to do with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// A value is computed.
    #[default]
    Value,
    /// A request is let in.
    Access,
    /// An answer is made.
    Content,
    /// The head of an answer is looked at.
    Head,
    /// An answer is judged that may be stored.
    Verdict,
    /// The body of an answer is changed.
    Body,
    /// Something is done that no request asks for.
    Tick,
    /// Something is done for a session of `stream`.
    Session,
}

/// The orders of a script to its session.
#[derive(Debug, Default)]
pub struct SessionOut {
    /// Bytes that go on to a side as if the other had sent them: to the peer, to the client.
    pub sent: [BytesMut; 2],
    /// The code that ends a phase, once there is one.
    pub decided: Option<i32>,
    /// The forms in which functions wait for the bytes of a side: of the client, of the peer.
    pub listens: [Option<Form>; 2],
}

/// The things that a script wants done.
#[derive(Debug, Default)]
pub struct Out {
    pub(super) role: Role,
    /// The orders to a session.
    pub session: SessionOut,
    pub(super) status: u16,
    pub(super) fields: Fields,
    pub(super) length: Option<u64>,
    pub(super) body: BytesMut,
    pub(super) is_head_sent: bool,
    pub(super) is_finished: bool,
    pub(super) is_declined: bool,
    /// True if the script waits for nothing that could end.
    pub(super) is_stuck: bool,
    /// True if the rest of a body is not asked about.
    pub(super) is_done: bool,
    /// True if a promise was rejected, and nobody has handled that.
    pub has_unhandled: bool,
    pub(super) returned: Option<(u16, Option<Bytes>)>,
    pub(super) redirect: Option<Bytes>,
    /// Operations that have not begun.
    pub(super) ordered: Vec<Operation>,
    /// Operations that nobody waits for any more.
    pub(super) cancelled: Vec<u32>,
    pub(super) running: usize,
}

impl Out {
    /// The output of a script that makes an answer.
    pub(super) fn of_content() -> Out {
        Out {
            role: Role::Content,
            ..Out::default()
        }
    }

    /// The output of a script that lets a request in.
    pub(super) fn of_access() -> Out {
        Out {
            role: Role::Access,
            ..Out::default()
        }
    }

    /// The output of a script that no request asks for.
    pub(super) fn of_tick() -> Out {
        Out {
            role: Role::Tick,
            ..Out::default()
        }
    }

    /// The output of a script that runs for a session.
    pub fn of_session() -> Out {
        Out {
            role: Role::Session,
            ..Out::default()
        }
    }

    /// The output of a script that sees the head of an answer with this status, and changes
    /// nothing of it.
    pub(super) fn of_verdict(status: u16) -> Out {
        Out {
            role: Role::Verdict,
            status,
            ..Out::default()
        }
    }

    /// The output of a script that changes a body, of an answer with this head.
    pub(super) fn of_body(status: u16, fields: Fields) -> Out {
        Out {
            role: Role::Body,
            status,
            fields,
            is_head_sent: true,
            ..Out::default()
        }
    }

    /// The output of a script that sees the head of an answer, whose fields stand here until
    /// [`Out::change`].
    pub(super) fn of_answer(response: &mut Response) -> Out {
        Out {
            role: Role::Head,
            status: response.status,
            fields: std::mem::take(&mut response.fields),
            length: response.length,
            ..Out::default()
        }
    }

    /// Gives the answer what the script made of its head.
    pub(super) fn change(&mut self, response: &mut Response) {
        response.fields = std::mem::take(&mut self.fields);
        if response.status != self.status {
            response.status = self.status;
            response.orders.status_text = None;
        }
        if self.length.is_none() && response.length.is_some() {
            response.body_changes();
        }
    }

    /// nginx: a script has answered when it has said so, or has at least sent a head.
    pub(super) fn is_answered(&self) -> bool {
        self.returned.is_some() || self.is_finished || self.is_head_sent
    }
}

/// A request while a script runs for it.
pub struct RequestHost {
    pub(super) req: Request,
    pub(super) out: Out,
}

impl RequestHost {
    fn named(&mut self, name: &str) -> Bytes {
        let mut out = Vec::new();
        var::write_named(&mut self.req, name, &mut out);
        Bytes::from(out)
    }
}

fn pair(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Header {
    (name.into(), value.into())
}

impl Host for RequestHost {
    fn log(&mut self, level: Level, text: &str) {
        let level = match level {
            Level::Info => error::Level::Info,
            Level::Warn => error::Level::Warn,
            Level::Error => error::Level::Error,
        };
        request_error::write(&self.req, level, format_args!("js: {text}"));
    }

    fn unhandled(&mut self, text: &str) {
        self.out.has_unhandled = true;
        let message = format_args!("js unhandled rejection: {text}");
        request_error::write(&self.req, error::Level::Error, message);
    }

    fn text(&mut self, text: Text) -> Bytes {
        match text {
            Text::Method => match self.req.method.name() {
                Some(name) => Bytes::from_static(name.as_bytes()),
                None => self.named("request_method"),
            },
            Text::Uri => self.req.uri.clone(),
            Text::Args => self.req.args.clone(),
            Text::HttpVersion => Bytes::from_static(match self.req.head.version() {
                Version::Http10 => b"1.0",
                Version::Http11 => b"1.1",
                version if version >= Version::Http11 => {
                    let name = self.named("server_protocol");
                    return match name.iter().position(|byte| *byte == b'/') {
                        Some(slash) => name.slice(slash + 1..),
                        None => name,
                    };
                }
                _ => b"0.9",
            }),
            Text::RemoteAddress => self.named("remote_addr"),
            Text::RequestLine => self.named("request"),
        }
    }

    fn is_internal(&mut self) -> bool {
        self.req.is_internal
    }

    fn is_subrequest(&mut self) -> bool {
        self.req.is_subrequest()
    }

    fn variable(&mut self, name: &str) -> Option<Bytes> {
        if let Ok(group) = name.parse::<u8>() {
            let groups = &self.req.captures.groups;
            let is_there = groups.get(group as usize).is_some_and(Option::is_some);
            return is_there.then(|| Bytes::copy_from_slice(self.req.capture(group)));
        }
        let mut out = Vec::new();
        let name = name.to_ascii_lowercase();
        let is_found = var::write_named(&mut self.req, &name, &mut out);
        is_found.then(|| Bytes::from(out))
    }

    fn set_variable(&mut self, name: &str, value: Bytes) -> Result<(), String> {
        let name = name.to_ascii_lowercase();
        let conf = std::rc::Rc::clone(&self.req.conf);
        let table = conf.parts.of::<VariableTable>();
        let not_found = || "variable not found".to_string();
        let id = table.find(&name).ok_or_else(not_found)?;
        let is_of_js = conf.parts.of::<ScriptNames>().has(&name);
        match Variable::of(&name, id) {
            // nginx: in a session all that the configuration names may be set.
            Variable::Stored(id)
                if is_of_js || table.is_stored(id) || self.req.server.session.is_some() =>
            {
                self.req.set_value(id, Value::Found(value));
                Ok(())
            }
            Variable::Stored(_) => Err("variable is not writable".to_string()),
            settable => {
                settable.assign(&mut self.req, value);
                Ok(())
            }
        }
    }

    fn js_var_names(&mut self) -> Vec<String> {
        let names = self.req.conf.parts.of::<ScriptNames>();
        names.iter().map(str::to_string).collect()
    }

    fn headers_in(&mut self) -> Vec<Header> {
        let fields = self.req.head.fields();
        fields
            .map(|field| {
                let name = Bytes::copy_from_slice(field.name);
                pair(name, Bytes::copy_from_slice(field.value))
            })
            .collect()
    }

    fn headers_out(&mut self) -> Vec<Header> {
        let all = self.out.fields.iter();
        let fields = all.map(|field| pair(field.name.clone(), field.value.clone()));
        let length = self.out.length.map(|length| {
            pair(
                Bytes::from_static(b"Content-Length"),
                Bytes::from(length.to_string()),
            )
        });
        fields.chain(length).collect()
    }

    fn set_header_out(&mut self, name: &str, values: Vec<Bytes>) -> Result<(), String> {
        if self.out.role == Role::Verdict {
            return Err("cannot change an answer that is judged".to_string());
        }
        if self.out.is_head_sent {
            return Err("headers are already sent".to_string());
        }
        let known = Known::of(name.as_bytes());
        if known == Known::ContentLength {
            let last = values
                .last()
                .and_then(|value| std::str::from_utf8(value).ok());
            self.out.length = last.and_then(|value| value.parse().ok());
            return Ok(());
        }
        if matches!(known, Known::TransferEncoding | Known::Connection) {
            return Ok(());
        }
        self.out.fields.remove_name(name.as_bytes());
        for value in values {
            let name = Bytes::copy_from_slice(name.as_bytes());
            self.out.fields.push(Field::new(name, value));
        }
        Ok(())
    }

    fn status(&mut self) -> u16 {
        if self.req.server.session.is_some() {
            return self.req.sent.status;
        }
        self.out.status
    }

    fn set_status(&mut self, status: u16) -> Result<(), String> {
        if self.out.role == Role::Verdict {
            return Err("cannot change an answer that is judged".to_string());
        }
        self.out.status = status;
        Ok(())
    }

    fn request_body(&mut self) -> Result<Option<Bytes>, String> {
        if self.req.body.path().is_some() {
            let message = format_args!("http js reading request body from a temporary file");
            request_error::write(&self.req, error::Level::Warn, message);
        }
        let scripts = self.req.location.parts.get::<Scripts>();
        let most = scripts.map_or(0, |scripts| scripts.limits.memory);
        let bytes = self.req.body.bytes(most);
        bytes.map_err(|error| format!("request body cannot be read: {error}"))
    }

    fn send_header(&mut self) -> Result<(), String> {
        self.answer("send a header")?;
        self.out.is_head_sent = true;
        Ok(())
    }

    fn send(&mut self, data: Bytes) -> Result<(), String> {
        self.answer("send")?;
        self.add(&data)
    }

    fn send_buffer(&mut self, data: Bytes) -> Result<(), String> {
        self.in_body("sendBuffer")?;
        self.add(&data)
    }

    fn done(&mut self) -> Result<(), String> {
        self.in_body("done")?;
        self.out.is_done = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        self.answer("finish")?;
        self.out.is_finished = true;
        Ok(())
    }

    fn return_(&mut self, status: u16, text: Option<Bytes>) -> Result<(), String> {
        if matches!(
            self.out.role,
            Role::Head | Role::Verdict | Role::Body | Role::Tick | Role::Session
        ) {
            return Err("cannot return for an answer that is there".to_string());
        }
        if matches!(status, 301 | 302 | 303 | 307 | 308)
            && let Some(target) = &text
            && target.iter().any(|byte| *byte < b' ' || *byte == 127)
        {
            return Err("invalid header value".to_string());
        }
        self.out.returned = Some((status, text));
        Ok(())
    }

    fn decline(&mut self) -> Result<(), String> {
        self.out.is_declined = true;
        Ok(())
    }

    fn internal_redirect(&mut self, target: Bytes) -> Result<(), String> {
        if self.req.is_subrequest() {
            return Err("internalRedirect cannot be called from a subrequest".to_string());
        }
        if self.out.role != Role::Access {
            self.answer("redirect")?;
        }
        self.out.redirect = Some(target);
        Ok(())
    }

    fn begin(&mut self, operation: Operation) -> Result<(), String> {
        if self.out.running + self.out.ordered.len() >= MOST_OPERATIONS {
            return Err(format!("more than {MOST_OPERATIONS} operations at a time"));
        }
        operation::check(&self.req, &operation.order)?;
        if operation.id == 0 {
            return operation::detach(&mut self.req, operation.order);
        }
        self.out.ordered.push(operation);
        Ok(())
    }

    fn cancel(&mut self, id: u32) {
        self.out.ordered.retain(|operation| operation.id != id);
        self.out.cancelled.push(id);
    }

    fn dicts(&mut self) -> Vec<DictSpec> {
        self.req.conf.parts.of::<ScriptNames>().dicts.clone()
    }

    fn dict(&mut self, name: &str) -> Option<Arc<Dict>> {
        let names = self.req.conf.parts.of::<ScriptNames>();
        let spec = names.dicts.iter().find(|spec| spec.name == name)?;
        Some(self.req.worker().shared.guests.of::<Dicts>().find(spec))
    }

    fn cache_key(&mut self) -> Result<Option<Bytes>, String> {
        cache::key(&mut self.req)
    }

    fn cached(&mut self, key: Option<Bytes>, zone: Option<&str>) -> Result<Option<Cached>, String> {
        cache::look_up(&mut self.req, key, zone)
    }

    fn environment(&mut self) -> Vec<(String, String)> {
        self.req.conf.parts.of::<ScriptNames>().environment.clone()
    }

    fn arguments(&mut self) -> Vec<String> {
        self.req.conf.parts.of::<ScriptNames>().arguments.clone()
    }

    fn number(&mut self, bound: Bound) -> u32 {
        match bound {
            Bound::WorkerId => u32::try_from(self.req.worker().index).unwrap_or(u32::MAX),
        }
    }

    fn session(&mut self, order: SessionOrder) -> Result<(), String> {
        let out = &mut self.out.session;
        match order {
            SessionOrder::Send(side, data) => {
                let waits: usize = out.sent.iter().map(BytesMut::len).sum();
                if waits + data.len() > MAX_BODY {
                    return Err(format!("more than {MAX_BODY} bytes are sent at once"));
                }
                out.sent[side as usize].extend_from_slice(&data);
            }
            SessionOrder::Decide(code) => out.decided = Some(code),
            SessionOrder::Listen(side, form) => out.listens[side as usize] = form,
        }
        Ok(())
    }

    fn place(&mut self, name: &str) -> String {
        let names = self.req.conf.parts.of::<ScriptNames>();
        match name {
            "version" => String::from_utf8_lossy(&self.named("nginx_version")).into_owned(),
            "prefix" => names.prefix.clone(),
            "conf_prefix" => names.conf_prefix.clone(),
            _ => String::new(),
        }
    }
}

impl RequestHost {
    /// Refuses what only a script may do that makes an answer.
    fn answer(&self, what: &str) -> Result<(), String> {
        match self.out.role {
            Role::Content => Ok(()),
            _ => Err(format!("cannot {what} here")),
        }
    }

    /// Refuses what only a script may do that changes a body.
    fn in_body(&self, what: &str) -> Result<(), String> {
        match self.out.role {
            Role::Body => Ok(()),
            _ => Err(format!("cannot {what} outside of a body filter")),
        }
    }

    /// Adds to what a script has made.
    fn add(&mut self, data: &[u8]) -> Result<(), String> {
        if self.out.body.len() + data.len() > MAX_BODY {
            return Err(format!("an answer is longer than {MAX_BODY} bytes"));
        }
        self.out.body.extend_from_slice(data);
        Ok(())
    }
}
