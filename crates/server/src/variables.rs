//! The table of all built-in variables: each file that computes some is named here once for each
//! kind.
//!
//! What the configuration defines by itself (`map`, `set`, captures) is found before these.

use millpond_proxy::var::{ComposedVariable, Records, Variable, VariableFamily, WordVariable};
use millpond_proxy::{cache, content, downstream, filter, handler, site, tls, upstream, var};

/// All of them.
pub(crate) const RECORDS: &Records = &Records {
    plain: PLAIN,
    words: WORDS,
    composed: COMPOSED,
    families: FAMILIES,
};

const PLAIN: &[&[Variable]] = &[
    handler::auth_basic::VARIABLES,
    handler::auth_jwt::VARIABLES,
    handler::referer::VARIABLES,
    var::request::VARIABLES,
    var::request::PROCESS,
    var::connection::VARIABLES,
    var::connection::ENDS,
    var::response::VARIABLES,
    var::upstream::VARIABLES,
    var::otel::VARIABLES,
    cache::provenance::VARIABLES,
    downstream::proxy_protocol::VARIABLES,
    tls::variables::VARIABLES,
    tls::acme::variables::VARIABLES,
    upstream::fastcgi::VARIABLES,
    filter::brotli::VARIABLES,
    filter::gzip::VARIABLES,
    filter::zstd::VARIABLES,
    filter::ssi::VARIABLES,
    filter::userid::VARIABLES,
];

const WORDS: &[&[WordVariable]] = &[
    handler::limit_conn::WORDS,
    handler::limit_req::WORDS,
    var::upstream::WORDS,
];

const COMPOSED: &[&[ComposedVariable]] = &[
    content::path::VARIABLES,
    handler::secure_link::VARIABLES,
    handler::secure_link_hmac::VARIABLES,
    site::VARIABLES,
    filter::userid::COMPOSED,
];

const FAMILIES: &[&[VariableFamily]] = &[
    var::request::FAMILIES,
    handler::auth_jwt::FAMILIES,
    var::response::FAMILIES,
    var::upstream::FAMILIES,
    downstream::proxy_protocol::FAMILIES,
];

#[cfg(test)]
mod tests {
    use millpond_proxy::var::absent::{ABSENT, REFUSED, refusal};

    use super::*;

    #[test]
    fn absent_variables_are_known_and_refused_ones_are_not_absent() {
        for row in ABSENT {
            for name in row.names.split_ascii_whitespace() {
                assert!(RECORDS.has(name), "{name}");
                assert!(refusal(name).is_none(), "{name}");
            }
        }
    }

    #[test]
    fn refused_variables_are_none_that_work() {
        for row in REFUSED {
            for name in row.names.split_ascii_whitespace() {
                assert!(!RECORDS.has(name), "{name}");
            }
        }
    }
}
