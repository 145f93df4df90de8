//! Films are made by hand, cut, and read again: what a part shows is what a simple walk over the
//! times of the samples says.

use proptest::prelude::*;

use super::*;
use crate::Begin;
use crate::atom::for_each;
use crate::table::{Rows, rows};

/// The layout of a made-up film. A tick is a millisecond.
#[derive(Clone, Debug)]
struct Layout {
    /// Samples of each chunk.
    chunks: Vec<u32>,
    /// True if all samples have one size.
    is_uniform: bool,
    /// True if places have eight bytes.
    is_long: bool,
    /// True if the description comes first.
    is_fast: bool,
    /// Bytes between chunks.
    gap: usize,
    /// Ticks of each sample of the first three, and of each three after them so many more.
    pace: u32,
    /// Samples from one whole picture to the next.
    key_every: usize,
}

const PLAIN: Layout = Layout {
    chunks: Vec::new(),
    is_uniform: false,
    is_long: false,
    is_fast: true,
    gap: 0,
    pace: 100,
    key_every: 4,
};

impl Layout {
    fn samples(&self) -> Vec<Vec<u8>> {
        let count = self.chunks.iter().sum::<u32>() as usize;
        let size = |index: usize| {
            if self.is_uniform {
                5
            } else {
                1 + index * 7 % 11
            }
        };
        (0..count)
            .map(|index| vec![index as u8; size(index)])
            .collect()
    }

    fn duration(&self, sample: usize) -> u32 {
        self.pace + 10 * (sample as u32 / 3)
    }

    fn syncs(&self) -> Vec<u32> {
        let count = self.samples().len();
        (0..count)
            .step_by(self.key_every)
            .map(|sample| sample as u32 + 1)
            .collect()
    }

    /// The pictures as they are in the file, and where in them chunks begin.
    fn data(&self) -> (Vec<u8>, Vec<u64>) {
        let mut samples = self.samples().into_iter();
        let (mut data, mut places) = (Vec::new(), Vec::new());
        for count in &self.chunks {
            data.resize(data.len() + self.gap, 0xff);
            places.push(data.len() as u64);
            data.extend(samples.by_ref().take(*count as usize).flatten());
        }
        (data, places)
    }

    fn total(&self) -> u32 {
        (0..self.samples().len())
            .map(|sample| self.duration(sample))
            .sum()
    }

    fn tables(&self, out: &mut Vec<u8>, places: &[u64]) {
        let count = self.samples().len();
        let each = |of: &dyn Fn(usize) -> u32| {
            let rows = (0..count).map(|sample| [1, of(sample)]);
            join(rows, |[_, a], [_, b]| a == b)
        };
        table(out, b"stsd", &[1, 16, 0]);
        table(
            out,
            b"stts",
            &counted(&each(&|sample| self.duration(sample))),
        );
        table(
            out,
            b"stss",
            &counted(&self.syncs().iter().map(|it| [*it]).collect::<Vec<_>>()),
        );
        table(out, b"ctts", &counted(&each(&|sample| sample as u32 / 5)));
        let mut chunks: Vec<[u32; 3]> = Vec::new();
        for (at, samples) in self.chunks.iter().enumerate() {
            if chunks.last().is_none_or(|[_, last, _]| last != samples) {
                chunks.push([at as u32 + 1, *samples, 1]);
            }
        }
        table(out, b"stsc", &counted(&chunks));
        let sizes = self.samples();
        if self.is_uniform {
            table(out, b"stsz", &[5, count as u32]);
        } else {
            let sizes = sizes.iter().map(|sample| sample.len() as u32);
            let words: Vec<u32> = [0, count as u32].into_iter().chain(sizes).collect();
            table(out, b"stsz", &words);
        }
        let words = places.iter().flat_map(|place| {
            if self.is_long {
                vec![(place >> 32) as u32, *place as u32]
            } else {
                vec![*place as u32]
            }
        });
        let words: Vec<u32> = [places.len() as u32].into_iter().chain(words).collect();
        table(out, if self.is_long { b"co64" } else { b"stco" }, &words);
    }

