//! Runs [`millpond_fuzz::uri`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::uri::run(data));
