//! HTTP/3's machine as exchanges use it.
//!
//! Each call is the machine's own, but for the begin of an answer and for the codes that streams
//! are broken off with.

use bytes::Bytes;
use millpond_wire::header::Fields;
use millpond_wire::http3::{Code, Connection, End, Fault};

use crate::downstream::lanes::{self, Engine, head};
use millpond_exchange::client::send::AnswerHead;
use millpond_exchange::client::wire::Broken;

impl Engine for Connection {
    type Id = u64;
    type Fault = Fault;

    fn set_window(&mut self, id: u64, len: u32) {
        self.set_window(id, u64::from(len));
    }

    fn consume(&mut self, id: u64, len: usize) {
        self.consume(id, len);
    }

    fn send_interim(&mut self, id: u64, status: u16, fields: &Fields) {
        self.send_interim(id, status, fields);
    }

    /// The length of frames is no business of a client here: packets are cut by QUIC.
    fn begin(&mut self, id: u64, head: &AnswerHead<'_>, _frame_len: usize) -> usize {
        let end = if lanes::ends_with_head(head) {
            End::WithHead
        } else {
            End::Later
        };
        self.send_answer(id, (head.status, end), |out| head::write(out, head))
    }

    fn room(&mut self, id: u64) -> usize {
        self.room(id)
    }

    fn push(&mut self, id: u64, piece: Bytes) {
        self.push(id, piece);
    }

    fn finish(&mut self, id: u64, trailers: Option<&Fields>) {
        self.finish(id, trailers);
    }

    fn break_off(&mut self, id: u64, why: Broken) {
        let code = match why {
            Broken::SlowBody => Code::REQUEST_INCOMPLETE,
            Broken::Failed => Code::INTERNAL_ERROR,
            // RFC 9220 §3 of the end of a tunnel.
            Broken::SlowAnswer | Broken::Torn => Code::REQUEST_CANCELLED,
        };
        self.reset(id, code);
    }

    fn release(&mut self, id: u64) {
        self.release(id);
    }
}
