//! `workers_as_root`: rights that workers keep.
//!
//! A port below 1024 takes root, or a capability, to listen on; a start with a capability alone has
//! no need of `user`, and allows the finding. Only the first such address is told.

use millpond_conf::Code;

use super::Findings;
use super::block::Blocks;

/// Workers stay root.
pub(super) const WORKERS_AS_ROOT: Code = Code {
    name: "workers_as_root",
    doc: "The configuration has no \"user\", and an address below port 1024, for which the server \
          is usually started as root. Then all of it stays root: parsers of requests, scripts and \
          passed requests have all rights, and files that nobody else may read are served. nginx \
          would become \"nobody\". Write \"user\" with a user that has no other use, which must get \
          to the folders of caches, logs and files.",
};

/// The first port that takes no rights.
const FIRST_FREE: u16 = 1024;

pub(super) fn workers_as_root(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    if blocks.names_user() {
        return;
    }
    let listens = blocks.views().flat_map(|view| view.own("listen"));
    let takes_rights = |address: &str| port(address).is_some_and(|port| port < FIRST_FREE);
    let first = listens
        .filter_map(|listen| listen.args.first())
        .find(|address| takes_rights(&address.text));
    let Some(address) = first else { return };
    let message = format!(
        "no \"user\": started as root for \"{}\", all stays root",
        address.text
    );
    if let Some(warning) = findings.warn(WORKERS_AS_ROOT, address.span, message) {
        warning.help("write \"user NAME;\" at the top, with a user that has no other use");
    }
}

/// The port of an address of `listen`; none for a socket file.
fn port(address: &str) -> Option<u16> {
    if address.starts_with("unix:") {
        return None;
    }
    let last = address.rsplit(':').next().unwrap_or(address);
    // An address of IPv6 in brackets may have no port.
    let is_named = !last.contains(']') && (last != address || last.parse::<u16>().is_ok());
    if is_named {
        last.parse().ok()
    } else {
        Some(80)
    }
}

#[cfg(test)]
mod tests {
    use super::port;

    #[test]
    fn an_address_has_a_port() {
        for (address, expected) in [
            ("80", Some(80)),
            ("*:8080", Some(8080)),
            ("127.0.0.1", Some(80)),
            ("localhost:443", Some(443)),
            ("[::]:81", Some(81)),
            ("[::1]", Some(80)),
            ("unix:/run/a.sock", None),
            ("localhost:http", None),
        ] {
            assert_eq!(port(address), expected, "{address}");
        }
    }
}
