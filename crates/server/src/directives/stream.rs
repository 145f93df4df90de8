//! `stream`: the block, and the `server` blocks in it.
//!
//! The block is read by a walk of its own, with tables of its own: directives that have the same
//! name in `http` and mean something else are found here, and what is declared by name (groups,
//! maps, formats, zones, variables) is none of `http`'s. The mistakes of both walks stand in one
//! list.

use std::mem;

use millpond_conf::tree::Statement;
use millpond_conf::{Applied, Contexts, ParseContext, Side};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::{Builder, Tables};
use millpond_exchange::scope::parts::Parts;
use millpond_exchange::settings::declared::Declared;
#[cfg(feature = "script")]
use millpond_exchange::settings::level::keep;
use millpond_exchange::settings::level::{self, Hooks, Level, Levels, OwnFamily};
use millpond_exchange::settings::listen::{Binding, Carries};
use millpond_exchange::settings::main::MainSettings;
use millpond_exchange::settings::{Conf, Uses};
use millpond_proxy::handler;
use millpond_proxy::log;
use millpond_proxy::log::access::BlockLogs;
use millpond_proxy::map;
#[cfg(feature = "script")]
use millpond_proxy::script;
use millpond_proxy::tls;
use millpond_proxy::upstream;
use millpond_stream::settings::FAMILIES;
use millpond_stream::variables::RECORDS;
use millpond_stream::{content, settings};

use super::blocks::{self, Blocks};
use super::{listen, refused, table, unknown};
use millpond_proxy::log::settings::LogSettings;

/// The row of the block.
pub(crate) const BLOCK: &[Row] = &[Row {
    name: "stream",
    contexts: Contexts::MAIN,
    syntax: "{ … }",
    is_block: true,
    pass: Pass::Ordered,
    doc: "The proxy of TCP: sessions that are passed on as they are.",
    apply: stream,
}];

/// Rows that stand in the block only.
pub(crate) const ROWS: &[&[Row]] = &[SERVER, content::ROWS];

const SERVER: &[Row] = &[Row {
    name: "server",
    contexts: Contexts::STREAM,
    syntax: "{ … }",
    is_block: true,
    pass: Pass::Ordered,
    doc: "The sessions of some addresses.",
    apply: server,
}];

/// Rows that `http` has, too.
const SHARED: &[&[Row]] = &[
    listen::ROWS,
    log::format::ROWS,
    handler::limit_conn::ROWS,
    upstream::declare::ROWS,
    map::ROWS,
    #[cfg(feature = "script")]
    script::variable::ROWS,
    #[cfg(feature = "script")]
    script::periodic::ROWS,
    #[cfg(feature = "script")]
    script::shared::ROWS,
];

/// The directives of the block.
const TABLES: Tables = Tables {
    row: find,
    setting,
    refusal: refused::find,
    knows: super::is_known,
    foreign: unknown::help_of_module,
};

/// Ends of blocks: the hooks of families.
const HOOKS: Hooks = Hooks {
    rooms: table::ROOMS,
    server_rooms: table::SERVER_ROOMS,
    families: FAMILIES,
    check: &[],
    parts: &[
        #[cfg(feature = "script")]
        keep::<script::Scripts>,
    ],
    close: &[
        log::access::complete,
        handler::limit_zone::close,
        #[cfg(feature = "script")]
        script::close,
        settings::close,
    ],
};

/// Families of scripts, which `http` has, too.
#[cfg(feature = "script")]
const SCRIPTS: &[OwnFamily] = &[script::FAMILY, script::fetch::FAMILY];
#[cfg(not(feature = "script"))]
const SCRIPTS: &[OwnFamily] = &[];

/// Contexts of the block and of what stands in it.
const CONTEXTS: Contexts = Contexts::STREAM.union(Contexts::STREAM_SERVER);

/// Prefixes of directives of applications, which have no sessions.
const APPLICATIONS: [&str; 6] = [
    "fastcgi_",
    "scgi_",
    "uwsgi_",
    "memcached_",
    "grpc_",
    "tunnel_",
];

/// A block that was read.
pub(super) struct Read {
    bindings: Vec<Binding>,
    variable_count: usize,
    parts: Parts,
    declared: Declared,
    uses: Uses,
    #[cfg(feature = "script")]
    masks: script::periodic::Masks,
}

impl Read {
    /// Takes what `http` and `main` have declared for all scripts; the error is a mistake of both.
    #[cfg(feature = "script")]
    pub(super) fn share_scripts(&mut self, outer: &Parts) -> Result<(), String> {
        script::variable::share(outer, &mut self.parts);
        script::shared::conflict(outer, &self.parts).map_or(Ok(()), Err)
    }

