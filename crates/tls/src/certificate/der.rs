//! A reader of DER: elements in the order in which they stand.
//!
//! Only what names, keys and validity of a certificate need: tags of one byte, definite lengths.
//! Contents mean nothing here.
//!
//! 1. No bytes make it panic, and each is read once.

use rustls::pki_types::SubjectPublicKeyInfoDer;

/// `SEQUENCE`.
pub(crate) const SEQUENCE: u8 = 0x30;
/// `SET`.
pub(crate) const SET: u8 = 0x31;
/// `OBJECT IDENTIFIER`.
pub(crate) const OBJECT: u8 = 0x06;
/// `BIT STRING`.
pub(crate) const BIT_STRING: u8 = 0x03;
/// The version of a certificate, which those of version 1 leave out.
const VERSION: u8 = 0xa0;

/// One element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    /// The byte of the tag.
    pub tag: u8,
    /// The content.
    pub body: &'a [u8],
    /// Tag, length and content.
    pub whole: &'a [u8],
}

/// Bytes with elements that were not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Reads the next element; `None` at the end, and where there is none.
    pub(crate) fn read(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        // A tag of several bytes stands in no part of a certificate that is read here.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (len, header) = length(rest)?;
        let end = header.checked_add(1)?.checked_add(len)?;
        let (whole, left) = self.0.split_at_checked(end)?;
        self.0 = left;
        Some(Element {
            tag,
            body: whole.get(header + 1..)?,
            whole,
        })
    }

    /// Reads the next element if it has this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<Element<'a>> {
        self.read().filter(|element| element.tag == tag)
    }
}

/// The length that the bytes begin with, and how many bytes tell it.
fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    let (&first, rest) = bytes.split_first()?;
    let count = usize::from(first & 0x7f);
    if first < 0x80 {
        return Some((count, 1));
    }
    if count == 0 || count > 4 {
        return None;
    }
    let len = rest
        .get(..count)?
        .iter()
        .fold(0, |len: usize, byte| len << 8 | usize::from(*byte));
    Some((len, count + 1))
}

/// The public key of a certificate, as it stands there (`SubjectPublicKeyInfo`).
pub(crate) fn public_key(certificate: &[u8]) -> Option<SubjectPublicKeyInfoDer<'_>> {
    let signed = Reader(certificate).expect(SEQUENCE)?;
    let mut fields = Reader(Reader(signed.body).expect(SEQUENCE)?.body);
    let mut element = fields.read()?;
    if element.tag == VERSION {
        element = fields.read()?;
    }
    // `element` is the serial number; algorithm, issuer, validity and subject come before the key.
    let _ = element;
    for _ in 0..4 {
        fields.expect(SEQUENCE)?;
    }
    let key = fields.expect(SEQUENCE)?;
    Some(SubjectPublicKeyInfoDer::from(key.whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_in_order() {
        let mut reader = Reader(&[0x06, 1, 9, 0x30, 0x81, 2, 7, 8, 0x05]);
        assert_eq!(reader.expect(OBJECT).unwrap().body, [9]);
        assert_eq!(reader.expect(SEQUENCE).unwrap().body, [7, 8]);
        assert!(reader.read().is_none());
    }

    #[test]
    fn lengths_beyond_the_bytes_are_no_elements() {
        for bytes in [
            &[0x30, 0x80, 0][..],
            &[0x30, 2, 0],
            &[0x30, 0x85, 1, 1, 1, 1, 1],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x1f, 1, 1],
            &[0x30],
            &[],
        ] {
            assert!(Reader(bytes).read().is_none(), "{bytes:02x?}");
        }
    }
}
