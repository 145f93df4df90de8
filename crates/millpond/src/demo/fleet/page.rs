//! The page of the demo's fleet, and what its buttons ask for.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /`, `/events`, `/board` | the page, its stream of events, the same once as JSON |
//! | `POST /ask?node=0&page=/news` | asks a node for a page; without `node` or `page`, all of them |
//! | `POST /edit?page=/news` | the origin has a newer edition |
//! | `POST /purge?node=0&kind=exact&what=/news` | purges at a node: a page, a `tag`, or `all` |
//! | `POST /kill?node=0`, `/start?node=0` | ends a node, or starts it; `node=nats` is the log |
//!
//! Invariants:
//! 1. A page of another site can change nothing: what changes something has a field that forms
//!    cannot send, and names this machine as its host.

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result};
use millpond_system::clock;
use serde_json::{Value, json};

use super::super::feed;
use super::super::http::{Answer, Request, Site, lock};
use super::board::About;
use super::part::Part;
use super::{Fleet, NAMES, NODES};

const HTML: &str = include_str!("page.html");
/// Field of the page's own requests.
const FIELD: &str = "Millpond-Demo";
/// Names of its host.
const HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];

/// The page.
pub(super) struct Page {
    fleet: Arc<Fleet>,
}

impl Page {
    /// The page of a fleet.
    pub(super) fn new(fleet: Arc<Fleet>) -> Page {
        Page { fleet }
    }

    fn change(&self, request: &Request) -> Answer {
        if !is_own(request) {
            return Answer::text(403, "This is for the demo's own page.\n");
        }
        let outcome = match request.path() {
            "/ask" => ask(&self.fleet, request),
            "/edit" => edit(&self.fleet, request),
            "/purge" => purge(&self.fleet, request),
            "/kill" => part(&self.fleet, request).map(Part::kill),
            "/start" => part(&self.fleet, request).and_then(Part::start),
            _ => return Answer::text(404, "There is no such thing.\n"),
        };
        match outcome {
            Ok(()) => Answer::text(200, "Done.\n"),
            Err(error) => Answer::text(502, &format!("{error:#}\n")),
        }
    }
}

impl Site for Page {
    fn answer(&self, request: &Request) -> io::Result<Answer> {
        if request.method == "POST" {
            return Ok(self.change(request));
        }
        Ok(match request.path() {
            "/" => feed::page(HTML),
            "/events" => {
                let fleet = Arc::clone(&self.fleet);
                feed::answer(&self.fleet.stop, move || shown(&fleet).to_string())
            }
            "/board" => {
                let text = shown(&self.fleet).to_string();
                Answer::whole(200, "application/json", text).field("Cache-Control", "no-store")
            }
            _ => Answer::text(404, "The page is at /.\n"),
        })
    }

    fn methods(&self) -> &'static [&'static str] {
        &["GET", "HEAD", "POST"]
    }
}

/// True for a request of this page: another name of the host would be one that somebody has made
/// point to this machine.
fn is_own(request: &Request) -> bool {
    let host = request.field("Host").unwrap_or_default();
    let name = host.split(':').next().unwrap_or_default();
    request.field(FIELD).is_some() && HOSTS.contains(&name)
}

/// All that the page shows.
fn shown(fleet: &Fleet) -> Value {
    let part = |part: &Part| json!({"name": part.name, "port": part.port, "pid": part.pid()});
    let pages = fleet.origin.pages.iter().map(|page| {
        let (edition, asked) = (page.edition(), page.asked());
        json!({"path": page.path, "tag": page.tag, "edition": edition, "asked": asked})
    });
    json!({
        "parts": fleet.nodes.each_ref().map(|node| part(&node.part)),
        "nats": part(&fleet.nats),
        "pages": pages.collect::<Vec<_>>(),
        "board": *lock(&fleet.board),
    })
}

fn number(request: &Request) -> Option<usize> {
    let number: usize = request.argument("node")?.parse().ok()?;
    (number < NODES).then_some(number)
}

fn part<'a>(fleet: &'a Fleet, request: &Request) -> Result<&'a Part> {
    if request.argument("node") == Some("nats") {
        return Ok(&fleet.nats);
    }
    let node = number(request).and_then(|number| fleet.nodes.get(number));
    Ok(&node.context("no such node")?.part)
}

fn ask(fleet: &Fleet, request: &Request) -> Result<()> {
    let (node, page) = (number(request), request.argument("page"));
    let is_meant = |index: usize| node.is_none_or(|node| node == index);
    let nodes = fleet.nodes.iter().enumerate();
    let meant = nodes.filter(|(index, node)| is_meant(*index) && node.part.pid().is_some());
    let pages = fleet.origin.pages.iter().map(|it| it.path);
    let paths: Vec<&str> = pages
        .filter(|it| page.is_none_or(|page| page == *it))
        .collect();
    // All at once: each waits for an origin that is slow.
    std::thread::scope(|scope| {
        for (index, _) in meant {
            for path in &paths {
                scope.spawn(move || ask_one(fleet, index, path));
            }
        }
    });
    Ok(())
}

fn ask_one(fleet: &Fleet, index: usize, path: &str) {
    let asked = fleet.nodes.get(index).map(|node| node.get(path));
    let mut board = lock(&fleet.board);
    // A node that has gone meanwhile has said nothing.
    if let (Some(Ok(asked)), Some(shown)) = (asked, board.nodes.get_mut(index)) {
        shown.asked.insert(path.to_string(), asked);
    }
}

fn edit(fleet: &Fleet, request: &Request) -> Result<()> {
    let path = request.argument("page").context("no page")?;
    fleet.origin.page(path).context("no such page")?.edit();
    Ok(())
}

fn purge(fleet: &Fleet, request: &Request) -> Result<()> {
    let number = number(request).context("no such node")?;
    let node = fleet.nodes.get(number).context("no such node")?;
    let word = |name| request.argument(name).unwrap_or_default().to_string();
    let about = About {
        kind: word("kind"),
        what: word("what"),
    };
    // Purged is only what there are buttons for.
    let is_known = match about.kind.as_str() {
        "exact" => fleet.origin.page(&about.what).is_some(),
        "tag" => fleet.origin.pages.iter().any(|page| page.tag == about.what),
        kind => kind == "all" && about.what.is_empty(),
    };
    anyhow::ensure!(is_known, "no such purge");
    let name = NAMES.get(number).copied().unwrap_or_default();
    anyhow::ensure!(node.part.pid().is_some(), "{name} does not run");
    let sent = lock(&fleet.board).sent(about.clone(), Some(number), clock::instant());
    let reach = node
        .purge(&about)
        .unwrap_or_else(|error| format!("{error:#}"));
    lock(&fleet.board).answered(sent, reach, clock::instant());
    Ok(())
}
