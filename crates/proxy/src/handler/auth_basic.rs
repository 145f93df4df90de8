//! `auth_basic`, `auth_basic_user_file`, `auth_delay`: who the client says it is.
//!
//! The Authorization field of the Basic scheme holds a name and a password in Base64 (RFC 7617).
//! The file has a line for each name, `name:password`, with the password hashed as
//! `handler/password.rs` reads it; lines that begin with `#` are comments. It is read for each
//! request, so that a change counts at once.
//!
//! Invariants:
//! 1. The file is read, and a hash computed, on a thread of its own: a costly hash delays nobody
//!    else. As many are computed at once as there are cores (`hash_places`); whom there is
//!    no room for is answered with 503.
//! 2. What is wrong is told to the log; the client only learns that it may not.
//! 3. A password of more than `MAX_PASSWORD` bytes is wrong, and is not hashed: the time that a
//!    hash takes grows with its password.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::value::{FromWord, WordError};
use millpond_conf::{ParseContext, Template, Word};
use millpond_system::log::error::{self, Level};
use millpond_wire::base64;
use millpond_wire::header::Known;
use millpond_wire::http1::Method;

use super::password;
use crate::handler::hash_places::HashPlaces;
use crate::handler::settings::HandlerSettings;
use crate::log::request_error;
use crate::request::Request;
use crate::var::Variable;
use millpond_exchange::failure::Failure;

/// The variable.
pub const VARIABLES: &[Variable] = &[Variable {
    name: "remote_user",
    doc: "The name in the Authorization field of the Basic scheme; for CONNECT that in \
          Proxy-Authorization.",
    write: |req, out| {
        let user = credentials(req).map(|(user, _)| user);
        out.extend_from_slice(user.as_deref().unwrap_or_default());
        user.is_some()
    },
}];

/// The largest file of users that is read.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// The longest password (as that of `crypt` in libxcrypt, whose longest is 511).
const MAX_PASSWORD: usize = 512;

/// The names and passwords that open a location.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, limit_except)]
pub struct AuthBasicPolicy {
    /// The realm of the names and passwords, which clients show; `off` asks for none.
    #[directive(name = "auth_basic")]
    pub realm: Option<Template>,
    /// The file with names and passwords; relative to the directory of the configuration file.
    /// Passwords have at most 512 bytes.
    ///
    /// # Differs from nginx
    ///
    /// As many passwords are hashed at once as the machine has cores. 256 more requests may wait;
    /// those beyond are answered with 503.
    #[directive(name = "auth_basic_user_file")]
    pub user_file: Option<UserFile>,
    /// Time that a refused request waits for its answer, against guessing.
    #[directive(name = "auth_delay", default = "0s", contexts(http, server, location))]
    pub delay: Duration,
}

/// A path that may have variables, and where it starts.
#[derive(Clone, Debug)]
pub struct UserFile {
    path: Template,
    start: Arc<Path>,
}

impl AuthBasicPolicy {
    /// True when there certainly is no such gate.
    pub fn is_off(&self) -> bool {
        self.realm.is_none() || self.user_file.is_none()
    }
}

impl FromWord for UserFile {
    const SYNTAX: &'static str = "file";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError> {
        let path = Template::from_word(word, cx)?;
        let start = Arc::from(cx.conf_dir.as_path());
        Ok(UserFile { path, start })
    }
}

/// The gate's answer to a request that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The location has no such gate.
    Off,
    /// Name and password are right.
    Passed,
}

/// The result of looking for a name and a password in the file.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Right,
    Mismatch,
    NoUser,
}

