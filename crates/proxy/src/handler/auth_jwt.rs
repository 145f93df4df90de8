//! `auth_jwt`, `auth_jwt_key_file`, `auth_jwt_key_request`, `auth_jwt_key_cache`, `auth_jwt_type`,
//! `auth_jwt_leeway`, `auth_jwt_require`, `auth_jwt_claim_set`, `auth_jwt_header_set`: who the
//! client is by a signed token (RFC 7519).
//!
//! ```text
//! token ─► parse ─► signature, by the keys of files and requests ─► times ─► requirements ─► in
//!            └────────────┴── 401, error="invalid_token" ───────────┘            └─ 401 or 403
//! ```
//!
//! Invariants:
//! 1. Variables have what a token says only once its signature and its times are right.
//! 2. Without keys nobody is let in: a set that cannot be read is a 500.
//! 3. What is wrong is told to the log, the token itself to nobody.
//!
//! The language is that of NGINX Plus; the signatures are aws-lc's, as those of TLS.

mod json;
pub mod keys;
mod source;
pub mod token;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::value::{FromWord, WordError};
use millpond_conf::{ArgError, Args, FromArgs, OffOr, ParseContext, Template, Word};
use millpond_exchange::failure::Failure;
use millpond_system::clock;
use millpond_system::log::error::Level;
use serde_json::{Map, Value};

use self::source::{KeyFile, KeyRequest};
use self::token::{Fault, Token};
use super::auth_basic::{Asked, Checked};
use crate::handler::settings::HandlerSettings;
use crate::log::request_error;
use crate::request::Request;
use crate::rewrite::set::{self, Variable as Settable};
use crate::var::{Variable, VariableFamily};

/// The tokens that open a location.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, limit_except)]
pub struct AuthJwtPolicy {
    /// The realm of tokens, which the answer to a request without a right one names; `off` asks for
    /// none. The token is the client's `Authorization: Bearer` (for CONNECT, Proxy-Authorization),
    /// or with `token=` a value such as `$cookie_auth` or `$arg_token`. It must be signed with HS,
    /// RS or ES of 256, 384 or 512 bits, or Ed25519, by one of the keys of `auth_jwt_key_file` and
    /// `auth_jwt_key_request`, and must not have expired. `$jwt_claim_sub` and its like have what
    /// it says.
    ///
    /// # Differs from nginx
    ///
    /// The directives are those of NGINX Plus. A token with `crit`, or with a member twice, is
    /// refused; Ed448 and tokens that are encrypted or nested are not known. The variables are
    /// empty as long as the token was not verified, so that limits, which come before, do not see
    /// them.
    #[directive(name = "auth_jwt")]
    pub gate: Option<OffOr<JwtGate>>,
    /// A file with a JSON Web Key Set; relative to the directory of the configuration file, and it
    /// may have variables. There may be several.
    #[directive(name = "auth_jwt_key_file", repeat)]
    pub key_files: Vec<KeyFile>,
    /// A path of this server that answers with a JSON Web Key Set; it may have variables. There may
    /// be several.
    #[directive(name = "auth_jwt_key_request", repeat)]
    pub key_requests: Vec<KeyRequest>,
    /// The time for which keys are used again before they are read anew; 0: each request reads
    /// them.
    #[directive(
        name = "auth_jwt_key_cache",
        default = "0s",
        contexts(http, server, location)
    )]
    pub key_cache: Duration,
    /// The kind of tokens.
    ///
    /// # Differs from nginx
    ///
    /// Of NGINX Plus's kinds only `signed` is known; `encrypted` and `nested` are refused.
    #[directive(
        name = "auth_jwt_type",
        default = "signed",
        contexts(http, server, location, limit_except)
    )]
    pub kind: TokenKind,
    /// The time by which clocks may differ where `exp` and `nbf` of a token are looked at.
    #[directive(
        name = "auth_jwt_leeway",
        default = "0s",
        contexts(http, server, location)
    )]
    pub leeway: Duration,
    /// Values that a request with a right token must have besides, neither empty nor `0`; else it
    /// is refused with 401, or with the status of `error=`.
    #[directive(name = "auth_jwt_require", repeat)]
    pub requirements: Vec<Requirement>,
    /// Sets a variable to a claim of the token; several names lead into objects. The elements of a
    /// list stand with commas between them.
    #[directive(name = "auth_jwt_claim_set", repeat, contexts(http))]
    pub claim_sets: Vec<MemberSet>,
    /// Sets a variable to a member of the token's header, as `auth_jwt_claim_set` to a claim.
    #[directive(name = "auth_jwt_header_set", repeat, contexts(http))]
    pub header_sets: Vec<MemberSet>,
}

