//! `#[derive(Family)]`: the raw twin, the records, `apply`, `resolve` and `span_of`.
//!
//! The raw twin of `LockPolicy` is `LockPolicyRaw`; it has a slot for each directive, which holds
//! the value with its place. Everything generated is a table or a call into `derived`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{DeriveInput, Field, Ident, Result};

use crate::field::{self, DirectiveField, Times, attributes, context, fields, union};

/// Words of `#[family(...)]`.
struct FamilyWords {
    contexts: TokenStream,
    protocols: bool,
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let words = family_words(input)?;
    let all = fields(input)?;
    let mut directives = Vec::new();
    let mut errors: Option<syn::Error> = None;
    for field in &all {
        match field::read(field) {
            Ok(directive) => directives.extend(directive),
            Err(error) => match &mut errors {
                Some(errors) => errors.combine(error),
                None => errors = Some(error),
            },
        }
    }
    if let Some(errors) = errors {
        return Err(errors);
    }
    let raw = format_ident!("{}Raw", input.ident);
    let twin = raw_struct(input, &raw, &directives);
    let family = family_impl(input, &raw, &words, (&all, &directives));
    Ok(quote!(#twin #family))
}

fn family_words(input: &DeriveInput) -> Result<FamilyWords> {
    let mut contexts = Vec::new();
    let mut protocols = false;
    for attribute in attributes(&input.attrs, "family") {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("protocols") {
                protocols = true;
            } else {
                contexts.push(context(&meta)?);
            }
            Ok(())
        })?;
    }
    let contexts = union(&contexts);
    Ok(FamilyWords {
        contexts,
        protocols,
    })
}

