//! Runs [`millpond_fuzz::range`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::range::run(data));
