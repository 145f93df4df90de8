//! Verdicts on chains: the text, libssl's last error as nginx has it, and `openssl verify`.

use std::fmt::Write as _;

use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use millpond_tls::certificate::verdict::Verdict;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::x509::X509;
use openssl::x509::extension::KeyUsage;

use crate::kit::{Make, Party, Weight, bundle, sent};
use crate::oracle::{Question, file, last_error, openssl, verify};

/// Shows that a chain has this verdict here, in nginx, and on the command line.
fn assert_verdict(question: Question<'_>, expected: &str) {
    let verdict = judge(question);
    let number = match verdict {
        Verdict::Failed(fault) => fault.code,
        Verdict::Success => 0,
        Verdict::None => panic!("a chain was sent"),
    };
    let mut chain = String::new();
    for party in question.chain {
        let _ = write!(chain, "{:?} ", party.certificate.subject_name());
    }
    // Newer versions of OpenSSL say more about times.
    let text = verdict.to_string();
    assert!(
        text.starts_with(expected),
        "{expected}, not {text}: {chain}"
    );
    assert_eq!(number, last_error(question), "libssl differs: {chain}");
    let said = verify(question);
    assert_eq!(said.is_ok(), verdict == Verdict::Success, "{said:?}");
}

fn judge(question: Question<'_>) -> Verdict {
    let rules = Rules {
        peer: Peer::Client,
        depth: question.depth,
        time: None,
    };
    let revocations: Vec<&[u8]> = question.revocations.into_iter().collect();
    let anchors = Anchors {
        authorities: &[question.authorities],
        revocations: &revocations,
    };
    let trust = Trust::new(anchors, rules).unwrap();
    trust.judge(&sent(question.chain))
}

fn asked<'a>(authorities: &'a [u8], chain: &'a [&'a Party]) -> Question<'a> {
    Question {
        authorities,
        revocations: None,
        chain,
        depth: 1,
    }
}

const SUCCESS: &str = "SUCCESS";

/// An authority, one below it, and a peer below that.
struct Family {
    root: Party,
    middle: Party,
    leaf: Party,
}

impl Family {
    fn new() -> Self {
        let root = Make::root("root").make();
        let mut usage = KeyUsage::new();
        usage.critical().key_cert_sign().crl_sign();
        usage.digital_signature();
        let middle = Make::new("middle")
            .by(&root)
            .ca(None)
            .key_usage(&usage)
            .serial(7)
            .make();
        let leaf = Make::new("leaf").by(&middle).serial(8).make();
        Self { root, middle, leaf }
    }
}

#[test]
fn no_certificate_is_no_verdict() {
    let root = Make::root("root").make();
    assert_eq!(judge(asked(&root.pem(), &[])).to_string(), "NONE");
}

#[test]
fn chains_to_an_authority_are_good() {
    let family = Family::new();
    let Family { root, middle, leaf } = &family;
    assert_verdict(asked(&root.pem(), &[leaf, middle]), SUCCESS);
    assert_verdict(asked(&bundle(&[root, middle]), &[leaf]), SUCCESS);
    assert_verdict(asked(&root.pem(), &[middle]), SUCCESS);
    // More than is needed may be sent, in any order.
    let stranger = Make::root("stranger").make();
    assert_verdict(
        asked(&root.pem(), &[leaf, &stranger, root, middle]),
        SUCCESS,
    );
}

#[test]
fn depth_counts_those_between() {
    let root = Make::root("root").make();
    let first = Make::root("first").by(&root).make();
    let second = Make::root("second").by(&first).make();
    let third = Make::root("third").by(&second).make();
    let leaf = Make::new("leaf").by(&third).make();
    let all: [&Party; 4] = [&leaf, &third, &second, &first];
    let root_pem = root.pem();
    let chains: [&[&Party]; 4] = [
        &[&first],
        &[&second, &first],
        &[&third, &second, &first],
        &all,
    ];
    for (between, chain) in (0..).zip(chains) {
        for depth in 0..=3 {
            let question = Question {
                depth,
                ..asked(&root_pem, chain)
            };
            // OpenSSL stops to build and has no issuer then.
            let text = if between <= depth {
                SUCCESS
            } else {
                "FAILED:unable to get local issuer certificate"
            };
            assert_verdict(question, text);
        }
    }
}

#[test]
fn authorities_are_good_as_peers() {
    let root = Make::root("root").make();
    let client = Make::root("client").by(&root).make();
    assert_verdict(asked(&root.pem(), &[&client]), SUCCESS);
    // Its own anchor.
    assert_verdict(asked(&root.pem(), &[&root]), SUCCESS);
    let (root_pem, chain) = (root.pem(), [&root]);
    let question = Question {
        depth: 0,
        ..asked(&root_pem, &chain)
    };
    assert_verdict(question, SUCCESS);
}

