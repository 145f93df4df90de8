//! `ssl_conf_command` and its like: commands of OpenSSL's configuration, as far as they mean
//! something to a handshake here.
//!
//! | command | side | meaning |
//! |---|---|---|
//! | `Ciphersuites`, `CipherString`, `Groups`, `Curves` | both | bounds of an agreement |
//! | `MinProtocol`, `MaxProtocol` | both | versions that are spoken |
//! | `Certificate`, `PrivateKey` | both | in the place of the certificate with a key of that kind |
//! | `Options`, `NumTickets` | clients | see `contexts` |
//!
//! All others are refused by name: a line that does nothing would promise something.

use std::sync::Arc;

use millpond_tls::certificate::password::Password;
use millpond_tls::{Ciphers, Groups, Identity, Versions};

use super::files::{Files, Mistake};
use super::settings::ConfCommand;

/// The bounds of an agreement, of either side.
pub struct Bounds<'s> {
    /// Versions.
    pub versions: &'s mut Versions,
    /// Suites.
    pub ciphers: &'s mut Ciphers,
    /// Groups of the key exchange.
    pub groups: &'s mut Groups,
}

/// A mistake in a command of a directive.
pub fn mistake(directive: &str, command: &ConfCommand, why: impl std::fmt::Display) -> Mistake {
    let name = &command.name;
    (command.span, format!("\"{directive} {name}\": {why}"))
}

/// Obeys a command that both sides know; false if it is none of them.
pub fn obey(directive: &str, command: &ConfCommand, bounds: Bounds<'_>) -> Result<bool, Mistake> {
    let value = command.value.as_str();
    match command.name.as_str() {
        "Ciphersuites" => {
            let changed = bounds.ciphers.clone().with_ciphersuites(value);
            *bounds.ciphers = changed.map_err(|why| mistake(directive, command, why))?;
        }
        "CipherString" => {
            let read = Ciphers::parse(value);
            *bounds.ciphers = read.map_err(|why| mistake(directive, command, why))?;
        }
        "Groups" | "Curves" => {
            let read = Groups::parse(value);
            *bounds.groups = read.map_err(|why| mistake(directive, command, why))?;
        }
        "MinProtocol" | "MaxProtocol" => {
            let changed = limited(*bounds.versions, &command.name, value);
            *bounds.versions = changed.map_err(|why| mistake(directive, command, why))?;
        }
        // Read by `identity`.
        "Certificate" | "PrivateKey" => {}
        _ => return Ok(false),
    }
    Ok(true)
}

/// Versions, bounded by a command.
fn limited(versions: Versions, command: &str, bound: &str) -> Result<Versions, String> {
    let is_least = command == "MinProtocol";
    let allowed = match (bound, is_least) {
        ("None", _) | ("TLSv1.3", false) => Versions::Both,
        ("TLSv1.3", true) => Versions::Tls13,
        ("TLSv1.2", false) => Versions::Tls12,
        ("SSLv3" | "TLSv1" | "TLSv1.1" | "TLSv1.2", true) => Versions::Both,
        ("SSLv3" | "TLSv1" | "TLSv1.1", false) => {
            return Err(format!("\"{bound}\" leaves no version that is spoken"));
        }
        _ => return Err(format!("unknown version \"{bound}\"")),
    };
    match (versions, allowed) {
        (Versions::Both, allowed) => Ok(allowed),
        (versions, Versions::Both) => Ok(versions),
        (versions, allowed) if versions == allowed => Ok(versions),
        _ => Err(format!("\"{bound}\" leaves no version that is spoken")),
    }
}

/// The certificate that commands name, with its key.
pub fn identity(
    directive: &str,
    commands: &[ConfCommand],
    (files, passwords): (&mut Files, &[Password]),
) -> Result<Option<Arc<Identity>>, Mistake> {
    let last = |name: &str| commands.iter().rev().find(|command| command.name == name);
    match (last("Certificate"), last("PrivateKey")) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            let identity = files.identity(&certificate.file, &key.file, passwords)?;
            Ok(Some(identity))
        }
        (Some(alone), None) | (None, Some(alone)) => {
            let why = "certificate and key have to be named together";
            Err(mistake(directive, alone, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_bounded_on_both_sides_or_refused() {
        use Versions::{Both, Tls12, Tls13};
        for (versions, command, bound, outcome) in [
            (Both, "MinProtocol", "TLSv1.3", Some(Tls13)),
            (Both, "MinProtocol", "TLSv1", Some(Both)),
            (Both, "MaxProtocol", "TLSv1.2", Some(Tls12)),
            (Tls12, "MaxProtocol", "None", Some(Tls12)),
            (Tls12, "MinProtocol", "TLSv1.3", None),
            (Tls13, "MaxProtocol", "TLSv1.2", None),
            (Both, "MaxProtocol", "TLSv1.1", None),
            (Both, "MinProtocol", "TLSv9", None),
        ] {
            let found = limited(versions, command, bound).ok();
            assert_eq!(found, outcome, "{versions:?} {command} {bound}");
        }
    }
}
