//! `proxy_cache_purge`: which requests are purges, and where they may come from.
//!
//! One directive has the forms of two modules, told apart by their words:
//!
//! | words | form |
//! |---|---|
//! | `$variable …` | NGINX Plus: a purge where a value is neither empty nor "0" |
//! | `off`, `on`, `METHOD`, `METHOD from address …`, `METHOD purge_all …` | the purge module, in a caching location |
//! | `zone key` | the purge module, in a location that does nothing else |
//!
//! Behind each `types=…` may name what purges may reach beyond their own key, host and site.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{Contexts, Span, Spanned, Template, Word};
use millpond_system::address::Address;
use millpond_system::network::{LowBits, Network};

/// Method that `on` stands for.
const USUAL_METHOD: &str = "PURGE";

/// Reach that a purge may have beyond its own key, host and site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wider {
    /// Any host (`Purge-Host`).
    Host,
    /// Any site (`Purge-Site`).
    Site,
    /// All that has a tag, of whichever site.
    Tag,
    /// The whole zone.
    All,
}

impl Wider {
    /// All kinds.
    pub const ALL: [Wider; 4] = [Wider::Host, Wider::Site, Wider::Tag, Wider::All];

    /// Word of the reach in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Wider::Host => "host",
            Wider::Site => "site",
            Wider::Tag => "tag",
            Wider::All => "all",
        }
    }
}

/// Settings of the requests that purge.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct PurgePolicy {
    /// Lets requests take answers out of the cache, in the forms of NGINX Plus and of the cache
    /// purge module.
    ///
    /// With variables: requests for which one of the values is neither empty nor "0". They are
    /// answered with 204, or with 404 where nothing was stored.
    ///
    /// With a method (`on` is PURGE): requests with this method, from the addresses after `from`,
    /// or from everywhere without it or with `all`; others are answered with 403. They purge the
    /// entry of their cache key, or with `purge_all` the whole zone, and are answered with 200, or
    /// with 404 where nothing was stored.
    ///
    /// With a zone and a key, in a location of its own: all requests that the location lets in.
    ///
    /// A key that ends in `*` purges all keys that begin so. Fields of the request ask for more:
    /// purges by wildcard, host, site or tag, soft purges and dry runs; see docs/purge.md. A purge
    /// stays within its own key, host and site, and is answered with 403 where it asks for more,
    /// but for what `types=` names at the end of the line: `host` (other hosts), `site` (other
    /// sites), `tag` (tags, of whichever site), `all` (the whole zone), with commas between.
    ///
    /// A purge covers all variants and slices and what is being fetched, holds from its answer on,
    /// also after a crash, and is logged at the level `notice`.
    ///
    /// # Differs from nginx
    ///
    /// A purge takes effect at once whatever it is about; its space is freed in the background.
    #[directive(name = "proxy_cache_purge", default = "off")]
    pub form: Spanned<Form>,
}

/// One form.
#[derive(Clone, Debug)]
pub enum Form {
    /// None.
    Off,
    /// Requests for which a value says so are purges.
    When(Arc<ByValue>),
    /// Requests with a method are purges.
    Method(Arc<ByMethod>),
    /// All of a location.
    Location(Arc<PurgeLocation>),
}

/// Purges that are told by values.
#[derive(Clone, Debug)]
pub struct ByValue {
    /// The values, one of which must be neither empty nor "0".
    pub values: Vec<Template>,
    /// Wider reaches that the purges may have.
    pub wider: Vec<Wider>,
}

/// Purges that are told by their method.
#[derive(Clone, Debug)]
pub struct ByMethod {
    /// The method.
    pub method: Bytes,
    /// Scope of the purges.
    pub scope: Scope,
    /// Wider reaches that the purges may have.
    pub wider: Vec<Wider>,
    from: Option<Vec<Network>>,
}

/// Scope of a purge that asks for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The request's key.
    Key,
    /// The whole zone.
    Zone,
}

/// A location that does nothing but purge.
#[derive(Clone, Debug)]
pub struct PurgeLocation {
    /// Name of the zone.
    pub zone: String,
    /// Place of the directive that named the zone.
    pub span: Span,
    /// The key.
    pub key: Template,
    /// Wider reaches that purges may have.
    pub wider: Vec<Wider>,
}