    fn moov(&self, places: &[u64]) -> Vec<u8> {
        let clock = |len: usize, at: usize, duration_at: usize| {
            let mut data = vec![0; len];
            atom::put(&mut data, at, &1000_u32.to_be_bytes());
            atom::put(&mut data, duration_at, &self.total().to_be_bytes());
            data
        };
        let mut out = Vec::new();
        write(&mut out, b"moov", |out| {
            write_data(out, b"mvhd", Some(&clock(100, 12, 16)));
            write(out, b"trak", |out| {
                write_data(out, b"tkhd", Some(&clock(84, 40, 20)));
                write_data(out, b"edts", Some(b"gone"));
                write(out, b"mdia", |out| {
                    write_data(out, b"mdhd", Some(&clock(24, 12, 16)));
                    write_data(out, b"hdlr", Some(b"handler"));
                    write(out, b"minf", |out| {
                        write_data(out, b"vmhd", Some(b"video"));
                        write(out, b"stbl", |out| self.tables(out, places));
                    });
                });
            });
        });
        out
    }

    fn file(&self) -> Vec<u8> {
        let (data, places) = self.data();
        let mut out = Vec::new();
        write_data(&mut out, b"ftyp", Some(b"isom"));
        let moov_len = if self.is_fast {
            self.moov(&places).len()
        } else {
            0
        };
        let begin = (out.len() + moov_len + 8) as u64;
        let places: Vec<u64> = places.iter().map(|place| begin + place).collect();
        let moov = self.moov(&places);
        if self.is_fast {
            out.extend_from_slice(&moov);
        }
        write_data(&mut out, b"mdat", Some(&data));
        if !self.is_fast {
            out.extend_from_slice(&moov);
        }
        out
    }

    /// The samples of a part, by a walk over their times.
    fn expected(&self, wish: &Wish) -> Option<std::ops::Range<usize>> {
        let count = self.samples().len();
        let (mut start, mut begin) = (0, 0);
        while begin + u64::from(self.duration(start)) <= wish.start_ms {
            begin += u64::from(self.duration(start));
            start += 1;
            if start == count {
                return None;
            }
        }
        let mut prefix = 0;
        if wish.begin == Begin::KeyFrame {
            while start % self.key_every > 0 {
                start -= 1;
                prefix += u64::from(self.duration(start));
            }
        }
        let (mut end, mut length) = (start, 0);
        while end < count {
            length += u64::from(self.duration(end));
            if wish.length_ms.is_some_and(|most| length > most + prefix) {
                break;
            }
            end += 1;
        }
        Some(start..end)
    }
}

/// Rows of one sample each, with like ones joined.
fn join(
    rows: impl Iterator<Item = [u32; 2]>,
    is_like: impl Fn([u32; 2], [u32; 2]) -> bool,
) -> Vec<[u32; 2]> {
    let mut joined: Vec<[u32; 2]> = Vec::new();
    for row in rows {
        match joined.last_mut() {
            Some(last) if is_like(*last, row) => last[0] += 1,
            _ => joined.push(row),
        }
    }
    joined
}

fn counted<const N: usize>(rows: &[[u32; N]]) -> Vec<u32> {
    let count = rows.len() as u32;
    [count]
        .into_iter()
        .chain(rows.iter().flatten().copied())
        .collect()
}

/// Writes a table with no flags and these numbers.
fn table(out: &mut Vec<u8>, name: &[u8; 4], words: &[u32]) {
    write(out, name, |out| {
        out.extend_from_slice(&[0; 4]);
        out.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    });
}

/// The part of a file, as a file.
fn part(file: &[u8], wish: &Wish) -> Result<Option<Vec<u8>>, Fault> {
    let film = Film {
        len: file.len() as u64,
        read: |at: u64, len: u64| {
            let bytes = file
                .get(at as usize..)
                .and_then(|rest| rest.get(..len as usize));
            bytes.map(Bytes::copy_from_slice).ok_or("beyond the file")
        },
        moov_max: 1 << 20,
    };
    let part = cut(&film, wish).map_err(|error| match error {
        Error::Fault(fault) => fault,
        Error::Read(what) => panic!("{what}"),
    })?;
    Ok(part.map(|part| {
        let data = &file[part.data.start as usize..part.data.end as usize];
        [&part.head, data].concat()
    }))
}

