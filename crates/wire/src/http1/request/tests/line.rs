//! Request lines and their targets: paths, absolute URIs, and what CONNECT asks for.

use super::*;

#[test]
fn request_lines_are_read_as_nginx_reads_them() {
    use Refusal::*;
    for (line, expected) in [
        ("GET / HTTP/1.1", Ok(Version::Http11)),
        ("GET / HTTP/1.0", Ok(Version::Http10)),
        ("GET / HTTP/1.00", Ok(Version::Http10)),
        ("GET / HTTP/1.2", Ok(Version::Http11)),
        ("GET / HTTP/1.999", Ok(Version::Http11)),
        ("GET / HTTP/1.1  ", Ok(Version::Http11)),
        ("GET   /   HTTP/1.1", Ok(Version::Http11)),
        ("GET /", Ok(Version::Http09)),
        ("GET /  ", Ok(Version::Http09)),
        ("M-SEARCH_X / HTTP/1.1", Ok(Version::Http11)),
        ("GET /\u{fc} HTTP/1.1", Ok(Version::Http11)),
        ("GET /%zz#a HTTP/1.1", Ok(Version::Http11)),
        ("get / HTTP/1.1", Err(InvalidMethod)),
        ("G3T / HTTP/1.1", Err(InvalidMethod)),
        (" GET / HTTP/1.1", Err(InvalidMethod)),
        ("GET", Err(InvalidMethod)),
        ("GET\t/ HTTP/1.1", Err(InvalidMethod)),
        ("GET ", Err(InvalidRequest)),
        ("GET HTTP/1.1", Err(InvalidRequest)),
        ("GET * HTTP/1.1", Err(InvalidRequest)),
        ("PRI * HTTP/2.0", Err(InvalidRequest)),
        ("GET / / HTTP/1.1", Err(InvalidRequest)),
        ("GET /\x02 HTTP/1.1", Err(InvalidRequest)),
        ("GET /\x7f HTTP/1.1", Err(InvalidRequest)),
        ("GET /\t HTTP/1.1", Err(InvalidRequest)),
        ("GET /\0 HTTP/1.1", Err(InvalidRequest)),
        ("GET /\r HTTP/1.1", Err(InvalidRequest)),
        ("GET / HTTP/1.1\r", Err(InvalidRequest)),
        ("GET / http/1.1", Err(InvalidRequest)),
        ("GET / HTTP/1.", Err(InvalidRequest)),
        ("GET / HTTP/1", Err(InvalidRequest)),
        ("GET / HTTP/", Err(InvalidRequest)),
        ("GET / HTTP", Err(InvalidRequest)),
        ("GET / HTTP/1.1x", Err(InvalidRequest)),
        ("GET / HTTP/1.1 x", Err(InvalidRequest)),
        ("GET / HTTP/1.1111", Err(InvalidRequest)),
        ("GET / HTTP/0.9", Err(InvalidRequest)),
        ("GET / HTTP/01.1", Err(InvalidRequest)),
        ("GET / HTTP/2.0", Err(VersionNotSupported)),
        ("GET / HTTP/3", Err(VersionNotSupported)),
        ("GET / HTTP/10.1", Err(VersionNotSupported)),
        ("POST /", Err(InvalidMethodHttp09)),
    ] {
        let input = format!("{line}\r\nHost: a\r\n\r\n");
        let result = match parse(input.as_bytes(), &Limits::default()) {
            Progress::Done(head) => Ok(head.version()),
            Progress::Refuse(refused) => Err(refused.why),
            Progress::NeedMore => panic!("{line:?} waits"),
        };
        assert_eq!(result, expected, "{line:?}");
    }
}

#[test]
fn absolute_targets_are_split() {
    for (target, scheme, authority, uri) in [
        ("http://localhost", "http", "localhost", "/"),
        ("http://localhost/", "http", "localhost", "/"),
        (
            "HTTPS://localhost:8080/a?b",
            "HTTPS",
            "localhost:8080",
            "/a?b",
        ),
        ("http://localhost?args", "http", "localhost", "?args"),
        (
            "http://localhost:8080?args#frag",
            "http",
            "localhost:8080",
            "?args#frag",
        ),
        ("http://localhost:", "http", "localhost:", "/"),
        ("http://[::1]:80/", "http", "[::1]:80", "/"),
        ("a+b-c.1://x/", "a+b-c.1", "x", "/"),
    ] {
        let head = head(&format!("GET {target} HTTP/1.1\r\nHost: other\r\n\r\n"));
        assert_eq!(head.target(), target.as_bytes());
        assert_eq!(head.scheme(), scheme.as_bytes(), "{target}");
        assert_eq!(head.authority(), authority.as_bytes(), "{target}");
        assert_eq!(head.uri(), uri.as_bytes(), "{target}");
        assert_ne!(head.host().expect("host").name, b"other");
    }
}

#[test]
fn malformed_absolute_targets_are_refused() {
    use Refusal::*;
    for (line, expected) in [
        ("GET http:// HTTP/1.1", InvalidHostInLine),
        ("GET http:///a HTTP/1.1", InvalidHostInLine),
        ("GET http://a..b/ HTTP/1.1", InvalidHostInLine),
        ("GET http://a:99999/ HTTP/1.1", InvalidHostInLine),
        ("GET http:/a HTTP/1.1", InvalidRequest),
        ("GET http HTTP/1.1", InvalidRequest),
        ("GET h_t://a/ HTTP/1.1", InvalidRequest),
        ("GET http://a_b/ HTTP/1.1", InvalidRequest),
        ("GET http://u@a/ HTTP/1.1", InvalidRequest),
        ("GET http://a#b HTTP/1.1", InvalidRequest),
        ("GET http://a:8x/ HTTP/1.1", InvalidRequest),
        ("GET http://[::1 HTTP/1.1", InvalidRequest),
        ("GET http://a", InvalidRequest),
    ] {
        let input = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(
            refusal(input.as_bytes(), &Limits::default()),
            Some(expected),
            "{line}"
        );
    }
}

#[test]
fn connect_takes_a_host_and_a_port() {
    let allowed = head("CONNECT localhost:8080 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(allowed.authority(), b"localhost:8080");
    assert_eq!(allowed.uri(), b"/");
    assert_eq!(allowed.check(Connect::Allow), Ok(Framing::None));
    assert_eq!(
        allowed.check(Connect::Refuse),
        Err(Refusal::ConnectNotAllowed)
    );
    let old = head("CONNECT localhost:8080 HTTP/1.0\r\n\r\n");
    assert_eq!(old.check(Connect::Allow), Err(Refusal::ConnectNotAllowed));
    let body = head("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
    assert_eq!(body.check(Connect::Allow), Err(Refusal::ConnectWithBody));
    for target in [
        "/",
        "localhost",
        "localhost:",
        "http://a:1/",
        "a:1/",
        "[::1]",
        "*",
    ] {
        let input = format!("CONNECT {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let found = refusal(input.as_bytes(), &Limits::default());
        assert_eq!(found, Some(Refusal::InvalidRequest), "{target}");
    }
}
