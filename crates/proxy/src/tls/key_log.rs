//! `ssl_key_log`: secrets of connections, in a file for those who look into their packets.
//!
//! Files are opened and opened again as the other logs are.

use std::fmt;
use std::sync::Arc;

use millpond_conf::value::{FromWord, WordError};
use millpond_conf::{ParseContext, Word};
use millpond_system::log::file::LogFile;
use millpond_tls::KeyLogLines;

/// A file that secrets go to.
#[derive(Clone)]
pub struct KeyLogFile(Arc<LogFile>);

impl FromWord for KeyLogFile {
    const SYNTAX: &'static str = "path";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError> {
        Ok(KeyLogFile(LogFile::secret(&cx.prefix.join(&word.text))))
    }
}

/// The path: what blocks with equal lines have in common.
impl fmt::Debug for KeyLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.path(), f)
    }
}

impl KeyLogFile {
    /// The log that the file is to handshakes.
    pub fn lines(&self) -> Arc<KeyLogLines> {
        let file = Arc::clone(&self.0);
        KeyLogLines::new(move |line| file.write(line, 1))
    }
}