impl ByMethod {
    /// True if purges may come from an address.
    pub fn allows(&self, address: &Address) -> bool {
        let Some(from) = &self.from else { return true };
        from.iter().any(|network| network.contains(address))
    }
}

impl FromArgs for Form {
    const SYNTAX: &'static str = "$variable … | off | on | method [purge_all] [from all | address …] | zone key [types=kind,…]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        let wider = wider(words)?;
        let (words, wider) = match (words, wider) {
            ([words @ .., _], Some(wider)) => (words, wider),
            _ => (words, Vec::new()),
        };
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        match texts.as_slice() {
            [] => Err(ArgError::Count),
            [first, ..] if first.contains('$') => {
                let values = (0..words.len()).map(|index| args.word(index));
                let values = values.collect::<Result<_, _>>()?;
                Ok(Form::When(Arc::new(ByValue { values, wider })))
            }
            ["off"] => Ok(Form::Off),
            [method] => by_method(method, (Scope::Key, wider), None),
            [method, "purge_all"] => by_method(method, (Scope::Zone, wider), None),
            [method, "from", ..] if words.len() > 2 => {
                let from = networks(args, 2..words.len())?;
                by_method(method, (Scope::Key, wider), from)
            }
            [method, "purge_all", "from", ..] if words.len() > 3 => {
                let from = networks(args, 3..words.len())?;
                by_method(method, (Scope::Zone, wider), from)
            }
            [_, "from" | "purge_all", ..] => Err(ArgError::Count),
            ["on" | "off", _] => {
                let message = "expected \"from\" keyword".to_string();
                Err(invalid(1, &words[1], &message))
            }
            [zone, _] => Ok(Form::Location(Arc::new(PurgeLocation {
                zone: (*zone).to_string(),
                span: words[0].span,
                key: args.word(1)?,
                wider,
            }))),
            _ => Err(invalid(1, &words[1], "expected \"from\" keyword")),
        }
    }
}

fn invalid(index: usize, word: &Word, why: &str) -> ArgError {
    ArgError::value(index, format!("invalid parameter \"{}\", {why}", word.text))
}

/// Reaches that the last word names, if it is the word for that.
fn wider(words: &[Word]) -> Result<Option<Vec<Wider>>, ArgError> {
    let Some((last, index)) = words.last().zip(words.len().checked_sub(1)) else {
        return Ok(None);
    };
    let Some(kinds) = last.text.strip_prefix("types=") else {
        return Ok(None);
    };
    let named = |kind: &str| Wider::ALL.into_iter().find(|wider| wider.word() == kind);
    let wider: Option<Vec<Wider>> = kinds.split(',').map(named).collect();
    let why = "expected \"host\", \"site\", \"tag\" or \"all\", with commas between";
    wider.map(Some).ok_or_else(|| invalid(index, last, why))
}

fn by_method(
    method: &str,
    (scope, wider): (Scope, Vec<Wider>),
    from: Option<Vec<Network>>,
) -> Result<Form, ArgError> {
    let method = match method {
        // The module, too, takes `off` whatever stands behind it.
        "off" => return Ok(Form::Off),
        "on" => USUAL_METHOD,
        method => method,
    };
    if !method
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    {
        let message = format!("invalid method \"{method}\"");
        return Err(ArgError::value(0, message));
    }
    Ok(Form::Method(Arc::new(ByMethod {
        method: Bytes::copy_from_slice(method.as_bytes()),
        scope,
        wider,
        from,
    })))
}

/// The addresses of some words; none for `all`.
fn networks(args: &mut Args<'_>, which: Range<usize>) -> Result<Option<Vec<Network>>, ArgError> {
    let mut networks = Vec::new();
    let mut is_open = false;
    let words = args.words.iter().enumerate().take(which.end);
    for (index, word) in words.skip(which.start) {
        if word.text == "all" {
            is_open = true;
            continue;
        }
        let Some((network, low)) = Network::parse(&word.text) else {
            let message = format!("invalid parameter \"{}\"", word.text);
            return Err(ArgError::value(index, message));
        };
        if low == LowBits::Set {
            let message = format!("low address bits of {} are meaningless", word.text);
            args.cx.diagnostics.push_warning(word.span, message);
        }
        networks.push(network);
    }
    Ok((!is_open).then_some(networks))
}

