//! Bodies whose bytes come off a disk: waiting until they are there, so that no worker does.
//!
//! A region of the cache's files says what of it can be read without waiting, and a thread of its
//! disk reads the rest. The writer asks before each `sendfile`; filters read pieces that a
//! `Loaded` body has seen to; and an answer whose first bytes do not come in time is none.
//!
//! 1. What is handed out of a `Loaded` body can be read at once.
//! 2. A disk is waited for no longer than a client would be (`send_timeout`) once an answer has
//!    begun, and `proxy_cache_disk_timeout` before that.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Haste, LoadError, WINDOW};
use millpond_system::body::{Body, BodyError, BodyStream, FileRegion, FileSource, Piece};
use millpond_system::clock;
use millpond_system::socket::JOINED;
use millpond_wire::header::{Fields, Known};

use crate::conditional::range::first_wanted;
use crate::request::Request;
use millpond_exchange::response::Response;

/// True if it is plain that the first bytes of an answer can be read at once.
pub(crate) fn is_begun(req: &Request, response: &mut Response) -> bool {
    match response.body.pieces().next() {
        None | Some(Piece::Memory(_)) => return true,
        Some(Piece::File(region)) if req.field(Known::Range).is_none() => {
            return ready_len(region, WINDOW) > 0;
        }
        Some(Piece::File(_)) => {}
    }
    let wanted = first_wanted(req, response);
    let Some((file, offset, len)) = wanted.and_then(|it| place_of(&response.body, &it)) else {
        return true;
    };
    let ready = ready_at(file, offset, len.min(JOINED as u64));
    response.parts.first_look.ready = offset..offset + ready;
    ready > 0
}

/// Waits until the first wanted bytes of an answer can be read at once; false if they do not come
/// in time, or at all.
pub(crate) async fn begin(req: &Request, response: &mut Response, timeout: Duration) -> bool {
    let wanted = first_wanted(req, response);
    let Some((file, offset, len)) = wanted.and_then(|it| place_of(&response.body, &it)) else {
        return true;
    };
    if ready_at(file, offset, 1) > 0 {
        return true;
    }
    let FileSource::Held(file) = file else {
        return true;
    };
    let loading = file.load(offset, len, Haste::OrNotAtAll);
    matches!(clock::within(timeout, loading.done()).await, Some(Ok(_)))
}

/// File, position and count of the first wanted bytes, if they are in a file.
fn place_of<'a>(body: &'a Body, wanted: &Range<u64>) -> Option<(&'a FileSource, u64, u64)> {
    if wanted.is_empty() {
        return None;
    }
    let mut skip = wanted.start;
    let mut pieces = body.pieces();
    let first = pieces.find(|piece| {
        let is_before = piece.len() <= skip;
        if is_before {
            skip -= piece.len();
        }
        !is_before
    });
    let Some(Piece::File(region)) = first else {
        return None;
    };
    let len = (region.len - skip).min(wanted.end - wanted.start);
    Some((&region.file, region.offset + skip, len))
}

/// Number of the first bytes of a region, up to `most`, that can be read at once.
pub(crate) fn ready_len(region: &FileRegion, most: u64) -> u64 {
    ready_at(&region.file, region.offset, region.len.min(most))
}

/// Number of bytes of a region that a thread has read and that can be sent at once: all, or none
/// where the file was closed since.
pub(crate) fn loaded_len(region: &FileRegion, len: u64) -> u64 {
    match &region.file {
        // One that is sent from memory is asked for there.
        FileSource::Held(file) if !file.is_local() || !file.is_open() => 0,
        _ => len,
    }
}

/// The first bytes of a region that are not to be sent from its file, at most `most`.
pub(crate) fn in_memory(region: &FileRegion, most: u64) -> Option<Bytes> {
    match &region.file {
        FileSource::Plain(_) => None,
        FileSource::Held(file) => file.in_memory(region.offset, most),
    }
}

fn ready_at(file: &FileSource, offset: u64, len: u64) -> u64 {
    match file {
        FileSource::Plain(_) => len,
        FileSource::Held(file) => file.ready_len(offset, len),
    }
}

/// True if an error of sending a region is that of the cache's disk, which is told of it.
pub(crate) fn has_refused(region: &FileRegion, error: &std::io::Error) -> bool {
    match &region.file {
        FileSource::Plain(_) => false,
        // The bytes before the offset were sent.
        FileSource::Held(file) => file.has_refused(region.offset..region.offset + 1, error),
    }
}

/// Has the first bytes of a region read; how many they are.
pub(crate) async fn load(region: &FileRegion, timeout: Duration) -> Result<u64, BodyError> {
    let FileSource::Held(file) = &region.file else {
        return Ok(region.len);
    };
    let loading = file.load(region.offset, region.len, Haste::Patient);
    let loaded = clock::within(timeout, loading.done()).await;
    loaded
        .unwrap_or(Err(LoadError::Busy))
        .map_err(|error| BodyError::File(error.to_string()))
}

/// A body whose pieces can be read at once, for who reads them into memory.
pub(crate) fn loaded(body: Body, timeout: Duration) -> Body {
    match body {
        Body::Empty | Body::One(Piece::Memory(_)) => body,
        body => Body::stream(Loaded {
            body,
            timeout,
            rest: None,
            loading: None,
        }),
    }
}

struct Loaded {
    body: Body,
    timeout: Duration,
    rest: Option<FileRegion>,
    loading: Option<Loading>,
}

type Loading = Pin<Box<dyn Future<Output = Result<u64, BodyError>>>>;

