//! Compression dictionaries (RFC 9842): the fields by which an answer becomes a dictionary and a
//! client says which one it has, and the URLs that it is for.
//!
//! ```text
//! Use-As-Dictionary: match="/app/*/main.js", id="one"     a response is a dictionary
//! Available-Dictionary: :pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:   a request has it
//! ```
//!
//! [`Offer::parse`] reads the first, [`available`] the second, and [`Offer::is_for`] compares the
//! URL of a request with the pattern.
//!
//! 1. A pattern is a URL Pattern without groups of regular expressions (§2.1.1). Of its syntax `*`,
//!    `:name` and escapes are known; an offer with braces or modifiers is none, and so is one whose
//!    pattern names another origin than its own.
//! 2. Comparison takes time in proportion to the tokens of the pattern times the bytes of the URL,
//!    and the tokens are few.

use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

use crate::list::joined;

/// Bytes of a field that is read (arbitrary: what is longer is none).
pub const FIELD_MAX: usize = 2048;
/// Letters of an id (§2.1.3).
const ID_MAX: usize = 1024;
/// Tokens of a pattern (arbitrary: patterns have a handful).
const TOKENS_MAX: usize = 32;
/// Bytes of a path with its query that is compared (arbitrary: what is longer does not match).
const URL_MAX: usize = 8192;

/// SHA-256 of a dictionary.
pub type Hash = [u8; 32];

/// A content coding that needs a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DictionaryCoding {
    /// Brotli (§4).
    Brotli,
    /// Zstandard (§5).
    Zstd,
}

impl DictionaryCoding {
    /// The name in fields.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DictionaryCoding::Brotli => "dcb",
            DictionaryCoding::Zstd => "dcz",
        }
    }

    /// The bytes before the hash with which a body in the coding begins.
    #[must_use]
    pub fn magic(self) -> &'static [u8] {
        match self {
            DictionaryCoding::Brotli => &[0xff, 0x44, 0x43, 0x42],
            // A frame of zstd that is skipped, and is as long as the hash.
            DictionaryCoding::Zstd => &[0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0],
        }
    }
}

/// An answer's word that it may be used as a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    path: Pattern,
    query: Option<Pattern>,
    /// The name that clients send with the hash; empty if it has none.
    pub id: String,
}

/// A part of a URL's pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// These bytes.
    Text(Vec<u8>),
    /// `*`: any bytes.
    Any,
    /// `:name`: bytes up to the next slash, one at least.
    Segment,
}

impl Offer {
    /// Reads the lines of Use-As-Dictionary of an answer from a path of an origin
    /// (`https://shop.example`); none where the answer is no dictionary.
    #[must_use]
    pub fn parse<'a>(
        lines: impl IntoIterator<Item = &'a [u8]>,
        (origin, path): (&[u8], &[u8]),
    ) -> Option<Offer> {
        let value = joined(lines);
        if value.is_empty() || value.len() > FIELD_MAX {
            return None;
        }
        let read: Dictionary = Parser::new(&value).parse().ok()?;
        let id = match read.get("id").map(bare) {
            None => String::new(),
            Some(BareItem::String(id)) if id.as_str().len() <= ID_MAX => id.as_str().to_owned(),
            Some(_) => return None,
        };
        // §2.1.4: a client ignores a format that it does not know.
        match read.get("type").map(bare) {
            None => {}
            Some(BareItem::Token(word)) if word.as_str() == "raw" => {}
            Some(_) => return None,
        }
        // §2.1.2: a list of strings; which of them a request is for, its client knows.
        if let Some(destinations) = read.get("match-dest") {
            let ListEntry::InnerList(list) = destinations else {
                return None;
            };
            let is_string = |item: &Item| matches!(item.bare_item, BareItem::String(_));
            if !list.items.iter().all(is_string) {
                return None;
            }
        }
        let BareItem::String(pattern) = bare(read.get("match")?) else {
            return None;
        };
        let (path, query) = patterns(pattern.as_str().as_bytes(), (origin, path))?;
        Some(Offer { path, query, id })
    }

    /// True if a request for a path with its query, of the same origin, may use the dictionary.
    #[must_use]
    pub fn is_for(&self, target: &[u8]) -> bool {
        if target.len() > URL_MAX {
            return false;
        }
        let end = memchr::memchr(b'?', target).unwrap_or(target.len());
        let (path, query) = target.split_at(end);
        let query = query.get(1..).unwrap_or_default();
        self.path.matches(path) && self.query.as_ref().is_none_or(|it| it.matches(query))
    }
}

/// The item of a member; a list is none that is expected anywhere.
fn bare(entry: &ListEntry) -> &BareItem {
    const LIST: &BareItem = &BareItem::Boolean(false);
    match entry {
        ListEntry::Item(item) => &item.bare_item,
        ListEntry::InnerList(_) => LIST,
    }
}

