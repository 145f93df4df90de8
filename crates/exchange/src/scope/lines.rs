//! Lines of a block that is one thing and no level: `otel_exporter {}`, `fleet {}`.
//!
//! Such lines have no rows: the block reads them into fields of its own, each of which stands once.

use millpond_conf::tree::Statement;

use super::build::Builder;

/// A line of a block.
pub struct Line<'a> {
    /// The name of the block's directive.
    block: &'static str,
    /// The first word.
    pub name: &'a str,
    /// The words behind it.
    pub words: Vec<&'a str>,
}

/// Has a block obey its lines, and reports those that it does not; true if there are none.
pub fn read(
    builder: &mut Builder,
    block: &Statement,
    name: &'static str,
    mut obey: impl FnMut(&Line<'_>) -> Result<(), String>,
) -> bool {
    let mut is_right = true;
    for statement in block.body.as_deref().unwrap_or_default() {
        let line = Line {
            block: name,
            name: &statement.name.text,
            words: statement.args.iter().map(|it| it.text.as_str()).collect(),
        };
        let obeyed = match &statement.body {
            Some(_) => Err(format!(
                "directive \"{}\" is not terminated by \";\"",
                line.name
            )),
            None => obey(&line),
        };
        if let Err(message) = obeyed {
            is_right = false;
            builder.error(statement.span, message);
        }
    }
    is_right
}

impl<'a> Line<'a> {
    /// The only word.
    pub fn word(&self) -> Result<&'a str, String> {
        match self.words.as_slice() {
            [word] => Ok(word),
            _ => Err(self.miscounted()),
        }
    }

    /// Keeps a value that was not there; none is an invalid one.
    pub fn keep<T>(&self, place: &mut Option<T>, value: Option<T>) -> Result<(), String> {
        if place.is_some() {
            return Err(self.wrong("is duplicate"));
        }
        let value = value.ok_or_else(|| self.wrong("has an invalid value"))?;
        *place = Some(value);
        Ok(())
    }

    /// A mistake in the line.
    pub fn wrong(&self, why: &str) -> String {
        format!("\"{}\" directive of \"{}\" {why}", self.name, self.block)
    }

    /// The mistake of too many words, or too few.
    pub fn miscounted(&self) -> String {
        format!(
            "invalid number of arguments in \"{}\" directive of \"{}\"",
            self.name, self.block
        )
    }

    /// The mistake of a name that the block does not know.
    pub fn unknown(&self) -> String {
        format!("unknown directive \"{}\" in \"{}\"", self.name, self.block)
    }
}
