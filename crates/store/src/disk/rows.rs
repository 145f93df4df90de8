//! The summary rows of a segment whose summary is not on the disk yet, encoded.
//!
//! They stand in pieces of at most [`PIECE`] bytes. A piece that is full is never moved, so a
//! record that adds its rows costs no more in a segment that has a million of them, and a copy
//! shares the pieces.
//!
//! 1. Rows stand in the order of their records' offsets.
//! 2. No piece is empty, and no row is in two pieces.

use std::sync::Arc;

use super::format::Row;

/// Bytes of a piece: 1,638 rows, which are copied in some microseconds where that must be.
const PIECE: usize = 64 << 10;

/// Encoded rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct EncodedRows {
    pieces: Vec<Arc<Vec<u8>>>,
    len: usize,
}

impl EncodedRows {
    /// Bytes of all rows.
    pub(crate) fn len(&self) -> u32 {
        // They have room in a segment, whose length is a `u32`.
        self.len as u32
    }

    /// False if there is a row.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a row, whose record stands behind those of all others.
    pub(crate) fn push(&mut self, row: &Row) {
        let more = row.encoded_len() as usize;
        self.len += more;
        let last = self.pieces.last_mut();
        if let Some(last) = last.filter(|piece| piece.len() + more <= PIECE) {
            row.encode(Arc::make_mut(last));
            return;
        }
        let mut piece = Vec::new();
        row.encode(&mut piece);
        self.pieces.push(Arc::new(piece));
    }

    /// Makes the first row of the record at `offset` one of a tombstone. True if there is one.
    pub(crate) fn void(&mut self, offset: u32) -> bool {
        let is_before = |piece: &Arc<Vec<u8>>| Row::first_offset(piece) < Some(offset);
        // INVARIANT 1: it is the last piece that begins before the offset, or the next.
        let behind = self.pieces.partition_point(is_before);
        let mut may_have = self
            .pieces
            .iter_mut()
            .skip(behind.saturating_sub(1))
            .take(2);
        may_have.any(|piece| Row::void(Arc::make_mut(piece).as_mut_slice(), offset))
    }

    /// All rows; `None` if one is of an unknown kind.
    pub(crate) fn decode(&self) -> Option<Vec<Row>> {
        let mut rows = Vec::new();
        for piece in &self.pieces {
            rows.append(&mut Row::decode_all(piece)?);
        }
        Some(rows)
    }

    /// All rows as they stand in a summary.
    pub(crate) fn concat(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        self.pieces
            .iter()
            .for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::format::Kind;
    use crate::key::Key;
    use crate::site::Account;

    fn row(number: u32) -> Row {
        Row {
            kind: Kind::Entry,
            key: Key::of(&number.to_le_bytes()),
            offset: 32 * number,
            size: 32,
            body_len: 0,
            is_sliced: false,
            account: Account::default(),
            needs: vec![7; number as usize % 3],
        }
    }

    fn rows(count: u32) -> (EncodedRows, Vec<Row>) {
        let mut encoded = EncodedRows::default();
        let all: Vec<Row> = (1..=count).map(row).collect();
        all.iter().for_each(|row| encoded.push(row));
        (encoded, all)
    }

    #[test]
    fn rows_are_read_back_in_their_order() {
        let (encoded, all) = rows(5_000);
        assert!(encoded.pieces.len() > 2);
        assert!(encoded.pieces.iter().all(|piece| piece.len() <= PIECE));
        assert_eq!(encoded.decode().as_ref(), Some(&all));
        assert_eq!(Row::decode_all(&encoded.concat()), Some(all));
        assert_eq!(encoded.concat().len(), encoded.len() as usize);
    }

    #[test]
    fn every_row_can_be_voided_and_no_other_is() {
        let (encoded, all) = rows(4_000);
        for number in (0..all.len()).step_by(77) {
            let mut voided = encoded.clone();
            assert!(voided.void(all[number].offset));
            let mut expected = all.clone();
            expected[number].kind = Kind::Tombstone;
            assert_eq!(voided.decode(), Some(expected), "{number}");
        }
        assert_eq!(
            encoded.decode(),
            Some(all),
            "copies share what is not changed"
        );
        let mut encoded = encoded;
        assert!(!encoded.void(1) && !encoded.void(32 * 4_001));
    }

    #[test]
    fn a_copy_is_not_changed_by_what_is_added() {
        let (mut encoded, all) = rows(10);
        let copy = encoded.clone();
        encoded.push(&row(11));
        assert_eq!(copy.decode(), Some(all));
        assert_eq!(encoded.decode().map(|rows| rows.len()), Some(11));
    }
}
