//! A film in a file: finding its three parts, and putting together what is sent.
//!
//! Of the file only heads of atoms are read, its kind and its description. A description that comes
//! behind the pictures is put before them, so that a film that is wanted whole may change, too.

use std::ops::Range;

use bytes::Bytes;

use super::atom::{self, HEAD_MAX, write, write_data};
use super::track::{Around, Stop, Timed, Track};
use super::{Fault, Wish};

/// Atoms side by side in a file (arbitrary: far more than any film has).
const ATOMS_MAX: usize = 10_000;

/// The longest `ftyp`, as in nginx.
const FTYP_MAX: u64 = 1024;

/// A file as it is read.
pub struct Film<R> {
    /// The length of the file in bytes.
    pub len: u64,
    /// Reads a region of the file.
    pub read: R,
    /// The longest description that is read.
    pub moov_max: u64,
}

/// The part of a film as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The bytes that come before the pictures: the new description.
    pub head: Bytes,
    /// The region of the file that follows.
    pub data: Range<u64>,
}

/// The reason why a film cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error<E> {
    /// The file is no film that can be read.
    Fault(Fault),
    /// The file of the film cannot be read.
    Read(E),
}

impl<E> From<Fault> for Error<E> {
    fn from(fault: Fault) -> Self {
        Error::Fault(fault)
    }
}

/// The atoms of a file that a part is made of.
#[derive(Debug, Default)]
struct Found {
    ftyp: Option<Bytes>,
    moov: Option<Bytes>,
    mdat: Option<Range<u64>>,
}

/// The part of a film that is asked for; `None` if it is the film as it is.
///
/// # Errors
/// It cannot be read, or there is nothing to be sent.
pub fn cut<E>(
    film: &Film<impl Fn(u64, u64) -> Result<Bytes, E>>,
    wish: &Wish,
) -> Result<Option<Part>, Error<E>> {
    let Some(found) = find(film, wish)? else {
        return Ok(None);
    };
    let moov = found.moov.ok_or(Fault::Missing("moov"))?;
    let mdat = found.mdat.ok_or(Fault::Missing("mdat"))?;
    Ok(put_together(&moov, &found.ftyp, mdat, (film.len, *wish)).map(Some)?)
}

/// Looks for what a film is made of; `None` if it is wanted whole, and its description comes first.
fn find<E>(
    film: &Film<impl Fn(u64, u64) -> Result<Bytes, E>>,
    wish: &Wish,
) -> Result<Option<Found>, Error<E>> {
    let read = |at, len| (film.read)(at, len).map_err(Error::Read);
    let mut found = Found::default();
    let mut at = 0;
    for _ in 0..ATOMS_MAX {
        let left = film.len - at;
        if left == 0 {
            return Ok(Some(found));
        }
        let Some(head) = atom::head(&read(at, left.min(HEAD_MAX))?, left)? else {
            return Ok(Some(found));
        };
        let begin = at + head.len;
        at = begin + head.data_len;
        match &head.name {
            b"ftyp" if head.data_len > FTYP_MAX => {
                return Err(Fault::LargeAtom(head.data_len).into());
            }
            b"ftyp" => once(&mut found.ftyp, read(begin, head.data_len)?, "ftyp")?,
            b"moov" if found.mdat.is_none() && wish.start_ms == 0 && wish.length_ms.is_none() => {
                return Ok(None);
            }
            b"moov" if head.data_len > film.moov_max => {
                return Err(Fault::LargeMoov(head.data_len).into());
            }
            b"moov" => once(&mut found.moov, read(begin, head.data_len)?, "moov")?,
            b"mdat" => once(&mut found.mdat, begin..at, "mdat")?,
            _ => {}
        }
        // nginx: what comes behind both is not looked at.
        if found.moov.is_some() && found.mdat.is_some() {
            return Ok(Some(found));
        }
    }
    Err(Fault::ManyAtoms.into())
}

fn once<T>(slot: &mut Option<T>, value: T, name: &'static str) -> Result<(), Fault> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Fault::Duplicate(name)),
    }
}

fn put_together(
    moov: &[u8],
    ftyp: &Option<Bytes>,
    mdat: Range<u64>,
    (file_len, wish): (u64, Wish),
) -> Result<Part, Fault> {
    let (movie, mut tracks, around) = read_movie(moov, mdat.end, (file_len, wish))?;
    let mut data = file_len..0;
    for track in &mut tracks {
        if let Some(region) = track.crop(&around)? {
            data = data.start.min(region.start)..data.end.max(region.end);
        }
    }
    if data.is_empty() {
        return Err(Fault::Empty);
    }
    if data.start >= mdat.end {
        return Err(Fault::OutOf {
            time: "start",
            table: "mdat",
        });
    }
    let mut head = Vec::with_capacity(moov.len());
    write_data(&mut head, b"ftyp", ftyp.as_deref());
    let mut places = Vec::with_capacity(tracks.len());
    write(&mut head, b"moov", |out| {
        let movie = movie.map(Timed::into_data);
        write_data(out, b"mvhd", movie.as_deref());
        for track in tracks {
            track.write(out, &mut places);
        }
    });
    write_mdat_head(&mut head, data.end - data.start);
    let by = (head.len() as u64).wrapping_sub(data.start);
    for places in places {
        places.shift(&mut head, by);
    }
    Ok(Part {
        head: Bytes::from(head),
        data,
    })
}

type Movie<'a> = (Option<Timed>, Vec<Track<'a>>, Around);

fn read_movie(
    moov: &[u8],
    data_end: u64,
    (file_len, wish): (u64, Wish),
) -> Result<Movie<'_>, Fault> {
    let mut movie = None;
    let mut tracks = Vec::new();
    let mut around = Around {
        wish,
        timescale: 0,
        file_len,
        data_end,
    };
    atom::for_each(moov, |name, data| match &name {
        b"mvhd" => {
            let mut timed = Timed::movie(data)?;
            around.timescale = timed.timescale;
            let left = wish.left(timed.duration, timed.timescale);
            timed.duration = left.ok_or(Fault::LateStart)?;
            once(&mut movie, timed, "mvhd")
        }
        b"cmov" => Err(Fault::Compressed),
        b"trak" => match Track::read(data, &around) {
            Ok(track) => {
                tracks.push(track);
                Ok(())
            }
            Err(Stop::Over) => Ok(()),
            Err(Stop::Fault(fault)) => Err(fault),
        },
        _ => Ok(()),
    })?;
    if tracks.is_empty() {
        Err(Fault::Missing("trak"))
    } else {
        Ok((movie, tracks, around))
    }
}

/// Writes the head of an atom with so many bytes of pictures and sounds.
fn write_mdat_head(out: &mut Vec<u8>, len: u64) {
    match u32::try_from(len.saturating_add(8)) {
        Ok(size) => {
            out.extend_from_slice(&size.to_be_bytes());
            out.extend_from_slice(b"mdat");
        }
        Err(_) => {
            out.extend_from_slice(b"\0\0\0\x01mdat");
            out.extend_from_slice(&len.saturating_add(HEAD_MAX).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
