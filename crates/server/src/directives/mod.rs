//! All directives in their tables, and the building of a [`Conf`] from a tree.
//!
//! ```text
//! statement ─► row of table.rs? ─► its function
//!          └─► families of the scope ─► raw settings of this level
//!          └─► no effect (a note) | refused by name | unknown (`unknown.rs` helps)
//! ```
//!
//! The walk itself is `scope`'s, which knows no directive; whoever has directives imports that, and
//! is imported here.
//!
//! Invariants:
//! 1. Building opens, resolves and starts nothing but what nginx resolves at start (names of peers
//!    and listeners).
//! 2. A mistake never stops the walk, so that all of a tree are reported together, each with its
//!    place; [`build`] fails at its end if there was any.

pub(crate) mod blocks;
pub mod codes;
pub(crate) mod listen;
pub mod manual;
pub(crate) mod no_effect;
pub(crate) mod refused;
mod renamed;
pub(crate) mod ssl;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod unknown;
mod unused_words;
pub(crate) mod upstream_lines;

use std::sync::{Arc, LazyLock};

use millpond_conf::code as conf_code;
use millpond_conf::render::RENDERED;
use millpond_conf::source::Span;
use millpond_conf::tree::{Statement, Tree};
use millpond_conf::{Applied, Contexts, ParseContext, Scope, VarId};
use millpond_exchange::scope::block::Draft;
use millpond_exchange::scope::build::{Builder, Tables};
use millpond_exchange::scope::code;
use millpond_exchange::scope::parts::Parts;
use millpond_exchange::settings::declared::Declared;
use millpond_exchange::settings::level::Levels;
use millpond_exchange::settings::listen::Carries;
use millpond_exchange::settings::location::LocationSettings;
use millpond_exchange::settings::main::{MainSettings, MainSettingsRaw};
use millpond_exchange::settings::server::ServerSettings;
use millpond_exchange::settings::{Conf, Uses};
use millpond_proxy::steps::STEPS;
use millpond_proxy::tls::acme::Orders;
use millpond_proxy::var::{self, Records, VariableTable};
use millpond_stream::settings::FAMILIES;

use crate::variables::RECORDS;

/// The tables that the walk goes by.
const TABLES: Tables = Tables {
    row: table::find,
    setting,
    refusal: refused::find,
    knows: is_known,
    foreign: unknown::help_of_module,
};

/// Builds the snapshot of a tree. The diagnostics (errors, warnings, notes) are returned in `cx`.
pub fn build(tree: &Tree, mut cx: ParseContext) -> (Option<Conf>, ParseContext) {
    cx.variables.fix(|name| RECORDS.has_own(name));
    let mut builder = Builder::new(cx, TABLES);
    builder.put(table::HOOKS);
    let mut draft = Draft {
        context: Contexts::MAIN,
        ..Draft::default()
    };
    builder.walk(&tree.statements, &mut draft);
    finish(builder)
}

/// Obeys a line that has no row.
fn setting(builder: &mut Builder, statement: &Statement, context: Contexts) {
    let (levels, cx) = builder.with_cx::<Levels>();
    let line = (statement, context);
    if levels.apply(&table::HOOKS, line, cx) == Applied::Done {
        return;
    }
    if levels.apply_own(table::HOOKS.families, line, cx) == Applied::Done {
        return;
    }
    let (main, cx) = builder.with_cx::<MainSettingsRaw>();
    let applied = MainSettings::apply(main, statement, context, cx);
    if matches!(applied, Applied::Unknown) {
        unclaimed(builder, statement, context);
    }
}

