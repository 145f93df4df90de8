//! Codes of all findings, for their explanations.
//!
//! Those of the configuration language, those of this crate, and those of the lints.

use millpond_conf::{Code, code};
use millpond_exchange::scope::code::ALL;

use crate::lint::LINTS;

/// Every code that a finding may have.
pub fn all() -> impl Iterator<Item = &'static Code> {
    let lints = LINTS.iter().map(|lint| &lint.code);
    code::ALL.iter().chain(ALL).chain(lints)
}

/// The code of a name, written short or in full.
pub fn find(name: &str) -> Option<&'static Code> {
    let name = name.strip_prefix(code::PREFIX).unwrap_or(name);
    all().find(|code| code.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_exchange::scope::code::UNKNOWN_ZONE;

    #[test]
    fn every_code_is_found_by_its_name_alone() {
        for code in all() {
            assert_eq!(
                find(code.name).map(|it| it.doc),
                Some(code.doc),
                "{}",
                code.name
            );
            assert!(code.doc.ends_with('.'), "{}", code.name);
        }
        let full = format!("{}unknown_zone", code::PREFIX);
        assert_eq!(find(&full), Some(&UNKNOWN_ZONE));
        assert_eq!(find("no_such_code"), None);
    }
}
