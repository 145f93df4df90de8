//! `http`, `server`, `location`, `internal`: the walk over the tree that builds a [`Conf`].
//!
//! A block is walked twice: first the plain settings and the declarations, whatever their order,
//! then the directives whose order matters and the blocks inside, which inherit what the first walk
//! gathered.
//!
//! ```text
//! statement ─► row of block.rs? ─► its function
//!          └─► families of the scope ─► raw settings of this level
//!          └─► no effect (a note) | refused by name | unknown (`unknown.rs` helps)
//! ```
//!
//! Invariants:
//! 1. A mistake never stops the walk; [`build`] fails at its end if there was any.
//! 2. `levels` holds the raw settings of the enclosing blocks, outermost first, while a block is
//!    walked.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use millpond_conf::VarId;
use millpond_conf::code as conf_code;
use millpond_conf::render::RENDERED;
use millpond_conf::source::Span;
use millpond_conf::tree::{Statement, Tree, Word};
use millpond_conf::{Applied, Code, Contexts, OffOr, ParseContext, Scope, Template};
use millpond_wire::http1::request::Reading;

use super::block::{self, Draft, Pass, Row};
use super::location::{LocationSettings, LocationSettingsRaw};
use super::main::{MainSettings, MainSettingsRaw};
use super::server::{ServerSettings, ServerSettingsRaw};
use super::{Conf, Location, Server, code, listen, no_effect, refused, unknown};
use crate::cache::purge::form::PurgeLocation;
use crate::cache::zones::{LocationCache, Zones};
use crate::handler::{ContentHandler, limit_zone};
use crate::phase::Due;
use crate::protocol::Protocol;
use crate::rewrite::set::Variable;
use crate::route::location::{AfterPrefix, LocationKind, LocationTree};
use crate::route::regex::{Case, Regex};
use crate::upstream::declare;
use crate::var::{self, Definition, VariableTable};

/// Rows of the blocks that are walked here.
pub const ROWS: &[Row] = &[
    Row {
        name: "events",
        contexts: Contexts::MAIN,
        syntax: "{ … }",
        is_block: true,
        pass: Pass::First,
        doc: "Settings of the event loop; accepted for nginx's sake.",
        apply: Builder::events,
    },
    Row {
        name: "http",
        contexts: Contexts::MAIN,
        syntax: "{ … }",
        is_block: true,
        pass: Pass::Ordered,
        doc: "The HTTP server.",
        apply: Builder::http,
    },
    Row {
        name: "server",
        contexts: Contexts::HTTP,
        syntax: "{ … }",
        is_block: true,
        pass: Pass::Ordered,
        doc: "A virtual server.",
        apply: Builder::server,
    },
    Row {
        name: "location",
        contexts: Contexts::SERVER.union(Contexts::LOCATION),
        syntax: "[= | ~ | ~* | ^~] path | @name { … }",
        is_block: true,
        pass: Pass::Ordered,
        doc: "Settings for the requests whose path matches.",
        apply: Builder::location,
    },
    Row {
        name: "internal",
        contexts: Contexts::LOCATION,
        syntax: "",
        is_block: false,
        pass: Pass::First,
        doc: "Closes the location to requests from outside; they are answered with 404.",
        apply: Builder::internal,
    },
];

/// Raw settings of one level.
#[derive(Default)]
pub struct Level {
    location: LocationSettingsRaw,
    server: ServerSettingsRaw,
    /// The path of a location, which an alias replaces; none for a regular expression.
    path: Option<Bytes>,
}

