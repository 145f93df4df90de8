//! Functions that derived code calls: the parts of `apply` and `resolve` that are the same for all
//! fields.
//!
//! The derives write one line for each field and leave the work to these functions, so that what
//! is generated stays small and what it does can be read here. Nothing else calls them.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;

use crate::code;
use crate::context::ParseContext;
use crate::schema::{Contexts, Directive, report_misplaced};
use crate::source::Span;
use crate::tree::Statement;
use crate::value::{ArgError, Args, Flags, FromArgs, Spanned, Words};

/// Properties of a directive that its field states, beside the type.
pub struct Rule {
    /// Contexts in which the directive may stand.
    pub contexts: Contexts,
    /// True if the directive opens a block.
    pub block: bool,
    /// Syntax of the directive, for messages.
    pub syntax: &'static str,
}

/// A statement that is being applied, and where.
pub struct Here<'a> {
    /// The statement.
    pub st: &'a Statement,
    /// Block that the directive stands in.
    pub context: Contexts,
    /// Context that the directive is read against.
    pub cx: &'a mut ParseContext,
}

/// Sets a directive that may stand in a block once.
pub fn set_once<T: FromArgs>(slot: &mut Option<Spanned<T>>, rule: &Rule, mut here: Here<'_>) {
    if !may_stand(rule, &mut here) {
        return;
    }
    if let Some(first) = slot {
        let message = format!("\"{}\" directive is duplicate", here.st.name.text);
        here.cx
            .diagnostics
            .push_error(here.st.span, message)
            .code(code::DUPLICATE_DIRECTIVE)
            .also(first.span, "it is set here first");
        return;
    }
    *slot = read(rule, here);
}

/// Sets a directive whose later occurrences replace the earlier ones.
pub fn set_last<T: FromArgs>(slot: &mut Option<Spanned<T>>, rule: &Rule, mut here: Here<'_>) {
    if may_stand(rule, &mut here)
        && let Some(value) = read(rule, here)
    {
        *slot = Some(value);
    }
}

/// A value whose occurrences in one block add up.
pub trait Union {
    /// Adds what an earlier occurrence said.
    fn add(&mut self, earlier: &Self);
}

impl<T: Words> Union for Flags<T> {
    fn add(&mut self, earlier: &Self) {
        earlier.iter().for_each(|word| self.insert(word));
    }
}

impl<T: Clone> Union for Vec<T> {
    fn add(&mut self, earlier: &Self) {
        self.splice(..0, earlier.iter().cloned());
    }
}

impl<T: Union> Union for Option<T> {
    fn add(&mut self, earlier: &Self) {
        if let (Some(set), Some(earlier)) = (self, earlier) {
            set.add(earlier);
        }
    }
}

/// Adds an occurrence to what the earlier ones in the block said.
pub fn set_union<T: FromArgs + Union>(
    slot: &mut Option<Spanned<T>>,
    rule: &Rule,
    mut here: Here<'_>,
) {
    if may_stand(rule, &mut here)
        && let Some(mut set) = read::<T>(rule, here)
    {
        if let Some(earlier) = slot {
            set.value.add(&earlier.value);
        }
        *slot = Some(set);
    }
}

/// Adds an occurrence of a directive that may be repeated.
pub fn set_repeated<T: FromArgs>(slot: &mut Vec<Spanned<T>>, rule: &Rule, mut here: Here<'_>) {
    if may_stand(rule, &mut here) {
        slot.extend(read(rule, here));
    }
}

/// The value of the innermost block that has one.
pub fn innermost<R, T: Clone>(
    outer_to_inner: &[&R],
    slot: impl Fn(&R) -> Option<&Spanned<T>>,
) -> Option<T> {
    let mut levels = outer_to_inner.iter().rev();
    levels.find_map(|raw| slot(raw).map(|set| set.value.clone()))
}

/// The list of the innermost block that has any.
pub fn innermost_list<R, T: Clone>(
    outer_to_inner: &[&R],
    slot: impl Fn(&R) -> &Vec<Spanned<T>>,
) -> Option<Vec<T>> {
    let lists = outer_to_inner.iter().rev().map(|raw| slot(raw));
    let list = lists.into_iter().find(|list| !list.is_empty())?;
    Some(list.iter().map(|set| set.value.clone()).collect())
}

