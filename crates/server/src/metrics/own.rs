//! The metrics under Millpond's own names: `millpond_…`, and `process_…` as all programs have them.
//!
//! Names follow the conventions of Prometheus: base units, `_total` for counters, one metric for
//! one thing and labels for its kinds. Cache statuses are in lower case; `none` is for what no
//! cache looked at.

use millpond_cache::encoding;
use millpond_exchange::stats::STATUSES;
use millpond_exchange::stats::connections::Happened;
use millpond_exchange::stats::limit::{LimitCount, Outcome};
use millpond_exchange::stats::peer::TimeCount;
use millpond_exchange::stats::site::SiteCount;
use millpond_exchange::stats::status_zone::ZoneCount;
use millpond_exchange::stats::times::{AnswerTimes, ExchangeTimes, Histogram, RESULTS};
use millpond_exchange::trace::Why;
use millpond_wire::http2::Flood;
use millpond_wire::http3;

use millpond_otlp::Signal;
use millpond_otlp::tally::Counts as Exported;

use super::facts::{
    DISK_STATES, Facts, PEER_STATES, PeerFacts, ZoneFacts, disk_state, disks, lost_lines, scrubs,
};
use super::text::{Number, Samples};
use super::{Kind, Metric, fleet, metric, tier};
use Kind::{Counter, Gauge, Info, Summary};

