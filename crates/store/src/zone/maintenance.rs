//! Maintenance of the disks: giving up those that failed, taking back those that answer again.
//!
//! One thread at a time does what is due, step by step, and ends; the sweep of the zone starts one
//! where need be. So a disk that takes minutes to open, or hangs, keeps nobody else waiting.
//!
//! Giving shares to disks, in an order that leaves no entry where it does not belong:
//!
//! 1. Each volume publishes only what is its own before and after; then what is not its own after
//!    is removed from it.
//! 2. A disk that comes back loses what changed while it was away. Nobody notes a change between
//!    the last look at the list and the moment in which the disk has its keys again.
//! 3. Then look-ups go to the new owners, and each may publish what is its own now.
//!
//! A disk comes back with its entries if it is the same one, was given up in this process, and it
//! is known what changed meanwhile; otherwise it comes back empty.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::placement::{Placement, Share, Weighed};
use super::set::{Away, Joining, State, Step, platform_of};
use super::{Live, Zone, on_each};
use crate::disk::RETIRED;
use crate::disk::io::DiskIo;
use crate::lock::{lock, write};
use crate::recover::{How, Parents, Start, StoreError};
use crate::site::Leave;
use crate::volume::{Event, Volume, ZoneConf};

/// Steps that one thread does at a time; the next sweep goes on. Each is done or comes back later.
const MAX_STEPS: usize = 1000;

/// Number of looks whether a disk that was given up still writes, and the pause between two looks:
/// together a second, then it is tried again later.
const LET_GO_TRIES: u32 = 100;
const LET_GO_PAUSE: Duration = Duration::from_millis(10);

impl Zone {
    /// Starts a thread for the maintenance that is due, if none runs.
    pub(super) fn maintain_soon(&self) {
        let mut control = lock(&self.control);
        if !control.wants_maintenance(self.clock.steady()) {
            return;
        }
        let zone = self.this.clone();
        let maintain = move || {
            if let Some(zone) = zone.upgrade() {
                zone.maintain();
            }
        };
        let named = std::thread::Builder::new().name("store-disks".to_string());
        // Without a thread the next sweep tries again.
        control.set_maintenance_thread(named.spawn(maintain).ok());
    }

    /// Does the maintenance that is due.
    pub(super) fn maintain(&self) {
        let _alone = lock(&self.maintaining);
        for _ in 0..MAX_STEPS {
            self.part();
            let step = lock(&self.control).next_step(self.clock.steady());
            match step {
                Step::Stamp => self.stamp(),
                Step::Place => self.place(),
                Step::Open(conf, away) => self.open_away(&conf, away),
                Step::Rest => return,
            }
        }
    }

    /// Gives up what failed, so that it is known to others before the zone is closed; also what
    /// cannot be synced: where a write did not come through, an older version may still be there.
    pub(super) fn part_for_good(&self) {
        let live = self.live.load_full();
        if live.volumes.len() > 1 {
            on_each(&live.volumes, |volume| {
                if !volume.sync() {
                    volume
                        .inner
                        .health
                        .fail("what was written last cannot be synced");
                }
            });
        }
        self.part();
        self.stamp();
    }

    fn part(&self) {
        let noted = self.noted.load(Ordering::Acquire);
        let parted = lock(&self.control).part(self.clock.steady(), noted);
        for (event, volume) in parted {
            (self.platform.events)(&event);
            volume.abandon();
        }
    }

    fn stamp(&self) {
        let next = lock(&self.control).next_stamp(self.platform.io.random());
        let Some((membership, volumes)) = next else {
            return;
        };
        for volume in volumes {
            if let Err(error) = volume.inner.stamp(membership) {
                // The others must know that it is not of their generation.
                volume.inner.health.fail(&error.to_string());
            }
        }
    }

