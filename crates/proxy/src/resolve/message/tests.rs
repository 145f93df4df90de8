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
    let alias = record(TYPE_CNAME, 9, b"\x03ali\xc0\x0e");
    let address = record(TYPE_A, 20, &[127, 0, 0, 1]);
    let message = reply(0x8180, 2, &[alias, address].concat());
    let read = answer(&message, A).unwrap();
    assert_eq!(read.addresses, [IpAddr::from([127, 0, 0, 1])]);
    assert_eq!(read.alias.as_deref(), Some("ali.b"));
    assert_eq!(read.ttl, Some(9));
}

#[test]
fn services_have_targets() {
    let data = b"\x00\x01\x00\x05\x1f\x90\x01h\xc0\x0e";
    let mut message = reply(0x8180, 1, &record(TYPE_SRV, 1, data));
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
    let good = record(TYPE_A, 1, &[127, 0, 0, 1]);
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
    assert_eq!(with(&|m| m[13] = 0xff), Err(Unfit::Name));
    assert_eq!(with(&|m| m[26] = 9), Err(Unfit::Record));
    let code = |m: &mut Vec<u8>| m[3] |= 3;
    assert_eq!(with(&code).unwrap().code, 3);
    assert!(with(&|m| m[2] |= 2).unwrap().is_truncated);
    // A pointer to itself.
    assert_eq!(
        with(&|m| m[12..14].copy_from_slice(&[0xc0, 12])),
        Err(Unfit::Name)
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = answer(&bytes, A);
        let _ = answer(&reply(0x8180, 3, &bytes), A);
    }
}
