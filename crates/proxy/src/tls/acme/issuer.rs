//! `acme_issuer`, and inside of it `uri`, `account_key` and the others: an authority.
//!
//! | line | default |
//! |---|---|
//! | `uri` | none, but for the issuer `default`: Let's Encrypt's |
//! | `account_key` | `ecdsa:256` |
//! | `challenge` | `http-01` |
//! | `common_name_in_csr` | `off` |
//! | `ssl_verify` | `on` |
//! | `ssl_trusted_certificate` | the bundle of the system |
//! | `state_path` | `acme_NAME`, below the prefix |

use std::path::Path;
use std::sync::Arc;

use millpond_acme::challenge::Way;
use millpond_acme::csr::Subject;
use millpond_acme::issuer::{AccountKey, Binding, Need, Profile, Terms};
use millpond_acme::key::Key;
use millpond_acme::state::Folder;
use millpond_acme::url::Url;
use millpond_acme::{Issuer, KeyKind, base64url, http};
use millpond_conf::value::parse_offset;
use millpond_conf::{Contexts, Span, Statement, Word};
use millpond_system::log::error::os_error;
use millpond_tls::certificate::origin::OriginVerifier;
use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use millpond_tls::{ClientContext, ClientSettings, Sni};
use zeroize::Zeroizing;

use super::Orders;
use crate::tls::files::Files;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::declared::Declared;
use millpond_exchange::settings::location::LocationSettings;

/// The rows of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: "acme_issuer",
        contexts: Contexts::HTTP,
        syntax: "name { uri url; account_key alg[:size] | file; challenge http-01 | tls-alpn-01; \
                 common_name_in_csr on | off; contact url; external_account_key kid file | \
                 data:key; preferred_chain name; profile name [require]; ssl_trusted_certificate \
                 file; ssl_verify on | off; state_path path | off; accept_terms_of_service; }",
        is_block: true,
        pass: Pass::First,
        doc: "An authority that certificates are ordered from by ACME (RFC 8555), and the account \
              there. `uri` is its directory. `account_key` is the account's key: a file, or the \
              algorithm of one that is made (`ecdsa:256`, `ecdsa:384`, `ecdsa:521`, `rsa:2048`, \
              `rsa:3072`, `rsa:4096`). `challenge` is the way in which names are validated: a \
              request over HTTP on port 80, or a handshake on port 443. `contact` names whom the \
              authority may write to, and may be repeated. `external_account_key` binds the \
              account to that of a customer; the key is base64url, in a file or behind `data:`. \
              Of several chains, `preferred_chain` takes the one whose topmost certificate was \
              issued by the name. `profile` asks for a kind of certificate; with `require` \
              nothing is ordered where the authority does not have it. `state_path` is the \
              folder of the account's key and of the certificates with their keys \
              (`acme_NAME`); with `off` they end with the process, and the next one orders anew. \
              `accept_terms_of_service` accepts the authority's terms; it prints their URL if \
              they have to be accepted.\n\n# Differs from nginx\n\nNo `resolver` is needed: \
              without one the system is asked. The issuer `default` has the `uri` of Let's \
              Encrypt, and needs `accept_terms_of_service` with it. The names of files depend on \
              all that is ordered, the `uri` among it; what nginx's module has kept is not read.",
        apply: issuer,
    },
    Row {
        name: "acme_shared_zone",
        contexts: Contexts::HTTP,
        syntax: "zone=name:size",
        is_block: false,
        pass: Pass::First,
        doc: "The memory of certificates and validations.\n\n# Differs from nginx\n\nThe size is \
              checked and not used: all workers share the memory of the process.",
        apply: shared_zone,
    },
];

/// The name of the issuer that has a default for everything.
pub const DEFAULT: &str = "default";
/// The directory of Let's Encrypt.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Places of the bundle of authorities: Debian's, Fedora's, SUSE's, and that of Alpine and BSD.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The smallest zone, as in nginx: eight pages.
const ZONE_MIN: u64 = 8 * 4096;
/// Certificates between an authority's own and a trusted one, at most (OpenSSL's default).
const DEPTH: u32 = 100;

/// Issuers that were read, without what the end of the http block says.
#[derive(Default)]
pub struct Drafts(Vec<Lines>);

