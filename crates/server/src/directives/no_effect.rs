//! Directives of nginx that are accepted and have no effect here, each with the reason.
//!
//! They are the ones whose absence changes no answer: sizes of tables, hints to a kernel, helps for
//! debugging. A test of a configuration names each that stands in it.
//!
//! Their words are checked all the same: what nginx refuses is a slip of the pen here, too.
//!
//! Invariant: a name stands here, in `refused.rs`, or is implemented; never in two of them.

use std::time::Duration;

use millpond_conf::{Buffers, ByteSize, Contexts, OffOr, Offset};
use millpond_proxy::tls::certificate_cache::CacheLine;

use super::unused_words::{Aio, CpuMasks, DebugPoint, EventMethod, Grammar, ThreadPool};

/// An accepted directive without effect.
#[derive(Debug)]
pub(crate) struct NoEffect {
    /// Names, with spaces between them.
    pub names: &'static str,
    /// The words behind the name.
    pub takes: Grammar,
    /// The contexts in which the line may stand.
    pub contexts: Contexts,
    /// The reason why the name has no effect, as a clause: "there is …".
    pub reason: &'static str,
}

const HTTP_SERVER: Contexts = Contexts::HTTP.union(Contexts::SERVER);

/// Blocks that open encrypted connections.
const TLS_SERVER: Contexts = HTTP_SERVER
    .union(Contexts::STREAM)
    .union(Contexts::STREAM_SERVER);
const HTTP_SERVER_LOCATION: Contexts = HTTP_SERVER.union(Contexts::LOCATION);

/// Blocks of requests and of sessions.
const SCRIPTED: Contexts = HTTP_SERVER_LOCATION
    .union(Contexts::STREAM)
    .union(Contexts::STREAM_SERVER);

