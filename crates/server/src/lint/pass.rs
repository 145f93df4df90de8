//! `pass_without_resolver`, `alias_traversal`: where requests go that should not.
//!
//! A variable in an address is followed one step: if everything that `set` and `map` give to it is
//! a group or an address, nothing has to be resolved.

use std::net::IpAddr;

use millpond_conf::{Code, Contexts};

use super::Findings;
use super::block::{Blocks, variables};

/// A name that nobody can resolve.
pub(super) const PASS_WITHOUT_RESOLVER: Code = Code {
    name: "pass_without_resolver",
    doc: "An address in \"proxy_pass\" that has variables is worked out for each request. If it \
          holds a name that is neither an \"upstream\" nor an address, the name must be resolved \
          then, and without \"resolver\" every such request is answered with 502. Name a \
          \"resolver\", or let the variable hold the name of an \"upstream\".",
};

/// Files beside the folder can be read.
pub(super) const ALIAS_TRAVERSAL: Code = Code {
    name: "alias_traversal",
    doc: "The location ends without a slash and its alias with one. A request for \
          \"/files../secret\" matches \"location /files\", and what follows the location's name is \
          appended to the alias: \"/data/\" and \"../secret\". Files beside the folder can be \
          read. Write the slash at the end of both, or of neither.",
};

pub(super) fn pass_without_resolver(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    let groups = blocks.declarations("upstream");
    let groups: Vec<&str> = groups
        .filter_map(|st| Some(&*st.args.first()?.text))
        .collect();
    for passing in blocks.passing() {
        let Some(url) = passing.pass.args.first() else {
            continue;
        };
        let has_resolver = !passing.view.in_force("resolver").is_empty();
        if has_resolver || variables(&url.text).is_empty() {
            continue;
        }
        let host = authority(&url.text);
        if is_reachable(blocks, &groups, host) {
            continue;
        }
        let message =
            format!("\"{host}\" is resolved for each request, and there is no \"resolver\"");
        if let Some(warning) = findings.warn(PASS_WITHOUT_RESOLVER, passing.pass.span, message) {
            warning
                .help("name a \"resolver\", or make it the name of an \"upstream\" or an address");
        }
    }
}

/// Part of a URL between the scheme and the path.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    if rest.starts_with("unix:") {
        return "unix:";
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let host = rest.get(..end).unwrap_or(rest);
    // A path that is a variable of its own begins where the next one does.
    match host.strip_prefix('$') {
        Some(name) => {
            let end = name.find('$').map_or(host.len(), |at| at + 1);
            host.get(..end).unwrap_or(host)
        }
        None => host
            .split('$')
            .next()
            .filter(|host| !host.is_empty() && !host.ends_with(['.', ':', '-']))
            .unwrap_or(host),
    }
}

/// True if an authority is a group or an address, as far as can be read.
fn is_reachable(blocks: &Blocks<'_>, groups: &[&str], host: &str) -> bool {
    let is_literal = |host: &str| {
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        host == "unix:" || groups.contains(&host) || bare.parse::<IpAddr>().is_ok()
    };
    let names = variables(host);
    match names.as_slice() {
        [] => is_literal(host),
        [name]
            if host
                .trim_start_matches(['$', '{'])
                .trim_end_matches('}')
                .eq_ignore_ascii_case(name) =>
        {
            let values = blocks.values(name);
            values.is_some_and(|values| values.iter().all(|value| is_literal(authority(value))))
        }
        _ => names.iter().all(|name| matches!(&**name, "server_addr")),
    }
}

pub(super) fn alias_traversal(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    let locations = blocks
        .views()
        .filter(|view| view.kind() == Contexts::LOCATION);
    for view in locations {
        let name = match view.statement().args.as_slice() {
            [name] => &*name.text,
            [modifier, name] if modifier.text == "^~" => &*name.text,
            _ => continue,
        };
        let name = name.strip_prefix("^~").unwrap_or(name);
        let is_prefix = !name.starts_with(['=', '~', '@']);
        let Some(alias) = view.own("alias").next() else {
            continue;
        };
        let path = alias.args.first().map_or("", |word| &word.text);
        if !is_prefix || name.ends_with('/') || !path.ends_with('/') {
            continue;
        }
        let message = format!("\"{name}..\" leads out of the folder of the alias");
        if let Some(warning) = findings.warn(ALIAS_TRAVERSAL, alias.span, message) {
            warning.also(view.statement().name.span, "this name ends without a slash");
            warning.help(format!("write \"location {name}/\""));
        }
    }
}
