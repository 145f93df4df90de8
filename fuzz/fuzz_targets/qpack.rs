//! Runs [`millpond_fuzz::qpack`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::qpack::run(data));
