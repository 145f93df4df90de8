//! The head of a request with its signature.
//!
//! ```text
//! method \n path \n query \n name:value \n … \n\n names \n hash of the body   = canonical request
//! Authorization: AWS4-HMAC-SHA256 Credential=key/scope, SignedHeaders=names, Signature=digits
//! ```
//!
//! Signed are Host, all `X-Amz-…` fields, and those that an origin or something between must not
//! change: Range, the type, the coding and the sum of a body. Others may be changed on the way.

use bytes::{Bytes, BytesMut};
use millpond_semantics::hex::Hex;

use super::Signed;
use super::canonical::{self, arguments};
use super::chunks;
use super::credentials::Credentials;
use super::signature::{ALGORITHM, Scope, Time, digits, signature};
use millpond_wire::http1::encode;

/// The hash of a body that is not signed.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Form in which the body is part of what is signed.
pub(super) enum Payload {
    /// By its hash, in a field where the service wants it told.
    Hash {
        /// The hash.
        hash: [u8; 32],
        /// True where it is told in a field, and paths are those of objects.
        is_told: bool,
    },
    /// Not at all; of S3 only.
    Unsigned,
    /// In chunks, of a body of that length; of S3 only.
    Chunks(u64),
}

impl Payload {
    fn hash(&self) -> String {
        match self {
            Payload::Hash { hash, .. } => Hex(hash).to_string(),
            Payload::Unsigned => UNSIGNED.to_string(),
            Payload::Chunks(_) => chunks::STREAMING.to_string(),
        }
    }

    fn is_for_s3(&self) -> bool {
        !matches!(self, Payload::Hash { is_told: false, .. })
    }
}

/// True for fields that speak to AWS.
pub(super) fn is_of_aws(name: &[u8]) -> bool {
    name.get(..6)
        .is_some_and(|begin| begin.eq_ignore_ascii_case(b"x-amz-"))
}

/// A line of the head.
type Line = (Vec<u8>, Vec<u8>);

/// A head, taken apart.
struct Parts<'a> {
    method: &'a [u8],
    path: &'a [u8],
    query: Option<&'a [u8]>,
    version: &'a [u8],
    lines: Vec<Line>,
}

/// Takes a head apart, as our own writer writes it.
fn parts(head: &[u8]) -> Option<Parts<'_>> {
    let mut lines = Lines(head);
    let first = lines.next()?;
    let (method, rest) = split(first, b" ")?;
    let (target, version) = rest.split_at_checked(memchr::memrchr(b' ', rest)?)?;
    let (path, query) = match split(target, b"?") {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let lines = lines.filter_map(|line| split(line, b": "));
    Some(Parts {
        method,
        path,
        query,
        version: version.get(1..)?,
        lines: lines
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect(),
    })
}

struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (line, rest) = split(self.0, b"\r\n")?;
        self.0 = rest;
        // The empty line ends the head.
        (!line.is_empty()).then_some(line)
    }
}

fn split<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(text, mark)?;
    let (before, rest) = text.split_at(at);
    Some((before, rest.get(mark.len()..)?))
}

