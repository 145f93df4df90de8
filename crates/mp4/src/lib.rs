//! MP4 without I/O of its own: the part of a film from one time to another, as a film.
//!
//! ```text
//! file    ftyp | moov (what is where and when) | mdat (pictures and sound)      in any order
//! part    ftyp | moov, only of what is sent    | mdat: one region of the file
//! ```
//!
//! A film is a tree of atoms: size (4 bytes, or 1 and 8 more behind the name), name (4), data. Each
//! track (`trak`) has tables that lead from a time to a sample (`stts`), to its chunk (`stsc`) and
//! to the chunk's place in the file (`stco`, `co64`); they are cut to what is sent.
//!
//! 1. No file makes this panic or loop; each count is compared with the bytes that are there before
//!    it is believed.
//! 2. No more is kept in memory than a few times the size of `moov`, which has a limit.
//! 3. The region lies within the file.
//!
//! What it does not do: films in fragments (`moof`), compressed tables (`cmov`).
//!
//! Sources: ISO/IEC 14496-12; nginx ngx_http_mp4_module.

mod atom;
mod film;
mod table;
mod track;

pub use film::{Error, Film, Part, cut};

/// The reason why a film cannot be cut. The text is what the error log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file ends inside an atom.
    #[error("mp4 file is truncated")]
    Truncated,
    /// An atom is smaller than its head.
    #[error("mp4 atom is too small: {0}")]
    SmallAtom(u64),
    /// An atom is larger than what it stands in.
    #[error("mp4 atom is too large: {0}")]
    LargeAtom(u64),
    /// An atom lacks something of what it must have.
    #[error("mp4 {0} atom is too small")]
    Small(&'static str),
    /// An atom that must be unique came twice.
    #[error("duplicate mp4 {0} atom")]
    Duplicate(&'static str),
    /// An atom is missing.
    #[error("no mp4 {0} atom was found")]
    Missing(&'static str),
    /// The description is larger than the limit.
    #[error("mp4 moov atom is too large: {0}, you may want to increase mp4_max_buffer_size")]
    LargeMoov(u64),
    /// There are more atoms side by side than any film has.
    #[error("mp4 file has too many atoms")]
    ManyAtoms,
    /// The description is compressed.
    #[error("mp4 compressed moov atom (cmov) is not supported")]
    Compressed,
    /// The film is shorter than the start.
    #[error("mp4 start time exceeds file duration")]
    LateStart,
    /// A table ends before the time.
    #[error("{time} time is out of mp4 {table}")]
    OutOf {
        /// "start" or "end".
        time: &'static str,
        /// The table.
        table: &'static str,
    },
    /// A table holds something that cannot be.
    #[error("mp4 {0}")]
    Invalid(&'static str),
    /// The part has no data left.
    #[error("no mp4 data between start time and end time")]
    Empty,
}

/// The part of a film that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The time at which the part begins, in milliseconds.
    pub start_ms: u64,
    /// The length of the part, in milliseconds, at least one; to the end of the film without.
    pub length_ms: Option<u64>,
    /// The kind of picture that the part begins with.
    pub begin: Begin,
}

/// The kind of picture that a part begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The frame of the wanted time, which may be no whole picture.
    Frame,
    /// The whole picture before; players are told to skip what comes before the time.
    KeyFrame,
}

impl Wish {
    /// The start in the units of a clock that ticks so often a second.
    fn start(&self, timescale: u32) -> u64 {
        ticks(self.start_ms, timescale)
    }

    /// The length in such units.
    fn length(&self, timescale: u32) -> Option<u64> {
        self.length_ms.map(|length| ticks(length, timescale))
    }

    /// The rest of a duration in such units; `None` if the duration ends before the start.
    fn left(&self, duration: u64, timescale: u32) -> Option<u64> {
        let left = duration.checked_sub(self.start(timescale))?;
        Some(self.length(timescale).map_or(left, |most| left.min(most)))
    }
}

fn ticks(ms: u64, timescale: u32) -> u64 {
    let ticks = u128::from(ms) * u128::from(timescale) / 1000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}