impl Drafts {
    /// True if there is an issuer: an authority may ask for something.
    pub fn has_any(&self) -> bool {
        !self.0.is_empty()
    }
}

/// `acme_shared_zone`, if it was read.
#[derive(Default)]
struct ZoneIsKnown(bool);

/// The lines of an issuer.
#[derive(Clone)]
struct Lines {
    name: String,
    span: Span,
    uri: Option<Url>,
    account: Option<AccountKey>,
    challenge: Option<Way>,
    subject: Option<Subject>,
    contacts: Vec<String>,
    binding: Option<Binding>,
    chain: Option<String>,
    profile: Option<Profile>,
    trusted: Option<Word>,
    verifies: Option<bool>,
    folder: Option<Option<Folder>>,
    terms: Option<Terms>,
}

/// The reason for which a line is not obeyed.
type Refused = String;

fn issuer(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let Some(name) = statement.args.first() else {
        return;
    };
    let known = &builder.of::<Drafts>().0;
    if known.iter().any(|known| known.name == name.text) {
        let message = format!("duplicate acme_issuer \"{}\"", name.text);
        builder.error(name.span, message);
        return;
    }
    if name.text.is_empty() || name.text.contains(['/', '\0']) {
        builder.error(name.span, "the name of an issuer is part of a path");
        return;
    }
    let mut lines = Lines {
        name: name.text.clone(),
        span: statement.span,
        uri: None,
        account: None,
        challenge: None,
        subject: None,
        contacts: Vec::new(),
        binding: None,
        chain: None,
        profile: None,
        trusted: None,
        verifies: None,
        folder: None,
        terms: None,
    };
    for line in statement.body.as_deref().unwrap_or_default() {
        if let Err(message) = lines.obey(builder, line) {
            builder.error(line.span, message);
        }
    }
    builder.of::<Drafts>().0.push(lines);
}

impl Lines {
    fn obey(&mut self, builder: &mut Builder, line: &Statement) -> Result<(), Refused> {
        let name = line.name.text.as_str();
        if line.body.is_some() {
            return Err(format!("directive \"{name}\" is not terminated by \";\""));
        }
        let args: Vec<&str> = line.args.iter().map(|word| word.text.as_str()).collect();
        match (name, args.as_slice()) {
            ("uri", [uri]) => set(&mut self.uri, name, Url::parse(uri)),
            ("account_key", [word]) => set(&mut self.account, name, account_key(builder, word)),
            ("challenge", [word]) => {
                let way = Way::parse(word).ok_or_else(|| format!("unsupported challenge: {word}"));
                set(&mut self.challenge, name, way)
            }
            ("common_name_in_csr", [word]) => {
                let subject = flag(name, word).map(|is_on| {
                    if is_on {
                        return Subject::FirstName;
                    }
                    Subject::Empty
                });
                set(&mut self.subject, name, subject)
            }
            ("contact", [""]) => Err("\"contact\" directive invalid value".to_owned()),
            ("contact", [word]) => {
                self.contacts.push(contact(word));
                Ok(())
            }
            ("external_account_key", [id, key]) => {
                set(&mut self.binding, name, binding(builder, id, key))
            }
            ("preferred_chain", [word]) => set(&mut self.chain, name, Ok((*word).to_owned())),
            ("profile", [word]) => set(&mut self.profile, name, Ok(profile(word, Need::Preferred))),
            ("profile", [word, "require"]) => {
                set(&mut self.profile, name, Ok(profile(word, Need::Required)))
            }
            ("profile", [_, other]) => Err(format!("invalid parameter \"{other}\"")),
            ("ssl_trusted_certificate", [_]) => {
                let word = line.args.first().cloned().ok_or_else(String::new);
                set(&mut self.trusted, name, word)
            }
            ("ssl_verify", [word]) => set(&mut self.verifies, name, flag(name, word)),
            ("state_path", ["off"]) => set(&mut self.folder, name, Ok(None)),
            ("state_path", [path]) => {
                let folder = Folder(builder.cx.prefix.join(path));
                set(&mut self.folder, name, Ok(Some(folder)))
            }
            ("accept_terms_of_service", []) => set(&mut self.terms, name, Ok(Terms::Accepted)),
            _ if LINES.contains(&name) => Err(format!(
                "invalid number of arguments in \"{name}\" directive"
            )),
            _ => Err(format!("unknown directive \"{name}\" in \"acme_issuer\"")),
        }
    }

