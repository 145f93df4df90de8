//! `charset`, `source_charset`, `override_charset`, `charset_types`, `charset_map`: character sets
//! of answers.
//!
//! An answer without a character set gets that of `charset`. When the set that the body is in is
//! known and another one, the body is converted by a `charset_map` between the two: byte by byte,
//! from bytes to UTF-8, or from UTF-8 to bytes.
//!
//! ```text
//! charset_map koi8-r utf-8 {      one byte      ◄──►  its bytes in UTF-8
//!     C0 D18E;                    unknown byte   ──►  ?
//!                                 &#8364;       ◄──   a character that has no byte
//! ```
//!
//! Invariants:
//! 1. Conversion never fails: what cannot be converted becomes `?` or a numeric reference.
//! 2. Not more than three bytes of an unfinished character are kept between pieces.
//!
//! Sources: nginx ngx_http_charset_filter.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use millpond_conf::{
    ArgError, Args, Contexts, FromArgs, Statement, Template, VarId, Word, WordError,
};
use millpond_system::body::{Body, BodyError, BodyStream, FILE_READ_SIZE, Piece};
use millpond_system::log::error::Level;
use millpond_wire::header::{Fields, Known};

use crate::filter::settings::FilterSettings;
use crate::log::request_error;
use crate::request::{Request, Value};
use millpond_exchange::response::type_set::{ContentType, TypeSet};
use millpond_exchange::response::{DIGESTS, RangeRule, Response};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::level::Closing;

/// The rows of this file.
pub const ROWS: &[Row] = &[Row {
    name: "charset_map",
    contexts: Contexts::HTTP,
    syntax: "charset1 charset2 { byte code; ... }",
    is_block: true,
    pass: Pass::First,
    doc: "Declares how one character set is converted to another and back, as pairs of hexadecimal codes. A map \
          to UTF-8 has `utf-8` as the second name and the bytes of each character in the second column.",
    apply: declare,
}];

/// The character set of answers.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, if_location)]
pub struct CharsetPolicy {
    /// The character set that is added to the Content-Type, and that bodies are converted to.
    #[directive(name = "charset", default = "off")]
    pub charset: Charset,
    /// The character set that bodies are in; when it is another one than `charset`, they are
    /// converted.
    #[directive(name = "source_charset", default = "off")]
    pub source: Charset,
    /// Converts also answers of upstreams that name a character set.
    #[directive(name = "override_charset", default = "off")]
    pub overrides: bool,
    /// The media types that get a character set, beside text/html.
    #[directive(
        name = "charset_types",
        default = "text/html text/xml text/plain text/vnd.wap.wml application/javascript application/rss+xml",
        contexts(http, server, location),
        repeat
    )]
    pub types: Vec<TypeSet>,
}

/// A character set in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Charset {
    /// None.
    Off,
    /// Character set of this name.
    Named(Bytes),
    /// The value of a variable.
    Variable(VarId),
}

impl FromArgs for Charset {
    const SYNTAX: &'static str = "charset | off";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let word = args.one()?;
        if word.text == "off" {
            return Ok(Charset::Off);
        }
        if !word.text.starts_with('$') {
            return Ok(Charset::Named(Bytes::from(word.text.clone())));
        }
        let template: Template = args.word(0)?;
        let mut variables = template.variables();
        match (variables.next(), template.parts.len()) {
            (Some(id), 1) => Ok(Charset::Variable(id)),
            _ => Err(WordError::Message("invalid variable name".to_owned()).at(0)),
        }
    }
}

impl Charset {
    /// The name for this request; `None` when there is none.
    fn name(&self, req: &mut Request) -> Option<Bytes> {
        match self {
            Charset::Off => None,
            Charset::Named(name) => Some(name.clone()),
            Charset::Variable(id) => match req.variable(*id) {
                Value::Found(name) if !name.is_empty() => Some(name),
                _ => None,
            },
        }
    }
}

/// Notes the sets of a block, and checks that they can be converted into one another.
pub fn close(level: &mut Closing<'_>) {
    let policy = &level.settings.of::<FilterSettings>().charset;
    let maps = level.builder.of::<CharsetMaps>();
    maps.note(policy);
    if let Err(message) = policy.check(maps) {
        level.builder.error(level.span(), message);
    }
}