    fn place(&self) {
        let plan = Plan::of(self);
        for (volume, share) in plan.volumes.iter().zip(&plan.shares) {
            let before = volume.inner.health.claim();
            // INVARIANT 1.
            let narrow = match (&before, share) {
                (Some(before), Some(share)) => Some(Arc::new(before.and(share))),
                (before, None) => before.clone(),
                (None, Some(share)) => Some(Arc::clone(share)),
            };
            if narrow != before {
                volume.inner.health.set_claim(narrow);
            }
            let has_lost = before.as_ref() != share.as_ref();
            let must_sift = plan.to_sift.contains(&volume.inner.serial);
            let is_new = plan.joining.contains(&volume.inner.serial);
            if let Some(share) = share.as_ref().filter(|_| must_sift || has_lost && !is_new)
                && volume.inner.drop_strays(share) > 0
            {
                // A disk that cannot be synced has failed, or will.
                volume.sync();
            }
            if has_lost && volume.inner.health.is_failed() {
                // It may still hold what is no longer its own.
                volume.inner.health.distrust();
            }
        }
        let mut rejected = Vec::new();
        for (position, volume, old) in &plan.returning {
            if !take_away(volume, old) {
                rejected.push(*position);
            }
        }
        let _noting = write(&self.noting);
        self.even_journals(&plan.volumes);
        let _moving = write(&self.moving);
        for (position, volume, old) in &plan.returning {
            if !take_away(volume, old) {
                rejected.push(*position);
            }
        }
        let mut control = lock(&self.control);
        if control.revision() != plan.revision {
            return;
        }
        if !rejected.is_empty() {
            let now = self.clock.steady();
            rejected
                .iter()
                .for_each(|position| control.reject(*position, now));
            return;
        }
        for (volume, share) in plan.volumes.iter().zip(&plan.shares) {
            volume.inner.health.set_claim(share.clone());
            volume.inner.health.set_company(plan.volumes.len() > 1);
        }
        let leaving = control.placed();
        // What is whose on other disks is not known.
        let has_left = !self.live.load().volumes.is_empty();
        if has_left || control.members.len() > plan.volumes.len() {
            let volumes = plan.volumes.iter();
            volumes.for_each(|volume| volume.inner.index.holdings().removed.note_unknown());
        }
        self.live.store(Arc::new(plan.live));
        drop(control);
        for event in &plan.news {
            (self.platform.events)(event);
        }
        leaving.iter().for_each(|volume| volume.close());
    }

    fn open_away(&self, conf: &ZoneConf, away: Away) {
        // An empty mount point is on the disk of somebody else.
        if away.needs_mount && !platform_of(&self.platform, conf).io.is_mount(&conf.path) {
            return;
        }
        // Or it would be given up again when its first segment is made.
        if away.old.is_some() && !takes_files(&*platform_of(&self.platform, conf).io, &conf.path) {
            return;
        }
        let may_resume = match &away.old {
            Some(old) if !has_let_go(old) => return,
            Some(old) => self.may_resume(old, &away),
            None => false,
        };
        let opened = match &away.old {
            Some(old) if may_resume => self.reopen(conf, old),
            _ => self
                .open_disk(conf, Start::Empty)
                .map(|volume| (volume, None)),
        };
        // What it answered is known; it is tried again.
        let Ok((volume, old)) = opened else {
            return;
        };
        let joining = Joining {
            volume,
            old,
            is_news: true,
            must_sift: true,
        };
        let joined = lock(&self.control).join(conf, joining);
        if let Err(unwanted) = joined {
            unwanted.volume.close();
        }
    }

    /// True if all is known that must not come back with a disk.
    fn may_resume(&self, old: &Volume, away: &Away) -> bool {
        let has_company = !self.live.load().volumes.is_empty();
        let is_noted = away.noted != self.noted.load(Ordering::Acquire);
        // What was noted elsewhere meanwhile is in the journals there.
        old.inner.health.is_trusted() && (has_company || !is_noted)
    }

    /// Opens a disk as it was; empty if it is another one.
    fn reopen(&self, conf: &ZoneConf, old: &Arc<Volume>) -> Result<Opened, StoreError> {
        let volume = self.open_disk(conf, Start::Apart)?;
        let is_same = volume.inner.disk.uuid == old.inner.disk.uuid
            && volume.inner.membership() == old.inner.membership();
        if is_same {
            return Ok((volume, Some(Arc::clone(old))));
        }
        volume.close();
        self.open_disk(conf, Start::Empty)
            .map(|volume| (volume, None))
    }

    fn open_disk(&self, conf: &ZoneConf, start: Start) -> Result<Arc<Volume>, StoreError> {
        let surroundings = (Arc::clone(&self.clock), platform_of(&self.platform, conf));
        let how = How {
            start,
            parents: Parents::Need,
            secret: Some(self.secret),
        };
        Volume::open(conf.clone(), surroundings, how)
    }
}