/// A directive that no scope of this level has.
fn unclaimed(builder: &mut Builder, statement: &Statement, context: Contexts) {
    let name = statement.name.text.as_str();
    let span = statement.name.span;
    let without_effect = no_effect::find(name);
    if let Some(row) = without_effect.filter(|row| row.contexts.allows(context)) {
        row.takes.check(statement, &mut builder.cx);
        let message = format!("\"{name}\" has no effect: {}", row.reason);
        let note = builder.cx.diagnostics.push_note(span, message);
        note.code(conf_code::NO_EFFECT);
    } else if let Some(directive) = all_directives().iter().find(|d| d.name == name) {
        builder.misplaced(statement, directive.contexts);
    } else if let Some(row) = table::find(name) {
        // A row of `http` in `stream`, or the other way round.
        builder.misplaced(statement, row.contexts);
    } else if let Some(row) = without_effect {
        builder.misplaced(statement, row.contexts);
    } else if upstream_lines::find(name).is_some() {
        builder.misplaced(statement, Contexts::UPSTREAM);
    } else if let Some(reason) = refused::find(name) {
        builder
            .cx
            .diagnostics
            .push_error(span, format!("directive \"{name}\" is not supported"))
            .code(conf_code::UNSUPPORTED_DIRECTIVE)
            .help(reason)
            .replace_with(Some(renamed::change(statement)));
    } else {
        // Comparing costs; nobody reads what is not shown.
        let is_read = builder.cx.diagnostics.len() < RENDERED;
        let help = is_read.then(|| unknown::help(name)).flatten();
        let message = format!("unknown directive \"{name}\"");
        let error = builder.cx.diagnostics.push_error(span, message);
        error.code(conf_code::UNKNOWN_DIRECTIVE);
        if let Some(help) = help {
            error.help(help);
        }
        let is_known = unknown::module_of(name).is_some();
        error.replace_with(is_known.then(|| renamed::change(statement)));
    }
}

fn finish(mut builder: Builder) -> (Option<Conf>, ParseContext) {
    let blocks: blocks::Blocks = builder.take();
    let bindings = listen::bindings(&mut builder.cx, &blocks.servers, Carries::Requests);
    let servers = blocks.servers.iter().map(|(server, _)| server);
    millpond_proxy::tls::acme::certificate::settle(&mut builder, servers, &bindings);
    millpond_proxy::tls::contexts::prepare(&mut builder, &bindings);
    millpond_proxy::filter::advertise::settle(&mut builder, &bindings);
    let main: MainSettingsRaw = builder.take();
    let main = MainSettings::resolve(&[&main], &mut builder.cx);
    for hook in table::END {
        hook(&mut builder, &main);
    }
    let variables = variables(&mut builder, RECORDS);
    #[cfg_attr(not(feature = "script"), allow(unused_mut))]
    let mut stream = builder.take::<Option<stream::Read>>();
    if builder.cx.diagnostics.has_errors() {
        return (None, builder.cx);
    }
    let uses: Uses = builder.take();
    let has_orders = !builder.of::<Orders>().is_empty();
    let variable_count = variables.len();
    let parts = parts(&mut builder, variables);
    let mut fleets = builder.of::<Declared>().fleets.iter();
    let has_peers = fleets.any(|fleet| fleet.peers.secret.is_some());
    let uses_any = |names: &[&str]| uses.ssi || names.iter().any(|name| is_used(&builder, name));
    let foreign_sessions = stream
        .as_ref()
        .is_some_and(stream::Read::has_foreign_sources);
    #[cfg(feature = "script")]
    if let Some(Err(message)) = stream.as_mut().map(|read| read.share_scripts(&parts)) {
        builder.cx.diagnostics.push_error(Span::NONE, message);
        return (None, builder.cx);
    }
    let stream = stream.map(|read| Arc::new(read.into_conf(&main)));
    let conf = Conf {
        main,
        stream,
        bindings: bindings.into_iter().map(Arc::new).collect(),
        variable_count,
        parts,
        has_orders,
        uses_upstream_fields: uses.ssi
            || uses_family(&builder, "upstream_http_")
            || uses_family(&builder, "upstream_cookie_"),
        uses_cache_hits: is_used(&builder, "cache_hits"),
        // Pages with commands may name any variable.
        // Peers are told for how long an answer is fresh yet.
        uses_freshness: has_peers || uses_any(&["cache_age", "cache_ttl"]),
        uses_proxy_host: uses_any(&["proxy_host", "proxy_port"]),
        uses_real_ip: uses.real_ip,
        uses_foreign_sources: uses.foreign_sources || foreign_sessions,
        reading: uses.reading,
        uses_slices: is_used(&builder, "slice_range"),
        declared: builder.take::<Declared>(),
    };
    (Some(conf), builder.cx)
}

