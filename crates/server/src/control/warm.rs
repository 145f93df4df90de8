//! `POST /warm`: jobs that ask this server for URLs, so that its caches have them before users do.
//!
//! ```text
//! POST {"urls": […], "rate": 50, "users": 4} ─► Job ◄── handler/warm.rs runs it on a worker
//! GET  /warm                                 ─► all jobs, how far they are
//! DELETE /warm?id=1                          ─► the job begins no more
//!
//! Run ──dropped──┬─ nothing is left, or it was stopped ─► over
//!                └─ URLs are left: its worker leaves ───► waits ─► Run on another worker
//! ```
//!
//! 1. A job has at most `URLS_MAX` URLs, begins at most `RATE_MAX` in a second, and has at most
//!    `USERS_MAX` at a time; of jobs that run there are at most `RUNNING_MAX`.
//! 2. A URL is done once its answer has ended well with a status below 400.
//! 3. A job that ends before its last URL says why.
//! 4. A job is run once at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use millpond_exchange::counters::Number;
use millpond_system::clock;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::api::{Answer, Scene, Standing};
use super::query::Reader;
use super::report;
use crate::explain::Question;

/// URLs of one job (arbitrary: what is longer is a list for `millpond cache warm`).
pub(crate) const URLS_MAX: usize = 10_000;
/// Bytes of a request for a job (arbitrary: so many URLs of usual length).
pub(crate) const BODY_MAX: u64 = 2 << 20;
/// Requests that begin in a second.
const RATE_MAX: u32 = 10_000;
/// Requests at a time.
const USERS_MAX: u32 = 64;
/// Jobs that run at a time (arbitrary).
const RUNNING_MAX: usize = 4;
/// Jobs that are told of, those that have ended too.
const TOLD_MAX: usize = 16;
/// Failures of a job that are told.
const FAILURES_MAX: usize = 10;
/// Places that a job remembers to have had answers from (arbitrary: servers of a list).
const PLACES_MAX: usize = 256;

/// An order, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrderReport {
    urls: Vec<String>,
    rate: Option<u32>,
    users: Option<u32>,
    #[serde(default)]
    fields: BTreeMap<String, String>,
}

/// A job, as it is told of.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WarmReport {
    /// Number of the job.
    pub id: u64,
    /// Time when it began, seconds since 1970.
    pub since: i64,
    /// URLs that were ordered.
    pub all: u64,
    /// Those whose answers have ended well.
    pub done: u64,
    /// Those whose answers have not.
    pub failed: u64,
    /// True while it goes on.
    pub is_running: bool,
    /// The reason why it ended, or ends, before its last URL, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Answers by cache status, in small letters; `none` without one.
    pub answers: BTreeMap<String, u64>,
    /// The first failures.
    pub failures: Vec<WarmFailureReport>,
}

/// A URL that failed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WarmFailureReport {
    /// The URL.
    pub url: String,
    /// The reason.
    pub why: String,
}

/// Jobs, as they are told of.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WarmsReport {
    /// The newest first.
    pub jobs: Vec<WarmReport>,
}

/// A job.
#[derive(Debug)]
pub(crate) struct Job {
    id: u64,
    since: i64,
    /// Questions, each with its URL.
    pub(crate) questions: Vec<(String, Question)>,
    /// Requests that begin in a second.
    pub(crate) rate: u32,
    /// Requests at a time.
    pub(crate) users: u32,
    next: AtomicU64,
    is_over: AtomicBool,
    is_stopped: AtomicBool,
    tally: Mutex<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    done: u64,
    failed: u64,
    answers: BTreeMap<String, u64>,
    failures: Vec<WarmFailureReport>,
    why: Option<String>,
    places: Vec<Place>,
}

/// A place that answers came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// First name of the server.
    pub(crate) server: Bytes,
    /// Cache zone that was looked at.
    pub(crate) zone: Option<Number>,
}

