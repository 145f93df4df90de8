//! The commands in a text: `<!--#name parameter="value" … -->`.
//!
//! ```text
//! Text ──<!--#──► Command(…) ──-->──► Text
//!                    └─ a mistake ──► Faulty(dashes seen) ──-->──► Text
//! ```
//!
//! Text is handed on as slices of what came; a command may be split over any number of pieces.
//!
//! Invariants:
//! 1. What comes out does not depend on where the input was split.
//! 2. At most four bytes of text are held back, and of a command no more than its limits allow.
//!
//! Sources: nginx ngx_http_ssi_parse.

use bytes::{Buf, Bytes};

/// Begin of a command.
const OPENING: &[u8] = b"<!--#";
/// The longest name of a command, and of a parameter (nginx: 32).
const MAX_NAME: usize = 32;
/// The most parameters that are kept; a command has at most sixteen (nginx: 16).
pub(super) const MAX_PARAMETERS: usize = 16;

/// A command as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) name: Vec<u8>,
    /// Names and values, at most one more than [`MAX_PARAMETERS`].
    pub(super) parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Event that was found in the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Text that stays as it is.
    Text(Bytes),
    /// A command.
    Command(Command),
    /// A mistake in a command, for the log.
    Fault(String),
    /// The end of a command that has a mistake.
    Broken,
    /// The input is used up.
    NeedMore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    Command(Within),
    /// Behind a mistake, with so many dashes before.
    Faulty(u8),
}

/// Place within a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    BeforeName,
    Name,
    BeforeParameter,
    Parameter,
    BeforeEqual,
    BeforeValue,
    /// In a value that ends with this quote.
    Value(u8),
    /// Behind a backslash in such a value.
    Escaped(u8),
    AfterValue,
    /// Behind so many dashes of its end.
    End(u8),
}

/// Finds commands.
#[derive(Debug)]
pub(super) struct Parser {
    state: State,
    /// Length of the part of [`OPENING`] that the last piece ended with.
    held: usize,
    command: Command,
    max_value: usize,
}

impl Parser {
    /// A parser for values of at most `max_value` bytes.
    pub(super) fn new(max_value: usize) -> Self {
        Parser {
            state: State::Text,
            held: 0,
            command: Command::default(),
            max_value,
        }
    }

    /// Takes the next event from the front of the input.
    pub(super) fn next(&mut self, input: &mut Bytes) -> Event {
        while let Some(byte) = input.first().copied() {
            if self.state == State::Text {
                if let Some(event) = self.text(input) {
                    return event;
                }
                continue;
            }
            input.advance(1);
            if let Some(event) = self.step(byte) {
                return event;
            }
        }
        Event::NeedMore
    }

    /// The text that was held back when the input has ended.
    pub(super) fn finish(&mut self) -> Bytes {
        let held = std::mem::take(&mut self.held);
        Bytes::from_static(OPENING.get(..held).unwrap_or_default())
    }

    fn text(&mut self, input: &mut Bytes) -> Option<Event> {
        if self.held > 0 {
            return self.resume(input);
        }
        match memchr::memmem::find(input, OPENING) {
            Some(0) => {
                input.advance(OPENING.len());
                self.state = State::Command(Within::BeforeName);
                None
            }
            Some(at) => Some(Event::Text(input.split_to(at))),
            None => {
                let longest = (OPENING.len() - 1).min(input.len());
                let is_held = |len: &usize| {
                    let begin = OPENING.get(..*len).unwrap_or_default();
                    input.ends_with(begin)
                };
                self.held = (1..=longest).rev().find(is_held).unwrap_or(0);
                let text = input.split_to(input.len() - self.held);
                input.clear();
                (!text.is_empty()).then_some(Event::Text(text))
            }
        }
    }

    /// Goes on in what the last piece may have begun.
    fn resume(&mut self, input: &mut Bytes) -> Option<Event> {
        let rest = OPENING.get(self.held..).unwrap_or_default();
        let same = rest
            .iter()
            .zip(input.iter())
            .take_while(|(a, b)| a == b)
            .count();
        if same == rest.len() {
            self.held = 0;
            self.state = State::Command(Within::BeforeName);
            input.advance(same);
            return None;
        }
        if same == input.len() {
            self.held += same;
            input.clear();
            return None;
        }
        // The part that matched has no `<`, so that it cannot be another beginning.
        Some(Event::Text(self.finish()))
    }

    fn step(&mut self, byte: u8) -> Option<Event> {
        let within = match self.state {
            State::Text => return None,
            State::Command(within) => within,
            State::Faulty(dashes) => return self.skip(dashes, byte),
        };
        match within {
            Within::BeforeName | Within::Name => self.name(within, byte),
            Within::BeforeParameter | Within::Parameter => self.parameter(within, byte),
            Within::BeforeEqual | Within::BeforeValue => self.before_value(within, byte),
            Within::Value(quote) => self.value(quote, byte),
            Within::Escaped(quote) => {
                self.go(Within::Value(quote));
                self.push_value(byte)
            }
            Within::AfterValue => self.after_value(byte),
            Within::End(dashes) => self.end(dashes, byte),
        }
    }

