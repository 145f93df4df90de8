//! `http`, `server`, `location`, `internal`: the blocks of a configuration.
//!
//! A block pushes a level of raw settings, is walked into a draft, and is closed: its settings are
//! merged with those around it and the hooks of the families run (`settings/level.rs`).

use std::collections::HashSet;
use std::sync::Arc;

use millpond_conf::tree::Statement;
use millpond_conf::{Contexts, code};
use millpond_exchange::expression::{Case, Regex};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::Server;
use millpond_exchange::settings::level::{self, Children, Hooks, Level, Levels};
use millpond_exchange::settings::names::ServerName;
use millpond_exchange::settings::tree::{AfterPrefix, LocationKind};
use millpond_exchange::stats::status_zone::StatusZone;
use millpond_proxy::site::SiteMemo;
use millpond_proxy::tls::acme;
use millpond_proxy::tls::contexts::LateEncryption;
use millpond_proxy::upstream::tunnel;

use super::listen::{ListenArgs, Listens, Names};
use super::{ssl, table};

/// Rows of the blocks that are walked here.
pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "events",
        contexts: Contexts::MAIN,
        syntax: "{ … }",
        is_block: true,
        pass: Pass::First,
        doc: "Settings of the event loop; accepted for nginx's sake.",
        apply: events,
    },
    Row {
        name: "http",
        contexts: Contexts::MAIN,
        syntax: "{ … }",
        is_block: true,
        pass: Pass::Ordered,
        doc: "The HTTP server.",
        apply: http,
    },
    Row {
        name: "server",
        contexts: Contexts::HTTP,
        syntax: "{ … }",
        is_block: true,
        pass: Pass::Ordered,
        doc: "A virtual server.",
        apply: server,
    },
    Row {
        name: "location",
        contexts: Contexts::SERVER.union(Contexts::LOCATION),
        syntax: "[= | ~ | ~* | ^~] path | @name { … }",
        is_block: true,
        pass: Pass::Ordered,
        doc: "Settings for the requests whose path matches.",
        apply: location,
    },
    Row {
        name: "internal",
        contexts: Contexts::LOCATION,
        syntax: "",
        is_block: false,
        pass: Pass::First,
        doc: "Closes the location to requests from outside; they are answered with 404.",
        apply: internal,
    },
];

/// Blocks that were read.
#[derive(Default)]
pub(super) struct Blocks {
    /// Servers, with what they listen on.
    pub(super) servers: Vec<(Arc<Server>, Vec<ListenArgs>)>,
    has_http: bool,
    has_events: bool,
}

/// The kinds and names of the locations inside of a block: no two are the same.
#[derive(Default)]
struct ChildNames(HashSet<(char, String)>);

fn events(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if std::mem::replace(&mut builder.of::<Blocks>().has_events, true) {
        builder.error(statement.name.span, "\"events\" directive is duplicate");
        return;
    }
    let mut inner = Draft {
        context: Contexts::EVENTS,
        ..Draft::default()
    };
    builder.walk(statement.body.as_deref().unwrap_or_default(), &mut inner);
}

fn http(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if std::mem::replace(&mut builder.of::<Blocks>().has_http, true) {
        builder.error(statement.name.span, "\"http\" directive is duplicate");
        return;
    }
    builder.of::<Levels>().0.push(Level::default());
    let mut inner = Draft {
        context: Contexts::HTTP,
        ..Draft::default()
    };
    builder.walk(statement.body.as_deref().unwrap_or_default(), &mut inner);
    let levels: Levels = builder.take();
    if let Some(level) = levels.0.last() {
        let settings = levels.location(&table::HOOKS, &mut builder.cx);
        level::check(builder, level, &inner);
        for hook in table::END_OF_HTTP {
            hook(builder, &settings);
        }
    }
}

fn server(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    read_server(builder, statement, Contexts::SERVER);
}

/// Reads the block of a server, of requests or of sessions.
pub(super) fn read_server(builder: &mut Builder, statement: &Statement, context: Contexts) {
    builder.of::<Levels>().0.push(Level::default());
    let mut draft = Draft::new(context, statement.span);
    builder.walk(statement.body.as_deref().unwrap_or_default(), &mut draft);
    let Names(names) = draft.take().unwrap_or_default();
    let Listens(mut listens) = draft.take().unwrap_or_default();
    ssl::settle(builder, &draft, &mut listens);
    let status_zone = draft.take::<StatusZone>();
    let order = acme::certificate::Slot::of(&mut draft);
    let hooks = Hooks::of(builder);
    let (levels, cx) = builder.with_cx::<Levels>();
    let (settings, mut parts) = levels.server(&hooks, cx);
    parts.put(SiteMemo::default());
    parts.put(LateEncryption::default());
    parts.put(order);
    if let Some(zone) = status_zone {
        parts.put(zone);
    }
    if let Some(tunnels) = tunnel::take_noted(builder) {
        parts.put(tunnels);
    }
    let mut location = level::close(builder, draft, LocationKind::Unnamed);
    location.is_server = true;
    let server = Server {
        name: names.first().map(ServerName::text).unwrap_or_default(),
        names,
        settings,
        parts,
        alternative: std::sync::OnceLock::new(),
        location: Arc::new(location),
        span: statement.span,
        session: millpond_stream::settings::take_closed(builder),
    };
    let blocks = builder.of::<Blocks>();
    blocks.servers.push((Arc::new(server), listens));
}

