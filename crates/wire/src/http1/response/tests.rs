//! Responses as they come: good, bad, in pieces.

use proptest::prelude::*;

use super::*;

/// The result that is compared between two ways of reading the same bytes.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Waiting,
    Head(Version, String, Vec<(String, String)>),
    NotHttp,
    Refused(Fault),
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Reads everything, given in pieces, up to the first outcome that ends the exchange.
fn read_pieces(pieces: &[&[u8]], max: usize) -> Vec<Outcome> {
    let mut parser = ResponseParser::new();
    let mut buf = BytesMut::new();
    let mut outcomes = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match parser.parse(&mut buf, max) {
                Progress::NeedMore => break,
                Progress::NotHttp => {
                    outcomes.push(Outcome::NotHttp);
                    return outcomes;
                }
                Progress::Refuse(fault) => {
                    outcomes.push(Outcome::Refused(fault));
                    return outcomes;
                }
                Progress::Done(head) => outcomes.push(Outcome::Head(
                    head.version,
                    text(&head.status_line),
                    head.fields
                        .iter()
                        .map(|field| (text(&field.name), text(&field.value)))
                        .collect(),
                )),
            }
        }
    }
    outcomes.push(Outcome::Waiting);
    outcomes
}

fn parse(input: &[u8]) -> Progress {
    ResponseParser::new().parse(&mut BytesMut::from(input), 4096)
}

fn head(input: &str) -> ResponseHead {
    match parse(input.as_bytes()) {
        Progress::Done(head) => head,
        other => panic!("{input:?}: {other:?}"),
    }
}

#[test]
fn a_response_is_taken_apart() {
    let mut buf =
        BytesMut::from("HTTP/1.1 404 Not here\r\nETag: \"a\"\r\nx-a:  b \r\nVia\r\n\r\nbody");
    let Progress::Done(head) = ResponseParser::new().parse(&mut buf, 4096) else {
        panic!("not done");
    };
    assert_eq!(buf, "body");
    assert_eq!((head.version, head.status), (Version::Http11, 404));
    assert_eq!(head.reason(), b"Not here");
    assert_eq!(head.status_line, "404 Not here");
    assert_eq!(head.head_len, 51);
    assert_eq!(head.fields.len(), 3);
    assert_eq!(head.fields.get(Known::ETag), Some(&Bytes::from("\"a\"")));
    assert_eq!(head.fields.find(b"X-A"), Some(&Bytes::from("b")));
    assert_eq!(head.fields.get(Known::Via), Some(&Bytes::new()));
    assert!(head.keeps_alive());
}

#[test]
fn status_lines_are_read_as_nginx_reads_them_but_for_dots() {
    for (line, version, status, reason) in [
        ("HTTP/1.1 200 OK", Version::Http11, 200, "OK"),
        ("HTTP/1.0 200 OK", Version::Http10, 200, "OK"),
        ("HTTP/1.1 200", Version::Http11, 200, ""),
        ("HTTP/1.1 200 ", Version::Http11, 200, ""),
        ("HTTP/1.1   200 OK", Version::Http11, 200, "OK"),
        ("HTTP/1.2 599 X  Y", Version::Http11, 599, "X  Y"),
        ("HTTP/2.0 200 OK", Version::Http11, 200, "OK"),
    ] {
        for end in ["\r\n", "\n"] {
            let head = head(&format!("{line}{end}{end}"));
            assert_eq!((head.version, head.status), (version, status), "{line}");
            assert_eq!(head.reason(), reason.as_bytes(), "{line}");
        }
    }
}

#[test]
fn an_answer_without_a_status_line_is_left_alone() {
    for input in [
        "<html>",
        "X",
        "HTTX",
        "HTTP/x",
        "HTTP/0.9 200 OK\r\n",
        "HTTP/1 200 OK\r\n",
        "HTTP/1.1\r\n",
        "HTTP/1.1 20\r\n",
        "HTTP/1.1 OK\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200OK\r\n\r\n",
        "HTTP/1.1 200 O\rK\r\n\r\n",
        "HTTP/1.1 200\t\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "HTTP/1111.1 200 OK\r\n\r\n",
    ] {
        let mut buf = BytesMut::from(input);
        let progress = ResponseParser::new().parse(&mut buf, 4096);
        assert!(
            matches!(progress, Progress::NotHttp),
            "{input:?}: {progress:?}"
        );
        assert_eq!(buf, input);
    }
    let endless = format!("HTTP/1.1 {}", " ".repeat(100));
    assert!(matches!(parse(endless.as_bytes()), Progress::NotHttp));
}

#[test]
fn malformed_heads_are_refused() {
    for (rest, expected) in [
        ("A : b\r\n\r\n", Fault::InvalidField),
        (" A: b\r\n\r\n", Fault::InvalidField),
        ("A: b\r\n c\r\n\r\n", Fault::InvalidField),
        (": b\r\n\r\n", Fault::InvalidField),
        ("A: b\0\r\n\r\n", Fault::InvalidField),
        ("A: b\rc\r\n\r\n", Fault::InvalidField),
        ("A\x01: b\r\n\r\n", Fault::InvalidField),
        ("\r\r\n", Fault::InvalidField),
    ] {
        let input = format!("HTTP/1.1 200 OK\r\n{rest}");
        match parse(input.as_bytes()) {
            Progress::Refuse(fault) => assert_eq!(fault, expected, "{rest:?}"),
            other => panic!("{rest:?}: {other:?}"),
        }
    }
    for (line, expected) in [
        ("HTTP/1.1 099 X", Fault::InvalidStatus),
        ("HTTP/1.1 200.5", Fault::InvalidStatus),
        ("HTTP/1.1 403.1 Denied", Fault::InvalidStatus),
        ("HTTP/1.1 200 X\0", Fault::InvalidStatus),
        ("HTTP/1.0 103 Early Hints", Fault::EarlyHintsInHttp10),
    ] {
        match parse(format!("{line}\r\n\r\n").as_bytes()) {
            Progress::Refuse(fault) => assert_eq!(fault, expected, "{line:?}"),
            other => panic!("{line:?}: {other:?}"),
        }
    }
}

