//! Invalidations that the old process hands to the new one while the binary is changed
//! (`millpond_cache::heir`).
//!
//! ```text
//! old: caches lent ──► appoint ──► requests tell ──┬─► channel ──► new: hear, a thread of its own
//!                                                 └─ kept ──► take_back, if the new one ends
//! ```
//!
//! 1. The heir is appointed before the caches are let go: nothing falls between the two.
//! 2. What is not understood makes all caches stale: another version may have more to say.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::heir::{Handed, Heir, MARK, RECORD_MAX, Returned, decode};
use millpond_cache::purge::{Mode, Target};
use millpond_cache::zone::CacheZone;
use millpond_exchange::worker::Shared;
use millpond_fleet::Fleets;
use millpond_proxy::cache::purge::{Order, carry_out, reach, record};
use millpond_proxy::cache::zones::Registry;
use millpond_system::clock;
use millpond_system::log::error::{self, Level};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time that the new process may take to read what is on its way (arbitrary: it reads while it
/// serves).
const PATIENCE: Duration = Duration::from_secs(1);

/// Our end of the channel, which others read from without waiting.
struct Outgoing(OwnedFd);

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(&self.0, bytes) {
                Err(rustix::io::Errno::AGAIN) => self.wait()?,
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Outgoing {
    fn wait(&self) -> io::Result<()> {
        let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&self.0, PollFlags::OUT)];
        match poll(&mut polled, Some(&patience))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

/// Has requests tell the new process what they make wrong.
pub(super) fn appoint(shared: &Shared, channel: OwnedFd) {
    let heir = shared.guests.of::<Heir>();
    if !heir.is_there() {
        heir.appoint(Box::new(Outgoing(channel)));
    }
}

/// Obeys what was handed to a process that has ended; the caches are ours again.
pub(super) fn take_back(shared: &Shared) {
    match shared.guests.of::<Heir>().dismiss() {
        Returned::All(records) => {
            for (zone, handed) in records {
                obey(shared, &zone, &handed);
            }
        }
        Returned::TooMany => spoil_all(shared),
    }
}

/// Obeys what the old process hands on, until it ends.
pub(super) fn hear(shared: &Arc<Shared>, mut channel: UnixStream) -> io::Result<()> {
    channel.set_read_timeout(None)?;
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("predecessor".to_owned());
    let hearing = move || {
        while let Some(record) = next(&mut channel) {
            match decode(record) {
                Some((zone, handed)) => obey(&shared, &zone, &handed),
                // INVARIANT 2.
                None => spoil_all(&shared),
            }
        }
    };
    thread.spawn(hearing).map(drop)
}

/// The next record; none at the end, and behind what cannot be one.
fn next(channel: &mut UnixStream) -> Option<Bytes> {
    loop {
        let mut mark = [0; 1];
        channel.read_exact(&mut mark).ok()?;
        // Other bytes are about the caches themselves, and come late here.
        if mark == [MARK] {
            break;
        }
    }
    let mut len = [0; 4];
    channel.read_exact(&mut len).ok()?;
    let len = u32::from_le_bytes(len);
    if len > RECORD_MAX {
        return Some(Bytes::new());
    }
    let mut record = vec![0; len as usize];
    channel.read_exact(&mut record).ok()?;
    Some(record.into())
}

fn obey(shared: &Shared, name: &str, handed: &Handed) {
    let fleets = shared.guests.of::<Fleets>();
    for zone in Registry::of(shared).named(name) {
        match handed {
            Handed::Key(text) => zone.invalidate(&zone.primary(text.clone())),
            Handed::Purge(target) => purge(&zone, &fleets, &Order::of(target.clone(), Mode::Hard)),
        }
    }
}

fn spoil_all(shared: &Shared) {
    let fleets = shared.guests.of::<Fleets>();
    let order = Order::of(Target::All, Mode::Soft);
    for zone in Registry::of(shared).all() {
        purge(&zone, &fleets, &order);
    }
}

fn purge(zone: &CacheZone, fleets: &Fleets, order: &Order) {
    let now_ms = u64::try_from(clock::now_ms()).unwrap_or(0);
    let done = carry_out(zone, order, now_ms);
    let reach = match &done {
        Ok(outcome) => reach::spread_and_wait(fleets, zone, (order, *outcome)),
        Err(_) => None,
    };
    let (level, message) = record(zone, (order, &done), reach.as_ref());
    error::process(level, format_args!("{message}"));
}

/// Says that requests which end in the old process make nothing invalid here.
pub(super) fn tell_deaf(failure: &io::Error) {
    let reason = error::os_error(failure);
    let message = format_args!("what the old process makes invalid is not heard of ({reason})");
    error::process(Level::Error, message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_between_other_bytes_and_up_to_the_end() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let heir = Heir::default();
        let key = |text: &'static str| Handed::Key(Bytes::from_static(text.as_bytes()));
        ours.write_all(b"C").unwrap();
        heir.appoint(Box::new(Outgoing(ours.into())));
        heir.tell("z", &[key("a"), key("b")]).unwrap();
        for expected in [key("a"), key("b")] {
            let record = next(&mut theirs).unwrap();
            assert_eq!(decode(record), Some(("z".to_owned(), expected)));
        }
        heir.dismiss();
        assert_eq!(next(&mut theirs), None);
    }
}
