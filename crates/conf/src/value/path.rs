//! Paths: relative ones start at the prefix, or at the directory of the configuration.
//!
//! Nothing is opened and nothing needs to exist. In nginx it depends on the directive where a
//! relative path starts: logs and caches at the prefix (`PathBuf`), certificates and password
//! files at the configuration's directory ([`ConfPath`]).

use std::path::PathBuf;

use crate::context::ParseContext;
use crate::tree::Word;
use crate::value::{FromWord, WordError};

impl FromWord for PathBuf {
    const SYNTAX: &'static str = "path";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<PathBuf, WordError> {
        checked(word).map(|text| cx.prefix.join(text))
    }
}

/// A path that starts at the directory of the main configuration file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConfPath(pub PathBuf);

impl FromWord for ConfPath {
    const SYNTAX: &'static str = "file";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<ConfPath, WordError> {
        checked(word).map(|text| ConfPath(cx.conf_dir.join(text)))
    }
}

/// Checks that a path has no zero byte, which no system call takes.
fn checked(word: &Word) -> Result<&str, WordError> {
    if word.text.contains('\0') {
        Err(WordError::Invalid)
    } else {
        Ok(&word.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{ArgError, read};

    #[test]
    fn relative_paths_start_where_the_type_says() {
        assert_eq!(read("logs/a.log"), Ok(PathBuf::from("/prefix/logs/a.log")));
        assert_eq!(read("/var/a.log"), Ok(PathBuf::from("/var/a.log")));
        assert_eq!(read("a.pem"), Ok(ConfPath("/conf/a.pem".into())));
        assert_eq!(read("/etc/a.pem"), Ok(ConfPath("/etc/a.pem".into())));
        assert_eq!(read::<PathBuf>("a b"), Err(ArgError::Count));
        assert_eq!(read::<PathBuf>("a\0b"), Err(WordError::Invalid.at(0)));
    }
}
