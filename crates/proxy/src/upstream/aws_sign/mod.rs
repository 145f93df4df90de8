//! `proxy_aws_sign`: requests to an origin signed with AWS Signature Version 4, in the head.
//!
//! ```text
//! Prepared (the head for all peers) ─► credentials ─► fields of AWS ─► canonical request
//!                                                                             │
//!     body in signed chunks (payload=signed) ◄── the head's signature ◄───────┘
//! ```
//!
//! A head is signed for each try, behind everything that writes to it: time moves, and a slice, a
//! refresh and a retry have fields of their own.
//!
//! Invariants:
//! 1. What was signed is what is sent: nothing changes a head behind its signature.
//! 2. No key leaves this module: not in an error, not in a log, not in `Debug`.
//! 3. A client's own fields for AWS are never signed, or anybody could use rights of this server's.
//!
//! Source: "Signature Version 4" of AWS's general reference, and "Authenticating Requests" of the
//! S3 API reference.

mod canonical;
pub(crate) mod chunks;
mod credentials;
mod head;
mod signature;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{OffOr, Template};
use millpond_system::clock;
use sha2::{Digest, Sha256};

use super::ask::Ask;
use super::request::{OutBody, OutFraming, Prepared};
use crate::request::Request;
use crate::upstream::http::UpstreamVersion;
use crate::upstream::settings::UpstreamSettings;
use chunks::ChunkSigner;
use credentials::{CredentialFile, Credentials, FilePath};
use head::Payload;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use signature::{Scope, Time};

/// Settings of requests that are signed.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct AwsSignPolicy {
    /// Signs requests to HTTP upstreams with AWS Signature Version 4, as S3 and what speaks like it
    /// want it. Each try is signed for itself, and so is each slice and each refresh.
    ///
    /// `region` is needed, and so are keys, in one of two ways. `access_key`, `secret_key` and
    /// `session_token` are values, with or without variables. `credentials` is a file as the tools
    /// of AWS have it, of which the section `profile` (default `default`) has
    /// `aws_access_key_id`, `aws_secret_access_key` and, if there is one, `aws_session_token`; it
    /// is read again while requests are signed, at most once in a second.
    ///
    /// `service` is `s3` unless it is said otherwise. For S3 a path is escaped once, and goes out
    /// in the spelling that is signed; for other services the path is signed as they want it, with
    /// escapes escaped and dots taken out.
    ///
    /// A body that is in memory is signed by its hash. To S3 any other goes out as
    /// `UNSIGNED-PAYLOAD`, which TLS protects; with `payload=signed`, one of known length in signed
    /// chunks (`STREAMING-AWS4-HMAC-SHA256-PAYLOAD`, not with `proxy_http_version 2`). Other
    /// services get no body that was not read whole.
    ///
    /// A client's own Authorization and `X-Amz-…` fields are not passed on; what shall be signed is
    /// set by `proxy_set_header`. All methods are signed: `limit_except` says who may write.
    #[directive(name = "proxy_aws_sign", default = "off")]
    pub sign: OffOr<AwsSign>,
}

/// The way in which requests are signed.
#[derive(Clone, Debug)]
pub struct AwsSign {
    keys: Keys,
    region: Template,
    service: Template,
    is_payload_signed: bool,
}

/// The place of the keys.
#[derive(Clone, Debug)]
enum Keys {
    Values {
        access_key: Secret,
        secret_key: Secret,
        session_token: Option<Secret>,
    },
    File(CredentialFile),
}

/// A value that nobody is shown. INVARIANT 2.
#[derive(Clone)]
struct Secret(Template);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The parameters as they are written.
#[derive(Default)]
struct Parameters {
    access_key: Option<Template>,
    secret_key: Option<Template>,
    session_token: Option<Template>,
    credentials: Option<FilePath>,
    profile: Option<Template>,
    region: Option<Template>,
    service: Option<Template>,
    is_payload_signed: bool,
}

