//! `$cache_status_reason`: why the cache did what it did for a request, as one word.
//!
//! A walk notes what it decides as it goes ([`Note`]); the [`Account`] keeps what is worth telling:
//! why the request was forwarded, why its answer was or was not stored, whether it was shared. It
//! is what Cache-Status (RFC 9211) and logs are written from.
//!
//! 1. An account is for people. No step looks at it; how an answer is shown may depend on it.
//! 2. What a later step notes stands in place of what an earlier one did: a request that looks
//!    again is told of by its last look.

use millpond_semantics::cache_status::Forward;
use millpond_store::NotStored;

/// The reason, besides what [`Forward`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The stored answer was fresh.
    Fresh,
    /// The entry was stale, and the client takes stale answers.
    MaxStale,
    /// The entry was stale and served while this request's update runs in the background.
    WhileRevalidating,
    /// The entry was stale and served while another request updates it.
    Updating,
    /// The entry was stale and served because the origin failed.
    OnError,
    /// The origin said that it has not changed.
    NotModified,
    /// The client wants a stored answer only, and there is none.
    OnlyIfCached,
    /// Only what is stored may answer the request.
    CachedOnly,
    /// The origin failed a moment ago.
    RecentFailure,
    /// The request that this one waited for failed.
    SharedFailure,
    /// The request has not been made often enough yet.
    MinUses,
    /// The range begins too deep in the body.
    RangeOffset,
    /// The request waited for another request's answer for too long.
    LockTimeout,
    /// Another request was already asking, and nobody waits here.
    NoLock,
    /// The answer that the request waited for was not one to share.
    NotShared,
    /// Another request was storing the answer.
    BeingStored,
    /// Answers for this key were none to store a moment ago, so nobody waits.
    HitForPass,
    /// The configuration excludes the answer (`proxy_no_cache`).
    Excluded,
    /// The answer is to a GET with a body.
    RequestBody,
    /// The answer may not be read ahead of its client.
    Unbuffered,
    /// The answer is not final.
    Interim,
    /// The answer redirects inside the server.
    AccelRedirect,
    /// `X-Accel-Expires: 0`.
    AccelExpires,
    /// `no-cache`.
    NoCache,
    /// `no-store`, of the answer or of the request.
    NoStore,
    /// `private`.
    Private,
    /// The answer sets a cookie.
    SetCookie,
    /// The answer's Vary is `*` or too long.
    VaryStar,
    /// The answer's key has too many variants already.
    Variants,
    /// The answer is in an old coding, which is not regarded when variants are told apart.
    VaryCoding,
    /// The answer was stale when it came.
    Expired,
    /// The Cache-Control of the answer has a number that cannot be read.
    Malformed,
    /// The answer is a range of a body whose version nothing names.
    Unversioned,
    /// Nothing says for how long it is fresh.
    NoTime,
    /// Answers with this status are not stored.
    Status,
    /// The answer has `must-understand`, and its status is not understood.
    MustUnderstand,
    /// The request had credentials, and the answer does not say that it is for all.
    Authorization,
    /// The origin broke the answer off, or fell silent before its end.
    Truncated,
    /// The answer is larger than the zone can hold.
    TooLarge,
    /// All of the zone is in use.
    ZoneFull,
    /// The disk does not keep up.
    DiskBusy,
    /// The disk takes nothing.
    DiskError,
    /// The stored entry is on a disk that does not answer.
    DiskStalled,
    /// The stored entry is not known yet: the zone is being loaded.
    Loading,
    /// Something took the answer's place while it was stored.
    Superseded,
    /// The site of the answer holds as much as it may.
    SiteQuota,
    /// The zone is being closed.
    ZoneClosed,
    /// The answer is kept by the node that owns the key, and was asked for here once.
    OfOwner,
    /// A script decided so.
    Ruled,
    /// The answer's No-Vary-Search is not the one that its key was made by.
    NoVarySearch,
}

