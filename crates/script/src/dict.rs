//! `js_shared_dict_zone`: values that scripts of all workers share, each for a time.
//!
//! ```text
//! items: key → value, end, cost          ends: (end, serial) → key, the next to end first
//! ```
//!
//! Invariants:
//! 1. The items cost no more than the capacity, each `ITEM_COST` beside its bytes.
//! 2. An item that has ended is not seen, and goes when somebody asks.
//! 3. Room is made for an item only where the dictionary evicts, and by what would end next.

pub mod keeper;
mod state;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::keeper::{Keeper, Watch};
use self::state::Row;

/// The cost of an item beside the bytes of its key and value: about what two tables take for it.
const ITEM_COST: usize = 128;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A text.
    Text(String),
    /// A number.
    Number(f64),
}

/// The settings of a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DictSpec {
    /// The name.
    pub name: String,
    /// The bytes that its items may cost.
    pub capacity: usize,
    /// The time for which an item is kept; none: for ever.
    pub timeout: Option<Duration>,
    /// True for one of numbers, and not of texts.
    pub is_of_numbers: bool,
    /// True if items make room for others.
    pub evicts: bool,
    /// The file in which it outlives the process.
    pub state: Option<PathBuf>,
}

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// The value of a key.
    Get(String),
    /// The time that a key's item has left.
    Left(String),
    /// Sets a key, by a rule, for a time of its own.
    Put(String, Item, Rule, Option<Duration>),
    /// Adds to a number, or to the second number where there is none.
    Add(String, [f64; 2], Option<Duration>),
    /// Removes a key, and tells its value.
    Take(String),
    /// At most so many items, those first that end next.
    Items(usize),
    /// Removes all.
    Clear,
    /// The count of items.
    Count,
    /// The bytes that are left.
    Free,
}

/// The condition of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// None.
    Always,
    /// The key has no value.
    Absent,
    /// The key has a value.
    Present,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// There is none.
    Nothing,
    /// Yes, that was done.
    Done,
    /// There is no room.
    Full,
    /// A count.
    Count(usize),
    /// A time.
    Left(Duration),
    /// A value.
    Value(Item),
    /// Items.
    Items(Vec<(String, Item)>),
}

/// A dictionary.
#[derive(Debug)]
pub struct Dict {
    /// The settings.
    pub spec: DictSpec,
    state: Mutex<State>,
    watch: Watch,
}

type End = (Option<Instant>, u64);

#[derive(Debug, Default)]
struct State {
    items: HashMap<String, (Item, End, usize)>,
    ends: BTreeMap<End, String>,
    cost: usize,
    serial: u64,
}

impl Dict {
    /// An empty one.
    pub fn new(spec: DictSpec) -> Self {
        Dict {
            spec,
            state: Mutex::default(),
            watch: Watch::default(),
        }
    }

    /// Answers a question.
    pub fn ask(&self, ask: Ask, now: Instant) -> Told {
        let may_change = matches!(ask, Ask::Put(..) | Ask::Add(..) | Ask::Take(_) | Ask::Clear);
        let told = self.answer(ask, now);
        if may_change && !matches!(told, Told::Nothing | Told::Full) {
            self.watch.note();
        }
        told
    }

    fn answer(&self, ask: Ask, now: Instant) -> Told {
        let mut state = self.lock();
        state.forget_ended(now);
        match ask {
            Ask::Get(key) => state.get(&key).map_or(Told::Nothing, Told::Value),
            Ask::Left(key) => match state.items.get(&key) {
                Some((_, (Some(end), _), _)) => Told::Left(end.saturating_duration_since(now)),
                Some(_) | None => Told::Nothing,
            },
            Ask::Put(key, item, rule, time) => {
                let is_there = state.items.contains_key(&key);
                let may = match rule {
                    Rule::Always => true,
                    Rule::Absent => !is_there,
                    Rule::Present => is_there,
                };
                if !may {
                    return Told::Nothing;
                }
                self.put(&mut state, (key, item), self.end(now, time))
            }
            Ask::Add(key, [delta, first], time) => {
                let old = match state.get(&key) {
                    Some(Item::Number(old)) => old,
                    Some(Item::Text(_)) | None => first,
                };
                let new = Item::Number(old + delta);
                // njs: without a time of its own it leaves the end of the item.
                let kept = state.items.get(&key).map(|(_, (end, _), _)| *end);
                let end = match (kept, time) {
                    (Some(end), None) => end,
                    _ => self.end(now, time),
                };
                match self.put(&mut state, (key, new.clone()), end) {
                    Told::Done => Told::Value(new),
                    other => other,
                }
            }
            Ask::Take(key) => state.remove(&key).map_or(Told::Nothing, Told::Value),
            Ask::Items(most) => {
                let keys = state.ends.values().take(most);
                let items = keys.filter_map(|key| Some((key.clone(), state.get(key)?)));
                Told::Items(items.collect())
            }
            Ask::Clear => {
                *state = State::default();
                Told::Done
            }
            Ask::Count => Told::Count(state.items.len()),
            Ask::Free => Told::Count(self.spec.capacity.saturating_sub(state.cost)),
        }
    }

