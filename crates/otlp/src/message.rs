//! Messages to a collector, and its answers: those of traces, of which the others differ in the
//! names alone.
//!
//! ```text
//! ExportTraceServiceRequest { 1: ResourceSpans {
//!     1: Resource { 1: attributes … },
//!     2: ScopeSpans { 1: Scope { 1: name, 2: version }, 2: span, 2: span … },
//! } }
//! ExportTraceServiceResponse { 1: ExportTracePartialSuccess { 1: rejected, 2: why } }
//! google.rpc.Status { 1: code, 2: why }
//! ```

use bytes::Bytes;

use crate::attribute::{self, Value};
use crate::protobuf::{self, Reader, put_head, put_message, put_text};

/// The name by which a collector knows us.
pub(crate) const AGENT: &str = concat!("millpond/", env!("CARGO_PKG_VERSION"));
/// The name of what makes the records.
const SCOPE: &[u8] = b"millpond";

/// The part of a message that is the same for all batches.
#[derive(Debug)]
pub(crate) struct Head {
    resource: Vec<u8>,
    scope: Vec<u8>,
}

impl Head {
    /// The head for a resource with these attributes.
    pub(crate) fn new(attributes: &[(String, String)]) -> Self {
        let mut resource = Vec::new();
        put_message(&mut resource, 1, |out| {
            for (key, value) in attributes {
                attribute::put(out, 1, (key, Value::Text(value.as_bytes())));
            }
        });
        let mut scope = Vec::new();
        put_message(&mut scope, 1, |out| {
            put_text(out, 1, SCOPE);
            put_text(out, 2, env!("CARGO_PKG_VERSION").as_bytes());
        });
        Head { resource, scope }
    }

    /// The message with these records, behind so many bytes that are left free.
    pub(crate) fn message(&self, records: &[Bytes], free: usize) -> Vec<u8> {
        let lens = records
            .iter()
            .map(|record| protobuf::head_len(2, record.len()) + record.len());
        let scope_len = self.scope.len() + lens.sum::<usize>();
        let group_len = self.resource.len() + protobuf::head_len(2, scope_len) + scope_len;
        let mut out = Vec::with_capacity(free + protobuf::head_len(1, group_len) + group_len);
        out.resize(free, 0);
        put_head(&mut out, 1, group_len);
        out.extend_from_slice(&self.resource);
        put_head(&mut out, 2, scope_len);
        out.extend_from_slice(&self.scope);
        for record in records {
            protobuf::put_bytes(&mut out, 2, record);
        }
        out
    }
}

/// The count of what a collector has not taken, and why, from its answer.
pub(crate) fn rejected(answer: &[u8]) -> (u64, String) {
    let partial = Reader(answer).find_map(|field| match field {
        (1, protobuf::Value::Bytes(message)) => Some(message),
        _ => None,
    });
    count_and_text(partial.unwrap_or_default())
}

/// The text of an error in an answer over HTTP.
pub(crate) fn status_text(answer: &[u8]) -> String {
    count_and_text(answer).1
}

fn count_and_text(message: &[u8]) -> (u64, String) {
    let mut found = (0, String::new());
    for field in Reader(message) {
        match field {
            // A negative number is none that could be taken.
            (1, protobuf::Value::Number(count)) if i64::try_from(count).is_ok() => found.0 = count,
            (2, protobuf::Value::Bytes(text)) => {
                found.1 = String::from_utf8_lossy(text).into_owned();
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_success_tells_what_is_missing() {
        let answer = b"\x0a\x06\x08\x03\x12\x02no";
        assert_eq!(rejected(answer), (3, "no".to_owned()));
        assert_eq!(rejected(b""), (0, String::new()));
        assert_eq!(rejected(b"\x0a\x00"), (0, String::new()));
        assert_eq!(rejected(b"\x0a\xff"), (0, String::new()));
        assert_eq!(status_text(b"\x08\x03\x12\x02no"), "no");
    }

    #[test]
    fn room_is_left_and_lengths_are_right() {
        let head = Head::new(&[("service.name".to_owned(), "a".to_owned())]);
        let spans = [Bytes::from(vec![7; 200]), Bytes::from_static(b"x")];
        let message = head.message(&spans, 5);
        assert_eq!(message[..5], [0; 5]);
        let of = |bytes, wanted| -> Vec<&[u8]> {
            let fields = Reader(bytes).filter(|(number, _)| *number == wanted);
            let texts = fields.filter_map(|(_, value)| match value {
                protobuf::Value::Bytes(bytes) => Some(bytes),
                protobuf::Value::Number(_) => None,
            });
            texts.collect()
        };
        let groups = of(&message[5..], 1);
        let scopes = of(groups[0], 2);
        assert_eq!((groups.len(), scopes.len()), (1, 1));
        assert_eq!(of(scopes[0], 2), [&spans[0][..], &spans[1][..]]);
    }
}
