//! `limit_req_zone`, `limit_conn_zone`: tables of keys that all workers share, bounded in memory.
//!
//! A [`KeyTable`] keeps its keys in the order of their last use. What an entry costs is estimated
//! as nginx's slab allocator would round it, so that a zone of a size holds about as many keys as
//! there.
//!
//! Invariants:
//! 1. The cost of all entries is at most the size of the table.
//! 2. `first` to `last` is a list of all entries, the last used one first.
//!
//! With `fleet=NAME:split` the limit is one of all nodes of a fleet together, and each obeys its
//! share ([`Split`]); with `fleet=NAME:lease` each obeys what the owner of a key hands out.
//!
//! A reload keeps the table of a zone whose size is the same ([`inherit`]); another key under the
//! same name is refused, because the table would count something else.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use millpond_conf::value::parse_offset;
use millpond_conf::{Span, Statement, Template, Word};
use millpond_fleet::Fleets;
use millpond_fleet::lending::Leases;
use millpond_fleet::share::Share;
use millpond_fleet::slot_lending::SlotLeases;

use crate::handler::limit_conn::ConnectionZone;
use crate::handler::limit_req::RequestZone;
use crate::handler::settings::HandlerSettings;
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::declared::Declared;
use millpond_exchange::settings::level::Closing;

/// The smallest zone that nginx takes: eight pages.
const MIN_ZONE_SIZE: u64 = 8 * 4096;

/// Bytes of an entry beside its key, about those of nginx's.
const ENTRY_COST: usize = 48;

/// A bounded table of values by key, in the order of use.
#[derive(Debug)]
pub struct KeyTable<V> {
    size: usize,
    used: usize,
    places: HashMap<Arc<[u8]>, usize>,
    entries: Vec<Entry<V>>,
    free: Vec<usize>,
    first: Option<usize>,
    last: Option<usize>,
}

#[derive(Debug)]
struct Entry<V> {
    key: Arc<[u8]>,
    value: V,
    before: Option<usize>,
    after: Option<usize>,
}

impl<V: Default> KeyTable<V> {
    /// An empty table of at most `size` bytes.
    pub fn new(size: usize) -> Self {
        KeyTable {
            size,
            used: 0,
            places: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            first: None,
            last: None,
        }
    }

    /// The most that all entries may cost.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The value of a key, which becomes the last used one.
    pub fn use_key(&mut self, key: &[u8]) -> Option<&mut V> {
        let place = *self.places.get(key)?;
        self.unlink(place);
        self.link_first(place);
        self.entries.get_mut(place).map(|entry| &mut entry.value)
    }

    /// The value of a key, which does not count as used.
    pub fn find(&mut self, key: &[u8]) -> Option<&mut V> {
        let place = *self.places.get(key)?;
        self.entries.get_mut(place).map(|entry| &mut entry.value)
    }

    /// True when a new key of this length would fit.
    pub fn has_room(&self, key: &[u8]) -> bool {
        self.used + cost(key) <= self.size
    }

