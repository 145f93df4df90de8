//! The set of a zone's disks: who is in, who is away, and of what time each is.
//!
//! ```text
//!   Away ──opened──► Joining ──placed──► Live ──given up──► Away
//! ```
//!
//! - `Away`: not used; tried again at a time.
//! - `Joining`: open, with no keys of its own yet.
//! - `Live`: has its share of the keys.
//!
//! Each disk's superblock names the set that it is of, with a generation that grows whenever a
//! disk leaves the set or comes into it, and a digest of all that are in and of their shares. A
//! disk that was away has an older generation: what it holds may be out of date.
//!
//! 1. When a zone is opened, only disks of the newest generation that is found keep what they
//!    hold; others are emptied.
//! 2. A disk that leaves is not of the newest generation any more before its keys are given to
//!    others; one that comes is of the newest generation only after it has got its keys.
//! 3. The limits of all disks together are those of the zone.
//! 4. All disks have the secret of the zone, which does not change while the zone is open: keys are
//!    the same on each of them. What another one has under another secret is removed.
//!
//! This module decides; what takes long is done by `maintenance`.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use xxhash_rust::xxh3::xxh3_64;

use super::placement::Weighed;
use crate::clock::Clock;
use crate::disk::format::Membership;
use crate::health;
use crate::key::Secret;
use crate::recover::{How, Parents, Start, StoreError};
use crate::scrub::Scrub;
use crate::volume::{Event, Platform, Usage, Volume, ZoneConf};

/// Milliseconds for which a disk is left alone after it failed for the first time, and at most.
const FIRST_WAIT_MS: u64 = 1000;
const LONGEST_WAIT_MS: u64 = 60_000;

/// A further directory of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConf {
    /// The directory; made if it is not there and its parent is.
    pub path: PathBuf,
    /// Weight of the disk's share of all keys, relative to the others; at least 1.
    pub weight: u32,
}

impl Usage {
    /// Adds what only grows.
    pub(crate) fn add_counters(&mut self, other: &Self) {
        self.evicted += other.evicted;
        self.expired += other.expired;
        self.corrupt += other.corrupt;
        self.lost += other.lost;
        self.not_stored += other.not_stored;
        self.asked_seldom += other.asked_seldom;
        self.written_bytes += other.written_bytes;
        self.writes += other.writes;
        self.rewritten_bytes += other.rewritten_bytes;
        self.hasty += other.hasty;
        self.write_errors += other.write_errors;
        self.lost_segments += other.lost_segments;
        self.read_errors += other.read_errors;
    }
}

/// State of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// The disk has its share of the keys.
    Live,
    /// The disk has its share of the keys, but its file system has no room for what its limit
    /// allows.
    Full,
    /// The disk is given up, or was never there, and is tried again.
    Failed,
}

/// Numbers about a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// Directory of the disk.
    pub path: PathBuf,
    /// Weight of the disk's share of the keys, relative to the others.
    pub weight: u32,
    /// State of the disk.
    pub state: DiskState,
    /// Reason why the disk was given up; empty if it was not.
    pub why: String,
    /// Number of times that the disk was given up since the zone was opened.
    pub failures: u64,
    /// Counts of what the disk holds, and of what happened on it since it was opened last.
    pub usage: Usage,
    /// State of the disk's scrub.
    pub scrub: Scrub,
}

/// Phase of a zone's life: in use, lent or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    Lent,
    Closed,
}

/// A disk of the zone.
pub(super) struct Member {
    /// Configuration of the disk's volume.
    pub(super) conf: ZoneConf,
    pub(super) state: State,
    failures: u64,
    /// True if a file system was mounted there when the disk was given up: without it the directory
    /// is not the disk.
    was_mount: bool,
}

pub(super) enum State {
    Live(Arc<Volume>),
    Joining(Joining),
    Away(Away),
}

/// A disk that is open and has no keys yet.
pub(super) struct Joining {
    pub(super) volume: Arc<Volume>,
    /// The volume whose entries it comes back with, which knows what must not.
    pub(super) old: Option<Arc<Volume>>,
    /// True if the operator is told.
    pub(super) is_news: bool,
    /// True if the volume may hold keys that are not its own.
    pub(super) must_sift: bool,
}

