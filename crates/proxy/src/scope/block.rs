//! Directives that are no plain setting: blocks, declarations by name, handlers. One row each.
//!
//! A row names the directive, where it may stand, and the function that obeys it while the tree is
//! walked. The function lives in the file whose code uses what it declares.

use millpond_conf::Contexts;
use millpond_conf::source::Span;
use millpond_conf::tree::Statement;

use super::build::Builder;
use crate::handler::ContentHandler;

/// The time at which a row runs while a block is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The row runs before the blocks inside: what it declares is known to them.
    First,
    /// The row runs in the order of the file, after all settings of the block are known.
    Ordered,
}

/// One directive.
#[derive(Debug)]
pub struct Row {
    /// Name.
    pub name: &'static str,
    /// The contexts in which the line may stand.
    pub contexts: Contexts,
    /// Grammar, for the manual.
    pub syntax: &'static str,
    /// True if the line has a block.
    pub is_block: bool,
    /// The pass in which the line runs.
    pub pass: Pass,
    /// Manual text.
    pub doc: &'static str,
    /// Obeys the line.
    pub apply: fn(&mut Builder, &Statement, &mut Draft),
}

impl Row {
    /// True if the line takes no arguments at all.
    pub fn has_no_arguments(&self) -> bool {
        matches!(self.syntax, "" | "{ … }")
    }
}

/// A block while it is walked.
#[derive(Debug, Default)]
pub struct Draft {
    /// The kind of the block.
    pub context: Contexts,
    /// The block's place in the configuration.
    pub span: Option<Span>,
    /// The path of the location, for handlers that need it.
    pub name: String,
    /// True for a location that is found by a prefix or exactly.
    pub has_plain_name: bool,
    /// The kind of the location, which says how its name is compared; none for other blocks.
    pub kind: Option<crate::route::location::LocationKind>,
    /// The handler that a directive set.
    pub handler: Option<ContentHandler>,
    /// The place of `proxy_pass` in the configuration.
    pub pass_span: Option<Span>,
    /// True after `internal`.
    pub is_internal: bool,
    /// The zone in which requests of the block are counted.
    pub status_zone: Option<crate::stats::status_zone::StatusZone>,
    /// True if the block itself names `status_zone`.
    pub has_status_zone: bool,
    /// `try_files` of this block.
    pub try_files: Option<crate::handler::try_files::TryFiles>,
    /// Methods and the settings of all others.
    pub limit_except: Option<crate::handler::access::LimitExcept>,
    /// Rewrite directives.
    pub script: crate::rewrite::Script,
    /// Locations inside.
    pub children: Vec<std::sync::Arc<super::Location>>,
    /// The kinds and names of the locations inside: no two are the same.
    pub child_names: std::collections::HashSet<(char, String)>,
    /// `listen` of a server.
    pub listens: Vec<super::listen::ListenArgs>,
    /// `server_name` of a server.
    pub server_names: Vec<crate::route::name::ServerName>,
}

/// All rows.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    [
        super::build::ROWS,
        super::listen::ROWS,
        crate::cache::zones::ROWS,
        crate::stats::ledger::ROWS,
        crate::stats::status_zone::ROWS,
        crate::stats::site_info::ROWS,
        crate::log::format::ROWS,
        crate::handler::access::ROWS,
        crate::handler::api::ROWS,
        crate::handler::dashboard::ROWS,
        crate::handler::empty_gif::ROWS,
        crate::handler::flv::ROWS,
        crate::handler::limit_conn::ROWS,
        crate::handler::limit_req::ROWS,
        crate::handler::metrics::ROWS,
        crate::handler::mp4::ROWS,
        crate::handler::stub_status::ROWS,
        crate::upstream::declare::ROWS,
        crate::upstream::pass::ROWS,
        crate::map::ROWS,
        crate::rewrite::ROWS,
        crate::handler::try_files::ROWS,
        crate::filter::charset::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// The row of a name.
pub fn find(name: &str) -> Option<&'static Row> {
    rows().find(|row| row.name == name)
}

impl Draft {
    /// True where the URL of a pass may have a path: in a location that is found by a prefix or
    /// exactly.
    pub fn allows_pass_path(&self) -> bool {
        self.context == Contexts::LOCATION && self.has_plain_name
    }
}
