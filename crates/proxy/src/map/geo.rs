//! `geo`: a value for the client's address.
//!
//! ```text
//! geo $remote_addr $name {        the address may come from any variable
//!     default        a;
//!     192.0.2.0/24   b;           the longest prefix wins
//!     delete         192.0.2.0/24;
//!     proxy          10.0.0.0/8;  its word for X-Forwarded-For is taken
//!     proxy_recursive;
//!     volatile;
//! }
//! geo $name {
//!     ranges;
//!     192.0.2.0-192.0.2.9  c;     IPv4 only; a later range may lie within an earlier one
//! }
//! ```
//!
//! A client or value without an IP address (a Unix client, a variable that holds none) counts as
//! 255.255.255.255, as in nginx.
//!
//! Invariants:
//! 1. A prefix is in its table once; a later one replaces it, with a warning.
//! 2. Ranges do not overlap, and none crosses a block of 65536 addresses: nginx's unit, within
//!    which it decides whether a new range may replace, split or not touch an old one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{Statement, VarId, Word};
use millpond_system::address::Address;
use millpond_system::network::{
    LowBits, Network, Recursive, forwarded, mask_v4, mask_v6, parse_address, read_v4,
};

use super::Lookup;
use crate::request::{Request, Value};
use crate::rewrite::variable_name;
use crate::var::{self, Definition};
use millpond_exchange::scope::block::Draft;
use millpond_exchange::scope::build::Builder;
use millpond_wire::header::Known;

/// The address that stands for no address.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

/// A compiled `geo`.
#[derive(Debug)]
pub struct Geo {
    /// The variable that the address comes from; the client's address if none is named.
    source: Option<VarId>,
    table: Table,
    proxies: Vec<Network>,
    recursive: Recursive,
    is_volatile: bool,
}

#[derive(Debug)]
enum Table {
    Networks(Networks),
    Ranges(Ranges),
}

/// Values by prefix.
#[derive(Debug, Default)]
struct Networks {
    /// Values by the length of a prefix, and by the prefix.
    v4: BTreeMap<u8, HashMap<u32, Bytes>>,
    v6: BTreeMap<u8, HashMap<u128, Bytes>>,
}

/// Values by first and last address.
#[derive(Debug, Default)]
struct Ranges {
    /// First address to last address and value.
    ranges: BTreeMap<u32, (u32, Bytes)>,
    default: Option<Bytes>,
}

/// The result of adding a network or range.
#[derive(Debug, PartialEq, Eq)]
enum Added {
    New,
    /// The network or range replaced this value.
    Replaced(Bytes),
    /// The range crosses the border of this one.
    Overlaps(u32, u32),
}

/// Compiles the block and defines its variable.
pub(super) fn geo(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=2) {
        return;
    }
    let (source, name) = match statement.args.as_slice() {
        [name] => (None, name),
        [source, name] => {
            let Some(text) = source
                .text
                .strip_prefix('$')
                .filter(|text| !text.is_empty())
            else {
                let message = format!("invalid variable name \"{}\"", source.text);
                builder.error(source.span, message);
                return;
            };
            (Some(builder.cx.variables.intern(text, source.span)), name)
        }
        _ => return,
    };
    let Some(id) = variable_name(builder, name) else {
        return;
    };
    let mut lines = Lines {
        geo: Geo {
            source,
            table: Table::Networks(Networks::default()),
            proxies: Vec::new(),
            recursive: Recursive::No,
            is_volatile: false,
        },
        values: HashSet::new(),
    };
    for line in statement.body.as_deref().unwrap_or_default() {
        lines.add(builder, line);
    }
    let lookup = Arc::new(Lookup::Geo(lines.geo));
    var::define(builder, id, Definition::Lookup(lookup));
}

/// The lines of a block while they are read.
struct Lines {
    geo: Geo,
    /// Values that were seen, so that each is kept once.
    values: HashSet<Bytes>,
}