impl FromArgs for AwsSign {
    const SYNTAX: &'static str = "region=name credentials=file [profile=name] | \
                                  access_key=value secret_key=value [session_token=value] \
                                  [service=name] [payload=unsigned | signed]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let mut parameters = Parameters::default();
        for index in 0..args.at_least(1)?.len() {
            parameters.take(args, index)?;
        }
        let service = match parameters.service.take() {
            Some(service) => service,
            None => literal("s3", args)?,
        };
        let Some(region) = parameters.region.take() else {
            return Err(ArgError::other("the parameter \"region=\" is missing"));
        };
        Ok(AwsSign {
            region,
            service,
            is_payload_signed: parameters.is_payload_signed,
            keys: parameters.keys(args)?,
        })
    }
}

fn literal(text: &str, args: &mut Args<'_>) -> Result<Template, ArgError> {
    Template::parse(text, args.name.span, &mut args.cx.variables)
        .map_err(|error| ArgError::other(error.to_string()))
}

impl Parameters {
    /// Takes the word at the index. Messages have names only: the value may be a key misspelt.
    fn take(&mut self, args: &mut Args<'_>, index: usize) -> Result<(), ArgError> {
        let word = args.words.get(index).ok_or(ArgError::Count)?;
        let name = word.text.split('=').next().unwrap_or_default().to_string();
        let place = match name.as_str() {
            "access_key" => &mut self.access_key,
            "secret_key" => &mut self.secret_key,
            "session_token" => &mut self.session_token,
            "profile" => &mut self.profile,
            "region" => &mut self.region,
            "service" => &mut self.service,
            "credentials" => {
                self.credentials = args.after(index, "credentials=").transpose()?;
                return Ok(());
            }
            "payload" => {
                self.is_payload_signed = match word.text.as_str() {
                    "payload=signed" => true,
                    "payload=unsigned" => false,
                    _ => {
                        let message = "\"payload=\" must be \"unsigned\" or \"signed\"";
                        return Err(ArgError::value(index, message));
                    }
                };
                return Ok(());
            }
            _ => {
                let message = format!("invalid parameter \"{name}\"");
                return Err(ArgError::value(index, message));
            }
        };
        let prefix = format!("{name}=");
        match args.after::<Template>(index, &prefix) {
            Some(value) => *place = Some(value?),
            None => {
                let message = format!("the parameter \"{name}\" has no value");
                return Err(ArgError::value(index, message));
            }
        }
        Ok(())
    }

    fn keys(self, args: &mut Args<'_>) -> Result<Keys, ArgError> {
        let has_values =
            self.access_key.is_some() || self.secret_key.is_some() || self.session_token.is_some();
        if let Some(file) = self.credentials {
            if has_values {
                let message = "\"credentials=\" and keys exclude each other";
                return Err(ArgError::other(message));
            }
            let profile = match self.profile {
                Some(profile) => profile,
                None => literal("default", args)?,
            };
            return Ok(Keys::File(CredentialFile::new(file, profile)));
        }
        let (Some(access_key), Some(secret_key)) = (self.access_key, self.secret_key) else {
            let message =
                "either \"credentials=\" or \"access_key=\" with \"secret_key=\" is needed";
            return Err(ArgError::other(message));
        };
        Ok(Keys::Values {
            access_key: Secret(access_key),
            secret_key: Secret(secret_key),
            session_token: self.session_token.map(Secret),
        })
    }
}

impl Keys {
    async fn read(&self, req: &mut Request) -> Result<Rc<Credentials>, Failure> {
        match self {
            Keys::File(file) => file.read(req).await,
            Keys::Values {
                access_key,
                secret_key,
                session_token,
            } => {
                let token = session_token.as_ref().map(|token| req.eval(&token.0));
                let access_key = req.eval(&access_key.0);
                let read =
                    Credentials::new(&access_key, &req.eval(&secret_key.0), token.as_deref());
                read.map(Rc::new).map_err(unsigned)
            }
        }
    }
}

/// A request that cannot be signed is not sent.
fn unsigned(why: String) -> Failure {
    Failure::Internal(format!("the request is not signed for AWS: {why}"))
}

fn policy(req: &Request) -> Option<&AwsSign> {
    let settings = &req.location.settings;
    settings.of::<UpstreamSettings>().aws_sign.sign.on()
}

