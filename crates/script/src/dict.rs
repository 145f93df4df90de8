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

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
        }
    }

    /// Answers a question.
    pub fn ask(&self, ask: Ask, now: Instant) -> Told {
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
                match self.put(&mut state, (key, new.clone()), self.end(now, time)) {
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
}
