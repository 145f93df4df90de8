//! Order of a purge: its key, and the fields of its request that say more.
//!
//! | field | meaning |
//! |---|---|
//! | `Purge-Type: exact, prefix, wildcard, host, site, tag, all` | what the purge is about; else the key |
//! | `Surrogate-Key`, `Cache-Tag`, `xkey`, `xkey-purge` | tags: a purge by tags |
//! | `xkey-softpurge` | tags: a soft purge by them |
//! | `Purge-Soft: 1`, `Fastly-Soft-Purge: 1` | a soft purge |
//! | `Purge-Dry-Run: 1` | nothing is purged, but counted (`0`, `no`, `off` and `false` ask for nothing) |
//! | `Purge-Host`, `Purge-Site` | the host or site; else those of the request |
//! | `Purge-Wait: fleet` | it is answered when it holds on all nodes of the fleet |
//!
//! 1. What is not understood, or contradicts itself, is refused; nothing is purged then.
//! 2. What reaches beyond the request's own key, host and site is refused, unless the configuration
//!    names its kind.

use bytes::Bytes;
use millpond_cache::purge::{Mode, Target};
use millpond_cache::tag;

use millpond_fleet::node::Await;

use super::reach;
use crate::cache_settings::purge::{Scope, Wider};

/// Tags of one purge (as at the large CDNs).
const TAGS_MAX: usize = 256;
/// Bytes of a pattern, and stars in it: each look-up of an older entry tries it.
const PATTERN_LEN_MAX: usize = 1024;
const STARS_MAX: usize = 16;

/// Fields that name tags.
const TAG_FIELDS: [&[u8]; 4] = [b"surrogate-key", b"cache-tag", b"xkey", b"xkey-purge"];

/// Target that the request has by itself.
pub(super) struct Own {
    /// The text of its cache key.
    pub(super) key: Bytes,
    /// Scope that the configuration gives.
    pub(super) scope: Scope,
    /// Host of the request.
    pub(super) host: Bytes,
    /// Site of the request.
    pub(super) site: Bytes,
    /// Reaches beyond these that the configuration allows.
    pub(super) wider: Vec<Wider>,
}

/// The reason why nothing is purged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The request is not understood.
    #[error("{0}")]
    Unclear(String),
    /// The request may not reach so far.
    #[error("\"types={}\" is not among what the directive allows", .0.word())]
    TooWide(Wider),
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Refused::Unclear(why)
    }
}

/// A purge that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub(super) target: Target,
    pub(super) mode: Mode,
    pub(super) is_dry_run: bool,
    pub(super) wait: Await,
}

/// The values of a field.
pub(crate) type Field<'a> = &'a dyn Fn(&[u8]) -> Vec<Bytes>;

impl Order {
    /// Reads what a request asks for; the error says what is wrong.
    pub(super) fn read(own: Own, field: Field<'_>) -> Result<Order, Refused> {
        let is_set = |name: &[u8]| {
            let mut values = field(name).into_iter();
            values.any(|value| !is_no(value.as_ref()))
        };
        let soft_tags = tags(field, &[b"xkey-softpurge"]);
        let is_soft = is_set(b"purge-soft") || is_set(b"fastly-soft-purge");
        let mode = if is_soft || !soft_tags.is_empty() {
            Mode::Soft
        } else {
            Mode::Hard
        };
        let hard_tags = tags(field, &TAG_FIELDS);
        let tags = match (hard_tags.is_empty(), soft_tags.is_empty()) {
            (false, false) => {
                let why = "tags to purge hard and soft in one request";
                return Err(Refused::Unclear(why.to_string()));
            }
            (true, _) => soft_tags,
            (false, _) => hard_tags,
        };
        let wait = reach::wait(one(field, b"purge-wait")?.as_deref())?;
        let may_reach = (own.host.clone(), own.site.clone(), own.wider.clone());
        let scope = own.scope;
        let target = target(own, field, tags)?;
        // INVARIANT 2.
        match wider_of(&target, (&may_reach.0, &may_reach.1), scope) {
            Some(wider) if !may_reach.2.contains(&wider) => return Err(Refused::TooWide(wider)),
            _ => {}
        }
        Ok(Order {
            target,
            mode,
            is_dry_run: is_set(b"purge-dry-run"),
            wait,
        })
    }

