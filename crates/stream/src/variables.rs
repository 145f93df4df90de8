//! Variables of sessions.
//!
//! What a session shares with a request of HTTP (addresses, times, the process) is the record of
//! the crate below; here is what a session has for itself, or means in another way.

use std::time::Duration;

use millpond_exchange::trace::Attempt;
use millpond_proxy::request::Request;
use millpond_proxy::request::state::Listener;
use millpond_proxy::var::number::{write_millis, write_number};
use millpond_proxy::var::{Records, Variable, VariableFamily, WordVariable, connection, request};
use millpond_proxy::{downstream, handler, tls};
use millpond_system::clock;

use crate::preread;

/// All of them.
pub const RECORDS: &Records = &Records {
    plain: PLAIN,
    words: WORDS,
    composed: &[],
    families: FAMILIES,
};

const PLAIN: &[&[Variable]] = &[
    VARIABLES,
    preread::VARIABLES,
    connection::ENDS,
    request::PROCESS,
    downstream::proxy_protocol::VARIABLES,
    tls::variables::VARIABLES,
];

const WORDS: &[&[WordVariable]] = &[handler::limit_conn::WORDS];

const FAMILIES: &[&[VariableFamily]] = &[downstream::proxy_protocol::FAMILIES];

/// The variables of this file.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "bytes_received",
        doc: "Bytes received from the client of a session.",
        write: |req, out| write_number(req.client.request_bytes.get(), out),
    },
    Variable {
        name: "bytes_sent",
        doc: "Bytes sent to the client of a session.",
        write: |req, out| write_number(req.sent.body_bytes, out),
    },
    Variable {
        name: "protocol",
        doc: "The protocol of a session: TCP or UDP.",
        write: |req, out| {
            let listener = req.notes.get::<Listener>();
            let is_udp = listener.is_some_and(|listener| listener.is_datagrams);
            out.extend_from_slice(if is_udp { b"UDP" } else { b"TCP" });
            true
        },
    },
    Variable {
        name: "session_time",
        doc: "The time that a session has taken so far, in seconds with milliseconds.",
        write: |req, out| write_millis(clock::instant() - req.started, out),
    },
    Variable {
        name: "status",
        doc: "The outcome of a session: 200; 400 when what the client sent could not be read, 403 \
              when it was refused, 500 for a fault here, 502 when no peer could be reached, 503 \
              when there were too many.",
        write: |req, out| {
            out.extend_from_slice(format!("{:03}", req.sent.status).as_bytes());
            true
        },
    },
    Variable {
        name: "server_name",
        doc: "The first name of the server of a session.",
        write: |req, out| {
            out.extend_from_slice(&req.server.name);
            true
        },
    },
    Variable {
        name: "upstream_addr",
        doc: "Addresses of the peers that were tried, in order.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                out.extend_from_slice(attempt.peer.as_bytes());
            })
        },
    },
    Variable {
        name: "upstream_bytes_received",
        doc: "Bytes received from each peer.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                write_number(attempt.bytes_received, out);
            })
        },
    },
    Variable {
        name: "upstream_bytes_sent",
        doc: "Bytes sent to each peer.",
        write: |req, out| {
            each(req, out, |attempt, out| {
                write_number(attempt.bytes_sent, out);
            })
        },
    },
    Variable {
        name: "upstream_connect_time",
        doc: "Seconds with milliseconds until a connection to each peer was there.",
        write: |req, out| each(req, out, |attempt, out| time(attempt.connect, out)),
    },
    Variable {
        name: "upstream_first_byte_time",
        doc: "Seconds with milliseconds until the first byte of each peer was there.",
        write: |req, out| each(req, out, |attempt, out| time(attempt.header, out)),
    },
    Variable {
        name: "upstream_session_time",
        doc: "Seconds with milliseconds that the session with each peer took.",
        write: |req, out| each(req, out, |attempt, out| time(attempt.response, out)),
    },
];

/// Appends something of each try, with commas between.
fn each(req: &Request, out: &mut Vec<u8>, write: impl Fn(&Attempt, &mut Vec<u8>)) -> bool {
    let trace = req.upstream.borrow();
    for (index, attempt) in trace.attempts.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        write(attempt, out);
    }
    !trace.attempts.is_empty()
}

fn time(time: Option<Duration>, out: &mut Vec<u8>) {
    match time {
        Some(time) => {
            write_millis(time, out);
        }
        None => out.push(b'-'),
    }
}
