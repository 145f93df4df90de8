//! `add_before_body`, `add_after_body`, `addition_types`: the answers of other requests around an
//! answer's body.
//!
//! Only answers with status 200 and of a listed type are added to, and never those of subrequests,
//! so that an addition gets none of its own. The second addition is asked for when the body has
//! ended: a body that is cut short gets none.
//!
//! Sources: nginx ngx_http_addition_filter.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_wire::header::Fields;

use super::fragment::Fragment;
use crate::filter::settings::FilterSettings;
use crate::request::Request;
use crate::request::page::Kind;
use crate::subrequest::Target;
use millpond_exchange::response::Response;
use millpond_exchange::response::type_set::TypeSet;

/// Settings of the texts that are added to answers.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct AdditionPolicy {
    /// The path whose answer comes before the body; empty for none.
    #[directive(name = "add_before_body")]
    pub before: Option<String>,
    /// The path whose answer comes behind the body; empty for none.
    #[directive(name = "add_after_body")]
    pub after: Option<String>,
    /// The media types that are added to, beside text/html.
    #[directive(name = "addition_types", default = "text/html", repeat)]
    pub types: Vec<TypeSet>,
}

/// Says whether something is to be added, and changes the head.
pub(crate) fn run(req: &Request, response: &mut Response) -> bool {
    let policy = &req.location.settings.of::<FilterSettings>().addition;
    if policy.before.is_none() && policy.after.is_none() || response.status != 200 {
        return false;
    }
    let is_wanted = [&policy.before, &policy.after]
        .into_iter()
        .flatten()
        .any(|path| !path.is_empty());
    if !is_wanted || !TypeSet::any_fits(&policy.types, response) {
        return false;
    }
    response.body_changes();
    true
}

/// Adds to a body.
pub(crate) fn add(req: &mut Request, body: Body) -> Body {
    let policy = req
        .location
        .settings
        .of::<FilterSettings>()
        .addition
        .clone();
    let mut fragment = |path: Option<String>| {
        let target = Target {
            uri: Bytes::from(path.filter(|path| !path.is_empty())?),
            args: Bytes::new(),
        };
        let sub = req.subrequest(target, Kind::Shown)?;
        Some(Fragment::new(sub, None))
    };
    Body::stream(AddedBody {
        before: fragment(policy.before),
        body: Some(body),
        after: fragment(policy.after),
        trailers: None,
    })
}

/// A body between two others.
struct AddedBody {
    before: Option<Fragment>,
    body: Option<Body>,
    after: Option<Fragment>,
    /// Trailer fields of the body itself.
    trailers: Option<Fields>,
}

impl BodyStream for AddedBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        if let Some(before) = &mut this.before {
            if let Some(next) = ready!(before.poll_next(cx)) {
                return Poll::Ready(Some(next));
            }
            this.before = None;
        }
        if let Some(body) = &mut this.body {
            if let Some(next) = ready!(body.poll_next(cx)) {
                return Poll::Ready(Some(next));
            }
            this.trailers = super::trailers_of_changed(body.take_trailers());
            this.body = None;
        }
        match &mut this.after {
            Some(after) => after.poll_next(cx),
            None => Poll::Ready(None),
        }
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        self.trailers.take()
    }
}