    fn go(&mut self, within: Within) {
        self.state = State::Command(within);
    }

    fn name(&mut self, within: Within, byte: u8) -> Option<Event> {
        match (within, byte) {
            (Within::BeforeName, b' ' | b'\r' | b'\n' | b'\t') => {}
            (Within::Name, b' ' | b'\r' | b'\n' | b'\t') => self.go(Within::BeforeParameter),
            (Within::Name, b'-') => self.go(Within::End(1)),
            _ if self.command.name.len() >= MAX_NAME => {
                let message = format!(
                    "the \"{}{}...\" SSI command is too long",
                    self.command_name(),
                    byte.escape_ascii()
                );
                return self.fault(message, 0);
            }
            _ => {
                self.command.name.push(byte);
                self.go(Within::Name);
            }
        }
        None
    }

    fn parameter(&mut self, within: Within, byte: u8) -> Option<Event> {
        match (within, byte) {
            (Within::BeforeParameter, b' ' | b'\r' | b'\n' | b'\t') => {}
            (Within::BeforeParameter, b'-') => self.go(Within::End(1)),
            (Within::BeforeParameter, _) => {
                if self.command.parameters.len() > MAX_PARAMETERS {
                    self.command.parameters.pop();
                }
                self.command.parameters.push((vec![byte], Vec::new()));
                self.go(Within::Parameter);
            }
            (_, b' ' | b'\r' | b'\n' | b'\t') => self.go(Within::BeforeEqual),
            (_, b'=') => self.go(Within::BeforeValue),
            (_, b'-') => {
                let message = self.unexpected(byte, "after", "parameter");
                return self.fault(message, 1);
            }
            _ => {
                let (name, _) = self.command.parameters.last_mut()?;
                if name.len() >= MAX_NAME {
                    let message = format!(
                        "too long \"{}{}...\" parameter in \"{}\" SSI command",
                        name.escape_ascii(),
                        byte.escape_ascii(),
                        self.command.name.escape_ascii()
                    );
                    return self.fault(message, 0);
                }
                name.push(byte);
            }
        }
        None
    }

    fn before_value(&mut self, within: Within, byte: u8) -> Option<Event> {
        match (within, byte) {
            (_, b' ' | b'\r' | b'\n' | b'\t') => {}
            (Within::BeforeEqual, b'=') => self.go(Within::BeforeValue),
            (Within::BeforeValue, b'"' | b'\'') => self.go(Within::Value(byte)),
            _ => {
                let message = match within {
                    Within::BeforeEqual => self.unexpected(byte, "after", "parameter"),
                    _ => self.unexpected(byte, "before value of", "parameter"),
                };
                return self.fault(message, u8::from(byte == b'-'));
            }
        }
        None
    }

    fn value(&mut self, quote: u8, byte: u8) -> Option<Event> {
        if byte == quote {
            self.go(Within::AfterValue);
            return None;
        }
        if byte == b'\\' {
            self.go(Within::Escaped(quote));
        }
        self.push_value(byte)
    }

    fn push_value(&mut self, byte: u8) -> Option<Event> {
        let (name, value) = self.command.parameters.last_mut()?;
        if value.len() < self.max_value {
            value.push(byte);
            return None;
        }
        let message = format!(
            "too long \"{}{}...\" value of \"{}\" parameter in \"{}\" SSI command",
            value.escape_ascii(),
            byte.escape_ascii(),
            name.escape_ascii(),
            self.command.name.escape_ascii()
        );
        self.fault(message, 0)
    }

    fn after_value(&mut self, byte: u8) -> Option<Event> {
        match byte {
            b' ' | b'\r' | b'\n' | b'\t' => self.go(Within::BeforeParameter),
            b'-' => self.go(Within::End(1)),
            _ => {
                let message = self.unexpected(byte, "after value of", "parameter");
                return self.fault(message, 0);
            }
        }
        None
    }

    fn end(&mut self, dashes: u8, byte: u8) -> Option<Event> {
        match (dashes, byte) {
            (1, b'-') => {
                self.go(Within::End(2));
                None
            }
            (2, b'>') => {
                self.state = State::Text;
                Some(Event::Command(std::mem::take(&mut self.command)))
            }
            _ => {
                let message = format!(
                    "unexpected \"{}\" symbol in \"{}\" SSI command",
                    byte.escape_ascii(),
                    self.command_name()
                );
                self.fault(message, 0)
            }
        }
    }

    /// nginx: a third dash begins anew.
    fn skip(&mut self, dashes: u8, byte: u8) -> Option<Event> {
        self.state = match (dashes, byte) {
            (2, b'>') => {
                self.state = State::Text;
                return Some(Event::Broken);
            }
            (0, b'-') => State::Faulty(1),
            (1, b'-') => State::Faulty(2),
            _ => State::Faulty(0),
        };
        None
    }

