//! `add_header`, `add_trailer`, `expires` and their inheritance: fields that the configuration adds
//! to answers.
//!
//! Without `always`, fields are added to successes, redirects and 304 only. Cache-Control and Link
//! may be added several times; ETag and Last-Modified replace what the answer has, and an empty
//! value removes it.
//!
//! Trailers are evaluated when the body has ended, so that they may speak of it.
//!
//! Sources: nginx ngx_http_headers_filter.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::value::parse_duration;
use millpond_conf::{
    Applied, ArgError, Args, Contexts, Directive, Family, FromArgs, ParseContext, Span, Spanned,
    Statement, Template,
};
use millpond_semantics::date::{format_http_date, parse_http_date};
use millpond_system::clock;
use millpond_system::log::stamp::offset_at;
use millpond_wire::header::{Field, Fields, Known};

use crate::filter::settings::FilterSettings;
use crate::request::Request;
use millpond_exchange::response::Response;

const DAY: i64 = 24 * 60 * 60;

/// The directives as they are written.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, if_location)]
pub struct HeadersDirectives {
    /// Sets Expires, and Cache-Control with the time that is left: a time from now or from the last
    /// change, the next time of a day (`@15h30m`), `epoch` for the past, `max` for ten years.
    /// A time of a day is local time.
    #[directive(
        name = "expires",
        default = "off",
        syntax = "[modified] time | epoch | max | off"
    )]
    pub expires: Expires,
    /// Adds a field to answers; with `always`, to errors too.
    #[directive(name = "add_header", repeat)]
    pub fields: Vec<AddedField>,
    /// Adds a field behind the body of chunked answers; with `always`, of errors too.
    #[directive(name = "add_trailer", repeat)]
    pub trailers: Vec<AddedField>,
    /// Rule by which the `add_header` of outer blocks are in force here: with `on` unless there is
    /// one here, with `merge` also then.
    #[directive(name = "add_header_inherit", default = "on")]
    pub fields_inherit: Inherit,
    /// Rule by which the `add_trailer` of outer blocks are in force here: with `on` unless there is
    /// one here, with `merge` also then.
    #[directive(name = "add_trailer_inherit", default = "on")]
    pub trailers_inherit: Inherit,
}

/// Rule for the list of an outer block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum Inherit {
    /// The outer list is not in force.
    #[word("off")]
    Off,
    /// The outer list is in force where there is no own list.
    #[word("on")]
    On,
    /// The outer list follows the own list.
    #[word("merge")]
    Merge,
}

/// One field that is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedField {
    name: Bytes,
    known: Known,
    value: Template,
    /// The value, when it is the same for all.
    fixed: Option<Bytes>,
    on: Statuses,
}

/// The answers that a field is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statuses {
    Safe,
    All,
}

impl FromArgs for AddedField {
    const SYNTAX: &'static str = "name value [always]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let (name, on) = match args.words {
            [name, _] => (name, Statuses::Safe),
            [name, _, word] if word.text == "always" => (name, Statuses::All),
            [_, _, word] => {
                let message = format!("invalid parameter \"{}\"", word.text);
                return Err(ArgError::value(2, message));
            }
            _ => return Err(ArgError::Count),
        };
        let name = Bytes::from(name.text.clone());
        // nginx: the type of an answer is what its maker says; one that is added is a field of its
        // own beside it, which no filter looks at.
        let known = match Known::of(&name) {
            Known::ContentType => Known::Other,
            known => known,
        };
        let value: Template = args.word(1)?;
        let fixed = value.as_literal().map(Bytes::copy_from_slice);
        Ok(AddedField {
            name,
            known,
            value,
            fixed,
            on,
        })
    }
}

/// Time at which an answer expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expires {
    /// Known from the configuration.
    Fixed(ExpiresTime),
    /// Made from variables for each answer.
    Computed(ExpiresBase, Template),
}

/// Instant from which a time of `expires` is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiresBase {
    /// The moment of the answer.
    Access,
    /// The last change of the resource.
    Modified,
}

