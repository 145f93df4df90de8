//! `ssl_*`: encryption between clients and this server.
//!
//! What the words mean to a connection is the business of [`super::contexts`], which makes a
//! context of them for each server whose addresses have the `ssl` parameter.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millpond_conf::value::{ArgError, Args, FromArgs, FromWord, WordError};
use millpond_conf::{ByteSize, Flags, ParseContext, Span, Spanned, Template, Word, Words};
use millpond_tls::certificate::verdict::Demand;

use super::certificate_cache::CacheLine;
use super::client_status::{Asked, CacheName};
use super::key_log::KeyLogFile;

use millpond_exchange::scope::parts::{Part, Place};

/// Version of TLS, or of its forerunners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum ProtocolVersion {
    /// Accepted as a word only.
    #[word("SSLv2")]
    Ssl2,
    /// Accepted as a word only.
    #[word("SSLv3")]
    Ssl3,
    /// Accepted as a word only.
    #[word("TLSv1")]
    Tls10,
    /// Accepted as a word only.
    #[word("TLSv1.1")]
    Tls11,
    /// RFC 5246.
    #[word("TLSv1.2")]
    Tls12,
    /// RFC 8446.
    #[word("TLSv1.3")]
    Tls13,
}

/// Demand for a certificate of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum VerifyClient {
    /// None is asked for.
    #[word("off")]
    Off,
    /// A request without a valid one is refused.
    #[word("on")]
    On,
    /// One that is sent must be valid.
    #[word("optional")]
    Optional,
    /// One that is sent need not lead to a known authority.
    #[word("optional_no_ca")]
    OptionalNoCa,
}

/// A file that a directive names: relative to the folder of the configuration, or a value with
/// variables.
#[derive(Clone, Debug)]
pub struct FileName {
    /// The name as it is written.
    pub name: Template,
    /// Its place in the configuration.
    pub span: Span,
    start: Arc<Path>,
}

impl FromWord for FileName {
    const SYNTAX: &'static str = "file";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError> {
        Ok(FileName {
            name: Template::from_word(word, cx)?,
            span: word.span,
            start: Arc::from(cx.conf_dir.as_path()),
        })
    }
}

impl FileName {
    /// The path that a value names.
    pub fn path(&self, value: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.start.join(std::ffi::OsStr::from_bytes(value))
    }

    /// The text, if it has no variables.
    pub fn literal(&self) -> Option<&[u8]> {
        self.name.as_literal()
    }
}

/// The places in which sessions are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCaches {
    /// True where sessions may be resumed at all, if only by tickets.
    pub is_told: bool,
    /// Sessions kept by each server for itself, in sessions.
    pub builtin: Option<u64>,
    /// The zone that is shared: its name and its size in bytes, if it is written here.
    pub shared: Option<(String, Option<u64>)>,
}

impl FromArgs for SessionCaches {
    const SYNTAX: &'static str = "off | none | [builtin[:size]] [shared:name:size]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let mut caches = SessionCaches::default();
        for (index, word) in args.at_least(1)?.iter().enumerate() {
            let text = word.text.as_str();
            let invalid = || {
                let message = format!("invalid session cache \"{text}\"");
                ArgError::value(index, message)
            };
            let parts: Vec<&str> = text.splitn(3, ':').collect();
            match parts.as_slice() {
                ["off"] => caches.is_told = false,
                ["none"] => caches.is_told = true,
                ["builtin"] => caches.builtin = Some(DEFAULT_SESSIONS),
                ["builtin", size] => {
                    caches.builtin = Some(size.parse().map_err(|_| invalid())?);
                }
                ["shared", name, size] if !name.is_empty() => {
                    let size = millpond_conf::value::parse_offset(size).ok_or_else(invalid)?;
                    if size < SMALLEST_ZONE {
                        let message = format!("session cache \"{text}\" is too small");
                        return Err(ArgError::value(index, message));
                    }
                    let named = args.cx.shared.name(name, "ssl");
                    named.map_err(|message| ArgError::value(index, message))?;
                    caches.shared = Some(((*name).to_owned(), Some(size)));
                }
                _ => return Err(invalid()),
            }
        }
        caches.is_told |= caches.builtin.is_some() || caches.shared.is_some();
        Ok(caches)
    }
}

