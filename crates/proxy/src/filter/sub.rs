//! `sub_filter`, `sub_filter_types`, `sub_filter_once`, `sub_filter_last_modified`: strings that
//! are replaced in answers.
//!
//! A body is searched as it comes. What may be the beginning of a string at its end is held back
//! until more is known; all else is handed on, as slices of what came where nothing was replaced.
//!
//! ```text
//! … text ─ match ─ text ─ match ─ text ─ be│ginning of a match?
//!                                          └─ held, at most the longest string less one byte
//! ```
//!
//! Invariants:
//! 1. The leftmost match is replaced; of those that begin at one place, the one that the
//!    configuration names first. Letters match in both cases.
//! 2. What comes out does not depend on how the input was split.
//! 3. Memory: one piece of input, what is held back, and about `OUTPUT_SIZE` with one replacement.
//!
//! # Differs from nginx
//!
//! When a body ends within a string, the shorter strings in what was held back are replaced, too.
//!
//! Sources: nginx ngx_http_sub_filter.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use aho_corasick::{AhoCorasick, MatchKind};
use bytes::{Buf, Bytes};
use millpond_conf::{ArgError, Args, FromArgs, Template};
use millpond_system::body::{Body, BodyError, BodyStream, FILE_READ_SIZE, Piece};
use millpond_wire::header::{Fields, Known};

use crate::filter::Texts;
use crate::filter::settings::FilterSettings;
use crate::request::Request;
use millpond_exchange::response::type_set::TypeSet;
use millpond_exchange::response::{DIGESTS, RangeRule, Response};
use millpond_exchange::settings::level::Closing;

/// The most strings of a block (nginx: 255).
const MOST_PAIRS: usize = 255;
/// Amount that is put together before it is sent: as much as one read of a file.
const OUTPUT_SIZE: usize = FILE_READ_SIZE;

/// Settings of the strings that are replaced in answers.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct SubPolicy {
    /// A string, in any case, and what takes its place; both may have variables. Several may stand
    /// in a block; they replace those of the blocks around it.
    #[directive(name = "sub_filter", repeat)]
    pub pairs: Vec<Pair>,
    /// The media types of answers that are searched, beside text/html.
    #[directive(name = "sub_filter_types", default = "text/html", repeat)]
    pub types: Vec<TypeSet>,
    /// Replaces each string only where it occurs first.
    #[directive(name = "sub_filter_once", default = "on")]
    pub once: bool,
    /// Keeps the answer's Last-Modified, and its ETag as a weak one.
    #[directive(name = "sub_filter_last_modified", default = "off")]
    pub last_modified: bool,
}

/// A string and what takes its place.
#[derive(Clone, Debug)]
pub struct Pair {
    string: Template,
    replacement: Arc<Template>,
}

impl FromArgs for Pair {
    const SYNTAX: &'static str = "string replacement";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let [string, _] = args.words else {
            return Err(ArgError::Count);
        };
        if string.text.is_empty() {
            return Err(ArgError::value(0, "empty search pattern"));
        }
        Ok(Pair {
            string: args.word(0)?,
            replacement: Arc::new(args.word(1)?),
        })
    }
}

/// Checks that there are not too many strings.
pub fn close(level: &mut Closing<'_>) {
    if level.settings.of::<FilterSettings>().sub.pairs.len() > MOST_PAIRS {
        let message = format!("number of search patterns exceeds {MOST_PAIRS}");
        level.builder.error(level.span(), message);
    }
}

impl SubPolicy {
    /// The search for strings that are the same for all requests, made ready.
    pub fn search(&self) -> Option<Arc<Search>> {
        let strings: Option<Vec<_>> = self
            .pairs
            .iter()
            .map(|pair| Some((pair.string.as_literal()?.to_vec(), &pair.replacement)))
            .collect();
        Search::new(strings?).map(Arc::new)
    }
}

/// A string that is searched.
#[derive(Debug)]
struct Pattern {
    /// In small letters.
    text: Vec<u8>,
    /// For each length of a beginning, the length of the longest shorter beginning that ends it
    /// (Knuth, Morris, Pratt).
    borders: Vec<usize>,
    replacement: Arc<Template>,
}

/// Strings made ready to be searched.
#[derive(Debug)]
pub struct Search {
    patterns: Vec<Pattern>,
    automaton: AhoCorasick,
    longest: usize,
}

/// A match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    pattern: usize,
    start: usize,
    end: usize,
}

/// Result of a look at a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    Match(Found),
    /// Number of bytes in no match; what follows them may begin one.
    Text(usize),
}

/// Answer to whether more may follow a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    More,
    Nothing,
}

