//! The step that asks the origin: to fill, to revalidate, or for this client alone.

use std::sync::Arc;

use bytes::Bytes;
use millpond_semantics::date::format_http_date;
use millpond_store::NotStored;

use super::store::{Lifetime, storable, storage_key};
use super::{Ask, Exchange, FetchFailure, Fetched, Purpose, Served, Step, Walk, found};
use crate::fill::pump::{Primed, Pump};
use crate::fill::{FillEnd, Lead, Streaming};
use crate::head::StoredHead;
use crate::status::CacheStatus;
use crate::use_stale::StaleCause;
use crate::verdict::StaleRules;
use crate::zone::FoundEntry;

/// Asks the origin.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// The obligation to fill; without one the answer is not stored.
    lead: Option<Lead>,
    /// The stale entry that the answer is to replace or renew.
    stale: Option<Stale>,
    status: CacheStatus,
}

#[derive(Debug)]
struct Stale {
    found: Box<FoundEntry>,
    /// `None` for a background update, which serves nobody.
    rules: Option<StaleRules>,
}

impl Fetch {
    /// For a missing entry.
    pub(crate) fn miss(lead: Lead) -> Self {
        Fetch {
            lead: Some(lead),
            stale: None,
            status: CacheStatus::Miss,
        }
    }

    /// Past the look-up, to be stored.
    pub(crate) fn bypass(lead: Lead) -> Self {
        Fetch {
            lead: Some(lead),
            stale: None,
            status: CacheStatus::Bypass,
        }
    }

    /// For this client alone, though as a fill would ask.
    pub(crate) fn unstored(status: CacheStatus) -> Self {
        Fetch {
            lead: None,
            stale: None,
            status,
        }
    }

    /// For a stale entry that a client waits for.
    pub(crate) fn stale(lead: Lead, found: Box<FoundEntry>, rules: StaleRules) -> Self {
        let stale = Some(Stale {
            found,
            rules: Some(rules),
        });
        Fetch {
            lead: Some(lead),
            stale,
            status: CacheStatus::Expired,
        }
    }

    /// For a stale entry that was served already.
    pub(crate) fn update(lead: Lead, found: Box<FoundEntry>) -> Self {
        let stale = Some(Stale { found, rules: None });
        Fetch {
            lead: Some(lead),
            stale,
            status: CacheStatus::Expired,
        }
    }

    pub(crate) async fn run<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
    ) -> Result<Step<X>, X::Failure> {
        let ask = self.ask(walk);
        match x.fetch(&ask).await {
            Ok(fetched) => Ok(self.answered(x, walk, fetched).await),
            Err(failure) => self.failed(x, walk, failure),
        }
    }

    fn ask(&self, walk: &Walk) -> Ask {
        let mut ask = Ask {
            purpose: Purpose::Fill,
            ..Ask::default()
        };
        if self.lead.is_none() {
            ask.purpose = Purpose::Pass;
        }
        let Some(stale) = &self.stale else { return ask };
        if walk.policies.revalidate.conditional {
            let head = &stale.found.head;
            ask.if_none_match = head.field(b"etag");
            ask.if_modified_since = head
                .last_modified
                .map(|time| Bytes::copy_from_slice(&format_http_date(time)));
        }
        ask
    }

    fn failed<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
        failure: X::Failure,
    ) -> Result<Step<X>, X::Failure> {
        let status = failure.status();
        if let Some(lead) = self.lead {
            remember(walk, x.now(), &lead, status);
            lead.end(FillEnd::Failed(status));
        }
        match self.stale {
            Some(Stale {
                found,
                rules: Some(rules),
            }) if rules.covers(failure.cause(), &walk.policies.stale) => {
                Ok(Step::Done(Served::Entry(found, CacheStatus::Stale)))
            }
            _ => Err(failure),
        }
    }

    async fn answered<X: Exchange>(self, x: &mut X, walk: &Walk, fetched: X::Fetched) -> Step<X> {
        let Some(lead) = self.lead else {
            return Step::Done(Served::Passed(fetched, self.status));
        };
        let key = *lead.key();
        match self.stale {
            Some(stale) if is_unchanged(walk, &fetched) => {
                return renew(x, walk, lead, stale.found, &fetched);
            }
            Some(Stale {
                found,
                rules: Some(rules),
            }) if is_covered(walk, rules, fetched.status()) => {
                lead.end(FillEnd::Failed(fetched.status()));
                return Step::Done(Served::Entry(found, CacheStatus::Stale));
            }
            _ => {}
        }
        let Some(head) = storable(x, walk, &fetched) else {
            lead.end(FillEnd::NotStorable);
            return Step::Done(Served::Passed(fetched, self.status));
        };
        walk.zone.forget_error(&key);
        match begin(walk, key, &head, fetched.length()) {
            Ok(writer) => fill(x, lead, head, (fetched, writer), self.status),
            Err(_) => {
                lead.end(FillEnd::NotStorable);
                Step::Done(Served::Passed(fetched, self.status))
            }
        }
    }
}

