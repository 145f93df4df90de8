//! The families of filters, merged for each location.
//!
//! A table: each family is declared where it is obeyed, and inherited by `derive(Scope)` from the
//! block around it.

use millpond_conf::Scope;

use super::addition::AdditionPolicy;
use super::brotli::BrotliPolicy;
use super::charset::CharsetPolicy;
use super::edit_headers::EditPolicy;
use super::gunzip::GunzipPolicy;
use super::gzip::GzipPolicy;
use super::headers::HeadersPolicy;
use super::ssi::SsiPolicy;
use super::sub::SubPolicy;
use super::userid::UserIdPolicy;
use super::zstd::ZstdPolicy;
use millpond_exchange::scope::parts::{Part, Place};

/// Settings of filters.
#[derive(Clone, Debug, Scope)]
pub struct FilterSettings {
    /// Fields of answers that are replaced and removed.
    pub edit_headers: EditPolicy,
    /// Fields that are added to answers.
    pub headers: HeadersPolicy,
    /// Cookies that tell clients apart.
    pub userid: UserIdPolicy,
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
    /// Decompression of answers.
    pub gunzip: GunzipPolicy,
}

impl Part for FilterSettings {
    const PLACE: Place = Place::Filters;
}
