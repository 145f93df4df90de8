//! Access to a zone: by the process that serves from it, or to the zone itself, at rest.
//!
//! ```text
//! configuration ──► control socket ── answers, and has the zone ──► asked there
//!                                 └── else ──────────────────────► opened here (control/rest.rs)
//! ```
//!
//! Both answer the same requests in the same way, so nobody behind this file knows which it is.

use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use bytes::{Buf, Bytes, BytesMut};
use millpond_exchange::settings::Conf;
use millpond_server::control::Wanted;
use millpond_server::control::api::{Ask, Body, Lines, Verb};
use millpond_server::control::query::Parameters;
use millpond_server::control::report::{Line, ProblemReport, ServerReport};
use millpond_server::control::rest::{Purpose, Rest, RestError, ZonePath};
use millpond_server::source::ConfSource;
use millpond_server::source::salvage::salvage;
use serde::de::DeserializeOwned;

use super::client;
use super::options::Options;
use crate::arguments::CONF_PATH;

/// Path of the control socket if the configuration says nothing of it nor of the pid file.
const USUAL: &str = "/run/millpond.control";
/// Path of the control socket if the unit for systemd (`contrib/millpond.service`) says it, with
/// `-g`.
const OF_UNIT: &str = "/run/millpond/millpond.control";

/// The zones of a configuration, and the process that serves it, if one does.
pub(super) struct Site {
    source: ConfSource,
    zones: Vec<ZonePath>,
    socket: Option<PathBuf>,
    pub(super) server: Option<ServerReport>,
}

/// The reason why a request has no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The zone has no such entry.
    #[error("{0}")]
    NotFound(String),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl Refusal {
    /// The error of a command for which both are the same.
    pub(super) fn into_error(self) -> anyhow::Error {
        match self {
            Refusal::NotFound(why) => anyhow!(why),
            Refusal::Other(error) => error,
        }
    }
}

impl Site {
    /// Reads a configuration, and looks for the process.
    pub(super) fn open(options: &Options) -> Result<Site> {
        let source = options.process.source();
        let path = source.path.display().to_string();
        let salvage = salvage(&source);
        let mistakes = salvage.mistakes().count();
        if mistakes > 0 && salvage.conf.is_some() {
            eprintln!("millpond: {path}: {mistakes} mistakes left out; see: millpond check {path}");
        }
        let conf = salvage.conf;
        let conf =
            conf.ok_or_else(|| anyhow!("{path} cannot be used; see: millpond check {path}"))?;
        let socket = socket_of(&conf, &source);
        let mut site = Site {
            zones: conf.declared.zones.clone(),
            source,
            socket,
            server: None,
        };
        if let Some(stream) = site.connect()? {
            let ask = Ask::new(Verb::Get, &[], Parameters::new());
            let server = whole(&stream, &ask).map_err(anyhow::Error::from);
            site.server = Some(server.context("asking the process on its control socket")?);
        }
        Ok(site)
    }

    /// The configuration, once more.
    pub(super) fn conf(&self) -> Result<Conf> {
        salvage(&self.source).conf.context("the configuration")
    }

    /// The zones that are meant: all, or the one that is named.
    pub(super) fn zones(&self, name: Option<&str>) -> Result<Vec<ZonePath>> {
        let all = &self.zones;
        let meant = all
            .iter()
            .filter(|zone| name.is_none_or(|it| it == zone.name));
        let meant: Vec<ZonePath> = meant.cloned().collect();
        match (meant.is_empty(), name) {
            (false, _) => Ok(meant),
            (true, None) => bail!("the configuration has no zone: no proxy_cache_path or its like"),
            (true, Some(name)) => {
                let names: Vec<&str> = all.iter().map(|zone| zone.name.as_str()).collect();
                bail!(
                    "the configuration has no zone \"{name}\"; there is: {}",
                    names.join(", ")
                )
            }
        }
    }

