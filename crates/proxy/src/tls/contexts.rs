//! Contexts of servers: what `ssl_…` lines mean to the handshakes of clients.
//!
//! They are made when the configuration has been read to its end, for the servers of encrypted
//! addresses; elsewhere the lines mean nothing, and their files are not read.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use millpond_acme::Ordered;
use millpond_conf::Flags;
use millpond_conf::{ParseContext, Span, Spanned};
use millpond_system::log::error;
use millpond_tls::certificate::client::ClientVerifier;
use millpond_tls::certificate::failure::{Failure, Thing};
use millpond_tls::certificate::load;
use millpond_tls::certificate::ocsp::{Authorities, Question, Signer};
use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use millpond_tls::quic::HostKey;
use millpond_tls::{
    CacheMode, Ciphers, Compression, EarlyData, Groups, Identity, Offers, Preference,
    ServerContext, ServerSettings, SessionCache, TicketKey, Tickets, Versions,
};
use millpond_wire::http2;

use super::acme;
use super::client_status::{Asked, Known, StatusCheck};
use super::commands::{self, Bounds};
use super::files::{Files, Mistake, report};
use super::named::NamedCertificates;
use super::objects::put_identity;
use super::responder::Responder;
use super::settings::{ConfCommand, FileName, ProtocolVersion, SslPolicy, VerifyClient};
use super::stapling::Stapler;
use crate::tls::acme::certificate::Slot;
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::Server;
use millpond_exchange::settings::listen::{Binding, Listen};
use std::sync::OnceLock;

/// The directive with commands of OpenSSL's configuration.
const COMMAND: &str = "ssl_conf_command";

/// Encryption of a server's connections.
#[derive(Debug)]
pub struct Encryption {
    /// The context, where the server has certificates.
    pub certified: Option<Certified>,
    rejects: bool,
    /// Judge of clients' certificates.
    pub verifier: Option<Arc<ClientVerifier>>,
    /// The way in which their status is learnt.
    pub status: Option<StatusCheck>,
    /// The keys of tokens in QUIC, where they outlive the process.
    pub host_key: Option<HostKey>,
}

/// The encryption of a server, which is made when all of a configuration was read.
#[derive(Debug, Default)]
pub struct LateEncryption(OnceLock<Encryption>);

impl Part for LateEncryption {
    const PLACE: Place = Place::Certificates;
}

impl Encryption {
    /// The encryption of a server; none where none of its addresses is encrypted.
    pub fn of(server: &Server) -> Option<&Encryption> {
        server.parts.of::<LateEncryption>().0.get()
    }
}

/// The context of a server with certificates.
#[derive(Debug)]
pub struct Certified {
    /// The context of handshakes.
    pub context: ServerContext,
    /// The certificates, where their names have variables; else the context has them.
    pub named: Option<Arc<NamedCertificates>>,
    /// The certificate, where it is ordered.
    pub ordered: Option<Arc<Ordered>>,
    /// The certificates of the context, and the place that names them.
    pub certificates: Vec<(Span, Arc<Identity>)>,
    /// The certificates whose responders are asked.
    pub staplers: Vec<Arc<Stapler>>,
}

impl Encryption {
    /// Encryption of a server that has no certificate, as yet.
    fn bare(policy: &SslPolicy) -> Self {
        Encryption {
            certified: None,
            rejects: policy.rejects,
            verifier: None,
            status: None,
            host_key: None,
        }
    }

    /// The server's context, or that of the default server of its address; none where handshakes
    /// are refused.
    pub fn certified_or<'a>(&'a self, default: &'a Server) -> Option<&'a Certified> {
        if self.rejects {
            return None;
        }
        let of_default = || Encryption::of(default)?.certified.as_ref();
        self.certified.as_ref().or_else(of_default)
    }
}

