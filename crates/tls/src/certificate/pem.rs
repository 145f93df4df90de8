//! Blocks of PEM in a text, found as OpenSSL finds them.
//!
//! A block begins with a line `-----BEGIN LABEL-----`, whatever stands before it, and goes to the
//! line `-----END LABEL-----` or, if there is none, to the end of the text. Blocks with other
//! labels are skipped. What is inside is not looked at: that is OpenSSL's, and so are the errors.

/// A block, and the label that it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// The label of its first line.
    pub label: &'a [u8],
    /// The lines between the first and the last.
    pub body: &'a [u8],
    /// The last line, if there is one.
    pub end: &'a [u8],
}

/// The blocks of a text, in order.
#[derive(Clone, Debug)]
pub(crate) struct Blocks<'a> {
    rest: &'a [u8],
}

impl<'a> Blocks<'a> {
    /// The blocks of a text.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    fn next_line(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let (line, rest) = self
            .rest
            .split_at(end.map_or(self.rest.len(), |end| end + 1));
        self.rest = rest;
        Some(line)
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Block<'a>;

    fn next(&mut self) -> Option<Block<'a>> {
        let label = loop {
            if let Some(label) = label_of(self.next_line()?, b"-----BEGIN ") {
                break label;
            }
        };
        let start = self.rest;
        loop {
            let before = self.rest;
            let Some(line) = self.next_line() else {
                return Some(Block {
                    label,
                    body: start,
                    end: &[],
                });
            };
            if line.starts_with(b"-----END ") {
                let len = start.len() - before.len();
                return Some(Block {
                    label,
                    body: start.get(..len)?,
                    end: line,
                });
            }
        }
    }
}

impl Block<'_> {
    /// The block under another label: what OpenSSL reads as a trusted certificate has a suffix that
    /// it leaves out when it reads a certificate.
    pub(crate) fn relabelled(&self, label: &str) -> Vec<u8> {
        let begin = format!("-----BEGIN {label}-----\n");
        // An end that does not fit its beginning stays one.
        let end = if label_of(self.end, b"-----END ") == Some(self.label) {
            format!("-----END {label}-----\n").into_bytes()
        } else {
            self.end.to_vec()
        };
        [begin.as_bytes(), self.body, &end].concat()
    }
}

/// The label of a line that begins so and ends with five dashes.
fn label_of<'a>(line: &'a [u8], begin: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(begin)?
        .trim_ascii_end()
        .strip_suffix(b"-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_stand_between_other_lines() {
        let text = b"x\n-----BEGIN A B-----\r\nMA\n==\n-----END A B-----\ny\n-----BEGIN C-----\nQ";
        let blocks: Vec<_> = Blocks::new(text).collect();
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[0].label, b"A B");
        assert_eq!(
            blocks[0].relabelled("D"),
            b"-----BEGIN D-----\nMA\n==\n-----END D-----\n"
        );
        assert_eq!(blocks[1].relabelled("D"), b"-----BEGIN D-----\nQ");
    }

    #[test]
    fn an_end_of_another_label_stays() {
        let text = b"-----BEGIN A-----\nQ\n-----END B-----\n";
        let block = Blocks::new(text).next().unwrap();
        assert_eq!(
            block.relabelled("D"),
            b"-----BEGIN D-----\nQ\n-----END B-----\n"
        );
    }
}
