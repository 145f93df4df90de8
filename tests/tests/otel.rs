//! `otel_trace` and its like: requests as spans for a collector, and the fields of a trace.
//!
//! Rules are those of nginx-otel's own tests (`tests/test_otel.py`), and of W3C Trace Context.

use std::time::Duration;

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Attribute, Client, CollectedSpan, Collector, Deadline, Kind, LogCheck, Mood, Origin,
    Protocol, Proxy, ProxyBuilder, Request,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b9c7c989f97918e1";
const STATE: &str = "congo=ucfJifl5GOE,rojo=00f067aa0ba902b7";

fn parent() -> String {
    format!("00-{TRACE}-{SPAN}-01")
}

/// A configuration with an exporter, and the text of a server.
fn conf(collector: &Collector, exporter: &str, server: &str) -> String {
    let port = collector.port();
    format!(
        "otel_exporter {{ endpoint 127.0.0.1:{port}; interval 10ms; {exporter} }}
        otel_trace on;
        proxy_cache_path cache keys_zone=z:1m max_size=8m;
        server {{
            listen 127.0.0.1:%%PORT%%; server_name localhost;
            location = /metrics {{ otel_trace off; metrics; }}
            {server}
        }}"
    )
}

fn proxy(conf: &str) -> ProxyBuilder {
    Proxy::new(Kind::Millpond, conf)
}

fn named<'a>(spans: &'a [CollectedSpan], name: &str) -> Result<&'a CollectedSpan> {
    let found = spans.iter().find(|span| span.name == name);
    found.with_context(|| format!("no span {name} among {spans:#?}"))
}

fn server_span(spans: &[CollectedSpan]) -> Result<&CollectedSpan> {
    let found = spans.iter().find(|span| span.kind == 2);
    found.with_context(|| format!("no span of a server among {spans:#?}"))
}

/// The value of a metric.
fn metric(client: &Client, name: &str) -> Result<u64> {
    let page = client.get("/metrics")?.text();
    let line = page
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")));
    let value = line.and_then(|line| line.rsplit(' ').next());
    Ok(value
        .with_context(|| format!("no {name} in {page}"))?
        .parse()?)
}

fn wait_for_metric(client: &Client, name: &str, value: u64) -> Result<()> {
    let deadline = Deadline::after(Duration::from_secs(20));
    let found = deadline.poll(|| metric(client, name).ok().filter(|found| *found >= value));
    assert_eq!(found, Some(value), "{name}");
    Ok(())
}

/// nginx-otel: test_default_attributes, and test_custom_attributes.
#[test]
fn spans_of_requests_have_nginxs_attributes() -> Result<()> {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let collector = Collector::start()?;
        let conf = conf(
            &collector,
            "",
            "http2 on;
            location /ok { return 200 OK; }
            location /err { return 500 ERR; }
            location /custom {
                otel_span_name custom_$arg_name;
                otel_span_attr http.response.header.content.type $sent_http_content_type;
                otel_span_attr http.request $request;
                return 200 OK;
            }",
        );
        let proxy = proxy(&conf).start()?;
        let client = protocol.client(proxy.port());
        let flavor = match protocol {
            Protocol::Http1 => "1.1",
            Protocol::Http2 | Protocol::Streams => "2.0",
            Protocol::Http3 => "3",
        };
        for (path, status, error) in [("/ok", 200, 0), ("/err", 500, 2)] {
            let before = collector.spans().len();
            let answer = client.send(&Request::get(path).header("user-agent", "me"))?;
            assert_eq!(answer.status, status);
            let spans = collector.wait(before + 1)?;
            let span = &spans[before];
            assert_eq!(
                (span.name.as_str(), span.kind, span.status),
                (path, 2, error)
            );
            assert_eq!(span.parent, "");
            assert_eq!((span.trace.len(), span.id.len()), (32, 16));
            assert!(span.times.0 > 0 && span.times.1 >= span.times.0);
            for (name, value) in [
                ("http.method", "GET"),
                ("http.target", path),
                ("http.route", path),
                ("http.scheme", "http"),
                ("http.flavor", flavor),
                ("http.user_agent", "me"),
                ("net.host.name", "localhost"),
                ("net.sock.peer.addr", "127.0.0.1"),
            ] {
                assert_eq!(span.text(name), value, "{name}");
            }
            assert_eq!(span.number("http.request_content_length"), Some(0));
            let len = answer.body.len() as i64;
            assert_eq!(span.number("http.response_content_length"), Some(len));
            assert_eq!(span.number("http.status_code"), Some(status.into()));
            assert_eq!(span.number("net.host.port"), Some(proxy.port().into()));
            assert!(span.number("net.sock.peer.port") > Some(1023));
        }
        client.get("/custom?name=x")?;
        let spans = collector.wait(3)?;
        let span = named(&spans, "custom_x")?;
        let line = format!("GET /custom?name=x HTTP/{flavor}");
        assert_eq!(span.text("http.request"), line);
        let expected = Attribute::List(vec!["text/plain".to_owned()]);
        let found = span.attributes.get("http.response.header.content.type");
        assert_eq!(found, Some(&expected));
    }
    Ok(())
}

