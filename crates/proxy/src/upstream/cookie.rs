//! `proxy_cookie_domain`, `proxy_cookie_path`, `proxy_cookie_flags`: cookies of an upstream, told
//! in terms of this server.
//!
//! Each Set-Cookie field is split into its name, value and attributes (RFC 6265, section 4.1.1) and
//! put together again; the first rule that matches an attribute changes it, and text that no rule
//! matches stays byte for byte.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::value::{ArgError, Args, FromArgs, FromWord};
use millpond_conf::{Template, Word};

use super::redirect::{check_off, regex_of, replace_match};
use crate::request::Request;
use crate::route::captures::RequestRegex as _;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::expression::{Case, Regex};
use millpond_exchange::scope::block::Draft;
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::level::Level;

/// Pattern that an attribute's value, or a cookie's name, is compared with.
#[derive(Clone, Debug)]
pub enum Matcher {
    /// A text with variables.
    Text(Template),
    /// A regular expression.
    Regex(Arc<Regex>),
}

/// One `proxy_cookie_domain` or `proxy_cookie_path`.
#[derive(Clone, Debug)]
pub enum CookieRule {
    /// Nothing is changed.
    Off,
    /// The part that matches is replaced.
    Replace(Matcher, Template),
}

impl FromArgs for CookieRule {
    const SYNTAX: &'static str = "off | text replacement";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        match args.words {
            [word] if word.text == "off" => Ok(CookieRule::Off),
            [word] => Err(ArgError::other(format!(
                "invalid parameter \"{}\"",
                word.text
            ))),
            [from, _] => Ok(CookieRule::Replace(
                matcher(args, &from.text)?,
                args.word(1)?,
            )),
            _ => Err(ArgError::Count),
        }
    }
}

fn matcher(args: &mut Args<'_>, text: &str) -> Result<Matcher, ArgError> {
    Ok(match regex_of(args, text)? {
        Some(regex) => Matcher::Regex(regex),
        None => Matcher::Text(args.word(0)?),
    })
}

/// One `proxy_cookie_domain`.
#[derive(Clone, Debug)]
pub struct DomainRule(CookieRule);

impl FromArgs for DomainRule {
    const SYNTAX: &'static str = "off | domain replacement";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let [from, to] = args.words else {
            return CookieRule::from_args(args).map(DomainRule);
        };
        // nginx: expressions for domains ignore case, and the first dots of texts do not count.
        let rule = match from.text.strip_prefix('~') {
            Some(source) => {
                let regex = caseless(args, source)?;
                CookieRule::Replace(Matcher::Regex(regex), args.word(1)?)
            }
            None => CookieRule::Replace(
                Matcher::Text(template(args, from, 0)?),
                template(args, to, 1)?,
            ),
        };
        Ok(DomainRule(rule))
    }
}

/// The template of a word without its first dot.
fn template(args: &mut Args<'_>, word: &Word, index: usize) -> Result<Template, ArgError> {
    let word = word.strip_prefix(".").unwrap_or_else(|| word.clone());
    Template::from_word(&word, args.cx).map_err(|error| error.at(index))
}

/// An expression that ignores case.
fn caseless(args: &mut Args<'_>, source: &str) -> Result<Arc<Regex>, ArgError> {
    let span = args.name.span;
    let variables = &mut args.cx.variables;
    Regex::new(source, Case::Insensitive, |name| {
        variables.store(name, span)
    })
    .map(Arc::new)
    .map_err(ArgError::other)
}

/// One `proxy_cookie_flags`.
#[derive(Clone, Debug)]
pub struct FlagsRule {
    /// The cookies it is for; `None` is `off`.
    cookie: Option<Matcher>,
    flags: Vec<Template>,
}

