//! Resource that is asked for: a path that says how long its body is.
//!
//! The last segment of a path ends in `-SIZE`, perhaps with a suffix: `/shop/video-1048576.mp4`. So
//! an origin needs no list of what it has, and a client knows what it must get.

use crate::content::Content;

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    path: String,
    len: u64,
}

impl Resource {
    /// `/DIRECTORY/NAME-LEN.bin`.
    pub fn new(directory: &str, name: impl std::fmt::Display, len: u64) -> Self {
        Self {
            path: format!("/{directory}/{name}-{len}.bin"),
            len,
        }
    }

    /// One of an origin that is not the gauge's.
    pub fn given(path: &str, len: u64) -> Self {
        Self {
            path: path.to_owned(),
            len,
        }
    }

    /// Resource that a path names; none if it says no length.
    pub fn of_path(path: &str) -> Option<Self> {
        let last = path.rsplit('/').next()?;
        let stem = last.split('.').next()?;
        let (_, len) = stem.rsplit_once('-')?;
        let is_number = !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self {
            path: path.to_owned(),
            len: len.parse().ok().filter(|_| is_number)?,
        })
    }

    /// Path of the resource.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Length of the resource's body.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Content of the body in a generation.
    pub fn content(&self, generation: u64) -> Content {
        Content::new(&self.path, generation, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_how_long_its_body_is() {
        for (path, len) in [
            ("/a-1", Some(1)),
            ("/dir-5/name-1048576.bin", Some(1 << 20)),
            ("/a-b-7.tar.gz", Some(7)),
            ("/a-", None),
            ("/a-+1", None),
            ("/a", None),
            ("/dir-5/", None),
            ("/a-99999999999999999999999", None),
        ] {
            assert_eq!(
                Resource::of_path(path).map(|resource| resource.len()),
                len,
                "{path}"
            );
        }
        let resource = Resource::new("zipf", 3, 10);
        assert_eq!(Resource::of_path(resource.path()), Some(resource));
    }
}