/// A time of `expires`, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiresTime {
    /// Nothing is set.
    Off,
    /// The past.
    Epoch,
    /// Ten years.
    Max,
    /// Seconds after the base; negative is in the past.
    After(ExpiresBase, i64),
    /// The next time that a day is so old.
    Daily(i64),
}

impl FromArgs for Expires {
    const SYNTAX: &'static str = "[modified] time | epoch | max | off";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let (at, base) = match args.words {
            [_] => (0, ExpiresBase::Access),
            [word, _] if word.text == "modified" => (1, ExpiresBase::Modified),
            [_, _] => {
                let message = "\"expires\" directive invalid value";
                return Err(ArgError::value(0, message));
            }
            _ => return Err(ArgError::Count),
        };
        let template: Template = args.word(at)?;
        match template.as_literal() {
            None => Ok(Expires::Computed(base, template)),
            Some(text) => match parse_expires(text, base) {
                Ok(time) => Ok(Expires::Fixed(time)),
                Err(why) => Err(ArgError::value(at, format!("\"expires\" directive {why}"))),
            },
        }
    }
}

fn parse_expires(text: &[u8], base: ExpiresBase) -> Result<ExpiresTime, &'static str> {
    if base == ExpiresBase::Access {
        match text {
            b"epoch" => return Ok(ExpiresTime::Epoch),
            b"max" => return Ok(ExpiresTime::Max),
            b"off" => return Ok(ExpiresTime::Off),
            _ => {}
        }
    }
    let (sign, time) = match text {
        [sign @ (b'@' | b'+' | b'-'), time @ ..] => (*sign, time),
        time => (b'+', time),
    };
    let seconds = parse_seconds(time).ok_or("invalid value")?;
    match sign {
        b'@' if base == ExpiresBase::Modified => {
            Err("daily time cannot be used with \"modified\" parameter")
        }
        b'@' if seconds > DAY => Err("daily time value must be less than 24 hours"),
        b'@' => Ok(ExpiresTime::Daily(seconds)),
        b'-' => Ok(ExpiresTime::After(base, -seconds)),
        _ => Ok(ExpiresTime::After(base, seconds)),
    }
}

fn parse_seconds(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let time = parse_duration(text).filter(|_| !text.ends_with("ms"))?;
    i64::try_from(time.as_secs()).ok()
}

/// Settings of the fields that are added to answers.
#[derive(Clone, Debug)]
pub struct HeadersPolicy {
    /// Time at which answers expire.
    pub expires: Expires,
    /// Fields, in order.
    pub fields: Arc<[AddedField]>,
    /// Trailer fields, in order.
    pub trailers: Arc<[AddedField]>,
}

impl HeadersPolicy {
    /// True if fields may be added, or replaced.
    pub(super) fn adds_fields(&self) -> bool {
        !self.fields.is_empty() || self.expires != Expires::Fixed(ExpiresTime::Off)
    }
}

impl Family for HeadersPolicy {
    type Raw = HeadersDirectivesRaw;

    fn directives(protocol: &'static str) -> Vec<Directive> {
        HeadersDirectives::directives(protocol)
    }

    fn apply(
        raw: &mut HeadersDirectivesRaw,
        protocol: &str,
        st: &Statement,
        context: Contexts,
        cx: &mut ParseContext,
    ) -> Applied {
        HeadersDirectives::apply(raw, protocol, st, context, cx)
    }

    fn resolve(outer_to_inner: &[&HeadersDirectivesRaw], cx: &mut ParseContext) -> Self {
        let plain = HeadersDirectives::resolve(outer_to_inner, cx);
        let levels = outer_to_inner.iter();
        let fields = levels.clone().map(|raw| (&raw.fields, &raw.fields_inherit));
        let trailers = levels.map(|raw| (&raw.trailers, &raw.trailers_inherit));
        HeadersPolicy {
            expires: plain.expires,
            fields: inherit(fields).into(),
            trailers: inherit(trailers).into(),
        }
    }

    fn span_of(raw: &HeadersDirectivesRaw, protocol: &str, name: &str) -> Option<Span> {
        HeadersDirectives::span_of(raw, protocol, name)
    }
}

