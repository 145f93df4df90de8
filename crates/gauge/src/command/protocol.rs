//! Words about the protocol that servers are asked in, and what they come to.
//!
//! What cannot be together is refused here, before anything is asked.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;

use crate::client::{Lifetime, Protocol, Sessions, Tls, Trust};

/// Manner of asking.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProtocolArguments {
    /// The protocol; over https it must be agreed on, and over http the server must know it.
    #[arg(long, value_enum, default_value_t = Protocol::Http1)]
    pub(super) protocol: Protocol,
    /// Streams at one time on a connection: so many users share one (http2).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    streams: u16,
    /// Certificates in PEM that the server's must lead to; without it those of the system (https).
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The server's certificate is not checked (https).
    #[arg(long)]
    insecure: bool,
    /// The name that the server's certificate must have and that is sent as SNI; without it the
    /// host of the URL (https).
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// A new connection for each request, and with https a new handshake.
    #[arg(long)]
    reconnect: bool,
    /// Every handshake is a full one: no session is resumed (https).
    #[arg(long)]
    no_resumption: bool,
}

/// Encryption of a server's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// None.
    Http,
    /// TLS, with the name of the server and the certificates that are trusted unless others are
    /// named.
    Https(String, Trust),
}

impl ProtocolArguments {
    /// Streams at one time on a connection.
    pub(crate) fn streams(&self) -> Result<usize> {
        if self.streams > 1 && self.protocol == Protocol::Http1 {
            bail!("--streams needs --protocol http2: HTTP/1.1 has one request on a connection");
        }
        if self.streams > 1 && self.reconnect {
            bail!("--streams and --reconnect: one of both, since no request shares a connection");
        }
        Ok(usize::from(self.streams))
    }

    /// Lifetime of connections.
    pub(crate) fn lifetime(&self) -> Lifetime {
        if self.reconnect {
            Lifetime::Once
        } else {
            Lifetime::Kept
        }
    }

    /// TLS with a server; none in clear text, for which no word about TLS may stand.
    pub(crate) fn tls(&self, scheme: Scheme) -> Result<Option<Arc<Tls>>> {
        let Scheme::Https(name, trust) = scheme else {
            let words = [
                ("--ca", self.ca.is_some()),
                ("--insecure", self.insecure),
                ("--server-name", self.server_name.is_some()),
                ("--no-resumption", self.no_resumption),
            ];
            return match words.iter().find(|(_, is_said)| *is_said) {
                Some((word, _)) => bail!("{word} is about https, and the server is asked by http"),
                None => Ok(None),
            };
        };
        let trust = match &self.ca {
            Some(_) if self.insecure => bail!("--ca and --insecure: one of both"),
            Some(path) => Trust::File(path.clone()),
            None if self.insecure => Trust::Anyone,
            None => trust,
        };
        let sessions = if self.no_resumption {
            Sessions::Forgotten
        } else {
            Sessions::Resumed
        };
        let name = self.server_name.as_deref().unwrap_or(&name);
        Ok(Some(Arc::new(Tls::new(&trust, name, sessions)?)))
    }
}
