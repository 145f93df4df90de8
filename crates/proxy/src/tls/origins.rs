//! Contexts of connections to origins: what `proxy_ssl_…` lines mean.
//!
//! Locations with equal lines share one, and its sessions.

use std::collections::HashMap;
use std::sync::Arc;

use millpond_conf::ParseContext;
use millpond_tls::certificate::failure::{Failure, Thing};
use millpond_tls::certificate::origin::OriginVerifier;
use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use millpond_tls::{ClientContext, ClientSessions, ClientSettings, Sni};

use super::commands::{self, Bounds};
use super::contexts::{ciphers, versions};
use super::files::{Files, Mistake, report};
use super::named::NamedCertificates;
use super::objects;
use super::settings::{FileName, OriginSslPolicy};
use millpond_exchange::protocol::Protocol;
use millpond_exchange::scope::build::Builder;

/// Encryption of a location's connections to origins.
#[derive(Debug)]
pub struct Origin {
    /// The context of handshakes.
    pub context: ClientContext,
    /// Judge of origins' certificates.
    pub verifier: OriginVerifier,
    /// Our certificate, where its name has variables; else the context has it.
    pub named: Option<Arc<NamedCertificates>>,
}

/// The contexts that were made so far, by the lines that they were made of.
#[derive(Default)]
pub struct Origins(HashMap<String, Option<Arc<Origin>>>);

/// The context of encrypted connections by the lines of a block; none if something is wrong with
/// them, which is reported.
pub fn made(
    policy: &OriginSslPolicy,
    protocol: Protocol,
    builder: &mut Builder,
) -> Option<Arc<Origin>> {
    of_lines(policy, &format!("{}_ssl", protocol.prefix()), builder)
}

/// [`made`] of lines whose names begin with `prefix`.
pub fn of_lines(
    policy: &OriginSslPolicy,
    prefix: &str,
    builder: &mut Builder,
) -> Option<Arc<Origin>> {
    let lines = format!("{prefix} {policy:?}");
    let known = builder.of::<Origins>().0.get(&lines).cloned();
    known.unwrap_or_else(|| {
        let (files, cx) = Files::of(builder);
        let made = origin(policy, prefix, (files, cx))
            .map(Arc::new)
            .map_err(|mistake| report(cx, mistake))
            .ok();
        builder.of::<Origins>().0.insert(lines, made.clone());
        made
    })
}

fn origin(
    policy: &OriginSslPolicy,
    prefix: &str,
    (files, cx): (&mut Files, &mut ParseContext),
) -> Result<Origin, Mistake> {
    let span = policy.ciphers.span;
    // The chain is judged when the handshake is over.
    let mut settings = ClientSettings::new(Arc::new(OriginVerifier::unverified()));
    settings.versions = versions(policy.protocols, (&format!("{prefix}_protocols"), span), cx)?;
    let name = format!("{prefix}_ciphers");
    settings.ciphers = ciphers(&policy.ciphers.value, (&name, span), cx)?;
    settings.sni = if policy.tells_name { Sni::On } else { Sni::Off };
    settings.key_log = policy.key_log.as_ref().map(|file| file.lines() as Arc<_>);
    settings.sessions = policy.reuses_sessions.then(Arc::<ClientSessions>::default);
    let directive = format!("{prefix}_conf_command");
    for command in &policy.commands {
        let bounds = Bounds {
            versions: &mut settings.versions,
            ciphers: &mut settings.ciphers,
            groups: &mut settings.groups,
        };
        if !commands::obey(&directive, command, bounds)? {
            let why = "the command is not supported";
            return Err(commands::mistake(&directive, command, why));
        }
    }
    let passwords = files.passwords(policy.password_file.as_ref())?;
    let mut named = None;
    if let Some([certificate, key]) = pair(policy, prefix)? {
        if certificate.literal().is_none() || key.literal().is_none() {
            named = Some(Arc::new(NamedCertificates {
                files: vec![[certificate.clone(), key.clone()]],
                passwords,
                cache: policy.certificate_cache.0.clone(),
            }));
        } else {
            let identity = files.identity(certificate, key, &passwords)?;
            settings.identities.push(identity);
        }
    }
    if let Some(new) = commands::identity(&directive, &policy.commands, (files, &[]))? {
        objects::put_identity(&mut settings.identities, new);
    }
    let verifier = verifier(policy, prefix, files)?;
    let context = ClientContext::new(&settings).map_err(|error| (span, error.to_string()))?;
    Ok(Origin {
        context,
        verifier,
        named,
    })
}

/// Our certificate and its key; an empty name is none.
fn pair<'p>(
    policy: &'p OriginSslPolicy,
    prefix: &str,
) -> Result<Option<[&'p FileName; 2]>, Mistake> {
    let Some(certificate) = &policy.certificate else {
        return Ok(None);
    };
    if certificate.literal() == Some(b"") {
        return Ok(None);
    }
    match &policy.key {
        Some(key) => Ok(Some([certificate, key])),
        None => {
            let shown = &certificate.name.source;
            let message =
                format!("no \"{prefix}_certificate_key\" is defined for certificate \"{shown}\"");
            Err((certificate.span, message))
        }
    }
}

/// Judges origins, where that is wanted.
fn verifier(
    policy: &OriginSslPolicy,
    prefix: &str,
    files: &mut Files,
) -> Result<OriginVerifier, Mistake> {
    if !policy.verify {
        return Ok(OriginVerifier::unverified());
    }
    let Some(trusted) = &policy.trusted else {
        let message = format!("no {prefix}_trusted_certificate for {prefix}_verify");
        return Err((policy.ciphers.span, message));
    };
    let authorities = files.text(trusted, Thing::Certificate)?;
    let revoked = match &policy.revoked {
        Some(file) => Some(files.text(file, Thing::Revocations)?),
        None => None,
    };
    let revocations: Vec<&[u8]> = revoked.iter().map(|it| &**it).collect();
    let anchors = Anchors {
        authorities: &[&authorities],
        revocations: &revocations,
    };
    let rules = Rules {
        peer: Peer::Origin,
        depth: policy.verify_depth,
        time: None,
    };
    let failed = |why: Failure| (trusted.span, why.to_string());
    let trust = Trust::new(anchors, rules).map_err(failed)?;
    Ok(OriginVerifier::new(Arc::new(trust)))
}