    /// A purge that no request asked for, as an origin's word.
    pub fn of(target: Target, mode: Mode) -> Order {
        Order {
            target,
            mode,
            is_dry_run: false,
            wait: Await::Log,
        }
    }

    /// Reads what is asked for by name: `what` is the key, host or site. An empty name is an error,
    /// not the begin of all keys: it is what is left of one that a script did not fill in.
    pub fn named(what: Bytes, field: Field<'_>) -> Result<Order, Refused> {
        let is_empty = what.is_empty();
        let own = Own {
            key: what.clone(),
            scope: Scope::Key,
            host: what.clone(),
            site: what,
            wider: Wider::ALL.to_vec(),
        };
        let order = Order::read(own, field)?;
        let is_named = matches!(order.target, Target::Tags(_) | Target::All) || !is_empty;
        if is_named {
            Ok(order)
        } else {
            Err(Refused::Unclear(format!("no {} is named", order.kind())))
        }
    }

    /// Kind of the order's target, in a word.
    pub fn kind(&self) -> &'static str {
        self.target.kind()
    }

    /// Target of the order, in full.
    pub fn what(&self) -> Bytes {
        self.target.text()
    }

    /// Mode of the purge, in a word.
    pub fn mode_word(&self) -> &'static str {
        self.mode.word()
    }
}

/// Reach of a purge beyond a host and a site, and beyond what the configuration makes of each.
fn wider_of(target: &Target, (host, site): (&[u8], &[u8]), scope: Scope) -> Option<Wider> {
    match target {
        Target::Host(named) => (named != host).then_some(Wider::Host),
        Target::Site(named) => (named != site).then_some(Wider::Site),
        Target::Tags(_) => Some(Wider::Tag),
        Target::All => (scope != Scope::Zone).then_some(Wider::All),
        // A key usually begins with the host, and a host may have stars in it.
        Target::Prefix(_) | Target::Wildcard(_) => host.contains(&b'*').then_some(Wider::Host),
        Target::Key(_) => None,
    }
}

/// True for a value that asks for nothing: empty, or a word for no.
fn is_no(value: &[u8]) -> bool {
    let words: [&[u8]; 5] = [b"", b"0", b"no", b"off", b"false"];
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

fn tags(field: Field<'_>, names: &[&[u8]]) -> Vec<Bytes> {
    let values = names.iter().flat_map(|name| field(name));
    let mut tags: Vec<Bytes> = values
        .flat_map(|value| {
            tag::split(&value)
                .map(Bytes::copy_from_slice)
                .collect::<Vec<_>>()
        })
        .collect();
    tags.sort_unstable();
    tags.dedup();
    tags
}

/// The value of a field that has one; an error if its lines differ.
fn one(field: Field<'_>, name: &[u8]) -> Result<Option<Bytes>, String> {
    let mut values = field(name).into_iter();
    let Some(first) = values.next() else {
        return Ok(None);
    };
    if values.any(|other| !other.eq_ignore_ascii_case(&first)) {
        let name = String::from_utf8_lossy(name);
        return Err(format!("several values of {name}"));
    }
    Ok(Some(first))
}

fn target(own: Own, field: Field<'_>, tags: Vec<Bytes>) -> Result<Target, String> {
    let kind = one(field, b"purge-type")?.map(|kind| kind.to_ascii_lowercase());
    let named = |name: &[u8], else_: Bytes| -> Result<Bytes, String> {
        Ok(one(field, name)?.unwrap_or(else_))
    };
    if tags.len() > TAGS_MAX {
        return Err(format!(
            "{} tags, at most {TAGS_MAX} are allowed",
            tags.len()
        ));
    }
    match kind.as_deref() {
        None | Some(b"tag") if !tags.is_empty() => return Ok(Target::Tags(tags)),
        Some(_) if !tags.is_empty() => return Err("tags, and another Purge-Type".to_string()),
        _ => {}
    }
    Ok(match kind.as_deref() {
        None if own.scope == Scope::Zone => Target::All,
        // NGINX Plus: a key that ends in an asterisk stands for all that begin so.
        None => match own.key.strip_suffix(b"*") {
            Some(prefix) => Target::Prefix(own.key.slice_ref(prefix)),
            None => Target::Key(own.key),
        },
        Some(b"exact") => Target::Key(own.key),
        Some(b"prefix") => {
            let prefix = own.key.strip_suffix(b"*").unwrap_or(&own.key);
            Target::Prefix(own.key.slice_ref(prefix))
        }
        Some(b"wildcard") => Target::Wildcard(pattern(own.key)?),
        Some(b"host") => Target::Host(named(b"purge-host", own.host)?),
        Some(b"site") => Target::Site(named(b"purge-site", own.site)?),
        Some(b"all") => Target::All,
        Some(b"tag") => return Err("no tags to purge".to_string()),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            return Err(format!("unknown Purge-Type \"{other}\""));
        }
    })
}

