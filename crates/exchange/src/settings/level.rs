//! Levels of the walk: the raw settings of the blocks around a line, and the end of a block.
//!
//! A family that has to do more than to read its lines brings a hook: a function that is in the
//! table of `directives/table.rs` and gets the level at its end ([`Closing`]). There it checks what
//! its lines mean together, settles what another family changes, and puts what requests need into
//! the slots of the draft. [`close`] runs the hooks and makes the [`Location`].
//!
//! Invariants:
//! 1. [`Levels`] holds the raw settings of the enclosing blocks, outermost first, while a block is
//!    walked.
//! 2. Hooks run in the order of their table: one that gives a block its handler stands before those
//!    that ask for it.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::source::Span;
use millpond_conf::tree::Statement;
use millpond_conf::{Applied, Contexts, Directive, Family, ParseContext, Scope};

use super::Location;
use super::location::{LocationSettings, LocationSettingsRaw};
use super::room::Room;
use super::server::{ServerSettings, ServerSettingsRaw};
use crate::scope::block::Draft;
use crate::scope::build::Builder;
use crate::scope::parts::{Part, Parts};
use crate::scope::slots::Slots;
use crate::settings::tree::{LocationKind, LocationTree};
use crate::trace::policy::TracePolicy;

/// Raw settings of one block.
#[derive(Default)]
pub struct Level {
    /// The lines of families that are no module's above.
    location: LocationSettingsRaw,
    server: ServerSettingsRaw,
    /// The lines of rooms, and of families that have a slot of their own.
    own: Slots,
    /// The path of a location, which an alias replaces; none for a regular expression.
    pub path: Option<Bytes>,
}

/// The blocks around a line, outermost first.
#[derive(Default)]
pub struct Levels(pub Vec<Level>);

/// A hook that checks the lines of one block by themselves.
pub type Check = fn(&mut Builder, &Level, &Draft);

/// A hook that settles a block at its end.
pub type Close = fn(&mut Closing<'_>);

/// A family with a slot of its own: it stands in no table of settings, and a hook asks for what it
/// says ([`Closing::own`]).
#[derive(Clone, Copy)]
pub struct OwnFamily {
    /// The records of its directives.
    pub directives: fn() -> Vec<Directive>,
    apply: fn(&mut Slots, &Statement, Contexts, &mut ParseContext) -> Applied,
}

impl OwnFamily {
    /// The record of a family.
    pub const fn of<F>() -> OwnFamily
    where
        F: Family,
        F::Raw: Any,
    {
        OwnFamily {
            directives: || F::directives(PROTOCOL),
            apply: |slots, statement, context, cx| {
                F::apply(slots.of(), PROTOCOL, statement, context, cx)
            },
        }
    }
}

/// The protocol that directives are named after which are there once for each of them; those of
/// other families do not ask.
pub(super) const PROTOCOL: &str = "proxy";

/// The hooks of all families.
#[derive(Clone, Copy, Default)]
pub struct Hooks {
    /// Rooms of locations.
    pub rooms: &'static [Room],
    /// Rooms of servers.
    pub server_rooms: &'static [Room],
    /// Families with a slot of their own.
    pub families: &'static [OwnFamily],
    /// Checks of the lines of a block, the http block among them.
    pub check: &'static [Check],
    /// Ends of servers, locations, and blocks inside of them.
    pub close: &'static [Close],
    /// The things that lines declare for requests ([`keep`]).
    pub parts: &'static [fn(&mut Draft, &mut Parts)],
}

impl Hooks {
    /// The hooks that a walk was given.
    pub fn of(builder: &Builder) -> Hooks {
        builder.get().copied().unwrap_or_default()
    }
}

/// A block at its end.
pub struct Closing<'a> {
    /// The state of the walk.
    pub builder: &'a mut Builder,
    /// The things that lines of the block have declared.
    pub draft: &'a mut Draft,
    /// The merged settings.
    pub settings: &'a mut LocationSettings,
    /// The block and those around it, outermost first; not empty.
    pub levels: &'a [Level],
    /// The kind of the location.
    pub kind: &'a LocationKind,
}