/// The file that is made to see whether one can be.
const PROBE: &str = "probe";
const PROBE_LEN: u64 = 4096;

type Opened = (Arc<Volume>, Option<Arc<Volume>>);

/// Waits a little for what is under way in a directory that was given up; true if the directory is
/// free.
fn has_let_go(old: &Volume) -> bool {
    for _ in 0..LET_GO_TRIES {
        if old.let_go() {
            return true;
        }
        // Only the maintenance thread, or the one that ends with the zone, waits here.
        std::thread::park_timeout(LET_GO_PAUSE);
    }
    false
}

/// True if files can be made in a directory, if it is there.
fn takes_files(io: &dyn DiskIo, dir: &Path) -> bool {
    // What is left of it is removed when the directory is opened.
    let path = dir.join(format!("{RETIRED}{PROBE}"));
    match io.create(&path, PROBE_LEN) {
        Ok(_) => io.unlink(&path).is_ok(),
        Err(error) => matches!(
            error.kind(),
            // It is full, or is to be made; both are seen to elsewhere.
            io::ErrorKind::StorageFull | io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
        ),
    }
}

/// Lets go of a directory that was given up, if what is under way there ends soon.
pub(super) fn let_go(old: &Volume) {
    // Otherwise it is free when that ends.
    let _ = has_let_go(old);
}

/// Removes from a disk that comes back what changed meanwhile; false if that is not known.
fn take_away(volume: &Volume, old: &Volume) -> bool {
    let Some(changed) = old.take_changed() else {
        old.inner.health.distrust();
        return false;
    };
    for key in &changed {
        volume.remove(key, Leave::Moved);
    }
    true
}

/// Plan of a change of shares.
struct Plan {
    revision: u64,
    volumes: Vec<Arc<Volume>>,
    /// One for each volume; none if there is but one.
    shares: Vec<Option<Arc<Share>>>,
    /// Positions among all disks, the new volumes, and those whose entries they come back with.
    returning: Vec<(usize, Arc<Volume>, Arc<Volume>)>,
    /// Volumes without keys yet, by their serials, and those that may have keys of others.
    joining: Vec<u64>,
    to_sift: Vec<u64>,
    news: Vec<Event>,
    live: Live,
}

impl Plan {
    fn of(zone: &Zone) -> Self {
        let control = lock(&zone.control);
        let members = &control.members;
        let present = || members.iter().filter(|member| member.volume().is_some());
        let disks: Vec<Weighed<'_>> = present().map(|member| member.weighed()).collect();
        let placement = Placement::new(&disks);
        let volumes: Vec<_> = present()
            .filter_map(|it| it.volume().map(Arc::clone))
            .collect();
        // A lone disk with others away has all keys, too; but it loses some when they come.
        let shares = match members.len() {
            1 => vec![None; volumes.len()],
            _ => {
                let shares = placement.shares(volumes.len());
                shares
                    .into_iter()
                    .map(|share| Some(Arc::new(share)))
                    .collect()
            }
        };
        let mut returning = Vec::new();
        let (mut joining_now, mut to_sift) = (Vec::new(), Vec::new());
        let mut news = Vec::new();
        let mut absent = Vec::new();
        for (position, member) in members.iter().enumerate() {
            match &member.state {
                State::Joining(joining) => {
                    let serial = joining.volume.inner.serial;
                    joining_now.push(serial);
                    to_sift.extend(joining.must_sift.then_some(serial));
                    if let Some(old) = &joining.old {
                        returning.push((position, Arc::clone(&joining.volume), Arc::clone(old)));
                    }
                    if joining.is_news {
                        news.push(Event::DiskBack {
                            path: member.conf.path.display().to_string(),
                            entries: joining.volume.inner.index.count(),
                        });
                    }
                }
                State::Away(Away { old: Some(old), .. }) => absent.push(Arc::clone(old)),
                _ => {}
            }
        }
        Self {
            revision: control.revision(),
            live: Live {
                volumes: volumes.clone(),
                placement,
                absent,
            },
            volumes,
            shares,
            returning,
            joining: joining_now,
            to_sift,
            news,
        }
    }
}
