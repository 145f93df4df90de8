//! OCSP (RFC 6960): the question about a certificate, and what an authority's answer is worth.
//!
//! ```text
//! chain, authorities ─► Question ─► bytes for the responder
//!                          └──◄ its answer ─► good for a time, or why not
//! ```
//!
//! Both are OpenSSL's work, in the order in which nginx does it; asking somebody is the caller's.
//!
//! 1. An answer is good only if it is signed by who may sign it, is about this certificate, and is
//!    neither too old nor too new.

use std::fmt;
use std::time::Duration;

use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::ocsp::{
    OcspCertId, OcspCertStatus, OcspFlag, OcspRequest, OcspResponse, OcspResponseStatus,
};
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::{X509, X509VerifyResult};
use rustls::pki_types::CertificateDer;

use super::failure::Failure;

/// Seconds by which clocks may differ, as in nginx.
const SLACK_S: u32 = 300;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Certificates of authorities, read once.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Vec<X509>);

/// A question about a certificate.
pub struct Question {
    subject: X509,
    issuer: X509,
    others: Vec<X509>,
    authorities: Authorities,
}

/// The way in which an answer's signer is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// `ssl_stapling_verify`: a chain leads from it to a trusted authority.
    Verified,
    /// The issuer of the certificate, or one that it lets sign (RFC 6960 §4.2.2.2).
    Entitled,
    /// Nothing is asked of who has signed.
    Any,
}

/// The status of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not taken back.
    Good,
    /// Taken back.
    Revoked,
    /// Unknown to the responder.
    Unknown,
}

/// The word of a responder: a status, and the time for which it holds, if it says one.
pub type Word = (Status, Option<Duration>);

/// The reason for which an answer is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The library has refused it.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The responder has not answered the question.
    #[error("OCSP response not successful ({0}: {1})")]
    Unsuccessful(i32, &'static str),
    /// The answer is about others.
    #[error("certificate status not found in the OCSP response")]
    NotFound,
    /// The certificate is not good.
    #[error("certificate status \"{0}\" in the OCSP response")]
    Status(&'static str),
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Question")
    }
}