#[test]
fn version_1_is_good() {
    let root = Make::new("root").v1().make();
    let leaf = Make::new("leaf").by(&root).v1().make();
    assert_verdict(asked(&root.pem(), &[&leaf]), SUCCESS);
    let modern = Make::root("modern").make();
    let leaf = Make::new("leaf").by(&modern).v1().make();
    assert_verdict(asked(&modern.pem(), &[&leaf]), SUCCESS);
}

#[test]
fn strangers_are_refused_by_kind() {
    let family = Family::new();
    let Family { root, middle, leaf } = &family;
    let trusted = Make::root("other").make().pem();
    for (chain, text) in [
        (&[leaf][..], "unable to verify the first certificate"),
        (&[root], "self-signed certificate"),
        (
            &[leaf, middle, root],
            "self-signed certificate in certificate chain",
        ),
        (&[leaf, middle], "unable to get local issuer certificate"),
    ] {
        assert_verdict(asked(&trusted, chain), &format!("FAILED:{text}"));
    }
    let text = "FAILED:unable to get issuer certificate";
    assert_verdict(asked(&middle.pem(), &[leaf]), text);
    // One more between is too many, but that is not the last word.
    let chain = [leaf, middle, root];
    let question = Question {
        depth: 0,
        ..asked(&trusted, &chain)
    };
    assert_verdict(question, "FAILED:unable to get local issuer certificate");
}

#[test]
fn time_is_the_last_word() {
    let root = Make::root("root").make();
    let expired = Make::new("expired").by(&root).days(-9, -2).make();
    let early = Make::new("early").by(&root).days(2, 9).make();
    let old = Make::root("old").by(&root).days(-9, -2).make();
    let below = Make::new("below").by(&old).make();
    for chain in [&[&expired][..], &[&below, &old]] {
        assert_verdict(asked(&root.pem(), chain), "FAILED:certificate has expired");
    }
    let text = "FAILED:certificate is not yet valid";
    assert_verdict(asked(&root.pem(), &[&early]), text);
    // Nobody trusts it, and it is over.
    let trusted = Make::root("other").make().pem();
    let alone = Make::root("alone").days(-9, -2).make();
    for chain in [&[&alone][..], &[&expired], &[&expired, &root]] {
        assert_verdict(asked(&trusted, chain), "FAILED:certificate has expired");
    }
}

#[test]
fn uses_and_constraints_are_obeyed() {
    let root = Make::root("root").make();
    let server = Make::new("server").by(&root).for_servers().make();
    let text = "FAILED:unsuitable certificate purpose";
    assert_verdict(asked(&root.pem(), &[&server]), text);

    let strange = Make::new("strange")
        .by(&root)
        .raw("1.3.6.1.4.1.99999.1", Weight::Critical, &[5, 0])
        .make();
    let text = "FAILED:unhandled critical extension";
    assert_verdict(asked(&root.pem(), &[&strange]), text);

    let plain = Make::new("plain").by(&root).make();
    let below = Make::new("below").by(&plain).make();
    let text = "FAILED:unsuitable certificate purpose";
    assert_verdict(asked(&root.pem(), &[&below, &plain]), text);

    let short = Make::new("short").by(&root).ca(Some(0)).make();
    let middle = Make::root("middle").by(&short).make();
    let leaf = Make::new("leaf").by(&middle).make();
    let (root_pem, chain) = (root.pem(), [&leaf, &middle, &short]);
    let question = Question {
        depth: 5,
        ..asked(&root_pem, &chain)
    };
    assert_verdict(question, "FAILED:path length constraint exceeded");
}

#[test]
fn names_outside_of_constraints_are_refused() {
    let root = Make::root("root").make();
    // Permitted: example.com.
    let permitted = [
        &[0x30, 0x11, 0xa0, 0x0f, 0x30, 0x0d, 0x82, 0x0b][..],
        b"example.com",
    ]
    .concat();
    let middle = Make::root("middle")
        .by(&root)
        .raw("2.5.29.30", Weight::Critical, &permitted)
        .make();
    let inside = Make::new("a")
        .by(&middle)
        .names(&["DNS:a.example.com"])
        .make();
    let outside = Make::new("b").by(&middle).names(&["DNS:b.test"]).make();
    assert_verdict(asked(&root.pem(), &[&inside, &middle]), SUCCESS);
    let text = "FAILED:permitted subtree violation";
    assert_verdict(asked(&root.pem(), &[&outside, &middle]), text);
}

#[test]
fn broken_signatures_are_refused() {
    let root = Make::root("root").make();
    let leaf = Make::new("leaf").by(&root).make();
    let mut der = leaf.certificate.to_der().unwrap();
    // The last byte is of the signature's second number.
    *der.last_mut().unwrap() ^= 1;
    let forged = Party {
        certificate: X509::from_der(&der).unwrap(),
        key: leaf.key,
    };
    let text = "FAILED:certificate signature failure";
    assert_verdict(asked(&root.pem(), &[&forged]), text);
}

