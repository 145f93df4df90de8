//! Runs [`millpond_fuzz::no_vary_search`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::no_vary_search::run(data));