/// The metrics, in the order of the page.
#[rustfmt::skip]
pub(super) const METRICS: &[Metric] = &[
    metric("process_cpu_seconds_total", Counter, &[], (
        "Processor time that the process took, in the kernel and outside.",
        |facts, out| some(out, facts.process.cpu_seconds))),
    metric("process_start_time_seconds", Gauge, &[], (
        "When the process started, seconds since 1970.",
        |facts, out| some(out, facts.process.started))),
    metric("process_resident_memory_bytes", Gauge, &[], (
        "Memory that the process has.",
        |facts, out| some(out, facts.process.resident_bytes))),
    metric("process_virtual_memory_bytes", Gauge, &[], (
        "Addresses that the process uses.",
        |facts, out| some(out, facts.process.virtual_bytes))),
    metric("process_open_fds", Gauge, &[], (
        "Open descriptors: connections, files, sockets.",
        |facts, out| some(out, facts.process.open_fds))),
    metric("process_max_fds", Gauge, &[], (
        "The most descriptors that the process may have open.",
        |facts, out| some(out, facts.process.max_fds))),
    metric("millpond_build_info", Info, &["version"], (
        "The version that runs.",
        |_, out| out.add(&[env!("CARGO_PKG_VERSION")], true))),
    metric("millpond_config_last_reload_successful", Gauge, &[], (
        "1 if the configuration that was last read is in force, 0 if it was refused and the one \
         before it still is.",
        |facts, out| out.add(&[], facts.load.is_taken))),
    metric("millpond_config_last_reload_success_timestamp_seconds", Gauge, &[], (
        "When a configuration was last taken, seconds since 1970.",
        |facts, out| out.add(&[], seconds(facts.load.taken_ms)))),
    metric("millpond_config_reloads_total", Counter, &["result"], (
        "Configurations that were read since the process began, the first included: `success` if \
         they were taken, else `failure`.",
        |facts, out| {
            out.add(&["success"], facts.load.taken);
            out.add(&["failure"], facts.load.failed);
        })),
    metric("millpond_log_lost_lines_total", Counter, &["reason"], (
        "Lines that logs lost: the file refused them, the queue before a slow file was full, the \
         syslog server was away.",
        |facts, out| lost_lines(facts).iter().for_each(|(reason, lines)| {
            out.add(&[reason], *lines);
        }))),

    metric("millpond_connections_accepted_total", Counter, &[], (
        "Connections that clients opened.",
        |facts, out| out.add(&[], facts.connections.accepted))),
    metric("millpond_connections_dropped_total", Counter, &[], (
        "Connections that were closed at once, for want of means.",
        |facts, out| out.add(&[], facts.connections.dropped()))),
    metric("millpond_connections_displaced_total", Counter, &[], (
        "Connections without a whole request that were closed to make room for others.",
        |facts, out| out.add(&[], facts.connections.displaced))),
    metric("millpond_connections_quiet", Gauge, &[], (
        "Connections that have been quiet for so long that they hold no task and no buffer.",
        |facts, out| out.add(&[], facts.connections.quiet))),
    metric("millpond_tls_handshakes_total", Counter, &["version", "session"], (
        "Handshakes of clients that led to an encrypted connection, by the version of TLS, and by \
         the session: `new`, or `resumed` where the client brought one.",
        |facts, out| {
            let of = |end| facts.connections.count_of(end);
            out.add(&["1.2", "new"], of(Happened::New12));
            out.add(&["1.2", "resumed"], of(Happened::Resumed12));
            out.add(&["1.3", "new"], of(Happened::New13));
            out.add(&["1.3", "resumed"], of(Happened::Resumed13));
        })),
    metric("millpond_tls_handshakes_failed_total", Counter, &[], (
        "Handshakes of clients that failed, or that were refused or given up; connections on which \
         nothing came are not among them.",
        |facts, out| out.add(&[], facts.connections.count_of(Happened::HandshakeFailed)))),
    metric("millpond_acme_orders_total", Counter, &["issuer", "certificate", "outcome"], (
        "Orders of certificates, by the issuer and the name that the certificate has below \
         `state_path`: `issued` where there was none, `renewed`, or `failed`.",
        |facts, out| for order in &facts.orders {
            let counts = order.counts;
            for (outcome, count) in [
                ("issued", counts.issued),
                ("renewed", counts.renewed),
                ("failed", counts.failed),
            ] {
                out.add(&[&order.issuer, &order.label, outcome], count);
            }
        })),
    metric("millpond_acme_certificate_left_seconds", Gauge, &["issuer", "certificate"], (
        "The time until a certificate that was ordered ends; negative after it. There is no line \
         before the first certificate.",
        |facts, out| for order in &facts.orders {
            if let Some(left) = order.left_s {
                out.add(&[&order.issuer, &order.label], left as f64);
            }
        })),
    metric("millpond_http2_connections_total", Counter, &[], (
        "Connections that spoke HTTP/2.",
        |facts, out| out.add(&[], facts.connections.count_of(Happened::Http2)))),
    metric("millpond_http2_resets_total", Counter, &["by"], (
        "Streams of HTTP/2 that ended before their time: reset by the `client`, or by the `server` \
         for a fault of the client.",
        |facts, out| {
            let of = |event| facts.connections.count_of(event);
            out.add(&["client"], of(Happened::ResetByClient));
            out.add(&["server"], of(Happened::ResetForFault));
        })),
    metric("millpond_http2_goaways_total", Counter, &["reason"], (
        "Connections of HTTP/2 that the server has ended: `end` in peace, `fault` for what the \
         client sent, `flood` because it made work for nothing.",
        |facts, out| {
            let of = |event| facts.connections.count_of(event);
            out.add(&["end"], of(Happened::GoAway));
            out.add(&["fault"], of(Happened::GoAwayForFault));
            out.add(&["flood"], of(Happened::GoAwayForFlood));
        })),
    metric("millpond_http2_floods_total", Counter, &["kind"], (
        "Connections of HTTP/2 that the server has ended because their clients made work for \
         nothing, by what they sent too much of: `resets` (rapid reset), `made_resets` (streams \
         that had to be reset for what came on them), `refused_streams` (more than may be at \
         once), `continuations` and `long_heads` (heads without an end, HPACK bombs), `settings`, \
         `pings`, `priorities`, `small_data`, `empty_data`, `window_updates`, `unknown_frames`, \
         `unread_answers` (acknowledgements that the client did not read), `long_frames`, \
         `overhead` (frames of any kind without payload).",
        |facts, out| for flood in Flood::ALL {
            out.add(&[flood.name()], facts.connections.count_of_flood(flood));
        })),
    metric("millpond_http3_floods_total", Counter, &["kind"], (
        "Connections of HTTP/3 that the server has ended because their clients made work for \
         nothing, by what they sent too much of: `resets` (requests that were taken back), \
         `made_resets` (streams that had to be reset for what came on them), `rejected_requests` \
         (more than may be at once), `priorities`, `small_data`, `empty_data`, `unknown_frames`, \
         `unknown_streams`, `long_frames`, `blocked_streams` (requests that wait for the table), \
         `table_instructions`, `acknowledgements` of the table, `unread_answers` \
         (acknowledgements that the client did not read), `pings` and `identifiers` of QUIC.",
        |facts, out| for flood in http3::Flood::ALL {
            out.add(&[flood.name()], facts.connections.count_of_quic_flood(flood));
        })),
    metric("millpond_http2_slow_total", Counter, &["part"], (
        "Ends of streams and connections of HTTP/2 whose clients were too slow: `head` for \
         `client_header_timeout`, `body` for `client_body_timeout`, `answer` for a window that did \
         not open within `send_timeout`, `connection` for one that took no byte for as long.",
        |facts, out| {
            let of = |event| facts.connections.count_of(event);
            out.add(&["head"], of(Happened::SlowHead));
            out.add(&["body"], of(Happened::SlowBody));
            out.add(&["answer"], of(Happened::SlowAnswer));
            out.add(&["connection"], of(Happened::SlowReader));
        })),
    metric("millpond_connections", Gauge, &["state"], (
        "Open connections: `reading` a request's head, `writing` an answer, `waiting` for a \
         request.",
        |facts, out| {
            out.add(&["reading"], facts.connections.reading);
            out.add(&["writing"], facts.connections.writing);
            out.add(&["waiting"], facts.connections.waiting());
        })),

    metric("millpond_http_requests_total", Counter, &[], (
        "Requests that began.",
        |facts, out| out.add(&[], facts.connections.requests))),
    metric("millpond_http_responses_total", Counter, &["code"], (
        "Answers that were sent, or whose clients were gone, by status code.",
        |facts, out| facts.responses.codes.iter().for_each(|(code, count)| {
            out.add(&[&code.to_string()], *count);
        }))),
    metric("millpond_http_request_seconds", Kind::Histogram, &["status"], (
        "Time from the first byte of a request to the last of its answer, by cache status.",
        |facts, out| answer_times(facts, out, |times| &times.answer))),
    metric("millpond_http_first_byte_seconds", Kind::Histogram, &["status"], (
        "Time from the head of a request to the head of its answer, by cache status.",
        |facts, out| answer_times(facts, out, |times| &times.first_byte))),
    metric("millpond_cache_responses_total", Counter, &["status"], (
        "Answers by cache status, those to parts of pages included.",
        |facts, out| facts.answers.by_status().for_each(|(status, count)| {
            out.add(&[&label(status)], count.requests);
        }))),
    metric("millpond_cache_response_bytes_total", Counter, &["status"], (
        "Bytes of bodies of answers by cache status, as they were sent.",
        |facts, out| facts.answers.by_status().for_each(|(status, count)| {
            out.add(&[&label(status)], count.bytes);
        }))),

    metric("millpond_origin_exchanges_total", Counter, &["reason", "result"], (
        "Exchanges with origins that are over: why (`miss`, `expired`, `revalidate`, `slice`, \
         `background`, `bypass`, `pass`), and the class of the answer's status, or `timeout`, \
         `error`, `abandoned` (nobody wanted the answer any more), `no_peer` (there was nobody to \
         ask).",
        |facts, out| exchanges(facts, |reason, times| {
            let some = RESULTS.iter().zip(times.results).filter(|(_, count)| *count > 0);
            some.for_each(|(result, count)| out.add(&[reason, result], count));
        }))),
    metric("millpond_origin_connect_seconds", Kind::Histogram, &["reason"], (
        "Time to a connection with an origin; next to nothing for one that was kept.",
        |facts, out| exchange_times(facts, out, |times| &times.connect))),
    metric("millpond_origin_header_seconds", Kind::Histogram, &["reason"], (
        "Time to the head of an origin's answer.",
        |facts, out| exchange_times(facts, out, |times| &times.header))),
    metric("millpond_origin_response_seconds", Kind::Histogram, &["reason"], (
        "Time to the end of an origin's answer.",
        |facts, out| exchange_times(facts, out, |times| &times.response))),
    metric("millpond_origin_received_bytes_total", Counter, &[], (
        "Bytes that came from origins, heads included, since the file of the site counters \
         was made.",
        |facts, out| out.add(&[], facts.all_sites.received))),
    metric("millpond_origin_sent_bytes_total", Counter, &[], (
        "Bytes that were sent to origins, since the file of the site counters was made.",
        |facts, out| out.add(&[], facts.all_sites.asked))),

    metric("millpond_zone_size_bytes", Gauge, &["zone"], (
        "Bytes of all files of a cache zone.",
        |facts, out| zones(facts, out, |it| it.usage.bytes))),
    metric("millpond_zone_live_bytes", Gauge, &["zone"], (
        "Bytes of the files of a zone that entries take.",
        |facts, out| zones(facts, out, |it| it.usage.live_bytes))),
    metric("millpond_zone_limit_bytes", Gauge, &["zone"], (
        "The most that the files of a zone may have (`max_size`); missing where there is no limit.",
        |facts, out| zones(facts, out, |it| it.declared.max_size))),
    metric("millpond_zone_records", Gauge, &["zone"], (
        "Entries and slices in a zone.",
        |facts, out| zones(facts, out, |it| it.usage.entries))),
    metric("millpond_zone_memory_bytes", Gauge, &["zone"], (
        "Bytes of bodies in a zone's memory tier.",
        |facts, out| zones(facts, out, |it| it.usage.memory_bytes))),
    metric("millpond_zone_memory_limit_bytes", Gauge, &["zone"], (
        "The most that a zone's memory tier may have (`memory`).",
        |facts, out| zones(facts, out, |it| it.declared.memory))),
    metric("millpond_zone_index_bytes", Gauge, &["zone"], (
        "Memory that a zone's index takes.",
        |facts, out| zones(facts, out, |it| it.usage.index_bytes))),
    metric("millpond_zone_index_spilled_entries", Gauge, &["zone"], (
        "Entries that have no cell in the index, because too many keys are at home where theirs is.",
        |facts, out| zones(facts, out, |it| it.usage.index_spilled))),
    metric("millpond_zone_queued_bytes", Gauge, &["zone"], (
        "Bytes that wait for a zone's disks.",
        |facts, out| zones(facts, out, |it| it.usage.queued_bytes))),
    metric("millpond_zone_fills", Gauge, &["zone"], (
        "Fills that run now.",
        |facts, out| zones(facts, out, |it| it.fills))),
    metric("millpond_zone_purge_rules", Gauge, &["zone"], (
        "Purges in force whose entries are not all removed yet.",
        |facts, out| zones(facts, out, |it| it.purges))),
    metric("millpond_zone_purges_total", Counter, &["zone", "kind", "mode"], (
        "Purges that were acknowledged since the process opened the zone, by what they were about \
         (`exact`, `prefix`, `wildcard`, `host`, `site`, `tag`, `group`, `all`) and how (`hard`, `soft`).",
        |facts, out| facts.zones.iter().for_each(|zone| {
            for ((kind, mode), count) in &zone.purged {
                out.add(&[zone.name(), kind, mode], *count);
            }
        }))),
    metric("millpond_zone_evicted_total", Counter, &["zone"], (
        "Records removed for space.",
        |facts, out| zones(facts, out, |it| it.usage.evicted))),
    metric("millpond_zone_inactive_removed_total", Counter, &["zone"], (
        "Records removed because nobody used them (`inactive`).",
        |facts, out| zones(facts, out, |it| it.usage.expired))),
    metric("millpond_zone_corrupt_total", Counter, &["zone"], (
        "Records removed because their bytes were not what was written.",
        |facts, out| zones(facts, out, |it| it.usage.corrupt))),
    metric("millpond_zone_lost_total", Counter, &["zone"], (
        "Records lost because a disk refused to write or to sync them.",
        |facts, out| zones(facts, out, |it| it.usage.lost))),
    metric("millpond_zone_not_stored_total", Counter, &["zone"], (
        "Fills that were not stored: no room, a full queue, not asked for often enough.",
        |facts, out| zones(facts, out, |it| it.usage.not_stored))),
    metric("millpond_zone_encodings_total", Counter, &["zone", "outcome"], (
        "Encodings of stored answers (`proxy_cache_encodings`) that were `made`; not kept because \
         they were `not_shorter`, or the store or a newer answer was in the way (`not_stored`); \
         `failed`; `refused`, because too many others waited; or not made at all, because the full \
         zone would not take them yet (`not_chosen`: each second that they are asked for counts).",
        |facts, out| facts.zones.iter().for_each(|zone| {
            let counts = zone.encodings.outcomes;
            for (outcome, count) in encoding::Outcome::ALL.into_iter().zip(counts) {
                out.add(&[zone.name(), outcome.word()], count);
            }
        }))),
    metric("millpond_zone_rules_total", Counter, &["zone", "rule"], (
        "Requests that a rule beyond ordinary caching has decided: answers from the zone to QUERY \
         (`query_hit`), to GraphQL (`graphql_hit`), by No-Vary-Search (`no_vary_search_hit`), by a \
         class of `proxy_cache_vary` (`class_hit`) and by a dictionary that the client has \
         (`dictionary_hit`, RFC 9842); bodies that were kept as such (`dictionary_kept`); what \
         GraphQL had passed on (`graphql_passed`: mutations, and what is no single query); \
         refusals by `cached_only` (`cached_only_refused`); groups that answers have invalidated \
         (`group_invalidated`, RFC 9875); bodies that broke off and went on with a part that was \
         asked for (`resumed`).",
        |facts, out| facts.zones.iter().for_each(|zone| {
            for (rule, count) in &zone.rules {
                out.add(&[zone.name(), rule.word()], *count);
            }
        }))),
    metric("millpond_zone_encoding_bytes_total", Counter, &["zone", "of"], (
        "Bytes of the bodies that encodings were made of (`body`), and of these encodings (`encoding`).",
        |facts, out| facts.zones.iter().for_each(|zone| {
            out.add(&[zone.name(), "body"], zone.encodings.bytes_before);
            out.add(&[zone.name(), "encoding"], zone.encodings.bytes_after);
        }))),
    metric("millpond_zone_encoded_responses_total", Counter, &["zone"], (
        "Answers from a stored encoding.",
        |facts, out| zones(facts, out, |it| it.encodings.answers))),
    metric("millpond_zone_encoding_saved_bytes_total", Counter, &["zone"], (
        "Bytes by which answers from stored encodings were shorter than what they are encodings of.",
        |facts, out| zones(facts, out, |it| it.encodings.saved_bytes))),
    metric("millpond_zone_disk_written_bytes_total", Counter, &["zone"], (
        "Bytes written to a zone's disks.",
        |facts, out| zones(facts, out, |it| it.usage.written_bytes))),
    metric("millpond_zone_disk_rewritten_bytes_total", Counter, &["zone"], (
        "Bytes written to a zone's disks once more, to keep what is in use.",
        |facts, out| zones(facts, out, |it| it.usage.rewritten_bytes))),
    metric("millpond_zone_write_errors_total", Counter, &["zone"], (
        "Writes and syncs that a zone's disks refused.",
        |facts, out| zones(facts, out, |it| it.usage.write_errors))),
    metric("millpond_zone_lost_segments_total", Counter, &["zone"], (
        "Regions of a zone's disks that were let go with all that stood there, because a sync failed.",
        |facts, out| zones(facts, out, |it| it.usage.lost_segments))),
    metric("millpond_zone_responses_total", Counter, &["zone", "status"], (
        "Answers to requests that looked into a zone, by cache status.",
        |facts, out| zone_statuses(facts, |names, count| out.add(names, count.answers.requests)))),
    metric("millpond_zone_response_bytes_total", Counter, &["zone", "status"], (
        "Bytes of bodies of answers to requests that looked into a zone, by cache status.",
        |facts, out| zone_statuses(facts, |names, count| out.add(names, count.answers.bytes)))),
    metric("millpond_zone_stored_total", Counter, &["zone", "status"], (
        "Answers of origins that were stored in a zone, by the cache status that led to them.",
        |facts, out| zone_statuses(facts, |names, count| out.add(names, count.written.requests)))),
    metric("millpond_zone_stored_bytes_total", Counter, &["zone", "status"], (
        "Bytes of bodies that were stored in a zone, by the cache status that led to them.",
        |facts, out| zone_statuses(facts, |names, count| out.add(names, count.written.bytes)))),

    metric("millpond_disk_state", Gauge, &["zone", "disk", "state"], (
        "1 for the state that a zone's disk is in: `live`, `full` (its file system has less room \
         than its limit) or `failed` (given up, and tried again).",
        |facts, out| disks(facts, |names, disk| {
            let [zone, path] = names;
            for state in DISK_STATES {
                out.add(&[zone, path, state], state == disk_state(disk));
            }
        }))),
    metric("millpond_disk_size_bytes", Gauge, &["zone", "disk"], (
        "Bytes of the zone's files on a disk.",
        |facts, out| disks(facts, |names, disk| out.add(&names, disk.usage.bytes)))),
    metric("millpond_disk_live_bytes", Gauge, &["zone", "disk"], (
        "Bytes of the zone's files on a disk that entries take.",
        |facts, out| disks(facts, |names, disk| out.add(&names, disk.usage.live_bytes)))),
    metric("millpond_disk_limit_bytes", Gauge, &["zone", "disk"], (
        "The most that the zone's files on a disk may have; missing where there is no limit.",
        |facts, out| disks(facts, |names, disk| {
            if let Some(limit) = disk.usage.max_size {
                out.add(&names, limit);
            }
        }))),
    metric("millpond_disk_records", Gauge, &["zone", "disk"], (
        "Entries and slices on a disk.",
        |facts, out| disks(facts, |names, disk| out.add(&names, disk.usage.entries)))),
    metric("millpond_disk_read_errors_total", Counter, &["zone", "disk"], (
        "Reads that a disk refused.",
        |facts, out| disks(facts, |names, disk| out.add(&names, disk.usage.read_errors)))),
    metric("millpond_disk_failures_total", Counter, &["zone", "disk"], (
        "How often a disk was given up.",
        |facts, out| disks(facts, |names, disk| out.add(&names, disk.failures)))),

    metric("millpond_disk_scrub_running", Gauge, &["zone", "disk"], (
        "1 while a scrub of a disk runs; missing where there is none (`scrub`), as for the others.",
        |facts, out| scrubs(facts, |names, scrub| out.add(&names, scrub.is_running)))),
    metric("millpond_disk_scrub_interval_seconds", Gauge, &["zone", "disk"], (
        "Time between the beginnings of two passes of a scrub (`scrub`).",
        |facts, out| scrubs(facts, |names, scrub| out.add(&names, scrub.every.as_secs_f64())))),
    metric("millpond_disk_scrub_last_completed_timestamp_seconds", Gauge, &["zone", "disk"], (
        "When a pass was last ended that compared everything, seconds since 1970; missing before \
         the first.",
        |facts, out| scrubs(facts, |names, scrub| {
            if scrub.ended_ms > 0 {
                out.add(&names, scrub.ended_ms as f64 / 1000.0);
            }
        }))),
    metric("millpond_disk_scrub_passes_total", Counter, &["zone", "disk"], (
        "Passes of a scrub that compared everything.",
        |facts, out| scrubs(facts, |names, scrub| out.add(&names, scrub.passes)))),
    metric("millpond_disk_scrub_corrupt_total", Counter, &["zone", "disk"], (
        "Records that a scrub found not to be what was written, and removed.",
        |facts, out| scrubs(facts, |names, scrub| out.add(&names, scrub.corrupt)))),
    metric("millpond_disk_scrub_unread_total", Counter, &["zone", "disk"], (
        "Records that a disk did not give to a scrub.",
        |facts, out| scrubs(facts, |names, scrub| out.add(&names, scrub.unread)))),

    metric("millpond_site_requests_total", Counter, &["site", "status"], (
        "Answers to a site's clients by cache status, since the file of the site counters was \
         made. The site `*` is all those that have no line of their own.",
        |facts, out| sites(facts, |site, count| {
            for (status, count) in count.by_status().filter(|(_, count)| count.requests > 0) {
                out.add(&[site, &label(status)], count.requests);
            }
        }))),
    metric("millpond_site_response_bytes_total", Counter, &["site", "status"], (
        "Bytes of bodies of answers to a site's clients, by cache status.",
        |facts, out| sites(facts, |site, count| {
            for (status, count) in count.by_status().filter(|(_, count)| count.requests > 0) {
                out.add(&[site, &label(status)], count.bytes);
            }
        }))),
    metric("millpond_site_origin_exchanges_total", Counter, &["site"], (
        "Exchanges with a site's origins.",
        |facts, out| sites(facts, |site, count| out.add(&[site], count.exchanges)))),
    metric("millpond_site_origin_received_bytes_total", Counter, &["site"], (
        "Bytes that came from a site's origins, heads included.",
        |facts, out| sites(facts, |site, count| out.add(&[site], count.received)))),
    metric("millpond_site_origin_sent_bytes_total", Counter, &["site"], (
        "Bytes that were sent to a site's origins.",
        |facts, out| sites(facts, |site, count| out.add(&[site], count.asked)))),

    metric("millpond_site_cache_bytes_total", Counter, &["site"], (
        "Bytes of bodies sent to a site's clients that came from the cache.",
        |facts, out| sites(facts, |site, count| out.add(&[site], count.shares.cache)))),
    metric("millpond_site_origin_bytes_total", Counter, &["site"], (
        "Bytes of bodies sent to a site's clients that came from an origin for them.",
        |facts, out| sites(facts, |site, count| out.add(&[site], count.shares.origin)))),
    metric("millpond_site_entries", Gauge, &["site", "zone"], (
        "Entries that a site has in a zone; slices of an entry are part of it.",
        |facts, out| facts.each_held(|names, it| out.add(&names, it.held.entries)))),
    metric("millpond_site_held_bytes", Gauge, &["site", "zone"], (
        "Bytes of disks that a site takes in a zone: bodies, heads and padding.",
        |facts, out| facts.each_held(|names, it| out.add(&names, it.held.disk_bytes)))),
    metric("millpond_site_held_body_bytes", Gauge, &["site", "zone"], (
        "Bytes of bodies that a site has in a zone.",
        |facts, out| facts.each_held(|names, it| out.add(&names, it.held.body_bytes)))),
    metric("millpond_site_departed_total", Counter, &["site", "zone", "reason"], (
        "Records of a site that left a zone since the process began with it: `evicted` for space, \
         `inactive` because nobody used them, `removed` on demand, `replaced` by others under \
         their key, `corrupt`, or `lost` with a write.",
        |facts, out| facts.each_held(|[site, zone], it| {
            for (reason, count) in &it.departed {
                out.add(&[site, zone, reason], *count);
            }
        }))),

    metric("millpond_site_quota_bytes", Gauge, &["site", "zone"], (
        "The most that a site may hold in a zone (`cache_site_quota`).",
        |facts, out| facts.each_quota(|names, it| out.add(&names, it.bytes)))),
    metric("millpond_site_quota_held_bytes", Gauge, &["site", "zone"], (
        "Bytes of disks that a site with a quota takes in a zone.",
        |facts, out| facts.each_quota(|names, it| out.add(&names, it.held)))),
    metric("millpond_site_quota_evicted_total", Counter, &["site", "zone"], (
        "Records of a site that left a zone for others of the site, since the process had its quota.",
        |facts, out| facts.each_quota(|names, it| out.add(&names, it.evicted)))),
    metric("millpond_site_quota_refused_total", Counter, &["site", "zone"], (
        "Records of a site that were not stored because of its quota, since the process had it.",
        |facts, out| facts.each_quota(|names, it| out.add(&names, it.refused)))),

    metric("millpond_fleet_lag_seconds", Gauge, &["fleet"], (
        "The time since this node had all purges that the log of the fleet had acknowledged. There \
         is no line before it had them once.",
        fleet::lag)),
    metric("millpond_fleet_behind", Gauge, &["fleet"], (
        "1 if that is longer than `max_lag`, or was never, so that `on_lag` holds; else 0.",
        |facts, out| fleet::each(facts, out, |it| u64::from(it.is_behind)))),
    metric("millpond_fleet_nodes", Gauge, &["fleet"], (
        "Nodes of the fleet that were heard of within `max_lag`, this one included.",
        |facts, out| fleet::each(facts, out, |it| it.live))),
    metric("millpond_fleet_split_nodes", Gauge, &["fleet"], (
        "Nodes among which limits with `fleet=NAME:split` are split; each has an equal share.",
        |facts, out| fleet::each(facts, out, |it| it.split))),
    metric("millpond_fleet_leases_total", Counter, &["fleet", "outcome"], (
        "Keys of leased limits that this node asked for: `granted`, `empty`, or their owner `away`.",
        fleet::leases)),
    metric("millpond_fleet_taken_purges_total", Counter, &["fleet"], (
        "Purges that were taken from the log of the fleet.",
        |facts, out| fleet::each(facts, out, |it| it.counts.taken))),
    metric("millpond_fleet_purges_total", Counter, &["fleet", "result"], (
        "Purges that this node was asked for: `acknowledged` by the log of the fleet, or `local`, \
         so that no other node is known to have them.",
        fleet::purges)),
    metric("millpond_fleet_peer_requests_total", Counter, &["fleet", "result"], (
        "Requests between nodes. Of those that this node made in place of one to the origin: the \
         owner's answer was used (`answered`), it gave no sign of life in time (`slow`), was not \
         reached (`failed`), or refused (`refused`). Of those that it got: `served`, `rejected` \
         (another secret, clock, zone or key), or refused because the other node had more of the \
         log (`behind`).",
        fleet::peers)),
    metric("millpond_fleet_peer_requests_active", Gauge, &["fleet"], (
        "Requests of other nodes that this node is answering.",
        |facts, out| fleet::each(facts, out, |it| it.answering))),
    metric("millpond_fleet_gaps_total", Counter, &["fleet"], (
        "Number of times that all of a zone was made stale, because it was not known what it had \
         missed.",
        |facts, out| fleet::each(facts, out, |it| it.counts.gaps))),
    metric("millpond_fleet_unknown_entries_total", Counter, &["fleet"], (
        "Entries of the log that were not understood, so that everything was purged.",
        |facts, out| fleet::each(facts, out, |it| it.counts.unknown))),
    metric("millpond_fleet_config_revision", Gauge, &["fleet"], (
        "Number of the order of configuration that is in force; 0 for the node's own file alone.",
        fleet::revision)),
    metric("millpond_fleet_config_state", Gauge, &["fleet", "state"], (
        "1 for what has become of the newest order of configuration on this node: `settled`, \
         `applying`, `watched`, `held`, `refused`, `back` or `waiting`.",
        fleet::state)),
    metric("millpond_fleet_config_orders_total", Counter, &["fleet", "result"], (
        "Orders of configuration that were `applied`, `refused` by a test or reload, or taken \
         `back`; and those that were `not_taken`, because nobody who is trusted has signed them.",
        fleet::orders)),
    metric("millpond_tier_reads_total", Counter, &["zone", "result"], (
        "Questions to the second tier of the zone: `hit`, `miss`, `purged` (a purge is about the \
         copy), `fault` (the store failed or was too slow), or `skipped` (not asked: it has failed \
         before, too much is being read, or the log was not read yet).",
        tier::reads)),
    metric("millpond_tier_writes_total", Counter, &["zone", "result"], (
        "Entries worth a copy in the second tier of the zone: `written`, `present` (there was one), \
         `dropped` (the queue is full, or the store has failed before), `gone` (gone or purged by \
         then, or not to be copied), or `fault`.",
        tier::writes)),
    metric("millpond_tier_bytes_total", Counter, &["zone", "direction"], (
        "Bytes of bodies that were `read` from the second tier of the zone, and `written` to it.",
        tier::bytes)),
    metric("millpond_tier_objects_total", Counter, &["zone", "action"], (
        "Objects of the second tier of the zone that were `written` (a head of each copy, and one \
         for each 4 MiB of its body) and `removed`.",
        tier::objects)),
    metric("millpond_tier_queue_entries", Gauge, &["zone"], (
        "Things that wait to be written to the second tier of the zone, or to be removed.",
        tier::waiting)),
    metric("millpond_tier_queue_bytes", Gauge, &["zone"], (
        "Bytes of bodies that wait to be written to the second tier of the zone.",
        tier::queued)),
    metric("millpond_tier_left_alone", Gauge, &["zone"], (
        "1 while the second tier of the zone is not asked, or not written to, after failures.",
        tier::left_alone)),

    metric("millpond_server_zone_requests_total", Counter, &["zone"], (
        "Requests of the servers of a `status_zone`.",
        |facts, out| counts(&facts.servers, out, |it| it.requests))),
    metric("millpond_server_zone_processing", Gauge, &["zone"], (
        "Requests of the servers of a `status_zone` that are being answered.",
        |facts, out| counts(&facts.servers, out, ZoneCount::processing))),
    metric("millpond_server_zone_responses_total", Counter, &["zone", "code"], (
        "Answers of the servers of a `status_zone` by status code.",
        |facts, out| codes(&facts.servers, out))),
    metric("millpond_server_zone_discarded_total", Counter, &["zone"], (
        "Requests of the servers of a `status_zone` that ended without an answer.",
        |facts, out| counts(&facts.servers, out, |it| it.discarded))),
    metric("millpond_server_zone_received_bytes_total", Counter, &["zone"], (
        "Bytes that clients sent to the servers of a `status_zone`.",
        |facts, out| counts(&facts.servers, out, |it| it.received))),
    metric("millpond_server_zone_sent_bytes_total", Counter, &["zone"], (
        "Bytes that clients got from the servers of a `status_zone`.",
        |facts, out| counts(&facts.servers, out, |it| it.sent))),
    metric("millpond_location_zone_requests_total", Counter, &["zone"], (
        "Requests that ended in the locations of a `status_zone`.",
        |facts, out| counts(&facts.locations, out, |it| it.requests))),
    metric("millpond_location_zone_responses_total", Counter, &["zone", "code"], (
        "Answers of the locations of a `status_zone` by status code.",
        |facts, out| codes(&facts.locations, out))),
    metric("millpond_location_zone_discarded_total", Counter, &["zone"], (
        "Requests that ended in the locations of a `status_zone` without an answer.",
        |facts, out| counts(&facts.locations, out, |it| it.discarded))),
    metric("millpond_location_zone_received_bytes_total", Counter, &["zone"], (
        "Bytes of the requests that ended in the locations of a `status_zone`.",
        |facts, out| counts(&facts.locations, out, |it| it.received))),
    metric("millpond_location_zone_sent_bytes_total", Counter, &["zone"], (
        "Bytes that clients got from the locations of a `status_zone`.",
        |facts, out| counts(&facts.locations, out, |it| it.sent))),

    metric("millpond_limit_conn_requests_total", Counter, &["zone", "outcome"], (
        "Requests that a zone of `limit_conn` let through (`passed`), refused (`rejected`), or \
         would have refused but for a dry run (`rejected_dry_run`).",
        |facts, out| limits(&facts.limit_conns, &Outcome::OF_CONNECTIONS, out))),
    metric("millpond_limit_req_requests_total", Counter, &["zone", "outcome"], (
        "Requests that a zone of `limit_req` let through at once (`passed`) or after a wait \
         (`delayed`), refused (`rejected`), or would have delayed or refused but for a dry run \
         (`delayed_dry_run`, `rejected_dry_run`).",
        |facts, out| limits(&facts.limit_reqs, &Outcome::ALL, out))),

    metric("millpond_upstream_peer_state", Gauge, &["upstream", "peer", "state"], (
        "1 for the state that a server of a group is in: `up`, `draining`, `down` (by the \
         configuration) or `unavail` (after failures).",
        |facts, out| peers(facts, |names, peer| {
            let [group, name] = names;
            for state in PEER_STATES {
                out.add(&[group, name, state], state == peer.state);
            }
        }))),
    metric("millpond_upstream_peer_connections", Gauge, &["upstream", "peer"], (
        "Exchanges with a server of a group that are under way.",
        |facts, out| peers(facts, |names, peer| out.add(&names, peer.active)))),
    metric("millpond_upstream_shared_connections", Gauge, &["upstream"], (
        "Connections to the servers of a group that several requests share \
         (`keepalive_streams`), with those that are being made.",
        |facts, out| for it in &facts.shared {
            out.add(&[&it.group], it.connections);
        })),
    metric("millpond_upstream_shared_requests", Gauge, &["upstream"], (
        "Requests that share connections to the servers of a group (`keepalive_streams`).",
        |facts, out| for it in &facts.shared {
            out.add(&[&it.group], it.requests);
        })),
    metric("millpond_upstream_peer_requests_total", Counter, &["upstream", "peer"], (
        "Exchanges with a server of a group that are over.",
        |facts, out| peers(facts, |names, peer| out.add(&names, peer.count.requests)))),
    metric("millpond_upstream_peer_responses_total", Counter, &["upstream", "peer", "code"], (
        "Answers of a server of a group by status code.",
        |facts, out| peers(facts, |[group, name], peer| {
            for (code, count) in &peer.count.responses.codes {
                out.add(&[group, name, &code.to_string()], *count);
            }
        }))),
    metric("millpond_upstream_peer_sent_bytes_total", Counter, &["upstream", "peer"], (
        "Bytes that were sent to a server of a group.",
        |facts, out| peers(facts, |names, peer| out.add(&names, peer.count.sent)))),
    metric("millpond_upstream_peer_received_bytes_total", Counter, &["upstream", "peer"], (
        "Bytes that came from a server of a group.",
        |facts, out| peers(facts, |names, peer| out.add(&names, peer.count.received)))),
    metric("millpond_upstream_peer_fails_total", Counter, &["upstream", "peer"], (
        "Tries with a server of a group that failed.",
        |facts, out| peers(facts, |names, peer| out.add(&names, peer.count.fails)))),
    metric("millpond_upstream_peer_unavailable_total", Counter, &["upstream", "peer"], (
        "How often a server of a group was set aside after failures.",
        |facts, out| peers(facts, |names, peer| out.add(&names, peer.count.unavailable)))),
    metric("millpond_upstream_peer_downtime_seconds_total", Counter, &["upstream", "peer"], (
        "For how long a server of a group was set aside.",
        |facts, out| peers(facts, |names, peer| {
            out.add(&names, peer.count.downtime.as_secs_f64());
        }))),
    metric("millpond_upstream_peer_header_seconds", Summary, &["upstream", "peer"], (
        "Time to the heads of the answers of a server of a group.",
        |facts, out| peers(facts, |names, peer| {
            out.add_summary(&names, times(&peer.count.header_time));
        }))),
    metric("millpond_upstream_peer_response_seconds", Summary, &["upstream", "peer"], (
        "Time to the ends of the answers of a server of a group.",
        |facts, out| peers(facts, |names, peer| {
            out.add_summary(&names, times(&peer.count.response_time));
        }))),
    metric("millpond_otel_spans_sent_total", Counter, &[], (
        "Spans that a collector has taken.",
        |facts, out| spans(facts, out, |counts| counts.sent))),
    metric("millpond_otel_spans_failed_total", Counter, &[], (
        "Spans that a collector has not taken, or could not be sent.",
        |facts, out| spans(facts, out, |counts| counts.failed))),
    metric("millpond_otel_spans_dropped_total", Counter, &[], (
        "Spans for which there was no room in the queue of `otel_exporter`, or no time at the end.",
        |facts, out| spans(facts, out, |counts| counts.dropped))),
    metric("millpond_otel_records_sent_total", Counter, &["signal"], (
        "Metrics (`otel_metrics`) and lines (`otel_logs`) that a collector has taken.",
        |facts, out| records(facts, out, |counts| counts.sent))),
    metric("millpond_otel_records_failed_total", Counter, &["signal"], (
        "Metrics and lines that a collector has not taken, or could not be sent.",
        |facts, out| records(facts, out, |counts| counts.failed))),
    metric("millpond_otel_records_dropped_total", Counter, &["signal"], (
        "Metrics and lines for which there was no room in a queue, or no time at the end.",
        |facts, out| records(facts, out, |counts| counts.dropped))),
];

