//! `merge_slashes`: from the request line's target to path, query and host.

use bytes::Bytes;
use millpond_semantics::uri::{MergeSlashes, PathAndQuery, Target, normalize, parse_target};

use crate::request::Request;

/// Takes the target and the Host field apart; the error is a status and why.
pub fn apply(req: &mut Request) -> Result<(), (u16, String)> {
    let bad = |why: String| (400, why);
    let head = std::rc::Rc::clone(&req.head);
    let target = parse_target(head.target()).map_err(|error| bad(error.to_string()))?;
    let parts = match target {
        Target::Origin(parts)
        | Target::Absolute {
            path_and_query: parts,
            ..
        } => parts,
        _ => return Err(bad("client sent invalid request target".to_string())),
    };
    set_path(req, &head, parts)?;
    if let Some(host) = head.host() {
        req.host_port = host.port;
        req.host = host.write_lower(head.bytes());
    }
    Ok(())
}

fn set_path(
    req: &mut Request,
    head: &crate::http1::request::RequestHead,
    parts: PathAndQuery<'_>,
) -> Result<(), (u16, String)> {
    let merge = match req.server.settings.head.merge_slashes {
        true => MergeSlashes::On,
        false => MergeSlashes::Off,
    };
    let path = normalize(parts.path, merge).map_err(|error| (400, error.to_string()))?;
    req.uri_is_complex = matches!(path, std::borrow::Cow::Owned(_));
    req.uri = match path {
        std::borrow::Cow::Borrowed(path) => head.share(path),
        std::borrow::Cow::Owned(path) => Bytes::from(path),
    };
    req.args = parts
        .query
        .map(|query| head.share(query))
        .unwrap_or_default();
    req.unparsed_uri = head.share(parts.raw);
    Ok(())
}
