//! `fastcgi_pass` and its like: what applications are asked, what clients get of their answers, and
//! what is kept of them.
//!
//! Facts that hold for nginx, too, are checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{
    Application, Asked, Client, Deadline, Kind, LogCheck, Proxy, Reply, Request, Response, record,
};
use std::time::Duration;

const CONF: &str = "
    fastcgi_cache_path %%DIR%%/cache keys_zone=pages:1m;
    fastcgi_param REQUEST_URI $request_uri;
    fastcgi_param METHOD $request_method;
    fastcgi_param CONTENT_LENGTH $content_length;
    fastcgi_cache_key $request_uri;
    upstream twice { server %%APP%%; server %%APP%%; }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name named;
        client_max_body_size 10m;
        client_body_buffer_size 1k;
        location / { fastcgi_pass %%APP%%; fastcgi_next_upstream off; }
        location /param {
            fastcgi_pass %%APP%%;
            fastcgi_param ONE 1;
            fastcgi_param EMPTY $arg_none;
            fastcgi_param SKIPPED $arg_none if_not_empty;
            fastcgi_param HTTP_X_SET mine;
            fastcgi_param HTTP_X_GONE '';
        }
        location /bare {
            fastcgi_pass %%APP%%;
            fastcgi_pass_request_headers off;
            fastcgi_pass_request_body off;
        }
        location /split {
            fastcgi_split_path_info ^(.+\\.php)(.*)$;
            fastcgi_index index.php;
            fastcgi_param SCRIPT $fastcgi_script_name;
            fastcgi_param INFO $fastcgi_path_info;
            fastcgi_pass %%APP%%;
        }
        location /unbuffered { fastcgi_pass %%APP%%; fastcgi_request_buffering off; }
        location /keep { fastcgi_pass kept; fastcgi_keep_conn on; }
        location /caught {
            fastcgi_pass twice;
            fastcgi_catch_stderr fatal;
            fastcgi_next_upstream invalid_header;
        }
        location /fields {
            fastcgi_pass %%APP%%;
            fastcgi_hide_header X-Secret;
            fastcgi_pass_header X-Accel-Expires;
        }
        location /errors {
            fastcgi_pass %%APP%%;
            fastcgi_intercept_errors on;
            error_page 404 /inside;
        }
        location /inside { internal; return 200 inside; }
        location /cached {
            fastcgi_pass %%APP%%;
            fastcgi_cache pages;
            fastcgi_cache_valid 200 1h;
            fastcgi_cache_revalidate on;
            fastcgi_cache_bypass $cookie_user;
            fastcgi_no_cache $cookie_user;
            add_header X-Cache $upstream_cache_status;
        }
    }
    upstream kept { server %%APP%%; keepalive 4; }";

/// Runs a check on each server.
fn everywhere(
    script: impl Fn(&Asked) -> Reply + Send + Sync + Clone + 'static,
    check: impl Fn(&Client, &Application, &Proxy) -> Result<()>,
) -> Result<()> {
    for kind in Kind::both() {
        run(kind, script.clone(), &check)?;
    }
    Ok(())
}

fn run(
    kind: Kind,
    script: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    check: &impl Fn(&Client, &Application, &Proxy) -> Result<()>,
) -> Result<()> {
    let application = Application::start(script)?;
    let proxy = Proxy::new(kind, CONF)
        .value("APP", &application.address())
        .start()?;
    check(&Client::new(proxy.port()), &application, &proxy)?;
    assert_eq!(application.faults(), [""; 0], "{kind:?}");
    Ok(())
}

fn ok(_: &Asked) -> Reply {
    Reply::cgi("Content-Type: text/plain\n\nok")
}

fn last(application: &Application) -> Asked {
    application.asked().pop().expect("a request came")
}

/// The status, and the body of an answer that came whole.
fn told(response: &Response) -> String {
    match response.text() {
        text if text.starts_with("<html>") => response.status.to_string(),
        text => format!("{} {text}", response.status),
    }
}