/// Merges lists from the outermost level to the innermost.
fn inherit<'a>(
    levels: impl Iterator<Item = (&'a Vec<Spanned<AddedField>>, &'a Option<Spanned<Inherit>>)>,
) -> Vec<AddedField> {
    let mut rule = Inherit::On;
    let mut list: Vec<AddedField> = Vec::new();
    for (own, own_rule) in levels {
        rule = own_rule.as_ref().map_or(rule, |set| set.value);
        let mut own: Vec<AddedField> = own.iter().map(|set| set.value.clone()).collect();
        match rule {
            Inherit::On if own.is_empty() => continue,
            Inherit::Merge => own.append(&mut list),
            Inherit::On | Inherit::Off => {}
        }
        list = own;
    }
    list
}

/// Adds the fields of the location.
pub fn run(req: &mut Request, response: &mut Response) {
    if let Some(cookie) = req.upstream.borrow_mut().sticky_cookie.take() {
        response.fields.push_known(Known::SetCookie, cookie);
    }
    if !req.location.filters.adds {
        return;
    }
    let policy = &req.location.settings.of::<FilterSettings>().headers;
    let is_safe = is_safe(response.status);
    let has_expires = policy.expires != Expires::Fixed(ExpiresTime::Off);
    let mut added = 0;
    if !(has_expires && is_safe) {
        for field in policy.fields.iter() {
            if field.applies(is_safe) {
                let Some(value) = field.plain_value(req) else {
                    break;
                };
                add(response, field, value);
            }
            added += 1;
        }
    }
    response.delivery.expects_trailers |=
        policy.trailers.iter().any(|field| field.applies(is_safe));
    if has_expires && is_safe || added < policy.fields.len() {
        run_with_head(req, response, added);
    }
}

/// True if the location adds a Last-Modified to answers with this status.
pub fn adds_last_modified(req: &Request, status: u16) -> bool {
    let mut fields = req
        .location
        .settings
        .of::<FilterSettings>()
        .headers
        .fields
        .iter();
    fields.any(|field| field.known == Known::LastModified && field.applies(is_safe(status)))
}

/// Adds what may speak of the answer, but for the first fields.
fn run_with_head(req: &mut Request, response: &mut Response, first: usize) {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<FilterSettings>().headers;
    let is_safe = is_safe(response.status);
    lend(req, response);
    if is_safe && policy.expires != Expires::Fixed(ExpiresTime::Off) {
        add_expires(req, response.last_modified, &policy.expires);
    }
    let fields = policy.fields.iter().skip(first);
    for field in fields.filter(|field| field.applies(is_safe)) {
        let value = field.value(req);
        std::mem::swap(&mut req.sent.fields, &mut response.fields);
        add(response, field, value);
        std::mem::swap(&mut req.sent.fields, &mut response.fields);
    }
    std::mem::swap(&mut req.sent.fields, &mut response.fields);
}

/// The value that `work` makes while variables find the answer's head.
pub(super) fn with_head<T>(
    req: &mut Request,
    response: &mut Response,
    work: impl FnOnce(&mut Request) -> T,
) -> T {
    lend(req, response);
    let value = work(req);
    std::mem::swap(&mut req.sent.fields, &mut response.fields);
    value
}

/// Puts the head where variables find it (`$sent_http_*`), for values that speak of the answer
/// itself.
fn lend(req: &mut Request, response: &mut Response) {
    req.sent.status = response.status;
    req.sent.length = response.length;
    std::mem::swap(&mut req.sent.fields, &mut response.fields);
}

/// The trailer fields of an answer: the body's own and those of the location.
pub fn trailers(req: &mut Request, own: Option<Fields>) -> Option<Fields> {
    if !req.location.filters.adds_trailers {
        return own;
    }
    let location = Arc::clone(&req.location);
    let is_safe = is_safe(req.sent.status);
    req.sent.trailers = own.unwrap_or_default();
    for field in location
        .settings
        .of::<FilterSettings>()
        .headers
        .trailers
        .iter()
    {
        if field.applies(is_safe) {
            let value = field.value(req);
            if !value.is_empty() {
                req.sent.trailers.push(field.with(value));
            }
        }
    }
    (!req.sent.trailers.is_empty()).then(|| req.sent.trailers.clone())
}

