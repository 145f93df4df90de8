//! Media types of answers: what `gzip_types` and its like list, and what an answer's Content-Type
//! says.
//!
//! Sources: nginx ngx_http_types_slot, ngx_http_test_content_type,
//! ngx_http_upstream_copy_content_type.

use std::collections::HashSet;
use std::sync::Arc;

use millpond_conf::{ArgError, Args, FromArgs};
use millpond_wire::header::Known;

use super::{Response, Source};

/// The longest media type that is compared; longer ones are in no list (arbitrary).
const MAX_TYPE: usize = 128;

/// The types of one directive; clones share it. `text/html` is always among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeSet {
    /// `*`.
    Any,
    /// The types of this set, in small letters.
    These(Arc<HashSet<Box<[u8]>>>),
}

impl FromArgs for TypeSet {
    const SYNTAX: &'static str = "mime-type ...";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let mut set: HashSet<Box<[u8]>> = HashSet::new();
        for word in args.at_least(1)? {
            if word.text == "*" {
                return Ok(TypeSet::Any);
            }
            let name = word.text.to_ascii_lowercase().into_bytes();
            if !set.insert(name.into_boxed_slice()) {
                let message = format!("duplicate MIME type \"{}\"", word.text);
                args.cx.diagnostics.push_warning(word.span, message);
            }
        }
        set.insert(b"text/html".as_slice().into());
        Ok(TypeSet::These(Arc::new(set)))
    }
}

impl TypeSet {
    /// True when an answer is of a type in one of the sets. nginx: `*` is for answers without a
    /// type, too.
    pub fn any_fits(sets: &[TypeSet], response: &Response) -> bool {
        match ContentType::of(response) {
            Some(of) => TypeSet::any_has(sets, of.media_type),
            None => sets.contains(&TypeSet::Any),
        }
    }

    /// True when a type, in any case, is in one of the sets.
    pub fn any_has(sets: &[TypeSet], media_type: &[u8]) -> bool {
        let mut small = [0; MAX_TYPE];
        let Some(small) = small.get_mut(..media_type.len()) else {
            return sets.contains(&TypeSet::Any);
        };
        small.copy_from_slice(media_type);
        small.make_ascii_lowercase();
        let small: &[u8] = small;
        sets.iter().any(|set| match set {
            TypeSet::Any => true,
            TypeSet::These(these) => these.contains(small),
        })
    }
}

/// The parts of an answer's Content-Type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentType<'a> {
    /// The media type. nginx: with all parameters, unless the character set is among them.
    pub media_type: &'a [u8],
    /// The character set; empty when none is named.
    pub charset: &'a [u8],
}

impl<'a> ContentType<'a> {
    /// The Content-Type of an answer.
    ///
    /// Only that of an upstream is taken apart, and what `charset` has written; other ones of this
    /// server's are names from the configuration.
    pub fn of(response: &'a Response) -> Option<Self> {
        let value = response.fields.get(Known::ContentType)?;
        Some(match response.source {
            Source::Own if !response.changes.have_charset => ContentType {
                media_type: value,
                charset: b"",
            },
            Source::Own | Source::Upstream => Self::parse(value),
        })
    }

    fn parse(value: &'a [u8]) -> Self {
        let whole = ContentType {
            media_type: value,
            charset: b"",
        };
        for at in memchr::memchr_iter(b';', value) {
            let (media_type, rest) = value.split_at(at);
            let rest = rest.get(1..).unwrap_or_default().trim_ascii_start();
            let Some((name, charset)) = rest.split_at_checked(8) else {
                continue;
            };
            if name.eq_ignore_ascii_case(b"charset=") {
                let charset = charset.strip_prefix(b"\"").unwrap_or(charset);
                let charset = charset.strip_suffix(b"\"").unwrap_or(charset);
                return ContentType {
                    media_type,
                    charset,
                };
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(types: &[&str]) -> TypeSet {
        TypeSet::These(Arc::new(
            types.iter().map(|name| name.as_bytes().into()).collect(),
        ))
    }

    #[test]
    fn types_are_found_in_any_case() {
        let sets = [set(&["text/html"]), set(&["text/css"])];
        assert!(TypeSet::any_has(&sets, b"Text/CSS"));
        assert!(!TypeSet::any_has(&sets, b"text/plain"));
        assert!(!TypeSet::any_has(&sets, &[b'x'; 500]));
        assert!(TypeSet::any_has(&[TypeSet::Any], &[b'x'; 500]));
    }

    #[test]
    fn character_set_is_taken_from_the_parameters() {
        for (value, media_type, charset) in [
            ("text/html", "text/html", ""),
            ("text/html; charset=utf-8", "text/html", "utf-8"),
            ("text/html;  Charset=\"a b\"", "text/html", "a b"),
            ("text/html; x=1; charset=a", "text/html; x=1", "a"),
            ("text/html; x=1", "text/html; x=1", ""),
            ("text/html;", "text/html;", ""),
            ("text/html; charset=", "text/html", ""),
        ] {
            let parsed = ContentType::parse(value.as_bytes());
            assert_eq!(parsed.media_type, media_type.as_bytes(), "{value}");
            assert_eq!(parsed.charset, charset.as_bytes(), "{value}");
        }
    }
}
