//! The command line of `millpond explain`.
//!
//! One thing is asked at a time; a second one is a mistake. Options that nobody knows are, too, so
//! that a slip of the pen is not taken for a name.

/// Subject that is to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A directive, variable, code or status.
    Name(String),
    /// A document of the manual, for `cargo xtask docs`.
    Reference(String),
    /// A request.
    Request(RequestOptions),
}

/// A request and the configuration that it meets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestOptions {
    /// The main file.
    pub(super) file: String,
    /// Directory that relative paths start at.
    pub(super) prefix: Option<String>,
    /// URL that is asked for.
    pub(super) url: String,
    /// Method of the request; GET unless it is named.
    pub(super) method: Option<String>,
    /// Fields of the request.
    pub(super) fields: Vec<(String, String)>,
    /// The answer of the origin: its status and its fields.
    pub(super) answer: Option<(u16, Vec<(String, String)>)>,
}

/// A command line that is wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionError {
    /// Nothing is asked.
    #[error("nothing to explain")]
    Nothing,
    /// The word is not an option, or is one too many.
    #[error("invalid option: \"{0}\"")]
    Invalid(String),
    /// An option without its value.
    #[error("option \"{0}\" requires a value")]
    Missing(String),
    /// No `Name: value`.
    #[error("\"{0}\" is no field: write 'Name: value'")]
    Field(String),
    /// No status and fields.
    #[error("\"{0}\" is no answer: write 'HTTP/1.1 200; Name: value; …'")]
    Answer(String),
}

/// Reads the words behind `explain`.
pub(super) fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked, OptionError> {
    let mut request = RequestOptions::default();
    let mut file = None;
    let mut reference = None;
    let mut names = Vec::new();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(OptionError::Missing(word.clone()));
        match word.as_str() {
            "--reference" => reference = Some(value()?),
            "-c" => file = Some(value()?),
            "-p" => request.prefix = Some(value()?),
            "-X" => request.method = Some(value()?),
            "-H" => request.fields.push(field(&value()?)?),
            "--answer" => request.answer = Some(answer(&value()?)?),
            option if option.starts_with('-') => return Err(OptionError::Invalid(word)),
            _ => names.push(word),
        }
    }
    if names.len() > 1 {
        return Err(OptionError::Invalid(names.swap_remove(1)));
    }
    let name = names.pop();
    match (reference, file, name) {
        (Some(document), None, None) => Ok(Asked::Reference(document)),
        (None, Some(file), Some(url)) => Ok(Asked::Request(RequestOptions {
            file,
            url,
            ..request
        })),
        (None, None, Some(name)) if request == RequestOptions::default() => Ok(Asked::Name(name)),
        (None, None, Some(_)) => Err(OptionError::Missing("-c".to_string())),
        _ => Err(OptionError::Nothing),
    }
}

fn field(text: &str) -> Result<(String, String), OptionError> {
    let error = || OptionError::Field(text.to_string());
    let (name, value) = text.split_once(':').ok_or_else(error)?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    let has_break = value.contains(['\r', '\n']);
    if is_name && !has_break {
        Ok((name.to_string(), value.trim().to_string()))
    } else {
        Err(error())
    }
}

/// `HTTP/1.1 200 OK; Cache-Control: max-age=60; …`, with or without the version; lines may also be
/// apart by line ends.
fn answer(text: &str) -> Result<(u16, Vec<(String, String)>), OptionError> {
    let error = || OptionError::Answer(text.to_string());
    let mut lines = text.split([';', '\n']).map(str::trim);
    let first = lines.next().unwrap_or_default();
    let mut words = first.split_ascii_whitespace();
    let word = words.next().ok_or_else(error)?;
    let status = if word.starts_with("HTTP/") {
        words.next().ok_or_else(error)?
    } else {
        word
    };
    let status = status.parse().map_err(|_| error())?;
    let fields = lines.filter(|line| !line.is_empty()).map(field);
    let fields: Result<Vec<_>, _> = fields.collect();
    Ok((status, fields.map_err(|_| error())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Asked, OptionError> {
        parse(words.iter().map(|word| word.to_string()))
    }

    #[test]
    fn one_thing_is_asked_at_a_time() {
        assert_eq!(parsed(&["gzip"]), Ok(Asked::Name("gzip".to_string())));
        for words in [
            &[][..],
            &["a", "b"],
            &["-x"],
            &["--reference"],
            &["-c", "x"],
            &["-H", "A: b", "/"],
            &["-c", "x", "/", "-H", "no field"],
            &["-c", "x", "/", "-H", "A: b\r\nC: d"],
            &["-c", "x", "/", "--answer", ""],
            &["-c", "x", "/", "--answer", "HTTP/1.1"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn answers_are_a_status_and_fields() {
        let fields = |fields: &[(&str, &str)]| {
            let owned = fields
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()));
            owned.collect::<Vec<_>>()
        };
        for (text, status, expected) in [
            ("200", 200, fields(&[])),
            ("HTTP/1.1 404 Not Found", 404, fields(&[])),
            (
                "HTTP/1.1 200; Cache-Control: max-age=60, public; Vary: Accept;",
                200,
                fields(&[("Cache-Control", "max-age=60, public"), ("Vary", "Accept")]),
            ),
        ] {
            assert_eq!(answer(text), Ok((status, expected)), "{text}");
        }
    }
}
