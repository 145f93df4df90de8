//! `millpond explain`: the manual entry of a name, or what becomes of a request.
//!
//! ```text
//! millpond explain proxy_cache_lock          a directive
//! millpond explain '$upstream_addr'          a variable
//! millpond explain inactive_short            a code of a warning or a mistake
//! millpond explain 499                       a status
//! millpond explain -c FILE URL [OPTION]...   a request: which server, location, settings, key
//! ```
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | the command line |
//! | `entry.rs` | a name |
//! | `status.rs` | the statuses |
//! | `request.rs`, `judgement.rs` | a request, and what the cache makes of an answer |
//! | `reference.rs` | the manual as two documents |
//!
//! The text goes to the standard output. The process ends with 1 when a name is unknown or a
//! request cannot be explained.

mod entry;
mod judgement;
mod options;
mod reference;
pub(crate) mod request;
mod status;

use std::process::ExitCode;

use anyhow::Result;

use crate::printed;
use crate::terminal;
use options::Asked;

/// Message of `millpond explain` without arguments.
const USAGE: &str = "usage: millpond explain DIRECTIVE | '$VARIABLE' | CODE | STATUS
       millpond explain -c FILE URL [-H 'Name: value'] [-X METHOD]
                        [--answer 'HTTP/1.1 200; Cache-Control: max-age=60']
";

/// Explains what the words name.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<ExitCode> {
    let asked = match crate::options::read(words.collect(), USAGE, options::parse) {
        Ok(asked) => asked,
        Err(code) => return Ok(code),
    };
    match &asked {
        Asked::Name(name) => explain_name(name),
        Asked::Request(options) => {
            match request::explain(options, terminal::stdout_paint()) {
                Ok(text) => printed::text(text)?,
                Err(error) => {
                    eprintln!("millpond: {error:#}");
                    return Ok(ExitCode::FAILURE);
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Asked::Reference(document) => match reference::document(document) {
            Some(text) => {
                printed::text(text)?;
                Ok(ExitCode::SUCCESS)
            }
            None => {
                eprintln!("millpond: the documents are \"directives\" and \"variables\"");
                Ok(ExitCode::FAILURE)
            }
        },
    }
}

fn explain_name(name: &str) -> Result<ExitCode> {
    let found = entry::find(name);
    if found.is_empty() {
        match entry::nearest(name) {
            Some(near) => {
                eprintln!("millpond: nothing is called \"{name}\"; did you mean \"{near}\"?");
            }
            None => eprintln!("millpond: nothing is called \"{name}\""),
        }
        return Ok(ExitCode::FAILURE);
    }
    let paint = terminal::stdout_paint();
    let texts: Vec<String> = found.iter().map(|topic| topic.text(paint)).collect();
    printed::text(texts.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}