impl AddedField {
    fn applies(&self, is_safe: bool) -> bool {
        is_safe || self.on == Statuses::All
    }

    fn value(&self, req: &mut Request) -> Bytes {
        match &self.fixed {
            Some(value) => value.clone(),
            None => req.eval(&self.value),
        }
    }

    /// The value, if it says nothing of the answer's head.
    fn plain_value(&self, req: &Request) -> Option<Bytes> {
        self.fixed.clone().or_else(|| req.eval_word(&self.value))
    }

    fn with(&self, value: Bytes) -> Field {
        Field {
            known: self.known,
            name: self.name.clone(),
            value,
        }
    }
}

/// nginx: the statuses that fields without `always` are added to.
fn is_safe(status: u16) -> bool {
    matches!(
        status,
        200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308
    )
}

fn add(response: &mut Response, field: &AddedField, value: Bytes) {
    if field.known == Known::LastModified {
        response.last_modified = parse_http_date(&value);
    }
    if matches!(field.known, Known::ETag | Known::LastModified) {
        response.fields.remove(field.known);
    }
    if !value.is_empty() {
        response.fields.push(field.with(value));
    }
}

fn add_expires(req: &mut Request, last_modified: Option<i64>, expires: &Expires) {
    let time = match expires {
        Expires::Fixed(time) => *time,
        Expires::Computed(base, template) => {
            let text = req.eval(template);
            // nginx: a value that makes no sense sets nothing.
            parse_expires(&text, *base).unwrap_or(ExpiresTime::Off)
        }
    };
    let now = clock::now_ms().div_euclid(1000);
    if let Some((date, cache_control)) = expiry(time, now, last_modified) {
        req.sent.fields.set(Known::Expires, date);
        req.sent.fields.set(Known::CacheControl, cache_control);
    }
}

/// The values of Expires and Cache-Control.
fn expiry(time: ExpiresTime, now: i64, last_modified: Option<i64>) -> Option<(Bytes, Bytes)> {
    let no_cache = Bytes::from_static(b"no-cache");
    let (given, at) = match time {
        ExpiresTime::Off => return None,
        ExpiresTime::Epoch => {
            return Some((
                Bytes::from_static(b"Thu, 01 Jan 1970 00:00:01 GMT"),
                no_cache,
            ));
        }
        ExpiresTime::Max => {
            let date = Bytes::from_static(b"Thu, 31 Dec 2037 23:55:55 GMT");
            return Some((date, Bytes::from_static(b"max-age=315360000")));
        }
        ExpiresTime::After(_, 0) => (0, now),
        ExpiresTime::After(ExpiresBase::Modified, seconds) => (
            seconds,
            last_modified.unwrap_or(now).saturating_add(seconds),
        ),
        ExpiresTime::After(ExpiresBase::Access, seconds) => (seconds, now.saturating_add(seconds)),
        ExpiresTime::Daily(seconds) => (0, next_time_of_day(now, seconds, offset_at)),
    };
    let date = Bytes::copy_from_slice(&format_http_date(at));
    let max_age = at.saturating_sub(now);
    if given < 0 || max_age < 0 {
        return Some((date, no_cache));
    }
    Some((date, Bytes::from(format!("max-age={max_age}"))))
}