/// The table.
pub(crate) const NO_EFFECT: &[NoEffect] = &[
    NoEffect {
        names: "timer_resolution",
        takes: Grammar::of::<Duration>(),
        contexts: Contexts::MAIN,
        reason: "time is read when it is needed",
    },
    NoEffect {
        names: "lock_file",
        takes: Grammar::of::<String>(),
        contexts: Contexts::MAIN,
        reason: "workers need no lock to accept connections",
    },
    NoEffect {
        names: "debug_points",
        takes: Grammar::of::<DebugPoint>(),
        contexts: Contexts::MAIN,
        reason: "there are no debug points",
    },
    NoEffect {
        names: "worker_priority",
        takes: Grammar::of::<i64>(),
        contexts: Contexts::MAIN,
        reason: "threads run at the priority that the process was started with",
    },
    NoEffect {
        names: "worker_cpu_affinity",
        takes: Grammar::of::<CpuMasks>(),
        contexts: Contexts::MAIN,
        reason: "the system places threads on cores",
    },
    NoEffect {
        names: "js_context_reuse_max_size",
        takes: Grammar::of::<ByteSize>(),
        contexts: SCRIPTED,
        reason: "memory is not counted by context; \"js_memory_limit\" bounds that of all, and \
                 \"js_context_reuse\" their number",
    },
    #[cfg(not(feature = "script"))]
    NoEffect {
        names: "env",
        takes: Grammar::of::<String>(),
        contexts: Contexts::MAIN,
        reason: "nothing of the environment is used or removed",
    },
    NoEffect {
        names: "load_module",
        takes: Grammar::of::<String>(),
        contexts: Contexts::MAIN,
        reason: "what a module of nginx adds is either built in or refused by name",
    },
    NoEffect {
        names: "pcre_jit",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::MAIN,
        reason: "expressions are compiled in any case",
    },
    NoEffect {
        names: "thread_pool",
        takes: Grammar::of::<ThreadPool>(),
        contexts: Contexts::MAIN,
        reason: "threads for disks are started as they are needed",
    },
    NoEffect {
        names: "ssl_object_cache_inheritable",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::MAIN,
        reason: "a reload reads certificates again",
    },
    NoEffect {
        names: "http2_recv_buffer_size http2_pool_size",
        takes: Grammar::of::<ByteSize>(),
        contexts: HTTP_SERVER,
        reason: "memory of HTTP/2 connections grows and shrinks with their streams",
    },
    NoEffect {
        names: "http2_streams_index_size",
        takes: Grammar::of::<u64>(),
        contexts: HTTP_SERVER,
        reason: "memory of HTTP/2 connections grows and shrinks with their streams",
    },
    NoEffect {
        names: "http2_max_requests",
        takes: Grammar::of::<String>(),
        contexts: HTTP_SERVER,
        reason: "it is obsolete in nginx, too: \"keepalive_requests\" is obeyed",
    },
    NoEffect {
        names: "http2_max_field_size http2_max_header_size",
        takes: Grammar::of::<String>(),
        contexts: HTTP_SERVER,
        reason: "it is obsolete in nginx, too: \"large_client_header_buffers\" is obeyed",
    },
    NoEffect {
        names: "http2_recv_timeout",
        takes: Grammar::of::<String>(),
        contexts: HTTP_SERVER,
        reason: "it is obsolete in nginx, too: \"client_header_timeout\" is obeyed",
    },
    NoEffect {
        names: "http2_idle_timeout",
        takes: Grammar::of::<String>(),
        contexts: HTTP_SERVER,
        reason: "it is obsolete in nginx, too: \"keepalive_timeout\" is obeyed",
    },
    NoEffect {
        names: "http2_max_concurrent_pushes http2_push http2_push_preload",
        takes: Grammar::of::<String>(),
        contexts: HTTP_SERVER_LOCATION,
        reason: "it is obsolete in nginx, too: nobody takes what is pushed; \"early_hints\" passes \
                 on what an origin says early",
    },
    NoEffect {
        names: "use",
        takes: Grammar::of::<EventMethod>(),
        contexts: Contexts::EVENTS,
        reason: "events come from epoll",
    },
    NoEffect {
        names: "multi_accept",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::EVENTS,
        reason: "each worker has a socket of its own and accepts all that waits there",
    },
    NoEffect {
        names: "accept_mutex",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::EVENTS,
        reason: "each worker has a socket of its own",
    },
    NoEffect {
        names: "accept_mutex_delay",
        takes: Grammar::of::<Duration>(),
        contexts: Contexts::EVENTS,
        reason: "each worker has a socket of its own",
    },
    NoEffect {
        names: "debug_connection",
        takes: Grammar::of::<String>(),
        contexts: Contexts::EVENTS,
        reason: "there is no log of single steps, for these clients as for all others",
    },
    NoEffect {
        names: "worker_aio_requests",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::EVENTS,
        reason: "disks are read by threads",
    },
    NoEffect {
        names: "epoll_events",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::EVENTS,
        reason: "the number of events taken at once is fixed",
    },
    NoEffect {
        names: "devpoll_changes",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::EVENTS,
        reason: "events come from epoll",
    },
    NoEffect {
        names: "devpoll_events",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::EVENTS,
        reason: "events come from epoll",
    },
    NoEffect {
        names: "eventport_events",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::EVENTS,
        reason: "events come from epoll",
    },
    NoEffect {
        names: "kqueue_changes",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::EVENTS,
        reason: "events come from epoll",
    },
    NoEffect {
        names: "kqueue_events",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::EVENTS,
        reason: "events come from epoll",
    },
    NoEffect {
        names: "iocp_threads",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::EVENTS,
        reason: "events come from epoll",
    },
    NoEffect {
        names: "post_acceptex",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::EVENTS,
        reason: "events come from epoll",
    },
    NoEffect {
        names: "acceptex_read",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::EVENTS,
        reason: "events come from epoll",
    },
    NoEffect {
        names: "variables_hash_max_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::HTTP.union(Contexts::STREAM),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "variables_hash_bucket_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::HTTP.union(Contexts::STREAM),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "server_names_hash_max_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::HTTP.union(Contexts::STREAM),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "server_names_hash_bucket_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::HTTP.union(Contexts::STREAM),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "types_hash_max_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "types_hash_bucket_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "map_hash_max_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::HTTP.union(Contexts::STREAM),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "map_hash_bucket_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::HTTP.union(Contexts::STREAM),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "referer_hash_max_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::SERVER.union(Contexts::LOCATION),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "referer_hash_bucket_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::SERVER.union(Contexts::LOCATION),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "proxy_headers_hash_max_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "proxy_headers_hash_bucket_size",
        takes: Grammar::of::<u64>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "tables take the room that they need",
    },
    NoEffect {
        names: "connection_pool_size",
        takes: Grammar::of::<ByteSize>(),
        contexts: Contexts::HTTP.union(Contexts::SERVER),
        reason: "memory is taken as it is needed",
    },
    NoEffect {
        names: "request_pool_size",
        takes: Grammar::of::<ByteSize>(),
        contexts: Contexts::HTTP.union(Contexts::SERVER),
        reason: "memory is taken as it is needed",
    },
    NoEffect {
        names: "tcp_nopush",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "a head and the body that is there with it are sent at once",
    },
    NoEffect {
        names: "tcp_nodelay",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "it is always on",
    },
    NoEffect {
        names: "send_lowat",
        takes: Grammar::of::<ByteSize>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "the kernel decides how much it takes",
    },
    NoEffect {
        names: "msie_padding",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "browsers that replace short error pages are gone",
    },
    NoEffect {
        names: "aio",
        takes: Grammar::of::<Aio>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "files are read by sendfile or by threads",
    },
    NoEffect {
        names: "aio_write",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "there are no temporary files of answers",
    },
    NoEffect {
        names: "read_ahead",
        takes: Grammar::of::<ByteSize>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "the kernel reads ahead",
    },
    NoEffect {
        names: "output_buffers",
        takes: Grammar::of::<Buffers>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "files are sent by the kernel, or read in pieces of a fixed size",
    },
    NoEffect {
        names: "directio",
        takes: Grammar::of::<OffOr<Offset>>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "files are read through the page cache",
    },
    NoEffect {
        names: "directio_alignment",
        takes: Grammar::of::<Offset>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "files are read through the page cache",
    },
    NoEffect {
        names: "open_file_cache_events",
        takes: Grammar::of::<bool>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "files are checked by time",
    },
    NoEffect {
        names: "ssl_engine",
        takes: Grammar::of::<String>(),
        contexts: Contexts::MAIN,
        reason: "keys in engines of OpenSSL cannot be used; a key that is in one is refused",
    },
    NoEffect {
        names: "ssl_dhparam",
        takes: Grammar::of::<String>(),
        contexts: TLS_SERVER,
        reason: "there are no suites with DHE",
    },
    NoEffect {
        names: "grpc_ssl_certificate_cache",
        takes: Grammar::of::<CacheLine>(),
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "certificates are read with the configuration",
    },
    NoEffect {
        names: "ssl_ech_file",
        takes: Grammar::of::<String>(),
        contexts: TLS_SERVER,
        reason: "names in handshakes are not encrypted (ECH)",
    },
];

