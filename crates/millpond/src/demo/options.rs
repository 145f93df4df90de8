//! The words behind `millpond demo`: which demo is to be shown, and with what.
//!
//! Without words it is the demo of one server.

use std::path::PathBuf;

use crate::options::OptionError;

/// Usage of the command.
pub(super) const USAGE: &str = "usage: millpond demo
       millpond demo --fleet [--nats PROGRAM] [--port PORT]

A slow origin on port 8081, Millpond in front of it on 8080, and by https on 8443, and a live page
on 8082, all on 127.0.0.1, until Ctrl+C; other ports where these are taken. It writes to one
temporary directory.

  --fleet         three nodes of a fleet, their log in NATS, an origin, and a page that shows which
                  node has what and purges: on ports 8090 to 8095, or others where these are taken
  --nats PROGRAM  the nats-server to run; else that of NATS_SERVER, or the one in PATH
  --port PORT     the page's port; the five behind it are those of nodes, origin and NATS
";

/// The demo that is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Show {
    /// One server.
    Server,
    /// A fleet.
    Fleet(FleetOptions),
}

/// Choices for a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FleetOptions {
    /// The program of NATS.
    pub(super) nats: Option<PathBuf>,
    /// The first of the ports.
    pub(super) port: Option<u16>,
}

/// Reads the words.
pub(super) fn parse(words: impl Iterator<Item = String>) -> Result<Show, OptionError> {
    let (mut is_fleet, mut chosen) = (false, FleetOptions::default());
    let mut words = words;
    while let Some(word) = words.next() {
        let missing = || OptionError::Missing(word.clone());
        match word.as_str() {
            "--fleet" => is_fleet = true,
            "--nats" => chosen.nats = Some(words.next().ok_or_else(missing)?.into()),
            "--port" => chosen.port = Some(port(&word, words.next().ok_or_else(missing)?)?),
            _ => return Err(OptionError::Invalid(word)),
        }
    }
    match (is_fleet, chosen == FleetOptions::default()) {
        (true, _) => Ok(Show::Fleet(chosen)),
        (false, true) => Ok(Show::Server),
        (false, false) => Err(OptionError::Nothing("--nats and --port need --fleet")),
    }
}

fn port(option: &str, value: String) -> Result<u16, OptionError> {
    let found = value.parse().ok();
    // Five more are counted from it.
    let in_range = found.filter(|port| (1..=u16::MAX - 5).contains(port));
    in_range.ok_or_else(|| OptionError::Value {
        option: option.to_string(),
        value,
        expected: "a port from 1 to 65530",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_fleet_need_a_fleet() {
        let parsed = |text: &str| parse(text.split_whitespace().map(str::to_string));
        let fleet = |nats: Option<&str>, port| {
            let nats = nats.map(PathBuf::from);
            Ok(Show::Fleet(FleetOptions { nats, port }))
        };
        for (words, expected) in [
            ("", Ok(Show::Server)),
            ("--fleet", fleet(None, None)),
            (
                "--fleet --port 9000 --nats /n",
                fleet(Some("/n"), Some(9000)),
            ),
            (
                "--port 9000",
                Err(OptionError::Nothing("--nats and --port need --fleet")),
            ),
            (
                "--fleet --nats",
                Err(OptionError::Missing("--nats".to_string())),
            ),
            ("--fleet x", Err(OptionError::Invalid("x".to_string()))),
        ] {
            assert_eq!(parsed(words), expected, "{words}");
        }
        for word in ["0", "65531", "-1", "a"] {
            let words = format!("--fleet --port {word}");
            let refused = matches!(parsed(&words), Err(OptionError::Value { .. }));
            assert!(refused, "{words}");
        }
    }
}
