//! Filters: what changes an answer between its handler and the connection, in the order the answer
//! meets them.
//!
//! ```text
//! not_modified ─► edit_headers ─► headers ─► userid ─► gunzip ─► addition ─► sub ─► charset ─┐
//!                                                                    range ◄─ coding ◄── ssi ◄┘
//! ```
//!
//! A filter looks at the head, changes it in place and notes in [`BodyChanges`] what is to become
//! of the body. The body is changed at the end, in the order range, gunzip, sub, charset, ssi,
//! addition, coding: a range is cut from the bytes of the resource.
//!
//! The answer of a subrequest meets only the filters that change its text ([`run_part`]).
//!
//! Invariants:
//! 1. A refusal is answered once: an answer that replaces a refused one is neither conditional nor
//!    cut.
//! 2. A filter that changes the length of the body forgets `length` and refuses ranges.
//!
//! `not_modified` and `range` stand in `conditional/`, since the cache asks them too.
//!
//! What it does not do: chunked coding, which is the writer's.

pub(crate) mod addition;
pub mod advertise;
pub mod brotli;
pub mod charset;
pub mod coding;
pub(crate) mod compressor;
pub mod edit_headers;
pub(crate) mod fragment;
pub(crate) mod gunzip;
pub mod gzip;
pub mod headers;
pub mod settings;
pub mod ssi;
pub mod sub;
pub mod userid;
pub mod zstd;

use std::sync::Arc;

use bytes::Bytes;
use millpond_system::body::Body;
use millpond_wire::header::{Fields, Known};
use millpond_wire::http1::Version;

use crate::cache::loaded::loaded;
use crate::cache::provenance;
use crate::conditional::{Refusal, not_modified, range};
use crate::filter::settings::FilterSettings;
use crate::filter::userid::UserIdMode;
use crate::request::Request;
use crate::upstream::by_rfc;
use millpond_exchange::response::{DIGESTS, Response, Source};
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::level::{Closing, DueFilters};

/// A filter of texts; dispatched by one `match` in [`change_text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filter {
    Gunzip,
    Addition,
    Sub,
    Charset,
    Ssi,
    Coding,
}

/// The filters of texts in the order in which an answer meets them.
const TEXT_FILTERS: [Filter; 6] = [
    Filter::Gunzip,
    Filter::Addition,
    Filter::Sub,
    Filter::Charset,
    Filter::Ssi,
    Filter::Coding,
];

/// True if one of the filters of texts may act here: without one none of them is asked.
fn may_change_text(filters: &FilterSettings) -> bool {
    changes_stored_text(filters)
        || filters.gunzip.enabled
        || filters.charset.charset != charset::Charset::Off
        || coding::is_enabled(filters)
}

fn changes_stored_text(filters: &FilterSettings) -> bool {
    let charset = &filters.charset;
    let may_recode = charset.source != charset::Charset::Off || charset.overrides;
    !filters.sub.pairs.is_empty()
        || filters.ssi.enabled
        || filters.addition.before.is_some()
        || filters.addition.after.is_some()
        || (charset.charset != charset::Charset::Off && may_recode)
}

/// The strings that are replaced in texts, when they are the same for all requests.
#[derive(Debug)]
pub struct Texts {
    search: Arc<sub::Search>,
}

impl Part for Texts {
    const PLACE: Place = Place::Texts;
}

/// Code of another module that looks at the heads of a location's answers, and may change them,
/// before any other filter does.
#[derive(Clone, Copy, Debug)]
pub struct HeadHook(pub fn(&mut Request, &mut Response));

/// Lets the location's hook look at the head of an answer that goes through no filter.
pub(crate) fn look_at_head(req: &mut Request, response: &mut Response) {
    let location = Arc::clone(&req.location);
    if let Some(HeadHook(look)) = location.parts.get() {
        look(req, response);
    }
}

impl Part for HeadHook {
    const PLACE: Place = Place::HeadHook;
}