#[test]
fn parameters_are_those_of_the_configuration_then_the_clients_fields() -> Result<()> {
    everywhere(ok, |client, application, _| {
        let request = Request::get("/param")
            .header("X-Set", "theirs")
            .header("X-Gone", "theirs");
        assert_eq!(told(&client.send(&request)?), "200 ok");
        let asked = last(application);
        for (name, value) in [
            ("ONE", Some("1")),
            ("EMPTY", Some("")),
            ("SKIPPED", None),
            ("METHOD", None),
            ("HTTP_X_SET", Some("mine")),
            ("HTTP_X_GONE", None),
            ("HTTP_HOST", Some("localhost")),
        ] {
            assert_eq!(asked.param(name), value, "{name}");
        }
        assert_eq!(asked.params[0].0, "ONE");
        Ok(())
    })
}

/// The application takes for the host what `$host` and keys are made of; nginx does so since
/// 1.29.5.
#[test]
fn host_is_that_of_the_request_and_not_the_clients_field() -> Result<()> {
    run(Kind::Millpond, ok, &|client, application, _| {
        for (target, field, expected) in [
            ("http://Abs.example:88/", Some("x"), "abs.example:88"),
            ("http://abs.example/", Some("x:81"), "abs.example"),
            ("/", Some("Foo.COM:81"), "foo.com:81"),
            ("/bare", Some("foo.com"), "foo.com"),
            ("/", None, "named"),
        ] {
            let version = if field.is_some() { "1.1" } else { "1.0" };
            let line = field.map_or(String::new(), |it| format!("Host: {it}\r\n"));
            let head = format!("GET {target} HTTP/{version}\r\n{line}Connection: close\r\n\r\n");
            client.send_raw(head.as_bytes())?;
            let asked = last(application);
            let named = asked.params.iter().filter(|(name, _)| name == "HTTP_HOST");
            let hosts: Vec<&str> = named.map(|(_, value)| value.as_str()).collect();
            assert_eq!(hosts, [expected], "{target}");
        }
        Ok(())
    })
}

/// nginx does so since 1.23.
#[test]
fn fields_of_one_name_are_one_parameter() -> Result<()> {
    run(Kind::Millpond, ok, &|client, application, _| {
        let request = Request::get("/")
            .header("X-Two", "1")
            .header("Cookie", "a=1")
            .header("x-two", "2")
            .header("cookie", "b=2");
        client.send(&request)?;
        let asked = last(application);
        for (name, value) in [("HTTP_X_TWO", "1, 2"), ("HTTP_COOKIE", "a=1; b=2")] {
            let values = asked.params.iter().filter(|(it, _)| it == name);
            let values: Vec<&str> = values.map(|(_, value)| value.as_str()).collect();
            assert_eq!(values, [value], "{name}");
        }
        Ok(())
    })
}

#[test]
fn long_names_and_values_arrive_whole() -> Result<()> {
    everywhere(ok, |client, application, _| {
        let name = format!("X-{}", "n".repeat(200));
        let value = "v".repeat(5000);
        client.send(&Request::get("/").header(&name, &value))?;
        let name = format!("HTTP_X_{}", "N".repeat(200));
        assert_eq!(last(application).param(&name), Some(value.as_str()));
        Ok(())
    })
}

#[test]
fn fields_and_body_of_the_client_may_be_kept_back() -> Result<()> {
    everywhere(ok, |client, application, _| {
        client.send(&Request::post("/bare", "body").header("X-A", "b"))?;
        let asked = last(application);
        assert_eq!(asked.body, b"");
        let mut names = asked.params.iter().map(|(name, _)| name);
        let is_field = |name: &String| name.starts_with("HTTP_") && name != "HTTP_HOST";
        assert!(!names.any(is_field), "{asked:?}");
        Ok(())
    })
}

#[test]
fn a_path_is_split_into_script_and_rest() -> Result<()> {
    everywhere(ok, |client, application, _| {
        for (path, script, info) in [
            ("/split/a.php/b/c", "/split/a.php", "/b/c"),
            ("/split/a.php", "/split/a.php", ""),
            ("/split/", "/split/index.php", ""),
            ("/split/other", "/split/other", ""),
        ] {
            client.get(path)?;
            let asked = last(application);
            assert_eq!(asked.param("SCRIPT"), Some(script), "{path}");
            assert_eq!(asked.param("INFO"), Some(info), "{path}");
        }
        Ok(())
    })
}

