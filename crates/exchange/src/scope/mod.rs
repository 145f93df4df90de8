//! The walk over the blocks of a configuration, without any directive of its own.
//!
//! ```text
//! statement ─► row of the tables? ─► its function
//!          └─► the setting of a family, or a mistake (`Tables::setting`)
//! ```
//!
//! What a directive declares is kept in `slots::Slots`: those of the [`build::Builder`] last as
//! long as the walk, those of a [`block::Draft`] as long as its block. A slot belongs to whoever
//! has its type, so that the walk knows none of them.
//!
//! Invariant: nothing of this module names a family, a handler or a variable. The tables are handed
//! in from `directives`.

pub mod block;
pub mod build;
pub mod code;
pub mod lines;
pub mod parts;
pub mod slots;
