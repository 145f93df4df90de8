//! Buffers that large bodies are received into, and come back when nobody reads them any more.
//!
//! ```text
//! take ─► receive ─► Bytes, shared by client, store and disk thread ─► dropped by all ─► free
//! ```
//!
//! A fast origin's body goes through memory once; a new buffer for each read would be given back to
//! the kernel and asked of it again, and be cleared page by page. What is in a buffer is always
//! initialised: it is cleared once, when it is made.
//!
//! Invariants:
//! 1. A worker keeps at most `FREE_MAX` buffers that nobody uses.
//! 2. A buffer in use holds at least `WORTH` bytes of body, so that what waits for a disk takes
//!    at most `BUFFER_SIZE / WORTH` times its size.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Bytes of a buffer (found good: half of an extent, and within the second-level cache, so that the
/// checksum and the write to the disk find there what was received).
pub const BUFFER_SIZE: usize = 128 * 1024;

/// Least number of bytes that keep the buffer; fewer are copied, and it is free again.
const WORTH: usize = 16 * 1024;

/// Free buffers of a worker: four megabytes.
const FREE_MAX: usize = 32;

/// The free buffers of a worker.
#[derive(Clone, Debug, Default)]
pub struct ReceiveBuffers(Arc<Mutex<Vec<Box<[u8]>>>>);

/// A buffer that is received into.
#[derive(Debug)]
pub struct ReceiveBuffer {
    /// Empty only while it is dropped.
    bytes: Box<[u8]>,
    len: usize,
    free: ReceiveBuffers,
}

impl ReceiveBuffers {
    /// A free buffer, or a new one.
    pub fn take(&self) -> ReceiveBuffer {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        ReceiveBuffer {
            bytes: free.unwrap_or_else(|| vec![0; BUFFER_SIZE].into_boxed_slice()),
            len: 0,
            free: self.clone(),
        }
    }

    fn put(&self, buffer: Box<[u8]>) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // INVARIANT 1.
        if free.len() < FREE_MAX {
            free.push(buffer);
        }
    }
}

impl ReceiveBuffer {
    /// Room for up to `most` bytes.
    pub fn room(&mut self, most: u64) -> &mut [u8] {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let most = most.min(self.bytes.len());
        self.bytes.get_mut(..most).unwrap_or_default()
    }

    /// The first `len` bytes of it, which were received.
    pub fn received(mut self, len: usize) -> Bytes {
        self.len = len;
        // INVARIANT 2.
        if len < WORTH {
            Bytes::copy_from_slice(self.as_ref())
        } else {
            Bytes::from_owner(self)
        }
    }
}

impl AsRef<[u8]> for ReceiveBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Drop for ReceiveBuffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.bytes);
        self.free.put(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(buffers: &ReceiveBuffers) -> usize {
        buffers.0.lock().unwrap().len()
    }

    #[test]
    fn a_buffer_is_free_when_its_last_reader_has_gone() {
        let buffers = ReceiveBuffers::default();
        let mut buffer = buffers.take();
        buffer.room(u64::MAX).fill(b'x');
        let bytes = buffer.received(BUFFER_SIZE);
        let part = bytes.slice(5..10);
        drop(bytes);
        assert_eq!((free(&buffers), part.as_ref()), (0, &b"xxxxx"[..]));
        // The disk's thread is often the last.
        std::thread::spawn(move || drop(part)).join().unwrap();
        assert_eq!(free(&buffers), 1);
        assert_eq!(buffers.take().room(7).len(), 7);
    }

    #[test]
    fn few_bytes_do_not_hold_a_buffer() {
        let buffers = ReceiveBuffers::default();
        for (len, held) in [(0, 0), (WORTH - 1, 0), (WORTH, 1), (BUFFER_SIZE, 1)] {
            let mut buffer = buffers.take();
            buffer.room(u64::MAX).fill(b'x');
            let bytes = buffer.received(len);
            assert_eq!(bytes, vec![b'x'; len], "{len}");
            assert_eq!(1 - free(&buffers), held, "{len}");
        }
    }

    #[test]
    fn free_buffers_are_bounded() {
        let buffers = ReceiveBuffers::default();
        let taken: Vec<_> = (0..FREE_MAX + 5).map(|_| buffers.take()).collect();
        drop(taken);
        assert_eq!(free(&buffers), FREE_MAX);
    }
}
