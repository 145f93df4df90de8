//! XML as scripts read it: a text to pieces in their order, well-formed or refused.
//!
//! The tree is the script's, and so is its memory: a piece is handed over as soon as it is read.
//!
//! Invariants:
//! 1. No byte of a document makes it panic, and each costs constant time: elements are nested
//!    [`MOST_DEPTH`] deep at most, and see [`MOST_SCOPE`] names of namespaces.
//! 2. Nothing but the text is read. Entities that a document declares are not expanded: they stand
//!    for nothing.

use std::collections::HashSet;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// The most elements within each other: libxml2's limit.
const MOST_DEPTH: usize = 256;
/// The most names of namespaces in one scope; a guess, and far more than documents have.
const MOST_SCOPE: usize = 200;
/// The namespace of the prefix `xml`.
const XML: &str = "http://www.w3.org/XML/1998/namespace";

/// A piece of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// The beginning of an element.
    Open(Open<'a>),
    /// The end of the element that has begun last.
    Close,
    /// Text, which is not empty.
    Text(&'a str),
    /// A comment.
    Comment(&'a str),
    /// A processing instruction: target, content.
    Instruction(&'a str, &'a str),
}

/// The beginning of an element.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Open<'a> {
    /// Its name.
    pub(crate) name: Name<'a>,
    /// The namespaces that it declares: prefix, name.
    pub(crate) namespaces: Vec<(&'a str, String)>,
    /// Its attributes.
    pub(crate) attributes: Vec<(Name<'a>, String)>,
}

/// A name in its namespace, which is empty for none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    /// The prefix, or nothing.
    pub(crate) prefix: &'a str,
    /// The name behind it.
    pub(crate) local: &'a str,
    /// The namespace.
    pub(crate) namespace: String,
}

/// Takes pieces; what it fails with ends the reading.
pub(crate) type Take<'t, E> = &'t mut dyn FnMut(Piece<'_>) -> Result<(), E>;

/// The end of a reading before that of the document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stopped<E> {
    /// The document is wrong, in these words.
    Wrong(String),
    /// The taker of the pieces has failed.
    Taker(E),
}

type Told<T> = Result<T, String>;

/// Reads a document.
pub(crate) fn read<E>(text: &str, take: Take<'_, E>) -> Result<(), Stopped<E>> {
    let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let config = reader.config_mut();
    config.check_comments = true;
    config.expand_empty_elements = true;
    config.trim_markup_names_in_closing_tags = true;
    let mut state = State::default();
    loop {
        let event = reader.read_event();
        let at = reader.buffer_position();
        let stopped = |why: String| Stopped::Wrong(format!("{why} at {}", place(text, at)));
        let event = event.map_err(|error| stopped(error.to_string()))?;
        let is_end = matches!(event, Event::Eof);
        if !matches!(
            event,
            Event::Text(_) | Event::CData(_) | Event::GeneralRef(_)
        ) {
            let run = std::mem::take(&mut state.run);
            if !run.is_empty() {
                take(Piece::Text(&run)).map_err(Stopped::Taker)?;
            }
        }
        if let Some(piece) = state.piece(&event).map_err(stopped)? {
            take(piece).map_err(Stopped::Taker)?;
        }
        state.is_begun = true;
        if is_end {
            return Ok(());
        }
    }
}

/// Line and column, from one.
fn place(text: &str, at: u64) -> String {
    let length = usize::try_from(at).unwrap_or(usize::MAX);
    let before = text.as_bytes().get(..length).unwrap_or(text.as_bytes());
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before
        .iter()
        .rev()
        .take_while(|byte| **byte != b'\n')
        .count()
        + 1;
    format!("{line}:{column}")
}

#[derive(Default)]
struct State {
    /// The namespaces in scope, the innermost last, and how many of them each open element sees.
    scope: Vec<(String, String)>,
    marks: Vec<usize>,
    /// The text that has come since the last piece.
    run: String,
    is_begun: bool,
    has_root: bool,
    entities: Entities,
}

impl State {
    /// The piece that an event is, unless it is part of one or of none.
    fn piece<'e>(&mut self, event: &'e Event<'_>) -> Told<Option<Piece<'e>>> {
        match event {
            Event::Start(start) => self.open(start).map(|open| Some(Piece::Open(open))),
            Event::Empty(_) => Err("an element without its end".to_string()),
            Event::End(_) => {
                let _own = self.marks.pop();
                self.scope.truncate(self.marks.last().copied().unwrap_or(0));
                Ok(Some(Piece::Close))
            }
            Event::Text(text) => self.text(text).map(|()| None),
            Event::CData(data) => {
                if self.marks.is_empty() {
                    return Err("a text outside of the root".to_string());
                }
                self.push(data).map(|()| None)
            }
            Event::GeneralRef(reference) => self.reference(reference).map(|()| None),
            Event::Comment(comment) => characters(comment).map(|text| Some(Piece::Comment(text))),
            Event::PI(instruction) => {
                let (target, content) = (instruction.target(), instruction.content());
                if !is_name(target) || target.eq_ignore_ascii_case("xml") {
                    return Err("an instruction without a valid target".to_string());
                }
                let content = characters(content.trim_start())?;
                Ok(Some(Piece::Instruction(target, content)))
            }
            Event::Decl(_) if self.is_begun => Err("a declaration that is not first".to_string()),
            Event::Decl(declaration) => match declaration.encoding() {
                Some(Ok(name)) if !is_utf8(&name) => Err(format!("the encoding {name}")),
                Some(Err(error)) => Err(error.to_string()),
                _ => Ok(None),
            },
            Event::DocType(_) if self.has_root || self.entities == Entities::Own => {
                Err("a document type behind its place".to_string())
            }
            Event::DocType(_) => {
                self.entities = Entities::Own;
                Ok(None)
            }
            Event::Eof if !self.marks.is_empty() => Err("the end within an element".to_string()),
            Event::Eof if !self.has_root => Err("a document without a root".to_string()),
            Event::Eof => Ok(None),
        }
    }

    fn open<'e>(&mut self, start: &'e BytesStart<'_>) -> Told<Open<'e>> {
        if self.marks.is_empty() && self.has_root {
            return Err("a second root".to_string());
        }
        if self.marks.len() >= MOST_DEPTH {
            return Err(format!("elements more than {MOST_DEPTH} deep"));
        }
        self.has_root = true;
        let written = attributes(start.attributes_raw(), self.entities)?;
        let mut namespaces = Vec::new();
        let mut plain = Vec::new();
        for (name, value) in written {
            match name.split_once(':') {
                None if name == "xmlns" => namespaces.push(("", value)),
                Some(("xmlns", prefix)) => namespaces.push((prefix, value)),
                _ => plain.push((name, value)),
            }
        }
        for (prefix, name) in &namespaces {
            let is_reserved = *prefix == "xmlns" || (*prefix == "xml") != (name == XML);
            if is_reserved || (!prefix.is_empty() && name.is_empty()) {
                return Err(format!("the namespace \"{name}\" of \"{prefix}\""));
            }
            self.scope.push(((*prefix).to_string(), name.clone()));
        }
        if self.scope.len() > MOST_SCOPE {
            return Err(format!("more than {MOST_SCOPE} namespaces"));
        }
        self.marks.push(self.scope.len());
        let mut seen = HashSet::new();
        let mut named = Vec::with_capacity(plain.len());
        for (name, value) in plain {
            let name = self.name(name, Sort::Attribute)?;
            if !name.namespace.is_empty()
                && !seen.insert((name.namespace.clone(), name.local.to_string()))
            {
                return Err(format!("two attributes \"{}\"", name.local));
            }
            named.push((name, value));
        }
        Ok(Open {
            name: self.name(text_of(start), Sort::Element)?,
            namespaces,
            attributes: named,
        })
    }

    fn name<'e>(&self, written: &'e str, sort: Sort) -> Told<Name<'e>> {
        let (prefix, local) = written.split_once(':').unwrap_or(("", written));
        let is_valid = is_name(local) && !local.contains(':');
        if !is_valid || (prefix.is_empty() && written.contains(':')) || !is_fit(prefix) {
            return Err(format!("the name \"{written}\" is not valid"));
        }
        let mut scope = self.scope.iter().rev();
        let namespace = match (prefix, sort) {
            ("", Sort::Attribute) => String::new(),
            ("xml", _) => XML.to_string(),
            _ => match scope.find(|(known, _)| known == prefix) {
                Some((_, name)) => name.clone(),
                None if prefix.is_empty() => String::new(),
                None => return Err(format!("the prefix \"{prefix}\" is not declared")),
            },
        };
        Ok(Name {
            prefix,
            local,
            namespace,
        })
    }

    fn text(&mut self, text: &str) -> Told<()> {
        if text.contains("]]>") {
            return Err("the end of CDATA in a text".to_string());
        }
        if self.marks.is_empty() {
            let is_space = text.bytes().all(is_space);
            let told = || "a text outside of the root".to_string();
            return is_space.then_some(()).ok_or_else(told);
        }
        self.push(text)
    }

    fn push(&mut self, text: &str) -> Told<()> {
        // XML 1.0 §2.11: each end of a line is one line feed.
        let mut rest = characters(text)?;
        while let Some((before, behind)) = rest.split_once('\r') {
            self.run.push_str(before);
            self.run.push('\n');
            rest = behind.strip_prefix('\n').unwrap_or(behind);
        }
        self.run.push_str(rest);
        Ok(())
    }

    fn reference(&mut self, name: &str) -> Told<()> {
        if self.marks.is_empty() {
            return Err("a reference outside of the root".to_string());
        }
        self.run.extend(referred(name, self.entities)?);
        Ok(())
    }
}