/// A disk that is not used.
#[derive(Clone)]
pub(super) struct Away {
    /// The volume that was given up; it remembers what changes meanwhile.
    pub(super) old: Option<Arc<Volume>>,
    /// Number of changes to the journal at that time.
    pub(super) noted: u64,
    /// Time when the disk is tried again.
    due_ms: u64,
    wait_ms: u64,
    why: String,
    /// True if the directory is only the disk while a file system is mounted there.
    pub(super) needs_mount: bool,
}

impl Away {
    fn new(old: Option<Arc<Volume>>, due_ms: u64, why: String) -> Self {
        Self {
            old,
            noted: 0,
            due_ms,
            wait_ms: FIRST_WAIT_MS,
            why,
            needs_mount: false,
        }
    }
}

impl Member {
    pub(super) fn weighed(&self) -> Weighed<'_> {
        Weighed {
            path: &self.conf.path,
            weight: self.conf.weight,
        }
    }

    pub(super) fn volume(&self) -> Option<&Arc<Volume>> {
        match &self.state {
            State::Live(volume) => Some(volume),
            State::Joining(joining) => Some(&joining.volume),
            State::Away(_) => None,
        }
    }
}

/// Next step of the maintenance.
pub(super) enum Step {
    /// Write the generation down on all disks.
    Stamp,
    /// Give all disks their share.
    Place,
    /// Open a disk.
    Open(Box<ZoneConf>, Away),
    Rest,
}

/// Volumes that a zone leaves when it ends.
pub(super) struct Ended {
    pub(super) volumes: Vec<Arc<Volume>>,
    pub(super) leaving: Vec<Arc<Volume>>,
    pub(super) given_up: Vec<Arc<Volume>>,
}

/// The disks, and what is to be done with them.
pub(super) struct Control {
    conf: ZoneConf,
    phase: Phase,
    pub(super) members: Vec<Member>,
    /// Volumes of disks that were taken out of the configuration.
    leaving: Vec<Arc<Volume>>,
    /// Volumes that were given up and may still have their directory.
    given_up: Vec<Arc<Volume>>,
    /// The newest generation; none if there was never more than one disk.
    set: Option<Membership>,
    must_stamp: bool,
    must_place: bool,
    /// Counts whatever changes the set from outside.
    revision: u64,
    /// Thread that does the maintenance of the disks; none if the last one was joined.
    maintenance: Option<JoinHandle<()>>,
    /// Counters of volumes that are gone.
    past: Usage,
}

/// The configurations of all volumes. INVARIANT 3.
fn split(conf: &ZoneConf) -> Vec<ZoneConf> {
    let first = (&conf.path, conf.weight);
    let others = conf.disks.iter().map(|disk| (&disk.path, disk.weight));
    let disks: Vec<_> = std::iter::once(first).chain(others).collect();
    let all: u64 = disks
        .iter()
        .map(|(_, weight)| u64::from((*weight).max(1)))
        .sum();
    let part = |bytes: u64, weight: u32| {
        let part = u128::from(bytes) * u128::from(weight.max(1)) / u128::from(all);
        // A part is at most the whole, which fits.
        part as u64
    };
    let one = |(path, weight): &(&PathBuf, u32)| ZoneConf {
        path: PathBuf::clone(path),
        weight: *weight,
        disks: Vec::new(),
        max_size: conf.max_size.map(|size| part(size, *weight)),
        memory: part(conf.memory, *weight),
        ..conf.clone()
    };
    disks.iter().map(one).collect()
}

/// The platform of one disk.
pub(super) fn platform_of(platform: &Platform, conf: &ZoneConf) -> Platform {
    let io = platform.io.for_disk(&conf.path);
    Platform {
        io: io.unwrap_or_else(|| Arc::clone(&platform.io)),
        ..platform.clone()
    }
}

