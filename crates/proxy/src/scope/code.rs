//! Codes of the findings of this crate, besides those of the configuration language.
//!
//! The lints have a code each, in `lint/`; [`all`] has everything that can be explained.

use millpond_conf::Code;
use millpond_conf::code;

/// Nobody defines the variable.
pub const UNKNOWN_VARIABLE: Code = Code {
    name: "unknown_variable",
    doc: "No variable has this name: it is neither built in, nor defined by \"set\", \"map\", \
          \"geo\", \"split_clients\" or a named group of an expression anywhere in the \
          configuration. A literal dollar sign cannot be written in nginx's language.",
};
/// The expression cannot be compiled.
pub const INVALID_REGEX: Code = Code {
    name: "invalid_regex",
    doc: "A regular expression is malformed, or asks for something that the engine does not have. \
          The help says where. An expression with braces or semicolons must stand in quotes.",
};
/// The zone was not declared.
pub const UNKNOWN_ZONE: Code = Code {
    name: "unknown_zone",
    doc: "\"proxy_cache\" names a zone that no \"proxy_cache_path\" declares with \
          \"keys_zone=NAME:SIZE\". Zones are declared in the http block.",
};
/// A name has no address.
pub const UNRESOLVED_HOST: Code = Code {
    name: "unresolved_host",
    doc: "The name of a server cannot be resolved on this machine, now. Names in \"server\" and \
          \"proxy_pass\" are resolved when the configuration is read, as in nginx.",
};
/// Two servers of an address have the same name.
pub const CONFLICTING_NAME: Code = Code {
    name: "conflicting_server_name",
    doc: "Two servers on the same address have the same name. Requests for it go to the server \
          that stands first; the other one is never chosen by this name.",
};

/// The codes of this file.
pub const ALL: &[Code] = &[
    UNKNOWN_VARIABLE,
    INVALID_REGEX,
    UNKNOWN_ZONE,
    UNRESOLVED_HOST,
    CONFLICTING_NAME,
];

/// Every code that a finding may have.
pub fn all() -> impl Iterator<Item = &'static Code> {
    let lints = crate::lint::LINTS.iter().map(|lint| &lint.code);
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
