//! The commands: `include`, `echo`, `config`, `set`, `if`, `elif`, `else`, `endif`, `block`,
//! `endblock`.
//!
//! The interpreter belongs to one text; what commands remember beyond it is in the page's memory.
//!
//! ```text
//! shown ──if, false──► hidden ──elif, else──► shown | hidden ──endif──► shown
//!   └──block──► hidden, kept in a block ──endblock──► shown
//! ```
//!
//! Invariants:
//! 1. A mistake is logged and shows the error text; it never ends the page.
//! 2. What is hidden runs no command but those that may end it.
//!
//! As in nginx, conditions do not nest within one text.
//!
//! Sources: nginx ngx_http_ssi_body_filter, ngx_http_ssi_include and its neighbours.

use std::rc::Rc;

use bytes::Bytes;
use millpond_semantics::uri::{EscapeKind, escape, escape_html, safe_uri};

use super::evaluate::fault;
use super::memory::Memory;
use super::parse::{Command, MAX_PARAMETERS};
use crate::filter::fragment::{Fragment, KeptFragment, Stub};
use crate::filter::settings::FilterSettings;
use crate::request::Request;
use crate::request::page::{Kind, Page};
use crate::subrequest::Target;

/// Text in the place of a command that failed, unless the page chose another text.
const ERROR_TEXT: &[u8] = b"[an error occurred while processing the directive]";
/// Text that `echo` shows of a variable that does not exist.
const NONE: &[u8] = b"(none)";

/// Something that was logged went wrong.
#[derive(Debug)]
pub(super) struct Fault;

/// Output of a command for the page.
pub(super) enum Outcome {
    /// Nothing.
    Nothing,
    /// A text.
    Text(Bytes),
    /// Another request's answer; the text goes on at once or when it has ended.
    Include(Box<Fragment>, Then),
    /// Another request's answer becomes the value of a variable; the text goes on when it has
    /// ended.
    Keep(Box<KeptFragment>, Vec<u8>),
}

/// Moment at which the text behind an include is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    Wait,
}

/// Encoding in which `echo` writes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    None,
    Url,
    Entity,
}

/// Place of the text within a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    Outside,
    /// Behind `if` or `elif`.
    If,
    /// Behind `else`.
    Else,
}

/// The names of a command's parameters, and how many of the first are needed.
struct Signature(&'static [&'static [u8]], usize);

impl Signature {
    fn of(name: &[u8]) -> Option<Signature> {
        Some(match name {
            b"include" => Signature(&[b"virtual", b"file", b"wait", b"set", b"stub"], 0),
            b"echo" => Signature(&[b"var", b"default", b"encoding"], 1),
            b"config" => Signature(&[b"errmsg", b"timefmt"], 0),
            b"set" => Signature(&[b"var", b"value"], 2),
            b"if" | b"elif" => Signature(&[b"expr"], 1),
            b"block" => Signature(&[b"name"], 1),
            b"else" | b"endif" | b"endblock" => Signature(&[], 0),
            _ => return None,
        })
    }
}

/// Values of parameters in the order of the signature.
struct Values([Option<Vec<u8>>; 5]);

impl Values {
    fn get(&self, place: usize) -> Option<&[u8]> {
        self.0.get(place)?.as_deref()
    }

    /// The value of a parameter that the signature demands.
    fn demanded(&self, place: usize) -> &[u8] {
        self.get(place).unwrap_or_default()
    }
}

/// Runs the commands of one text.
pub(super) struct Interpreter {
    /// The request whose text it is, as a copy.
    pub(super) req: Box<Request>,
    pub(super) page: Rc<Page>,
    /// The type of the text, which stubs get.
    content_type: Option<Bytes>,
    condition: Condition,
    is_shown: bool,
    /// True when a branch of the condition was shown.
    has_chosen: bool,
    is_in_block: bool,
    encoding: Encoding,
    error_text: Bytes,
}

impl Interpreter {
    /// An interpreter of the text that answers a request.
    pub(super) fn new(mut req: Box<Request>, content_type: Option<Bytes>) -> Self {
        Interpreter {
            page: req.page(),
            req,
            content_type,
            condition: Condition::Outside,
            is_shown: true,
            has_chosen: false,
            is_in_block: false,
            encoding: Encoding::Entity,
            error_text: Bytes::from_static(ERROR_TEXT),
        }
    }

    /// Text between commands, as far as it is shown.
    pub(super) fn text(&mut self, text: Bytes) -> Option<Bytes> {
        if self.is_shown {
            return Some(text);
        }
        if self.is_in_block {
            return self.keep(&text).err().map(|Fault| self.error_text());
        }
        None
    }

    /// Text in the place of a command that failed; empty for nothing.
    pub(super) fn error_text(&self) -> Bytes {
        if self
            .req
            .location
            .settings
            .of::<FilterSettings>()
            .ssi
            .silent_errors
        {
            Bytes::new()
        } else {
            self.error_text.clone()
        }
    }

