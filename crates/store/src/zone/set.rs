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
//!
//! It decides; what takes long is done by `tend`.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use xxhash_rust::xxh3::xxh3_64;

use super::placement::Weighed;
use crate::clock::Clock;
use crate::disk::format::Membership;
use crate::recover::{How, Parents, Start, StoreError};
use crate::scrub::Scrub;
use crate::volume::{Event, Platform, Usage, Volume, ZoneConf};

/// How long a disk is left alone after it failed for the first time, and at most.
const FIRST_WAIT_MS: u64 = 1000;
const LONGEST_WAIT_MS: u64 = 60_000;

/// A further directory of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConf {
    /// The directory; made if it is not there and its parent is.
    pub path: PathBuf,
    /// What part of all keys it gets, relative to the others; at least 1.
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
        self.asked_once += other.asked_once;
        self.written_bytes += other.written_bytes;
        self.writes += other.writes;
        self.rewritten_bytes += other.rewritten_bytes;
        self.hasty += other.hasty;
        self.write_errors += other.write_errors;
        self.read_errors += other.read_errors;
    }
}

/// How a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// It has its share of the keys.
    Live,
    /// The same, but its file system has no room for what its limit allows.
    Full,
    /// It is given up, or was never there, and is tried again.
    Failed,
}

/// Numbers about a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// Its directory.
    pub path: PathBuf,
    /// What part of the keys it gets, relative to the others.
    pub weight: u32,
    /// How it is.
    pub state: DiskState,
    /// Why it was given up; empty if it was not.
    pub why: String,
    /// How often it was given up since the zone was opened.
    pub failures: u64,
    /// What it holds, and what happened on it since it was opened last.
    pub usage: Usage,
    /// How its scrub stands.
    pub scrub: Scrub,
}

/// Whether the zone is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    Lent,
    Closed,
}

/// A disk of the zone.
pub(super) struct Member {
    /// What its volume is set up with.
    pub(super) conf: ZoneConf,
    pub(super) state: State,
    failures: u64,
    /// Whether a file system was mounted there when the disk was given up: without it the directory
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
    /// Whether the operator is told.
    pub(super) is_news: bool,
    /// Whether it may hold keys that are not its own.
    pub(super) must_sift: bool,
}

/// A disk that is not used.
#[derive(Clone)]
pub(super) struct Away {
    /// The volume that was given up; it remembers what changes meanwhile.
    pub(super) old: Option<Arc<Volume>>,
    /// How often the journal had been changed then.
    pub(super) noted: u64,
    /// When it is tried again.
    due_ms: u64,
    wait_ms: u64,
    why: String,
    /// Whether it is only the disk while a file system is mounted there.
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

/// What is to be done next.
pub(super) enum Step {
    /// Write the generation down on all disks.
    Stamp,
    /// Give all disks their share.
    Place,
    /// Open a disk.
    Open(Box<ZoneConf>, Away),
    Rest,
}

/// What a zone that ends leaves behind.
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
    tender: Option<JoinHandle<()>>,
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

/// Opens all disks of a zone, and empties those that are not of the newest generation.
pub(super) fn assemble(
    conf: ZoneConf,
    clock: &Arc<dyn Clock>,
    platform: &Platform,
) -> Result<Control, StoreError> {
    let confs = split(&conf);
    let open = |conf: &ZoneConf, how| {
        let surroundings = (Arc::clone(clock), platform_of(platform, conf));
        Volume::open(conf.clone(), surroundings, how)
    };
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
            },
        )
    };
    let mut opened = open_all(&confs, &resume);
    let is_in_use = |one: &Result<_, _>| matches!(one, Err(StoreError::InUse { .. }));
    if let Some(position) = opened.iter().position(is_in_use) {
        opened.swap_remove(position)?;
    }
    if opened.iter().all(Result::is_err) {
        opened.swap_remove(0)?;
    }
    let newest = newest(&opened);
    let mut members = Vec::new();
    for (conf, opened) in confs.into_iter().zip(opened) {
        let opened = match opened {
            Ok(volume) if is_current(&volume, newest, &members) => Ok(volume),
            Ok(volume) => {
                volume.close();
                // INVARIANT 1.
                let (start, parents) = (Start::Empty, Parents::Need);
                open(&conf, How { start, parents })
            }
            Err(error) => Err(error),
        };
        let state = first_state(&conf, opened, (clock.now(), platform));
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
    Ok(Control {
        conf,
        phase: Phase::Open,
        members,
        leaving: Vec::new(),
        given_up: Vec::new(),
        set: newest,
        must_stamp: false,
        must_place: true,
        revision: 0,
        tender: None,
        past: Usage::default(),
    })
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

/// What names the disks in use and their shares: equal digests, equal placements.
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

/// INVARIANT 1. Where no disk was ever in company, the first keeps what it holds.
fn is_current(volume: &Volume, newest: Option<Membership>, before: &[Member]) -> bool {
    let is_one_of_it = match newest {
        Some(_) => volume.inner.membership() == newest,
        None => !before.iter().any(|member| member.volume().is_some()),
    };
    is_one_of_it || volume.inner.is_bare()
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

    pub(super) fn take_tender(&mut self) -> Option<JoinHandle<()>> {
        self.tender.take()
    }

    /// Notes who tends the disks; there is nobody if the last one has ended.
    pub(super) fn set_tender(&mut self, tender: Option<JoinHandle<()>>) {
        self.tender = tender;
    }

    /// Whether there is something to do, and nobody to do it.
    pub(super) fn wants_tender(&self, now_ms: u64) -> bool {
        let is_tended = self.tender.as_ref().is_some_and(|it| !it.is_finished());
        let is_due = |member: &Member| match &member.state {
            State::Away(away) => away.due_ms <= now_ms,
            State::Live(volume) => volume.inner.health.is_failed(),
            State::Joining(_) => true,
        };
        let has_work = self.must_place || self.must_stamp || self.members.iter().any(is_due);
        self.phase == Phase::Open && has_work && !is_tended
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

    /// What is to be done next. INVARIANT 2.
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

    /// All disks that are open have their share.
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
        self.tender = lent.tender.take();
        lent
    }

    pub(super) fn usage(&self) -> Usage {
        let mut all = self.past;
        for volume in self.members.iter().filter_map(Member::volume) {
            let one = volume.usage();
            all.add_counters(&one);
            all.entries += one.entries;
            all.bytes += one.bytes;
            all.memory_bytes += one.memory_bytes;
            all.index_bytes += one.index_bytes;
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
