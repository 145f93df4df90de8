//! Codes: short names of kinds of findings, for manuals, for programs, and to silence a warning.
//!
//! A finding has a code when there is more to say about its kind than its own message says.
//! `millpond explain CODE` prints the text; a comment `# millpond: allow(CODE)` in the line before
//! a warning silences it.
//!
//! The kinds that this crate finds stand here; who uses the crate has further tables.

/// A kind of findings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// The name, in small letters with underscores.
    pub name: &'static str,
    /// Manual text of the finding: its meaning, what happens, and what to write instead.
    pub doc: &'static str,
}

/// Prefix of a code's name where it is written in full.
pub const PREFIX: &str = "millpond::conf::";

/// The text does not follow the grammar of the language.
pub const SYNTAX: Code = Code {
    name: "syntax",
    doc: "The text cannot be cut into directives. A directive ends in \";\" or has a block in \
          braces; a word with spaces, braces or semicolons stands in quotes. The place that is \
          shown is where the reading stopped; the mistake is often in the line before.",
};
/// The text ends in the middle of something.
pub const UNEXPECTED_END: Code = Code {
    name: "unexpected_end",
    doc: "The file ends inside a block, a directive or a quoted word. The second place that is \
          shown is where that began: a \"}\", a \";\" or a quote is missing somewhere behind it.",
};
/// Blocks or files are nested too deep, or there are too many.
pub const TOO_MUCH: Code = Code {
    name: "too_much",
    doc: "A limit of the language is reached: depth of blocks, depth or number of included \
          files, or the length of a word. The limits are far above what people write; a file \
          that includes itself in a round-about way gets there.",
};
/// A word is not UTF-8.
pub const INVALID_UTF8: Code = Code {
    name: "invalid_utf8",
    doc: "A word holds bytes that are not UTF-8. Comments may hold any bytes; for everything else \
          save the file as UTF-8.",
};
/// A file cannot be read.
pub const MISSING_FILE: Code = Code {
    name: "missing_file",
    doc: "A file that the configuration names cannot be read. Relative paths of \"include\" start \
          at the directory of the main file, those of most other directives at the prefix (-p). A \
          pattern that matches nothing is no mistake, a plain name of nothing is one.",
};
/// A file includes itself.
pub const INCLUDE_CYCLE: Code = Code {
    name: "include_cycle",
    doc: "A file includes itself, directly or through others. It is read once and not again.",
};
/// Nobody knows the directive.
pub const UNKNOWN_DIRECTIVE: Code = Code {
    name: "unknown_directive",
    doc: "No directive has this name, neither in Millpond nor in nginx 1.31 and its modules: it is \
          misspelt, or it belongs to a module that others wrote (Lua, brotli, headers-more …). \
          Nothing is ignored, so the configuration is refused.",
};
/// The directive is nginx's and not supported.
pub const UNSUPPORTED_DIRECTIVE: Code = Code {
    name: "unsupported_directive",
    doc: "The directive is one of nginx's that would change answers and that Millpond does not \
          have. The configuration is refused, because it would not mean the same without it. The \
          help says what to do instead, where there is something.",
};
/// The directive is accepted and does nothing.
pub const NO_EFFECT: Code = Code {
    name: "no_effect",
    doc: "The directive is accepted and does nothing, because what it adjusts in nginx does not \
          exist in Millpond. No answer changes. The line may stay or go.",
};
/// The directive stands in the wrong block.
pub const MISPLACED_DIRECTIVE: Code = Code {
    name: "misplaced_directive",
    doc: "The directive exists, but not in this kind of block. The help names the blocks that it \
          belongs into. Often a brace before it is missing or superfluous.",
};
/// The directive stands twice in one block.
pub const DUPLICATE_DIRECTIVE: Code = Code {
    name: "duplicate_directive",
    doc: "The directive may stand once in a block and stands there twice, possibly in an included \
          file. Both places are shown; keep one of them.",
};
/// The directive is one of older versions.
pub const OBSOLETE_DIRECTIVE: Code = Code {
    name: "obsolete_directive",
    doc: "The directive is obeyed, and newer versions of nginx have it no more. The message says \
          what took its place.",
};
/// A block where none belongs, or none where one belongs.
pub const BLOCK_EXPECTED: Code = Code {
    name: "block_expected",
    doc: "The directive has a block in braces although it takes none, or has none although it \
          needs one. A missing \";\" in the line before looks like this, too.",
};
/// A block that every configuration has is not there.
pub const MISSING_BLOCK: Code = Code {
    name: "missing_block",
    doc: "Every configuration has an \"events\" block, even an empty one. Without it the file is \
          probably empty, or not the one that was meant.",
};
/// There are too many or too few arguments.
pub const ARGUMENT_COUNT: Code = Code {
    name: "argument_count",
    doc: "There are too many or too few words behind the name. The help shows the syntax. A \
          missing \";\" at the end makes the next line part of this one; a value with spaces \
          needs quotes.",
};
/// An argument is not what it must be.
pub const INVALID_VALUE: Code = Code {
    name: "invalid_value",
    doc: "A word is not of the kind that the directive takes there: a number, a size (512, 8k, \
          10m), a time (30s, 10m, 1h, 1d), or one of some words. The help shows the syntax.",
};

/// The codes of this crate.
pub const ALL: &[Code] = &[
    SYNTAX,
    UNEXPECTED_END,
    TOO_MUCH,
    INVALID_UTF8,
    MISSING_FILE,
    INCLUDE_CYCLE,
    UNKNOWN_DIRECTIVE,
    UNSUPPORTED_DIRECTIVE,
    NO_EFFECT,
    MISPLACED_DIRECTIVE,
    DUPLICATE_DIRECTIVE,
    OBSOLETE_DIRECTIVE,
    BLOCK_EXPECTED,
    MISSING_BLOCK,
    ARGUMENT_COUNT,
    INVALID_VALUE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_words_with_sentences() {
        for (index, code) in ALL.iter().enumerate() {
            let mut others = ALL.iter().skip(index + 1);
            assert!(others.all(|other| other.name != code.name), "{}", code.name);
            let is_word = |byte: u8| byte.is_ascii_lowercase() || b"_8".contains(&byte);
            assert!(code.name.bytes().all(is_word), "{}", code.name);
            assert!(code.doc.ends_with('.'), "{}", code.name);
        }
    }
}
