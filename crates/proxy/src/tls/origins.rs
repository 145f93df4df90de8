//! Contexts of connections to origins: what `proxy_ssl_…` lines mean.
//!
//! Locations with equal lines share one, and its sessions.

use std::collections::HashMap;
use std::sync::Arc;

use millpond_conf::ParseContext;
use millpond_tls::certificate::failure::{Failure, Thing};
use millpond_tls::certificate::origin::OriginVerifier;
use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use millpond_tls::{ClientContext, ClientSessions, ClientSettings, Groups, Sni};

use super::contexts::{ciphers, versions};
use super::files::{Files, Mistake, report};
use super::settings::{ConfCommand, OriginSslPolicy};
use crate::handler::ContentHandler;
use crate::protocol::Protocol;
use crate::settings::level::Closing;

/// Encryption of a location's connections to origins.
#[derive(Debug)]
pub struct Origin {
    /// The context of handshakes.
    pub context: ClientContext,
    /// Judge of origins' certificates.
    pub verifier: OriginVerifier,
}

/// The contexts that were made so far, by the lines that they were made of.
#[derive(Default)]
pub struct Origins(HashMap<String, Option<Arc<Origin>>>);

/// Makes the context of a location that passes requests on.
pub fn close(level: &mut Closing<'_>) {
    let Some(ContentHandler::Pass(target)) = level.draft.get() else {
        return;
    };
    if !target.may_encrypt() {
        return;
    }
    let policy = &level.settings.pass(target.protocol).ssl;
    let lines = format!("{:?} {policy:?}", target.protocol);
    let known = level.builder.of::<Origins>().0.get(&lines).cloned();
    let origin = known.unwrap_or_else(|| {
        let (files, cx) = level.builder.with_cx::<Files>();
        let made = origin(policy, target.protocol, (files, cx))
            .map(Arc::new)
            .map_err(|mistake| report(cx, mistake))
            .ok();
        level.builder.of::<Origins>().0.insert(lines, made.clone());
        made
    });
    origin
        .into_iter()
        .for_each(|origin| target.set_origin(origin));
}

fn origin(
    policy: &OriginSslPolicy,
    protocol: Protocol,
    (files, cx): (&mut Files, &mut ParseContext),
) -> Result<Origin, Mistake> {
    let prefix = protocol.prefix();
    let span = policy.ciphers.span;
    // The chain is judged when the handshake is over.
    let mut settings = ClientSettings::new(Arc::new(OriginVerifier::unverified()));
    settings.versions = versions(
        policy.protocols,
        (&format!("{prefix}_ssl_protocols"), span),
        cx,
    )?;
    let name = format!("{prefix}_ssl_ciphers");
    settings.ciphers = ciphers(&policy.ciphers.value, (&name, span), cx)?;
    settings.sni = if policy.tells_name { Sni::On } else { Sni::Off };
    settings.sessions = policy.reuses_sessions.then(Arc::<ClientSessions>::default);
    for command in &policy.commands {
        obey(command, prefix, &mut settings)?;
    }
    if let Some(certificate) = &policy.certificate
        && certificate.literal() != Some(b"")
    {
        let Some(key) = &policy.key else {
            let shown = String::from_utf8_lossy(certificate.literal().unwrap_or_default());
            let message = format!(
                "no \"{prefix}_ssl_certificate_key\" is defined for certificate \"{shown}\""
            );
            return Err((certificate.span, message));
        };
        let passwords = files.passwords(policy.password_file.as_ref())?;
        settings
            .identities
            .push(files.identity(certificate, key, &passwords)?);
    }
    let verifier = verifier(policy, prefix, files)?;
    let context = ClientContext::new(&settings).map_err(|error| (span, error.to_string()))?;
    Ok(Origin { context, verifier })
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
        let message = format!("no {prefix}_ssl_trusted_certificate for {prefix}_ssl_verify");
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

/// A command of OpenSSL's configuration.
fn obey(command: &ConfCommand, prefix: &str, settings: &mut ClientSettings) -> Result<(), Mistake> {
    let (name, value) = (command.name.as_str(), command.value.as_str());
    let bad = |why: String| {
        (
            command.span,
            format!("\"{prefix}_ssl_conf_command {name}\": {why}"),
        )
    };
    match name {
        "Ciphersuites" => {
            let ciphers = settings.ciphers.clone();
            settings.ciphers = ciphers
                .with_ciphersuites(value)
                .map_err(|why| bad(why.to_string()))?;
        }
        "Groups" | "Curves" => {
            settings.groups = Groups::parse(value).map_err(|why| bad(why.to_string()))?;
        }
        _ => return Err(bad("the command is not supported".to_owned())),
    }
    Ok(())
}