    /// The issuer, with the settings of the http block.
    fn finish(&self, builder: &mut Builder, http: &LocationSettings) -> Result<Issuer, Refused> {
        let uri = match (&self.uri, self.name.as_str()) {
            (Some(uri), _) => uri.clone(),
            (None, DEFAULT) if self.terms.is_some() => Url::parse(LETS_ENCRYPT)?,
            (None, DEFAULT) => {
                return Err(
                    "\"accept_terms_of_service\" is missing: the issuer \"default\" \
                            without \"uri\" is Let's Encrypt, which asks for it \
                            (https://letsencrypt.org/repository/)"
                        .to_owned(),
                );
            }
            (None, _) => return Err("\"uri\" is missing".to_owned()),
        };
        let verifier = Arc::new(self.verifier(builder)?);
        let mut settings = ClientSettings::new(Arc::new(OriginVerifier::unverified()));
        settings.sni = Sni::On;
        let context = ClientContext::new(&settings).map_err(|why| why.to_string())?;
        let usual = || {
            Some(Folder(
                builder.cx.prefix.join(format!("acme_{}", self.name)),
            ))
        };
        Ok(Issuer {
            name: self.name.clone(),
            uri,
            way: http::Way {
                context,
                verifier,
                names: http.resolver.clone(),
            },
            account: self
                .account
                .clone()
                .unwrap_or(AccountKey::Made(KeyKind::default())),
            contacts: self.contacts.clone(),
            binding: self.binding.clone(),
            terms: self.terms.unwrap_or(Terms::Unsaid),
            challenge: self.challenge.unwrap_or_default(),
            subject: self.subject.unwrap_or_default(),
            profile: self.profile.clone(),
            chain: self.chain.clone(),
            folder: self.folder.clone().unwrap_or_else(usual),
        })
    }

    /// The judge of the authority's own certificate.
    fn verifier(&self, builder: &mut Builder) -> Result<OriginVerifier, Refused> {
        if self.verifies == Some(false) {
            return Ok(OriginVerifier::unverified());
        }
        verifier_of(
            builder,
            self.trusted.as_ref().map(|file| file.text.as_str()),
        )
    }
}

/// The judge of the certificates of servers that the process itself asks: by the authorities of a
/// file, or else by those of the system.
pub fn verifier_of(builder: &mut Builder, trusted: Option<&str>) -> Result<OriginVerifier, String> {
    let authorities = authorities(builder, trusted)?;
    let anchors = Anchors {
        authorities: &[&authorities],
        revocations: &[],
    };
    let rules = Rules {
        peer: Peer::Origin,
        depth: DEPTH,
        time: None,
    };
    let trust = Trust::new(anchors, rules).map_err(|why| why.to_string())?;
    Ok(OriginVerifier::new(Arc::new(trust)))
}

fn authorities(builder: &mut Builder, trusted: Option<&str>) -> Result<Arc<[u8]>, Refused> {
    if let Some(file) = trusted {
        return read(builder, file);
    }
    let found = BUNDLES.iter().find_map(|path| read(builder, path).ok());
    found.ok_or_else(|| {
        "no bundle of the system's authorities is found: name one by \"ssl_trusted_certificate\""
            .to_owned()
    })
}

/// The lines that take a fixed number of arguments, all but those that were read.
const LINES: [&str; 12] = [
    "uri",
    "account_key",
    "challenge",
    "common_name_in_csr",
    "contact",
    "external_account_key",
    "preferred_chain",
    "profile",
    "ssl_trusted_certificate",
    "ssl_verify",
    "state_path",
    "accept_terms_of_service",
];

/// Makes the issuers, at the end of the http block.
pub fn settle(builder: &mut Builder, http: &LocationSettings) {
    for lines in builder.of::<Drafts>().0.clone() {
        match lines.finish(builder, http) {
            Ok(issuer) => {
                if let Some(folder) = &issuer.folder {
                    let declared = builder.of::<Declared>();
                    declared.temp_folders.note_state(&folder.0);
                }
                builder.of::<Orders>().issuers.push(Arc::new(issuer));
            }
            Err(why) => builder.error(lines.span, format!("acme_issuer: {why}")),
        }
    }
}