/// The default of a field; parsed once for a context.
pub fn default_of<T>(directive: &'static str, text: &'static str, cx: &mut ParseContext) -> T
where
    T: FromArgs + Clone + Send + Sync + Any,
{
    cx.default_of(directive, text)
}

/// Reads arguments for their errors only.
pub fn validate<T: FromArgs>(args: &mut Args<'_>) -> Result<(), ArgError> {
    T::from_args(args).map(drop)
}

/// Place at which a field was set.
pub fn last_span<T>(slot: &[Spanned<T>]) -> Option<Span> {
    slot.last().map(|set| set.span)
}

/// The name under which a family declares the directive that a protocol calls `name`; empty, which
/// is no name, for the name of another protocol.
pub fn declared_name<'a>(name: &'a str, protocol: &str) -> Cow<'a, str> {
    if protocol == "proxy" {
        return Cow::Borrowed(name);
    }
    if name.starts_with("proxy_") {
        return Cow::Borrowed("");
    }
    match name
        .strip_prefix(protocol)
        .and_then(|rest| rest.strip_prefix('_'))
    {
        Some(rest) => Cow::Owned(format!("proxy_{rest}")),
        None => Cow::Borrowed(name),
    }
}

/// The protocol's name for a declared name, and the manual text with all such names.
pub fn for_protocol(text: &'static str, protocol: &str) -> Cow<'static, str> {
    if protocol == "proxy" || !text.contains("proxy_") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("proxy_") {
        let (before, behind) = rest.split_at(at);
        out.push_str(before);
        let inside = before.ends_with(|char: char| char.is_ascii_alphanumeric() || char == '_');
        out.push_str(if inside { "proxy" } else { protocol });
        rest = behind.strip_prefix("proxy").unwrap_or_default();
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Index from the name of a directive to the family of a scope that declares it: made from the
/// tables of the families in order.
pub fn index(tables: Vec<Vec<Directive>>) -> HashMap<Cow<'static, str>, usize> {
    let mut index = HashMap::new();
    for (family, table) in tables.into_iter().enumerate() {
        for directive in table {
            index.entry(directive.name).or_insert(family);
        }
    }
    index
}

/// Checks the place, then the end of the statement, as nginx does; reports what is wrong.
fn may_stand(rule: &Rule, here: &mut Here<'_>) -> bool {
    let Here { st, context, cx } = here;
    if !rule.contexts.allows(*context) {
        report_misplaced(st, rule.contexts, cx);
        return false;
    }
    let name = &st.name.text;
    let message = match (rule.block, st.body.is_some()) {
        (true, true) | (false, false) => return true,
        (false, true) => format!("directive \"{name}\" is not terminated by \";\""),
        (true, false) => format!("directive \"{name}\" has no opening \"{{\""),
    };
    cx.diagnostics
        .push_error(st.span, message)
        .code(code::BLOCK_EXPECTED);
    false
}

fn read<T: FromArgs>(rule: &Rule, here: Here<'_>) -> Option<Spanned<T>> {
    let Here { st, cx, .. } = here;
    let read = T::from_args(&mut Args {
        name: &st.name,
        words: &st.args,
        body: st.body.as_deref(),
        cx,
    });
    match read {
        Ok(value) => Some(Spanned {
            value,
            span: st.span,
        }),
        Err(error) => {
            error.report(st, rule.syntax, cx);
            None
        }
    }
}

pub use crate::value::one_word;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_rename_directives_in_both_directions() {
        for (name, protocol, declared) in [
            ("proxy_cache", "proxy", "proxy_cache"),
            ("fastcgi_cache", "fastcgi", "proxy_cache"),
            ("proxy_cache", "fastcgi", ""),
            ("fastcgicache", "fastcgi", "fastcgicache"),
            ("cache_site", "fastcgi", "cache_site"),
            ("uwsgi_cache", "fastcgi", "uwsgi_cache"),
        ] {
            assert_eq!(
                declared_name(name, protocol),
                declared,
                "{name} for {protocol}"
            );
        }
        let text = "`proxy_cache` and `my_proxy_x`; proxy_";
        assert_eq!(
            for_protocol(text, "uwsgi"),
            "`uwsgi_cache` and `my_proxy_x`; uwsgi_"
        );
        assert_eq!(for_protocol(text, "proxy"), text);
    }
}
