//! Groups of key exchanges: `ssl_ecdh_curve` and the names that variables print.
//!
//! nginx prints the short name of OpenSSL's object where there is one (`prime256v1`), else the name
//! of the group (`X25519MLKEM768`), else its number. A list is separated by colons; names are the
//! group's, the curve's or NIST's, whatever their case.

use rustls::NamedGroup;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group;

/// A group: its number, the name that is printed, and others that are understood.
struct Group {
    number: u16,
    name: &'static str,
    others: &'static [&'static str],
}

const fn group(number: u16, name: &'static str, others: &'static [&'static str]) -> Group {
    Group {
        number,
        name,
        others,
    }
}

/// All that OpenSSL 3.5 knows.
const GROUPS: &[Group] = &[
    group(0x0017, "prime256v1", &["P-256", "secp256r1"]),
    group(0x0018, "secp384r1", &["P-384"]),
    group(0x0019, "secp521r1", &["P-521"]),
    group(0x001d, "X25519", &[]),
    group(0x001e, "X448", &[]),
    group(0x0015, "secp224r1", &["P-224"]),
    group(0x0016, "secp256k1", &[]),
    group(0x001a, "brainpoolP256r1", &[]),
    group(0x001b, "brainpoolP384r1", &[]),
    group(0x001c, "brainpoolP512r1", &[]),
    group(0x001f, "brainpoolP256r1tls13", &[]),
    group(0x0020, "brainpoolP384r1tls13", &[]),
    group(0x0021, "brainpoolP512r1tls13", &[]),
    group(0x0100, "ffdhe2048", &[]),
    group(0x0101, "ffdhe3072", &[]),
    group(0x0102, "ffdhe4096", &[]),
    group(0x0103, "ffdhe6144", &[]),
    group(0x0104, "ffdhe8192", &[]),
    group(0x0200, "MLKEM512", &[]),
    group(0x0201, "MLKEM768", &[]),
    group(0x0202, "MLKEM1024", &[]),
    group(0x11eb, "SecP256r1MLKEM768", &[]),
    group(0x11ec, "X25519MLKEM768", &[]),
    group(0x11ed, "SecP384r1MLKEM1024", &[]),
];

/// The groups that exist here, preferred first.
static SUPPORTED: &[&dyn SupportedKxGroup] = &[
    kx_group::X25519MLKEM768,
    kx_group::X25519,
    kx_group::SECP256R1,
    kx_group::SECP384R1,
    kx_group::SECP256R1MLKEM768,
    kx_group::MLKEM768,
    kx_group::MLKEM1024,
];

/// The count of [`SUPPORTED`] groups that are offered and taken if nothing is said: those in wide
/// use.
const DEFAULT_COUNT: usize = 5;

/// A list of groups, as `ssl_ecdh_curve` has it.
#[derive(Clone, Debug)]
pub struct Groups {
    pub(crate) groups: Vec<&'static dyn SupportedKxGroup>,
    dropped: Vec<String>,
}

/// The reason for which a list of groups is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupsError {
    /// A word that no group has for its name.
    #[error("unknown group \"{0}\"")]
    Unknown(String),
    /// Nothing that exists here is left.
    #[error("no group of \"{0}\" is supported")]
    Empty(String),
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            groups: SUPPORTED[..DEFAULT_COUNT].to_vec(),
            dropped: Vec::new(),
        }
    }
}

impl Groups {
    /// Reads a list. `auto` is the default; a name with `?` before it may be unknown.
    pub fn parse(list: &str) -> Result<Self, GroupsError> {
        if list == "auto" {
            return Ok(Self::default());
        }
        let mut groups: Vec<&'static dyn SupportedKxGroup> = Vec::new();
        let mut dropped = Vec::new();
        for word in list.split([':', '/']).filter(|word| !word.is_empty()) {
            let name = word.trim_start_matches(['?', '*']);
            let known = number_of(name);
            if known.is_none() && !word.contains('?') {
                return Err(GroupsError::Unknown(name.to_owned()));
            }
            let supported = known.and_then(supported);
            match supported {
                Some(group) if groups.iter().any(|other| other.name() == group.name()) => {}
                Some(group) => groups.push(group),
                None => dropped.push(name.to_owned()),
            }
        }
        if groups.is_empty() {
            return Err(GroupsError::Empty(list.to_owned()));
        }
        Ok(Self { groups, dropped })
    }

    /// The names that were asked for and do not exist here, for a warning.
    pub fn dropped(&self) -> &[String] {
        &self.dropped
    }
}

fn number_of(name: &str) -> Option<u16> {
    GROUPS
        .iter()
        .find(|group| {
            let mut names = std::iter::once(&group.name).chain(group.others);
            names.any(|known| known.eq_ignore_ascii_case(name))
        })
        .map(|group| group.number)
}

fn supported(number: u16) -> Option<&'static dyn SupportedKxGroup> {
    let name = NamedGroup::from(number);
    SUPPORTED.iter().find(|group| group.name() == name).copied()
}

/// The name that is printed for a group.
pub(crate) fn name(number: u16) -> Option<&'static str> {
    GROUPS
        .iter()
        .find(|group| group.number == number)
        .map(|group| group.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(groups: &Groups) -> Vec<&'static str> {
        let numbers = groups.groups.iter().map(|group| u16::from(group.name()));
        numbers.filter_map(name).collect()
    }

    #[test]
    fn lists_are_read_by_any_name() {
        for (list, expected, dropped) in [
            ("X25519:prime256v1", &["X25519", "prime256v1"][..], &[][..]),
            ("x25519:P-256:secp256r1", &["X25519", "prime256v1"], &[]),
            (
                "secp521r1:P-384:X448",
                &["secp384r1"],
                &["secp521r1", "X448"],
            ),
            ("?nothing:X25519", &["X25519"], &["nothing"]),
            ("?*X25519MLKEM768 / X25519", &["X25519MLKEM768"], &[]),
        ] {
            let list = list.replace(' ', "");
            let groups = Groups::parse(&list).unwrap();
            assert_eq!(&names(&groups)[..expected.len()], expected, "{list}");
            assert_eq!(groups.dropped(), dropped, "{list}");
        }
    }

    #[test]
    fn default_begins_with_both_kinds_of_security() {
        assert_eq!(names(&Groups::default())[..2], ["X25519MLKEM768", "X25519"]);
    }

    #[test]
    fn lists_without_a_group_of_ours_are_refused() {
        for list in ["", "secp521r1", "ffdhe2048:X448"] {
            assert_eq!(
                Groups::parse(list).unwrap_err(),
                GroupsError::Empty(list.to_owned())
            );
        }
        let unknown = GroupsError::Unknown("nothing".to_owned());
        assert_eq!(Groups::parse("X25519:nothing").unwrap_err(), unknown);
    }
}