impl Pattern {
    fn new(mut text: Vec<u8>, replacement: &Arc<Template>) -> Self {
        text.make_ascii_lowercase();
        let mut pattern = Pattern {
            borders: vec![0],
            text,
            replacement: Arc::clone(replacement),
        };
        let mut border = 0;
        for byte in pattern.text.clone().iter().skip(1) {
            border = pattern.step(border, *byte);
            pattern.borders.push(border);
        }
        pattern
    }

    /// The length of the beginning that is reached from another one by a byte in small letters.
    fn step(&self, mut len: usize, byte: u8) -> usize {
        // Each round makes `len` smaller.
        loop {
            if self.text.get(len) == Some(&byte) {
                return len + 1;
            }
            match len.checked_sub(1) {
                Some(last) => len = self.borders.get(last).copied().unwrap_or(0),
                None => return 0,
            }
        }
    }

    /// The length of the longest end of `text` that begins the pattern and is shorter than it.
    fn begun(&self, text: &[u8]) -> usize {
        let skipped = text.len().saturating_sub(self.text.len() - 1);
        let end = text.get(skipped..).unwrap_or_default();
        end.iter()
            .fold(0, |len, byte| self.step(len, byte.to_ascii_lowercase()))
    }

    fn is_at(&self, text: &[u8]) -> bool {
        text.get(..self.text.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(&self.text))
    }
}

impl Search {
    /// A search for strings, of which the empty ones are never found; `None` when there is none.
    fn new(strings: Vec<(Vec<u8>, &Arc<Template>)>) -> Option<Self> {
        let patterns: Vec<Pattern> = strings
            .into_iter()
            .filter(|(text, _)| !text.is_empty())
            .map(|(text, replacement)| Pattern::new(text, replacement))
            .collect();
        let longest = patterns.iter().map(|pattern| pattern.text.len()).max()?;
        // Built of bytes of bounded length, it fails only beyond what a configuration can hold.
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .ascii_case_insensitive(true)
            .build(patterns.iter().map(|pattern| &pattern.text))
            .ok()?;
        Some(Search {
            patterns,
            automaton,
            longest,
        })
    }

    /// Finds the begin of the text: a match and where it is, or that there is none so far.
    fn look(&self, text: &[u8], is_used: &[bool], rest: Rest) -> Sight {
        let found = self.find(text, is_used);
        let is_certain = |found: &Found| found.start + self.longest <= text.len();
        match found {
            Some(found) if rest == Rest::Nothing || is_certain(&found) => {
                return Sight::Match(found);
            }
            None if rest == Rest::Nothing => return Sight::Text(text.len()),
            _ => {}
        }
        // A string that may go on in what follows comes before the match, or before its end.
        let mut held = text.len();
        let mut is_first = true;
        for (number, pattern) in self.patterns.iter().enumerate() {
            if is_used.get(number) == Some(&true) {
                continue;
            }
            let start = text.len() - pattern.begun(text);
            held = held.min(start);
            if let Some(found) = found {
                let is_before = (start, number) < (found.start, found.pattern);
                is_first &= !is_before;
            }
        }
        match found {
            Some(found) if is_first => Sight::Match(found),
            _ => Sight::Text(held),
        }
    }

    /// The leftmost match of a string that was not used up.
    fn find(&self, text: &[u8], is_used: &[bool]) -> Option<Found> {
        let mut from = 0;
        // Each round begins further right.
        loop {
            let found = self
                .automaton
                .find(aho_corasick::Input::new(text).range(from..))?;
            let (start, first) = (found.start(), found.pattern().as_usize());
            let here = text.get(start..).unwrap_or_default();
            // The string that the automaton prefers may be used up; another one may begin at
            // that place.
            let unused = self.patterns.iter().enumerate().skip(first);
            let mut unused = unused.filter(|(number, _)| is_used.get(*number) != Some(&true));
            if let Some((number, pattern)) = unused.find(|(_, pattern)| pattern.is_at(here)) {
                return Some(Found {
                    pattern: number,
                    start,
                    end: start + pattern.text.len(),
                });
            }
            from = start + 1;
        }
    }
}

/// Plan by which strings are replaced in a body.
pub struct Plan {
    search: Arc<Search>,
    once: bool,
}

/// Decides whether an answer is searched, and changes its head.
pub fn run(req: &mut Request, response: &mut Response) -> Option<Plan> {
    let policy = &req.location.settings.of::<FilterSettings>().sub;
    if policy.pairs.is_empty() || response.changes.are_barred || response.length == Some(0) {
        return None;
    }
    if !TypeSet::any_fits(&policy.types, response) {
        return None;
    }
    let (once, keeps_validators) = (policy.once, policy.last_modified);
    let search = match req.location.parts.get::<Texts>() {
        Some(texts) => Arc::clone(&texts.search),
        None => Arc::new(variable_search(req)?),
    };
    response.length = None;
    response.parts.rule = RangeRule::Refused;
    response.fields.remove_all(DIGESTS);
    if keeps_validators {
        response.weaken_etag();
    } else {
        response.fields.remove(Known::LastModified);
        response.fields.remove(Known::ETag);
        response.last_modified = None;
    }
    Some(Plan { search, once })
}

