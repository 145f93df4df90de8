//! The `millpond` program.
fn main() {}
