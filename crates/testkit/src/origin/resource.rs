//! A resource: a large generated body that has versions, and an origin's manners in serving it.
//!
//! ```text
//! let film = Resource::new(Manners::of(1 << 20));
//! origin.resource("/film", &film);
//! film.change(|manners| manners.version = 2);
//! ```
//!
//! The bytes are `offset_bytes` of the version, so any part of a body proves its place and version.
//! Validators are made of the version: `"v2"`, `W/"v2"`, or the second day of January 2022.
//!
//! 1. An answer is made of the manners that hold when its request comes; a later change does not
//!    touch what is already being sent, as a file that is replaced keeps its open readers.

use super::answer::{Answer, Gate, Ranges};
use super::select::Lie;
use super::{Recorded, lock};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Weekdays from the first of January 2022 on.
const WEEKDAYS: [&str; 7] = ["Sat", "Sun", "Mon", "Tue", "Wed", "Thu", "Fri"];
/// Distance between versions of different values of the Vary field.
const VARIANT_STEP: u16 = 1000;

/// Validator that tells versions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validator {
    /// A strong ETag.
    Strong,
    /// A strong ETag and Last-Modified.
    StrongAndDate,
    /// A weak ETag.
    Weak,
    /// Last-Modified only, with a Date that is long after it.
    Date,
    /// Nothing.
    None,
    /// A strong ETag that stays the same for every version.
    Unchanging,
}

/// Occasion on which the version goes up by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The version goes up when the test says so.
    ByHand,
    /// At every `n`th request, which is the first to see it.
    EveryRequests(u64),
    /// Once: for requests that come after so many bytes were sent.
    AfterBytes(u64),
}

/// Outage of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// The resource is served.
    None,
    /// Every request gets this status, with a body that says so.
    Status(u16),
    /// Every connection is closed without an answer.
    Closes,
}

/// Manners in which a resource is served.
#[derive(Clone, Debug)]
pub struct Manners {
    /// Length of the body.
    pub len: u64,
    /// Version of the body; at least 1.
    pub version: u16,
    /// Validator that tells versions apart.
    pub validator: Validator,
    /// Occasion on which the version changes by itself.
    pub turn: Turn,
    /// Treatment of ranges.
    pub ranges: Ranges,
    /// Lie of answers to ranges.
    pub lie: Option<Lie>,
    /// Failure of the origin.
    pub outage: Outage,
    /// Further fields of every answer.
    pub fields: Vec<(&'static str, String)>,
    /// Bytes a second.
    pub rate: Option<u64>,
    /// Holds every head.
    pub head_gate: Option<Gate>,
    /// Holds these bytes of the body.
    pub held: Vec<(Range<u64>, Gate)>,
    /// Drops the connection before this byte of the body.
    pub drop_at: Option<u64>,
    /// A request field whose number chooses the variant, named by Vary.
    pub varies_by: Option<&'static str>,
}

impl Manners {
    /// An honest origin of a body of `len` bytes, with a strong validator.
    pub fn of(len: u64) -> Manners {
        Manners {
            len,
            version: 1,
            validator: Validator::Strong,
            turn: Turn::ByHand,
            ranges: Ranges::Supported,
            lie: None,
            outage: Outage::None,
            fields: Vec::new(),
            rate: None,
            head_gate: None,
            held: Vec::new(),
            drop_at: None,
            varies_by: None,
        }
    }

    /// The present ETag or date, as If-Range would name it.
    pub fn validator_value(&self) -> Option<String> {
        let version = self.version;
        match self.validator {
            Validator::Strong | Validator::StrongAndDate => Some(format!("\"v{version}\"")),
            Validator::Unchanging => Some("\"v\"".to_string()),
            Validator::Weak => Some(format!("W/\"v{version}\"")),
            Validator::Date => Some(self.modified()),
            Validator::None => None,
        }
    }

