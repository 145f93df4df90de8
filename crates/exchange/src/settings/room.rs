//! Rooms: the settings of the modules above, which merge them without being named here.
//!
//! A module with families has one struct of them, which is a [`Part`] of the servers or locations
//! that it is merged for. A table at the top has a [`Room`] for each.

use std::any::Any;

use millpond_conf::source::Span;
use millpond_conf::tree::Statement;
use millpond_conf::{Applied, Contexts, Directive, Family, ParseContext, Scope};

use super::level::{Level, PROTOCOL};
use crate::scope::parts::{Part, Parts};
use crate::scope::slots::Slots;

/// The functions by which a walk reads and merges the settings of a module.
#[derive(Clone, Copy)]
pub struct Room {
    /// The records of its directives.
    pub directives: fn() -> Vec<Directive>,
    apply: fn(&mut Slots, &Statement, Contexts, &mut ParseContext) -> Applied,
    merge: fn(&[Level], &mut ParseContext, &mut Parts),
    span_of: fn(&Level, &str) -> Option<Span>,
}

impl Room {
    /// The room of several families.
    pub const fn of<S>() -> Room
    where
        S: Scope + Part,
        S::Raw: Any,
    {
        Room {
            directives: S::directives,
            apply: |slots, statement, context, cx| S::apply(slots.of(), statement, context, cx),
            merge: |levels, cx, parts| {
                let none = S::Raw::default();
                let raws = levels.iter().map(|it| it.raw::<S>().unwrap_or(&none));
                parts.put(S::resolve(&raws.collect::<Vec<_>>(), cx));
            },
            span_of: |level, name| S::span_of(level.raw::<S>()?, name),
        }
    }

    /// The room of one family.
    pub const fn of_family<F>() -> Room
    where
        F: Family + Part,
        F::Raw: Any,
    {
        Room {
            directives: || F::directives(PROTOCOL),
            apply: |slots, statement, context, cx| {
                F::apply(slots.of(), PROTOCOL, statement, context, cx)
            },
            merge: |levels, cx, parts| {
                let none = F::Raw::default();
                let raws = levels.iter().map(|it| it.of_family::<F>().unwrap_or(&none));
                parts.put(F::resolve(&raws.collect::<Vec<_>>(), cx));
            },
            span_of: |level, name| F::span_of(level.of_family::<F>()?, PROTOCOL, name),
        }
    }

    /// Obeys a line of a block; unknown where none of the families has it.
    pub(super) fn apply(
        &self,
        level: &mut Slots,
        (statement, context): (&Statement, Contexts),
        cx: &mut ParseContext,
    ) -> Applied {
        (self.apply)(level, statement, context, cx)
    }

    /// Merges the lines of blocks, the outermost first, into a part.
    pub(super) fn merge(&self, levels: &[Level], cx: &mut ParseContext, parts: &mut Parts) {
        (self.merge)(levels, cx, parts);
    }

    /// The place of a directive among the lines of a block.
    pub(super) fn span_of(&self, level: &Level, name: &str) -> Option<Span> {
        (self.span_of)(level, name)
    }
}
