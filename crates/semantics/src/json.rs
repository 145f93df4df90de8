//! JSON texts in one spelling (RFC 8259), so that two texts that say the same are one cache key.
//!
//! [`spell`] drops white space and writes each string in one way. With [`Members::Sorted`] the
//! members of objects are put in the order of their names, too.
//!
//! 1. Numbers stay as they are written: readers differ in how exactly they take them.
//! 2. Members stay in their order unless they are sorted, and a text with an object that has one
//!    name twice has no sorted spelling: readers differ in which of them they take.
//! 3. A text that is not JSON by the letter has no spelling, nor has one that is deeper than
//!    [`DEPTH_MAX`], or has half of a surrogate pair.
//! 4. A spelling is that of itself, and no two texts of different meaning share one.

/// Depth of arrays and objects within each other (arbitrary: applications need ten, and what is
/// spelled is copied once for each).
pub const DEPTH_MAX: usize = 64;

/// Place of the members of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// Each stays where it is.
    AsWritten,
    /// Sorted by their names.
    Sorted,
}

/// The text in its one spelling; none where it has none.
#[must_use]
pub fn spell(text: &[u8], members: Members) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut speller = Speller {
        rest: text.as_bytes(),
        members,
        out: Vec::with_capacity(text.len()),
    };
    speller.value(0)?;
    speller.skip_space();
    speller.rest.is_empty().then_some(speller.out)
}

/// The members of an object in its spelling, names with their quotes; none of what is no object.
#[must_use]
pub fn members(spelled: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let inner = spelled.strip_prefix(b"{")?.strip_suffix(b"}")?;
    let mut speller = Speller {
        rest: inner,
        members: Members::AsWritten,
        out: Vec::new(),
    };
    let mut members = Vec::new();
    while !speller.rest.is_empty() {
        if !members.is_empty() {
            speller.take(b',')?;
        }
        let name = speller.read(Speller::string)?;
        speller.take(b':')?;
        members.push((name, speller.read(|it| it.value(1))?));
    }
    Some(members)
}

/// Reader of a text whose spelling is written as far as it is read.
struct Speller<'t> {
    rest: &'t [u8],
    members: Members,
    out: Vec<u8>,
}

