//! `set_if_empty`, `set_md5`, `set_escape_uri` and the other directives of set-misc-nginx-module:
//! variables whose values are computed when the script comes to the line.
//!
//! ```text
//! set_unescape_uri  $name $arg_name;      what the line gives
//! set_unescape_uri  $name;                the value that the variable has
//! ```
//!
//! A line that can say nothing of what it is given (digits that are none, a length of 0) fails the
//! request with 500, as the module does.
//!
//! What it does not do: `set_hashed_upstream`, `set_formatted_…_time`, and other alphabets and
//! paddings of base32.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use millpond_conf::{Statement, Template};
use millpond_semantics::date::civil;
use millpond_system::log::error::Level;
use millpond_system::log::stamp::offset_at;
use millpond_system::{chance, clock};

use super::set::{Variable, settable};
use super::{CONTEXTS, CaptureForm, Script, Step, eval, functions, text};
use crate::log::request_error;
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;

/// The longest random text (as in the module).
const MAX_RANDOM: u64 = 64;

/// A function, by the name of its directive.
struct Function {
    name: &'static str,
    /// The fewest and the most arguments behind the variable; where there may be one or none, it is
    /// the value of the variable itself that is meant without.
    arguments: (usize, usize),
    run: Run,
}

/// The work of a function.
#[derive(Clone, Copy)]
enum Run {
    /// A change of one text.
    Text(fn(&[u8]) -> Vec<u8>),
    /// A change of one text that may be wrong.
    Digits(fn(&[u8]) -> Option<Vec<u8>>),
    /// The digest of a text under a key.
    Keyed(fn(&[u8], &[u8]) -> Option<Vec<u8>>),
    /// The text if the variable is empty.
    IfEmpty,
    /// A number between two, both included.
    Between,
    /// Random signs of an alphabet, so many.
    Signs(&'static [u8]),
    /// The next number of a range, over all requests.
    Turn,
    /// Today, where this machine is.
    Today,
}

const ALPHANUM: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const LOWER: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

const FUNCTIONS: &[Function] = &[
    function("set_if_empty", (1, 1), Run::IfEmpty),
    change("set_quote_sql_str", functions::quote_sql),
    change("set_quote_pgsql_str", functions::quote_pgsql),
    change("set_quote_json_str", functions::quote_json),
    change("set_unescape_uri", functions::unescape_uri),
    change("set_escape_uri", functions::escape_uri),
    change("set_encode_base32", functions::encode_base32),
    digits("set_decode_base32", functions::decode_base32),
    change("set_encode_base64", functions::encode_base64),
    digits("set_decode_base64", functions::decode_base64),
    change("set_encode_base64url", functions::encode_base64url),
    digits("set_decode_base64url", functions::decode_base64url),
    change("set_encode_hex", functions::encode_hex),
    digits("set_decode_hex", functions::decode_hex),
    change("set_md5", functions::md5),
    change("set_sha1", functions::sha1),
    function("set_hmac_sha1", (2, 2), Run::Keyed(functions::hmac_sha1)),
    function(
        "set_hmac_sha256",
        (2, 2),
        Run::Keyed(functions::hmac_sha256),
    ),
    function("set_random", (2, 2), Run::Between),
    function("set_secure_random_alphanum", (1, 1), Run::Signs(ALPHANUM)),
    function("set_secure_random_lcalpha", (1, 1), Run::Signs(LOWER)),
    function("set_rotate", (2, 2), Run::Turn),
    function("set_local_today", (0, 0), Run::Today),
];

const fn function(name: &'static str, arguments: (usize, usize), run: Run) -> Function {
    Function {
        name,
        arguments,
        run,
    }
}

/// A change of one text: of the argument, or of the variable itself.
const fn change(name: &'static str, run: fn(&[u8]) -> Vec<u8>) -> Function {
    function(name, (0, 1), Run::Text(run))
}

/// A change of one text that may be wrong.
const fn digits(name: &'static str, run: fn(&[u8]) -> Option<Vec<u8>>) -> Function {
    function(name, (0, 1), Run::Digits(run))
}

/// Rows of this file.
pub const ROWS: &[Row] = &[
    row(
        "set_if_empty",
        "$variable value",
        "Gives a variable a value if it is empty.",
    ),
    row(
        "set_quote_sql_str",
        OF_TEXT,
        "A text as a string of SQL (MySQL), in quotes.",
    ),
    row(
        "set_quote_pgsql_str",
        OF_TEXT,
        "A text as a string of PostgreSQL, in quotes. In one that is no UTF-8 all bytes beyond \
         ASCII are escapes.",
    ),
    row(
        "set_quote_json_str",
        OF_TEXT,
        "A text as a string of JSON; `null` for an empty one.",
    ),
    row(
        "set_unescape_uri",
        OF_TEXT,
        "A text without the escapes of a query: `%41` and `+`.",
    ),
    row(
        "set_escape_uri",
        OF_TEXT,
        "A text with the escapes that a part of a URI needs.",
    ),
    row(
        "set_encode_base32",
        OF_TEXT,
        "A text in base32, with the extended hexadecimal alphabet.",
    ),
    row(
        "set_decode_base32",
        OF_TEXT,
        "The bytes of a text in base32.",
    ),
    row("set_encode_base64", OF_TEXT, "A text in base64."),
    row(
        "set_decode_base64",
        OF_TEXT,
        "The bytes of a text in base64; 500 if it is none.",
    ),
    row(
        "set_encode_base64url",
        OF_TEXT,
        "A text in base64 with the alphabet for URLs.",
    ),
    row(
        "set_decode_base64url",
        OF_TEXT,
        "The bytes of a text in base64 for URLs.",
    ),
    row("set_encode_hex", OF_TEXT, "A text in hexadecimal digits."),
    row(
        "set_decode_hex",
        OF_TEXT,
        "The bytes of hexadecimal digits; 500 if they are none.",
    ),
    row(
        "set_md5",
        OF_TEXT,
        "The MD5 digest of a text, in hexadecimal digits.",
    ),
    row(
        "set_sha1",
        OF_TEXT,
        "The SHA-1 digest of a text, in hexadecimal digits.",
    ),
    row(
        "set_hmac_sha1",
        OF_KEY,
        "The bytes of the HMAC of a text with SHA-1.",
    ),
    row(
        "set_hmac_sha256",
        OF_KEY,
        "The bytes of the HMAC of a text with SHA-256.",
    ),
    row(
        "set_random",
        "$variable least most",
        "A number between two, both included.",
    ),
    row(
        "set_secure_random_alphanum",
        "$variable length",
        "So many letters and digits that nobody can guess, at most 64.",
    ),
    row(
        "set_secure_random_lcalpha",
        "$variable length",
        "So many small letters that nobody can guess, at most 64.",
    ),
    row(
        "set_rotate",
        "$variable first last",
        "The next number of a range, which begins anew behind its end.\n\n\
         # Differs from nginx\n\nAll workers count together.",
    ),
    row(
        "set_local_today",
        "$variable",
        "Today, where this machine is: `2026-11-26`.",
    ),
];

const OF_TEXT: &str = "$variable [text]";
const OF_KEY: &str = "$variable key text";

const fn row(name: &'static str, syntax: &'static str, doc: &'static str) -> Row {
    Row {
        name,
        contexts: CONTEXTS,
        syntax,
        is_block: false,
        pass: Pass::Ordered,
        doc,
        apply: computed,
    }
}

/// A compiled line.
pub(super) struct Computed {
    name: &'static str,
    variable: Variable,
    arguments: Vec<Template>,
    run: Run,
    /// The count of numbers that were given out.
    turns: Arc<AtomicU64>,
}

impl std::fmt::Debug for Computed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Computed")
            .field("name", &self.name)
            .field("variable", &self.variable)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

fn computed(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    let name = statement.name.text.as_str();
    let Some(function) = FUNCTIONS.iter().find(|it| it.name == name) else {
        return;
    };
    let (least, most) = function.arguments;
    if !builder.has_arguments(statement, least + 1..=most + 1) {
        return;
    }
    let Some((word, words)) = statement.args.split_first() else {
        return;
    };
    let variable = settable(builder, word);
    let takes_itself = words.is_empty() && most == 1 || name == "set_if_empty";
    let itself = takes_itself.then_some(word);
    let words = itself.into_iter().chain(words);
    let read: Vec<Option<Template>> = words.map(|word| builder.template(word)).collect();
    let arguments: Option<Vec<Template>> = read.into_iter().collect();
    if let (Some(variable), Some(arguments)) = (variable, arguments) {
        draft.of::<Script>().steps.push(Step::Computed(Computed {
            name: function.name,
            variable,
            arguments,
            run: function.run,
            turns: Arc::default(),
        }));
    }
}

impl Computed {
    /// Computes the value and stores it.
    pub(super) fn run(&self, req: &mut Request, form: CaptureForm) -> Result<(), Failure> {
        let templates = self.arguments.iter();
        let values: Vec<Bytes> = templates.map(|it| eval(req, it, form)).collect();
        let argument = |index: usize| values.get(index).map_or(&[][..], |value| &**value);
        let value = match self.run {
            Run::Text(run) => Ok(run(argument(0))),
            Run::Digits(run) => run(argument(0)).ok_or("value"),
            Run::Keyed(run) => run(argument(0), argument(1)).ok_or("key"),
            Run::IfEmpty if argument(0).is_empty() => Ok(argument(1).to_vec()),
            Run::IfEmpty => Ok(argument(0).to_vec()),
            Run::Between => between(argument(0), argument(1)),
            Run::Signs(alphabet) => signs(argument(0), alphabet),
            Run::Turn => self.turn(argument(0), argument(1)),
            Run::Today => Ok(today()),
        };
        match value {
            Ok(value) => {
                self.variable.assign(req, Bytes::from(value));
                Ok(())
            }
            Err(what) => {
                let texts: Vec<_> = values.iter().map(|value| text(value)).collect();
                let given = texts.join(" ");
                let message = format_args!("{}: bad {what}: {given}", self.name);
                request_error::write(req, Level::Error, message);
                Err(Failure::Status(500))
            }
        }
    }

