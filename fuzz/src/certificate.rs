//! Certificates, keys and lists of revocations: no text and no DER makes a reader panic, and what
//! was read as a chain is read again.

use std::sync::LazyLock;

use millpond_tls::certificate::facts::Certificate;
use millpond_tls::certificate::host::is_good_for;
use millpond_tls::certificate::load::{authorities, certified, chain, key, revocations};
use millpond_tls::certificate::password::passwords;
use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use millpond_tls::certificate::verdict::Verdict;
use rustls_pki_types::CertificateDer;

/// Trust in nobody.
static TRUST: LazyLock<Option<Trust>> = LazyLock::new(|| {
    let rules = Rules {
        peer: Peer::Client,
        depth: 1,
        time: Some(std::time::Duration::from_secs(1_800_000_000)),
    };
    Trust::new(Anchors::default(), rules).ok()
});

/// Reads the bytes as a text, and as a certificate.
pub fn run(data: &[u8]) {
    let words = passwords(data).unwrap_or_default();
    let key = key(data, words.get(..2).unwrap_or(&words));
    let _ = revocations(data);
    let _ = authorities(data);
    if let Ok(chain) = chain(data) {
        for certificate in &chain {
            check(certificate);
        }
        if let Ok(key) = &key {
            let _ = certified(chain, key);
        }
    }
    check(&CertificateDer::from(data));
}

fn check(der: &CertificateDer<'_>) {
    let Some(facts) = Certificate::parse(der) else {
        return;
    };
    facts.subject();
    facts.legacy_issuer();
    facts.serial();
    facts.not_before();
    facts.remaining_days(0);
    facts.alternative_names();
    assert!(!facts.folded_pem().contains("\n-"), "lines are folded");
    assert!(!facts.escaped_pem().contains([' ', '\n', '+']));
    is_good_for(der, "a.test");
    is_good_for(der, "127.0.0.1");
    if let Some(trust) = &*TRUST {
        let verdict = trust.judge(std::slice::from_ref(der));
        assert_ne!(verdict, Verdict::Success, "nobody is trusted");
    }
}
