//! Runs [`millpond_fuzz::cache_control`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::cache_control::run(data));
