//! Certificates and keys out of texts of all forms, and what is said about others.

use millpond_tls::certificate::failure::{Failure, Thing};
use millpond_tls::certificate::load::{
    Key, authorities, certified, chain, key, revocations, stored_key,
};
use millpond_tls::certificate::password::{Password, passwords};
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::symm::Cipher;

use crate::kit::{Make, Party, bundle, ec_key};
use crate::oracle::{file, openssl};

/// A key or certificate as `openssl` converts it.
fn converted(key: &[u8], arguments: &[&str]) -> Vec<u8> {
    let plain = file(key);
    let path = plain.path().to_str().unwrap();
    let all = [arguments, &["-in", path]].concat();
    openssl(&all, &[]).unwrap().into_bytes()
}

fn fits(party: &Party, key: Result<Key, Failure>) -> Key {
    let key = key.unwrap();
    certified(vec![party.der()], &key).unwrap();
    key
}

fn rsa() -> PKey<Private> {
    PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap()
}

fn of(text: &str) -> Vec<Password> {
    passwords(text.as_bytes()).unwrap()
}

#[test]
fn keys_of_all_kinds_sign() {
    for key_of in [
        rsa(),
        ec_key(Nid::X9_62_PRIME256V1),
        ec_key(Nid::SECP384R1),
        ec_key(Nid::SECP521R1),
        PKey::generate_ed25519().unwrap(),
    ] {
        let party = Make::new("x").key(key_of).make();
        let read = fits(&party, key(&party.key_pem(), &[]));
        assert!(!read.is_encrypted);
    }
}

#[test]
fn keys_of_all_forms_are_read() {
    let rsa = Make::new("x").key(rsa()).make();
    let ec = Make::new("x").make();
    let with_parameters = [
        converted(
            &ec.key_pem(),
            &["ecparam", "-name", "prime256v1", "-genkey"],
        ),
        Vec::new(),
    ]
    .concat();
    assert!(with_parameters.starts_with(b"-----BEGIN EC PARAMETERS-----"));
    key(&with_parameters, &[]).unwrap();
    for (party, arguments, label) in [
        (&rsa, &["rsa", "-traditional"][..], "RSA PRIVATE KEY"),
        (&ec, &["ec"], "EC PRIVATE KEY"),
        (&ec, &["pkey"], "PRIVATE KEY"),
    ] {
        let text = converted(&party.key_pem(), arguments);
        let begin = format!("-----BEGIN {label}-----");
        assert!(text.starts_with(begin.as_bytes()));
        fits(party, key(&text, &[]));
        // Other things may stand before it.
        fits(party, key(&[party.pem(), text].concat(), &[]));
    }
}

#[test]
fn keys_with_passwords_are_read_with_the_one_that_fits() {
    let party = Make::new("x").key(rsa()).make();
    let new = party
        .key
        .private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), b"secret");
    let rsa = party.key.rsa().unwrap();
    let old = |cipher| {
        rsa.private_key_to_pem_passphrase(cipher, b"secret")
            .unwrap()
    };
    let ec = Make::new("x").make();
    let old_ec = ec
        .key
        .ec_key()
        .unwrap()
        .private_key_to_pem_passphrase(Cipher::aes_128_cbc(), b"secret")
        .unwrap();
    for (party, text) in [
        (&party, new.unwrap()),
        (&party, old(Cipher::aes_128_cbc())),
        (&party, old(Cipher::des_ede3_cbc())),
        (&ec, old_ec),
    ] {
        let read = fits(party, key(&text, &of("wrong\nsecret\nother")));
        assert!(read.is_encrypted);
        for passwords in [of("wrong"), of(""), Vec::new()] {
            let failure = key(&text, &passwords).unwrap_err().to_string();
            let begin = "PEM_read_bio_PrivateKey() failed (SSL: error:";
            assert!(failure.starts_with(begin), "{failure}");
        }
    }
}

#[test]
fn stores_hold_keys_of_all_forms() {
    let party = Make::new("x").key(rsa()).make();
    let rsa_der = party.key.rsa().unwrap().private_key_to_der().unwrap();
    let pkcs8 = party.key.private_key_to_pkcs8().unwrap();
    let encrypted = party
        .key
        .private_key_to_pkcs8_passphrase(Cipher::aes_256_cbc(), b"secret")
        .unwrap();
    for bytes in [party.key_pem(), rsa_der, pkcs8] {
        assert!(!fits(&party, stored_key(&bytes, &[])).is_encrypted);
    }
    assert!(fits(&party, stored_key(&encrypted, &of("a\nsecret"))).is_encrypted);
    for (bytes, passwords) in [(&encrypted[..], of("a")), (b"x", Vec::new())] {
        let failure = stored_key(bytes, &passwords).unwrap_err();
        assert_eq!(failure.to_string(), "OSSL_STORE_load() failed");
    }
}