/// Adds a count of spans.
fn spans(facts: &Facts, out: &mut Samples<'_>, of: fn(&Exported) -> u64) {
    for (signal, counts) in &facts.exported {
        if *signal == Signal::Traces {
            out.add(&[], of(counts));
        }
    }
}

/// Adds a count of each signal beside spans.
fn records(facts: &Facts, out: &mut Samples<'_>, of: fn(&Exported) -> u64) {
    for (signal, counts) in &facts.exported {
        match signal {
            Signal::Traces => {}
            Signal::Metrics => out.add(&["metrics"], of(counts)),
            Signal::Logs => out.add(&["logs"], of(counts)),
        }
    }
}

/// A cache status as a label.
fn label(status: &str) -> String {
    match status {
        "-" => "none".to_string(),
        status => status.to_ascii_lowercase(),
    }
}

fn some(out: &mut Samples<'_>, number: Option<impl Into<Number>>) {
    if let Some(number) = number {
        out.add(&[], number);
    }
}

fn answer_times(facts: &Facts, out: &mut Samples<'_>, of: fn(&AnswerTimes) -> &Histogram) {
    for (status, times) in STATUSES.iter().zip(&facts.answer_times) {
        if of(times).count() > 0 {
            out.add_histogram(&[&label(status)], of(times));
        }
    }
}

