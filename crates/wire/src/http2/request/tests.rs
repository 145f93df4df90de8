//! Requests as RFC 9113 §8 and nginx's tests have them.

use std::rc::Rc;

use super::super::hpack::name::is_good_value;
use super::*;
use crate::head::builder::HeadBuilder;
use crate::head::{Framing, InvalidNames, Refused, RequestHead, Underscores};

type Pair<'a> = (&'a str, &'a str);

const METHOD: Pair = (":method", "GET");
const SCHEME: Pair = (":scheme", "http");
const PATH: Pair = (":path", "/a?b=c");
const AUTHORITY: Pair = (":authority", "Example.org:8080");

fn read_by(
    rules: &Rules,
    ends: Ends,
    fields: &[Pair],
) -> Result<(Rc<RequestHead>, BodyLength), Refused> {
    let mut builder = HeadBuilder::new();
    let mut reader = RequestReader::new(rules, builder.open(), Version::Http2);
    for (name, value) in fields {
        reader.take(Decoded {
            class: Class::of(name.as_bytes()),
            name: name.as_bytes(),
            value: value.as_bytes(),
            is_good: is_good_value(value.as_bytes()),
        });
    }
    let outcome = reader.finish(ends);
    let head = builder.finish(77);
    match outcome {
        Ok(body) => Ok((head, body)),
        Err(why) => Err(Refused { why, head }),
    }
}

fn read(fields: &[Pair]) -> Result<(Rc<RequestHead>, BodyLength), Refused> {
    read_by(&Rules::default(), Ends::WithHead, fields)
}

fn why(fields: &[Pair]) -> Option<Refusal> {
    read(fields).err().map(|refused| refused.why)
}

#[track_caller]
fn head(fields: &[Pair]) -> Rc<RequestHead> {
    read(fields).expect("a good request").0
}

/// RFC 9113 §8.3.1, in any order.
#[test]
fn a_request_becomes_the_head_that_all_protocols_share() {
    for pseudo in [
        [METHOD, SCHEME, PATH, AUTHORITY],
        [AUTHORITY, PATH, SCHEME, METHOD],
    ] {
        let mut fields = pseudo.to_vec();
        fields.extend([("accept", "*/*"), ("x-a", "1"), ("x-a", "2")]);
        let head = head(&fields);
        assert_eq!(head.line(), b"GET /a?b=c HTTP/2.0");
        assert_eq!(
            (head.method(), head.method_bytes()),
            (Method::Get, &b"GET"[..])
        );
        assert_eq!(
            (head.target(), head.uri()),
            (&b"/a?b=c"[..], &b"/a?b=c"[..])
        );
        assert_eq!((head.scheme(), head.authority()), (&b"http"[..], &b""[..]));
        assert_eq!(head.protocol(), b"HTTP/2.0");
        assert_eq!((head.version(), head.head_len()), (Version::Http2, 77));
        let host = head.host().unwrap();
        assert_eq!((host.name, host.port), (&b"Example.org"[..], Some(8080)));
        assert_eq!(head.get(Known::Host), Some(&b"Example.org:8080"[..]));
        assert_eq!(head.get(Known::Accept), Some(&b"*/*"[..]));
        let all: Vec<_> = head.find_all(b"x-a").collect();
        assert_eq!(all, [b"1", b"2"]);
        assert_eq!(head.fields().len(), 4);
        assert!(head.keep_alive_wanted());
        assert_eq!(head.check(Connect::Refuse), Ok(Framing::None));
    }
}

/// RFC 9113 §8.3, §8.3.1: pseudo fields that are missing, twice, empty, late or unknown.
#[test]
fn pseudo_fields_are_there_once_and_first() {
    let good = [METHOD, SCHEME, PATH, AUTHORITY];
    for (index, missing) in [
        (0, Refusal::MissingPseudo("method")),
        (1, Refusal::MissingPseudo("scheme")),
        (2, Refusal::MissingPseudo("path")),
        (3, Refusal::NoAuthority),
    ] {
        let mut fields = good.to_vec();
        let field = fields.remove(index);
        assert_eq!(why(&fields), Some(missing));
        fields.push(("x-a", "1"));
        assert_eq!(why(&fields), Some(missing));
        let mut twice = good.to_vec();
        twice.push(field);
        let name = field.0.strip_prefix(':').unwrap();
        assert!(
            matches!(why(&twice), Some(Refusal::DuplicatePseudo(it)) if it == name),
            "{name}"
        );
        let mut late = good.to_vec();
        late.extend([("x-a", "1"), field]);
        assert_eq!(why(&late), Some(Refusal::LatePseudo));
    }
    for (field, refusal) in [
        ((":status", "200"), Refusal::UnknownPseudo),
        ((":other", "1"), Refusal::UnknownPseudo),
        ((":protocol", "websocket"), Refusal::UnknownPseudo),
    ] {
        assert_eq!(
            why(&[METHOD, SCHEME, PATH, AUTHORITY, field]),
            Some(refusal)
        );
    }
    assert_eq!(why(&[]), Some(Refusal::MissingPseudo("method")));
}

