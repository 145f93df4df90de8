//! Sources: the files that a configuration was read from, and places in them.
//!
//! A [`Span`] is a pair of byte offsets in one file; it is small and is kept by everything that
//! may be reported later. Lines and columns are worked out only when something is reported, from a
//! table of line starts that each [`Source`] makes when it is read.
//!
//! Invariants:
//!
//! 1. A file is kept once, under the path by which it was first read, in the order of reading.
//! 2. The bytes are those of the file: comments need not be UTF-8.
//! 3. Any span may be asked about, also one that belongs to no file ([`Span::NONE`]) or points
//!    behind the end.
//!
//! What it does not do: it reads nothing; the text comes from `include`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A file of a [`Sources`], by its position in the order of reading.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

impl FileId {
    /// The id of no file: of what the program itself wrote, such as a default value.
    pub const NONE: FileId = FileId(u32::MAX);
}

/// A range of bytes in one file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// The offset of the first byte.
    pub start: u32,
    /// The offset behind the last byte.
    pub end: u32,
}

impl Span {
    /// The span of what stands in no file.
    pub const NONE: Span = Span {
        file: FileId::NONE,
        start: 0,
        end: 0,
    };

    /// The smallest span that covers both; the other must be of the same file.
    pub fn to(self, other: Span) -> Span {
        Span {
            file: self.file,
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }

    /// Number of bytes that the span covers.
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// True if the span covers nothing, as the place of an end of file does.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The part of a word's span that a byte range of its text stands at.
    ///
    /// It is exact when the word was written without escapes, which shows in the lengths;
    /// otherwise it is the whole word.
    pub fn part(self, text_len: usize, start: usize, end: usize) -> Span {
        let quotes = match self.len().checked_sub(text_len) {
            Some(0) => 0,
            Some(2) => 1,
            _ => return self,
        };
        let at = |offset: usize| {
            let offset = u32::try_from(offset + quotes).unwrap_or(u32::MAX);
            self.start.saturating_add(offset).min(self.end)
        };
        Span {
            file: self.file,
            start: at(start),
            end: at(end),
        }
    }
}

/// Kind of text that a source is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceKind {
    /// A file, or a text that stands for one.
    File,
    /// The directives of the `-g` option.
    CommandLine,
}

/// One text of a configuration.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    bytes: Vec<u8>,
    kind: SourceKind,
    /// The offset of the first byte of each line; never empty.
    line_starts: Vec<u32>,
}

impl Source {
    fn new(path: PathBuf, bytes: Vec<u8>, kind: SourceKind) -> Source {
        let breaks = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let starts = breaks.map(|(offset, _)| u32::try_from(offset + 1).unwrap_or(u32::MAX));
        let line_starts = std::iter::once(0).chain(starts).collect();
        Source {
            path,
            bytes,
            kind,
            line_starts,
        }
    }

    /// The path by which it was read, or the name that it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that were read.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Kind of text of the source.
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// The line of a byte, from 0, and the offset at which that line starts.
    fn line_of(&self, offset: u32) -> (usize, u32) {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let line = line.saturating_sub(1);
        (line, self.line_starts.get(line).copied().unwrap_or(0))
    }
}

/// Start of a span, in words for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place<'a> {
    /// The path of the file.
    pub path: &'a Path,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// All texts of a configuration, in the order in which they were read.
#[derive(Debug, Default)]
pub struct Sources {
    texts: Vec<Source>,
}

impl Sources {
    /// An empty set.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// Keeps a text and gives its id.
    pub fn add(&mut self, path: PathBuf, bytes: Vec<u8>, kind: SourceKind) -> FileId {
        let id = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(Source::new(path, bytes, kind));
        FileId(id)
    }

    /// The text with this id; none for [`FileId::NONE`].
    pub fn get(&self, file: FileId) -> Option<&Source> {
        self.texts.get(file.0 as usize)
    }

    /// The id of the file that was read by this path.
    pub fn find(&self, path: &Path) -> Option<FileId> {
        let same = |text: &Source| text.kind == SourceKind::File && text.path == path;
        let index = self.texts.iter().position(same)?;
        u32::try_from(index).ok().map(FileId)
    }

    /// The files, without the command line, in the order of reading: what `-T` prints.
    pub fn files(&self) -> impl Iterator<Item = &Source> {
        let is_file = |text: &&Source| text.kind == SourceKind::File;
        self.texts.iter().filter(is_file)
    }

    /// Start of the span.
    pub fn place(&self, span: Span) -> Option<Place<'_>> {
        let source = self.get(span.file)?;
        let (line, start) = source.line_of(span.start);
        let until = (span.start as usize).min(source.bytes.len());
        let before = source.bytes.get(start as usize..until).unwrap_or_default();
        Some(Place {
            path: &source.path,
            line: line + 1,
            column: String::from_utf8_lossy(before).chars().count() + 1,
        })
    }

    /// Text in the file at the span.
    pub fn text(&self, span: Span) -> Option<Cow<'_, str>> {
        let bytes = &self.get(span.file)?.bytes;
        let range = span.start as usize..(span.end as usize).min(bytes.len());
        Some(String::from_utf8_lossy(bytes.get(range)?))
    }

    /// The whole line that the span starts in, without its end.
    pub fn line(&self, span: Span) -> Option<Cow<'_, str>> {
        let source = self.get(span.file)?;
        let (_, start) = source.line_of(span.start);
        let rest = source.bytes.get(start as usize..)?;
        let line = rest.split(|byte| *byte == b'\n').next()?;
        Some(String::from_utf8_lossy(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u32, end: u32) -> Span {
        Span {
            file: FileId(0),
            start,
            end,
        }
    }

    #[test]
    fn place_counts_lines_and_characters_from_one() {
        let mut sources = Sources::new();
        let text = "a;\n  ü b;\n".as_bytes().to_vec();
        sources.add("x.conf".into(), text, SourceKind::File);
        for (offset, line, column) in [(0, 1, 1), (3, 2, 1), (5, 2, 3), (8, 2, 5), (99, 3, 1)] {
            let place = sources.place(span(offset, offset)).expect("a file");
            assert_eq!((place.line, place.column), (line, column), "at {offset}");
        }
        assert_eq!(sources.line(span(5, 6)).as_deref(), Some("  ü b;"));
        assert_eq!(sources.place(Span::NONE), None);
    }

    #[test]
    fn command_line_is_not_among_the_files() {
        let mut sources = Sources::new();
        sources.add("-g".into(), Vec::new(), SourceKind::CommandLine);
        let id = sources.add("x.conf".into(), Vec::new(), SourceKind::File);
        assert_eq!(sources.files().count(), 1);
        assert_eq!(sources.find(Path::new("x.conf")), Some(id));
        assert_eq!(sources.find(Path::new("-g")), None);
    }

    #[test]
    fn part_of_a_word_is_exact_unless_it_was_escaped() {
        assert_eq!(span(10, 15).part(5, 1, 3), span(11, 13));
        assert_eq!(span(10, 17).part(5, 1, 3), span(12, 14));
        assert_eq!(span(10, 16).part(5, 1, 3), span(10, 16));
    }
}
