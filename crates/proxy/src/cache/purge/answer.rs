//! Answers to purges.
//!
//! The page of the module's forms has its words ("Successful purge", "Key : …"), which scripts look
//! for; it names no file, because there is none.

use bytes::Bytes;

use millpond_fleet::node::Reach;
use millpond_wire::header::Field;

use super::order::Order;
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;

/// Style of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Answers like those of NGINX Plus.
    Plus,
    /// Answers like those of the cache purge module.
    Module,
}

/// Outcome of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The purge is in force.
    Purged {
        /// Number of the purge.
        serial: u64,
        /// For a key: whether it had an entry.
        was_there: Option<bool>,
    },
    /// Number of entries that would be purged.
    Counted(u64),
}

/// A purge that is over.
#[derive(Clone, Copy)]
pub(super) struct Ended<'a> {
    pub(super) zone: &'a str,
    pub(super) order: &'a Order,
    pub(super) outcome: Outcome,
    /// Nodes that have it; none where the zone has no fleet.
    pub(super) reach: Option<&'a Reach>,
}

/// The answer to a purge.
pub(super) fn of(req: &Request, ended: Ended<'_>, style: Style) -> Result<Response, Failure> {
    let mut response = match ended.reach {
        Some(Reach::Local(why)) if !wants_json(req) => {
            let body = Bytes::from(format!("purged on this node only: {why}\n"));
            Response::text(503, Bytes::from_static(b"text/plain"), body)
        }
        _ => of_node(req, ended, style)?,
    };
    if let Some(reach) = ended.reach {
        let name = Bytes::from_static(b"Purge-Fleet");
        let value = Bytes::from_static(reach.word().as_bytes());
        response.fields.push(Field::new(name, value));
    }
    Ok(response)
}

fn of_node(req: &Request, ended: Ended<'_>, style: Style) -> Result<Response, Failure> {
    let is_missing = matches!(
        ended.outcome,
        Outcome::Purged {
            was_there: Some(false),
            ..
        }
    );
    if wants_json(req) {
        let status = match ended.reach {
            Some(Reach::Local(_)) => 503,
            _ if is_missing => 404,
            _ => 200,
        };
        let body = Bytes::from(json(ended));
        let content_type = Bytes::from_static(b"application/json");
        return Ok(Response::text(status, content_type, body));
    }
    match (ended.outcome, style) {
        _ if is_missing => Err(Failure::Status(404)),
        (Outcome::Counted(count), _) => {
            let body = Bytes::from(format!("{count} entries would be purged\n"));
            Ok(Response::text(200, Bytes::from_static(b"text/plain"), body))
        }
        (_, Style::Plus) => Ok(Response::empty(204)),
        (_, Style::Module) => {
            let body = Bytes::from(page(&ended.order.what()));
            Ok(Response::text(200, Bytes::from_static(b"text/html"), body))
        }
    }
}

fn wants_json(req: &Request) -> bool {
    let mut accepted = req.head.find_all(b"accept");
    accepted.any(|value| {
        let mut types = value.split(|byte| *byte == b',');
        types.any(|one| {
            let name = one.split(|byte| *byte == b';').next().unwrap_or_default();
            name.trim_ascii().eq_ignore_ascii_case(b"application/json")
        })
    })
}

fn json(ended: Ended<'_>) -> String {
    let Ended {
        zone,
        order,
        outcome,
        reach,
    } = ended;
    let (status, number, entries) = match outcome {
        Outcome::Counted(count) => ("counted", None, Some(count)),
        Outcome::Purged { serial, was_there } => match was_there {
            Some(false) => ("not found", Some(serial), Some(0)),
            Some(true) => ("purged", Some(serial), Some(1)),
            None => ("purged", Some(serial), None),
        },
    };
    let fleet = reach.map(|reach| format!(",\"fleet\":\"{}\"", reach.word()));
    let or_null = |number: Option<u64>| number.map_or("null".to_string(), |it| it.to_string());
    format!(
        "{{\"status\":\"{status}\",\"zone\":\"{}\",\"type\":\"{}\",\"mode\":\"{}\",\"what\":\"{}\",\
         \"number\":{},\"entries\":{}{}}}\n",
        escaped(zone.as_bytes()),
        order.kind(),
        order.mode_word(),
        escaped(&order.what()),
        or_null(number),
        or_null(entries),
        fleet.unwrap_or_default(),
    )
}

/// A text within a JSON string; bytes that are no UTF-8 are replaced.
fn escaped(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in String::from_utf8_lossy(text).chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => out.push_str(&format!("\\u{:04x}", letter as u32)),
            letter => out.push(letter),
        }
    }
    out
}

fn page(what: &[u8]) -> String {
    let mut key = String::with_capacity(what.len());
    for letter in String::from_utf8_lossy(what).chars() {
        match letter {
            '<' => key.push_str("&lt;"),
            '>' => key.push_str("&gt;"),
            '&' => key.push_str("&amp;"),
            letter => key.push(letter),
        }
    }
    format!(
        "<html>\r\n<head><title>Successful purge</title></head>\r\n<body>\r\n\
         <h1>Successful purge</h1>\r\n<p>Key : {key}</p>\r\n</body>\r\n</html>\r\n"
    )
}

#[cfg(test)]
mod tests {
    use millpond_cache::purge::{Mode, Target};

    use super::*;

    #[test]
    fn json_and_page_escape_what_clients_wrote() {
        let order = Order {
            target: Target::Key(Bytes::from_static(b"/<\"\\\x01\xff")),
            mode: Mode::Soft,
            is_dry_run: false,
            wait: millpond_fleet::node::Await::Log,
        };
        let outcome = Outcome::Purged {
            serial: 7,
            was_there: Some(true),
        };
        assert_eq!(
            json(Ended {
                zone: "z",
                order: &order,
                outcome,
                reach: None
            }),
            "{\"status\":\"purged\",\"zone\":\"z\",\"type\":\"exact\",\"mode\":\"soft\",\
             \"what\":\"/<\\\"\\\\\\u0001\u{fffd}\",\"number\":7,\"entries\":1}\n"
        );
        assert!(page(&order.what()).contains("Key : /&lt;\""));
    }
}
