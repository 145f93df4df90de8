//! `on | off`.
//!
//! As in nginx, the case of the letters does not matter.

use crate::context::ParseContext;
use crate::tree::Word;
use crate::value::{FromWord, WordError};

impl FromWord for bool {
    const SYNTAX: &'static str = "on | off";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<bool, WordError> {
        if word.text.eq_ignore_ascii_case("on") {
            Ok(true)
        } else if word.text.eq_ignore_ascii_case("off") {
            Ok(false)
        } else {
            let known = vec!["on", "off"];
            Err(WordError::Unknown { known })
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::value::{ArgError, WordError, read};

    #[test]
    fn on_and_off_and_nothing_else() {
        for (text, expected) in [
            ("on", true),
            ("off", false),
            ("ON", true),
            ("\"off\"", false),
        ] {
            assert_eq!(read::<bool>(text), Ok(expected), "{text}");
        }
        for text in ["yes", "1", "\"\"", "on;"] {
            let known = vec!["on", "off"];
            let error = WordError::Unknown { known };
            let expected = match text {
                "on;" => Ok(true),
                _ => Err(error.at(0)),
            };
            assert_eq!(read::<bool>(text), expected, "{text}");
        }
        assert_eq!(read::<bool>(""), Err(ArgError::Count));
        assert_eq!(read::<bool>("on off"), Err(ArgError::Count));
    }
}
