//! Runs [`millpond_fuzz::stored_head`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::stored_head::run(data));