    /// Adds a key that is not there, as the last used one; `None` when it does not fit.
    pub fn insert(&mut self, key: &[u8], value: V) -> Option<&mut V> {
        if !self.has_room(key) {
            return None;
        }
        self.used += cost(key);
        let key: Arc<[u8]> = Arc::from(key);
        let entry = Entry {
            key: Arc::clone(&key),
            value,
            before: None,
            after: None,
        };
        let place = match self.free.pop() {
            Some(place) => {
                if let Some(slot) = self.entries.get_mut(place) {
                    *slot = entry;
                }
                place
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.places.insert(key, place);
        self.link_first(place);
        self.entries.get_mut(place).map(|entry| &mut entry.value)
    }

    /// The value that was used longest ago.
    pub fn oldest(&self) -> Option<&V> {
        self.entries.get(self.last?).map(|entry| &entry.value)
    }

    /// Removes the key that was used longest ago.
    pub fn remove_oldest(&mut self) {
        if let Some(place) = self.last {
            self.remove_place(place);
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8]) {
        if let Some(place) = self.places.get(key).copied() {
            self.remove_place(place);
        }
    }

    fn remove_place(&mut self, place: usize) {
        self.unlink(place);
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        let key = std::mem::replace(&mut entry.key, Arc::from(&b""[..]));
        entry.value = V::default();
        self.used = self.used.saturating_sub(cost(&key));
        self.places.remove(&key);
        self.free.push(place);
    }

    fn unlink(&mut self, place: usize) {
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        let (before, after) = (entry.before.take(), entry.after.take());
        match before.and_then(|before| self.entries.get_mut(before)) {
            Some(entry) => entry.after = after,
            None => self.first = after,
        }
        match after.and_then(|after| self.entries.get_mut(after)) {
            Some(entry) => entry.before = before,
            None => self.last = before,
        }
    }

    fn link_first(&mut self, place: usize) {
        let old = self.first.replace(place);
        if let Some(entry) = self.entries.get_mut(place) {
            entry.after = old;
        }
        match old.and_then(|old| self.entries.get_mut(old)) {
            Some(entry) => entry.before = Some(place),
            None => self.last = Some(place),
        }
    }
}

/// nginx's slabs are powers of two.
fn cost(key: &[u8]) -> usize {
    (key.len() + ENTRY_COST).next_power_of_two()
}

/// The zones of a configuration.
#[derive(Debug, Default)]
pub struct LimitZones {
    /// `limit_req_zone`.
    pub limit_req: Vec<Arc<RequestZone>>,
    /// `limit_conn_zone`.
    pub limit_conn: Vec<Arc<ConnectionZone>>,
}

impl Part for LimitZones {
    const PLACE: Place = Place::LimitZones;
}

impl LimitZones {
    fn splits(&self) -> impl Iterator<Item = &Split> {
        let requests = self.limit_req.iter().filter_map(|zone| zone.split());
        let connections = self.limit_conn.iter().filter_map(|zone| zone.split());
        requests.chain(connections)
    }

    /// Joins the limits that fleets share to the shares of this node.
    pub fn join(&self, fleets: &Fleets) {
        for split in self.splits() {
            split.share.get_or_init(|| fleets.share(&split.fleet));
        }
        let connections = self.limit_conn.iter().filter_map(|zone| zone.split());
        connections
            .filter_map(Split::slots)
            .for_each(|it| it.join());
    }

    /// True if limits are shared by the nodes of a fleet.
    pub fn are_split_in(&self, fleet: &str) -> bool {
        self.splits().any(|split| split.fleet == fleet)
    }
}

/// A limit that the nodes of a fleet share.
#[derive(Debug)]
pub struct Split {
    fleet: String,
    how: Sharing,
    share: OnceLock<Arc<Share>>,
}

/// The way in which nodes share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each has an equal part.
    Split,
    /// The owner of a key hands out what there is.
    Lease,
}

impl Split {
    /// Number of nodes that share the limit.
    pub fn nodes(&self) -> u64 {
        self.share.get().map_or(1, |share| share.nodes())
    }

    /// The way in which the limit is shared.
    pub fn how(&self) -> Sharing {
        self.how
    }

    /// Leases of the limit, if it is leased and the fleet is joined.
    pub fn leases(&self) -> Option<&Arc<Leases>> {
        let share = self.share.get().filter(|_| self.how == Sharing::Lease)?;
        Some(share.leases())
    }

    /// Slots of the limit, if they are leased and the fleet is joined.
    pub fn slots(&self) -> Option<&Arc<SlotLeases>> {
        let share = self.share.get().filter(|_| self.how == Sharing::Lease)?;
        Some(share.slots())
    }

    /// The part of this node of a number of things.
    pub fn part_of(&self, whole: u16) -> u16 {
        let share = self.share.get();
        share.map_or(whole, |share| share.part_of(whole))
    }
}

/// Lets the zones of a new configuration go on with the tables of those before; the error is
/// nginx's.
pub fn inherit(new: &mut LimitZones, old: &LimitZones) -> Result<(), String> {
    for zone in &mut new.limit_req {
        let known = old
            .limit_req
            .iter()
            .find(|known| known.name() == zone.name());
        if let (Some(known), Some(zone)) = (known, Arc::get_mut(zone)) {
            zone.inherit(known)?;
        }
    }
    for zone in &mut new.limit_conn {
        let known = old
            .limit_conn
            .iter()
            .find(|known| known.name() == zone.name());
        if let (Some(known), Some(zone)) = (known, Arc::get_mut(zone)) {
            zone.inherit(known)?;
        }
    }
    Ok(())
}

/// The arguments that both zone directives have in common.
pub struct ZoneArgs<'a> {
    /// The key that is counted by.
    pub key: Template,
    /// Name of the zone.
    pub name: String,
    /// The size of the zone in bytes.
    pub size: usize,
    /// The fleet whose nodes share the limits.
    pub split: Option<Split>,
    /// The arguments that are neither.
    pub others: Vec<&'a Word>,
}