/// The row of a name.
pub(crate) fn find(name: &str) -> Option<&'static NoEffect> {
    NO_EFFECT.iter().find(|row| {
        row.names
            .split_ascii_whitespace()
            .any(|known| known == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directives::{all_directives, is_implemented, refused};

    /// The names of all directives of nginx 1.31.5 and its modules, one in a line.
    const NGINX: &str = include_str!("nginx-directives.txt");

    /// True if a line of the name has an effect in other blocks than those where it has none.
    fn works_elsewhere(name: &str) -> bool {
        let without_effect = find(name).map(|row| row.contexts).unwrap_or_default();
        let mut records = all_directives().iter();
        records.any(|it| it.name == name && !it.contexts.allows(without_effect))
    }

    /// The one list of names that knows a name.
    fn places(name: &str) -> Vec<&'static str> {
        let has_no_effect = find(name).is_some() && !works_elsewhere(name);
        let places = [
            ("implemented", is_implemented(name)),
            ("no effect", has_no_effect),
            ("refused", refused::find(name).is_some()),
        ];
        let known = places.into_iter().filter(|(_, is_known)| *is_known);
        known.map(|(place, _)| place).collect()
    }

    #[test]
    fn every_directive_of_nginx_is_known_in_exactly_one_place() {
        let mut faults = Vec::new();
        // The reader of the language itself knows this one.
        let names = NGINX.lines().filter(|name| *name != "include");
        for name in names {
            let places = places(name);
            if places.len() != 1 {
                faults.push(format!("{name}: {places:?}"));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn names_that_are_not_nginxs_are_ours() {
        // Those of njs are nginx's too, and in sources of their own.
        let is_nginxs =
            |name: &str| NGINX.lines().any(|line| line == name) || name.starts_with("js_");
        let rows = NO_EFFECT.iter().map(|row| row.names);
        let refused = refused::REFUSED.iter().map(|row| row.names);
        let strangers: Vec<&str> = rows
            .chain(refused)
            .flat_map(str::split_ascii_whitespace)
            .filter(|name| !is_nginxs(name))
            .collect();
        assert!(strangers.is_empty(), "{strangers:?}");
    }
}
