//! The families whose directives stand in http, server and location blocks.
//!
//! A table: each family is declared where it is obeyed, and inherited by `derive(Scope)` from the
//! block around it.

use millpond_cache::args::ArgsPolicy;
use millpond_cache::cached_only::CachedOnlyPolicy;
use millpond_cache::site::SitePolicy;
use millpond_cache::slice::SlicePolicy;
use millpond_conf::Scope;
use millpond_system::log::error::ErrorLogPolicy;
use millpond_system::resolve::policy::ResolverPolicy;

use crate::upstream::cdn_loop::CdnLoopPolicy;
use crate::upstream::cookie::CookiePolicy;
use crate::upstream::fastcgi::FastCgiPolicy;
use crate::upstream::grpc::GrpcPolicy;
use crate::upstream::hints::EarlyHintsPolicy;
use crate::upstream::http::HttpPolicy;
use crate::upstream::memcached::MemcachedPolicy;
use crate::upstream::pass_settings::PassSettings;
use crate::upstream::redirect::PassRedirectPolicy;
use crate::upstream::uwsgi::UwsgiPolicy;

use crate::downstream::body::BodyPolicy;
use crate::downstream::http1::answer::ChunkedPolicy;
use crate::downstream::http1::keep_alive::KeepAlivePolicy;
use crate::downstream::http2::policy::FramePolicy;
use crate::downstream::send::SendPolicy;
use crate::failure::told::ProxyStatusPolicy;
use crate::filter::addition::AdditionPolicy;
use crate::filter::brotli::BrotliPolicy;
use crate::filter::charset::{Charset, CharsetPolicy};
use crate::filter::edit_headers::EditPolicy;
use crate::filter::gunzip::GunzipPolicy;
use crate::filter::gzip::GzipPolicy;
use crate::filter::headers::HeadersPolicy;
use crate::filter::ssi::SsiPolicy;
use crate::filter::sub::SubPolicy;
use crate::filter::userid::UserIdPolicy;
use crate::filter::zstd::ZstdPolicy;
use crate::handler::access::{AddressRules, SatisfyPolicy};
use crate::handler::auth_basic::AuthBasicPolicy;
use crate::handler::auth_request::AuthRequestPolicy;
use crate::handler::autoindex::AutoIndexPolicy;
use crate::handler::disable_symlinks::SymlinkPolicy;
use crate::handler::error_page::ErrorPolicy;
use crate::handler::index::IndexPolicy;
use crate::handler::limit_conn::LimitConnPolicy;
use crate::handler::limit_req::LimitReqPolicy;
use crate::handler::mime::TypesPolicy;
use crate::handler::mirror::MirrorPolicy;
use crate::handler::open_file::OpenFilePolicy;
use crate::handler::path::RootPolicy;
use crate::handler::post_action::PostActionPolicy;
use crate::handler::random_index::RandomIndexPolicy;
use crate::handler::realip::RealIpPolicy;
use crate::handler::redirect::RedirectPolicy;
use crate::handler::referer::RefererPolicy;
use crate::handler::secure_link::SecureLinkPolicy;
use crate::handler::secure_link_hmac::SecureLinkHmacPolicy;
use crate::handler::static_file::StaticPolicy;
use crate::log::access::AccessLogPolicy;
use crate::log::upstream::UpstreamLogPolicy;
use crate::response::tokens::TokensPolicy;
use crate::rewrite::RewritePolicy;
use crate::subrequest::SubrequestPolicy;

/// Settings of a location, merged from the blocks around it.
#[derive(Clone, Debug, Scope)]
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
    /// Names that are resolved while the program runs.
    pub resolver: ResolverPolicy,
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
    /// Redirects of upstreams.
    pub pass_redirect: PassRedirectPolicy,
    /// Cookies of upstreams.
    pub pass_cookie: CookiePolicy,
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
    /// Access logs.
    pub access_log: AccessLogPolicy,
    /// Logs of exchanges with upstreams.
    pub upstream_log: UpstreamLogPolicy,
    /// Error logs.
    pub error_log: ErrorLogPolicy,
    /// Answers instead of errors.
    pub error: ErrorPolicy,
    /// The messages that rewriting logs.
    pub rewrite: RewritePolicy,
    /// The place of files.
    pub root: RootPolicy,
    /// Media types of files.
    pub types: TypesPolicy,
    /// The files that stay open.
    pub open_file: OpenFilePolicy,
    /// Symbolic links on the way to files.
    pub symlinks: SymlinkPolicy,
    /// Policy of answering with files.
    pub static_files: StaticPolicy,
    /// The files that stand for a folder.
    pub index: IndexPolicy,
    /// The choice by chance of the file that stands for a folder.
    pub random_index: RandomIndexPolicy,
    /// Lists of folders.
    pub autoindex: AutoIndexPolicy,
    /// The form of redirects.
    pub redirect: RedirectPolicy,
    /// Fields of answers that are replaced and removed.
    pub edit_headers: EditPolicy,
    /// Fields that are added to answers.
    pub headers: HeadersPolicy,
    /// Cookies that tell clients apart.
    pub userid: UserIdPolicy,
    /// Requests for parts of answers.
    pub subrequest: SubrequestPolicy,
    /// The texts that are added to answers.
    pub addition: AdditionPolicy,
    /// Strings that are replaced.
    pub sub: SubPolicy,
    /// Server-side includes.
    pub ssi: SsiPolicy,
    /// Character sets of answers.
    pub charset: CharsetPolicy,
    /// Compression of answers by gzip.
    pub gzip: GzipPolicy,
    /// Compression of answers by brotli.
    pub brotli: BrotliPolicy,
    /// Compression of answers by zstd.
    pub zstd: ZstdPolicy,
    /// Rules about addresses.
    pub access: AddressRules,
    /// The way in which gates work together.
    pub satisfy: SatisfyPolicy,
    /// The pages that requests may come from.
    pub referer: RefererPolicy,
    /// The way in which links are signed.
    pub secure_link: SecureLinkPolicy,
    /// The way in which links are signed with a key.
    pub secure_link_hmac: SecureLinkHmacPolicy,
    /// The client's address behind proxies.
    pub real_ip: RealIpPolicy,
    /// The limits of requests a second.
    pub limit_req: LimitReqPolicy,
    /// The limits of requests at a time.
    pub limit_conn: LimitConnPolicy,
    /// The request whose answer lets in or refuses.
    pub auth_request: AuthRequestPolicy,
    /// Copies of requests.
    pub mirror: MirrorPolicy,
    /// The request that is made after an answer.
    pub post_action: PostActionPolicy,
    /// Decompression of answers.
    pub gunzip: GunzipPolicy,
    /// Names and passwords.
    pub auth_basic: AuthBasicPolicy,
}

impl LocationSettings {
    /// True if a filter changes the text of answers, so that stored encodings are not what clients
    /// are to get. (A charset that is only named changes no text.)
    pub fn changes_stored_text(&self) -> bool {
        let charset = &self.charset;
        let may_recode = charset.source != Charset::Off || charset.overrides;
        !self.sub.pairs.is_empty()
            || self.ssi.enabled
            || self.addition.before.is_some()
            || self.addition.after.is_some()
            || (charset.charset != Charset::Off && may_recode)
    }
}