/// Reads `key zone=name:size [fleet=name:split | fleet=name:lease] …` of a module's line; a mistake
/// is reported.
pub fn read_zone<'a>(
    builder: &mut Builder,
    statement: &'a Statement,
    module: &'static str,
) -> Option<ZoneArgs<'a>> {
    let (key, parameters) = statement.args.split_first()?;
    let key = builder.template(key)?;
    let (mut zone, mut split) = (None, None);
    let mut others = Vec::new();
    for word in parameters {
        let read = match word.text.split_once('=') {
            Some(("zone", text)) => parse_zone(word, text).map(|found| zone = Some(found)),
            Some(("fleet", text)) => parse_sharing(text).map(|how| split = Some((how, word))),
            _ => {
                others.push(word);
                Ok(())
            }
        };
        if let Err(message) = read {
            builder.error(word.span, message);
            return None;
        }
    }
    let Some((name, size)) = zone else {
        let message = format!("\"{}\" must have \"zone\" parameter", statement.name.text);
        builder.error(statement.span, message);
        return None;
    };
    if let Err(message) = builder.cx.shared.name(&name, module) {
        builder.error(statement.span, message);
        return None;
    }
    let split = split.map(|((fleet, how), word)| {
        let named = &mut builder.of::<ZonesUsed>().fleets;
        named.push((fleet.clone(), word.span));
        Split {
            fleet,
            how,
            share: OnceLock::new(),
        }
    });
    Some(ZoneArgs {
        key,
        name,
        size,
        split,
        others,
    })
}

/// The fleet that a limit is shared in, and how. The word is a name here as in
/// `proxy_cache_path`, so that no line changes its meaning when a configuration gets a second
/// fleet.
fn parse_sharing(text: &str) -> Result<(String, Sharing), String> {
    let how = |word| match word {
        "split" => Some(Sharing::Split),
        "lease" => Some(Sharing::Lease),
        _ => None,
    };
    let parts = text.split_once(':').filter(|(name, _)| !name.is_empty());
    let found = parts.and_then(|(name, word)| Some((name.to_owned(), how(word)?)));
    found.ok_or_else(|| {
        format!(
            "invalid parameter \"fleet={text}\", it must be \"fleet=name:split\" or \
             \"fleet=name:lease\""
        )
    })
}

fn parse_zone(word: &Word, text: &str) -> Result<(String, usize), String> {
    let bad_size = || format!("invalid zone size \"{}\"", word.text);
    let (name, size) = text.split_once(':').ok_or_else(bad_size)?;
    let size = parse_offset(size).ok_or_else(bad_size)?;
    if size < MIN_ZONE_SIZE {
        return Err(format!("zone \"{}\" is too small", word.text));
    }
    let size = usize::try_from(size).map_err(|_| bad_size())?;
    Ok((name.to_string(), size))
}

/// Zones that limits name, and fleets that zones name.
#[derive(Default)]
struct ZonesUsed {
    limits: Vec<Use>,
    fleets: Vec<(String, Span)>,
}

/// A limit that names a zone.
#[derive(PartialEq)]
struct Use {
    directive: &'static str,
    zone: String,
    span: Span,
    /// The number of connections, of one that has such.
    count: Option<u16>,
}

/// Remembers the zones that the limits of a block name.
pub fn close(level: &mut Closing<'_>) {
    let settings = &*level.settings;
    let requests = settings.of::<HandlerSettings>().limit_req.limits.iter();
    let requests = requests.map(|limit| Use {
        directive: "limit_req",
        zone: limit.value.zone.clone(),
        span: limit.span,
        count: None,
    });
    let connections = settings.of::<HandlerSettings>().limit_conn.limits.iter();
    let connections = connections.map(|limit| Use {
        directive: "limit_conn",
        zone: limit.value.zone.clone(),
        span: limit.span,
        count: Some(limit.value.count),
    });
    let mut seen = HashSet::new();
    for used in requests.chain(connections) {
        let (directive, span) = (used.directive, used.span);
        let is_new = seen.insert((directive, used.zone.clone()));
        // Blocks inside have the limits of those around them.
        if level.builder.of::<ZonesUsed>().limits.contains(&used) {
            continue;
        }
        if !is_new {
            let message = format!("\"{directive}\" directive is duplicate");
            level.builder.error(span, message);
        }
        level.builder.of::<ZonesUsed>().limits.push(used);
    }
}

