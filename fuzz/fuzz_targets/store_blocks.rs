//! Runs [`millpond_fuzz::store_blocks`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::store_blocks::run(data));
