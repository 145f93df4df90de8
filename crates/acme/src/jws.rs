//! Signed messages (RFC 7515), in the form that ACME has of them (RFC 8555 §6.2).
//!
//! Nothing in them is secret: the connection is encrypted, and the key stays here.

use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use serde_json::{Value, json};

use crate::base64url;
use crate::key::Key;

/// The sender of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender<'a> {
    /// A key that has no account as yet.
    Key,
    /// An account, by its URL.
    Account(&'a str),
}

/// A message of a key, for a URL. An empty payload asks for what is there (POST-as-GET).
pub(crate) fn sign(
    key: &Key,
    sender: Sender<'_>,
    (url, nonce): (&str, &str),
    payload: &str,
) -> Result<String, ErrorStack> {
    let mut head = json!({ "alg": key.algorithm(), "nonce": nonce, "url": url });
    match sender {
        Sender::Key => {
            let public = serde_json::from_str(&key.public()?);
            // It was written by us a moment ago.
            head["jwk"] = public.unwrap_or(Value::Null);
        }
        Sender::Account(account) => head["kid"] = Value::from(account),
    }
    let (head, payload) = encoded(&head, payload);
    let signature = key.sign(format!("{head}.{payload}").as_bytes())?;
    Ok(message(&head, &payload, &signature).to_string())
}

/// The proof that an account of somebody else belongs to the key (RFC 8555 §7.3.4).
pub(crate) fn bind(key: &Key, (id, secret): (&str, &[u8]), url: &str) -> Result<Value, ErrorStack> {
    let head = json!({ "alg": "HS256", "kid": id, "url": url });
    let (head, payload) = encoded(&head, &key.public()?);
    let mac = PKey::hmac(secret)?;
    let mut signer = Signer::new(MessageDigest::sha256(), &mac)?;
    let signature = signer.sign_oneshot_to_vec(format!("{head}.{payload}").as_bytes())?;
    Ok(message(&head, &payload, &signature))
}

fn encoded(head: &Value, payload: &str) -> (String, String) {
    let head = base64url::encode(head.to_string().as_bytes());
    (head, base64url::encode(payload.as_bytes()))
}

fn message(head: &str, payload: &str, signature: &[u8]) -> Value {
    json!({ "protected": head, "payload": payload, "signature": base64url::encode(signature) })
}
