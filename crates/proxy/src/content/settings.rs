//! The families of files and error pages, merged for each location.
//!
//! A table: each family is declared where it is obeyed, and inherited by `derive(Scope)` from the
//! block around it.

use millpond_conf::Scope;

use super::disable_symlinks::SymlinkPolicy;
use super::error_pages::ErrorPolicy;
use super::mime::TypesPolicy;
use super::open_file::OpenFilePolicy;
use super::path::RootPolicy;
use millpond_exchange::scope::parts::{Part, Place};

/// Settings of files and error pages.
#[derive(Clone, Debug, Scope)]
pub struct ContentSettings {
    /// Answers instead of errors.
    pub error: ErrorPolicy,
    /// The place of files.
    pub root: RootPolicy,
    /// Media types of files.
    pub types: TypesPolicy,
    /// The files that stay open.
    pub open_file: OpenFilePolicy,
    /// Symbolic links on the way to files.
    pub symlinks: SymlinkPolicy,
}

impl Part for ContentSettings {
    const PLACE: Place = Place::ContentSettings;
}
