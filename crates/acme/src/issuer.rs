//! `acme_issuer`: an authority, and the account that certificates are ordered with.
//!
//! It is made of the configuration's lines by who has their language, and never changes.

use zeroize::Zeroizing;

use crate::challenge;
use crate::csr::Subject;
use crate::http;
use crate::key::{Key, KeyKind};
use crate::state::Folder;
use crate::url::Url;

/// An authority, as it is configured.
#[derive(Clone, Debug)]
pub struct Issuer {
    /// The name in the configuration.
    pub name: String,
    /// The URL of the directory.
    pub uri: Url,
    /// The way to it.
    pub way: http::Way,
    /// The account's key.
    pub account: AccountKey,
    /// The account's contacts, as URLs.
    pub contacts: Vec<String>,
    /// The account of another kind that this one belongs to.
    pub binding: Option<Binding>,
    /// Agreement to the authority's terms.
    pub terms: Terms,
    /// The way in which names are validated.
    pub challenge: challenge::Way,
    /// The subject of requests.
    pub subject: Subject,
    /// The kind of certificates that is asked for.
    pub profile: Option<Profile>,
    /// The name of who issued the top of the chain that is preferred.
    pub chain: Option<String>,
    /// The folder of what is kept; none if nothing is.
    pub folder: Option<Folder>,
}

/// The key of an account.
#[derive(Clone, Debug)]
pub enum AccountKey {
    /// A key of this kind, made where there is none.
    Made(KeyKind),
    /// That of a file.
    Given(Key),
}

/// An external account (RFC 8555 §7.3.4).
#[derive(Clone, Debug)]
pub struct Binding {
    /// The key's identifier.
    pub id: String,
    /// The key.
    pub secret: Zeroizing<Vec<u8>>,
}

/// The operator's word about the terms of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// Agreement.
    Accepted,
    /// Nothing was said.
    Unsaid,
}

/// A profile (draft-ietf-acme-profiles).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The name.
    pub name: String,
    /// The need of it.
    pub need: Need,
}

/// The need of something that an authority may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Without it, things go on.
    Preferred,
    /// Without it, nothing is ordered.
    Required,
}
