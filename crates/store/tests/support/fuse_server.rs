//! The server's end of a FUSE file system: mounts it, and hands on what the kernel asks.
//!
//! Numbers and layouts are those of `include/uapi/linux/fuse.h`, version 7.31. What a file system
//! consists of is for whoever implements [`Serve`] to say.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The most that a write carries, and room for its header.
const MAX_WRITE: usize = 128 << 10;
const IN_HEADER: usize = 40;
const WRITE_HEADER: usize = 40;
/// The directory that is mounted.
pub(crate) const ROOT: u64 = 1;

pub(crate) const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
pub(crate) const GETATTR: u32 = 3;
pub(crate) const SETATTR: u32 = 4;
pub(crate) const OPEN: u32 = 14;
pub(crate) const READ: u32 = 15;
pub(crate) const WRITE: u32 = 16;
pub(crate) const STATFS: u32 = 17;
pub(crate) const RELEASE: u32 = 18;
pub(crate) const FSYNC: u32 = 20;
pub(crate) const FLUSH: u32 = 25;
const INIT: u32 = 26;
pub(crate) const OPENDIR: u32 = 27;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

pub(crate) const NO_ENTRY: i32 = 2;
pub(crate) const NO_CALL: i32 = 38;

/// True if a program went well.
pub(crate) fn run(program: &str, words: &[&str]) -> bool {
    let ran = Command::new(program).args(words).output();
    ran.is_ok_and(|output| output.status.success())
}

/// The name of a path, for programs.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str()
        .expect("a temporary directory has an ordinary name")
}

/// Unmounts, lazily if need be, so that nothing stays in any case.
pub(crate) fn unmount(dir: &Path) -> bool {
    run("umount", &[text(dir)]) || run("umount", &["-l", text(dir)])
}

/// Request of the kernel.
pub(crate) struct Request<'a> {
    pub(crate) code: u32,
    /// The file or directory that is meant.
    pub(crate) node: u64,
    /// Bytes behind the header.
    pub(crate) body: &'a [u8],
}

impl<'a> Request<'a> {
    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.body[at..at + 4].try_into().expect("four"))
    }

    pub(crate) fn u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.body[at..at + 8].try_into().expect("eight"))
    }

    /// Offset and length of a read or a write.
    pub(crate) fn stretch(&self) -> (usize, usize) {
        (self.u64_at(8) as usize, self.u32_at(16) as usize)
    }

    /// The bytes of a write.
    pub(crate) fn written(&self) -> &'a [u8] {
        let (_, len) = self.stretch();
        &self.body[WRITE_HEADER..WRITE_HEADER + len]
    }
}

/// A file system.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Answers a request: the bytes behind the header of the answer, or the number of an error.
    fn answer(&self, request: &Request<'_>) -> Result<Vec<u8>, i32>;
}

/// A FUSE file system, until this is dropped.
pub(crate) struct Fuse {
    /// Directory at which the file system is mounted.
    pub(crate) dir: PathBuf,
    server: Option<JoinHandle<()>>,
}

impl Fuse {
    /// Mounts one on an empty directory; none where that is not permitted.
    pub(crate) fn mount(dir: &Path, served: Arc<impl Serve>) -> Option<Self> {
        let channel = File::options().read(true).write(true).open("/dev/fuse");
        let channel = channel.ok()?;
        // The program that mounts it needs the handle.
        rustix::io::fcntl_setfd(&channel, rustix::io::FdFlags::empty()).expect("a handle");
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            channel.as_raw_fd()
        );
        let words = ["-i", "-t", "fuse", "-o", &options, "test", text(dir)];
        let is_mounted = run("mount", &words);
        // No other program that is started keeps the connection.
        rustix::io::fcntl_setfd(&channel, rustix::io::FdFlags::CLOEXEC).expect("a handle");
        is_mounted.then(|| Self {
            dir: dir.to_path_buf(),
            server: Some(std::thread::spawn(move || serve(&channel, &*served))),
        })
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        unmount(&self.dir);
        if let Some(server) = self.server.take().filter(|_| !std::thread::panicking()) {
            server.join().expect("the server ends with its file system");
        }
    }
}

/// Answers the kernel until the file system is unmounted.
fn serve(mut channel: &File, served: &impl Serve) {
    let mut buf = vec![0; MAX_WRITE + 4096];
    loop {
        let len = match channel.read(&mut buf) {
            Ok(len) if len >= IN_HEADER => len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            // It was unmounted.
            _ => return,
        };
        let header = Request {
            code: 0,
            node: 0,
            body: &buf[..IN_HEADER],
        };
        let unique = header.u64_at(8);
        let request = Request {
            code: header.u32_at(4),
            node: header.u64_at(16),
            body: &buf[IN_HEADER..len],
        };
        let answer = match request.code {
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            INIT => Ok(init()),
            _ => served.answer(&request),
        };
        let (error, body) = answer.map_or_else(|error| (-error, Vec::new()), |body| (0, body));
        let mut out = Vec::with_capacity(16 + body.len());
        out.extend_from_slice(&(16 + body.len() as u32).to_le_bytes());
        out.extend_from_slice(&error.to_le_bytes());
        out.extend_from_slice(&unique.to_le_bytes());
        out.extend_from_slice(&body);
        // Who asked may be gone.
        let _ = channel.write(&out);
    }
}

/// Version 7.31, large writes, and nothing else.
fn init() -> Vec<u8> {
    let flags = 1 << 5;
    let background = 16 | 12 << 16;
    let mut out = [7, 31, 0, flags, background, MAX_WRITE as u32, 1, 0]
        .map(u32::to_le_bytes)
        .concat();
    out.resize(64, 0);
    out
}

/// Attributes of a file or directory.
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) node: u64,
    pub(crate) mode: u32,
    pub(crate) size: u64,
}

impl Attributes {
    fn encode(self) -> Vec<u8> {
        let blocks = self.size.div_ceil(512);
        let mut out = [self.node, self.size, blocks, 0, 0, 0]
            .map(u64::to_le_bytes)
            .concat();
        let rest = [0, 0, 0, self.mode, 1, 0, 0, 0, 4096, 0];
        out.extend_from_slice(&rest.map(u32::to_le_bytes).concat());
        out
    }

    /// The answer to whoever asked for them, which the kernel may believe for some seconds.
    pub(crate) fn found(self, seconds: u64) -> Vec<u8> {
        let mut out = [seconds, 0].map(u64::to_le_bytes).concat();
        out.extend_from_slice(&self.encode());
        out
    }

    /// The answer to whoever asked for a name, which the kernel may believe for some seconds.
    pub(crate) fn entry(self, seconds: u64) -> Vec<u8> {
        let mut out = [self.node, 0, seconds, seconds, 0]
            .map(u64::to_le_bytes)
            .concat();
        out.extend_from_slice(&self.encode());
        out
    }
}
