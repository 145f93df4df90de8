//! `server`, `zone`, `keepalive` and other lines of an `upstream` block, for the manual.
//!
//! The block reads its lines itself (`upstream/declare.rs`), so their manual texts stand here.

/// A line of the block.
#[derive(Debug)]
pub(crate) struct UpstreamLine {
    /// Name.
    pub name: &'static str,
    /// Grammar.
    pub syntax: &'static str,
    /// The value that holds where the line is missing.
    pub default: Option<&'static str>,
    /// Manual text.
    pub doc: &'static str,
}

/// The lines.
pub(crate) const LINES: &[UpstreamLine] = &[
    UpstreamLine {
        name: "server",
        syntax: "address [weight=n] [max_fails=n] [fail_timeout=time] [max_conns=n] [backup] \
                 [down] [drain] [route=name] [resolve] [service=name]",
        default: None,
        doc: "A server of the group: an address, a name, or `unix:path`. `weight` is its share of \
              the turns. After `max_fails` failures within `fail_timeout` it rests for as long. \
              A server with `drain` gets only the requests that `sticky` binds to it, by its \
              `route` where it has one. A name is resolved at the start; with `resolve`, by the \
              `resolver` and again whenever its answer is no longer good, and `service` asks for \
              the targets of a service in its SRV records.\n\n# Differs from nginx\n\nThe \
              parameter `state` is not supported.",
    },
    UpstreamLine {
        name: "hash",
        syntax: "key [consistent]",
        default: None,
        doc: "Chooses the server by a hash of the key. With `consistent`, a server that comes or \
              goes moves few of the other keys. Both hashes are nginx's.",
    },
    UpstreamLine {
        name: "ip_hash",
        syntax: "",
        default: None,
        doc: "Chooses the server by the client's address: the first three bytes of an IPv4 one.",
    },
    UpstreamLine {
        name: "least_conn",
        syntax: "",
        default: None,
        doc: "Chooses the server with the fewest connections for its weight.",
    },
    UpstreamLine {
        name: "least_time",
        syntax: "header | last_byte [inflight]",
        default: None,
        doc: "Chooses the server that is expected to be done first: by the average time of its \
              answers and the number of its connections. With `inflight`, requests without an \
              answer count, too.",
    },
    UpstreamLine {
        name: "random",
        syntax: "[two [least_conn]]",
        default: None,
        doc: "Chooses any server, by weight; with `two`, the less busy one of two.",
    },
    UpstreamLine {
        name: "sticky",
        syntax: "cookie name [expires=time] [domain=name] [httponly] [samesite=word] [secure] \
                 [path=path] | route $variable … | learn create=$variable lookup=$variable \
                 zone=name:size [timeout=time] [header]",
        default: None,
        doc: "Binds the requests of a session to one server: by a cookie that names it, by \
              variables that name it, or by what answers tell of their session. The cookie \
              goes to the client whose request went to the server; an answer of a cache sets \
              none.\n\n# Differs from nginx\n\nThe size of a zone bounds its sessions, 128 \
              bytes each; when it is full, the session that was used longest ago goes.",
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
        name: "keepalive_streams",
        syntax: "number",
        default: Some("1"),
        doc: "How many requests a connection of HTTP/2 carries at once (`grpc_pass`, \
              `proxy_http_version 2`), no more than the peer bears and 1024. With more than one, \
              few connections do for many requests: handshakes are spared, and requests share the \
              fate of their connection. An answer whose client is slow holds up to 256 KiB, and \
              nothing of the others. Requests share a connection if they could use the same \
              idle one: with `local`, those of one location. What a peer that goes away has not \
              looked at is asked again on another connection, and once what it refuses. Where \
              `proxy_ssl_certificate` has variables, nothing is shared.\n\n\
              # Differs from nginx\n\nnginx sends one request after the other.",
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
pub(crate) fn find(name: &str) -> Option<&'static UpstreamLine> {
    LINES.iter().find(|line| line.name == name)
}
