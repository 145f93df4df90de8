//! `server`, `zone`, `keepalive` and other lines of an `upstream` block, for the manual.
//!
//! The block reads its lines itself (`upstream/group.rs`), so their manual texts stand here.

/// A line of the block.
#[derive(Debug)]
pub struct UpstreamLine {
    /// Name.
    pub name: &'static str,
    /// Grammar.
    pub syntax: &'static str,
    /// What holds where the line is missing.
    pub default: Option<&'static str>,
    /// Manual text.
    pub doc: &'static str,
}

/// The lines.
pub const LINES: &[UpstreamLine] = &[
    UpstreamLine {
        name: "server",
        syntax: "address [weight=n] [max_fails=n] [fail_timeout=time] [max_conns=n] [backup] [down]",
        default: None,
        doc: "A server of the group: an address, a name that is resolved at the start, or \
              `unix:path`. `weight` is its share of the turns. After `max_fails` failures within \
              `fail_timeout` it rests for as long.",
    },
    UpstreamLine {
        name: "zone",
        syntax: "name [size]",
        default: None,
        doc: "Shares the state of the group between workers.\n\n# Differs from nginx\n\nThe state \
              is always shared, so that the line changes nothing.",
    },
    UpstreamLine {
        name: "keepalive",
        syntax: "connections [local]",
        default: Some("32 local"),
        doc: "How many idle connections each worker keeps for later requests. With `local`, a \
              connection is used again by the location that opened it only.",
    },
    UpstreamLine {
        name: "keepalive_requests",
        syntax: "number",
        default: Some("1000"),
        doc: "How many requests a connection is used for.",
    },
    UpstreamLine {
        name: "keepalive_time",
        syntax: "time",
        default: Some("1h"),
        doc: "How old a connection may become; it ends with the request that is running then.",
    },
    UpstreamLine {
        name: "keepalive_timeout",
        syntax: "timeout",
        default: Some("60s"),
        doc: "How long an idle connection is kept.",
    },
];

/// The line of a name.
pub fn find(name: &str) -> Option<&'static UpstreamLine> {
    LINES.iter().find(|line| line.name == name)
}