    /// Time when the present version was made.
    pub fn modified(&self) -> String {
        let day = u64::from(self.version.saturating_sub(1)) % 28;
        let weekday = WEEKDAYS.get(usize::try_from(day % 7).unwrap_or(0));
        let weekday = weekday.unwrap_or(&"Sat");
        format!("{weekday}, {:02} Jan 2022 00:00:00 GMT", day + 1)
    }

    fn answer(&self) -> Answer {
        let mut answer = Answer::new(200)
            .offset_body(self.len, self.version)
            .ranges(self.ranges)
            .header("Content-Type", "text/plain")
            .revalidates();
        match (self.validator, self.validator_value()) {
            (Validator::Date, Some(_)) => {
                let date = "Tue, 01 Mar 2022 00:00:00 GMT";
                answer = answer.last_modified(&self.modified()).header("Date", date);
            }
            (Validator::StrongAndDate, Some(tag)) => {
                answer = answer.etag(&tag).last_modified(&self.modified());
            }
            (_, Some(tag)) => answer = answer.etag(&tag),
            (_, None) => {}
        }
        for (name, value) in &self.fields {
            answer = answer.header(name, value);
        }
        for (range, gate) in &self.held {
            answer = answer.hold_bytes(range.clone(), gate);
        }
        self.with_faults(answer)
    }

    fn with_faults(&self, mut answer: Answer) -> Answer {
        if let Some(rate) = self.rate {
            answer = answer.rate(rate);
        }
        if let Some(gate) = &self.head_gate {
            answer = answer.hold_head(gate);
        }
        if let Some(offset) = self.drop_at {
            answer = answer.drop_at(offset);
        }
        if let Some(lie) = self.lie {
            answer = answer.lie(lie);
        }
        answer
    }
}

/// A body with versions; clones are the same resource.
#[derive(Clone, Debug)]
pub struct Resource(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    manners: Manners,
    asked: u64,
    sent: Arc<AtomicU64>,
}

impl Resource {
    /// A resource that is served as `manners` say.
    pub fn new(manners: Manners) -> Resource {
        let sent = Arc::default();
        let state = State {
            manners,
            asked: 0,
            sent,
        };
        Resource(Arc::new(Mutex::new(state)))
    }

    /// Changes how requests from now on are served.
    pub fn change(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut lock(&self.0).manners);
    }

    /// The present manners.
    pub fn manners(&self) -> Manners {
        lock(&self.0).manners.clone()
    }

    /// The bytes of the present version in `range`.
    pub fn bytes(&self, range: Range<u64>) -> Vec<u8> {
        super::offset_bytes(range, self.manners().version)
    }

    /// The version that is served to requests whose Vary field has the number `value`.
    pub fn variant(version: u16, value: u16) -> u16 {
        version + value * VARIANT_STEP
    }

    pub(super) fn answer(&self, request: &Recorded) -> Answer {
        let mut state = lock(&self.0);
        state.turn();
        match state.manners.outage {
            Outage::None => {}
            Outage::Status(status) => return Answer::new(status).body("the origin fails\n"),
            Outage::Closes => return Answer::raw(""),
        }
        let Some(field) = state.manners.varies_by else {
            return state.manners.answer().count_in(&state.sent);
        };
        let value = request.header(field).and_then(|value| value.parse().ok());
        let mut manners = state.manners.clone();
        manners.version = Resource::variant(manners.version, value.unwrap_or(0));
        manners.answer().header("Vary", field).count_in(&state.sent)
    }
}

impl State {
    /// Counts a request, and goes to the next version if it is time.
    fn turn(&mut self) {
        self.asked += 1;
        match self.manners.turn {
            Turn::ByHand => {}
            Turn::EveryRequests(count) => {
                if (self.asked - 1).is_multiple_of(count) && self.asked > 1 {
                    self.manners.version += 1;
                }
            }
            Turn::AfterBytes(count) => {
                if self.sent.load(Ordering::Relaxed) >= count {
                    self.manners.version += 1;
                    self.manners.turn = Turn::ByHand;
                }
            }
        }
    }
}
