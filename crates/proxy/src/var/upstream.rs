//! Variables of the upstream: which peers were asked, what they answered, and how long it took.
//!
//! All read the request's trace of attempts, so they are empty before the first one, and "-" in
//! logs; times are in seconds with milliseconds.

use std::time::Duration;

use millpond_wire::header::Known;

use super::{Variable, VariableFamily, WordVariable};
use crate::request::Request;
use millpond_exchange::trace::{Attempt, Freshness, TierWord, asked};

/// The variables that are one of a few words.
pub const WORDS: &[WordVariable] = &[
    WordVariable {
        name: "upstream_cache_status",
        doc: "What the cache did: MISS, BYPASS, EXPIRED, STALE, UPDATING, REVALIDATED or HIT.",
        word: |req| req.upstream.borrow().cache_status,
    },
    WordVariable {
        name: "cache_status_reason",
        doc: "Why the cache did what it did, as one word: fresh, stale-while-revalidate, uri-miss, \
              no-store, set-cookie, min-uses and others.",
        word: |req| req.upstream.borrow().account.word(),
    },
    WordVariable {
        name: "cache_fill_role",
        doc: "The request's part in filling the cache: leader if its answer was fetched for all who \
              want it, waiter if it waited for another's or read along, else none.",
        word: |req| {
            let trace = req.upstream.borrow();
            let role = trace.account.role.as_str();
            trace.cache_status.is_some().then_some(role)
        },
    },
];

