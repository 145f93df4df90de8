//! Runs [`millpond_fuzz::request_head`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::request_head::run(data));
