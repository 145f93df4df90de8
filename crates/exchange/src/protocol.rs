//! The protocols that upstreams speak, by name.
//!
//! A protocol has the directives that begin with its prefix, and a scheme that stands before the
//! addresses of its peers in the error log. It is plain data: the settings that a location has for
//! each protocol are in `upstream/pass_settings.rs`, the requests in a file each beside it.

/// The way in which an upstream is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP: `proxy_pass`.
    #[default]
    Http,
    /// FastCGI: `fastcgi_pass`.
    FastCgi,
    /// SCGI: `scgi_pass`.
    Scgi,
    /// uwsgi: `uwsgi_pass`.
    Uwsgi,
    /// memcached: `memcached_pass`.
    Memcached,
    /// gRPC, over HTTP/2: `grpc_pass`.
    Grpc,
    /// The protocol of a CONNECT's client, which nobody looks at: `tunnel_pass`.
    Tunnel,
}

/// A set of protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocols(u8);

impl Protocols {
    /// The protocols that are `chosen`.
    pub fn that_are(chosen: impl Fn(Protocol) -> bool) -> Protocols {
        let bits = Protocol::ALL
            .into_iter()
            .filter(|protocol| chosen(*protocol));
        Protocols(bits.fold(0, |bits, protocol| bits | 1 << protocol as u8))
    }

    /// True if a protocol is among them.
    #[inline]
    pub fn contains(self, protocol: Protocol) -> bool {
        self.0 & 1 << protocol as u8 != 0
    }
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 7] = [
        Protocol::Http,
        Protocol::FastCgi,
        Protocol::Scgi,
        Protocol::Uwsgi,
        Protocol::Memcached,
        Protocol::Grpc,
        Protocol::Tunnel,
    ];

    /// Prefix, scheme, scheme of encrypted connections.
    const fn words(self) -> (&'static str, &'static str, Option<&'static str>) {
        match self {
            Protocol::Http => ("proxy", "http", Some("https")),
            Protocol::FastCgi => ("fastcgi", "fastcgi", None),
            Protocol::Scgi => ("scgi", "scgi", None),
            Protocol::Uwsgi => ("uwsgi", "uwsgi", Some("suwsgi")),
            Protocol::Memcached => ("memcached", "memcached", None),
            Protocol::Grpc => ("grpc", "grpc", Some("grpcs")),
            Protocol::Tunnel => ("tunnel", "tunnel", None),
        }
    }

    /// The begin of its directives' names, without the underscore.
    pub fn prefix(self) -> &'static str {
        self.words().0
    }

    /// The scheme that stands before an upstream's address in the error log.
    pub fn scheme(self) -> &'static str {
        self.words().1
    }

    /// The scheme of encrypted connections, if there may be some.
    pub fn encrypted_scheme(self) -> Option<&'static str> {
        self.words().2
    }

    /// True if requests and answers have heads as HTTP has them: fields, a target, a status.
    pub fn has_heads_of_http(self) -> bool {
        matches!(self, Protocol::Http | Protocol::Grpc)
    }

    /// The protocol that a directive belongs to by its name.
    pub fn of_directive(name: &str) -> Option<Protocol> {
        let (prefix, _) = name.split_once('_')?;
        Self::ALL.into_iter().find(|it| it.prefix() == prefix)
    }
}
