//! `proxy_cache_graphql`: queries of GraphQL, whether they come by POST or by GET.
//!
//! ```text
//! POST  {"query": "…", "operationName": "…", "variables": {…}}   ─┐
//!                                                                 ├─► one identity
//! GET   ?query=…&operationName=…&variables=…                     ─┘
//! ```
//!
//! The identity is made of the tokens of the document, without what GraphQL ignores (white space,
//! commas, comments), the name of the operation, and the variables and extensions in one spelling.
//!
//! 1. A document that has anything but queries and fragments has no identity: a mutation or a
//!    subscription is never answered from the cache, nor stored.
//! 2. What another reader may take for something else has none either: a member or argument that
//!    is there twice, one that is not known, a list of requests, another type of content.
//! 3. The depth of a document is bounded before it is parsed.
//!
//! Sources: GraphQL (September 2025) §2.1, §2.3; GraphQL over HTTP §5, §6.

use std::borrow::Cow;

use apollo_parser::cst::Definition;
use apollo_parser::{Lexer, Parser, TokenKind};
use millpond_semantics::json::{self, Members};
use millpond_semantics::query::{arguments, decode};

/// Depth of braces, brackets and parentheses of a document within each other (arbitrary: servers
/// refuse what is deeper than ten or twenty).
const DEPTH_MAX: usize = 64;

/// Parts of a request by their names, in the order in which they stand in an identity.
const PARTS: [&[u8]; 4] = [b"query", b"operationName", b"variables", b"extensions"];

/// A query of GraphQL in the arguments of a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InQuery {
    /// There is none.
    None,
    /// There is something that has no identity.
    Other,
    /// There is one with this identity, beside these arguments.
    One(Vec<u8>, Vec<u8>),
}