/// The patterns of path and query; no pattern of the query lets all through.
fn patterns(text: &[u8], (origin, path): (&[u8], &[u8])) -> Option<(Pattern, Option<Pattern>)> {
    let own = match text.strip_prefix(origin) {
        Some(rest) if rest.starts_with(b"/") => rest,
        // INVARIANT 1.
        _ if text.starts_with(b"//") || memchr::memmem::find(text, b"://").is_some() => {
            return None;
        }
        _ => text,
    };
    let mark = query_mark(own)?;
    let (own_path, query) = own.split_at(mark);
    let query = match query.get(1..) {
        Some(query) => Some(Pattern::parse(query)?),
        None => None,
    };
    let path_end = memchr::memchr(b'?', path).unwrap_or(path.len());
    let base = path.get(..path_end)?;
    let pattern = match own_path {
        [] => Pattern(vec![Token::Text(base.to_vec())]),
        [b'/', ..] => Pattern::parse(own_path)?,
        _ => {
            let folder = memchr::memrchr(b'/', base).map_or(0, |slash| slash + 1);
            let mut pattern = Pattern(vec![Token::Text(base.get(..folder)?.to_vec())]);
            pattern.0.extend(Pattern::parse(own_path)?.0);
            pattern
        }
    };
    Some((pattern, query))
}

/// The place of the mark before the query, or the end; none if a fragment or a modifier is there.
fn query_mark(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    let mut mark = text.len();
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'#' => return None,
            b'?' if mark == text.len() => mark = at,
            _ => {}
        }
    }
    // Behind a wildcard the mark would say that it is optional.
    let is_modifier = text.get(mark).is_some()
        && (text.get(..mark)?.ends_with(b"*") || ends_with_name(text.get(..mark)?));
    (!is_modifier).then_some(mark)
}

