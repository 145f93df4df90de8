//! `millpond sensor latency`: the time of a request of its own, to the last byte of the answer.
//!
//! It is one request on a connection of its own, through the address that users take. An answer of
//! 500 or more is critical, and so is none.

use anyhow::Result;
use millpond_system::clock;

use super::finding::{Finding, State, Value};
use super::http::{Request, exchange};
use super::options::Options;
use crate::url::Url;

/// Asks, and measures.
pub(super) fn find(options: &Options) -> Result<Finding> {
    let request = Request {
        target: Url::parse(options.url.as_deref().unwrap_or_default())?,
        fields: &options.fields,
        body: None,
    };
    let start = clock::instant();
    let answered = exchange(&request, options);
    let seconds = start.elapsed().as_secs_f64();
    let time = Value::judged("time", seconds, "s");
    Ok(match answered {
        Ok(answer) => {
            let status = answer.status;
            let text = format!("status {status} after {:.1} ms", seconds * 1000.0);
            let size = Value::shown("size", answer.len() as f64, "B");
            let finding = Finding::new(text, vec![time, size]);
            if status >= 500 {
                finding.in_state(State::Critical)
            } else {
                finding
            }
        }
        Err(error) => {
            let text = format!("no answer from {}: {error:#}", request.target.authority);
            Finding::new(text, vec![time]).in_state(State::Critical)
        }
    })
}
