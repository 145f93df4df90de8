//! Directives that are no plain setting: blocks, declarations by name, handlers. One row each.
//!
//! A row names the directive, where it may stand, and the function that obeys it while the tree is
//! walked. The function lives in the file whose code uses what it declares.

use std::any::Any;

use millpond_conf::Contexts;
use millpond_conf::source::Span;
use millpond_conf::tree::Statement;

use super::build::Builder;
use super::slots::Slots;

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
    /// True after `internal`.
    pub is_internal: bool,
    /// The things that lines of the block have declared.
    pub slots: Slots,
}

impl Draft {
    /// A block of a kind that nothing is known of but its place.
    pub fn new(context: Contexts, span: Span) -> Draft {
        Draft {
            context,
            span: Some(span),
            ..Draft::default()
        }
    }

    /// True where the URL of a pass may have a path: in a location that is found by a prefix or
    /// exactly.
    pub fn allows_pass_path(&self) -> bool {
        self.context == Contexts::LOCATION && self.has_plain_name
    }

    /// True if a line of the block has declared something of this type.
    pub fn has<T: Any>(&self) -> bool {
        self.get::<T>().is_some()
    }

    /// The thing of a type that a line of the block has declared.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.slots.get()
    }

    /// The things of a type that lines of the block have declared so far.
    pub fn of<T: Any + Default>(&mut self) -> &mut T {
        self.slots.of()
    }

    /// Declares something for the block.
    pub fn put<T: Any>(&mut self, value: T) {
        self.slots.put(value);
    }

    /// Takes out what the block has declared.
    pub fn take<T: Any>(&mut self) -> Option<T> {
        self.slots.take()
    }
}