    /// The one who answers for a zone.
    pub(super) fn access(&self, zone: &ZonePath, purpose: Purpose) -> Result<Access> {
        let path = zone.path.display().to_string();
        let theirs = self.server.iter().flat_map(|server| &server.zones);
        if let Some(theirs) = theirs.into_iter().find(|it| it.path == path) {
            let socket = self.socket.clone().unwrap_or_default();
            return Ok(Access {
                name: theirs.name.clone(),
                below: Vec::new(),
                to: To::Process(socket),
            });
        }
        match Rest::open(zone, purpose) {
            Ok(rest) => {
                for note in rest.take_notes() {
                    eprintln!("millpond: zone \"{}\": {note}", zone.name);
                }
                Ok(Access {
                    name: zone.name.clone(),
                    below: Vec::new(),
                    to: To::Rest(Box::new(rest)),
                })
            }
            Err(failure @ RestError::InUse(_)) => Err(match &self.socket {
                Some(socket) => anyhow!(
                    "zone \"{}\": {failure}, and none answers on {}; was it started with -g or -p? \
                     Give the same here",
                    zone.name,
                    socket.display()
                ),
                None => anyhow!("zone \"{}\": {failure}, and \"control\" is off", zone.name),
            }),
            Err(failure) => Err(anyhow!("zone \"{}\": {failure}", zone.name)),
        }
    }

    /// The process, which asks another node of a fleet about its zone of the same name.
    pub(super) fn access_through(&self, fleet: &str, node: &str, zone: &ZonePath) -> Access {
        let below = ["fleets", fleet, "nodes", node];
        Access {
            name: zone.name.clone(),
            below: below.map(str::to_owned).into(),
            to: To::Process(self.socket.clone().unwrap_or_default()),
        }
    }

    /// Asks the process for one object that is about no single zone.
    pub(super) fn whole<T: DeserializeOwned>(
        &self,
        verb: Verb,
        what: &[&str],
        parameters: Parameters,
    ) -> Result<T, Refusal> {
        let Some(stream) = self.connect()? else {
            let none = match &self.socket {
                Some(socket) => format!("no process answers on {}", socket.display()),
                None => "\"control\" is off, so no process can be asked".to_string(),
            };
            return Err(anyhow!(none).into());
        };
        whole(&stream, &Ask::new(verb, what, parameters))
    }

    fn connect(&self) -> Result<Option<UnixStream>> {
        match &self.socket {
            Some(socket) => client::connect(socket),
            None => Ok(None),
        }
    }
}

/// Socket at which the process of a configuration is to be asked.
pub(crate) fn socket_for(source: &ConfSource) -> Result<PathBuf> {
    let path = source.path.display();
    let salvage = salvage(source);
    // Without a file of its own, a process is looked for where one usually is.
    if source.path != Path::new(CONF_PATH)
        && let Some(why) = salvage.unread()
    {
        bail!("{why}");
    }
    let conf = salvage.conf;
    let conf = conf.ok_or_else(|| anyhow!("{path} cannot be used; see: millpond check {path}"))?;
    socket_of(&conf, source).context("\"control\" is off, so no process can be asked")
}

/// Socket at which the process is to be asked.
fn socket_of(conf: &Conf, source: &ConfSource) -> Option<PathBuf> {
    let wanted = Wanted::of(conf, &source.prefix);
    let path = wanted.path()?;
    let is_usual = matches!(&wanted, Wanted::BesidePid(path) if path == Path::new(USUAL));
    let unit = Path::new(OF_UNIT);
    Some(if is_usual && !path.exists() && unit.exists() {
        unit.to_owned()
    } else {
        path.to_owned()
    })
}

/// The one who answers for a zone.
pub(super) struct Access {
    /// The zone's name there.
    name: String,
    /// Segments of paths before those of the zone.
    below: Vec<String>,
    to: To,
}

enum To {
    Process(PathBuf),
    Rest(Box<Rest>),
}

impl Access {
    /// Name of the zone, where it is asked.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A request about the zone.
    pub(super) fn request(&self, verb: Verb, what: &[&str], parameters: Parameters) -> Ask {
        let mut segments: Vec<&str> = self.below.iter().map(String::as_str).collect();
        segments.extend(["zones", self.name.as_str()]);
        segments.extend(what);
        Ask::new(verb, &segments, parameters)
    }

