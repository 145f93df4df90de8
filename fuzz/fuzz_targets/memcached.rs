//! Runs [`millpond_fuzz::memcached`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::memcached::run(data));