/// Makes the contexts of all servers with encrypted addresses.
pub fn prepare(builder: &mut Builder, bindings: &[Binding]) {
    let listens = bindings.iter().flat_map(|binding| &binding.listens);
    // nginx: these are read wherever they stand; one may be a pipe whose writer waits for a reader.
    for server in listens.clone().flat_map(|listen| listen.names.servers()) {
        let (files, cx) = Files::of(builder);
        let passwords = files.passwords(server.parts.of::<SslPolicy>().password_file.as_ref());
        if let Err(mistake) = passwords {
            report(cx, mistake);
        }
    }
    let mut zones = Zones::default();
    for listen in listens.filter(|listen| listen.is_encrypted) {
        for server in listen.names.servers() {
            if Encryption::of(server).is_some() {
                continue;
            }
            let (files, cx) = Files::of(builder);
            let outcome = encryption(server, (files, &mut zones), cx);
            let made = outcome.unwrap_or_else(|mistake| {
                report(cx, mistake);
                Encryption {
                    rejects: true,
                    ..Encryption::bare(server.parts.of::<SslPolicy>())
                }
            });
            // Nobody else sets it.
            let _ = server.parts.of::<LateEncryption>().0.set(made);
        }
        check_certificates(listen, &mut builder.cx);
        check_versions(listen, &mut builder.cx);
    }
}

/// nginx: the default server of an address of QUIC speaks TLS 1.3, as QUIC does.
fn check_versions(listen: &Listen, cx: &mut ParseContext) {
    let default = listen.names.default_server();
    let own = Encryption::of(default);
    let certified = own.and_then(|own| own.certified.as_ref());
    if listen.is_quic && certified.is_some_and(|it| !it.context.has_tls13()) {
        let message = "\"ssl_protocols\" must enable TLSv1.3 for the \"listen ... quic\" directive";
        report(cx, (default.span, message.to_owned()));
    }
}

/// nginx: the default server has a certificate, or it refuses handshakes and all others have one or
/// do so, too.
fn check_certificates(listen: &Listen, cx: &mut ParseContext) {
    let is_bare = |server: &Server| {
        let own = Encryption::of(server);
        own.is_some_and(|own| own.certified.is_none() && !own.rejects)
    };
    let default = listen.names.default_server();
    let rejects = Encryption::of(default).is_some_and(|own| own.rejects);
    let mut servers = listen.names.servers();
    let wanting = if rejects {
        servers.find(|server| is_bare(server))
    } else {
        Some(default).filter(|server| is_bare(server))
    };
    if let Some(server) = wanting {
        let how = if listen.is_quic { "quic" } else { "ssl" };
        let message =
            format!("no \"ssl_certificate\" is defined for the \"listen ... {how}\" directive");
        report(cx, (server.span, message));
    }
}

fn encryption(
    server: &Server,
    (files, zones): (&mut Files, &mut Zones),
    cx: &mut ParseContext,
) -> Result<Encryption, Mistake> {
    let policy = &server.parts.of::<SslPolicy>();
    let mut made = Encryption::bare(policy);
    made.host_key = host_key(server, files)?;
    if policy.certificates.is_empty() {
        return Ok(made);
    }
    let ordered = ordered(server)?;
    let (mut settings, named) = match &ordered {
        Some(ordered) => (of_ordered(ordered), None),
        None => certificates(policy, files)?,
    };
    agree(policy, &mut settings, cx)?;
    if server.session.is_some() {
        let protocols = policy.protocols_inside.iter().flatten();
        settings.alpn = protocols.map(|name| name.clone().into_bytes()).collect();
        settings.optional_alpn = None;
    }
    settings.key_log = policy.key_log.as_ref().map(|file| file.lines() as Arc<_>);
    settings.quic_alpn = server.settings.quic.protocols();
    if !settings.quic_alpn.is_empty() && policy.early_data {
        let promises = server.settings.quic.promises();
        settings.session_context.extend_from_slice(&promises);
    }
    if policy.demand().is_some() {
        let verifier = verifier(policy, files, &mut settings.session_context)?;
        settings.verifier = Some(Arc::clone(&verifier) as Arc<_>);
        made.verifier = Some(verifier);
    }
    if policy.asked_status != Asked::None {
        made.status = Some(status_check(server, (files, zones))?);
    }
    resume(policy, &mut settings, (files, zones))?;
    let staplers = match (&policy.staple_file, policy.staples) {
        (_, false) => Vec::new(),
        (Some(file), true) => {
            let answer = files.text(file, Thing::Certificate)?;
            let first = settings.identities.first();
            first.iter().for_each(|it| it.set_staple(answer.to_vec()));
            Vec::new()
        }
        (None, true) => staplers(server, &settings.identities, (files, cx))?,
    };
    let span = policy.certificates.first().map_or(Span::NONE, |it| it.span);
    let context = ServerContext::new(&settings).map_err(|error| (span, error.to_string()))?;
    made.certified = Some(Certified {
        context,
        named,
        ordered,
        certificates: settings
            .identities
            .into_iter()
            .map(|it| (span, it))
            .collect(),
        staplers,
    });
    Ok(made)
}

