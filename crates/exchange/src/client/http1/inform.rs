//! Interim answers of HTTP/1 (RFC 9110 §15.2).
//!
//! Invariants:
//! 1. An interim answer that the socket does not take is dropped. One that it takes in part is
//!    finished in time, or the connection is of no use.

use std::io::IoSlice;
use std::time::Duration;

use bytes::BytesMut;
use millpond_system::socket::More;

use super::Http1;
use millpond_wire::header::Fields;
use millpond_wire::http1::encode;

/// Bytes of a usual interim answer.
const USUAL: usize = 512;

impl Http1 {
    /// Sends an interim answer.
    pub async fn inform(&self, status: u16, fields: &Fields, timeout: Duration) {
        let mut text = BytesMut::with_capacity(USUAL);
        encode::write_status(&mut text, status);
        encode::write_fields(&mut text, fields);
        encode::end_head(&mut text);
        let Ok(count @ 1..) = self.transport.offer(&text) else {
            return;
        };
        let rest = text.get(count..).unwrap_or_default();
        if rest.is_empty() {
            return;
        }
        let whole = self.timer.guard_for(timeout, self.send_all(rest)).await;
        if !matches!(whole, Ok(Ok(()))) {
            // Half a head has gone out: nothing can be said after it.
            self.transport.shutdown_write();
        }
    }

    async fn send_all(&self, mut rest: &[u8]) -> std::io::Result<()> {
        // Each round sends at least one byte.
        while !rest.is_empty() {
            let slices = [IoSlice::new(rest)];
            let count =
                std::future::poll_fn(|cx| self.transport.poll_send(cx, &slices, More::Nothing))
                    .await?;
            if count == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(())
    }
}