/// Notes the filters that may have something to do for answers of a block.
pub fn close(level: &mut Closing<'_>) {
    let filters = level.settings.of::<FilterSettings>();
    let adds_trailers = !filters.headers.trailers.is_empty();
    let due = DueFilters {
        edits: !filters.edit_headers.lines.is_empty() || level.draft.has::<HeadHook>(),
        adds: adds_trailers || filters.headers.adds_fields(),
        adds_trailers,
        marks_clients: !matches!(filters.userid.mode, UserIdMode::Off | UserIdMode::Log),
        may_change_text: may_change_text(filters),
        changes_stored_text: changes_stored_text(filters),
    };
    if let Some(search) = filters.sub.search() {
        level.draft.put(Texts { search });
    }
    level.draft.put(due);
}

/// Decisions of the filters about the body.
#[derive(Default)]
pub struct BodyChanges {
    /// True when it is to be decompressed.
    pub is_unzipped: bool,
    /// Plan of the replacement of strings.
    pub sub: Option<sub::Plan>,
    /// Plan of the conversion of characters.
    pub recode: Option<Arc<charset::Recode>>,
    /// Plan to run the commands of the text.
    pub ssi: Option<ssi::Plan>,
    /// True when other requests' answers come around it.
    pub is_added_to: bool,
    /// Plan of the compression.
    pub coding: Option<coding::Plan>,
}

/// Runs all filters; after a refusal the answer must not be sent.
pub fn run(req: &mut Request, response: &mut Response) -> Result<(), Refusal> {
    // nginx: an answer without content has no type but one that is added by name, unless it is as
    // an upstream made it.
    if response.status == 204 && (response.source == Source::Own || req.error.status == 204) {
        response.fields.remove(Known::ContentType);
    }
    not_modified::run(req, response)?;
    edit_headers::run(req, response);
    headers::run(req, response);
    userid::run(req, response);
    advertise::run(req, response);
    // An upstream may order a character set where none is configured.
    let due = req.location.filters;
    let may_change = due.may_change_text || response.orders.charset.is_some();
    let changes = (may_change && !must_stay(req, response)).then(|| change_text(req, response));
    let cut = range::run(req, response)?;
    finish_head(req, response);
    if let Some(cut) = cut {
        let body = std::mem::take(&mut response.body);
        response.body = cut.apply(body);
    }
    if let Some(changes) = changes {
        change_body(req, response, changes);
    }
    Ok(())
}

/// RFC 9110 §7.7: whether origin or client forbid to transform the content.
fn must_stay(req: &Request, response: &Response) -> bool {
    response.changes.are_forbidden
        || (response.conditions.are_by_rfc && by_rfc::asks_for_original(req))
}

/// Runs the filters of texts.
fn change_text(req: &mut Request, response: &mut Response) -> BodyChanges {
    let mut changes = BodyChanges::default();
    for filter in TEXT_FILTERS {
        match filter {
            Filter::Gunzip => changes.is_unzipped = gunzip::run(req, response),
            Filter::Addition => changes.is_added_to = addition::run(req, response),
            Filter::Sub => changes.sub = sub::run(req, response),
            Filter::Charset => changes.recode = charset::run(req, response),
            Filter::Ssi => changes.ssi = ssi::run(req, response),
            Filter::Coding => changes.coding = coding::run(req, response),
        }
    }
    changes
}

/// Does what the filters of texts decided.
fn change_body(req: &mut Request, response: &mut Response, changes: BodyChanges) {
    response.delivery.waits_for_body |= changes.ssi.is_some();
    if changes.reads_body() {
        response.provenance.is_changed();
    }
    // The body of an answer to HEAD is not read, so that nothing is included.
    if changes.is_page() && !req.is_head() {
        provenance::of_page(req, response);
    }
    let body = std::mem::take(&mut response.body);
    response.body = changes.apply(req, body);
}

