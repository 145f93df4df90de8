//! The tables of a track, and how each is cut.
//!
//! Samples and chunks count from 0 here; in the file chunks of `stsc` and samples of `stss` count
//! from 1.

use super::Fault;
use super::atom::u32_at;

/// A table with `N` numbers in a row.
pub(crate) type Rows<const N: usize> = Vec<[u32; N]>;

/// The rows behind the version, the flags and the count of a table; the first byte of the count
/// is at `count_at`.
///
/// # Errors
/// There are fewer rows than the count says.
pub(crate) fn rows<const N: usize>(
    data: &[u8],
    count_at: usize,
    name: &'static str,
) -> Result<Rows<N>, Fault> {
    let count = u32_at(data, count_at).ok_or(Fault::Small(name))?;
    let rows = data.get(count_at + 4..).unwrap_or_default();
    let chunks = rows.chunks_exact(4 * N);
    if chunks.len() < count as usize {
        return Err(Fault::Small(name));
    }
    let row = |bytes: &[u8]| std::array::from_fn(|at| u32_at(bytes, 4 * at).unwrap_or_default());
    Ok(chunks.take(count as usize).map(row).collect())
}

/// The place of a time among the times of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instant {
    /// The row.
    pub row: usize,
    /// Samples of the row before the time.
    pub rest: u64,
    /// Samples of all rows before the time's row.
    pub sample: u64,
}

/// Looks for a time in `stts`, whose rows are: how many samples, and how long each of them is. The
/// error is how many samples there are in all.
///
/// # Errors
/// The samples end before.
pub(crate) fn find_time(stts: &[[u32; 2]], mut time: u64) -> Result<Instant, u64> {
    let mut sample = 0;
    for (row, [count, duration]) in stts.iter().enumerate() {
        let (count, duration) = (u64::from(*count), u64::from(*duration));
        // Two numbers of 32 bits: it fits.
        let total = count * duration;
        if time < total {
            let rest = time.checked_div(duration).unwrap_or_default();
            return Ok(Instant {
                row,
                rest,
                sample: sample + rest,
            });
        }
        sample += count;
        time -= total;
    }
    Err(sample)
}

/// Samples that a part begins earlier, to begin with a whole picture; `stss` names these.
///
/// # Errors
/// It names a picture 0.
pub(crate) fn before_key_frame(stss: &[[u32; 1]], sample: u64) -> Result<u64, Fault> {
    let mut before = 0;
    for [sync] in stss {
        if *sync == 0 {
            return Err(Fault::Invalid("sync sample is zero"));
        }
        match (sample + 1).checked_sub(u64::from(*sync)) {
            Some(distance) => before = distance,
            None => break,
        }
    }
    Ok(before)
}

/// Leaves of `stss` what is between two samples, as counted from the first.
pub(crate) fn crop_syncs(stss: &mut Rows<1>, start: u64, end: Option<u64>) {
    let place = |stss: &Rows<1>, sample: u64| {
        let found = stss.iter().position(|[sync]| u64::from(*sync) > sample);
        found.unwrap_or(stss.len())
    };
    stss.drain(..place(stss, start));
    if let Some(end) = end {
        stss.truncate(place(stss, end));
    }
    for [sync] in stss {
        // As many bits as the table has.
        *sync = sync.wrapping_sub(start as u32);
    }
}

/// Leaves of `ctts` what is between two samples; its rows begin with a count of samples.
pub(crate) fn crop_offsets(ctts: &mut Rows<2>, start: u64, end: Option<u64>) {
    match find_sample(ctts, start) {
        Some((row, rest)) => {
            ctts.drain(..row);
            if let Some([count, _]) = ctts.first_mut() {
                *count -= rest;
            }
        }
        None => ctts.clear(),
    }
    let length = end.map(|end| end.saturating_sub(start));
    if let Some((row, rest)) = length.and_then(|length| find_sample(ctts, length)) {
        ctts.truncate(row + 1);
        if let Some([count, _]) = ctts.last_mut() {
            *count = rest;
        }
    }
}

/// The row that has a sample, and how many samples of the row come before it.
fn find_sample(rows: &[[u32; 2]], mut sample: u64) -> Option<(usize, u32)> {
    for (row, [count, _]) in rows.iter().enumerate() {
        if sample < u64::from(*count) {
            return Some((row, sample as u32));
        }
        sample -= u64::from(*count);
    }
    None
}

/// The place of a sample among the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InChunks {
    row: usize,
    /// The first chunk of the row, from 1.
    chunk: u64,
    /// Samples in each chunk of the row.
    samples: u64,
    /// The first chunk of the next row.
    next_chunk: u64,
    /// The chunk with the sample, from 0.
    target: u64,
    /// Samples of that chunk before the wanted one.
    before: u64,
    /// Samples from the first chunk of the row to the wanted one.
    in_row: u64,
    /// Samples in the last chunk before the row.
    previous: u64,
}

