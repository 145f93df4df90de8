//! The list of live segments, as it stands twice in the superblock.
//!
//! Of the two copies the one with the higher serial counts; the other is overwritten next, so that
//! a write that is torn leaves one of them as it was.

use super::{Fields, is_sealed, seal};

const LIVE_MAGIC: u64 = u64::from_le_bytes(*b"mp-live\0");
/// Offsets of the copies: each in sectors of its own.
const LIVE_AT: [usize; 2] = [1024, 2560];
/// Bytes of a copy.
const LIVE: usize = 1536;
/// Bytes before the runs.
const LIVE_HEADER: usize = 8 + 8 + 16 + 4 + 4 + 4 + 4;
/// Bytes of a run.
const RUN: usize = 8;
/// The most runs that a copy has; numbers follow one another, so there is one as a rule.
const MAX_RUNS: usize = (LIVE - LIVE_HEADER - 8) / RUN;
/// The most files of segments that have left; one that cannot be removed keeps others from leaving.
const MAX_GONE: usize = 16;
/// Set once the zone has a journal.
const HAS_JOURNAL: u32 = 1;

const _: () = assert!(LIVE_AT[0] + LIVE == LIVE_AT[1]);
const _: () = assert!(LIVE_AT[1] + LIVE <= super::SUPERBLOCK as usize);

/// List of the segments that there must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    /// Grows with each list.
    pub(crate) serial: u64,
    /// Lowest number that counts: segments with lower ones were let go.
    pub(crate) first: u32,
    /// True if there must be a journal.
    pub(crate) has_journal: bool,
    /// First numbers of segments that follow one another, and how many they are; ascending.
    pub(crate) runs: Vec<(u32, u32)>,
    /// Numbers of segments that have left, and whose files the disk has not let go: they count for
    /// nothing. On the disk they are runs of no segment.
    pub(crate) gone: Vec<u32>,
}

impl Live {
    /// A list of ascending numbers. Of too many runs the newest are in it.
    pub(crate) fn of(numbers: impl Iterator<Item = u32>) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut first = None;
        for number in numbers {
            first.get_or_insert(number);
            match runs.last_mut() {
                Some((start, count)) if start.checked_add(*count) == Some(number) => *count += 1,
                _ => runs.push((number, 1)),
            }
        }
        runs.drain(..runs.len().saturating_sub(MAX_RUNS - MAX_GONE));
        Self {
            first: first.unwrap_or(0),
            runs,
            ..Self::default()
        }
    }

    /// True if a segment must be there.
    pub(crate) fn has(&self, number: u32) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|(start, count)| number >= *start && number - *start < *count)
    }

    /// The segments that must be there, the newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = u32> {
        let runs = self.runs.iter().rev();
        runs.flat_map(|(start, count)| (*start..start.saturating_add(*count)).rev())
    }

    /// Writes the list into the superblock of a zone.
    pub(super) fn encode(&self, uuid: &[u8; 16], file: &mut [u8]) {
        let mut block = Vec::with_capacity(LIVE);
        block.extend_from_slice(&LIVE_MAGIC.to_le_bytes());
        block.extend_from_slice(&self.serial.to_le_bytes());
        block.extend_from_slice(uuid);
        let flags = if self.has_journal { HAS_JOURNAL } else { 0 };
        let gone = self.gone.iter().rev().take(MAX_GONE).map(|id| (*id, 0));
        let runs: Vec<(u32, u32)> = self.runs.iter().copied().chain(gone).collect();
        for field in [self.first, runs.len() as u32, flags, 0] {
            block.extend_from_slice(&field.to_le_bytes());
        }
        for (start, count) in &runs {
            block.extend_from_slice(&start.to_le_bytes());
            block.extend_from_slice(&count.to_le_bytes());
        }
        seal(&mut block, 0);
        // The copies take turns.
        let at = LIVE_AT[(self.serial % 2) as usize];
        let place = file.get_mut(at..at + block.len());
        if let Some(place) = place {
            place.copy_from_slice(&block);
        }
    }

    /// Both lists of a superblock that are valid, the newest first.
    pub(super) fn decode_both(uuid: &[u8; 16], file: &[u8]) -> Vec<Self> {
        let copies = LIVE_AT.iter();
        let mut found: Vec<Self> = copies
            .filter_map(|at| Self::decode(uuid, file.get(*at..*at + LIVE)?))
            .collect();
        found.sort_by_key(|live| std::cmp::Reverse(live.serial));
        found
    }

    fn decode(uuid: &[u8; 16], copy: &[u8]) -> Option<Self> {
        let mut fields = Fields(copy);
        if fields.u64()? != LIVE_MAGIC {
            return None;
        }
        let serial = fields.u64()?;
        let is_own = fields.bytes::<16>()? == *uuid;
        let (first, count, flags) = (fields.u32()?, fields.u32()? as usize, fields.u32()?);
        fields.u32()?;
        let end = LIVE_HEADER + count.min(MAX_RUNS) * RUN + 8;
        if !is_own || count > MAX_RUNS || !is_sealed(copy.get(..end)?, 0) {
            return None;
        }
        let runs = (0..count).map(|_| Some((fields.u32()?, fields.u32()?)));
        let all: Vec<(u32, u32)> = runs.collect::<Option<_>>()?;
        let (gone, runs): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, count)| *count == 0);
        Some(Self {
            serial,
            first,
            has_journal: flags & HAS_JOURNAL != 0,
            runs,
            gone: gone.into_iter().rev().map(|(start, _)| start).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [7; 16];

    #[test]
    fn list_says_which_numbers_there_are_and_the_newer_copy_counts() {
        let mut file = vec![0; super::super::SUPERBLOCK as usize];
        assert_eq!(Live::decode_both(&UUID, &file), []);
        let numbers = [3, 4, 5, 9, u32::MAX - 1];
        let older = Live {
            serial: 6,
            ..Live::of([3, 4].into_iter())
        };
        let newer = Live {
            serial: 7,
            has_journal: true,
            ..Live::of(numbers.into_iter())
        };
        older.encode(&UUID, &mut file);
        newer.encode(&UUID, &mut file);
        let both = Live::decode_both(&UUID, &file);
        assert_eq!(both, [newer.clone(), older.clone()]);
        assert_eq!(Live::decode_both(&[8; 16], &file), []);
        assert!(newer.newest_first().eq(numbers.into_iter().rev()));
        for number in [0, 2, 3, 4, 5, 6, 8, 9, 10, u32::MAX - 1, u32::MAX] {
            assert_eq!(newer.has(number), numbers.contains(&number), "{number}");
        }
        // A copy of which any byte is another one is none; the other one counts.
        for byte in 0..LIVE_HEADER + newer.runs.len() * RUN + 8 {
            let mut torn = file.clone();
            torn[LIVE_AT[1] + byte] ^= 1;
            assert_eq!(
                Live::decode_both(&UUID, &torn),
                std::slice::from_ref(&older),
                "{byte}"
            );
        }
    }

    #[test]
    fn of_too_many_runs_the_newest_are_listed() {
        let numbers = (0..1000).map(|number| 1 + number * 2);
        let mut live = Live::of(numbers);
        assert_eq!((live.first, live.runs.len()), (1, MAX_RUNS - MAX_GONE));
        assert!(live.has(1999) && !live.has(1));
        live.gone = (2..2 + MAX_GONE as u32).collect();
        let mut file = vec![0; super::super::SUPERBLOCK as usize];
        live.encode(&UUID, &mut file);
        assert_eq!(Live::decode_both(&UUID, &file), [live]);
    }
}
