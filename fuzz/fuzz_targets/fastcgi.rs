//! Runs [`millpond_fuzz::fastcgi`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::fastcgi::run(data));