/// RFC 9113 §8.3.1; nginx for what its parsers take.
#[test]
fn values_that_a_pseudo_field_cannot_have_are_refused() {
    for (field, refusal) in [
        ((":method", ""), Refusal::EmptyPseudo("method")),
        ((":method", "get"), Refusal::InvalidMethod),
        ((":method", "GE T"), Refusal::InvalidMethod),
        ((":scheme", ""), Refusal::EmptyPseudo("scheme")),
        ((":scheme", "1http"), Refusal::InvalidPseudo("scheme")),
        ((":scheme", "ht/tp"), Refusal::InvalidPseudo("scheme")),
        ((":path", ""), Refusal::EmptyPseudo("path")),
        ((":path", "t1.html"), Refusal::InvalidPseudo("path")),
        ((":path", "*"), Refusal::InvalidPseudo("path")),
        ((":path", "/a\x02"), Refusal::InvalidPseudo("path")),
        ((":path", "/a b"), Refusal::InvalidPseudo("path")),
        ((":path", "/a#b"), Refusal::InvalidPseudo("path")),
        ((":authority", ""), Refusal::InvalidPseudo("authority")),
        ((":authority", "a/b"), Refusal::InvalidPseudo("authority")),
        (
            (":authority", "user@a"),
            Refusal::InvalidPseudo("authority"),
        ),
        ((":authority", "a\r\n"), Refusal::InvalidValue),
        ((":path", "/a "), Refusal::InvalidValue),
    ] {
        let mut fields = vec![METHOD, SCHEME, PATH, AUTHORITY];
        let place = fields
            .iter()
            .position(|(name, _)| *name == field.0)
            .unwrap();
        fields[place] = field;
        assert_eq!(why(&fields), Some(refusal), "{field:?}");
    }
}

/// RFC 9113 §8.3.1: `*` is the path of an OPTIONS that is about no resource, and of nothing else.
#[test]
fn options_of_the_server_as_a_whole_is_well_formed() {
    let asterisk = (":path", "*");
    for pseudo in [
        [(":method", "OPTIONS"), SCHEME, asterisk, AUTHORITY],
        [asterisk, AUTHORITY, SCHEME, (":method", "OPTIONS")],
    ] {
        let Refused { why, head } = read(&pseudo).expect_err("it is not served");
        assert_eq!((why, why.status()), (Refusal::OptionsOfServer, 400));
        assert!(!why.is_malformed() && Refusal::InvalidPseudo("path").is_malformed());
        assert_eq!(head.line(), b"OPTIONS * HTTP/2.0");
        assert_eq!(head.get(Known::Host), Some(&b"Example.org:8080"[..]));
    }
    for method in ["GET", "HEAD", "OPTION"] {
        let fields = [asterisk, (":method", method), SCHEME, AUTHORITY];
        assert_eq!(
            why(&fields),
            Some(Refusal::InvalidPseudo("path")),
            "{method}"
        );
    }
    let with_more = (":path", "*/a");
    let fields = [(":method", "OPTIONS"), SCHEME, with_more, AUTHORITY];
    assert_eq!(why(&fields), Some(Refusal::InvalidPseudo("path")));
}

