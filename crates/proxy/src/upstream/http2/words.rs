//! Faults of peers, in nginx's words where it has some.
//!
//! The engine finds them; what follows from one is decided where its event is taken.

use millpond_wire::http2::hpack::decode::BadBlock;
use millpond_wire::http2::{Code, Fault, Gone};

/// A fault of a peer.
pub(super) fn of_fault(fault: Fault) -> String {
    let known = match fault {
        Fault::Push => "upstream sent unexpected push promise frame",
        Fault::BodyTooLong => "upstream sent response body larger than indicated content length",
        Fault::BodyTooShort => "upstream prematurely closed stream",
        Fault::SecondHead => "upstream sent trailer without end stream flag",
        Fault::Block(BadBlock::LongText | BadBlock::LongList) | Fault::LongBlock => {
            "upstream sent too large http2 header"
        }
        Fault::Malformed | Fault::Block(_) => "upstream sent invalid header",
        other => return format!("upstream sent {other}"),
    };
    known.to_string()
}

/// The end of a stream before its time; `farewell` is the code of the peer's last word, if it said
/// one.
pub(super) fn of_end(why: Gone, farewell: Code) -> String {
    match why {
        Gone::ByPeer(code) => format!("upstream rejected request with error {}", code.0),
        Gone::Unprocessed => format!("upstream sent goaway with error {}", farewell.0),
        Gone::ByFault(fault) => of_fault(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_as_nginx_tells_them() {
        for (why, text) in [
            (
                Gone::ByPeer(Code::CANCEL),
                "upstream rejected request with error 8",
            ),
            (Gone::Unprocessed, "upstream sent goaway with error 5"),
            (
                Gone::ByFault(Fault::Malformed),
                "upstream sent invalid header",
            ),
            (
                Gone::ByFault(Fault::Preface),
                "upstream sent invalid connection preface",
            ),
        ] {
            assert_eq!(of_end(why, Code::STREAM_CLOSED), text);
        }
    }
}
