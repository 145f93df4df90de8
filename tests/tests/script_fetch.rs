//! `ngx.fetch`: what scripts ask of other servers, and the bounds of it.

use std::time::Duration;

use anyhow::{Result, ensure};
use millpond_testkit::{Answer, Client, Framing, Kind, LogCheck, Origin, Proxy, Request};

const CONF: &str = "
    js_import one.js;
    js_var $origin http://%%ORIGIN%%;
    js_var $own https://localhost:%%PORT_B%%;
    js_fetch_max_response_buffer_size 1k;
    js_time_limit 10s;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /fetch { js_content one.go; }
        location /slow { js_content one.go; js_fetch_timeout 100ms; }
        location /kept { js_content one.go; js_fetch_keepalive 2; }
        location /gate { js_access one.gate; try_files /none @in; }
        location @in { return 200 in; }
        location /trusted { js_content one.go; js_fetch_trusted_certificate own.pem; }
        location /through {
            js_content one.go;
            js_fetch_trusted_certificate own.pem;
            js_fetch_proxy http://me%40here:p%3Aw@127.0.0.1:%%PORT_C%%;
        }
        location /through-kept {
            js_content one.go;
            js_fetch_keepalive 2;
            js_fetch_trusted_certificate own.pem;
            js_fetch_proxy http://me:x@127.0.0.1:%%PORT_C%%;
        }
        location /perhaps { js_content one.go; js_fetch_proxy $http_x_proxy; }
        location /refused {
            js_content one.go;
            js_fetch_trusted_certificate own.pem;
            js_fetch_proxy http://127.0.0.1:%%PORT_D%%;
        }
        location /kept-open { js_content one.go; js_fetch_verify off; js_fetch_keepalive 2; }
    }
    server {
        listen 127.0.0.1:%%PORT_B%% ssl;
        ssl_certificate own.pem;
        ssl_certificate_key own.key;
        location / { return 200 'tls $ssl_server_name $request_uri $connection_requests'; }
    }
    upstream own { server 127.0.0.1:%%PORT_B%%; }
    server {
        listen 127.0.0.1:%%PORT_C%%;
        location / {
            if ($request_method = CONNECT) { tunnel_pass own; break; }
            return 200 '$request $http_host $http_proxy_authorization';
        }
    }
    server {
        listen 127.0.0.1:%%PORT_D%%;
        location / { return 200 'no tunnel'; }
    }";

const ONE: &str = "
    async function go(r) {
        const { url, options } = JSON.parse(r.requestText);
        const place = url.startsWith('own') ? r.variables.own + url.slice(3)
            : url.startsWith('/') ? r.variables.origin + url : url;
        try {
            const reply = await ngx.fetch(place, options);
            const text = await reply.text();
            r.headersOut['X-Field'] = String(reply.headers.get('x-field'));
            r.headersOut['X-Words'] = reply.statusText;
            r.return(reply.status, text);
        } catch (error) {
            r.return(502, error.message);
        }
    }
    async function gate(r) {
        const reply = await ngx.fetch(r.variables.origin + '/gate?' + r.variables.arg_who);
        if (!reply.ok) {
            r.return(403);
        }
    }
    export default { go, gate };";

fn proxy(origin: &Origin) -> Result<Proxy> {
    let key = rcgen::KeyPair::generate()?;
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()])?;
    let certificate = params.self_signed(&key)?.pem();
    Proxy::new(Kind::Millpond, CONF)
        .file("one.js", ONE)
        .file("own.pem", &certificate)
        .file("own.key", key.serialize_pem())
        .origin(origin)
        .log_check(LogCheck::Off)
        .start()
}

/// Asks a location to fetch; status and text of the answer, and its fields.
fn fetch(
    client: &Client,
    (location, url, options): (&str, &str, &str),
) -> Result<(u16, String, Option<String>)> {
    let body = format!("{{\"url\": \"{url}\", \"options\": {options}}}");
    let response = client.send(&Request::new("POST", location).body(&body))?;
    let field = response.header("X-Field").map(str::to_owned);
    Ok((response.status, response.text().to_owned(), field))
}

