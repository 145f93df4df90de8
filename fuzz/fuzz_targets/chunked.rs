//! Runs [`millpond_fuzz::chunked`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::chunked::run(data));