    /// Logs a mistake of the text's syntax.
    pub(super) fn log(&self, message: &str) {
        fault(&self.req, format_args!("{message}"));
    }

    /// Runs a command.
    pub(super) fn run(&mut self, command: Command) -> Outcome {
        match self.try_run(command) {
            Ok(outcome) => outcome,
            Err(Fault) => Outcome::Text(self.error_text()),
        }
    }

    fn try_run(&mut self, command: Command) -> Result<Outcome, Fault> {
        let name = command.name.as_slice();
        let Some(signature) = Signature::of(name) else {
            return if self.is_shown {
                let name = name.escape_ascii();
                Err(self.fault(format_args!("invalid SSI command: \"{name}\"")))
            } else {
                Ok(Outcome::Nothing)
            };
        };
        let needs = match name {
            b"elif" | b"else" => Some(Condition::If),
            b"endif" => Some(Condition::Else),
            _ => None,
        };
        if !self.is_shown && name != b"endblock" {
            if self.is_in_block {
                self.keep(&written(&command))?;
                return Ok(Outcome::Nothing);
            }
            if needs.is_none() {
                return Ok(Outcome::Nothing);
            }
        }
        if needs.is_some_and(|most| self.condition == Condition::Outside || self.condition > most) {
            let name = name.escape_ascii();
            let message = format_args!("invalid context of SSI command: \"{name}\"");
            return Err(self.fault(message));
        }
        let values = self.values(&command, &signature)?;
        match name {
            b"include" => return self.include(&values),
            b"echo" => return self.echo(&values).map(Outcome::Text),
            b"config" => self.config(&values),
            b"set" => {
                let value = self.evaluate(values.demanded(1))?;
                self.set_variable(values.demanded(0), Bytes::from(value))?;
            }
            b"if" | b"elif" => self.branch(name, values.demanded(0))?,
            b"else" => {
                self.is_shown = !self.has_chosen;
                self.condition = Condition::Else;
            }
            b"endif" => {
                self.is_shown = true;
                self.has_chosen = false;
                self.condition = Condition::Outside;
            }
            b"block" => {
                let name = values.demanded(0);
                let begun = self.page.with(|it: &mut Memory| it.begin_block(name));
                begun.map_err(|full| self.fault(format_args!("{full}")))?;
                self.is_shown = false;
                self.is_in_block = true;
            }
            _ => {
                self.is_shown = true;
                self.is_in_block = false;
            }
        }
        Ok(Outcome::Nothing)
    }

    fn fault(&self, message: std::fmt::Arguments<'_>) -> Fault {
        fault(&self.req, message)
    }

    /// Adds to the block that the text is in.
    fn keep(&self, text: &[u8]) -> Result<(), Fault> {
        let kept = self.page.with(|it: &mut Memory| it.extend_block(text));
        kept.map_err(|full| self.fault(format_args!("{full}")))
    }

    /// Puts the parameters into the order of the signature.
    fn values(&self, command: &Command, signature: &Signature) -> Result<Values, Fault> {
        let name = command.name.escape_ascii();
        if command.parameters.len() > MAX_PARAMETERS {
            let message = format_args!("too many SSI command parameters: \"{name}\"");
            return Err(self.fault(message));
        }
        let mut values = Values(Default::default());
        for (key, value) in &command.parameters {
            let place = signature.0.iter().position(|known| known == key);
            let key = key.escape_ascii();
            match place.and_then(|place| values.0.get_mut(place)) {
                None => {
                    let message =
                        format_args!("invalid parameter name: \"{key}\" in \"{name}\" SSI command");
                    return Err(self.fault(message));
                }
                Some(Some(_)) => {
                    let message =
                        format_args!("duplicate \"{key}\" parameter in \"{name}\" SSI command");
                    return Err(self.fault(message));
                }
                Some(slot) => *slot = Some(value.clone()),
            }
        }
        for (place, key) in signature.0.iter().take(signature.1).enumerate() {
            if values.get(place).is_none() {
                let key = key.escape_ascii();
                let message = format_args!(
                    "mandatory \"{key}\" parameter is absent in \"{name}\" SSI command"
                );
                return Err(self.fault(message));
            }
        }
        Ok(values)
    }

    fn include(&mut self, values: &Values) -> Result<Outcome, Fault> {
        let (set, stub) = (values.get(3), values.get(4));
        let (path, then) = self.include_path(values)?;
        if set.is_some() && stub.is_some() {
            return Err(self.fault(format_args!(
                "\"set\" and \"stub\" cannot be used together in \"include\" SSI command"
            )));
        }
        let path = self.evaluate_path(path)?;
        let target = self.target(&path)?;
        if let Some(name) = set {
            let sub = self.req.subrequest(target, Kind::Kept).ok_or(Fault)?;
            // nginx: until it is set, the variable is empty; it stays so if the request fails.
            let known = name.to_ascii_lowercase();
            if self.page.with(|it: &mut Memory| it.find(&known)).is_none() {
                self.set_variable(name, Bytes::new())?;
            }
            let kept = Box::new(KeptFragment::new(sub));
            return Ok(Outcome::Keep(kept, name.to_vec()));
        }
        let (kind, stub) = match stub {
            None => (Kind::Shown, None),
            Some(name) => (Kind::Replaceable, Some(self.stub(name)?)),
        };
        let sub = self.req.subrequest(target, kind).ok_or(Fault)?;
        let fragment = Box::new(Fragment::new(sub, stub));
        Ok(Outcome::Include(fragment, then))
    }