/// The entities that a document may refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Entities {
    /// Those of the language.
    #[default]
    Known,
    /// Those that its document type may declare, too.
    Own,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Element,
    Attribute,
}

fn text_of<'e>(start: &'e BytesStart<'_>) -> &'e str {
    start.name().into_inner()
}

/// Names and values of attributes, as XML 1.0 §3.1 writes them.
fn attributes(raw: &str, entities: Entities) -> Told<Vec<(&str, String)>> {
    let wrong = || "an attribute that is not written as one".to_string();
    let mut made: Vec<(&str, String)> = Vec::new();
    let mut seen = HashSet::new();
    let mut rest = raw;
    loop {
        let next = rest.trim_start_matches(|c: char| is_space_char(c));
        if next.is_empty() {
            return Ok(made);
        }
        if next.len() == rest.len() {
            return Err(wrong());
        }
        let (name, behind) = next.split_once('=').ok_or_else(wrong)?;
        let name = name.trim_end_matches(|c: char| is_space_char(c));
        let behind = behind.trim_start_matches(|c: char| is_space_char(c));
        let quote = behind.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (value, behind) = behind
            .get(1..)
            .zip(quote)
            .and_then(|(value, quote)| value.split_once(quote))
            .ok_or_else(wrong)?;
        if !is_name(name) {
            return Err(format!("the name \"{name}\" is not valid"));
        }
        if !seen.insert(name) {
            return Err(format!("two attributes \"{name}\""));
        }
        made.push((name, value_of(value, entities)?));
        rest = behind;
    }
}

