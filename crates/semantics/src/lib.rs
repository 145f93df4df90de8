//! HTTP semantics as pure functions: ranges, conditionals, freshness, URIs, dates.
