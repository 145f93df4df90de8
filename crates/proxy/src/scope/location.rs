//! The families whose directives stand in http, server and location blocks.

use millpond_conf::Scope;

use crate::downstream::body::BodyPolicy;
use crate::downstream::connection::KeepAlivePolicy;
use crate::downstream::writer::SendPolicy;
use crate::respond::{ChunkedPolicy, TokensPolicy};

/// Settings of a location, merged from the blocks around it.
#[derive(Clone, Debug, Scope)]
pub struct LocationSettings {
    /// Request bodies.
    pub body: BodyPolicy,
    /// How answers are sent.
    pub send: SendPolicy,
    /// Keep-alive and closing.
    pub keep_alive: KeepAlivePolicy,
    /// Chunked coding of answers.
    pub chunked: ChunkedPolicy,
    /// How the server names itself.
    pub tokens: TokensPolicy,
}
