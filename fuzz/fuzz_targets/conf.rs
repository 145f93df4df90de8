//! Runs [`millpond_fuzz::conf`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::conf::run(data));
