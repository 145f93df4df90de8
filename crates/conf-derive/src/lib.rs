//! The derives of the configuration language: `Family`, `FamilyGroup`, `Scope` and `Words`.
//!
//! They turn a declaration into records and dispatch; all behaviour is in `millpond_conf`, whose
//! hidden module `derived` the generated code calls.
//!
//! ```text
//! #[derive(Family)]
//! #[family(http, server, location)]          contexts of all fields; `protocols`: see below
//! pub struct LockPolicy {
//!     /// The manual text. It is required.
//!     #[directive(name = "proxy_cache_lock", default = "off")]
//!     pub enabled: bool,
//! ```
//!
//! A field's `#[directive(...)]` takes:
//!
//! | word | meaning |
//! |---|---|
//! | `name = "..."` | the directive's name |
//! | `default = "..."` | its arguments where it is not written; without it the field is an `Option` |
//! | `syntax = "..."` | its arguments in the manual, where the type's syntax says too little |
//! | `contexts(...)` | where it may stand, instead of the family's contexts |
//! | `repeat` | each occurrence adds to the field, a `Vec`; an inner list replaces the outer one |
//! | `last` | a later occurrence replaces an earlier one in the same block |
//! | `union` | later occurrences add their words or values to those of the same block |
//! | `block` | it opens a block, which `Args::body` holds |
//! | `skip` | no directive: the field is `Default::default()` |
//! | `only("fastcgi", …)` | the protocols that have it; with others the field is its default |
//!
//! `#[family(protocols)]` names directives with `proxy_`; a field of a scope that has
//! `#[protocol("fastcgi")]` knows them under `fastcgi_`. `FamilyGroup` joins families to one, so that
//! a scope names what a protocol has in one field; `#[only("memcached", connect)]` on it names those
//! of its fields whose directives a protocol has, where it does not have all.
//!
//! What they do not do: they check no value; a test over the table does that.

mod family;
mod field;
mod group;
mod scope;
#[cfg(test)]
mod tests;
mod words;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Declares the directives that a struct of settings is made from.
#[proc_macro_derive(Family, attributes(family, directive))]
pub fn family(input: TokenStream) -> TokenStream {
    expand(parse_macro_input!(input as DeriveInput), family::derive)
}

/// Joins families to one family.
#[proc_macro_derive(FamilyGroup, attributes(only))]
pub fn family_group(input: TokenStream) -> TokenStream {
    expand(parse_macro_input!(input as DeriveInput), group::derive)
}

/// Joins families into what one kind of block knows.
#[proc_macro_derive(Scope, attributes(protocol, scope))]
pub fn scope(input: TokenStream) -> TokenStream {
    expand(parse_macro_input!(input as DeriveInput), scope::derive)
}

/// Makes an enum the value of a directive that takes one of several words.
#[proc_macro_derive(Words, attributes(word))]
pub fn words(input: TokenStream) -> TokenStream {
    expand(parse_macro_input!(input as DeriveInput), words::derive)
}

fn expand(
    input: DeriveInput,
    derive: fn(&DeriveInput) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    derive(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
