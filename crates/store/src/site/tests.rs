//! Tests of the numbers of sites.

use super::*;
use crate::disk::segment::Place;
use crate::key::Key;

fn slot(account: Account, len: u64) -> Slot {
    let place = Place {
        segment: 1,
        offset: 64,
        size: 96,
    };
    Slot::new(Key([1; 16]), place, len, 0).charged_to(account)
}

/// All of a head is the name of its site.
fn whole(head: &[u8]) -> Class<'_> {
    Class {
        site: head,
        role: Role::Entry,
    }
}

#[test]
fn names_keep_their_numbers_and_the_excess_has_one() {
    let book = SiteBook::default();
    assert_eq!((book.number(b""), book.number(EXCESS)), (0, 1));
    let name = |number: usize| format!("site {number}").into_bytes();
    let head = |number: usize| Bytes::from(name(number));
    let heads = Arc::new(SiteBook::new(whole));
    let free = SITES_MAX - SITES_MAX / EXPECTED_PART - 2;
    let claims: Vec<Claim> = (0..free + 5).map(|it| heads.claim(&head(it))).collect();
    let numbers: Vec<u16> = claims.iter().map(|it| it.account().number()).collect();
    assert_eq!(numbers[0], 2);
    assert_eq!(usize::from(numbers[free - 1]), free + 1);
    assert!(numbers[free..].iter().all(|number| *number == 1));
    assert_eq!(heads.number(b"site 0"), 2);
    assert_eq!(heads.name(2), "site 0");
    assert_eq!(heads.number(&[b'x'; 300]), 1);
    // Names that are expected have the rest.
    let expected: Vec<Vec<u8>> = (free..SITES_MAX).map(name).collect();
    heads.expect(expected.iter().map(Vec::as_slice));
    assert_eq!(heads.number(&name(free)), NUMBER_MASK - 511);
    assert_eq!(heads.number(&name(SITES_MAX - 3)), NUMBER_MASK);
    assert_eq!(heads.number(&name(SITES_MAX - 2)), 1);
}

#[test]
fn numbers_are_taken_back_when_nothing_refers_to_them() {
    let book = Arc::new(SiteBook::with_room(whole, 5));
    let holdings = Holdings::new(Arc::clone(&book));
    book.expect([&b"customer"[..]]);
    let fill = book.claim(b"one");
    let two = book.claim(b"two");
    holdings.came(&slot(two.account(), 1));
    drop(two);
    assert!(book.holds(b"one") && book.holds(b"two") && !book.holds(b"customer"));
    // A fill and an entry have numbers, and the customer's is kept.
    book.maintain();
    assert_eq!(book.claim(b"three").account().number(), 1);
    let number = fill.account().number();
    drop(fill);
    // What is being loaded may mean it.
    let loads = book.hold();
    book.maintain();
    assert_eq!(book.claim(b"three").account().number(), 1);
    drop(loads);
    // It is looked for again later.
    assert_eq!(book.claim(b"three").account().number(), 1);
    book.maintain();
    let three = book.claim(b"three");
    assert_eq!(
        (three.account().number(), book.name(number)),
        (number, "three".into())
    );
    assert!(!book.holds(b"one") && book.holds(b"three"));
    assert_eq!(book.claim(b"one").account().number(), 1);
    assert_eq!(book.claim(b"customer").account().number(), 2);
    book.expect([]);
    book.maintain();
    assert_eq!(book.claim(b"one").account().number(), 2);
}

#[test]
fn what_left_is_told_of_the_name_that_it_had() {
    let book = Arc::new(SiteBook::with_room(whole, 3));
    let holdings = Holdings::new(Arc::clone(&book));
    let store = |name: &[u8], count| {
        let claim = book.claim(name);
        assert_eq!(claim.account().number(), 2);
        for _ in 0..count {
            holdings.came(&slot(claim.account(), 1));
            holdings.left(&slot(claim.account(), 1), Leave::Swept);
        }
    };
    let told = |name: &'static str, swept| {
        let departed = Departed {
            swept,
            ..Departed::default()
        };
        (Bytes::from_static(name.as_bytes()), departed)
    };
    store(b"one", 1);
    assert_eq!(book.take_departed(), [told("one", 1)]);
    store(b"one", 2);
    book.maintain();
    store(b"two", 4);
    assert_eq!(book.take_departed(), [told("one", 2), told("two", 4)]);
    assert_eq!(book.take_departed(), []);
    assert_eq!(book.departed(), [told("*", 3), told("two", 4)]);
}

#[test]
fn a_row_has_room_for_every_account() {
    for number in [0, 1, NUMBER_MASK] {
        for role in [Role::Entry, Role::Slice] {
            let account = Account::new(number, role);
            assert_eq!(Account::from_bits(account.bits()), account);
            assert_eq!(account.number(), number);
            assert_eq!(account.is_slice(), role == Role::Slice);
            assert_eq!(account.with_number(7).number(), 7);
            assert_eq!(account.with_number(7).is_slice(), account.is_slice());
        }
    }
}

#[test]
fn what_comes_and_leaves_adds_up() {
    let book = Arc::new(SiteBook::default());
    let number = book.number(b"one");
    let entry = Account::new(number, Role::Entry);
    let part = Account::new(number, Role::Slice);
    let holdings = Holdings::new(Arc::clone(&book));
    let mut batch = Batch::default();
    // What is loaded may be removed before its batch is there.
    batch.came(&slot(entry, 10));
    holdings.left(&slot(entry, 10), Leave::Evicted);
    assert_eq!(holdings.held(), []);
    holdings.settle(&batch);
    assert_eq!(holdings.held(), []);
    holdings.came(&slot(entry, 10));
    holdings.came(&slot(part, 1000).sliced());
    holdings.came(&slot(part, 5));
    holdings.left(&slot(part, 5), Leave::Removed);
    let held = Held {
        entries: 1,
        slices: 1,
        disk_bytes: 96 + 96 + 1000,
        body_bytes: 1010,
    };
    assert_eq!(holdings.held(), [(Bytes::from_static(b"one"), held)]);
    let departed = Departed {
        evicted: 1,
        ..Departed::default()
    };
    let expected = [(Bytes::from_static(b"one"), departed)];
    assert_eq!(book.departed(), expected);
    assert_eq!(book.take_departed(), expected);
    assert_eq!(book.take_departed(), []);
    holdings.left(&slot(entry, 10), Leave::Evicted);
    assert_eq!(book.take_departed(), expected);
}
