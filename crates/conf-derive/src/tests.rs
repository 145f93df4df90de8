//! Tests of what the derives refuse; what they generate is tested in `millpond_conf`.

use syn::{DeriveInput, parse_str};

use crate::{family, group, scope, words};

type Derive = fn(&DeriveInput) -> syn::Result<proc_macro2::TokenStream>;

#[test]
fn wrong_declarations_are_refused_with_a_reason() {
    let family: Derive = family::derive;
    let cases: &[(Derive, &str, &str)] = &[
        (
            family,
            "struct A { #[directive(name = \"a\", default = \"on\")] a: bool }",
            "a directive needs a doc comment: it is its manual text",
        ),
        (
            family,
            "struct A { /// A.\n #[directive(name = \"a\")] a: bool }",
            "a directive without a default needs a field of type Option",
        ),
        (
            family,
            "struct A { /// A.\n #[directive(name = \"a\", repeat)] a: bool }",
            "the field of a directive that repeats is a Vec",
        ),
        (
            family,
            "struct A { /// A.\n a: bool }",
            "a setting needs #[directive(name = \"...\")], or skip",
        ),
        (
            family,
            "struct A { /// A.\n #[directive(nam = \"a\")] a: bool }",
            "no word of a directive's declaration",
        ),
        (
            family,
            "#[family(htp)] struct A { }",
            "no context has this name",
        ),
        (
            family,
            "struct A(bool);",
            "only structs with named fields and without parameters hold settings",
        ),
        (
            scope::derive,
            "struct A { #[scope(skp)] a: bool }",
            "no word of a scope's field",
        ),
        (
            group::derive,
            "#[only(\"p\", b)] struct A { a: B }",
            "no field has this name",
        ),
        (words::derive, "struct A { }", "only enums are known words"),
        (
            words::derive,
            "enum A { B }",
            "a known word needs #[word(\"...\")]",
        ),
        (
            words::derive,
            "enum A { #[word(\"b\")] B(u8) }",
            "a known word has no fields",
        ),
    ];
    for (derive, text, expected) in cases {
        let input = parse_str::<DeriveInput>(text).expect("a declaration");
        let error = derive(&input).map(|_| ()).expect_err(text);
        assert_eq!(error.to_string(), *expected, "{text}");
    }
}

#[test]
fn all_wrong_fields_are_refused_at_once() {
    let text = "struct A { a: u8, b: u8 }";
    let input = parse_str::<DeriveInput>(text).expect("a declaration");
    let error = family::derive(&input).map(|_| ()).expect_err(text);
    assert_eq!(error.into_iter().count(), 2);
}
