//! `cache_args`, `$cache_args`: the arguments of the query that tell answers apart.
//!
//! A key with `$cache_args` in place of `$args` is the same however the arguments are ordered, and
//! whatever those say that the origin does not look at, such as the marks of a campaign. The
//! origin is asked with the query as the client wrote it, unless the configuration says otherwise.
//!
//! 1. Arguments are chosen by the name that an application would read, so that no other spelling
//!    of it gets past a list.
//! 2. Arguments whose order an application may see keep it: those of one name, also if it is
//!    spelled differently, has other capitals, or has a bracket behind it.
//! 3. An argument with a plain semicolon is never left out. There are applications that begin
//!    another argument there, which would then change their answer and not the key.
//! 4. Nothing is computed where the variable is not used.

use millpond_conf::Word;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_semantics::query::{Argument, arguments, decode};

/// Choice of the arguments that tell answers apart.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct ArgsPolicy {
    /// The arguments of the query that `$cache_args` has: all, only those that `keep` lists, or all
    /// but those that `drop` lists; what both list is dropped. A name that ends with `*` is the
    /// beginning of names. Names are compared as an application reads them, escapes taken back;
    /// their case matters.
    ///
    /// The arguments are sorted by their names; several of one name stay in their order. Escapes
    /// are written in one way, as RFC 3986 §6.2.2 calls them equivalent: `%7e` is `~`, and `%2f` is
    /// `%2F`. An argument without `=` is not the same as an empty one. An argument with a `;` in it
    /// is never left out, because some applications begin another argument there.
    ///
    /// The variable is for the key alone: with `proxy_cache_key $scheme$host$uri?$cache_args;` the
    /// origin is still asked with all arguments, and whatever is dropped must not change its
    /// answer.
    #[directive(name = "cache_args", default = "all")]
    pub choice: ArgChoice,
}

/// Meaning of the words of a `cache_args`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgChoice {
    /// Arguments that are kept; all without a list.
    keep: Option<Vec<NamePattern>>,
    /// Arguments that are left out.
    drop: Vec<NamePattern>,
}

/// A name, or the beginning of names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamePattern {
    text: Vec<u8>,
    is_prefix: bool,
}

impl FromArgs for ArgChoice {
    const SYNTAX: &'static str = "all | [keep NAME|PREFIX* ...] [drop NAME|PREFIX* ...]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        let mut choice = ArgChoice::default();
        if let [word] = words
            && word.text == "all"
        {
            return Ok(choice);
        }
        // A name that is one of these words can be escaped: `%6beep`.
        let is_list = |word: &Word| matches!(word.text.as_str(), "keep" | "drop");
        if !words.first().is_some_and(is_list) {
            return Err(ArgError::value(
                0,
                "a list must begin with \"keep\" or \"drop\"",
            ));
        }
        let mut list = &mut choice.drop;
        for (index, word) in words.iter().enumerate() {
            let next = words.get(index + 1);
            match word.text.as_str() {
                "keep" => list = choice.keep.get_or_insert_default(),
                "drop" => list = &mut choice.drop,
                _ => list.push(NamePattern::parse(word).map_err(|e| ArgError::value(index, e))?),
            }
            if is_list(word) && next.is_none_or(is_list) {
                let message = format!("no name behind \"{}\"", word.text);
                return Err(ArgError::value(index, message));
            }
        }
        Ok(choice)
    }
}

impl ArgChoice {
    /// Appends the chosen arguments of a query, sorted, in their one spelling.
    pub fn write(&self, query: &[u8], out: &mut Vec<u8>) {
        let chosen = arguments(query).filter(|argument| self.has(*argument));
        let mut chosen: Vec<_> = chosen.map(|it| (it.group(), it)).collect();
        // Stable: what is of one group stays in its order.
        chosen.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (index, (_, argument)) in chosen.iter().enumerate() {
            if index > 0 {
                out.push(b'&');
            }
            argument.write(out);
        }
    }