impl Closing<'_> {
    /// The settings of a family with a slot of its own, merged.
    pub fn own<F>(&mut self) -> F
    where
        F: Family,
        F::Raw: Any,
    {
        let levels = self.levels.iter();
        let raws: Vec<&F::Raw> = levels.filter_map(|level| level.own.get()).collect();
        F::resolve(&raws, &mut self.builder.cx)
    }

    /// The same, of each block by itself, the outermost first.
    pub fn own_of_each<F>(&mut self) -> Vec<F>
    where
        F: Family,
        F::Raw: Any,
    {
        let levels = self.levels.iter();
        let raws: Vec<&F::Raw> = levels.filter_map(|level| level.own.get()).collect();
        let mut resolved = raws
            .iter()
            .map(|raw| F::resolve(&[*raw], &mut self.builder.cx));
        resolved.by_ref().collect()
    }

    /// The place of a directive of such a family: the innermost line.
    pub fn span_of_own<F>(&self, name: &str) -> Option<Span>
    where
        F: Family,
        F::Raw: Any,
    {
        let mut raws = self.levels.iter().rev().filter_map(|level| level.own.get());
        raws.find_map(|raw: &F::Raw| F::span_of(raw, PROTOCOL, name))
    }

    /// The place of a directive among the lines of the block itself.
    pub fn own_span(&self, name: &str) -> Option<Span> {
        let hooks = Hooks::of(self.builder);
        self.levels.last()?.span_of(&hooks, name)
    }

    /// Reports a mistake at a place, once: blocks inside of the one that has it find it again.
    pub fn error_once(&mut self, span: Span, message: impl Into<String>) {
        let known = &self.builder.cx.diagnostics;
        if !known.iter().any(|it| it.span == Some(span)) {
            self.builder.error(span, message);
        }
    }

    /// The place of the block.
    pub fn span(&self) -> Span {
        self.draft.span.unwrap_or(Span::NONE)
    }
}

impl Level {
    /// The lines of a room; none where the block has none.
    pub fn raw<S>(&self) -> Option<&S::Raw>
    where
        S: Scope,
        S::Raw: Any,
    {
        self.own.get()
    }

    /// The lines of a family that is a room, or has a slot of its own.
    pub(super) fn of_family<F>(&self) -> Option<&F::Raw>
    where
        F: Family,
        F::Raw: Any,
    {
        self.own.get()
    }

    /// The place of a directive among the lines of the block.
    pub fn span_of(&self, hooks: &Hooks, name: &str) -> Option<Span> {
        let of_room = |room: &Room| room.span_of(self, name);
        LocationSettings::span_of(&self.location, name)
            .or_else(|| hooks.rooms.iter().find_map(of_room))
    }
}

impl Levels {
    /// Obeys the setting of a family of the innermost block.
    pub fn apply(
        &mut self,
        hooks: &Hooks,
        (statement, context): (&Statement, Contexts),
        cx: &mut ParseContext,
    ) -> Applied {
        let Some(level) = self.0.last_mut() else {
            return Applied::Unknown;
        };
        let applied = LocationSettings::apply(&mut level.location, statement, context, cx);
        if applied == Applied::Done
            || ServerSettings::apply(&mut level.server, statement, context, cx) == Applied::Done
        {
            return Applied::Done;
        }
        let rooms = hooks.rooms.iter().chain(hooks.server_rooms);
        let mut applied = rooms.map(|it| it.apply(&mut level.own, (statement, context), cx));
        applied
            .find(|applied| *applied == Applied::Done)
            .unwrap_or(Applied::Unknown)
    }

    /// Obeys a setting of the innermost block, of one of the families with slots of their own.
    pub fn apply_own(
        &mut self,
        families: &[OwnFamily],
        (statement, context): (&Statement, Contexts),
        cx: &mut ParseContext,
    ) -> Applied {
        let Some(level) = self.0.last_mut() else {
            return Applied::Unknown;
        };
        let mut applied = families
            .iter()
            .map(|it| (it.apply)(&mut level.own, statement, context, cx));
        applied
            .find(|applied| *applied == Applied::Done)
            .unwrap_or(Applied::Unknown)
    }

    /// Settings of a server, merged, and those of rooms.
    pub fn server(&self, hooks: &Hooks, cx: &mut ParseContext) -> (ServerSettings, Parts) {
        let raws: Vec<&ServerSettingsRaw> = self.0.iter().map(|level| &level.server).collect();
        let mut parts = Parts::default();
        for room in hooks.server_rooms {
            room.merge(&self.0, cx, &mut parts);
        }
        (ServerSettings::resolve(&raws, cx), parts)
    }

