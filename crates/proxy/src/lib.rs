//! Listeners, HTTP/1, phases, upstreams, filters, variables and logs.