/// The identity of a request whose content is in JSON.
#[must_use]
pub fn of_content(content: &[u8]) -> Option<Vec<u8>> {
    let spelled = json::spell(content, Members::Sorted)?;
    let mut parts: [Option<Cow<'_, [u8]>>; 4] = Default::default();
    for (name, value) in json::members(&spelled)? {
        let name = name.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        // INVARIANT 2.
        let place = PARTS.iter().position(|part| *part == name)?;
        let value = match place {
            _ if value == b"null" => continue,
            // No name, or one that no operation has: an error to some servers.
            1 if value == b"\"\"" => return None,
            0 | 1 => Cow::Owned(serde_json::from_slice::<String>(value).ok()?.into_bytes()),
            _ => Cow::Borrowed(value),
        };
        *parts.get_mut(place)? = Some(value);
    }
    identity(parts)
}

/// The query in the arguments of a URI.
#[must_use]
pub fn of_query(query: &[u8]) -> InQuery {
    let mut parts: [Option<Cow<'_, [u8]>>; 4] = Default::default();
    let mut rest = Vec::new();
    for argument in arguments(query) {
        let name = argument.name();
        let Some(place) = PARTS.iter().position(|part| *part == &*name) else {
            if !rest.is_empty() {
                rest.push(b'&');
            }
            rest.extend_from_slice(argument.as_written());
            continue;
        };
        let value = argument.value().map(decode).unwrap_or_default();
        let Some(part) = parts.get_mut(place).filter(|part| part.is_none()) else {
            return InQuery::Other;
        };
        // INVARIANT 2: there are applications that begin another argument there.
        if argument.has_semicolon() {
            return InQuery::Other;
        }
        *part = Some(value);
    }
    if parts.iter().all(Option::is_none) {
        return InQuery::None;
    }
    let [document, name, variables, extensions] = parts;
    let spell = |part: Option<Cow<'_, [u8]>>| match part {
        None => Some(None),
        Some(text) => json::spell(&text, Members::Sorted).map(|it| Some(Cow::Owned(it))),
    };
    let (Some(variables), Some(extensions)) = (spell(variables), spell(extensions)) else {
        return InQuery::Other;
    };
    match identity([document, name, variables, extensions]) {
        Some(identity) => InQuery::One(identity, rest),
        None => InQuery::Other,
    }
}

/// The identity of parts, of which the last two are JSON in one spelling.
fn identity(parts: [Option<Cow<'_, [u8]>>; 4]) -> Option<Vec<u8>> {
    let [document, name, variables, extensions] = parts;
    let document = tokens(std::str::from_utf8(&document?).ok()?)?;
    let is_object = |part: &Cow<'_, [u8]>| part.starts_with(b"{") || &**part == b"null";
    let object = |part: Option<Cow<'_, [u8]>>| match part {
        Some(part) if !is_object(&part) => None,
        Some(part) if matches!(&*part, b"{}" | b"null") => Some(Vec::new()),
        part => Some(part.unwrap_or_default().into_owned()),
    };
    let name = name.filter(|name| !name.is_empty()).unwrap_or_default();
    let mut all = Vec::new();
    for part in [
        document,
        name.into_owned(),
        object(variables)?,
        object(extensions)?,
    ] {
        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
        all.extend_from_slice(&part);
    }
    Some(all)
}

/// The tokens of a document that has queries and fragments only, with a space between them.
fn tokens(document: &str) -> Option<Vec<u8>> {
    let mut tokens = Vec::with_capacity(document.len());
    let mut depth = 0_usize;
    for token in Lexer::new(document) {
        let token = token.ok()?;
        match token.kind() {
            TokenKind::Whitespace | TokenKind::Comment | TokenKind::Comma | TokenKind::Eof => {
                continue;
            }
            TokenKind::LCurly | TokenKind::LBracket | TokenKind::LParen => depth += 1,
            TokenKind::RCurly | TokenKind::RBracket | TokenKind::RParen => {
                depth = depth.checked_sub(1)?;
            }
            _ => {}
        }
        if depth > DEPTH_MAX {
            return None;
        }
        tokens.extend_from_slice(token.data().as_bytes());
        tokens.push(b' ');
    }
    is_query(document).then_some(tokens)
}

/// INVARIANT 1.
fn is_query(document: &str) -> bool {
    let tree = Parser::new(document).recursion_limit(DEPTH_MAX).parse();
    if tree.errors().len() > 0 {
        return false;
    }
    let mut has_operation = false;
    let only_queries = tree
        .document()
        .definitions()
        .all(|definition| match definition {
            Definition::OperationDefinition(operation) => {
                has_operation = true;
                let kind = operation.operation_type();
                kind.is_none_or(|kind| kind.query_token().is_some())
            }
            Definition::FragmentDefinition(_) => true,
            _ => false,
        });
    only_queries && has_operation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(query: &str) -> Option<Vec<u8>> {
        of_content(serde_json::json!({ "query": query }).to_string().as_bytes())
    }

    fn get(query: &str) -> Option<Vec<u8>> {
        match of_query(query.as_bytes()) {
            InQuery::One(identity, rest) if rest.is_empty() => Some(identity),
            _ => None,
        }
    }

    #[test]
    fn one_query_has_one_identity_however_it_is_written_and_sent() {
        let written = post("{ a(b: 1) { c d } }").expect("a query");
        for other in [
            "{a(b:1){c,d}}",
            "{\n a(b:1) # why\n {c d}}\n",
            "\u{feff}{a(b:1){c d}}",
        ] {
            assert_eq!(post(other), Some(written.clone()), "{other}");
        }
        assert_eq!(get("query=%7Ba(b:1)%7Bc+d}}"), Some(written));
        let content = br#"{"variables":{"y":[1],"x":"\u0061"},"operationName":"q",
            "query":"query q($x: S) { a(x: $x) }","extensions":null}"#;
        let named = of_content(content).expect("a query");
        let query =
            "query=query q($x:S){a(x:$x)}&variables={\"x\":\"a\",\"y\":[1]}&operationName=q";
        assert_eq!(get(query), Some(named.clone()));
        assert_eq!(
            get(&format!("{query}&extensions={{}}")),
            Some(named.clone())
        );
        for other in [
            query.replace("[1]", "[2]"),
            query.replace("operationName=q", "operationName=p"),
            query.replace("a(x:", "b(x:"),
            query.replace("&operationName=q", ""),
            format!("{query}&extensions={{\"a\":1}}"),
        ] {
            let found = get(&other);
            assert!(found.is_some() && found.as_ref() != Some(&named), "{other}");
        }
    }

    #[test]
    fn strings_are_taken_as_they_are() {
        assert_ne!(post("{ a(b: \"x  y\") }"), post("{ a(b: \"x y\") }"));
        assert_ne!(post("{ a(b: \"# x\") }"), post("{ a(b: \"# y\") }"));
        assert!(post("{ a(b: \"# x\") }").is_some());
    }

    #[test]
    fn only_queries_and_their_fragments_have_an_identity() {
        for document in [
            "query q { a } fragment f on T { b }",
            "query a { a } query b { b }",
            "{ mutation }",
            "query mutation { subscription(a: \"mutation { b }\") }",
        ] {
            assert!(post(document).is_some(), "{document}");
        }
        let deep = "{a".repeat(DEPTH_MAX + 1) + &"}".repeat(DEPTH_MAX + 1);
        let list = format!("{{a(b: {}{})}}", "[".repeat(5000), "]".repeat(5000));
        for document in [
            "",
            "mutation { a }",
            "mutation",
            "subscription { a }",
            "query { a } mutation { b }",
            "{ a } subscription s { b }",
            "fragment f on T { b }",
            "type T { a: B }",
            "{ a } type T { a: B }",
            "{ a",
            "a }",
            "{ }",
            "{ a(b: ) }",
            "{ a % }",
            &deep,
            &list,
        ] {
            assert_eq!(post(document), None, "{document}");
        }
    }

    #[test]
    fn what_readers_may_differ_in_has_no_identity() {
        for content in [
            r#"[{"query":"{a}"}]"#,
            r#"{"query":"{a}","query":"{b}"}"#,
            r#"{"query":"{a}","\u0071uery":"mutation{b}"}"#,
            r#"{"query":"{a}","id":1}"#,
            r#"{"query":["{a}"]}"#,
            r#"{"query":null}"#,
            r#"{"variables":{}}"#,
            r#"{"query":"{a}","variables":[]}"#,
            r#"{"query":"{a}","variables":"{}"}"#,
            r#"{"query":"{a}","operationName":1}"#,
            r#"{"query":"{a}","operationName":""}"#,
            r#"{"query":"{a}"} x"#,
            "query={a}",
            "",
        ] {
            assert_eq!(of_content(content.as_bytes()), None, "{content}");
        }
        for query in [
            "query={a}&query={a}",
            "query={a}&%71uery={b}",
            "query={a};x",
            "query=mutation{a}",
            "query={a}&variables=[]",
            "query={a}&variables={",
            "operationName=a",
            "query",
        ] {
            assert_eq!(of_query(query.as_bytes()), InQuery::Other, "{query}");
        }
        assert_eq!(of_query(b"a=b&Query=c"), InQuery::None);
        let InQuery::One(_, rest) = of_query(b"b=%31&query={a}&a&c") else {
            panic!("a query");
        };
        assert_eq!(rest, b"b=%31&a&c");
    }
}
