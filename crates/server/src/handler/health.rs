//! `health`: whether the process lives and is ready, for load balancers and orchestrators.
//!
//! What counts stands in `control/health.rs`. The answer is made beside the workers, since a disk
//! may be waited for.
//!
//! Invariants:
//! 1. At most `ANSWERS_MAX` answers are made at once in the process; others wait.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{Contexts, Statement};
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_proxy::content::{ContentHandler, Explained, Handler};
use millpond_proxy::handler::only_read;
use millpond_proxy::phase::{Begun, Flow};
use millpond_proxy::request::Request;
use millpond_wire::header::Known;
use tokio::sync::Semaphore;

use crate::control::{health, report, scene};

/// Answers that are made at once (arbitrary: a few balancers that ask once a second).
const ANSWERS_MAX: usize = 4;

static ANSWERS: Semaphore = Semaphore::const_new(ANSWERS_MAX);

/// The row.
pub(crate) const ROWS: &[Row] = &[Row {
    name: "health",
    contexts: Contexts::SERVER.union(Contexts::LOCATION),
    syntax: "[live | ready]",
    is_block: false,
    pass: Pass::First,
    doc: "Answers with the health of the process as JSON: whether it lives, whether requests are \
          welcome, and the reasons if they are not: a zone is being loaded or has lost all of its \
          disks, or the process is ending (`shutdown_delay`). The status is 200, or 503 while it \
          is not `ready`; with `live` it is 200 whenever there is an answer. The control socket \
          and the API have the same at `/api/millpond/1/health`.",
    apply: row,
}];

/// The question that a location answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Live,
    Ready,
}

fn row(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 0..=1) {
        return;
    }
    let asked = match statement.args.first() {
        None => Health::Ready,
        Some(word) => match word.text.as_str() {
            "live" => Health::Live,
            "ready" => Health::Ready,
            other => {
                let message = format!("\"health\" is \"live\" or \"ready\", not \"{other}\"");
                return builder.error(word.span, message);
            }
        },
    };
    draft.put(ContentHandler::own(asked));
}

impl Handler for Health {
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure> {
        let asked = *self;
        Ok(Begun::waits(req, async move |req| {
            let response = run(req, asked).await?;
            Ok(Flow::Respond(Box::new(response)))
        }))
    }

    fn explain(&self) -> Explained {
        Explained::Itself("health")
    }
}

/// Answers with the health.
async fn run(req: &mut Request, asked: Health) -> Result<Response, Failure> {
    only_read(req)?;
    let conf = Arc::clone(&req.conf);
    let shared = Arc::clone(&req.worker().shared);
    let make = move || health::of(&scene(Some(&conf), Some(&shared), "by a health check"));
    // INVARIANT 1. The semaphore is never closed.
    let _place = ANSWERS.acquire().await;
    let made = tokio::task::spawn_blocking(make).await;
    let found = made.map_err(|_| Failure::Internal("a health check panicked".to_string()))?;
    let status = match asked {
        Health::Live => 200,
        Health::Ready => found.status(),
    };
    let text = report::line(&found) + "\n";
    let content_type = Bytes::from_static(b"application/json");
    let mut response = Response::text(status, content_type, Bytes::from(text));
    let no_store = Bytes::from_static(b"no-store");
    response.fields.set(Known::CacheControl, no_store);
    Ok(response)
}
