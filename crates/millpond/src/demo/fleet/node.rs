//! A node of the demo's fleet: Millpond as it always runs, from `conf/demo-fleet.conf` with its
//! name, ports and folder replaced; and what is asked of it.
//!
//! The types of the answers are those of the API itself, so that they cannot differ.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use millpond_server::control::events::EventReport;
use millpond_server::control::fleet::FleetsReport;
use millpond_server::control::report::{Line, PurgeReport};
use millpond_system::clock;

use super::super::http::Stop;
use super::board::{About, Asked, Said, State, millis};
use super::client;
use super::origin::edition_of;
use super::part::{Part, Program};

/// The configuration as it stands in the repository; it works by hand, too.
const CONF: &str = include_str!("../../../../../conf/demo-fleet.conf");
/// Names in the file that are replaced by what is free and ours.
const CONF_NAME: &str = "n1";
const CONF_FRONT: &str = "127.0.0.1:8091";
const CONF_ORIGIN: &str = "127.0.0.1:8094";
const CONF_NATS: &str = "127.0.0.1:8095";
const CONF_DIR: &str = "/tmp/millpond-demo";
/// Path of the API's own part.
const API: &str = "/api/millpond/1";
/// Zone of the file.
const ZONE: &str = "pages";

/// Ports that all nodes have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    pub(super) origin: u16,
    pub(super) nats: u16,
}

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    /// The process.
    pub(super) part: Part,
    /// Its configuration.
    pub(super) conf: PathBuf,
}

impl Node {
    /// Writes the files of a node below a folder.
    pub(super) fn make(
        (name, port): (&str, u16),
        around: Around,
        dir: &Path,
        stop: &Arc<Stop>,
    ) -> Result<Node> {
        let folder = dir.join(name);
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let conf = folder.join("millpond.conf");
        let text = effective_conf((name, port), around, dir);
        std::fs::write(&conf, text).with_context(|| conf.display().to_string())?;
        let program = std::env::current_exe().context("the program itself")?;
        let path = |path: &Path| path.to_str().map(str::to_string);
        let (prefix, file) = (path(&folder), path(&conf));
        let (prefix, file) = prefix.zip(file).context("a temporary directory in UTF-8")?;
        let words = ["-p", &prefix, "-c", &file, "-e", "error.log"];
        let program = Program::new(&program, &words, folder.join("output.log"));
        Ok(Node {
            part: Part::new(name, port, program, stop),
            conf,
        })
    }

    fn ask(&self, method: &str, below: &str) -> Result<client::Response> {
        let target = format!("{API}{below}");
        let response = client::exchange(self.part.port, method, &target)?;
        // 503 of a purge says that it holds on this node only.
        let is_answer = matches!(response.status, 200 | 503);
        ensure!(is_answer, "{target}: {}", response.status);
        Ok(response)
    }

    /// Asks the node how it is.
    pub(super) fn status(&self) -> Result<Said> {
        let report: FleetsReport = serde_json::from_str(&self.ask("GET", "/fleets")?.body)?;
        let fleet = report.fleets.first().context("a fleet")?;
        let state = if fleet.is_behind {
            State::Behind
        } else {
            State::UpToDate
        };
        Ok(Said {
            state,
            lag_ms: fleet.lag_ms,
            position: fleet.taken,
        })
    }

    /// The pages that it has, and their editions.
    pub(super) fn pages(&self) -> Result<BTreeMap<String, u64>> {
        let body = self.ask("GET", &format!("/zones/{ZONE}/entries"))?.body;
        let mut pages = BTreeMap::new();
        for line in body.lines() {
            if let Line::Entry(entry) = serde_json::from_str(line)? {
                let edition = edition_of(&entry.tags).unwrap_or_default();
                pages.insert(entry.key.clone(), edition);
            }
        }
        Ok(pages)
    }

    /// Asks for a page, as a client does.
    pub(super) fn get(&self, path: &str) -> Result<Asked> {
        let began = clock::instant();
        let response = client::exchange(self.part.port, "GET", path)?;
        let ms = millis(began, clock::instant());
        let label = response.field("X-Cache").map(str::to_string);
        let number = response.body.trim_end().rsplit_once(' ');
        Ok(Asked {
            label: label.unwrap_or_else(|| response.status.to_string()),
            edition: number.and_then(|(_, number)| number.parse().ok()),
            ms,
        })
    }

    /// Purges; how far the purge is known to have come.
    pub(super) fn purge(&self, about: &About) -> Result<String> {
        let member = match about.kind.as_str() {
            "all" => String::new(),
            "tag" => format!("&tag={}", about.what),
            _ => format!("&what={}", about.what),
        };
        let below = format!("/zones/{ZONE}/purge?type={}{member}", about.kind);
        let report: PurgeReport = serde_json::from_str(&self.ask("POST", &below)?.body)?;
        report.fleet.context("a purge without a fleet")
    }

    /// Listens to what happens in the zone from now on.
    pub(super) fn events(&self) -> Result<Events<impl BufRead + use<>>> {
        let target = format!("{API}/zones/{ZONE}/events");
        let reader = client::stream(self.part.port, &target)?;
        Ok(Events { reader })
    }
}

/// A stream of events.
pub(super) struct Events<R> {
    reader: R,
}

impl<R: BufRead> Events<R> {
    /// Waits for the next event; the purge that it tells of, if it does.
    pub(super) fn next(&mut self) -> Result<Option<About>> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.reader.read_line(&mut line)? == 0 {
                bail!("the stream has ended");
            }
            let Some(text) = line.strip_prefix("data: ") else {
                continue;
            };
            let event: EventReport = serde_json::from_str(text)?;
            let kind = event.purge.filter(|_| event.kind == "purged");
            let what = event.what.unwrap_or_default();
            return Ok(kind.map(|kind| About { kind, what }));
        }
    }
}

fn effective_conf((name, port): (&str, u16), around: Around, dir: &Path) -> String {
    let address = |port: u16| format!("127.0.0.1:{port}");
    // The name stands in the folder, too, and so is replaced before the folder is.
    CONF.replace(CONF_NAME, name)
        .replace(CONF_FRONT, &address(port))
        .replace(CONF_ORIGIN, &address(around.origin))
        .replace(CONF_NATS, &address(around.nats))
        .replace(CONF_DIR, &dir.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_configuration_names_only_what_is_ours() {
        let (origin, nats) = (4, 5);
        let around = Around { origin, nats };
        let text = effective_conf(("n2", 2), around, Path::new("/n1"));
        let is_comment = |line: &&str| line.trim_start().starts_with('#');
        let lines: Vec<&str> = text.lines().filter(|line| !is_comment(line)).collect();
        let conf = lines.join("\n");
        for (present, text) in [
            (true, "listen 127.0.0.1:2;"),
            (true, "node n2;"),
            (true, "nats nats://127.0.0.1:5;"),
            (true, "proxy_pass http://127.0.0.1:4;"),
            (true, "proxy_cache_path /n1/n2/cache"),
            (false, "809"),
            (false, "/tmp"),
        ] {
            assert_eq!(conf.contains(text), present, "{text}");
        }
    }
}