#[test]
fn bodies_arrive_from_memory_from_files_and_while_they_come() -> Result<()> {
    everywhere(ok, |client, application, _| {
        for path in ["/", "/unbuffered"] {
            for len in [0, 10, 1024, 40_000, 200_000] {
                let body = vec![b'x'; len];
                assert_eq!(client.send(&Request::post(path, &body))?.status, 200);
                let asked = last(application);
                assert!(asked.body == body, "{path} {len}: {}", asked.body.len());
                let length = len.to_string();
                assert_eq!(asked.param("CONTENT_LENGTH"), Some(length.as_str()));
            }
            let chunks = Request::new("POST", path).chunks(&["one ", "two ", "three"]);
            assert_eq!(client.send(&chunks)?.status, 200);
            assert_eq!(last(application).body, b"one two three", "{path}");
        }
        Ok(())
    })
}

#[test]
fn heads_say_the_status() -> Result<()> {
    let script = |asked: &Asked| match asked.param("REQUEST_URI") {
        Some("/created") => Reply::cgi("Status: 201 Made\nX-A: b\n\nmade"),
        Some("/found") => Reply::cgi("Location: http://a/b\n\nfound"),
        Some("/both") => Reply::cgi("Status: 301\nLocation: http://a/b\n\nboth"),
        Some("/crlf") => Reply::cgi("Status: 404 Gone\r\n\r\ncrlf"),
        Some("/none") => Reply::cgi("Status: 204\n\n"),
        _ => Reply::cgi("X-A: b\n\nplain"),
    };
    everywhere(script, |client, _, _| {
        for (path, expected) in [
            ("/plain", "200 plain"),
            ("/created", "201 made"),
            ("/found", "302 found"),
            ("/both", "301 both"),
            ("/crlf", "404 crlf"),
            ("/none", "204 "),
        ] {
            let response = client.get(path)?;
            assert_eq!(told(&response), expected, "{path}");
            assert_eq!(response.header("Status"), None, "{path}");
        }
        assert_eq!(client.get("/found")?.header("Location"), Some("http://a/b"));
        Ok(())
    })
}

#[test]
fn an_answer_is_read_however_its_records_are_cut() -> Result<()> {
    let script = |asked: &Asked| {
        let uri = asked.param("REQUEST_URI").unwrap_or_default();
        let size = uri.trim_start_matches('/').parse().unwrap_or(1);
        let text = b"Status: 201 Made\r\nContent-Type: text/plain\r\nX-Long: a b c\r\n\r\nthe body";
        let parts = text.chunks(size);
        parts
            .fold(Reply::default(), |reply, part| reply.stdout(part))
            .end()
    };
    everywhere(script, |client, _, _| {
        for size in [1, 2, 3, 5, 17, 60, 1000] {
            let response = client.get(&format!("/{size}"))?;
            assert_eq!(told(&response), "201 the body", "{size}");
            assert_eq!(response.header("X-Long"), Some("a b c"), "{size}");
        }
        Ok(())
    })
}

#[test]
fn answers_that_are_none_are_502() -> Result<()> {
    let script = |asked: &Asked| {
        let head = b"Content-Type: a/b\n\n";
        let broken = |at: usize, byte: u8| {
            let mut bytes = record(6, head, 0);
            bytes[at] = byte;
            Reply::default().raw(&bytes)
        };
        match asked.param("REQUEST_URI").unwrap_or_default() {
            "/version" => broken(0, 2),
            "/kind" => broken(1, 5),
            "/unknown-kind" => broken(1, 200),
            "/id" => broken(3, 2),
            "/no-head" => Reply::cgi(""),
            "/half-head" => Reply::cgi("Content-Type: a/b\nX-A: "),
            "/end-first" => Reply::default().raw(&record(3, &[0; 8], 0)),
            "/silence" => Reply::default(),
            "/cut" => Reply::default().raw(&record(6, head, 0)[..12]),
            "/http" => Reply::default().raw(b"HTTP/1.1 200 OK\r\n\r\nbody"),
            "/field" => Reply::cgi("Content Type: a/b\n\nbody"),
            "/status" => Reply::cgi("Status: none\n\nbody"),
            "/long" => Reply::cgi(&format!("X-Long: {}\n\nbody", "a".repeat(50_000))),
            _ => ok(asked),
        }
    };
    everywhere(script, |client, _, _| {
        for path in [
            "/version",
            "/kind",
            "/unknown-kind",
            "/id",
            "/no-head",
            "/half-head",
            "/end-first",
            "/silence",
            "/cut",
            "/http",
            "/field",
            "/status",
            "/long",
        ] {
            assert_eq!(client.get(path)?.status, 502, "{path}");
        }
        Ok(())
    })
}