/// The next moment at which the local clock shows `seconds` since midnight.
fn next_time_of_day(now: i64, seconds: i64, offset_at: impl Fn(i64) -> i32) -> i64 {
    let offset = i64::from(offset_at(now));
    let midnight = (now + offset).div_euclid(DAY) * DAY;
    let utc_of = |local: i64| {
        // The clock may change between now and then.
        local - i64::from(offset_at(local - offset))
    };
    let today = utc_of(midnight + seconds);
    if today > now {
        return today;
    }
    utc_of(midnight + DAY + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 784_111_777;

    #[test]
    fn times_are_read_as_in_nginx() {
        use ExpiresBase::{Access, Modified};
        use ExpiresTime::{After, Daily, Epoch, Max, Off};
        for (text, base, expected) in [
            ("epoch", Access, Ok(Epoch)),
            ("max", Access, Ok(Max)),
            ("off", Access, Ok(Off)),
            ("2048", Access, Ok(After(Access, 2048))),
            ("+1h", Access, Ok(After(Access, 3600))),
            ("-1h", Modified, Ok(After(Modified, -3600))),
            ("@15h30m33s", Access, Ok(Daily(55_833))),
            ("epoch", Modified, Err("invalid value")),
            ("", Access, Err("invalid value")),
            ("5ms", Access, Err("invalid value")),
            (
                "@25h",
                Access,
                Err("daily time value must be less than 24 hours"),
            ),
            (
                "@1h",
                Modified,
                Err("daily time cannot be used with \"modified\" parameter"),
            ),
        ] {
            assert_eq!(parse_expires(text.as_bytes(), base), expected, "{text}");
        }
    }

    #[test]
    fn expiry_is_counted_from_its_base() {
        use ExpiresBase::{Access, Modified};
        use ExpiresTime::After;
        for (time, date, cache_control) in [
            (
                After(Access, 10),
                "Sun, 06 Nov 1994 08:49:47 GMT",
                "max-age=10",
            ),
            (
                After(Access, 0),
                "Sun, 06 Nov 1994 08:49:37 GMT",
                "max-age=0",
            ),
            (
                After(Access, -7),
                "Sun, 06 Nov 1994 08:49:30 GMT",
                "no-cache",
            ),
            (
                After(Modified, 20),
                "Sun, 06 Nov 1994 08:49:47 GMT",
                "max-age=10",
            ),
            (
                After(Modified, 5),
                "Sun, 06 Nov 1994 08:49:32 GMT",
                "no-cache",
            ),
        ] {
            let found = expiry(time, NOW, Some(NOW - 10)).unwrap();
            assert_eq!(
                (&found.0[..], &found.1[..]),
                (date.as_bytes(), cache_control.as_bytes())
            );
        }
    }

    #[test]
    fn time_of_day_is_the_next_on_the_local_clock() {
        // NOW is 08:49:37 UTC, 31,777 seconds after midnight.
        let summer_ends = |at: i64| if at < NOW + 3600 { 7200 } else { 3600 };
        for (seconds, expected) in [
            (31_778, NOW + 1),
            (31_777, NOW + DAY),
            (0, NOW + DAY - 31_777),
        ] {
            assert_eq!(next_time_of_day(NOW, seconds, |_| 0), expected);
        }
        assert_eq!(next_time_of_day(NOW, 31_777, |_| 3600), NOW + DAY - 3600);
        assert_eq!(next_time_of_day(NOW, 39_000, summer_ends), NOW + 23);
        assert_eq!(
            next_time_of_day(NOW, 50_000, summer_ends),
            NOW + 50_000 - 31_777 - 3600
        );
    }

    /// Directives of one block: its list and its rule.
    type LevelSays = (Vec<Spanned<AddedField>>, Option<Spanned<Inherit>>);

    #[test]
    fn lists_are_inherited_by_their_rule() {
        let field = |name: &'static str| Spanned {
            value: AddedField {
                name: Bytes::from_static(name.as_bytes()),
                known: Known::Other,
                value: Template::literal("x"),
                fixed: None,
                on: Statuses::Safe,
            },
            span: Span::NONE,
        };
        let rule = |value| {
            Some(Spanned {
                value,
                span: Span::NONE,
            })
        };
        let names = |levels: &[LevelSays]| {
            let list = inherit(levels.iter().map(|(list, rule)| (list, rule)));
            let names = list
                .iter()
                .map(|field| String::from_utf8_lossy(&field.name).into_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        let (a, b) = (vec![field("a")], vec![field("b")]);
        assert_eq!(names(&[(a.clone(), None), (vec![], None)]), "a");
        assert_eq!(names(&[(a.clone(), None), (b.clone(), None)]), "b");
        assert_eq!(
            names(&[(a.clone(), None), (b.clone(), rule(Inherit::Merge))]),
            "b a"
        );
        assert_eq!(
            names(&[(a.clone(), None), (vec![], rule(Inherit::Off))]),
            ""
        );
        assert_eq!(
            names(&[(a, rule(Inherit::Merge)), (b, None), (vec![], None)]),
            "b a"
        );
    }
}