impl CharsetPolicy {
    /// Checks that a map exists for the conversion that these settings ask for.
    pub fn check(&self, maps: &CharsetMaps) -> Result<(), String> {
        let (Charset::Named(source), Charset::Named(charset)) = (&self.source, &self.charset)
        else {
            return Ok(());
        };
        if source.eq_ignore_ascii_case(charset) || maps.find(source, charset).is_some() {
            return Ok(());
        }
        Err(no_map(source, charset))
    }
}

fn no_map(source: &[u8], target: &[u8]) -> String {
    let (source, target) = (
        String::from_utf8_lossy(source),
        String::from_utf8_lossy(target),
    );
    format!("no \"charset_map\" between the charsets \"{source}\" and \"{target}\"")
}

/// Conversion of one character set's bytes to those of another.
#[derive(Debug, PartialEq, Eq)]
pub enum Recode {
    /// Each byte becomes one byte.
    Bytes(Box<[u8; 256]>),
    /// Each byte becomes up to three.
    ToUtf8(Box<[Utf8; 256]>),
    /// Each character up to U+FFFF becomes one byte; 0 is none.
    FromUtf8(Box<[u8]>),
}

/// The bytes of one character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utf8 {
    len: u8,
    bytes: [u8; 3],
}

impl Utf8 {
    fn of(bytes: &[u8]) -> Option<Self> {
        let mut character = Utf8 {
            len: bytes.len() as u8,
            bytes: [0; 3],
        };
        character
            .bytes
            .get_mut(..bytes.len())?
            .copy_from_slice(bytes);
        Some(character)
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// The declared maps, by the small letters of both names, and all sets that are named.
#[derive(Debug, Default)]
pub struct CharsetMaps {
    maps: HashMap<(Vec<u8>, Vec<u8>), Arc<Recode>>,
    names: HashSet<Vec<u8>>,
}

impl Part for CharsetMaps {
    const PLACE: Place = Place::CharsetMaps;
}

impl CharsetMaps {
    /// The conversion between two sets.
    pub fn find(&self, source: &[u8], target: &[u8]) -> Option<&Arc<Recode>> {
        self.maps
            .get(&(source.to_ascii_lowercase(), target.to_ascii_lowercase()))
    }

    /// Notes the sets that a location names.
    pub fn note(&mut self, policy: &CharsetPolicy) {
        for charset in [&policy.charset, &policy.source] {
            if let Charset::Named(name) = charset
                && !self.knows(name)
            {
                self.names.insert(name.to_ascii_lowercase());
            }
        }
    }

    /// True if the configuration names a set.
    fn knows(&self, name: &[u8]) -> bool {
        self.names.contains(&name.to_ascii_lowercase())
    }

    fn insert(&mut self, source: &str, target: &str, recode: Recode) {
        let name = |name: &str| name.to_ascii_lowercase().into_bytes();
        self.names.extend([name(source), name(target)]);
        self.maps
            .insert((name(source), name(target)), Arc::new(recode));
    }
}

fn declare(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let [source, target] = statement.args.as_slice() else {
        let message = "invalid number of arguments in \"charset_map\" directive";
        builder.error(statement.span, message);
        return;
    };
    let (one, other) = (&source.text, &target.text);
    let message = if one.eq_ignore_ascii_case(other) {
        format!("\"charset_map\" between the same charsets \"{one}\" and \"{other}\"")
    } else if one.eq_ignore_ascii_case("utf-8") {
        "\"charset_map\" with \"utf-8\" charset should be given in the second column".to_owned()
    } else if builder
        .of::<CharsetMaps>()
        .find(one.as_bytes(), other.as_bytes())
        .is_some()
    {
        format!("duplicate \"charset_map\" between \"{one}\" and \"{other}\"")
    } else {
        let lines = statement.body.as_deref().unwrap_or_default();
        let (there, back) = if other.eq_ignore_ascii_case("utf-8") {
            utf8_tables(builder, lines)
        } else {
            byte_tables(builder, lines)
        };
        builder.of::<CharsetMaps>().insert(one, other, there);
        builder.of::<CharsetMaps>().insert(other, one, back);
        return;
    };
    builder.error(statement.span, message);
}

fn byte_tables(builder: &mut Builder, lines: &[Statement]) -> (Recode, Recode) {
    let mut there = Box::new(ascii_or_question());
    let mut back = there.clone();
    for line in lines {
        let Some((from, to)) = pair(builder, line) else {
            continue;
        };
        let Some(code) = hex_byte(&to.text) else {
            invalid_value(builder, to);
            continue;
        };
        if let Some(slot) = there.get_mut(usize::from(from)) {
            *slot = code;
        }
        if let Some(slot) = back.get_mut(usize::from(code)) {
            *slot = from;
        }
    }
    (Recode::Bytes(there), Recode::Bytes(back))
}

fn ascii_or_question() -> [u8; 256] {
    std::array::from_fn(|byte| if byte < 128 { byte as u8 } else { b'?' })
}

fn utf8_tables(builder: &mut Builder, lines: &[Statement]) -> (Recode, Recode) {
    let ascii = ascii_or_question();
    let one_byte = |byte: u8| Utf8 {
        len: 1,
        bytes: [byte, 0, 0],
    };
    let mut there: Box<[Utf8; 256]> = Box::new(ascii.map(one_byte));
    let mut back = vec![0; 0x1_0000].into_boxed_slice();
    for (slot, byte) in back.iter_mut().zip(0..128) {
        *slot = byte;
    }
    for line in lines {
        let Some((from, to)) = pair(builder, line) else {
            continue;
        };
        let character = hex_bytes(&to.text).and_then(|bytes| {
            let code = std::str::from_utf8(&bytes)
                .ok()
                .and_then(|text| text.chars().next());
            Some((Utf8::of(&bytes)?, code? as usize))
        });
        let Some((bytes, code)) = character else {
            invalid_value(builder, to);
            continue;
        };
        if let Some(slot) = there.get_mut(usize::from(from)) {
            *slot = bytes;
        }
        if let Some(slot) = back.get_mut(code) {
            *slot = from;
        }
    }
    (Recode::ToUtf8(there), Recode::FromUtf8(back))
}

/// The byte of a line's first column, and its second column.
fn pair<'a>(builder: &mut Builder, line: &'a Statement) -> Option<(u8, &'a Word)> {
    let [to] = line.args.as_slice() else {
        builder.error(line.span, "invalid parameters number");
        return None;
    };
    let from = hex_byte(&line.name.text);
    if from.is_none() {
        invalid_value(builder, &line.name);
    }
    from.map(|from| (from, to))
}

fn invalid_value(builder: &mut Builder, word: &Word) {
    builder.error(word.span, format!("invalid value \"{}\"", word.text));
}

fn hex_byte(text: &str) -> Option<u8> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(text, 16).ok()).flatten()
}

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| hex_byte(std::str::from_utf8(pair).ok()?))
        .collect()
}

