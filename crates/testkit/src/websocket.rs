//! An origin of WebSockets (RFC 6455), and the frames of its messages.
//!
//! ```text
//! /echo      sends each message back; ends when the client closes
//! /count     sends messages until nobody takes them any more
//! /last      sends one message and ends its direction; then takes what comes, to the end
//! /torn      switches, takes a message, and resets the connection
//! /wrong     switches with an answer that is not to the key
//! /page      answers 200; all others are answered by 403
//! ```
//!
//! 1. What a client must say in its handshake and must mask is checked: who does not is answered by
//!    400, or ends the connection.

use crate::message::RequestHead;
use crate::wire::{Stream, Wire};
use anyhow::{Context, Result, ensure};
use sha1::{Digest, Sha1};
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The text that a key is answered with.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The bytes of a message of `/count`.
const COUNTED: usize = 10_000;
/// Time that one read or write may take.
const TIMEOUT: Duration = Duration::from_secs(30);
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const MASKED: u8 = 0x80;

/// An origin of WebSockets, which runs until the process ends.
#[derive(Debug)]
pub struct WebSocketOrigin {
    port: u16,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    heads: Vec<RequestHead>,
    /// Messages that `/last` has got, and ends of connections.
    ends: Vec<String>,
}

impl WebSocketOrigin {
    /// Listens on a port of its own.
    pub fn start() -> Result<WebSocketOrigin> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let seen = Arc::<Mutex<Seen>>::default();
        let noted = Arc::clone(&seen);
        thread::spawn(move || {
            for peer in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                thread::spawn(move || {
                    let end = match serve(peer, &noted) {
                        Ok(()) => "ended".to_owned(),
                        Err(error) => format!("{error:#}"),
                    };
                    lock(&noted).ends.push(end);
                });
            }
        });
        Ok(WebSocketOrigin { port, seen })
    }

    /// The address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The requests that came, in order.
    pub fn requests(&self) -> Vec<RequestHead> {
        lock(&self.seen).heads.clone()
    }

    /// The ends of connections, and what `/last` has got, in order.
    pub fn ends(&self) -> Vec<String> {
        lock(&self.seen).ends.clone()
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(peer: TcpStream, seen: &Mutex<Seen>) -> Result<()> {
    let mut out = peer.try_clone()?;
    let stream = Stream::Tcp(peer);
    stream.set_timeout(TIMEOUT)?;
    let mut wire = Wire::new(stream);
    let head = RequestHead::parse(&wire.take_head()?.context("closed at once")?)?;
    lock(seen).heads.push(head.clone());
    let key = head.fields.value("Sec-WebSocket-Key").unwrap_or_default();
    let is_asked = head.method == "GET"
        && head.fields.has_token("Upgrade", "websocket")
        && head.fields.has_token("Connection", "upgrade")
        && head.fields.value("Sec-WebSocket-Version") == Some("13")
        && key.len() == 24;
    let (status, body) = match head.target.as_str() {
        "/page" => (200, "page"),
        _ if !is_asked => (400, "no handshake"),
        "/echo" | "/count" | "/last" | "/torn" | "/wrong" => (101, ""),
        _ => (403, "not for you"),
    };
    if status != 101 {
        let len = body.len();
        write!(
            out,
            "HTTP/1.1 {status} X\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
        )?;
        return Ok(());
    }
    let key = match head.target.as_str() {
        "/wrong" => "another",
        _ => key,
    };
    write!(
        out,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: chat\r\n\r\n",
        answer_to(key)
    )?;
    talk(&head.target, (&mut wire, &mut out), seen)
}

fn talk(path: &str, (wire, out): (&mut Wire, &mut TcpStream), seen: &Mutex<Seen>) -> Result<()> {
    match path {
        "/echo" => {
            while let Some((kind, text)) = next_message(wire)? {
                out.write_all(&frame(kind, &text))?;
                if kind == CLOSE {
                    break;
                }
            }
        }
        "/count" => {
            for number in 0u64.. {
                let text = number.to_be_bytes().repeat(COUNTED / 8);
                out.write_all(&frame(BINARY, &text))?;
            }
        }
        "/last" => {
            out.write_all(&frame(BINARY, b"the last word"))?;
            out.shutdown(Shutdown::Write)?;
            while let Some((_, text)) = next_message(wire)? {
                let text = String::from_utf8_lossy(&text).into_owned();
                lock(seen).ends.push(text);
            }
        }
        _ => {
            next_message(wire)?;
            rustix::net::sockopt::set_socket_linger(&*out, Some(Duration::ZERO))?;
        }
    }
    Ok(())
}

/// The answer to a key (RFC 6455 §4.2.2).
fn answer_to(key: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    let mut text = String::new();
    for three in digest.chunks(3) {
        let byte = |place: usize| three.get(place).map_or(0, |byte| u32::from(*byte));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() {
                '='
            } else {
                char::from(letter)
            });
        }
    }
    text
}

/// A message of a client, masked as it must be (RFC 6455 §5.3).
pub fn masked_message(text: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [7, 99, 200, 31];
    let mut bytes = frame(BINARY, text);
    let head_len = bytes.len() - text.len();
    bytes[1] |= MASKED;
    let body = bytes.split_off(head_len);
    bytes.extend(MASK);
    bytes.extend(
        body.iter()
            .zip(MASK.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    bytes
}

/// The bytes in which a server sends a message.
pub fn plain_message(text: &[u8]) -> Vec<u8> {
    frame(BINARY, text)
}

fn frame(kind: u8, text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    match text.len() {
        len @ 0..=125 => bytes.push(len as u8),
        len @ 126..=0xffff => {
            bytes.push(126);
            bytes.extend((len as u16).to_be_bytes());
        }
        len => {
            bytes.push(127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend(text);
    bytes
}

/// The next message; none when the client has ended. INVARIANT 1.
fn next_message(wire: &mut Wire) -> Result<Option<(u8, Vec<u8>)>> {
    if !wire.wait_for_byte()? {
        return Ok(None);
    }
    let [kind, len] = take(wire)?;
    ensure!(len & MASKED != 0, "a frame without a mask");
    let len = match len & !MASKED {
        126 => u64::from(u16::from_be_bytes(take(wire)?)),
        127 => u64::from_be_bytes(take(wire)?),
        len => u64::from(len),
    };
    let mask: [u8; 4] = take(wire)?;
    let mut text = vec![0; usize::try_from(len)?];
    wire.read_exact(&mut text)?;
    for (byte, mask) in text.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Ok(Some((kind, text)))
}

fn take<const LEN: usize>(wire: &mut Wire) -> Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    wire.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6455 §1.3.
    #[test]
    fn the_answer_to_a_key_is_that_of_the_rfc() {
        let answer = answer_to("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