/// The value of an attribute (XML 1.0 §3.3.3).
fn value_of(written: &str, entities: Entities) -> Told<String> {
    let mut made = String::with_capacity(written.len());
    let mut rest = characters(written)?;
    while let Some(at) = rest.find(['<', '&', '\r', '\n', '\t']) {
        let (before, behind) = rest.split_at(at);
        made.push_str(before);
        rest = behind;
        if let Some(behind) = rest.strip_prefix('&') {
            let told = || "a reference without its end".to_string();
            let (name, behind) = behind.split_once(';').ok_or_else(told)?;
            made.extend(referred(name, entities)?);
            rest = behind;
        } else if rest.starts_with('<') {
            return Err("\"<\" in the value of an attribute".to_string());
        } else {
            made.push(' ');
            let behind = rest.strip_prefix("\r\n");
            rest = behind.unwrap_or_else(|| rest.get(1..).unwrap_or_default());
        }
    }
    made.push_str(rest);
    Ok(made)
}

/// The character that a reference stands for; none for an entity of the document.
fn referred(name: &str, entities: Entities) -> Told<Option<char>> {
    let wrong = || format!("the reference \"{name}\" is not valid");
    if let Some(number) = name.strip_prefix('#') {
        let (digits, radix) = match number.strip_prefix('x') {
            Some(digits) => (digits, 16),
            None => (number, 10),
        };
        let is_number = digits.chars().all(|c| c.is_digit(radix));
        let code = u32::from_str_radix(digits, radix)
            .ok()
            .filter(|_| is_number);
        let found = code.and_then(char::from_u32).filter(|c| is_character(*c));
        return found.map(Some).ok_or_else(wrong);
    }
    match name {
        "lt" => Ok(Some('<')),
        "gt" => Ok(Some('>')),
        "amp" => Ok(Some('&')),
        "quot" => Ok(Some('"')),
        "apos" => Ok(Some('\'')),
        _ if entities == Entities::Own && is_name(name) => Ok(None),
        _ => Err(wrong()),
    }
}

/// The text, if it has no characters that XML has not.
fn characters(text: &str) -> Told<&str> {
    match text.chars().find(|c| !is_character(*c)) {
        Some(c) => Err(format!("the character U+{:04X}", u32::from(c))),
        None => Ok(text),
    }
}

/// XML 1.0 §2.2.
fn is_character(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_space_char(c: char) -> bool {
    u8::try_from(c).is_ok_and(is_space)
}

/// True for no prefix, and for a valid one.
fn is_fit(prefix: &str) -> bool {
    prefix.is_empty() || is_name(prefix)
}

/// XML 1.0 §2.3.
pub(crate) fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(is_name_start)
        && characters.all(|c| {
            is_name_start(c)
                || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}'
                    | '\u{203f}'..='\u{2040}')
        })
}