/// Sets the character set of an answer; returns how its body is to be converted.
pub fn run(req: &mut Request, response: &mut Response) -> Option<Arc<Recode>> {
    let policy = &req.location.settings.of::<FilterSettings>().charset;
    if policy.charset == Charset::Off && response.orders.charset.is_none()
        || response.changes.are_barred
    {
        return None;
    }
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<FilterSettings>().charset;
    let content_type = ContentType::of(response)?;
    let target = match response
        .orders
        .charset
        .clone()
        .filter(|name| !name.is_empty())
    {
        Some(ordered) if req.conf.parts.of::<CharsetMaps>().knows(&ordered) => ordered,
        Some(unknown) => {
            log_unknown(req, &unknown);
            return None;
        }
        None if !is_wanted(policy, &content_type) => return None,
        None => policy.charset.name(req)?,
    };
    let source = match content_type.charset {
        b"" => policy.source.name(req),
        named => Some(Bytes::copy_from_slice(named)),
    };
    match source {
        Some(source) if !source.eq_ignore_ascii_case(&target) => {
            recode(req, response, &source, &target)
        }
        _ => {
            set_charset(response, &target);
            None
        }
    }
}

/// The character set that an answer of this server with a media type will get; `None` for none.
pub fn name_for(req: &mut Request, media_type: &[u8]) -> Option<Bytes> {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<FilterSettings>().charset;
    if TypeSet::any_has(&policy.types, media_type) {
        policy.charset.name(req)
    } else {
        None
    }
}