/// The state of the walk.
pub struct Builder {
    /// Names, diagnostics and paths.
    pub cx: ParseContext,
    /// Variables that the configuration defines.
    pub defined: HashMap<VarId, Definition>,
    /// The things that the http block declares by name.
    pub declared: super::declared::Declared,
    main: MainSettingsRaw,
    levels: Vec<Level>,
    zones_used: Vec<LocationCache>,
    purged_zones: Vec<(Protocol, Arc<PurgeLocation>)>,
    /// True when texts may ask for any variable.
    has_ssi: bool,
    has_real_ip: bool,
    has_foreign_source: bool,
    reading: Reading,
    servers: Vec<(Arc<Server>, Vec<listen::ListenArgs>)>,
    has_http: bool,
    has_events: bool,
    /// Groups whose resolver is not known yet.
    pub resolving: Vec<declare::Resolving>,
    /// Zones of groups, with their sizes if they are told, and places.
    pub upstream_zones: Vec<(String, Option<u64>, Span)>,
    /// Zones that limits name, with the directive's name and place.
    pub limit_zones_used: Vec<(&'static str, String, Span)>,
}

/// Builds the snapshot of a tree. The diagnostics (errors, warnings, notes) are returned in `cx`.
pub fn build(tree: &Tree, cx: ParseContext) -> (Option<Conf>, ParseContext) {
    let mut builder = Builder {
        cx,
        defined: HashMap::new(),
        declared: Default::default(),
        main: Default::default(),
        levels: Vec::new(),
        zones_used: Vec::new(),
        purged_zones: Vec::new(),
        has_ssi: false,
        has_real_ip: false,
        has_foreign_source: false,
        reading: Reading::AsNginx,
        servers: Vec::new(),
        has_http: false,
        has_events: false,
        resolving: Vec::new(),
        upstream_zones: Vec::new(),
        limit_zones_used: Vec::new(),
    };
    let mut draft = Draft {
        context: Contexts::MAIN,
        ..Draft::default()
    };
    builder.walk(&tree.statements, &mut draft);
    builder.finish(tree)
}

impl Builder {
    /// Defines a variable of the configuration.
    pub fn define(&mut self, id: VarId, definition: Definition) {
        self.defined.insert(id, definition);
    }

    /// Reports a mistake.
    pub fn error(&mut self, span: Span, message: impl Into<String>) {
        let message = message.into();
        let code = match () {
            () if message.starts_with("host not found") => Some(code::UNRESOLVED_HOST),
            () if message.starts_with("open() ") => Some(conf_code::MISSING_FILE),
            () => None,
        };
        self.cx.diagnostics.push_error(span, message).code = code;
    }

    /// Reports a mistake of a kind that has a code.
    fn coded(&mut self, span: Span, code: Code, message: impl Into<String>) {
        self.cx.diagnostics.push_error(span, message).code(code);
    }

    /// Checks the number of arguments; reports a wrong one.
    pub fn has_arguments(&mut self, statement: &Statement, allowed: RangeInclusive<usize>) -> bool {
        let is_right = allowed.contains(&statement.args.len());
        if !is_right {
            let name = &statement.name.text;
            let message = format!("invalid number of arguments in \"{name}\" directive");
            self.coded(statement.span, conf_code::ARGUMENT_COUNT, message);
        }
        is_right
    }

    /// Compiles a complex value; a bad one is reported and `None`.
    pub fn template(&mut self, word: &Word) -> Option<Template> {
        match Template::parse(&word.text, word.span, &mut self.cx.variables) {
            Ok(template) => Some(template),
            Err(error) => {
                self.error(word.span, error.to_string());
                None
            }
        }
    }

    /// Compiles an expression; named groups become variables. A bad one is reported and `None`.
    pub fn regex(&mut self, source: &str, case: Case, span: Span) -> Option<Arc<Regex>> {
        let mut names = Vec::new();
        let cx = &mut self.cx;
        let compiled = Regex::new(source, case, |name| {
            let id = cx.variables.intern(name, span);
            names.push(id);
            id
        });
        for id in names {
            self.defined.entry(id).or_insert(Definition::Stored);
        }
        match compiled {
            Ok(regex) => Some(Arc::new(regex)),
            Err(error) => {
                self.cx
                    .diagnostics
                    .push_error(span, format!("invalid regular expression \"{source}\""))
                    .code(code::INVALID_REGEX)
                    .help(error);
                None
            }
        }
    }

    /// Walks the statements of a block into its draft.
    pub fn walk(&mut self, statements: &[Statement], draft: &mut Draft) {
        let mut ordered = Vec::new();
        for statement in statements {
            match block::find(&statement.name.text) {
                Some(row) if row.pass == Pass::Ordered => ordered.push((row, statement)),
                Some(row) => self.run_row(row, statement, draft),
                None => self.apply_setting(statement, draft.context),
            }
        }
        for (row, statement) in ordered {
            self.run_row(row, statement, draft);
        }
    }