    /// All items for a file.
    fn rows(&self, (now, wall_us): (Instant, i64)) -> Vec<Row> {
        let mut state = self.lock();
        state.forget_ended(now);
        let keys = state.ends.iter();
        let rows = keys.filter_map(|((end, _), key)| {
            Some(Row {
                key: key.clone(),
                item: state.get(key)?,
                end_ms: end.map(|end| {
                    let left = end.saturating_duration_since(now).as_micros();
                    let left_us = i64::try_from(left).unwrap_or(i64::MAX);
                    // The nearest millisecond.
                    wall_us.saturating_add(left_us).saturating_add(500) / 1000
                }),
            })
        });
        rows.collect()
    }

    /// Puts items of a file in, and tells how many were left out.
    fn fill(&self, rows: Vec<Row>, (now, wall_us): (Instant, i64)) -> usize {
        let mut state = self.lock();
        let mut left_out = 0;
        for row in rows {
            let end = match (self.spec.timeout, row.end_ms) {
                (None, _) => None,
                (Some(_), None) => self.end(now, None),
                (Some(_), Some(end_ms)) => {
                    let left_us = end_ms.saturating_mul(1000).saturating_sub(wall_us);
                    let Some(left_us) = u64::try_from(left_us).ok().filter(|left| *left > 0) else {
                        self.watch.note();
                        continue;
                    };
                    now.checked_add(Duration::from_micros(left_us))
                }
            };
            if end.is_some() && row.end_ms.is_none() {
                self.watch.note();
            }
            let is_fit = matches!(row.item, Item::Number(_)) == self.spec.is_of_numbers;
            if !is_fit || self.put(&mut state, (row.key, row.item), end) == Told::Full {
                left_out += 1;
            }
        }
        left_out
    }

    fn end(&self, now: Instant, time: Option<Duration>) -> Option<Instant> {
        time.or(self.spec.timeout)
            .and_then(|time| now.checked_add(time))
    }

