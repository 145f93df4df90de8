//! The handlers of all phases, in running order.
//!
//! The phases (`phase.rs`) run them without knowing any: a new one is a line here.

use std::sync::Arc;

use crate::content::error_pages;
use crate::filter::settings::FilterSettings;
use crate::handler::settings::HandlerSettings;
use crate::handler::try_files::TryFiles;
use crate::handler::{self, error_page};
use crate::otel;
use crate::phase::{self, Begun, Flow, Phase, Run, Step, Steps};
use crate::request::Request;
use crate::rewrite::{self, Script};
use millpond_exchange::failure::Failure;
use millpond_exchange::settings::level::{Closing, Due};
use millpond_exchange::settings::tree::LocationKind;

/// The handlers, and the pages of errors.
pub static STEPS: Steps = Steps {
    handlers: HANDLERS,
    takes_over: error_pages::takes_over,
    follow_status: error_page::follow_status,
};

const HANDLERS: &[Step] = &[
    Step {
        phase: Phase::PostRead,
        is_due: always,
        run: Run::Routes(|req| Ok(handler::acme_challenge::run(req))),
    },
    Step {
        phase: Phase::PostRead,
        is_due: always,
        run: Run::Changes(|req| handler::realip::start(req)),
    },
    Step {
        phase: Phase::ServerRewrite,
        is_due: has_script,
        run: Run::Routes(|req| {
            let server = Arc::clone(&req.server);
            rewrite::run(req, &server.location)
        }),
    },
    Step {
        phase: Phase::FindConfig,
        is_due: always,
        run: Run::Routes(handler::find_location),
    },
    // nginx: a module that is loaded runs before those that are built in.
    Step {
        phase: Phase::Rewrite,
        is_due: |level| otel::policy::is_due(level.draft),
        run: Run::Changes(otel::begin),
    },
    Step {
        phase: Phase::Rewrite,
        is_due: has_script,
        run: Run::Routes(rewrite_location),
    },
    Step {
        phase: Phase::Rewrite,
        is_due: |level| {
            let headers = &level.settings.of::<FilterSettings>().edit_headers;
            !headers.input.is_empty()
        },
        run: Run::Changes(handler::input_headers::run),
    },
    Step {
        phase: Phase::PostRewrite,
        // An `if` block inside of a location is entered by the location's script.
        is_due: |level| matches!(level.kind, LocationKind::Unnamed) || has_script(level),
        run: Run::Routes(phase::post_rewrite),
    },
    Step {
        phase: Phase::Preaccess,
        is_due: |level| !handlers(level).real_ip.from.is_empty(),
        run: Run::Changes(|req| handler::realip::replace(req)),
    },
    Step {
        phase: Phase::Preaccess,
        is_due: |level| !handlers(level).limit_req.limits.is_empty(),
        run: Run::Acts(limit_requests),
    },
    Step {
        phase: Phase::Preaccess,
        is_due: |level| !handlers(level).limit_conn.limits.is_empty(),
        run: Run::Acts(limit_connections),
    },
    Step {
        phase: Phase::Access,
        is_due: |level| handler::access::has_gate(level.settings),
        run: Run::Acts(enter),
    },
    #[cfg(feature = "script")]
    Step {
        phase: Phase::Access,
        is_due: |level| crate::script::access::is_due(level.draft),
        run: Run::Acts(ask_script),
    },
    Step {
        phase: Phase::Precontent,
        is_due: |level| level.draft.has::<TryFiles>(),
        run: Run::Routes(handler::try_files::run),
    },
    Step {
        phase: Phase::Precontent,
        is_due: |level| handler::mirror::has_mirrors(level.settings),
        run: Run::Acts(mirror),
    },
    Step {
        phase: Phase::Content,
        is_due: always,
        run: Run::Acts(handler::content),
    },
];

const _: () = assert!(HANDLERS.len() <= Due::BITS);

/// Notes the handlers that are due for a block.
pub fn close(level: &mut Closing<'_>) {
    phase::close(level, &STEPS);
}

/// The work is no matter of the location alone.
fn always(_: &Closing<'_>) -> bool {
    true
}

fn has_script(level: &Closing<'_>) -> bool {
    let script = level.draft.get();
    script.is_some_and(|it: &Script| !it.is_empty())
}

fn handlers<'a>(level: &'a Closing<'_>) -> &'a HandlerSettings {
    level.settings.of()
}

fn rewrite_location(req: &mut Request) -> Result<Flow, Failure> {
    let location = Arc::clone(&req.location);
    if location.is_server_level() {
        return Ok(Flow::Next);
    }
    rewrite::run(req, &location)
}

fn limit_requests(req: &mut Request) -> Result<Begun<'_>, Failure> {
    if !handler::limit_req::is_due(req) {
        return Ok(Begun::Done(Flow::Next));
    }
    Ok(Begun::waits(req, handler::limit_req::run))
}

fn limit_connections(req: &mut Request) -> Result<Begun<'_>, Failure> {
    if handler::limit_conn::may_wait(req) {
        return Ok(Begun::waits(req, handler::limit_conn::run_leased));
    }
    handler::limit_conn::run(req).map(Begun::Done)
}

/// nginx: who may ask for the whole may ask for its parts.
fn enter(req: &mut Request) -> Result<Begun<'_>, Failure> {
    if req.is_subrequest() || !handler::access::is_due(req) {
        return Ok(Begun::Done(Flow::Next));
    }
    Ok(Begun::waits(req, handler::access::run))
}

#[cfg(feature = "script")]
fn ask_script(req: &mut Request) -> Result<Begun<'_>, Failure> {
    // Among gates of which any opens it was asked already.
    if handler::access::asks_any(req) {
        return Ok(Begun::Done(Flow::Next));
    }
    crate::script::access::begin(req)
}

fn mirror(req: &mut Request) -> Result<Begun<'_>, Failure> {
    if !handler::mirror::is_due(req) {
        return Ok(Begun::Done(Flow::Next));
    }
    Ok(Begun::waits(req, handler::mirror::run))
}
