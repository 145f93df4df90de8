//! The tree of dependencies (RFC 7540 §5.3), for clients that know no other priorities.
//!
//! ```text
//! root ─┬─ 1 (weight 16) ─── 5        rank 1: 1, then 3; rank 2: 5
//!       └─ 3 (weight 8)
//! ```
//!
//! A stream goes before those that depend on it; of one rank, the one with the larger share goes
//! first, and those with the same share take turns. That is nginx's reading: a share is an order
//! there, not a part of the bytes. A stream that nothing was said of depends on the root with
//! weight 16, and has no node.
//!
//! 1. There is no circle: a node that is to depend on one of its own descendants hands that one to
//!    its parent first (RFC 7540 §5.3.3).
//! 2. Of nodes without a stream there are `DEPENDENCIES_KEPT` at most; of more, the one goes that
//!    was not spoken of for the longest time, and its children share its weight (RFC 7540 §5.3.4).

use super::limits::DEPENDENCIES_KEPT;

/// The weight of a stream that nothing was said of (RFC 7540 §5.3.5).
const DEFAULT_WEIGHT: u16 = 16;
/// The number of the root.
const ROOT: u32 = 0;
/// The share of the root, of which all others are parts.
const WHOLE: u32 = 1 << 31;

/// The place of a stream among those of its urgency; the lesser one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Nodes on the way from the root.
    rank: u32,
    /// The root's share without that of the stream.
    rest: u32,
}

impl Place {
    /// The place of a node with a share of the root's.
    const fn new(rank: u32, share: u32) -> Self {
        Place {
            rank,
            rest: WHOLE - share,
        }
    }
}

impl Default for Place {
    fn default() -> Self {
        const { Place::new(1, WHOLE / 256 * DEFAULT_WEIGHT as u32) }
    }
}

/// A dependency, as it is told in PRIORITY and HEADERS (RFC 7540 §6.2, §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The stream that goes before; none for the root.
    pub(crate) parent: u32,
    /// From 1 to 256.
    pub(crate) weight: u16,
    /// True if the other children of the parent are to depend on this one.
    pub(crate) is_exclusive: bool,
}

impl Dependency {
    /// Reads the five bytes; fewer are filled up with zeros.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
        Dependency {
            parent: super::frame::number_31(bytes),
            weight: u16::from(byte(4)) + 1,
            is_exclusive: byte(0) & 0x80 != 0,
        }
    }
}

/// A stream that something was said of.
#[derive(Debug)]
struct Node {
    stream: u32,
    parent: u32,
    weight: u16,
    /// The time at which it was last spoken of, in words of the client.
    spoken: u64,
}

/// The dependencies of a connection's streams.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// By number.
    nodes: Vec<Node>,
    /// Words of the client so far.
    words: u64,
}

impl Tree {
    /// The place of a stream.
    pub(crate) fn place(&self, stream: u32) -> Place {
        let Some(mut node) = self.get(stream) else {
            return Place::default();
        };
        let mut rank = 1;
        let mut share = u64::from(WHOLE) * u64::from(node.weight) / 256;
        while let Some(parent) = self.get(node.parent) {
            rank += 1;
            share = share * u64::from(parent.weight) / 256;
            node = parent;
        }
        Place::new(rank, u32::try_from(share).unwrap_or(WHOLE))
    }

    /// Notes on which stream another one depends. A parent that is neither a stream nor a node is
    /// the root (RFC 7540 §5.3.1).
    pub(crate) fn depend(
        &mut self,
        stream: u32,
        dependency: Dependency,
        is_open: impl Fn(u32) -> bool,
    ) {
        let Dependency { parent, weight, .. } = dependency;
        if parent != ROOT && self.get(parent).is_none() && is_open(parent) {
            self.insert(parent);
        }
        let parent = self.get(parent).map_or(ROOT, |node| node.stream);
        // nginx: nobody is alone below a root that was not asked for.
        let is_exclusive = dependency.is_exclusive && parent == dependency.parent;
        self.insert(stream);
        self.unwind(stream, parent);
        if is_exclusive {
            self.hand_over(parent, stream);
        }
        self.speak(parent);
        self.speak(stream);
        if let Some(node) = self.get_mut(stream) {
            node.parent = parent;
            node.weight = weight;
        }
        self.prune(is_open);
    }

