//! Stored heads: whatever is decoded is encoded to the same bytes.

use bytes::Bytes;
use millpond_cache::head::{FieldsWriter, StoredHead};

/// Decodes stored bytes, and a head whose fields the input gives.
pub fn run(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    if let Some(head) = StoredHead::decode(&bytes) {
        // The pseudo field is counted, and no field of the answer.
        let of_none = head.field_count() - head.fields().count();
        assert!(of_none <= 1, "{of_none}");
        for (name, value) in head.fields() {
            assert!(head.share(name).len() + head.share(value).len() <= data.len());
            assert!(head.field(name).is_some());
        }
        // The flags are not kept; everything else is.
        let again = head.encode();
        assert!(again.len() == data.len() && again[2..] == data[2..]);
    }
    let mut fields = FieldsWriter::default();
    for line in data.split(|byte| *byte == b'\n') {
        let (name, value) = line.split_at(line.len() / 3);
        fields.push(name, value);
    }
    let mut head = StoredHead::new(200, fields);
    head.key = bytes.slice(..data.len() / 2);
    head.vary = bytes.slice(data.len() / 2..);
    head.variant = bytes.slice(..data.len() / 3);
    assert_eq!(StoredHead::decode(&head.encode()), Some(head));
}
