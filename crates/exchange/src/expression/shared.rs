//! The expressions that the `regex` crate and PCRE2 read alike.
//!
//! Both accept much that means different things: `a++` is possessive in PCRE and a repetition of a
//! repetition in the crate, `\v` is a class or one character, `[a&&b]` a set of three or an
//! intersection, `(?x)` has other rules. So this lists what is known to be the same, and all else
//! goes to PCRE2, also what nobody has thought of.
//!
//! Alike are: printable ASCII; `.`; `^` and `$`; `|`; groups `(…)`, `(?:…)`, `(?i:…)`, `(?<name>…)`
//! and `(?P<name>…)`; `(?i)` at the very begin; `*`, `+`, `?`, `{n}`, `{n,}` and `{n,m}`, greedy or
//! lazy, once, behind something that cannot match nothing; escaped punctuation but `\<` and `\>`;
//! `\d \D \w \W \s \S \b \B \A \z \n \r \t \f` and `\xHH`; classes of these, of ranges and of
//! `[:name:]`, without operators or brackets.
//!
//! A test compares the engines on generated expressions and subjects.

/// The longest name of a group (PCRE2 before 10.44: 32).
const MAX_NAME: usize = 32;

/// Digits of the count of a repetition (arbitrary; PCRE2 takes up to 65535).
const MAX_COUNT_DIGITS: usize = 4;

/// Named classes. Not `upper` and `lower`, which without regard to case are all letters in PCRE.
const NAMED_CLASSES: [&[u8]; 12] = [
    b"alnum", b"alpha", b"ascii", b"blank", b"cntrl", b"digit", b"graph", b"print", b"punct",
    b"space", b"word", b"xdigit",
];

/// True for what both engines read alike, if both accept it.
pub(crate) fn is_read_alike(source: &str) -> bool {
    let mut reader = Reader {
        rest: source.strip_prefix("(?i)").unwrap_or(source).as_bytes(),
        branches: vec![Branches::new()],
    };
    reader.read().is_some() && reader.branches.len() == 1
}

/// The branches of a group that is being read.
struct Branches {
    /// True if the last branch, as far as it was read, can match nothing.
    last_may_be_empty: bool,
    /// True if one of the branches before can match nothing.
    one_may_be_empty: bool,
}

impl Branches {
    fn new() -> Self {
        Branches {
            last_may_be_empty: true,
            one_may_be_empty: false,
        }
    }
}

/// The least that something of an expression matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Matches {
    /// At least one byte.
    Something,
    /// Perhaps nothing; what matches so is not repeated here: the engines differ in what groups
    /// hold then.
    PerhapsNothing,
}

/// A member of a class.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    /// One byte, which may begin or end a range.
    Byte(u8),
    /// Several.
    Set,
}

/// Reads an expression; `None` from any of its functions is for what is not known to be alike.
struct Reader<'s> {
    rest: &'s [u8],
    branches: Vec<Branches>,
}