/// Reports the zones and fleets that nobody declared; they may stand behind their use.
pub fn check_uses(builder: &mut Builder) {
    let mut used: ZonesUsed = builder.take();
    let quotas = builder.of::<Declared>().site_quotas.iter();
    used.fleets
        .extend(quotas.filter_map(|quota| quota.fleet.clone()));
    for (fleet, span) in used.fleets {
        let mut known = builder.of::<Declared>().fleets.iter();
        if !known.any(|known| known.name() == fleet) {
            builder.error(span, format!("fleet \"{fleet}\" is unknown"));
        }
    }
    let mut counts: HashMap<String, u16> = HashMap::new();
    for used in used.limits {
        let Use {
            directive,
            zone,
            span,
            count,
        } = used;
        let declared = builder.of::<LimitZones>();
        let connections = declared.limit_conn.iter().find(|it| it.name() == zone);
        let is_known = match directive {
            "limit_req" => declared.limit_req.iter().any(|known| known.name() == zone),
            _ => connections.is_some(),
        };
        if !is_known {
            builder.error(span, format!("unknown {directive} zone \"{zone}\""));
            continue;
        }
        // Its owner hands out what one number leaves free.
        if let (Some(count), true) = (count, connections.is_some_and(|it| it.is_leased())) {
            let first = *counts.entry(zone.clone()).or_insert(count);
            if first != count {
                let message = format!(
                    "limit_conn zone \"{zone}\" is leased, so all of its limits must have one \
                     number, and {first} is another one"
                );
                builder.error(span, message);
            }
        }
    }
}

/// The log level of the refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum LimitLevel {
    /// `info`.
    #[word("info")]
    Info,
    /// `notice`.
    #[word("notice")]
    Notice,
    /// `warn`.
    #[word("warn")]
    Warn,
    /// `error`.
    #[word("error")]
    Error,
}

/// A status that a limit answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus(pub u16);

impl millpond_conf::FromWord for LimitStatus {
    const SYNTAX: &'static str = "code";

    fn from_word(
        word: &Word,
        cx: &mut millpond_conf::ParseContext,
    ) -> Result<Self, millpond_conf::value::WordError> {
        let code = u16::from_word(word, cx)?;
        if (400..=599).contains(&code) {
            Ok(LimitStatus(code))
        } else {
            Err(millpond_conf::value::WordError::Message(
                "value must be between 400 and 599".to_string(),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(keys: usize) -> KeyTable<u32> {
        KeyTable::new(keys * cost(b"a"))
    }

    #[test]
    fn the_oldest_key_is_the_one_not_used_for_longest() {
        let mut table = table(3);
        for (key, value) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
            assert!(table.insert(key, value).is_some());
        }
        assert!(table.insert(b"d", 4).is_none());
        assert_eq!(table.use_key(b"a"), Some(&mut 1));
        assert_eq!(table.oldest(), Some(&2));
        table.remove_oldest();
        assert_eq!(table.use_key(b"b"), None);
        assert!(table.insert(b"d", 4).is_some());
        assert_eq!(table.oldest(), Some(&3));
    }

    #[test]
    fn removed_keys_leave_the_list_whole() {
        let mut table = table(3);
        for (key, value) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
            table.insert(key, value);
        }
        table.remove(b"b");
        table.remove(b"x");
        assert_eq!(table.oldest(), Some(&1));
        table.remove_oldest();
        assert_eq!(table.oldest(), Some(&3));
        table.remove_oldest();
        assert_eq!(table.oldest(), None);
        table.remove_oldest();
        assert_eq!(table.used, 0);
        assert!(table.insert(b"a", 1).is_some());
        assert_eq!(table.oldest(), Some(&1));
    }

    #[test]
    fn zones_have_a_name_and_at_least_eight_pages() {
        let word = |text: &str| Word {
            text: text.to_string(),
            span: millpond_conf::Span::NONE,
            quoted: false,
        };
        let read = |text: &str| parse_zone(&word(text), text);
        assert_eq!(read("one:1m"), Ok(("one".to_string(), 1024 * 1024)));
        assert_eq!(read("one:32k"), Ok(("one".to_string(), 32 * 1024)));
        for text in ["one", "one:", "one:x", "one:31k", "one:-1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
