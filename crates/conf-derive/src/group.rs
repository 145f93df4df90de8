//! `#[derive(FamilyGroup)]`: several families as one.
//!
//! The group is a family itself: its raw twin holds those of its fields, and every call goes to the
//! fields in their order until one of them knows the directive. All get the protocol of the group.
//! `#[only("memcached", connect, next)]` says that with this protocol the others have no directives;
//! what they hold is their defaults.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{DeriveInput, Error, Ident, LitStr, Result, Token, Type};

use crate::field::{attributes, fields};

/// Words of `#[only(...)]`.
struct Only {
    protocol: LitStr,
    families: Vec<Ident>,
}

impl Parse for Only {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let protocol = input.parse()?;
        input.parse::<Token![,]>()?;
        let families = Punctuated::<Ident, Token![,]>::parse_terminated(input)?;
        Ok(Only {
            protocol,
            families: families.into_iter().collect(),
        })
    }
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let all = fields(input)?;
    let idents: Vec<_> = all
        .iter()
        .filter_map(|field| field.ident.as_ref())
        .collect();
    let types: Vec<_> = all.iter().map(|field| &field.ty).collect();
    let known = known(input, &idents)?;
    let (name, vis) = (&input.ident, &input.vis);
    let raw = format_ident!("{name}Raw");
    let span_of = span_of(&idents, &types, &raw);
    Ok(quote! {
        #[doc(hidden)]
        #[derive(Default)]
        #vis struct #raw { #(#idents: <#types as ::millpond_conf::Family>::Raw,)* }

        impl ::millpond_conf::Family for #name {
            type Raw = #raw;

            fn directives(protocol: &'static str) -> ::std::vec::Vec<::millpond_conf::Directive> {
                let mut all = ::std::vec::Vec::new();
                #(if #known {
                    all.extend(<#types as ::millpond_conf::Family>::directives(protocol));
                })*
                all
            }

            fn apply(
                raw: &mut #raw,
                protocol: &str,
                st: &::millpond_conf::Statement,
                context: ::millpond_conf::Contexts,
                cx: &mut ::millpond_conf::ParseContext,
            ) -> ::millpond_conf::Applied {
                #(if #known {
                    let applied = <#types as ::millpond_conf::Family>::apply(
                        &mut raw.#idents, protocol, st, context, cx,
                    );
                    if applied == ::millpond_conf::Applied::Done {
                        return applied;
                    }
                })*
                ::millpond_conf::Applied::Unknown
            }

            fn resolve(
                outer_to_inner: &[&#raw],
                cx: &mut ::millpond_conf::ParseContext,
            ) -> Self {
                Self {
                    #(#idents: <#types as ::millpond_conf::Family>::resolve(
                        &outer_to_inner
                            .iter()
                            .map(|raw| &raw.#idents)
                            .collect::<::std::vec::Vec<_>>(),
                        cx,
                    ),)*
                }
            }

            #span_of
        }
    })
}

/// Tests for each family whether its directives are there with a protocol.
fn known(input: &DeriveInput, idents: &[&Ident]) -> Result<Vec<TokenStream>> {
    let rules = attributes(&input.attrs, "only").map(|attribute| attribute.parse_args::<Only>());
    let rules = rules.collect::<Result<Vec<_>>>()?;
    let mut named = rules.iter().flat_map(|rule| &rule.families);
    if let Some(unknown) = named.find(|name| !idents.contains(name)) {
        return Err(Error::new(unknown.span(), "no field has this name"));
    }
    let test = |ident: &&Ident| {
        let without = rules.iter().filter(|rule| !rule.families.contains(ident));
        let without = without.map(|rule| &rule.protocol);
        quote!(true #(&& protocol != #without)*)
    };
    Ok(idents.iter().map(test).collect())
}

/// The first family that has the directive knows its place.
fn span_of(idents: &[&Ident], types: &[&Type], raw: &Ident) -> TokenStream {
    quote! {
        fn span_of(
            raw: &#raw,
            protocol: &str,
            name: &str,
        ) -> ::std::option::Option<::millpond_conf::Span> {
            #(
                let span = <#types as ::millpond_conf::Family>::span_of(
                    &raw.#idents, protocol, name,
                );
                if span.is_some() {
                    return span;
                }
            )*
            ::std::option::Option::None
        }
    }
}