impl Loaded {
    /// Hands out the first `len` bytes of what is left.
    fn hand_out(&mut self, len: u64) -> Option<Piece> {
        let mut piece = Piece::File(self.rest.take()?);
        let first = piece.split_to(len);
        if let Piece::File(rest) = piece
            && rest.len > 0
        {
            self.rest = Some(rest);
        }
        Some(first)
    }
}

impl BodyStream for Loaded {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        loop {
            if let Some(loading) = &mut this.loading {
                let loaded = ready!(loading.as_mut().poll(cx));
                this.loading = None;
                let len = match (loaded, &this.rest) {
                    (Ok(len), Some(rest)) => loaded_len(rest, len),
                    (Ok(_), None) => 0,
                    (Err(error), _) => return Poll::Ready(Some(Err(error))),
                };
                // Otherwise its file was closed meanwhile, and it is read again.
                if len > 0 {
                    return Poll::Ready(this.hand_out(len).map(Ok));
                }
                continue;
            }
            if let Some(rest) = &this.rest {
                let ready = ready_len(rest, WINDOW);
                if ready > 0 {
                    return Poll::Ready(this.hand_out(ready).map(Ok));
                }
                let (region, timeout) = (rest.clone(), this.timeout);
                this.loading = Some(Box::pin(async move { load(&region, timeout).await }));
                continue;
            }
            match ready!(this.body.poll_next(cx)) {
                Some(Ok(Piece::File(region))) => this.rest = Some(region),
                other => return Poll::Ready(other),
            }
        }
    }

    fn narrow(mut self: Pin<&mut Self>, wanted: Range<u64>) -> bool {
        self.body.narrow(wanted);
        true
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        self.body.take_trailers()
    }
}

/// A body whose pieces are all in memory, for transports that cannot send files. Disks are waited
/// for by threads of theirs ([`loaded`]).
pub(crate) fn read(body: Body, timeout: Duration) -> Body {
    match body {
        Body::Empty | Body::One(Piece::Memory(_)) => body,
        body => Body::stream(Read {
            body: loaded(body, timeout),
            rest: None,
        }),
    }
}

struct Read {
    body: Body,
    rest: Option<Piece>,
}

impl BodyStream for Read {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        loop {
            if let Some(rest) = this.rest.as_mut().filter(|rest| !rest.is_empty()) {
                return Poll::Ready(Some(rest.take_memory().map(Piece::Memory)));
            }
            this.rest = match ready!(this.body.poll_next(cx)) {
                Some(Ok(piece)) => Some(piece),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            };
        }
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        self.body.take_trailers()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use millpond_store::{Fault, Key, ManualClock, Platform, SimIo, Zone, ZoneConf};

    use super::*;
    use crate::cache::body;

    const LEN: usize = 700_000;

    /// A body on a disk that does not answer, and that disk.
    fn stalled(dir: &std::path::Path) -> (Body, Arc<SimIo>, Arc<Zone>) {
        stalled_on(Arc::new(SimIo::new()), dir)
    }

    fn stalled_on(io: Arc<SimIo>, dir: &std::path::Path) -> (Body, Arc<SimIo>, Arc<Zone>) {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let platform = Platform {
            io: Arc::<SimIo>::clone(&io),
            ..Platform::default()
        };
        let conf = ZoneConf::new("test", dir.join("zone"));
        let zone = Zone::open_on(conf, Arc::<ManualClock>::clone(&clock), platform).unwrap();
        let mut writer = zone.begin(Key::of(b"k"), Some(LEN as u64)).unwrap();
        writer.set_head(Bytes::from_static(b"head"));
        writer.append(Bytes::from(vec![b'x'; LEN])).unwrap();
        writer.finish().unwrap();
        zone.flush();
        let entry = zone.find(&Key::of(b"k")).unwrap();
        // Bytes that were written a moment ago are in the page cache.
        clock.advance(Duration::from_secs(10));
        io.set(Fault::Stall);
        (body::of_entry(&entry), io, zone)
    }

    #[tokio::test]
    async fn a_body_waits_for_its_disk_and_not_in_its_worker() {
        let dir = tempfile::tempdir().unwrap();
        let (body, io, _zone) = stalled(dir.path());
        let mut body = loaded(body, Duration::from_secs(60));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(body.poll_next(&mut cx).is_pending());
        io.set(Fault::None);
        let mut len = 0;
        while let Some(piece) = body.next().await {
            let mut piece = piece.unwrap();
            while !piece.is_empty() {
                len += piece.take_memory().unwrap().len();
            }
        }
        assert_eq!(len, LEN);
    }

    /// Pages of a file on another machine may be gone, or fail to be read, at any time: what a
    /// thread has read is sent.
    #[tokio::test]
    async fn a_body_on_another_machine_is_sent_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        let io = Arc::new(SimIo::new());
        io.set_remote();
        let (body, io, _zone) = stalled_on(io, dir.path());
        io.set(Fault::None);
        let mut body = loaded(body, Duration::from_secs(60));
        let mut len = 0;
        while let Some(piece) = body.next().await {
            let Piece::File(region) = piece.unwrap() else {
                panic!("it was written long ago");
            };
            let bytes = in_memory(&region, region.len).unwrap();
            assert_eq!(bytes.len() as u64, region.len);
            io.set(Fault::ReadError);
            assert_eq!(region.read().unwrap(), bytes);
            io.set(Fault::None);
            len += bytes.len();
        }
        assert_eq!(len, LEN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_whose_disk_does_not_answer_ends_with_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (body, io, _zone) = stalled(dir.path());
        let mut body = loaded(body, Duration::from_secs(60));
        let end = body.next().await;
        io.set(Fault::None);
        assert!(matches!(end, Some(Err(BodyError::File(_)))));
    }
}
