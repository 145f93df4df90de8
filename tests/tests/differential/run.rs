//! Running a scenario on one server.
//!
//! The server and its origins are started once; the cases run one after another, and each gets a
//! transcript of its own with the origin's requests that came during it. A server that refuses the
//! configuration is no error: every case then has one entry, `start`, which says what was refused.

use crate::scenario::{Case, OriginScript, Scenario, Script, Step};
use crate::transcript::{Names, START, Transcript};
use anyhow::{Context, Result, bail};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Origin, Proxy, Request, Response};
use std::time::Duration;

/// Time that a state may take to come.
const WAIT: Duration = Duration::from_secs(10);
/// Time for which an idle connection is watched for being closed.
const CLOSE_WAIT: Duration = Duration::from_millis(100);

/// A scenario under way.
pub struct Run {
    /// The server.
    pub proxy: Proxy,
    /// Transcript of the present case so far.
    pub transcript: Transcript,
    origins: Vec<(&'static str, Origin)>,
    /// Requests and faults of each origin that belong to cases before the present one.
    counted: Vec<(usize, usize)>,
    step: usize,
    _sockets: tempfile::TempDir,
}

/// The id of a case and what was seen, or why nothing could be.
pub type Outcome = (String, Result<Transcript>);

/// Runs `scenario` on `kind` and gives what was seen, case by case.
pub fn run(scenario: &Scenario, kind: Kind) -> Result<Vec<Outcome>> {
    let mut run = match Run::start(scenario, kind).with_context(|| format!("{kind:?}"))? {
        Started::Yes(run) => run,
        Started::Refused(what) => {
            let refused = |id| {
                let mut transcript = Transcript::new(Names::none(), scenario);
                transcript.push(START, &what);
                (id, Ok(transcript))
            };
            return Ok(scenario.ids().into_iter().map(refused).collect());
        }
    };
    let mut outcomes = Vec::new();
    for case in scenario.cases.iter().filter(|case| !case.is_idle()) {
        let outcome = run.take_all(case).with_context(|| format!("{kind:?}"));
        if outcome.is_err() {
            // One failure is told, and it is not that of the log.
            run.proxy.set_log_check(LogCheck::Off);
        }
        let blank = run.transcript.blank();
        let transcript = std::mem::replace(&mut run.transcript, blank);
        outcomes.push((case.id(scenario.id), outcome.map(|()| transcript)));
    }
    if let Err(error) = run.proxy.quit()
        && let Some((_, outcome)) = outcomes.last_mut()
    {
        *outcome = Err(error.context(format!("{kind:?}")));
    }
    Ok(outcomes)
}

/// Result of a start.
enum Started {
    Yes(Box<Run>),
    /// Directives that are not supported.
    Refused(String),
}

/// The names of the directives that a server said it does not support; `None` for another error.
fn refused_directives(error: &anyhow::Error) -> Option<String> {
    let text = format!("{error:#}");
    let mut names: Vec<&str> = text
        .split("directive \"")
        .skip(1)
        .filter_map(|rest| rest.split_once("\" is not supported"))
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| format!("not supported: {}", names.join(" ")))
}

impl Run {
    fn take_all(&mut self, case: &Case) -> Result<()> {
        for (index, step) in case.steps.iter().enumerate() {
            self.step = index + 1;
            self.take(step)
                .with_context(|| format!("step {}", index + 1))?;
        }
        self.record_origins()
    }

    /// Records what the origins saw during this case.
    fn record_origins(&mut self) -> Result<()> {
        let count = self.origins.len();
        let mut fault = None;
        for ((name, origin), (counted, faults)) in self.origins.iter().zip(&mut self.counted) {
            if let Some(text) = origin.faults().get(*faults) {
                fault = Some(format!("{name} saw a bad request: {text}"));
            }
            *faults = origin.faults().len();
            let prefix = if count == 1 {
                "origin".to_string()
            } else {
                name.to_ascii_lowercase()
            };
            let requests = origin.requests();
            let of_case = requests.get(*counted..).unwrap_or_default();
            self.transcript.push_requests(&prefix, of_case);
            *counted = requests.len();
        }
        match fault {
            Some(fault) => bail!(fault),
            None => Ok(()),
        }
    }

    fn start(scenario: &Scenario, kind: Kind) -> Result<Started> {
        let sockets = tempfile::tempdir()?;
        let mut proxy = Proxy::new(kind, &scenario.conf());
        let mut origins = Vec::new();
        for script in &scenario.origins {
            let origin = if script.name.starts_with("UNIX") {
                Origin::start_unix(&sockets.path().join(script.name))?
            } else {
                Origin::start()?
            };
            install(&origin, script);
            proxy = proxy.value(script.name, &origin.address());
            origins.push((script.name, origin));
        }
        for (path, content) in &scenario.files {
            proxy = proxy.file(path, content);
        }
        let proxy = match proxy.start() {
            Ok(proxy) => proxy,
            Err(error) => {
                return match refused_directives(&error) {
                    Some(what) => Ok(Started::Refused(what)),
                    None => Err(error),
                };
            }
        };
        Ok(Started::Yes(Box::new(Run {
            transcript: Transcript::new(Names::new(&proxy), scenario),
            proxy,
            counted: vec![(0, 0); origins.len()],
            origins,
            step: 0,
            _sockets: sockets,
        })))
    }