#[test]
fn scripts_ask_other_servers() -> Result<()> {
    let origin = Origin::start()?;
    origin.answer_with("/echo*", |request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let agent = request.header("User-Agent").unwrap_or_default();
        let own = request.header("X-Own").unwrap_or_default();
        let line = format!("{} {} {agent} {own} {body}", request.method, request.target);
        Answer::new(201)
            .header("X-Field", "a")
            .header("x-field", "b")
            .body(line)
    });
    origin.route("/gate", Answer::new(403));
    origin.answer_with("/gate", |request| {
        Answer::new(if request.target.ends_with("?me") {
            204
        } else {
            403
        })
    });
    origin.route(
        "/chunked",
        Answer::new(200).body("chunks").framing(Framing::Chunked),
    );
    origin.route(
        "/close",
        Answer::new(200).body("closed").framing(Framing::UntilClose),
    );
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    for (url, options, expected) in [
        ("/echo?a=1", "{}", "GET /echo?a=1 nginx-js  "),
        (
            "/echo",
            r#"{"method": "post", "body": "text", "headers": {"X-Own": " 7 ", "User-Agent": "me",
                "Content-Length": "99", "Connection": "close, x-own"}}"#,
            "POST /echo me 7 text",
        ),
        (
            "/echo",
            r#"{"method": "PROPFIND"}"#,
            "PROPFIND /echo nginx-js  ",
        ),
    ] {
        let told = fetch(&client, ("/fetch", url, options))?;
        ensure!(
            told == (201, expected.into(), Some("a, b".into())),
            "{told:?}"
        );
    }
    for (url, options, text) in [
        ("/chunked", "{}", "chunks"),
        ("/close", "{}", "closed"),
        ("/chunked", r#"{"method": "HEAD"}"#, ""),
    ] {
        let told = fetch(&client, ("/fetch", url, options))?;
        ensure!((told.0, told.1.as_str()) == (200, text), "{told:?}");
    }
    ensure!(client.get("/gate?who=me")?.text() == "in");
    ensure!(client.get("/gate?who=you")?.status == 403);
    ensure!(origin.faults().is_empty(), "{:?}", origin.faults());
    Ok(())
}

/// Requests that fail: the location, what is asked, and why.
const FAILING: [(&str, &str, &str, &str); 15] = [
    (
        "/fetch",
        "/length",
        "{}",
        "http content length is too large",
    ),
    (
        "/fetch",
        "/chunked",
        "{}",
        "very large http chunked response",
    ),
    ("/fetch", "/close", "{}", "http response body is too large"),
    ("/fetch", "/head", "{}", "invalid http header"),
    ("/fetch", "/cut", "{}", "prematurely closed connection"),
    ("/fetch", "/nonsense", "{}", "invalid http status line"),
    ("/slow", "/late", "{}", "read timed out"),
    (
        "/fetch",
        "http://127.0.0.1:1/",
        "{}",
        "connect failed: connect() failed (111",
    ),
    (
        "/fetch",
        "http://none.invalid/",
        "{}",
        "\"none.invalid\" could not be resolved",
    ),
    ("/fetch", "http://a:70000/", "{}", "invalid url"),
    ("/fetch", "/a b", "{}", "invalid url"),
    ("/fetch", "ftp://a/", "{}", "unsupported URL schema"),
    (
        "/fetch",
        "/",
        r#"{"method": "GET / HTTP/1.1\r\nX:"}"#,
        "invalid Request method",
    ),
    (
        "/fetch",
        "/",
        r#"{"headers": {"a\r\nb": "c"}}"#,
        "invalid header name",
    ),
    (
        "/fetch",
        "/",
        r#"{"headers": {"a": "c\r\nd: e"}}"#,
        "invalid header value",
    ),
];

#[test]
fn what_a_server_answers_is_bounded() -> Result<()> {
    let origin = Origin::start()?;
    let long = "x".repeat(1025);
    for (route, framing) in [
        ("/length", Framing::Length),
        ("/chunked", Framing::Chunked),
        ("/close", Framing::UntilClose),
    ] {
        origin.route(route, Answer::new(200).body(&*long).framing(framing));
    }
    origin.route(
        "/late",
        Answer::new(200).delay_head(Duration::from_secs(20)),
    );
    origin.route(
        "/head",
        Answer::new(200).header("X-Long", &"x".repeat(20_000)),
    );
    origin.route("/cut", Answer::new(200).body("whole").drop_after(2));
    origin.route("/nonsense", Answer::raw("SSH-2.0-x\r\n\r\n"));
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    for (location, url, options, why) in FAILING {
        let (status, text, _) = fetch(&client, (location, url, options))?;
        let is_it = status == 502 && text.starts_with(why);
        ensure!(is_it, "{url}: {status} {text}");
    }
    let options = r#"{"max_response_body_size": 2000}"#;
    for url in ["/length", "/chunked", "/close"] {
        let told = fetch(&client, ("/fetch", url, options))?;
        ensure!((told.0, &told.1) == (200, &long), "{url}: {told:?}");
    }
    Ok(())
}

