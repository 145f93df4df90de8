//! Runs [`millpond_fuzz::template`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::template::run(data));
