//! The command line of `millpond cache`.
//!
//! An option that a command has no use for is a mistake, like one that nobody knows: a purge whose
//! filter was overlooked would be the wrong purge.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use bytes::Bytes;
use millpond_conf::value::{parse_duration, parse_offset};
use millpond_server::control::query::Parameters;

use super::columns::{self, Column};
use crate::options::{OfProcess, OptionError};

/// Command that is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `fleet status`, and about sites `fleet sites`; `fleet purge` is a purge.
    Fleet,
    /// `fleet leave`.
    Leave,
    Stat,
    Ls,
    Show,
    Verify,
    Purge,
    Reset,
    Export,
    Why,
    Sql,
}

impl Command {
    const ALL: [(&'static str, Command); 10] = [
        ("fleet", Command::Fleet),
        ("stat", Command::Stat),
        ("ls", Command::Ls),
        ("show", Command::Show),
        ("verify", Command::Verify),
        ("purge", Command::Purge),
        ("reset", Command::Reset),
        ("export", Command::Export),
        ("why", Command::Why),
        ("sql", Command::Sql),
    ];

    fn named(word: &str) -> Option<Command> {
        let found = Command::ALL.iter().find(|(name, _)| *name == word);
        found.map(|(_, command)| *command)
    }

    fn lists(self) -> bool {
        matches!(self, Command::Ls | Command::Export)
    }

    fn has_filters(self) -> bool {
        self.lists() || self == Command::Sql
    }

    /// True if the command is about something that is named without an option.
    fn has_subject(self) -> bool {
        matches!(
            self,
            Command::Show | Command::Purge | Command::Sql | Command::Why | Command::Leave
        )
    }
}

/// Order in which entries are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Entries as they come.
    None,
    /// The most bytes first.
    Size,
    /// The oldest first.
    Age,
    /// Entries first that were used last.
    Used,
    /// The most hits first.
    Hits,
    /// Entries by cache key.
    Key,
    /// Entries first whose freshness ends first.
    Expires,
    /// Entries by status.
    Status,
    /// Entries by Content-Type.
    Type,
    /// Entries by site.
    Site,
}

impl Sort {
    const ALL: [(&'static str, Sort); 9] = [
        ("size", Sort::Size),
        ("age", Sort::Age),
        ("used", Sort::Used),
        ("hits", Sort::Hits),
        ("key", Sort::Key),
        ("expires", Sort::Expires),
        ("status", Sort::Status),
        ("type", Sort::Type),
        ("site", Sort::Site),
    ];
}

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
    /// Rows of a query only.
    Csv,
}

/// Subject of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Zones,
    Sites,
}

/// Zones that are meant where none is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    All,
    /// Zones that are part of a fleet; those that are asked, on all of its nodes.
    OfFleets,
}

/// Direction of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Usual,
    Reverse,
}

/// Length of a list's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Lines are as long as a terminal is wide, where there is one.
    Fitting,
    /// Lines are as long as what they say.
    Whole,
}

/// Treatment of corrupt entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Corrupt {
    Stay,
    Go,
}

/// The arguments.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) command: Command,
    /// Process whose caches are meant.
    pub(super) process: OfProcess,
    /// Zone that is meant; all without it.
    pub(super) zone: Option<String>,
    pub(super) among: Among,
    pub(super) format: Format,
    pub(super) about: About,
    /// A key or URL, a query, or the name of a node.
    pub(super) subject: Option<Bytes>,
    /// Parameters for the API: filters, or a purge.
    pub(super) parameters: Parameters,
    pub(super) sort: Sort,
    pub(super) direction: Direction,
    pub(super) limit: Option<usize>,
    /// Columns of an entry that are shown; the usual without them.
    pub(super) columns: Option<Vec<Column>>,
    pub(super) length: Length,
    pub(super) corrupt: Corrupt,
    /// File that an export goes to; the standard output without it.
    pub(super) output: Option<PathBuf>,
    /// The database that an export makes.
    pub(super) sqlite: Option<PathBuf>,
    /// The database that is asked in place of a zone.
    pub(super) from: Option<PathBuf>,
}

const NO_COMMAND: &str = "a command is needed: stat, ls, show, verify, purge, reset, export, sql \
                          or why";
const NO_FLEET_COMMAND: &str = "a command is needed: status, sites, leave, purge or config";
const TIME: &str = "write a time such as 90s, 10m, 2h or 7d";
const SIZE: &str = "write a size such as 4096, 10k, 5m or 1g";
const NUMBER: &str = "write a number";
const STATUS: &str = "write a status such as 404 or 4xx";
const COLUMNS: &str = "write some of zone, held, length, slices, age, fresh, used, hits, status, \
                       type, site, host, tags, id, url and key, with commas between them";

