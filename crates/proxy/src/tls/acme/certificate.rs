//! `acme_certificate`: the certificate of a server, ordered for its names.
//!
//! `ssl_certificate auto` orders it too, where a server has no such line: from the only issuer, or
//! from that of the name `default`.

use std::sync::{Arc, OnceLock};

use millpond_acme::{Identifier, Issuer, KeyKind, Ordered};
use millpond_conf::{Contexts, Span, Statement};

use super::issuer::DEFAULT;
use super::{Order, Orders};
use crate::tls::settings::SslPolicy;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::Server;
use millpond_exchange::settings::listen::Binding;
use millpond_exchange::settings::names::ServerName;

/// The rows of this file.
pub const ROWS: &[Row] = &[Row {
    name: "acme_certificate",
    contexts: Contexts::SERVER,
    syntax: "issuer [identifier …] [key=alg[:size]]",
    is_block: false,
    pass: Pass::First,
    doc: "Orders a certificate from an `acme_issuer`, for the identifiers or else for the names of \
          the server: hosts, addresses, and names with a dot before them, which stand for \
          themselves and for `www` below them. Wildcards are refused, expressions left out with a \
          warning. `key` is the algorithm of its key: `ecdsa:256` (the default), `ecdsa:384`, \
          `ecdsa:521`, `rsa:2048`, `rsa:3072`, `rsa:4096`. The certificate is used by \
          `ssl_certificate $acme_certificate` with `ssl_certificate_key $acme_certificate_key`, or \
          by `ssl_certificate auto`; until it is there, handshakes are refused by the alert \
          internal_error. It is renewed when the authority advises it (RFC 9773), or after two \
          thirds of its lifetime, without a reload.",
    apply: line,
}];

/// The word that orders a certificate without more lines.
const AUTO: &[u8] = b"auto";

/// A server's part in orders.
#[derive(Debug, Default)]
pub struct Slot {
    line: Option<Line>,
    ordered: OnceLock<Arc<Ordered>>,
}

impl Part for Slot {
    const PLACE: Place = Place::Order;
}

/// `acme_certificate`.
#[derive(Clone, Debug)]
pub struct Line {
    issuer: String,
    names: Vec<Identifier>,
    kind: KeyKind,
    span: Span,
}

impl Slot {
    /// The slot of a server whose lines were read.
    pub fn of(draft: &mut Draft) -> Slot {
        Slot {
            line: draft.take(),
            ordered: OnceLock::new(),
        }
    }

    /// The slot of a server.
    pub fn of_server(server: &Server) -> &Slot {
        server.parts.of()
    }

    /// The certificate that is ordered for the server.
    pub fn ordered(&self) -> Option<&Arc<Ordered>> {
        self.ordered.get()
    }
}

fn line(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if draft.has::<Line>() {
        let message = "\"acme_certificate\" directive is duplicate";
        builder.error(statement.name.span, message);
        return;
    }
    match read(statement) {
        Ok(line) => draft.put(line),
        Err(why) => builder.error(statement.span, format!("\"acme_certificate\": {why}")),
    }
}

fn read(statement: &Statement) -> Result<Line, String> {
    let mut words = statement.args.iter().map(|word| word.text.as_str());
    let issuer = words.next().filter(|name| !name.is_empty());
    let mut line = Line {
        issuer: issuer.ok_or("\"issuer\" is missing")?.to_owned(),
        names: Vec::new(),
        kind: KeyKind::default(),
        span: statement.span,
    };
    for word in words {
        match word.strip_prefix("key=") {
            Some(kind) => {
                let kind = KeyKind::parse(kind).unwrap_or(Err("invalid \"key\" value"));
                line.kind = kind.map_err(|why| format!("{why} \"{word}\""))?;
            }
            None => add(&mut line.names, word)?,
        }
    }
    Ok(line)
}

/// Adds the names that a word stands for, each once.
fn add(names: &mut Vec<Identifier>, word: &str) -> Result<(), String> {
    let invalid = |why| format!("invalid server name \"{word}\": {why}");
    for name in Identifier::read(word).map_err(invalid)? {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(())
}

/// Orders the certificates of servers: of those with a line, and of those with encrypted addresses
/// that have `ssl_certificate auto`.
pub fn settle<'a>(
    builder: &mut Builder,
    servers: impl Iterator<Item = &'a Arc<Server>>,
    bindings: &[Binding],
) {
    for server in servers {
        if let Some(line) = &Slot::of_server(server).line {
            let ordered = order(builder, server, line);
            finish(builder, server, (line.span, ordered));
        }
    }
    let listens = bindings.iter().flat_map(|binding| &binding.listens);
    let encrypted = listens.filter(|listen| listen.is_encrypted);
    for server in encrypted.flat_map(|listen| listen.names.servers()) {
        let Some(span) = auto(server.parts.of::<SslPolicy>()) else {
            continue;
        };
        if Slot::of_server(server).line.is_none() && Slot::of_server(server).ordered().is_none() {
            let ordered = order_by_default(builder, server, span);
            finish(builder, server, (span, ordered));
        }
    }
}

