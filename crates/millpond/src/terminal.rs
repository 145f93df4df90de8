//! Abilities of a terminal: whether colours may be used, and text that is broken into lines.
//!
//! Colours are used on a terminal only, and not there either when `NO_COLOR` is set to anything.

use std::io::IsTerminal;

use millpond_conf::Style;

/// The widest line, so that a usual terminal breaks none.
pub(crate) const WIDTH: usize = 79;

/// Style of findings on the standard error stream.
pub(crate) fn stderr_style() -> Style {
    if std::io::stderr().is_terminal() && may_colour() {
        Style::Fancy
    } else {
        Style::Plain
    }
}

/// Paint of text on the standard output.
pub(crate) fn stdout_paint() -> Paint {
    if std::io::stdout().is_terminal() && may_colour() {
        Paint::Colours
    } else {
        Paint::Plain
    }
}

/// True if somebody looks at the standard output.
pub(crate) fn is_stdout_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Letters in a line of the terminal that the standard output is; none if it is no terminal.
pub(crate) fn stdout_width() -> Option<usize> {
    is_stdout_terminal().then(|| match ratatui::crossterm::terminal::size() {
        Ok((width, _)) if width > 0 => usize::from(width),
        // It does not say.
        _ => WIDTH,
    })
}

/// True if colours may be used on a terminal.
pub(crate) fn may_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Choice of text with colours or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// None.
    Plain,
    /// The usual ones of a terminal.
    Colours,
}

/// Role of a piece of text, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A heading, or the name that was asked for.
    Title,
    /// Something good.
    Good,
    /// Something to look at.
    Doubtful,
    /// Something wrong.
    Bad,
    /// Text that matters less than the rest.
    Faint,
}

impl Paint {
    /// The text in the colour of its role.
    pub(crate) fn paint(self, role: Role, text: &str) -> String {
        let code = match role {
            Role::Title => "1",
            Role::Good => "32",
            Role::Doubtful => "33",
            Role::Bad => "31",
            Role::Faint => "2",
        };
        match self {
            Paint::Plain => text.to_string(),
            Paint::Colours => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }
}

/// The text in lines of at most [`WIDTH`] characters, each behind so many spaces; paragraphs stay
/// apart. A longer word has a line of its own.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let margin = " ".repeat(indent);
    for (index, paragraph) in text.split("\n\n").enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let mut column = 0;
        for word in paragraph.split_ascii_whitespace() {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > WIDTH {
                out.push('\n');
                column = 0;
            }
            if column == 0 {
                out.push_str(&margin);
                column = indent;
            } else {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_a_terminal_unless_a_word_is() {
        let long = "x".repeat(100);
        let text = format!("{} {long} {}\n\nnext", "word ".repeat(40), "a b");
        let lines = wrapped(&text, 4);
        for line in lines.lines() {
            let is_narrow = line.chars().count() <= WIDTH;
            assert!(is_narrow || line.trim() == long, "{line}");
            assert!(line.is_empty() || line.starts_with("    "), "{line}");
        }
        assert!(lines.ends_with("\n\n    next\n"), "{lines}");
    }

    #[test]
    fn plain_text_has_no_colours() {
        assert_eq!(Paint::Plain.paint(Role::Bad, "x"), "x");
        assert_eq!(Paint::Colours.paint(Role::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
