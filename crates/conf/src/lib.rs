//! The configuration language: text to a tree with spans to typed, merged settings.
//!
//! How a configuration becomes settings:
//!
//! 1. [`load()`] reads the main file and what it includes (`include`), cuts each into words
//!    (`lex`) and the words into statements (`parse`). The result is a [`Tree`].
//! 2. The program walks the blocks. In each it hands every simple statement to a [`Scope`], which
//!    finds the [`Family`] that declares the directive; the field's type ([`FromArgs`]) reads the
//!    words. What a block set is its *raw* settings.
//! 3. `resolve` merges the raw settings from the outermost block to the innermost and fills the
//!    rest with the defaults.
//!
//! Invariants:
//!
//! 1. No input makes this crate panic; every mistake is a [`Diagnostic`] that names its place, and
//!    reading goes on behind it so that all mistakes are reported at once.
//! 2. Everything that the operator wrote keeps its [`Span`], up to the use of a variable.
//! 3. A directive is declared once, by a field in the file that obeys it; its manual entry, its
//!    grammar, its default and its place in the tables come from that field.
//!
//! What it does not do: it knows no HTTP and no directive but `include`; it opens nothing but
//! configuration files.

extern crate self as millpond_conf;

pub mod code;
pub(crate) mod context;
#[doc(hidden)]
pub mod derived;
pub(crate) mod diagnostic;
pub(crate) mod dump;
pub(crate) mod files;
pub(crate) mod foreign;
pub(crate) mod glob;
pub(crate) mod include;
pub(crate) mod lex;
pub mod load;
pub(crate) mod parse;
pub mod render;
pub mod schema;
pub mod shared;
pub mod source;
pub mod suggest;
pub mod tree;
pub mod value;
pub mod variable;
pub(crate) mod written;

pub use millpond_conf_derive::{Family, FamilyGroup, Scope, Words};

pub use code::Code;
pub use context::ParseContext;
pub use diagnostic::{Diagnostic, Diagnostics, Replacement, Severity};
pub use dump::read_dump;
pub use files::{Files, Seen};
pub use load::{LoadOptions, load, load_beside, load_text};
pub use render::{Style, one_line};
pub use schema::{Applied, Contexts, Directive, Family, Scope, Table, check_table};
pub use shared::{SharedZones, Side};
pub use source::{FileId, Place, Source, SourceKind, Sources, Span};
pub use suggest::suggest;
pub use tree::{Statement, Tree, Word};
pub use value::{
    ArgError, Args, Buffers, ByteSize, ConfPath, Flags, FromArgs, FromWord, OffOr, Offset, Part,
    Present, Spanned, Template, TemplateError, WordError, Words,
};
pub use variable::{VarId, VariableUses};
pub use written::{Written, written};
