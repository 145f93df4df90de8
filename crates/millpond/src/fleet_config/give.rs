//! `push`, `promote`, `rollback`: orders, signed here.
//!
//! The bundle is given before its order, so that no node looks for one that is not there.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use millpond_fleet::config::Steps;
use millpond_fleet::config::bundle::{self, hex};
use millpond_fleet::config::known::{Known, Reach};
use millpond_fleet::config::order::{Order, SecretKey};
use millpond_server::source::bundled::Beside;
use millpond_system::clock;

use super::options::Options;
use super::pack::{self, Draft};
use super::site::{self, Site};
use crate::cache::figures::{plain, size};
use crate::printed;

fn key(options: &Options) -> Result<SecretKey> {
    let path = options.key.as_deref().context("no key")?;
    let shown = || format!("the key \"{}\"", path.display());
    let text = fs::read_to_string(path).with_context(shown)?;
    SecretKey::read(&text).map_err(|why| anyhow::Error::msg(why).context(shown()))
}

fn now_ms() -> u64 {
    u64::try_from(clock::now_ms()).unwrap_or(0)
}

/// Packs files, tests them, and gives them to the fleet.
pub(super) fn push(options: &Options, path: &Path) -> Result<ExitCode> {
    let draft = pack::pack(path, &options.with)?;
    if options.is_tested {
        let beside = Beside::Draft(Arc::new(draft.bundle.clone()), draft.root.clone());
        let read = site::read(&options.process.source(), beside);
        read.context("the configuration is wrong (--no-test pushes it all the same)")?;
    }
    let (count, len) = (draft.bundle.files().len(), size(draft.bytes.len() as u64));
    printed::line(format_args!(
        "{count} files, {len}, main file {}",
        plain(draft.bundle.main())
    ))?;
    if !draft.elsewhere.is_empty() {
        let names = plain(&draft.elsewhere.join(", "));
        printed::line(format_args!("not packed, nodes must have them: {names}"))?;
    }
    if options.is_dry {
        return Ok(ExitCode::SUCCESS);
    }
    let key = key(options)?;
    let site = Site::open(options)?;
    let mut known = trusting(&site, &key)?;
    let order = order_of(options, &site, &known, &draft)?;
    site.run(async |log| log.put_bundle(&order.digest, &draft.bytes).await)?;
    give(&site, &mut known, order, &key)
}

fn order_of(options: &Options, site: &Site, known: &Known, draft: &Draft) -> Result<Order> {
    let own = &site.config.steps;
    let steps = Steps {
        canary: options.canary.unwrap_or(own.canary),
        watch: options.watch.unwrap_or(own.watch),
        ..*own
    };
    let reach = if options.is_for_all {
        Reach::All
    } else {
        Reach::Steps(steps)
    };
    let fleet = site.fleet.name();
    known
        .push((fleet, &draft.bytes), reach, now_ms())
        .map_err(anyhow::Error::msg)
}

/// Knowledge of the fleet, if nodes with this configuration take what the key has signed.
fn trusting(site: &Site, key: &SecretKey) -> Result<Known> {
    ensure!(
        site.config.trusted.contains(&key.public()),
        "\"trusted_key\" of fleet \"{}\" does not have the public half of this key",
        site.fleet.name()
    );
    site.known()
}

/// Gives all nodes what some try.
pub(super) fn promote(options: &Options) -> Result<ExitCode> {
    let key = key(options)?;
    let site = Site::open(options)?;
    let mut known = trusting(&site, &key)?;
    let order = known.promote(now_ms()).map_err(anyhow::Error::msg)?;
    give(&site, &mut known, order, &key)
}

/// Gives all nodes what they had before.
pub(super) fn rollback(options: &Options, to: Option<u64>) -> Result<ExitCode> {
    let key = key(options)?;
    let site = Site::open(options)?;
    let mut known = trusting(&site, &key)?;
    let order = known.rollback(to, now_ms()).map_err(anyhow::Error::msg)?;
    let bytes = site.run(async |log| log.bundle(&order).await)?;
    ensure!(
        bytes.is_some_and(|bytes| bundle::digest(&bytes) == order.digest),
        "the bundle of revision {} is not there any more as it was signed",
        order.of
    );
    give(&site, &mut known, order, &key)
}

fn give(site: &Site, known: &mut Known, order: Order, key: &SecretKey) -> Result<ExitCode> {
    let signed = known.sign(order, key);
    let order = &signed.order;
    site.run(async |log| log.put_order(&signed).await)
        .context("the order was not given (another one may have been faster)")?;
    let what = describe(order);
    printed::line(format_args!("fleet {}: {what}", plain(site.fleet.name())))?;
    // What stays costs nothing but its place.
    if let Err(failure) = site.run(async |log| log.forget(&known.orders).await) {
        eprintln!("millpond: {failure:#}");
    }
    Ok(ExitCode::SUCCESS)
}

/// An order in a line.
pub(super) fn describe(order: &Order) -> String {
    let whole = hex(&order.digest);
    let digest = whole.get(..16).unwrap_or_default();
    let of = if order.of == order.revision {
        String::new()
    } else {
        format!(" of revision {}", order.of)
    };
    let reach = if order.has_canaries() {
        let names = plain(&order.canaries.join(", "));
        format!("tried for {} s by {names}", order.watch_ms / 1000)
    } else {
        "for all nodes".to_owned()
    };
    let (number, kind) = (order.revision, order.kind.word());
    format!("revision {number}, {kind}{of}, bundle {digest}, {reach}")
}
