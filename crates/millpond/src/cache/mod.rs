//! `millpond cache …`: what is in the caches, and purging, of a running process or at rest; and
//! `millpond why`, which is the command `why` of it; and `millpond fleet`, its `fleet`.
//!
//! ```text
//! options ──► access: the process on its control socket, or the zone itself
//!                └──► stat | ls, export | show | verify | purge | why ──► output
//! ```
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | the command line |
//! | `access.rs`, `client.rs` | who is asked, and how |
//! | `fleet.rs`, `stat.rs`, `sites.rs`, `list.rs`, `show.rs`, `verify.rs`, `purge.rs`, `reset.rs`, `why.rs` | the commands |
//! | `catalogue/` | `export --sqlite`, `sql` |
//! | `warm/` | `warm`: asks for URLs before users do |
//! | `columns.rs` | what `ls` shows of an entry |
//! | `subject.rs` | the key that a URL means |
//! | `figures.rs`, `output.rs` | sizes and times, lines and bars |
//!
//! The exit status is 0 when it is done; 1 when there is nothing of what was named, or a
//! verification found damage; 2 when it cannot be done. What is asked is answered on the standard
//! output, and everything else is said on the standard error stream.

mod access;
mod catalogue;
pub(crate) mod client;
mod columns;
pub(crate) mod figures;
mod fleet;
mod list;
mod options;
mod output;
mod purge;
mod reset;
mod show;
mod sites;
mod stat;
mod subject;
mod verify;
mod warm;
mod why;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

pub(crate) use access::socket_for;

use access::Site;
use options::{Command, Options};
use output::NobodyReads;

const USAGE: &str = "usage: millpond cache stat   [--sites]
       millpond cache ls     [FILTER]... [--sort size|age|used|hits|expires|status|type|site|key]
                             [--reverse] [--limit N] [--columns NAME,...] [--whole]
       millpond cache show   KEY|URL|ID
       millpond cache verify [--remove]
       millpond cache purge  KEY|URL | --prefix TEXT | --wildcard TEXT | --site NAME | --host NAME
                             | --tag TAG... | --all   [--soft] [--dry-run]
       millpond cache reset  --sites | --site NAME
       millpond cache export [FILTER]... [--limit N] [-o FILE | --sqlite FILE]
       millpond cache sql    QUERY [FILTER]... [--csv] [--from FILE | --fleet]
       millpond cache warm   [FILE | -] [--sitemap URL]... [--to HOST:PORT] [--rate N] [--users N]
                             [--late TIME] [--resume FILE] [-H 'Name: value']... [--https]
                             [--ca FILE] [--insecure]
       millpond fleet status
       millpond fleet sites
       millpond fleet leave  NODE
       millpond fleet purge  KEY|URL | --prefix TEXT | --wildcard TEXT | --site NAME | --host NAME
                             | --tag TAG... | --all   [--soft] [--dry-run]
       millpond fleet config key | push | status | promote | rollback   (--help says more)
       millpond why          URL [--method METHOD] [--client ADDRESS] [-H 'Name: value']...
options: -c FILE, -p PREFIX, -g DIRECTIVES, --zone NAME, --json
filters: --site NAME, --host NAME, --prefix TEXT, --tag TAG, --older TIME, --newer TIME,
         --unused TIME, --larger SIZE, --smaller SIZE, --hits N, --no-hits, --status 404|4xx,
         --type image/png|image, --fresh, --stale
";

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The command is done.
    Done,
    /// The zone has nothing of what was named, or there is damage.
    Nothing,
}

/// Runs the command that the words say.
pub(crate) fn run(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let words: Vec<OsString> = words.collect();
    // It asks as a client does, and knows neither a configuration nor zones.
    if let [first, rest @ ..] = words.as_slice()
        && first == "warm"
    {
        return warm::run(rest.to_vec());
    }
    let options = match crate::options::read(words, USAGE, options::parse) {
        Ok(options) => options,
        Err(code) => return Ok(code),
    };
    match obey(&options) {
        Ok(Outcome::Done) => Ok(ExitCode::SUCCESS),
        Ok(Outcome::Nothing) => Ok(ExitCode::from(1)),
        Err(error) if error.is::<NobodyReads>() => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("millpond: {error:#}");
            Ok(ExitCode::from(2))
        }
    }
}

fn obey(options: &Options) -> Result<Outcome> {
    let site = || Site::open(options);
    match options.command {
        Command::Fleet => fleet::run(options, &site()?),
        Command::Leave => fleet::leave(options, &site()?),
        Command::Stat => stat::run(options, &site()?),
        Command::Ls => list::run(options, &site()?),
        Command::Export => match &options.sqlite {
            Some(path) => catalogue::export(options, &site()?, path),
            None => list::run(options, &site()?),
        },
        Command::Show => show::run(options, &site()?),
        Command::Verify => verify::run(options, &site()?),
        Command::Purge => purge::run(options, &site()?),
        Command::Reset => reset::run(options, &site()?),
        Command::Sql => catalogue::query(options),
        Command::Why => why::run(options, &site()?),
    }
}
