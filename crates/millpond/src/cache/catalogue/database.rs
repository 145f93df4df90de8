//! An SQLite database that is filled with entries.
//!
//! The schema is `schema.sql`, and `docs/catalogue.md` tells what it means; its number is
//! [`SCHEMA_VERSION`], in `PRAGMA user_version`.
//!
//! 1. There is no journal: a database that is not filled to its end is thrown away by its maker.
//! 2. What is in memory does not grow with the catalogue: a transaction ends after
//!    [`TRANSACTION_ENTRIES`].
//! 3. Only this tool knows of SQLite; what serves requests does not.

use anyhow::Result;
use millpond_server::control::report::EntryReport;
use rusqlite::{Connection, Statement, params};

/// Number of the schema; a greater one has more in it.
pub(super) const SCHEMA_VERSION: i64 = 1;
/// Entries that are written in one transaction (arbitrary: some megabytes).
const TRANSACTION_ENTRIES: i64 = 5000;
/// Says in the file's head whose it is: `MPND`.
const APPLICATION_ID: i64 = 0x4d50_4e44;

const SCHEMA: &str = include_str!("schema.sql");
const INDEXES: &str = include_str!("indexes.sql");
const INSERT_ENTRY: &str = "INSERT INTO entries VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
     ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)";

/// Makes the tables, in a database that is empty.
pub(super) fn begin(database: &Connection, now: i64) -> Result<()> {
    // Both answer with a row, so they are no part of a batch.
    for pragma in ["journal_mode = OFF", "locking_mode = EXCLUSIVE"] {
        let text = format!("PRAGMA {pragma}");
        database.query_row(&text, [], |_| Ok(()))?;
    }
    database.execute_batch(&format!(
        "PRAGMA synchronous = OFF;
         PRAGMA cache_size = -65536;
         PRAGMA application_id = {APPLICATION_ID};
         PRAGMA user_version = {SCHEMA_VERSION};"
    ))?;
    database.execute_batch(SCHEMA)?;
    let mut facts = database.prepare("INSERT INTO catalogue VALUES (?1, ?2)")?;
    facts.execute(params!["version", env!("CARGO_PKG_VERSION")])?;
    facts.execute(params!["exported", now.to_string()])?;
    Ok(())
}

/// Makes the indexes, when all entries are there.
pub(super) fn finish(database: &Connection) -> Result<()> {
    database.execute_batch(INDEXES)?;
    // Whoever plans queries on it knows how many there are of what.
    database.execute_batch("PRAGMA optimize = 0x10002;")?;
    Ok(())
}

/// Fills a database.
pub(super) struct Writer<'a> {
    database: &'a Connection,
    entry: Statement<'a>,
    tag: Statement<'a>,
    range: Statement<'a>,
    /// Node of a fleet whose entries are added.
    node: Option<String>,
    /// Entries so far.
    count: i64,
}