/// The search for the strings of this request.
fn variable_search(req: &mut Request) -> Option<Search> {
    let location = Arc::clone(&req.location);
    let pairs = location.settings.of::<FilterSettings>().sub.pairs.iter();
    let strings = pairs.map(|pair| (req.eval(&pair.string).to_vec(), &pair.replacement));
    Search::new(strings.collect())
}

/// Replaces strings in a body while it is sent.
pub fn replace(req: &mut Request, body: Body, plan: Plan) -> Body {
    if body.is_empty() {
        return body;
    }
    let patterns = &plan.search.patterns;
    let values: Vec<Option<Bytes>> = patterns
        .iter()
        .map(|pattern| pattern.replacement.as_literal())
        .map(|literal| literal.map(Bytes::copy_from_slice))
        .collect();
    // nginx: the other ones are evaluated where they are needed first.
    let evaluates = values.iter().any(Option::is_none);
    Body::stream(SubBody {
        inner: body,
        current: None,
        text: Bytes::new(),
        output: Vec::new(),
        state: State::NeedsInput,
        unused: patterns.len(),
        is_used: vec![false; patterns.len()],
        values,
        req: evaluates.then(|| Box::new(req.fork())),
        plan,
    })
}

/// Place at which the replacing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The bytes in `text` may be the beginning of a string; the rest of it is needed.
    NeedsInput,
    /// There is text to be searched.
    HasInput,
    /// The source has ended; what is left of it is in `text`.
    Ending,
}

/// A body in which strings are replaced.
struct SubBody {
    inner: Body,
    /// Rest of the last piece.
    current: Option<Piece>,
    /// Text that was not handed on.
    text: Bytes,
    output: Vec<u8>,
    state: State,
    /// Number of strings that may still be replaced.
    unused: usize,
    is_used: Vec<bool>,
    values: Vec<Option<Bytes>>,
    /// Evaluates replacements; none when all are literal.
    req: Option<Box<Request>>,
    plan: Plan,
}

impl BodyStream for SubBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        loop {
            if this.unused == 0 && this.text.is_empty() && this.current.is_none() {
                return this.inner.poll_next(cx);
            }
            if this.state != State::NeedsInput {
                let output = this.search();
                if !output.is_empty() {
                    return Poll::Ready(Some(Ok(Piece::Memory(output))));
                }
                if this.state == State::Ending {
                    return Poll::Ready(None);
                }
            }
            if let Err(error) = ready!(this.poll_input(cx)) {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        super::trailers_of_changed(self.inner.take_trailers())
    }
}