/// The place of `ssl_certificate auto`.
pub(in crate::tls) fn auto(policy: &SslPolicy) -> Option<Span> {
    let first = policy.certificates.first()?;
    (first.literal() == Some(AUTO)).then_some(first.span)
}

/// The reason for which a certificate is not ordered, and what to do.
struct Mistake {
    message: String,
    help: Option<&'static str>,
}

impl From<String> for Mistake {
    fn from(message: String) -> Self {
        Mistake {
            message,
            help: None,
        }
    }
}

fn finish(
    builder: &mut Builder,
    server: &Server,
    (span, ordered): (Span, Result<Arc<Ordered>, Mistake>),
) {
    match ordered {
        // Nobody else sets it.
        Ok(ordered) => drop(Slot::of_server(server).ordered.set(ordered)),
        Err(mistake) => {
            let error = builder.cx.diagnostics.push_error(span, mistake.message);
            mistake.help.into_iter().for_each(|help| {
                error.help(help);
            });
        }
    }
}

fn order(builder: &mut Builder, server: &Server, line: &Line) -> Result<Arc<Ordered>, Mistake> {
    let mut names = line.names.clone();
    if names.is_empty() {
        let found = names_of(builder, server, line.span);
        names = found.map_err(|why| format!("\"acme_certificate\": {why}"))?;
    }
    let orders = builder.of::<Orders>();
    let found = orders.issuer(&line.issuer).cloned();
    let issuer = found.ok_or_else(|| format!("issuer \"{}\" is missing", line.issuer))?;
    Ok(put(orders, issuer, (names, line.kind, line.span)))
}

fn order_by_default(
    builder: &mut Builder,
    server: &Server,
    span: Span,
) -> Result<Arc<Ordered>, Mistake> {
    let found = names_of(builder, server, span);
    let names = found.map_err(|why| format!("\"ssl_certificate auto\": {why}"))?;
    let orders = builder.of::<Orders>();
    let issuer = match orders.issuers.as_slice() {
        [only] => Some(Arc::clone(only)),
        _ => orders.issuer(DEFAULT).cloned(),
    };
    let Some(issuer) = issuer else {
        let (message, help) = if orders.issuers.is_empty() {
            (
                "\"ssl_certificate auto\" needs an issuer of certificates",
                "for Let's Encrypt, whose terms (https://letsencrypt.org/repository/) are accepted \
                 by it, write into the http block: acme_issuer default { accept_terms_of_service; }",
            )
        } else {
            (
                "\"ssl_certificate auto\" does not say which issuer is meant",
                "name one of them \"default\", or add \"acme_certificate ISSUER;\" to the server",
            )
        };
        return Err(Mistake {
            message: message.to_owned(),
            help: Some(help),
        });
    };
    Ok(put(orders, issuer, (names, KeyKind::default(), span)))
}

fn put(
    orders: &mut Orders,
    issuer: Arc<Issuer>,
    (names, kind, span): (Vec<Identifier>, KeyKind, Span),
) -> Arc<Ordered> {
    let ordered = Ordered::of(&issuer, names, kind);
    orders.add(Order {
        issuer,
        ordered: Arc::clone(&ordered),
        span,
    });
    ordered
}

/// The names of a server, as far as they can be ordered.
fn names_of(builder: &mut Builder, server: &Server, span: Span) -> Result<Vec<Identifier>, String> {
    let mut names = Vec::new();
    for name in &server.names {
        let word = match name {
            // No host has them: they catch what no other server is for.
            ServerName::Exact(name) if name.is_empty() || &**name == b"_" => continue,
            ServerName::Exact(name) | ServerName::SelfAndUnder(name) => text(name),
            ServerName::Under(name) => format!("*{}", text(name)),
            ServerName::Before(name) => format!("{}*", text(name)),
            ServerName::Regex(regex) => {
                let source = regex.source();
                let message = format!(
                    "no certificate is ordered for the regular expression \"{source}\" in \
                     \"server_name\""
                );
                builder.cx.diagnostics.push_warning(span, message);
                continue;
            }
        };
        add(&mut names, &word)?;
    }
    if names.is_empty() {
        return Err("no identifiers found in \"server_name\"".to_owned());
    }
    Ok(names)
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