    /// The path of an include as it is written, and whether it is waited for.
    fn include_path<'a>(&self, values: &'a Values) -> Result<(&'a [u8], Then), Fault> {
        let is = |text: &[u8], word: &str| text.eq_ignore_ascii_case(word.as_bytes());
        match (values.get(0), values.get(1), values.get(2)) {
            (Some(path), Some(file), _) => {
                let (path, file) = (path.escape_ascii(), file.escape_ascii());
                Err(self.fault(format_args!(
                    "inclusion may be either virtual=\"{path}\" or file=\"{file}\""
                )))
            }
            (None, None, _) => {
                Err(self.fault(format_args!("no parameter in \"include\" SSI command")))
            }
            (None, Some(file), Some(_)) => {
                let file = file.escape_ascii();
                let message = format_args!("\"wait\" cannot be used with file=\"{file}\"");
                Err(self.fault(message))
            }
            // nginx: a file is always waited for.
            (None, Some(file), None) => Ok((file, Then::Wait)),
            (Some(path), None, None) => Ok((path, Then::GoOn)),
            (Some(path), None, Some(wait)) if is(wait, "no") => Ok((path, Then::GoOn)),
            (Some(path), None, Some(wait)) if is(wait, "yes") => Ok((path, Then::Wait)),
            (Some(_), None, Some(wait)) => {
                let wait = wait.escape_ascii();
                Err(self.fault(format_args!(
                    "invalid value \"{wait}\" in the \"wait\" parameter"
                )))
            }
        }
    }

    fn target(&self, path: &[u8]) -> Result<Target, Fault> {
        match safe_uri(path) {
            Ok(uri) => Ok(Target {
                uri: Bytes::copy_from_slice(&uri.path),
                args: uri.query.map(Bytes::copy_from_slice).unwrap_or_default(),
            }),
            Err(_) => {
                let path = path.escape_ascii();
                Err(self.fault(format_args!("unsafe URI \"{path}\" was detected")))
            }
        }
    }

    fn stub(&self, name: &[u8]) -> Result<Stub, Fault> {
        let block = self.page.with(|it: &mut Memory| it.block(name));
        let text = block.ok_or_else(|| {
            let name = name.escape_ascii();
            self.fault(format_args!(
                "\"stub\"=\"{name}\" for \"include\" not found"
            ))
        })?;
        Ok(Stub {
            content_type: self.content_type.clone(),
            text,
        })
    }

    fn echo(&mut self, values: &Values) -> Result<Bytes, Fault> {
        let value = match self.variable(values.demanded(0)) {
            Some(value) => value,
            None => Bytes::copy_from_slice(values.get(1).unwrap_or(NONE)),
        };
        if value.is_empty() {
            return Ok(value);
        }
        match values.get(2) {
            None => {}
            Some(b"none") => self.encoding = Encoding::None,
            Some(b"url") => self.encoding = Encoding::Url,
            Some(b"entity") => self.encoding = Encoding::Entity,
            // nginx: only logged.
            Some(unknown) => {
                let unknown = unknown.escape_ascii();
                self.fault(format_args!(
                    "unknown encoding \"{unknown}\" in the \"echo\" command"
                ));
            }
        }
        Ok(match self.encoding {
            Encoding::None => value,
            Encoding::Url => Bytes::from(escape(&value, EscapeKind::Html).into_owned()),
            Encoding::Entity => Bytes::from(escape_html(&value).into_owned()),
        })
    }

    fn config(&mut self, values: &Values) {
        if let Some(text) = values.get(0) {
            self.error_text = Bytes::copy_from_slice(text);
        }
        if let (Some(form), Some(role)) = (values.get(1), self.req.role.as_mut()) {
            role.time_format = Some(Bytes::copy_from_slice(form));
        }
    }

    fn branch(&mut self, name: &[u8], expression: &[u8]) -> Result<(), Fault> {
        if name == b"if" && self.condition != Condition::Outside {
            let message = format_args!("the \"if\" command inside the \"if\" command");
            return Err(self.fault(message));
        }
        if self.has_chosen {
            self.is_shown = false;
            return Ok(());
        }
        self.is_shown = self.holds(expression)?;
        self.has_chosen = self.is_shown;
        self.condition = Condition::If;
        Ok(())
    }
}

/// A command as it is kept in a block.
fn written(command: &Command) -> Vec<u8> {
    let mut text = b"<!--#".to_vec();
    text.extend_from_slice(&command.name);
    for (name, value) in &command.parameters {
        for part in [b" ", &name[..], b"=\"", value, b"\""] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b" -->");
    text
}