impl Reader<'_> {
    fn read(&mut self) -> Option<()> {
        while let Some(first) = self.next() {
            match first {
                b'(' => self.begin_group()?,
                b')' => self.end_group()?,
                b'|' => {
                    let branches = self.branches.last_mut()?;
                    branches.one_may_be_empty |= branches.last_may_be_empty;
                    branches.last_may_be_empty = true;
                }
                b'[' => {
                    self.class()?;
                    self.repeat(Matches::Something)?;
                }
                b'\\' => {
                    let matches = self.escape()?;
                    self.repeat(matches)?;
                }
                b'^' | b'$' => self.repeat(Matches::PerhapsNothing)?,
                b'*' | b'+' | b'?' | b'{' => return None,
                b' '..=b'~' => self.repeat(Matches::Something)?,
                _ => return None,
            }
        }
        Some(())
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Goes past `text` if that is next.
    fn skip(&mut self, text: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn begin_group(&mut self) -> Option<()> {
        let is_plain = self.skip(b"?:") || self.skip(b"?i:");
        if !is_plain {
            if self.skip(b"?P<") || self.skip(b"?<") {
                self.name()?;
            } else if matches!(self.rest.first(), Some(b'?' | b'*')) {
                return None;
            }
        }
        self.branches.push(Branches::new());
        Some(())
    }

    /// A group's name, and the `>` behind it.
    fn name(&mut self) -> Option<()> {
        let len = self.rest.iter().position(|byte| *byte == b'>')?;
        let (name, rest) = self.rest.split_at_checked(len)?;
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let is_name = len <= MAX_NAME
            && name.iter().all(is_word)
            && name.first().is_some_and(|first| !first.is_ascii_digit());
        self.rest = rest.get(1..)?;
        is_name.then_some(())
    }

    fn end_group(&mut self) -> Option<()> {
        let ended = self.branches.pop()?;
        let may_be_empty = ended.one_may_be_empty || ended.last_may_be_empty;
        self.repeat(if may_be_empty {
            Matches::PerhapsNothing
        } else {
            Matches::Something
        })
    }

    /// Reads what may follow something: a repetition of it, or nothing.
    fn repeat(&mut self, matches: Matches) -> Option<()> {
        let Some(min) = self.repetition()? else {
            // None: a parenthesis too many.
            self.branches.last_mut()?.last_may_be_empty &= matches == Matches::PerhapsNothing;
            return Some(());
        };
        let _is_lazy = self.skip(b"?");
        let has_more = matches!(self.rest.first(), Some(b'*' | b'+' | b'?' | b'{'));
        if has_more || matches == Matches::PerhapsNothing {
            return None;
        }
        self.branches.last_mut()?.last_may_be_empty &= min == 0;
        Some(())
    }

    /// The least count of a repetition, if one is next.
    fn repetition(&mut self) -> Option<Option<u32>> {
        let min = match self.rest.first() {
            Some(b'*' | b'?') => 0,
            Some(b'+') => 1,
            Some(b'{') => {
                self.next();
                return self.counts().map(Some);
            }
            _ => return Some(None),
        };
        self.next();
        Some(Some(min))
    }

    /// Reads the counts behind `{`, to their end; the least count.
    fn counts(&mut self) -> Option<u32> {
        let min = self.count()?;
        let max = if !self.skip(b",") {
            min
        } else if self.rest.first() == Some(&b'}') {
            u32::MAX
        } else {
            self.count()?
        };
        (self.skip(b"}") && max >= min && max > 0).then_some(min)
    }

    fn count(&mut self) -> Option<u32> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit());
        let len = digits.count();
        if len > MAX_COUNT_DIGITS {
            return None;
        }
        let (digits, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Reads what follows a backslash outside of a class.
    fn escape(&mut self) -> Option<Matches> {
        if matches!(self.rest.first(), Some(b'b' | b'B' | b'A' | b'z')) {
            self.next();
            return Some(Matches::PerhapsNothing);
        }
        self.escaped_member().map(|_| Matches::Something)
    }

    /// Reads what follows a backslash, and matches bytes.
    fn escaped_member(&mut self) -> Option<Member> {
        match self.next()? {
            b'd' | b'D' | b'w' | b'W' | b's' | b'S' => Some(Member::Set),
            b'n' => Some(Member::Byte(b'\n')),
            b'r' => Some(Member::Byte(b'\r')),
            b't' => Some(Member::Byte(b'\t')),
            b'f' => Some(Member::Byte(0x0c)),
            b'x' => {
                let (digits, rest) = self.rest.split_at_checked(2)?;
                let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
                let text = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
                self.rest = rest;
                u8::from_str_radix(text, 16).ok().map(Member::Byte)
            }
            b'<' | b'>' => None,
            other if other.is_ascii_punctuation() => Some(Member::Byte(other)),
            _ => None,
        }
    }

    /// Reads what follows the bracket that begins a class, to the class's end.
    fn class(&mut self) -> Option<()> {
        let _is_negated = self.skip(b"^");
        // Right at the begin both are members.
        let mut is_begin = true;
        loop {
            let is_first = std::mem::take(&mut is_begin);
            match self.rest.first()? {
                b']' if !is_first => {
                    self.next();
                    return Some(());
                }
                b'-' if !is_first && self.rest.get(1) != Some(&b']') => return None,
                b'-' if self.rest.get(1) == Some(&b'-') => return None,
                b'-' => {
                    self.next();
                }
                _ => self.class_item()?,
            }
        }
    }

    /// A member of a class, or a range.
    fn class_item(&mut self) -> Option<()> {
        let Member::Byte(first) = self.class_member()? else {
            return Some(());
        };
        match self.rest {
            [b'-', b']', ..] => Some(()),
            [b'-', b'-', ..] => None,
            [b'-', ..] => {
                self.next();
                match self.class_member()? {
                    Member::Byte(last) if first <= last => Some(()),
                    _ => None,
                }
            }
            _ => Some(()),
        }
    }

    fn class_member(&mut self) -> Option<Member> {
        let next = self.next()?;
        let is_double = matches!(next, b'&' | b'~' | b'-') && self.rest.first() == Some(&next);
        match next {
            _ if is_double => None,
            b'[' => {
                let named = NAMED_CLASSES.iter().any(|name| {
                    let end = self
                        .rest
                        .strip_prefix(b":")
                        .and_then(|rest| rest.strip_prefix(*name));
                    end.is_some_and(|rest| rest.starts_with(b":]"))
                });
                let end = memchr::memchr(b']', self.rest)?;
                self.rest = self.rest.get(end + 1..)?;
                named.then_some(Member::Set)
            }
            b'\\' => self.escaped_member(),
            b' '..=b'~' => Some(Member::Byte(next)),
            _ => None,
        }
    }
}