/// The things that lines have declared for requests.
fn parts(builder: &mut Builder, variables: VariableTable) -> Parts {
    let mut parts = Parts::default();
    parts.put(variables);
    parts.put(&STEPS);
    for keep in table::DECLARED {
        keep(builder, &mut parts);
    }
    parts
}

/// True when a variable is named anywhere.
fn is_used(builder: &Builder, name: &str) -> bool {
    builder.cx.variables.lookup(name).is_some()
}

/// True when a variable of a family is used anywhere.
fn uses_family(builder: &Builder, prefix: &str) -> bool {
    let variables = &builder.cx.variables;
    let mut ids = (0..variables.len()).map(|number| VarId(number as u32));
    ids.any(|id| variables.name(id).starts_with(prefix))
}

/// Help for a variable whose name is near that of another one.
fn near_variable(builder: &Builder, records: &Records, name: &str) -> Option<String> {
    let variables = &builder.cx.variables;
    let defined = var::defined(builder).map(|id| variables.name(id));
    let mut names: Vec<&str> = defined.collect();
    names.sort_unstable();
    names.extend(records.names());
    let near = millpond_conf::suggest(name, names)?;
    Some(format!("did you mean \"${near}\"?"))
}

/// Reports a variable that nobody defines.
fn unknown_variable(builder: &mut Builder, records: &Records, (name, span): (&str, Span)) {
    let message = format!("unknown \"{name}\" variable");
    // Comparing costs; nobody reads what is not shown.
    let is_read = builder.cx.diagnostics.len() < RENDERED;
    let near = is_read
        .then(|| near_variable(builder, records, name))
        .flatten();
    let error = builder.cx.diagnostics.push_error(span, message);
    error.code(code::UNKNOWN_VARIABLE);
    if let Some(reason) = var::absent::refusal(name) {
        error.help(reason);
    } else if let Some(near) = near {
        error.help(near);
    }
}

/// Gives every used name its meaning and reports those without one.
fn variables(builder: &mut Builder, records: &'static Records) -> VariableTable {
    let names: Vec<String> = (0..builder.cx.variables.len())
        .map(|number| builder.cx.variables.name(VarId(number as u32)).to_string())
        .collect();
    let (table, unknown) = VariableTable::build(records, names.iter().map(String::as_str), |id| {
        var::definition(builder, id)
    });
    let uses: Vec<(VarId, Span)> = builder.cx.variables.uses().collect();
    for (id, span) in uses {
        // Defaults name variables, too; those are ours to get right.
        if unknown.contains(&id) && span != Span::NONE {
            let name = names.get(id.0 as usize).cloned().unwrap_or_default();
            unknown_variable(builder, records, (&name, span));
        }
    }
    table
}

/// All settings of all scopes.
pub fn all_directives() -> &'static [millpond_conf::Directive] {
    static ALL: LazyLock<Vec<millpond_conf::Directive>> = LazyLock::new(|| {
        let mut all = LocationSettings::directives();
        all.extend(ServerSettings::directives());
        let rooms = table::ROOMS.iter().chain(table::SERVER_ROOMS);
        all.extend(rooms.flat_map(|room| (room.directives)()));
        all.extend(MainSettings::directives());
        let own = table::HOOKS.families.iter().chain(FAMILIES);
        all.extend(own.flat_map(|family| (family.directives)()));
        all
    });
    &ALL
}

/// True for a directive that may stand in some block.
fn is_known(name: &str) -> bool {
    is_implemented(name) || no_effect::find(name).is_some()
}

/// True for a directive that has an effect here, lines inside `upstream` included.
pub fn is_implemented(name: &str) -> bool {
    table::find(name).is_some()
        || upstream_lines::find(name).is_some()
        || all_directives().iter().any(|it| it.name == name)
}