/// The keys that a server's file makes (`quic_host_key`).
fn host_key(server: &Server, files: &mut Files) -> Result<Option<HostKey>, Mistake> {
    let Some(file) = &server.settings.quic.host_key else {
        return Ok(None);
    };
    let path = &file.value.0;
    let secret = files.read(path).map_err(|error| {
        let (shown, why) = (path.display(), error::os_error(&error));
        (file.span, format!("cannot read \"{shown}\" ({why})"))
    })?;
    if secret.is_empty() {
        let shown = path.display();
        return Err((file.span, format!("\"{shown}\" is empty")));
    }
    Ok(Some(HostKey::new(&secret)))
}

/// The certificate that is ordered for a server, if its lines say so.
fn ordered(server: &Server) -> Result<Option<Arc<Ordered>>, Mistake> {
    let policy = &server.parts.of::<SslPolicy>();
    let is_variables = matches!(
        (policy.certificates.as_slice(), policy.keys.as_slice()),
        ([certificate], [key]) if *certificate.name.source == *"$acme_certificate"
            && *key.name.source == *"$acme_certificate_key"
    );
    let Some(span) = acme::certificate::auto(policy) else {
        // Elsewhere they are variables as all others.
        let ordered = Slot::of_server(server).ordered().filter(|_| is_variables);
        return Ok(ordered.cloned());
    };
    if policy.certificates.len() > 1 || !policy.keys.is_empty() {
        let message = "\"ssl_certificate auto\" stands alone: its key is made with it";
        return Err((span, message.to_owned()));
    }
    match Slot::of_server(server).ordered() {
        Some(ordered) => Ok(Some(Arc::clone(ordered))),
        None if server.session.is_some() => {
            let message = "\"ssl_certificate auto\" is for servers of \"http\"";
            Err((span, message.to_owned()))
        }
        // It was told why.
        None => Err((span, String::new())),
    }
}

/// Settings of a certificate that is ordered: sessions outlive its renewals.
fn of_ordered(ordered: &Ordered) -> ServerSettings {
    let mut settings = ServerSettings::new(Vec::new());
    let label = format!("{}\0{}", ordered.issuer, ordered.label);
    settings.session_context.extend_from_slice(label.as_bytes());
    settings
}

/// Settings with the certificates of a server, or those whose names have variables.
fn certificates(
    policy: &SslPolicy,
    files: &mut Files,
) -> Result<(ServerSettings, Option<Arc<NamedCertificates>>), Mistake> {
    let pairs = pairs(policy)?;
    let passwords = files.passwords(policy.password_file.as_ref())?;
    if pairs.iter().flatten().any(|file| file.literal().is_none()) {
        let mut settings = ServerSettings::new(Vec::new());
        // nginx: the names are what sessions depend on.
        for [certificate, _] in &pairs {
            let name = certificate.name.source.as_bytes();
            settings.session_context.extend_from_slice(name);
            settings.session_context.push(0);
        }
        let named = NamedCertificates {
            files: pairs,
            passwords,
            cache: policy.certificate_cache.0.clone(),
        };
        return Ok((settings, Some(Arc::new(named))));
    }
    let mut identities = Vec::new();
    for [certificate, key] in &pairs {
        let identity = files.identity(certificate, key, &passwords)?;
        put_identity(&mut identities, identity);
    }
    let commanded = commands::identity(COMMAND, &policy.commands, (files, &passwords))?;
    commanded
        .into_iter()
        .for_each(|new| put_identity(&mut identities, new));
    Ok((ServerSettings::new(identities), None))
}