/// The variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "upstream_addr",
        doc: "Addresses of the peers that were asked, in order.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                out.extend_from_slice(attempt.peer.as_bytes())
            })
        },
    },
    Variable {
        name: "upstream_status",
        doc: "Statuses of the peers' answers; 502 or 504 for a peer that failed.",
        write: |req, out| {
            each(req, out, |attempt, out| match attempt.status {
                0 => out.push(b'-'),
                status => out.extend_from_slice(status.to_string().as_bytes()),
            })
        },
    },
    Variable {
        name: "upstream_queue_time",
        doc: "Seconds with milliseconds for which the request waited in the `queue` of the upstream \
              before each peer was asked; `-` where it did not wait.",
        write: |req, out| each(req, out, |attempt, out| time(attempt.queued, out)),
    },
    Variable {
        name: "upstream_connect_time",
        doc: "Seconds with milliseconds until a connection to each peer was there.",
        write: |req, out| each(req, out, |attempt, out| time(attempt.connect, out)),
    },
    Variable {
        name: "upstream_header_time",
        doc: "Seconds with milliseconds until each peer's head was there.",
        write: |req, out| each(req, out, |attempt, out| time(attempt.header, out)),
    },
    Variable {
        name: "upstream_response_time",
        doc: "Seconds with milliseconds until each peer's answer was whole.",
        write: |req, out| each(req, out, |attempt, out| time(attempt.response, out)),
    },
    Variable {
        name: "upstream_response_length",
        doc: "Bytes of the body of each peer's answer.",
        write: |req, out| each(req, out, |attempt, out| number(attempt.body_bytes, out)),
    },
    Variable {
        name: "upstream_bytes_received",
        doc: "Bytes received from each peer.",
        write: |req, out| each(req, out, |attempt, out| number(attempt.bytes_received, out)),
    },
    Variable {
        name: "upstream_bytes_sent",
        doc: "Bytes sent to each peer.",
        write: |req, out| each(req, out, |attempt, out| number(attempt.bytes_sent, out)),
    },
    Variable {
        name: "upstream_method",
        doc: "The method that each peer was sent.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                match asked::method(&attempt.head) {
                    Some(method) => out.extend_from_slice(method),
                    None => text(req.method.name().map(str::as_bytes), out),
                }
            })
        },
    },
    Variable {
        name: "upstream_uri",
        doc: "The path and query that each peer was sent.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                out.extend_from_slice(asked::target(&attempt.head).unwrap_or(req.unparsed_uri()))
            })
        },
    },
    Variable {
        name: "upstream_host",
        doc: "The Host field that each peer was sent.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                sent(req, attempt, Known::Host, out)
            })
        },
    },
    Variable {
        name: "upstream_range",
        doc: "The Range field that each peer was sent.",
        write: |req, out| {
            each(req, out, |attempt, out| match &attempt.range {
                Some(range) => out.extend_from_slice(range),
                None => sent(req, attempt, Known::Range, out),
            })
        },
    },
    Variable {
        name: "upstream_start",
        doc: "When each exchange began, in seconds since the epoch with milliseconds.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                moment(attempt.started_ms, Some(Duration::ZERO), out)
            })
        },
    },
    Variable {
        name: "upstream_end",
        doc: "When each exchange was over, in seconds since the epoch with milliseconds.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                moment(attempt.started_ms, attempt.response, out)
            })
        },
    },
    Variable {
        name: "upstream_redirects",
        doc: "Number of redirects that `proxy_redirect_follow` had followed when each peer was asked.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                number(u64::from(attempt.redirects), out)
            })
        },
    },
    Variable {
        name: "upstream_reason",
        doc: "Why each peer was asked: miss, expired, revalidate, slice, background, bypass or pass.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                out.extend_from_slice(attempt.why.as_str().as_bytes())
            })
        },
    },
    Variable {
        name: "upstream_entry",
        doc: "The entry that each answer is stored in, as the hexadecimal hash of its key; `-` for \
              an answer that is not stored, or not yet.",
        write: |req, out| {
            each(req, out, |attempt, out| match attempt.entry {
                Some(key) => out.extend_from_slice(key.to_string().as_bytes()),
                None => out.push(b'-'),
            })
        },
    },
    Variable {
        name: "upstream_clients",
        doc: "How many clients got each answer; 0 if it was for the cache alone. It is known when \
              the answer has been stored.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                number(u64::from(attempt.clients), out)
            })
        },
    },
    Variable {
        name: "upstream_node",
        doc: "The node of the fleet that was asked in place of the origin (`proxy_cache_peers`), for \
              each peer; `-` for one of the upstream.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                let name = attempt.node.as_deref().unwrap_or("-");
                out.extend_from_slice(name.as_bytes());
            })
        },
    },
    Variable {
        name: "upstream_tier",
        doc: "The outcome of asking the second tier of the zone in place of the origin \
              (`tier=` of `proxy_cache_path`): `hit`, `miss` or `fault`; not found if it was not \
              asked.",
        write: |req, out| {
            let word = req.upstream.borrow().tier.map(TierWord::as_str);
            out.extend_from_slice(word.unwrap_or_default().as_bytes());
            word.is_some()
        },
    },
    Variable {
        name: "cache_age",
        doc: "How old the answer from the cache was when it was served, in seconds (RFC 9111 §4.2.3).",
        write: |req, out| freshness(req, out, |fresh| fresh.age),
    },
    Variable {
        name: "cache_ttl",
        doc: "For how many seconds the answer from the cache was fresh yet when it was served; \
              negative for a stale one.",
        write: |req, out| freshness(req, out, |fresh| fresh.ttl),
    },
    Variable {
        name: "cache_hits",
        doc: "How often the entry that answers was found since it was stored, this time included, as \
              far as the index counts: up to 65,535, and halved where space was made.",
        write: |req, out| {
            let hits = req.upstream.borrow().hits;
            append(
                hits.map(|hits| hits.to_string())
                    .as_deref()
                    .map(str::as_bytes),
                out,
            )
        },
    },
    Variable {
        name: "upstream_cache_last_modified",
        doc: "The Last-Modified of the stale entry that is being revalidated.",
        write: |req, out| append(req.upstream.borrow().validators.0.as_deref(), out),
    },
    Variable {
        name: "upstream_cache_etag",
        doc: "The ETag of the stale entry that is being revalidated.",
        write: |req, out| append(req.upstream.borrow().validators.1.as_deref(), out),
    },
    Variable {
        name: "proxy_host",
        doc: "Host and port of the upstream as proxy_pass names it.",
        write: |req, out| {
            let trace = req.upstream.borrow();
            let Some(host) = &trace.host else {
                return false;
            };
            out.extend_from_slice(host.as_bytes());
            true
        },
    },
    Variable {
        name: "proxy_port",
        doc: "Port of the upstream as proxy_pass names it, or the usual one.",
        write: |req, out| {
            let trace = req.upstream.borrow();
            if trace.host.is_none() {
                return false;
            }
            number(u64::from(trace.port), out);
            true
        },
    },
    Variable {
        name: "proxy_add_x_forwarded_for",
        doc: "The client's X-Forwarded-For with its address added.",
        write: |req, out| {
            for value in req.head.find_all(b"x-forwarded-for") {
                out.extend_from_slice(value);
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(req.client.remote.borrow().host_text().as_bytes());
            true
        },
    },
];

