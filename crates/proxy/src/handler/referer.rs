//! `valid_referers`: where requests may come from, for `$invalid_referer`.
//!
//! The variable is "1" for a request whose Referer field names no valid place, else empty. Names
//! are host names with a wildcard at either end, perhaps with the begin of a path; `none` is a
//! request without the field, `blocked` one whose field is no URL, `server_names` the names of the
//! server; `~` starts an expression on what follows the scheme.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::VarId;
use millpond_conf::source::Span;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_wire::header::Known;

use crate::handler::settings::HandlerSettings;
use crate::request::Request;
use crate::var::Variable;
use millpond_exchange::expression::{Case, GaveUp, Regex};
use millpond_exchange::settings::host_table::{BadPattern, HostTable};
use millpond_exchange::settings::level::Closing;
use millpond_exchange::settings::names::ServerName;

/// The longest host that is looked at (nginx's bound).
const MAX_HOST: usize = 256;

/// The variable.
pub const VARIABLES: &[Variable] = &[Variable {
    name: "invalid_referer",
    doc: "\"1\" when the Referer is none of `valid_referers`, else empty.",
    write: |req, out| {
        if is_invalid(req) {
            out.push(b'1');
        }
        true
    },
}];

/// The pages that requests may come from.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(server, location)]
pub struct RefererPolicy {
    /// The places that a Referer may name; anything else sets `$invalid_referer`.
    #[directive(name = "valid_referers", repeat)]
    pub valid: Vec<ValidReferers>,
}

impl RefererPolicy {
    /// The position of a directive that names no place that requests may come from: only requests
    /// without one are told to be valid, and then all would be.
    pub fn lacks_places(&self) -> Option<Span> {
        if self.valid.iter().any(ValidReferers::names_places) {
            None
        } else {
            self.valid.iter().find_map(|valid| valid.place)
        }
    }
}

/// nginx: `none` and `blocked` alone name no valid place, and every request would pass.
pub fn close(level: &mut Closing<'_>) {
    if let Some(span) = level
        .settings
        .of::<HandlerSettings>()
        .referer
        .lacks_places()
    {
        let message = "the \"none\" or \"blocked\" referers are specified in the \
                       \"valid_referers\" directive without any valid referer";
        level.error_once(span, message);
    }
}

/// The arguments of one `valid_referers`.
#[derive(Clone, Debug, Default)]
pub struct ValidReferers {
    none: bool,
    blocked: bool,
    server_names: bool,
    /// Hosts, with the begin of the path that must follow.
    hosts: HostTable<Bytes>,
    has_hosts: bool,
    regexes: Vec<Arc<Regex>>,
    /// The place of the first of the arguments in the configuration.
    place: Option<Span>,
}

impl FromArgs for ValidReferers {
    const SYNTAX: &'static str = "none | blocked | server_names | string ...";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let mut valid = ValidReferers {
            place: args.words.first().map(|word| word.span),
            ..ValidReferers::default()
        };
        for (index, word) in args.at_least(1)?.iter().enumerate() {
            valid
                .add(&word.text)
                .map_err(|message| ArgError::value(index, message))?;
        }
        Ok(valid)
    }
}

impl ValidReferers {
    fn add(&mut self, text: &str) -> Result<(), String> {
        match text {
            "" => return Err("invalid referer \"\"".to_string()),
            "none" => self.none = true,
            "blocked" => self.blocked = true,
            "server_names" => self.server_names = true,
            "~" => return Err("empty regex in \"~\"".to_string()),
            _ => match text.strip_prefix('~') {
                Some(source) => {
                    // Named groups set nothing here.
                    let regex = Regex::new(source, Case::Insensitive, |_| VarId(u32::MAX))?;
                    self.regexes.push(Arc::new(regex));
                }
                None => return self.add_host(text),
            },
        }
        Ok(())
    }

    fn add_host(&mut self, text: &str) -> Result<(), String> {
        let slash = text.find('/').unwrap_or(text.len());
        let (host, path) = text.split_at_checked(slash).unwrap_or((text, ""));
        self.has_hosts = true;
        let path = Bytes::copy_from_slice(path.as_bytes());
        self.hosts
            .insert_pattern(host, path)
            .map_err(|bad| match bad {
                BadPattern::Invalid => format!("invalid hostname or wildcard \"{host}\""),
                BadPattern::Conflict => format!("conflicting parameter \"{host}\""),
            })
    }

