//! The text that a dictionary is kept as in a file: JSON, as njs writes and reads it.
//!
//! ```text
//! {"key":{"value":"text","expire":1700000000000},"other":{"value":7}}
//! ```
//!
//! `expire` is a time of the wall clock in milliseconds, of items that end. As njs does, the reader
//! passes over members that it does not know, and over a comma behind the last one.

use std::fmt::Write as _;

use super::Item;

/// An item in a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) item: Item,
    /// The end in milliseconds of the wall clock.
    pub(crate) end_ms: Option<i64>,
}

/// The text of items.
pub(crate) fn write(rows: &[Row]) -> String {
    let mut text = String::from("{");
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        quote(&row.key, &mut text);
        text += ":{\"value\":";
        match &row.item {
            Item::Text(value) => quote(value, &mut text),
            Item::Number(value) if value.is_finite() => text += &value.to_string(),
            Item::Number(_) => text += "null",
        }
        if let Some(end) = row.end_ms {
            let _never_fails = write!(text, ",\"expire\":{end}");
        }
        text.push('}');
    }
    text + "}"
}

fn quote(value: &str, text: &mut String) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c < ' ' => {
                let _never_fails = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// The items of a text; those without a value are left out.
pub(crate) fn read(text: &str) -> Result<Vec<Row>, String> {
    let mut reader = Reader { rest: text };
    let mut rows = Vec::new();
    reader.object(&mut |reader, key| {
        let (mut item, mut end_ms) = (None, None);
        reader.object(&mut |reader, name| {
            let value = reader.value()?;
            match (name.as_str(), value) {
                ("value", value) => item = value,
                ("expire", Some(Item::Number(end))) if end >= 1.0 => end_ms = Some(end as i64),
                _ => {}
            }
            Ok(())
        })?;
        rows.extend(item.map(|item| Row { key, item, end_ms }));
        Ok(())
    })?;
    reader.skip_space();
    match reader.rest {
        "" => Ok(rows),
        _ => Err(reader.unexpected()),
    }
}

struct Reader<'a> {
    rest: &'a str,
}

type Member<'f, 'a> = &'f mut dyn FnMut(&mut Reader<'a>, String) -> Result<(), String>;

impl<'a> Reader<'a> {
    /// An object, whose members are read by `member` behind their colons.
    fn object(&mut self, member: Member<'_, 'a>) -> Result<(), String> {
        self.expect('{')?;
        loop {
            self.skip_space();
            if self.take('}') {
                return Ok(());
            }
            let name = self.text()?;
            self.expect(':')?;
            member(self, name)?;
            self.skip_space();
            if !self.take(',') {
                return self.expect('}');
            }
        }
    }

    /// A text or a number; none for another word.
    fn value(&mut self) -> Result<Option<Item>, String> {
        self.skip_space();
        if self.rest.starts_with('"') {
            return self.text().map(|text| Some(Item::Text(text)));
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let item = match word {
            "true" | "false" | "null" => None,
            _ if !word.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                return Err(self.unexpected());
            }
            _ => Some(Item::Number(word.parse().map_err(|_| self.unexpected())?)),
        };
        self.rest = rest;
        Ok(item)
    }

    fn text(&mut self) -> Result<String, String> {
        self.expect('"')?;
        let mut made = String::new();
        loop {
            let end = self.rest.find(['"', '\\']);
            let (part, rest) = self.rest.split_at(end.ok_or("a text without its end")?);
            made.push_str(part);
            self.rest = rest;
            if self.take('"') {
                return Ok(made);
            }
            let _backslash = self.take('\\');
            made.push(self.escaped()?);
        }
    }

    /// The character behind a backslash.
    fn escaped(&mut self) -> Result<char, String> {
        let mut characters = self.rest.chars();
        let sign = characters.next().ok_or("a text without its end")?;
        self.rest = characters.as_str();
        Ok(match sign {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '"' | '\\' | '/' => sign,
            'u' => self.unicode()?,
            _ => return Err(format!("the unknown escape \"\\{sign}\"")),
        })
    }

    fn unicode(&mut self) -> Result<char, String> {
        let first = self.digits()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or_else(|| "half a character".to_string());
        }
        let is_pair = self.take('\\') && self.take('u');
        let second = if is_pair { self.digits()? } else { 0 };
        let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400);
        let code = low.map(|low| 0x1_0000 + ((first - 0xd800) << 10) + low);
        code.and_then(char::from_u32)
            .ok_or_else(|| "half a character".to_string())
    }

    fn digits(&mut self) -> Result<u32, String> {
        let (digits, rest) = self
            .rest
            .split_at_checked(4)
            .filter(|(digits, _)| digits.bytes().all(|c| c.is_ascii_hexdigit()))
            .ok_or_else(|| self.unexpected())?;
        self.rest = rest;
        u32::from_str_radix(digits, 16).map_err(|error| error.to_string())
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    fn take(&mut self, sign: char) -> bool {
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        self.skip_space();
        if self.take(sign) {
            Ok(())
        } else {
            Err(format!("{} in place of \"{sign}\"", self.unexpected()))
        }
    }

    fn unexpected(&self) -> String {
        match self.rest.chars().next() {
            Some(sign) => format!("an unexpected \"{}\"", sign.escape_debug()),
            None => "an unexpected end".to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, item: Item, end_ms: Option<i64>) -> Row {
        let key = key.to_string();
        Row { key, item, end_ms }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = |text: &str| Item::Text(text.to_string());
        let rows = [
            row(
                "a\"\\\n\u{1}ä",
                text("\u{1f600}\u{7f}"),
                Some(1_700_000_000_123),
            ),
            row("", text(""), None),
            row("b", Item::Number(-1.5e-7), None),
            row("c", Item::Number(9_007_199_254_740_993.0), Some(1)),
        ];
        assert_eq!(read(&write(&rows)), Ok(rows.to_vec()));
        assert_eq!(write(&[]), "{}");
        assert_eq!(
            write(&[row("k", Item::Number(43.0), Some(7))]),
            r#"{"k":{"value":43,"expire":7}}"#
        );
    }

    #[test]
    fn files_of_njs_are_read() {
        let text = r#" {"w":{"value":"f\/","expire":0},
            "\u0061": { "valu\u0065"  :"\ud83d\ude00" , "x": 23.1, "y": null, },
            "no": {"x": "y"}, }
        "#;
        let rows = read(text).unwrap();
        let expected = [("w", "f/"), ("a", "\u{1f600}")]
            .map(|(key, it)| row(key, Item::Text(it.to_string()), None));
        assert_eq!(rows, expected);
    }

    #[test]
    fn what_is_broken_is_told() {
        for text in [
            "",
            "{",
            "[]",
            "{\"a\"}",
            "{\"a\":1}",
            "{\"a\":{}",
            "{\"a\":{\"value\":}}",
            "{}x",
            "{\"a\":{\"value\":[]}}",
            "{\"a\":{\"value\":\"\\x\"}}",
            "{\"a\":{\"value\":\"}}",
            "{\"\\ud800\":{}}",
            "{\"\\u00g0\":{}}",
            "{\"a\":{\"value\":inf}}",
            "{,}",
            "{\"a\":{\"value\":1-1}}",
            "{\"\\ud800\\u0041\":{}}",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
