//! `proxy_redirect`: the Location and Refresh fields of an upstream, told in terms of this server.
//!
//! Rules are tried in their order and the first that matches changes the field; without any rule
//! the `default` one applies, made from `proxy_pass` and the location's prefix.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{Span, Spanned, Template};

use super::pass::PassTarget;
use crate::request::Request;
use crate::route::captures::RequestRegex as _;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::expression::{Case, Regex};
use millpond_exchange::scope::block::Draft;
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::level::Level;

/// The place of `proxy_pass` in a block.
pub struct PassPlace(pub Span);

/// One `proxy_redirect`.
#[derive(Clone, Debug)]
pub enum RedirectRule {
    /// Nothing is changed.
    Off,
    /// The address that is passed to becomes the location's name.
    Default,
    /// A prefix is replaced.
    Prefix(Template, Template),
    /// The value that a regular expression matches is replaced.
    Regex(Arc<Regex>, Template),
}

impl FromArgs for RedirectRule {
    const SYNTAX: &'static str = "default | off | redirect replacement";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.words;
        match words {
            [word] if word.text == "off" => Ok(RedirectRule::Off),
            [word] if word.text == "default" => Ok(RedirectRule::Default),
            [word] => Err(ArgError::other(format!(
                "invalid parameter \"{}\"",
                word.text
            ))),
            [from, _] => {
                let to = args.word(1)?;
                match regex_of(args, &from.text)? {
                    Some(regex) => Ok(RedirectRule::Regex(regex, to)),
                    None => Ok(RedirectRule::Prefix(args.word(0)?, to)),
                }
            }
            _ => Err(ArgError::Count),
        }
    }
}

/// The expression of a first argument that begins with `~`.
pub(super) fn regex_of(args: &mut Args<'_>, text: &str) -> Result<Option<Arc<Regex>>, ArgError> {
    let (source, case) = match (text.strip_prefix("~*"), text.strip_prefix('~')) {
        (Some(source), _) => (source, Case::Insensitive),
        (None, Some(source)) => (source, Case::Sensitive),
        (None, None) => return Ok(None),
    };
    let span = args.name.span;
    let variables = &mut args.cx.variables;
    Regex::new(source, case, |name| variables.store(name, span))
        .map(|regex| Some(Arc::new(regex)))
        .map_err(ArgError::other)
}

/// Settings of how redirects of an upstream are rewritten.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct PassRedirectPolicy {
    /// A text to replace in the Location and Refresh fields of the upstream. The default replaces
    /// the address that is passed to by the location's name.
    #[directive(name = "proxy_redirect", repeat)]
    pub rules: Vec<RedirectRule>,
}

/// Refuses what the rules of a block cannot mean.
pub fn check(builder: &mut Builder, lines: &Level, draft: &Draft) {
    let Some(raw) = lines.raw::<UpstreamSettings>().map(|it| &it.pass_redirect) else {
        return;
    };
    let is_off = |rule: &RedirectRule| matches!(rule, RedirectRule::Off);
    check_off(builder, "proxy_redirect", &raw.rules, is_off);
    let Some(rule) = raw
        .rules
        .iter()
        .find(|rule| matches!(rule.value, RedirectRule::Default))
    else {
        return;
    };
    // nginx: it is made from what stands before it. Of two files nobody can tell which is first.
    let pass = draft
        .get()
        .filter(|PassPlace(pass)| pass.file != rule.span.file || pass.start < rule.span.start);
    let target = draft.get().and_then(PassTarget::of);
    let has_variables = target.is_some_and(|target| target.fixed().is_none());
    let message = match pass {
        None => "should be placed after the \"proxy_pass\" directive",
        Some(_) if has_variables => "cannot be used with \"proxy_pass\" directive with variables",
        Some(_) => return,
    };
    builder.error(rule.span, format!("\"proxy_redirect default\" {message}"));
}

/// Refuses `off` beside other lines of its directive in one block.
pub(super) fn check_off<T>(
    builder: &mut Builder,
    name: &str,
    rules: &[Spanned<T>],
    is_off: impl Fn(&T) -> bool,
) {
    let Some((first, others)) = rules.split_first() else {
        return;
    };
    let one = others
        .iter()
        .find(|rule| is_off(&first.value) || is_off(&rule.value));
    if let Some(rule) = one {
        builder.error(rule.span, format!("\"{name}\" directive is duplicate"));
    }
}

/// The Location for the client, when it changes.
pub fn rewrite(req: &mut Request, target: &PassTarget, value: &[u8]) -> Option<Bytes> {
    let location = Arc::clone(&req.location);
    let rules = &location
        .settings
        .of::<UpstreamSettings>()
        .pass_redirect
        .rules;
    if rules.is_empty() {
        return by_default(target, value);
    }
    for rule in rules {
        let changed = match rule {
            RedirectRule::Off => return None,
            RedirectRule::Default => by_default(target, value),
            RedirectRule::Prefix(from, to) => {
                let from = req.eval(from);
                let rest = value.strip_prefix(&from[..]);
                rest.map(|rest| Bytes::from([&req.eval(to)[..], rest].concat()))
            }
            RedirectRule::Regex(regex, to) => {
                let subject = Bytes::copy_from_slice(value);
                replace_match(req, regex, &subject, to)
            }
        };
        if changed.is_some() {
            return changed;
        }
    }
    None
}

/// Replacement of a value that the expression matches. As in nginx it replaces the whole value.
pub(super) fn replace_match(
    req: &mut Request,
    regex: &Regex,
    subject: &Bytes,
    to: &Template,
) -> Option<Bytes> {
    regex
        .capture_from(req, subject.clone())
        .then(|| req.eval(to))
}

fn by_default(target: &PassTarget, value: &[u8]) -> Option<Bytes> {
    let (from, to) = target.default_redirect()?;
    let rest = value.strip_prefix(&from[..])?;
    Some(Bytes::from([&to[..], rest].concat()))
}

/// The Refresh field (`5; url=…`) for the client, when it changes.
pub fn rewrite_refresh(req: &mut Request, target: &PassTarget, value: &[u8]) -> Option<Bytes> {
    let at = memchr::memmem::find(&value.to_ascii_lowercase(), b"url=")? + 4;
    let (before, url) = value.split_at_checked(at)?;
    let changed = rewrite(req, target, url)?;
    Some(Bytes::from([before, &changed].concat()))
}
