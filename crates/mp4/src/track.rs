//! One track of a film: what is read of it, how it is cut, and what is written.
//!
//! ```text
//! trak ─┬─ tkhd
//!       ├─ edts ── elst            ours: what comes before the time is skipped
//!       └─ mdia ─┬─ mdhd
//!                ├─ hdlr
//!                └─ minf ─┬─ vmhd, smhd, dinf
//!                         └─ stbl ─┬─ stsd
//!                                  └─ stts, stss, ctts, stsc, stsz, stco or co64: the tables
//! ```
//!
//! Other atoms of a track are left out, as nginx does it.

use std::ops::Range;

use super::atom::{self, put, u32_at, u64_at, write, write_data};
use super::table::{self, ChunkEdges, Chunks, Rows};
use super::{Begin, Fault, Wish};

/// The reason why a track is not in the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The track ends before the part begins.
    Over,
    /// The track cannot be read.
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Fault(fault)
    }
}

/// The places of an atom's clock numbers, by the atom's version.
struct Clock {
    name: &'static str,
    /// Bytes of the data of version 0; version 1 has twelve more.
    len: usize,
    /// The offsets of the ticks a second, if the atom has them.
    timescale_at: Option<[usize; 2]>,
    duration_at: [usize; 2],
}

const MVHD: Clock = Clock {
    name: "mvhd",
    len: 100,
    timescale_at: Some([12, 20]),
    duration_at: [16, 24],
};
const TKHD: Clock = Clock {
    name: "tkhd",
    len: 84,
    timescale_at: None,
    duration_at: [20, 28],
};
const MDHD: Clock = Clock {
    name: "mdhd",
    len: 24,
    timescale_at: Some([12, 20]),
    duration_at: [16, 24],
};

/// An atom with a clock, whose duration will be another.
#[derive(Debug)]
pub(crate) struct Timed {
    data: Vec<u8>,
    /// The offset of the duration, and its size in bytes.
    place: (usize, usize),
    /// Ticks a second; 0 if it does not say.
    pub timescale: u32,
    /// Ticks.
    pub duration: u64,
}

impl Timed {
    /// Reads the head of a film.
    ///
    /// # Errors
    /// It is too short.
    pub(crate) fn movie(data: &[u8]) -> Result<Timed, Fault> {
        Timed::read(data, &MVHD)
    }

    fn read(data: &[u8], clock: &Clock) -> Result<Timed, Fault> {
        let is_long = data.first().is_some_and(|version| *version != 0);
        let of_version = |[short, long]: [usize; 2]| if is_long { long } else { short };
        let small = Fault::Small(clock.name);
        if data.len() < clock.len + of_version([0, 12]) {
            return Err(small);
        }
        let at = of_version(clock.duration_at);
        let duration = if is_long {
            u64_at(data, at)
        } else {
            u32_at(data, at).map(u64::from)
        };
        let timescale = clock.timescale_at.map(of_version);
        let timescale = timescale.map_or(Some(0), |at| u32_at(data, at));
        Ok(Timed {
            data: data.to_vec(),
            place: (at, of_version([4, 8])),
            timescale: timescale.ok_or(small)?,
            duration: duration.ok_or(small)?,
        })
    }

    /// The data with the duration as it is now.
    #[must_use]
    pub(crate) fn into_data(mut self) -> Vec<u8> {
        let (at, len) = self.place;
        let number = self.duration.to_be_bytes();
        // nginx: of a longer number the lowest bytes count.
        put(
            &mut self.data,
            at,
            number.get(8 - len..).unwrap_or_default(),
        );
        self.data
    }
}

/// Places of chunks, and how many bytes each takes.
#[derive(Debug)]
enum Offsets {
    Short(Vec<u64>),
    Long(Vec<u64>),
}

impl Offsets {
    fn list(&self) -> &[u64] {
        match self {
            Offsets::Short(list) | Offsets::Long(list) => list,
        }
    }
}

/// Sizes of samples.
#[derive(Debug)]
enum Sizes {
    /// One size for all samples, and the count of these.
    Uniform(u32, u32),
    Each(Rows<1>),
}

/// A table with the four bytes before its count.
#[derive(Debug)]
struct Table<T> {
    flags: [u8; 4],
    rows: T,
}

impl<T> Table<T> {
    fn new(data: &[u8], rows: T) -> Table<T> {
        let flags = data.first_chunk().copied().unwrap_or_default();
        Table { flags, rows }
    }
}