/// True if a field of the client stays here, since it would be signed or be in the way.
/// INVARIANT 3.
pub(crate) fn is_kept_back(req: &Request, name: &[u8]) -> bool {
    policy(req).is_some() && (head::is_of_aws(name) || name.eq_ignore_ascii_case(b"authorization"))
}

/// True if a body must be there before its request can be signed.
pub(crate) fn must_read_body(req: &mut Request) -> bool {
    let location = Arc::clone(&req.location);
    let settings = location.settings.of::<UpstreamSettings>();
    match settings.aws_sign.sign.on() {
        Some(sign) => !is_s3(&req.eval(&sign.service)),
        None => false,
    }
}

/// True for services that have the rules of S3.
fn is_s3(service: &[u8]) -> bool {
    service == b"s3" || service == b"s3express" || service.starts_with(b"s3-")
}

/// True if requests of the location are signed.
pub(crate) fn is_on(req: &Request, protocol: Protocol, ask: &Ask) -> bool {
    // A peer is asked by the secret of the fleet.
    protocol == Protocol::Http && ask.peer.is_none() && !ask.has_left() && policy(req).is_some()
}

/// The request with a signature of now.
pub(crate) async fn sign(req: &mut Request, prepared: &Prepared) -> Result<Box<Prepared>, Failure> {
    let location = Arc::clone(&req.location);
    let settings = location.settings.of::<UpstreamSettings>();
    let Some(sign) = settings.aws_sign.sign.on() else {
        return Ok(Box::new(prepared.clone()));
    };
    let credentials = sign.keys.read(req).await?;
    let (region, service) = (req.eval(&sign.region), req.eval(&sign.service));
    let time = Time::of(clock::now_us().div_euclid(1_000_000));
    let scope = Scope::new(&time, &region, &service).map_err(unsigned)?;
    let is_http2 = settings.pass_http.version == UpstreamVersion::Http2;
    let may_chunk = sign.is_payload_signed && !is_http2;
    let payload = payload(&prepared.body, (is_s3(&service), may_chunk)).await?;
    let signed = head::sign(&prepared.head, &payload, (&credentials, &scope, &time));
    let framing = match payload {
        Payload::Chunks(_) => {
            let key = credentials.key(&scope);
            OutFraming::Signed(Rc::new(ChunkSigner::new(
                key,
                (scope, time),
                signed.signature,
            )))
        }
        _ => prepared.framing.clone(),
    };
    Ok(Box::new(Prepared {
        head: signed.head,
        framing,
        ..prepared.clone()
    }))
}

/// The form in which a body is signed.
async fn payload(body: &OutBody, (is_s3, may_chunk): (bool, bool)) -> Result<Payload, Failure> {
    let hash = match body {
        OutBody::None => Sha256::digest(b"").into(),
        OutBody::Memory(bytes) => Sha256::digest(bytes).into(),
        body if is_s3 => {
            let length = body.len().filter(|_| may_chunk);
            return Ok(length.map_or(Payload::Unsigned, Payload::Chunks));
        }
        OutBody::File(_) => hash_of_file(body).await?,
        OutBody::Client { .. } => {
            return Err(unsigned("its body was not read whole".to_string()));
        }
    };
    Ok(Payload::Hash {
        hash,
        is_told: is_s3,
    })
}

/// The hash of a body in a file, made on a thread of its own.
async fn hash_of_file(body: &OutBody) -> Result<[u8; 32], Failure> {
    let Some(mut whole) = body.whole() else {
        return Ok(Sha256::digest(b"").into());
    };
    let job = tokio::task::spawn_blocking(move || {
        let mut hash = Sha256::new();
        while !whole.is_empty() {
            hash.update(&whole.take_memory().map_err(|error| error.to_string())?);
        }
        Ok(hash.finalize().into())
    });
    let given_up = |_| Err("reading its body was given up".to_string());
    job.await.unwrap_or_else(given_up).map_err(unsigned)
}

/// A head, and its signature.
struct Signed {
    head: Bytes,
    signature: String,
}

#[cfg(test)]
mod tests;
