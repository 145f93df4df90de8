//! Bytes that were changed on the way never make it panic.

use millpond_tls::certificate::facts::Certificate;
use millpond_tls::certificate::host::is_good_for;
use millpond_tls::certificate::load::{authorities, certified, chain, key, revocations};
use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use proptest::prelude::*;
use rustls::pki_types::CertificateDer;
use std::sync::LazyLock;

use crate::kit::{Make, Party};

static ROOT: LazyLock<Party> = LazyLock::new(|| Make::root("root").make());
static LEAF: LazyLock<Party> = LazyLock::new(|| {
    Make::new("a.test")
        .by(&ROOT)
        .names(&["DNS:a.test", "IP:127.0.0.1"])
        .make()
});
static TRUST: LazyLock<Trust> = LazyLock::new(|| {
    let rules = Rules {
        peer: Peer::Client,
        depth: 1,
        time: None,
    };
    let list = ROOT.revokes(&[3], (-1, 2));
    let root = ROOT.pem();
    let anchors = Anchors {
        authorities: &[&root],
        revocations: &[&list],
    };
    Trust::new(anchors, rules).unwrap()
});

/// A place in bytes, and what stands there instead.
fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
}

fn changed(mut bytes: Vec<u8>, changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    for (place, byte) in changes {
        let at = place.index(bytes.len());
        bytes[at] = *byte;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn certificates(changes in changes()) {
        let der = CertificateDer::from(changed(LEAF.der().to_vec(), &changes));
        if let Some(facts) = Certificate::parse(&der) {
            facts.subject();
            facts.legacy_issuer();
            facts.serial();
            facts.not_after();
            facts.remaining_days(0);
            facts.alternative_names();
            facts.escaped_pem();
        }
        is_good_for(&der, "a.test");
        is_good_for(&der, "127.0.0.1");
        let _ = TRUST.judge(std::slice::from_ref(&der)).to_string();
        let _ = TRUST.judge(&[LEAF.der(), der]).to_string();
    }

    #[test]
    fn texts(changes in changes(), cut in any::<prop::sample::Index>()) {
        let list = ROOT.revokes(&[3], (-1, 2));
        let text = [LEAF.key_pem(), LEAF.pem(), ROOT.pem(), list].concat();
        let text = changed(text, &changes);
        let cut = cut.index(text.len());
        for text in [&text[..], &text[..cut]] {
            let key = key(text, &[]);
            if let (Ok(chain), Ok(key)) = (chain(text), key) {
                let _ = certified(chain, &key);
            }
            let _ = authorities(text);
            let _ = revocations(text);
        }
    }
}
