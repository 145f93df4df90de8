//! Verdicts on the cases of x509-limbo: `cargo run -p millpond-tls --example limbo -- limbo.json`.
//!
//! `limbo compile -o limbo.json` of that project makes the file. Each case is judged as the chain
//! of an origin or of a client, by the anchors, the lists of revocations, the depth and the time
//! that it names. A line is printed for each verdict that is not the expected one, and a sum at the
//! end.

use std::error::Error;
use std::time::Duration;

use millpond_tls::CertificateDer;
use millpond_tls::certificate::client::ClientVerifier;
use millpond_tls::certificate::load;
use millpond_tls::certificate::origin::OriginVerifier;
use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use millpond_tls::certificate::verdict::Verdict;
use serde_json::Value;

/// The depth of a case that names none.
const DEPTH: u32 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("the file of cases is missing")?;
    let suite: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let cases = suite["testcases"].as_array().ok_or("no cases")?;
    let (mut as_expected, mut too_strict, mut too_mild) = (0, 0, 0);
    for case in cases {
        let verdict = judge(case)?;
        let is_wanted = case["expected_result"] == "SUCCESS";
        if verdict.is_ok() == is_wanted {
            as_expected += 1;
            continue;
        }
        if is_wanted {
            too_strict += 1;
        } else {
            too_mild += 1;
        }
        let id = case["id"].as_str().unwrap_or_default();
        println!("{id}: {}", verdict.err().unwrap_or("accepted".to_owned()));
    }
    println!("{as_expected} as expected, {too_strict} refused, {too_mild} accepted");
    Ok(())
}

/// The verdict on a case; an error is the reason of a refusal.
fn judge(case: &Value) -> Result<Result<(), String>, Box<dyn Error>> {
    let is_client = case["validation_kind"] == "CLIENT";
    let authorities = texts(&case["trusted_certs"]);
    let revocations = texts(&case["crls"]);
    let rules = Rules {
        peer: if is_client {
            Peer::Client
        } else {
            Peer::Origin
        },
        depth: case["max_chain_depth"]
            .as_u64()
            .map_or(DEPTH, |depth| depth as u32),
        time: time_of(case)?,
    };
    let anchors = Anchors {
        authorities: &authorities,
        revocations: &revocations,
    };
    let trust = match Trust::new(anchors, rules) {
        Ok(trust) => trust.into(),
        Err(failure) => return Ok(Err(format!("not loaded: {failure:?}"))),
    };
    let Some(chain) = chain_of(case) else {
        return Ok(Err("the chain is not readable".to_owned()));
    };
    if is_client {
        let verdict = ClientVerifier::new(trust, &[]).verdict(Some(&chain));
        let said = verdict.to_string();
        return Ok(if said == "SUCCESS" { Ok(()) } else { Err(said) });
    }
    let Some(name) = case["expected_peer_name"]["value"].as_str() else {
        let said = trust.judge(&chain);
        return Ok(if said == Verdict::Success {
            Ok(())
        } else {
            Err(said.to_string())
        });
    };
    let verdict = OriginVerifier::new(trust).check(&chain, name);
    Ok(verdict.map_err(|refused| refused.to_string()))
}

/// The texts of a list.
fn texts(list: &Value) -> Vec<&[u8]> {
    let texts = list.as_array().into_iter().flatten();
    texts
        .filter_map(|text| Some(text.as_str()?.as_bytes()))
        .collect()
}

/// The chain of a case, the peer's certificate first.
fn chain_of(case: &Value) -> Option<Vec<CertificateDer<'static>>> {
    let leaf = case["peer_certificate"].as_str()?;
    let mut chain = load::chain(leaf.as_bytes()).ok()?;
    for text in texts(&case["untrusted_intermediates"]) {
        chain.extend(load::chain(text).ok()?);
    }
    Some(chain)
}

/// The time of a case, since 1970; without one, now.
fn time_of(case: &Value) -> Result<Option<Duration>, Box<dyn Error>> {
    let Some(text) = case["validation_time"].as_str() else {
        return Ok(None);
    };
    let time: jiff::Timestamp = text.parse()?;
    Ok(Some(Duration::from_secs(time.as_second().try_into()?)))
}
