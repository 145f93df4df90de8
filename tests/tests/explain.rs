//! `millpond explain`: manual entries, and what becomes of a request; the same requests are sent to
//! a running server, so that what is said is what happens.

use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request, binary};
use std::fs;
use std::process::{Command, Output};

fn explain(words: &[&str]) -> Output {
    let binary = binary(Kind::Millpond).expect("the binary");
    Command::new(binary)
        .arg("explain")
        .args(words)
        .output()
        .expect("output")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Value behind a label.
fn value<'a>(report: &'a str, label: &str) -> Option<&'a str> {
    let mut lines = report.lines().map(str::trim);
    lines.find_map(|line| Some(line.strip_prefix(label)?.strip_prefix(' ')?.trim()))
}

#[test]
fn names_have_entries_and_unknown_ones_a_suggestion() {
    for (name, part) in [
        ("proxy_cache", "context  http, server, location"),
        ("$upstream_cache_status", "MISS"),
        ("alias_traversal", "slash"),
        ("444", "closes the connection"),
        ("use", "Accepted without effect"),
    ] {
        let output = explain(&[name]);
        assert!(output.status.success(), "{name}");
        let text = text(&output);
        assert!(
            text.contains(part) && !text.contains('\u{1b}'),
            "{name}: {text}"
        );
    }
    let output = explain(&["proxy_cach"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("did you mean \"proxy_cache\"?"), "{said}");
}

const CONF: &str = "
%%GLOBALS%%
events {}
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
    proxy_cache z;
    proxy_cache_valid 200 1m;
    proxy_cache_key $host$uri;
    add_header X-Cache $upstream_cache_status;
    server { listen 127.0.0.1:%%PORT%% default_server; return 404; }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name site.test *.wild.test;
        rewrite ^/was/(.*)$ /is/$1;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /said/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_no_vary_search on;
            proxy_cache_encodings dcz;
            proxy_no_cache $upstream_http_x_no;
        }
        location = /exact { return 302 /other; }
        location ~ [.]jpg$ { proxy_pass http://%%ORIGIN%%; proxy_cache off; }
        location ^~ /kept/ { proxy_pass http://%%ORIGIN%%/new/; }
    }
}
";

/// A running server, its origin and its configuration in a file.
struct Site {
    proxy: Proxy,
    origin: Origin,
    _dir: tempfile::TempDir,
    path: String,
}

fn site() -> Site {
    let origin = Origin::start().expect("a site");
    origin.route("/", Answer::new(200).body("x"));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .start()
        .expect("a site");
    let dir = tempfile::tempdir().expect("a site");
    let path = dir.path().join("nginx.conf");
    let conf = CONF
        .replace("%%GLOBALS%%", "")
        .replace("%%HTTP%%", "")
        .replace("%%DIR%%", &dir.path().to_string_lossy())
        .replace("%%PORT%%", &proxy.port().to_string())
        .replace("%%ORIGIN%%", &origin.address());
    fs::write(&path, conf).expect("a site");
    Site {
        proxy,
        origin,
        path: path.to_string_lossy().into_owned(),
        _dir: dir,
    }
}

impl Site {
    fn explain(&self, host: &str, target: &str, more: &[&str]) -> String {
        let url = format!("http://{host}:{}{target}", self.proxy.port());
        let output = explain(&[&["-c", &self.path, &url], more].concat());
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text(&output)
    }
}

#[test]
fn what_is_said_of_a_request_is_what_happens() {
    let site = site();
    for (host, target, location, asked) in [
        ("site.test", "/a", "\"/\" is the longest prefix", Some("/a")),
        (
            "x.wild.test",
            "/was/b",
            "\"/\" is the longest prefix",
            Some("/is/b"),
        ),
        (
            "site.test",
            "/kept/c.jpg",
            "\"^~ /kept/\" is the longest",
            Some("/new/c.jpg"),
        ),
        (
            "site.test",
            "/d.jpg",
            "the expression \"[.]jpg$\"",
            Some("/d.jpg"),
        ),
        ("site.test", "/exact", "\"= /exact\" is exactly", None),
        ("other.test", "/a", "no location matches", None),
    ] {
        let report = site.explain(host, target, &[]);
        assert!(report.contains(location), "{target}: {report}");
        let before = site.origin.requests().len();
        let request = Request::get(target).host(host);
        let answer = Client::new(site.proxy.port()).send(&request).unwrap();
        let requests = site.origin.requests();
        let happened = requests.get(before).map(|request| request.target.as_str());
        assert_eq!(happened, asked, "{target}");
        let said = value(&report, "answer").unwrap();
        match asked {
            Some(path) => assert_eq!(
                said,
                format!("the upstream: {}{path}", site.origin.address())
            ),
            None => assert!(
                said.starts_with(&format!("status {}", answer.status)),
                "{said}"
            ),
        }
    }
}

