//! `proxy_cache_path`: the zones of a configuration, and the registry that keeps them open over
//! reloads.
//!
//! Invariants:
//! 1. A folder is open at most once in the process: a reload finds the zone that is there.
//! 2. A zone that no configuration names any more closes with its last user.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::step::Policies;
use millpond_cache::zone::{CacheZone, ZonePath};
use millpond_conf::value::{Args, FromArgs};
use millpond_conf::{Contexts, OffOr, Span, Statement, Template};
use millpond_store::{SystemClock, Zone, ZoneConf};

use crate::failure::Failure;
use crate::request::Request;
use crate::scope::Conf;
use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;
use crate::scope::location::LocationSettings;
use crate::upstream::protocol::Protocol;

/// Time between two sweeps of a zone; `inactive` is exact to this.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Rows of this file. A zone is a zone, whatever the protocol that it was declared with.
pub const ROWS: &[Row] = &[
    row("proxy_cache_path"),
    row("fastcgi_cache_path"),
    row("scgi_cache_path"),
    row("uwsgi_cache_path"),
];

const fn row(name: &'static str) -> Row {
    Row {
        name,
        contexts: Contexts::HTTP,
        syntax: ZonePath::SYNTAX,
        is_block: false,
        pass: Pass::First,
        doc: "A zone: the folder that answers are stored in, its name and its limits. The size in \
              keys_zone, levels, use_temp_path and the loader's and manager's parameters are \
              checked and have no effect: the index needs no size, and the store has neither a \
              file for each entry nor temporary files.",
        apply: cache_path,
    }
}

fn cache_path(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let mut args = Args {
        name: &statement.name,
        words: &statement.args,
        body: None,
        cx: &mut builder.cx,
    };
    let zone = match ZonePath::from_args(&mut args) {
        Ok(zone) => zone,
        Err(error) => return error.report(statement, ZonePath::SYNTAX, &mut builder.cx),
    };
    let zones = &builder.declared.zones;
    if zones.iter().any(|other| other.path == zone.path) {
        let message = format!("the cache path \"{}\" is used twice", zone.path.display());
        return builder.error(statement.span, message);
    }
    if zones.iter().any(|other| other.name == zone.name) {
        let message = format!("duplicate zone \"{}\"", zone.name);
        return builder.error(statement.span, message);
    }
    builder.declared.zones.push(zone);
}

/// How a location caches; made once when its settings are merged.
#[derive(Clone, Debug)]
pub struct LocationCache {
    /// The protocol of the upstreams whose answers it keeps.
    pub protocol: Protocol,
    /// The zone's name.
    pub zone: Template,
    /// Where it was named.
    pub span: Span,
    /// The policies of the walk.
    pub policies: Arc<Policies>,
}

impl LocationCache {
    /// The cache of a location for a protocol; `None` where it is off.
    pub fn of(settings: &LocationSettings, protocol: Protocol) -> Option<LocationCache> {
        let settings = settings.pass(protocol);
        let OffOr::On(zone) = &settings.zone.zone else {
            return None;
        };
        Some(LocationCache {
            protocol,
            zone: zone.value.clone(),
            span: zone.span,
            policies: Arc::new(Policies {
                valid: settings.valid.clone(),
                lock: settings.lock.clone(),
                stale: settings.stale.clone(),
                revalidate: settings.revalidate.clone(),
                range: settings.range.clone(),
                admission: settings.admission.clone(),
                ignore: settings.ignore.clone(),
            }),
        })
    }

    /// The zone for a request; `None` when the name's value is empty or `off`.
    pub fn zone_for(&self, req: &mut Request) -> Result<Option<Arc<CacheZone>>, Failure> {
        let name: Bytes = match self.zone.as_literal() {
            Some(name) => return Ok(req.conf.zones.get(name).cloned()),
            None => req.eval(&self.zone),
        };
        if name.is_empty() || name.as_ref() == b"off" {
            return Ok(None);
        }
        match req.conf.zones.get(&name) {
            Some(zone) => Ok(Some(Arc::clone(zone))),
            None => {
                let name = String::from_utf8_lossy(&name);
                Err(Failure::Internal(format!("cache \"{name}\" not found")))
            }
        }
    }
}

/// The zones of a configuration, by name.
#[derive(Debug, Default)]
pub struct Zones {
    by_name: BTreeMap<Bytes, Arc<CacheZone>>,
}

impl Zones {
    /// The zone of a name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<CacheZone>> {
        self.by_name.get(name)
    }

    /// All zones.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CacheZone>> {
        self.by_name.values()
    }
}

/// Zones that are open in this process.
#[derive(Debug, Default)]
pub struct Registry {
    open: Mutex<HashMap<PathBuf, OpenZone>>,
}

#[derive(Debug)]
struct OpenZone {
    declared: ZonePath,
    zone: Weak<CacheZone>,
}

impl Registry {
    /// Opens the zones that a configuration declares, or finds them open; the error says which and
    /// why.
    pub fn open(&self, conf: &mut Conf) -> Result<(), String> {
        let mut by_name = BTreeMap::new();
        for declared in &conf.declared.zones {
            let zone = self.open_one(declared)?;
            by_name.insert(Bytes::from(declared.name.clone().into_bytes()), zone);
        }
        conf.zones = Zones { by_name };
        Ok(())
    }

    fn open_one(&self, declared: &ZonePath) -> Result<Arc<CacheZone>, String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, zone| zone.zone.strong_count() > 0);
        if let Some(known) = open.get(&declared.path)
            && let Some(zone) = known.zone.upgrade()
        {
            if known.declared == *declared {
                return Ok(zone);
            }
            // nginx keeps a zone's folder and refuses to change it by a reload.
            let path = declared.path.display();
            return Err(format!(
                "cache \"{path}\" cannot change its parameters while it is open"
            ));
        }
        let zone = Arc::new(open_store(declared)?);
        sweep_in_background(&zone);
        let known = OpenZone {
            declared: declared.clone(),
            zone: Arc::downgrade(&zone),
        };
        open.insert(declared.path.clone(), known);
        Ok(zone)
    }
}

fn open_store(declared: &ZonePath) -> Result<CacheZone, String> {
    create_parent(&declared.path)?;
    let mut conf = ZoneConf::new(&declared.name, &declared.path);
    conf.max_size = declared.max_size;
    conf.min_free = declared.min_free;
    conf.inactive = declared.inactive;
    conf.memory = declared.memory;
    let store = Zone::open(conf, Arc::new(SystemClock)).map_err(|error| {
        format!(
            "cache \"{}\" cannot be opened: {error}",
            declared.path.display()
        )
    })?;
    Ok(CacheZone::new(declared.name.clone(), store))
}

fn create_parent(path: &Path) -> Result<(), String> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(parent)
        .map_err(|error| format!("mkdir() \"{}\" failed: {error}", parent.display()))
}

/// A thread that sweeps the zone as long as anybody uses it.
fn sweep_in_background(zone: &Arc<CacheZone>) {
    let zone = Arc::downgrade(zone);
    let sweep = move || {
        while let Some(zone) = zone.upgrade() {
            zone.store.sweep();
            drop(zone);
            std::thread::park_timeout(SWEEP_INTERVAL);
        }
    };
    // Without the thread nothing but `inactive` is late: space is kept by the store itself.
    let _ = std::thread::Builder::new()
        .name("millpond-sweep".to_string())
        .spawn(sweep);
}