#[test]
fn chains_are_read_in_order() {
    let root = Make::root("root").make();
    let leaf = Make::new("leaf").by(&root).make();
    let text = bundle(&[&leaf, &root]);
    assert_eq!(chain(&text).unwrap(), [leaf.der(), root.der()]);
    assert_eq!(authorities(&text).unwrap(), [leaf.der(), root.der()]);
    let new = String::from_utf8(leaf.pem()).unwrap();
    let old = new.replace("CERTIFICATE", "X509 CERTIFICATE");
    assert_eq!(chain(old.as_bytes()).unwrap(), [leaf.der()]);
    // A key between certificates, and words around.
    let text = [b"words\n".to_vec(), leaf.pem(), leaf.key_pem(), root.pem()].concat();
    assert_eq!(chain(&text).unwrap(), [leaf.der(), root.der()]);
}

#[test]
fn rules_of_trust_are_cut_off() {
    let root = Make::root("root").make();
    let leaf = Make::new("leaf").by(&root).make();
    let trusted = |party: &Party| {
        converted(
            &party.pem(),
            &["x509", "-addtrust", "serverAuth", "-trustout"],
        )
    };
    let text = [trusted(&leaf), root.pem()].concat();
    assert_eq!(chain(&text).unwrap(), [leaf.der(), root.der()]);
    // Behind the first, nginx reads certificates without rules only.
    let text = [trusted(&leaf), trusted(&root)].concat();
    assert_eq!(chain(&text).unwrap(), [leaf.der()]);
    assert_eq!(authorities(&text).unwrap(), [leaf.der(), root.der()]);
}

#[test]
fn failures_read_as_in_nginx() {
    let no_block = "error:0480006C:PEM routines::no start line:Expecting: ";
    let failure = chain(b"").unwrap_err();
    assert_eq!(
        Thing::Certificate.cannot_load("/x.crt", &failure),
        format!(
            "cannot load certificate \"/x.crt\": PEM_read_bio_X509_AUX() failed (SSL: \
             {no_block}TRUSTED CERTIFICATE)"
        )
    );
    let failure = revocations(b"").unwrap_err();
    assert_eq!(
        Thing::Revocations.cannot_load("/x.crl", &failure),
        format!(
            "cannot load CRL \"/x.crl\": PEM_read_bio_X509_CRL() failed (SSL: {no_block}X509 CRL)"
        )
    );
    let leaf = Make::new("x").make().pem();
    for (second, cause) in [
        (
            "!!!!\n-----END CERTIFICATE-----\n",
            "04800064:PEM routines::bad base64 decode",
        ),
        ("MAAA\n", "04800066:PEM routines::bad end line"),
    ] {
        let broken = format!("-----BEGIN CERTIFICATE-----\n{second}");
        let failure = chain(&[&leaf, broken.as_bytes()].concat()).unwrap_err();
        let text = failure.to_string();
        let expected = format!("PEM_read_bio_X509() failed (SSL: error:{cause})");
        assert_eq!(text, expected);
    }
    let failure = key(b"nothing", &[]).unwrap_err().to_string();
    assert!(
        failure.starts_with("PEM_read_bio_PrivateKey() failed (SSL: error:"),
        "{failure}"
    );
}

#[test]
fn keys_of_others_are_refused() {
    let one = Make::new("x").make();
    let other = Make::new("x").make();
    let rsa = Make::new("x").key(rsa()).make();
    for (key_of, reason) in [
        (
            &other,
            "05800074:x509 certificate routines::key values mismatch",
        ),
        (
            &rsa,
            "05800073:x509 certificate routines::key type mismatch",
        ),
    ] {
        let key = key(&key_of.key_pem(), &[]).unwrap();
        let failure = certified(vec![one.der()], &key).unwrap_err();
        assert_eq!(
            failure.of_key("/x.key"),
            format!("SSL_CTX_use_PrivateKey(\"/x.key\") failed (SSL: error:{reason})")
        );
    }
}

#[test]
fn certificates_of_version_1_have_keys() {
    let party = Make::new("x").v1().make();
    fits(&party, key(&party.key_pem(), &[]));
}
