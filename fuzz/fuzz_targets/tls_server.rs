//! Runs [`millpond_fuzz::tls_server`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::tls_server::run(data));
