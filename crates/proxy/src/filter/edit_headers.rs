//! `more_set_headers`, `more_clear_headers`, `more_set_input_headers`, `more_clear_input_headers`:
//! fields of answers and requests that are replaced or removed, in the language of the module that
//! nginx's users add for it. Those of requests are changed in `handler/input_headers.rs`.
//!
//! 1. The lines of outer blocks come first, then those of the block, each in its order.
//! 2. They meet an answer before `add_header` and `expires` do, whatever its status, so they do not
//!    remove what those add.
//! 3. What frames an answer (Content-Length, Transfer-Encoding, Connection) cannot be set; a
//!    Content-Length that is removed leaves a body of unknown length. What frames a request is
//!    neither set nor removed: its body was told by it.
//!
//! Sources: ngx_headers_more 0.34, its manual and what it does.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::schema::report_misplaced;
use millpond_conf::{
    Applied, ArgError, Args, Contexts, Directive, Family, ParseContext, Span, Spanned, Statement,
    Template, Word,
};
use millpond_semantics::date::parse_http_date;
use millpond_wire::header::{Field, Known};

use super::{HeadHook, headers};
use crate::filter::settings::FilterSettings;
use crate::request::Request;
use millpond_exchange::response::type_set::ContentType;
use millpond_exchange::response::{RangeRule, Response};

/// The blocks in which the directives may stand.
const CONTEXTS: Contexts = Contexts::HTTP
    .union(Contexts::SERVER)
    .union(Contexts::LOCATION)
    .union(Contexts::IF_LOCATION);

/// Arguments of the directive that sets.
const SET_SYNTAX: &str = "[-t types] [-s statuses] 'name: value' ...";
/// Arguments of the directive that removes.
const CLEAR_SYNTAX: &str = "[-t types] [-s statuses] name | prefix* ...";
/// Arguments of the directive that sets fields of requests.
const SET_INPUT_SYNTAX: &str = "[-r] [-t types] 'name: value' ...";
/// Arguments of the directive that removes fields of requests.
const CLEAR_INPUT_SYNTAX: &str = "[-t types] name | prefix* ...";

/// The edits of a location.
#[derive(Clone, Debug, Default)]
pub struct EditPolicy {
    pub(super) lines: Arc<[Line]>,
    /// Lines about requests.
    pub(crate) input: Arc<[Line]>,
}

/// One line, and the answers that it is about.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Media types; empty for all.
    types: Vec<Bytes>,
    /// Statuses; empty for all.
    statuses: Vec<u16>,
    /// True if only fields that are there are changed.
    pub(crate) only_present: bool,
    pub(crate) edits: Vec<Edit>,
}

/// The change of one field.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub(crate) name: Name,
    /// Nothing removes the field, as an empty value does.
    pub(crate) value: Option<Template>,
}

/// The fields that an edit is about.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// The field of a name.
    Is(Known, Bytes),
    /// All whose names begin so.
    BeginsWith(Bytes),
}

/// A directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fields of answers are set.
    Set,
    /// Fields of answers are removed.
    Clear,
    /// Fields of requests are set.
    SetInput,
    /// Fields of requests are removed.
    ClearInput,
}

impl Action {
    fn of(name: &str) -> Option<Action> {
        match name {
            "more_set_headers" => Some(Action::Set),
            "more_clear_headers" => Some(Action::Clear),
            "more_set_input_headers" => Some(Action::SetInput),
            "more_clear_input_headers" => Some(Action::ClearInput),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Action::Set => "more_set_headers",
            Action::Clear => "more_clear_headers",
            Action::SetInput => "more_set_input_headers",
            Action::ClearInput => "more_clear_input_headers",
        }
    }

    fn syntax(self) -> &'static str {
        match self {
            Action::Set => SET_SYNTAX,
            Action::Clear => CLEAR_SYNTAX,
            Action::SetInput => SET_INPUT_SYNTAX,
            Action::ClearInput => CLEAR_INPUT_SYNTAX,
        }
    }

    fn sets(self) -> bool {
        matches!(self, Action::Set | Action::SetInput)
    }

    fn is_about_requests(self) -> bool {
        matches!(self, Action::SetInput | Action::ClearInput)
    }

    fn record(self, doc: &'static str) -> Directive {
        Directive {
            name: self.name().into(),
            contexts: CONTEXTS,
            syntax: self.syntax(),
            default: None,
            doc: doc.into(),
            source: concat!(file!(), ":", line!()),
            block: false,
            validate: match self {
                Action::Set => |args| Line::read(Action::Set, args).map(drop),
                Action::Clear => |args| Line::read(Action::Clear, args).map(drop),
                Action::SetInput => |args| Line::read(Action::SetInput, args).map(drop),
                Action::ClearInput => |args| Line::read(Action::ClearInput, args).map(drop),
            },
        }
    }
}

