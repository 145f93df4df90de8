//! Strings with variables and the expressions of `if`.
//!
//! ```text
//! string      text, $name, ${name}; a backslash keeps \ ' " and $ from meaning anything
//! expression  string | string = string | string != string | string = /regex/ | …
//! ```
//!
//! A variable is one that the page has set, else one of the server.
//!
//! Invariants:
//! 1. A value is at most `MAX_STRING` bytes long: variables that double cannot fill the memory.
//! 2. Every fault is logged where it is found; whoever gets one shows the page's error text.
//!
//! Sources: nginx ngx_http_ssi_evaluate_string, _if, _regex_match.

use bytes::Bytes;
use millpond_conf::VarId;
use millpond_system::log::error::Level;

use super::command::{Fault, Interpreter};
use super::memory::Memory;
use crate::log::request_error;
use crate::request::Request;
use crate::var;
use millpond_exchange::expression::{Case, Regex};

/// The longest value (arbitrary: far above `ssi_value_length` and the values of fields).
const MAX_STRING: usize = 256 * 1024;

/// Logs a fault of the page's text.
pub(super) fn fault(req: &Request, message: std::fmt::Arguments<'_>) -> Fault {
    request_error::write(req, Level::Error, message);
    Fault
}

impl Interpreter {
    /// The value of a variable, in any case; `None` when there is none.
    pub(super) fn variable(&mut self, name: &[u8]) -> Option<Bytes> {
        let name = name.to_ascii_lowercase();
        if let Some(value) = self.page.with(|it: &mut Memory| it.find(&name)) {
            return Some(value);
        }
        let name = std::str::from_utf8(&name).ok()?;
        let mut value = Vec::new();
        var::write_named(&mut self.req, name, &mut value).then(|| Bytes::from(value))
    }

    /// Sets a variable of the page.
    pub(super) fn set_variable(&mut self, name: &[u8], value: Bytes) -> Result<(), Fault> {
        let name = name.to_ascii_lowercase();
        let outcome = self.page.with(|it: &mut Memory| it.set(&name, value));
        outcome.map_err(|full| fault(&self.req, format_args!("{full}")))
    }

    /// The value of a string.
    pub(super) fn evaluate(&mut self, text: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut value = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some((byte, behind)) = rest.split_first() {
            match (byte, behind) {
                (b'\\', [next @ (b'\\' | b'\'' | b'"' | b'$'), after @ ..]) => {
                    value.push(*next);
                    rest = after;
                }
                // nginx: a backslash before the end is lost.
                (b'\\', []) => rest = behind,
                (b'\\', [next, after @ ..]) => {
                    value.extend_from_slice(&[b'\\', *next]);
                    rest = after;
                }
                (b'$', _) => {
                    let (name, after) = self.name(behind, text)?;
                    if let Some(found) = self.variable(name) {
                        value.extend_from_slice(&found);
                    }
                    rest = after;
                }
                _ => {
                    value.push(*byte);
                    rest = behind;
                }
            }
            if value.len() > MAX_STRING {
                let message = format_args!("a value is longer than {MAX_STRING} bytes");
                return Err(fault(&self.req, message));
            }
        }
        Ok(value)
    }

