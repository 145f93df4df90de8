//! The body of a request, as those see it who want it.
//!
//! A wire brings it, and `request_body.rs` collects it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_system::temp_file::TempFile;

/// Statement of whether there is more of a body than was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// That was all.
    Nothing,
    /// More is to come.
    More,
}

/// A request's body as its handlers see it.
#[derive(Clone, Debug, Default)]
pub enum RequestBody {
    /// There is none.
    #[default]
    None,
    /// The body is (still) on the connection.
    Unread {
        /// Length of the body, when it was announced.
        length: Option<u64>,
    },
    /// Collected in memory.
    Memory(Bytes),
    /// Collected in a file.
    File(Rc<BodyFile>),
}

/// A collected body in a file; removed with its last user unless it is to stay.
#[derive(Debug)]
pub struct BodyFile {
    /// The open file.
    pub file: Arc<File>,
    /// Path of the file.
    pub path: PathBuf,
    /// Bytes.
    pub len: u64,
    /// Removes it.
    pub _temp: TempFile,
}

impl RequestBody {
    /// The bytes of a collected body, from its file if it is in one; none if there is no body, or
    /// it was not collected. One that is longer than `most` is an error.
    pub fn bytes(&self, most: usize) -> io::Result<Option<Bytes>> {
        match self {
            RequestBody::None | RequestBody::Unread { .. } => Ok(None),
            RequestBody::Memory(bytes) => Ok(Some(bytes.clone())),
            RequestBody::File(file) => {
                let fitting = usize::try_from(file.len).ok().filter(|len| *len <= most);
                let len = fitting.ok_or(io::ErrorKind::FileTooLarge)?;
                let mut bytes = vec![0; len];
                file.file.read_exact_at(&mut bytes, 0)?;
                Ok(Some(Bytes::from(bytes)))
            }
        }
    }

    /// No body.
    pub fn none() -> Self {
        RequestBody::None
    }

    /// The body for a background copy: what is collected is shared, what is not is left out.
    pub fn share(&self) -> Self {
        match self {
            RequestBody::Unread { .. } => RequestBody::None,
            collected => collected.clone(),
        }
    }

    /// The bytes of a body that was read into memory.
    pub fn memory(&self) -> Option<&Bytes> {
        match self {
            RequestBody::Memory(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The file of a body that was read into one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            RequestBody::File(file) => Some(&file.path),
            _ => None,
        }
    }

    /// Length, when known.
    pub fn len(&self) -> Option<u64> {
        match self {
            RequestBody::None => Some(0),
            RequestBody::Unread { length } => *length,
            RequestBody::Memory(bytes) => Some(bytes.len() as u64),
            RequestBody::File(file) => Some(file.len),
        }
    }

    /// True when there is no body, or an empty one.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}