/// A track.
#[derive(Debug, Default)]
pub(crate) struct Track<'a> {
    tkhd: Option<Timed>,
    mdia: Option<()>,
    mdhd: Option<Timed>,
    hdlr: Option<&'a [u8]>,
    minf: Option<()>,
    vmhd: Option<&'a [u8]>,
    smhd: Option<&'a [u8]>,
    dinf: Option<&'a [u8]>,
    stbl: Option<()>,
    stsd: Option<&'a [u8]>,
    stts: Option<Table<Rows<2>>>,
    stss: Option<Table<Rows<1>>>,
    ctts: Option<Table<Rows<2>>>,
    stsc: Option<Table<Rows<3>>>,
    stsz: Option<Table<Sizes>>,
    offsets: Option<Table<Offsets>>,
    /// Ticks that come before the time.
    prefix: u64,
}

/// The cut that is asked for, and the file that is cut.
pub(crate) struct Around {
    /// The part that is asked for.
    pub wish: Wish,
    /// Ticks a second of the film's clock.
    pub timescale: u32,
    /// Bytes of the file.
    pub file_len: u64,
    /// The end of the pictures and sounds in the file.
    pub data_end: u64,
}

/// The samples of a part: the first, and the one behind the last.
type Samples = (u64, Option<u64>);

fn once<T>(slot: &mut Option<T>, value: T, name: &'static str) -> Result<(), Fault> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Fault::Duplicate(name)),
    }
}