    /// A client of the server's first port.
    pub fn client(&self) -> Client {
        Client::new(self.proxy.port())
    }

    /// The origin called `name`.
    pub fn origin(&self, name: &str) -> Result<&Origin> {
        self.origins
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, origin)| origin)
            .with_context(|| format!("no origin is called {name}"))
    }

    /// Records a response as part of the present step.
    pub fn record(&mut self, name: &str, response: &Response) {
        let prefix = if name.is_empty() {
            self.step.to_string()
        } else {
            format!("{}.{name}", self.step)
        };
        self.transcript.push_response(&prefix, response);
    }

    /// Records a fact as part of the present step.
    pub fn note(&mut self, name: &str, value: &str) {
        let key = format!("{}.{name}", self.step);
        self.transcript.push(&key, value);
    }

    fn take(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Send(request) => {
                let response = self.client().send(request)?;
                self.record("", &response);
                Ok(())
            }
            Step::Keep(requests) => self.keep(requests),
            Step::Raw(bytes) => {
                let responses = self.client().send_raw(bytes)?;
                self.note("responses", &responses.len().to_string());
                for (index, response) in responses.iter().enumerate() {
                    self.record(&(index + 1).to_string(), response);
                }
                Ok(())
            }
            Step::Until(request, field, values) => self.until(request, field, values),
            Step::Together(request, count) => self.together(request, *count),
            Step::OriginRequests(count) => self.wait_for_requests(*count),
            Step::Lines(path, count) => {
                let lines = self.proxy.wait_for_lines(path, *count)?;
                for (index, line) in lines.iter().enumerate() {
                    self.note(&format!("{path}.{}", index + 1), line);
                }
                Ok(())
            }
            Step::Act(act) => {
                let act = std::sync::Arc::clone(act);
                act(self)
            }
        }
    }

    fn keep(&mut self, requests: &[Request]) -> Result<()> {
        let mut connection = self.client().connect()?;
        for (index, request) in requests.iter().enumerate() {
            let Some(response) = connection
                .send_raw(&request.encode())
                .and_then(|()| connection.next_response(&request.method))?
            else {
                self.note(&(index + 1).to_string(), "closed without a response");
                return Ok(());
            };
            self.record(&(index + 1).to_string(), &response);
        }
        let state = if connection.is_closed_within(CLOSE_WAIT)? {
            "closed"
        } else {
            "open"
        };
        self.note("connection", state);
        Ok(())
    }

    fn until(&mut self, request: &Request, field: &str, values: &[&str]) -> Result<()> {
        let client = self.client();
        let mut last = None;
        let found = Deadline::after(WAIT).poll(|| {
            let response = match client.send(request) {
                Ok(response) => response,
                Err(error) => return Some(Err(error)),
            };
            let value = response.header(field).unwrap_or_default().to_string();
            last = Some(value.clone());
            values.contains(&value.as_str()).then_some(Ok(response))
        });
        let response =
            found.with_context(|| format!("{field} never was {values:?}, last {last:?}"))??;
        self.record("", &response);
        Ok(())
    }

    fn together(&mut self, request: &Request, count: usize) -> Result<()> {
        let client = self.client();
        let mut responses = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|_| scope.spawn(|| client.send(request)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| bail!("a client panicked")))
                .collect::<Result<Vec<_>>>()
        })?;
        // Which client was first is chance; how many got what is not.
        responses.sort_by_key(|response| {
            let cache = response.header("X-Cache").map(str::to_string);
            (response.status, cache)
        });
        for (index, response) in responses.iter().enumerate() {
            self.record(&(index + 1).to_string(), response);
        }
        Ok(())
    }

    fn wait_for_requests(&self, count: usize) -> Result<()> {
        let seen = || -> usize { self.origins.iter().map(|(_, o)| o.requests().len()).sum() };
        Deadline::after(WAIT)
            .poll(|| (seen() >= count).then_some(()))
            .with_context(|| format!("origins saw {} requests, expected {count}", seen()))
    }
}

fn install(origin: &Origin, script: &OriginScript) {
    for (route, script) in &script.routes {
        match script {
            Script::Sequence(answers) => origin.sequence(route, answers.clone()),
            Script::Computed(compute) => {
                let compute = std::sync::Arc::clone(compute);
                origin.answer_with(route, move |request| compute(request));
            }
        }
    }
}
