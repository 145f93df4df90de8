//! `millpond sensor dns`: the names of origins, each of which must have an address.
//!
//! The names are those that the configuration passes to, or those of `--name`; they are looked up
//! as the program does it at its start, by the system. A name without an address is critical; the
//! time of the slowest is what thresholds are about.

use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Result, ensure};
use millpond_conf::tree::Statement;
use millpond_server::source::salvage::salvage;
use millpond_system::clock;

use super::finding::{Finding, State, Value};
use super::options::Options;

/// Directives with an origin's URL, or its host and port.
const PASSES: [&str; 6] = [
    "proxy_pass",
    "grpc_pass",
    "fastcgi_pass",
    "scgi_pass",
    "uwsgi_pass",
    "memcached_pass",
];
/// Names that are looked up at a time (arbitrary: name servers answer so many at once).
const AT_ONCE: usize = 32;

/// Result of a look-up: addresses and seconds, or why there are none.
type Looked = Result<(usize, f64), String>;

/// Looks all names up.
pub(super) fn find(options: &Options) -> Result<Finding> {
    let names = if options.names.is_empty() {
        configured(options)?
    } else {
        options.names.iter().cloned().collect()
    };
    if names.is_empty() {
        let text = "the configuration passes to no names".to_string();
        return Ok(Finding::new(text, Vec::new()));
    }
    let mut looked = Vec::new();
    let names: Vec<String> = names.into_iter().collect();
    for some in names.chunks(AT_ONCE) {
        looked.extend(look_up(some, options.late));
    }
    Ok(judge(&looked))
}

fn configured(options: &Options) -> Result<BTreeSet<String>> {
    let read = salvage(&options.process.source());
    if let Some(why) = read.unread() {
        anyhow::bail!("{why}");
    }
    let mut names = Names::default();
    names.collect(&read.tree.statements, "");
    ensure!(
        !read.tree.statements.is_empty(),
        "the configuration is empty"
    );
    Ok(names.passed.difference(&names.groups).cloned().collect())
}

#[derive(Default)]
struct Names {
    /// Names that something is passed to.
    passed: BTreeSet<String>,
    /// Names of groups, which are not looked up.
    groups: BTreeSet<String>,
}

impl Names {
    fn collect(&mut self, statements: &[Statement], block: &str) {
        for statement in statements {
            let name = statement.name.text.as_str();
            let first = statement.args.first().map_or("", |word| word.text.as_str());
            if name == "upstream" {
                self.groups.insert(first.to_ascii_lowercase());
            }
            if PASSES.contains(&name) || (block == "upstream" && name == "server") {
                self.passed.extend(host(first));
            }
            self.collect(statement.body.as_deref().unwrap_or_default(), name);
        }
    }
}

/// The name in a URL, or in a host with a port; none for addresses, sockets and variables.
fn host(text: &str) -> Option<String> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or(rest);
    if authority.starts_with("unix:") || authority.starts_with('[') || text.contains('$') {
        return None;
    }
    let host = authority.split(':').next().unwrap_or(authority);
    let is_name = !host.is_empty() && host.parse::<IpAddr>().is_err();
    is_name.then(|| host.to_ascii_lowercase())
}

/// Looks names up at once; the system's resolver cannot be told how long it may take.
fn look_up(names: &[String], late: Duration) -> Vec<(String, Looked)> {
    let (tell, told) = mpsc::channel();
    for name in names {
        let (name, tell) = (name.clone(), tell.clone());
        std::thread::spawn(move || {
            let start = clock::instant();
            let asked = (name.as_str(), 0).to_socket_addrs();
            let found = asked.map_err(|error| error.to_string());
            let looked = found.map(|all| (all.count(), start.elapsed().as_secs_f64()));
            // Whoever gave up waiting does not want to know.
            let _ = tell.send((name, looked));
        });
    }
    let until = clock::instant() + late;
    let mut left: BTreeSet<String> = names.iter().cloned().collect();
    let mut looked = Vec::new();
    while !left.is_empty() {
        let wait = until.saturating_duration_since(clock::instant());
        let Ok((name, found)) = told.recv_timeout(wait) else {
            break;
        };
        left.remove(&name);
        looked.push((name, found));
    }
    let late = |name| (name, Err(format!("no answer within {late:?}")));
    looked.extend(left.into_iter().map(late));
    looked
}

fn judge(looked: &[(String, Looked)]) -> Finding {
    let times = looked.iter().filter_map(|(_, it)| it.as_ref().ok());
    let slowest = times.map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    let told = looked.iter().filter_map(|(name, it)| match it {
        Ok((0, _)) => Some(format!("{name}: no address")),
        Ok(_) => None,
        Err(why) => Some(format!("{name}: {why}")),
    });
    let failed: Vec<String> = told.collect();
    let values = vec![
        Value::judged("time", slowest, "s"),
        Value::shown("names", looked.len() as f64, ""),
        Value::shown("failed", failed.len() as f64, ""),
    ];
    if failed.is_empty() {
        let text = format!(
            "{} names have addresses, the slowest after {slowest:.3} s",
            looked.len()
        );
        return Finding::new(text, values);
    }
    Finding::new(failed.join(", "), values).in_state(State::Critical)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{Diagnostics, LoadOptions, load_text};

    #[test]
    fn names_are_those_that_are_looked_up() {
        let text = "http { upstream pool { server a.example:81; server 10.0.0.1; server unix:/x; }
            server { location / { proxy_pass http://pool; } location /b { proxy_pass \
            https://B.example/x; } location /c { proxy_pass http://$host; } location /d { \
            fastcgi_pass c.example:9000; } location /e { proxy_pass http://[::1]:80; } } }";
        let mut diagnostics = Diagnostics::new();
        let tree = load_text("x", text, &LoadOptions::default(), &mut diagnostics);
        let mut names = Names::default();
        names.collect(&tree.statements, "");
        let found: Vec<&String> = names.passed.difference(&names.groups).collect();
        assert_eq!(found, ["a.example", "b.example", "c.example"]);
    }

    #[test]
    fn name_without_an_address_is_critical() {
        let good = ("a".to_string(), Ok((1, 0.25)));
        let finding = judge(std::slice::from_ref(&good));
        assert_eq!((finding.state, finding.values.len()), (State::Ok, 3));
        for bad in [Ok((0, 0.1)), Err("no".to_string())] {
            let finding = judge(&[good.clone(), ("b".to_string(), bad)]);
            assert_eq!(finding.state, State::Critical);
            assert!(finding.text.starts_with("b: no"), "{}", finding.text);
        }
    }
}
