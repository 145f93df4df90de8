//! `fastcgi_index`, `fastcgi_split_path_info`, `fastcgi_catch_stderr`, `fastcgi_keep_conn`,
//! `$fastcgi_script_name`, `$fastcgi_path_info`: what a FastCGI application is asked.
//!
//! The parameters and the records around them are encoded once for all peers; the body goes out in
//! records of its own, as it comes.

use std::sync::Arc;

use bytes::BytesMut;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_wire::fastcgi::params::write_pair;
use millpond_wire::fastcgi::record::{self, AfterAnswer};

use super::ask::Ask;
use super::params;
use super::request::{OutBody, OutFraming, Prepared};
use crate::request::Request;
use crate::upstream::settings::UpstreamSettings;
use crate::var::Variable;
use millpond_exchange::expression::{Case, Regex};
use millpond_exchange::protocol::Protocol;

/// The expression that cuts a path: its groups are the script's name and what follows it.
#[derive(Clone, Debug)]
pub struct SplitPath(pub Arc<Regex>);

impl FromArgs for SplitPath {
    const SYNTAX: &'static str = "regex";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let source = args.one()?.text.clone();
        let span = args.name.span;
        let variables = &mut args.cx.variables;
        let regex = Regex::new(&source, Case::Sensitive, |name| variables.store(name, span))
            .map_err(ArgError::other)?;
        if regex.group_count() != 2 {
            let message = format!("pattern \"{source}\" must have 2 captures");
            return Err(ArgError::other(message));
        }
        Ok(SplitPath(Arc::new(regex)))
    }
}

/// Settings that only FastCGI applications have.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct FastCgiPolicy {
    /// The file that `$fastcgi_script_name` ends with where the path ends with a slash.
    #[directive(name = "fastcgi_index")]
    pub index: Option<String>,
    /// An expression whose two groups are the values of `$fastcgi_script_name` and
    /// `$fastcgi_path_info`.
    #[directive(name = "fastcgi_split_path_info", last)]
    pub split: Option<SplitPath>,
    /// A text; an answer before whose head the application writes it to its error stream is
    /// invalid.
    #[directive(name = "fastcgi_catch_stderr", repeat)]
    pub catch_stderr: Vec<String>,
    /// Asks the application to keep the connection, for the next request.
    #[directive(name = "fastcgi_keep_conn", default = "off")]
    pub keep_conn: bool,
}

impl FastCgiPolicy {
    /// Fate of the connection after the application's answer.
    pub fn after_answer(&self) -> AfterAnswer {
        if self.keep_conn {
            AfterAnswer::Keep
        } else {
            AfterAnswer::Close
        }
    }

    /// True when a message on the error stream makes the answer invalid.
    pub fn catches(&self, message: &[u8]) -> bool {
        let mut texts = self.catch_stderr.iter();
        texts.any(|text| memchr::memmem::find(message, text.as_bytes()).is_some())
    }

    /// The script's name and what follows it in the path of a request.
    fn split<'a>(&self, req: &'a Request) -> (&'a [u8], &'a [u8]) {
        let path = &req.uri[..];
        let groups = self.split.as_ref().map(|split| split.0.groups(path));
        let groups = match groups {
            Some(Ok(Some(groups))) => groups,
            Some(Ok(None)) | None => return (path, &[]),
            Some(Err(gave_up)) => {
                req.note_gave_up(&gave_up);
                return (path, &[]);
            }
        };
        let group = |number: usize| {
            let span = groups.get(number).copied().flatten();
            span.and_then(|(start, end)| path.get(start as usize..end as usize))
                .unwrap_or_default()
        };
        (group(1), group(2))
    }
}

/// The variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "fastcgi_script_name",
        doc: "The path, or the first group of fastcgi_split_path_info; with fastcgi_index behind it \
              where it ends with a slash.",
        write: |req, out| {
            let policy = &req.location.settings.of::<UpstreamSettings>().fastcgi_app;
            let (script, _) = policy.split(req);
            out.extend_from_slice(script);
            if script.ends_with(b"/") {
                out.extend_from_slice(policy.index.as_deref().unwrap_or_default().as_bytes());
            }
            true
        },
    },
    Variable {
        name: "fastcgi_path_info",
        doc: "The second group of fastcgi_split_path_info.",
        write: |req, out| {
            let policy = &req.location.settings.of::<UpstreamSettings>().fastcgi_app;
            out.extend_from_slice(policy.split(req).1);
            true
        },
    },
];

/// Encodes the request.
pub(crate) fn encode(req: &mut Request, ask: &Ask, body: OutBody) -> Prepared {
    let location = Arc::clone(&req.location);
    let mut params = Vec::with_capacity(1024);
    params::for_each(req, Protocol::FastCgi, ask, &mut |name, value| {
        write_pair(&mut params, name, value);
    });
    let mut head = BytesMut::with_capacity(params.len() + 64);
    record::write_begin(
        &mut head,
        location
            .settings
            .of::<UpstreamSettings>()
            .fastcgi_app
            .after_answer(),
    );
    record::write_stream(&mut head, record::Sent::Params, &params);
    Prepared {
        encryption: None,
        head: head.freeze(),
        body,
        framing: OutFraming::Stdin,
        method: req.method,
    }
}
