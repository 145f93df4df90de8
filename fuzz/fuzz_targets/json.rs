//! Runs [`millpond_fuzz::json`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::json::run(data));