fn exchanges(facts: &Facts, mut add: impl FnMut(&'static str, &ExchangeTimes)) {
    for (why, times) in Why::ALL.iter().zip(&facts.exchange_times) {
        add(why.as_str(), times);
    }
}

fn exchange_times(facts: &Facts, out: &mut Samples<'_>, of: fn(&ExchangeTimes) -> &Histogram) {
    exchanges(facts, |reason, times| {
        if of(times).count() > 0 {
            out.add_histogram(&[reason], of(times));
        }
    });
}

fn zones<N: Into<Option<u64>>>(facts: &Facts, out: &mut Samples<'_>, of: fn(&ZoneFacts) -> N) {
    for zone in &facts.zones {
        if let Some(number) = of(zone).into() {
            out.add(&[zone.name()], number);
        }
    }
}

fn zone_statuses(
    facts: &Facts,
    mut add: impl FnMut(&[&str], &millpond_exchange::stats::cache_zone::ZoneStatusCount),
) {
    for zone in &facts.zones {
        for (status, count) in zone.statuses.iter().filter(|(status, _)| *status != "-") {
            add(&[zone.name(), &label(status)], count);
        }
    }
}

/// Milliseconds since 1970 as Prometheus has times.
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

fn sites(facts: &Facts, mut add: impl FnMut(&str, &SiteCount)) {
    for (site, count) in &facts.sites {
        add(site, count);
    }
}

fn counts(zones: &[(String, ZoneCount)], out: &mut Samples<'_>, of: impl Fn(&ZoneCount) -> u64) {
    for (zone, count) in zones {
        out.add(&[zone], of(count));
    }
}

fn codes(zones: &[(String, ZoneCount)], out: &mut Samples<'_>) {
    for (zone, count) in zones {
        for (code, count) in &count.responses.codes {
            out.add(&[zone, &code.to_string()], *count);
        }
    }
}

fn limits(zones: &[(String, LimitCount)], outcomes: &[Outcome], out: &mut Samples<'_>) {
    for (zone, count) in zones {
        for outcome in outcomes {
            out.add(&[zone, outcome.as_str()], count.of(*outcome));
        }
    }
}

fn peers(facts: &Facts, mut add: impl FnMut([&str; 2], &PeerFacts)) {
    for peer in &facts.peers {
        add([&peer.group, &peer.name], peer);
    }
}

/// Count of the times, and their sum in microseconds.
fn times(times: &TimeCount) -> (u64, u64) {
    let sum = u64::try_from(times.sum.as_micros()).unwrap_or(u64::MAX);
    (times.count, sum)
}