/// nginx: an upstream may only choose among the sets that the configuration names.
fn log_unknown(req: &Request, name: &[u8]) {
    let name = String::from_utf8_lossy(name);
    request_error::write(
        req,
        Level::Error,
        format_args!("unknown charset \"{name}\" to override"),
    );
}

fn is_wanted(policy: &CharsetPolicy, content_type: &ContentType<'_>) -> bool {
    match content_type.charset {
        b"" => TypeSet::any_has(&policy.types, content_type.media_type),
        _ => policy.overrides,
    }
}

fn recode(
    req: &Request,
    response: &mut Response,
    source: &[u8],
    target: &[u8],
) -> Option<Arc<Recode>> {
    let is_encoded = response
        .fields
        .get(Known::ContentEncoding)
        .is_some_and(|it| !it.is_empty());
    if is_encoded {
        return None;
    }
    let Some(recode) = req.conf.parts.of::<CharsetMaps>().find(source, target) else {
        request_error::write(
            req,
            Level::Error,
            format_args!("{}", no_map(source, target)),
        );
        return None;
    };
    set_charset(response, target);
    if !matches!(**recode, Recode::Bytes(_)) {
        response.length = None;
        response.parts.rule = RangeRule::Refused;
        response.fields.remove_all(DIGESTS);
    }
    Some(Arc::clone(recode))
}

/// Writes the character set into the Content-Type, in place of one that is there.
fn set_charset(response: &mut Response, charset: &[u8]) {
    let Some(content_type) = ContentType::of(response) else {
        return;
    };
    let mut value = Vec::with_capacity(content_type.media_type.len() + charset.len() + 10);
    value.extend_from_slice(content_type.media_type);
    // nginx: old browsers took the character set of a redirect for that of the page behind it.
    if !matches!(response.status, 301 | 302) {
        value.extend_from_slice(b"; charset=");
        value.extend_from_slice(charset);
    }
    response.fields.set(Known::ContentType, value);
    response.changes.have_charset = true;
}

/// Converts a body while it is sent.
pub fn recode_body(body: Body, recode: Arc<Recode>) -> Body {
    if body.is_empty() {
        return body;
    }
    Body::stream(RecodedBody {
        inner: body,
        current: None,
        recode,
        unfinished: Vec::new(),
        ended: false,
    })
}

/// A body that is converted.
struct RecodedBody {
    inner: Body,
    /// Rest of the last piece.
    current: Option<Piece>,
    recode: Arc<Recode>,
    /// The beginning of a character whose end is in the next piece.
    unfinished: Vec<u8>,
    ended: bool,
}

impl BodyStream for RecodedBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        while !this.ended {
            let output = match &mut this.current {
                Some(piece) => {
                    let input = piece.split_to(FILE_READ_SIZE as u64).take_memory();
                    if piece.is_empty() {
                        this.current = None;
                    }
                    match input {
                        Ok(input) => this.recode.convert(&input, &mut this.unfinished),
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                }
                None => match ready!(this.inner.poll_next(cx)) {
                    Some(Ok(piece)) => {
                        this.current = Some(piece);
                        continue;
                    }
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => {
                        this.ended = true;
                        let unfinished = std::mem::take(&mut this.unfinished);
                        if unfinished.is_empty() {
                            Vec::new()
                        } else {
                            b"?".to_vec()
                        }
                    }
                },
            };
            if !output.is_empty() {
                return Poll::Ready(Some(Ok(Piece::Memory(Bytes::from(output)))));
            }
        }
        Poll::Ready(None)
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        super::trailers_of_changed(self.inner.take_trailers())
    }
}

