//! Policies that the store is compared with: LRU, LFU, S3-FIFO, FIFO, and other caches by what they
//! do, as models that count bytes.
//!
//! The models have no overhead, except those of caches. nginx: whole blocks of 4 KiB for each
//! file, and no more entries than its `keys_zone` has room for. Varnish: LRU, a kibibyte for each
//! object beside its body, in whole pages. ATS: a log that writes over what is oldest, a kibibyte
//! of head for each object, in blocks of 512 bytes, and a directory with an entry for each 8,000
//! bytes.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use crate::workload::Request;

/// Something that keeps objects.
pub(crate) trait Policy {
    /// Name in the table.
    fn name(&self) -> String;
    /// Requests an object; true if it was there. Afterwards it is, if it is worth it.
    fn request(&mut self, request: &Request) -> bool;
    /// Bytes written for each byte that was new, if that is more than one.
    fn amplification(&self) -> Option<f64> {
        None
    }
    /// Bytes that were written.
    fn written(&self) -> u64;
}

/// The one that was used longest ago goes first.
pub(crate) struct Lru {
    name: &'static str,
    /// Bytes that each object takes beside its body.
    head: u64,
    /// True if a use does not keep an object.
    is_fifo: bool,
    limit: u64,
    most: usize,
    block: u64,
    used: u64,
    written: u64,
    turn: u64,
    kept: HashMap<u64, (u64, u64)>,
    order: BTreeMap<u64, u64>,
}

impl Lru {
    /// LRU of objects by bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            name: "LRU",
            head: 0,
            is_fifo: false,
            limit,
            most: usize::MAX,
            block: 1,
            used: 0,
            written: 0,
            turn: 0,
            kept: HashMap::new(),
            order: BTreeMap::new(),
        }
    }

    /// nginx: files in blocks of 4 KiB, and `keys` megabytes for 8,000 keys each.
    pub(crate) fn nginx(limit: u64, name: &'static str, keys: usize) -> Self {
        Self {
            name,
            most: keys * 8000,
            block: 4096,
            ..Self::new(limit)
        }
    }

    /// Varnish's storage by `malloc` or `file`.
    pub(crate) fn varnish(limit: u64) -> Self {
        Self {
            name: "Varnish",
            head: 1024,
            block: 4096,
            ..Self::new(limit)
        }
    }

    /// The disk cache of Apache Traffic Server.
    pub(crate) fn ats(limit: u64) -> Self {
        Self {
            name: "ATS",
            head: 1024,
            is_fifo: true,
            most: (limit / 8000) as usize,
            block: 512,
            ..Self::new(limit)
        }
    }
}

impl Policy for Lru {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn request(&mut self, request: &Request) -> bool {
        self.turn += 1;
        if let Some((turn, _)) = self.kept.get_mut(&request.object) {
            if self.is_fifo {
                return true;
            }
            self.order.remove(turn);
            *turn = self.turn;
            self.order.insert(self.turn, request.object);
            return true;
        }
        let size = (u64::from(request.size) + self.head).next_multiple_of(self.block);
        self.kept.insert(request.object, (self.turn, size));
        self.order.insert(self.turn, request.object);
        self.used += size;
        self.written += size;
        while self.used > self.limit || self.kept.len() > self.most {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            if let Some((_, size)) = self.kept.remove(&oldest) {
                self.used -= size;
            }
        }
        false
    }

    fn written(&self) -> u64 {
        self.written
    }
}

/// Least frequently used: what was asked for least often goes first; all that was ever asked for is
/// counted.
pub(crate) struct Lfu {
    limit: u64,
    used: u64,
    written: u64,
    turn: u64,
    uses: HashMap<u64, u64>,
    kept: HashMap<u64, (u64, u64, u64)>,
    order: BTreeMap<(u64, u64), u64>,
}

impl Lfu {
    /// LFU of objects by bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: 0,
            written: 0,
            turn: 0,
            uses: HashMap::new(),
            kept: HashMap::new(),
            order: BTreeMap::new(),
        }
    }
}

impl Policy for Lfu {
    fn name(&self) -> String {
        "LFU".to_string()
    }