#[test]
fn what_origins_do_in_practice_is_tolerated() {
    let head = head("HTTP/1.1 200 OK\nA_B: c\nHTTP/1.1 200 OK\r\nx.y: z\r\r\nD: e\r\n\r\n");
    let names: Vec<_> = head.fields.iter().map(|field| text(&field.name)).collect();
    assert_eq!(names, ["A_B", "x.y", "D"]);
    assert_eq!(head.fields.find(b"x.y"), Some(&Bytes::from("z")));
}

#[test]
fn interim_answers_come_before_the_final_one() {
    let input = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
    let mut buf = BytesMut::from(&input[..]);
    let mut parser = ResponseParser::new();
    for status in [103, 200] {
        match parser.parse(&mut buf, 4096) {
            Progress::Done(head) => assert_eq!(head.status, status),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_head_may_fill_the_buffer_and_not_a_byte_more() {
    let input = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody";
    let len = input.len() - 4;
    assert!(matches!(read_pieces(&[input], len)[0], Outcome::Head(..)));
    for max in 0..len {
        assert_eq!(
            read_pieces(&[input], max),
            [Outcome::Refused(Fault::TooBig)],
            "{max}"
        );
    }
}

#[test]
fn framing_has_one_reading() {
    use Fault::*;
    for (fields, expected) in [
        ("", Ok(Framing::UntilClose)),
        ("Content-Length: 0\r\n", Ok(Framing::Length(0))),
        ("Content-Length: 5\r\n", Ok(Framing::Length(5))),
        ("Transfer-Encoding: Chunked\r\n", Ok(Framing::Chunked)),
        ("Content-Length: foo\r\n", Err(InvalidLength)),
        ("Content-Length: 5, 5\r\n", Err(InvalidLength)),
        ("Content-Length: +5\r\n", Err(InvalidLength)),
        ("Content-Length:\r\n", Err(InvalidLength)),
        (
            "Content-Length: 0\r\nContent-Length: 0\r\n",
            Err(DuplicateField(Known::ContentLength)),
        ),
        ("Transfer-Encoding: foo\r\n", Err(UnknownEncoding)),
        ("Transfer-Encoding: gzip, chunked\r\n", Err(UnknownEncoding)),
        ("Transfer-Encoding: \tchunked\r\n", Err(UnknownEncoding)),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            Err(DuplicateField(Known::TransferEncoding)),
        ),
        (
            "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
            Err(LengthAndEncoding),
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            Err(LengthAndEncoding),
        ),
    ] {
        let head = head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"));
        assert_eq!(head.framing(Method::Get), expected, "{fields:?}");
        let without_body = expected.map(|_| Framing::None);
        assert_eq!(head.framing(Method::Head), without_body, "{fields:?}");
    }
    for (status, expected) in [
        (100, Framing::None),
        (101, Framing::Switched),
        (199, Framing::None),
        (204, Framing::None),
        (304, Framing::None),
        (205, Framing::Length(5)),
        (404, Framing::Length(5)),
    ] {
        let head = head(&format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n"));
        assert_eq!(head.framing(Method::Get), Ok(expected), "{status}");
    }
}

#[test]
fn a_connection_lives_on_unless_closed() {
    for (version, fields, expected) in [
        ("1.1", "", true),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", false),
        ("1.1", "Connection: foo, Close\r\n", false),
        ("1.1", "Connection: upgrade\r\n", true),
    ] {
        let head = head(&format!("HTTP/{version} 200 OK\r\n{fields}\r\n"));
        assert_eq!(head.keeps_alive(), expected, "{version} {fields:?}");
    }
    assert!(head("HTTP/1.1 101 X\r\nConnection: a, Upgrade\r\n\r\n").connection_has(b"upgrade"));
}

/// Bytes that look like responses often enough to get far.
fn response_like() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        6 => prop::sample::select(vec![
            "HTTP/1.1 200 OK\r\n", "HTTP/", "1.1", "1.0", " 200", " 304 ", "OK", "\r\n", "\n", "\r",
            "Content-Length: 5\r\n", "A: b\n", "X", ":", " ", "\0", "\r\n\r\n",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(word, 0..16).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_read_alike_in_one_piece_and_in_many(
        input in response_like(),
        starts_well in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        max in 0usize..80,
    ) {
        let mut input = input;
        if starts_well {
            input.splice(0..0, *b"HTTP/1.1 200 OK\r\n");
        }
        for max in [max, 4096] {
            let whole = read_pieces(&[&input], max);
            let (left, right) = input.split_at(cut.index(input.len() + 1));
            prop_assert_eq!(&read_pieces(&[left, right], max), &whole);
            let bytes: Vec<_> = input.chunks(1).collect();
            prop_assert_eq!(&read_pieces(&bytes, max), &whole);
        }
    }
}