    fn fault(&mut self, message: String, dashes: u8) -> Option<Event> {
        self.command = Command::default();
        self.state = State::Faulty(dashes);
        Some(Event::Fault(message))
    }

    fn command_name(&self) -> impl std::fmt::Display + '_ {
        self.command.name.escape_ascii()
    }

    fn unexpected(&self, byte: u8, place: &str, what: &str) -> String {
        let parameter = self.command.parameters.last();
        let name = parameter.map_or(&[][..], |(name, _)| name);
        format!(
            "unexpected \"{}\" symbol {place} \"{}\" {what} in \"{}\" SSI command",
            byte.escape_ascii(),
            name.escape_ascii(),
            self.command_name()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of pieces, with neighbouring texts joined.
    fn read(pieces: &[&[u8]]) -> Vec<Event> {
        let mut parser = Parser::new(20);
        let mut events = Vec::new();
        let mut push = |event: Event| match (events.last_mut(), event) {
            (Some(Event::Text(before)), Event::Text(text)) => {
                *before = Bytes::from([&before[..], &text[..]].concat());
            }
            (_, event) => events.push(event),
        };
        for piece in pieces {
            let mut input = Bytes::copy_from_slice(piece);
            loop {
                match parser.next(&mut input) {
                    Event::NeedMore => break,
                    event => push(event),
                }
            }
        }
        let held = parser.finish();
        if !held.is_empty() {
            push(Event::Text(held));
        }
        events
    }

    fn text(text: &'static str) -> Event {
        Event::Text(Bytes::from_static(text.as_bytes()))
    }

    fn command(name: &str, parameters: &[(&str, &str)]) -> Event {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Event::Command(Command {
            name: bytes(name),
            parameters: parameters
                .iter()
                .map(|(name, value)| (bytes(name), bytes(value)))
                .collect(),
        })
    }

    #[test]
    fn events_are_the_same_wherever_the_input_is_split() {
        let cases = [
            ("", vec![]),
            ("plain < text <! of <!- all <!-- kinds <", vec![text("plain < text <! of <!- all <!-- kinds <")]),
            ("a<!--# echo var=\"x\" -->b", vec![text("a"), command("echo", &[("var", "x")]), text("b")]),
            ("<<!--#endif-->", vec![text("<"), command("endif", &[])]),
            ("<!<!--#a--><!--", vec![text("<!"), command("a", &[]), text("<!--")]),
            ("<!--#a b = 'c\\'\"' d=\"e f\"-->", vec![command("a", &[("b", "c\\'\""), ("d", "e f")])]),
            ("<!--#a\r\nb\t=\n\"\"\n-->x", vec![command("a", &[("b", "")]), text("x")]),
            ("<!--#a b=\"unfinished", vec![]),
            (
                "<!--#a b-->x",
                vec![
                    Event::Fault("unexpected \"-\" symbol after \"b\" parameter in \"a\" SSI command".into()),
                    Event::Broken,
                    text("x"),
                ],
            ),
            (
                "<!--#a b=c - -- --> <!--#a -x-->",
                vec![
                    Event::Fault("unexpected \"c\" symbol before value of \"b\" parameter in \"a\" SSI command".into()),
                    Event::Broken,
                    text(" "),
                    Event::Fault("unexpected \"x\" symbol in \"a\" SSI command".into()),
                    Event::Broken,
                ],
            ),
            (
                "<!--#a b=\"0123456789012345678901\" -->",
                vec![
                    Event::Fault("too long \"012345678901234567890...\" value of \"b\" parameter in \"a\" SSI command".into()),
                    Event::Broken,
                ],
            ),
        ];
        for (input, expected) in cases {
            let input = input.as_bytes();
            assert_eq!(read(&[input]), expected);
            for at in 0..=input.len() {
                let (one, other) = input.split_at(at);
                assert_eq!(read(&[one, other]), expected, "split at {at}");
            }
            let single: Vec<&[u8]> = input.chunks(1).collect();
            assert_eq!(read(&single), expected, "byte by byte");
        }
    }

    #[test]
    fn names_and_the_number_of_parameters_are_limited() {
        let long = format!("<!--#{} -->", "x".repeat(33));
        assert!(matches!(
            read(&[long.as_bytes()]).as_slice(),
            [Event::Fault(_), Event::Broken]
        ));
        let long = format!("<!--#a {}='1' -->", "x".repeat(33));
        assert!(matches!(
            read(&[long.as_bytes()]).as_slice(),
            [Event::Fault(_), Event::Broken]
        ));
        let many = format!("<!--#a {}-->", "b='c' ".repeat(1000));
        let events = read(&[many.as_bytes()]);
        let [Event::Command(command)] = events.as_slice() else {
            panic!("{events:?}");
        };
        assert_eq!(command.parameters.len(), MAX_PARAMETERS + 1);
    }
}
