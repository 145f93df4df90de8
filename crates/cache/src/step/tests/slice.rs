//! Bodies in slices: what others find of an entry while its first slices arrive.

use super::origin::status;
use super::*;
use crate::reason::Brought;
use crate::slice::{ClientWish, First, Slicing, Trust};
use crate::variant::RequestFields;
use crate::zone::LookedUp;
use millpond_semantics::range::RangeSpec;

const SIZE: u64 = 10;
const TOTAL: u64 = 100;

/// Runs of a body: what they bring, how far they are, and how many bodies were read from them.
type Running = Vec<(std::ops::Range<u64>, u64, u32)>;

/// A part of the body that does not come to its end before it is asked for.
fn part(range: std::ops::Range<u64>) -> Script {
    let place = format!("bytes {}-{}/{TOTAL}", range.start, range.end - 1);
    let body = "x".repeat((range.end - range.start) as usize);
    status(206)
        .field("ETag", "\"1\"")
        .field("Content-Range", &place)
        .cc("max-age=60")
        .pause(1000)
        .piece(&body)
}

impl Bench {
    /// Requests a range of the body under `/a`.
    async fn send_range(&self, range: std::ops::Range<u64>) -> Answer {
        let client = client("/a");
        let mut walk = self.walk(&client);
        walk.slicing = Some(Slicing {
            size: SIZE,
            first: First::Range,
            client: ClientWish::Range(RangeSpec::FromTo {
                start: range.start,
                end_exclusive: range.end,
            }),
            is_conditional: false,
            confirms: false,
            trust: Trust::Validated,
        });
        self.start_walk(walk, client).await.unwrap()
    }

    /// Runs of `/a` that another request finds the moment that something is noted.
    fn find_when(&self, when: impl Fn(Note) -> bool + 'static) -> Rc<RefCell<Vec<Running>>> {
        let seen = Rc::<RefCell<Vec<Running>>>::default();
        let (zone, finds) = (Arc::clone(&self.zone), Rc::clone(&seen));
        let key = self.key(&client("/a"));
        let noted = move |note| {
            let fields = RequestFields {
                lookup: &|_| Vec::new(),
                spelling: Rules::Nginx.spelling(),
            };
            if when(note)
                && let LookedUp::Found(found) = zone.look_up(&key, &fields)
            {
                let generation = zone.slices.open(&zone.store, &found).unwrap();
                finds.borrow_mut().push(generation.running());
            }
        };
        *self.world.noted.borrow_mut() = Some(Box::new(noted));
        seen
    }
}

#[test]
fn who_finds_a_new_entry_finds_the_run_that_brings_its_first_slices() {
    run(|bench| async move {
        bench.script([part(0..2 * SIZE)]);
        let seen = bench.find_when(|note| note == Note::Stored);
        assert_eq!(bench.send_range(5..15).await.label, "MISS");
        assert_eq!(*seen.borrow(), [[(0..2 * SIZE, 0, 0)]]);
    });
}

#[test]
fn who_finds_a_renewed_entry_finds_the_run_that_brings_what_was_missing() {
    run(|bench| async move {
        bench.script([part(0..SIZE), part(SIZE..3 * SIZE)]);
        bench.send_range(0..SIZE).await;
        pass_time(100 * SECOND).await;
        let seen = bench.find_when(|note| matches!(note, Note::Brought(Brought::Range(..))));
        assert_eq!(bench.send_range(15..25).await.label, "EXPIRED");
        assert_eq!(*seen.borrow(), [[(SIZE..3 * SIZE, SIZE, 0)]]);
    });
}
