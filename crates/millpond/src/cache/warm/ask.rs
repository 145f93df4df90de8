//! The users that ask, at a pace: each takes the next URL, and waits for its slot.
//!
//! Names are resolved once for each connection, and a user keeps one to each of the hosts that it
//! asked last.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use millpond_gauge::client::{Head, Reader, Sessions, Target, Tls};
use millpond_server::control::report::ProgressReport;
use millpond_system::clock::{self, Instant};
use tokio::task::JoinSet;

use super::Done;
use super::options::Options;
use super::tally::Tally;
use crate::cache::output::Bar;
use crate::url::{Scheme, Url};

/// Field that a cache status is looked for in, as most configurations name it.
const STATUS_FIELD: &str = "X-Cache-Status";
/// Connections that a user keeps, to as many hosts.
const KEPT_MAX: usize = 8;

/// One user, with connections that it keeps.
struct User {
    options: Rc<Options>,
    kept: HashMap<(Scheme, String), Reader>,
}

impl User {
    fn new(options: &Rc<Options>) -> User {
        User {
            options: Rc::clone(options),
            kept: HashMap::new(),
        }
    }

    async fn target(&self, url: &Url<'_>) -> Result<Target> {
        let address = self.options.to.clone().unwrap_or_else(|| url.address());
        let mut found = tokio::net::lookup_host(&address)
            .await
            .with_context(|| address.clone())?;
        let first = found.next().context("the host has no address")?;
        let mut target = Target::new(first, url.authority.to_owned());
        STATUS_FIELD.clone_into(&mut target.status_field);
        target.timeout = self.options.late;
        if url.scheme == Scheme::Https {
            target.tls = Some(Arc::new(Tls::new(
                &self.options.trust,
                url.host(),
                Sessions::Resumed,
            )?));
        }
        Ok(target)
    }

    async fn get(&mut self, url: &str, each: &mut dyn FnMut(&[u8])) -> Result<Head> {
        let parsed = Url::parse(url)?;
        let place = (parsed.scheme, parsed.authority.to_owned());
        if !self.kept.contains_key(&place) {
            if self.kept.len() >= KEPT_MAX {
                self.kept.clear();
            }
            let target = self.target(&parsed).await?;
            self.kept
                .insert(place.clone(), Reader::new(Arc::new(target)));
        }
        let reader = self.kept.get_mut(&place).context("a connection")?;
        let mut each = |piece: &[u8]| {
            each(piece);
            Ok(())
        };
        Ok(reader
            .get(parsed.path, &self.options.fields, &mut each)
            .await?)
    }
}

/// Gets a URL on a connection of its own.
pub(super) async fn get(
    options: &Rc<Options>,
    url: &str,
    each: &mut dyn FnMut(&[u8]),
) -> Result<Head> {
    User::new(options).get(url, each).await
}

/// State that the users of a run share.
struct Run {
    urls: Vec<String>,
    /// Number of the next URL.
    next: Cell<usize>,
    /// The earliest time of the next request.
    slot: Cell<Instant>,
    pause: Duration,
    tally: RefCell<Tally>,
    bar: RefCell<Bar>,
    done: RefCell<Option<Done>>,
}

/// Asks for all URLs.
pub(super) async fn all(
    options: &Rc<Options>,
    urls: Vec<String>,
    done: Option<Done>,
) -> Result<Tally> {
    let began = clock::instant();
    let run = Rc::new(Run {
        urls,
        next: Cell::new(0),
        slot: Cell::new(began),
        pause: Duration::from_secs(1) / options.rate,
        tally: RefCell::default(),
        bar: RefCell::new(Bar::new("warm")),
        done: RefCell::new(done),
    });
    let mut users = JoinSet::new();
    for _ in 0..run.urls.len().min(options.users as usize) {
        let (run, user) = (Rc::clone(&run), User::new(options));
        users.spawn_local(async move { run.user(user).await });
    }
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            ended = users.join_next() => match ended {
                Some(ended) => ended??,
                None => break,
            },
            // INVARIANT 3.
            _ = &mut interrupt => break,
        }
    }
    users.shutdown().await;
    run.bar.borrow_mut().clear();
    let mut tally = run.tally.borrow().clone();
    tally.left = (run.urls.len() as u64).saturating_sub(tally.ended());
    tally.time = clock::instant() - began;
    Ok(tally)
}

impl Run {
    async fn user(&self, mut user: User) -> Result<()> {
        while let Some(url) = self.urls.get(self.next.get()) {
            self.next.set(self.next.get() + 1);
            self.pace().await;
            let mut bytes = 0;
            let mut count = |piece: &[u8]| bytes += piece.len() as u64;
            let got = user.get(url, &mut count).await;
            self.tally.borrow_mut().bytes += bytes;
            self.note(url, got)?;
        }
        Ok(())
    }

    /// Waits until the next request may begin. INVARIANT 1.
    async fn pace(&self) {
        let slot = self.slot.get().max(clock::instant());
        self.slot.set(slot + self.pause);
        tokio::time::sleep_until(slot).await;
    }

    fn note(&self, url: &str, got: Result<Head>) -> Result<()> {
        let mut tally = self.tally.borrow_mut();
        let is_good = got.as_ref().is_ok_and(|head| head.status < 400);
        match got {
            Ok(head) => {
                if !is_good {
                    self.say(url, &head.status);
                }
                *tally.statuses.entry(head.status).or_default() += 1;
                if let Some(status) = head.cache_status {
                    *tally.cache.entry(status).or_default() += 1;
                }
            }
            Err(error) => {
                tally.unanswered += 1;
                self.say(url, &format!("{error:#}"));
            }
        }
        self.bar.borrow_mut().draw(&ProgressReport {
            done: tally.ended(),
            all: self.urls.len() as u64,
            bytes: tally.bytes,
        });
        match self.done.borrow_mut().as_mut() {
            Some(done) if is_good => done.note(url),
            _ => Ok(()),
        }
    }

    fn say(&self, url: &str, why: &dyn std::fmt::Display) {
        self.bar.borrow_mut().clear();
        eprintln!("{url}: {why}");
    }
}