/// Written by hand, because directives share a list (INVARIANT 1).
impl Family for EditPolicy {
    type Raw = Vec<Spanned<(Action, Line)>>;

    fn directives(_protocol: &'static str) -> Vec<Directive> {
        vec![
            Action::Set.record(
                "Replaces fields of answers of any status, or adds those that are not there; an \
                 empty value removes one. With \"-s\" only of these statuses, with \"-t\" only of \
                 these media types, each a list in quotes. \"add_header\" adds to what is left.",
            ),
            Action::Clear.record(
                "Removes fields of answers, also those whose name begins with what stands before \
                 a \"*\".",
            ),
            Action::SetInput.record(
                "Replaces fields of requests, or adds those that are not there, for all that runs \
                 behind `rewrite`; an empty value removes one. With \"-r\" only fields that are \
                 there, with \"-t\" only of requests with bodies of these media types, a list in \
                 quotes.\n\n# Differs from nginx\n\nFields that frame the body cannot be changed. \
                 `$host` stays as the client asked for it.",
            ),
            Action::ClearInput.record(
                "Removes fields of requests, also those whose name begins with what stands before \
                 a \"*\".",
            ),
        ]
    }

    fn apply(
        raw: &mut Self::Raw,
        _protocol: &str,
        st: &Statement,
        context: Contexts,
        cx: &mut ParseContext,
    ) -> Applied {
        let Some(action) = Action::of(&st.name.text) else {
            return Applied::Unknown;
        };
        if !CONTEXTS.allows(context) {
            report_misplaced(st, CONTEXTS, cx);
            return Applied::Done;
        }
        let mut args = Args {
            name: &st.name,
            words: &st.args,
            body: st.body.as_deref(),
            cx,
        };
        match Line::read(action, &mut args) {
            Ok(line) => raw.push(Spanned {
                value: (action, line),
                span: st.span,
            }),
            Err(error) => error.report(st, action.syntax(), cx),
        }
        Applied::Done
    }

    fn resolve(outer_to_inner: &[&Self::Raw], _cx: &mut ParseContext) -> Self {
        let of = |is_about_requests: bool| {
            let all = outer_to_inner.iter().flat_map(|raw| raw.iter());
            let some = all.filter(|set| set.value.0.is_about_requests() == is_about_requests);
            some.map(|set| set.value.1.clone()).collect()
        };
        EditPolicy {
            lines: of(false),
            input: of(true),
        }
    }

    fn span_of(raw: &Self::Raw, _protocol: &str, name: &str) -> Option<Span> {
        let last = raw.iter().rev().find(|set| set.value.0.name() == name);
        last.map(|set| set.span)
    }
}

impl Line {
    fn read(action: Action, args: &mut Args<'_>) -> Result<Line, ArgError> {
        let mut line = Line::default();
        let mut words = args.at_least(1)?.iter().enumerate();
        while let Some((index, word)) = words.next() {
            let mut list = || {
                let missing = || ArgError::value(index, "option takes an argument");
                words.next().ok_or_else(missing)
            };
            match word.text.as_str() {
                "-t" => line.add_types(&list()?.1.text),
                "-s" if !action.is_about_requests() => line.add_statuses(list()?)?,
                "-r" if action == Action::SetInput => line.only_present = true,
                option if option.starts_with('-') => {
                    let message = format!("invalid option name: \"{option}\"");
                    return Err(ArgError::value(index, message));
                }
                _ => line.edits.push(Edit::read(action, (index, word), args.cx)?),
            }
        }
        if line.edits.is_empty() {
            return Err(ArgError::Count);
        }
        Ok(line)
    }

    fn add_types(&mut self, list: &str) {
        let types = list.split_ascii_whitespace();
        self.types
            .extend(types.map(|it| Bytes::from(it.to_string())));
    }

    fn add_statuses(&mut self, (index, list): (usize, &Word)) -> Result<(), ArgError> {
        for status in list.text.split_ascii_whitespace() {
            let read = status.parse().map_err(|_| {
                ArgError::value(index, format!("invalid digit in status code: \"{status}\""))
            })?;
            self.statuses.push(read);
        }
        Ok(())
    }

    fn is_about(&self, response: &Response) -> bool {
        let has_status = self.statuses.is_empty() || self.statuses.contains(&response.status);
        has_status && (self.types.is_empty() || self.has_type(response))
    }

    fn has_type(&self, response: &Response) -> bool {
        let of = ContentType::of(response);
        of.is_some_and(|of| self.types.iter().any(|it| it == of.media_type))
    }

    /// True if the line is about a request of this Content-Type.
    pub(crate) fn is_about_type(&self, content_type: &[u8]) -> bool {
        let media_type = content_type.split(|byte| *byte == b';').next();
        let of = media_type.unwrap_or_default().trim_ascii();
        self.types.is_empty() || self.types.iter().any(|it| it.eq_ignore_ascii_case(of))
    }
}

