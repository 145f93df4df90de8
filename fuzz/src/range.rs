//! Range and Content-Range: ranges lie within the body, and what is written is read.

use millpond_semantics::range::{
    RangeSet, content_range, first_range, parse_content_range, parse_range,
    parse_unsatisfied_range, unsatisfied_range,
};

/// Reads a value as each of the fields, for a body whose length the first bytes give.
pub fn run(data: &[u8]) {
    let Some((prefix, value)) = data.split_first_chunk::<9>() else {
        return;
    };
    let [max, len @ ..] = *prefix;
    let len = u64::from_le_bytes(len) >> (max % 64);
    let max = u32::from(max % 5);
    let set = parse_range(value, len, max);
    if let RangeSet::Ranges(ranges) = &set {
        assert!(!ranges.is_empty() && ranges.len() <= max as usize);
        for range in ranges.iter() {
            assert!(range.start < range.end_exclusive && range.end_exclusive <= len);
            assert_eq!(range.len(), range.end_exclusive - range.start);
            check_content_range(range.start, range.end_exclusive, len);
        }
        // It refuses more: all ranges must be well-formed, also those that this body does not have.
        if let Some(first) = first_range(value).map(|spec| spec.resolve(len)) {
            assert!(first.is_empty() || ranges.first() == Some(&first));
        }
    }
    if let Some(range) = parse_content_range(value) {
        assert!(range.start < range.end && range.len.is_none_or(|len| range.end <= len));
    }
    if let Some(len) = parse_unsatisfied_range(value) {
        assert_eq!(
            parse_unsatisfied_range(unsatisfied_range(len).as_bytes()),
            Some(len)
        );
    }
}

fn check_content_range(start: u64, end: u64, len: u64) {
    let text = content_range(start, end, len);
    let read = parse_content_range(text.as_bytes()).map(|read| (read.start, read.end, read.len));
    // Lengths beyond a signed number are no file's.
    if len <= i64::MAX as u64 {
        assert_eq!(read, Some((start, end, Some(len))));
    }
}