impl Lines {
    fn add(&mut self, builder: &mut Builder, line: &Statement) {
        match line.args.as_slice() {
            [] if line.name.text == "ranges" => self.use_ranges(builder, line),
            [] if line.name.text == "proxy_recursive" => self.geo.recursive = Recursive::Yes,
            [] if line.name.text == "volatile" => self.geo.is_volatile = true,
            [value] => self.add_value(builder, &line.name, value),
            _ => builder.error(line.span, "invalid number of the geo parameters"),
        }
    }

    fn use_ranges(&mut self, builder: &mut Builder, line: &Statement) {
        match &self.geo.table {
            Table::Networks(networks) if networks.v4.is_empty() && networks.v6.is_empty() => {
                self.geo.table = Table::Ranges(Ranges::default());
            }
            Table::Ranges(_) => {}
            Table::Networks(_) => builder.error(
                line.span,
                "the \"ranges\" directive must be the first directive inside \"geo\" block",
            ),
        }
    }

    fn add_value(&mut self, builder: &mut Builder, key: &Word, value: &Word) {
        match key.text.as_str() {
            "proxy" => {
                if let Some(network) = read_network(builder, value) {
                    self.geo.proxies.push(network);
                }
            }
            "delete" => self.delete(builder, value),
            "default" => {
                let text = self.intern(&value.text);
                let old = self.geo.table.set_default(text.clone());
                if let Some(old) = old {
                    warn_replaced(builder, "network", key, (&text, &old));
                }
            }
            _ => {
                let text = self.intern(&value.text);
                self.geo.table.add(builder, key, text);
            }
        }
    }

    fn delete(&mut self, builder: &mut Builder, word: &Word) {
        let (is_deleted, kind) = match &mut self.geo.table {
            Table::Networks(networks) => match read_network(builder, word) {
                Some(network) => (networks.delete(network), "network"),
                None => return,
            },
            Table::Ranges(ranges) => match read_range(builder, word) {
                Some((first, last)) => (ranges.delete(first, last), "address range"),
                None => return,
            },
        };
        if !is_deleted {
            let message = format!("no {kind} \"{}\" to delete", word.text);
            builder.cx.diagnostics.push_warning(word.span, message);
        }
    }

    fn intern(&mut self, text: &str) -> Bytes {
        if let Some(known) = self.values.get(text.as_bytes()) {
            return known.clone();
        }
        let text = Bytes::copy_from_slice(text.as_bytes());
        self.values.insert(text.clone());
        text
    }
}

fn read_network(builder: &mut Builder, word: &Word) -> Option<Network> {
    match Network::parse(&word.text) {
        Some((network, low)) if network != Network::Unix => {
            if low == LowBits::Set {
                let message = format!("low address bits of {} are meaningless", word.text);
                builder.cx.diagnostics.push_warning(word.span, message);
            }
            Some(network)
        }
        _ => {
            builder.error(word.span, format!("invalid network \"{}\"", word.text));
            None
        }
    }
}

fn read_range(builder: &mut Builder, word: &Word) -> Option<(u32, u32)> {
    let address = |text: &str| read_v4(text).map(Ipv4Addr::to_bits);
    let range = word.text.split_once('-').and_then(|(first, last)| {
        let (first, last) = (address(first)?, address(last)?);
        (first <= last).then_some((first, last))
    });
    if range.is_none() {
        builder.error(word.span, format!("invalid range \"{}\"", word.text));
    }
    range
}

fn warn_replaced(builder: &mut Builder, kind: &str, key: &Word, (new, old): (&[u8], &[u8])) {
    let message = format!(
        "duplicate {kind} \"{}\", value: \"{}\", old value: \"{}\"",
        key.text,
        String::from_utf8_lossy(new),
        String::from_utf8_lossy(old)
    );
    builder.cx.diagnostics.push_warning(key.span, message);
}

impl Table {
    fn set_default(&mut self, value: Bytes) -> Option<Bytes> {
        match self {
            Table::Networks(networks) => {
                let _ = networks.v6.entry(0).or_default().insert(0, value.clone());
                networks.v4.entry(0).or_default().insert(0, value)
            }
            Table::Ranges(ranges) => ranges.default.replace(value),
        }
    }

