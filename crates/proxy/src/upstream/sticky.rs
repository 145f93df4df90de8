//! `sticky`: requests of one session go to one peer.
//!
//! - `sticky cookie NAME`: the answer sets a cookie that names the peer.
//! - `sticky route $variable …`: the first variable that is not empty names it.
//! - `sticky learn`: sessions that the upstream begins (`create`) are remembered with their peer,
//!   and found again by what requests bring (`lookup`).
//!
//! A peer is named by its `route`, else by the MD5 of its address. One that rests or is full is
//! passed over, and the balancing method chooses another.
//!
//! # Differs from nginx
//!
//! The size of a learning zone bounds its sessions, 128 bytes each; when it is full, the session
//! that was used longest ago goes.
//!
//! Invariant: a zone has no more sessions than its size has room for.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use md5::{Digest, Md5};
use millpond_conf::value::{parse_duration, parse_offset};
use millpond_conf::{Statement, Template, Word};
use millpond_system::clock::{self, Instant};
use millpond_system::cookie_time::cookie_time;

use super::peer::Peer;
use crate::request::Request;
use millpond_exchange::scope::build::Builder;

/// Bytes of a zone that a session takes (nginx: about 8000 sessions in a megabyte).
const SESSION_SIZE: u64 = 128;

/// Bytes that a zone must have at least (nginx: eight pages).
const ZONE_MIN: u64 = 8 * 4096;

/// Time for which a session is remembered that is not used (nginx's number).
const SESSION_TIME: Duration = Duration::from_secs(600);

/// The end of a cookie that never ends (nginx's text).
const FOREVER: &str = "; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000";

/// The values of `samesite`.
const SAME_SITE: [&str; 3] = ["strict", "lax", "none"];

/// Rule that binds requests to peers.
#[derive(Debug)]
pub struct Sticky {
    /// Templates that name the session or the peer; the first that is not empty counts.
    lookup: Vec<Template>,
    by: By,
}

#[derive(Debug)]
enum By {
    Route,
    Cookie(Box<Cookie>),
    Learning(Learning),
}

/// The cookie that names a peer.
#[derive(Debug)]
struct Cookie {
    name: String,
    domain: Option<Template>,
    path: Option<String>,
    expires: Option<Expires>,
    http_only: bool,
    secure: bool,
    same_site: Option<Template>,
}

#[derive(Clone, Copy, Debug)]
enum Expires {
    In(Duration),
    Never,
}

/// Rule by which sessions are learnt.
#[derive(Debug)]
struct Learning {
    create: Vec<Template>,
    at: LearntAt,
    zone: String,
    sessions: ArcSwap<Sessions>,
}

/// Moment at which a session is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LearntAt {
    Head,
    End,
}

/// Sessions and their peers.
#[derive(Debug)]
struct Sessions {
    most: usize,
    timeout: Duration,
    table: Mutex<Table>,
}

/// A session: the MD5 of what names it.
type Session = [u8; 16];

#[derive(Debug, Default)]
struct Table {
    peers: HashMap<Session, (Bytes, (Instant, u64))>,
    /// By the time of use, and a number that makes times differ.
    by_use: BTreeMap<(Instant, u64), Session>,
    uses: u64,
}

/// A session that is remembered once its answer has ended.
#[derive(Clone, Debug)]
pub struct Lesson {
    sessions: Arc<Sessions>,
    session: Session,
    peer: Bytes,
    is_new: bool,
}

impl Lesson {
    /// Remembers it.
    pub fn learn(&self) {
        self.sessions.learn(self);
    }
}

impl Sticky {
    /// The name of the peer that a request is bound to.
    pub fn bound_to(&self, req: &mut Request) -> Option<Bytes> {
        let id = first(&self.lookup, req)?;
        match &self.by {
            By::Learning(learning) => learning.sessions.load().find(&session(&id)),
            By::Route | By::Cookie(_) => Some(id),
        }
    }

