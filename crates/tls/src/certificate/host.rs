//! The name of an origin, compared with the names of its certificate.
//!
//! OpenSSL compares (`X509_check_host`): alternative names, wildcards, and the common name if there
//! is no alternative name of a host. The binding reaches it only through the verifier, so the
//! certificate is made its own anchor and verified with everything else out of the way.
//!
//! # Differs from nginx
//!
//! A name that is an address also fits an alternative name that is this address. nginx compares
//! names of hosts only.

use std::net::IpAddr;

use openssl::error::ErrorStack;
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::{X509VerifyFlags, X509VerifyParam};
use openssl::x509::{X509, X509StoreContext};
use rustls::pki_types::CertificateDer;

/// The question if a certificate is good for a name; a name that is empty never is.
pub fn is_good_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    if name.is_empty() || name.contains('\0') {
        return false;
    }
    let Ok(certificate) = X509::from_der(certificate) else {
        return false;
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let is_address = bare.parse().is_ok_and(|address: IpAddr| {
        passes(&certificate, |param| param.set_ip(address)).unwrap_or(false)
    });
    is_address || passes(&certificate, |param| param.set_host(name)).unwrap_or(false)
}

/// The answer of a certificate to what a parameter of the verifier asks.
fn passes(
    certificate: &X509,
    ask: impl FnOnce(&mut X509VerifyParam) -> Result<(), ErrorStack>,
) -> Result<bool, ErrorStack> {
    let mut param = X509VerifyParam::new()?;
    let quiet = X509VerifyFlags::PARTIAL_CHAIN
        | X509VerifyFlags::IGNORE_CRITICAL
        | X509VerifyFlags::NO_CHECK_TIME;
    param.set_flags(quiet)?;
    param.set_auth_level(0);
    ask(&mut param)?;
    let mut builder = X509StoreBuilder::new()?;
    builder.add_cert(certificate.clone())?;
    builder.set_param(&param)?;
    let others = Stack::new()?;
    X509StoreContext::new()?.init(&builder.build(), certificate, &others, |context| {
        context.verify_cert()
    })
}