/// Asks for name and password where a location wants them.
pub(crate) async fn check(req: &mut Request) -> Result<Checked, Failure> {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<HandlerSettings>().auth_basic;
    let (Some(realm), Some(file)) = (&policy.realm, &policy.user_file) else {
        return Ok(Checked::Off);
    };
    let realm = req.eval(realm);
    if realm.as_ref() == b"off" {
        return Ok(Checked::Off);
    }
    let Some((user, secret)) = credentials(req) else {
        let message = "no user/password was provided for basic authentication";
        request_error::write(req, Level::Info, format_args!("{message}"));
        return Err(refuse(req, &realm));
    };
    let name = String::from_utf8_lossy(&user).into_owned();
    if secret.len() > MAX_PASSWORD {
        // INVARIANT 3.
        let message = format_args!("user \"{name}\": password is longer than {MAX_PASSWORD} bytes");
        request_error::write(req, Level::Error, message);
        return Err(refuse(req, &realm));
    }
    let path = file.path(req);
    let job_path = path.clone();
    // INVARIANT 1.
    let Some(place) = req.worker().shared.guests.of::<HashPlaces>().enter().await else {
        let message = "too many passwords are waiting to be checked";
        request_error::write(req, Level::Error, format_args!("{message}"));
        return Err(Failure::Status(503));
    };
    let job = tokio::task::spawn_blocking(move || {
        let _place = place;
        look_up(&job_path, &user, &secret)
    });
    let found = match job.await {
        Ok(Ok(found)) => found,
        Ok(Err(failure)) => return Err(unreadable(req, &path, &failure)),
        Err(_) => return Err(Failure::Internal("password check was given up".to_string())),
    };
    match found {
        Found::Right => return Ok(Checked::Passed),
        Found::Mismatch => {
            let message = format_args!("user \"{name}\": password mismatch");
            request_error::write(req, Level::Error, message);
        }
        Found::NoUser => {
            let path = path.display();
            let message = format_args!("user \"{name}\" was not found in \"{path}\"");
            request_error::write(req, Level::Error, message);
        }
    }
    Err(refuse(req, &realm))
}

/// The foreseen answer of the gate, before a password is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Foreseen {
    /// The location has no such gate.
    Off,
    /// The request has no name and password for this realm.
    Lacking(String),
    /// The request has a name and a password, and they may be right.
    Given(String),
}

impl Foreseen {
    /// True if the gate refuses for certain.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Foreseen::Lacking(_))
    }

    /// True if the password decides.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(self, Foreseen::Given(_))
    }

    /// The foreseen answer in words for people: the directive, and what it asks for.
    pub(crate) fn note(&self, directive: &str, what: [&str; 2]) -> Option<String> {
        let [one, known] = what;
        match self {
            Foreseen::Off => None,
            Foreseen::Lacking(realm) => Some(format!(
                "\"{directive}\" wants {one} for \"{realm}\", and the request has none (401)"
            )),
            Foreseen::Given(realm) => Some(format!(
                "\"{directive}\" checks {known} for \"{realm}\" when the request is made"
            )),
        }
    }
}

/// Foresees the answer of the gate of a request's location, before a password is checked.
pub(crate) fn foresee(req: &mut Request) -> Foreseen {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<HandlerSettings>().auth_basic;
    let (Some(realm), Some(_)) = (&policy.realm, &policy.user_file) else {
        return Foreseen::Off;
    };
    let realm = String::from_utf8_lossy(&req.eval(realm)).into_owned();
    match credentials(req) {
        _ if realm == "off" => Foreseen::Off,
        None => Foreseen::Lacking(realm),
        Some(_) => Foreseen::Given(realm),
    }
}

/// Waits before a refusal, where the location wants that.
pub(crate) async fn delay_refusal(req: &Request) -> Result<(), Failure> {
    let delay = req
        .location
        .settings
        .of::<HandlerSettings>()
        .auth_basic
        .delay;
    if delay.is_zero() {
        return Ok(());
    }
    request_error::write(
        req,
        Level::Info,
        format_args!("delaying unauthorized request"),
    );
    let waited = req.client.pause(delay).await;
    waited.map_err(|_| Failure::Status(499))
}

fn refuse(req: &mut Request, realm: &[u8]) -> Failure {
    let challenge = [b"Basic realm=\"", realm, b"\""].concat();
    Asked::by(req).refuse(req, challenge)
}

/// The words in which a client is asked who it is.
pub(crate) struct Asked {
    /// The field with what the client says.
    credentials: Known,
    /// The field with what it is asked for.
    challenge: Known,
    /// The status of the question.
    status: u16,
}

