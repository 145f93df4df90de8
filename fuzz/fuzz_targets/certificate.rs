//! Runs [`millpond_fuzz::certificate`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::certificate::run(data));