/// nginx-otel: test_custom_resource_attributes, test_exporter_headers.
#[test]
fn requests_to_the_collector_name_the_service_and_have_its_fields() -> Result<()> {
    let collector = Collector::start()?;
    let text = conf(
        &collector,
        "header X-API-TOKEN api.value; header Authorization \"Basic value\";",
        "location / { return 200; }",
    );
    let whole =
        format!("otel_service_name test_service; otel_resource_attr my.name \"my name\"; {text}");
    let proxy = proxy(&whole).start()?;
    Client::new(proxy.port()).get("/")?;
    collector.wait(1)?;
    let batch = &collector.batches()[0];
    let text = |text: &str| Some(Attribute::Text(text.to_owned()));
    assert_eq!(
        batch.resource.get("service.name").cloned(),
        text("test_service")
    );
    assert_eq!(batch.resource.get("my.name").cloned(), text("my name"));
    let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    assert_eq!(batch.path, path);
    for (name, value) in [
        ("x-api-token", "api.value"),
        ("authorization", "Basic value"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        assert_eq!(
            batch.fields.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    Ok(())
}

/// OTLP/HTTP: a POST of protobuf to the path.
#[test]
fn endpoints_with_a_path_are_spoken_to_over_http() -> Result<()> {
    let collector = Collector::start()?;
    let port = collector.port();
    let conf = format!(
        "otel_exporter {{ endpoint http://127.0.0.1:{port}/v1/traces; interval 1ms; header A b; }}
        server {{ listen 127.0.0.1:%%PORT%%; otel_trace on; location / {{ return 200; }} }}"
    );
    let proxy = proxy(&conf).start()?;
    let client = Client::new(proxy.port());
    for (number, mood) in [Mood::Takes, Mood::Closes, Mood::Takes]
        .into_iter()
        .enumerate()
    {
        collector.set_mood(mood);
        client.get("/")?;
        collector.wait(number + 1)?;
    }
    let batch = &collector.batches()[0];
    assert_eq!(batch.path, "/v1/traces");
    let field = |name| batch.fields.get(name).map(String::as_str);
    assert_eq!(field("content-type"), Some("application/x-protobuf"));
    assert_eq!(field("a"), Some("b"));
    Ok(())
}

/// nginx-otel: test_variables; W3C Trace Context §3.2.2 for what is malformed.
#[test]
fn variables_tell_the_place_in_the_trace() -> Result<()> {
    let collector = Collector::start()?;
    let conf = conf(
        &collector,
        "",
        "location /vars {
            otel_trace_context extract;
            return 200 '$otel_trace_id $otel_span_id $otel_parent_id $otel_parent_sampled';
        }",
    );
    let proxy = proxy(&conf).start()?;
    let client = Client::new(proxy.port());
    let known = parent();
    let unsampled = format!("00-{TRACE}-{SPAN}-00");
    let upper = known.to_uppercase();
    let cases = [
        (None, None),
        (Some(known.as_str()), Some("1")),
        (Some(unsampled.as_str()), Some("0")),
        (Some(upper.as_str()), None),
        (Some("00-x"), None),
    ];
    for (number, (parent, sampled)) in cases.into_iter().enumerate() {
        let mut request = Request::get("/vars");
        if let Some(parent) = parent {
            request = request
                .header("Traceparent", parent)
                .header("Tracestate", STATE);
        }
        let text = client.send(&request)?.text();
        let span = collector.wait(number + 1)?.swap_remove(number);
        let expected = format!(
            "{} {} {} {}",
            span.trace,
            span.id,
            span.parent,
            sampled.unwrap_or("0")
        );
        assert_eq!(text, expected, "{parent:?}");
        let (trace, state) = match sampled {
            Some(_) => (TRACE, STATE),
            None => (span.trace.as_str(), ""),
        };
        assert_eq!(
            (span.trace.as_str(), span.state.as_str()),
            (trace, state),
            "{parent:?}"
        );
        assert_eq!(span.parent == SPAN, sampled.is_some(), "{parent:?}");
        assert_eq!(span.trace == TRACE, sampled.is_some(), "{parent:?}");
    }
    // Several parents are none.
    let two = Request::get("/vars").header("traceparent", &known);
    let text = client.send(&two.header("traceparent", &known))?.text();
    assert!(!text.contains(TRACE), "{text}");
    Ok(())
}

/// nginx-otel: test_context; the span of the exchange is what the origin is told.
#[test]
fn origins_are_told_the_span_of_the_exchange() -> Result<()> {
    let (collector, origin) = (Collector::start()?, Origin::start()?);
    origin.route("/x", Answer::new(200).body("x"));
    let words = ["ignore", "extract", "inject", "propagate"];
    let locations = words.map(|word| {
        format!("location /{word} {{ otel_trace_context {word}; proxy_pass http://%%ORIGIN%%/x; }}")
    });
    let conf = conf(&collector, "", &locations.join("\n"));
    let proxy = proxy(&conf).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let known = parent();
    let mut count = 0;
    for word in words {
        for has_parent in [false, true] {
            let mut request = Request::get(&format!("/{word}"));
            if has_parent {
                request = request
                    .header("Traceparent", &known)
                    .header("Tracestate", STATE);
            }
            client.send(&request)?;
            count += 2;
            let spans = collector.wait(count)?.split_off(count - 2);
            let server = server_span(&spans)?;
            let exchange = named(&spans, "GET")?;
            assert_eq!((exchange.kind, &exchange.parent), (3, &server.id));
            assert_eq!(exchange.trace, server.trace);
            let requests = origin.requests();
            let asked = requests.last().context("a request")?;
            let (told, state) = (asked.header("traceparent"), asked.header("tracestate"));
            let reads = has_parent && matches!(word, "extract" | "propagate");
            assert_eq!(server.trace == TRACE, reads, "{word}");
            assert_eq!(server.parent == SPAN, reads, "{word}");
            if matches!(word, "inject" | "propagate") {
                let own = format!("00-{}-{}-01", exchange.trace, exchange.id);
                assert_eq!(told, Some(own.as_str()), "{word}");
                assert_eq!(state, reads.then_some(STATE), "{word}");
            } else {
                assert_eq!(told, has_parent.then_some(known.as_str()), "{word}");
                assert_eq!(state, has_parent.then_some(STATE), "{word}");
            }
        }
    }
    Ok(())
}

/// nginx: `on` and `1` are yes; nothing is recorded of others, but their trace goes on.
#[test]
fn sampling_is_a_value_of_each_request() -> Result<()> {
    let (collector, origin) = (Collector::start()?, Origin::start()?);
    origin.route("/", Answer::new(200));
    let conf = conf(
        &collector,
        "",
        "location / {
            otel_trace $otel_parent_sampled; otel_trace_context propagate;
            proxy_pass http://%%ORIGIN%%;
        }
        location /word { otel_trace $arg_word; return 200; }",
    );
    let proxy = proxy(&conf).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let unsampled = format!("00-{TRACE}-{SPAN}-00");
    client.send(&Request::get("/").header("traceparent", &unsampled))?;
    let requests = origin.requests();
    let told = requests[0].header("traceparent").context("a parent")?;
    assert!(told.starts_with(&format!("00-{TRACE}-")), "{told}");
    assert!(told.ends_with("-00") && !told.contains(SPAN), "{told}");
    for word in ["off", "0", "", "yes", "ON"] {
        client.get(&format!("/word?word={word}"))?;
    }
    for (number, word) in ["on", "1"].into_iter().enumerate() {
        client.get(&format!("/word?word={word}"))?;
        let span = collector.wait(number + 1)?.swap_remove(number);
        assert_eq!(span.text("http.target"), format!("/word?word={word}"));
    }
    Ok(())
}

/// A miss has its look-up, its fill and the storing in it; a hit has a look-up alone.
#[test]
fn spans_of_the_cache_stand_inside_of_the_requests() -> Result<()> {
    let (collector, origin) = (Collector::start()?, Origin::start()?);
    origin.route(
        "/x",
        Answer::new(200)
            .header("Cache-Control", "max-age=100")
            .body("x"),
    );
    let conf = conf(
        &collector,
        "",
        "location / {
            otel_trace_context inject; proxy_cache z; proxy_pass http://%%ORIGIN%%;
        }",
    );
    let proxy = proxy(&conf).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    client.get("/x")?;
    let spans = collector.wait(5)?;
    let server = server_span(&spans)?;
    assert_eq!(server.text("millpond.cache.status"), "MISS");
    let fill = named(&spans, "cache fill")?;
    let exchange = named(&spans, "GET")?;
    for (inner, outer) in [
        (named(&spans, "cache lookup")?, server),
        (fill, server),
        (exchange, fill),
        (named(&spans, "cache store")?, fill),
    ] {
        assert_eq!(inner.parent, outer.id, "{spans:#?}");
        assert_eq!(inner.trace, server.trace);
    }
    let stored = Some(&Attribute::Flag(true));
    assert_eq!(fill.attributes.get("millpond.cache.stored"), stored);
    assert_eq!(fill.text("millpond.upstream.reason"), "miss");
    assert_eq!(
        exchange.text("http.url"),
        format!("http://{}/x", origin.address())
    );
    let told = format!("00-{}-{}-01", exchange.trace, exchange.id);
    assert_eq!(
        origin.requests()[0].header("traceparent"),
        Some(told.as_str())
    );
    client.get("/x")?;
    let spans = collector.wait(7)?.split_off(5);
    assert_eq!(server_span(&spans)?.text("millpond.cache.status"), "HIT");
    let lookup = named(&spans, "cache lookup")?;
    assert_eq!(lookup.text("millpond.cache.found"), "fresh");
    Ok(())
}

