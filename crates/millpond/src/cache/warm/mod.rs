//! `millpond cache warm`: asks for URLs, so that a cache has them before users do.
//!
//! ```text
//! list, catalogue, sitemap ──► list.rs ──► those that are not done ──► users (ask.rs) ──► tally
//! ```
//!
//! The server is asked as a client would ask it: what is stored, under which key and for how long
//! is decided by its configuration alone. Bodies are read to their end and thrown away, since a
//! cache need not finish what nobody waits for.
//!
//! 1. No more requests are begun in a second than `--rate`, and no more are open than `--users`.
//! 2. A URL is noted as done (`--resume FILE`) once its answer has ended well, with a status below
//!    400; the note is on its way to the disk before the next request begins.
//! 3. An interrupt begins no further request; what was done is told.
//!
//! Does not follow redirects: where one leads may not be this cache's.

mod ask;
mod list;
mod options;
mod tally;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result};
use tokio::task::LocalSet;

use self::options::Options;
use self::tally::Tally;

const USAGE: &str = "usage: millpond cache warm [FILE | -] [--sitemap URL]...
options: --to HOST:PORT        connects there, whatever host a URL names
         --https               the scheme of URLs without one, as a catalogue may have them
         --rate N              requests a second (50)
         --users N             requests at a time (4)
         --late TIME           the longest that an answer may take (5m)
         --resume FILE         notes what is done, and leaves it out the next time
         -H 'Name: value'      a field of each request, such as Accept-Encoding
         --ca FILE, --insecure whom https is believed
         --json                the figures as JSON
FILE has a URL a line, or a line of JSON with one in \"url\": what `millpond cache export` writes.
";

/// Runs the command that the words behind `warm` say.
pub(super) fn run(words: Vec<OsString>) -> Result<ExitCode> {
    let words = Vec::from_iter(words.iter().map(|word| word.to_string_lossy().into_owned()));
    let options = match crate::options::read(words, USAGE, options::parse) {
        Ok(options) => Rc::new(options),
        Err(code) => return Ok(code),
    };
    match warm(&options) {
        Ok(tally) => {
            tally.print(options.format)?;
            Ok(ExitCode::from(u8::from(tally.failed() + tally.left > 0)))
        }
        Err(error) => {
            eprintln!("millpond: {error:#}");
            Ok(ExitCode::from(2))
        }
    }
}

fn warm(options: &Rc<Options>) -> Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let mut urls = match &options.list {
            Some(path) => list::read(path, options.scheme)?,
            None => Vec::new(),
        };
        for sitemap in &options.sitemaps {
            urls.extend(list::sitemap(options, sitemap).await?);
        }
        let done = options.resume.as_deref().map(Done::open).transpose()?;
        let all = urls.len();
        if let Some(done) = &done {
            urls.retain(|url| !done.urls.contains(url));
        }
        let skipped = (all - urls.len()) as u64;
        let mut tally = ask::all(options, urls, done).await?;
        tally.skipped = skipped;
        Ok(tally)
    })
}

/// The URLs that were done in earlier runs, and the file that is told of more.
struct Done {
    urls: HashSet<String>,
    file: File,
}

impl Done {
    fn open(path: &Path) -> Result<Done> {
        let why = || path.display().to_string();
        let mut how = OpenOptions::new();
        how.read(true).append(true).create(true);
        let mut file = how.open(path).with_context(why)?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(why)?;
        let lines = text.split_inclusive('\n');
        let whole = lines.filter_map(|line| line.strip_suffix('\n'));
        let urls = whole.map(str::to_owned).collect();
        // A line that a crash has cut off is done again.
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").with_context(why)?;
        }
        Ok(Done { urls, file })
    }

    /// INVARIANT 2.
    fn note(&mut self, url: &str) -> Result<()> {
        let written = self.file.write_all(format!("{url}\n").as_bytes());
        written.context("the file of --resume")
    }
}