#[test]
fn the_key_and_the_fate_of_an_answer_are_those_of_the_cache() {
    let site = site();
    let report = site.explain("site.test", "/a?b", &[]);
    assert_eq!(value(&report, "key"), Some("site.test/a"), "{report}");
    assert_eq!(value(&report, "zone"), Some("z"));
    assert!(report.contains("proxy_cache_valid 200 1m"), "{report}");
    assert!(report.contains("nginx.conf:8"), "{report}");
    for (answer, stored) in [
        ("200", "yes, fresh for 60 s: the time for 200"),
        (
            "HTTP/1.1 200; Cache-Control: max-age=5",
            "yes, fresh for 5 s: Cache-Control",
        ),
        (
            "200; X-Accel-Expires: 9; Cache-Control: no-store",
            "yes, fresh for 9 s: X-Accel-Expires",
        ),
        (
            "200; Cache-Control: private",
            "no: Cache-Control forbids it",
        ),
        ("200; Set-Cookie: a=b", "no: it sets a cookie"),
        ("200; Vary: *", "no: its Vary"),
        (
            "404",
            "no: neither its fields nor _cache_valid say how long 404",
        ),
    ] {
        let report = site.explain("site.test", "/a", &["--answer", answer]);
        let said = value(&report, "stored").unwrap();
        assert!(said.starts_with(stored), "{answer}: {said}");
    }
    for (answer, stored) in [
        ("200; X-No: 1", "no: a value of the _no_cache in force"),
        ("200; X-No: 0", "yes, fresh for 60 s"),
    ] {
        let report = site.explain("site.test", "/said/a", &["--answer", answer]);
        let said = value(&report, "stored").unwrap();
        assert!(said.starts_with(stored), "{answer}: {said}");
    }
    let off = site.explain("site.test", "/a.jpg", &["--answer", "200"]);
    assert_eq!(
        value(&off, "none"),
        Some("proxy_cache is off here"),
        "{off}"
    );
}

#[test]
fn a_request_that_nobody_takes_is_an_error() {
    let site = site();
    for url in [
        "http://site.test:1/",
        "ftp://site.test/",
        "http://a:b/",
        "http://a/ b",
    ] {
        let output = explain(&["-c", &site.path, url]);
        assert_eq!(output.status.code(), Some(1), "{url}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{url}"
        );
    }
}

/// The certificate that a client gets for a name, and why.
#[test]
fn certificates_are_told_by_the_name_that_is_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["one", "two"] {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("a name");
        let subject = &mut params.distinguished_name;
        subject.push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("a certificate");
        let text = certificate.pem() + &key.serialize_pem();
        fs::write(dir.path().join(format!("{name}.pem")), text).expect("a file");
    }
    let path = dir.path().join("nginx.conf");
    let conf = "events {} http {
        server { listen 443 ssl; server_name one.test; return 200;
            ssl_certificate one.pem; ssl_certificate_key one.pem; }
        server { listen 443 ssl; server_name two.test; return 200;
            ssl_certificate two.pem; ssl_certificate_key two.pem; }
        server { listen 443 ssl; server_name bare.test; return 200; }
        server { listen 443 ssl; server_name closed.test; ssl_reject_handshake on; }
        server { listen 443 ssl; server_name late.test; return 200;
            ssl_certificate $ssl_server_name.pem; ssl_certificate_key x.key; }
    }";
    fs::write(&path, conf).expect("a file");
    for (host, sent, why) in [
        (
            "one.test",
            "CN=one, until ",
            "the server of the name \"one.test\"",
        ),
        (
            "two.test",
            "CN=two, until ",
            "the server of the name \"two.test\"",
        ),
        (
            "bare.test",
            "CN=one, until ",
            "has none of its own, so that of the default server is sent",
        ),
        (
            "closed.test",
            "none: the handshake is refused",
            "has \"ssl_reject_handshake\"",
        ),
        (
            "late.test",
            "$ssl_server_name.pem, read at the handshake",
            "the server of the name",
        ),
        (
            "127.0.0.1",
            "CN=one, until ",
            "a client tells no name for an address",
        ),
        (
            "else.test",
            "CN=one, until ",
            "no server has the name \"else.test\"",
        ),
    ] {
        let output = explain(&["-c", &path.to_string_lossy(), &format!("https://{host}/")]);
        let report = text(&output);
        let told = value(&report, "sends").unwrap_or_default();
        assert!(told.starts_with(sent), "{host}: {report}");
        assert!(report.contains(why), "{host}: {report}");
    }
}

#[test]
fn what_an_answer_says_of_queries_and_dictionaries_is_explained() {
    let site = site();
    for (answer, label, expected) in [
        (
            "200; No-Vary-Search: params=(\"utm\")",
            "query",
            Some("\"b=2\" is looked up: \"utm\" do not count (No-Vary-Search)"),
        ),
        (
            "200; Use-As-Dictionary: match=\"/said/*\"",
            "dictionary",
            Some("yes, for its own URL, too"),
        ),
        (
            "200; Use-As-Dictionary: match=\"/other\"",
            "dictionary",
            Some("yes, for other URLs than its own"),
        ),
        (
            "200; Use-As-Dictionary: match=\"/(a)\"",
            "dictionary",
            Some("no: its Use-As-Dictionary is malformed, or its match is none that is known"),
        ),
        ("200", "dictionary", None),
    ] {
        let report = site.explain("site.test", "/said/a?utm=1&b=2", &["--answer", answer]);
        let answer = report.split("stored").last().unwrap_or_default();
        assert_eq!(value(answer, label), expected, "{report}");
    }
}
