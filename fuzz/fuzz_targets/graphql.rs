//! Runs [`millpond_fuzz::graphql`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::graphql::run(data));
