//! Signature schemes, by the names that variables print.
//!
//! They are those of TLS (RFC 8446 §4.2.3), as OpenSSL 3.5 has them.

use rustls::SignatureScheme;

/// The name that is printed for a scheme.
pub(crate) fn name(scheme: SignatureScheme) -> Option<&'static str> {
    use SignatureScheme as Scheme;
    Some(match scheme {
        Scheme::RSA_PKCS1_SHA1 => "rsa_pkcs1_sha1",
        Scheme::ECDSA_SHA1_Legacy => "ecdsa_sha1",
        Scheme::RSA_PKCS1_SHA256 => "rsa_pkcs1_sha256",
        Scheme::RSA_PKCS1_SHA384 => "rsa_pkcs1_sha384",
        Scheme::RSA_PKCS1_SHA512 => "rsa_pkcs1_sha512",
        Scheme::ECDSA_NISTP256_SHA256 => "ecdsa_secp256r1_sha256",
        Scheme::ECDSA_NISTP384_SHA384 => "ecdsa_secp384r1_sha384",
        Scheme::ECDSA_NISTP521_SHA512 => "ecdsa_secp521r1_sha512",
        Scheme::RSA_PSS_SHA256 => "rsa_pss_rsae_sha256",
        Scheme::RSA_PSS_SHA384 => "rsa_pss_rsae_sha384",
        Scheme::RSA_PSS_SHA512 => "rsa_pss_rsae_sha512",
        Scheme::ED25519 => "ed25519",
        Scheme::ED448 => "ed448",
        Scheme::ML_DSA_44 => "mldsa44",
        Scheme::ML_DSA_65 => "mldsa65",
        Scheme::ML_DSA_87 => "mldsa87",
        _ => return None,
    })
}
