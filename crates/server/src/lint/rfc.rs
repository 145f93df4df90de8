//! `rfc_stale_updating`, `rfc_post_stored`: what a location that follows RFC 9111 is told to do
//! against it.
//!
//! Such a line is obeyed: an operator may have agreed on it with the origin. It is pointed out.

use millpond_conf::Code;

use super::Findings;
use super::block::{Blocks, Passing};

/// Stale answers are served without the word of the origin or of the client.
pub(super) const RFC_STALE_UPDATING: Code = Code {
    name: "rfc_stale_updating",
    doc: "Under \"proxy_cache_conformance rfc9111\" a stale answer is served while it is updated if \
          its origin says so (stale-while-revalidate). With \"updating\" in \
          \"proxy_cache_use_stale\" it is served to everybody for any time, although RFC 9111, \
          section 4.2.4, allows a cache that reaches its origin no stale answers that neither \
          origin nor client has asked for; the update then always runs in the background. Leave \
          \"updating\" out and let the origin send stale-while-revalidate, or allow the warning if \
          you and the owner of the origin have agreed so.",
};

/// Answers to POST are served to other POST requests.
pub(super) const RFC_POST_STORED: Code = Code {
    name: "rfc_post_stored",
    doc: "Under \"proxy_cache_conformance rfc9111\" an answer to POST that states its lifetime and \
          has the posted URI as its Content-Location answers later GET requests, without any \
          directive. With POST in \"proxy_cache_methods\" the cache answers POST requests with \
          what another one was answered, so that the origin never hears of them: RFC 9110, \
          section 9.3.3, does not allow that. Leave POST out.",
};

pub(super) fn stale_updating(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    for user in blocks.caching().filter(follows_rfc) {
        let lines = user.in_force("cache_use_stale");
        let mut lines = lines.into_iter();
        let Some(line) = lines.find(|st| st.args.iter().any(|word| word.text == "updating")) else {
            continue;
        };
        let message = "stale answers are served while they are updated, which RFC 9111 leaves to \
                       the origin"
            .to_string();
        if let Some(warning) = findings.warn(RFC_STALE_UPDATING, line.span, message) {
            warning.help("leave \"updating\" out; the origin says stale-while-revalidate");
        }
    }
}

pub(super) fn post_stored(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    for user in blocks.caching().filter(follows_rfc) {
        let lines = user.in_force("cache_methods");
        let mut lines = lines.into_iter();
        let Some(line) = lines.find(|st| st.args.iter().any(|word| word.text == "POST")) else {
            continue;
        };
        let message = "POST requests are answered with what is stored, which RFC 9110 does not \
                       allow"
            .to_string();
        if let Some(warning) = findings.warn(RFC_POST_STORED, line.span, message) {
            warning.help("leave POST out; answers to it that GET would have are stored anyway");
        }
    }
}

/// True if the caching of a block is by RFC 9111.
pub(super) fn follows_rfc(user: &Passing<'_, '_>) -> bool {
    let name = user.name("cache_conformance");
    user.view.value(&name) == Some("rfc9111")
}
