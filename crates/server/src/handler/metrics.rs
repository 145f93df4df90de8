//! `metrics`: answers with the counters in the formats that Prometheus and its like read.
//!
//! The numbers and their names are made in `metrics/`. The page is made beside the workers, so that
//! hundreds of sites stop no request.
//!
//! Invariants:
//! 1. At most `PAGES_MAX` pages are made at once in the process; others wait.
//! 2. Under the names of other programs the format is always Prometheus text: they have no other.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{Contexts, Statement};
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::stats::site::SITES_MAX;
use millpond_proxy::content::{ContentHandler, Explained, Handler};
use millpond_proxy::handler::only_read;
use millpond_proxy::phase::{Begun, Flow};
use millpond_proxy::request::Request;
use millpond_wire::header::Known;
use tokio::sync::Semaphore;

use crate::metrics::facts::Facts;
use crate::metrics::text::Format;
use crate::metrics::{self, Names, SITES_DEFAULT};

/// Pages that are made at once (arbitrary: a Prometheus, its twin, and somebody who looks).
const PAGES_MAX: usize = 4;

static PAGES: Semaphore = Semaphore::const_new(PAGES_MAX);

/// The row.
pub(crate) const ROWS: &[Row] = &[Row {
    name: "metrics",
    contexts: Contexts::SERVER.union(Contexts::LOCATION),
    syntax: "[sites=number] [names=millpond | nginxplus | vts]",
    is_block: false,
    pass: Pass::First,
    doc: "Answers with metrics for Prometheus: as OpenMetrics for clients that ask for it, else as \
          Prometheus text. `sites` is the number of sites that have lines of their own, those with \
          the most requests (500; at most 4096); all others are one site `*`. `names` makes the \
          names of metrics those of nginx-prometheus-exporter for NGINX Plus, or of \
          nginx-module-vts, for dashboards that were made for them.",
    apply,
}];

/// The metrics that a location shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricsPage {
    sites: usize,
    names: Names,
}

fn apply(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 0..=2) {
        return;
    }
    let mut page = MetricsPage {
        sites: SITES_DEFAULT,
        names: Names::default(),
    };
    for word in &statement.args {
        let taken = match word.text.split_once('=') {
            Some(("sites", number)) => {
                let number = number.parse().ok().filter(|number| *number <= SITES_MAX);
                number.map(|number| page.sites = number)
            }
            Some(("names", names)) => Names::find(names).map(|names| page.names = names),
            _ => None,
        };
        if taken.is_none() {
            let message = format!(
                "invalid parameter \"{}\" of \"metrics\": it takes \"sites=\" with a number up to \
                 {SITES_MAX} and \"names=\" with \"millpond\", \"nginxplus\" or \"vts\"",
                word.text
            );
            builder.error(word.span, message);
        }
    }
    draft.put(ContentHandler::own(page));
}

impl Handler for MetricsPage {
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure> {
        let page = *self;
        Ok(Begun::waits(req, async move |req| {
            let response = run(req, page).await?;
            Ok(Flow::Respond(Box::new(response)))
        }))
    }

    fn explain(&self) -> Explained {
        Explained::Itself("metrics")
    }
}

/// Answers with the page.
async fn run(req: &mut Request, page: MetricsPage) -> Result<Response, Failure> {
    only_read(req)?;
    let format = match page.names {
        Names::Millpond => Format::accepted(req.field(Known::Accept).unwrap_or_default()),
        // INVARIANT 2.
        Names::NginxPlus | Names::Vts => Format::Prometheus,
    };
    let conf = Arc::clone(&req.conf);
    let shared = Arc::clone(&req.worker().shared);
    let make = move || {
        let facts = Facts::read(&conf, &shared, page.sites);
        metrics::render(&facts, page.names, format)
    };
    // INVARIANT 1. The semaphore is never closed.
    let _place = PAGES.acquire().await;
    let made = tokio::task::spawn_blocking(make).await;
    let text = made.map_err(|_| Failure::Internal("a page of metrics panicked".to_string()))?;
    let content_type = Bytes::from_static(format.content_type().as_bytes());
    let mut response = Response::text(200, content_type, Bytes::from(text));
    let no_store = Bytes::from_static(b"no-store");
    response.fields.set(Known::CacheControl, no_store);
    Ok(response)
}