    /// Notes that a stream has ended, if it has a node: from now on that may go.
    pub(crate) fn end(&mut self, stream: u32) {
        self.speak(stream);
    }

    /// Makes the new parent of a node no descendant of it. INVARIANT 1.
    fn unwind(&mut self, stream: u32, parent: u32) {
        let mut above = self.get(parent).map(|node| node.parent);
        while let Some(at) = above
            && at != stream
        {
            above = self.get(at).map(|node| node.parent);
        }
        if above.is_none() {
            return;
        }
        let grandparent = self.get(stream).map_or(ROOT, |node| node.parent);
        if let Some(node) = self.get_mut(parent) {
            node.parent = grandparent;
        }
    }

    /// Makes all other children of a parent those of a stream.
    fn hand_over(&mut self, parent: u32, stream: u32) {
        for node in &mut self.nodes {
            if node.parent == parent && node.stream != stream {
                node.parent = stream;
            }
        }
    }

    /// Removes what is too much. INVARIANT 2.
    fn prune(&mut self, is_open: impl Fn(u32) -> bool) {
        let idle = || self.nodes.iter().filter(|node| !is_open(node.stream));
        if idle().count() <= DEPENDENCIES_KEPT {
            return;
        }
        let oldest = idle().min_by_key(|node| node.spoken);
        if let Some(stream) = oldest.map(|node| node.stream) {
            self.remove(stream);
        }
    }

    fn remove(&mut self, stream: u32) {
        let Ok(at) = self.find(stream) else {
            return;
        };
        let gone = self.nodes.remove(at);
        let mut children: Vec<&mut Node> = self.nodes.iter_mut().collect();
        children.retain(|node| node.parent == stream);
        let weights: u32 = children.iter().map(|node| u32::from(node.weight)).sum();
        for node in children {
            let part = u32::from(gone.weight) * u32::from(node.weight) / weights.max(1);
            node.weight = u16::try_from(part.max(1)).unwrap_or(gone.weight);
            node.parent = gone.parent;
        }
    }

    /// Makes a node, unless there is one.
    fn insert(&mut self, stream: u32) {
        if let Err(at) = self.find(stream) {
            let node = Node {
                stream,
                parent: ROOT,
                weight: DEFAULT_WEIGHT,
                spoken: self.words,
            };
            self.nodes.insert(at, node);
        }
    }

    fn speak(&mut self, stream: u32) {
        self.words += 1;
        let words = self.words;
        if let Some(node) = self.get_mut(stream) {
            node.spoken = words;
        }
    }

    fn get(&self, stream: u32) -> Option<&Node> {
        self.find(stream).ok().and_then(|at| self.nodes.get(at))
    }

    fn get_mut(&mut self, stream: u32) -> Option<&mut Node> {
        let at = self.find(stream).ok()?;
        self.nodes.get_mut(at)
    }