impl Job {
    /// The next URL to be asked for; none when there is no more, or it was stopped.
    pub(crate) fn next(&self) -> Option<&(String, Question)> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.questions.get(usize::try_from(next).ok()?)
    }

    /// Notes what became of a URL.
    pub(crate) fn note(&self, url: &str, cache_status: Option<&str>, ended: Result<(), String>) {
        let mut tally = lock(&self.tally);
        let status = cache_status.unwrap_or("none").to_ascii_lowercase();
        *tally.answers.entry(status).or_default() += 1;
        match ended {
            Ok(()) => tally.done += 1,
            Err(why) => {
                tally.failed += 1;
                if tally.failures.len() < FAILURES_MAX {
                    let url = url.to_owned();
                    tally.failures.push(WarmFailureReport { url, why });
                }
            }
        }
    }

    /// Notes where an answer came from.
    pub(crate) fn note_place(&self, place: Place) {
        let places = &mut lock(&self.tally).places;
        if places.len() < PLACES_MAX && !places.contains(&place) {
            places.push(place);
        }
    }

    /// Begins nothing more; the first reason counts.
    pub(crate) fn stop(&self, why: &str) {
        if self.has_more() {
            lock(&self.tally).why.get_or_insert_with(|| why.to_owned());
        }
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Stops if a configuration has nothing any more of what the job had answers from: no server,
    /// or no zone.
    pub(crate) fn check(&self, servers: &[&Bytes], zones: &[Number]) {
        let places = lock(&self.tally).places.clone();
        let has_server = |place: &Place| servers.contains(&&place.server);
        let mut filled = places.iter().filter_map(|place| place.zone).peekable();
        if !places.is_empty() && !places.iter().any(has_server) {
            self.stop("the configuration has no server any more that it asked");
        } else if filled.peek().is_some() && !filled.any(|zone| zones.contains(&zone)) {
            self.stop("the configuration has no zone any more that it filled");
        }
    }

    /// True if there are URLs that may be asked for still.
    fn has_more(&self) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        !self.is_stopped.load(Ordering::Relaxed) && next < self.questions.len() as u64
    }

    fn report(&self) -> WarmReport {
        let tally = lock(&self.tally);
        WarmReport {
            id: self.id,
            since: self.since,
            all: self.questions.len() as u64,
            done: tally.done,
            failed: tally.failed,
            is_running: self.is_running(),
            why: tally.why.clone(),
            answers: tally.answers.clone(),
            failures: tally.failures.clone(),
        }
    }

    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }
}

/// A job that runs. When this is dropped it is over, or waits to be run elsewhere.
#[derive(Debug)]
pub(crate) struct Run {
    /// The job.
    pub(crate) job: Arc<Job>,
    jobs: Arc<Jobs>,
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.job.has_more() {
            lock(&self.jobs.waiting).push_back(Arc::clone(&self.job));
            self.jobs.handed.notify_waiters();
        } else {
            self.job.is_over.store(true, Ordering::Release);
        }
    }
}

/// The jobs of a process.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    count: AtomicU64,
    list: Mutex<VecDeque<Arc<Job>>>,
    /// Jobs whose workers have left them; no more than run.
    waiting: Mutex<VecDeque<Arc<Job>>>,
    /// News that one waits.
    pub(crate) handed: Notify,
}

impl Jobs {
    /// Takes a job that waits.
    pub(crate) fn take_over(self: &Arc<Self>) -> Option<Run> {
        let job = lock(&self.waiting).pop_front()?;
        let jobs = Arc::clone(self);
        Some(Run { job, jobs })
    }

    /// Stops all jobs.
    pub(crate) fn stop_all(&self, why: &str) {
        lock(&self.list).iter().for_each(|job| job.stop(why));
    }

