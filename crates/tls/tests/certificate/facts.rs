//! Facts of certificates against `openssl x509`.

use millpond_tls::certificate::facts::{AlternativeName, Certificate};
use openssl::asn1::Asn1Type;
use openssl::nid::Nid;
use openssl::x509::{X509Name, X509NameBuilder};
use std::path::Path;

use crate::kit::{Make, Party, now_s};
use crate::oracle::{file, openssl};

fn command_line(party: &Party, arguments: &[&str]) -> String {
    let pem = file(&party.pem());
    let path: &Path = pem.path();
    let all = [&["x509", "-noout"], arguments, &["-in"]].concat();
    openssl(&all, &[path]).unwrap().trim_end().to_owned()
}

fn facts(party: &Party) -> Certificate {
    Certificate::parse(&party.der()).unwrap()
}

fn add(name: &mut X509NameBuilder, kind: Nid, value: &str, form: Asn1Type) {
    name.append_entry_by_nid_with_type(kind, value, form)
        .unwrap();
}

/// Names with all that has to be escaped.
fn names() -> Vec<X509Name> {
    let values = [
        "plain",
        " space before and after ",
        "#number",
        "a,b+c\"d\\e<f>g;h=i/j",
        "tab\tand\u{7f}",
        "\u{fc}ml\u{e4}ut \u{4e2d}\u{1f980}",
        " ",
        "",
    ];
    let mut names = Vec::new();
    for value in values {
        let mut name = X509Name::builder().unwrap();
        add(&mut name, Nid::COUNTRYNAME, "DE", Asn1Type::PRINTABLESTRING);
        if !value.is_empty() {
            add(
                &mut name,
                Nid::ORGANIZATIONNAME,
                value,
                Asn1Type::UTF8STRING,
            );
        }
        add(&mut name, Nid::COMMONNAME, "x", Asn1Type::UTF8STRING);
        add(
            &mut name,
            Nid::PKCS9_EMAILADDRESS,
            "a@b.c",
            Asn1Type::IA5STRING,
        );
        names.push(name.build());
    }
    // Types of one, two and four bytes a character.
    for (value, form) in [
        ("t\u{e9}l", Asn1Type::T61STRING),
        ("\0b\u{4}m\0p", Asn1Type::BMPSTRING),
        ("\0\0\0w", Asn1Type::UNIVERSALSTRING),
        ("12 3", Asn1Type::NUMERICSTRING),
    ] {
        let mut name = X509Name::builder().unwrap();
        add(&mut name, Nid::ORGANIZATIONNAME, value, form);
        names.push(name.build());
    }
    names
}

#[test]
fn names_read_as_openssl_prints_them() {
    for name in names() {
        let party = Make::new("x").make_named(Some(name));
        let expected = command_line(&party, &["-subject", "-nameopt", "RFC2253"]);
        assert_eq!(format!("subject={}", facts(&party).subject()), expected);
        assert_eq!(facts(&party).subject(), facts(&party).issuer());
    }
}

#[test]
fn unknown_kinds_and_joined_parts_are_printed() {
    // C=DE / (CN=a + OU=b) / 1.2.3.4=x
    let der: &[u8] = &[
        0x30, 0x2f, 0x31, 0x0b, 0x30, 0x09, 6, 3, 0x55, 4, 6, 0x13, 2, b'D', b'E', 0x31, 0x14,
        0x30, 0x08, 6, 3, 0x55, 4, 3, 0x0c, 1, b'a', 0x30, 0x08, 6, 3, 0x55, 4, 0x0b, 0x0c, 1,
        b'b', 0x31, 0x0a, 0x30, 0x08, 6, 3, 0x2a, 3, 4, 0x0c, 1, b'x',
    ];
    let party = Make::new("x").make_named(Some(X509Name::from_der(der).unwrap()));
    let expected = command_line(&party, &["-subject", "-nameopt", "RFC2253"]);
    assert_eq!(facts(&party).subject(), "1.2.3.4=#0C0178,OU=b+CN=a,C=DE");
    assert_eq!(format!("subject={}", facts(&party).subject()), expected);
    assert_eq!(facts(&party).legacy_subject(), "/C=DE/CN=a+OU=b/1.2.3.4=x");
}

