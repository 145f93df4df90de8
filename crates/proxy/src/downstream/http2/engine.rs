//! HTTP/2's machine as exchanges use it.
//!
//! Each call is the machine's own, but for the begin of an answer and for the codes that streams
//! are broken off with.

use bytes::Bytes;
use millpond_wire::header::Fields;
use millpond_wire::http2::{Code, Connection, End, Fault};

use crate::downstream::lanes::{self, Engine, head};
use millpond_exchange::client::send::AnswerHead;
use millpond_exchange::client::wire::Broken;

impl Engine for Connection {
    type Id = u32;
    type Fault = Fault;

    fn set_window(&mut self, id: u32, len: u32) {
        self.set_window(id, len);
    }

    fn consume(&mut self, id: u32, len: usize) {
        self.consume(id, len);
    }

    fn send_interim(&mut self, id: u32, status: u16, fields: &Fields) {
        self.send_interim(id, status, fields);
    }

    fn begin(&mut self, id: u32, head: &AnswerHead<'_>, frame_len: usize) -> usize {
        let end = if lanes::ends_with_head(head) {
            End::WithHead
        } else {
            End::Later
        };
        self.set_chunk_len(id, frame_len);
        self.send_answer(id, (head.status, end), |out| head::write(out, head))
    }

    fn room(&mut self, id: u32) -> usize {
        self.room(id)
    }

    fn push(&mut self, id: u32, piece: Bytes) {
        self.push(id, piece);
    }

    fn finish(&mut self, id: u32, trailers: Option<&Fields>) {
        self.finish(id, trailers);
    }

    fn break_off(&mut self, id: u32, why: Broken) {
        // nginx's codes.
        let code = match why {
            Broken::SlowBody | Broken::SlowAnswer => Code::PROTOCOL_ERROR,
            Broken::Failed => Code::INTERNAL_ERROR,
            // RFC 8441 §5.
            Broken::Torn => Code::CANCEL,
        };
        self.break_off(id, code);
    }

    fn release(&mut self, id: u32) {
        self.release(id);
    }
}
