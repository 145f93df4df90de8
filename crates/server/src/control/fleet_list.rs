//! `GET /fleets/NAME/nodes/NODE/zones/ZONE/entries`: what another node of a fleet has stored; and
//! the own lists for nodes that ask.
//!
//! The question goes through NATS (`millpond_fleet::ask`), and the other node answers as its own
//! API would.
//!
//! 1. Other nodes are told lists of entries and nothing else.

use std::io;
use std::sync::{Arc, Weak};

use millpond_fleet::ask::Catalogue;
use millpond_fleet::asking::Asking;

use super::Source;
use super::api::{self, Answer, Ask, Body, Lines, PREFIX, Scene, Verb};
use super::query::{self, Parameters};
use super::report::{self, ProblemReport};

/// The zones of the process, for other nodes.
#[derive(Debug)]
pub(super) struct OwnZones(pub(super) Weak<Source>);

/// Receiver of lines that may have enough.
struct Taker<'a>(&'a mut dyn FnMut(&str) -> bool);

impl Lines for Taker<'_> {
    fn push(&mut self, line: &str) -> io::Result<()> {
        if (self.0)(line) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    fn push_now(&mut self, line: &str) -> io::Result<()> {
        self.push(line)
    }

    fn is_wanted(&mut self) -> bool {
        true
    }
}

impl Catalogue for OwnZones {
    fn list(&self, target: &str, take: &mut dyn FnMut(&str) -> bool) -> Result<(), String> {
        let source = self.0.upgrade().ok_or("the process is about to end")?;
        let (segments, parameters) = query::split(target.as_bytes());
        let names: Vec<&str> = segments.iter().map(String::as_str).collect();
        // INVARIANT 1.
        let Some(["zones", _, "entries"]) = names.strip_prefix(&PREFIX) else {
            return Err("only entries are listed".to_owned());
        };
        let ask = Ask {
            verb: Verb::Get,
            segments,
            parameters,
        };
        match api::answer(&source.scene(), &ask).body {
            Body::Lines(make) => make(&mut Taker(take)).map_err(|why| why.to_string()),
            Body::Json(text) => {
                let problem = serde_json::from_str(&text);
                Err(problem.map_or(text, |problem: ProblemReport| problem.error))
            }
            Body::Events(_) => Err("there is no list".to_owned()),
        }
    }
}

/// Answers with the entries of a zone of another node.
pub(super) fn entries(
    scene: &Scene,
    [fleet, node, zone]: [&str; 3],
    parameters: &Parameters,
) -> Answer {
    let found = super::fleet::fleets(scene).and_then(|fleets| fleets.find(fleet));
    let Some(own) = found else {
        return report::problem(404, format!("no fleet \"{fleet}\" is followed"));
    };
    if !own.view().members.contains_key(node) {
        return report::problem(404, format!("no node \"{node}\" was heard of"));
    }
    let path = [&PREFIX[..], &["zones", zone, "entries"]].concat();
    let segments: Vec<String> = path.into_iter().map(str::to_owned).collect();
    let mut asking = Asking::new(Arc::clone(&own), node, query::join(&segments, parameters));
    // The status depends on it.
    let first = match asking.next_lines() {
        Ok(first) => first,
        Err(why) => return report::problem(503, why),
    };
    let make = Box::new(move |lines: &mut dyn Lines| -> io::Result<()> {
        let mut piece = first;
        while let Some(bytes) = piece {
            let text = std::str::from_utf8(&bytes).map_err(io::Error::other)?;
            text.lines().try_for_each(|line| lines.push(line))?;
            if !lines.is_wanted() {
                break;
            }
            piece = asking.next_lines().map_err(io::Error::other)?;
        }
        Ok(())
    });
    Answer {
        status: 200,
        body: Body::Lines(make),
    }
}