    /// Asks for one object.
    pub(super) fn whole<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Refusal> {
        match &self.to {
            To::Process(socket) => whole(&stream(socket)?, ask),
            To::Rest(rest) => {
                let answer = rest.answer(ask);
                match answer.body {
                    Body::Json(text) => read(answer.status, text.as_bytes()),
                    Body::Lines(_) | Body::Events(_) => {
                        Err(anyhow!("a list where one object was expected").into())
                    }
                }
            }
        }
    }

    /// Asks for lines, until `take` has enough.
    pub(super) fn lines(
        &self,
        ask: &Ask,
        take: &mut dyn FnMut(Line) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut reader = LineReader {
            rest: BytesMut::new(),
            take,
            outcome: Ok(ControlFlow::Continue(())),
        };
        let answered = match &self.to {
            To::Process(socket) => reader.read_from(&stream(socket)?, ask),
            To::Rest(rest) => {
                let answer = rest.answer(ask);
                match answer.body {
                    Body::Json(text) => read::<ServerReport>(answer.status, text.as_bytes())
                        .map(|_| ())
                        .map_err(anyhow::Error::from),
                    Body::Lines(make) | Body::Events(make) => {
                        make(&mut reader).map_err(anyhow::Error::from)
                    }
                }
            }
        };
        match reader.outcome {
            Ok(ControlFlow::Break(())) => Ok(()),
            Ok(ControlFlow::Continue(())) => answered,
            Err(error) => Err(error),
        }
    }
}

fn stream(socket: &Path) -> Result<UnixStream> {
    client::connect(socket)?.context("the process has ended meanwhile")
}

fn whole<T: DeserializeOwned>(stream: &UnixStream, ask: &Ask) -> Result<T, Refusal> {
    let mut body = Vec::new();
    let status = client::exchange(stream, ask, &mut |piece| {
        body.extend_from_slice(&piece);
        Ok(())
    })?;
    read(status, &body)
}

fn read<T: DeserializeOwned>(status: u16, body: &[u8]) -> Result<T, Refusal> {
    if status == 200 {
        let read = serde_json::from_slice(body);
        return Ok(read.context("an answer that is not understood")?);
    }
    let problem: ProblemReport =
        serde_json::from_slice(body).with_context(|| format!("an answer with status {status}"))?;
    match status {
        404 => Err(Refusal::NotFound(problem.error)),
        _ => Err(anyhow!(problem.error).into()),
    }
}

/// Lines out of pieces.
struct LineReader<'a> {
    rest: BytesMut,
    take: &'a mut dyn FnMut(Line) -> Result<ControlFlow<()>>,
    outcome: Result<ControlFlow<()>>,
}

impl LineReader<'_> {
    fn read_from(&mut self, stream: &UnixStream, ask: &Ask) -> Result<()> {
        let mut body = Vec::new();
        let mut is_list = None;
        let status = client::exchange(stream, ask, &mut |piece| {
            // A refusal is one object with an error; every line has another name in it.
            let is_list = *is_list.get_or_insert_with(|| !piece.starts_with(b"{\"error\""));
            if is_list {
                self.push_piece(&piece)
            } else {
                body.extend_from_slice(&piece);
                Ok(())
            }
        })?;
        match status {
            200 => Ok(()),
            _ => read::<ServerReport>(status, &body)
                .map(|_| ())
                .map_err(anyhow::Error::from),
        }
    }

    fn push_piece(&mut self, piece: &Bytes) -> Result<()> {
        self.rest.extend_from_slice(piece);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line = self.rest.split_to(end);
            self.rest.advance(1);
            self.take_line(&line)?;
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) -> io::Result<()> {
        let taken = serde_json::from_slice(line).context("a line that is not understood");
        self.outcome = taken.and_then(&mut self.take);
        match self.outcome {
            Ok(ControlFlow::Continue(())) => Ok(()),
            // What it was is in the outcome.
            _ => Err(io::ErrorKind::Interrupted.into()),
        }
    }
}

impl Lines for LineReader<'_> {
    fn push(&mut self, line: &str) -> io::Result<()> {
        self.take_line(line.as_bytes())
    }

    fn push_now(&mut self, line: &str) -> io::Result<()> {
        self.push(line)
    }

    fn is_wanted(&mut self) -> bool {
        true
    }
}