    fn find(&self, stream: u32) -> Result<usize, usize> {
        self.nodes.binary_search_by_key(&stream, |node| node.stream)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn on(parent: u32, weight: u16) -> Dependency {
        Dependency {
            parent,
            weight,
            is_exclusive: false,
        }
    }

    fn alone_on(parent: u32, weight: u16) -> Dependency {
        Dependency {
            is_exclusive: true,
            ..on(parent, weight)
        }
    }

    /// A tree of open streams.
    fn tree(dependencies: &[(u32, Dependency)]) -> Tree {
        let mut tree = Tree::default();
        for (stream, dependency) in dependencies {
            tree.depend(*stream, *dependency, |_| true);
        }
        tree
    }

    /// Streams in the order in which they go.
    fn order<const N: usize>(tree: &Tree, mut streams: [u32; N]) -> [u32; N] {
        streams.sort_by_key(|stream| tree.place(*stream));
        streams
    }

    #[test]
    fn five_bytes_are_a_dependency() {
        let read = |bytes: &[u8]| Dependency::read(bytes);
        assert_eq!(read(&[0, 0, 1, 3, 0]), on(259, 1));
        assert_eq!(read(&[0x80, 0, 0, 5, 255]), alone_on(5, 256));
        assert_eq!(read(&[]), on(0, 1));
    }

    #[test]
    fn streams_that_nothing_was_said_of_have_one_place() {
        let tree = tree(&[(1, on(0, 16)), (3, on(0, 17)), (5, on(0, 15))]);
        assert_eq!(tree.place(1), Place::default());
        assert_eq!(tree.place(7), Place::default());
        assert!(tree.place(3) < Place::default());
        assert!(tree.place(5) > Place::default());
    }

    #[test]
    fn who_depends_goes_later_and_the_larger_share_first() {
        let tree = tree(&[
            (1, on(0, 1)),
            (3, on(1, 256)),
            (5, on(1, 255)),
            (7, on(0, 256)),
            (9, on(7, 2)),
        ]);
        // Of rank two: 9 has 2/256 of the whole, 3 has 1/256, 5 a little less.
        assert_eq!(order(&tree, [1, 3, 5, 7, 9]), [7, 1, 9, 3, 5]);
    }

    /// RFC 7540 §5.3.1.
    #[test]
    fn an_exclusive_stream_gets_the_children_of_its_parent() {
        let tree = tree(&[
            (1, on(0, 16)),
            (3, on(1, 16)),
            (5, on(1, 8)),
            (7, alone_on(1, 4)),
        ]);
        assert_eq!(order(&tree, [5, 3, 7, 1]), [1, 7, 3, 5]);
    }

    #[test]
    fn a_parent_that_is_nowhere_is_the_root() {
        let mut tree = Tree::default();
        tree.depend(1, on(0, 16), |_| true);
        tree.depend(3, alone_on(99, 16), |stream| stream != 99);
        assert_eq!(tree.place(3), tree.place(1));
        // An open stream that nothing was said of is a parent.
        tree.depend(5, on(7, 16), |_| true);
        assert!(tree.place(5) > tree.place(7));
    }

    /// RFC 7540 §5.3.3, with its figure.
    #[test]
    fn a_descendant_that_becomes_the_parent_moves_up_first() {
        let (a, b, c, d, e, f) = (1, 3, 5, 7, 9, 11);
        let start = [
            (a, on(0, 16)),
            (b, on(a, 16)),
            (c, on(a, 16)),
            (d, on(c, 16)),
            (e, on(c, 16)),
            (f, on(d, 16)),
        ];
        let parents = |tree: &Tree| {
            [a, b, c, d, e, f].map(|stream| tree.get(stream).map_or(99, |node| node.parent))
        };
        let mut intermediate = tree(&start);
        intermediate.depend(a, on(d, 16), |_| true);
        assert_eq!(parents(&intermediate), [d, a, a, 0, c, d]);
        let mut exclusive = tree(&start);
        exclusive.depend(a, alone_on(d, 16), |_| true);
        assert_eq!(parents(&exclusive), [d, a, a, 0, c, a]);
    }

    /// INVARIANT 2.
    #[test]
    fn nodes_without_a_stream_are_few_and_the_oldest_goes_first() {
        let mut tree = Tree::default();
        let is_open = |stream: u32| stream == 1;
        tree.depend(3, on(0, 16), is_open);
        tree.depend(1, on(3, 16), is_open);
        tree.depend(5, on(3, 48), is_open);
        let most = u32::try_from(DEPENDENCIES_KEPT).unwrap();
        for stream in 0..most {
            tree.depend(101 + 2 * stream, on(0, 16), is_open);
            assert!(tree.nodes.len() <= DEPENDENCIES_KEPT + 1);
        }
        assert!(tree.get(3).is_none() && tree.get(5).is_none());
        // A quarter of what 3 had: 4 of 16.
        assert_eq!(
            tree.get(1).map(|node| (node.parent, node.weight)),
            Some((0, 4))
        );
    }

    proptest! {
        /// INVARIANT 1, whatever is told in whatever order.
        #[test]
        fn no_order_of_words_makes_a_circle(
            words in proptest::collection::vec((1..6_u32, 0..6_u32, any::<bool>()), 0..40),
        ) {
            let mut tree = Tree::default();
            for (stream, parent, is_exclusive) in words {
                if parent != stream {
                    let dependency = Dependency { is_exclusive, ..on(parent, 16) };
                    tree.depend(stream, dependency, |stream| stream < 3);
                }
                for stream in 1..6 {
                    let up = |stream: &u32| tree.get(*stream).map(|node| node.parent);
                    let way = std::iter::successors(Some(stream), up);
                    prop_assert!(way.take(7).count() <= 6, "{:?}", tree);
                }
            }
        }
    }
}