fn raw_struct(input: &DeriveInput, raw: &Ident, directives: &[DirectiveField<'_>]) -> TokenStream {
    let vis = &input.vis;
    let slots = directives.iter().map(|field| {
        let (ident, value) = (field.ident, field.value_type());
        match field.times {
            Times::Repeat => quote!(#ident: ::std::vec::Vec<::millpond_conf::Spanned<#value>>),
            _ => quote!(#ident: ::std::option::Option<::millpond_conf::Spanned<#value>>),
        }
    });
    let spans = directives.iter().map(|field| {
        let (ident, name) = (field.ident, &field.name);
        match field.times {
            Times::Repeat => quote!(#name => ::millpond_conf::derived::last_span(&self.#ident)),
            _ => quote!(#name => self.#ident.as_ref().map(|set| set.span)),
        }
    });
    quote! {
        #[doc(hidden)]
        #[derive(Clone, Default)]
        #vis struct #raw { #(#slots,)* }

        impl #raw {
            /// Place at which the block set the directive of this declared name.
            #[allow(dead_code)]
            #vis fn span_of(&self, name: &str) -> ::std::option::Option<::millpond_conf::Span> {
                match name {
                    #(#spans,)*
                    _ => ::std::option::Option::None,
                }
            }
        }
    }
}

fn family_impl(
    input: &DeriveInput,
    raw: &Ident,
    words: &FamilyWords,
    (all, directives): (&[&Field], &[DirectiveField<'_>]),
) -> TokenStream {
    let name = &input.ident;
    let records = directives.iter().map(|field| pushed_record(field, words));
    let arms = directives.iter().map(|field| arm(field, words));
    let values = all.iter().map(|field| {
        let mut found = directives.iter();
        let ident = &field.ident;
        match found.find(|directive| Some(directive.ident) == ident.as_ref()) {
            Some(directive) => resolved(directive),
            None => quote!(#ident: ::std::default::Default::default()),
        }
    });
    let declared = if words.protocols {
        quote!(&*::millpond_conf::derived::declared_name(name, protocol))
    } else {
        quote!(name)
    };
    quote! {
        impl ::millpond_conf::Family for #name {
            type Raw = #raw;

            fn directives(protocol: &'static str) -> ::std::vec::Vec<::millpond_conf::Directive> {
                let _ = protocol;
                let mut records = ::std::vec::Vec::new();
                #(#records)*
                records
            }

            fn apply(
                raw: &mut #raw,
                protocol: &str,
                st: &::millpond_conf::Statement,
                context: ::millpond_conf::Contexts,
                cx: &mut ::millpond_conf::ParseContext,
            ) -> ::millpond_conf::Applied {
                let _ = (&raw, protocol);
                let name = st.name.text.as_str();
                let here = ::millpond_conf::derived::Here { st, context, cx };
                match #declared {
                    #(#arms)*
                    _ => {
                        let _ = here;
                        return ::millpond_conf::Applied::Unknown;
                    }
                }
                #[allow(unreachable_code)]
                ::millpond_conf::Applied::Done
            }

            fn resolve(
                outer_to_inner: &[&#raw],
                cx: &mut ::millpond_conf::ParseContext,
            ) -> Self {
                let _ = (outer_to_inner, &cx);
                Self { #(#values,)* }
            }

            fn span_of(
                raw: &#raw,
                protocol: &str,
                name: &str,
            ) -> ::std::option::Option<::millpond_conf::Span> {
                let _ = protocol;
                raw.span_of(#declared)
            }
        }
    }
}

/// The statement that enters a record, for the protocols that have it.
fn pushed_record(field: &DirectiveField<'_>, words: &FamilyWords) -> TokenStream {
    let record = record(field, words);
    match known_to(field) {
        Some(known) => quote!(if #known { records.push(#record); }),
        None => quote!(records.push(#record);),
    }
}

/// The record of the manual and the tables.
fn record(field: &DirectiveField<'_>, words: &FamilyWords) -> TokenStream {
    let DirectiveField {
        name, doc, block, ..
    } = field;
    let value = field.value_type();
    let contexts = field.contexts.as_ref().unwrap_or(&words.contexts);
    let syntax = syntax(field);
    let default = match &field.default {
        Some(text) => quote!(::std::option::Option::Some(#text)),
        None => quote!(::std::option::Option::None),
    };
    let line = quote_spanned!(field.ident.span() => line!());
    let text = |text: TokenStream| {
        if words.protocols {
            quote!(::millpond_conf::derived::for_protocol(#text, protocol))
        } else {
            quote!(::std::borrow::Cow::Borrowed(#text))
        }
    };
    let (name, doc) = (text(quote!(#name)), text(quote!(#doc)));
    quote! {
        ::millpond_conf::Directive {
            name: #name,
            contexts: #contexts,
            syntax: #syntax,
            default: #default,
            doc: #doc,
            source: ::std::concat!(::std::file!(), ":", #line),
            block: #block,
            validate: ::millpond_conf::derived::validate::<#value>,
        }
    }
}

/// The test whether the protocol has the directive; none where all have it.
fn known_to(field: &DirectiveField<'_>) -> Option<TokenStream> {
    let only = &field.only;
    (!only.is_empty()).then(|| quote!([#(#only),*].contains(&protocol)))
}

fn syntax(field: &DirectiveField<'_>) -> TokenStream {
    let value = field.value_type();
    match &field.syntax {
        Some(text) => quote!(#text),
        None => quote!(<#value as ::millpond_conf::FromArgs>::SYNTAX),
    }
}

/// The arm of `apply` for one directive.
fn arm(field: &DirectiveField<'_>, words: &FamilyWords) -> TokenStream {
    let DirectiveField {
        ident, name, block, ..
    } = field;
    let contexts = field.contexts.as_ref().unwrap_or(&words.contexts);
    let syntax = syntax(field);
    let guard = known_to(field).map(|known| quote!(if #known));
    let set = match field.times {
        Times::Once => quote!(set_once),
        Times::Last => quote!(set_last),
        Times::Union => quote!(set_union),
        Times::Repeat => quote!(set_repeated),
    };
    quote! {
        #name #guard => ::millpond_conf::derived::#set(
            &mut raw.#ident,
            &::millpond_conf::derived::Rule {
                contexts: #contexts,
                block: #block,
                syntax: #syntax,
            },
            here,
        ),
    }
}

/// The value of a field from the raw settings of all blocks.
fn resolved(field: &DirectiveField<'_>) -> TokenStream {
    let DirectiveField { ident, name, .. } = field;
    let value = field.value_type();
    let default = field
        .default
        .as_ref()
        .map(|text| quote!(::millpond_conf::derived::default_of::<#value>(#name, #text, cx)));
    let value = match field.times {
        Times::Repeat => {
            let found = quote! {
                ::millpond_conf::derived::innermost_list(outer_to_inner, |raw| &raw.#ident)
            };
            match default {
                Some(default) => quote!(#found.unwrap_or_else(|| ::std::vec![#default])),
                None => quote!(#found.unwrap_or_default()),
            }
        }
        Times::Once | Times::Last | Times::Union => {
            let found = quote! {
                ::millpond_conf::derived::innermost(outer_to_inner, |raw| raw.#ident.as_ref())
            };
            match default {
                Some(default) => quote!(#found.unwrap_or_else(|| #default)),
                None => quote!(#found.flatten()),
            }
        }
    };
    quote!(#ident: #value)
}
