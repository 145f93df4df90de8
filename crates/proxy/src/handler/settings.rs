//! The families of handlers, merged for each location.
//!
//! A table: each family is declared where it is obeyed, and inherited by `derive(Scope)` from the
//! block around it.

use millpond_conf::Scope;

use super::access::{AddressRules, SatisfyPolicy};
use super::auth_basic::AuthBasicPolicy;
use super::auth_jwt::AuthJwtPolicy;
use super::auth_request::AuthRequestPolicy;
use super::autoindex::AutoIndexPolicy;
use super::index::IndexPolicy;
use super::limit_conn::LimitConnPolicy;
use super::limit_req::LimitReqPolicy;
use super::mirror::MirrorPolicy;
use super::post_action::PostActionPolicy;
use super::random_index::RandomIndexPolicy;
use super::realip::RealIpPolicy;
use super::redirect::RedirectPolicy;
use super::referer::RefererPolicy;
use super::secure_link::SecureLinkPolicy;
use super::secure_link_hmac::SecureLinkHmacPolicy;
use super::static_file::StaticPolicy;
use millpond_exchange::scope::parts::{Part, Place};

/// Settings of handlers.
#[derive(Clone, Debug, Scope)]
pub struct HandlerSettings {
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
    /// Names and passwords.
    pub auth_basic: AuthBasicPolicy,
    /// Signed tokens.
    pub auth_jwt: AuthJwtPolicy,
}

impl Part for HandlerSettings {
    const PLACE: Place = Place::Handlers;
}
