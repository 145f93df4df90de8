//! `millpond sensor certificate`: the days that are left to the certificates of a configuration.
//!
//! The files that `ssl_certificate` names are read, as a reload would read them; those with
//! variables in their names, certificates that stand in the configuration, and those that are
//! ordered are left out. The first certificate of a file is the server's. Less than no day is
//! critical.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use millpond_conf::tree::Statement;
use millpond_server::source::salvage::salvage;
use millpond_system::clock;
use millpond_tls::certificate::facts::Certificate;
use millpond_tls::certificate::load::chain;

use super::finding::{Finding, State, Value};
use super::options::Options;

const DAY: f64 = 86_400.0;

/// Reads the certificates.
pub(super) fn find(options: &Options) -> Result<Finding> {
    let source = options.process.source();
    let read = salvage(&source);
    if let Some(why) = read.unread() {
        anyhow::bail!("{why}");
    }
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let mut paths = BTreeSet::new();
    collect(&read.tree.statements, folder, &mut paths);
    ensure!(!paths.is_empty(), "the configuration names no certificate");
    let now = clock::now_ms() / 1000;
    let mut found = Vec::new();
    for path in &paths {
        let days = days_left(path, now).with_context(|| path.display().to_string())?;
        found.push((path.display().to_string(), days));
    }
    Ok(judge(found))
}

/// The files that directives name, by path.
fn collect(statements: &[Statement], folder: &Path, paths: &mut BTreeSet<PathBuf>) {
    for statement in statements {
        collect(statement.body.as_deref().unwrap_or_default(), folder, paths);
        let name = statement
            .args
            .first()
            .filter(|_| statement.name.text == "ssl_certificate");
        let Some(name) = name.map(|word| word.text.as_str()) else {
            continue;
        };
        if !name.contains('$') && !name.starts_with("data:") && name != "auto" {
            paths.insert(folder.join(name));
        }
    }
}

fn days_left(path: &Path, now: i64) -> Result<f64> {
    let text = std::fs::read(path)?;
    let certificates = chain(&text).map_err(|_| anyhow::anyhow!("no certificate"))?;
    let first = certificates.first().and_then(|der| Certificate::parse(der));
    let left = first.and_then(|certificate| certificate.remaining_s(now));
    Ok(left.context("a certificate without an end")? as f64 / DAY)
}

/// The finding that follows of the days that are left to files.
fn judge(mut found: Vec<(String, f64)>) -> Finding {
    found.sort_by(|one, other| one.1.total_cmp(&other.1));
    let (path, days) = found.first().cloned().unwrap_or_default();
    let values = found
        .iter()
        .map(|(path, days)| Value::judged(path, *days, ""));
    let finding = Finding::new(
        format!(
            "{days:.1} days are left to {path}, of {} files",
            found.len()
        ),
        values.collect(),
    );
    if days < 0.0 {
        finding.in_state(State::Critical)
    } else {
        finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{Diagnostics, LoadOptions, load};

    #[test]
    fn files_are_looked_at_and_nothing_else() {
        let text = "http { ssl_certificate a.pem; server { ssl_certificate $acme_certificate; }
            server { ssl_certificate auto; } server { ssl_certificate data:x; } }";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.conf");
        std::fs::write(&path, text).unwrap();
        let mut diagnostics = Diagnostics::new();
        let tree = load(&path, &LoadOptions::default(), &mut diagnostics);
        let mut paths = BTreeSet::new();
        collect(&tree.statements, Path::new("/etc"), &mut paths);
        assert_eq!(paths, BTreeSet::from([PathBuf::from("/etc/a.pem")]));
    }

    #[test]
    fn shortest_time_is_told_and_none_is_critical() {
        let finding = judge(vec![("/a".to_string(), 30.0), ("/b".to_string(), 2.5)]);
        assert_eq!(finding.text, "2.5 days are left to /b, of 2 files");
        assert_eq!(finding.state, State::Ok);
        assert_eq!(judge(vec![("/a".to_string(), -0.5)]).state, State::Critical);
    }
}