/// The certificates whose responders are known; others are warned of, as in nginx.
fn staplers(
    server: &Server,
    identities: &[Arc<Identity>],
    (files, cx): (&mut Files, &mut ParseContext),
) -> Result<Vec<Arc<Stapler>>, Mistake> {
    let policy = &server.parts.of::<SslPolicy>();
    let failed = |why: Failure| (server.span, why.to_string());
    let authorities = authorities(server, files)?;
    let mut staplers = Vec::new();
    for (identity, file) in identities.iter().zip(&policy.certificates) {
        let name = &file.name.source;
        let ignored = |why: &str| format!("\"ssl_stapling\" ignored, {why} \"{name}\"");
        let question = Question::new(&identity.chain(), &authorities).map_err(failed)?;
        let Some(question) = question else {
            let why = "issuer certificate not found for certificate";
            warn(cx, file.span, ignored(why));
            continue;
        };
        let url = match &policy.staple_responder {
            Some(url) => Some((url.span, url.value.clone())),
            None => question.responder().map(|url| (file.span, url)),
        };
        let Some((span, url)) = url else {
            warn(
                cx,
                file.span,
                ignored("no OCSP responder URL in the certificate"),
            );
            continue;
        };
        staplers.push(Arc::new(Stapler {
            identity: Arc::clone(identity),
            question,
            responder: Responder::parse(&url).map_err(|why| (span, why))?,
            signer: if policy.verifies_staples {
                Signer::Verified
            } else {
                Signer::Any
            },
            names: server.location.settings.resolver.clone(),
            state: Mutex::default(),
        }));
    }
    Ok(staplers)
}

/// The way in which the status of clients' certificates is learnt.
fn status_check(
    server: &Server,
    (files, zones): (&mut Files, &mut Zones),
) -> Result<StatusCheck, Mistake> {
    let policy = &server.parts.of::<SslPolicy>();
    let span = policy.certificates.first().map_or(Span::NONE, |it| it.span);
    if policy.verify_client == VerifyClient::OptionalNoCa {
        let message = "\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\"";
        return Err((span, message.to_owned()));
    }
    let parse = |url: &Spanned<String>| Responder::parse(&url.value).map_err(|why| (url.span, why));
    let responder = policy.status_responder.as_ref().map(parse);
    let cache = &policy.status_cache;
    let named = cache.value.0.as_ref();
    let known = named.map(|(name, size)| zones.statuses.get(name, Some(*size)));
    Ok(StatusCheck {
        asked: policy.asked_status,
        authorities: authorities(server, files)?,
        responder: responder.transpose()?,
        names: server.location.settings.resolver.clone(),
        known: known.transpose().map_err(|why| (cache.span, why))?,
    })
}

/// The authorities that a server trusts.
fn authorities(server: &Server, files: &mut Files) -> Result<Authorities, Mistake> {
    let policy = &server.parts.of::<SslPolicy>();
    let failed = |why: Failure| (server.span, why.to_string());
    let mut authorities = Vec::new();
    let named = [&policy.client_authorities, &policy.trusted];
    for file in named.into_iter().flatten() {
        let text = files.text(file, Thing::Certificate)?;
        authorities.extend(load::authorities(&text).map_err(failed)?);
    }
    Authorities::read(&authorities).map_err(failed)
}

/// The certificates of a server, each with its key.
fn pairs(policy: &SslPolicy) -> Result<Vec<[FileName; 2]>, Mistake> {
    let mut pairs = Vec::new();
    for (index, certificate) in policy.certificates.iter().enumerate() {
        let Some(key) = policy.keys.get(index) else {
            let name = &certificate.name.source;
            let message =
                format!("no \"ssl_certificate_key\" is defined for certificate \"{name}\"");
            return Err((certificate.span, message));
        };
        pairs.push([certificate.clone(), key.clone()]);
    }
    Ok(pairs)
}