    fn run_row(&mut self, row: &Row, statement: &Statement, draft: &mut Draft) {
        if !row.contexts.allows(draft.context) {
            self.misplaced(statement, row.contexts);
            return;
        }
        if row.has_no_arguments() && !self.has_arguments(statement, 0..=0) {
            return;
        }
        let name = &statement.name.text;
        match (row.is_block, &statement.body) {
            (true, None) => {
                let message = format!("directive \"{name}\" has no opening \"{{\"");
                self.coded(statement.name.span, conf_code::BLOCK_EXPECTED, message);
            }
            (false, Some(_)) => {
                let message = format!("directive \"{name}\" is not terminated by \";\"");
                self.coded(statement.name.span, conf_code::BLOCK_EXPECTED, message);
            }
            _ => (row.apply)(self, statement, draft),
        }
    }

    fn apply_setting(&mut self, statement: &Statement, context: Contexts) {
        let applied = match self.levels.last_mut() {
            Some(level) => {
                match LocationSettings::apply(&mut level.location, statement, context, &mut self.cx)
                {
                    Applied::Unknown => {
                        ServerSettings::apply(&mut level.server, statement, context, &mut self.cx)
                    }
                    done => done,
                }
            }
            None => Applied::Unknown,
        };
        let applied = match applied {
            Applied::Unknown => {
                MainSettings::apply(&mut self.main, statement, context, &mut self.cx)
            }
            done => done,
        };
        if matches!(applied, Applied::Unknown) {
            self.unclaimed(statement, context);
        }
    }

    /// A directive that no scope of this level has.
    fn unclaimed(&mut self, statement: &Statement, context: Contexts) {
        let name = statement.name.text.as_str();
        let span = statement.name.span;
        if let Some(directive) = all_directives().iter().find(|d| d.name == name) {
            self.misplaced(statement, directive.contexts);
        } else if let Some(row) = no_effect::find(name) {
            if row.contexts.allows(context) {
                let message = format!("\"{name}\" has no effect: {}", row.reason);
                let note = self.cx.diagnostics.push_note(span, message);
                note.code(conf_code::NO_EFFECT);
            } else {
                self.misplaced(statement, row.contexts);
            }
        } else if let Some(reason) = refused::find(name) {
            self.cx
                .diagnostics
                .push_error(span, format!("directive \"{name}\" is not supported"))
                .code(conf_code::UNSUPPORTED_DIRECTIVE)
                .help(reason);
        } else {
            // Comparing costs; nobody reads what is not shown.
            let is_read = self.cx.diagnostics.len() < RENDERED;
            let help = is_read.then(|| unknown::help(name)).flatten();
            let message = format!("unknown directive \"{name}\"");
            let error = self.cx.diagnostics.push_error(span, message);
            error.code(conf_code::UNKNOWN_DIRECTIVE);
            if let Some(help) = help {
                error.help(help);
            }
        }
    }

    fn misplaced(&mut self, statement: &Statement, allowed: Contexts) {
        let name = &statement.name.text;
        let message = format!("\"{name}\" directive is not allowed here");
        let help = format!("it belongs into: {}", allowed.names().join(", "));
        self.cx
            .diagnostics
            .push_error(statement.name.span, message)
            .code(conf_code::MISPLACED_DIRECTIVE)
            .help(help);
    }

    fn events(&mut self, statement: &Statement, _draft: &mut Draft) {
        if std::mem::replace(&mut self.has_events, true) {
            self.error(statement.name.span, "\"events\" directive is duplicate");
            return;
        }
        let mut inner = Draft {
            context: Contexts::EVENTS,
            ..Draft::default()
        };
        self.walk(statement.body.as_deref().unwrap_or_default(), &mut inner);
    }

    fn http(&mut self, statement: &Statement, _draft: &mut Draft) {
        if std::mem::replace(&mut self.has_http, true) {
            self.error(statement.name.span, "\"http\" directive is duplicate");
            return;
        }
        self.levels.push(Level::default());
        let mut inner = Draft {
            context: Contexts::HTTP,
            ..Draft::default()
        };
        self.walk(statement.body.as_deref().unwrap_or_default(), &mut inner);
        if let Some(level) = self.levels.pop() {
            let settings = LocationSettings::resolve(&[&level.location], &mut self.cx);
            level.location.check_rules(self, &inner);
            declare::settle(self, &settings.resolver);
            declare::check_zones(self);
        }
    }