/// An update in the background is a trace of its own, with a link to the request that began it.
#[test]
fn updates_in_the_background_are_linked() -> Result<()> {
    let (collector, origin) = (Collector::start()?, Origin::start()?);
    let stale = "max-age=0, stale-while-revalidate=100";
    origin.route(
        "/x",
        Answer::new(200).header("Cache-Control", stale).body("x"),
    );
    let conf = conf(
        &collector,
        "",
        "location / {
            otel_trace_context inject; proxy_cache z; proxy_cache_background_update on;
            proxy_cache_use_stale updating; proxy_cache_valid 200 1s;
            proxy_ignore_headers Cache-Control;
            proxy_pass http://%%ORIGIN%%;
        }",
    );
    let proxy = proxy(&conf).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    client.get("/x")?;
    let deadline = Deadline::after(Duration::from_secs(20));
    let updated = deadline.poll(|| {
        client.get("/x").ok()?;
        let spans = collector.spans();
        let update = spans
            .iter()
            .find(|span| span.name == "cache update")
            .cloned();
        update.map(|update| (update, spans))
    });
    let (update, spans) = updated.context("no update")?;
    assert_eq!(update.parent, "");
    let [(trace, span)] = &update.links[..] else {
        panic!("{update:?}");
    };
    let began = Deadline::after(Duration::from_secs(20)).poll(|| {
        let spans = collector.spans();
        spans
            .into_iter()
            .find(|it| (&it.trace, &it.id) == (trace, span))
    });
    let request = began.context("no request")?;
    assert_eq!(request.text("millpond.cache.status"), "STALE");
    assert_ne!(request.trace, update.trace);
    let inside = spans.iter().filter(|it| it.trace == update.trace);
    let exchange = inside
        .clone()
        .find(|it| it.kind == 3)
        .context("an exchange")?;
    let told = format!("00-{}-{}-01", exchange.trace, exchange.id);
    let requests = origin.requests();
    let tells = |it: &millpond_testkit::Recorded| it.header("traceparent") == Some(&told);
    assert!(requests.iter().any(tells), "{told}");
    Ok(())
}

