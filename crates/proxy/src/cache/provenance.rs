//! `$cache_bytes`, `$origin_bytes`: whose bytes an answer is made of.
//!
//! The counting is in `millpond_exchange::provenance`; here are its variables, and what makes a
//! page and its parts be counted as one answer.

use std::rc::Rc;

use crate::request::Request;
use crate::var::Variable;
use millpond_exchange::provenance::Provenance;
use millpond_exchange::response::Response;

/// The variables of this file.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "cache_bytes",
        doc: "Bytes of the body that the client got which came from the cache: those that were \
              there when the request came to them. With `$origin_bytes` it makes \
              `$body_bytes_sent`, less what this server made itself.",
        write: |req, out| number(req.sent.shares.cache, out),
    },
    Variable {
        name: "origin_bytes",
        doc: "Bytes of the body that the client got which this request fetched, or the fill that \
              it waited for.",
        write: |req, out| number(req.sent.shares.origin, out),
    },
];

fn number(number: u64, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(number.to_string().as_bytes());
    true
}

/// Makes the answer of a page one of several sources.
pub(crate) fn of_page(req: &mut Request, response: &mut Response) {
    let tally = match &response.provenance {
        Provenance::Several(tally) => Rc::clone(tally),
        Provenance::One(_) => Rc::default(),
    };
    let body = std::mem::take(&mut response.body);
    response.body = response.provenance.enter(body, &tally);
    *req.page().tally.borrow_mut() = Some(Rc::clone(&tally));
    response.provenance = Provenance::Several(tally);
    response.provenance.is_changed();
}

/// Has the answer of a subrequest entered in what the page is made of, if it is shown there.
pub(crate) fn of_part(req: &mut Request, response: &mut Response) {
    if !req.role.as_ref().is_some_and(|role| role.is_shown()) {
        return;
    }
    if let Some(tally) = &*req.page().tally.borrow() {
        let body = std::mem::take(&mut response.body);
        response.body = response.provenance.enter(body, tally);
    }
}