    fn request(&mut self, request: &Request) -> bool {
        self.turn += 1;
        let uses = self.uses.entry(request.object).or_insert(0);
        *uses += 1;
        let place = (*uses, self.turn);
        if let Some((uses, turn, _)) = self.kept.get_mut(&request.object) {
            self.order.remove(&(*uses, *turn));
            (*uses, *turn) = place;
            self.order.insert(place, request.object);
            return true;
        }
        let size = u64::from(request.size);
        self.kept.insert(request.object, (place.0, place.1, size));
        self.order.insert(place, request.object);
        self.used += size;
        self.written += size;
        while self.used > self.limit {
            let Some((_, rarest)) = self.order.pop_first() else {
                break;
            };
            if let Some((_, _, size)) = self.kept.remove(&rarest) {
                self.used -= size;
            }
        }
        false
    }

    fn written(&self) -> u64 {
        self.written
    }
}

/// S3-FIFO (Yang and others, SOSP 2023): a small queue, a main queue, and a memory of what left
/// the small one. Without a small queue and without uses it is FIFO.
pub(crate) struct S3Fifo {
    name: &'static str,
    limit: u64,
    most_uses: u8,
    kept: HashMap<u64, Kept>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    small_used: u64,
    main_used: u64,
    ghosts: VecDeque<(u64, u64)>,
    ghost_bytes: u64,
    is_ghost: HashMap<u64, ()>,
    written: u64,
}

struct Kept {
    size: u64,
    uses: u8,
}

impl S3Fifo {
    /// S3-FIFO by bytes, with a tenth for the small queue.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            name: "S3-FIFO",
            limit,
            most_uses: 3,
            kept: HashMap::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_used: 0,
            main_used: 0,
            ghosts: VecDeque::new(),
            ghost_bytes: 0,
            is_ghost: HashMap::new(),
            written: 0,
        }
    }

    /// First in, first out.
    pub(crate) fn fifo(limit: u64) -> Self {
        Self {
            name: "FIFO",
            most_uses: 0,
            ..Self::new(limit)
        }
    }

    fn evict(&mut self) {
        if self.small_used * 10 >= self.limit || self.main.is_empty() {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    fn evict_small(&mut self) {
        let Some(object) = self.small.pop_front() else {
            return;
        };
        let Some(kept) = self.kept.get_mut(&object) else {
            return;
        };
        let size = kept.size;
        self.small_used -= size;
        if kept.uses > 1.min(self.most_uses) || (kept.uses > 0 && self.most_uses > 0) {
            kept.uses = 0;
            self.main.push_back(object);
            self.main_used += size;
            return;
        }
        self.kept.remove(&object);
        self.ghosts.push_back((object, size));
        self.is_ghost.insert(object, ());
        self.ghost_bytes += size;
        while self.ghost_bytes > self.limit / 10 * 9 {
            let Some((old, size)) = self.ghosts.pop_front() else {
                break;
            };
            self.ghost_bytes -= size;
            self.is_ghost.remove(&old);
        }
    }

    fn evict_main(&mut self) {
        let Some(object) = self.main.pop_front() else {
            return;
        };
        let Some(kept) = self.kept.get_mut(&object) else {
            return;
        };
        if kept.uses > 0 {
            kept.uses -= 1;
            self.main.push_back(object);
            return;
        }
        self.main_used -= kept.size;
        self.kept.remove(&object);
    }
}

impl Policy for S3Fifo {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn request(&mut self, request: &Request) -> bool {
        if let Some(kept) = self.kept.get_mut(&request.object) {
            kept.uses = (kept.uses + 1).min(self.most_uses);
            return true;
        }
        let size = u64::from(request.size);
        if size > self.limit {
            return false;
        }
        self.written += size;
        while self.small_used + self.main_used + size > self.limit {
            self.evict();
        }
        self.kept.insert(request.object, Kept { size, uses: 0 });
        if self.most_uses > 0 && self.is_ghost.remove(&request.object).is_some() {
            self.main.push_back(request.object);
            self.main_used += size;
        } else {
            self.small.push_back(request.object);
            self.small_used += size;
        }
        false
    }

    fn written(&self) -> u64 {
        self.written
    }
}
