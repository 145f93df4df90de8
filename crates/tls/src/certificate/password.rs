//! `ssl_password_file`: passwords of keys, one in each line.
//!
//! Empty lines are skipped, and so is a carriage return before a line feed. Passwords are wiped
//! when they are dropped.

use zeroize::Zeroizing;

/// The longest line, as in nginx (`NGX_SSL_PASSWORD_BUFFER_SIZE`).
const MAX_LINE_BYTES: usize = 4096;

/// A password.
pub type Password = Zeroizing<Vec<u8>>;

/// A line that is longer than a password may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too long line")]
pub struct TooLongLine;

/// The passwords of a file; one that is empty, if there is none.
pub fn passwords(text: &[u8]) -> Result<Vec<Password>, TooLongLine> {
    let mut passwords = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        if line.len() >= MAX_LINE_BYTES {
            return Err(TooLongLine);
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.is_empty() {
            passwords.push(Zeroizing::new(line.to_vec()));
        }
    }
    if passwords.is_empty() {
        passwords.push(Zeroizing::new(Vec::new()));
    }
    Ok(passwords)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_password() {
        for (text, expected) in [
            (&b"a\r\n\nb c\nlast"[..], &[&b"a"[..], b"b c", b"last"][..]),
            (b"", &[b""]),
            (b"\n\r\n", &[b""]),
        ] {
            let found = passwords(text).unwrap();
            assert!(
                found
                    .iter()
                    .map(|password| &password[..])
                    .eq(expected.iter().copied())
            );
        }
    }

    #[test]
    fn a_line_has_a_longest_length() {
        assert!(passwords(&[b'x'; MAX_LINE_BYTES - 1]).is_ok());
        assert_eq!(passwords(&[b'x'; MAX_LINE_BYTES]), Err(TooLongLine));
    }
}
