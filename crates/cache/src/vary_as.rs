//! `proxy_cache_vary`: values that tell variants apart in the place of a request's fields.
//!
//! An answer whose Vary names a field with many spellings (User-Agent, Accept, Cookie) has as many
//! variants. Here an operator says into which classes the requests fall: for what Vary names, the
//! value of the class counts.
//!
//! RFC 9111 §4.1 compares the fields themselves, so a location that follows the RFC has none of
//! this.

use millpond_conf::Template;
use millpond_conf::value::{ArgError, Args, FromArgs};

/// Fields that are compared by a value of the configuration.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct VaryAsPolicy {
    /// A value that tells the variants of an answer apart where its Vary names the field, in the
    /// place of what requests have in the field: `proxy_cache_vary Accept as $kind;` with a `map`
    /// of `$http_accept` to `markdown` or nothing keeps two variants, however many spellings of
    /// Accept there are. May be repeated for several fields.
    ///
    /// A value that is empty is that of a request without the field. The origin still sees the
    /// field as it came: let it see the class too (`proxy_set_header`), so that it answers all of a
    /// class alike. Not for Accept-Encoding, whose codings are told apart already; and without
    /// effect where `proxy_cache_conformance` makes the cache follow RFC 9111, which compares the
    /// fields themselves.
    #[directive(name = "proxy_cache_vary", repeat)]
    pub fields: Vec<VaryAs>,
}

/// A field, and the value that counts in its place.
#[derive(Clone, Debug)]
pub struct VaryAs {
    /// The name, in small letters.
    pub name: Vec<u8>,
    /// The value.
    pub value: Template,
}

impl FromArgs for VaryAs {
    const SYNTAX: &'static str = "field as value";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let [field, between, _] = args.at_least(3)? else {
            return Err(ArgError::Count);
        };
        if between.text != "as" {
            return Err(ArgError::value(1, "it must be `as`"));
        }
        let name = field.text.to_ascii_lowercase().into_bytes();
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        if name.is_empty() || !name.iter().all(is_of_name) {
            return Err(ArgError::value(0, "it must be the name of a field"));
        }
        if name == b"accept-encoding" {
            return Err(ArgError::value(
                0,
                "the codings of Accept-Encoding are told apart already",
            ));
        }
        Ok(VaryAs {
            name,
            value: args.word(2)?,
        })
    }
}