    fn add(&mut self, builder: &mut Builder, key: &Word, value: Bytes) {
        let (kind, added) = match self {
            Table::Networks(networks) => match read_network(builder, key) {
                Some(network) => ("network", networks.add(network, value.clone())),
                None => return,
            },
            Table::Ranges(ranges) => match read_range(builder, key) {
                Some((first, last)) => ("range", ranges.add(first, last, &value)),
                None => return,
            },
        };
        match added {
            Added::New => {}
            Added::Replaced(old) => warn_replaced(builder, kind, key, (&value, &old)),
            Added::Overlaps(first, last) => {
                let (first, last) = (Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last));
                let message = format!("range \"{}\" overlaps \"{first}-{last}\"", key.text);
                builder.error(key.span, message);
            }
        }
    }

    fn find(&self, ip: IpAddr) -> Bytes {
        let found = match self {
            Table::Networks(networks) => networks.find(ip),
            Table::Ranges(ranges) => ranges.find(ip),
        };
        found.cloned().unwrap_or_default()
    }
}

impl Networks {
    fn add(&mut self, network: Network, value: Bytes) -> Added {
        let old = match network {
            Network::V4 { base, bits } => self.v4.entry(bits).or_default().insert(base, value),
            Network::V6 { base, bits } => self.v6.entry(bits).or_default().insert(base, value),
            Network::Unix => None,
        };
        old.map_or(Added::New, Added::Replaced)
    }

    fn delete(&mut self, network: Network) -> bool {
        let old = match network {
            Network::V4 { base, bits } => {
                self.v4.get_mut(&bits).and_then(|table| table.remove(&base))
            }
            Network::V6 { base, bits } => {
                self.v6.get_mut(&bits).and_then(|table| table.remove(&base))
            }
            Network::Unix => None,
        };
        old.is_some()
    }

    fn find(&self, ip: IpAddr) -> Option<&Bytes> {
        match ip {
            IpAddr::V4(ip) => self
                .v4
                .iter()
                .rev()
                .find_map(|(bits, table)| table.get(&(ip.to_bits() & mask_v4(*bits)?))),
            IpAddr::V6(ip) => self
                .v6
                .iter()
                .rev()
                .find_map(|(bits, table)| table.get(&(ip.to_bits() & mask_v6(*bits)?))),
        }
    }
}

impl Ranges {
    /// Adds a range, block by block (INVARIANT 2).
    fn add(&mut self, first: u32, last: u32, value: &Bytes) -> Added {
        let mut result = Added::New;
        for (first, last) in blocks(first, last) {
            match self.add_in_block(first, last, value) {
                Added::New => {}
                overlap @ Added::Overlaps(..) => return overlap,
                replaced => result = replaced,
            }
        }
        result
    }

    fn add_in_block(&mut self, first: u32, last: u32, value: &Bytes) -> Added {
        let below = self.ranges.range(..=last).next_back();
        let old = below.map(|(start, (end, value))| (*start, *end, value.clone()));
        let Some((start, end, old)) = old.filter(|(_, end, _)| *end >= first) else {
            self.ranges.insert(first, (last, value.clone()));
            return Added::New;
        };
        if first < start || last > end {
            return Added::Overlaps(start, end);
        }
        if first > start {
            self.ranges.insert(start, (first - 1, old.clone()));
        }
        if last < end {
            self.ranges.insert(last + 1, (end, old.clone()));
        }
        self.ranges.insert(first, (last, value.clone()));
        if (first, last) == (start, end) {
            Added::Replaced(old)
        } else {
            Added::New
        }
    }

    fn delete(&mut self, first: u32, last: u32) -> bool {
        let mut is_whole = true;
        for (first, last) in blocks(first, last) {
            match self.ranges.get(&first) {
                Some((end, _)) if *end == last => {
                    self.ranges.remove(&first);
                }
                _ => is_whole = false,
            }
        }
        is_whole
    }

    fn find(&self, ip: IpAddr) -> Option<&Bytes> {
        let ip = match ip {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(_) => u32::MAX,
        };
        let below = self.ranges.range(..=ip).next_back();
        let found = below.filter(|(_, (end, _))| *end >= ip);
        found.map(|(_, (_, value))| value).or(self.default.as_ref())
    }
}