    fn server(&mut self, statement: &Statement, _draft: &mut Draft) {
        self.levels.push(Level::default());
        let mut draft = Draft {
            context: Contexts::SERVER,
            span: Some(statement.span),
            ..Draft::default()
        };
        self.walk(statement.body.as_deref().unwrap_or_default(), &mut draft);
        let names = std::mem::take(&mut draft.server_names);
        let listens = std::mem::take(&mut draft.listens);
        let status_zone = draft.status_zone.take();
        let raws: Vec<&ServerSettingsRaw> = self.levels.iter().map(|level| &level.server).collect();
        let settings = ServerSettings::resolve(&raws, &mut self.cx);
        let mut location = self.close_level(draft, LocationKind::Unnamed);
        location.is_server = true;
        let server = Server {
            name: listen::first_name(&names),
            site: crate::cache::site::SiteMemo::default(),
            names,
            status_zone,
            settings,
            location: Arc::new(location),
            span: statement.span,
        };
        self.servers.push((Arc::new(server), listens));
    }

    fn location(&mut self, statement: &Statement, outer: &mut Draft) {
        let Some((kind, name)) = self.location_name(statement, outer) else {
            return;
        };
        let key = match &kind {
            LocationKind::Exact => Some('='),
            LocationKind::Prefix(_) => Some('/'),
            LocationKind::Named => Some('@'),
            LocationKind::Regex(_) | LocationKind::Unnamed => None,
        };
        if key.is_some_and(|key| !outer.child_names.insert((key, name.clone()))) {
            self.error(statement.span, format!("duplicate location \"{name}\""));
        }
        let is_inside = outer.context == Contexts::LOCATION;
        let draft = Draft {
            context: Contexts::LOCATION,
            span: Some(statement.span),
            name,
            has_plain_name: matches!(kind, LocationKind::Exact | LocationKind::Prefix(_)),
            kind: Some(kind.clone()),
            is_internal: outer.is_internal,
            status_zone: outer.status_zone.clone().filter(|_| is_inside),
            ..Draft::default()
        };
        let location = self.nested(statement, draft, kind);
        outer.children.push(Arc::new(location));
    }

    /// Walks a block inside a server into a location of its own.
    pub fn nested(
        &mut self,
        statement: &Statement,
        mut draft: Draft,
        kind: LocationKind,
    ) -> Location {
        self.levels.push(Level {
            path: match &kind {
                LocationKind::Regex(_) => None,
                _ => Some(Bytes::from(draft.name.clone())),
            },
            ..Level::default()
        });
        self.walk(statement.body.as_deref().unwrap_or_default(), &mut draft);
        self.close_level(draft, kind)
    }

