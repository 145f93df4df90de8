//! `proxy_cache_encodings`, `proxy_cache_encodings_types`: which stored answers are kept in content
//! codings, too.
//!
//! `cache/encoder.rs` makes them, `cache/encodings.rs` chooses one.

use millpond_conf::value::{ArgError, Args, FromArgs, parse_offset};
use millpond_conf::{OffOr, Word};
use millpond_semantics::accept_encoding::Coding;
use millpond_semantics::dictionary::DictionaryCoding;

use millpond_exchange::response::type_set::TypeSet;

/// The shortest body that is encoded unless the configuration says otherwise (arbitrary: a packet).
const MIN_LENGTH: u64 = 1 << 10;
/// The longest one: it and its encoding are in memory at one time.
const MAX_LENGTH: u64 = 4 << 20;

/// Settings of stored encodings.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct EncodingsPolicy {
    /// Keeps stored answers in these content codings, too: `br`, `zstd` and `gzip`, each with a
    /// level behind a colon if it is not to be the best (11, 19 and 9). An encoding is made in the
    /// background, at low priority, once a client that takes it was answered from the cache; from
    /// then on such clients get it, by the quality that they give each coding, of equals the one
    /// that stands first here. Until then, and for clients that take none, the answer is what it
    /// would be otherwise; `brotli`, `zstd` and `gzip` compress it while it is sent.
    ///
    /// `dcb` and `dcz` (11, 19) are brotli and zstd by a dictionary that the client has (RFC 9842).
    /// A stored answer whose origin says Use-As-Dictionary is kept as one, too, once it was found
    /// in the cache. A request of the same origin for a URL that its `match` lets through, with the
    /// hash in Available-Dictionary, gets what it asks for encoded by it: in these codings first,
    /// of those that the client likes as much. Of an entry there are encodings by eight
    /// dictionaries at a time. Patterns of `match` may have `*` and `:name`; one with groups or
    /// modifiers, or of another origin, makes no dictionary. Answers then say
    /// `Vary: Accept-Encoding, Available-Dictionary`.
    ///
    /// Encoded are answers of status 200 that the origin did not encode, of the types of
    /// `proxy_cache_encodings_types`, with at least `min_length` (1k) and at most `max_length` (4m)
    /// bytes, of which the encoding saves a twentieth. They say `Vary: Accept-Encoding`. The
    /// encoding has an ETag of its own, which is strong, and ranges; it counts in the bytes of its
    /// site, and what purges or replaces the answer does so to its encodings. Bodies in slices are
    /// not encoded, nor answers with `no-transform` where the cache follows the RFC, nor those of
    /// locations with `sub_filter`, `ssi`, `add_before_body`, `add_after_body` or
    /// `source_charset`.
    #[directive(name = "proxy_cache_encodings", default = "off")]
    pub encodings: OffOr<Encodings>,
    /// The media types of answers that are kept in `proxy_cache_encodings`, beside text/html.
    #[directive(
        name = "proxy_cache_encodings_types",
        default = "text/plain text/css text/javascript text/xml application/javascript application/json application/xml application/wasm image/svg+xml",
        repeat
    )]
    pub types: Vec<TypeSet>,
}

/// Codings that answers are kept in, and bounds of their lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encodings {
    /// The codings in the order of preference, each with its level.
    pub(crate) codings: Vec<(Coding, u32)>,
    /// Those that need a dictionary.
    pub(crate) by_dictionary: Vec<(DictionaryCoding, u32)>,
    /// The bytes of the shortest body that is encoded.
    pub(crate) min_length: u64,
    /// The bytes of the longest one.
    pub(crate) max_length: u64,
}

impl FromArgs for Encodings {
    const SYNTAX: &'static str = "[br[:level]] [zstd[:level]] [gzip[:level]] [dcb[:level]] [dcz[:level]] [min_length=size] [max_length=size]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let mut encodings = Encodings {
            codings: Vec::new(),
            by_dictionary: Vec::new(),
            min_length: MIN_LENGTH,
            max_length: MAX_LENGTH,
        };
        for (at, word) in args.at_least(1)?.iter().enumerate() {
            let done = encodings.read(word);
            done.map_err(|message| ArgError::value(at, message))?;
        }
        if encodings.codings.is_empty() && encodings.by_dictionary.is_empty() {
            return Err(ArgError::other(format!("it must name a coding: {NAMES}")));
        }
        Ok(encodings)
    }
}

impl EncodingsPolicy {
    /// True if answers may become dictionaries.
    pub fn keeps_dictionaries(&self) -> bool {
        matches!(&self.encodings, OffOr::On(it) if !it.by_dictionary.is_empty())
    }
}

impl Encodings {
    fn read(&mut self, word: &Word) -> Result<(), String> {
        let size = |text| parse_offset(text).ok_or("it must be a size".to_owned());
        match word.text.split_once('=') {
            Some(("min_length", text)) => self.min_length = size(text)?,
            Some(("max_length", text)) => self.max_length = size(text)?,
            Some((name, _)) => return Err(format!("unknown parameter \"{name}\"")),
            None => {
                let (form, level) = coding(&word.text)?;
                let is_twice = match form {
                    Named::Plain(coding) => put(&mut self.codings, (coding, level)),
                    Named::By(coding) => put(&mut self.by_dictionary, (coding, level)),
                };
                if is_twice {
                    return Err(format!("duplicate coding \"{}\"", word.text));
                }
            }
        }
        Ok(())
    }
}

/// The names of codings.
const NAMES: &str = "br, zstd, gzip, dcb or dcz";

/// A coding that was named.
enum Named {
    Plain(Coding),
    By(DictionaryCoding),
}

/// Adds a coding; true if it is there already.
fn put<C: PartialEq>(codings: &mut Vec<(C, u32)>, coding: (C, u32)) -> bool {
    let is_twice = codings.iter().any(|(other, _)| *other == coding.0);
    codings.push(coding);
    is_twice
}

/// A coding and its level.
fn coding(text: &str) -> Result<(Named, u32), String> {
    let (name, level) = match text.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (text, None),
    };
    let (coding, best, most) = match name {
        "br" => (Named::Plain(Coding::Brotli), 11, 11),
        "zstd" => (Named::Plain(Coding::Zstd), 19, 22),
        "gzip" => (Named::Plain(Coding::Gzip), 9, 9),
        "dcb" => (Named::By(DictionaryCoding::Brotli), 11, 11),
        "dcz" => (Named::By(DictionaryCoding::Zstd), 19, 22),
        _ => return Err(format!("it must be {NAMES}")),
    };
    let Some(level) = level else {
        return Ok((coding, best));
    };
    match level.parse() {
        Ok(level) if (1..=most).contains(&level) => Ok((coding, level)),
        _ => Err(format!("the level of {name} must be from 1 to {most}")),
    }
}