    /// True when connections to peers may come from addresses of others.
    pub(super) fn has_foreign_sources(&self) -> bool {
        self.uses.foreign_sources
    }

    /// The configuration of the block, under the settings of the process.
    pub(super) fn into_conf(self, main: &MainSettings) -> Conf {
        Conf {
            main: main.clone(),
            bindings: self.bindings.into_iter().map(Into::into).collect(),
            variable_count: self.variable_count,
            parts: self.parts,
            has_orders: false,
            uses_cache_hits: false,
            uses_freshness: false,
            uses_proxy_host: false,
            uses_real_ip: true,
            uses_foreign_sources: self.uses.foreign_sources,
            reading: self.uses.reading,
            uses_slices: false,
            uses_upstream_fields: false,
            declared: self.declared,
            stream: None,
        }
    }
}

/// The row of a name: one of the block's own, or one that may stand in it.
fn find(name: &str) -> Option<&'static Row> {
    let own = ROWS.iter().chain(SHARED).copied().flatten();
    own.filter(|row| row.contexts.allows(CONTEXTS))
        .find(|row| row.name == name)
}

fn stream(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if builder.get::<Option<Read>>().is_some() {
        builder.error(statement.name.span, "\"stream\" directive is duplicate");
        return;
    }
    let outer = &mut builder.cx;
    let mut cx = ParseContext::new(outer.prefix.clone(), outer.conf_dir.clone());
    cx.variables.fix(|name| RECORDS.has_own(name));
    mem::swap(&mut cx.files, &mut outer.files);
    mem::swap(&mut cx.shared, &mut outer.shared);
    mem::swap(&mut cx.diagnostics, &mut outer.diagnostics);
    cx.shared.turn_to(Side::Sessions);
    #[cfg_attr(not(feature = "script"), allow(unused_mut))]
    let (mut read, mut cx) = read(cx, statement);
    mem::swap(&mut cx.files, &mut builder.cx.files);
    mem::swap(&mut cx.shared, &mut builder.cx.shared);
    mem::swap(&mut cx.diagnostics, &mut builder.cx.diagnostics);
    builder.cx.shared.turn_to(Side::Requests);
    #[cfg(feature = "script")]
    script::periodic::add_masks(builder, mem::take(&mut read.masks));
    builder.put(Some(read));
}

/// Reads the block with its own walk.
fn read(cx: ParseContext, statement: &Statement) -> (Read, ParseContext) {
    let mut builder = Builder::new(cx, TABLES);
    builder.put(HOOKS);
    builder.of::<Levels>().0.push(Level::default());
    let mut draft = Draft::new(Contexts::STREAM, statement.span);
    builder.walk(statement.body.as_deref().unwrap_or_default(), &mut draft);
    let levels: Levels = builder.take();
    let mut logs = None;
    if let Some(level) = levels.0.last() {
        let settings = levels.location(&HOOKS, &mut builder.cx);
        level::check(&mut builder, level, &draft);
        upstream::declare::settle(&mut builder, &settings);
        upstream::declare::check_zones(&mut builder, &settings);
        logs = Some(settings.of::<LogSettings>().access_log.clone());
    }
    let blocks: Blocks = builder.take();
    let bindings = listen::bindings(&mut builder.cx, &blocks.servers, Carries::Sessions);
    tls::contexts::prepare(&mut builder, &bindings);
    handler::limit_zone::check_uses(&mut builder);
    #[cfg(feature = "script")]
    for binding in bindings.iter().filter(|binding| binding.is_udp) {
        settings::check_packets(&mut builder, binding);
    }
    let variables = super::variables(&mut builder, RECORDS);
    let variable_count = variables.len();
    let mut parts = super::parts(&mut builder, variables);
    if let Some(logs) = logs {
        parts.put(BlockLogs(logs));
    }
    let read = Read {
        bindings,
        variable_count,
        parts,
        declared: builder.take(),
        uses: builder.take(),
        #[cfg(feature = "script")]
        masks: builder.take(),
    };
    (read, builder.cx)
}

fn server(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    blocks::read_server(builder, statement, Contexts::STREAM_SERVER);
}

/// Obeys a line that has no row.
fn setting(builder: &mut Builder, statement: &Statement, context: Contexts) {
    let (levels, cx) = builder.with_cx::<Levels>();
    for families in [FAMILIES, SCRIPTS] {
        if levels.apply_own(families, (statement, context), cx) == Applied::Done {
            return;
        }
    }
    let name = statement.name.text.as_str();
    let is_of_application = APPLICATIONS.iter().any(|prefix| name.starts_with(prefix));
    let applied = if is_of_application {
        Applied::Unknown
    } else {
        levels.apply(&HOOKS, (statement, context), cx)
    };
    if applied == Applied::Unknown {
        super::unclaimed(builder, statement, context);
    }
}