    /// Merges the settings of the innermost level and leaves it.
    fn close_level(&mut self, mut draft: Draft, kind: LocationKind) -> Location {
        let raws: Vec<&LocationSettingsRaw> =
            self.levels.iter().map(|level| &level.location).collect();
        let mut settings = LocationSettings::resolve(&raws, &mut self.cx);
        let faults = settings.settle_stores(&raws, &mut self.cx);
        settings.memcached_server.settle(&mut settings.memcached);
        if let Some(level) = settings.root.alias_level() {
            let path = self.levels.get(level).and_then(|level| level.path.clone());
            settings.root.bind_alias(path);
        }
        self.take_purge_location(&mut draft, &settings);
        draft.script.inherit_handler(draft.handler.as_ref());
        if let Some(limit) = &mut draft.limit_except
            && let Some(location) = Arc::get_mut(&mut limit.location)
            && location.handler.is_none()
        {
            location.handler = draft.handler.clone();
        }
        self.check_cache_keys(&draft, &settings);
        self.check_referers(&settings);
        if let Some(level) = self.levels.pop() {
            level.location.check_rules(self, &draft);
        }
        self.tell_store_faults(faults);
        let logs = &mut self.declared.logs;
        crate::log::access::complete(&mut settings.access_log, logs, &mut self.cx);
        crate::log::upstream::complete(&settings.upstream_log, logs, &mut self.cx);
        limit_zone::note_uses(self, &settings);
        self.has_ssi |= settings.ssi.enabled;
        self.has_real_ip |= !settings.real_ip.from.is_empty();
        self.has_foreign_source |= settings.has_foreign_source();
        settings.note_temp_folders(&mut self.declared.temp_folders, &self.cx.prefix);
        self.reading = self.reading.max(settings.reading());
        for variable in settings.auth_request.variables() {
            if let Variable::Stored(id) = variable {
                self.defined.entry(id).or_insert(Definition::Stored);
            }
        }
        let caches = Protocol::ALL.into_iter();
        let caches: Vec<_> = caches
            .filter_map(|protocol| LocationCache::of(&settings, protocol))
            .collect();
        self.zones_used.extend(caches.iter().cloned());
        self.check_level(&draft, &kind, &settings);
        Location {
            due: Due::of((&kind, &settings), &draft.script, draft.try_files.as_ref()),
            caches,
            search: settings.sub.search(),
            changes_text: crate::filter::changes_text(&settings),
            name: Bytes::from(draft.name.into_bytes()),
            kind,
            settings,
            script: draft.script,
            children: LocationTree::build(draft.children),
            handler: draft.handler,
            status_zone: draft.status_zone,
            try_files: draft.try_files,
            limit_except: draft.limit_except,
            is_internal: draft.is_internal,
            is_server: false,
            is_limit: false,
            span: draft.span.unwrap_or(Span::NONE),
        }
    }

    /// A level that both caches and keeps answers as files.
    fn tell_store_faults(&mut self, faults: Vec<(Protocol, Span)>) {
        for (protocol, span) in faults {
            let prefix = protocol.prefix();
            // Every block inside finds it again.
            if !self.cx.diagnostics.iter().any(|it| it.span == Some(span)) {
                self.error(
                    span,
                    format!("\"{prefix}_cache\" directive is incompatible with \"{prefix}_store\""),
                );
            }
        }
    }

    /// `proxy_cache_purge zone key` makes the location one that does nothing else.
    fn take_purge_location(&mut self, draft: &mut Draft, settings: &LocationSettings) {
        for protocol in Protocol::ALL {
            let (prefix, span) = (protocol.prefix(), settings.pass(protocol).purge.form.span);
            let name = format!("{prefix}_cache_purge");
            let own = self.levels.last().map(|level| &level.location);
            let is_set = |name: &str| own.and_then(|raw| LocationSettings::span_of(raw, name));
            let location = match settings.pass(protocol).purge.location(draft.context) {
                Ok(Some(location)) if is_set(&name).is_some() => location,
                Ok(_) => continue,
                Err(why) => {
                    self.error(span, format!("\"{name}\" {why}"));
                    continue;
                }
            };
            let other = match draft.handler {
                Some(_) => Some(format!("{prefix}_pass")),
                None => Some(format!("{prefix}_cache")).filter(|name| is_set(name).is_some()),
            };
            if let Some(other) = other {
                let message = format!("\"{name}\" directive is incompatible with \"{other}\"");
                self.error(span, message);
                continue;
            }
            self.purged_zones.push((protocol, Arc::clone(location)));
            draft.handler = Some(ContentHandler::Purge(Arc::clone(location)));
        }
    }

    /// A key of an application's cache has no default: nginx warns, and keeps one answer for all.
    fn check_cache_keys(&mut self, draft: &Draft, settings: &LocationSettings) {
        let Some(ContentHandler::Pass(target)) = &draft.handler else {
            return;
        };
        let protocol = target.protocol;
        let OffOr::On(zone) = &settings.pass(protocol).zone.zone else {
            return;
        };
        let prefix = protocol.prefix();
        let name = format!("{prefix}_cache_key");
        let mut levels = self.levels.iter();
        let is_set =
            levels.any(|level| LocationSettings::span_of(&level.location, &name).is_some());
        if protocol != Protocol::Http && !is_set {
            self.error(zone.span, format!("no \"{name}\" for \"{prefix}_cache\""));
        }
    }