impl SubBody {
    /// Gets more text behind what was held back.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if self.current.is_none() {
            match ready!(self.inner.poll_next(cx)) {
                Some(piece) => self.current = Some(piece?),
                None => self.state = State::Ending,
            }
        }
        if let Some(piece) = &mut self.current {
            let input = piece.split_to(FILE_READ_SIZE as u64).take_memory()?;
            if piece.is_empty() {
                self.current = None;
            }
            self.text = if self.text.is_empty() {
                input
            } else {
                Bytes::from([&self.text[..], &input[..]].concat())
            };
            self.state = State::HasInput;
        }
        Poll::Ready(Ok(()))
    }

    /// Replaces what is found, until the output is large enough or more input is needed.
    fn search(&mut self) -> Bytes {
        let rest = match self.state {
            State::Ending => Rest::Nothing,
            State::NeedsInput | State::HasInput => Rest::More,
        };
        while self.output.len() < OUTPUT_SIZE && !self.text.is_empty() {
            let known = match self.unused {
                0 => Sight::Text(self.text.len()),
                _ => self.plan.search.look(&self.text, &self.is_used, rest),
            };
            match known {
                Sight::Match(found) => self.put(found),
                Sight::Text(len) => {
                    let text = self.text.split_to(len);
                    if rest == Rest::More {
                        self.state = State::NeedsInput;
                    }
                    if self.output.is_empty() {
                        return text;
                    }
                    self.output.extend_from_slice(&text);
                    break;
                }
            }
        }
        if self.text.is_empty() && rest == Rest::More {
            self.state = State::NeedsInput;
        }
        Bytes::from(std::mem::take(&mut self.output))
    }

    fn put(&mut self, found: Found) {
        let before = self.text.get(..found.start).unwrap_or_default();
        self.output.extend_from_slice(before);
        self.text.advance(found.end);
        if let Some(value) = self.value(found.pattern) {
            self.output.extend_from_slice(&value);
        }
        if self.plan.once
            && let Some(is_used) = self.is_used.get_mut(found.pattern)
        {
            *is_used = true;
            self.unused -= 1;
        }
    }

    /// Replacement of a string; evaluated once.
    fn value(&mut self, pattern: usize) -> Option<Bytes> {
        let slot = self.values.get_mut(pattern)?;
        if slot.is_none() {
            let req = self.req.as_deref_mut()?;
            let template = &self.plan.search.patterns.get(pattern)?.replacement;
            *slot = Some(req.eval(template));
        }
        slot.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::task::Waker;

    struct Pieces(VecDeque<Bytes>);

    impl BodyStream for Pieces {
        fn poll_next(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Piece, BodyError>>> {
            Poll::Ready(self.0.pop_front().map(|bytes| Ok(Piece::Memory(bytes))))
        }
    }

    fn search(strings: &[&str]) -> Search {
        let replacements: Vec<Arc<Template>> = (0..strings.len())
            .map(|number| Arc::new(Template::literal(&format!("<{number}>"))))
            .collect();
        let strings = strings.iter().zip(&replacements);
        Search::new(
            strings
                .map(|(text, replacement)| (text.as_bytes().to_vec(), replacement))
                .collect(),
        )
        .unwrap()
    }

    fn run(strings: &[&str], once: bool, pieces: &[&[u8]]) -> String {
        let search = Arc::new(search(strings));
        let pieces = pieces.iter().filter(|piece| !piece.is_empty());
        let pieces = pieces.map(|piece| Bytes::copy_from_slice(piece)).collect();
        let mut body = Body::stream(SubBody {
            inner: Body::stream(Pieces(pieces)),
            current: None,
            text: Bytes::new(),
            output: Vec::new(),
            state: State::NeedsInput,
            unused: strings.len(),
            is_used: vec![false; strings.len()],
            values: (0..strings.len())
                .map(|number| Some(Bytes::from(format!("<{number}>"))))
                .collect(),
            req: None,
            plan: Plan { search, once },
        });
        let mut out = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(piece)) = body.poll_next(&mut cx) {
            let piece = piece.unwrap().take_memory().unwrap();
            assert!(!piece.is_empty());
            out.extend_from_slice(&piece);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn matches_are_replaced_wherever_the_input_is_split() {
        for (strings, once, input, expected) in [
            (&["foo"][..], true, "foofoo", "<0>foo"),
            (&["foo"], false, "FOOfoo fOo", "<0><0> <0>"),
            (&["foo"], false, "foofo", "<0>fo"),
            (&["abac"], false, "abaabac", "aba<0>"),
            (&["ababX"], false, "abababX", "ab<0>"),
            (&["aab"], false, "aaaab aab a", "aa<0> <0> a"),
            (&["A"], true, "CAAC", "C<0>AC"),
            // The leftmost, and of those the first.
            (&["aabb", "aaabb"], false, "aabbaaabbaabb", "<0><1><0>"),
            (&["a", "aa"], false, "aaa", "<0><0><0>"),
            (&["aa", "a"], false, "aaa", "<0><1>"),
            (&["abcd", "bc"], false, "abcabcd", "a<1><0>"),
            (&["abcd", "b"], false, "xabc", "xa<1>c"),
            (&["aab", "yyz"], true, "aabyyzaab", "<0><1>aab"),
            (&["aab", "yyz"], true, "yyzyyzaabaabyyz", "<1>yyz<0>aabyyz"),
            (&["a", "ab"], true, "abab", "<0>b<1>"),
            (&["x"], false, "", ""),
        ] {
            let bytes = input.as_bytes();
            assert_eq!(
                run(strings, once, &[bytes]),
                expected,
                "{strings:?} {input}"
            );
            for at in 0..=bytes.len() {
                let (one, other) = bytes.split_at(at);
                let out = run(strings, once, &[one, other]);
                assert_eq!(out, expected, "{strings:?} {input} at {at}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(run(strings, once, &single), expected, "{strings:?} {input}");
        }
    }

    #[test]
    fn only_what_may_begin_a_match_is_held_back() {
        for (strings, text, held) in [
            (&["abc"][..], "xyz", ""),
            (&["abc"], "xyzab", "ab"),
            (&["abc"], "xyzaba", "a"),
            (&["abc", "yz"], "xy", "y"),
            (&["aaab"], "aaaaa", "aaa"),
        ] {
            let is_used = vec![false; strings.len()];
            let known = search(strings).look(text.as_bytes(), &is_used, Rest::More);
            assert_eq!(known, Sight::Text(text.len() - held.len()), "{text}");
        }
    }

    #[test]
    fn large_bodies_are_replaced_in_pieces() {
        let text = "0123456789abcdef".repeat(20_000);
        let out = run(&["9AB"], false, &[text.as_bytes()]);
        assert_eq!(out, "012345678<0>cdef".repeat(20_000));
    }
}
