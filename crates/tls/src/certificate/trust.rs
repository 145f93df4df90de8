//! Judgement of chains: what is trusted, what is revoked, and OpenSSL's verifier.
//!
//! The verifier stops at the first error. nginx has a callback that lets it go on, and takes the
//! last error; the safe binding has no such callback. So after an error the chain is looked at
//! again, with what was found so far out of the way:
//!
//! ```text
//! judge ─► whole rules ─┬─ good
//!                       └─ an error at the stage …
//!                            trust       ─► revocations: none can be known; then validity
//!                            revocation  ─► the same for each issuer; then validity
//!                            validity    ─► signatures, with time out of the way
//!                            others      ─► validity
//! ```
//!
//! An error at a later stage is the verdict.
//!
//! 1. Nothing is ever accepted that OpenSSL refuses: later looks only choose among errors.
//! 2. A failed look costs a few signatures and one small store; nothing is read from files.
//!
//! Texts get into a store through a file in memory (`memfd`): the binding can read lists of
//! revocations and rules of trust behind a certificate only from files.

use std::fmt;
use std::os::fd::AsRawFd;
use std::time::Duration;

use openssl::error::ErrorStack;
use openssl::ssl::SslFiletype;
use openssl::stack::Stack;
use openssl::x509::store::{File, X509Lookup, X509LookupRef, X509Store, X509StoreBuilder};
use openssl::x509::verify::{X509VerifyFlags, X509VerifyParam};
use openssl::x509::{X509, X509PurposeId, X509StoreContext, X509StoreContextRef};
use rustix::fs::MemfdFlags;
use rustls::pki_types::CertificateDer;

use super::failure::Failure;
use super::load;
use super::verdict::{Fault, Verdict, code};

/// OpenSSL's security level: RSA of at least 2048 bits, no SHA-1. The default of OpenSSL 3.2 and of
/// Debian.
const SECURITY_LEVEL: i32 = 2;
/// The most certificates between a peer's and a trusted one when depth is not what is asked about.
const MAX_DEPTH: u32 = 100;

/// The side that a chain is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client (`ssl_verify_client`).
    Client,
    /// An origin (`proxy_ssl_verify`).
    Origin,
}

/// Rules of judgement.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The side that chains are of.
    pub peer: Peer,
    /// `ssl_verify_depth`: the most certificates between a peer's and a trusted one.
    pub depth: u32,
    /// The time to judge by, since 1970; without one, the time of each judgement.
    pub time: Option<Duration>,
}

/// Texts of PEM that decide about chains.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anchors<'a> {
    /// Certificates that are trusted.
    pub authorities: &'a [&'a [u8]],
    /// Lists of revoked certificates; if there is one, each certificate of a chain needs one.
    pub revocations: &'a [&'a [u8]],
}

