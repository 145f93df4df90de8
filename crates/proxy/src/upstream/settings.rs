//! The families of the way to upstreams, merged for each location.
//!
//! A table: each family is declared where it is obeyed, and inherited by `derive(Scope)` from the
//! block around it.

use millpond_conf::Scope;

use super::aws_sign::AwsSignPolicy;
use super::cdn_loop::CdnLoopPolicy;
use super::cookie::CookiePolicy;
use super::fastcgi::FastCgiPolicy;
use super::grpc::GrpcPolicy;
use super::hints::EarlyHintsPolicy;
use super::http::HttpPolicy;
use super::memcached::MemcachedPolicy;
use super::pass_settings::PassSettings;
use super::redirect::PassRedirectPolicy;
use super::redirect_follow::FollowPolicy;
use super::tunnel::TunnelPolicy;
use super::uwsgi::UwsgiPolicy;
use millpond_exchange::scope::parts::{Part, Place};

/// Settings of the way to upstreams.
#[derive(Clone, Debug, Scope)]
pub struct UpstreamSettings {
    /// HTTP upstreams.
    pub proxy: PassSettings,
    /// FastCGI upstreams.
    #[protocol("fastcgi")]
    pub fastcgi: PassSettings,
    /// SCGI upstreams.
    #[protocol("scgi")]
    pub scgi: PassSettings,
    /// uwsgi upstreams.
    #[protocol("uwsgi")]
    pub uwsgi: PassSettings,
    /// memcached upstreams.
    #[protocol("memcached")]
    pub memcached: PassSettings,
    /// gRPC upstreams.
    #[protocol("grpc")]
    pub grpc: PassSettings,
    /// Ends of tunnels.
    #[protocol("tunnel")]
    pub tunnel: PassSettings,
    /// Signatures of requests.
    pub aws_sign: AwsSignPolicy,
    /// Circles of proxies.
    pub cdn_loop: CdnLoopPolicy,
    /// Interim answers of upstreams.
    pub early_hints: EarlyHintsPolicy,
    /// Policy of requests to HTTP upstreams only.
    pub pass_http: HttpPolicy,
    /// Policy of requests to FastCGI applications only.
    pub fastcgi_app: FastCgiPolicy,
    /// Policy of requests to uwsgi applications only.
    pub uwsgi_app: UwsgiPolicy,
    /// Policy of requests to memcached servers only.
    pub memcached_server: MemcachedPolicy,
    /// Policy of requests to gRPC servers only.
    pub grpc_server: GrpcPolicy,
    /// Policy of tunnels only.
    pub tunnel_end: TunnelPolicy,
    /// Redirects of upstreams.
    pub pass_redirect: PassRedirectPolicy,
    /// Redirects that are followed.
    pub follow: FollowPolicy,
    /// Cookies of upstreams.
    pub pass_cookie: CookiePolicy,
}

impl Part for UpstreamSettings {
    const PLACE: Place = Place::Upstreams;
}