    /// Takes an order; the answer, and the job to run if it is one.
    pub(crate) fn take(self: &Arc<Self>, order: &[u8]) -> (Answer, Option<Run>) {
        let (questions, order) = match read(order) {
            Ok(read) => read,
            Err(why) => return (report::problem(400, why), None),
        };
        let mut list = lock(&self.list);
        if list.iter().filter(|job| job.is_running()).count() >= RUNNING_MAX {
            return (report::problem(503, "too many jobs run"), None);
        }
        let job = Arc::new(Job {
            id: self.count.fetch_add(1, Ordering::Relaxed) + 1,
            since: clock::now_ms().div_euclid(1000),
            questions,
            rate: order.rate.unwrap_or(50).clamp(1, RATE_MAX),
            users: order.users.unwrap_or(4).clamp(1, USERS_MAX),
            next: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            tally: Mutex::default(),
        });
        list.push_front(Arc::clone(&job));
        // Those that run stay, of which there are fewer.
        if list.len() > TOLD_MAX
            && let Some(ended) = list.iter().rposition(|job| !job.is_running())
        {
            list.remove(ended);
        }
        let answer = report::json(202, &job.report());
        let jobs = Arc::clone(self);
        (answer, Some(Run { job, jobs }))
    }

    fn find(&self, id: u64) -> Option<Arc<Job>> {
        lock(&self.list).iter().find(|job| job.id == id).cloned()
    }
}

/// Reads an order; the error is for people.
fn read(order: &[u8]) -> Result<(Vec<(String, Question)>, OrderReport), String> {
    let mut order: OrderReport = serde_json::from_slice(order)
        .map_err(|error| format!("the body must be an object with \"urls\": {error}"))?;
    if order.urls.is_empty() || order.urls.len() > URLS_MAX {
        return Err(format!("\"urls\" must have 1 to {URLS_MAX} URLs"));
    }
    let fields: Vec<(String, String)> = std::mem::take(&mut order.fields).into_iter().collect();
    let is_clean = |text: &str| !text.bytes().any(|byte| byte < b' ' || byte == 0x7f);
    let is_name = |name: &str| {
        name.bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'-')
    };
    for (name, value) in &fields {
        if name.is_empty() || !is_name(name) || !is_clean(value) {
            return Err(format!("\"{name}\" is no field of a request"));
        }
    }
    let urls = std::mem::take(&mut order.urls).into_iter();
    let questions = urls.map(|url| {
        let question = Question::of_url(&url, "GET", &fields)?;
        Ok((url, question))
    });
    Ok((questions.collect::<Result<_, String>>()?, order))
}

/// Answers with all jobs.
pub(super) fn list(scene: &Scene) -> Answer {
    let Some(jobs) = jobs(scene) else {
        return report::problem(404, "jobs are run by a process that serves");
    };
    let jobs = lock(&jobs.list).iter().map(|job| job.report()).collect();
    report::json(200, &WarmsReport { jobs })
}

/// Stops a job.
pub(super) fn stop(scene: &Scene, mut reader: Reader) -> Result<Answer, String> {
    let id = reader.number("id")?;
    reader.end()?;
    let id = id.ok_or("\"id\" must be there")?;
    Ok(match jobs(scene).and_then(|jobs| jobs.find(id)) {
        Some(job) => {
            job.stop("it was told to stop");
            report::json(200, &job.report())
        }
        None => report::problem(404, "there is no such job"),
    })
}