#[test]
fn a_body_is_held_to_its_length() -> Result<()> {
    let script = |asked: &Asked| match asked.param("REQUEST_URI") {
        Some("/longer") => Reply::cgi("Content-Length: 4\n\nbody and more"),
        Some("/shorter") => Reply::cgi("Content-Length: 10\n\nbody"),
        _ => Reply::cgi("Content-Length: 4\n\nbody"),
    };
    everywhere(script, |client, _, _| {
        assert_eq!(told(&client.get("/exact")?), "200 body");
        assert_eq!(told(&client.get("/longer")?), "200 body");
        let shorter = client.get("/shorter")?;
        assert!(!shorter.is_complete(), "{shorter:?}");
        Ok(())
    })
}

#[test]
fn an_answer_that_breaks_off_is_not_kept() -> Result<()> {
    let script = |asked: &Asked| match asked.param("REQUEST_URI") {
        // A crash: the connection ends, and no record says that the answer does.
        Some("/cached/crash") => Reply::default().stdout(b"Content-Type: text/plain\n\nhalf"),
        Some("/cached/short") => Reply::cgi("Content-Length: 10\n\nhalf"),
        _ => ok(asked),
    };
    run(Kind::Millpond, script, &|client, application, _| {
        for path in ["/cached/crash", "/cached/short"] {
            let before = application.asked().len();
            for _ in 0..2 {
                assert!(!client.get(path)?.is_complete(), "{path}");
            }
            assert_eq!(application.asked().len(), before + 2, "{path}");
        }
        Ok(())
    })
}

#[test]
fn messages_are_logged_and_may_make_an_answer_invalid() -> Result<()> {
    let script = |asked: &Asked| match asked.param("REQUEST_URI") {
        Some("/caught") => Reply::default()
            .stderr("PHP fatal: no memory\n")
            .stdout(b"Status: 200\n\nhalf")
            .end(),
        _ => Reply::default()
            .stderr("before the head.\n")
            .stdout(b"Status: 200\n\n")
            .stderr("after the head.\n")
            .stdout(b"body")
            .end(),
    };
    everywhere(script, |client, application, proxy| {
        assert_eq!(told(&client.get("/")?), "200 body");
        assert_eq!(client.get("/caught")?.status, 502);
        assert_eq!(application.asked().len(), 3, "the second peer was asked");
        let log = proxy.error_log();
        for text in ["before the head", "after the head", "PHP fatal: no memory"] {
            let line = format!("FastCGI sent in stderr: \"{text}\"");
            assert!(log.contains(&line), "{line}: {log}");
        }
        Ok(())
    })
}

#[test]
fn connections_are_kept_when_both_sides_want_it() -> Result<()> {
    everywhere(ok, |client, application, _| {
        for path in ["/keep", "/keep", "/other", "/other"] {
            assert_eq!(told(&client.get(path)?), "200 ok");
        }
        let asked = application.asked();
        let connections: Vec<u64> = asked.iter().map(|it| it.connection).collect();
        assert_eq!(connections, [1, 1, 2, 3]);
        let keeps: Vec<bool> = asked.iter().map(|it| it.keeps).collect();
        assert_eq!(keeps, [true, true, false, false]);
        Ok(())
    })
}

