//! `absolute_redirect`, `server_name_in_redirect`, `port_in_redirect`, `msie_refresh`: what
//! redirects look like.
//!
//! Whoever redirects the client leaves the target in the request's `answer_fields`; when the answer
//! is made, a path of this server becomes absolute here, so that all redirects look alike: folders
//! without their slash, `return`, `rewrite`, `error_page`.
//!
//! Sources: nginx ngx_http_header_filter.

use bytes::Bytes;
use millpond_semantics::uri::{EscapeKind, escape_into};
use millpond_wire::header::Known;

use crate::handler::settings::HandlerSettings;
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;

/// The form of the Location of a redirect within this server.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct RedirectPolicy {
    /// Names scheme and host in the Location; else it is the path alone.
    #[directive(name = "absolute_redirect", default = "on")]
    pub absolute: bool,
    /// Names the server's first name as the host; else it is the one that the client named.
    #[directive(name = "server_name_in_redirect", default = "off")]
    pub server_name: bool,
    /// Names the port of the listener, unless it is the scheme's usual one.
    #[directive(name = "port_in_redirect", default = "on")]
    pub port: bool,
    /// Redirects Internet Explorer by a page that goes on to the target, with status 200, instead
    /// of by 301 and 302.
    #[directive(name = "msie_refresh", default = "off")]
    pub refreshes: bool,
}

/// The page in place of a redirect with this status, for a client that is to get one.
pub(crate) fn refresh_page(req: &mut Request, status: u16) -> Option<Response> {
    let is_wanted = req
        .location
        .settings
        .of::<HandlerSettings>()
        .redirect
        .refreshes
        && matches!(status, 301 | 302);
    if !is_wanted || !is_msie(req.field(Known::UserAgent).unwrap_or_default()) {
        return None;
    }
    let target = req.answer_fields.get(Known::Location)?.clone();
    req.answer_fields.remove(Known::Location);
    let mut body = b"<html><head><meta http-equiv=\"Refresh\" content=\"0; URL=".to_vec();
    escape_into(&target, EscapeKind::Refresh, &mut body);
    body.extend_from_slice(b"\"></head><body></body></html>\r\n");
    let content_type = Bytes::from_static(b"text/html");
    Some(Response::text(200, content_type, Bytes::from(body)))
}

/// Internet Explorer; Opera used to call itself that, too.
fn is_msie(agent: &[u8]) -> bool {
    let has = |text: &[u8], word: &[u8]| memchr::memmem::find(text, word).is_some();
    // nginx: three characters at least follow the name.
    let versioned = agent
        .get(..agent.len().saturating_sub(3))
        .unwrap_or_default();
    has(versioned, b"MSIE ") && !has(agent, b"Opera")
}

impl Request {
    /// The Location field for `target`: a path becomes absolute where the settings want it,
    /// anything else stays.
    pub(crate) fn redirect_to(&self, target: Bytes) -> Bytes {
        let policy = &self.location.settings.of::<HandlerSettings>().redirect;
        if !policy.absolute || target.first() != Some(&b'/') {
            return target;
        }
        let mut text = Vec::with_capacity(target.len() + 64);
        let connection = &self.client.connection;
        text.extend_from_slice(connection.scheme().as_bytes());
        text.extend_from_slice(b"://");
        push_host(self, policy, &mut text);
        let port = connection.local.port();
        let usual = if connection.is_encrypted() { 443 } else { 80 };
        if policy.port && port != 0 && port != usual {
            text.push(b':');
            text.extend_from_slice(port.to_string().as_bytes());
        }
        text.extend_from_slice(&target);
        Bytes::from(text)
    }
}

fn push_host(req: &Request, policy: &RedirectPolicy, text: &mut Vec<u8>) {
    if policy.server_name {
        text.extend_from_slice(&req.server.name);
    } else if !req.host.is_empty() {
        text.extend_from_slice(&req.host);
    } else {
        let host = req.client.connection.local.host_text();
        let is_v6 = req
            .client
            .connection
            .local
            .ip()
            .is_some_and(|ip| ip.is_ipv6());
        let host = if is_v6 { format!("[{host}]") } else { host };
        text.extend_from_slice(host.as_bytes());
    }
}

/// A redirect from a folder's path to the same path with a slash; `path` is not escaped yet.
pub(crate) fn add_slash(req: &mut Request, path: &[u8]) -> Failure {
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
