//! Runs [`millpond_fuzz::hpack`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::hpack::run(data));