/// A subrequest has no span of its own (nginx); its exchange is inside of the request's.
#[test]
fn subrequests_have_spans_of_their_exchanges_only() -> Result<()> {
    let (collector, origin) = (Collector::start()?, Origin::start()?);
    origin.route("/auth", Answer::new(204));
    let conf = conf(
        &collector,
        "",
        "location / { auth_request /auth; return 200; }
        location = /page { auth_request /auth; alias %%DIR%%/page; }
        location /auth { internal; proxy_pass http://%%ORIGIN%%; }",
    );
    let proxy = proxy(&conf).file("page", "x").origin(&origin).start()?;
    assert_eq!(Client::new(proxy.port()).get("/page")?.status, 200);
    let spans = collector.wait(2)?;
    let (server, exchange) = (server_span(&spans)?, named(&spans, "GET")?);
    assert_eq!((exchange.kind, &exchange.parent), (3, &server.id));
    assert_eq!(server.name, "/page");
    Ok(())
}

/// Failures are statuses of spans: of the exchange, the fill and the request.
#[test]
fn failures_are_statuses() -> Result<()> {
    let collector = Collector::start()?;
    let conf = conf(
        &collector,
        "",
        "location / { proxy_cache z; proxy_pass http://127.0.0.1:%%PORT_NONE%%; }",
    );
    let proxy = proxy(&conf).log_check(LogCheck::Off).start()?;
    assert_eq!(Client::new(proxy.port()).get("/")?.status, 502);
    let spans = collector.wait(4)?;
    for (name, status) in [("cache lookup", 0), ("GET", 2), ("cache fill", 2), ("/", 2)] {
        assert_eq!(named(&spans, name)?.status, status, "{name}");
    }
    Ok(())
}

/// nginx-otel: test_batches. What is too much is dropped and counted; requests go on.
#[test]
fn batches_have_a_size_and_the_queue_a_bound() -> Result<()> {
    let collector = Collector::start()?;
    let conf = conf(
        &collector,
        "interval 1h; batch_size 3; batch_count 2;",
        "location / { return 200; }",
    )
    .replacen("interval 10ms;", "", 1);
    let proxy = proxy(&conf).log_check(LogCheck::Off).start()?;
    let client = Client::new(proxy.port());
    for _ in 0..7 {
        client.get("/")?;
    }
    collector.wait(6)?;
    let lens: Vec<usize> = collector
        .batches()
        .iter()
        .map(|it| it.spans.len())
        .collect();
    assert_eq!(lens, [3, 3]);
    wait_for_metric(&client, "millpond_otel_spans_sent_total", 6)?;
    collector.set_mood(Mood::Hangs);
    // One waits already; six may wait or be on their way.
    for _ in 0..8 {
        client.get("/")?;
    }
    assert_eq!(metric(&client, "millpond_otel_spans_dropped_total")?, 3);
    Ok(())
}

/// A collector that is not there costs one line, and no request.
#[test]
fn unreachable_collectors_cost_a_line() -> Result<()> {
    let conf = "otel_exporter { endpoint 127.0.0.1:%%PORT_NONE%%; interval 1ms; batch_size 1; }
        server {
            listen 127.0.0.1:%%PORT%%;
            location / { otel_trace on; return 200; }
            location = /metrics { metrics; }
        }";
    let proxy = proxy(conf).log_check(LogCheck::Off).start()?;
    let client = Client::new(proxy.port());
    for _ in 0..20 {
        assert_eq!(client.get("/")?.status, 200);
    }
    let deadline = Deadline::after(Duration::from_secs(20));
    let is_done = || {
        let of = |what: &str| metric(&client, &format!("millpond_otel_spans_{what}_total")).ok();
        (of("failed")? + of("dropped")? == 20).then_some(())
    };
    deadline.poll(is_done).context("20 spans that failed")?;
    let log = proxy.error_log();
    assert_eq!(log.matches("OTel export failure").count(), 1, "{log}");
    assert!(log.contains("Connection refused"), "{log}");
    Ok(())
}

/// A collector that sends interim answers without end is left.
#[test]
fn collectors_come_to_their_answer() -> Result<()> {
    let origin = Origin::start()?;
    let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(200);
    origin.route("/v1/traces", Answer::raw(interim));
    let conf = format!(
        "otel_exporter {{ endpoint http://{}/v1/traces; interval 10ms; }}
        server {{
            listen 127.0.0.1:%%PORT%%;
            location / {{ otel_trace on; return 200; }}
        }}",
        origin.address()
    );
    let proxy = proxy(&conf).log_check(LogCheck::Off).start()?;
    assert_eq!(Client::new(proxy.port()).get("/")?.status, 200);
    let deadline = Deadline::after(Duration::from_secs(20));
    let why = "it sends nothing but interim answers";
    let is_told = || proxy.error_log().contains(why).then_some(());
    deadline.poll(is_told).context(why)
}

/// A collector that refuses is told of by what it says; one that closes its connection is asked
/// again on another one.
#[test]
fn refusals_are_told_and_closed_connections_replaced() -> Result<()> {
    let collector = Collector::start()?;
    let conf = conf(&collector, "", "location / { return 200; }");
    let proxy = proxy(&conf).log_check(LogCheck::Off).start()?;
    let client = Client::new(proxy.port());
    for (number, mood) in [Mood::Takes, Mood::Closes, Mood::Takes]
        .into_iter()
        .enumerate()
    {
        collector.set_mood(mood);
        client.get("/")?;
        collector.wait(number + 1)?;
    }
    wait_for_metric(&client, "millpond_otel_spans_sent_total", 3)?;
    assert_eq!(metric(&client, "millpond_otel_spans_failed_total")?, 0);
    collector.set_mood(Mood::Refuses);
    client.get("/")?;
    wait_for_metric(&client, "millpond_otel_spans_failed_total", 1)?;
    let log = proxy.error_log();
    assert!(log.contains("grpc-status 14: not now"), "{log}");
    Ok(())
}

/// Spans that are left are sent at the end of the process.
#[test]
fn ends_flush_what_is_left() -> Result<()> {
    let collector = Collector::start()?;
    let conf = conf(&collector, "interval 1h;", "location / { return 200; }").replacen(
        "interval 10ms;",
        "",
        1,
    );
    let mut proxy = proxy(&conf).start()?;
    Client::new(proxy.port()).get("/")?;
    assert_eq!(collector.spans().len(), 0);
    proxy.quit()?;
    collector.wait(1)?;
    Ok(())
}
