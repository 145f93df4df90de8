//! Runs [`millpond_fuzz::jwt`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::jwt::run(data));