impl Edit {
    fn read(
        action: Action,
        (index, word): (usize, &Word),
        cx: &mut ParseContext,
    ) -> Result<Edit, ArgError> {
        let (name, value) = match word.text.split_once(':') {
            Some((name, value)) => (name.trim_ascii_end(), value.trim_ascii_start()),
            None => (word.text.as_str(), ""),
        };
        let value = if action.sets() { value } else { "" };
        let name = Name::read(action, name, value).map_err(|why| ArgError::value(index, why))?;
        if value.is_empty() {
            return Ok(Edit { name, value: None });
        }
        let template = Template::parse(value, word.span, &mut cx.variables)
            .map_err(|why| ArgError::value(index, why.to_string()))?;
        Ok(Edit {
            name,
            value: Some(template),
        })
    }

    fn run(&self, req: &mut Request, response: &mut Response) {
        let value = self.value.as_ref().map(|value| match value.as_literal() {
            Some(literal) => Bytes::copy_from_slice(literal),
            None => headers::with_head(req, response, |req| req.eval(value)),
        });
        match (&self.name, value.filter(|value| !value.is_empty())) {
            (Name::Is(known, name), Some(value)) => {
                let value = finish(req, response, *known, value);
                set(response, (*known, name), value);
            }
            (Name::Is(known, name), None) => clear(response, *known, name),
            (Name::BeginsWith(prefix), _) => clear_all(response, prefix),
        }
    }
}

impl Name {
    fn read(action: Action, name: &str, value: &str) -> Result<Name, String> {
        if name.is_empty() {
            return Err("a field has no name".to_string());
        }
        if let Some(prefix) = name.strip_suffix('*')
            && value.is_empty()
        {
            return Ok(Name::BeginsWith(Bytes::from(prefix.to_string())));
        }
        let name = Bytes::from(name.to_string());
        let known = Known::of(&name);
        let is_changed = !value.is_empty() || action.is_about_requests();
        if frames(known) && is_changed {
            let name = String::from_utf8_lossy(&name);
            return Err(format!("\"{name}\" is the server's own, and cannot be set"));
        }
        Ok(Name::Is(known, name))
    }
}

/// True for fields that tell where a message ends, and the one of its connection.
pub(crate) fn frames(known: Known) -> bool {
    matches!(
        known,
        Known::ContentLength | Known::TransferEncoding | Known::Connection
    )
}

/// Makes the edits of the location.
pub(crate) fn run(req: &mut Request, response: &mut Response) {
    if !req.location.filters.edits {
        return;
    }
    let location = Arc::clone(&req.location);
    if let Some(HeadHook(look)) = location.parts.get() {
        look(req, response);
    }
    for line in location
        .settings
        .of::<FilterSettings>()
        .edit_headers
        .lines
        .iter()
    {
        if line.is_about(response) {
            for edit in &line.edits {
                edit.run(req, response);
            }
        }
    }
}

/// The value as it is sent. nginx: a redirect gets the server's address, and the character set that
/// an upstream named stays.
fn finish(req: &Request, response: &Response, known: Known, value: Bytes) -> Bytes {
    match known {
        Known::Location => req.redirect_to(value),
        Known::ContentType => match ContentType::of(response) {
            Some(old) if !old.charset.is_empty() && !names_charset(&value) => {
                [&value, b"; charset=".as_slice(), old.charset]
                    .concat()
                    .into()
            }
            _ => value,
        },
        _ => value,
    }
}

fn names_charset(content_type: &[u8]) -> bool {
    let mut parameters = content_type.split(|byte| *byte == b';').skip(1);
    parameters.any(|it| {
        let name = it.trim_ascii_start().get(..8);
        name.is_some_and(|name| name.eq_ignore_ascii_case(b"charset="))
    })
}

/// Gives a field one value, in place of the first one.
fn set(response: &mut Response, (known, name): (Known, &Bytes), value: Bytes) {
    if known == Known::LastModified {
        response.last_modified = parse_http_date(&value);
    }
    let mut new = Some(value);
    response.fields.retain_mut(|field| {
        if !field.name.eq_ignore_ascii_case(name) {
            return true;
        }
        match new.take() {
            Some(value) => {
                field.value = value;
                true
            }
            None => false,
        }
    });
    if let Some(value) = new {
        response.fields.push(Field {
            known,
            name: name.clone(),
            value,
        });
    }
}

fn clear(response: &mut Response, known: Known, name: &[u8]) {
    match known {
        Known::Server => response.orders.hides_server = true,
        Known::Date => response.orders.hides_date = true,
        Known::ContentLength => response.length = None,
        Known::LastModified => response.last_modified = None,
        Known::AcceptRanges => response.parts.rule = RangeRule::Refused,
        _ => {}
    }
    response.fields.remove_name(name);
}

fn clear_all(response: &mut Response, prefix: &[u8]) {
    response.fields.retain(|field| {
        let begin = field.name.get(..prefix.len());
        !begin.is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
    });
}
