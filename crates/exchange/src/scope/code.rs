//! Codes of the findings of this crate, besides those of the configuration language.
//!
//! The lints have a code each, in `lint/`; `directives/codes.rs` has everything that can be
//! explained.

use millpond_conf::Code;

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