    /// The Set-Cookie field of an answer of a peer.
    pub fn cookie(&self, req: &mut Request, peer: &Peer) -> Option<Bytes> {
        match &self.by {
            By::Cookie(cookie) => Some(cookie.write(req, peer)),
            By::Route | By::Learning(_) => None,
        }
    }

    /// Lesson that the head of a peer's answer teaches; nothing more is to be done where that is
    /// enough.
    pub fn lesson(&self, req: &mut Request, peer: &Peer) -> Option<Lesson> {
        let By::Learning(learning) = &self.by else {
            return None;
        };
        let created = first(&learning.create, req);
        let is_new = created.is_some();
        let id = created.or_else(|| first(&self.lookup, req))?;
        let lesson = Lesson {
            sessions: learning.sessions.load_full(),
            session: session(&id),
            peer: Bytes::copy_from_slice(peer.id()),
            is_new,
        };
        if learning.at == LearntAt::Head {
            lesson.learn();
            return None;
        }
        Some(lesson)
    }

    /// The zone of its sessions.
    pub fn zone(&self) -> Option<&str> {
        match &self.by {
            By::Learning(learning) => Some(&learning.zone),
            By::Route | By::Cookie(_) => None,
        }
    }

    /// Goes on with the sessions of an earlier configuration.
    pub fn inherit(&self, older: &Sticky) {
        if let (By::Learning(learning), By::Learning(older)) = (&self.by, &older.by) {
            let sessions = older.sessions.load_full();
            let now = learning.sessions.load();
            if learning.zone == older.zone
                && (sessions.most, sessions.timeout) == (now.most, now.timeout)
            {
                learning.sessions.store(sessions);
            }
        }
    }

    /// Reads the line.
    pub fn read(builder: &mut Builder, line: &Statement) -> Result<Sticky, String> {
        let Some((kind, words)) = line.args.split_first() else {
            return Err("invalid number of arguments in \"sticky\" directive".to_string());
        };
        if words.is_empty() {
            return Err("invalid number of arguments in \"sticky\" directive".to_string());
        }
        match kind.text.as_str() {
            "route" => Ok(Sticky {
                lookup: variables(builder, words)?,
                by: By::Route,
            }),
            "cookie" => read_cookie(builder, words),
            "learn" => read_learning(builder, words),
            other => Err(format!("unknown parameter \"{other}\"")),
        }
    }
}

/// The first value that is not empty.
fn first(templates: &[Template], req: &mut Request) -> Option<Bytes> {
    let mut values = templates.iter().map(|template| req.eval(template));
    values.find(|value| !value.is_empty())
}

fn session(id: &[u8]) -> Session {
    Md5::digest(id).into()
}

fn variables(builder: &mut Builder, words: &[Word]) -> Result<Vec<Template>, String> {
    let mut templates = Vec::new();
    for word in words {
        templates.push(variable(builder, word)?);
    }
    Ok(templates)
}

fn variable(builder: &mut Builder, word: &Word) -> Result<Template, String> {
    if !word.text.starts_with('$') {
        return Err(format!("invalid variable name \"{}\"", word.text));
    }
    template(builder, word)
}

fn template(builder: &mut Builder, word: &Word) -> Result<Template, String> {
    Template::parse(&word.text, word.span, &mut builder.cx.variables)
        .map_err(|error| error.to_string())
}

fn read_cookie(builder: &mut Builder, words: &[Word]) -> Result<Sticky, String> {
    let (name, parameters) = words.split_first().ok_or("empty cookie name")?;
    if name.text.is_empty() {
        return Err("empty cookie name".to_string());
    }
    let mut cookie = Cookie {
        name: name.text.clone(),
        domain: None,
        path: None,
        expires: None,
        http_only: false,
        secure: false,
        same_site: None,
    };
    for word in parameters {
        let (key, is_duplicate) = cookie.parameter(builder, word)?;
        if is_duplicate {
            return Err(format!("parameter \"{key}\" is duplicate"));
        }
    }
    let lookup = Word {
        text: format!("$cookie_{}", cookie.name),
        ..name.clone()
    };
    Ok(Sticky {
        lookup: vec![template(builder, &lookup)?],
        by: By::Cookie(Box::new(cookie)),
    })
}