/// Opens all disks of a zone, and empties those that are not of the newest generation, or have
/// another secret. A zone that was open before has one already.
pub(super) fn assemble(
    conf: ZoneConf,
    (clock, platform): (&Arc<dyn Clock>, &Platform),
    secret: Option<Secret>,
) -> Result<(Control, Secret), StoreError> {
    let confs = split(&conf);
    let open = |conf: &ZoneConf, how| {
        let surroundings = (Arc::clone(clock), platform_of(platform, conf));
        Volume::open(conf.clone(), surroundings, how)
    };
    let opened = resume_all(&confs, &open, secret)?;
    let newest = newest(&opened);
    // Where no disk was opened nothing is known of theirs: what they hold is removed.
    let secret = secret.or(secret_of(&opened, newest));
    let secret = secret.unwrap_or(Secret(platform.io.random()));
    let empty = How {
        start: Start::Empty,
        parents: Parents::Need,
        secret: Some(secret),
    };
    let mut members = Vec::new();
    for (conf, opened) in confs.into_iter().zip(opened) {
        let kept = opened.and_then(|volume| {
            let currency = currency(&volume, newest, &members);
            kept(volume, currency, secret)
        });
        let opened = match kept {
            Ok(Some(volume)) => Ok(volume),
            // INVARIANT 1.
            Ok(None) => open(&conf, empty),
            Err(error) => Err(error),
        };
        let state = first_state(&conf, opened, (clock.steady(), platform));
        let failures = u64::from(matches!(state, State::Away(_)));
        members.push(Member {
            conf,
            state,
            failures,
            was_mount: false,
        });
    }
    if newest.is_some_and(|newest| newest.disks == digest(&members)) {
        // Each had its share when the set was written down, and nothing has changed since.
        for member in &mut members {
            if let State::Joining(joining) = &mut member.state {
                joining.must_sift = false;
            }
        }
    }
    let control = Control {
        conf,
        phase: Phase::Open,
        members,
        leaving: Vec::new(),
        given_up: Vec::new(),
        set: newest,
        must_stamp: false,
        must_place: true,
        revision: 0,
        maintenance: None,
        past: Usage::default(),
    };
    Ok((control, secret))
}

fn first_state(conf: &ZoneConf, opened: Opened, (now_ms, platform): (u64, &Platform)) -> State {
    match opened {
        Ok(volume) => State::Joining(Joining {
            volume,
            old: None,
            is_news: false,
            must_sift: true,
        }),
        Err(error) => {
            let why = with_source(&error);
            (platform.events)(&failed(conf, &why));
            State::Away(Away::new(None, now_ms + FIRST_WAIT_MS, why))
        }
    }
}

type Opened = Result<Arc<Volume>, StoreError>;

/// Opens all disks as they are; an error if somebody else has one, or if none can be opened and
/// that is no fault of a disk, or the zone was open before and may try again.
fn resume_all(
    confs: &[ZoneConf],
    open: &(dyn Fn(&ZoneConf, How) -> Opened + Sync),
    secret: Option<Secret>,
) -> Result<Vec<Opened>, StoreError> {
    let resume = |(number, conf): (usize, &ZoneConf)| {
        let parents = if number == 0 {
            Parents::Make
        } else {
            Parents::Need
        };
        open(
            conf,
            How {
                start: Start::Resume,
                parents,
                secret,
            },
        )
    };
    let mut opened = open_all(confs, &resume);
    let is_in_use = |one: &Result<_, _>| matches!(one, Err(StoreError::InUse { .. }));
    if let Some(position) = opened.iter().position(is_in_use) {
        opened.swap_remove(position)?;
    }
    let is_first = secret.is_none();
    let goes_on = |one: &Opened| match one {
        Ok(_) => true,
        Err(error) => is_first && is_disk_fault(error),
    };
    if !opened.iter().any(goes_on) {
        opened.swap_remove(0)?;
    }
    Ok(opened)
}

fn is_disk_fault(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if health::is_disk_fault(source))
}

fn open_all(
    confs: &[ZoneConf],
    open: &(dyn Fn((usize, &ZoneConf)) -> Opened + Sync),
) -> Vec<Opened> {
    let lost = |conf: &ZoneConf| {
        let ended = std::io::ErrorKind::Other.into();
        StoreError::io("open", &conf.path, ended)
    };
    std::thread::scope(|scope| {
        let numbered = confs.iter().enumerate();
        let started: Vec<_> = numbered.map(|one| scope.spawn(move || open(one))).collect();
        let ended = started.into_iter().zip(confs);
        ended
            .map(|(thread, conf)| thread.join().unwrap_or_else(|_| Err(lost(conf))))
            .collect()
    })
}

