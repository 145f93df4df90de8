//! Nothing: this crate holds only integration tests, in `tests/`.
