//! The `gauge` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    millpond_gauge::run(std::env::args_os())
}
