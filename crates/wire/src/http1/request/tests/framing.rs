//! Framing of request bodies: every list of framing fields has one reading or is refused.

use super::*;

/// Sends each list of fields with a POST and compares the framing.
fn assert_framing(table: &[(&str, Result<Framing, Refusal>)]) {
    for (fields, expected) in table {
        let input = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let found = match parse(input.as_bytes(), &Limits::default()) {
            Progress::Done(head) => head.check(Connect::Refuse),
            Progress::Refuse(refused) => Err(refused.why),
            Progress::NeedMore => panic!("{fields:?} waits"),
        };
        assert_eq!(found, *expected, "{fields:?}");
    }
}

#[test]
fn framing_has_one_reading() {
    use Refusal::*;
    assert_framing(&[
        ("", Ok(Framing::None)),
        ("Content-Length: 0\r\n", Ok(Framing::None)),
        ("Content-Length: 5\r\n", Ok(Framing::Length(5))),
        ("content-length:5  \r\n", Ok(Framing::Length(5))),
        ("Transfer-Encoding: chunked\r\n", Ok(Framing::Chunked)),
        ("Transfer-Encoding: CHUNKED\r\n", Ok(Framing::Chunked)),
        // CL.TE and TE.CL
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            Err(LengthAndEncoding),
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            Err(LengthAndEncoding),
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            Err(LengthAndEncoding),
        ),
        // CL.CL
        (
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            Err(DuplicateField(Known::ContentLength)),
        ),
        ("Content-Length: 5, 5\r\n", Err(InvalidLength)),
        ("Content-Length: +5\r\n", Err(InvalidLength)),
        ("Content-Length: -5\r\n", Err(InvalidLength)),
        ("Content-Length: 0x5\r\n", Err(InvalidLength)),
        ("Content-Length: 5 5\r\n", Err(InvalidLength)),
        ("Content-Length: \t5\r\n", Err(InvalidLength)),
        ("Content-Length: 5\t\r\n", Err(InvalidLength)),
        ("Content-Length:\r\n", Err(InvalidLength)),
        ("Content-Length\r\n", Err(InvalidLength)),
        (
            "Content-Length: 9223372036854775808\r\n",
            Err(InvalidLength),
        ),
        (
            "Content-Length: 99999999999999999999\r\n",
            Err(InvalidLength),
        ),
        // TE.TE
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
            Err(DuplicateField(Known::TransferEncoding)),
        ),
        ("Transfer-Encoding: identity\r\n", Err(UnknownEncoding)),
        (
            "Transfer-Encoding: chunked, identity\r\n",
            Err(UnknownEncoding),
        ),
        ("Transfer-Encoding: gzip, chunked\r\n", Err(UnknownEncoding)),
        ("Transfer-Encoding: \"chunked\"\r\n", Err(UnknownEncoding)),
        ("Transfer-Encoding: xchunked\r\n", Err(UnknownEncoding)),
        ("Transfer-Encoding: chunked;q=1\r\n", Err(UnknownEncoding)),
        ("Transfer-Encoding: \tchunked\r\n", Err(UnknownEncoding)),
        ("Transfer-Encoding: chunked\t\r\n", Err(UnknownEncoding)),
        ("Transfer-Encoding: \x0bchunked\r\n", Err(UnknownEncoding)),
        ("Transfer-Encoding:\r\n", Err(UnknownEncoding)),
        (
            "Transfer-Encoding: identity\r\nContent-Length: 5\r\n",
            Err(UnknownEncoding),
        ),
    ]);
    let old = head("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(old.framing(), Err(Refusal::EncodingInHttp10));
}

#[test]
fn framing_fields_that_another_server_might_mend_are_refused() {
    use Refusal::*;
    assert_framing(&[
        ("Transfer-Encoding : chunked\r\n", Err(InvalidField)),
        ("Transfer-Encoding\t: chunked\r\n", Err(InvalidField)),
        (" Transfer-Encoding: chunked\r\n", Err(InvalidField)),
        ("Transfer-Encoding\x0b: chunked\r\n", Err(InvalidField)),
        ("Transfer-Encoding:\r\n chunked\r\n", Err(InvalidField)),
        ("Transfer-Encoding:\n\tchunked\r\n", Err(InvalidField)),
        (
            "X: y\r\n\tTransfer-Encoding: chunked\r\n",
            Err(InvalidField),
        ),
        ("X: y\rTransfer-Encoding: chunked\r\n", Err(InvalidField)),
        (
            "X: y\0\r\nTransfer-Encoding: chunked\r\n",
            Err(InvalidField),
        ),
        ("X: y\r\r\nContent-Length: 5\r\n", Err(InvalidField)),
        ("Transfer-Encoding: chunked\r\r\n", Err(InvalidField)),
        ("Content-Length: 5\0\r\n", Err(InvalidField)),
        (": chunked\r\n", Err(InvalidField)),
        // Dropped, as another name: no reading as Content-Length is left for the next server.
        ("Content_Length: 5\r\n", Ok(Framing::None)),
        ("Transfer.Encoding: chunked\r\n", Ok(Framing::None)),
    ]);
}