/// The families.
pub const FAMILIES: &[VariableFamily] = &[
    VariableFamily {
        prefix: "upstream_http_",
        doc: "A field of the upstream's answer.",
        write: |req, name, out| {
            let Some(fields) = req.upstream.borrow().fields.clone() else {
                return false;
            };
            join(
                fields.find_all_underscored(name).map(|value| &value[..]),
                out,
            )
        },
    },
    VariableFamily {
        prefix: "upstream_trailer_",
        doc: "A trailer field of the upstream's answer.",
        write: |req, name, out| {
            let Some(fields) = req.upstream.borrow().trailers.clone() else {
                return false;
            };
            join(
                fields.find_all_underscored(name).map(|value| &value[..]),
                out,
            )
        },
    },
    VariableFamily {
        prefix: "upstream_cookie_",
        doc: "A cookie that the upstream set; the first one of the name.",
        write: upstream_cookie,
    },
];

/// Appends a value, if there is one.
fn append(value: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(value.unwrap_or_default());
    value.is_some()
}

fn freshness(req: &Request, out: &mut Vec<u8>, choose: fn(&Freshness) -> i64) -> bool {
    let Some(fresh) = req.upstream.borrow().freshness else {
        return false;
    };
    out.extend_from_slice(choose(&fresh).to_string().as_bytes());
    true
}

/// Writes something of each try: tries are separated by `, `, groups by ` : `.
fn each(req: &Request, out: &mut Vec<u8>, write: impl Fn(&Attempt, &mut Vec<u8>)) -> bool {
    let trace = req.upstream.borrow();
    let mut separator: &[u8] = b"";
    for attempt in &trace.attempts {
        out.extend_from_slice(separator);
        write(attempt, out);
        separator = if attempt.ends_group { b" : " } else { b", " };
    }
    !trace.attempts.is_empty()
}

fn time(time: Option<Duration>, out: &mut Vec<u8>) {
    match time {
        Some(time) => millis(time.as_millis(), out),
        None => out.push(b'-'),
    }
}

/// A moment of wall time, some time after another; `-` while it has not come.
fn moment(from_ms: i64, after: Option<Duration>, out: &mut Vec<u8>) {
    match after {
        Some(after) => {
            let from = u128::try_from(from_ms).unwrap_or_default();
            millis(from + after.as_millis(), out);
        }
        None => out.push(b'-'),
    }
}

fn millis(ms: u128, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{}.{:03}", ms / 1000, ms % 1000).as_bytes());
}

/// A field as a peer was sent it. Applications are sent the client's, whatever they call it.
fn sent(req: &Request, attempt: &Attempt, known: Known, out: &mut Vec<u8>) {
    if attempt.head.is_empty() {
        text(req.field(known), out)
    } else {
        text(asked::field(&attempt.head, known), out)
    }
}

fn text(value: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(value.unwrap_or(b"-"));
}

fn number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(number.to_string().as_bytes());
}

fn join<'a>(values: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) -> bool {
    let mut is_found = false;
    for value in values {
        if std::mem::replace(&mut is_found, true) {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
    }
    is_found
}

fn upstream_cookie(req: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(fields) = req.upstream.borrow().fields.clone() else {
        return false;
    };
    let cookies = fields.get_all(Known::SetCookie);
    let mut values = cookies.filter_map(|cookie| cookie_value(cookie, name));
    values.next().is_some_and(|value| {
        out.extend_from_slice(value);
        true
    })
}

/// nginx: the name stands at the begin of the field, and only spaces, not tabs, may surround the
/// equals sign.
fn cookie_value<'a>(cookie: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = cookie.split_at_checked(name.len())?;
    if !start.eq_ignore_ascii_case(name) {
        return None;
    }
    let value = without_spaces(without_spaces(rest).strip_prefix(b"=")?);
    value.split(|byte| *byte == b';').next()
}

fn without_spaces(mut text: &[u8]) -> &[u8] {
    while let Some(rest) = text.strip_prefix(b" ") {
        text = rest;
    }
    text
}
