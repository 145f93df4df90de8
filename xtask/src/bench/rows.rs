//! The rows of the table: what is asked for, on which configuration, and the least ratio.

use super::conf::Conf;

/// A configuration that both servers run: lines that differ from row to row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    /// `open_file_cache off`, `access_log off`, `sendfile on`.
    Plain,
    /// Descriptors are kept open.
    OpenFiles,
    /// An access log in the default format.
    Logged,
    /// Bodies go through memory.
    NoSendfile,
}

impl Setup {
    /// In the order in which they are measured.
    pub(super) const ALL: [Setup; 4] = [
        Setup::Plain,
        Setup::OpenFiles,
        Setup::Logged,
        Setup::NoSendfile,
    ];

    /// The configuration, for the test kit.
    pub(super) fn conf(self) -> String {
        let http = match self {
            Setup::Plain => "access_log off; sendfile on;",
            Setup::OpenFiles => {
                "access_log off; sendfile on; open_file_cache max=10000 inactive=1h; \
                 open_file_cache_valid 1h;"
            }
            Setup::Logged => "access_log %%DIR%%/access.log; sendfile on;",
            Setup::NoSendfile => "access_log off; sendfile off;",
        };
        let conf = Conf {
            http,
            ..Conf::default()
        };
        conf.text()
    }
}

/// The request of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// One body, whole.
    Whole,
    /// One body, with a field that changes the answer.
    With(&'static str),
    /// Bodies by Zipf's law.
    Zipf { objects: u64 },
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) setup: Setup,
    pub(super) asked: Asked,
    pub(super) body_bytes: u64,
    pub(super) connections: u32,
    /// nginx's CPU time over Millpond's, at least.
    pub(super) bound: f64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const fn whole(
    name: &'static str,
    setup: Setup,
    (body_bytes, connections): (u64, u32),
    bound: f64,
) -> Row {
    Row {
        name,
        setup,
        asked: Asked::Whole,
        body_bytes,
        connections,
        bound,
    }
}

const fn with(name: &'static str, field: &'static str) -> Row {
    Row {
        name,
        setup: Setup::Plain,
        asked: Asked::With(field),
        body_bytes: 10 * MIB,
        connections: 64,
        bound: 2.0,
    }
}

/// All rows of hits. Large bodies have few connections, so that a short run on a busy machine ends
/// enough of them.
pub(super) const ROWS: &[Row] = &[
    whole("hit, 1 KiB, 64 connections", Setup::Plain, (KIB, 64), 2.2),
    whole(
        "hit, 1 KiB, 1000 connections",
        Setup::Plain,
        (KIB, 1000),
        2.8,
    ),
    Row {
        name: "hit, 1 KiB of 100,000 objects, Zipf",
        setup: Setup::Plain,
        asked: Asked::Zipf { objects: 100_000 },
        body_bytes: KIB,
        connections: 64,
        bound: 2.2,
    },
    whole("hit, 64 KiB", Setup::Plain, (64 * KIB, 64), 1.3),
    whole("hit, 10 MiB", Setup::Plain, (10 * MIB, 8), 1.0),
    with("304 of 10 MiB", "If-None-Match: \"g-0\""),
    with("10 bytes of 10 MiB", "Range: bytes=5000000-5000009"),
    whole(
        "hit, 1 KiB, 64 connections, `open_file_cache`",
        Setup::OpenFiles,
        (KIB, 64),
        1.7,
    ),
    whole(
        "hit, 1 KiB, 1000 connections, `open_file_cache`",
        Setup::OpenFiles,
        (KIB, 1000),
        1.9,
    ),
    whole(
        "hit, 1 KiB, `access_log` in the default format",
        Setup::Logged,
        (KIB, 64),
        2.2,
    ),
    whole(
        "hit, 10 MiB, `sendfile off`",
        Setup::NoSendfile,
        (10 * MIB, 8),
        1.2,
    ),
];