fn pattern(text: Bytes) -> Result<Bytes, String> {
    let stars = text.iter().filter(|byte| **byte == b'*').count();
    if text.len() > PATTERN_LEN_MAX || stars > STARS_MAX {
        Err(format!(
            "pattern of {} bytes with {stars} stars, at most {PATTERN_LEN_MAX} and {STARS_MAX} \
             are allowed",
            text.len()
        ))
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &'static str, fields: &[(&str, &'static str)]) -> Result<Order, Refused> {
        read_within(&Wider::ALL, key, fields)
    }

    fn read_within(
        wider: &[Wider],
        key: &'static str,
        fields: &[(&str, &'static str)],
    ) -> Result<Order, Refused> {
        let own = Own {
            key: Bytes::from_static(key.as_bytes()),
            scope: Scope::Key,
            host: Bytes::from_static(b"h"),
            site: Bytes::from_static(b"s"),
            wider: wider.to_vec(),
        };
        Order::read(own, &|name| {
            let named = fields.iter().filter(|(field, _)| field.as_bytes() == name);
            named
                .map(|(_, value)| Bytes::from_static(value.as_bytes()))
                .collect()
        })
    }

    #[test]
    fn a_name_is_not_empty() {
        for kind in ["exact", "prefix", "wildcard", "host", "site", "all"] {
            let field = |name: &[u8]| match name {
                b"purge-type" => vec![Bytes::from_static(kind.as_bytes())],
                _ => Vec::new(),
            };
            let named =
                |what: &'static str| Order::named(Bytes::from_static(what.as_bytes()), &field);
            assert_eq!(named("").is_ok(), kind == "all", "{kind}");
            assert!(named("*").is_ok(), "{kind}");
        }
    }

    #[test]
    fn purge_reaches_no_other_host_unless_that_is_allowed() {
        type Fields = &'static [(&'static str, &'static str)];
        let table: [(Fields, Option<Wider>); 9] = [
            (&[], None),
            (&[("purge-type", "prefix")], None),
            (&[("purge-type", "host")], None),
            (&[("purge-type", "host"), ("purge-host", "h")], None),
            (&[("purge-type", "site"), ("purge-site", "s")], None),
            (
                &[("purge-type", "host"), ("purge-host", "o")],
                Some(Wider::Host),
            ),
            (
                &[("purge-type", "site"), ("purge-site", "o")],
                Some(Wider::Site),
            ),
            (&[("surrogate-key", "x")], Some(Wider::Tag)),
            (&[("purge-type", "all")], Some(Wider::All)),
        ];
        for (fields, needed) in table {
            let outcome = read_within(&[], "h/a", fields);
            match needed {
                None => assert!(outcome.is_ok(), "{fields:?}"),
                Some(wider) => {
                    assert_eq!(outcome, Err(Refused::TooWide(wider)), "{fields:?}");
                    let others = Wider::ALL.into_iter().filter(|it| *it != wider);
                    let others: Vec<Wider> = others.collect();
                    assert!(read_within(&others, "h/a", fields).is_err(), "{fields:?}");
                    assert!(read_within(&[wider], "h/a", fields).is_ok(), "{fields:?}");
                }
            }
        }
        let pattern = Target::Wildcard(Bytes::from_static(b"*/a"));
        assert_eq!(
            wider_of(&pattern, (b"*", b"s"), Scope::Key),
            Some(Wider::Host)
        );
        assert_eq!(wider_of(&Target::All, (b"h", b"s"), Scope::Zone), None);
    }

    #[test]
    fn lines_of_a_field_that_differ_are_refused() {
        let of = |name, values: [&'static str; 2]| read("/a", &values.map(|value| (name, value)));
        for (name, values) in [
            ("purge-type", ["host", "all"]),
            ("purge-type", ["exact", "prefix"]),
            ("purge-wait", ["log", "fleet"]),
        ] {
            assert!(
                matches!(of(name, values), Err(Refused::Unclear(_))),
                "{name}"
            );
            let [first, _] = values;
            assert!(of(name, [first, first]).is_ok(), "{name}");
        }
    }

    #[test]
    fn fields_say_what_is_purged() {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        type Fields = &'static [(&'static str, &'static str)];
        let table: [(&'static str, Fields, Target); 13] = [
            ("/a", &[], Target::Key(text("/a"))),
            ("/a*", &[], Target::Prefix(text("/a"))),
            ("*", &[], Target::Prefix(text(""))),
            ("/a*", &[("purge-type", "exact")], Target::Key(text("/a*"))),
            (
                "/a",
                &[("purge-type", "Prefix")],
                Target::Prefix(text("/a")),
            ),
            (
                "/a*",
                &[("purge-type", "prefix")],
                Target::Prefix(text("/a")),
            ),
            (
                "/*.x",
                &[("purge-type", "wildcard")],
                Target::Wildcard(text("/*.x")),
            ),
            ("/a", &[("purge-type", "host")], Target::Host(text("h"))),
            (
                "/a",
                &[("purge-type", "host"), ("purge-host", "o")],
                Target::Host(text("o")),
            ),
            ("/a", &[("purge-type", "site")], Target::Site(text("s"))),
            ("/a", &[("purge-type", "all")], Target::All),
            (
                "/a",
                &[("surrogate-key", "x y"), ("cache-tag", "y,z")],
                Target::Tags(vec![text("x"), text("y"), text("z")]),
            ),
            (
                "/a",
                &[("xkey-purge", "x"), ("purge-type", "tag")],
                Target::Tags(vec![text("x")]),
            ),
        ];
        for (key, fields, target) in table {
            let order = read(key, fields).unwrap();
            assert_eq!(order.target, target, "{key} {fields:?}");
            assert_eq!((order.mode, order.is_dry_run), (Mode::Hard, false));
        }
    }

    #[test]
    fn soft_and_dry_are_asked_for_by_fields() {
        let modes = |fields: &[(&str, &'static str)]| {
            let order = read("/a", fields).unwrap();
            (order.mode, order.is_dry_run)
        };
        assert_eq!(modes(&[("purge-soft", "1")]), (Mode::Soft, false));
        assert_eq!(modes(&[("purge-soft", "0")]), (Mode::Hard, false));
        for no in ["0", "no", "Off", "FALSE", ""] {
            assert_eq!(modes(&[("purge-soft", no)]), (Mode::Hard, false), "{no}");
        }
        assert_eq!(modes(&[("fastly-soft-purge", "1")]), (Mode::Soft, false));
        assert_eq!(modes(&[("xkey-softpurge", "t")]), (Mode::Soft, false));
        assert_eq!(modes(&[("purge-dry-run", "yes")]), (Mode::Hard, true));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let table: [&[(&str, &'static str)]; 6] = [
            &[("purge-wait", "all")],
            &[("purge-type", "tag")],
            &[("purge-type", "everything")],
            &[("purge-type", "host"), ("xkey", "t")],
            &[("xkey-purge", "t"), ("xkey-softpurge", "u")],
            &[("purge-type", "")],
        ];
        for fields in table {
            assert!(read("/a", fields).is_err(), "{fields:?}");
        }
        assert!(read("*****************", &[("purge-type", "wildcard")]).is_err());
    }

    #[test]
    fn the_whole_zone_may_be_what_a_location_purges() {
        let own = Own {
            key: Bytes::from_static(b"/a"),
            scope: Scope::Zone,
            host: Bytes::new(),
            site: Bytes::new(),
            wider: Vec::new(),
        };
        let order = Order::read(own, &|_| Vec::new()).unwrap();
        assert_eq!(order.target, Target::All);
    }
}