/// Sets the bounds of an agreement.
fn agree(
    policy: &SslPolicy,
    settings: &mut ServerSettings,
    cx: &mut ParseContext,
) -> Result<(), Mistake> {
    let span = policy.ciphers.span;
    settings.versions = versions(policy.protocols, ("ssl_protocols", span), cx)?;
    settings.ciphers = ciphers(&policy.ciphers.value, ("ssl_ciphers", span), cx)?;
    let curves = &policy.curves;
    settings.groups = Groups::parse(&curves.value)
        .map_err(|why| (curves.span, format!("invalid \"ssl_ecdh_curve\": {why}")))?;
    if !settings.groups.dropped().is_empty() {
        let names = settings.groups.dropped().join(", ");
        let message = format!("\"ssl_ecdh_curve\" names groups that are not there: {names}");
        warn(cx, curves.span, message);
    }
    settings.preference = if policy.prefers_own_ciphers {
        Preference::Server
    } else {
        Preference::Client
    };
    settings.compression = if policy.compresses {
        Compression::Zlib
    } else {
        Compression::Off
    };
    settings.early_data = if policy.early_data {
        EarlyData::Accept
    } else {
        EarlyData::Refuse
    };
    let is_asked_for = |name| cx.variables.lookup(name).is_some();
    settings.offers = if ["ssl_ciphers", "ssl_curves", "ssl_sigalgs"]
        .into_iter()
        .any(is_asked_for)
    {
        Offers::Keep
    } else {
        Offers::Forget
    };
    settings.fragment = policy.buffer_size.as_usize();
    settings.alpn = vec![
        b"http/1.1".to_vec(),
        b"http/1.0".to_vec(),
        b"http/0.9".to_vec(),
    ];
    settings.optional_alpn = Some(http2::ALPN.to_vec());
    for command in &policy.commands {
        obey(command, settings)?;
    }
    Ok(())
}

/// The versions of a list of words.
pub(super) fn versions(
    words: Flags<ProtocolVersion>,
    (name, span): (&str, Span),
    cx: &mut ParseContext,
) -> Result<Versions, Mistake> {
    let old = [
        ProtocolVersion::Ssl2,
        ProtocolVersion::Ssl3,
        ProtocolVersion::Tls10,
        ProtocolVersion::Tls11,
    ];
    if old.into_iter().any(|word| words.contains(word)) {
        let message = format!(
            "\"{name}\": versions below TLSv1.2 are not spoken; clients that have no other are \
             refused"
        );
        warn(cx, span, message);
    }
    let has = |word| words.contains(word);
    match (has(ProtocolVersion::Tls12), has(ProtocolVersion::Tls13)) {
        (true, true) => Ok(Versions::Both),
        (true, false) => Ok(Versions::Tls12),
        (false, true) => Ok(Versions::Tls13),
        (false, false) => Err((span, format!("\"{name}\" names no version that is spoken"))),
    }
}

/// The suites of a list of OpenSSL's.
pub(super) fn ciphers(
    list: &str,
    (name, span): (&str, Span),
    cx: &mut ParseContext,
) -> Result<Ciphers, Mistake> {
    let ciphers = Ciphers::parse(list).map_err(|why| {
        let message = format!("SSL_CTX_set_cipher_list(\"{list}\") failed ({why})");
        (span, message)
    })?;
    if !ciphers.dropped().is_empty() {
        let names = ciphers.dropped().join(", ");
        let message = format!("\"{name}\" names suites that are not there: {names}");
        warn(cx, span, message);
    }
    Ok(ciphers)
}

/// Warns, once for each place.
fn warn(cx: &mut ParseContext, span: Span, message: String) {
    let is_known = cx
        .diagnostics
        .iter()
        .any(|known| known.span == Some(span) && known.message == message);
    if !is_known {
        cx.diagnostics.push_warning(span, message);
    }
}