impl FromArgs for FlagsRule {
    const SYNTAX: &'static str = "off | cookie flag …";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        if words.len() == 1 && words[0].text == "off" {
            return Ok(FlagsRule {
                cookie: None,
                flags: Vec::new(),
            });
        }
        if words.len() == 1 {
            return Err(ArgError::value(
                0,
                format!("invalid parameter \"{}\"", words[0].text),
            ));
        }
        let cookie = match words[0].text.strip_prefix('~') {
            // nginx: expressions for names of cookies ignore case.
            Some(source) => Matcher::Regex(caseless(args, source)?),
            None => Matcher::Text(args.word(0)?),
        };
        let flags = (1..words.len())
            .map(|at| args.word(at))
            .collect::<Result<_, _>>()?;
        let rule = FlagsRule {
            cookie: Some(cookie),
            flags,
        };
        for (at, flag) in rule.flags.iter().enumerate() {
            if flag
                .as_literal()
                .is_some_and(|flag| Flag::parse(flag).is_none())
            {
                let message = format!("invalid flag \"{}\"", flag.source);
                return Err(ArgError::value(at + 1, message));
            }
        }
        Ok(rule)
    }
}

/// A flag to set or take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flag {
    Secure(bool),
    HttpOnly(bool),
    SameSite(Option<&'static [u8]>),
}

impl Flag {
    fn parse(text: &[u8]) -> Option<Flag> {
        let table: &[(&[u8], Flag)] = &[
            (b"secure", Flag::Secure(true)),
            (b"nosecure", Flag::Secure(false)),
            (b"httponly", Flag::HttpOnly(true)),
            (b"nohttponly", Flag::HttpOnly(false)),
            (b"samesite=strict", Flag::SameSite(Some(b"Strict"))),
            (b"samesite=lax", Flag::SameSite(Some(b"Lax"))),
            (b"samesite=none", Flag::SameSite(Some(b"None"))),
            (b"nosamesite", Flag::SameSite(None)),
        ];
        table
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
            .map(|(_, flag)| *flag)
    }
}

/// Settings of how cookies of an upstream are rewritten.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct CookiePolicy {
    /// A text to replace in the Domain attribute of cookies.
    #[directive(name = "proxy_cookie_domain", repeat)]
    pub domains: Vec<DomainRule>,
    /// A text to replace in the Path attribute of cookies.
    #[directive(name = "proxy_cookie_path", repeat)]
    pub paths: Vec<CookieRule>,
    /// Flags to set on, or take from, cookies of a name: secure, httponly,
    /// samesite=strict|lax|none, and each with `no` before it. The first line that matches counts.
    #[directive(name = "proxy_cookie_flags", repeat)]
    pub flags: Vec<FlagsRule>,
}

/// Refuses what the rules of a block cannot mean.
pub fn check(builder: &mut Builder, lines: &Level, _draft: &Draft) {
    let Some(raw) = lines.raw::<UpstreamSettings>().map(|it| &it.pass_cookie) else {
        return;
    };
    let is_off = |rule: &CookieRule| matches!(rule, CookieRule::Off);
    check_off(builder, "proxy_cookie_domain", &raw.domains, |rule| {
        is_off(&rule.0)
    });
    check_off(builder, "proxy_cookie_path", &raw.paths, is_off);
    check_off(builder, "proxy_cookie_flags", &raw.flags, |rule| {
        rule.cookie.is_none()
    });
}

/// An attribute of a cookie as it was written.
struct Attribute {
    name: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// The Set-Cookie for the client, when it changes.
pub fn rewrite(req: &mut Request, value: &[u8]) -> Option<Bytes> {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<UpstreamSettings>().pass_cookie;
    if policy.domains.is_empty() && policy.paths.is_empty() && policy.flags.is_empty() {
        return None;
    }
    let mut parts = value.split(|byte| *byte == b';');
    let pair = parts.next()?.to_vec();
    let mut attributes: Vec<Attribute> = parts.map(attribute).collect();
    let mut is_changed = false;
    for attribute in &mut attributes {
        let Some(old) = attribute.value.clone() else {
            continue;
        };
        let new = if attribute.name.eq_ignore_ascii_case(b"domain") {
            let rules = policy.domains.iter().map(|rule| &rule.0);
            replace(req, rules, &old, Whole::Domain)
        } else if attribute.name.eq_ignore_ascii_case(b"path") {
            replace(req, policy.paths.iter(), &old, Whole::Prefix)
        } else {
            continue;
        };
        if let Some(new) = new {
            attribute.value = Some(new);
            is_changed = true;
        }
    }
    let name = pair
        .split(|byte| *byte == b'=')
        .next()
        .unwrap_or_default()
        .to_vec();
    is_changed |= set_flags(req, &policy.flags, &name, &mut attributes);
    if !is_changed {
        return None;
    }
    let mut out = pair;
    for Attribute { name, value } in attributes {
        out.extend_from_slice(b"; ");
        out.extend_from_slice(&name);
        if let Some(value) = value {
            out.push(b'=');
            out.extend_from_slice(&value);
        }
    }
    Some(Bytes::from(out))
}

fn attribute(part: &[u8]) -> Attribute {
    let part = part.trim_ascii();
    match part.iter().position(|byte| *byte == b'=') {
        Some(at) => Attribute {
            name: part[..at].trim_ascii_end().to_vec(),
            value: Some(part[at + 1..].trim_ascii_start().to_vec()),
        },
        None => Attribute {
            name: part.to_vec(),
            value: None,
        },
    }
}

/// Ways to compare a text with an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    /// With its begin.
    Prefix,
    /// With all of it, as a domain.
    Domain,
}