/// RFC 9113 §8.2.1, §8.2.2.
#[test]
fn fields_that_http2_does_not_have_are_refused() {
    for (field, refusal) in [
        (("X-A", "1"), Refusal::InvalidName),
        (("x:a", "1"), Refusal::InvalidName),
        (("x a", "1"), Refusal::InvalidName),
        (("x\u{1}a", "1"), Refusal::InvalidName),
        (("x-a", "b\r\nc: d"), Refusal::InvalidValue),
        (("x-a", "b\0"), Refusal::InvalidValue),
        (("x-a", " b"), Refusal::InvalidValue),
        (
            ("connection", "close"),
            Refusal::ConnectionField(Known::Connection),
        ),
        (
            ("keep-alive", "1"),
            Refusal::ConnectionField(Known::KeepAlive),
        ),
        (
            ("transfer-encoding", "chunked"),
            Refusal::ConnectionField(Known::TransferEncoding),
        ),
        (("upgrade", "h2c"), Refusal::ConnectionField(Known::Upgrade)),
        (
            ("proxy-connection", "close"),
            Refusal::ConnectionField(Known::ProxyConnection),
        ),
        (("te", "gzip"), Refusal::InvalidTe),
        (("te", "trailers, gzip"), Refusal::InvalidTe),
        (("content-length", "x"), Refusal::InvalidLength),
    ] {
        let fields = [METHOD, SCHEME, PATH, AUTHORITY, field];
        assert_eq!(why(&fields), Some(refusal), "{field:?}");
    }
    let te = ("te", "Trailers");
    assert_eq!(why(&[METHOD, SCHEME, PATH, AUTHORITY, te]), None);
    assert_eq!(
        why(&[METHOD, SCHEME, PATH, AUTHORITY, te, te]),
        Some(Refusal::InvalidTe)
    );
    let mode = ("if-none-match", "\"a\"");
    let twice = [METHOD, SCHEME, PATH, AUTHORITY, mode, mode];
    assert_eq!(
        why(&twice),
        Some(Refusal::DuplicateField(Known::IfNoneMatch))
    );
}

/// RFC 9113 §8.3.1; nginx: equal to the byte, or refused.
#[test]
fn the_host_is_that_of_both_fields() {
    let base = [METHOD, SCHEME, PATH];
    let of = |rest: &[Pair]| read(&[&base, rest].concat());
    let host = |rest: &[Pair]| {
        let (head, _) = of(rest).unwrap();
        String::from_utf8_lossy(head.host().unwrap().name).into_owned()
    };
    assert_eq!(host(&[("host", "a.b")]), "a.b");
    assert_eq!(host(&[(":authority", "a.b")]), "a.b");
    assert_eq!(host(&[(":authority", "a.b"), ("host", "a.b")]), "a.b");
    assert_eq!(host(&[(":authority", "a.b:1"), ("host", "a.b:1")]), "a.b");
    for (rest, refusal) in [
        (
            &[(":authority", "a.b"), ("host", "a.c")][..],
            Refusal::TwoHosts,
        ),
        (&[(":authority", "a:1"), ("host", "a:2")], Refusal::TwoHosts),
        (&[(":authority", "a"), ("host", "A")], Refusal::TwoHosts),
        (
            &[("host", "a"), ("host", "a")],
            Refusal::DuplicateField(Known::Host),
        ),
        (&[("host", "")], Refusal::InvalidHost),
    ] {
        assert_eq!(of(rest).unwrap_err().why, refusal, "{rest:?}");
    }
}

/// RFC 9113 §8.2.3.
#[test]
fn crumbs_of_a_cookie_are_joined() {
    let base = [METHOD, SCHEME, PATH, AUTHORITY];
    for (crumbs, joined) in [
        (&["a=b"][..], "a=b"),
        (&["a=b", "c=d"], "a=b; c=d"),
        (&["a=b", "", "c=d"], "a=b; ; c=d"),
    ] {
        let mut fields = base.to_vec();
        for crumb in crumbs {
            fields.extend([("cookie", *crumb), ("x-between", "1")]);
        }
        let head = head(&fields);
        let cookies: Vec<_> = head.get_all(Known::Cookie).collect();
        assert_eq!(cookies, [joined.as_bytes()]);
        assert_eq!(head.find_all(b"cookie").count(), 1);
    }
}

