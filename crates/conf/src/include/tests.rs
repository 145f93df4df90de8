//! Tests of `include`.
