//! Runs [`millpond_fuzz::mp4`] under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millpond_fuzz::mp4::run(data));
