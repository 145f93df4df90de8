//! Settings that http, server and location blocks have.
//!
//! The families of this table are obeyed by several modules, or below this one; those of the
//! modules above stand in their [`Room`](super::room::Room)s.

use millpond_cache::args::ArgsPolicy;
use millpond_cache::cached_only::CachedOnlyPolicy;
use millpond_cache::site::SitePolicy;
use millpond_cache::slice::SlicePolicy;
use millpond_conf::Scope;
use millpond_system::log::error::ErrorLogPolicy;
use millpond_system::resolve::policy::ResolverPolicy;

use super::clients::body::BodyPolicy;
use super::clients::http2::FramePolicy;
use super::clients::keep_alive::KeepAlivePolicy;
use super::clients::send::{ChunkedPolicy, SendPolicy};
use crate::failure::told::ProxyStatusPolicy;
use crate::protocol::Protocols;
use crate::response::tokens::TokensPolicy;
use crate::scope::parts::{Part, Parts};

/// Settings of a location, merged from the blocks around it.
#[derive(Debug, Scope)]
pub struct LocationSettings {
    /// Request bodies.
    pub body: BodyPolicy,
    /// Policy of sending answers.
    pub send: SendPolicy,
    /// Keep-alive and closing.
    pub keep_alive: KeepAlivePolicy,
    /// Chunked coding of answers.
    pub chunked: ChunkedPolicy,
    /// Frames of answers.
    pub frames: FramePolicy,
    /// Names that are resolved while the program runs.
    pub resolver: ResolverPolicy,
    /// Slices.
    pub slice: SlicePolicy,
    /// Requests that only what is stored may answer.
    pub cached_only: CachedOnlyPolicy,
    /// The site that requests belong to.
    pub cache_site: SitePolicy,
    /// The arguments that tell cached answers apart.
    pub cache_args: ArgsPolicy,
    /// The name that the server gives itself.
    pub tokens: TokensPolicy,
    /// Errors as clients are told of them.
    pub proxy_status: ProxyStatusPolicy,
    /// Error logs.
    pub error_log: ErrorLogPolicy,
    /// The protocols of upstreams whose cache follows RFC 9111: what all requests ask is not
    /// searched among the settings of upstreams.
    #[scope(skip)]
    pub by_rfc: Protocols,
    /// The settings of the modules above.
    #[scope(skip)]
    pub(super) rooms: Parts,
}

impl LocationSettings {
    /// The settings of a module above.
    #[inline(always)]
    pub fn of<T: Part>(&self) -> &T {
        self.rooms.of()
    }

    /// The settings of a module above, for the hooks that complete them.
    pub fn of_mut<T: Part>(&mut self) -> &mut T {
        self.rooms.of_mut()
    }
}

impl LocationSettings {}