/// The first chunk of a part and the one behind the last, with the samples left out of the first
/// and sent of the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkEdges {
    /// The first chunk, from 0.
    pub start: u64,
    /// Samples of the first chunk that are left out.
    pub start_samples: u64,
    /// The chunk behind the last.
    pub end: u64,
    /// Samples of the last chunk that are sent.
    pub end_samples: u64,
}

/// A table of chunks while it is cut. Rows: first chunk (from 1), samples in each, description.
#[derive(Debug)]
pub(crate) struct Chunks<'a> {
    rows: &'a mut Rows<3>,
    /// The count of chunks.
    count: u64,
    /// The rest of a chunk that was cut, before the rows.
    first: Option<[u32; 3]>,
    edges: ChunkEdges,
}

impl<'a> Chunks<'a> {
    /// Cuts `stsc`, of so many chunks, from one sample to another or the end.
    ///
    /// # Errors
    /// The chunks end before, or cannot be.
    pub(crate) fn crop(
        rows: &'a mut Rows<3>,
        count: u32,
        (start, end): (u64, Option<u64>),
    ) -> Result<ChunkEdges, Fault> {
        let mut chunks = Chunks {
            rows,
            count: u64::from(count),
            first: None,
            edges: ChunkEdges::default(),
        };
        chunks.crop_start(start)?;
        let last = match end {
            Some(end) => chunks.crop_end(end.saturating_sub(start))?,
            None => None,
        };
        let start_chunk = chunks.edges.start as u32;
        for [chunk, ..] in chunks.rows.iter_mut() {
            *chunk = chunk.wrapping_sub(start_chunk);
        }
        if let Some(first) = chunks.first {
            chunks.rows.insert(0, first);
        }
        chunks.rows.extend(last);
        Ok(chunks.edges)
    }

    fn crop_start(&mut self, start: u64) -> Result<(), Fault> {
        let found = self.find("start", start, 0)?;
        self.rows.drain(..found.row);
        self.edges.start = found.target;
        self.edges.start_samples = found.before;
        let Some([chunk, samples, id]) = self.rows.first_mut() else {
            return Ok(());
        };
        *chunk = (found.target + 1) as u32;
        let left = (found.samples - found.before) as u32;
        if found.before > 0 && found.next_chunk.saturating_sub(found.target) == 2 {
            *samples = left;
        } else if found.before > 0 {
            self.first = Some([1, left, *id]);
            *chunk = (found.target + 2) as u32;
        }
        Ok(())
    }

    /// Cuts behind so many samples; a row that comes behind the others.
    fn crop_end(&mut self, mut length: u64) -> Result<Option<[u32; 3]>, Fault> {
        let mut in_first = 0;
        if let Some([_, samples, _]) = &mut self.first {
            in_first = u64::from(*samples).min(length);
            *samples = in_first as u32;
            length -= in_first;
        }
        let found = self.find("end", length, in_first)?;
        let id = self.rows.get(found.row).map_or(0, |[.., id]| *id);
        match found.in_row {
            0 => self.rows.truncate(found.row),
            _ => self.rows.truncate(found.row + 1),
        }
        (self.edges.end, self.edges.end_samples) = match (found.before, found.in_row) {
            (0, 0) => (found.target, found.previous),
            (0, _) => (found.target, found.samples),
            (before, _) => (found.target + 1, before),
        };
        if found.before == 0 {
            return Ok(None);
        }
        let left = found.before as u32;
        if found.target + 1 == found.chunk {
            if let Some([_, samples, _]) = self.rows.last_mut() {
                *samples = left;
            }
            return Ok(None);
        }
        let chunk = self.edges.end.saturating_sub(self.edges.start);
        Ok(Some([chunk as u32, left, id]))
    }

    /// Looks for a sample; `previous` is how many the chunk before the rows has.
    fn find(
        &self,
        time: &'static str,
        mut sample: u64,
        mut previous: u64,
    ) -> Result<InChunks, Fault> {
        let behind = self.count + 1;
        for (row, [chunk, samples, _]) in self.rows.iter().enumerate() {
            let next = self.rows.get(row + 1);
            let next_chunk = next.map_or(behind, |[next, ..]| u64::from(*next));
            let (chunk, samples) = (u64::from(*chunk), u64::from(*samples));
            let chunks = next_chunk
                .checked_sub(chunk)
                .ok_or(Fault::Invalid("stsc chunks are unordered"))?;
            // Two numbers of 33 bits at most: it fits but for what no film has.
            let total = chunks.saturating_mul(samples);
            if sample < total || (next.is_none() && sample == total) {
                let no_samples = Fault::Invalid("number of samples is zero");
                let target = sample.checked_div(samples).ok_or(no_samples)?;
                let first = chunk
                    .checked_sub(1)
                    .ok_or(Fault::Invalid("chunk is zero"))?;
                return Ok(InChunks {
                    row,
                    chunk,
                    samples,
                    next_chunk,
                    target: first + target,
                    before: sample % samples,
                    in_row: sample,
                    previous,
                });
            }
            sample -= total;
            if chunks > 0 {
                previous = samples;
            }
        }
        Err(Fault::OutOf {
            time,
            table: "stsc chunks",
        })
    }
}

#[cfg(test)]
mod tests;
