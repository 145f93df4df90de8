//! `millpond cache sql "SELECT …"`: a question to the catalogue, answered as a table, as JSON or as
//! CSV.
//!
//! ```text
//! the process, or the zone at rest ──► a temporary database ──► the query ──► rows
//! --fleet: all nodes, asked by the process ───────────────────────┤
//! --from FILE: a database that `export --sqlite` wrote ───────────┘
//! ```
//!
//! 1. A query changes nothing: whatever is more than looking is refused when it is read.
//! 2. A temporary database has no name in any directory, so nothing is left of it.
//! 3. Rows go out as they come; only the first [`MEASURED`] of a table wait for its widths.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Rows};
use serde_json::Value;

use super::super::Outcome;
use super::super::access::Site;
use super::super::figures::plain;
use super::super::options::{Among, Format, Options};
use super::super::output::Output;
use super::nodes::{self, Nodes};
use super::{database, fill};
use crate::terminal::{self, Paint, Role};

/// Rows that the widths of a table's columns are made from.
const MEASURED: usize = 1000;
/// The widest column of a table; what is longer pushes the rest to the right.
const WIDEST: usize = 60;

/// Answers a query.
pub(in super::super) fn run(options: &Options) -> Result<Outcome> {
    let query = options.subject.as_deref().unwrap_or_default();
    let query = std::str::from_utf8(query).context("the query is no UTF-8")?;
    let (mut database, nodes) = match &options.from {
        Some(path) => (existing(path)?, Nodes::All),
        None => temporary(options)?,
    };
    answer(&mut database, query, options.format, Output::stdout())?;
    Ok(match nodes {
        Nodes::All => Outcome::Done,
        Nodes::Some => Outcome::Nothing,
    })
}

fn existing(path: &Path) -> Result<Connection> {
    let shown = path.display().to_string();
    let opened = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let database = opened.with_context(|| shown.clone())?;
    let version = database.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    let has_entries = "SELECT count(*) FROM sqlite_schema WHERE name = 'entries'";
    let has_entries = database.query_row(has_entries, [], |row| row.get::<_, i64>(0));
    match (version.with_context(|| shown.clone())?, has_entries?) {
        (version, _) if version > database::SCHEMA_VERSION => bail!(
            "{shown} has schema {version}, and this is {}",
            database::SCHEMA_VERSION
        ),
        (_, 0) => bail!("{shown} is no catalogue"),
        _ => Ok(database),
    }
}

/// Fills a database that SQLite itself removes.
fn temporary(options: &Options) -> Result<(Connection, Nodes)> {
    let site = Site::open(options)?;
    let database = Connection::open("").context("a temporary database")?;
    let nodes = match options.among {
        Among::All => fill(options, &site, &database).map(|_| Nodes::All)?,
        Among::OfFleets => nodes::fill(options, &site, &database)?,
    };
    Ok((database, nodes))
}

fn answer(database: &mut Connection, query: &str, format: Format, output: Output) -> Result<()> {
    // INVARIANT 1.
    database.authorizer(Some(may_look))?;
    let mut statements = rusqlite::Batch::new(database, query);
    let statement = statements.next().map_err(|error| wrong(&error, query))?;
    let Some(mut statement) = statement else {
        bail!("there is no query in that");
    };
    if !matches!(statements.next(), Ok(None)) {
        bail!("only one query is answered at a time");
    }
    let names = statement.column_names();
    let names: Vec<String> = names.into_iter().map(str::to_string).collect();
    let rows = statement.query([]).map_err(|error| wrong(&error, query))?;
    let mut printer = Printer {
        names,
        format,
        paint: terminal::stdout_paint(),
        output,
    };
    printer.print(rows, query)?;
    printer.output.end()
}

/// Authorizes the actions of queries that only read.
fn may_look(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Select
        | AuthAction::Read { .. }
        | AuthAction::Function { .. }
        | AuthAction::Recursive => Authorization::Allow,
        _ => Authorization::Deny,
    }
}

