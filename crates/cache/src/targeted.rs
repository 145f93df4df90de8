//! `proxy_cache_targeted_control`: fields such as CDN-Cache-Control that speak to this cache.
//!
//! RFC 9213: of the fields on the list, the first that is there, not empty and well-formed takes
//! the place of Cache-Control and Expires, in that answer. How a field is read is in
//! `millpond_semantics::targeted`.
//!
//! 1. Without a list no field but Cache-Control and Expires counts under nginx's rules, and
//!    CDN-Cache-Control, which speaks to every CDN, under those of RFC 9111.
//! 2. X-Accel-Expires speaks to this very server and stays stronger under nginx's rules.
//! 3. Fields are passed on as they are, those on the list too.

use bytes::Bytes;
use millpond_conf::value::{ArgError, Args, FromArgs, WordError};
use millpond_semantics::list::is_token;
use millpond_semantics::targeted::as_cache_control;

use crate::conformance::Conformance;

/// The names on a list (arbitrary: a CDN has its own, its product's and the common one).
const NAMES_MAX: usize = 8;

/// The list under RFC 9111 where none is configured (RFC 9213 §3.1).
const USUAL: [&str; 1] = ["CDN-Cache-Control"];

/// List of the fields that are for this cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetList(Vec<String>);

/// Fields that are obeyed besides Cache-Control.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct TargetedPolicy {
    /// Names of fields of the answer that take the place of Cache-Control and Expires here, the
    /// strongest first, such as `CDN-Cache-Control` (RFC 9213). They are structured fields: one
    /// that is empty or malformed counts as absent, and the next one decides. X-Accel-Expires is
    /// stronger under nginx's rules, and `proxy_ignore_headers Cache-Control` does not concern
    /// them. Without the directive the list is `CDN-Cache-Control` under `proxy_cache_conformance
    /// rfc9111`, and empty under nginx's rules.
    #[directive(name = "proxy_cache_targeted_control")]
    pub names: Option<TargetList>,
}

impl FromArgs for TargetList {
    const SYNTAX: &'static str = "off | field …";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        if let [word] = words
            && word.text == "off"
        {
            return Ok(TargetList::default());
        }
        if words.len() > NAMES_MAX {
            return Err(ArgError::other(format!(
                "there can be at most {NAMES_MAX} targeted fields"
            )));
        }
        let bad = |text: &str| !is_token(text.as_bytes()) || text == "off";
        match words.iter().position(|word| bad(&word.text)) {
            Some(at) => Err(WordError::Invalid.at(at)),
            None => Ok(TargetList(
                words.iter().map(|word| word.text.clone()).collect(),
            )),
        }
    }
}

/// Hands the fields of an answer to a function, in order.
pub type EachField<'f> = &'f dyn Fn(&mut dyn FnMut(&[u8], &[u8]));

impl TargetedPolicy {
    /// The names that count under these rules, the strongest first.
    pub fn in_force(&self, rules: Conformance) -> impl Iterator<Item = &str> {
        let (own, usual): (&[String], &[&str]) = match (&self.names, rules) {
            (Some(list), _) => (&list.0, &[]),
            (None, Conformance::Rfc9111) => (&[], &USUAL),
            (None, Conformance::Nginx) => (&[], &[]),
        };
        let own = own.iter().map(String::as_str);
        own.chain(usual.iter().copied())
    }

    /// Value that takes the place of Cache-Control and Expires, in the form of a Cache-Control.
    pub(crate) fn control(&self, rules: Conformance, each_field: EachField<'_>) -> Option<Vec<u8>> {
        // RFC 9213 §2.2: the first of the list that is valid and not empty.
        self.in_force(rules).find_map(|wanted| {
            let mut lines: Vec<Bytes> = Vec::new();
            each_field(&mut |name, value| {
                if name.eq_ignore_ascii_case(wanted.as_bytes()) {
                    lines.push(Bytes::copy_from_slice(value));
                }
            });
            as_cache_control(lines.iter().map(|line| &line[..]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case<'c> = (&'c [(&'c str, &'c str)], Option<&'c str>);

    #[test]
    fn the_first_usable_field_of_the_list_decides() {
        let names = ["Mine-Cache-Control", "CDN-Cache-Control"];
        let policy = TargetedPolicy {
            names: Some(TargetList(names.map(str::to_string).to_vec())),
        };
        let cases: [Case<'_>; 5] = [
            (&[("Cache-Control", "max-age=1")], None),
            (&[("cdn-cache-control", "max-age=2")], Some("max-age=2")),
            (
                &[
                    ("CDN-Cache-Control", "max-age=2"),
                    ("Mine-Cache-Control", "no-store"),
                ],
                Some("no-store"),
            ),
            (
                &[
                    ("Mine-Cache-Control", "max-age="),
                    ("CDN-Cache-Control", "max-age=2"),
                    ("CDN-Cache-Control", "public"),
                ],
                Some("max-age=2, public"),
            ),
            (&[("CDN-Cache-Control", "")], None),
        ];
        for (fields, expected) in cases {
            let control = policy.control(Conformance::Nginx, &|each| {
                for (name, value) in fields {
                    each(name.as_bytes(), value.as_bytes());
                }
            });
            let expected = expected.map(|text| text.as_bytes().to_vec());
            assert_eq!(control, expected, "{fields:?}");
        }
    }

    #[test]
    fn the_list_that_nobody_wrote_is_that_of_the_rules() {
        let unset = TargetedPolicy { names: None };
        let off = TargetedPolicy {
            names: Some(TargetList::default()),
        };
        for (policy, rules, expected) in [
            (&unset, Conformance::Rfc9111, &["CDN-Cache-Control"][..]),
            (&unset, Conformance::Nginx, &[]),
            (&off, Conformance::Rfc9111, &[]),
        ] {
            assert_eq!(Vec::from_iter(policy.in_force(rules)), expected);
        }
    }
}