    fn put(&self, state: &mut State, (key, item): (String, Item), end: Option<Instant>) -> Told {
        let value = match &item {
            Item::Text(text) => text.len(),
            Item::Number(_) => size_of::<f64>(),
        };
        let cost = key.len() + value + ITEM_COST;
        let before = state.items.get(&key).map_or(0, |it| it.2);
        let may_evict = self.spec.evicts && cost <= self.spec.capacity;
        if state.cost - before + cost > self.spec.capacity && !may_evict {
            return Told::Full;
        }
        state.remove(&key);
        while state.cost + cost > self.spec.capacity {
            let Some(next) = state.ends.first_key_value().map(|(_, key)| key.clone()) else {
                return Told::Full;
            };
            state.remove(&next);
        }
        state.serial += 1;
        let end = (end, state.serial);
        state.ends.insert(end, key.clone());
        state.items.insert(key, (item, end, cost));
        state.cost += cost;
        Told::Done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The dictionaries of a process, which outlive a reload.
#[derive(Debug, Default)]
pub struct Dicts {
    known: Mutex<HashMap<String, Arc<Dict>>>,
    keeper: Mutex<Option<Keeper>>,
}

impl Dicts {
    /// The dictionary of a line; one whose line was another before begins anew.
    pub fn find(&self, spec: &DictSpec) -> Arc<Dict> {
        self.found(spec).0
    }

    /// Fills the dictionaries that have files from these, and keeps them there until the end.
    pub fn keep(&self, specs: &[DictSpec], ground: keeper::Ground) {
        let mut kept = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        for spec in specs.iter().filter(|spec| spec.state.is_some()) {
            if kept.is_none() {
                match Keeper::begin(ground) {
                    Ok(keeper) => *kept = Some(keeper),
                    Err(error) => {
                        let why = format!("shared dict zones are not saved ({error})");
                        return (ground.tell)(&why);
                    }
                }
            }
            let Some(keeper) = kept.as_ref() else {
                return;
            };
            if let Some(older) = self.older(spec) {
                keeper.let_go(&older);
            }
            if let (dict, true) = self.found(spec) {
                keeper.keep(&dict);
            }
        }
    }

    /// Writes what is not written yet.
    pub fn close(&self) {
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The dictionary that had another line before.
    fn older(&self, spec: &DictSpec) -> Option<Arc<Dict>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&spec.name).filter(|it| it.spec != *spec).cloned()
    }

    /// The dictionary of a line, and true if it is new.
    fn found(&self, spec: &DictSpec) -> (Arc<Dict>, bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = known.get(&spec.name).filter(|it| it.spec == *spec) {
            return (Arc::clone(same), false);
        }
        let dict = Arc::new(Dict::new(spec.clone()));
        known.insert(spec.name.clone(), Arc::clone(&dict));
        (dict, true)
    }
}

impl State {
    fn get(&self, key: &str) -> Option<Item> {
        self.items.get(key).map(|it| it.0.clone())
    }

    fn remove(&mut self, key: &str) -> Option<Item> {
        let (item, end, cost) = self.items.remove(key)?;
        self.ends.remove(&end);
        self.cost -= cost;
        Some(item)
    }