impl<'t> Speller<'t> {
    /// The bytes that something reads.
    fn read(&mut self, something: impl FnOnce(&mut Self) -> Option<()>) -> Option<&'t [u8]> {
        let before = self.rest;
        something(self)?;
        before.get(..before.len() - self.rest.len())
    }

    fn skip_space(&mut self) {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Takes a byte that is the next one.
    fn take(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.rest.split_first()?;
        if *first != byte {
            return None;
        }
        self.rest = rest;
        self.out.push(byte);
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        self.skip_space();
        match self.rest {
            [b'{', ..] if depth < DEPTH_MAX => self.object(depth),
            [b'[', ..] if depth < DEPTH_MAX => self.array(depth),
            [b'"', ..] => self.string(),
            [b'-' | b'0'..=b'9', ..] => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Option<()> {
        let words: [&[u8]; 3] = [b"true", b"false", b"null"];
        let word = words.into_iter().find(|it| self.rest.starts_with(it))?;
        self.copy(word.len())
    }

    /// Copies bytes as they are.
    fn copy(&mut self, len: usize) -> Option<()> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.out.extend_from_slice(taken);
        self.rest = rest;
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut len = usize::from(self.rest.first() == Some(&b'-'));
        let whole = digits(self.rest.get(len..)?);
        let has_zero_first = self.rest.get(len) == Some(&b'0');
        if whole == 0 || (has_zero_first && whole > 1) {
            return None;
        }
        len += whole;
        if self.rest.get(len) == Some(&b'.') {
            let fraction = digits(self.rest.get(len + 1..)?);
            len += 1 + Some(fraction).filter(|count| *count > 0)?;
        }
        if let Some(b'e' | b'E') = self.rest.get(len) {
            len += 1 + usize::from(matches!(self.rest.get(len + 1), Some(b'+' | b'-')));
            let exponent = digits(self.rest.get(len..)?);
            len += Some(exponent).filter(|count| *count > 0)?;
        }
        self.copy(len)
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.take(b'[')?;
        self.skip_space();
        if self.rest.first() == Some(&b']') {
            return self.take(b']');
        }
        loop {
            self.value(depth + 1)?;
            self.skip_space();
            if self.take(b',').is_none() {
                return self.take(b']');
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.take(b'{')?;
        self.skip_space();
        if self.rest.first() == Some(&b'}') {
            return self.take(b'}');
        }
        let start = self.out.len();
        // Of each member, where it begins, and where its name ends.
        let mut members: Vec<(usize, usize)> = Vec::new();
        loop {
            self.skip_space();
            let from = self.out.len();
            self.string()?;
            members.push((from, self.out.len()));
            self.skip_space();
            self.take(b':')?;
            self.value(depth + 1)?;
            self.skip_space();
            if self.rest.first() != Some(&b',') {
                break;
            }
            self.take(b',')?;
        }
        if self.members == Members::Sorted {
            self.sort(start, &members)?;
        }
        self.take(b'}')
    }

    /// Sorts members that were written from a place on, each but the last with a comma behind it.
    fn sort(&mut self, start: usize, members: &[(usize, usize)]) -> Option<()> {
        let before_next = members.iter().skip(1).map(|(next, _)| next - 1);
        let ends = before_next.chain([self.out.len()]);
        let mut sorted = Vec::with_capacity(members.len());
        for ((from, name_end), end) in members.iter().zip(ends) {
            let name = self.out.get(*from..*name_end)?;
            sorted.push((name, self.out.get(*from..end)?));
        }
        sorted.sort_unstable_by_key(|(name, _)| *name);
        // INVARIANT 2.
        let is_twice = |pair: &[(&[u8], &[u8])]| matches!(pair, [(a, _), (b, _)] if a == b);
        if sorted.windows(2).any(is_twice) {
            return None;
        }
        let in_order: Vec<&[u8]> = sorted.into_iter().map(|(_, member)| member).collect();
        let written = in_order.join(&b","[..]);
        self.out.truncate(start);
        self.out.extend_from_slice(&written);
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
            let plain = self.rest.iter().position(special)?;
            self.copy(plain)?;
            match self.rest {
                [b'"', ..] => return self.take(b'"'),
                [b'\\', ..] => self.escape()?,
                _ => return None,
            }
        }
    }

    /// Writes the letter that an escape stands for.
    fn escape(&mut self) -> Option<()> {
        let [b'\\', kind, rest @ ..] = self.rest else {
            return None;
        };
        self.rest = rest;
        let letter = match kind {
            b'"' | b'\\' | b'/' => char::from(*kind),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.letter()?,
            _ => return None,
        };
        match letter {
            '"' | '\\' => self.out.extend([b'\\', letter as u8]),
            '\0'..='\u{1f}' => self
                .out
                .extend_from_slice(format!("\\u{:04x}", letter as u32).as_bytes()),
            _ => self
                .out
                .extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        Some(())
    }

    /// Reads the digits behind `\u`, and those of the other half where they are half of a pair.
    fn letter(&mut self) -> Option<char> {
        let first = self.unit()?;
        let units = match first {
            0xd800..=0xdbff => {
                self.rest = self.rest.strip_prefix(b"\\u")?;
                [first, self.unit()?].to_vec()
            }
            _ => vec![first],
        };
        let mut letters = char::decode_utf16(units);
        let letter = letters.next()?.ok()?;
        letters.next().is_none().then_some(letter)
    }

    fn unit(&mut self) -> Option<u16> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        self.rest = rest;
        digits.iter().try_fold(0, |unit, digit| {
            let digit = char::from(*digit).to_digit(16)?;
            Some(unit << 4 | digit as u16)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_say_the_same_have_one_spelling() {
        for (text, written, sorted) in [
            (" 1 ", "1", "1"),
            ("-0.50e+07", "-0.50e+07", "-0.50e+07"),
            ("[ ]", "[]", "[]"),
            ("{ }", "{}", "{}"),
            ("[1 ,\t[2],\r\n{}]", "[1,[2],{}]", "[1,[2],{}]"),
            (
                r#"{ "b" : 1, "a":{"d":null , "c":true} }"#,
                r#"{"b":1,"a":{"d":null,"c":true}}"#,
                r#"{"a":{"c":true,"d":null},"b":1}"#,
            ),
            (
                r#"{"b":",","a":","}"#,
                r#"{"b":",","a":","}"#,
                r#"{"a":",","b":","}"#,
            ),
            (r#""\u00e9\/\u0041""#, "\"é/A\"", "\"é/A\""),
            (r#""\ud83d\uDE00""#, "\"😀\"", "\"😀\""),
            (
                r#""\n\u000A\"\\\u0022""#,
                r#""\u000a\u000a\"\\\"""#,
                r#""\u000a\u000a\"\\\"""#,
            ),
            (r#"{"\u0061":1}"#, r#"{"a":1}"#, r#"{"a":1}"#),
        ] {
            for (members, expected) in [(Members::AsWritten, written), (Members::Sorted, sorted)] {
                let spelled = spell(text.as_bytes(), members).expect(text);
                assert_eq!(String::from_utf8_lossy(&spelled), expected, "{text}");
                assert_eq!(spell(&spelled, members).as_ref(), Some(&spelled), "{text}");
            }
        }
    }

    #[test]
    fn an_object_has_the_members_of_its_outermost_braces() {
        let spelled = spell(
            br#"{ "b\u0022" : {"a":[1,"}"]}, "c" : "," }"#,
            Members::Sorted,
        )
        .expect("JSON");
        let expected: [(&[u8], &[u8]); 2] =
            [(br#""b\"""#, br#"{"a":[1,"}"]}"#), (br#""c""#, br#"",""#)];
        assert_eq!(members(&spelled).expect("an object"), expected);
        assert_eq!(members(b"{}"), Some(Vec::new()));
        for other in ["[]", "{", "{\"a\"}", "{\"a\":1,}", "{\"a\":1}1", "1"] {
            assert_eq!(members(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_readers_differ_in_is_not_sorted() {
        let text = br#"{"a":1, "\u0061":2}"#;
        assert_eq!(spell(text, Members::Sorted), None);
        let spelled = spell(text, Members::AsWritten);
        assert_eq!(spelled.as_deref(), Some(&br#"{"a":1,"a":2}"#[..]));
        assert_ne!(spell(b"1.0", Members::Sorted), spell(b"1", Members::Sorted));
    }

    #[test]
    fn what_is_no_json_has_no_spelling() {
        let deep = "[".repeat(DEPTH_MAX + 1) + &"]".repeat(DEPTH_MAX + 1);
        for text in [
            "",
            " ",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "-",
            "tru",
            "nul",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud83d\"",
            "\"\\ude00\"",
            "\"\\ud83d\\u0041\"",
            "\"a\nb\"",
            "1 2",
            "\u{feff}1",
            "'a'",
            "NaN",
            &deep,
        ] {
            assert_eq!(spell(text.as_bytes(), Members::AsWritten), None, "{text}");
        }
        assert_eq!(spell(b"\"\xff\"", Members::AsWritten), None);
        assert!(spell(&deep.as_bytes()[1..deep.len() - 1], Members::Sorted).is_some());
    }
}