    fn has(&self, argument: Argument<'_>) -> bool {
        if argument.has_semicolon() {
            return true;
        }
        let name = argument.name();
        let lists = |list: &[NamePattern]| list.iter().any(|pattern| pattern.matches(&name));
        self.keep.as_deref().is_none_or(lists) && !lists(&self.drop)
    }
}

impl NamePattern {
    fn parse(word: &Word) -> Result<Self, String> {
        let text = word.text.as_str();
        let (stem, is_prefix) = match text.strip_suffix('*') {
            Some(stem) => (stem, true),
            None => (text, false),
        };
        if text.is_empty() {
            return Err("empty name".to_string());
        }
        if stem.contains('*') {
            return Err(format!("\"*\" must be the last character in \"{text}\""));
        }
        if stem.contains(['=', '&', '$']) {
            return Err(format!("invalid name \"{text}\""));
        }
        Ok(NamePattern {
            text: decode(stem.as_bytes()).into_owned(),
            is_prefix,
        })
    }

    fn matches(&self, name: &[u8]) -> bool {
        if self.is_prefix {
            name.starts_with(&self.text)
        } else {
            name == self.text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{ParseContext, Span};

    fn parse(text: &str) -> Result<ArgChoice, ArgError> {
        let word = |text: &str| Word {
            text: text.to_string(),
            span: Span::NONE,
            quoted: false,
        };
        let words: Vec<Word> = text.split_whitespace().map(word).collect();
        ArgChoice::from_args(&mut Args {
            name: &word("cache_args"),
            words: &words,
            body: None,
            cx: &mut ParseContext::default(),
        })
    }

    #[test]
    fn chosen_arguments_are_sorted() {
        for (choice, query, expected) in [
            ("all", "", ""),
            ("all", "b=2&a=1", "a=1&b=2"),
            ("all", "&b&&a=&", "a=&b"),
            ("all", "b=2&a=2&b=1", "a=2&b=2&b=1"),
            ("all", "%62=2&a=2&b=1", "a=2&b=2&b=1"),
            ("all", "B=2&a=0&b=1", "a=0&B=2&b=1"),
            ("all", "x[b]=2&x[a]=1&w", "w&x[b]=2&x[a]=1"),
            ("all", "x%5b%5d=2&x[]=1", "x%5B%5D=2&x[]=1"),
            ("drop utm_* gclid", "utm_a=1&b=2&gclid=3&a=1", "a=1&b=2"),
            ("drop utm_*", "%75tm_a=1&ut%6D_=2&utm=3", "utm=3"),
            ("drop a", "a&a=1&ab=1&A=1", "A=1&ab=1"),
            ("drop *", "a=1&b", ""),
            ("drop x[*", "x%5B1]=1&x=2", "x=2"),
            ("keep id page", "page=2&x=1&id=7", "id=7&page=2"),
            (
                "keep p_* id drop p_debug",
                "p_debug&p_a=1&x&id=2",
                "id=2&p_a=1",
            ),
            (
                "drop p_debug keep p_* id",
                "p_debug&p_a=1&x&id=2",
                "id=2&p_a=1",
            ),
            ("keep %6beep", "keep=1&drop=2", "keep=1"),
            ("drop utm_*", "utm_a=1;id=2&a", "a&utm_a=1;id=2"),
            ("keep id", "x=1;id=2&id=3&y=1%3Bid", "id=3&x=1;id=2"),
        ] {
            let mut out = Vec::new();
            let choice_of = parse(choice).unwrap();
            choice_of.write(query.as_bytes(), &mut out);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                expected,
                "{choice}: {query}"
            );
        }
    }

    #[test]
    fn other_words_are_refused() {
        for text in [
            "",
            "utm_*",
            "keep",
            "drop",
            "keep drop a",
            "drop a keep",
            "all a",
            "drop a*b",
            "drop a=1",
            "drop $x",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
