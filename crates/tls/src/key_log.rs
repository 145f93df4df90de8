//! Secrets of connections as lines, for those who look into their packets.
//!
//! A line is `LABEL CLIENT_RANDOM SECRET`, the last two in hexadecimal: the format SSLKEYLOGFILE,
//! which Wireshark reads (RFC 9850).

use std::fmt::{self, Write};
use std::sync::Arc;

use rustls::KeyLog;

/// Takes a line with its end.
type Sink = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A log of secrets.
pub struct KeyLogLines(Sink);

impl KeyLogLines {
    /// A log whose lines, each with its end, go to `sink`, which must not wait.
    pub fn new(sink: impl Fn(&[u8]) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(KeyLogLines(Box::new(sink)))
    }
}

impl KeyLog for KeyLogLines {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        (self.0)(line(label, client_random, secret).as_bytes());
    }
}

impl fmt::Debug for KeyLogLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyLogLines")
    }
}

fn line(label: &str, client_random: &[u8], secret: &[u8]) -> String {
    let mut line = label.to_owned();
    for bytes in [client_random, secret] {
        line.push(' ');
        for byte in bytes {
            // A string takes all that is written.
            let _ = write!(line, "{byte:02x}");
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_label_and_two_numbers() {
        let line = line("CLIENT_RANDOM", &[0, 0x1f], &[0xab]);
        assert_eq!(line, "CLIENT_RANDOM 001f ab\n");
    }
}