/// All that chains are judged by.
pub struct Trust {
    whole: X509Store,
    /// The same for the certificates behind the first, whatever they may be used for.
    issuers: Option<X509Store>,
    rules: Rules,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("has_revocations", &self.issuers.is_some())
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Trust {
    /// Reads what is trusted, and what is revoked.
    pub fn new(anchors: Anchors<'_>, rules: Rules) -> Result<Self, Failure> {
        for text in anchors.authorities {
            load::authorities(text)?;
        }
        for text in anchors.revocations {
            load::revocations(text)?;
        }
        let revoked = if anchors.revocations.is_empty() {
            X509VerifyFlags::empty()
        } else {
            X509VerifyFlags::CRL_CHECK | X509VerifyFlags::CRL_CHECK_ALL
        };
        let whole = store(anchors, &param(rules, revoked)?, Some(rules.peer))?;
        let of_issuers = || {
            let flags = X509VerifyFlags::IGNORE_CRITICAL | X509VerifyFlags::NO_CHECK_TIME;
            let any_depth = Rules {
                depth: MAX_DEPTH,
                ..rules
            };
            store(anchors, &param(any_depth, revoked | flags)?, None)
        };
        let issuers = (!anchors.revocations.is_empty())
            .then(of_issuers)
            .transpose()?;
        Ok(Self {
            whole,
            issuers,
            rules,
        })
    }

    /// The verdict on a chain, the peer's own certificate first.
    pub fn judge(&self, chain: &[CertificateDer<'_>]) -> Verdict {
        let Some((leaf, others)) = chain.split_first() else {
            return Verdict::None;
        };
        match self.look(leaf, others) {
            Ok(None) => Verdict::Success,
            Ok(Some(fault)) => Verdict::Failed(fault),
            // Bytes that are no certificate do not get here (`client`, `origin`); if the library
            // itself fails, nothing is known.
            Err(_) => Verdict::Failed(Fault::UNSPECIFIED),
        }
    }

    /// The last error that OpenSSL has about a chain.
    fn look(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
    ) -> Result<Option<Fault>, ErrorStack> {
        let leaf = X509::from_der(leaf)?;
        let mut sent = Stack::new()?;
        for other in others {
            sent.push(X509::from_der(other)?)?;
        }
        let Some(mut first) = verify(&self.whole, &leaf, sent)? else {
            return Ok(None);
        };
        first.fault = match first.fault.code {
            code::CHAIN_TOO_LONG => self.missing_anchor(&first, others)?,
            // Rules behind a trusted certificate, and authorities, are asked for again by use.
            code::REJECTED | code::NO_AUTHORITY => Fault::PURPOSE,
            _ => first.fault,
        };
        let mut last = first.fault;
        let stage = Stage::of(last.code);
        if let Some(fault) = self.later_revocation(stage, &first)? {
            last = fault;
        }
        // `internal_verify` of OpenSSL: a certificate alone whose issuer is unknown.
        if first.fault.code == code::NO_LOCAL_ISSUER && first.chain.len() == 1 {
            last = Fault::LEAF_SIGNATURE;
        }
        match self.later_validity(stage, &first)? {
            Some(fault) => Ok(Some(fault)),
            None => Ok(Some(last)),
        }
    }

    /// The error of a chain that was left unfinished because it became too long: it ends nowhere.
    fn missing_anchor(
        &self,
        seen: &Seen,
        sent: &[CertificateDer<'_>],
    ) -> Result<Fault, ErrorStack> {
        let nobody = X509StoreBuilder::new()?.build();
        let rest = seen.chain.iter().skip(1).cloned().collect();
        let (Some(leaf), Some(top)) = (seen.chain.first(), seen.chain.last()) else {
            return Ok(seen.fault);
        };
        let found = verify(&nobody, leaf, stack(rest)?)?.map_or(seen.fault, |seen| seen.fault);
        let top = top.to_der()?;
        let was_sent = seen.chain.len() == 1 || sent.iter().any(|sent| sent.as_ref() == top);
        Ok(if found.code == code::NO_LOCAL_ISSUER && !was_sent {
            Fault::NO_ISSUER
        } else {
            found
        })
    }

    /// The last error about revocations, if a look did not get there.
    fn later_revocation(&self, stage: Stage, seen: &Seen) -> Result<Option<Fault>, ErrorStack> {
        let Some(issuers) = &self.issuers else {
            return Ok(None);
        };
        let start = match (stage, seen.fault.code) {
            // No list is needed for who signed itself.
            (_, code::SELF_SIGNED_LEAF) => return Ok(None),
            // Nobody signs lists for those who trust nobody of the chain.
            (Stage::Trust, _) => return Ok(Some(Fault::NO_REVOCATIONS)),
            (Stage::Validity, _) => return Ok(None),
            (Stage::Other, _) => 0,
            // A list that is too old may still name the certificate.
            (_, code::REVOCATIONS_NOT_YET_VALID | code::REVOCATIONS_EXPIRED) => seen.depth,
            (Stage::Revocation, _) => seen.depth + 1,
        };
        let mut last = None;
        // The chain was built: each certificate is asked about by itself.
        for (at, certificate) in seen.chain.iter().enumerate().skip(start) {
            let rest = seen.chain.iter().skip(at + 1).cloned().collect();
            let found = verify(issuers, certificate, stack(rest)?)?.map(|seen| seen.fault);
            last = found
                .filter(|fault| Stage::of(fault.code) == Stage::Revocation)
                .or(last);
        }
        Ok(last)
    }

    /// The last error about signatures and validity, if a look did not get there.
    fn later_validity(&self, stage: Stage, seen: &Seen) -> Result<Option<Fault>, ErrorStack> {
        let is_late = |found: Option<Seen>| {
            found
                .map(|seen| seen.fault)
                .filter(|fault| matches!(Stage::of(fault.code), Stage::Validity))
        };
        let timeless = X509VerifyFlags::NO_CHECK_TIME;
        let found = match stage {
            Stage::Validity => return Ok(is_late(self.look_again(seen, timeless)?)),
            _ => is_late(self.look_again(seen, X509VerifyFlags::empty())?),
        };
        match found {
            Some(found) => Ok(is_late(self.look_again(seen, timeless)?).or(Some(found))),
            None => Ok(None),
        }
    }

    /// Looks at a chain as if its last certificate were trusted, and its use did not matter.
    fn look_again(&self, seen: &Seen, more: X509VerifyFlags) -> Result<Option<Seen>, ErrorStack> {
        let Some((top, below)) = seen.chain.split_last() else {
            return Ok(None);
        };
        let rules = Rules {
            depth: MAX_DEPTH,
            ..self.rules
        };
        let flags = X509VerifyFlags::PARTIAL_CHAIN | X509VerifyFlags::IGNORE_CRITICAL | more;
        let mut builder = X509StoreBuilder::new()?;
        builder.add_cert(top.clone())?;
        let mut param = plain_param(rules, flags)?;
        param.set_auth_level(0);
        builder.set_param(&param)?;
        let leaf = below.first().unwrap_or(top);
        let rest = below.iter().skip(1).cloned().collect();
        verify(&builder.build(), leaf, stack(rest)?)
    }
}

/// The part of the verifier that an error is of, in the order in which it goes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Trust,
    /// Uses, constraints, strength.
    Other,
    Revocation,
    /// Signatures and times.
    Validity,
}

impl Stage {
    fn of(number: i32) -> Self {
        match number {
            code::NO_ISSUER
            | code::SELF_SIGNED_LEAF
            | code::SELF_SIGNED_IN_CHAIN
            | code::NO_LOCAL_ISSUER => Self::Trust,
            code::NO_REVOCATIONS
            | code::REVOCATIONS_SIGNATURE
            | code::REVOCATIONS_NOT_YET_VALID
            | code::REVOCATIONS_EXPIRED
            | code::REVOKED => Self::Revocation,
            4..=7 | 9 | 10 | 13..=16 | 47..=54 => Self::Validity,
            _ => Self::Other,
        }
    }
}

/// An error, and the chain that it was found in.
struct Seen {
    fault: Fault,
    depth: usize,
    chain: Vec<X509>,
}

/// Runs the verifier; `None` is success.
fn verify(store: &X509Store, leaf: &X509, sent: Stack<X509>) -> Result<Option<Seen>, ErrorStack> {
    let look = |context: &mut X509StoreContextRef| {
        if context.verify_cert()? {
            return Ok(None);
        }
        let chain = context.chain().into_iter().flatten();
        Ok(Some(Seen {
            fault: Fault::of(context.error()),
            depth: usize::try_from(context.error_depth()).unwrap_or(usize::MAX - 1),
            chain: chain.map(ToOwned::to_owned).collect(),
        }))
    };
    X509StoreContext::new()?.init(store, leaf, &sent, look)
}

fn stack(certificates: Vec<X509>) -> Result<Stack<X509>, ErrorStack> {
    let mut stack = Stack::new()?;
    for certificate in certificates {
        stack.push(certificate)?;
    }
    Ok(stack)
}

/// Parameters of the verifier.
fn plain_param(rules: Rules, flags: X509VerifyFlags) -> Result<X509VerifyParam, ErrorStack> {
    let mut param = X509VerifyParam::new()?;
    param.set_flags(flags)?;
    param.set_depth(i32::try_from(rules.depth).unwrap_or(i32::MAX - 1));
    param.set_auth_level(SECURITY_LEVEL);
    if let Some(time) = rules.time {
        param.set_time(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    }
    Ok(param)
}

fn param(rules: Rules, flags: X509VerifyFlags) -> Result<X509VerifyParam, Failure> {
    plain_param(rules, flags).map_err(|stack| Failure::openssl("X509_VERIFY_PARAM_new()", &stack))
}

/// A store of anchors and revocations.
fn store(
    anchors: Anchors<'_>,
    param: &X509VerifyParam,
    peer: Option<Peer>,
) -> Result<X509Store, Failure> {
    let failed = |step| move |stack: ErrorStack| Failure::openssl(step, &stack);
    let mut builder = X509StoreBuilder::new().map_err(failed("X509_STORE_new() failed"))?;
    // The purpose brings the rules of trust that stand behind certificates with it.
    if let Some(peer) = peer {
        let purpose = match peer {
            Peer::Client => X509PurposeId::SSL_CLIENT,
            Peer::Origin => X509PurposeId::SSL_SERVER,
        };
        builder
            .set_purpose(purpose)
            .map_err(failed("X509_STORE_set_purpose() failed"))?;
    }
    builder
        .set_param(param)
        .map_err(failed("X509_STORE_set1_param() failed"))?;
    let lookup = builder
        .add_lookup(X509Lookup::file())
        .map_err(failed("X509_STORE_add_lookup() failed"))?;
    for text in anchors.authorities {
        load_into(lookup, text, |lookup, path| {
            lookup.load_cert_file(path, SslFiletype::PEM)
        })?;
    }
    for text in anchors.revocations {
        load_into(lookup, text, |lookup, path| {
            lookup.load_crl_file(path, SslFiletype::PEM).map(|_| ())
        })?;
    }
    Ok(builder.build())
}

/// Gives a text to a call that reads files.
fn load_into(
    lookup: &mut X509LookupRef<File>,
    text: &[u8],
    load: impl FnOnce(&mut X509LookupRef<File>, &str) -> Result<(), ErrorStack>,
) -> Result<(), Failure> {
    let of_system =
        |error: rustix::io::Errno| Failure::because("memfd_create() failed", error.to_string());
    let file = rustix::fs::memfd_create("authorities", MemfdFlags::CLOEXEC).map_err(of_system)?;
    let mut left = text;
    while !left.is_empty() {
        let count = rustix::io::write(&file, left).map_err(of_system)?;
        left = left.get(count..).unwrap_or_default();
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    load(lookup, &path).map_err(|stack| Failure::openssl("X509_STORE_add_cert() failed", &stack))
}