/// A realm, and where its token stands.
#[derive(Clone, Debug)]
pub struct JwtGate {
    realm: Template,
    token: Option<Template>,
}

impl FromArgs for JwtGate {
    const SYNTAX: &'static str = "realm [token=$variable]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let token = match args.words {
            [_] => None,
            [_, word] => {
                let Some(value) = word.strip_prefix("token=") else {
                    let message = format!("invalid parameter \"{}\"", word.text);
                    return Err(ArgError::value(1, message));
                };
                let template = Template::from_word(&value, args.cx).map_err(|it| it.at(1))?;
                Some(template)
            }
            _ => return Err(ArgError::Count),
        };
        let realm = args.word(0)?;
        Ok(JwtGate { realm, token })
    }
}

/// The kind of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Signed (RFC 7515).
    Signed,
}

impl FromWord for TokenKind {
    const SYNTAX: &'static str = "signed";

    fn from_word(word: &Word, _cx: &mut ParseContext) -> Result<Self, WordError> {
        match word.text.as_str() {
            "signed" => Ok(TokenKind::Signed),
            "encrypted" | "nested" => Err(WordError::Message(format!(
                "tokens of the type \"{}\" are not supported, only \"signed\" ones",
                word.text
            ))),
            other => Err(WordError::Message(format!("invalid value \"{other}\""))),
        }
    }
}

/// Values that must be there.
#[derive(Clone, Debug)]
pub struct Requirement {
    values: Vec<Template>,
    status: u16,
}

impl FromArgs for Requirement {
    const SYNTAX: &'static str = "$value ... [error=401 | 403]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let (mut values, mut status) = (Vec::new(), 401);
        for (index, word) in args.words.iter().enumerate() {
            match word.text.strip_prefix("error=") {
                Some("401") => status = 401,
                Some("403") => status = 403,
                Some(_) => {
                    let message = format!("invalid parameter \"{}\"", word.text);
                    return Err(ArgError::value(index, message));
                }
                None => values.push(args.word(index)?),
            }
        }
        if values.is_empty() {
            return Err(ArgError::Count);
        }
        Ok(Requirement { values, status })
    }
}

/// A variable, and the names that lead to its value.
#[derive(Clone, Debug)]
pub struct MemberSet {
    variable: Settable,
    path: Vec<String>,
}

impl FromArgs for MemberSet {
    const SYNTAX: &'static str = "$variable name ...";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let [name, path @ ..] = args.words else {
            return Err(ArgError::Count);
        };
        if path.is_empty() {
            return Err(ArgError::Count);
        }
        let invalid = |message: String| WordError::Message(message).at(0);
        let variable = set::checked_name(&args.cx.variables, &name.text).map_err(invalid)?;
        Ok(MemberSet {
            variable: Settable::given(&mut args.cx.variables, &variable, name.span),
            path: path.iter().map(|word| word.text.clone()).collect(),
        })
    }
}

impl AuthJwtPolicy {
    /// The gate; none where there certainly is none.
    pub fn gate(&self) -> Option<&JwtGate> {
        self.gate.as_ref().and_then(OffOr::on)
    }
}

/// The verified token of a request, which it and its subrequests have as a note.
struct Verified(Token);

/// Asks for a token where a location wants one.
pub(crate) async fn check(req: &mut Request) -> Result<Checked, Failure> {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<HandlerSettings>().auth_jwt;
    let Some(gate) = policy.gate() else {
        return Ok(Checked::Off);
    };
    let realm = req.eval(&gate.realm);
    if realm.as_ref() == b"off" {
        return Ok(Checked::Off);
    }
    let Some(text) = given(req, gate) else {
        let message = "no token was provided for JWT authentication";
        request_error::write(req, Level::Info, format_args!("{message}"));
        return Err(refuse(req, &realm, None));
    };
    let checked = match Token::parse(&text) {
        Ok(token) => Box::pin(verify(req, policy, token)).await?,
        Err(fault) => Err(fault),
    };
    match checked {
        Ok(token) => admit(req, policy, token),
        Err(fault) => {
            request_error::write(req, Level::Error, format_args!("JWT: {fault}"));
            return Err(refuse(req, &realm, Some("invalid_token")));
        }
    }
    for requirement in &policy.requirements {
        if requirement.values.iter().all(|value| req.is_true(value)) {
            continue;
        }
        request_error::write(
            req,
            Level::Error,
            format_args!("JWT: \"auth_jwt_require\" is not met"),
        );
        return Err(match requirement.status {
            403 => Failure::Status(403),
            _ => refuse(req, &realm, Some("invalid_token")),
        });
    }
    Ok(Checked::Passed)
}

