//! Tests of `lex`.