impl<'a> Track<'a> {
    /// Reads the data of `trak`.
    ///
    /// # Errors
    /// It cannot be read, or ends before the start.
    pub(crate) fn read(data: &'a [u8], around: &Around) -> Result<Track<'a>, Stop> {
        let mut track = Track::default();
        atom::for_each(data, |name, data| match &name {
            b"tkhd" => {
                let timed = Timed::read(data, &TKHD)?;
                let timed = left(timed, around.timescale, &around.wish)?;
                Ok(once(&mut track.tkhd, timed, "tkhd")?)
            }
            b"mdia" => {
                once(&mut track.mdia, (), "mdia")?;
                track.read_media(data, &around.wish)
            }
            _ => Ok(()),
        })?;
        Ok(track)
    }

    fn read_media(&mut self, data: &'a [u8], wish: &Wish) -> Result<(), Stop> {
        atom::for_each(data, |name, data| match &name {
            b"mdhd" => {
                let timed = Timed::read(data, &MDHD)?;
                let timescale = timed.timescale;
                let timed = left(timed, timescale, wish)?;
                Ok(once(&mut self.mdhd, timed, "mdhd")?)
            }
            b"hdlr" => Ok(once(&mut self.hdlr, data, "hdlr")?),
            b"minf" => {
                once(&mut self.minf, (), "minf")?;
                Ok(self.read_info(data)?)
            }
            _ => Ok(()),
        })
    }

    fn read_info(&mut self, data: &'a [u8]) -> Result<(), Fault> {
        const BOTH: &str = "vmhd/smhd";
        atom::for_each(data, |name, data| match &name {
            b"vmhd" if self.smhd.is_some() => Err(Fault::Duplicate(BOTH)),
            b"smhd" if self.vmhd.is_some() => Err(Fault::Duplicate(BOTH)),
            b"vmhd" => once(&mut self.vmhd, data, BOTH),
            b"smhd" => once(&mut self.smhd, data, BOTH),
            b"dinf" => once(&mut self.dinf, data, "dinf"),
            b"stbl" => {
                once(&mut self.stbl, (), "stbl")?;
                atom::for_each(data, |name, data| self.read_table(name, data))
            }
            _ => Ok(()),
        })
    }

    fn read_table(&mut self, name: [u8; 4], data: &'a [u8]) -> Result<(), Fault> {
        match &name {
            b"stsd" if data.len() < 16 => Err(Fault::Small("stsd")),
            b"stsd" => once(&mut self.stsd, data, "stsd"),
            b"stts" => {
                let table = Table::new(data, table::rows(data, 4, "stts")?);
                once(&mut self.stts, table, "stts")
            }
            b"stss" => {
                let table = Table::new(data, table::rows(data, 4, "stss")?);
                once(&mut self.stss, table, "stss")
            }
            b"ctts" => {
                let table = Table::new(data, table::rows(data, 4, "ctts")?);
                once(&mut self.ctts, table, "ctts")
            }
            b"stsc" => {
                let table = Table::new(data, table::rows(data, 4, "stsc")?);
                once(&mut self.stsc, table, "stsc")
            }
            b"stsz" => once(&mut self.stsz, Table::new(data, sizes(data)?), "stsz"),
            b"stco" => {
                let rows: Rows<1> = table::rows(data, 4, "stco")?;
                let list = rows.iter().map(|[offset]| u64::from(*offset)).collect();
                let table = Table::new(data, Offsets::Short(list));
                once(&mut self.offsets, table, "stco/co64")
            }
            b"co64" => {
                let rows: Rows<2> = table::rows(data, 4, "co64")?;
                let long = |[high, low]: &[u32; 2]| u64::from(*high) << 32 | u64::from(*low);
                let table = Table::new(data, Offsets::Long(rows.iter().map(long).collect()));
                once(&mut self.offsets, table, "stco/co64")
            }
            _ => Ok(()),
        }
    }

    /// Cuts the tables; the region of the file that has the samples, if there are any.
    ///
    /// # Errors
    /// A table is missing, or ends before the time.
    pub(crate) fn crop(&mut self, around: &Around) -> Result<Option<Range<u64>>, Fault> {
        let (start, end) = self.crop_times(&around.wish)?;
        if let Some(stss) = &mut self.stss {
            table::crop_syncs(&mut stss.rows, start, end);
        }
        if let Some(ctts) = &mut self.ctts {
            table::crop_offsets(&mut ctts.rows, start, end);
            if ctts.rows.is_empty() {
                self.ctts = None;
            }
        }
        let chunks = self.offsets.as_ref().map_or(0, |it| it.rows.list().len());
        let stsc = self.stsc.as_mut().ok_or(Fault::Missing("stsc"))?;
        if stsc.rows.is_empty() {
            return Err(Fault::Invalid("number of stsc entries is zero"));
        }
        // No more than a table of 32 bits has.
        let edges = Chunks::crop(&mut stsc.rows, chunks as u32, (start, end))?;
        let left_out = self.crop_sizes((start, end), &edges, around.file_len)?;
        self.crop_chunks(&edges, left_out, (around, end.is_some()))
    }

    fn crop_times(&mut self, wish: &Wish) -> Result<Samples, Fault> {
        let stts = self.stts.as_mut().ok_or(Fault::Missing("stts"))?;
        let rows = &mut stts.rows;
        let timescale = self.mdhd.as_ref().map_or(0, |mdhd| mdhd.timescale);
        let found = table::find_time(rows, wish.start(timescale));
        let found = found.map_err(|_| Fault::OutOf {
            time: "start",
            table: "stts samples",
        })?;
        let mut earlier = match (&self.stss, wish.begin) {
            (Some(stss), Begin::KeyFrame) => table::before_key_frame(&stss.rows, found.sample)?,
            _ => 0,
        };
        let start = found.sample.saturating_sub(earlier);
        let (mut row, mut rest) = (found.row, found.rest);
        // Each round goes back by a row; there are `found.sample` samples before.
        while rest < earlier && row > 0 {
            self.prefix = self.prefix.saturating_add(ticks_of(rows, row, rest));
            earlier -= rest;
            row -= 1;
            rest = rows.get(row).map_or(0, |[count, _]| u64::from(*count));
        }
        self.prefix = self.prefix.saturating_add(ticks_of(rows, row, earlier));
        rest = rest.saturating_sub(earlier);
        if let Some(mdhd) = &mut self.mdhd {
            mdhd.duration = mdhd.duration.saturating_add(self.prefix);
        }
        rows.drain(..row);
        if let Some([count, _]) = rows.first_mut() {
            // Less than the count.
            *count -= rest as u32;
        }
        let Some(length) = wish.length(timescale) else {
            return Ok((start, None));
        };
        let count = match table::find_time(rows, length.saturating_add(self.prefix)) {
            Err(all) => all,
            Ok(found) => {
                rows.truncate(found.row + 1);
                if let Some([count, _]) = rows.last_mut() {
                    *count = found.rest as u32;
                }
                found.sample
            }
        };
        Ok((start, Some(start + count)))
    }

    /// Leaves the sizes of the samples; how many bytes of the first chunk are left out, and how
    /// many of the last chunk are sent.
    fn crop_sizes(
        &mut self,
        (start, end): Samples,
        edges: &ChunkEdges,
        file_len: u64,
    ) -> Result<(u64, u64), Fault> {
        let Some(stsz) = &mut self.stsz else {
            return Ok((0, 0));
        };
        let count = match &stsz.rows {
            Sizes::Uniform(_, count) => u64::from(*count),
            Sizes::Each(rows) => rows.len() as u64,
        };
        let out_of = |time| Fault::OutOf {
            time,
            table: "stsz samples",
        };
        if start >= count {
            return Err(out_of("start"));
        }
        let stop = end.unwrap_or(count);
        if stop > count {
            return Err(out_of("end"));
        }
        let bytes = |from: Option<u64>, to: u64| {
            let from = from.ok_or(Fault::Invalid("chunk begins before its samples"))?;
            Some(stsz.rows.bytes(from..to))
                .filter(|bytes| *bytes <= file_len)
                .ok_or(Fault::Invalid("samples are larger than the file"))
        };
        let before = bytes(start.checked_sub(edges.start_samples), start)?;
        let last = match end {
            Some(end) => bytes(end.checked_sub(edges.end_samples), end)?,
            None => 0,
        };
        match &mut stsz.rows {
            Sizes::Uniform(_, count) => *count = (stop - start) as u32,
            Sizes::Each(rows) => {
                rows.truncate(stop as usize);
                rows.drain(..start as usize);
            }
        }
        Ok((before, last))
    }

    fn crop_chunks(
        &mut self,
        edges: &ChunkEdges,
        (left_out, in_last): (u64, u64),
        (around, has_end): (&Around, bool),
    ) -> Result<Option<Range<u64>>, Fault> {
        let table = self.offsets.as_mut().ok_or(Fault::Missing("stco"))?;
        let (list, most) = match &mut table.rows {
            Offsets::Short(list) => (list, u64::from(u32::MAX)),
            Offsets::Long(list) => (list, u64::MAX),
        };
        let out_of = |time| Fault::OutOf {
            time,
            table: "stco chunks",
        };
        if edges.start >= list.len() as u64 {
            return Err(out_of("start"));
        }
        if has_end {
            if edges.end > list.len() as u64 {
                return Err(out_of("end"));
            }
            list.truncate(edges.end.max(edges.start) as usize);
        }
        list.drain(..edges.start as usize);
        let beyond = |offset: u64, bytes: u64| {
            let end = offset.checked_add(bytes);
            end.filter(|end| *end <= around.file_len.min(most))
                .ok_or(Fault::Invalid("chunk offset is too large"))
        };
        let Some(first) = list.first_mut() else {
            // No sample of the track is in the part.
            return Ok(None);
        };
        let start = beyond(*first, left_out)?;
        *first = start;
        let end = match (has_end, list.last()) {
            (true, Some(last)) => beyond(*last, in_last)?,
            _ => around.data_end,
        };
        Ok(Some(start..end))
    }

    /// Writes the track, and notes where it has places in the file.
    pub(crate) fn write(self, out: &mut Vec<u8>, places: &mut Vec<Places>) {
        let moved = self.tkhd.as_ref().map_or(0, |tkhd| tkhd.duration);
        let prefix = self.prefix;
        write(out, b"trak", |out| {
            let tkhd = self.tkhd.map(Timed::into_data);
            write_data(out, b"tkhd", tkhd.as_deref());
            if prefix > 0 {
                write(out, b"edts", |out| write_edit(out, moved, prefix));
            }
            write(out, b"mdia", |out| {
                let mdhd = self.mdhd.map(Timed::into_data);
                write_data(out, b"mdhd", mdhd.as_deref());
                write_data(out, b"hdlr", self.hdlr);
                write(out, b"minf", |out| {
                    write_data(out, b"vmhd", self.vmhd);
                    write_data(out, b"smhd", self.smhd);
                    write_data(out, b"dinf", self.dinf);
                    write(out, b"stbl", |out| {
                        write_data(out, b"stsd", self.stsd);
                        write_table(out, b"stts", self.stts.as_ref());
                        write_table(out, b"stss", self.stss.as_ref());
                        write_table(out, b"ctts", self.ctts.as_ref());
                        write_table(out, b"stsc", self.stsc.as_ref());
                        if let Some(stsz) = &self.stsz {
                            write(out, b"stsz", |out| write_sizes(out, stsz));
                        }
                        if let Some(table) = self.offsets {
                            places.push(write_offsets(out, table));
                        }
                    });
                });
            });
        });
    }
}

/// The places in a written description at which the places of chunks stand.
#[derive(Debug)]
pub(crate) struct Places {
    /// The first.
    at: usize,
    /// Bytes of each.
    len: usize,
    /// The places as they are in the file.
    list: Vec<u64>,
}

impl Places {
    /// Moves the places all by so many bytes, which may be fewer than none in two's complement.
    pub(crate) fn shift(&self, out: &mut [u8], by: u64) {
        for (index, place) in self.list.iter().enumerate() {
            let number = place.wrapping_add(by).to_be_bytes();
            // nginx: of a longer number the lowest bytes count.
            let number = number.get(8 - self.len..).unwrap_or_default();
            put(out, self.at + index * self.len, number);
        }
    }
}

/// The atom with what is left of its duration.
fn left(mut timed: Timed, timescale: u32, wish: &Wish) -> Result<Timed, Stop> {
    // nginx: a track that ends at the start is left out, too.
    if timed.duration <= wish.start(timescale) {
        return Err(Stop::Over);
    }
    timed.duration = wish.left(timed.duration, timescale).ok_or(Stop::Over)?;
    Ok(timed)
}

fn sizes(data: &[u8]) -> Result<Sizes, Fault> {
    const SMALL: Fault = Fault::Small("stsz");
    match u32_at(data, 4).ok_or(SMALL)? {
        0 => Ok(Sizes::Each(table::rows(data, 8, "stsz")?)),
        size => Ok(Sizes::Uniform(size, u32_at(data, 8).ok_or(SMALL)?)),
    }
}

impl Sizes {
    /// Bytes of these samples.
    fn bytes(&self, samples: Range<u64>) -> u64 {
        match self {
            Sizes::Uniform(size, _) => {
                let count = samples.end.saturating_sub(samples.start);
                count.saturating_mul(u64::from(*size))
            }
            Sizes::Each(rows) => {
                let rows = rows.get(samples.start as usize..samples.end as usize);
                let rows = rows.unwrap_or_default().iter();
                rows.map(|[size]| u64::from(*size)).sum()
            }
        }
    }
}

/// The ticks that so many samples of a row take.
fn ticks_of(rows: &[[u32; 2]], row: usize, samples: u64) -> u64 {
    let duration = rows
        .get(row)
        .map_or(0, |[_, duration]| u64::from(*duration));
    samples.saturating_mul(duration)
}

fn write_edit(out: &mut Vec<u8>, duration: u64, media_time: u64) {
    write(out, b"elst", |out| {
        // Version 1, and one edit.
        out.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 1]);
        out.extend_from_slice(&duration.to_be_bytes());
        out.extend_from_slice(&media_time.to_be_bytes());
        // At the usual speed.
        out.extend_from_slice(&[0, 1, 0, 0]);
    });
}