impl PurgePolicy {
    /// The purging location that the directive makes of the block with this context; an error where
    /// it must not stand.
    pub fn location(&self, context: Contexts) -> Result<Option<&Arc<PurgeLocation>>, &'static str> {
        match &self.form.value {
            Form::Location(_) if context == Contexts::SERVER => {
                Err("directive (separate location syntax) is not allowed here")
            }
            Form::Location(location) => Ok(Some(location)),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond_conf::ParseContext;

    use super::*;
    use millpond_system::network::parse_address;

    fn read(line: &str) -> Result<Form, ArgError> {
        let word = |text: &str| Word {
            text: text.to_string(),
            span: Span::NONE,
            quoted: false,
        };
        let words: Vec<Word> = line.split(' ').map(word).collect();
        Form::from_args(&mut Args {
            name: &word("proxy_cache_purge"),
            words: &words,
            body: None,
            cx: &mut ParseContext::default(),
        })
    }

    #[test]
    fn forms_are_told_apart_by_their_words() {
        let kind = |line: &str| match read(line) {
            Ok(Form::Off) => "off".to_string(),
            Ok(Form::When(by)) => format!("when {}", by.values.len()),
            Ok(Form::Location(location)) => format!("location {}", location.zone),
            Ok(Form::Method(by)) => {
                let method = String::from_utf8_lossy(&by.method).into_owned();
                format!("{method} {:?} {}", by.scope, by.from.is_some())
            }
            Err(_) => "error".to_string(),
        };
        let table = [
            ("$purge", "when 1"),
            ("$purge x", "when 2"),
            ("off", "off"),
            ("off from 127.0.0.1", "off"),
            ("on", "PURGE Key false"),
            ("on from all", "PURGE Key false"),
            ("PURGE", "PURGE Key false"),
            ("DELETE from 127.0.0.1 10.0.0.0/8", "DELETE Key true"),
            ("PURGE from 127.0.0.1 all", "PURGE Key false"),
            ("PURGE purge_all", "PURGE Zone false"),
            ("PURGE purge_all from ::1", "PURGE Zone true"),
            ("zone $1$is_args$args", "location zone"),
            ("on types=all", "PURGE Key false"),
            ("$purge types=host,site", "when 1"),
            ("PURGE from ::1 types=tag", "PURGE Key true"),
            ("zone $1 types=all", "location zone"),
            ("types=all", "error"),
            ("PURGE types=", "error"),
            ("PURGE types=all,key", "error"),
            ("PURGE types=all from ::1", "error"),
            ("on from", "error"),
            ("on key", "error"),
            ("PURGE from bogus", "error"),
            ("a b c d", "error"),
            ("PURGE purge_all from", "error"),
            ("G(T from all", "error"),
        ];
        for (line, expected) in table {
            assert_eq!(kind(line), expected, "{line}");
        }
    }

    #[test]
    fn last_word_names_what_purges_may_reach() {
        for (line, expected) in [
            ("PURGE", &[][..]),
            ("PURGE types=host", &[Wider::Host]),
            ("PURGE from ::1 types=site,tag", &[Wider::Site, Wider::Tag]),
            ("PURGE purge_all types=all", &[Wider::All]),
        ] {
            let Ok(Form::Method(by)) = read(line) else {
                panic!("a method: {line}")
            };
            assert_eq!(by.wider, expected, "{line}");
        }
    }

    #[test]
    fn purges_may_come_from_the_named_addresses() {
        let Ok(Form::Method(by)) = read("PURGE from 127.0.0.1 10.0.0.0/8 unix:") else {
            panic!("a method")
        };
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("10.1.2.3", true),
            ("::1", false),
            ("unix:", true),
        ] {
            let address = parse_address(address.as_bytes()).unwrap();
            assert_eq!(by.allows(&address), expected, "{address}");
        }
    }
}