impl Reason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Fresh => "fresh",
            Reason::MaxStale => "max-stale",
            Reason::WhileRevalidating => "stale-while-revalidate",
            Reason::Updating => "updating",
            Reason::OnError => "stale-if-error",
            Reason::NotModified => "not-modified",
            Reason::OnlyIfCached => "only-if-cached",
            Reason::CachedOnly => "cached-only",
            Reason::RecentFailure => "recent-failure",
            Reason::SharedFailure => "shared-failure",
            Reason::MinUses => "min-uses",
            Reason::RangeOffset => "range-offset",
            Reason::LockTimeout => "lock-timeout",
            Reason::NoLock => "no-lock",
            Reason::NotShared => "not-shared",
            Reason::BeingStored => "being-stored",
            Reason::HitForPass => "hit-for-pass",
            Reason::Excluded => "excluded",
            Reason::RequestBody => "request-body",
            Reason::Unbuffered => "unbuffered",
            Reason::Interim => "interim",
            Reason::AccelRedirect => "accel-redirect",
            Reason::AccelExpires => "accel-expires",
            Reason::NoCache => "no-cache",
            Reason::NoStore => "no-store",
            Reason::Private => "private",
            Reason::SetCookie => "set-cookie",
            Reason::VaryStar => "vary-star",
            Reason::Variants => "variants",
            Reason::VaryCoding => "vary-coding",
            Reason::Expired => "expired",
            Reason::Malformed => "malformed",
            Reason::Unversioned => "no-validator",
            Reason::NoTime => "no-time",
            Reason::Status => "status",
            Reason::MustUnderstand => "must-understand",
            Reason::Authorization => "authorization",
            Reason::Truncated => "truncated",
            Reason::TooLarge => "too-large",
            Reason::ZoneFull => "zone-full",
            Reason::DiskBusy => "disk-busy",
            Reason::DiskError => "disk-error",
            Reason::DiskStalled => "disk-stalled",
            Reason::Loading => "loading",
            Reason::Superseded => "superseded",
            Reason::SiteQuota => "site-quota",
            Reason::ZoneClosed => "zone-closed",
            Reason::OfOwner => "of-owner",
            Reason::Ruled => "script",
            Reason::NoVarySearch => "no-vary-search",
        }
    }

    /// True if a field of the origin's answer keeps it from being stored.
    pub fn is_of_fields(self) -> bool {
        matches!(
            self,
            Reason::AccelRedirect
                | Reason::AccelExpires
                | Reason::NoCache
                | Reason::NoStore
                | Reason::Private
                | Reason::SetCookie
                | Reason::VaryStar
                | Reason::Expired
                | Reason::Malformed
        )
    }

    /// Meaning of the reason, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Reason::Fresh => "it is fresh",
            Reason::MaxStale => "it is stale, and the client takes stale answers (max-stale)",
            Reason::WhileRevalidating => "it is stale, and is updated behind the answer",
            Reason::Updating => "it is stale, and another request updates it",
            Reason::OnError => "it is stale, and the origin failed",
            Reason::NotModified => "the origin said that it has not changed",
            Reason::OnlyIfCached => "the client wants a stored answer only, and there is none",
            Reason::CachedOnly => "only what is stored may answer it (cached_only)",
            Reason::RecentFailure => "the origin failed a moment ago",
            Reason::SharedFailure => "the request that it waited for failed",
            Reason::MinUses => "it was not asked for often enough (min_uses, admission)",
            Reason::RangeOffset => "the range begins too deep in the body (max_range_offset)",
            Reason::LockTimeout => "it waited for another request for too long (lock_timeout)",
            Reason::NoLock => "another request was asking already, and the lock is off",
            Reason::NotShared => "the answer that it waited for was not one to share",
            Reason::BeingStored => "another request was storing the answer",
            Reason::HitForPass => "answers for this key could not be stored a moment ago",
            Reason::Excluded => "the configuration excludes it (no_cache)",
            Reason::RequestBody => "the request was a GET with a body",
            Reason::Unbuffered => "the answer is not buffered (X-Accel-Buffering, buffering off)",
            Reason::Interim => "the answer is not final",
            Reason::AccelRedirect => "the answer redirects inside the server (X-Accel-Redirect)",
            Reason::AccelExpires => "the answer says X-Accel-Expires: 0",
            Reason::NoCache => "the answer says Cache-Control: no-cache",
            Reason::NoStore => "the answer, or the request, says Cache-Control: no-store",
            Reason::Private => "the answer says Cache-Control: private",
            Reason::SetCookie => "the answer sets a cookie",
            Reason::VaryStar => "its Vary is * or too long",
            Reason::Variants => "its key has too many variants already (max_variants)",
            Reason::VaryCoding => "it is in an old coding, which variants are not told apart by",
            Reason::Expired => "it was stale when it came",
            Reason::Malformed => "a number in its Cache-Control cannot be read",
            Reason::Unversioned => "it is a range of a body whose version nothing names",
            Reason::NoTime => "neither the answer nor the configuration says for how long (valid)",
            Reason::Status => "answers with its status are not stored",
            Reason::MustUnderstand => "it says must-understand, and its status is not understood",
            Reason::Authorization => "the request had credentials",
            Reason::Truncated => "the origin broke it off, or fell silent before its end",
            Reason::TooLarge => "it is larger than the zone can hold",
            Reason::ZoneFull => "all of the zone is in use",
            Reason::DiskBusy => "the disk does not keep up",
            Reason::DiskError => "the disk takes nothing",
            Reason::DiskStalled => "what is stored is on a disk that does not answer",
            Reason::Loading => "what the zone holds is not known yet: it is being loaded",
            Reason::Superseded => "something took its place while it was stored",
            Reason::SiteQuota => "its site holds as much as it may (cache_site_quota)",
            Reason::ZoneClosed => "the zone is being closed",
            Reason::OfOwner => "the node that owns its key keeps it (proxy_cache_peers)",
            Reason::Ruled => "a script decided so (js_cache_verdict)",
            Reason::NoVarySearch => "its No-Vary-Search is another than that of the last answer",
        }
    }
}

