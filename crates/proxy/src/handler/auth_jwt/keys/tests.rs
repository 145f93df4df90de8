//! Vectors of RFC 7515, and keys that are made here.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaKeyPair,
};
use millpond_wire::base64;

use super::*;

/// Claims of the examples of RFC 7515, appendix A.
const CLAIMS: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt\
                      cGxlLmNvbS9pc19yb290Ijp0cnVlfQ";

fn url(bytes: &[u8]) -> String {
    let text = base64::encode(bytes);
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}

fn set(key: &str) -> KeySet {
    KeySet::parse(format!("{{\"keys\":[{key}]}}").as_bytes()).unwrap()
}

fn verifies(key: &str, token: &str) -> bool {
    let token = Token::parse(token.as_bytes());
    token.is_ok_and(|token| set(key).verifies(&token))
}

#[test]
fn examples_of_rfc_7515_verify_and_changed_ones_do_not() {
    let secret = r#"{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}"#;
    let point = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
    for (key, header, signature) in [
        (
            secret,
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9",
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        ),
        (
            point,
            "eyJhbGciOiJFUzI1NiJ9",
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
    ] {
        let token = format!("{header}.{CLAIMS}.{signature}");
        assert!(verifies(key, &token), "{key}");
        let other = format!("{header}.{}.{signature}", url(b"{\"iss\":\"eve\"}"));
        assert!(!verifies(key, &other), "{key}");
        let short = token.get(..token.len() - 4).unwrap();
        assert!(!verifies(key, short), "{key}");
        assert!(!verifies(key, &format!("{header}.{CLAIMS}.")), "{key}");
    }
}

/// The algorithms of a key, its record, and what signs by one of them.
type Pair = (Vec<&'static str>, String, Sign);

/// The signature of a text by an algorithm.
type Sign = Box<dyn Fn(&str, &[u8]) -> Vec<u8>>;

/// Keys of each kind, as records, and what signs with them.
fn pairs() -> Vec<Pair> {
    let rng = SystemRandom::new();
    let mut pairs: Vec<Pair> = Vec::new();
    let secret = b"a secret of some length, as long as a hash at least".to_vec();
    let record = format!(r#"{{"kty":"oct","k":"{}"}}"#, url(&secret));
    pairs.push((
        vec!["HS256", "HS384", "HS512"],
        record,
        Box::new(move |algorithm, text| {
            let hash = hmac_of(Algorithm::of(algorithm).unwrap()).unwrap();
            let tag = hmac::sign(&hmac::Key::new(hash, &secret), text);
            tag.as_ref().to_vec()
        }),
    ));
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let [n, e] = numbers(rsa.public_key().as_ref());
    pairs.push((
        vec!["RS256", "RS384", "RS512"],
        format!(r#"{{"kty":"RSA","n":"{}","e":"{}"}}"#, url(&n), url(&e)),
        Box::new(move |algorithm, text| {
            let by: &'static dyn signature::RsaEncoding = match algorithm {
                "RS256" => &RSA_PKCS1_SHA256,
                "RS384" => &RSA_PKCS1_SHA384,
                _ => &RSA_PKCS1_SHA512,
            };
            let mut made = vec![0; rsa.public_modulus_len()];
            rsa.sign(by, &SystemRandom::new(), text, &mut made).unwrap();
            made
        }),
    ));
    for (name, curve, by) in [
        ("ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
        ("ES384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        ("ES512", "P-521", &ECDSA_P521_SHA512_FIXED_SIGNING),
    ] {
        let pair = EcdsaKeyPair::generate(by).unwrap();
        let (x, y) = {
            let point = &pair.public_key().as_ref()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            (url(x), url(y))
        };
        let rng = rng.clone();
        pairs.push((
            vec![name],
            format!(r#"{{"kty":"EC","crv":"{curve}","x":"{x}","y":"{y}"}}"#),
            Box::new(move |_, text| pair.sign(&rng, text).unwrap().as_ref().to_vec()),
        ));
    }
    let pair = Ed25519KeyPair::generate().unwrap();
    let x = url(pair.public_key().as_ref());
    pairs.push((
        vec!["EdDSA"],
        format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}"#),
        Box::new(move |_, text| pair.sign(text).as_ref().to_vec()),
    ));
    pairs
}

/// The two numbers of a sequence in DER (RFC 8017 §A.1.1).
fn numbers(der: &[u8]) -> [Vec<u8>; 2] {
    fn value(text: &[u8]) -> (&[u8], &[u8]) {
        let (len, at) = match text[1] {
            0x81 => (usize::from(text[2]), 3),
            0x82 => (usize::from(text[2]) << 8 | usize::from(text[3]), 4),
            len => (usize::from(len), 2),
        };
        text[at..].split_at(len)
    }
    let (sequence, _) = value(der);
    let (n, rest) = value(sequence);
    let (e, _) = value(rest);
    [without_zeros(n.to_vec()), e.to_vec()]
}

/// Each key verifies what it has signed, and nothing of any other key: public keys are no secrets,
/// and the algorithm is not the token's to choose.
#[test]
fn keys_verify_their_own_algorithms_only() {
    let pairs = pairs();
    let all = [
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "EdDSA",
    ];
    for (owner, (own, record, sign)) in pairs.iter().enumerate() {
        for algorithm in own {
            let header = url(format!("{{\"alg\":\"{algorithm}\"}}").as_bytes());
            let signed = format!("{header}.{}", url(b"{}"));
            let made = url(&sign(algorithm, signed.as_bytes()));
            for (other, (_, key, _)) in pairs.iter().enumerate() {
                let token = format!("{signed}.{made}");
                assert_eq!(verifies(key, &token), other == owner, "{algorithm} {key}");
            }
            // The same signature under any other name.
            for name in all.iter().filter(|name| *name != algorithm) {
                let header = url(format!("{{\"alg\":\"{name}\"}}").as_bytes());
                let token = format!("{header}.{}.{made}", url(b"{}"));
                assert!(!verifies(record, &token), "{algorithm} as {name}");
            }
        }
    }
}

/// HMAC with what everybody knows of a public key, in all its spellings.
#[test]
fn public_keys_are_no_secrets() {
    let [_, (_, record, _), ..] = &pairs()[..] else {
        unreachable!("there are more");
    };
    let parsed: Value = serde_json::from_str(record).unwrap();
    let n = parsed["n"].as_str().unwrap();
    let signed = format!("{}.{}", url(b"{\"alg\":\"HS256\"}"), url(b"{}"));
    let known = [
        record.as_bytes().to_vec(),
        n.into(),
        token::decode(n.as_bytes()).unwrap(),
        vec![],
    ];
    for secret in known {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let made = url(hmac::sign(&key, signed.as_bytes()).as_ref());
        assert!(!verifies(record, &format!("{signed}.{made}")));
    }
}

#[test]
fn names_and_uses_of_keys_are_heeded() {
    let secret = b"secret";
    let k = url(secret);
    let sign = |header: &str| {
        let signed = format!("{}.{}", url(header.as_bytes()), url(b"{}"));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let made = url(hmac::sign(&key, signed.as_bytes()).as_ref());
        format!("{signed}.{made}")
    };
    let (bare, named) = (
        sign(r#"{"alg":"HS256"}"#),
        sign(r#"{"alg":"HS256","kid":"a"}"#),
    );
    for (more, of_bare, of_named) in [
        ("", true, true),
        (r#","kid":"a""#, true, true),
        (r#","kid":"b""#, true, false),
        (r#","alg":"HS256","use":"sig""#, true, true),
        (r#","alg":"HS512""#, false, false),
        (r#","key_ops":["verify"]"#, true, true),
    ] {
        let key = format!(r#"{{"kty":"oct","k":"{k}"{more}}}"#);
        assert_eq!(verifies(&key, &bare), of_bare, "{more}");
        assert_eq!(verifies(&key, &named), of_named, "{more}");
    }
    for (text, why) in [
        (r#"{"keys":[]}"#.to_string(), "no key that verifies"),
        (
            format!(r#"{{"keys":[{{"kty":"oct","k":"{k}","use":"enc"}}]}}"#),
            "no key that",
        ),
        (
            format!(r#"{{"keys":[{{"kty":"oct","k":"{k}","key_ops":["sign"]}}]}}"#),
            "no key that",
        ),
        (
            r#"{"keys":[{"kty":"oct","k":""}]}"#.to_string(),
            "no key that",
        ),
        (
            r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#.to_string(),
            "no key that",
        ),
        (
            r#"{"keys":[{"kty":"oct","k":"YQ","k":"Yg"}]}"#.to_string(),
            "single members",
        ),
        ("{}".to_string(), "no array"),
        ("-----BEGIN PUBLIC KEY-----".to_string(), "no JSON object"),
    ] {
        let error = KeySet::parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}
