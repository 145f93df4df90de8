//! Runs [`millpond_fuzz::script`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::script::run(data));
