//! Words of `#[directive(...)]` on a field.
//!
//! Reading it also checks what can be checked without types: that there is a manual text, that a
//! directive without a default is an `Option`, and that one that repeats is a `Vec`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, GenericArgument, Ident, Lit,
    LitStr, Meta, PathArguments, Result, Token, Type,
};

/// Number of times that a directive may stand in one block, and the meaning of repetition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Once,
    Last,
    Union,
    Repeat,
}

/// A field that is a directive.
pub(crate) struct DirectiveField<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) ty: &'a Type,
    pub(crate) name: LitStr,
    pub(crate) default: Option<LitStr>,
    pub(crate) syntax: Option<LitStr>,
    pub(crate) contexts: Option<TokenStream>,
    pub(crate) times: Times,
    pub(crate) block: bool,
    /// The protocols that have it; all if empty.
    pub(crate) only: Vec<LitStr>,
    pub(crate) doc: String,
}

impl DirectiveField<'_> {
    /// The type that one occurrence is read as: the field's, or the element of its list.
    pub(crate) fn value_type(&self) -> &Type {
        match self.times {
            Times::Repeat => argument_of(self.ty, "Vec").unwrap_or(self.ty),
            Times::Once | Times::Last | Times::Union => self.ty,
        }
    }
}

/// The named fields of a struct.
pub(crate) fn fields(input: &DeriveInput) -> Result<Vec<&Field>> {
    if let Data::Struct(data) = &input.data
        && let Fields::Named(fields) = &data.fields
        && input.generics.params.is_empty()
    {
        return Ok(fields.named.iter().collect());
    }
    Err(Error::new(
        input.ident.span(),
        "only structs with named fields and without parameters hold settings",
    ))
}

/// Reads a field; none if it is skipped.
pub(crate) fn read(field: &Field) -> Result<Option<DirectiveField<'_>>> {
    let ident = field.ident.as_ref();
    let ident = ident.ok_or_else(|| Error::new(field.span(), "the field needs a name"))?;
    let mut words = AttributeWords::default();
    for attribute in attributes(&field.attrs, "directive") {
        attribute.parse_nested_meta(|meta| words.read(&meta))?;
    }
    if words.skip {
        return Ok(None);
    }
    let name = words.name.ok_or_else(|| {
        let message = "a setting needs #[directive(name = \"...\")], or skip";
        Error::new(ident.span(), message)
    })?;
    let read = DirectiveField {
        ident,
        ty: &field.ty,
        name,
        default: words.default,
        syntax: words.syntax,
        contexts: words.contexts,
        times: words.times.unwrap_or(Times::Once),
        block: words.block,
        only: words.only,
        doc: doc(&field.attrs),
    };
    check(&read)?;
    Ok(Some(read))
}

fn check(field: &DirectiveField<'_>) -> Result<()> {
    let fail = |message: &str| Err(Error::new(field.ident.span(), message));
    if field.doc.trim().is_empty() {
        return fail("a directive needs a doc comment: it is its manual text");
    }
    match field.times {
        Times::Repeat if argument_of(field.ty, "Vec").is_none() => {
            fail("the field of a directive that repeats is a Vec")
        }
        Times::Once | Times::Last | Times::Union
            if field.default.is_none() && argument_of(field.ty, "Option").is_none() =>
        {
            fail("a directive without a default needs a field of type Option")
        }
        _ => Ok(()),
    }
}

#[derive(Default)]
struct AttributeWords {
    name: Option<LitStr>,
    default: Option<LitStr>,
    syntax: Option<LitStr>,
    contexts: Option<TokenStream>,
    times: Option<Times>,
    block: bool,
    skip: bool,
    only: Vec<LitStr>,
}

impl AttributeWords {
    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let word = meta.path.require_ident()?.to_string();
        match word.as_str() {
            "name" => self.name = Some(meta.value()?.parse()?),
            "default" => self.default = Some(meta.value()?.parse()?),
            "syntax" => self.syntax = Some(meta.value()?.parse()?),
            "repeat" => self.times = Some(Times::Repeat),
            "last" => self.times = Some(Times::Last),
            "union" => self.times = Some(Times::Union),
            "block" => self.block = true,
            "skip" => self.skip = true,
            "only" => {
                let list;
                syn::parenthesized!(list in meta.input);
                let names = Punctuated::<LitStr, Token![,]>::parse_terminated(&list)?;
                self.only = names.into_iter().collect();
            }
            "contexts" => {
                let mut contexts = Vec::new();
                meta.parse_nested_meta(|meta| {
                    contexts.push(context(&meta)?);
                    Ok(())
                })?;
                self.contexts = Some(union(&contexts));
            }
            _ => return Err(meta.error("no word of a directive's declaration")),
        }
        Ok(())
    }
}

/// The attributes of this name.
pub(crate) fn attributes<'a>(
    attributes: &'a [Attribute],
    name: &'a str,
) -> impl Iterator<Item = &'a Attribute> {
    let named = move |attribute: &&Attribute| attribute.path().is_ident(name);
    attributes.iter().filter(named)
}

/// The constant that a context's name stands for.
pub(crate) fn context(meta: &ParseNestedMeta<'_>) -> Result<TokenStream> {
    let word = meta.path.require_ident()?;
    Ok(match word.to_string().as_str() {
        "main" => quote!(::millpond_conf::Contexts::MAIN),
        "events" => quote!(::millpond_conf::Contexts::EVENTS),
        "http" => quote!(::millpond_conf::Contexts::HTTP),
        "server" => quote!(::millpond_conf::Contexts::SERVER),
        "location" => quote!(::millpond_conf::Contexts::LOCATION),
        "upstream" => quote!(::millpond_conf::Contexts::UPSTREAM),
        "if_server" => quote!(::millpond_conf::Contexts::IF_SERVER),
        "if_location" => quote!(::millpond_conf::Contexts::IF_LOCATION),
        "limit_except" => quote!(::millpond_conf::Contexts::LIMIT_EXCEPT),
        "stream" => quote!(::millpond_conf::Contexts::STREAM),
        "stream_server" => quote!(::millpond_conf::Contexts::STREAM_SERVER),
        _ => return Err(meta.error("no context has this name")),
    })
}

/// Contexts together, as a constant expression.
pub(crate) fn union(contexts: &[TokenStream]) -> TokenStream {
    quote!(::millpond_conf::Contexts(0 #(| #contexts.0)*))
}

/// The doc comment, each line without the space that follows the slashes.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(text),
                    ..
                }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        });
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// The `T` of `Wrapper<T>`, if the type is written so.
fn argument_of<'a>(ty: &'a Type, wrapper: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else {
        return None;
    };
    let last = path.path.segments.last()?;
    if last.ident != wrapper {
        return None;
    }
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}