/// Sessions of a cache without a size (OpenSSL: SSL_SESSION_CACHE_MAX_SIZE_DEFAULT).
const DEFAULT_SESSIONS: u64 = 20_480;
/// The smallest zone, as in nginx: eight pages.
const SMALLEST_ZONE: u64 = 8 * 4096;

/// One command of OpenSSL's configuration language.
#[derive(Clone, Debug)]
pub struct ConfCommand {
    /// The command's name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Its value as the name of a file.
    pub file: FileName,
    /// Its place in the configuration.
    pub span: Span,
}

impl FromArgs for ConfCommand {
    const SYNTAX: &'static str = "name value";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        match args.words {
            [name, value] => Ok(ConfCommand {
                name: name.text.clone(),
                value: value.text.clone(),
                file: FileName {
                    name: Template::literal(&value.text),
                    span: value.span,
                    start: Arc::from(args.cx.conf_dir.as_path()),
                },
                span: name.span,
            }),
            _ => Err(ArgError::Count),
        }
    }
}

/// Settings of encrypted connections of clients.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, stream, stream_server)]
pub struct SslPolicy {
    /// The file with the certificate, and after it those of the authorities in between, in PEM;
    /// `data:` and the text itself, or a value with variables, which is read for each handshake.
    /// Several with keys of different kinds may stand side by side. `auto` orders a certificate
    /// for the names of the server, and renews it: from the only `acme_issuer`, or from the one
    /// with the name `default`; there is no `ssl_certificate_key` beside it.
    ///
    /// # Differs from nginx
    ///
    /// nginx has no `auto`: there it is a file.
    #[directive(name = "ssl_certificate", repeat)]
    pub certificates: Vec<FileName>,
    /// The file with the key of the certificate in the same place.
    #[directive(name = "ssl_certificate_key", repeat)]
    pub keys: Vec<FileName>,
    /// The file with the passwords of encrypted keys, one in a line; each is tried.
    #[directive(name = "ssl_password_file")]
    pub password_file: Option<FileName>,
    /// The certificates whose names have variables, kept from one handshake to the next. They are
    /// read again when the files have changed, which is looked at after the time `valid` (60
    /// seconds); what is not used for the time `inactive` (10 seconds) goes. `max` counts
    /// certificates and keys. Keys that need a password are not kept.
    ///
    /// # Differs from nginx
    ///
    /// One cache serves all workers, and a certificate and its key are kept together.
    #[directive(name = "ssl_certificate_cache", default = "off")]
    pub certificate_cache: CacheLine,
    /// The versions that are spoken.
    ///
    /// # Differs from nginx
    ///
    /// Versions below TLSv1.2 are accepted as words, with a warning, and never spoken.
    #[directive(name = "ssl_protocols", default = "TLSv1.2 TLSv1.3", union)]
    pub protocols: Flags<ProtocolVersion>,
    /// The suites of TLSv1.2 in the language of OpenSSL.
    ///
    /// # Differs from nginx
    ///
    /// There are suites with ECDHE and AES-GCM or ChaCha20 only. Others that are named are left
    /// out with a warning; a list without any that is there is an error.
    #[directive(name = "ssl_ciphers", default = "HIGH:!aNULL:!MD5")]
    pub ciphers: Spanned<String>,
    /// The preference of the server's order of suites to the client's.
    #[directive(name = "ssl_prefer_server_ciphers", default = "off")]
    pub prefers_own_ciphers: bool,
    /// The groups of the key exchange, with colons between them.
    #[directive(name = "ssl_ecdh_curve", default = "auto")]
    pub curves: Spanned<String>,
    /// The largest record that is sent.
    #[directive(name = "ssl_buffer_size", default = "16k", contexts(http, server))]
    pub buffer_size: ByteSize,
    /// The demand for a certificate of the client.
    #[directive(name = "ssl_verify_client", default = "off")]
    pub verify_client: VerifyClient,
    /// The number of authorities that may stand between a client's certificate and a known one.
    #[directive(name = "ssl_verify_depth", default = "1")]
    pub verify_depth: u32,
    /// The file with the certificates of authorities whose clients are known; clients are told
    /// their names.
    #[directive(name = "ssl_client_certificate")]
    pub client_authorities: Option<FileName>,
    /// The file with certificates of authorities that clients are not told.
    #[directive(name = "ssl_trusted_certificate")]
    pub trusted: Option<FileName>,
    /// The file with the lists of certificates that were taken back.
    #[directive(name = "ssl_crl")]
    pub revoked: Option<FileName>,
    /// The certificates of clients whose status is asked of the responders of their authorities
    /// (OCSP): the whole chain, or the client's own. A certificate that was taken back, or without
    /// an answer, is as one that does not verify.
    #[directive(name = "ssl_ocsp", default = "off")]
    pub asked_status: Asked,
    /// The URL of the responder that is asked in the place of those that certificates name.
    #[directive(name = "ssl_ocsp_responder")]
    pub status_responder: Option<Spanned<String>>,
    /// The zone in which answers of responders are kept, for all workers and over reloads.
    #[directive(name = "ssl_ocsp_cache", default = "off")]
    pub status_cache: Spanned<CacheName>,
    /// The places in which sessions are kept, so that clients may resume them. Of several lines in
    /// a block the last one counts.
    ///
    /// # Differs from nginx
    ///
    /// nginx adds the places of several lines up.
    #[directive(name = "ssl_session_cache", default = "none", last)]
    pub session_cache: Spanned<SessionCaches>,
    /// Sessions that clients keep, in tickets.
    #[directive(name = "ssl_session_tickets", default = "on")]
    pub tickets: bool,
    /// A file with a key of tickets, of 48 or 80 bytes; the first encrypts, all decrypt.
    #[directive(name = "ssl_session_ticket_key", repeat)]
    pub ticket_keys: Vec<FileName>,
    /// The time for which a session may be resumed.
    #[directive(name = "ssl_session_timeout", default = "5m")]
    pub session_timeout: Duration,
    /// The permission to send data before the handshake is over, which somebody may have repeated.
    /// Over TCP it is answered once the handshake is over (RFC 8470 §3); over QUIC, GET, HEAD and
    /// OPTIONS are answered at once, and what goes to upstreams then has the field `Early-Data: 1`
    /// (RFC 8470 §5.1).
    ///
    /// # Differs from nginx
    ///
    /// nginx serves all methods at once, over TCP, too, and tells upstreams nothing by itself.
    #[directive(name = "ssl_early_data", default = "off", contexts(http, server))]
    pub early_data: bool,
    /// The authority's answer that the certificate is still good (OCSP), sent with it. It is asked
    /// for when a handshake needs it; that handshake does without.
    #[directive(name = "ssl_stapling", default = "off")]
    pub staples: bool,
    /// The URL of the responder that is asked, in the place of the one that the certificate names.
    #[directive(name = "ssl_stapling_responder")]
    pub staple_responder: Option<Spanned<String>>,
    /// Verification of the answer's signer by `ssl_trusted_certificate`.
    #[directive(name = "ssl_stapling_verify", default = "off")]
    pub verifies_staples: bool,
    /// The file with the authority's answer, in DER.
    #[directive(name = "ssl_stapling_file")]
    pub staple_file: Option<FileName>,
    /// Refusal of all handshakes for this server.
    #[directive(name = "ssl_reject_handshake", default = "off")]
    pub rejects: bool,
    /// Compression of certificates (RFC 8879).
    #[directive(name = "ssl_certificate_compression", default = "off")]
    pub compresses: bool,
    /// A command of OpenSSL's configuration; those without a meaning here are refused by name.
    #[directive(name = "ssl_conf_command", repeat)]
    pub commands: Vec<ConfCommand>,
    /// The file that the secrets of connections are written to, for those who look into their
    /// packets: lines of the format SSLKEYLOGFILE, which Wireshark reads. Whoever can read it can
    /// read the connections: a file that is made can be read by its owner only. It is opened again
    /// when logs are.
    ///
    /// # Differs from nginx
    ///
    /// nginx has it in its commercial version only.
    #[directive(name = "ssl_key_log")]
    pub key_log: Option<KeyLogFile>,
    /// The protocols inside of a session that a client may choose from (ALPN), most preferred
    /// first; one that offers none of them is refused.
    #[directive(name = "ssl_alpn", contexts(stream, stream_server))]
    pub protocols_inside: Option<Vec<String>>,
}

