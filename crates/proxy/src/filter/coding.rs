//! The coding of an answer that is compressed while it is sent: `brotli`, `zstd` or `gzip`, as the
//! client takes them.
//!
//! A coding is possible when its settings let the answer's status, type and length pass. Of those
//! that the client takes, the one of the highest quality is chosen; of equals brotli before zstd
//! before gzip, by how small they make a text.
//!
//! Sources: RFC 9110 §12.5.3; nginx ngx_http_gzip_header_filter; ngx_brotli, zstd-nginx-module.

use std::rc::Rc;

use bytes::Bytes;
use millpond_conf::ByteSize;
use millpond_semantics::accept_encoding::Coding;
use millpond_system::body::Body;
use millpond_wire::header::Known;

use super::compressor::compress_body;
use super::{brotli, gzip, zstd};
use crate::filter::settings::FilterSettings;
use crate::request::Request;
use crate::request::state::CompressedLens;
use millpond_exchange::response::Response;
use millpond_exchange::response::type_set::TypeSet;

/// The codings, the first before the others where a client takes them alike.
pub(crate) const CODINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// Plan by which an answer is compressed.
#[derive(Clone, Debug)]
pub struct Plan {
    how: How,
    lens: Rc<CompressedLens>,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Brotli(brotli::Plan),
    Zstd(zstd::Plan),
    Gzip(gzip::Plan),
}

/// True if some coding may be chosen here.
pub(crate) fn is_enabled(filters: &FilterSettings) -> bool {
    filters.gzip.enabled || filters.brotli.enabled || filters.zstd.enabled
}

/// Decides whether the answer is compressed, and changes its head.
pub(crate) fn run(req: &mut Request, response: &mut Response) -> Option<Plan> {
    let filters = req.location.settings.of::<FilterSettings>();
    if !is_enabled(filters) || response.changes.are_barred || !may_be_coded(response) {
        return None;
    }
    let possible = CODINGS.map(|coding| is_possible(filters, coding, response).then_some(coding));
    if possible == [None; 3] {
        return None;
    }
    response.changes.are_by_coding = true;
    let coding = choose(req, response, possible.into_iter().flatten())?;
    let length = response.length;
    let how = match coding {
        Coding::Brotli => How::Brotli(brotli::Plan::new(&filters.brotli, length)),
        Coding::Zstd => How::Zstd(zstd::Plan::new(&filters.zstd, length)),
        Coding::Gzip => How::Gzip(gzip::Plan::new(&filters.gzip, length)),
    };
    let lens = Rc::<CompressedLens>::default();
    req.compressed = Some((coding, Rc::clone(&lens)));
    response.body_changes();
    let name = Bytes::from_static(coding.name().as_bytes());
    response.fields.set(Known::ContentEncoding, name);
    Some(Plan { how, lens })
}

/// nginx: errors but two are too short to be worth it.
fn may_be_coded(response: &Response) -> bool {
    let mut codings = response.fields.get_all(Known::ContentEncoding);
    matches!(response.status, 200 | 403 | 404) && !codings.any(|it| !it.is_empty())
}

fn is_possible(filters: &FilterSettings, coding: Coding, response: &Response) -> bool {
    let (is_enabled, types, ByteSize(min)) = match coding {
        Coding::Brotli => {
            let policy = &filters.brotli;
            (policy.enabled, &policy.types, policy.min_length)
        }
        Coding::Zstd => {
            let policy = &filters.zstd;
            (policy.enabled, &policy.types, policy.min_length)
        }
        Coding::Gzip => {
            let policy = &filters.gzip;
            (policy.enabled, &policy.types, policy.min_length)
        }
    };
    is_enabled
        && response.length.is_none_or(|length| length >= min)
        && TypeSet::any_fits(types, response)
}

/// The coding that the client likes most.
fn choose(
    req: &Request,
    response: &Response,
    possible: impl Iterator<Item = Coding>,
) -> Option<Coding> {
    let mut best = None;
    let mut highest = 0;
    for coding in possible {
        let quality = match coding {
            Coding::Gzip if !gzip::is_taken(req, &response.fields) => 0,
            // nginx reads it in its own way, and takes some that RFC 9110 does not know.
            Coding::Gzip => req.coding_quality(coding).max(1),
            Coding::Brotli | Coding::Zstd => req.coding_quality(coding),
        };
        if quality > highest {
            (best, highest) = (Some(coding), quality);
        }
    }
    best
}

/// Compresses a body while it is sent.
pub(crate) fn apply(body: Body, plan: Plan) -> Body {
    match plan.how {
        How::Brotli(how) => compress_body(body, how.compressor(), plan.lens),
        How::Zstd(how) => compress_body(body, how.compressor(), plan.lens),
        How::Gzip(how) => compress_body(body, how.compressor(), plan.lens),
    }
}

/// Writes how many times longer an answer was before its compression by a coding.
pub(crate) fn write_ratio(req: &Request, coding: Coding, out: &mut Vec<u8>) -> bool {
    match &req.compressed {
        Some((by, lens)) if *by == coding => write_ratio_of(lens, out),
        _ => false,
    }
}

fn write_ratio_of(lens: &CompressedLens, out: &mut Vec<u8>) -> bool {
    let (before, after) = (u128::from(lens.before.get()), u128::from(lens.after.get()));
    // nginx rounds at the third decimal; nothing to divide by means no value.
    let Some(thousandths) = (before * 1000).checked_div(after) else {
        return false;
    };
    let hundredths = (thousandths + 5) / 10;
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    out.extend_from_slice(text.as_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn ratio_has_two_rounded_decimals() {
        for (before, after, expected) in [
            (300, 100, "3.00"),
            (1000, 501, "2.00"),
            (1000, 3, "333.33"),
            (2999, 1500, "2.00"),
            (1, 100, "0.01"),
        ] {
            let lens = CompressedLens {
                before: Cell::new(before),
                after: Cell::new(after),
            };
            let mut text = Vec::new();
            assert!(write_ratio_of(&lens, &mut text));
            assert_eq!(String::from_utf8_lossy(&text), expected);
        }
        assert!(!write_ratio_of(&CompressedLens::default(), &mut Vec::new()));
    }
}
