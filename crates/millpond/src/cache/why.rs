//! `millpond why`: what becomes of a request for a URL right now, and why.
//!
//! The process that serves is asked: its configuration counts, and only it knows what is being
//! fetched and what was not stored a moment ago. `-H` gives the request fields, by which variants
//! are told apart and keys may be made, `--method` the method, by which caching is decided, too.

use anyhow::Result;
use millpond_server::control::api::Verb;
use millpond_server::control::report::EntryReport;
use millpond_server::control::why::{FillReport, WhyCacheReport, WhyReport};
use millpond_system::clock;

use super::Outcome;
use super::access::{Refusal, Site};
use super::figures::{count, plain, size, time};
use super::options::{Format, Options};
use super::output::Output;
use super::show::Page;
use crate::terminal::{self, Role};

/// Asks and tells.
pub(super) fn run(options: &Options, site: &Site) -> Result<Outcome> {
    let url = options.subject.clone().unwrap_or_default();
    let mut parameters = options.parameters.clone();
    parameters.push(("url".to_string(), url));
    let report = site.whole(Verb::Get, &["why"], parameters);
    let report: WhyReport = report.map_err(Refusal::into_error)?;
    let mut output = Output::stdout();
    match options.format {
        Format::Json => output.line(&serde_json::to_string(&report)?)?,
        Format::Text | Format::Csv => {
            let mut page = Page {
                paint: terminal::stdout_paint(),
                now: clock::now_ms().div_euclid(1000),
                output: &mut output,
            };
            tell(&mut page, &report)?;
        }
    }
    output.end()?;
    let is_held = report.cache.is_some_and(|cache| cache.entry.is_some());
    Ok(if is_held {
        Outcome::Done
    } else {
        Outcome::Nothing
    })
}

fn tell(page: &mut Page<'_>, report: &WhyReport) -> Result<()> {
    let title = page.paint.paint(Role::Title, &plain(&report.url));
    page.output.line(&title)?;
    let is_good = report.refused.is_none() && report.cache.as_ref().is_some_and(is_fresh);
    let role = if is_good { Role::Good } else { Role::Doubtful };
    let verdict = page.paint.paint(role, &plain(&report.verdict));
    page.output.line(&verdict)?;
    for (index, gate) in report.gates.iter().enumerate() {
        let label = if index == 0 { "gates" } else { "" };
        page.line(label, &plain(gate))?;
    }
    let Some(cache) = &report.cache else {
        return Ok(());
    };
    page.line("zone", &plain(&cache.zone))?;
    page.line("key", &plain(&cache.key))?;
    if let Some(query) = &cache.query {
        page.line("query", &plain(query))?;
    }
    page.site(&cache.site)?;
    if let Some(quota) = &cache.quota {
        let (held, most) = (size(quota.held), size(quota.bytes));
        let text = format!("the site holds {held} of {most} in the zone (cache_site_quota)");
        page.line("quota", &text)?;
    }
    for (label, values) in [("bypass", &cache.bypass), ("no_cache", &cache.no_cache)] {
        for (index, value) in values.iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            page.line(label, &plain(&value.to_string()))?;
        }
    }
    if let Some(entry) = &cache.entry {
        page.state(entry)?;
    }
    if let Some(script) = &cache.script {
        page.line("script", &plain(script))?;
    }
    tell_others(page, &cache.others)?;
    tell_fills(page, &cache.fills)?;
    tell_memory(page, cache)?;
    tell_purges(page, cache)
}

fn is_fresh(cache: &WhyCacheReport) -> bool {
    cache.entry.as_ref().is_some_and(|entry| entry.is_fresh) && !cache.is_bypassed
}

fn tell_others(page: &mut Page<'_>, others: &[EntryReport]) -> Result<()> {
    for (index, other) in others.iter().enumerate() {
        let label = if index == 0 { "variants" } else { "" };
        let variant = other.variant.as_ref();
        let values = variant.map(|variant| plain(&variant.values));
        page.line(label, &values.unwrap_or_default())?;
    }
    Ok(())
}

fn tell_fills(page: &mut Page<'_>, fills: &[FillReport]) -> Result<()> {
    for (index, fill) in fills.iter().enumerate() {
        let label = if index == 0 { "filling" } else { "" };
        let upto = fill.end.map(|end| end.saturating_sub(1).to_string());
        let mut text = format!(
            "bytes {}-{}, {} of them are there",
            fill.from,
            upto.unwrap_or_default(),
            fill.at.saturating_sub(fill.from)
        );
        if let Some(since) = fill.since_ms {
            text.push_str(&format!(", for {}", left(since)));
        }
        if fill.followers > 0 {
            let followers = count(u64::from(fill.followers), "client", "clients");
            text.push_str(&format!(", {followers} wait or read along"));
        }
        page.line(label, &text)?;
    }
    Ok(())
}

/// Writes what is remembered of answers that were not stored, and of failures.
fn tell_memory(page: &mut Page<'_>, cache: &WhyCacheReport) -> Result<()> {
    if let Some(last) = &cache.not_stored {
        let ago = time(page.now.saturating_sub(last.at));
        let (reason, meaning) = (&last.reason, &last.meaning);
        let text = format!("{ago} ago, {}: {reason}, {meaning}", last.status);
        page.line("unstored", &plain(&text))?;
    }
    if let Some(ms) = cache.passes_for_ms {
        let text = format!(
            "nobody waits for another's answer for {} more (hit_for_pass)",
            left(ms)
        );
        page.line("passes", &text)?;
    }
    if let Some(backoff) = &cache.backoff {
        let text = format!(
            "left alone for {} more: {} (refresh_backoff)",
            left(backoff.left_ms),
            backoff.why
        );
        page.line("origin", &text)?;
    }
    if let Some(status) = cache.failure {
        let text = format!("it failed a moment ago, and {status} is answered without asking it");
        page.line("origin", &text)?;
    }
    Ok(())
}

fn tell_purges(page: &mut Page<'_>, cache: &WhyCacheReport) -> Result<()> {
    for (index, purge) in cache.purges.iter().enumerate() {
        let label = if index == 0 { "purges" } else { "" };
        let ago = purge.at.map(|at| page.now.saturating_sub(at));
        let ago = ago.map(|ago| format!(", {} ago", time(ago)));
        let (mode, kind, number) = (&purge.mode, &purge.kind, purge.number);
        let text = format!("{mode}, {kind} {}", purge.what);
        let ago = ago.unwrap_or_default();
        let text = format!("{} (number {number}{ago})", text.trim_end());
        page.line(label, &plain(&text))?;
    }
    Ok(())
}

/// Milliseconds, as times are written.
fn left(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        _ => time(i64::try_from(ms / 1000).unwrap_or(i64::MAX)),
    }
}