impl Cookie {
    /// Reads a parameter; gives its name, and whether it was there before.
    fn parameter<'a>(
        &mut self,
        builder: &mut Builder,
        word: &'a Word,
    ) -> Result<(&'a str, bool), String> {
        let (key, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
        let has_value = word.text.contains('=');
        let is_duplicate = match key {
            "domain" | "samesite" if has_value => {
                let inner = word
                    .strip_prefix(&format!("{key}="))
                    .unwrap_or(word.clone());
                let value = template(builder, &inner)?;
                if key == "domain" {
                    if inner.text.is_empty() {
                        return Err("no value for \"domain\"".to_string());
                    }
                    self.domain.replace(value).is_some()
                } else {
                    if value.as_literal().is_some() && !is_same_site(inner.text.as_bytes()) {
                        return Err("invalid \"samesite\" parameter value".to_string());
                    }
                    self.same_site.replace(value).is_some()
                }
            }
            "path" if has_value && value.is_empty() => {
                return Err("no value for \"path\"".to_string());
            }
            "path" if has_value => self.path.replace(value.to_string()).is_some(),
            "expires" if has_value => {
                let expires = match value {
                    "max" => Some(Expires::Never),
                    time => parse_duration(time).map(Expires::In),
                };
                let expires = expires.ok_or("invalid \"expires\" parameter value")?;
                self.expires.replace(expires).is_some()
            }
            "httponly" if !has_value => std::mem::replace(&mut self.http_only, true),
            "secure" if !has_value => std::mem::replace(&mut self.secure, true),
            _ => return Err(format!("unknown parameter \"{}\"", word.text)),
        };
        Ok((key, is_duplicate))
    }

    fn write(&self, req: &mut Request, peer: &Peer) -> Bytes {
        let mut out = self.name.clone().into_bytes();
        out.push(b'=');
        out.extend_from_slice(peer.id());
        match self.expires {
            None => {}
            Some(Expires::Never) => out.extend_from_slice(FOREVER.as_bytes()),
            Some(Expires::In(time)) => {
                let seconds = time.as_secs() as i64;
                let end = cookie_time(clock::now_ms() / 1000 + seconds);
                out.extend_from_slice(format!("; expires={end}; max-age={seconds}").as_bytes());
            }
        }
        let domain = self.domain.as_ref().map(|domain| req.eval(domain));
        append(&mut out, "; domain=", domain.as_deref().unwrap_or_default());
        if self.http_only {
            out.extend_from_slice(b"; httponly");
        }
        if self.secure {
            out.extend_from_slice(b"; secure");
        }
        let same_site = self.same_site.as_ref().map(|same_site| req.eval(same_site));
        let same_site = match same_site.as_deref().unwrap_or_default() {
            value if value.is_empty() || is_same_site(value) => value,
            _ => b"strict",
        };
        append(&mut out, "; samesite=", same_site);
        append(
            &mut out,
            "; path=",
            self.path.as_deref().unwrap_or_default().as_bytes(),
        );
        Bytes::from(out)
    }
}

/// Adds an attribute that has a value.
fn append(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    if !value.is_empty() {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(value);
    }
}

fn is_same_site(value: &[u8]) -> bool {
    SAME_SITE
        .iter()
        .any(|known| known.as_bytes().eq_ignore_ascii_case(value))
}

