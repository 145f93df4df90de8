//! Runs [`millpond_fuzz::http3_server`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::http3_server::run(data));