/// A command of OpenSSL's configuration.
fn obey(command: &ConfCommand, settings: &mut ServerSettings) -> Result<(), Mistake> {
    let bounds = Bounds {
        versions: &mut settings.versions,
        ciphers: &mut settings.ciphers,
        groups: &mut settings.groups,
    };
    if commands::obey(COMMAND, command, bounds)? {
        return Ok(());
    }
    let value = command.value.as_str();
    let obeyed = match command.name.as_str() {
        "NumTickets" => match value.parse() {
            Ok(count) => {
                settings.ticket_count = count;
                Ok(())
            }
            Err(_) => Err("invalid number".to_owned()),
        },
        "Options" => options(value, settings),
        _ => Err("the command is not supported".to_owned()),
    };
    obeyed.map_err(|why| commands::mistake(COMMAND, command, why))
}

fn options(value: &str, settings: &mut ServerSettings) -> Result<(), String> {
    for word in value.split(',') {
        let (is_on, word) = match word.strip_prefix('-') {
            Some(word) => (false, word),
            None => (true, word.strip_prefix('+').unwrap_or(word)),
        };
        match word {
            "ServerPreference" => {
                settings.preference = if is_on {
                    Preference::Server
                } else {
                    Preference::Client
                };
            }
            // `has_tickets` obeys the first; what the others ask for is so, or cannot be otherwise.
            "SessionTicket" | "PrioritizeChaCha" | "KTLS" | "NoRenegotiation" => {}
            _ => return Err(format!("the option \"{word}\" is not supported")),
        }
    }
    Ok(())
}

/// Judges clients' certificates; sessions depend on what it judges by.
fn verifier(
    policy: &SslPolicy,
    files: &mut Files,
    session_context: &mut Vec<u8>,
) -> Result<Arc<ClientVerifier>, Mistake> {
    let named = [&policy.client_authorities, &policy.trusted];
    let has_authorities = named.iter().any(|file| file.is_some());
    if !has_authorities && policy.verify_client != VerifyClient::OptionalNoCa {
        let span = policy.certificates.first().map_or(Span::NONE, |it| it.span);
        let message = "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client";
        return Err((span, message.to_owned()));
    }
    let mut read = |file: &Option<FileName>, thing| match file {
        Some(file) => files.text(file, thing).map(Some),
        None => Ok(None),
    };
    let told = read(&policy.client_authorities, Thing::Certificate)?;
    let trusted = read(&policy.trusted, Thing::Certificate)?;
    let revoked = read(&policy.revoked, Thing::Revocations)?;
    let authorities: Vec<&[u8]> = [&told, &trusted]
        .into_iter()
        .flatten()
        .map(|it| &**it)
        .collect();
    let revocations: Vec<&[u8]> = revoked.iter().map(|it| &**it).collect();
    let anchors = Anchors {
        authorities: &authorities,
        revocations: &revocations,
    };
    let rules = Rules {
        peer: Peer::Client,
        depth: policy.verify_depth,
        time: None,
    };
    let span = policy
        .client_authorities
        .as_ref()
        .map_or(Span::NONE, |it| it.span);
    let failed = |why: Failure| (span, why.to_string());
    let trust = Trust::new(anchors, rules).map_err(failed)?;
    session_context.push(policy.verify_client as u8);
    session_context.extend_from_slice(&policy.verify_depth.to_be_bytes());
    for text in authorities.iter().chain(&revocations) {
        session_context.extend_from_slice(text);
    }
    let shown = told
        .map(|text| load::authorities(&text))
        .transpose()
        .map_err(failed)?;
    let verifier = ClientVerifier::new(Arc::new(trust), &shown.unwrap_or_default());
    Ok(Arc::new(verifier))
}