fn jobs(scene: &Scene) -> Option<Arc<Jobs>> {
    match &scene.standing {
        Standing::Running(facts) => Some(facts.shared.as_ref()?.guests.of::<Jobs>()),
        Standing::AtRest => None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use millpond_exchange::counters::Table;

    use super::*;

    fn status_of(jobs: &Arc<Jobs>, order: &str) -> u16 {
        jobs.take(order.as_bytes()).0.status
    }

    #[test]
    fn orders_that_are_not_understood_are_refused() {
        let many = format!("{{\"urls\":[{}\"/\"]}}", "\"/a\",".repeat(URLS_MAX));
        for order in [
            "",
            "[]",
            "{}",
            r#"{"urls":[]}"#,
            r#"{"urls":["http://h/ a"]}"#,
            r#"{"urls":["ftp://h/"]}"#,
            r#"{"urls":["http://h/"],"slip":1}"#,
            r#"{"urls":["http://h/"],"fields":{"A B":"c"}}"#,
            r#"{"urls":["http://h/"],"fields":{"A":"b\r\nC: d"}}"#,
            &many,
        ] {
            assert_eq!(status_of(&Arc::default(), order), 400, "{order:.60}");
        }
    }

    #[test]
    fn jobs_are_few_and_those_that_have_ended_are_told_of_for_a_while() {
        let jobs = Arc::<Jobs>::default();
        let order = r#"{"urls":["http://h/a","http://h/b"],"rate":1000000,"users":0}"#;
        let mut running: Vec<_> = (0..RUNNING_MAX)
            .map(|_| jobs.take(order.as_bytes()).1.expect("a job"))
            .collect();
        assert_eq!(status_of(&jobs, order), 503);
        let job = Arc::clone(&running[0].job);
        assert_eq!((job.rate, job.users), (RATE_MAX, 1));
        assert_eq!(job.next().map(|(url, _)| url.as_str()), Some("http://h/a"));
        job.note("http://h/a", Some("MISS"), Ok(()));
        job.stop("enough");
        job.stop("once more");
        assert!(job.next().is_none());
        let told = job.report();
        // INVARIANT 3.
        assert_eq!(told.why.as_deref(), Some("enough"));
        assert_eq!((told.all, told.done, told.is_running), (2, 1, true));
        assert_eq!(told.answers.get("miss"), Some(&1));
        jobs.stop_all("enough");
        running.clear();
        assert!(!job.report().is_running);
        for _ in 0..2 * TOLD_MAX {
            let run = jobs.take(order.as_bytes()).1;
            jobs.stop_all("enough");
            drop(run);
        }
        assert_eq!(lock(&jobs.list).len(), TOLD_MAX);
        assert!(jobs.find(1).is_none());
    }
    #[test]
    fn a_job_whose_worker_leaves_goes_on_with_what_is_left() {
        let jobs = Arc::<Jobs>::default();
        let order = r#"{"urls":["http://h/a","http://h/b"]}"#;
        let run = jobs.take(order.as_bytes()).1.expect("a job");
        let job = Arc::clone(&run.job);
        assert_eq!(job.next().map(|(url, _)| url.as_str()), Some("http://h/a"));
        drop(run);
        assert!(job.report().is_running);
        let run = jobs.take_over().expect("it waits");
        // INVARIANT 4.
        assert!(jobs.take_over().is_none());
        assert_eq!(job.next().map(|(url, _)| url.as_str()), Some("http://h/b"));
        drop(run);
        assert!(!job.report().is_running && jobs.take_over().is_none());
        assert_eq!(job.report().why, None);
    }

    #[test]
    fn a_job_ends_once_nothing_is_there_of_what_it_had_answers_from() {
        let zones = Table::<()>::default();
        let [pond, lake] = [b"pond", b"lake"].map(|name| zones.number(name));
        let [shop, blog] = [&b"shop"[..], b"blog"].map(Bytes::from_static);
        let ended = |servers: &[&Bytes], left: &[Number]| {
            let jobs = Arc::<Jobs>::default();
            let order = r#"{"urls":["http://h/a"]}"#;
            let job = jobs.take(order.as_bytes()).1.expect("a job").job.clone();
            job.check(&[], &[]);
            assert!(job.has_more());
            for (server, zone) in [(&shop, Some(pond)), (&blog, None)] {
                let server = server.clone();
                job.note_place(Place { server, zone });
            }
            job.check(servers, left);
            job.report().why
        };
        assert_eq!(ended(&[&shop, &blog], &[pond, lake]), None);
        assert_eq!(ended(&[&blog], &[pond]), None);
        assert!(ended(&[], &[pond]).expect("an end").contains("server"));
        assert!(ended(&[&shop], &[lake]).expect("an end").contains("zone"));
    }
}