    fn forget_ended(&mut self, now: Instant) {
        // An item without an end stands before those that have one.
        let start = (Some(now), u64::MAX);
        let without = (None, u64::MAX);
        let ended = self.ends.range(without..=start).map(|(_, key)| key.clone());
        for key in ended.collect::<Vec<_>>() {
            self.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> DictSpec {
        DictSpec {
            name: "a".to_string(),
            capacity: 1000,
            timeout: Some(Duration::from_secs(2)),
            is_of_numbers: false,
            evicts: false,
            state: None,
        }
    }

    fn put(key: &str, len: usize) -> Ask {
        let value = Item::Text("x".repeat(len));
        Ask::Put(key.to_string(), value, Rule::Always, None)
    }

    #[test]
    fn items_end() {
        let (dict, now) = (Dict::new(spec()), Instant::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(dict.ask(put("a", 1), now), Told::Done);
        assert_eq!(dict.ask(put("b", 1), later(1)), Told::Done);
        let a = || Ask::Get("a".to_string());
        assert_eq!(
            dict.ask(a(), later(1)),
            Told::Value(Item::Text("x".to_string()))
        );
        let left = Told::Left(Duration::from_secs(1));
        assert_eq!(dict.ask(Ask::Left("a".to_string()), later(1)), left);
        assert_eq!(dict.ask(a(), later(2)), Told::Nothing);
        assert_eq!(dict.ask(Ask::Count, later(2)), Told::Count(1));
        let b = ("b".to_string(), Item::Text("x".to_string()));
        assert_eq!(dict.ask(Ask::Items(9), later(2)), Told::Items(vec![b]));
        assert_eq!(dict.ask(Ask::Count, later(3)), Told::Count(0));
        assert_eq!(dict.ask(Ask::Free, later(3)), Told::Count(1000));
    }

    #[test]
    fn room_is_made_where_that_is_wanted_and_never_beyond_the_capacity() {
        let now = Instant::now();
        for evicts in [false, true] {
            let dict = Dict::new(DictSpec { evicts, ..spec() });
            for key in ["a", "b", "c"] {
                assert_eq!(dict.ask(put(key, 171), now), Told::Done);
            }
            let full = if evicts { Told::Done } else { Told::Full };
            assert_eq!(dict.ask(put("d", 171), now), full);
            let a = dict.ask(Ask::Get("a".to_string()), now);
            assert_eq!(a == Told::Nothing, evicts);
            assert_eq!(dict.ask(put("d", 1000), now), Told::Full);
            assert_eq!(dict.ask(put("b", 171), now), Told::Done);
            assert_eq!(dict.ask(Ask::Count, now), Told::Count(3));
        }
    }

    #[test]
    fn changes_have_conditions() {
        let (dict, now) = (Dict::new(spec()), Instant::now());
        let change = |rule| {
            let value = Item::Number(1.0);
            dict.ask(Ask::Put("a".to_string(), value, rule, None), now)
        };
        assert_eq!(change(Rule::Present), Told::Nothing);
        assert_eq!(change(Rule::Absent), Told::Done);
        assert_eq!(change(Rule::Absent), Told::Nothing);
        let add = Ask::Add("a".to_string(), [2.0, 5.0], None);
        assert_eq!(dict.ask(add, now), Told::Value(Item::Number(3.0)));
        let add = Ask::Add("b".to_string(), [2.0, 5.0], None);
        assert_eq!(dict.ask(add, now), Told::Value(Item::Number(7.0)));
        let take = || Ask::Take("b".to_string());
        assert_eq!(dict.ask(take(), now), Told::Value(Item::Number(7.0)));
        assert_eq!(dict.ask(take(), now), Told::Nothing);
    }

    fn ground() -> keeper::Ground {
        keeper::Ground {
            clock: Instant::now,
            wall_us: || {
                let now = std::time::SystemTime::now();
                let since = now.duration_since(std::time::UNIX_EPOCH);
                since.unwrap().as_micros() as i64
            },
            tell: |_| {},
        }
    }

    #[test]
    fn dictionaries_outlive_their_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let now = Instant::now();
        let spec = DictSpec {
            state: Some(path.clone()),
            timeout: Some(Duration::from_secs(100)),
            ..spec()
        };
        let opened = || {
            let dicts = Dicts::default();
            dicts.keep(std::slice::from_ref(&spec), ground());
            dicts
        };
        let dicts = opened();
        assert_eq!(dicts.find(&spec).ask(put("a", 3), now), Told::Done);
        dicts.close();
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .contains("\"value\":\"xxx\"")
        );
        let dicts = opened();
        let value = Told::Value(Item::Text("xxx".to_string()));
        assert_eq!(dicts.find(&spec).ask(Ask::Get("a".to_string()), now), value);
        let Told::Left(left) = dicts.find(&spec).ask(Ask::Left("a".to_string()), now) else {
            panic!("it has no end");
        };
        assert!(left <= Duration::from_millis(100_001) && left > Duration::from_secs(90));
        assert_eq!(dicts.find(&spec).ask(Ask::Clear, now), Told::Done);
        dicts.close();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}");
    }

    #[test]
    fn a_file_that_is_broken_is_kept_and_one_with_ends_is_cleaned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let spec = DictSpec {
            state: Some(path.clone()),
            ..spec()
        };
        let asked = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let dicts = Dicts::default();
            dicts.keep(std::slice::from_ref(&spec), ground());
            dicts.find(&spec).ask(Ask::Count, Instant::now())
        };
        assert_eq!(asked("{\"a\""), Told::Count(0));
        let broken = std::fs::read_to_string(folder.path().join("a.json.broken")).unwrap();
        assert_eq!(broken, "{\"a\"");
        let text = r#"{"past":{"value":"x","expire":5},"a":{"value":"x"},"b":{"value":7}}"#;
        assert_eq!(asked(text), Told::Count(1));
    }

    #[test]
    fn a_number_keeps_its_end_when_it_grows() {
        let (dict, now) = (Dict::new(spec()), Instant::now());
        let add = |time| Ask::Add("a".to_string(), [1.0, 0.0], time);
        let left = |at| dict.ask(Ask::Left("a".to_string()), at);
        dict.ask(add(None), now);
        let later = now + Duration::from_secs(1);
        dict.ask(add(None), later);
        assert_eq!(left(later), Told::Left(Duration::from_secs(1)));
        dict.ask(add(Some(Duration::from_secs(9))), later);
        assert_eq!(left(later), Told::Left(Duration::from_secs(9)));
    }
}
