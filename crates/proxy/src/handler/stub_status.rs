//! `stub_status`: how many connections and requests there were and are, as nginx's page shows them.
//!
//! The numbers are of all workers, but not of one moment: each counter is read for itself. What is
//! neither reading nor writing is waiting.

use bytes::Bytes;
use millpond_conf::{Contexts, Statement};
use millpond_wire::http1::Method;

use crate::content::{ContentHandler, Explained, Handler};
use crate::phase::Begun;
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::stats::connections::ConnectionCount;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "stub_status",
    contexts: Contexts::SERVER.union(Contexts::LOCATION),
    syntax: "[string]",
    is_block: false,
    pass: Pass::First,
    doc: "Answers with the numbers of connections and requests.",
    apply: stub_status,
}];

fn stub_status(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if builder.has_arguments(statement, 0..=1) {
        draft.put(ContentHandler::own(StubStatus));
    }
}

/// The numbers of connections and requests.
#[derive(Debug)]
struct StubStatus;

impl Handler for StubStatus {
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure> {
        run(req).map(Begun::answer)
    }

    fn explain(&self) -> Explained {
        Explained::Itself("stub_status")
    }
}

/// Answers with the numbers.
fn run(req: &mut Request) -> Result<Response, Failure> {
    if !matches!(req.method, Method::Get | Method::Head) {
        return Err(Failure::Status(405));
    }
    let count = req.worker().shared.connections.snapshot();
    let ConnectionCount {
        active,
        reading,
        writing,
        ..
    } = count;
    let text = format!(
        "Active connections: {active} \nserver accepts handled requests\n {} {} {} \n\
         Reading: {reading} Writing: {writing} Waiting: {} \n",
        count.accepted,
        count.handled,
        count.requests,
        count.waiting(),
    );
    let content_type = Bytes::from_static(b"text/plain");
    Ok(Response::text(200, content_type, Bytes::from(text)))
}