fn ends_with_name(text: &[u8]) -> bool {
    let name = text.iter().rev().take_while(|byte| is_of_name(**byte));
    let len = name.count();
    len > 0
        && text
            .get(..text.len() - len)
            .is_some_and(|before| before.ends_with(b":"))
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

impl Pattern {
    fn parse(mut text: &[u8]) -> Option<Pattern> {
        let mut tokens = Vec::new();
        while let Some((first, rest)) = text.split_first() {
            text = rest;
            match first {
                b'*' => tokens.push(Token::Any),
                b':' if rest.first().is_some_and(|byte| is_of_name(*byte)) => {
                    let end = rest.iter().position(|byte| !is_of_name(*byte));
                    text = rest.get(end.unwrap_or(rest.len())..)?;
                    tokens.push(Token::Segment);
                }
                // Groups and modifiers.
                b'(' | b')' | b'{' | b'}' | b'+' | b':' => return None,
                byte => {
                    let mut byte = *byte;
                    if byte == b'\\' {
                        (byte, text) = rest.split_first().map(|(it, rest)| (*it, rest))?;
                    }
                    match tokens.last_mut() {
                        Some(Token::Text(bytes)) => bytes.push(byte),
                        _ => tokens.push(Token::Text(vec![byte])),
                    }
                }
            }
        }
        // INVARIANT 2.
        (tokens.len() <= TOKENS_MAX).then_some(Pattern(tokens))
    }

    /// Goes through the tokens with all places that those before may have come to.
    fn matches(&self, text: &[u8]) -> bool {
        let mut places = vec![false; text.len() + 1];
        if let Some(first) = places.first_mut() {
            *first = true;
        }
        for token in &self.0 {
            places = token.step(text, &places);
        }
        places.last() == Some(&true)
    }
}

impl Token {
    fn step(&self, text: &[u8], from: &[bool]) -> Vec<bool> {
        let mut to = vec![false; from.len()];
        match self {
            Token::Text(bytes) => {
                let mut reached = from.iter().enumerate().filter(|(_, is)| **is);
                let is_here =
                    |at: usize| text.get(at..).is_some_and(|rest| rest.starts_with(bytes));
                for (at, _) in reached.by_ref().filter(|(at, _)| is_here(*at)) {
                    if let Some(place) = to.get_mut(at + bytes.len()) {
                        *place = true;
                    }
                }
            }
            Token::Any => {
                let mut is_behind = false;
                for (place, is) in to.iter_mut().zip(from) {
                    is_behind |= is;
                    *place = is_behind;
                }
            }
            Token::Segment => {
                let mut is_inside = false;
                for (at, byte) in text.iter().enumerate() {
                    is_inside |= from.get(at) == Some(&true);
                    is_inside &= *byte != b'/';
                    if let Some(place) = to.get_mut(at + 1) {
                        *place = is_inside;
                    }
                }
            }
        }
        to
    }
}

/// The hash of the dictionary that a request has (§2.2); none if the field is no such hash.
#[must_use]
pub fn available(field: &[u8]) -> Option<Hash> {
    match item(field)? {
        BareItem::ByteSequence(bytes) => bytes.try_into().ok(),
        _ => None,
    }
}

/// The name that a request gives of its dictionary (§2.3); none if the field is no name.
#[must_use]
pub fn id(field: &[u8]) -> Option<String> {
    match item(field)? {
        BareItem::String(id) => Some(id.as_str().to_owned()),
        _ => None,
    }
}

/// The item that a field is; none of one that is too long.
fn item(field: &[u8]) -> Option<BareItem> {
    if field.len() > FIELD_MAX {
        return None;
    }
    let read: Item = Parser::new(field).parse().ok()?;
    Some(read.bare_item)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: (&[u8], &[u8]) = (b"https://www.example.com", b"/app/v1/main.js?x=1");

    fn offer(field: &str) -> Option<Offer> {
        Offer::parse([field.as_bytes()], PLACE)
    }

    /// §2.1.1, and the examples of §2.1.5.
    #[test]
    fn a_dictionary_is_for_the_urls_that_its_pattern_matches() {
        for (pattern, target, expected) in [
            ("/product/*", "/product/a/b?c", true),
            ("/product/*", "/product/", true),
            ("/product/*", "/products", false),
            ("/app/*/main.js", "/app/v2/main.js", true),
            ("/app/*/main.js", "/app/v2/x/main.js?y", true),
            ("/app/*/main.js", "/app/main.js", false),
            ("/app/:version/main.js", "/app/v2/main.js", true),
            ("/app/:version/main.js", "/app/v2/x/main.js", false),
            ("/app/:version/main.js", "/app//main.js", false),
            ("/a:b-:c", "/ax-y", true),
            ("/*", "/", true),
            ("*", "/app/v1/", true),
            ("*", "/app/v2/", false),
            ("main*.js", "/app/v1/main.2.js", true),
            ("main*.js", "/app/v1/other.js", false),
            ("?v=*", "/app/v1/main.js?v=2", true),
            ("?v=*", "/app/v1/main.js?w=2", false),
            ("?v=*", "/app/v1/other.js?v=2", false),
            ("/a?v=:n", "/a?v=2", true),
            ("/a?v=:n", "/a", false),
            ("/a", "/a?anything", true),
            ("b?v=1", "/app/v1/b?v=1", true),
            ("b?v=1", "/app/v1/b?v=2", false),
            ("/a\\\\*", "/a*", true),
            ("/a\\\\*", "/ab", false),
            ("/a\\\\?b", "/a?b", false),
            ("https://www.example.com/a*", "/ab", true),
        ] {
            let offer = offer(&format!("match=\"{pattern}\"")).expect(pattern);
            assert_eq!(
                offer.is_for(target.as_bytes()),
                expected,
                "{pattern} {target}"
            );
        }
    }

    /// §2.1.1: a pattern with groups of regular expressions, or of another origin, is not used.
    #[test]
    fn what_is_no_dictionary_or_none_that_is_understood_is_none() {
        let long = format!("match=\"/\", id=\"{}\"", "x".repeat(ID_MAX + 1));
        let tokens = format!("match=\"/{}\"", "*/".repeat(TOKENS_MAX));
        for field in [
            "",
            "match",
            "match=/a",
            "match=(\"/a\")",
            "id=\"x\"",
            "match=\"/([a-z]+)\"",
            "match=\"/{a}?\"",
            "match=\"/a*?\"",
            "match=\"/:a?b\"",
            "match=\"/a+\"",
            "match=\"/a#b\"",
            "match=\"https://other.example/a\"",
            "match=\"https://www.example.com.evil/a\"",
            "match=\"//other.example/a\"",
            "match=\"/a\\\\\"",
            "match=\"/\", type=other",
            "match=\"/\", type=\"raw\"",
            "match=\"/\", match-dest=\"script\"",
            "match=\"/\", match-dest=(script)",
            "match=\"/\", id=one",
            &long,
            &tokens,
        ] {
            assert_eq!(offer(field), None, "{field}");
        }
        let told = offer("match=\"/a*\", match-dest=(\"script\" \"\"), id=\"one\", type=raw, x=1");
        assert_eq!(told.map(|it| it.id).as_deref(), Some("one"));
    }

    /// §2.2.
    #[test]
    fn a_request_has_the_dictionary_of_a_hash() {
        let hash = available(b":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:").expect("a hash");
        assert_eq!((hash[0], hash[31]), (0xa5, 0x6e));
        for field in ["", ":AAAA:", "\"x\"", "pZGm", ":pZGm", "?1"] {
            assert_eq!(available(field.as_bytes()), None, "{field}");
        }
        assert_eq!(id(b"\"one\"").as_deref(), Some("one"));
        assert_eq!(id(b"one"), None);
    }
}
