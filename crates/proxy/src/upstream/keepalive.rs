//! `keepalive`: idle connections to peers, kept by each worker.

/// Idle connections of one worker.
#[derive(Debug, Default)]
pub struct IdlePeers {}