fn newest(opened: &[Opened]) -> Option<Membership> {
    let memberships = opened
        .iter()
        .flatten()
        .filter_map(|it| it.inner.membership());
    memberships.max_by_key(|membership| membership.generation)
}

/// Digest of the disks in use and their shares: equal digests, equal placements.
fn digest(members: &[Member]) -> u64 {
    let present = members
        .iter()
        .filter_map(|member| Some((member, member.volume()?)));
    let row = |(member, volume): (&Member, &Arc<Volume>)| {
        let mut row = volume.inner.disk.uuid.to_vec();
        row.extend_from_slice(&member.conf.weight.to_le_bytes());
        row.extend_from_slice(member.conf.path.as_os_str().as_encoded_bytes());
        row
    };
    let mut rows: Vec<Vec<u8>> = present.map(row).collect();
    rows.sort_unstable();
    xxh3_64(&rows.concat())
}

/// The secret of the disks that keep what they hold.
fn secret_of(opened: &[Opened], newest: Option<Membership>) -> Option<Secret> {
    let mut found = opened.iter().flatten();
    let leading = found.find(|it| newest.is_none() || it.inner.membership() == newest);
    leading.map(|volume| volume.inner.secret())
}

/// Volume that goes on with what it holds and with the secret of the zone; none if it may not, and
/// then the volume is closed. INVARIANT 4.
fn kept(
    volume: Arc<Volume>,
    currency: Currency,
    secret: Secret,
) -> Result<Option<Arc<Volume>>, StoreError> {
    let has_secret = volume.inner.secret() == secret;
    if volume.inner.is_bare() {
        if !has_secret {
            volume.inner.adopt(secret)?;
        }
        return Ok(Some(volume));
    }
    if has_secret && currency == Currency::Newest {
        return Ok(Some(volume));
    }
    volume.close();
    Ok(None)
}

/// INVARIANT 1. Where no disk was ever in company, the first keeps what it holds.
fn currency(volume: &Volume, newest: Option<Membership>, before: &[Member]) -> Currency {
    let is_newest = match newest {
        Some(_) => volume.inner.membership() == newest,
        None => !before.iter().any(|member| member.volume().is_some()),
    };
    if is_newest {
        Currency::Newest
    } else {
        Currency::Older
    }
}

/// Currency of a disk: is its generation the newest?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Currency {
    Newest,
    Older,
}

