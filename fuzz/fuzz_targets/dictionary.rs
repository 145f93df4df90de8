//! Runs [`millpond_fuzz::dictionary`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::dictionary::run(data));
