//! `#[derive(Scope)]`: several families as what one kind of block knows.
//!
//! A name finds its family by a table that is made at the first use. A field with
//! `#[scope(skip)]` is no family and is `Default::default()`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{DeriveInput, Field, Ident, LitStr, Result, Type, Visibility};

use crate::field::{attributes, fields};

struct FamilyField<'a> {
    ident: &'a Ident,
    visibility: &'a Visibility,
    ty: &'a Type,
    protocol: String,
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let mut families = Vec::new();
    let mut skipped = Vec::new();
    for field in fields(input)? {
        match read(field)? {
            Some(family) => families.push(family),
            None => skipped.extend(&field.ident),
        }
    }
    let (name, vis) = (&input.ident, &input.vis);
    let raw = format_ident!("{name}Raw");
    let idents: Vec<_> = families.iter().map(|family| family.ident).collect();
    let visibilities = families.iter().map(|family| family.visibility);
    let types: Vec<_> = families.iter().map(|family| family.ty).collect();
    let protocols: Vec<_> = families.iter().map(|family| &family.protocol).collect();
    let indices = 0..families.len();
    let resolve = resolve(&families, &raw, &skipped);
    let span_of = span_of(&families, &raw);
    let tables = quote! {
        ::std::vec![#(<#types as ::millpond_conf::Family>::directives(#protocols)),*]
    };
    let index_type = quote! {
        ::std::collections::HashMap<::std::borrow::Cow<'static, str>, ::std::primitive::usize>
    };
    Ok(quote! {
        #[doc(hidden)]
        #[derive(Default)]
        #vis struct #raw { #(#visibilities #idents: <#types as ::millpond_conf::Family>::Raw,)* }

        impl ::millpond_conf::Scope for #name {
            type Raw = #raw;

            fn directives() -> ::std::vec::Vec<::millpond_conf::Directive> {
                let tables: ::std::vec::Vec<::std::vec::Vec<::millpond_conf::Directive>> = #tables;
                tables.into_iter().flatten().collect()
            }

            fn apply(
                raw: &mut #raw,
                st: &::millpond_conf::Statement,
                context: ::millpond_conf::Contexts,
                cx: &mut ::millpond_conf::ParseContext,
            ) -> ::millpond_conf::Applied {
                static INDEX: ::std::sync::OnceLock<#index_type> = ::std::sync::OnceLock::new();
                let index = INDEX.get_or_init(|| ::millpond_conf::derived::index(#tables));
                let _ = (&raw, context, &cx);
                match index.get(st.name.text.as_str()) {
                    #(::std::option::Option::Some(&#indices) => {
                        <#types as ::millpond_conf::Family>::apply(
                            &mut raw.#idents, #protocols, st, context, cx,
                        )
                    })*
                    _ => ::millpond_conf::Applied::Unknown,
                }
            }

            #resolve
            #span_of
        }
    })
}

/// Every family merges its part of the raw settings.
fn resolve(families: &[FamilyField<'_>], raw: &Ident, skipped: &[&Ident]) -> TokenStream {
    let idents: Vec<_> = families.iter().map(|family| family.ident).collect();
    let types = families.iter().map(|family| family.ty);
    quote! {
        fn resolve(outer_to_inner: &[&#raw], cx: &mut ::millpond_conf::ParseContext) -> Self {
            let _ = (outer_to_inner, &cx);
            Self {
                #(#idents: <#types as ::millpond_conf::Family>::resolve(
                    &outer_to_inner
                        .iter()
                        .map(|raw| &raw.#idents)
                        .collect::<::std::vec::Vec<_>>(),
                    cx,
                ),)*
                #(#skipped: ::std::default::Default::default(),)*
            }
        }
    }
}

/// The first family that has the directive knows its place.
fn span_of(families: &[FamilyField<'_>], raw: &Ident) -> TokenStream {
    let idents = families.iter().map(|family| family.ident);
    let types = families.iter().map(|family| family.ty);
    let protocols = families.iter().map(|family| &family.protocol);
    quote! {
        fn span_of(raw: &#raw, name: &str) -> ::std::option::Option<::millpond_conf::Span> {
            let _ = (raw, name);
            #(
                let span = <#types as ::millpond_conf::Family>::span_of(
                    &raw.#idents, #protocols, name,
                );
                if span.is_some() {
                    return span;
                }
            )*
            ::std::option::Option::None
        }
    }
}

fn read(field: &Field) -> Result<Option<FamilyField<'_>>> {
    let mut protocol = String::from("proxy");
    for attribute in attributes(&field.attrs, "protocol") {
        protocol = attribute.parse_args::<LitStr>()?.value();
    }
    let mut skip = false;
    for attribute in attributes(&field.attrs, "scope") {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                skip = true;
                Ok(())
            } else {
                Err(meta.error("no word of a scope's field"))
            }
        })?;
    }
    let family = field.ident.as_ref().filter(|_| !skip);
    Ok(family.map(|ident| FamilyField {
        ident,
        visibility: &field.vis,
        ty: &field.ty,
        protocol,
    }))
}