    /// The name behind a dollar sign, and what follows it.
    fn name<'a>(&self, text: &'a [u8], whole: &[u8]) -> Result<(&'a [u8], &'a [u8]), Fault> {
        let bare = text.strip_prefix(b"{");
        let from = bare.unwrap_or(text);
        let is_of_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        let len = from.iter().take_while(is_of_name).count();
        let (name, after) = from.split_at(len);
        let after = match bare {
            None => after,
            Some(_) => after.strip_prefix(b"}").ok_or_else(|| {
                let name = name.escape_ascii();
                let message = format_args!("the closing bracket in \"{name}\" variable is missing");
                fault(&self.req, message)
            })?,
        };
        if name.is_empty() {
            let whole = whole.escape_ascii();
            let message = format_args!("invalid variable name in \"{whole}\"");
            return Err(fault(&self.req, message));
        }
        Ok((name, after))
    }

    /// The value of a path: relative to that of the text it stands in.
    pub(super) fn evaluate_path(&mut self, text: &[u8]) -> Result<Vec<u8>, Fault> {
        let value = self.evaluate(text)?;
        let has_variables = text.contains(&b'$');
        if value.first() == Some(&b'/') || (value.is_empty() && has_variables) {
            return Ok(value);
        }
        let folder = memchr::memrchr(b'/', &self.req.uri).map_or(0, |slash| slash + 1);
        let mut path = self.req.uri.get(..folder).unwrap_or_default().to_vec();
        path.extend_from_slice(&value);
        Ok(path)
    }

    /// True if an expression holds.
    pub(super) fn holds(&mut self, expression: &[u8]) -> Result<bool, Fault> {
        let is_of_left = |byte: &&u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'$' | b'{' | b'}' | b'_' | b'"' | b'\'')
        };
        let len = expression.iter().take_while(is_of_left).count();
        let (left, rest) = expression.split_at(len);
        let left = self.evaluate(&left.to_ascii_lowercase())?;
        let rest = trim_spaces_before(rest);
        if rest.is_empty() {
            return Ok(!left.is_empty());
        }
        let (is_wanted, right) = match rest {
            [b'=', right @ ..] => (true, right),
            [b'!', b'=', right @ ..] => (false, right),
            _ => return Err(self.invalid(expression)),
        };
        let is_equal = match trim_spaces_before(right) {
            [b'/', pattern @ .., b'/'] => {
                let pattern = self.evaluate(pattern)?;
                self.matches(&pattern, Bytes::from(left))?
            }
            [b'/', _, ..] => return Err(self.invalid(expression)),
            // nginx: a backslash makes a text of what begins like an expression.
            [b'\\', right @ ..] if right.first() == Some(&b'/') => self.evaluate(right)? == left,
            right => self.evaluate(right)? == left,
        };
        Ok(is_equal == is_wanted)
    }

    fn invalid(&self, expression: &[u8]) -> Fault {
        let expression = expression.escape_ascii();
        fault(
            &self.req,
            format_args!("invalid expression in \"{expression}\""),
        )
    }

    /// Matches, and keeps the groups.
    fn matches(&mut self, pattern: &[u8], subject: Bytes) -> Result<bool, Fault> {
        let mut names = Vec::new();
        let source = String::from_utf8_lossy(pattern);
        let compiled = Regex::new(&source, Case::Sensitive, |name| {
            names.push(name.to_ascii_lowercase());
            VarId(names.len() as u32 - 1)
        });
        let regex = compiled.map_err(|why| {
            let message = format_args!("invalid regular expression \"{source}\": {why}");
            fault(&self.req, message)
        })?;
        let groups = regex.groups(&subject).map_err(|gave_up| {
            request_error::write(&self.req, Level::Alert, format_args!("{gave_up}"));
            Fault
        })?;
        let Some(groups) = groups else {
            return Ok(false);
        };
        let group = |number: usize| match groups.get(number).copied().flatten() {
            Some((start, end)) => subject.slice(start as usize..end as usize),
            None => Bytes::new(),
        };
        let captures = (0..groups.len()).map(group).collect();
        self.page.with(|it: &mut Memory| it.set_captures(captures));
        for (number, VarId(name)) in regex.named_groups() {
            if let Some(name) = names.get(*name as usize) {
                self.set_variable(name.as_bytes(), group(*number as usize))?;
            }
        }
        Ok(true)
    }
}

fn trim_spaces_before(text: &[u8]) -> &[u8] {
    let count = text.iter().take_while(|byte| **byte == b' ').count();
    text.get(count..).unwrap_or_default()
}