/// Error about a query, with its place.
fn wrong(error: &rusqlite::Error, query: &str) -> anyhow::Error {
    match error {
        rusqlite::Error::SqlInputError { msg, offset, .. } => {
            let Some(before) = usize::try_from(*offset).ok().and_then(|at| query.get(..at)) else {
                return anyhow!("{msg}");
            };
            let begin = before.rfind('\n').map_or(0, |at| at + 1);
            let line = query.get(begin..).unwrap_or_default();
            let line = plain(line.lines().next().unwrap_or_default());
            let blanks = before.get(begin..).unwrap_or_default().chars().count();
            anyhow!("{msg}\n    {line}\n    {}^", " ".repeat(blanks))
        }
        error
            if error.sqlite_error_code()
                == Some(rusqlite::ErrorCode::AuthorizationForStatementDenied) =>
        {
            anyhow!("only SELECT is answered: the catalogue is not changed, nor is anything else")
        }
        error => anyhow!("{error}"),
    }
}

struct Printer {
    names: Vec<String>,
    format: Format,
    paint: Paint,
    output: Output,
}

impl Printer {
    fn print(&mut self, mut rows: Rows<'_>, query: &str) -> Result<()> {
        if self.format == Format::Csv {
            let line: Vec<String> = self.names.iter().map(|name| quoted(name)).collect();
            self.output.line(&line.join(","))?;
        }
        let mut table = Table::new(&self.names);
        while let Some(row) = rows.next().map_err(|error| wrong(&error, query))? {
            let cells = (0..self.names.len()).map(|index| row.get_ref(index));
            let cells = cells.collect::<Result<Vec<ValueRef<'_>>, _>>()?;
            match self.format {
                Format::Json => {
                    let line = object(&self.names, &cells)?;
                    self.output.line(&line)?;
                }
                Format::Csv => {
                    let line: Vec<String> = cells.iter().map(|cell| quoted(&csv(cell))).collect();
                    self.output.line(&line.join(","))?;
                }
                Format::Text => {
                    table.push(cells.iter().map(Cell::of).collect());
                    if table.rows.len() >= MEASURED {
                        table.flush(&mut self.output, self.paint)?;
                    }
                }
            }
        }
        match self.format {
            Format::Text => table.flush(&mut self.output, self.paint),
            _ => Ok(()),
        }
    }
}

/// A cell of a table.
struct Cell {
    text: String,
    is_number: bool,
}

impl Cell {
    fn of(value: &ValueRef<'_>) -> Cell {
        let is_number = matches!(value, ValueRef::Integer(_) | ValueRef::Real(_));
        let text = match value {
            ValueRef::Null => "NULL".to_string(),
            other => plain(&csv(other)),
        };
        Cell { text, is_number }
    }
}

/// Rows whose columns are as wide as they must be.
struct Table {
    names: Vec<String>,
    /// None until the first rows are measured.
    widths: Option<Vec<usize>>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    fn new(names: &[String]) -> Table {
        Table {
            names: names.iter().map(|name| plain(name)).collect(),
            widths: None,
            rows: Vec::new(),
        }
    }

    fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    fn flush(&mut self, output: &mut Output, paint: Paint) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let widths = match self.widths.take() {
            Some(widths) => widths,
            None => {
                let widths = measure(&self.names, &rows);
                let heading = self.names.iter().enumerate().map(|(index, name)| Cell {
                    text: name.clone(),
                    is_number: rows
                        .first()
                        .and_then(|row| row.get(index))
                        .is_some_and(|cell| cell.is_number),
                });
                let heading: Vec<Cell> = heading.collect();
                output.line(&paint.paint(Role::Title, &joined(&heading, &widths)))?;
                widths
            }
        };
        for row in &rows {
            output.line(&joined(row, &widths))?;
        }
        self.widths = Some(widths);
        Ok(())
    }
}

fn measure(names: &[String], rows: &[Vec<Cell>]) -> Vec<usize> {
    let widest = |(index, name): (usize, &String)| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        let widths = cells.map(|cell| cell.text.chars().count());
        let widest = widths.chain([name.chars().count()]).max();
        widest.unwrap_or(0).min(WIDEST)
    };
    names.iter().enumerate().map(widest).collect()
}

