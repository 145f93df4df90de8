//! A cache zone: index, segments on disk, memory tier, recovery. Bytes, not HTTP.
//!
//! A [`Zone`] maps keys to entries: a head and a body, both opaque. Bodies arrive through a
//! [`Writer`] and can be read while they arrive, through a [`View`]. What is stored survives
//! restarts and crashes; what was removed does not come back.
//!
//! - `zone` – the zone as its users see it: volumes, one for each disk
//! - `volume` – one directory of a zone
//! - `admit`, `fill` – putting entries in, and reading them meanwhile
//! - `entry` – an entry and the regions of its body
//! - `cold`, `unloaded` – looking an entry up without waiting for its disk, or for the index
//! - `index`, `memory` – where entries are, and which are in memory
//! - `choice`, `history` – what a full zone takes; which keys were asked for lately, and how often
//! - `remove` – taking entries out
//! - `sweep`, `rewrite` – eviction, inactivity, space
//! - `recover`, `load` – opening, in the foreground and in the background, and closing
//! - `live` – which segments there must be, known from a second place
//! - `loss` – segments of which a sync failed
//! - `uses` – when entries were used, kept over restarts
//! - `journal` – small records that are durable before they are acknowledged
//! - `event` – what an operator is told
//! - `health` – when a disk is given up, and what it must not bring back
//! - `review` – looking at every head, to remove or change it
//! - `inspect` – looking at every entry, to tell what there is
//! - `verify` – comparing everything with its checksums
//! - `gone` – which entries left whose parts may be there
//! - `departure` – entries that leave, for those who watch
//! - `site` – whose entries are, and what each site holds
//! - `lend` – letting another process have the directory, and other limits while it is open
//! - `disk` – formats, segments, queue and files
//!
//! **Invariant:** a zone's files, at any moment, are at most `max_size` bytes long together.
//!
//! **Invariant:** no byte that differs from what was appended is ever handed out.

mod admit;
mod choice;
mod clock;
mod cold;
mod departure;
mod disk;
mod entry;
mod event;
mod fill;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod health;
mod history;
mod index;
mod inspect;
mod journal;
mod key;
mod lend;
mod live;
mod load;
mod lock;
mod loss;
mod memory;
mod quota;
mod reclaim;
mod recover;
mod remove;
mod removed_heads;
mod review;
mod rewrite;
mod scrub;
mod site;
mod stalled;
mod sweep;
mod unloaded;
mod uses;
mod verify;
mod volume;
mod zone;

pub use admit::{NotStored, Writer};
pub use clock::{Clock, ManualClock, SystemClock};
pub use cold::{Cold, Look};
pub use departure::{Cause, Departure, Departures};
pub use disk::io::{DirEntry, DiskIo, RealIo, Tried, make_parents, make_private_folder};
pub use disk::open::OpenFiles;
pub use disk::pool::Haste;
pub use disk::power::PowerIo;
pub use disk::ready::{HeldFile, LoadError, Loading, WINDOW};
pub use disk::segment::most_segments;
pub use disk::sim::{Fault, SimIo};
pub use disk::still::Touch;
pub use disk::store_file;
pub use entry::{Entry, Reading, Region};
pub use fill::{View, ViewState, Written};
pub use health::is_disk_fault;
pub use inspect::{Checked, Glance, Looked, Record};
pub use journal::{Journal, JournalError};
pub use key::{Key, Keys};
pub use recover::StoreError;
pub use removed_heads::RemovedHeads;
pub use review::{Review, Reviewed};
pub use scrub::Scrub;
pub use site::{Class, Classify, Departed, EXCESS, Held, Role, SITES_MAX, SiteBook, SiteLimit};
pub use sweep::Swept;
pub use verify::{Progress, Verified};
pub use volume::{Admission, EntrySummary, Event, Platform, Usage, ZoneConf};
pub use zone::{
    Chosen, DiskConf, DiskState, DiskUsage, Listener, MAX_DISKS, Peeks, SiteHeld, Zone,
};