fn is_name_start(c: char) -> bool {
    matches!(c, ':' | 'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}'
        | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}'
        | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
        | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
        | '\u{10000}'..='\u{effff}')
}

fn is_utf8(name: &str) -> bool {
    ["utf-8", "us-ascii"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Result<Vec<String>, String> {
        let mut made = Vec::new();
        let mut take = |piece: Piece<'_>| {
            made.push(match piece {
                Piece::Open(open) => {
                    let mut text = format!("<{}:{}", open.name.namespace, open.name.local);
                    for (name, value) in &open.attributes {
                        text += &format!(" {}:{}={value:?}", name.namespace, name.local);
                    }
                    text
                }
                Piece::Close => ">".to_string(),
                Piece::Text(text) => text.to_string(),
                Piece::Comment(text) => format!("!{text}"),
                Piece::Instruction(target, content) => format!("?{target}|{content}"),
            });
            Ok::<(), ()>(())
        };
        match read(text, &mut take) {
            Ok(()) => Ok(made),
            Err(Stopped::Wrong(why)) => Err(why),
            Err(Stopped::Taker(())) => unreachable!(),
        }
    }

    #[test]
    fn documents_are_read() {
        for (text, expected) in [
            ("<a/>", vec!["<:a", ">"]),
            (
                "\u{feff}<?xml version=\"1.0\"?>\n<a> b </a >\n",
                vec!["<:a", " b ", ">"],
            ),
            (
                "<a>x<![CDATA[<&]]>&amp;&#x41;&#66;\r\ny\r</a>",
                vec!["<:a", "x<&&AB\ny\n", ">"],
            ),
            (
                "<a><!-- b --><?c  d e?></a>",
                vec!["<:a", "! b ", "?c|d e", ">"],
            ),
            (
                "<p:a xmlns:p='u' xmlns='v' p:b='1' c='2'><d/></p:a>",
                vec!["<u:a u:b=\"1\" :c=\"2\"", "<v:d", ">", ">"],
            ),
            (
                "<a xmlns='u'><b xmlns=''/></a>",
                vec!["<u:a", "<:b", ">", ">"],
            ),
            (
                "<a b='&lt;&#10;\t\r\n&quot;' xml:id = \"x\"/>",
                vec![
                    "<:a :b=\"<\\n  \\\"\" http://www.w3.org/XML/1998/namespace:id=\"x\"",
                    ">",
                ],
            ),
            (
                "<!DOCTYPE a [<!ENTITY b 'c'>]><a b='&b;'>&b;d</a>",
                vec!["<:a :b=\"\"", "d", ">"],
            ),
        ] {
            let expected = expected.into_iter().map(str::to_string).collect();
            assert_eq!(told(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_well_formed_is_refused_with_its_place() {
        for text in [
            "",
            "a",
            "<a",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><b/>",
            "<a/>x",
            "x<a/>",
            "<a b/>",
            "<a b=c/>",
            "<a b='1'c='2'/>",
            "<a b='1' b='2'/>",
            "<a b='<'/>",
            "<a b='&c;'/>",
            "<a>&b;</a>",
            "<a>&#0;</a>",
            "<a>&#xd800;</a>",
            "<a>&#+65;</a>",
            "<a>&</a>",
            "<a>]]></a>",
            "<a>\u{1}</a>",
            "<p:a/>",
            "<a p:b='1'/>",
            "<1/>",
            "<a:b:c/>",
            "<:a/>",
            "<a xmlns:p=''/>",
            "<a xmlns:xml='u'/>",
            "<a xmlns:xmlns='u'/>",
            "<a><?xml b?></a>",
            "<a xmlns:p='u' xmlns:q='u' p:b='1' q:b='2'/>",
            "<a/><!DOCTYPE a>",
            " <?xml version='1.0'?><a/>",
            "<a><!-- -- --></a>",
            "<![CDATA[a]]><a/>",
            "<?xml version='1.0' encoding='latin1'?><a/>",
        ] {
            assert!(told(text).is_err(), "{text}");
        }
        let why = told("<a>\n <b></c></a>").unwrap_err();
        assert!(why.contains(" at 2:"), "{why}");
    }

    #[test]
    fn what_would_cost_too_much_is_refused() {
        let deep = |depth: usize| "<a>".repeat(depth) + &"</a>".repeat(depth);
        assert!(told(&deep(MOST_DEPTH)).is_ok());
        assert!(told(&deep(MOST_DEPTH + 1)).is_err());
        let spaces: String = (0..=MOST_SCOPE)
            .map(|it| format!(" xmlns:p{it}='u'"))
            .collect();
        assert!(told(&format!("<a{spaces}/>")).is_err());
        let many: String = (0..100_000).map(|it| format!(" b{it}=''")).collect();
        assert!(told(&format!("<a{many}/>")).is_ok());
    }
}