fn joined(cells: &[Cell], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        if !line.is_empty() {
            line.push_str("  ");
        }
        if cell.is_number {
            line.push_str(&format!("{:>width$}", cell.text));
        } else {
            line.push_str(&format!("{:<width$}", cell.text));
        }
    }
    line.truncate(line.trim_end().len());
    line
}

fn csv(value: &ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// RFC 4180 section 2: what has a comma, a quote or a line's end in it stands in quotes.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

fn object(names: &[String], cells: &[ValueRef<'_>]) -> Result<String> {
    let mut line = String::from("{");
    for (index, (name, cell)) in names.iter().zip(cells).enumerate() {
        if index > 0 {
            line.push(',');
        }
        let value = match cell {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::from(*number),
            ValueRef::Real(number) => Value::from(*number),
            other => Value::from(csv(other)),
        };
        line.push_str(&serde_json::to_string(name)?);
        line.push(':');
        line.push_str(&value.to_string());
    }
    line.push('}');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::super::database::tests::filled;
    use super::*;

    fn said(query: &str, format: Format) -> Result<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let output = Output::file(file.path()).unwrap();
        answer(&mut filled(), query, format, output)?;
        Ok(std::fs::read_to_string(file.path()).unwrap())
    }

    #[test]
    fn rows_are_tables_json_and_csv() {
        let query = "SELECT key, held, NULL AS \"a,b\", 'x\"y' AS t FROM entries
                     WHERE held < 3000 ORDER BY key";
        for (format, expected) in [
            (
                Format::Text,
                "key  held  a,b   t\n/a   1000  NULL  x\"y\n/b   2000  NULL  x\"y\n",
            ),
            (
                Format::Json,
                "{\"key\":\"/a\",\"held\":1000,\"a,b\":null,\"t\":\"x\\\"y\"}\n\
                 {\"key\":\"/b\",\"held\":2000,\"a,b\":null,\"t\":\"x\\\"y\"}\n",
            ),
            (
                Format::Csv,
                "key,held,\"a,b\",t\n/a,1000,,\"x\"\"y\"\n/b,2000,,\"x\"\"y\"\n",
            ),
        ] {
            assert_eq!(said(query, format).unwrap(), expected);
        }
        let empty = said("SELECT key FROM entries WHERE 0", Format::Text);
        assert_eq!(empty.unwrap(), "key\n");
        let bad = said("SELECT char(27) || '[2J' AS k", Format::Text);
        assert_eq!(bad.unwrap(), "k\n\\u{1b}[2J\n");
    }

    #[test]
    fn a_long_table_keeps_its_columns() {
        let query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
                     SELECT i, 'x' AS x FROM n";
        let said = said(query, Format::Text).unwrap();
        assert_eq!(said.lines().count(), 2501);
        assert_eq!(said.lines().last(), Some("2500  x"));
    }

    #[test]
    fn a_query_changes_nothing() {
        for query in [
            "DELETE FROM entries",
            "UPDATE entries SET held = 0",
            "INSERT INTO tags VALUES (1, 'x')",
            "DROP TABLE entries",
            "CREATE TABLE x (y)",
            "CREATE TEMP TABLE x (y)",
            "ATTACH '/tmp/x' AS x",
            "VACUUM INTO '/tmp/x'",
            "PRAGMA query_only = 0",
            "PRAGMA journal_mode = WAL",
            "BEGIN",
        ] {
            let refused = said(query, Format::Text).unwrap_err().to_string();
            assert!(refused.contains("only SELECT"), "{query}: {refused}");
        }
        for (query, expected) in [
            ("", "no query"),
            ("SELECT 1; SELECT 2", "only one"),
            ("SELECT 1; DELETE FROM tags", "only one"),
            (
                "SELECT colour FROM entries",
                "no such column: colour\n    SELECT colour FROM entries\n           ^",
            ),
            ("SELECT 1\nFROM nowhere", "no such table: nowhere"),
            ("SELEKT 1", "syntax error\n    SELEKT 1\n    ^"),
        ] {
            let refused = said(query, Format::Text).unwrap_err().to_string();
            assert!(refused.contains(expected), "{query}: {refused}");
        }
        assert_eq!(said("SELECT 1 AS a;", Format::Csv).unwrap(), "a\n1\n");
    }
}