fn replace<'a>(
    req: &mut Request,
    rules: impl Iterator<Item = &'a CookieRule>,
    value: &[u8],
    whole: Whole,
) -> Option<Vec<u8>> {
    for rule in rules {
        let (matcher, to) = match rule {
            CookieRule::Off => return None,
            CookieRule::Replace(matcher, to) => (matcher, to),
        };
        let replaced = match matcher {
            Matcher::Regex(regex) => {
                replace_match(req, regex, &Bytes::copy_from_slice(value), to).map(Vec::from)
            }
            Matcher::Text(text) => {
                let text = req.eval(text);
                replace_text(req, &text, value, (to, whole))
            }
        };
        if replaced.is_some() {
            return replaced;
        }
    }
    None
}

fn replace_text(
    req: &mut Request,
    text: &[u8],
    value: &[u8],
    (to, whole): (&Template, Whole),
) -> Option<Vec<u8>> {
    if whole == Whole::Prefix {
        let rest = value.strip_prefix(text)?;
        return Some([&req.eval(to)[..], rest].concat());
    }
    // nginx: domains are compared whole, without their first dot and without regard to case; the
    // dot of the cookie's own domain stays.
    let dot: &[u8] = if value.starts_with(b".") { b"." } else { b"" };
    let is_same = bare(value).eq_ignore_ascii_case(bare(text));
    is_same.then(|| [dot, &req.eval(to)[..]].concat())
}

/// A domain without its first dot.
fn bare(domain: &[u8]) -> &[u8] {
    domain.strip_prefix(b".").unwrap_or(domain)
}

/// Sets the flags of the first rule for the cookie; says whether there was one with flags.
fn set_flags(
    req: &mut Request,
    rules: &[FlagsRule],
    name: &[u8],
    attributes: &mut Vec<Attribute>,
) -> bool {
    for rule in rules {
        let is_match = match &rule.cookie {
            None => return false,
            Some(Matcher::Regex(regex)) => regex.capture_from(req, Bytes::copy_from_slice(name)),
            Some(Matcher::Text(text)) => req.eval(text).eq_ignore_ascii_case(name),
        };
        if !is_match {
            continue;
        }
        let mut is_changed = false;
        for flag in &rule.flags {
            let flag = req.eval(flag);
            if let Some(flag) = Flag::parse(&flag) {
                apply_flag(flag, attributes);
                is_changed = true;
            }
        }
        return is_changed;
    }
    false
}

fn apply_flag(flag: Flag, attributes: &mut Vec<Attribute>) {
    let (name, value): (&[u8], Option<Option<&[u8]>>) = match flag {
        Flag::Secure(set) => (b"Secure", set.then_some(None)),
        Flag::HttpOnly(set) => (b"HttpOnly", set.then_some(None)),
        Flag::SameSite(value) => (b"SameSite", value.map(Some)),
    };
    let at = attributes
        .iter()
        .position(|other| other.name.eq_ignore_ascii_case(name));
    match (value, at) {
        (None, Some(_)) => attributes.retain(|other| !other.name.eq_ignore_ascii_case(name)),
        (None, None) => {}
        (Some(value), Some(at)) => attributes[at].value = value.map(<[u8]>::to_vec),
        (Some(value), None) => attributes.push(Attribute {
            name: name.to_vec(),
            value: value.map(<[u8]>::to_vec),
        }),
    }
}