fn write_table<const N: usize>(out: &mut Vec<u8>, name: &[u8; 4], table: Option<&Table<Rows<N>>>) {
    let Some(table) = table else {
        return;
    };
    write(out, name, |out| {
        out.extend_from_slice(&table.flags);
        write_count(out, table.rows.len());
        out.extend(table.rows.iter().flatten().flat_map(|it| it.to_be_bytes()));
    });
}

fn write_count(out: &mut Vec<u8>, count: usize) {
    // No more than were read, and two.
    out.extend_from_slice(&(count as u32).to_be_bytes());
}

fn write_sizes(out: &mut Vec<u8>, table: &Table<Sizes>) {
    out.extend_from_slice(&table.flags);
    match &table.rows {
        Sizes::Uniform(size, count) => {
            out.extend_from_slice(&size.to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
        }
        Sizes::Each(rows) => {
            out.extend_from_slice(&[0; 4]);
            write_count(out, rows.len());
            out.extend(rows.iter().flatten().flat_map(|it| it.to_be_bytes()));
        }
    }
}

fn write_offsets(out: &mut Vec<u8>, table: Table<Offsets>) -> Places {
    let (name, len, list) = match table.rows {
        Offsets::Short(list) => (b"stco", 4, list),
        Offsets::Long(list) => (b"co64", 8, list),
    };
    let mut at = 0;
    write(out, name, |out| {
        out.extend_from_slice(&table.flags);
        write_count(out, list.len());
        at = out.len();
        out.resize(at + len * list.len(), 0);
    });
    Places { at, len, list }
}
