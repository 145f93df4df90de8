//! The snapshot of a configuration that requests run on.
//!
//! [`Conf`] is built whole (`directives::build`) and never changed; a reload builds another. The
//! settings of a location are the merged families listed in [`location::LocationSettings`]; those
//! of a server and of the process in their own scopes. What families do at the end of a block they
//! bring themselves ([`level`]).

pub mod clients;
pub mod declared;
pub mod host_table;
pub mod level;
pub mod listen;
pub mod location;
pub mod main;
pub mod names;
pub mod room;
pub mod server;
pub mod tree;

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::source::Span;

use crate::scope::parts::Parts;
use crate::settings::listen::Binding;
use crate::settings::names::ServerName;
use crate::settings::tree::{LocationKind, LocationTree};

use location::LocationSettings;
use main::MainSettings;
use millpond_wire::http1::Method;
use millpond_wire::http1::request::Reading;
use server::ServerSettings;

/// A configuration, ready to serve.
#[derive(Debug)]
pub struct Conf {
    /// Settings of the process.
    pub main: MainSettings,
    /// Sockets to listen on, with the servers behind them.
    pub bindings: Vec<Arc<Binding>>,
    /// The things that its lines have declared for modules above.
    pub parts: Parts,
    /// The count of variables.
    pub variable_count: usize,
    /// True when `$cache_hits` is used anywhere.
    pub uses_cache_hits: bool,
    /// True when `$cache_age` or `$cache_ttl` is used anywhere.
    pub uses_freshness: bool,
    /// True when `$proxy_host` or `$proxy_port` is used anywhere.
    pub uses_proxy_host: bool,
    /// True when `set_real_ip_from` stands anywhere.
    pub uses_real_ip: bool,
    /// True when a certificate is ordered from an authority.
    pub has_orders: bool,
    /// True when connections to peers may come from addresses of others (`proxy_bind …
    /// transparent`) anywhere.
    pub uses_foreign_sources: bool,
    /// The rules by which fields of requests are read: RFC 9110's where any location follows RFC
    /// 9111, since the location of a request shows only when the fields were read.
    pub reading: Reading,
    /// True when `$slice_range` is used anywhere, so that `slice` acts.
    pub uses_slices: bool,
    /// True when a `$upstream_http_…` or `$upstream_cookie_…` variable is used anywhere.
    pub uses_upstream_fields: bool,
    /// The things that the http block declares by name.
    pub declared: declared::Declared,
    /// The `stream` block: a configuration of its own, whose servers carry sessions.
    pub stream: Option<Arc<Conf>>,
}

impl Conf {
    /// Sockets of the whole configuration, those of `stream` behind those of `http`.
    pub fn sockets(&self) -> Vec<Arc<Binding>> {
        let sessions = self.stream.iter().flat_map(|stream| &stream.bindings);
        self.bindings.iter().chain(sessions).cloned().collect()
    }
}

/// The features that a configuration uses anywhere; families note theirs while it is read.
#[derive(Debug)]
pub struct Uses {
    /// True when texts may ask for any variable.
    pub ssi: bool,
    /// True when `set_real_ip_from` stands anywhere.
    pub real_ip: bool,
    /// True when connections to peers may come from addresses of others.
    pub foreign_sources: bool,
    /// The rules by which fields of requests are read.
    pub reading: Reading,
}

impl Default for Uses {
    fn default() -> Self {
        Uses {
            ssi: false,
            real_ip: false,
            foreign_sources: false,
            reading: Reading::AsNginx,
        }
    }
}

/// A virtual server.
#[derive(Debug)]
pub struct Server {
    /// All names, in the order of the file.
    pub names: Vec<ServerName>,
    /// The first name, for `$server_name` and redirects; empty when there is none.
    pub name: Bytes,
    /// Settings that only servers have.
    pub settings: ServerSettings,
    /// The things that modules above keep for it.
    pub parts: Parts,
    /// The field that names its address of HTTP/3, where that is told (`http3_advertise`).
    pub alternative: std::sync::OnceLock<Bytes>,
    /// The server's own settings, script and locations.
    pub location: Arc<Location>,
    /// The place of the server's block in the configuration.
    pub span: Span,
    /// Settings that a crate above has for the sessions of the server.
    pub session: Option<Arc<dyn Any + Send + Sync>>,
}

/// A location, a server's own level, or an `if` block.
#[derive(Debug)]
pub struct Location {
    /// The path or name it is found by.
    pub name: Bytes,
    /// The kind of the location, which says how its name is compared.
    pub kind: LocationKind,
    /// Merged settings.
    pub settings: LocationSettings,
    /// The things that lines of the location have declared for modules above.
    pub parts: Parts,
    /// Locations inside.
    pub children: LocationTree,
    /// The filters that may have something to do for the location's answers.
    pub filters: level::DueFilters,
    /// True when the path without the last slash is redirected here (nginx: handlers that proxy).
    pub redirects_slashless: bool,
    /// The handlers of phases that may have something to do for the location's requests.
    pub due: level::Due,
    /// The way in which its requests are traced; none where nothing is said of that.
    pub otel: Option<Arc<crate::trace::policy::TracePolicy>>,
    /// The settings of methods that are not allowed.
    pub limit_except: Option<LimitExcept>,
    /// True for `internal` locations.
    pub is_internal: bool,
    /// True for a server's own level.
    pub is_server: bool,
    /// True for the block of a `limit_except`.
    pub is_limit: bool,
    /// The place of the location's block in the configuration.
    pub span: Span,
}

/// The methods of a location and the settings of all others.
#[derive(Clone, Debug)]
pub struct LimitExcept {
    /// The methods that the location is for.
    pub allowed: Vec<Method>,
    /// Settings for other methods.
    pub location: Arc<Location>,
}

impl LimitExcept {
    /// True if requests of the method have the settings of the block.
    pub fn limits(&self, method: Method) -> bool {
        !self.allowed.contains(&method)
    }
}

impl Location {
    /// True for a server's own level, where no location was found.
    pub fn is_server_level(&self) -> bool {
        self.is_server
    }
}