impl Asked {
    /// Refuses a request, with a challenge.
    pub(crate) fn refuse(&self, req: &mut Request, challenge: Vec<u8>) -> Failure {
        req.answer_fields
            .set(self.challenge, Bytes::from(challenge));
        Failure::Status(self.status)
    }

    /// The credentials of a scheme, if the client sent such.
    pub(crate) fn credentials<'r>(&self, req: &'r Request, scheme: &str) -> Option<&'r [u8]> {
        let field = req.field(self.credentials)?;
        let (given, rest) = field.split_at_checked(scheme.len())?;
        let is_meant = given.eq_ignore_ascii_case(scheme.as_bytes());
        rest.strip_prefix(b" ")
            .filter(|_| is_meant)
            .map(<[u8]>::trim_ascii)
    }

    /// Those of a proxy for a tunnel (RFC 9110 §11.7), else those of an origin.
    pub(crate) fn by(req: &Request) -> Asked {
        if req.method == Method::Connect {
            return Asked {
                credentials: Known::ProxyAuthorization,
                challenge: Known::ProxyAuthenticate,
                status: 407,
            };
        }
        Asked {
            credentials: Known::Authorization,
            challenge: Known::WwwAuthenticate,
            status: 401,
        }
    }
}

impl UserFile {
    /// The path for a request.
    pub(crate) fn path(&self, req: &mut Request) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let path = req.eval(&self.path);
        self.start.join(std::ffi::OsStr::from_bytes(&path))
    }
}

fn unreadable(req: &Request, path: &Path, failure: &std::io::Error) -> Failure {
    let (level, status) = match failure.kind() {
        std::io::ErrorKind::NotFound => (Level::Error, 403),
        _ => (Level::Crit, 500),
    };
    let reason = error::os_error(failure);
    let message = format_args!("open() \"{}\" failed ({reason})", path.display());
    request_error::write(req, level, message);
    Failure::Status(status)
}

fn look_up(path: &Path, user: &[u8], secret: &[u8]) -> std::io::Result<Found> {
    use std::io::Read as _;
    let mut text = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_FILE).read_to_end(&mut text)?;
    Ok(find(&text, user, secret))
}

fn find(text: &[u8], user: &[u8], secret: &[u8]) -> Found {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| {
        let hash = line.strip_prefix(user)?.strip_prefix(b":")?;
        (line.first() != Some(&b'#')).then_some(hash)
    });
    let Some(hash) = line else {
        return Found::NoUser;
    };
    let end = hash.iter().position(|byte| matches!(byte, b':' | b'\r'));
    let hash = hash.get(..end.unwrap_or(hash.len())).unwrap_or_default();
    if password::is_right(secret, hash) {
        Found::Right
    } else {
        Found::Mismatch
    }
}

/// The name and the password of the request's Authorization field, or of a CONNECT's
/// Proxy-Authorization.
pub(crate) fn credentials(req: &Request) -> Option<(Vec<u8>, Vec<u8>)> {
    let given = Asked::by(req).credentials(req, "Basic")?;
    let decoded = base64::decode(given)?;
    let colon = memchr::memchr(b':', &decoded)?;
    let password = decoded.get(colon + 1..)?.to_vec();
    let user = decoded.get(..colon).filter(|user| !user.is_empty())?;
    Some((user.to_vec(), password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_at_the_begin_of_their_line() {
        let text = b"#a:{PLAIN}x\nab:{PLAIN}y\na:{PLAIN}z:comment\r\nb:{PLAIN}\nc:{PLAIN}end";
        for (user, secret, found) in [
            ("a", "z", Found::Right),
            ("a", "x", Found::Mismatch),
            ("ab", "y", Found::Right),
            ("#a", "x", Found::NoUser),
            ("b", "", Found::Right),
            ("c", "end", Found::Right),
            ("d", "x", Found::NoUser),
        ] {
            assert_eq!(
                find(text, user.as_bytes(), secret.as_bytes()),
                found,
                "{user}"
            );
        }
    }
}
