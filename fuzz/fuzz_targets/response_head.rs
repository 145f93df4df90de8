//! Runs [`millpond_fuzz::response_head`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::response_head::run(data));