/// RFC 9113 §8.5, RFC 8441 §4; 405 as nginx says where it is not served.
#[test]
fn connect_has_its_own_shape_and_is_refused_unless_it_is_allowed() {
    let connect = (":method", "CONNECT");
    let allowed = Rules {
        connect: Connect::Allow,
        ..Rules::default()
    };
    let extended = Rules {
        extended_connect: ExtendedConnect::Allow,
        ..Rules::default()
    };
    let plain = [connect, AUTHORITY];
    let of = |rules: &Rules, fields: &[Pair]| read_by(rules, Ends::Later, fields);
    assert_eq!(why(&plain), Some(Refusal::ConnectNotAllowed));
    let all = [connect, SCHEME, PATH, AUTHORITY];
    assert_eq!(why(&all), Some(Refusal::ConnectNotAllowed));
    assert_eq!(Refusal::ConnectNotAllowed.status(), 405);
    let (head, body) = of(&allowed, &plain).unwrap();
    assert_eq!(head.authority(), b"Example.org:8080");
    assert_eq!((head.uri(), body), (&b"/"[..], BodyLength::Unknown));
    assert!(of(&allowed, &all).is_err());
    assert!(of(&allowed, &[connect, SCHEME, AUTHORITY]).is_err());
    assert!(of(&allowed, &[connect]).is_err());
    let protocol = (":protocol", "websocket");
    let fields = [connect, protocol, SCHEME, PATH, AUTHORITY];
    let (head, _) = of(&extended, &fields).unwrap();
    assert_eq!(head.connect_protocol(), b"websocket");
    assert_eq!(
        (head.uri(), head.method()),
        (&b"/a?b=c"[..], Method::Connect)
    );
    let other = [
        connect,
        (":protocol", "connect-udp"),
        SCHEME,
        PATH,
        AUTHORITY,
    ];
    let refused = of(&extended, &other).unwrap_err();
    assert_eq!(refused.why, Refusal::UnknownProtocol);
    assert_eq!(refused.status(), 501);
    assert!(of(&extended, &[METHOD, protocol, SCHEME, PATH, AUTHORITY]).is_err());
    assert!(of(&extended, &[connect, protocol, AUTHORITY]).is_err());
    assert!(of(&allowed, &fields).is_err());
    assert_eq!(
        why(&[(":method", "TRACE"), SCHEME, PATH, AUTHORITY]),
        Some(Refusal::TraceNotAllowed)
    );
}

/// RFC 9113 §8.1.1.
#[test]
fn a_length_is_that_of_the_body() {
    let fields = |length| [METHOD, SCHEME, PATH, AUTHORITY, ("content-length", length)];
    let of = |ends, length| read_by(&Rules::default(), ends, &fields(length)).map(|(_, body)| body);
    assert_eq!(of(Ends::WithHead, "0").unwrap(), BodyLength::None);
    assert_eq!(of(Ends::Later, "7").unwrap(), BodyLength::Known(7));
    assert_eq!(of(Ends::Later, "0").unwrap(), BodyLength::Known(0));
    assert_eq!(
        of(Ends::WithHead, "7").unwrap_err().why,
        Refusal::PrematureEnd
    );
    let none = read_by(&Rules::default(), Ends::Later, &fields("")[..4]);
    assert_eq!(none.unwrap().1, BodyLength::Unknown);
}

/// nginx: `ignore_invalid_headers`, `underscores_in_headers`, `max_headers`.
#[test]
fn limits_are_those_of_the_configuration() {
    let fields = [
        METHOD,
        SCHEME,
        PATH,
        AUTHORITY,
        ("x_a", "1"),
        ("x.a", "2"),
        ("x-b", "3"),
    ];
    for (underscores, invalid, names) in [
        (
            Underscores::Ignore,
            InvalidNames::Ignore,
            &["x-b", "host"][..],
        ),
        (
            Underscores::Allow,
            InvalidNames::Ignore,
            &["x_a", "x-b", "host"],
        ),
        (
            Underscores::Ignore,
            InvalidNames::Keep,
            &["x_a", "x.a", "x-b", "host"],
        ),
    ] {
        let mut rules = Rules::default();
        rules.limits.underscores = underscores;
        rules.limits.invalid = invalid;
        let (head, _) = read_by(&rules, Ends::WithHead, &fields).unwrap();
        let kept: Vec<_> = head.fields().map(|field| field.name.to_vec()).collect();
        assert_eq!(
            kept,
            names
                .iter()
                .map(|it| it.as_bytes().to_vec())
                .collect::<Vec<_>>()
        );
        rules.limits.fields = names.len() - 2;
        let refused = read_by(&rules, Ends::WithHead, &fields).unwrap_err();
        assert_eq!(
            (refused.why, refused.status()),
            (Refusal::TooManyFields, 494)
        );
    }
}

#[test]
fn a_refused_request_has_what_was_read_of_it() {
    let fields = [
        (":method", "HEAD"),
        SCHEME,
        PATH,
        AUTHORITY,
        ("x-a", "1"),
        ("X", ""),
    ];
    let refused = read(&fields).unwrap_err();
    assert_eq!(refused.head.line(), b"HEAD /a?b=c HTTP/2.0");
    assert_eq!(refused.head.method(), Method::Head);
    assert_eq!(refused.head.find(b"x-a"), Some(&b"1"[..]));
    assert_eq!(
        (refused.status(), refused.head.version()),
        (400, Version::Http2)
    );
}
