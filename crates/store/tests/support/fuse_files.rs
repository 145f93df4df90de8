//! A file system on FUSE that has its files in memory, and fails when it is told to.
//!
//! The kernel keeps no page of it: each read of a file is a read of the server, as it may be at any
//! time where a server has the files. What is made ahead it does not know (`fallocate`).

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::fuse_server::{
    Attributes, FLUSH, FSYNC, Fuse, GETATTR, LOOKUP, NO_CALL, NO_ENTRY, OPEN, OPENDIR, READ,
    RELEASE, ROOT, Request, SETATTR, STATFS, Serve, WRITE,
};
use crate::random::Random;

const MKDIR: u32 = 9;
const UNLINK: u32 = 10;
const RMDIR: u32 = 11;
const RENAME: u32 = 12;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const FSYNCDIR: u32 = 30;
const CREATE: u32 = 35;

/// `EIO`.
const IO: i32 = 5;
/// `SETATTR` is to set the length.
const SET_SIZE: u32 = 1 << 3;
/// Bit in the answer to `OPEN`: the kernel keeps no page of the file.
const DIRECT: u32 = 1;
const BLOCK: u64 = 4096;
/// Space that is said to be free: a gibibyte, far more than is stored.
const FREE: u64 = (1 << 30) / BLOCK;

/// Fate of reads of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Reads are answered.
    Answer,
    /// Reads of segments fail, all of them.
    Fail,
    /// One of so many fails, in no order.
    FailOneOf(u64),
}

/// A file, or a directory with its names.
enum Node {
    File { bytes: Vec<u8>, is_segment: bool },
    Directory(BTreeMap<Vec<u8>, u64>),
}

struct Tree {
    /// Files by number; those that were removed stay, since they may be open.
    nodes: HashMap<u64, Node>,
    reads: Reads,
    random: Random,
    refused: u64,
}

/// The file system, mounted.
pub(crate) struct FuseFiles {
    tree: Arc<Mutex<Tree>>,
    fuse: Fuse,
}

impl FuseFiles {
    /// An empty one, mounted on an empty directory; none where that is not permitted.
    pub(crate) fn mount(dir: &Path, seed: u64) -> Option<Self> {
        let tree = Arc::new(Mutex::new(Tree {
            nodes: HashMap::from([(ROOT, Node::Directory(BTreeMap::new()))]),
            reads: Reads::Answer,
            random: Random(seed),
            refused: 0,
        }));
        let fuse = Fuse::mount(dir, Arc::new(Served(Arc::clone(&tree))))?;
        Some(Self { tree, fuse })
    }

    /// Directory at which the file system is mounted.
    pub(crate) fn dir(&self) -> &Path {
        &self.fuse.dir
    }

    /// Says what becomes of reads of segments from now on.
    pub(crate) fn set(&self, reads: Reads) {
        self.tree.lock().expect("whole").reads = reads;
    }

    /// Number of reads that have failed.
    pub(crate) fn refused(&self) -> u64 {
        self.tree.lock().expect("whole").refused
    }
}

struct Served(Arc<Mutex<Tree>>);

impl Serve for Served {
    fn answer(&self, request: &Request<'_>) -> Result<Vec<u8>, i32> {
        let mut tree = self.0.lock().expect("whole");
        let (node, body) = (request.node, request.body);
        match request.code {
            LOOKUP => tree.find(node, name(body)).map(|found| tree.entry(found)),
            GETATTR => Ok(tree.attributes(node).found(0)),
            SETATTR => Ok(tree.set_attributes(request).found(0)),
            CREATE => {
                let made = tree.make(node, name(&body[16..]), file(name(&body[16..])));
                Ok([tree.entry(made), opened()].concat())
            }
            MKDIR => {
                let made = tree.make(node, name(&body[8..]), Node::Directory(BTreeMap::new()));
                Ok(tree.entry(made))
            }
            UNLINK | RMDIR => {
                let gone = tree.names(node).remove(name(body));
                gone.map(|_| Vec::new()).ok_or(NO_ENTRY)
            }
            RENAME => tree.rename(request),
            OPEN | OPENDIR => Ok(opened()),
            READ => tree.read(request),
            WRITE => Ok(tree.write(request)),
            READDIR => Ok(tree.list(request)),
            STATFS => Ok(room()),
            RELEASE | RELEASEDIR | FLUSH | FSYNC | FSYNCDIR => Ok(Vec::new()),
            _ => Err(NO_CALL),
        }
    }
}

