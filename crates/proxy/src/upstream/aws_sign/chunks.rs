//! Bodies in signed chunks (`STREAMING-AWS4-HMAC-SHA256-PAYLOAD`).
//!
//! ```text
//! digits of the length ";chunk-signature=" 64 digits CR LF  bytes  CR LF
//! "0;chunk-signature=" 64 digits CR LF CR LF
//! ```
//!
//! All chunks but the last have one length, so that the length of the whole is known before. Each
//! signature stands on the one before it, and the first on that of the head.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::signature::{Key, Scope, Time, digits, signature};

/// The hash that a head tells of such a body.
pub(super) const STREAMING: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";

/// The algorithm of chunks.
const ALGORITHM: &str = "AWS4-HMAC-SHA256-PAYLOAD";

/// Bytes of a chunk: that of AWS's own example; S3 takes none below 8 KiB but the last.
const CHUNK: usize = 64 * 1024;

/// Digits of a signature.
const SIGNATURE_LEN: u64 = 64;

/// The signatures of one body's chunks.
pub struct ChunkSigner {
    key: Key,
    scope: Scope,
    time: Time,
    seed: String,
}

// The key is shown to nobody.
impl std::fmt::Debug for ChunkSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChunkSigner")
    }
}

impl ChunkSigner {
    /// The signatures behind that of a head.
    pub(super) fn new(key: Key, (scope, time): (Scope, Time), seed: String) -> Self {
        ChunkSigner {
            key,
            scope,
            time,
            seed,
        }
    }
}

/// The chunks of a body while it is sent.
pub(crate) struct Chunks {
    signer: Rc<ChunkSigner>,
    last: String,
    held: BytesMut,
}

impl Chunks {
    /// The chunks from the begin.
    pub(crate) fn new(signer: &Rc<ChunkSigner>) -> Self {
        Chunks {
            last: signer.seed.clone(),
            signer: Rc::clone(signer),
            held: BytesMut::new(),
        }
    }

    /// Takes bytes of the body; the next whole chunks, if there are some.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Bytes> {
        self.held.extend_from_slice(bytes);
        let mut out = Vec::new();
        while self.held.len() >= CHUNK {
            let chunk = self.held.split_to(CHUNK).freeze();
            self.write(chunk, &mut out);
        }
        out
    }

    /// The end of the body: what was held, and the last chunk, which is empty.
    pub(crate) fn finish(&mut self) -> Vec<Bytes> {
        let mut out = Vec::new();
        if !self.held.is_empty() {
            let chunk = self.held.split().freeze();
            self.write(chunk, &mut out);
        }
        self.write(Bytes::new(), &mut out);
        out
    }

    fn write(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        let ChunkSigner {
            key, scope, time, ..
        } = &*self.signer;
        let lines = format!("{}\n{}\n{}", self.last, digits(b""), digits(&chunk));
        self.last = signature(key, (ALGORITHM, time, scope), &lines);
        let head = format!("{:x};chunk-signature={}\r\n", chunk.len(), self.last);
        out.push(Bytes::from(head));
        if !chunk.is_empty() {
            out.push(chunk);
        }
        out.push(Bytes::from_static(b"\r\n"));
    }
}

/// The length of a body in chunks.
pub(super) fn length_of(body: u64) -> u64 {
    let chunk = CHUNK as u64;
    let framed = |len: u64| {
        let digits = format!("{len:x}").len() as u64;
        digits + ";chunk-signature=".len() as u64 + SIGNATURE_LEN + len + 4
    };
    let rest = match body % chunk {
        0 => 0,
        rest => framed(rest),
    };
    body / chunk * framed(chunk) + rest + framed(0)
}