#[test]
fn fields_of_the_answer_are_shown_hidden_and_obeyed() -> Result<()> {
    let script = |asked: &Asked| match asked.param("REQUEST_URI") {
        Some("/fields/accel") => Reply::cgi("X-Accel-Redirect: /inside\nX-A: b\n\nunseen"),
        Some("/errors") => Reply::cgi("Status: 404\n\nunseen"),
        _ => Reply::cgi("X-Secret: a\nX-Accel-Expires: 0\nX-A: b\nDate: today\n\nbody"),
    };
    everywhere(script, |client, _, _| {
        let response = client.get("/fields")?;
        assert_eq!(response.header("X-Secret"), None);
        assert_eq!(response.header("X-A"), Some("b"));
        assert_eq!(response.header("X-Accel-Expires"), Some("0"));
        // The application's own, unlike an HTTP upstream's.
        assert_eq!(response.header("Date"), Some("today"));
        assert_eq!(told(&client.get("/fields/accel")?), "200 inside");
        assert_eq!(told(&client.get("/errors")?), "404 inside");
        Ok(())
    })
}

fn label(client: &Client, path: &str, cookie: &str) -> Result<String> {
    let response = client.send(&Request::get(path).header("Cookie", cookie))?;
    Ok(response.header("X-Cache").unwrap_or("-").to_string())
}

#[test]
fn answers_are_kept_for_all_but_those_who_bypass() -> Result<()> {
    everywhere(ok, |client, application, _| {
        assert_eq!(label(client, "/cached/a", "")?, "MISS");
        assert_eq!(label(client, "/cached/a", "")?, "HIT");
        assert_eq!(label(client, "/cached/a", "user=1")?, "BYPASS");
        assert_eq!(label(client, "/cached/a", "")?, "HIT");
        assert_eq!(application.asked().len(), 2);
        Ok(())
    })
}

#[test]
fn conditions_and_ranges_of_clients_are_not_those_of_the_cache() -> Result<()> {
    everywhere(ok, |client, application, _| {
        let request = Request::get("/cached/b")
            .header("If-None-Match", "\"x\"")
            .header("Range", "bytes=0-0");
        client.send(&request)?;
        let asked = last(application);
        for name in ["HTTP_IF_NONE_MATCH", "HTTP_RANGE"] {
            assert_eq!(asked.param(name), None, "{name}");
        }
        Ok(())
    })
}

#[test]
fn a_stale_answer_is_revalidated() -> Result<()> {
    let script = |asked: &Asked| match asked.param("HTTP_IF_NONE_MATCH") {
        Some("\"1\"") => Reply::cgi("Status: 304\nETag: \"1\"\n\n"),
        _ => Reply::cgi("ETag: \"1\"\nX-Accel-Expires: 1\n\nkept"),
    };
    everywhere(script, |client, application, _| {
        assert_eq!(told(&client.get("/cached/c")?), "200 kept");
        let revalidated = || {
            let label = label(client, "/cached/c", "").ok()?;
            (label == "REVALIDATED").then_some(())
        };
        let seen = Deadline::after(Duration::from_secs(10)).poll(revalidated);
        assert_eq!(seen, Some(()));
        let asked = last(application);
        assert_eq!(asked.param("HTTP_IF_NONE_MATCH"), Some("\"1\""));
        assert_eq!(told(&client.get("/cached/c")?), "200 kept");
        Ok(())
    })
}

#[test]
fn mistakes_of_a_configuration_are_named() {
    for (line, message) in [
        ("fastcgi_pass 127.0.0.1;", "no port in upstream"),
        (
            "fastcgi_pass 127.0.0.1:1; fastcgi_pass 127.0.0.1:2;",
            "\"fastcgi_pass\" directive is duplicate",
        ),
        ("fastcgi_param A;", "invalid number of arguments"),
        ("fastcgi_param A b c;", "invalid parameter \"c\""),
        (
            "fastcgi_split_path_info ^(a)$;",
            "pattern \"^(a)$\" must have 2 captures",
        ),
        (
            "fastcgi_cache pages; fastcgi_pass 127.0.0.1:1;",
            "no \"fastcgi_cache_key\" for \"fastcgi_cache\"",
        ),
        ("uwsgi_pass suwsgi://127.0.0.1;", "no port in upstream"),
        ("fastcgi_set_header A b;", "unknown directive"),
    ] {
        let conf = format!(
            "fastcgi_cache_path %%DIR%%/cache keys_zone=pages:1m;
             server {{ listen 127.0.0.1:%%PORT%%; location / {{ {line} }} }}"
        );
        let proxy = Proxy::new(Kind::Millpond, &conf).log_check(LogCheck::Off);
        let said = proxy.start().err().map(|error| format!("{error:#}"));
        let said = said.unwrap_or_default();
        assert!(said.contains(message), "{line}: {said}");
    }
}