    fn names_places(&self) -> bool {
        self.has_hosts || self.server_names || !self.regexes.is_empty()
    }

    /// True if a Referer after its scheme names a valid place.
    fn allows(
        &self,
        place: &[u8],
        host: &[u8],
        server_names: &[ServerName],
    ) -> Result<bool, GaveUp> {
        if let Some(begin) = self.hosts.find(host) {
            let slash = memchr::memchr(b'/', place).unwrap_or(place.len());
            let path = place.get(slash..).unwrap_or_default();
            return Ok(path.starts_with(begin));
        }
        let server_names = server_names.iter().filter(|_| self.server_names);
        let mut matches = server_names
            .map(|name| name.matches(host))
            .chain(self.regexes.iter().map(|regex| regex.is_match(place)));
        // The first that is known to match, or that is not known to.
        matches
            .find(|found| *found != Ok(false))
            .unwrap_or(Ok(false))
    }
}

fn is_invalid(req: &Request) -> bool {
    let valid = &req.location.settings.of::<HandlerSettings>().referer.valid;
    if !valid.iter().any(ValidReferers::names_places) {
        return false;
    }
    let Some(field) = req.field(Known::Referer) else {
        return !valid.iter().any(|valid| valid.none);
    };
    let Some(place) = after_scheme(field) else {
        return !valid.iter().any(|valid| valid.blocked);
    };
    let end = memchr::memchr2(b'/', b':', place).unwrap_or(place.len());
    let host = match place.get(..end) {
        Some(host) if host.len() <= MAX_HOST => host.to_ascii_lowercase(),
        _ => return true,
    };
    let allows = |valid: &ValidReferers| {
        let allowed = valid.allows(place, &host, &req.server.names);
        allowed.unwrap_or_else(|gave_up| {
            req.note_gave_up(&gave_up);
            false
        })
    };
    !valid.iter().any(allows)
}

/// The part of a field after `http://` or `https://`; none for anything else and for what is too
/// short to hold a host.
fn after_scheme(field: &[u8]) -> Option<&[u8]> {
    if field.len() < b"http://i.ru".len() {
        return None;
    }
    [&b"http://"[..], b"https://"]
        .into_iter()
        .find_map(|scheme| {
            let (begin, rest) = field.split_at_checked(scheme.len())?;
            begin.eq_ignore_ascii_case(scheme).then_some(rest)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid(words: &[&str]) -> ValidReferers {
        let mut valid = ValidReferers::default();
        for word in words {
            valid.add(word).unwrap();
        }
        valid
    }

    #[test]
    fn hosts_may_have_the_begin_of_a_path() {
        let valid = valid(&["www.example.org/uri", "*.example.com", "~^[a-d]\\.net/x"]);
        for (place, expected) in [
            ("www.example.org/uri", true),
            ("www.example.org/urii", true),
            ("www.example.org/uRi", false),
            ("www.example.org:80/uri", true),
            ("www.example.org", false),
            ("a.example.com/x", true),
            ("example.com", false),
            ("b.net/x", true),
            ("b.net/y", false),
        ] {
            let end = memchr::memchr2(b'/', b':', place.as_bytes()).unwrap_or(place.len());
            let host = &place.as_bytes()[..end];
            assert_eq!(
                valid.allows(place.as_bytes(), host, &[]),
                Ok(expected),
                "{place}"
            );
        }
    }

    #[test]
    fn only_urls_with_a_host_have_a_place() {
        for (field, place) in [
            ("http://example.org/", Some("example.org/")),
            ("HTTPS://example.org", Some("example.org")),
            ("http://x", None),
            ("example.org/aaaaaaaaaaaa", None),
        ] {
            assert_eq!(
                after_scheme(field.as_bytes()),
                place.map(str::as_bytes),
                "{field}"
            );
        }
    }

    #[test]
    fn bad_arguments_are_told() {
        for text in ["", "~", "~(", "a.*.b", "*"] {
            assert!(ValidReferers::default().add(text).is_err(), "{text}");
        }
    }
}