/// The content that a file shows: samples with their times and offsets, and which of them are
/// whole.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    samples: Vec<Vec<u8>>,
    durations: Vec<u32>,
    offsets: Vec<u32>,
    syncs: Vec<u32>,
}

fn atoms<'a>(path: &[&[u8; 4]], data: &'a [u8]) -> &'a [u8] {
    let Some((first, rest)) = path.split_first() else {
        return data;
    };
    let mut found: &[u8] = &[];
    for_each(data, |name, data| {
        if name == **first {
            found = data;
        }
        Ok::<(), Fault>(())
    })
    .unwrap();
    atoms(rest, found)
}

fn expand(rows: &[[u32; 2]]) -> Vec<u32> {
    let each = rows.iter();
    each.flat_map(|[count, value]| std::iter::repeat_n(*value, *count as usize))
        .collect()
}

fn shown(file: &[u8]) -> Shown {
    let stbl = atoms(&[b"moov", b"trak", b"mdia", b"minf", b"stbl"], file);
    let read = |name| atoms(&[name], stbl);
    let stsc: Rows<3> = rows(read(b"stsc"), 4, "").unwrap();
    let stsz = read(b"stsz");
    let sizes: Vec<u32> = match atom::u32_at(stsz, 4).unwrap() {
        0 => rows(stsz, 8, "")
            .unwrap()
            .into_iter()
            .map(|[size]| size)
            .collect(),
        size => vec![size; atom::u32_at(stsz, 8).unwrap() as usize],
    };
    let places: Vec<u64> = match read(b"co64") {
        [] => {
            let places: Rows<1> = rows(read(b"stco"), 4, "").unwrap();
            places.iter().map(|[place]| u64::from(*place)).collect()
        }
        co64 => {
            let places: Rows<2> = rows(co64, 4, "").unwrap();
            places.iter().map(|[_, low]| u64::from(*low)).collect()
        }
    };
    let mut sizes = sizes.into_iter();
    let mut shown = Shown::default();
    for (index, place) in places.iter().enumerate() {
        let row = stsc
            .iter()
            .rfind(|[chunk, ..]| *chunk as usize <= index + 1);
        let mut at = *place as usize;
        for size in sizes.by_ref().take(row.unwrap()[1] as usize) {
            shown.samples.push(file[at..at + size as usize].to_vec());
            at += size as usize;
        }
    }
    assert_eq!(sizes.next(), None, "samples beyond the chunks");
    shown.durations = expand(&rows::<2>(read(b"stts"), 4, "").unwrap());
    shown.offsets = match read(b"ctts") {
        [] => Vec::new(),
        ctts => expand(&rows::<2>(ctts, 4, "").unwrap()),
    };
    let syncs: Rows<1> = rows(read(b"stss"), 4, "").unwrap();
    shown.syncs = syncs.into_iter().map(|[sync]| sync).collect();
    shown
}

fn expected(layout: &Layout, range: std::ops::Range<usize>) -> Shown {
    let syncs = layout.syncs().into_iter();
    let start = range.start as u32;
    let in_range = |sync: &u32| range.contains(&(*sync as usize - 1));
    Shown {
        samples: layout.samples()[range.clone()].to_vec(),
        durations: range
            .clone()
            .map(|sample| layout.duration(sample))
            .collect(),
        offsets: range.clone().map(|sample| sample as u32 / 5).collect(),
        syncs: syncs.filter(in_range).map(|sync| sync - start).collect(),
    }
}

fn wish(start_ms: u64, length_ms: u64, begin: Begin) -> Wish {
    Wish {
        start_ms,
        length_ms: Some(length_ms).filter(|length| *length > 0),
        begin,
    }
}

#[test]
fn a_film_is_its_own_part() {
    let layout = Layout {
        chunks: vec![3, 3, 2, 2, 2],
        ..PLAIN
    };
    let whole = wish(0, 0, Begin::Frame);
    assert_eq!(part(&layout.file(), &whole), Ok(None));
    // A film with the description behind the pictures gets it before them.
    let slow = Layout {
        is_fast: false,
        ..layout
    };
    let moved = part(&slow.file(), &whole).unwrap().unwrap();
    assert_eq!(shown(&moved), expected(&slow, 0..12));
    assert!(atoms(&[b"moov", b"trak", b"edts"], &moved).is_empty());
    assert_eq!(atoms(&[b"ftyp"], &moved), b"isom");
}