/// nginx remembers 502 and 504 of its own for as long as `proxy_cache_valid` says.
fn remember(walk: &Walk, now: i64, lead: &Lead, status: u16) {
    if !matches!(status, 502 | 504) {
        return;
    }
    if let Some(time) = walk.policies.valid.time_for(status) {
        let until = now.saturating_add(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
        walk.zone.remember_error(*lead.key(), status, until);
    }
}

fn is_unchanged<F: Fetched>(walk: &Walk, fetched: &F) -> bool {
    fetched.status() == 304 && walk.policies.revalidate.conditional
}

fn is_covered(walk: &Walk, rules: StaleRules, status: u16) -> bool {
    match StaleCause::of_status(status) {
        Some(cause) => rules.covers(Some(cause), &walk.policies.stale),
        None => false,
    }
}

/// RFC 9111 §4.3.4: a 304 makes the stored answer fresh again.
fn renew<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    lead: Lead,
    mut stale: Box<FoundEntry>,
    fetched: &X::Fetched,
) -> Step<X> {
    let now = x.now();
    stale.head.stored_at = now;
    Lifetime::renewed(walk, fetched, &stale.head, now).apply(&mut stale.head);
    // An entry that cannot be written again stays stale and is asked for again.
    if let Ok(entry) = walk
        .zone
        .store
        .replace_head(&stale.entry, stale.head.encode())
    {
        stale.entry = entry;
    }
    lead.end(FillEnd::Complete);
    Step::Done(Served::Entry(stale, CacheStatus::Revalidated))
}

fn begin(
    walk: &Walk,
    looked_up: millpond_store::Key,
    head: &StoredHead,
    length: Option<u64>,
) -> Result<millpond_store::Writer, NotStored> {
    let key = storage_key(walk, head, looked_up);
    let mut writer = walk.zone.store.begin(key, length)?;
    writer.set_head(head.encode());
    Ok(writer)
}

/// Stores the answer while it arrives, and lets everybody read it.
fn fill<X: Exchange>(
    x: &mut X,
    lead: Lead,
    head: StoredHead,
    (fetched, writer): (X::Fetched, millpond_store::Writer),
    status: CacheStatus,
) -> Step<X> {
    let length = fetched.length();
    let (mut pump, reader) = Pump::new(fetched, writer);
    let streaming = Arc::new(Streaming {
        head,
        length,
        view: reader.view.clone(),
    });
    if pump.prime() == Primed::More {
        lead.begin(Arc::clone(&streaming));
        x.spawn(pump.run(lead));
        return Step::Done(Served::Filling(streaming, reader, status));
    }
    match pump.finish() {
        Ok(entry) => {
            let found = found(&lead, entry, streaming.head.clone());
            lead.end(FillEnd::Complete);
            Step::Done(Served::Entry(found, status))
        }
        Err(_) => {
            lead.end(FillEnd::NotStorable);
            Step::Done(Served::Filling(streaming, reader, status))
        }
    }
}
