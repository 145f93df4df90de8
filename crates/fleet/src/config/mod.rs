//! Configuration in steps: signed bundles of files that the nodes of a fleet take, first a few of
//! them, then all.
//!
//! ```text
//! push: files ──► bundle ──► order, signed ──► stream of the fleet ──► every node
//!                                                                        │ right key, newer?
//!                     good on disk ◄── settled ◄── watched ◄── applied ◄─┘ a reload says
//!                          └──────────── back ◄──────┘ worse than before and than others
//! ```
//!
//! An *order* says which bundle is the configuration of the fleet from now on, and which nodes try
//! it first. Orders are numbered; a promotion and a rollback are orders, too, with a bundle that is
//! known. So a number never comes a second time, and an older one is never taken.
//!
//! 1. Nothing is applied that was not signed with a key that the node trusts, for this fleet, with
//!    a number above that of what it has.
//! 2. What a node starts with is the bundle that has held last; it is replaced on disk only after
//!    the next one has.
//! 3. A node whose test or reload fails goes on as it was, and says why.
//! 4. Who can write to the servers of NATS without a key can hasten or hold back what was signed,
//!    and lie about nodes; nothing else.
//!
//! - `bundle`: files as bytes
//! - `order`: orders, keys and signatures
//! - `folder`: what a node keeps on disk
//! - `report`: what nodes say of themselves, and verdicts on orders
//! - `canary`: nodes that try first, and when they do worse
//! - `machine`: the decisions of a node, without sockets, clocks or disks
//! - `known`: all of that, for those who give orders
//! - `stream`: orders, bundles and reports in NATS JetStream
//! - `rollout`: the machine of a process, the process's reloads, and the task that drives it

pub mod bundle;
pub mod canary;
pub mod folder;
pub mod known;
pub mod machine;
pub mod order;
pub mod report;
pub mod rollout;
pub mod stream;

use std::path::PathBuf;
use std::time::Duration;

use order::PublicKey;

/// Configuration that a node takes from its fleet, as its own file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigConf {
    /// Folder in which the node keeps what it has taken.
    pub folder: PathBuf,
    /// Keys whose signatures count.
    pub trusted: Vec<PublicKey>,
    /// Steps of orders that are made with this configuration.
    pub steps: Steps,
}

/// Trial of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Part of the nodes that try first, in thousandths; 0 for all at once.
    pub canary: u16,
    /// Time for which those are watched.
    pub watch: Duration,
    /// Thousandths of the answers by which more of them may be errors.
    pub more_errors: u16,
    /// Thousandths of the answers by which fewer of them may be from the cache.
    pub fewer_hits: u16,
}

impl Default for Steps {
    fn default() -> Self {
        Steps {
            canary: 0,
            watch: Duration::from_secs(600),
            more_errors: 10,
            fewer_hits: 200,
        }
    }
}
