//! Runs [`millpond_fuzz::store_zone`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::store_zone::run(data));