impl Authorities {
    /// Reads certificates.
    pub fn read(ders: &[CertificateDer<'_>]) -> Result<Self, Failure> {
        read(ders).map(Self)
    }
}

fn read(ders: &[CertificateDer<'_>]) -> Result<Vec<X509>, Failure> {
    let certificates = ders.iter().map(|der| X509::from_der(der));
    let read = certificates.collect::<Result<Vec<_>, _>>();
    read.map_err(|stack| Failure::openssl("d2i_X509() failed", &stack))
}

impl Question {
    /// The question about the first certificate of a chain; none if its issuer is neither in the
    /// chain nor among the authorities.
    pub fn new(
        chain: &[CertificateDer<'_>],
        authorities: &Authorities,
    ) -> Result<Option<Self>, Failure> {
        let chain = read(chain)?;
        let parts = chain.split_first();
        Ok(parts.and_then(|(subject, others)| Self::about(subject, others, authorities)))
    }

    fn about(subject: &X509, others: &[X509], authorities: &Authorities) -> Option<Self> {
        let mut known = others.iter().chain(&authorities.0);
        let issuer = known.find(|other| other.issued(subject) == X509VerifyResult::OK)?;
        Some(Self {
            subject: subject.clone(),
            issuer: issuer.clone(),
            others: others.to_vec(),
            authorities: authorities.clone(),
        })
    }

    /// The questions about the certificates of a good chain, that of the peer first; the topmost
    /// one is trusted without.
    pub fn chain(
        peers: &[CertificateDer<'_>],
        authorities: &Authorities,
    ) -> Result<Vec<Self>, Failure> {
        let peers = read(peers)?;
        let Some((first, others)) = peers.split_first() else {
            return Ok(Vec::new());
        };
        // A circle of issuers ends, too.
        let most = peers.len() + authorities.0.len() + 1;
        let next = |known: &Self| Self::about(&known.issuer, others, authorities);
        let chain = std::iter::successors(Self::about(first, others, authorities), next);
        let below_topmost = chain.take_while(|it| it.issuer != it.subject);
        Ok(below_topmost.take(most).collect())
    }

    /// The responder that the certificate names first.
    pub fn responder(&self) -> Option<String> {
        let responders = self.subject.ocsp_responders().ok()?;
        responders.get(0).map(|url| url.to_string())
    }

    /// The question as responders take it.
    pub fn to_der(&self) -> Result<Vec<u8>, Failure> {
        let make = || {
            let mut request = OcspRequest::new()?;
            request.add_id(self.id()?)?;
            request.to_der()
        };
        make().map_err(|stack: ErrorStack| Failure::openssl("i2d_OCSP_REQUEST() failed", &stack))
    }

    /// Judges an answer: the time for which it is good, if it says one.
    pub fn judge(&self, answer: &[u8], signer: Signer) -> Result<Option<Duration>, Unusable> {
        match self.status(answer, signer)? {
            (Status::Good, left) => Ok(left),
            (Status::Revoked, _) => Err(Unusable::Status("revoked")),
            (Status::Unknown, _) => Err(Unusable::Status("unknown")),
        }
    }

    /// The status that an answer gives.
    pub fn status(&self, answer: &[u8], signer: Signer) -> Result<Word, Unusable> {
        let failed = |step| move |stack: ErrorStack| Failure::openssl(step, &stack);
        let response =
            OcspResponse::from_der(answer).map_err(failed("d2i_OCSP_RESPONSE() failed"))?;
        let status = response.status();
        if status != OcspResponseStatus::SUCCESSFUL {
            return Err(Unusable::Unsuccessful(status.as_raw(), word_of(status)));
        }
        let basic = response
            .basic()
            .map_err(failed("OCSP_response_get1_basic() failed"))?;
        let verify = || {
            let mut store = X509StoreBuilder::new()?;
            for authority in &self.authorities.0 {
                store.add_cert(authority.clone())?;
            }
            let mut sent = Stack::new()?;
            if signer == Signer::Entitled {
                sent.push(self.issuer.clone())?;
            }
            for other in &self.others {
                sent.push(other.clone())?;
            }
            let flags = match signer {
                Signer::Verified => OcspFlag::TRUST_OTHER,
                Signer::Entitled => OcspFlag::empty(),
                Signer::Any => OcspFlag::NO_VERIFY,
            };
            basic.verify(&sent, &store.build(), flags)
        };
        verify().map_err(failed("OCSP_basic_verify() failed"))?;
        let id = self.id().map_err(failed("OCSP_cert_to_id() failed"))?;
        let found = basic.find_status(&id).ok_or(Unusable::NotFound)?;
        found
            .check_validity(SLACK_S, None)
            .map_err(failed("OCSP_check_validity() failed"))?;
        let status = match found.status {
            OcspCertStatus::GOOD => Status::Good,
            OcspCertStatus::REVOKED => Status::Revoked,
            _ => Status::Unknown,
        };
        let until = found.next_update();
        Ok((status, until.and_then(|time| left(&time.to_string()))))
    }

    fn id(&self) -> Result<OcspCertId, ErrorStack> {
        OcspCertId::from_cert(MessageDigest::sha1(), &self.subject, &self.issuer)
    }
}

fn word_of(status: OcspResponseStatus) -> &'static str {
    match status {
        OcspResponseStatus::MALFORMED_REQUEST => "malformedrequest",
        OcspResponseStatus::INTERNAL_ERROR => "internalerror",
        OcspResponseStatus::TRY_LATER => "trylater",
        OcspResponseStatus::SIG_REQUIRED => "sigrequired",
        OcspResponseStatus::UNAUTHORIZED => "unauthorized",
        _ => "unknown",
    }
}

/// The time until a moment that is written as `Nov 24 06:00:00 2026 GMT`: the binding can only
/// write such times.
fn left(text: &str) -> Option<Duration> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [month, day, time, year, "GMT"] = words[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let day: u8 = day.parse().ok()?;
    let time = time.split('.').next()?.replace(':', "");
    let moment = Asn1Time::from_str(&format!("{year}{month:02}{day:02}{time}Z")).ok()?;
    let now = Asn1Time::days_from_now(0).ok()?;
    let left = AsRef::<Asn1TimeRef>::as_ref(&now).diff(&moment).ok()?;
    let seconds = i64::from(left.days) * 86_400 + i64::from(left.secs);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_by_the_time_that_is_left() {
        let in_two_days = Asn1Time::days_from_now(2).unwrap();
        let found = left(&in_two_days.to_string()).unwrap().as_secs();
        assert!((172_790..=172_800).contains(&found), "{found}");
        assert_eq!(left("Jan  1 00:00:00 2020 GMT"), Some(Duration::ZERO));
        for text in [
            "",
            "Jan 1 2020",
            "Foo  1 00:00:00 2020 GMT",
            "Bad time value",
        ] {
            assert_eq!(left(text), None, "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_answer_are_refused() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        let signed = params.self_signed(&key).unwrap();

        let own = [signed.der().clone()];
        let authorities = Authorities::read(&own).unwrap();
        let question = Question::new(&own, &authorities).unwrap().unwrap();
        assert!(question.responder().is_none());
        assert!(!question.to_der().unwrap().is_empty());
        for answer in [&b""[..], b"\x30\x03\x0a\x01\x06", b"no answer", &[0x30; 64]] {
            assert!(question.judge(answer, Signer::Any).is_err(), "{answer:?}");
        }
        let refused = question.judge(b"\x30\x03\x0a\x01\x06", Signer::Any);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "OCSP response not successful (6: unauthorized)"
        );
    }
}
