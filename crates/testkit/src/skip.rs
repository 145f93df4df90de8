//! Tests that cannot run where they are.

use std::fs::OpenOptions;
use std::io::Write;

/// The file that the whole run reads afterwards, if there is one.
const SKIPPED: &str = "MILLPOND_SKIPPED";

/// Says that this test, or a part of it, does not run here, and why. `cargo xtask test` counts it
/// as skipped.
pub fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("main").to_string();
    println!("skipped: {test}: {reason}");
    let Some(path) = std::env::var_os(SKIPPED) else {
        return;
    };
    let file = OpenOptions::new().append(true).create(true).open(path);
    // One write, so that lines of tests that run at once do not mix.
    let noted = file.and_then(|mut file| file.write_all(format!("{test}: {reason}\n").as_bytes()));
    noted.expect("the list of skipped tests can be written");
}