    /// Checks what depends on more than one directive.
    /// nginx: `none` and `blocked` alone name no valid place, and every request would pass.
    fn check_referers(&mut self, settings: &LocationSettings) {
        if let Some(span) = settings.referer.lacks_places()
            // Every block inside finds it again.
            && !self.cx.diagnostics.iter().any(|it| it.span == Some(span))
        {
            let message = "the \"none\" or \"blocked\" referers are specified in the \
                           \"valid_referers\" directive without any valid referer";
            self.error(span, message);
        }
    }

    fn check_level(&mut self, draft: &Draft, kind: &LocationKind, settings: &LocationSettings) {
        let span = draft.span.unwrap_or(Span::NONE);
        let own_level = Some(self.levels.len());
        if matches!(kind, LocationKind::Named) && settings.root.alias_level() == own_level {
            let message = "the \"alias\" directive cannot be used inside the named location";
            self.error(span, message);
        }
        self.declared.charset_maps.note(&settings.charset);
        if let Err(message) = settings.sub.check() {
            self.error(span, message);
        }
        if let Err(message) = settings.charset.check(&self.declared.charset_maps) {
            self.error(span, message);
        }
    }

    /// The kind and name of a location; nginx also reads the modifier glued to the name (`=/path`).
    fn location_name(
        &mut self,
        statement: &Statement,
        outer: &Draft,
    ) -> Option<(LocationKind, String)> {
        let (modifier, name) = match statement.args.as_slice() {
            [modifier, name] => (modifier.text.as_str(), name),
            [name] => (glued_modifier(&name.text), name),
            _ => {
                self.error(
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
            "~" => LocationKind::Regex(self.regex(text, Case::Sensitive, name.span)?),
            "~*" => LocationKind::Regex(self.regex(text, Case::Insensitive, name.span)?),
            other => {
                let message = format!("invalid location modifier \"{other}\"");
                self.error(statement.span, message);
                return None;
            }
        };
        self.check_nesting(statement, outer, &kind, text);
        Some((kind, text.to_string()))
    }

    fn check_nesting(
        &mut self,
        statement: &Statement,
        outer: &Draft,
        kind: &LocationKind,
        name: &str,
    ) {
        if outer.context != Contexts::LOCATION {
            return;
        }
        let outer_name = outer.name.clone();
        let lid = match &outer.kind {
            Some(LocationKind::Exact) => "exact",
            Some(LocationKind::Named) => "named",
            _ => "",
        };
        match kind {
            _ if !lid.is_empty() => self.error(
                statement.span,
                format!("location \"{name}\" cannot be inside the {lid} location \"{outer_name}\""),
            ),
            LocationKind::Named => self.error(
                statement.span,
                format!("named location \"{name}\" can be on the server level only"),
            ),
            // nginx: also of an expression's text, so that only expressions fit inside of one.
            LocationKind::Exact | LocationKind::Prefix(_) if !name.starts_with(&outer_name) => {
                self.error(
                    statement.span,
                    format!("location \"{name}\" is outside location \"{outer_name}\""),
                );
            }
            _ => {}
        }
    }

    fn internal(&mut self, statement: &Statement, draft: &mut Draft) {
        if std::mem::replace(&mut draft.is_internal, true) {
            self.error(statement.span, "\"internal\" directive is duplicate");
        }
    }

    fn finish(mut self, _tree: &Tree) -> (Option<Conf>, ParseContext) {
        let bindings = listen::bindings(&mut self.cx, &self.servers);
        let main = MainSettings::resolve(&[&self.main], &mut self.cx);
        limit_zone::check_uses(&mut self);
        let variables = self.variables();
        self.check_zones();
        if self.cx.diagnostics.has_errors() {
            return (None, self.cx);
        }
        let conf = Conf {
            main,
            bindings: bindings.into_iter().map(Arc::new).collect(),
            variables,
            zones: Zones::default(),
            uses_upstream_fields: self.has_ssi
                || self.uses_family("upstream_http_")
                || self.uses_family("upstream_cookie_"),
            uses_cache_hits: self.cx.variables.lookup("cache_hits").is_some(),
            uses_freshness: self.uses_any(&["cache_age", "cache_ttl"]),
            uses_proxy_host: self.uses_any(&["proxy_host", "proxy_port"]),
            uses_real_ip: self.has_real_ip,
            uses_foreign_sources: self.has_foreign_source,
            reading: self.reading,
            uses_slices: self.cx.variables.lookup("slice_range").is_some(),
            declared: self.declared,
        };
        (Some(conf), self.cx)
    }

    /// True when one of some variables may be used anywhere: pages with commands may name any.
    fn uses_any(&self, names: &[&str]) -> bool {
        let is_used = |name: &&str| self.cx.variables.lookup(name).is_some();
        self.has_ssi || names.iter().any(is_used)
    }

    /// True when a variable of a family is used anywhere.
    fn uses_family(&self, prefix: &str) -> bool {
        let variables = &self.cx.variables;
        let mut ids = (0..variables.len()).map(|number| VarId(number as u32));
        ids.any(|id| variables.name(id).starts_with(prefix))
    }

    /// Zones that are named must be declared; each place is reported once.
    fn check_zones(&mut self) {
        let mut reported = HashSet::new();
        let zones = self.declared.zones.iter();
        let known: HashSet<Vec<u8>> = zones.map(|zone| zone.name.as_bytes().to_vec()).collect();
        let caches = std::mem::take(&mut self.zones_used).into_iter();
        let caches = caches.filter_map(|used| {
            let name = used.zone.as_literal()?.to_vec();
            Some((used.protocol, name, used.span))
        });
        let purges = std::mem::take(&mut self.purged_zones).into_iter();
        let purges = purges.map(|(protocol, location)| {
            (protocol, location.zone.clone().into_bytes(), location.span)
        });
        for (protocol, name, span) in caches.chain(purges) {
            if !known.contains(&name) && reported.insert(span) {
                let prefix = protocol.prefix();
                let name = String::from_utf8_lossy(&name).into_owned();
                let message = format!("\"{prefix}_cache\" zone \"{name}\" is unknown");
                self.coded(span, code::UNKNOWN_ZONE, message);
            }
        }
    }

    /// Reports a variable that nobody defines.
    fn unknown_variable(&mut self, name: &str, span: Span) {
        let message = format!("unknown \"{name}\" variable");
        let variables = &self.cx.variables;
        let defined = self.defined.keys().map(|id| variables.name(*id));
        let mut names: Vec<&str> = defined.collect();
        names.sort_unstable();
        names.extend(var::names());
        let near =
            millpond_conf::suggest(name, names).map(|near| format!("did you mean \"${near}\"?"));
        let error = self.cx.diagnostics.push_error(span, message);
        error.code(code::UNKNOWN_VARIABLE);
        if let Some(reason) = var::absent::refusal(name) {
            error.help(reason);
        } else if let Some(near) = near {
            error.help(near);
        }
    }

    /// Gives every used name its meaning and reports those without one.
    fn variables(&mut self) -> VariableTable {
        let names: Vec<String> = (0..self.cx.variables.len())
            .map(|number| self.cx.variables.name(VarId(number as u32)).to_string())
            .collect();
        let defined = &self.defined;
        let (table, unknown) = VariableTable::build(names.iter().map(String::as_str), |id| {
            defined.get(&id).cloned()
        });
        let uses: Vec<(VarId, Span)> = self.cx.variables.uses().collect();
        for (id, span) in uses {
            // Defaults name variables, too; those are ours to get right.
            if unknown.contains(&id) && span != Span::NONE {
                let name = names.get(id.0 as usize).cloned().unwrap_or_default();
                self.unknown_variable(&name, span);
            }
        }
        table
    }
}

/// All settings of all scopes.
pub fn all_directives() -> &'static [millpond_conf::Directive] {
    static ALL: LazyLock<Vec<millpond_conf::Directive>> = LazyLock::new(|| {
        let mut all = LocationSettings::directives();
        all.extend(ServerSettings::directives());
        all.extend(MainSettings::directives());
        all
    });
    &ALL
}

fn glued_modifier(text: &str) -> &str {
    ["=", "^~", "~*", "~"]
        .into_iter()
        .find(|modifier| text.starts_with(modifier))
        .unwrap_or("")
}
