//! A scenario: a configuration, what the origins answer, and what the client does.
//!
//! ```text
//! Scenario::new("proxy-uri-replaced")
//!     .server("location /a/ { proxy_pass http://%%ORIGIN%%/b/; }")
//!     .answer("/b/x", Answer::new(200).body("x"))
//!     .get("/a/x")
//! ```
//!
//! A scenario may have cases: they share the running server, and each is compared, reported and
//! listed as a departure by itself, as `ID/CASE`. Steps before the first case belong to `ID`.
//!
//! `server` text goes into a server that listens on `%%PORT%%`, `http` text before it. Origins are
//! named by what stands for their address: `%%ORIGIN%%` is always there, others come with
//! `answer_at`. The address `127.0.0.1:1` refuses connections.

use crate::run::Run;
use anyhow::Result;
use millpond_testkit::{Answer, Recorded, Request};
use std::sync::Arc;

/// The name of the origin that every scenario has.
pub const ORIGIN: &str = "ORIGIN";

/// Answers of an origin for a route.
#[derive(Clone)]
pub enum Script {
    /// Answers in turn; the last one stays.
    Sequence(Vec<Answer>),
    /// Computed from the request.
    Computed(Arc<dyn Fn(&Recorded) -> Answer + Send + Sync>),
}

/// An origin and its routes.
pub struct OriginScript {
    /// Name that stands for the origin's address; one that begins with `UNIX` is a unix socket.
    pub name: &'static str,
    /// Routes and their answers.
    pub routes: Vec<(String, Script)>,
}

/// A step that is a function of the run.
pub type Act = Arc<dyn Fn(&mut Run) -> Result<()> + Send + Sync>;

/// Step that a client does.
pub enum Step {
    /// One request on a connection of its own.
    Send(Request),
    /// Requests one after another on one connection, and whether it is open at the end.
    Keep(Vec<Request>),
    /// Raw bytes; every response until the server closes.
    Raw(Vec<u8>),
    /// Sends a request until a header field has one of the values.
    Until(Request, &'static str, Vec<&'static str>),
    /// Sends a request from several clients at once.
    Together(Request, usize),
    /// Waits until the origins have seen this many requests in all.
    OriginRequests(usize),
    /// Waits until a file below the directory has this many lines, and records them.
    Lines(&'static str, usize),
    /// Anything else.
    Act(Act),
}

/// Steps that are compared together.
pub struct Case {
    /// Name of the case within the scenario; empty for the scenario itself.
    pub name: String,
    /// Steps, in order.
    pub steps: Vec<Step>,
}

/// Treatment of the words of a status line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// The words are compared.
    Compared,
    /// Only the code is.
    Ignored,
}

/// Scenario that is run on both servers.
pub struct Scenario {
    /// Name of the scenario, in words with hyphens.
    pub id: &'static str,
    http: String,
    server: String,
    /// Files below the directory.
    pub files: Vec<(&'static str, Vec<u8>)>,
    /// Origins by name.
    pub origins: Vec<OriginScript>,
    /// Cases, in order; the first has no name.
    pub cases: Vec<Case>,
    /// Header fields of responses and requests that are not compared.
    pub ignored: Vec<&'static str>,
    /// Treatment of the words of status lines.
    pub words: Words,
}

impl Scenario {
    /// A scenario without anything but an origin that answers 404.
    pub fn new(id: &'static str) -> Scenario {
        Scenario {
            id,
            http: String::new(),
            server: String::new(),
            files: Vec::new(),
            origins: vec![OriginScript {
                name: ORIGIN,
                routes: Vec::new(),
            }],
            cases: vec![Case {
                name: String::new(),
                steps: Vec::new(),
            }],
            words: Words::Compared,
            ignored: vec!["date", "server", "connection", "keep-alive"],
        }
    }

    /// A scenario with the cache zone `zone`, used in `location /`, and X-Cache on every response.
    pub fn cached(id: &'static str, directives: &str) -> Scenario {
        Scenario::new(id)
            .http("proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;")
            .server("add_header X-Cache $upstream_cache_status always;")
            .server(&format!(
                "location / {{ proxy_pass http://%%ORIGIN%%; proxy_cache zone; {directives} }}"
            ))
    }

    /// Adds text to the http context.
    pub fn http(mut self, text: &str) -> Scenario {
        self.http.push_str(text);
        self.http.push('\n');
        self
    }

    /// Adds text to the server context.
    pub fn server(mut self, text: &str) -> Scenario {
        self.server.push_str(text);
        self.server.push('\n');
        self
    }

    /// Adds a file below the directory; `html` is the root of the server.
    pub fn file(mut self, path: &'static str, content: impl AsRef<[u8]>) -> Scenario {
        self.files.push((path, content.as_ref().to_vec()));
        self
    }

    /// Answers a route of the first origin.
    pub fn answer(self, route: &str, answer: Answer) -> Scenario {
        self.answer_at(ORIGIN, route, answer)
    }

    /// Answers a route of the origin `name`.
    pub fn answer_at(self, name: &'static str, route: &str, answer: Answer) -> Scenario {
        self.script(name, route, Script::Sequence(vec![answer]))
    }

    /// Answers a route of the first origin in turn.
    pub fn answers(self, route: &str, answers: Vec<Answer>) -> Scenario {
        self.script(ORIGIN, route, Script::Sequence(answers))
    }