#[test]
fn a_part_that_begins_earlier_says_what_is_to_be_skipped() {
    let layout = Layout {
        chunks: vec![12],
        ..PLAIN
    };
    let file = layout.file();
    // 100 ms each of 0 to 2, 110 of 3 to 5, 120 from 6 on.
    let cut = part(&file, &wish(700, 120, Begin::KeyFrame))
        .unwrap()
        .unwrap();
    assert_eq!(shown(&cut), expected(&layout, 4..7));
    let elst = atoms(&[b"moov", b"trak", b"edts", b"elst"], &cut);
    let times = [atom::u64_at(elst, 8), atom::u64_at(elst, 16)];
    assert_eq!(times, [Some(120), Some(220)]);
    let mdhd = atoms(&[b"moov", b"trak", b"mdia", b"mdhd"], &cut);
    assert_eq!(atom::u32_at(mdhd, 16), Some(340));
}

#[test]
fn what_is_not_there_is_refused() {
    let layout = Layout {
        chunks: vec![4],
        ..PLAIN
    };
    let file = layout.file();
    assert_eq!(
        part(&file, &wish(10_000, 0, Begin::Frame)),
        Err(Fault::LateStart)
    );
    assert_eq!(
        part(&file, &wish(410, 0, Begin::Frame)),
        Err(Fault::Missing("trak"))
    );
    assert_eq!(part(&file, &wish(100, 50, Begin::Frame)), Err(Fault::Empty));
    assert_eq!(
        part(b"", &wish(1, 0, Begin::Frame)),
        Err(Fault::Missing("moov"))
    );
    let mut huge = Vec::new();
    write_data(&mut huge, b"moov", Some(&[0; (1 << 20) + 1]));
    let fault = part(&huge, &wish(1, 0, Begin::Frame));
    assert_eq!(fault, Err(Fault::LargeMoov((1 << 20) + 1)));
    let many = b"\0\0\0\x08free".repeat(ATOMS_MAX + 1);
    assert_eq!(
        part(&many, &wish(1, 0, Begin::Frame)),
        Err(Fault::ManyAtoms)
    );
}

fn layouts() -> impl Strategy<Value = Layout> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let chunks = prop::collection::vec(1..5_u32, 1..9);
    (chunks, flags, 0..3_usize, 1..200_u32, 1..6_usize).prop_map(
        |(chunks, (is_uniform, is_long, is_fast), gap, pace, key_every)| Layout {
            chunks,
            is_uniform,
            is_long,
            is_fast,
            gap,
            pace,
            key_every,
        },
    )
}

proptest! {
    #[test]
    fn a_part_shows_what_its_times_say(
        layout in layouts(),
        start in 0..3000_u64,
        length in 0..2000_u64,
        is_key in any::<bool>(),
    ) {
        let begin = if is_key { Begin::KeyFrame } else { Begin::Frame };
        let wish = wish(start, length, begin);
        match (part(&layout.file(), &wish), layout.expected(&wish)) {
            (Ok(Some(cut)), Some(range)) => {
                let mut found = shown(&cut);
                // A row of no samples may be left.
                found.offsets.truncate(range.len());
                prop_assert_eq!(found, expected(&layout, range));
            }
            (Ok(None), Some(range)) => prop_assert_eq!(range.start, 0),
            (Err(Fault::Empty), Some(range)) => prop_assert!(range.is_empty()),
            (Err(_), None) => {}
            (cut, range) => prop_assert!(false, "{:?} {:?}", cut, range),
        }
    }

    #[test]
    fn a_broken_film_is_refused_or_cut(
        layout in layouts(),
        times in (0..3000_u64, 0..2000_u64, any::<bool>()),
        broken in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9),
        end in any::<prop::sample::Index>(),
    ) {
        let (start, length, is_key) = times;
        let begin = if is_key { Begin::KeyFrame } else { Begin::Frame };
        let mut file = layout.file();
        for (at, byte) in broken {
            let at = at.index(file.len());
            file[at] = byte;
        }
        let _either = part(&file, &wish(start, length, begin));
        file.truncate(end.index(file.len()));
        let _either = part(&file, &wish(start, length, begin));
    }
}
