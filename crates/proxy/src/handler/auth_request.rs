//! `auth_request`, `auth_request_set`: another request decides whether a request is let in.
//!
//! A subrequest is made before the request is answered. Its status decides: 2xx lets the request
//! in, 401 and 403 refuse it, and anything else is an error. Of its answer nobody reads the body.
//!
//! Variables are set from the subrequest whatever it says, so that error pages have them, too.
//!
//! Sources: nginx ngx_http_auth_request_module.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{ArgError, Args, FromArgs, OffOr, Template, WordError};
use millpond_system::log::error::Level;
use millpond_wire::header::Known;

use super::auth_basic::Checked;
use crate::filter;
use crate::handler::settings::HandlerSettings;
use crate::log::request_error;
use crate::request::Request;
use crate::request::page::Kind;
use crate::rewrite::set::{self, Variable};
use crate::subrequest::{self, Target};
use millpond_exchange::failure::{CLOSE_WITHOUT_ANSWER, Failure};
use millpond_exchange::response::{Response, Source};

/// The address that is asked if requests are let in.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct AuthRequestPolicy {
    /// The path that is asked whether a request is let in.
    #[directive(name = "auth_request", default = "off")]
    pub path: OffOr<String>,
    /// Sets a variable once the path was asked; the value may have variables of that request, such
    /// as `$upstream_http_name`.
    #[directive(name = "auth_request_set", repeat)]
    pub sets: Vec<AuthSet>,
}

/// A variable and its value.
#[derive(Clone, Debug)]
pub struct AuthSet {
    variable: Variable,
    value: Arc<Template>,
}

impl FromArgs for AuthSet {
    const SYNTAX: &'static str = "$variable value";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let [name, _] = args.words else {
            return Err(ArgError::Count);
        };
        let invalid = |message: String| WordError::Message(message).at(0);
        let variable = set::checked_name(&args.cx.variables, &name.text).map_err(invalid)?;
        let variable = Variable::given(&mut args.cx.variables, &variable, name.span);
        Ok(AuthSet {
            variable,
            value: Arc::new(args.word(1)?),
        })
    }
}

/// Asks where a location wants that.
pub async fn check(req: &mut Request) -> Result<Checked, Failure> {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<HandlerSettings>().auth_request;
    let OffOr::On(path) = &policy.path else {
        return Ok(Checked::Off);
    };
    let target = Target {
        uri: Bytes::copy_from_slice(path.as_bytes()),
        args: Bytes::new(),
    };
    let sub = req.subrequest(target, Kind::Asked);
    let sub = sub.ok_or_else(|| Failure::Internal("no authorization is possible".to_owned()))?;
    let (mut sub, mut response) = subrequest::answer(sub).await;
    filter::look_at_head(&mut sub, &mut response);
    sub.sent.status = response.status;
    sub.sent.length = response.length;
    sub.sent.fields = response.fields.clone();
    for set in &policy.sets {
        let value = sub.eval(&set.value);
        set.variable.assign(req, value);
    }
    let decision = decide(req, &sub, &response);
    subrequest::finish(&mut sub);
    decision
}

fn decide(req: &mut Request, sub: &Request, response: &Response) -> Result<Checked, Failure> {
    match response.status {
        200..=299 => Ok(Checked::Passed),
        401 => {
            keep_challenges(req, sub, response);
            Err(Failure::Status(401))
        }
        403 => Err(Failure::Status(403)),
        // nginx: a subrequest that closes the connection closes it for its request, too.
        CLOSE_WITHOUT_ANSWER if response.source == Source::Own => {
            Err(Failure::Status(CLOSE_WITHOUT_ANSWER))
        }
        // The client is gone.
        499 => Err(Failure::Status(499)),
        status => {
            let message = format_args!("auth request unexpected status: {status}");
            request_error::write(req, Level::Error, message);
            Err(Failure::Status(500))
        }
    }
}

/// nginx: the client learns how it may prove who it is, also where that field is hidden, and beside
/// what another gate has said of it.
fn keep_challenges(req: &mut Request, sub: &Request, response: &Response) {
    let is_challenge =
        |field: &&millpond_wire::header::Field| field.known == Known::WwwAuthenticate;
    if response.fields.contains(Known::WwwAuthenticate) {
        let challenges = response.fields.iter().filter(is_challenge);
        req.answer_fields.extend(challenges.cloned());
        return;
    }
    if let Some(fields) = &sub.upstream.borrow().fields {
        req.answer_fields
            .extend(fields.iter().filter(is_challenge).cloned());
    }
}