fn read_learning(builder: &mut Builder, words: &[Word]) -> Result<Sticky, String> {
    let (mut create, mut lookup) = (Vec::new(), Vec::new());
    let (mut zone, mut timeout) = (None, None);
    let mut at = LearntAt::End;
    for word in words {
        let text = word.text.as_str();
        let after = |prefix| word.strip_prefix(prefix);
        if text == "header" {
            at = LearntAt::Head;
        } else if let Some(value) = text.strip_prefix("zone=") {
            if zone.replace(read_zone(value)?).is_some() {
                return Err("duplicate zone".to_string());
            }
        } else if let Some(value) = text.strip_prefix("timeout=") {
            let time = parse_duration(value).filter(|time| !time.is_zero());
            if timeout.replace(time.ok_or("invalid timeout")?).is_some() {
                return Err("duplicate timeout".to_string());
            }
        } else if let Some(inner) = after("create=") {
            if !inner.text.starts_with('$') {
                return Err("missing variable in the \"create\" parameter".to_string());
            }
            create.push(variable(builder, &inner)?);
        } else if let Some(inner) = after("lookup=") {
            if !inner.text.starts_with('$') {
                return Err("missing variable in the \"lookup\" parameter".to_string());
            }
            lookup.push(variable(builder, &inner)?);
        } else {
            return Err(format!("unknown parameter \"{text}\""));
        }
    }
    if lookup.is_empty() {
        return Err("\"lookup\" parameter is not specified".to_string());
    }
    if create.is_empty() {
        return Err("\"create\" parameter is not specified".to_string());
    }
    let (zone, size) = zone.ok_or("\"zone\" parameter is not specified")?;
    let sessions = Sessions {
        most: (size / SESSION_SIZE) as usize,
        timeout: timeout.unwrap_or(SESSION_TIME),
        table: Mutex::default(),
    };
    Ok(Sticky {
        lookup,
        by: By::Learning(Learning {
            create,
            at,
            zone,
            sessions: ArcSwap::from_pointee(sessions),
        }),
    })
}

fn read_zone(text: &str) -> Result<(String, u64), String> {
    let (name, size) = text.split_once(':').ok_or("zone size is not specified")?;
    if name.is_empty() {
        return Err("zone name is not specified".to_string());
    }
    let size = parse_offset(size).ok_or("invalid zone size")?;
    if size < ZONE_MIN {
        return Err("zone is too small".to_string());
    }
    Ok((name.to_string(), size))
}

impl Sessions {
    fn find(&self, session: &Session) -> Option<Bytes> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.expire(self.timeout);
        table.peers.get(session).map(|(peer, _)| peer.clone())
    }

    fn learn(&self, lesson: &Lesson) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.expire(self.timeout);
        match table.peers.get(&lesson.session) {
            Some((_, used)) => {
                let used = *used;
                table.by_use.remove(&used);
            }
            None if !lesson.is_new => return,
            None if table.peers.len() >= self.most => table.forget_oldest(),
            None => {}
        }
        table.uses += 1;
        let used = (clock::instant(), table.uses);
        table.by_use.insert(used, lesson.session);
        table
            .peers
            .insert(lesson.session, (lesson.peer.clone(), used));
    }
}

impl Table {
    fn expire(&mut self, timeout: Duration) {
        let now = clock::instant();
        let is_old = |((used, _), _): (&(Instant, u64), &Session)| now - *used >= timeout;
        while self.by_use.first_key_value().is_some_and(is_old) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, session)) = self.by_use.pop_first() {
            self.peers.remove(&session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sessions_end_and_the_oldest_makes_room() {
        let sessions = Arc::new(Sessions {
            most: 2,
            timeout: Duration::from_secs(10),
            table: Mutex::default(),
        });
        let learn = |id: &[u8], is_new| {
            let lesson = Lesson {
                sessions: Arc::clone(&sessions),
                session: session(id),
                peer: Bytes::copy_from_slice(id),
                is_new,
            };
            lesson.learn();
        };
        let knows = |id: &[u8]| sessions.find(&session(id)).is_some();
        learn(b"unknown", false);
        assert!(!knows(b"unknown"));
        learn(b"a", true);
        learn(b"b", true);
        learn(b"a", false);
        learn(b"c", true);
        assert!(knows(b"a") && knows(b"c") && !knows(b"b"));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!knows(b"a") && !knows(b"c"));
    }
}