/// The parts of a range in each block of 65536 addresses.
fn blocks(first: u32, last: u32) -> impl Iterator<Item = (u32, u32)> {
    (first >> 16..=last >> 16).map(move |block| {
        let start = block << 16;
        (first.max(start), last.min(start | 0xffff))
    })
}

impl Geo {
    /// True when the value is computed at each use.
    pub(super) fn is_volatile(&self) -> bool {
        self.is_volatile
    }

    /// The value for this request.
    pub(super) fn evaluate(&self, req: &mut Request) -> Bytes {
        let address = self.address(req);
        let ip = address.and_then(|address| address.ip());
        self.table.find(ip.unwrap_or(NO_ADDRESS).to_canonical())
    }

    fn address(&self, req: &mut Request) -> Option<Address> {
        let address = match self.source {
            None => req.client.remote.borrow().clone(),
            Some(id) => match req.variable(id) {
                Value::Found(text) => parse_address(&text)?,
                Value::NotFound => return None,
            },
        };
        if self.proxies.is_empty() || !req.head.has(Known::XForwardedFor) {
            return Some(address);
        }
        let lists: Vec<&[u8]> = req.head.get_all(Known::XForwardedFor).collect();
        let found = forwarded(&address, lists.into_iter(), &self.proxies, self.recursive);
        Some(found.unwrap_or(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_longest_prefix_wins() {
        let mut networks = Networks::default();
        for (net, value) in [
            ("10.0.0.0/8", "a"),
            ("10.1.0.0/16", "b"),
            ("2001:db8::/32", "c"),
        ] {
            let added = networks.add(Network::parse(net).unwrap().0, Bytes::from(value));
            assert_eq!(added, Added::New);
        }
        for (address, value) in [
            ("10.2.3.4", Some("a")),
            ("10.1.3.4", Some("b")),
            ("11.0.0.0", None),
            ("2001:db8::1", Some("c")),
            ("::1", None),
        ] {
            let found = networks.find(ip(address)).map(|value| value.to_vec());
            assert_eq!(
                found,
                value.map(|value| value.as_bytes().to_vec()),
                "{address}"
            );
        }
        assert!(networks.delete(Network::parse("10.1.0.0/16").unwrap().0));
        assert_eq!(networks.find(ip("10.1.3.4")).unwrap(), "a");
    }

    #[test]
    fn ranges_may_lie_within_others_and_not_across() {
        let bits = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits();
        let mut ranges = Ranges::default();
        let mut add = |first: &str, last: &str, value: &'static str| {
            ranges.add(bits(first), bits(last), &Bytes::from(value))
        };
        assert_eq!(add("10.0.0.0", "10.1.255.255", "a"), Added::New);
        assert_eq!(add("10.0.0.10", "10.0.0.20", "b"), Added::New);
        assert_eq!(
            add("10.0.0.10", "10.0.0.20", "c"),
            Added::Replaced("b".into())
        );
        assert_eq!(
            add("10.0.0.15", "10.0.0.25", "d"),
            Added::Overlaps(bits("10.0.0.21"), bits("10.0.255.255"))
        );
        for (address, value) in [
            ("10.0.0.9", "a"),
            ("10.0.0.10", "c"),
            ("10.0.0.20", "c"),
            ("10.0.0.21", "a"),
            ("10.1.0.0", "a"),
        ] {
            assert_eq!(ranges.find(ip(address)).unwrap(), value, "{address}");
        }
        assert_eq!(ranges.find(ip("10.2.0.0")), None);
        assert!(ranges.delete(bits("10.0.0.10"), bits("10.0.0.20")));
        assert!(!ranges.delete(bits("10.0.0.10"), bits("10.0.0.20")));
        assert_eq!(ranges.find(ip("10.0.0.15")), None);
    }

    #[test]
    fn the_whole_address_space_is_a_range() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.add(0, u32::MAX, &"a".into()), Added::New);
        assert_eq!(ranges.find(ip("255.255.255.255")).unwrap(), "a");
        assert_eq!(ranges.find(ip("0.0.0.0")).unwrap(), "a");
    }
}
