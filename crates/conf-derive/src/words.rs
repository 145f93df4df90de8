//! `#[derive(Words)]`: an enum of unit variants, each with its `#[word("...")]`.
//!
//! The words in the order of declaration become a table, from which the values are read, printed
//! and put into sets.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Result, Variant};

use crate::field::attributes;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "only enums are known words"));
    };
    let words = data.variants.iter().map(word).collect::<Result<Vec<_>>>()?;
    let variants = data.variants.iter().map(|variant| &variant.ident);
    let syntax: Vec<_> = words.iter().map(LitStr::value).collect();
    let syntax = syntax.join(" | ");
    let name = &input.ident;
    Ok(quote! {
        impl ::millpond_conf::Words for #name {
            const WORDS: &'static [(&'static str, Self)] = &[#((#words, Self::#variants)),*];
            const SYNTAX: &'static str = #syntax;
        }

        impl ::millpond_conf::FromWord for #name {
            const SYNTAX: &'static str = #syntax;

            fn from_word(
                word: &::millpond_conf::Word,
                cx: &mut ::millpond_conf::ParseContext,
            ) -> ::std::result::Result<Self, ::millpond_conf::WordError> {
                ::millpond_conf::derived::one_word(word, cx)
            }
        }
    })
}

fn word(variant: &Variant) -> Result<LitStr> {
    let fail = |message| Err(Error::new(variant.ident.span(), message));
    if !matches!(variant.fields, Fields::Unit) {
        return fail("a known word has no fields");
    }
    match attributes(&variant.attrs, "word").next() {
        Some(attribute) => attribute.parse_args(),
        None => fail("a known word needs #[word(\"...\")]"),
    }
}
