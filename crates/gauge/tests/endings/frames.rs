//! A server of HTTP/2 by hand, frame by frame (RFC 9113, section 4): it knows two kinds of answers
//! and reads nothing but frames' heads.

use crate::{Ending, GARBLED, Raw};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Length of what a client begins with.
const PREFACE: usize = 24;

/// `:status 200` of the static table, and a field that stays out of the dynamic one (RFC 7541).
const HEAD: &[u8] = b"\x88\x00\x0cx-generation\x010";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The last stream, and the code.
fn go_away(last: u32, code: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    frame(GOAWAY, 0, 0, &payload)
}

fn answer(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, HEAD)
}

/// Answers requests, and ends the first connection as it was told.
pub(crate) fn serve(mut stream: impl Raw, number: usize, ending: Ending) {
    let mut preface = [0; PREFACE];
    let mut head = [0; 9];
    let mut asked = 0;
    if stream.read_exact(&mut preface).is_err() {
        return;
    }
    let mut out = frame(SETTINGS, 0, 0, &[]);
    loop {
        // The client may go at any time.
        if stream
            .write_all(&out)
            .and_then(|()| stream.flush())
            .is_err()
            || stream.read_exact(&mut head).is_err()
        {
            return;
        }
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; len as usize];
        if stream.read_exact(&mut payload).is_err() {
            return;
        }
        out = match (head[3], head[4]) {
            (SETTINGS, 0) => frame(SETTINGS, ACK, 0, &[]),
            (HEADERS, _) => {
                asked += 1;
                let is_second = number == 0 && asked == 2;
                match ending {
                    Ending::Closes if is_second => return,
                    Ending::GoesAway(code) if is_second => go_away(1, code),
                    Ending::Resets(code) if is_second => {
                        frame(RST_STREAM, 0, id, &code.to_be_bytes())
                    }
                    Ending::Breaks if is_second => frame(DATA, 0, 0, b"nobody's"),
                    Ending::AnswersAndGoesAway(code) if is_second => {
                        [answer(id), go_away(id, code)].concat()
                    }
                    Ending::Garbles if is_second => {
                        stream.write_raw(&GARBLED).expect("sent");
                        Vec::new()
                    }
                    _ => answer(id),
                }
            }
            _ => Vec::new(),
        };
    }
}
