//! Signatures that AWS has published: examples of the S3 API reference ("Examples: Signature
//! Calculations", "Example Calculations" of chunks), and of the test suite of Signature Version 4.

use std::rc::Rc;

use bytes::Bytes;
use millpond_conf::value::{ArgError, Args, FromArgs as _};
use millpond_conf::{LoadOptions, ParseContext, load_text};
use sha2::{Digest, Sha256};

use super::chunks::{self, ChunkSigner, Chunks};
use super::credentials::Credentials;
use super::head::{self, Payload};
use super::signature::{Scope, Time};
use super::{AwsSign, Signed};

/// 2013-05-24T00:00:00Z.
const S3_TIME: i64 = 1_369_353_600;
/// 2015-08-30T12:36:00Z.
const SUITE_TIME: i64 = 1_440_938_160;

fn read(text: &str) -> Result<AwsSign, ArgError> {
    let options = LoadOptions::default();
    let tree = load_text("t.conf", text, &options, &mut Default::default());
    let line = &tree.statements[0];
    AwsSign::from_args(&mut Args {
        name: &line.name,
        words: &line.args,
        body: None,
        cx: &mut ParseContext::new("/prefix", "/conf"),
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The hash of a body, told in a field.
fn told(body: &[u8]) -> Payload {
    let hash = Sha256::digest(body).into();
    Payload::Hash {
        hash,
        is_told: true,
    }
}

/// The hash of a body, for another service than S3.
fn untold(body: &[u8]) -> Payload {
    let hash = Sha256::digest(body).into();
    Payload::Hash {
        hash,
        is_told: false,
    }
}

/// A head for S3, by the keys of its examples.
fn s3(lines: &str, payload: &Payload) -> Signed {
    let secret = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    let credentials = Credentials::new(b"AKIAIOSFODNN7EXAMPLE", secret, None).unwrap();
    let time = Time::of(S3_TIME);
    let scope = Scope::new(&time, b"us-east-1", b"s3").unwrap();
    head::sign(&written(lines), payload, (&credentials, &scope, &time))
}

/// A head of the test suite.
fn suite(lines: &[u8], body: &[u8], token: Option<&[u8]>) -> Signed {
    let secret = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    let credentials = Credentials::new(b"AKIDEXAMPLE", secret, token).unwrap();
    let time = Time::of(SUITE_TIME);
    let scope = Scope::new(&time, b"us-east-1", b"service").unwrap();
    let head = [lines, b" HTTP/1.1\r\nHost: example.amazonaws.com\r\n\r\n"].concat();
    head::sign(
        &Bytes::from(head),
        &untold(body),
        (&credentials, &scope, &time),
    )
}

fn written(lines: &str) -> Bytes {
    Bytes::from(format!("{}\r\n\r\n", lines.replace('\n', "\r\n")))
}

#[test]
fn heads_of_the_examples_of_s3_have_their_signatures() {
    let host = "Host: examplebucket.s3.amazonaws.com";
    for (lines, body, expected) in [
        (
            format!("GET /test.txt HTTP/1.1\n{host}\nRange: bytes=0-9"),
            "",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            format!(
                "PUT /test$file.text HTTP/1.1\n{host}\nDate: Fri, 24 May 2013 00:00:00 GMT\n\
                 x-amz-storage-class: REDUCED_REDUNDANCY\nContent-Length: 21"
            ),
            "Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            format!("GET /?lifecycle HTTP/1.1\n{host}"),
            "",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            format!("GET /?max-keys=2&prefix=J HTTP/1.1\n{host}"),
            "",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ] {
        let signed = s3(&lines, &told(body.as_bytes()));
        assert_eq!(signed.signature, expected, "{}", text(&signed.head));
    }
}

#[test]
fn a_head_has_the_fields_of_its_signature_once() {
    let lines = "GET /test.txt HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\nRange: bytes=0-9\n\
                 Authorization: Basic eDp5\nx-amz-date: 19990101T000000Z\nUser-Agent: x";
    let head = text(&s3(lines, &told(b"")).head);
    let expected = "GET /test.txt HTTP/1.1\r\nHost: examplebucket.s3.amazonaws.com\r\n\
        Range: bytes=0-9\r\nUser-Agent: x\r\nX-Amz-Date: 20130524T000000Z\r\n\
        X-Amz-Content-Sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n\
        Authorization: AWS4-HMAC-SHA256 \
        Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
        SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
        Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41\r\n\r\n";
    assert_eq!(head, expected);
}

#[test]
fn requests_of_the_test_suite_have_their_signatures() {
    let vanilla = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
    for (line, expected) in [
        ("GET /", vanilla),
        ("GET /example/..", vanilla),
        ("GET /example1/example2/../..", vanilla),
        ("GET //", vanilla),
        ("GET /./", vanilla),
        (
            "GET /?Param2=value2&Param1=value1",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "GET /\u{1234}",
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        ),
        (
            "POST /",
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ),
    ] {
        let signed = suite(line.as_bytes(), b"", None);
        assert_eq!(signed.signature, expected, "{line}");
    }
}

#[test]
fn a_session_token_is_sent_and_signed() {
    let signed = suite(b"GET /", b"", Some(b"token/of=a+session"));
    let head = text(&signed.head);
    assert!(
        head.contains("\r\nX-Amz-Security-Token: token/of=a+session\r\n"),
        "{head}"
    );
    assert!(
        head.contains("SignedHeaders=host;x-amz-date;x-amz-security-token,"),
        "{head}"
    );
}

/// The example of chunks: 65 KiB of the letter a, in a chunk of 64 KiB and one of 1 KiB.
#[test]
fn chunks_of_the_example_have_their_signatures() {
    let lines = "PUT /examplebucket/chunkObject.txt HTTP/1.1\nHost: s3.amazonaws.com\n\
                 x-amz-storage-class: REDUCED_REDUNDANCY\nContent-Length: 66560";
    let signed = s3(lines, &Payload::Chunks(66_560));
    let head = text(&signed.head);
    assert!(head.contains("\r\nContent-Length: 66824\r\n"), "{head}");
    let seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
    assert_eq!(signed.signature, seed, "{head}");
    let time = Time::of(S3_TIME);
    let scope = Scope::new(&time, b"us-east-1", b"s3").unwrap();
    let key = scope.key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
    let signer = Rc::new(ChunkSigner::new(key, (scope, time), signed.signature));
    let mut chunks = Chunks::new(&signer);
    let mut body = Vec::new();
    // However the body comes in pieces.
    for piece in vec![b'a'; 66_560].chunks(10_000) {
        chunks
            .push(piece)
            .iter()
            .for_each(|part| body.extend_from_slice(part));
    }
    chunks
        .finish()
        .iter()
        .for_each(|part| body.extend_from_slice(part));
    assert_eq!(body.len() as u64, chunks::length_of(66_560));
    let lines: Vec<String> = text(&body).split("\r\n").map(str::to_string).collect();
    assert_eq!(
        lines[0],
        "10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"
    );
    assert_eq!(
        lines[2],
        "400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"
    );
    assert_eq!(
        lines[4],
        "0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"
    );
}

#[test]
fn lengths_of_bodies_in_chunks_are_known_before() {
    let time = Time::of(S3_TIME);
    let scope = Scope::new(&time, b"r", b"s3").unwrap();
    for len in [0, 1, 8191, 65_535, 65_536, 65_537, 200_000] {
        let (key, scope) = (scope.key("x"), scope.clone());
        let signer = Rc::new(ChunkSigner::new(key, (scope, time.clone()), String::new()));
        let mut chunks = Chunks::new(&signer);
        let parts = [chunks.push(&vec![7; len]), chunks.finish()].concat();
        let sent: usize = parts.iter().map(Bytes::len).sum();
        assert_eq!(sent as u64, chunks::length_of(len as u64), "{len}");
    }
}

#[test]
fn objects_are_asked_for_in_the_spelling_that_is_signed() {
    for (target, sent) in [
        ("/a%20b", "/a%20b"),
        ("/a+b/%2B", "/a%2Bb/%2B"),
        ("/%7euser/@x:y", "/~user/%40x%3Ay"),
        ("/a//b/../c", "/a//b/../c"),
        ("/100%", "/100%25"),
        ("/?b=2&a=1+2&acl&c=%7E", "/?b=2&a=1%202&acl&c=~"),
    ] {
        let head = s3(&format!("GET {target} HTTP/1.1\nHost: x"), &told(b"")).head;
        let first = text(&head).lines().next().unwrap().to_string();
        assert_eq!(first, format!("GET {sent} HTTP/1.1"));
    }
}

#[test]
fn other_services_get_their_path_as_it_is() {
    let head = suite(b"GET /a%20b/../%7e", b"", None).head;
    assert!(
        head.starts_with(b"GET /a%20b/../%7e HTTP/1.1\r\n"),
        "{}",
        text(&head)
    );
    assert!(!text(&head).contains("Sha256"), "{}", text(&head));
}

#[test]
fn parameters_are_read_and_mistakes_do_not_quote_values() {
    for (line, expected) in [
        ("proxy_aws_sign region=r access_key=a secret_key=b;", None),
        (
            "proxy_aws_sign region=$r service=es credentials=f profile=p payload=signed;",
            None,
        ),
        (
            "proxy_aws_sign credentials=f;",
            Some("\"region=\" is missing"),
        ),
        (
            "proxy_aws_sign region=r access_key=a;",
            Some("\"secret_key=\" is needed"),
        ),
        (
            "proxy_aws_sign region=r;",
            Some("\"secret_key=\" is needed"),
        ),
        (
            "proxy_aws_sign region=r credentials=f secret_key=HUSH;",
            Some("exclude each other"),
        ),
        (
            "proxy_aws_sign region=r secretkey=HUSH;",
            Some("invalid parameter \"secretkey\""),
        ),
        (
            "proxy_aws_sign region=r payload=HUSH;",
            Some("\"payload=\" must be"),
        ),
    ] {
        let read = read(line);
        match expected {
            None => assert!(read.is_ok(), "{line}"),
            Some(part) => {
                let error = format!("{:?}", read.unwrap_err());
                assert!(
                    error.contains(&part.replace('"', "\\\"")),
                    "{line}: {error}"
                );
                assert!(!error.contains("HUSH"), "{error}");
            }
        }
    }
}

#[test]
fn keys_are_shown_to_nobody() {
    let line = "proxy_aws_sign region=r access_key=HUSH secret_key=HUSH session_token=HUSH;";
    let sign = read(line).unwrap();
    let shown = format!("{sign:?}");
    assert!(!shown.contains("HUSH"), "{shown}");
    let keys = Credentials::new(b"HUSH", b"HUSH", Some(b"HUSH")).unwrap();
    assert_eq!(format!("{keys:?}"), "Credentials");
    let error = Credentials::new(b"a", b"HUSH\n", None).unwrap_err();
    assert!(!error.contains("HUSH"), "{error}");
}

#[test]
fn files_of_keys_have_profiles() {
    let file = "# keys\n[other]\naws_access_key_id=no\n[ default ]\n  aws_access_key_id = id\n\
                aws_secret_access_key=a=b\naws_session_token = t\n[next]\naws_access_key_id=no\n";
    let keys = Credentials::parse(file, "default").unwrap();
    assert_eq!((keys.access_key(), keys.session_token()), ("id", Some("t")));
    let missing = Credentials::parse(file, "other").unwrap_err();
    assert_eq!(
        missing,
        "the profile \"other\" has no \"aws_secret_access_key\""
    );
}