/// The token that a request has.
fn given(req: &mut Request, gate: &JwtGate) -> Option<Bytes> {
    if let Some(token) = &gate.token {
        return Some(req.eval(token)).filter(|token| !token.is_empty());
    }
    let token = Asked::by(req).credentials(req, "Bearer")?;
    (!token.is_empty()).then(|| Bytes::copy_from_slice(token))
}

/// Verifies signature and times; an outer error means that there are no keys (INVARIANT 2).
async fn verify(
    req: &mut Request,
    policy: &AuthJwtPolicy,
    token: Token,
) -> Result<Result<Token, Fault>, Failure> {
    let files = policy.key_files.iter().map(|KeyFile(source)| source);
    let requests = policy.key_requests.iter().map(|KeyRequest(source)| source);
    let mut is_signed = false;
    let mut has_keys = false;
    for source in files.chain(requests) {
        let keys = source.keys(req, policy.key_cache).await?;
        has_keys = true;
        is_signed = keys.verifies(&token);
        if is_signed {
            break;
        }
    }
    if !has_keys {
        let why = "\"auth_jwt\" has neither \"auth_jwt_key_file\" nor \"auth_jwt_key_request\"";
        return Err(Failure::Internal(why.to_string()));
    }
    if !is_signed {
        return Ok(Err(Fault::Signature));
    }
    let now = clock::now_ms() as f64 / 1000.0;
    let checked = token.check_times(now, policy.leeway.as_secs_f64());
    Ok(checked.map(|()| token))
}

/// Gives variables what the token says.
fn admit(req: &mut Request, policy: &AuthJwtPolicy, token: Token) {
    for (sets, members) in [
        (&policy.claim_sets, &token.claims),
        (&policy.header_sets, &token.header),
    ] {
        for set in sets {
            let text = find(members, &set.path).and_then(text_of);
            set.variable
                .assign(req, Bytes::from(text.unwrap_or_default()));
        }
    }
    req.notes.put(Verified(token));
}

fn find<'a>(members: &'a Map<String, Value>, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let begin = members.get(first);
    rest.iter()
        .fold(begin, |at, name| at?.as_object()?.get(name))
}

/// A value as a text: a list with commas, an object as JSON.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().filter_map(text_of).collect();
            Some(items.join(","))
        }
        other => Some(other.to_string()),
    }
}

/// Asks for a token (RFC 6750 §3).
fn refuse(req: &mut Request, realm: &[u8], error: Option<&str>) -> Failure {
    let mut challenge = b"Bearer realm=\"".to_vec();
    challenge.extend_from_slice(realm);
    challenge.push(b'"');
    if let Some(error) = error {
        challenge.extend_from_slice(format!(",error=\"{error}\"").as_bytes());
    }
    Asked::by(req).refuse(req, challenge)
}

/// The foreseen answer of the gate of a request's location, before a token is verified.
pub(crate) fn foresee(req: &mut Request) -> super::auth_basic::Foreseen {
    use super::auth_basic::Foreseen;
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<HandlerSettings>().auth_jwt;
    let Some(gate) = policy.gate() else {
        return Foreseen::Off;
    };
    let realm = String::from_utf8_lossy(&req.eval(&gate.realm)).into_owned();
    match given(req, gate) {
        _ if realm == "off" => Foreseen::Off,
        None => Foreseen::Lacking(realm),
        Some(_) => Foreseen::Given(realm),
    }
}

/// The plain variable.
pub const VARIABLES: &[Variable] = &[Variable {
    name: "jwt_payload",
    doc: "The claims of a verified token (`auth_jwt`), as JSON.",
    write: |req, out| match req.notes.get::<Verified>() {
        Some(Verified(token)) => {
            out.extend_from_slice(&token.payload);
            true
        }
        None => false,
    },
}];

/// The families.
pub const FAMILIES: &[VariableFamily] = &[
    VariableFamily {
        prefix: "jwt_claim_",
        doc: "The claim of a verified token (`auth_jwt`), whatever the case of its name; the \
              elements of a list have commas between them.",
        write: |req, name, out| write_member(req, |token| &token.claims, name, out),
    },
    VariableFamily {
        prefix: "jwt_header_",
        doc: "The member of the header of a verified token (`auth_jwt`).",
        write: |req, name, out| write_member(req, |token| &token.header, name, out),
    },
];

fn write_member(
    req: &Request,
    members: impl Fn(&Token) -> &Map<String, Value>,
    name: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let Some(Verified(token)) = req.notes.get() else {
        return false;
    };
    let mut members = members(token).iter();
    let member = members.find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
    let text = member.and_then(|(_, value)| text_of(value));
    out.extend_from_slice(text.as_deref().unwrap_or_default().as_bytes());
    text.is_some()
}