/// Reads the words behind `cache`.
pub(super) fn parse(words: impl Iterator<Item = OsString>) -> Result<Options, OptionError> {
    let mut words = words.map(|word| Bytes::from(word.into_vec()));
    let command = words.next().and_then(|word| Command::named(&text(&word)));
    let mut options = Options {
        command: command.ok_or(OptionError::Nothing(NO_COMMAND))?,
        process: OfProcess::default(),
        zone: None,
        among: Among::All,
        format: Format::Text,
        about: About::Zones,
        subject: None,
        parameters: Vec::new(),
        sort: Sort::None,
        direction: Direction::Usual,
        limit: None,
        columns: None,
        length: Length::Fitting,
        corrupt: Corrupt::Stay,
        output: None,
        sqlite: None,
        from: None,
    };
    if options.command == Command::Fleet {
        let word = words.next().map(|word| text(&word));
        match word.as_deref() {
            Some("status") => {}
            Some("sites") => options.about = About::Sites,
            Some("leave") => options.command = Command::Leave,
            Some("purge") => {
                options.command = Command::Purge;
                options.among = Among::OfFleets;
                options.add("wait", Bytes::from_static(b"fleet"));
            }
            _ => return Err(OptionError::Nothing(NO_FLEET_COMMAND)),
        }
    }
    while let Some(word) = words.next() {
        options.apply(&word, &mut words)?;
    }
    options.check()
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

impl Options {
    fn apply(
        &mut self,
        word: &Bytes,
        words: &mut impl Iterator<Item = Bytes>,
    ) -> Result<(), OptionError> {
        let option = text(word);
        let mut value = || words.next().ok_or(OptionError::Missing(option.clone()));
        match (option.as_str(), self.command) {
            _ if self.process.apply(&option, &mut || Ok(text(&value()?)))? => {}
            ("--zone", command)
                if !matches!(
                    command,
                    Command::Why | Command::Reset | Command::Fleet | Command::Leave
                ) =>
            {
                self.zone = Some(text(&value()?))
            }
            ("--json", command) if command != Command::Export => self.format = Format::Json,
            ("--sites", Command::Stat | Command::Reset) => self.about = About::Sites,
            ("--site", Command::Reset) if !self.has("site") => {
                let name = value()?;
                self.add("site", name);
            }
            ("--remove", Command::Verify) => self.corrupt = Corrupt::Go,
            ("--csv", Command::Sql) => self.format = Format::Csv,
            ("--fleet", Command::Sql) => self.among = Among::OfFleets,
            ("--from", Command::Sql) => self.from = Some(PathBuf::from(text(&value()?))),
            ("--sqlite", Command::Export) => self.sqlite = Some(PathBuf::from(text(&value()?))),
            ("-o", Command::Export) => self.output = Some(PathBuf::from(text(&value()?))),
            ("--sort", Command::Ls) => self.sort = sort(&value()?)?,
            ("--columns", Command::Ls) => {
                let value = value()?;
                let columns = columns::parse(&text(&value));
                self.columns = Some(columns.ok_or_else(|| wrong(&option, &value, COLUMNS))?);
            }
            ("--whole", Command::Ls) => self.length = Length::Whole,
            ("--reverse", Command::Ls) => self.direction = Direction::Reverse,
            ("--limit", command) if command.lists() => {
                let number = number(&option, &value()?)?;
                self.limit = Some(usize::try_from(number).unwrap_or(usize::MAX));
            }
            (_, Command::Purge) if self.apply_purge(&option, &mut value)? => {}
            (_, command) if command.has_filters() && self.apply_filter(&option, &mut value)? => {}
            ("--key", Command::Show | Command::Purge) if self.subject.is_none() => {
                self.subject = Some(value()?);
            }
            ("-H", Command::Why) => {
                let field = value()?;
                self.add("field", field);
            }
            ("--client", Command::Why) if !self.has("client") => {
                let address = value()?;
                self.add("client", address);
            }
            ("--method" | "-X", Command::Why) if !self.has("method") => {
                let method = value()?.to_ascii_uppercase();
                self.add("method", method.into());
            }
            (_, command)
                if command.has_subject() && !option.starts_with('-') && self.subject.is_none() =>
            {
                self.subject = Some(word.clone());
            }
            _ => return Err(OptionError::Invalid(option)),
        }
        Ok(())
    }

    /// Applies an option that is a filter; false if it is none.
    fn apply_filter(
        &mut self,
        option: &str,
        value: &mut impl FnMut() -> Result<Bytes, OptionError>,
    ) -> Result<bool, OptionError> {
        let (name, value) = match option {
            "--prefix" => ("prefix", value()?),
            "--site" => ("site", value()?),
            "--host" => ("host", value()?),
            "--tag" => ("tag", value()?),
            "--older" => ("older", seconds(option, &value()?)?),
            "--newer" => ("newer", seconds(option, &value()?)?),
            "--unused" => ("unused", seconds(option, &value()?)?),
            "--larger" => ("larger", size(option, &value()?)?),
            "--smaller" => ("smaller", size(option, &value()?)?),
            "--hits" => ("hits", number(option, &value()?)?.to_string().into()),
            "--no-hits" => ("hits_max", Bytes::from_static(b"0")),
            "--status" => ("status", status(option, value()?)?),
            "--type" => ("content_type", value()?),
            "--fresh" | "--stale" if self.has("fresh") || self.has("stale") => {
                return Err(OptionError::Nothing(
                    "one of --fresh and --stale is enough, and nothing is both",
                ));
            }
            "--fresh" => ("fresh", Bytes::from_static(b"1")),
            "--stale" => ("stale", Bytes::from_static(b"1")),
            _ => return Ok(false),
        };
        self.add(name, value);
        Ok(true)
    }

    /// Applies an option that is a word of a purge; false if it is none.
    fn apply_purge(
        &mut self,
        option: &str,
        value: &mut impl FnMut() -> Result<Bytes, OptionError>,
    ) -> Result<bool, OptionError> {
        let kind = match option {
            "--prefix" => "prefix",
            "--wildcard" => "wildcard",
            "--site" => "site",
            "--host" => "host",
            "--tag" => {
                let tag = value()?;
                if !self.has("type") {
                    self.add("type", Bytes::from_static(b"tag"));
                }
                self.add("tag", tag);
                return Ok(true);
            }
            "--all" => {
                self.add("type", Bytes::from_static(b"all"));
                return Ok(true);
            }
            "--soft" => {
                self.add("soft", Bytes::from_static(b"1"));
                return Ok(true);
            }
            "--dry-run" => {
                self.add("dry_run", Bytes::from_static(b"1"));
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let what = value()?;
        self.add("type", Bytes::from_static(kind.as_bytes()));
        self.add("what", what);
        Ok(true)
    }

    fn add(&mut self, name: &str, value: Bytes) {
        self.parameters.push((name.to_string(), value));
    }

    /// True if a parameter is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|(known, _)| known == name)
    }

    /// True if not all entries are meant.
    fn is_narrowed(&self) -> bool {
        let is_about_all = self.parameters.is_empty() && self.zone.is_none();
        !is_about_all || self.among == Among::OfFleets
    }

    fn check(self) -> Result<Options, OptionError> {
        let types = self.parameters.iter().filter(|(name, _)| name == "type");
        let named = types.count() + usize::from(self.subject.is_some());
        match (self.command, named) {
            (Command::Why, 0) => Err(OptionError::Nothing("a URL is needed")),
            (Command::Leave, 0) => Err(OptionError::Nothing("the name of a node is needed")),
            (Command::Sql, 0) => Err(OptionError::Nothing("a query is needed")),
            (Command::Sql, _) if self.from.is_some() && self.is_narrowed() => {
                let message = "with --from, what is asked for stands in the query alone";
                Err(OptionError::Nothing(message))
            }
            (Command::Export, _) if self.sqlite.is_some() && self.output.is_some() => {
                Err(OptionError::Nothing("one of -o and --sqlite at a time"))
            }
            (Command::Show, 0) => Err(OptionError::Nothing("a key or URL is needed")),
            (Command::Reset, _) if self.has("site") == (self.about == About::Sites) => {
                let message = "what is to be reset? --sites, for all that the configuration does \
                               not name, or --site NAME";
                Err(OptionError::Nothing(message))
            }
            (Command::Purge, 0) => Err(OptionError::Nothing(
                "what is to be purged? A key or URL, or one of --prefix, --wildcard, --site, \
                 --host, --tag, --all",
            )),
            (Command::Purge, 2..) => Err(OptionError::Nothing("only one kind of purge at a time")),
            _ => Ok(self),
        }
    }
}

fn sort(value: &[u8]) -> Result<Sort, OptionError> {
    let found = Sort::ALL.iter().find(|(name, _)| name.as_bytes() == value);
    found.map(|(_, sort)| *sort).ok_or_else(|| {
        let expected = "write size, age, used, hits, expires, status, type, site or key";
        wrong("--sort", value, expected)
    })
}

fn seconds(option: &str, value: &[u8]) -> Result<Bytes, OptionError> {
    let time = parse_duration(&text(value)).ok_or_else(|| wrong(option, value, TIME))?;
    Ok(time.as_secs().to_string().into())
}

fn size(option: &str, value: &[u8]) -> Result<Bytes, OptionError> {
    let size = parse_offset(&text(value)).ok_or_else(|| wrong(option, value, SIZE))?;
    Ok(size.to_string().into())
}

fn status(option: &str, value: Bytes) -> Result<Bytes, OptionError> {
    let is_status = match value.as_ref() {
        [b'1'..=b'9', b'x' | b'X', b'x' | b'X'] => true,
        [_, _, _] => value.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if is_status {
        Ok(value)
    } else {
        Err(wrong(option, &value, STATUS))
    }
}

fn number(option: &str, value: &[u8]) -> Result<u64, OptionError> {
    let number = text(value).parse();
    number.map_err(|_| wrong(option, value, NUMBER))
}

fn wrong(option: &str, value: &[u8], expected: &'static str) -> OptionError {
    OptionError::Value {
        option: option.to_string(),
        value: text(value),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, OptionError> {
        parse(line.split_ascii_whitespace().map(OsString::from))
    }

    #[test]
    fn filters_and_purges_become_parameters() {
        for (line, expected) in [
            ("ls", ""),
            (
                "ls --site s --prefix p --older 1h --larger 1m --hits 2",
                "site=s prefix=p older=3600 larger=1048576 hits=2 ",
            ),
            (
                "ls --status 4xx --type image --stale",
                "status=4xx content_type=image stale=1 ",
            ),
            ("export --no-hits --newer 90s", "hits_max=0 newer=90 "),
            ("purge --prefix /a --soft", "type=prefix what=/a soft=1 "),
            ("purge --tag a --tag b", "type=tag tag=a tag=b "),
            ("purge --all --dry-run", "type=all dry_run=1 "),
            ("purge /a", ""),
            ("why /a -H a:b", "field=a:b "),
            ("why /a --method head -H a:b", "method=HEAD field=a:b "),
        ] {
            let options = parsed(line).unwrap();
            let parameters = options.parameters.iter();
            let said: String = parameters
                .map(|(name, value)| format!("{name}={} ", text(value)))
                .collect();
            assert_eq!(said, expected, "{line}");
        }
        let options = parsed("sql SELECT --site s --csv").unwrap();
        assert_eq!(options.subject.as_deref(), Some(&b"SELECT"[..]));
        assert!(options.format == Format::Csv && options.has("site"));
        let options = parsed("ls -c f -p /p --zone z --sort size --reverse --limit 5").unwrap();
        assert_eq!((options.sort, options.limit), (Sort::Size, Some(5)));
        assert_eq!(options.zone.as_deref(), Some("z"));
    }

    #[test]
    fn purge_of_a_fleet_is_a_purge_that_waits_for_all_nodes() {
        let status = parsed("fleet status --json").unwrap();
        assert_eq!(
            (status.command, status.format),
            (Command::Fleet, Format::Json)
        );
        let purge = parsed("fleet purge --tag a --zone z").unwrap();
        assert_eq!(
            (purge.command, purge.among),
            (Command::Purge, Among::OfFleets)
        );
        let wait = ("wait".to_string(), Bytes::from_static(b"fleet"));
        assert!(purge.parameters.contains(&wait));
        assert_eq!(parsed("purge --tag a").unwrap().among, Among::All);
    }

    #[test]
    fn what_a_command_has_no_use_for_is_a_mistake() {
        for line in [
            "",
            "list",
            "ls /a",
            "ls --sort name",
            "ls --older soon",
            "ls --larger",
            "ls --remove",
            "ls --soft",
            "ls --status 4x",
            "ls --status ok!",
            "ls --fresh --stale",
            "ls --columns colour",
            "export --columns key",
            "export --sqlite a -o b",
            "ls --sqlite a",
            "ls --csv",
            "sql",
            "sql a b",
            "sql a --limit 3",
            "sql a --from x --site y",
            "show",
            "show a b",
            "show --prefix a",
            "stat --site a",
            "verify --prefix a",
            "purge",
            "purge a --all",
            "purge --site a --prefix b",
            "purge --older 1d",
            "purge --tag a --all",
            "fleet",
            "fleet purge",
            "fleet ls",
            "fleet leave",
            "fleet leave a b",
            "fleet leave a --zone z",
            "fleet status a",
            "fleet status --zone z",
            "why",
            "why a b",
            "why a --zone z",
            "why a --method",
            "why a --method HEAD --method GET",
            "show a -H b",
            "export --json",
            "export --sort size",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
