//! The test crate holds only integration tests.