impl Part for SslPolicy {
    const PLACE: Place = Place::Encryption;
}

/// Settings of encrypted connections to origins.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, stream, stream_server, protocols)]
pub struct OriginSslPolicy {
    /// Resumption of sessions.
    #[directive(
        name = "proxy_ssl_session_reuse",
        default = "on",
        only("proxy", "uwsgi", "grpc")
    )]
    pub reuses_sessions: bool,
    /// The versions that are spoken; those below TLSv1.2 are words only.
    #[directive(
        name = "proxy_ssl_protocols",
        default = "TLSv1.2 TLSv1.3",
        union,
        only("proxy", "uwsgi", "grpc")
    )]
    pub protocols: Flags<ProtocolVersion>,
    /// The suites of TLSv1.2 in the language of OpenSSL; see `ssl_ciphers`.
    #[directive(
        name = "proxy_ssl_ciphers",
        default = "DEFAULT",
        only("proxy", "uwsgi", "grpc")
    )]
    pub ciphers: Spanned<String>,
    /// The name that the origin's certificate must have, and that it is told; without it, the host
    /// of the address.
    #[directive(name = "proxy_ssl_name", only("proxy", "uwsgi", "grpc"))]
    pub name: Option<Template>,
    /// The name is told to the origin (SNI).
    #[directive(
        name = "proxy_ssl_server_name",
        default = "off",
        only("proxy", "uwsgi", "grpc")
    )]
    pub tells_name: bool,
    /// Verification of the origin's certificate.
    #[directive(
        name = "proxy_ssl_verify",
        default = "off",
        only("proxy", "uwsgi", "grpc")
    )]
    pub verify: bool,
    /// The number of authorities that may stand between its certificate and a known one.
    #[directive(
        name = "proxy_ssl_verify_depth",
        default = "1",
        only("proxy", "uwsgi", "grpc")
    )]
    pub verify_depth: u32,
    /// The file with the certificates of known authorities.
    #[directive(name = "proxy_ssl_trusted_certificate", only("proxy", "uwsgi", "grpc"))]
    pub trusted: Option<FileName>,
    /// The file with the lists of certificates that were taken back.
    #[directive(name = "proxy_ssl_crl", only("proxy", "uwsgi", "grpc"))]
    pub revoked: Option<FileName>,
    /// The file with our certificate, for origins that ask for one; it may have variables, and an
    /// empty name is none.
    #[directive(name = "proxy_ssl_certificate", only("proxy", "uwsgi", "grpc"))]
    pub certificate: Option<FileName>,
    /// The file with its key.
    #[directive(name = "proxy_ssl_certificate_key", only("proxy", "uwsgi", "grpc"))]
    pub key: Option<FileName>,
    /// The file with the passwords of encrypted keys, one in a line.
    #[directive(name = "proxy_ssl_password_file", only("proxy", "uwsgi", "grpc"))]
    pub password_file: Option<FileName>,
    /// The certificates whose names have variables, kept from one connection to the next; see
    /// `ssl_certificate_cache`.
    #[directive(
        name = "proxy_ssl_certificate_cache",
        default = "off",
        only("proxy", "uwsgi")
    )]
    pub certificate_cache: CacheLine,
    /// A command of OpenSSL's configuration; those without a meaning here are refused by name.
    #[directive(
        name = "proxy_ssl_conf_command",
        repeat,
        only("proxy", "uwsgi", "grpc")
    )]
    pub commands: Vec<ConfCommand>,
    /// The file that the secrets of connections to origins are written to; see `ssl_key_log`.
    ///
    /// # Differs from nginx
    ///
    /// nginx has it in its commercial version only.
    #[directive(name = "proxy_ssl_key_log", only("proxy", "uwsgi", "grpc"))]
    pub key_log: Option<KeyLogFile>,
}

impl SslPolicy {
    /// The demand for a certificate of the client; none where it is not asked for one.
    pub fn demand(&self) -> Option<Demand> {
        match self.verify_client {
            VerifyClient::Off => None,
            VerifyClient::On => Some(Demand::On),
            VerifyClient::Optional => Some(Demand::Optional),
            VerifyClient::OptionalNoCa => Some(Demand::OptionalNoCa),
        }
    }
}