/// Signs a head.
pub(super) fn sign(
    head: &Bytes,
    payload: &Payload,
    (credentials, scope, time): (&Credentials, &Scope, &Time),
) -> Signed {
    let Some(mut parts) = parts(head) else {
        // A head of our own making is whole.
        return Signed {
            head: head.clone(),
            signature: String::new(),
        };
    };
    add_fields(&mut parts.lines, payload, (credentials, time));
    let arguments = arguments(parts.query.unwrap_or_default());
    let (path, signed_path) = if payload.is_for_s3() {
        let path = canonical::object_path(parts.path);
        (path.clone(), path)
    } else {
        (parts.path.to_vec(), canonical::service_path(parts.path))
    };
    let fields = SignedFields::of(&parts.lines, payload);
    let request = [
        parts.method,
        &signed_path,
        &canonical::signed_query(&arguments),
        &fields.lines,
        &fields.names,
        payload.hash().as_bytes(),
    ]
    .join(&b'\n');
    let names = String::from_utf8_lossy(&fields.names);
    let key = credentials.key(scope);
    let signature = signature(&key, (ALGORITHM, time, scope), &digits(&request));
    let authorization = format!(
        "{ALGORITHM} Credential={}/{}, SignedHeaders={names}, Signature={signature}",
        credentials.access_key(),
        scope.text()
    );
    let mut out = BytesMut::with_capacity(head.len() + 512);
    out.extend_from_slice(parts.method);
    out.extend_from_slice(b" ");
    out.extend_from_slice(&path);
    if parts.query.is_some() {
        out.extend_from_slice(b"?");
        out.extend_from_slice(&canonical::query(&arguments));
    }
    out.extend_from_slice(b" ");
    out.extend_from_slice(parts.version);
    out.extend_from_slice(b"\r\n");
    for (name, value) in &parts.lines {
        encode::write_field(&mut out, name, value);
    }
    encode::write_field(&mut out, b"Authorization", authorization.as_bytes());
    encode::end_head(&mut out);
    Signed {
        head: out.freeze(),
        signature,
    }
}

/// Replaces the fields that are the signature's own.
fn add_fields(
    lines: &mut Vec<Line>,
    payload: &Payload,
    (credentials, time): (&Credentials, &Time),
) {
    let mut coding = None;
    lines.retain(|(name, value)| {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let is_replaced = match payload {
            Payload::Chunks(_) if is("content-encoding") => {
                coding = Some(value.clone());
                true
            }
            Payload::Chunks(_) => is("content-length") || is("x-amz-decoded-content-length"),
            _ => false,
        };
        let is_ours = is("authorization")
            || is("x-amz-date")
            || is("x-amz-content-sha256")
            || is("x-amz-security-token");
        !is_replaced && !is_ours
    });
    let mut add = |name: &str, value: &[u8]| {
        lines.push((name.as_bytes().to_vec(), value.to_vec()));
    };
    if let Payload::Chunks(length) = payload {
        let coding = coding.map_or(b"aws-chunked".to_vec(), |coding| {
            [b"aws-chunked,", &coding[..]].concat()
        });
        add("Content-Encoding", &coding);
        add(
            "Content-Length",
            chunks::length_of(*length).to_string().as_bytes(),
        );
        add(
            "X-Amz-Decoded-Content-Length",
            length.to_string().as_bytes(),
        );
    }
    add("X-Amz-Date", time.as_str().as_bytes());
    if payload.is_for_s3() {
        add("X-Amz-Content-Sha256", payload.hash().as_bytes());
    }
    if let Some(token) = credentials.session_token() {
        add("X-Amz-Security-Token", token.as_bytes());
    }
}

/// The fields that are signed.
struct SignedFields {
    /// Name and value of each, in a line of its own.
    lines: Vec<u8>,
    /// The names, with semicolons between them.
    names: Vec<u8>,
}

impl SignedFields {
    fn of(lines: &[Line], payload: &Payload) -> SignedFields {
        let mut signed: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (name, value) in lines {
            let name = name.to_ascii_lowercase();
            if !is_signed(&name, payload) {
                continue;
            }
            let value = canonical::value(value);
            match signed.iter_mut().find(|(other, _)| *other == name) {
                Some((_, values)) => *values = [&values[..], &value].join(&b','),
                None => signed.push((name, value)),
            }
        }
        signed.sort();
        let names: Vec<&[u8]> = signed.iter().map(|(name, _)| &name[..]).collect();
        let text = |(name, value): &Line| [&name[..], b":", value, b"\n"].concat();
        SignedFields {
            names: names.join(&b';'),
            lines: signed.iter().flat_map(text).collect(),
        }
    }
}

/// True for a field, by its name in small letters, that is signed.
fn is_signed(name: &[u8], payload: &Payload) -> bool {
    const NAMES: [&[u8]; 6] = [
        b"content-encoding",
        b"content-md5",
        b"content-type",
        b"date",
        b"host",
        b"range",
    ];
    let is_length = matches!(payload, Payload::Chunks(_)) && name == b"content-length";
    is_of_aws(name) || NAMES.contains(&name) || is_length
}
