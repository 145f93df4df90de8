//! `absolute_redirect`, `server_name_in_redirect`, `port_in_redirect`: the Location of redirects.
//!
//! Whoever redirects the client leaves the target in the request's `answer_fields`; when the answer
//! is made, a path of this server becomes absolute here, so that all redirects look alike: folders
//! without their slash, `return`, `rewrite`, `error_page`.
//!
//! Sources: nginx ngx_http_header_filter.

use bytes::Bytes;
use millpond_semantics::uri::{EscapeKind, escape_into};

use crate::failure::Failure;
use crate::header::Known;
use crate::request::Request;

/// What the Location of a redirect within this server looks like.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct RedirectPolicy {
    /// Whether the Location names scheme and host; else it is the path alone.
    #[directive(name = "absolute_redirect", default = "on")]
    pub absolute: bool,
    /// Whether the host is the server's first name; else it is the one that the client named.
    #[directive(name = "server_name_in_redirect", default = "off")]
    pub server_name: bool,
    /// Whether the port of the listener is named, unless it is the scheme's usual one.
    #[directive(name = "port_in_redirect", default = "on")]
    pub port: bool,
}

/// The Location field for `target`: a path becomes absolute where the settings want it, anything
/// else stays.
pub fn location(req: &Request, target: Bytes) -> Bytes {
    let policy = &req.location.settings.redirect;
    if !policy.absolute || target.first() != Some(&b'/') {
        return target;
    }
    let mut text = Vec::with_capacity(target.len() + 64);
    text.extend_from_slice(b"http://");
    push_host(req, policy, &mut text);
    let port = req.down.local.port();
    if policy.port && !matches!(port, 0 | 80) {
        text.push(b':');
        text.extend_from_slice(port.to_string().as_bytes());
    }
    text.extend_from_slice(&target);
    Bytes::from(text)
}

fn push_host(req: &Request, policy: &RedirectPolicy, text: &mut Vec<u8>) {
    if policy.server_name {
        text.extend_from_slice(&req.server.name);
    } else if !req.host.is_empty() {
        text.extend_from_slice(&req.host);
    } else {
        let host = req.down.local.host_text();
        let is_v6 = req.down.local.ip().is_some_and(|ip| ip.is_ipv6());
        let host = if is_v6 { format!("[{host}]") } else { host };
        text.extend_from_slice(host.as_bytes());
    }
}

/// A redirect from a folder's path to the same path with a slash; `path` is not escaped yet.
pub fn add_slash(req: &mut Request, path: &[u8]) -> Failure {
    let mut target = Vec::with_capacity(path.len() + req.args.len() + 2);
    escape_into(path, EscapeKind::Uri, &mut target);
    if target.last() != Some(&b'/') {
        target.push(b'/');
    }
    if !req.args.is_empty() {
        target.push(b'?');
        target.extend_from_slice(&req.args);
    }
    req.answer_fields.set(Known::Location, target);
    Failure::Status(301)
}