    fn turn(&self, first: &[u8], last: &[u8]) -> Result<Vec<u8>, &'static str> {
        let (first, last) = range(first, last)?;
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let count = (last - first).saturating_add(1);
        Ok((first + turn % count).to_string().into_bytes())
    }
}

fn today() -> Vec<u8> {
    let second = clock::now_ms().div_euclid(1000);
    let now = civil(second + i64::from(offset_at(second)));
    format!("{}-{:02}-{:02}", now.year, now.month, now.day).into_bytes()
}

/// A number between two, whichever is greater.
fn between(first: &[u8], last: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (first, last) = range(first, last)?;
    let count = (last - first).saturating_add(1);
    Ok((first + chance::below(count)).to_string().into_bytes())
}

fn range(first: &[u8], last: &[u8]) -> Result<(u64, u64), &'static str> {
    let number = |bytes| str::from_utf8(bytes).ok().and_then(|it| it.parse().ok());
    let first: u64 = number(first).ok_or("\"from\" argument")?;
    let last: u64 = number(last).ok_or("\"to\" argument")?;
    Ok((first.min(last), first.max(last)))
}

fn signs(length: &[u8], alphabet: &[u8]) -> Result<Vec<u8>, &'static str> {
    let length = str::from_utf8(length).ok().and_then(|it| it.parse().ok());
    let fits = |length: &u64| (1..=MAX_RANDOM).contains(length);
    let length = length.filter(fits).ok_or("\"length\" argument")?;
    let sign = |_| {
        let at = chance::below(alphabet.len() as u64);
        alphabet.get(usize::try_from(at).unwrap_or(0)).copied()
    };
    Ok((0..length).filter_map(sign).collect())
}