fn location(builder: &mut Builder, statement: &Statement, outer: &mut Draft) {
    let Some((kind, name)) = location_name(builder, statement, outer) else {
        return;
    };
    let key = match &kind {
        LocationKind::Exact => Some('='),
        LocationKind::Prefix(_) => Some('/'),
        LocationKind::Named => Some('@'),
        LocationKind::Regex(_) | LocationKind::Unnamed => None,
    };
    let known = &mut outer.of::<ChildNames>().0;
    if key.is_some_and(|key| !known.insert((key, name.clone()))) {
        report_duplicate(builder, statement, &kind, &name);
    }
    let mut draft = Draft {
        name,
        has_plain_name: matches!(kind, LocationKind::Exact | LocationKind::Prefix(_)),
        is_internal: outer.is_internal,
        ..Draft::new(Contexts::LOCATION, statement.span)
    };
    draft.put(kind.clone());
    if outer.context == Contexts::LOCATION {
        StatusZone::pass_on(outer, &mut draft);
    }
    let location = level::nested(builder, statement, draft, kind);
    outer.of::<Children>().0.push(Arc::new(location));
}

/// Reports a second location of one name; nginx takes it if it is named, and nobody gets there.
fn report_duplicate(builder: &mut Builder, statement: &Statement, kind: &LocationKind, name: &str) {
    let message = format!("duplicate location \"{name}\"");
    if matches!(kind, LocationKind::Named) {
        let warning = builder.cx.diagnostics.push_warning(statement.span, message);
        warning.code(code::DUPLICATE_DIRECTIVE);
    } else {
        builder.error(statement.span, message);
    }
}

fn internal(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if std::mem::replace(&mut draft.is_internal, true) {
        builder.error(statement.span, "\"internal\" directive is duplicate");
    }
}

/// The kind and name of a location; nginx also reads the modifier glued to the name (`=/path`).
fn location_name(
    builder: &mut Builder,
    statement: &Statement,
    outer: &Draft,
) -> Option<(LocationKind, String)> {
    let (modifier, name) = match statement.args.as_slice() {
        [modifier, name] => (modifier.text.as_str(), name),
        [name] => (glued_modifier(&name.text), name),
        _ => {
            builder.error(
                statement.span,
                "invalid number of arguments in \"location\" directive",
            );
            return None;
        }
    };
    let text = if statement.args.len() == 1 {
        name.text.get(modifier.len()..).unwrap_or_default()
    } else {
        name.text.as_str()
    };
    let kind = match modifier {
        "=" => LocationKind::Exact,
        "^~" => LocationKind::Prefix(AfterPrefix::Stop),
        "" if text.starts_with('@') => LocationKind::Named,
        "" => LocationKind::Prefix(AfterPrefix::TryRegex),
        "~" => LocationKind::Regex(Regex::compile(builder, text, Case::Sensitive, name.span)?),
        "~*" => LocationKind::Regex(Regex::compile(builder, text, Case::Insensitive, name.span)?),
        other => {
            let message = format!("invalid location modifier \"{other}\"");
            builder.error(statement.span, message);
            return None;
        }
    };
    check_nesting(builder, (statement, outer), &kind, text);
    Some((kind, text.to_string()))
}

fn check_nesting(
    builder: &mut Builder,
    (statement, outer): (&Statement, &Draft),
    kind: &LocationKind,
    name: &str,
) {
    if outer.context != Contexts::LOCATION {
        return;
    }
    let outer_name = outer.name.clone();
    let lid = match outer.get::<LocationKind>() {
        Some(LocationKind::Exact) => "exact",
        Some(LocationKind::Named) => "named",
        _ => "",
    };
    match kind {
        _ if !lid.is_empty() => builder.error(
            statement.span,
            format!("location \"{name}\" cannot be inside the {lid} location \"{outer_name}\""),
        ),
        LocationKind::Named => builder.error(
            statement.span,
            format!("named location \"{name}\" can be on the server level only"),
        ),
        // nginx: also of an expression's text, so that only expressions fit inside of one.
        LocationKind::Exact | LocationKind::Prefix(_) if !name.starts_with(&outer_name) => {
            builder.error(
                statement.span,
                format!("location \"{name}\" is outside location \"{outer_name}\""),
            );
        }
        _ => {}
    }
}

fn glued_modifier(text: &str) -> &str {
    ["=", "^~", "~*", "~"]
        .into_iter()
        .find(|modifier| text.starts_with(modifier))
        .unwrap_or("")
}