#[test]
fn weak_keys_are_refused() {
    let root = Make::root("root").make();
    let weak = PKey::from_rsa(Rsa::generate(1024).unwrap()).unwrap();
    let leaf = Make::new("leaf").by(&root).key(weak).make();
    assert_verdict(
        asked(&root.pem(), &[&leaf]),
        "FAILED:EE certificate key too weak",
    );
}

#[test]
fn revoked_certificates_are_refused_at_each_level() {
    let Family { root, middle, leaf } = Family::new();
    let good = (-1, 5);
    let of_root = root.revokes(&[], good);
    let of_middle = middle.revokes(&[], good);
    let middle_revoked = root.revokes(&[7], good);
    let leaf_revoked = middle.revokes(&[8], good);
    let missing = "FAILED:unable to get certificate CRL";
    let revoked = "FAILED:certificate revoked";
    let root_pem = root.pem();
    let chain = [&leaf, &middle];
    for (lists, expected) in [
        (vec![&of_root, &of_middle], SUCCESS),
        (vec![&of_root], missing),
        (vec![&of_middle], missing),
        (vec![&of_root, &leaf_revoked], revoked),
        (vec![&middle_revoked, &of_middle], revoked),
        // The last word is that of the highest.
        (vec![&middle_revoked], revoked),
        (vec![&leaf_revoked], missing),
    ] {
        let lists: Vec<u8> = lists.into_iter().flatten().copied().collect();
        let question = Question {
            revocations: Some(&lists),
            ..asked(&root_pem, &chain)
        };
        assert_verdict(question, expected);
    }
}

#[test]
fn lists_have_their_time() {
    /// OpenSSL 3.0.22 names the fault of the list last where a chain has a second one.
    const EXPIRED_LIST: i32 = 12;
    const NO_LIST: i32 = 3;
    let root = Make::root("root").make();
    let leaf = Make::new("leaf").by(&root).serial(4).make();
    let expired = Make::new("expired").by(&root).days(-5, -2).make();
    let stranger = Make::root("stranger").make();
    let [over, early, now] = [(-9, -2), (2, 9), (-1, 2)];
    for (revoked, days, chain, expected, also) in [
        (&[][..], over, &leaf, "CRL has expired", None),
        (&[], early, &leaf, "CRL is not yet valid", None),
        (&[4], over, &leaf, "certificate revoked", Some(EXPIRED_LIST)),
        (&[1], now, &expired, "certificate has expired", None),
        (
            &[],
            now,
            &stranger,
            "self-signed certificate",
            Some(NO_LIST),
        ),
    ] {
        let list = root.revokes(revoked, days);
        let root_pem = root.pem();
        let chain = [chain];
        let question = Question {
            revocations: Some(&list),
            ..asked(&root_pem, &chain)
        };
        let Verdict::Failed(fault) = judge(question) else {
            panic!("{expected}")
        };
        assert_eq!(fault.text, expected);
        let theirs = last_error(question);
        assert!(
            theirs == fault.code || Some(theirs) == also,
            "{expected}: {} here, {theirs} there",
            fault.code
        );
        assert!(verify(question).is_err());
    }
}

#[test]
fn rules_behind_a_certificate_are_obeyed() {
    let root = Make::root("root").make();
    let leaf = Make::new("leaf").by(&root).make();
    let refused = "FAILED:unsuitable certificate purpose";
    for (rule, expected) in [
        (["-addtrust", "clientAuth"], SUCCESS),
        (["-addtrust", "serverAuth"], refused),
        (["-addreject", "clientAuth"], refused),
    ] {
        let plain = file(&root.pem());
        let path = plain.path().to_str().unwrap();
        let arguments = ["x509", "-trustout", rule[0], rule[1], "-in", path];
        let trusted = openssl(&arguments, &[]).unwrap();
        assert!(trusted.contains("BEGIN TRUSTED CERTIFICATE"));
        let chain = [&leaf];
        let question = asked(trusted.as_bytes(), &chain);
        assert_verdict(question, expected);
    }
}

#[test]
fn judgement_has_the_time_that_it_is_given() {
    let root = Make::root("root").days(-400, 400).make();
    let leaf = Make::new("leaf").by(&root).days(-1, 30).make();
    let root_pem = root.pem();
    let at = |days: i64| {
        let seconds = u64::try_from(crate::kit::now_s() + days * 86_400).unwrap();
        let rules = Rules {
            peer: Peer::Client,
            depth: 1,
            time: Some(std::time::Duration::from_secs(seconds)),
        };
        let anchors = Anchors {
            authorities: &[&root_pem],
            revocations: &[],
        };
        let trust = Trust::new(anchors, rules).unwrap();
        trust.judge(&sent(&[&leaf])).to_string()
    };
    assert_eq!(at(0), SUCCESS);
    assert_eq!(at(40), "FAILED:certificate has expired");
    assert!(at(-40).starts_with("FAILED:certificate is not yet valid"));
}