/// Sessions, kept here or by clients.
fn resume(
    policy: &SslPolicy,
    settings: &mut ServerSettings,
    (files, zones): (&mut Files, &mut Zones),
) -> Result<(), Mistake> {
    let caches = &policy.session_cache;
    settings.session_timeout = policy.session_timeout;
    settings.cache = match (&caches.value.shared, caches.value.builtin) {
        (Some((name, size)), _) => {
            let zone = zones
                .sessions
                .get(name, *size)
                .map_err(|why| (caches.span, why))?;
            CacheMode::Cache(zone)
        }
        (None, Some(sessions)) => {
            let bytes = usize::try_from(sessions.saturating_mul(SESSION)).unwrap_or(usize::MAX);
            CacheMode::Cache(Arc::new(SessionCache::new(bytes)))
        }
        (None, None) if caches.value.is_told => CacheMode::None,
        (None, None) => CacheMode::Off,
    };
    if !has_tickets(policy) {
        settings.tickets = None;
        return Ok(());
    }
    let mut keys = Vec::new();
    for file in &policy.ticket_keys {
        let bytes = files.text(file, Thing::Key)?;
        let key = TicketKey::from_bytes(&bytes).map_err(|why| (file.span, why.to_string()))?;
        keys.push(key);
    }
    settings.tickets = Some(if keys.is_empty() {
        random_tickets(policy.session_timeout)
    } else {
        Arc::new(Tickets::with_keys(keys))
    });
    Ok(())
}

/// True if clients get tickets: commands come after directives.
fn has_tickets(policy: &SslPolicy) -> bool {
    let commands = policy.commands.iter();
    let options = commands.filter(|command| command.name == "Options");
    let words = options.flat_map(|command| command.value.split(','));
    words.fold(policy.tickets, |has, word| match word {
        "SessionTicket" | "+SessionTicket" => true,
        "-SessionTicket" => false,
        _ => has,
    })
}

/// Bytes of a session, about.
const SESSION: u64 = 256;

/// The zones of one configuration.
struct Zones {
    sessions: ZonesOf<SessionCache>,
    statuses: ZonesOf<Known>,
}

impl Default for Zones {
    fn default() -> Self {
        Zones {
            sessions: ZonesOf::new(SessionCache::new, &SESSIONS),
            statuses: ZonesOf::new(Known::new, &STATUSES),
        }
    }
}

/// The zones of one kind.
struct ZonesOf<T: 'static> {
    named: HashMap<String, (u64, Arc<T>)>,
    make: fn(usize) -> T,
    known: &'static LazyLock<Mutex<KnownZones<T>>>,
}

/// Zones with their sizes; they live as long as a configuration that names them.
type KnownZones<T> = HashMap<String, (u64, Weak<T>)>;

/// The zones of sessions of the process: a reload finds the sessions that are kept.
static SESSIONS: LazyLock<Mutex<KnownZones<SessionCache>>> = LazyLock::new(Mutex::default);

/// The zones of the status of certificates.
static STATUSES: LazyLock<Mutex<KnownZones<Known>>> = LazyLock::new(Mutex::default);

/// Keys of tickets that no file has, by the time for which they encrypt: what a client got from one
/// configuration is good for the next.
static TICKETS: LazyLock<Mutex<HashMap<Duration, Arc<Tickets>>>> = LazyLock::new(Mutex::default);

fn random_tickets(lifetime: Duration) -> Arc<Tickets> {
    let mut known = TICKETS.lock().unwrap_or_else(PoisonError::into_inner);
    let tickets = known.entry(lifetime);
    Arc::clone(tickets.or_insert_with(|| Arc::new(Tickets::rotating(lifetime))))
}

impl<T> ZonesOf<T> {
    fn new(make: fn(usize) -> T, known: &'static LazyLock<Mutex<KnownZones<T>>>) -> Self {
        ZonesOf {
            named: HashMap::new(),
            make,
            known,
        }
    }

    fn get(&mut self, name: &str, size: Option<u64>) -> Result<Arc<T>, String> {
        if let Some((known, zone)) = self.named.get(name) {
            return match size {
                Some(size) if size != *known => Err(format!(
                    "the size {size} of shared memory zone \"{name}\" conflicts with already \
                     declared size {known}"
                )),
                _ => Ok(Arc::clone(zone)),
            };
        }
        let size = size.unwrap_or_default();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = known.get(name).filter(|(kept, _)| *kept == size);
        let zone = kept
            .and_then(|(_, zone)| zone.upgrade())
            .unwrap_or_else(|| Arc::new((self.make)(usize::try_from(size).unwrap_or(usize::MAX))));
        known.insert(name.to_owned(), (size, Arc::downgrade(&zone)));
        self.named
            .insert(name.to_owned(), (size, Arc::clone(&zone)));
        Ok(zone)
    }
}
