//! Feed of events: a thread that asks the process again and again, one that reads keys, and one
//! that waits for signals.
//!
//! 1. A process that does not answer, or is another one now, is asked again: nothing ends that but
//!    the program's end.
//! 2. Each look is at most [`LATE`] late; then it counts as none.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millpond_server::control::api::{Ask, Verb};
use millpond_server::control::query::Parameters;
use millpond_system::clock;
use ratatui::crossterm::event;
use serde::de::DeserializeOwned;
use tokio::signal::unix::{SignalKind, signal};

use super::figures::Look;
use super::report::{Fills, Server, Sites};
use super::view::Event;
use crate::cache::client;

/// The longest that a process may take to answer (arbitrary: it takes milliseconds).
const LATE: Duration = Duration::from_secs(5);

/// Asks a process once.
pub(super) fn look(socket: &Path) -> Result<Look> {
    let server: Option<Server> = ask(socket, &[])?;
    let server = server.context("it does not tell of itself")?;
    let sites: Option<Sites> = ask(socket, &["sites"])?;
    let fills: Option<Fills> = ask(socket, &["fills"])?;
    Ok(Look {
        at: clock::instant(),
        time_ms: clock::now_ms(),
        server,
        sites: sites.map(|sites| sites.sites),
        fills: fills.map(|fills| fills.fills),
    })
}

/// One answer; none if the process knows no such thing.
fn ask<T: DeserializeOwned>(socket: &Path, what: &[&str]) -> Result<Option<T>> {
    let stream = connect(socket)?;
    let mut body = Vec::new();
    let ask = Ask::new(Verb::Get, what, Parameters::new());
    let status = client::exchange_within(LATE, &stream, &ask, &mut |piece| {
        body.extend_from_slice(&piece);
        Ok(())
    })?;
    match status {
        200 => Ok(serde_json::from_slice(&body).context("an answer that is not understood")?),
        404 => Ok(None),
        status => bail!("an answer with status {status}"),
    }
}

fn connect(socket: &Path) -> Result<UnixStream> {
    let stream = client::connect(socket)?;
    stream.with_context(|| format!("nobody listens on {}", socket.display()))
}

/// Looks again and again, until what is returned is dropped.
pub(super) fn ask_again(
    socket: PathBuf,
    every: Duration,
    events: Sender<Event>,
) -> io::Result<Sender<()>> {
    let (looks, ended) = std::sync::mpsc::channel();
    let thread = thread::Builder::new().name("looks".to_string());
    thread.spawn(move || {
        loop {
            let event = match look(&socket) {
                Ok(look) => Event::Look(Box::new(look)),
                Err(error) => Event::Lost(format!("{error:#}")),
            };
            if events.send(event).is_err() || !wait(&ended, every) {
                return;
            }
        }
    })?;
    Ok(looks)
}

/// Waits for the next look; false if the feed is to end.
fn wait(ended: &Receiver<()>, every: Duration) -> bool {
    matches!(ended.recv_timeout(every), Err(RecvTimeoutError::Timeout))
}

/// Reads keys until there is no terminal.
pub(super) fn read_keys(events: Sender<Event>) -> io::Result<()> {
    let thread = thread::Builder::new().name("keys".to_string());
    thread.spawn(move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) => Event::Key(key),
                Ok(event::Event::Resize(..)) => Event::Resized,
                Ok(_) => continue,
                Err(_) => Event::Ended,
            };
            let is_end = matches!(event, Event::Ended);
            if events.send(event).is_err() || is_end {
                return;
            }
        }
    })?;
    Ok(())
}

/// Waits to be told to end, so that the terminal is given back as it was.
pub(super) fn read_signals(events: Sender<Event>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut terminate, mut hang_up) = runtime.block_on(async {
        let terminate = signal(SignalKind::terminate())?;
        anyhow::Ok((terminate, signal(SignalKind::hangup())?))
    })?;
    let thread = thread::Builder::new().name("signals".to_string());
    thread.spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
        });
        // Nobody listens if it is ending anyway.
        let _ = events.send(Event::Ended);
    })?;
    Ok(())
}