impl Recode {
    /// Converts a piece; the beginning of a character at its end goes to `unfinished`, and what is
    /// there comes first.
    fn convert(&self, input: &[u8], unfinished: &mut Vec<u8>) -> Vec<u8> {
        let mut output = Vec::with_capacity(input.len());
        match self {
            // A byte is below 256, the length of the tables.
            Recode::Bytes(table) => {
                output.extend(input.iter().map(|byte| table[usize::from(*byte)]));
            }
            Recode::ToUtf8(table) => {
                for byte in input {
                    output.extend_from_slice(table[usize::from(*byte)].as_bytes());
                }
            }
            Recode::FromUtf8(table) => {
                let whole;
                let mut rest = input;
                if !unfinished.is_empty() {
                    unfinished.extend_from_slice(input);
                    whole = std::mem::take(unfinished);
                    rest = &whole;
                }
                from_utf8(table, rest, unfinished, &mut output);
            }
        }
        output
    }
}

fn from_utf8(table: &[u8], input: &[u8], unfinished: &mut Vec<u8>, output: &mut Vec<u8>) {
    let mut rest = input;
    // Each round takes at least one byte, or ends.
    loop {
        let (valid, error) = match std::str::from_utf8(rest) {
            Ok(valid) => (valid, None),
            Err(error) => {
                let valid = rest.get(..error.valid_up_to()).unwrap_or_default();
                (std::str::from_utf8(valid).unwrap_or_default(), Some(error))
            }
        };
        for character in valid.chars() {
            push_character(table, character, output);
        }
        let Some(error) = error else { return };
        rest = rest.get(valid.len()..).unwrap_or_default();
        match error.error_len() {
            Some(len) => {
                output.push(b'?');
                rest = rest.get(len..).unwrap_or_default();
            }
            None => {
                unfinished.extend_from_slice(rest);
                return;
            }
        }
    }
}

fn push_character(table: &[u8], character: char, output: &mut Vec<u8>) {
    if character.is_ascii() {
        output.push(character as u8);
        return;
    }
    let code = u32::from(character);
    match table.get(code as usize) {
        Some(byte) if *byte != 0 => output.push(*byte),
        _ => output.extend_from_slice(format!("&#{code};").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_utf8_table() -> Recode {
        let mut table = vec![0; 0x1_0000].into_boxed_slice();
        table[0x44e] = 0xc0;
        Recode::FromUtf8(table)
    }

    #[test]
    fn utf8_becomes_bytes_or_references() {
        for (pieces, expected) in [
            (&[&b"ab\xd1\x8e!"[..]][..], &b"ab\xc0!"[..]),
            (&[b"a\xd1", b"\x8eb"], b"a\xc0b"),
            (&["\u{20ac}\u{1f600}".as_bytes()], b"&#8364;&#128512;"),
            (&[b"\xf0\x9f", b"\x98", b"\x80."], b"&#128512;."),
            (&[b"\xff\xd1."], b"??."),
            (&[b"a\xd1", b"b"], b"a?b"),
        ] {
            let recode = from_utf8_table();
            let mut unfinished = Vec::new();
            let output: Vec<u8> = pieces
                .iter()
                .flat_map(|piece| recode.convert(piece, &mut unfinished))
                .collect();
            assert_eq!(output, expected, "{pieces:?}");
            assert!(unfinished.len() < 4);
        }
    }

    #[test]
    fn bytes_become_bytes_or_utf8() {
        let mut bytes = Box::new(ascii_or_question());
        bytes[b'X' as usize] = b'Y';
        let converted = Recode::Bytes(bytes).convert(b"aX\x80", &mut Vec::new());
        assert_eq!(converted, b"aY?");
        let mut table: Box<[Utf8; 256]> = Box::new([Utf8::of(b"?").unwrap(); 256]);
        table[0xc0] = Utf8::of(b"\xd1\x8e").unwrap();
        let converted = Recode::ToUtf8(table).convert(b"\xc0\xc1", &mut Vec::new());
        assert_eq!(converted, b"\xd1\x8e?");
    }

    #[test]
    fn codes_are_hexadecimal() {
        assert_eq!(hex_byte("C0"), Some(0xc0));
        assert_eq!(hex_byte("100"), None);
        assert_eq!(hex_byte("+1"), None);
        assert_eq!(hex_bytes("D18E"), Some(vec![0xd1, 0x8e]));
        assert_eq!(hex_bytes("zz"), None);
        assert_eq!(Utf8::of(b"1234"), None);
    }
}