/// The WordPress example, with an application in PHP's place.
fn wordpress(kind: Kind, application: &Application) -> Result<Proxy> {
    let by_hand = "daemon off;\npid /tmp/millpond.pid;\nerror_log stderr notice;\n";
    let conf = include_str!("../../conf/examples/wordpress.conf")
        .replace(by_hand, "%%GLOBALS%%\n")
        .replace("access_log /dev/stdout;", "%%HTTP%%\naccess_log off;")
        .replace("listen 8080;", "listen 127.0.0.1:%%PORT%%;")
        .replace("127.0.0.1:9000", "%%APP%%")
        .replace("../", "")
        .replace("/tmp/wordpress", "%%DIR%%")
        // Nothing depends on how fast a test runs.
        .replace("301 302 2s;", "301 302 1h;");
    Proxy::new(kind, &conf)
        .value("APP", &application.address())
        .file("mime.types", include_str!("../../conf/mime.types"))
        .file("fastcgi.conf", include_str!("../../conf/fastcgi.conf"))
        .file("fastcgi_params", include_str!("../../conf/fastcgi_params"))
        .file("html/index.php", "")
        .file("html/wp-login.php", "")
        .file("html/wp-content/style.css", "body {}")
        .file("html/wp-content/uploads/evil.php", "")
        .file("html/.htaccess", "")
        .start()
}

#[test]
fn wordpress_makes_a_page_once_for_all_who_are_not_known() -> Result<()> {
    for kind in Kind::both() {
        let application = Application::start(|asked| {
            let file = asked.param("SCRIPT_FILENAME").unwrap_or_default();
            let name = file.rsplit('/').next().unwrap_or_default();
            let uri = asked.param("REQUEST_URI").unwrap_or_default();
            Reply::cgi(&format!("Content-Type: text/html\n\n{name} for {uri}"))
        })?;
        let proxy = wordpress(kind, &application)?;
        let client = Client::new(proxy.port());
        let known = "wordpress_logged_in_abc=me";
        for (path, cookie, expected, label) in [
            ("/hello/", "", "200 index.php for /hello/", "MISS"),
            ("/hello/", "", "200 index.php for /hello/", "HIT"),
            ("/hello/", "theme=dark", "200 index.php for /hello/", "HIT"),
            ("/hello/", known, "200 index.php for /hello/", "BYPASS"),
            ("/hello/", "", "200 index.php for /hello/", "HIT"),
            ("/", "", "200 index.php for /", "MISS"),
            ("/?s=word", "", "200 index.php for /?s=word", "BYPASS"),
            (
                "/wp-login.php",
                "",
                "200 wp-login.php for /wp-login.php",
                "BYPASS",
            ),
            ("/wp-content/style.css", "", "200 body {}", "-"),
            ("/wp-content/uploads/evil.php", "", "403", "-"),
            ("/.htaccess", "", "403", "-"),
            ("/none.php", "", "404", "-"),
        ] {
            let response = client.send(&Request::get(path).header("Cookie", cookie))?;
            assert_eq!(told(&response), expected, "{kind:?} {path} {cookie}");
            let found = response.header("X-Cache").unwrap_or("-");
            assert_eq!(found, label, "{kind:?} {path} {cookie}");
        }
        let asked = application.asked();
        let root = proxy.dir().join("html").display().to_string();
        assert_eq!(asked[0].param("DOCUMENT_ROOT"), Some(root.as_str()));
        assert_eq!(asked[0].param("SCRIPT_NAME"), Some("/index.php"));
        assert_eq!(asked[0].param("QUERY_STRING"), Some(""));
        assert_eq!(asked[0].param("HTTPS"), None);
        let posts = client.send(&Request::post("/hello/", "comment=1"))?;
        assert_eq!(told(&posts), "200 index.php for /hello/");
        assert_eq!(application.faults(), [""; 0]);
    }
    Ok(())
}