/// Runs the filters of a subrequest's answer.
pub fn run_part(req: &mut Request, response: &mut Response) {
    let changes = BodyChanges {
        is_unzipped: gunzip::run(req, response),
        sub: sub::run(req, response),
        recode: charset::run(req, response),
        ssi: ssi::run(req, response),
        ..BodyChanges::default()
    };
    let body = std::mem::take(&mut response.body);
    // Whoever includes it may read it.
    let body = loaded(body, req.location.settings.send.timeout);
    response.body = changes.apply_to_text(req, body);
}

/// The trailer fields of a body that a filter has changed: digests may come in them (RFC 9530 §2),
/// of what it was.
fn trailers_of_changed(mut trailers: Option<Fields>) -> Option<Fields> {
    if let Some(fields) = &mut trailers {
        fields.remove_all(DIGESTS);
    }
    trailers.filter(|fields| !fields.is_empty())
}

impl BodyChanges {
    fn apply(mut self, req: &mut Request, body: Body) -> Body {
        let body = if self.reads_body() {
            loaded(body, req.location.settings.send.timeout)
        } else {
            body
        };
        let coding = self.coding.take();
        let is_page = self.is_page();
        let is_added_to = self.is_added_to;
        let mut body = self.apply_to_text(req, body);
        if is_page && !req.is_head() {
            if is_added_to {
                body = addition::add(req, body);
            }
            body = fragment::PageBody::of(req, body);
        }
        match coding {
            Some(plan) => coding::apply(body, plan),
            None => body,
        }
    }

    /// True if other requests' answers may be part of the body.
    fn is_page(&self) -> bool {
        self.ssi.is_some() || self.is_added_to
    }

    /// True if something reads the body into memory.
    fn reads_body(&self) -> bool {
        let reads_text = self.sub.is_some() || self.recode.is_some() || self.ssi.is_some();
        reads_text || self.is_unzipped || self.coding.is_some()
    }

    fn apply_to_text(self, req: &mut Request, body: Body) -> Body {
        let body = if self.is_unzipped {
            gunzip::decompress_body(body)
        } else {
            body
        };
        let body = match self.sub {
            Some(plan) => sub::replace(req, body, plan),
            None => body,
        };
        let body = match self.recode {
            Some(recode) => charset::recode_body(body, recode),
            None => body,
        };
        match self.ssi {
            Some(plan) => ssi::include(req, body, plan),
            None => body,
        }
    }
}

/// Sets the fields that no single filter owns.
fn finish_head(req: &Request, response: &mut Response) {
    let changes = &response.changes;
    let is_told = changes.are_by_coding && req.location.settings.of::<FilterSettings>().gzip.vary;
    if is_told || changes.have_stored_encodings {
        // RFC 9842 §2.2.
        let names: &[u8] = if changes.are_by_dictionary {
            b"Accept-Encoding, Available-Dictionary"
        } else {
            b"Accept-Encoding"
        };
        // A file that is not there may have said so already, before its page was compressed.
        let is_said = response.source == Source::Own
            && response
                .fields
                .get(Known::Vary)
                .is_some_and(|value| value == names);
        if !is_said {
            let names = Bytes::from_static(names);
            response.fields.push_known(Known::Vary, names);
        }
    }
    // nginx: an error page that is a file has no Last-Modified but one that is added by name.
    if response.source == Source::Own
        && !matches!(response.status, 200 | 206 | 304)
        && !headers::adds_last_modified(req, response.status)
    {
        response.fields.remove(Known::LastModified);
    }
    if response.delivery.expects_trailers && may_send_trailers(req, response) {
        response.length = None;
    }
}

/// nginx: trailers follow a chunked body, and an answer that could be chunked becomes so for them.
fn may_send_trailers(req: &Request, response: &Response) -> bool {
    req.head.version() >= Version::Http11
        && req.location.settings.chunked.enabled
        && !req.is_head()
        && !matches!(response.status, 100..=199 | 204 | 304)
}

/// The trailer fields of an answer, asked for when its body has ended; `own` are the body's.
pub fn trailers(req: &mut Request, own: Option<Fields>) -> Option<Fields> {
    headers::trailers(req, own)
}