fn with_source(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn failed(conf: &ZoneConf, why: &str) -> Event {
    Event::DiskFailed {
        path: conf.path.display().to_string(),
        why: why.to_string(),
    }
}

impl Control {
    pub(super) fn conf(&self) -> &ZoneConf {
        &self.conf
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn take_maintenance_thread(&mut self) -> Option<JoinHandle<()>> {
        self.maintenance.take()
    }

    /// Notes the thread that does the maintenance; there is none if the last one has ended.
    pub(super) fn set_maintenance_thread(&mut self, thread: Option<JoinHandle<()>>) {
        self.maintenance = thread;
    }

    /// True if there is something to do, and nobody to do it.
    pub(super) fn wants_maintenance(&self, now_ms: u64) -> bool {
        let is_running = self
            .maintenance
            .as_ref()
            .is_some_and(|it| !it.is_finished());
        let is_due = |member: &Member| match &member.state {
            State::Away(away) => away.due_ms <= now_ms,
            State::Live(volume) => volume.inner.health.is_failed(),
            State::Joining(_) => true,
        };
        let has_work = self.must_place || self.must_stamp || self.members.iter().any(is_due);
        self.phase == Phase::Open && has_work && !is_running
    }

    /// Notes which disks were given up, and tells what they answered.
    pub(super) fn part(&mut self, now_ms: u64, noted: u64) -> Vec<(Event, Arc<Volume>)> {
        let mut parted = Vec::new();
        for member in &mut self.members {
            let Some(volume) = member.volume().map(Arc::clone) else {
                continue;
            };
            let Some(why) = volume.inner.health.why() else {
                continue;
            };
            self.past.add_counters(&volume.usage());
            self.given_up.retain(|volume| !volume.let_go());
            self.given_up.push(Arc::clone(&volume));
            let mut away = Away::new(None, now_ms + FIRST_WAIT_MS, why.to_string());
            // What never got its keys has nothing to come back with.
            if matches!(member.state, State::Live(_)) {
                away.old = Some(Arc::clone(&volume));
                away.noted = noted;
            }
            member.state = State::Away(away);
            member.failures += 1;
            member.was_mount |= volume.inner.disk.is_mount;
            (self.must_stamp, self.must_place) = (true, true);
            parted.push((failed(&member.conf, why), volume));
        }
        parted
    }

    /// Next step of the maintenance. INVARIANT 2.
    pub(super) fn next_step(&mut self, now_ms: u64) -> Step {
        if self.phase != Phase::Open {
            return Step::Rest;
        }
        if self.must_stamp {
            return Step::Stamp;
        }
        if self.must_place {
            return Step::Place;
        }
        // What was taken out of the configuration while it was away may be wanted again.
        self.given_up.retain(|volume| !volume.let_go());
        for member in &mut self.members {
            let State::Away(away) = &mut member.state else {
                continue;
            };
            if away.due_ms <= now_ms {
                // Until it is known better.
                away.due_ms = now_ms + away.wait_ms;
                away.wait_ms = (away.wait_ms * 2).min(LONGEST_WAIT_MS);
                let away = Away {
                    needs_mount: member.was_mount,
                    ..away.clone()
                };
                return Step::Open(Box::new(member.conf.clone()), away);
            }
        }
        Step::Rest
    }

    /// The next generation and the volumes to write it to, those that were in the set before first;
    /// none if the set is as it was.
    pub(super) fn next_stamp(
        &mut self,
        random: [u8; 16],
    ) -> Option<(Membership, Vec<Arc<Volume>>)> {
        self.must_stamp = false;
        let live = |member: &Member| match &member.state {
            State::Live(volume) => Some(Arc::clone(volume)),
            _ => None,
        };
        let mut volumes: Vec<_> = self.members.iter().filter_map(live).collect();
        let is_alone = self.set.is_none() && self.members.len() == 1;
        if volumes.is_empty() || is_alone {
            return None;
        }
        // While keys are still to move, no digest says that they have.
        let disks = if self.must_place {
            0
        } else {
            digest(&self.members)
        };
        let before = self.set;
        let are_stamped = volumes.iter().all(|it| it.inner.membership() == before);
        let is_same = before.is_some_and(|before| before.disks == disks);
        if are_stamped && is_same && !self.must_place {
            return None;
        }
        let next = Membership {
            set: before.map_or(random, |before| before.set),
            generation: before.map_or(1, |before| before.generation + 1),
            disks,
        };
        volumes.sort_by_key(|volume| volume.inner.membership() != before);
        self.set = Some(next);
        Some((next, volumes))
    }

    /// A disk was opened; false if nobody wants it any more.
    pub(super) fn join(&mut self, conf: &ZoneConf, joining: Joining) -> Result<(), Joining> {
        let is_open = self.phase == Phase::Open;
        let member = self
            .members
            .iter_mut()
            .find(|member| member.conf.path == conf.path);
        match member {
            Some(member) if is_open && matches!(member.state, State::Away(_)) => {
                joining.volume.set_limits(member.conf.clone());
                member.state = State::Joining(joining);
                self.must_place = true;
                Ok(())
            }
            _ => Err(joining),
        }
    }

    /// A disk cannot be taken into use after all: it is tried again at once, and comes empty.
    pub(super) fn reject(&mut self, position: usize, now_ms: u64) {
        self.must_place = true;
        if let Some(member) = self.members.get_mut(position) {
            let why = "its entries may be out of date".to_string();
            member.state = State::Away(Away::new(None, now_ms, why));
        }
    }

    /// Notes that all open disks have their share; returns the volumes that leave.
    pub(super) fn placed(&mut self) -> Vec<Arc<Volume>> {
        self.must_place = false;
        for member in &mut self.members {
            if let State::Joining(joining) = &member.state {
                member.state = State::Live(Arc::clone(&joining.volume));
            }
        }
        self.must_stamp = true;
        std::mem::take(&mut self.leaving)
    }

    /// Puts another configuration into force, as far as that is possible at once.
    pub(super) fn change(&mut self, conf: ZoneConf, now_ms: u64) -> Vec<(Arc<Volume>, ZoneConf)> {
        let mut before = std::mem::take(&mut self.members);
        let mut changes = Vec::new();
        for conf in split(&conf) {
            let position = before
                .iter()
                .position(|member| member.conf.path == conf.path);
            let Some(position) = position else {
                let state = State::Away(Away::new(None, now_ms, String::new()));
                let failures = 0;
                self.members.push(Member {
                    conf,
                    state,
                    failures,
                    was_mount: false,
                });
                continue;
            };
            let mut member = before.swap_remove(position);
            self.must_place |= member.conf.weight != conf.weight;
            if let Some(volume) = member.volume() {
                let is_less =
                    conf.max_size.unwrap_or(u64::MAX) < member.conf.max_size.unwrap_or(u64::MAX);
                changes.push((!is_less, Arc::clone(volume), conf.clone()));
            }
            member.conf = conf;
            self.members.push(member);
        }
        // INVARIANT 3 holds meanwhile, too: what shrinks does so first.
        changes.sort_by_key(|(is_last, ..)| *is_last);
        for member in before {
            (self.must_stamp, self.must_place) = (true, true);
            if let Some(volume) = member.volume() {
                self.past.add_counters(&volume.usage());
                self.leaving.push(Arc::clone(volume));
            }
        }
        self.revision += 1;
        self.conf = conf;
        let changes = changes.into_iter();
        changes.map(|(_, volume, conf)| (volume, conf)).collect()
    }

    /// The zone is not used any more, for now or for good.
    pub(super) fn end(&mut self, phase: Phase) -> Ended {
        if self.phase != Phase::Closed {
            self.phase = phase;
        }
        self.revision += 1;
        let volumes = self.members.iter().filter_map(Member::volume);
        Ended {
            volumes: volumes.map(Arc::clone).collect(),
            leaving: std::mem::take(&mut self.leaving),
            given_up: std::mem::take(&mut self.given_up),
        }
    }

    /// The zone is used again; what it was before.
    pub(super) fn replace(&mut self, assembled: Self) -> Self {
        let mut lent = std::mem::replace(self, assembled);
        self.revision = lent.revision + 1;
        self.maintenance = lent.maintenance.take();
        lent
    }

    pub(super) fn usage(&self) -> Usage {
        let mut all = self.past;
        for volume in self.members.iter().filter_map(Member::volume) {
            let one = volume.usage();
            all.add_counters(&one);
            all.entries += one.entries;
            all.bytes += one.bytes;
            all.live_bytes += one.live_bytes;
            all.memory_bytes += one.memory_bytes;
            all.index_bytes += one.index_bytes;
            all.index_spilled += one.index_spilled;
            all.queued_bytes += one.queued_bytes;
            all.unread_segments += one.unread_segments;
        }
        all.max_size = self.conf.max_size;
        all
    }

    /// The disks that can be used.
    pub(super) fn volumes(&self) -> Vec<Arc<Volume>> {
        let volumes = self.members.iter().filter_map(Member::volume);
        volumes.map(Arc::clone).collect()
    }

    pub(super) fn disks(&self) -> Vec<DiskUsage> {
        let one = |member: &Member| {
            let (state, why) = match &member.state {
                State::Away(away) => (DiskState::Failed, away.why.clone()),
                _ => (DiskState::Live, String::new()),
            };
            let health = member.volume().map(|volume| &volume.inner.health);
            let why = health.and_then(|it| it.why()).map_or(why, str::to_string);
            let usage = member.volume().map(|volume| volume.usage());
            DiskUsage {
                path: member.conf.path.clone(),
                weight: member.conf.weight,
                state: match state {
                    DiskState::Live if health.is_some_and(|it| it.is_failed()) => DiskState::Failed,
                    DiskState::Live if health.is_some_and(|it| it.is_full()) => DiskState::Full,
                    state => state,
                },
                why,
                failures: member.failures,
                scrub: member
                    .volume()
                    .map_or(Scrub::default(), |volume| volume.inner.scrub_state()),
                usage: usage.unwrap_or(Usage {
                    max_size: member.conf.max_size,
                    ..Usage::default()
                }),
            }
        };
        self.members.iter().map(one).collect()
    }
}