impl From<NotStored> for Reason {
    fn from(why: NotStored) -> Self {
        match why {
            NotStored::AskedSeldom => Reason::MinUses,
            NotStored::Full => Reason::ZoneFull,
            NotStored::QueueFull => Reason::DiskBusy,
            NotStored::TooLarge => Reason::TooLarge,
            NotStored::Superseded => Reason::Superseded,
            NotStored::Unloaded => Reason::Loading,
            NotStored::SiteFull => Reason::SiteQuota,
            NotStored::Closed => Reason::ZoneClosed,
            _ => Reason::DiskError,
        }
    }
}

/// Note of a walk about what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The request is answered from what is stored.
    Hit(Reason),
    /// The request goes on towards the origin.
    Forwarded(Forward),
    /// Reason why the request goes on as it does.
    Because(Reason),
    /// The request's answer is being stored.
    Stored,
    /// The request reads another request's answer while that comes.
    Collapsed,
    /// The answer is fetched for the request, and for whoever else wants it.
    Led,
    /// The request waited for an answer that is fetched for another request.
    Waited,
    /// The request has to ask by itself after all.
    Alone,
    /// Bytes of the entry that answers it came while it was asked for.
    Brought(Brought),
}

/// Bytes of an entry that were not in the cache when a request came, and are there now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Brought {
    /// No bytes: they were all there, or are fetched while they are read.
    #[default]
    Nothing,
    /// All.
    All,
    /// Bytes from the first to before the second.
    Range(u64, u64),
}

/// The part of a request in the fill that answers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FillRole {
    /// The request is answered from what was stored before, or by its origin alone.
    #[default]
    None,
    /// The request caused the fill.
    Leader,
    /// The request waited for another's fill, or read along.
    Waiter,
}

impl FillRole {
    /// The word of `$cache_fill_role`.
    pub fn as_str(self) -> &'static str {
        match self {
            FillRole::None => "none",
            FillRole::Leader => "leader",
            FillRole::Waiter => "waiter",
        }
    }
}

/// Account of a walk: what is worth telling of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Reason why the request went on towards the origin, if it did.
    pub forward: Option<Forward>,
    /// Further reason, besides the forwarding.
    pub reason: Option<Reason>,
    /// True if the request's answer is stored.
    pub is_stored: bool,
    /// True if the request shares another request's answer.
    pub is_collapsed: bool,
    /// Part of the request in the fill. A later look does not make it forgotten.
    pub role: FillRole,
    /// Bytes that were fetched while the entry was asked for. A later look does not make it
    /// forgotten.
    pub brought: Brought,
}

impl Account {
    /// Enters a note.
    pub fn note(&mut self, note: Note) {
        match note {
            Note::Hit(reason) => {
                *self = Account {
                    reason: Some(reason),
                    role: self.role,
                    brought: self.brought,
                    ..Account::default()
                }
            }
            Note::Forwarded(forward) => {
                *self = Account {
                    forward: Some(forward),
                    role: self.role,
                    brought: self.brought,
                    ..Account::default()
                }
            }
            Note::Because(reason) => self.reason = Some(reason),
            Note::Stored => self.is_stored = true,
            Note::Collapsed => {
                self.is_collapsed = true;
                self.role = FillRole::Waiter;
            }
            Note::Led => self.role = FillRole::Leader,
            Note::Waited => self.role = FillRole::Waiter,
            Note::Alone => self.role = FillRole::None,
            Note::Brought(brought) => self.brought = brought,
        }
    }

    /// Meaning of that word, for people.
    pub fn meaning(&self) -> Option<&'static str> {
        let forward = self.forward.map(|forward| match forward {
            Forward::Bypass => "the look-up is skipped (bypass)",
            Forward::UriMiss | Forward::Miss => "nothing was stored",
            Forward::VaryMiss => "no such variant was stored",
            Forward::Request => "the client wants no stored answer",
            Forward::Stale => "what was stored is stale",
            Forward::Partial => "a part of the body was missing",
            _ => "it is none that a cache answers",
        });
        self.reason.map(Reason::meaning).or(forward)
    }

    /// The one word that says most.
    pub fn word(&self) -> Option<&'static str> {
        let forward = self.forward.map(Forward::as_str);
        self.reason.map(Reason::as_str).or(forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_look_is_told_and_what_followed_it() {
        let mut account = Account::default();
        assert_eq!(account.word(), None);
        account.note(Note::Forwarded(Forward::UriMiss));
        assert_eq!(account.word(), Some("uri-miss"));
        account.note(Note::Because(Reason::SetCookie));
        assert_eq!(account.word(), Some("set-cookie"));
        account.note(Note::Forwarded(Forward::Stale));
        assert_eq!(account.word(), Some("stale"));
        account.note(Note::Stored);
        assert!(account.is_stored);
        account.note(Note::Hit(Reason::Fresh));
        assert_eq!((account.word(), account.forward), (Some("fresh"), None));
        assert!(!account.is_stored);
        account.note(Note::Brought(Brought::All));
        account.note(Note::Hit(Reason::Fresh));
        assert_eq!(account.brought, Brought::All);
    }
}