    /// Settings of the innermost block, merged.
    pub fn location(&self, hooks: &Hooks, cx: &mut ParseContext) -> LocationSettings {
        let raws: Vec<&LocationSettingsRaw> = self.0.iter().map(|level| &level.location).collect();
        let mut settings = LocationSettings::resolve(&raws, cx);
        for room in hooks.rooms {
            room.merge(&self.0, cx, &mut settings.rooms);
        }
        settings
    }
}

/// Walks a block inside a server into a location of its own.
pub fn nested(
    builder: &mut Builder,
    statement: &Statement,
    mut draft: Draft,
    kind: LocationKind,
) -> Location {
    let path = match &kind {
        LocationKind::Regex(_) => None,
        _ => Some(Bytes::from(draft.name.clone())),
    };
    builder.of::<Levels>().0.push(Level {
        path,
        ..Level::default()
    });
    builder.walk(statement.body.as_deref().unwrap_or_default(), &mut draft);
    close(builder, draft, kind)
}

/// Merges the settings of the innermost level, runs the hooks and leaves it.
pub fn close(builder: &mut Builder, mut draft: Draft, kind: LocationKind) -> Location {
    let mut levels: Levels = builder.take();
    let hooks = Hooks::of(builder);
    let mut settings = levels.location(&hooks, &mut builder.cx);
    if let Some(level) = levels.0.last() {
        check(builder, level, &draft);
    }
    let mut closing = Closing {
        builder,
        draft: &mut draft,
        settings: &mut settings,
        levels: &levels.0,
        kind: &kind,
    };
    for hook in hooks.close {
        hook(&mut closing);
    }
    levels.0.pop();
    builder.put(levels);
    location(&hooks, draft, kind, settings)
}

/// Runs the checks of the lines of one block.
pub fn check(builder: &mut Builder, lines: &Level, draft: &Draft) {
    for hook in Hooks::of(builder).check {
        hook(builder, lines, draft);
    }
}

/// Keeps what lines of a block have declared, if anything, as a part of its location.
pub fn keep<T: Part>(draft: &mut Draft, parts: &mut Parts) {
    if let Some(value) = draft.take::<T>() {
        parts.put(value);
    }
}

/// Mark of a block that passes its requests on.
pub struct Proxies;

/// The filters that may have something to do for answers of a location; the others are passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct DueFilters {
    /// True if fields are replaced or removed.
    pub edits: bool,
    /// True if fields or trailers are added.
    pub adds: bool,
    /// True if trailers are added.
    pub adds_trailers: bool,
    /// True if clients get cookies that tell them apart.
    pub marks_clients: bool,
    /// True if texts may be changed, or compressed.
    pub may_change_text: bool,
    /// True if texts are changed, so that stored encodings are not what clients are to get. (A
    /// charset that is only named changes no text.)
    pub changes_stored_text: bool,
}

/// Takes out of the draft what requests need.
fn location(
    hooks: &Hooks,
    mut draft: Draft,
    kind: LocationKind,
    settings: LocationSettings,
) -> Location {
    let mut parts = Parts::default();
    for keep in hooks.parts {
        keep(&mut draft, &mut parts);
    }
    let Children(children) = draft.take().unwrap_or_default();
    Location {
        due: draft.take::<Due>().unwrap_or_default(),
        kind,
        settings,
        parts,
        children: LocationTree::build(children),
        filters: draft.take().unwrap_or_default(),
        redirects_slashless: draft.name.ends_with('/') && draft.has::<Proxies>(),
        otel: draft.take::<Arc<TracePolicy>>(),
        limit_except: draft.take(),
        is_internal: draft.is_internal,
        is_server: false,
        is_limit: false,
        span: draft.span.unwrap_or(Span::NONE),
        name: Bytes::from(draft.name.into_bytes()),
    }
}

/// The handlers of phases that may have something to do for requests of a location: a bit for each,
/// by the handler's place in the row of all. The others are passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Due(u16);

impl Due {
    /// The most handlers that there can be.
    pub const BITS: usize = u16::BITS as usize;

    /// The same with one more, by its place, which is less than [`Self::BITS`].
    pub fn with(self, place: usize) -> Due {
        Due(self.0 | 1 << place)
    }

    /// The place of the first one from a place on; one that is in no row when there is none.
    pub fn next(self, from: usize) -> usize {
        // There are fewer handlers than bits, so a place can be shifted by.
        (u32::from(self.0) >> from).trailing_zeros() as usize + from
    }
}

/// Locations inside of a block.
#[derive(Default)]
pub struct Children(pub Vec<Arc<Location>>);
