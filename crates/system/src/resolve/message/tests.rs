//! Messages: what is believed, and that no bytes do harm.

use proptest::prelude::*;

use super::*;

const A: (u16, &str, Kind) = (7, "a.b", Kind::A);

/// An answer to the question `A` with these flags, so many answers, and these bytes of them.
fn reply(flags: u16, answers: u16, records: &[u8]) -> Vec<u8> {
    let mut message = vec![0, 7];
    message.extend(flags.to_be_bytes());
    message.extend([0, 1]);
    message.extend(answers.to_be_bytes());
    message.extend([0, 0, 0, 0]);
    message.extend(b"\x01a\x01b\x00\x00\x01\x00\x01");
    message.extend(records);
    message
}

fn record(number: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut record = vec![0xc0, 0x0c];
    record.extend(number.to_be_bytes());
    record.extend([0, 1]);
    record.extend(ttl.to_be_bytes());
    record.extend((data.len() as u16).to_be_bytes());
    record.extend(data);
    record
}

#[test]
fn questions_are_written_label_by_label() {
    let expected =
        b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x01b\x00\x00\x1c\x00\x01";
    assert_eq!(question(7, "a.b", Kind::Aaaa).unwrap(), expected);
    for name in ["", ".", "a..b", "a.", &"x".repeat(64), &"x.".repeat(300)] {
        assert_eq!(question(7, name, Kind::A), None, "{name}");
    }
}

#[test]
fn answers_have_addresses_an_alias_and_the_least_time() {
    let alias = record(5, 9, b"\x03ali\xc0\x0e");
    let address = record(1, 20, &[127, 0, 0, 1]);
    let message = reply(0x8180, 2, &[alias, address].concat());
    let read = answer(&message, A).unwrap();
    assert_eq!(read.addresses, [IpAddr::from([127, 0, 0, 1])]);
    assert_eq!(read.alias.as_deref(), Some("ali.b"));
    assert_eq!(read.ttl, Some(9));
}

#[test]
fn services_have_targets() {
    let data = b"\x00\x01\x00\x05\x1f\x90\x01h\xc0\x0e";
    let mut message = reply(0x8180, 1, &record(33, 1, data));
    message[18] = 33;
    let read = answer(&message, (7, "a.b", Kind::Srv)).unwrap();
    let target = Target {
        priority: 1,
        weight: 5,
        port: 8080,
        host: "h.b".to_string(),
    };
    assert_eq!(read.targets, [target]);
}

#[test]
fn what_is_no_answer_is_told_apart() {
    let good = record(1, 1, &[127, 0, 0, 1]);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut message = reply(0x8180, 1, &good);
        change(&mut message);
        answer(&message, A)
    };
    assert_eq!(with(&|m| m[1] = 8), Err(Unfit::Other));
    assert_eq!(with(&|m| m[2] = 0), Err(Unfit::Flags));
    assert_eq!(with(&|m| m[3] |= 1), Err(Unfit::Format));
    assert_eq!(with(&|m| m[13] = b'x'), Err(Unfit::Other));
    assert_eq!(with(&|m| m.truncate(36)), Err(Unfit::Short));
    assert_eq!(with(&|m| m[13] = 0xff), Err(Unfit::Other));
    assert_eq!(with(&|m| m[26] = 9), Err(Unfit::Record));
    let code = |m: &mut Vec<u8>| m[3] |= 3;
    assert_eq!(with(&code).unwrap().code, 3);
    assert!(with(&|m| m[2] |= 2).unwrap().is_truncated);
}

#[test]
fn records_that_cannot_be_read_are_told_apart() {
    let read = |number, data: &[u8]| answer(&reply(0x8180, 1, &record(number, 1, data)), A);
    // Data begin at byte 33 of the message.
    for (number, data, why) in [
        (1, &b""[..], Unfit::Short),
        (1, b"\x7f\0\0", Unfit::Short),
        (1, b"\x7f\0\0\x01\0", Unfit::Record),
        (28, &[0; 16], Unfit::Record),
        (5, b"\x01a", Unfit::Short),
        (5, b"\x01a\0\0", Unfit::Record),
        (5, b"\x01\"\0", Unfit::Name),
        (5, b"\x41a\0", Unfit::Name),
        // A pointer to itself, and one ahead.
        (5, b"\xc0\x21", Unfit::Name),
        (5, b"\xc0\x23\0", Unfit::Name),
    ] {
        assert_eq!(read(number, data), Err(why), "{number}: {data:?}");
    }
    // Records that were not asked for are passed over.
    assert_eq!(read(16, b"\xff").unwrap().addresses, [] as [IpAddr; 0]);
}

#[test]
fn names_that_are_longer_than_dns_allows_are_asked_for_and_followed() {
    let label = "x".repeat(63);
    let name = [label.as_str(); 4].join(".");
    let asked = question(7, &name, Kind::A).unwrap();
    assert_eq!(asked.len(), 12 + 257 + 4);
    let mut message = asked.clone();
    message[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 2]);
    // An alias to the very name that was asked for, by a pointer to it.
    message.extend(record(5, 9, &[0xc0, 0x0c]));
    message.extend(record(1, 9, &[127, 0, 0, 1]));
    let read = answer(&message, (7, &name, Kind::A)).unwrap();
    assert_eq!(read.alias.as_deref(), Some(name.as_str()));
    assert_eq!(read.addresses, [IpAddr::from([127, 0, 0, 1])]);
    // More than NAME_MAX, and a pointer to itself where the name is too long already.
    let wire = [&[63][..], label.as_bytes()].concat();
    let endless = [wire.repeat(4), vec![0xc0, 0x21]].concat();
    for data in [wire.repeat(9), endless] {
        let message = reply(0x8180, 1, &record(5, 9, &data));
        assert_eq!(answer(&message, A), Err(Unfit::Name));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = answer(&bytes, A);
        let _ = answer(&reply(0x8180, 3, &bytes), A);
        let _ = answer(&reply(0x8180, 1, &record(5, 1, &bytes)), A);
        let mut message = reply(0x8180, 1, &record(33, 1, &bytes));
        message[18] = 33;
        let _ = answer(&message, (7, "a.b", Kind::Srv));
        let _ = super::name::read(&mut BinDecoder::new(&bytes));
    }
}
