//! Names of origins against names of certificates, and `openssl x509 -checkhost`.

use millpond_tls::certificate::host::is_good_for;
use openssl::nid::Nid;
use openssl::x509::X509Name;

use crate::kit::{Make, Party, Weight};
use crate::oracle::{file, openssl};

/// The opinion of `openssl x509` on a name; `option` is `-checkhost` or `-checkip`.
fn command_line(party: &Party, option: &str, name: &str) -> bool {
    let pem = file(&party.pem());
    let path = pem.path().to_str().unwrap();
    let said = openssl(&["x509", "-noout", option, name, "-in", path], &[]);
    said.unwrap_or_else(|said| said).contains("does match")
}

#[test]
fn names_fit_as_openssl_says() {
    let cn = Make::new("cn.example.com").make();
    let san = Make::new("cn.example.com")
        .names(&["DNS:example.com", "DNS:*.wild.test", "DNS:f*.part.test"])
        .make();
    let mail = Make::new("cn.example.com").names(&["MAIL:a@b.c"]).make();
    for (party, name, expected) in [
        (&cn, "cn.example.com", true),
        (&cn, "CN.EXAMPLE.com", true),
        (&cn, "other.example.com", false),
        (&san, "example.com", true),
        (&san, "cn.example.com", false),
        (&san, "a.wild.test", true),
        (&san, "a.b.wild.test", false),
        (&san, "wild.test", false),
        (&san, "foo.part.test", true),
        (&san, "bar.part.test", false),
        (&mail, "cn.example.com", true),
        (&cn, "x_y", false),
    ] {
        assert_eq!(is_good_for(&party.der(), name), expected, "{name}");
        assert_eq!(command_line(party, "-checkhost", name), expected, "{name}");
    }
    assert!(!is_good_for(&cn.der(), ""));
    assert!(!is_good_for(&cn.der(), "cn.example.com\0"));
}

#[test]
fn each_common_name_counts() {
    let mut name = X509Name::builder().unwrap();
    name.append_entry_by_nid(Nid::COMMONNAME, "first.test")
        .unwrap();
    name.append_entry_by_nid(Nid::COMMONNAME, "second.test")
        .unwrap();
    let party = Make::new("x").make_named(Some(name.build()));
    for name in ["first.test", "second.test"] {
        assert!(is_good_for(&party.der(), name));
        assert!(command_line(&party, "-checkhost", name));
    }
}

#[test]
fn addresses_fit_addresses() {
    let party = Make::new("127.0.0.9")
        .names(&["IP:127.0.0.1", "IP:::1", "DNS:localhost"])
        .make();
    for (name, expected) in [
        ("127.0.0.1", true),
        ("127.0.0.2", false),
        ("::1", true),
        ("[::1]", true),
        ("localhost", true),
    ] {
        assert_eq!(is_good_for(&party.der(), name), expected, "{name}");
    }
    assert!(command_line(&party, "-checkip", "127.0.0.1"));
    // The common name counts if there is no name of a host, as in nginx.
    let cn = Make::new("127.0.0.9").make();
    assert!(is_good_for(&cn.der(), "127.0.0.9"));
}

#[test]
fn a_certificate_may_be_over_and_strange_and_still_has_names() {
    let party = Make::new("old.test")
        .days(-9, -2)
        .raw("1.3.6.1.4.1.99999.1", Weight::Critical, &[5, 0])
        .make();
    assert!(is_good_for(&party.der(), "old.test"));
    let v1 = Make::new("old.test").v1().make();
    assert!(is_good_for(&v1.der(), "old.test"));
    let root = Make::root("root").make();
    let below = Make::new("old.test").by(&root).for_servers().make();
    assert!(is_good_for(&below.der(), "old.test"));
}