impl Tree {
    fn names(&mut self, node: u64) -> &mut BTreeMap<Vec<u8>, u64> {
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(names)) => names,
            _ => panic!("{node} is no directory"),
        }
    }

    fn bytes(&mut self, node: u64) -> &mut Vec<u8> {
        match self.nodes.get_mut(&node) {
            Some(Node::File { bytes, .. }) => bytes,
            _ => panic!("{node} is no file"),
        }
    }

    fn find(&mut self, node: u64, name: &[u8]) -> Result<u64, i32> {
        self.names(node).get(name).copied().ok_or(NO_ENTRY)
    }

    fn make(&mut self, node: u64, name: &[u8], new: Node) -> u64 {
        let number = ROOT + self.nodes.len() as u64;
        self.nodes.insert(number, new);
        self.names(node).insert(name.to_vec(), number);
        number
    }

    fn attributes(&self, node: u64) -> Attributes {
        let (mode, size) = match &self.nodes[&node] {
            Node::File { bytes, .. } => (0o100_600, bytes.len() as u64),
            Node::Directory(_) => (0o040_700, 0),
        };
        Attributes { node, mode, size }
    }

    fn entry(&self, node: u64) -> Vec<u8> {
        self.attributes(node).entry(0)
    }

    fn set_attributes(&mut self, request: &Request<'_>) -> Attributes {
        if request.u32_at(0) & SET_SIZE != 0 {
            let size = request.u64_at(16) as usize;
            self.bytes(request.node).resize(size, 0);
        }
        self.attributes(request.node)
    }

    fn rename(&mut self, request: &Request<'_>) -> Result<Vec<u8>, i32> {
        let from = name(&request.body[8..]);
        let to = name(&request.body[8 + from.len() + 1..]);
        let moved = self.names(request.node).remove(from).ok_or(NO_ENTRY)?;
        self.names(request.u64_at(0)).insert(to.to_vec(), moved);
        Ok(Vec::new())
    }

    fn read(&mut self, request: &Request<'_>) -> Result<Vec<u8>, i32> {
        let (offset, len) = request.stretch();
        let Some(Node::File { bytes, is_segment }) = self.nodes.get(&request.node) else {
            panic!("{} is no file", request.node);
        };
        let is_refused = match self.reads {
            Reads::Answer => false,
            Reads::Fail => true,
            Reads::FailOneOf(count) => self.random.below(count) == 0,
        };
        if *is_segment && is_refused {
            self.refused += 1;
            return Err(IO);
        }
        let end = (offset + len).min(bytes.len());
        Ok(bytes[offset.min(end)..end].to_vec())
    }

    fn write(&mut self, request: &Request<'_>) -> Vec<u8> {
        let ((offset, len), news) = (request.stretch(), request.written());
        let bytes = self.bytes(request.node);
        bytes.resize(bytes.len().max(offset + len), 0);
        bytes[offset..offset + len].copy_from_slice(news);
        [len as u32, 0].map(u32::to_le_bytes).concat()
    }

    /// Names from a position on, as many as there is room for.
    fn list(&mut self, request: &Request<'_>) -> Vec<u8> {
        let (first, room) = request.stretch();
        let names = self.names(request.node).clone();
        let mut out = Vec::new();
        for (index, (name, node)) in names.iter().enumerate().skip(first) {
            let kind = self.attributes(*node).mode >> 12;
            let mut entry = [*node, index as u64 + 1].map(u64::to_le_bytes).concat();
            entry.extend_from_slice(&[name.len() as u32, kind].map(u32::to_le_bytes).concat());
            entry.extend_from_slice(name);
            entry.resize(entry.len().next_multiple_of(8), 0);
            if out.len() + entry.len() > room {
                break;
            }
            out.extend_from_slice(&entry);
        }
        out
    }
}

/// The text up to the zero that ends it.
fn name(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn file(name: &[u8]) -> Node {
    Node::File {
        bytes: Vec::new(),
        is_segment: name.starts_with(b"segment-"),
    }
}

fn opened() -> Vec<u8> {
    [0, 0, DIRECT, 0].map(u32::to_le_bytes).concat()
}

fn room() -> Vec<u8> {
    let mut out = [FREE, FREE, FREE, FREE, FREE]
        .map(u64::to_le_bytes)
        .concat();
    let sizes = [BLOCK as u32, 255, BLOCK as u32, 0];
    out.extend_from_slice(&sizes.map(u32::to_le_bytes).concat());
    out.resize(80, 0);
    out
}