impl<'a> Writer<'a> {
    /// Begins a transaction.
    pub(super) fn new(database: &'a Connection) -> Result<Writer<'a>> {
        let writer = Writer {
            database,
            entry: database.prepare(INSERT_ENTRY)?,
            tag: database.prepare("INSERT INTO tags VALUES (?1, ?2)")?,
            range: database.prepare("INSERT INTO ranges VALUES (?1, ?2, ?3)")?,
            node: None,
            count: 0,
        };
        database.execute_batch("BEGIN")?;
        Ok(writer)
    }

    /// Says whose entries come from here on.
    pub(super) fn begin_node(&mut self, node: &str) {
        self.node = Some(node.to_owned());
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, entry: &EntryReport) -> Result<()> {
        self.count += 1;
        let number = self.count;
        self.push_entry(number, entry)?;
        for tag in &entry.tags {
            self.tag.execute(params![number, tag])?;
        }
        let ranges = entry.detail.iter().flat_map(|detail| &detail.ranges);
        for (first, behind) in ranges {
            self.range
                .execute(params![number, integer(*first), integer(*behind)])?;
        }
        // INVARIANT 2.
        if number % TRANSACTION_ENTRIES == 0 {
            self.database.execute_batch("COMMIT; BEGIN")?;
        }
        Ok(())
    }

    fn push_entry(&mut self, number: i64, entry: &EntryReport) -> Result<()> {
        let slices = entry.slices.as_ref();
        let variant = entry.variant.as_ref();
        let detail = entry.detail.as_ref();
        self.entry.execute(params![
            number,
            entry.zone,
            entry.id,
            entry.key,
            entry.url,
            entry.site,
            entry.host,
            entry.status,
            media_type(&entry.content_type),
            entry.content_type,
            integer(entry.length),
            integer(entry.held),
            slices.map(|it| integer(it.size)),
            slices.map(|it| integer(it.all)),
            slices.map(|it| integer(it.held)),
            entry.stored,
            entry.fresh_until,
            entry.used,
            entry.is_fresh,
            integer(entry.hits),
            variant.map(|it| &it.vary),
            variant.map(|it| &it.values),
            detail.map(|it| &it.dir),
            detail.map(|it| it.segment),
            detail.map(|it| integer(it.record_bytes)),
            self.node,
        ])?;
        Ok(())
    }

    /// Ends the last transaction; how many entries there are.
    pub(super) fn end(self) -> Result<i64> {
        self.database.execute_batch("COMMIT")?;
        Ok(self.count)
    }
}

/// SQLite's integers have a sign.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn media_type(content_type: &str) -> String {
    let own = content_type.split(';').next().unwrap_or_default();
    own.trim().to_ascii_lowercase()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::columns::tests::entry;
    use super::*;

    /// A database of three entries.
    pub(in super::super) fn filled() -> Connection {
        let database = Connection::open("").unwrap();
        begin(&database, 1_000).unwrap();
        let mut writer = Writer::new(&database).unwrap();
        for (key, held) in [("/a", 1000), ("/b", 2000), ("/c", 1 << 62)] {
            writer.push(&entry(key, held, 100)).unwrap();
        }
        assert_eq!(writer.end().unwrap(), 3);
        finish(&database).unwrap();
        database
    }

    fn asked<T: rusqlite::types::FromSql>(database: &Connection, query: &str) -> T {
        database.query_row(query, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn every_column_has_its_own() {
        let database = filled();
        let text = asked::<String>(
            &database,
            "SELECT concat_ws(' ', number, zone, id, key, url, site, host, status, type,
             content_type, length, held, slice_size, slices, slices_held, stored, expires, used,
             is_fresh, hits) FROM entries WHERE key = '/a'",
        );
        let id = "0".repeat(32);
        let expected = format!(
            "1 z {id} /a //shop/a shop shop 200 video/mp4 video/mp4; codecs=x 4096 1000 1000 5 1 \
             100 160 105 1 6"
        );
        assert_eq!(text, expected);
        let held: i64 = asked(&database, "SELECT held FROM by_site");
        assert_eq!(held, 3000 + (1 << 62));
        assert_eq!(integer(u64::MAX), i64::MAX);
        let tags: i64 = asked(&database, "SELECT entries FROM by_tag WHERE tag = 'b'");
        let types: i64 = asked(&database, "SELECT entries FROM by_type");
        assert_eq!((tags, types), (3, 3));
        let check: String = asked(&database, "PRAGMA integrity_check");
        assert_eq!(check, "ok");
        let version: i64 = asked(&database, "PRAGMA user_version");
        assert_eq!(version, SCHEMA_VERSION);
    }

    #[test]
    fn the_schema_is_documented_as_it_is() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/catalogue.md");
        let page = std::fs::read_to_string(path).unwrap();
        let database = filled();
        let names =
            "SELECT m.name || '.' || p.name FROM sqlite_schema m, pragma_table_info(m.name) p
                     WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'";
        let mut names = database.prepare(names).unwrap();
        let names = names.query_map([], |row| row.get::<_, String>(0)).unwrap();
        for name in names {
            let name = name.unwrap();
            let column = name.split('.').next_back().unwrap();
            assert!(page.contains(&format!("`{column}`")), "{name}");
        }
    }
}
