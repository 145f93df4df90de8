//! The statuses of answers and of log lines: who says them, why, and what to look at.
//!
//! The table has what Millpond says by itself, what operators look for in access logs, and the
//! numbers that nginx has made up.

/// A status.
#[derive(Debug)]
pub(super) struct Status {
    /// The number.
    pub(super) code: u16,
    /// Name of the status; nginx's where no standard has one.
    pub(super) name: &'static str,
    /// Text about who says the status, why, and what to do.
    pub(super) doc: &'static str,
}

/// The status of a number.
pub(super) fn find(code: u16) -> Option<&'static Status> {
    STATUSES.iter().find(|status| status.code == code)
}

const STATUSES: &[Status] = &[
    Status {
        code: 400,
        name: "Bad Request",
        doc: "The request head is malformed: a bad request line or field, no Host in HTTP/1.1, two \
              different Hosts or lengths, a path that leads above the root. The error log says \
              which, at level info.",
    },
    Status {
        code: 401,
        name: "Unauthorized",
        doc: "\"auth_basic\" asks for a name and a password, or those that came are wrong; or the \
              upstream says it.",
    },
    Status {
        code: 403,
        name: "Forbidden",
        doc: "\"deny\" forbids the client's address, \"limit_except\" the method, a \"return 403\" \
              stands in the way, the file may not be read, or a folder has no index page. The \
              error log says which.",
    },
    Status {
        code: 404,
        name: "Not Found",
        doc: "There is no file of that name under \"root\" or \"alias\", no candidate of \
              \"try_files\" exists, or the location is \"internal\" and the request came from \
              outside. \"millpond explain -c FILE URL\" shows the location.",
    },
    Status {
        code: 405,
        name: "Not Allowed",
        doc: "A method other than GET and HEAD was used on a file.",
    },
    Status {
        code: 408,
        name: "Request Timeout",
        doc: "The client did not send its request in time: \"client_header_timeout\" for the head, \
              \"client_body_timeout\" between two pieces of the body. It gets no answer, the \
              status stands in the access log.",
    },
    Status {
        code: 411,
        name: "Length Required",
        doc: "The request has a body whose length is not announced in a way that can be used.",
    },
    Status {
        code: 412,
        name: "Precondition Failed",
        doc: "If-Match or If-Unmodified-Since of the request does not hold for the resource.",
    },
    Status {
        code: 413,
        name: "Content Too Large",
        doc: "The request body is larger than \"client_max_body_size\" (1m unless it is set).",
    },
    Status {
        code: 414,
        name: "URI Too Long",
        doc: "The request line does not fit into one of \"large_client_header_buffers\".",
    },
    Status {
        code: 416,
        name: "Range Not Satisfiable",
        doc: "No range of the request overlaps the resource.",
    },
    Status {
        code: 421,
        name: "Misdirected Request",
        doc: "The request is for a host that this connection is not for.",
    },
    Status {
        code: 429,
        name: "Too Many Requests",
        doc: "Usually \"limit_req_status 429\" or \"limit_conn_status 429\": a limit was passed. \
              The error log names the zone and the client.",
    },
    Status {
        code: 444,
        name: "Connection Closed Without an Answer",
        doc: "\"return 444;\" closes the connection and sends nothing. The client sees an empty \
              reply; the number stands in the access log only.",
    },
    Status {
        code: 494,
        name: "Request Header Too Large",
        doc: "A field, or all of them, do not fit into \"large_client_header_buffers\". The client \
              sees 400; \"error_page 494\" may answer instead.",
    },
    Status {
        code: 495,
        name: "SSL Certificate Error",
        doc: "nginx: the certificate of the client could not be verified. The client sees 400. \
              Millpond does not end TLS itself and never says it.",
    },
    Status {
        code: 496,
        name: "SSL Certificate Required",
        doc: "nginx: the client sent no certificate although one is required. The client sees 400. \
              Millpond does not end TLS itself and never says it.",
    },
    Status {
        code: 497,
        name: "HTTP Request Sent to HTTPS Port",
        doc: "nginx: a request without TLS came to a port with TLS. The client sees 400. Millpond \
              does not end TLS itself and never says it.",
    },
    Status {
        code: 498,
        name: "(not used)",
        doc: "Neither nginx nor Millpond says it; some applications use it for expired tokens.",
    },
    Status {
        code: 499,
        name: "Client Closed Request",
        doc: "The client went away before its answer was there. Nobody sees the number but the \
              access log. Many of them mean that the origin is slower than clients are patient. A \
              fill that the client began goes on without it and is stored.",
    },
    Status {
        code: 500,
        name: "Internal Server Error",
        doc: "The configuration leads nowhere for this request: a rewrite or internal redirect that \
              goes round in circles, a zone or named location that does not exist, an empty path. \
              The error log says which.",
    },
    Status {
        code: 501,
        name: "Not Implemented",
        doc: "The request has a transfer coding other than \"chunked\".",
    },
    Status {
        code: 502,
        name: "Bad Gateway",
        doc: "No upstream answered: connection refused or closed, no live peer, a name that could \
              not be resolved, or a head that is malformed or larger than \"proxy_buffer_size\". \
              The error log names the peer and the cause. \"proxy_cache_use_stale error\" serves \
              what is stored instead.",
    },
    Status {
        code: 503,
        name: "Service Unavailable",
        doc: "\"limit_req\" or \"limit_conn\" turned the request away (unless they name another \
              status); or the upstream says it.",
    },
    Status {
        code: 504,
        name: "Gateway Timeout",
        doc: "The upstream did not connect within \"proxy_connect_timeout\", or was silent for \
              longer than \"proxy_read_timeout\" or \"proxy_send_timeout\" (60 s each unless they \
              are set). \"proxy_cache_use_stale timeout\" serves what is stored instead.",
    },
    Status {
        code: 505,
        name: "HTTP Version Not Supported",
        doc: "The request line names HTTP 2 or later in the form of HTTP/1.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_sorted_and_described() {
        assert!(STATUSES.is_sorted_by_key(|status| status.code));
        for code in [400, 444, 494, 495, 496, 497, 498, 499, 502, 504] {
            let status = find(code).expect("a status");
            assert!(status.doc.ends_with('.'), "{code}");
        }
        assert!(find(200).is_none());
    }
}
