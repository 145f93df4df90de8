//! Directives of nginx that are accepted and have no effect here, each with the reason.

use millpond_conf::Contexts;

/// An accepted directive without effect.
#[derive(Debug)]
pub struct NoEffect {
    /// Name.
    pub name: &'static str,
    /// Where it may stand.
    pub contexts: Contexts,
    /// Why it has no effect, as a clause: "there is …".
    pub reason: &'static str,
}

/// The table.
pub const NO_EFFECT: &[NoEffect] = &[
    NoEffect {
        name: "worker_connections",
        contexts: Contexts::EVENTS,
        reason: "connections are limited by open files only",
    },
    NoEffect {
        name: "access_log",
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "x",
    },
    NoEffect {
        name: "proxy_temp_path",
        contexts: Contexts::HTTP
            .union(Contexts::SERVER)
            .union(Contexts::LOCATION),
        reason: "there are no temporary files",
    },
];

/// The row of a name.
pub fn find(name: &str) -> Option<&'static NoEffect> {
    NO_EFFECT.iter().find(|row| row.name == name)
}
