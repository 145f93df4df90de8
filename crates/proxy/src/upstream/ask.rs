//! Fields that an upstream is asked besides what the client asked.
//!
//! The cache asks so: for the whole of what a client wants a part of, for slices that are missing,
//! or whether what is stored still holds.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use millpond_cache::extent::ExtentNumber;
use millpond_cache::status::CacheStatus;
use millpond_wire::header::Known;

use super::encryption::Encryption;
use super::redirect_follow::Hop;
use super::request::Prepared;
use crate::request::Request;
use millpond_exchange::trace::Why;

/// A question to a peer that owns the key: a request that is sent in place of the client's own.
#[derive(Debug)]
pub(crate) struct PeerAsk {
    /// Value of the field between nodes.
    pub field: Bytes,
    /// Encryption of the connection.
    pub encryption: Option<Encryption>,
    /// Writes the request, with the conditions that are asked besides.
    pub encode: fn(&Request, &PeerAsk, &Ask) -> Prepared,
    /// True once the owner has given a sign of life.
    pub is_alive: Cell<bool>,
}

/// Additions to the client's request that the cache or a slice makes.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// The answer is for the cache: the client's conditions and ranges are not sent.
    pub is_for_cache: bool,
    /// HEAD becomes GET.
    pub is_get_for_head: bool,
    /// If-None-Match, of a stale entry.
    pub if_none_match: Option<Bytes>,
    /// If-Modified-Since, of a stale entry.
    pub if_modified_since: Option<Bytes>,
    /// Range, of what is missing of an entry; it stands above what the configuration says.
    pub range: Option<Bytes>,
    /// If-Range, of the version that the range is wanted of.
    pub if_range: Option<Bytes>,
    /// The extent that the range lies in, where the node that owns it may be asked for it.
    pub extent: Option<ExtentNumber>,
    /// The question is one to a peer that owns the key.
    pub(crate) peer: Option<Rc<PeerAsk>>,
    /// The step on a way of redirects, where one was followed.
    pub(crate) hop: Option<Hop>,
    /// Label of the request that these additions belong to.
    pub label: Option<CacheStatus>,
}

impl Ask {
    /// The reason why it is asked; `is_background` if no client waits for it.
    pub fn why(&self, is_background: bool) -> Why {
        match self.label {
            _ if !self.is_for_cache => Why::Pass,
            _ if self.if_none_match.is_some() || self.if_modified_since.is_some() => {
                Why::Revalidate
            }
            _ if self.range.is_some() => Why::Slice,
            _ if is_background => Why::Background,
            Some(CacheStatus::Expired) => Why::Expired,
            Some(CacheStatus::Bypass) => Why::Bypass,
            _ => Why::Miss,
        }
    }

    /// True for a field of the client or the configuration that another origin does not get.
    pub(crate) fn withholds(&self, name: &[u8]) -> bool {
        self.hop.is_some_and(|hop| hop.withholds(name))
    }

    /// True once a way of redirects has left the first origin.
    pub(crate) fn has_left(&self) -> bool {
        self.hop.is_some_and(|hop| hop.has_left)
    }

    /// True if another origin is asked than the one that the location names.
    pub(crate) fn is_foreign(&self) -> bool {
        self.hop.is_some_and(|hop| hop.is_foreign)
    }

    /// The range that is asked for with its condition, by the fields' names.
    pub fn range_fields(&self) -> impl Iterator<Item = (Known, &Bytes)> {
        let range = self.range.as_ref().map(|value| (Known::Range, value));
        let if_range = self.if_range.as_ref().map(|value| (Known::IfRange, value));
        range.into_iter().chain(if_range)
    }

    /// True if a field that the configuration sets is left to [`Self::range_fields`].
    pub fn replaces(&self, name: &[u8]) -> bool {
        self.range.is_some()
            && (name.eq_ignore_ascii_case(b"range") || name.eq_ignore_ascii_case(b"if-range"))
    }
}