/// Keeps a value that was not there.
fn set<T>(place: &mut Option<T>, name: &str, value: Result<T, Refused>) -> Result<(), Refused> {
    if place.is_some() {
        return Err(format!("\"{name}\" directive is duplicate"));
    }
    *place = Some(value?);
    Ok(())
}

fn flag(name: &str, word: &str) -> Result<bool, Refused> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!(
            "invalid value \"{other}\" in \"{name}\" directive, it must be \"on\" or \"off\""
        )),
    }
}

fn account_key(builder: &mut Builder, word: &str) -> Result<AccountKey, Refused> {
    match KeyKind::parse(word) {
        Some(Ok(kind)) => Ok(AccountKey::Made(kind)),
        Some(Err(why)) => Err(format!("{why} \"{word}\"")),
        None => {
            let failed = |why: String| format!("cannot load account key: {why}");
            let text = read(builder, word).map_err(failed)?;
            let key = Key::from_pem(&text).map_err(|why| failed(format!("\"{word}\": {why}")))?;
            Ok(AccountKey::Given(key))
        }
    }
}

/// nginx: an address without a scheme is that of a mailbox.
fn contact(word: &str) -> String {
    let scheme = word.split(':').next().unwrap_or_default();
    let mut bytes = scheme.bytes();
    let is_scheme = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    if word.contains(':') && is_scheme {
        return word.to_owned();
    }
    format!("mailto:{word}")
}

fn binding(builder: &mut Builder, id: &str, key: &str) -> Result<Binding, Refused> {
    let text = match key.strip_prefix("data:") {
        Some(text) => Zeroizing::new(text.as_bytes().to_vec()),
        None => Zeroizing::new(read(builder, key)?.to_vec()),
    };
    let decoded = base64url::decode(text.trim_ascii()).filter(|secret| !secret.is_empty());
    let secret = decoded.ok_or("invalid base64url encoded value in \"external_account_key\"")?;
    if id.is_empty() {
        return Err("invalid value in \"external_account_key\" directive".to_owned());
    }
    Ok(Binding {
        id: id.to_owned(),
        secret: Zeroizing::new(secret),
    })
}

fn profile(name: &str, need: Need) -> Profile {
    Profile {
        name: name.to_owned(),
        need,
    }
}

/// The bytes of a file, named from the folder of the configuration.
fn read(builder: &mut Builder, name: &str) -> Result<Arc<[u8]>, Refused> {
    let (files, cx) = Files::of(builder);
    let path = cx.conf_dir.join(Path::new(name));
    files.read(&path).map_err(|error| {
        let why = os_error(&error);
        format!("open() \"{}\" failed ({why})", path.display())
    })
}

fn shared_zone(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let word = statement.args.first().map_or("", |word| &word.text);
    let is_duplicate = std::mem::replace(&mut builder.of::<ZoneIsKnown>().0, true);
    let Some(zone) = word.strip_prefix("zone=") else {
        let message = "\"acme_shared_zone\" must have \"zone\" parameter";
        builder.error(statement.span, message);
        return;
    };
    let split = zone.split_once(':');
    let size = split.and_then(|(name, size)| Some((name, parse_offset(size)?)));
    let mistake = match size {
        _ if is_duplicate => "\"acme_shared_zone\" directive is duplicate".to_owned(),
        None => format!("invalid zone size \"{zone}\""),
        Some((name, size)) if size < ZONE_MIN => format!("zone \"{name}\" is too small"),
        Some(_) => return,
    };
    builder.error(statement.span, mistake);
}

#[cfg(test)]
mod tests {
    use super::contact;

    #[test]
    fn contacts_are_mailboxes_unless_they_say_otherwise() {
        for (word, expected) in [
            ("a@b.example", "mailto:a@b.example"),
            ("mailto:a@b.example", "mailto:a@b.example"),
            ("tel:+1", "tel:+1"),
            ("1:2", "mailto:1:2"),
            ("a b:c", "mailto:a b:c"),
        ] {
            assert_eq!(contact(word), expected);
        }
    }
}