#[test]
fn the_line_of_old_escapes_what_is_not_printable() {
    let mut name = X509Name::builder().unwrap();
    add(
        &mut name,
        Nid::ORGANIZATIONNAME,
        "a/b+c=d\\e,\u{1}",
        Asn1Type::UTF8STRING,
    );
    add(&mut name, Nid::COMMONNAME, "\u{fc}", Asn1Type::UTF8STRING);
    let party = Make::new("x").make_named(Some(name.build()));
    // As X509_NAME_oneline() of OpenSSL 3.0 has it.
    let expected = "/O=a\\/b\\+c=d\\e,\\x01/CN=\\xC3\\xBC";
    assert_eq!(facts(&party).legacy_subject(), expected);
    assert_eq!(facts(&party).legacy_issuer(), expected);
}

#[test]
fn numbers_and_times_read_as_openssl_prints_them() {
    for serial in [0, 1, 0x7f, 0x80, 0x1000, u32::MAX] {
        let party = Make::new("x").serial(serial).make();
        let expected = command_line(&party, &["-serial"]);
        assert_eq!(format!("serial={}", facts(&party).serial()), expected);
    }
    let party = Make::new("x").days(-3, 9).make();
    let facts = facts(&party);
    let expected = command_line(&party, &["-startdate", "-enddate"]);
    let found = format!(
        "notBefore={}\nnotAfter={}",
        facts.not_before(),
        facts.not_after()
    );
    assert_eq!(found, expected);
    let fingerprint = command_line(&party, &["-fingerprint", "-sha1"]);
    let digits = fingerprint.split('=').nth(1).unwrap().replace(':', "");
    assert_eq!(facts.fingerprint(), digits.to_lowercase());
}

#[test]
fn days_that_remain_are_whole() {
    let now = now_s();
    let party = Make::new("x").days(-3, 9).make();
    let facts = facts(&party);
    for (later_s, days) in [
        (60, "8"),
        (-60, "9"),
        (8 * 86_400 + 60, "0"),
        (99 * 86_400, "0"),
    ] {
        assert_eq!(facts.remaining_days(now + later_s), days);
    }
    assert!(facts.remaining_s(now + 99 * 86_400).unwrap() < 0);
}

#[test]
fn pem_is_plain_folded_and_escaped() {
    let party = Make::new("x").make();
    let facts = facts(&party);
    let pem = String::from_utf8(party.pem()).unwrap();
    assert_eq!(facts.pem(), pem);
    let folded = facts.folded_pem();
    assert!(
        folded.starts_with("-----BEGIN CERTIFICATE-----\n\tMI"),
        "{folded}"
    );
    assert!(
        folded.ends_with("\n\t-----END CERTIFICATE-----"),
        "{folded}"
    );
    assert_eq!(folded.replace("\n\t", "\n") + "\n", pem);
    let escaped = facts.escaped_pem();
    assert!(
        escaped.starts_with("-----BEGIN%20CERTIFICATE-----%0AMI"),
        "{escaped}"
    );
    assert!(
        escaped.ends_with("-----END%20CERTIFICATE-----%0A"),
        "{escaped}"
    );
    assert!(!escaped.contains(['+', '/', '=', '\n', ' ']), "{escaped}");
}

#[test]
fn alternative_names_are_hosts_and_addresses() {
    let party = Make::new("x")
        .names(&[
            "DNS:a.test",
            "IP:127.0.0.1",
            "MAIL:a@b.c",
            "IP:::1",
            "DNS:*.b.test",
        ])
        .make();
    let host = |name: &str| AlternativeName::Host(name.to_owned());
    let address = |text: &str| AlternativeName::Address(text.parse().unwrap());
    assert_eq!(
        facts(&party).alternative_names(),
        [
            host("a.test"),
            address("127.0.0.1"),
            address("::1"),
            host("*.b.test")
        ]
    );
    assert!(facts(&Make::new("x").make()).alternative_names().is_empty());
}