    /// Computes the answers of a route of the first origin.
    pub fn computed(
        self,
        route: &str,
        script: impl Fn(&Recorded) -> Answer + Send + Sync + 'static,
    ) -> Scenario {
        self.script(ORIGIN, route, Script::Computed(Arc::new(script)))
    }

    fn script(mut self, name: &'static str, route: &str, script: Script) -> Scenario {
        let route = (route.to_string(), script);
        match self.origins.iter_mut().find(|origin| origin.name == name) {
            Some(origin) => origin.routes.push(route),
            None => self.origins.push(OriginScript {
                name,
                routes: vec![route],
            }),
        }
        self
    }

    /// Leaves a header field out of the comparison.
    pub fn ignore(mut self, field: &'static str) -> Scenario {
        self.ignored.push(field);
        self
    }

    /// Compares codes only, not the words behind them.
    pub fn ignore_words(mut self) -> Scenario {
        self.words = Words::Ignored;
        self
    }

    /// Begins a case: what follows is compared by itself.
    pub fn case(mut self, name: &str) -> Scenario {
        self.cases.push(Case {
            name: name.to_string(),
            steps: Vec::new(),
        });
        self
    }

    /// Ids of the scenario's cases, without a first one that has no steps.
    pub fn ids(&self) -> Vec<String> {
        let cases = self.cases.iter().filter(|case| !case.is_idle());
        cases.map(|case| case.id(self.id)).collect()
    }

    /// Compares the Connection field too.
    pub fn compare_connection(mut self) -> Scenario {
        self.ignored.retain(|field| *field != "connection");
        self
    }

    /// Step: `GET path`.
    pub fn get(self, path: &str) -> Scenario {
        self.send(Request::get(path))
    }

    /// Steps: `GET` each path.
    pub fn gets(mut self, paths: &[&str]) -> Scenario {
        for path in paths {
            self = self.get(path);
        }
        self
    }

    /// Step: `HEAD path`.
    pub fn head(self, path: &str) -> Scenario {
        self.send(Request::head(path))
    }

    /// Step: a GET request with one more header field.
    pub fn get_with(self, path: &str, name: &str, value: &str) -> Scenario {
        self.send(Request::get(path).header(name, value))
    }

    /// Steps: `GET` each path, accepting gzip.
    pub fn steps_with_gzip(mut self, paths: &[&str]) -> Scenario {
        for path in paths {
            self = self.get_with(path, "Accept-Encoding", "gzip");
        }
        self
    }

    /// Step: one request.
    pub fn send(self, request: Request) -> Scenario {
        self.step(Step::Send(request))
    }

    /// Step: requests on one connection.
    pub fn keep(self, requests: Vec<Request>) -> Scenario {
        self.step(Step::Keep(requests))
    }

    /// Step: raw bytes, until the server closes.
    pub fn raw(self, bytes: impl AsRef<[u8]>) -> Scenario {
        self.step(Step::Raw(bytes.as_ref().to_vec()))
    }

    /// Step: `GET path` until X-Cache is one of `values`; only the last response is recorded.
    pub fn get_until(self, path: &str, values: &[&'static str]) -> Scenario {
        self.step(Step::Until(Request::get(path), "X-Cache", values.to_vec()))
    }

    /// Step: `count` clients `GET path` at once.
    pub fn together(self, path: &str, count: usize) -> Scenario {
        self.step(Step::Together(Request::get(path), count))
    }

    /// Step: the lines of a log, once there are `count`.
    pub fn lines(self, path: &'static str, count: usize) -> Scenario {
        self.step(Step::Lines(path, count))
    }

    /// Step: waits until the origins have seen `count` requests in all.
    pub fn origin_requests(self, count: usize) -> Scenario {
        self.step(Step::OriginRequests(count))
    }

    /// Step: anything.
    pub fn act(self, act: impl Fn(&mut Run) -> Result<()> + Send + Sync + 'static) -> Scenario {
        self.step(Step::Act(Arc::new(act)))
    }

    fn step(mut self, step: Step) -> Scenario {
        if let Some(case) = self.cases.last_mut() {
            case.steps.push(step);
        }
        self
    }

    /// The configuration, less what the kit adds.
    pub fn conf(&self) -> String {
        let mut conf = self.http.clone();
        let whole = format!("{}{}", self.http, self.server);
        if !whole.contains("proxy_http_version") {
            // The default has changed between versions of nginx.
            conf.insert_str(0, "proxy_http_version 1.1;\n");
        }
        if !self.server.is_empty() {
            let root = if self.server.contains("root ") {
                ""
            } else {
                "root %%DIR%%/html;\n"
            };
            conf.push_str("server {\nlisten 127.0.0.1:%%PORT%%;\nserver_name localhost;\n");
            conf.push_str(root);
            conf.push_str(&self.server);
            conf.push_str("}\n");
        }
        conf
    }
}

/// A name for the case number `index` that shows what it is about.
pub fn case_name(index: usize, about: &str) -> String {
    let words = about
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    let words: Vec<String> = words.take(6).map(str::to_ascii_lowercase).collect();
    format!("{}-{}", index + 1, words.join("-"))
        .trim_end_matches('-')
        .to_string()
}

impl Case {
    /// The first case of a scenario that has only named ones.
    pub fn is_idle(&self) -> bool {
        self.name.is_empty() && self.steps.is_empty()
    }

    /// Name of the case outside its scenario.
    pub fn id(&self, scenario: &str) -> String {
        if self.name.is_empty() {
            scenario.to_string()
        } else {
            format!("{scenario}/{}", self.name)
        }
    }
}
