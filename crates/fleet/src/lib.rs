//! Fleets: purges that hold on all nodes, members that own keys, limits that they share,
//! and counters that are summed.
//!
//! ```text
//!   purge ──► in force here, durable ──► entry of the log ──► acknowledged
//!                                              │
//!   every node ◄── records, in their order ────┘
//!      ├─ follower: takes them into its zones, each with the position, and hears its own beats
//!      └─ lag of its zones: confirmed since the beat that came back last
//! ```
//!
//! The log is one that others keep (NATS JetStream); nothing here replicates, elects or stores it.
//! A node puts a beat into the log each second. When the beat comes back among the records, the
//! node knows that it has everything that was acknowledged before the beat was sent.
//!
//! 1. No node serves an entry as fresh that a purge has removed which was acknowledged longer than
//!    `max_lag` ago. Nothing that was cut off, crashed, paused or has a wrong clock changes that.
//! 2. Where it is not known if a purge was missed, everything of the zone is made stale once: too
//!    much, never too little.
//! 3. An idle heartbeat of a server confirms nothing. It may have been on its way for long, and a
//!    server that was cut off from the others does not know what they have acknowledged; a beat has
//!    gone through the quorum.
//!
//! - `ask`: questions of nodes to each other, and their answers in pieces
//! - `asking`: the list of another node, piece by piece
//! - `entry`: what stands in the log, as bytes, and under which subject
//! - `gap`: from where a zone goes on, or that it must begin anew
//! - `log`: a log, as a trait; `follower`: the machine, without sockets, clocks or disks
//! - `nats`: the log in NATS JetStream
//! - `session`: from opening the log until it fails
//! - `held`: zones of a cache as the machine sees them
//! - `ledger`: the last purge of each target, for what lies outside of the nodes
//! - `owner`: the member that a key belongs to
//! - `peers`: the members that live, and who asks whom
//! - `share`: the part of a limit that a node has; `lease`, `lending`: one that is handed out;
//!   `slot`, `slot_lending`, `party`: the same for connections
//! - `tally`: the counters of nodes, and their sum
//! - `view`: knowledge of the fleet, for those who do not follow
//! - `node`: the threads of one fleet, and the way of purges into its log
//! - `fleets`, `config`: fleets of a process over reloads; configuration that it takes in steps

pub mod ask;
pub mod asking;
pub mod config;
pub mod entry;
pub mod fleets;
pub mod follower;
pub mod gap;
pub mod held;
pub mod lease;
pub mod ledger;
pub mod lending;
pub mod log;
pub mod nats;
pub mod node;
pub mod owner;
mod party;
pub mod peers;
pub mod session;
pub mod share;
pub mod slot;
pub mod slot_lending;
pub mod tally;
pub mod view;

pub use fleets::Fleets;
pub use follower::Follower;
pub use log::{FleetLog, LogError, Record, Standing};