#[test]
fn connections_are_kept_where_that_is_wanted() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/a", Answer::new(200).body("a"));
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    let ask = |location: &str| -> Result<()> {
        let told = fetch(&client, (location, "/a", "{}"))?;
        ensure!((told.0, told.1.as_str()) == (200, "a"), "{told:?}");
        Ok(())
    };
    (0..3).try_for_each(|_| ask("/fetch"))?;
    ensure!(origin.connections() == 3);
    (0..3).try_for_each(|_| ask("/kept"))?;
    ensure!(origin.connections() == 4, "{}", origin.connections());
    // One that the server has closed meanwhile is not used again.
    origin.close_connections();
    ask("/kept")?;
    ensure!(origin.connections() == 5, "{}", origin.connections());
    Ok(())
}

#[test]
fn servers_are_verified_unless_a_script_says_otherwise() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    let tls = "tls localhost /a 1";
    for (location, url, options, expected) in [
        ("/trusted", "own/a", "{}", (200, tls)),
        ("/fetch", "own/a", r#"{"verify": false}"#, (200, tls)),
        (
            "/fetch",
            "own/a",
            "{}",
            (502, "connect failed: no \"js_fetch_trusted"),
        ),
        ("/kept-open", "own/a", "{}", (200, tls)),
        ("/kept-open", "own/a", "{}", (200, tls)),
        (
            "/kept-open",
            "own/a",
            r#"{"verify": true}"#,
            (502, "connect failed"),
        ),
    ] {
        let (status, text, _) = fetch(&client, (location, url, options))?;
        let is_it = (status, text.starts_with(expected.1)) == (expected.0, true);
        ensure!(is_it, "{location} {options}: {status} {text}");
    }
    let other = format!("https://127.0.0.1:{}/a", proxy.named_port("PORT_B"));
    let (status, text, _) = fetch(&client, ("/trusted", &other, "{}"))?;
    ensure!(
        status == 502 && text.starts_with("connect failed"),
        "{text}"
    );
    Ok(())
}

#[test]
fn requests_go_through_a_proxy() -> Result<()> {
    let proxy = proxy(&Origin::start()?)?;
    let client = Client::new(proxy.port());
    let told = fetch(&client, ("/through", "http://a.test:7/x?y", "{}"))?;
    let expected = "GET http://a.test:7/x?y HTTP/1.1 a.test:7 Basic bWVAaGVyZTpwOnc=";
    ensure!(told.1 == expected, "{told:?}");
    // The server at the end of a tunnel is verified, and does not see what the proxy was told.
    let told = fetch(&client, ("/through", "own/t", "{}"))?;
    ensure!(told.1 == "tls localhost /t 1", "{told:?}");
    for count in ["1", "2"] {
        let told = fetch(&client, ("/through-kept", "own/t", "{}"))?;
        ensure!(told.1 == format!("tls localhost /t {count}"), "{told:?}");
    }
    let told = fetch(&client, ("/refused", "own/t", "{}"))?;
    ensure!(
        told.0 == 502 && told.1.contains("connect failed: proxy"),
        "{told:?}"
    );
    let through = format!("http://127.0.0.1:{}", proxy.named_port("PORT_C"));
    for (given, expected) in [
        (through.as_str(), "GET http://a.test/ HTTP/1.1 a.test "),
        ("ftp://a", "failed to evaluate proxy URL"),
        ("", "\"a.test\" could not be resolved"),
    ] {
        let body = "{\"url\": \"http://a.test/\", \"options\": {}}";
        let request = Request::new("POST", "/perhaps").header("X-Proxy", given);
        let text = client.send(&request.body(body))?.text();
        ensure!(text.starts_with(expected), "{given}: {text}");
    }
    Ok(())
}

#[test]
fn a_proxy_that_is_none_is_a_mistake() -> Result<()> {
    for url in [
        "https://a",
        "http://u@a",
        "http://:p@a",
        "http://a:x",
        "\"\"",
    ] {
        let conf = format!(
            "js_import one.js;
             server {{ listen 127.0.0.1:%%PORT%%; location / {{ js_fetch_proxy {url}; }} }}"
        );
        let started = Proxy::new(Kind::Millpond, &conf)
            .file("one.js", ONE)
            .start();
        let Err(error) = started else {
            anyhow::bail!("{url} is taken");
        };
        let text = format!("{error:#}");
        ensure!(text.contains("proxy"), "{url}: {text}");
    }
    Ok(())
}
