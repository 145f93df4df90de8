//! `millpond top`: what a running process does, once a second, on a terminal.
//!
//! ```text
//! control socket ──► feed: looks ─┐
//! terminal ────────► feed: keys  ─┼─► view ──► screen ──► terminal
//! TERM, HUP ───────► feed ────────┘
//! ```
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | the command line |
//! | `report.rs` | what is read of the answers |
//! | `figures.rs` | counters, and how fast they grow |
//! | `view.rs` | what is chosen, and what keys do |
//! | `screen.rs` | how it looks |
//! | `feed.rs` | where events come from |
//!
//! `--once` writes one screen as text and `--json` an object for each look, for scripts and tests.
//!
//! 1. The terminal is given back as it was, however it ends, short of a kill.
//! 2. It asks what any client of the control socket can ask; a process does nothing for it besides
//!    answering.

mod feed;
mod figures;
mod options;
mod report;
mod screen;
mod view;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;

use anyhow::{Context, Result, bail};
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use options::{Options, Shape};
use screen::Palette;
use view::{Event, Next, View};

use crate::{cache, terminal};

/// The screen of `--once` where there is no terminal.
const SIZE: (u16, u16) = (80, 24);

const USAGE: &str = "usage: millpond top [--every TIME] [--once | --json [--once]]
                    [--pane overview|sites|zones|fills]
                    [--sort requests|hits|bytes|origin|held|site]
options: -c FILE, -p PREFIX, -g DIRECTIVES, or --socket PATH of the control socket
keys: q ends, ? tells of the others
";

/// Runs the command that the words say.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<ExitCode> {
    let words: Vec<String> = words.collect();
    let options = match crate::options::read(words, USAGE, options::parse) {
        Ok(options) => options,
        Err(code) => return Ok(code),
    };
    match obey(&options) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("millpond: {error:#}");
            Ok(ExitCode::from(2))
        }
    }
}

fn obey(options: &Options) -> Result<()> {
    let socket = socket(options)?;
    match options.shape {
        Shape::Live if io::stdout().is_terminal() && io::stdin().is_terminal() => {
            live(options, socket)
        }
        Shape::Live => bail!("this is no terminal; --once and --json need none"),
        Shape::Text | Shape::Json => written(options, &socket),
    }
}

/// Socket at which the process is asked.
fn socket(options: &Options) -> Result<PathBuf> {
    if let Some(socket) = &options.socket {
        return Ok(socket.clone());
    }
    cache::socket_for(&options.process.source())
}

fn live(options: &Options, socket: PathBuf) -> Result<()> {
    // Whoever may not ask is told before the screen is taken.
    feed::look(&socket)?;
    let (sender, events) = mpsc::channel();
    let _looks = feed::ask_again(socket, options.every, sender.clone())?;
    feed::read_signals(sender.clone())?;
    let mut screen = ratatui::try_init().context("the terminal")?;
    let shown = feed::read_keys(sender)
        .context("keys")
        .and_then(|()| show(options, &mut screen, &events));
    // INVARIANT 1.
    ratatui::restore();
    shown
}

fn show(
    options: &Options,
    screen: &mut DefaultTerminal,
    events: &mpsc::Receiver<Event>,
) -> Result<()> {
    let palette = if terminal::may_colour() {
        Palette::Colours
    } else {
        Palette::Plain
    };
    let mut view = View::new(options.pane, options.sort);
    loop {
        screen.draw(|frame| {
            let area = frame.area();
            screen::draw(&view, palette, area, frame.buffer_mut());
        })?;
        let event = events.recv().context("nothing happens any more")?;
        if view.apply(event) == Next::End {
            return Ok(());
        }
    }
}

/// Writes looks, each with the rates since the one before.
fn written(options: &Options, socket: &Path) -> Result<()> {
    let (sender, events) = mpsc::channel();
    let _looks = feed::ask_again(socket.to_path_buf(), options.every, sender)?;
    let mut view = View::new(options.pane, options.sort);
    for event in events {
        if let Event::Lost(why) = &event {
            if options.is_once {
                bail!("{why}")
            } else {
                eprintln!("millpond: {why}");
            }
            continue;
        }
        view.apply(event);
        // The first look at a process has no rates.
        let Some(figures) = view.figures.as_ref().filter(|it| it.seconds.is_some()) else {
            continue;
        };
        let said = match options.shape {
            Shape::Json => serde_json::to_string(figures)? + "\n",
            Shape::Live | Shape::Text => page(&view),
        };
        if !is_read(&said)? || options.is_once {
            break;
        }
    }
    Ok(())
}

/// The screen as text.
fn page(view: &View) -> String {
    let (width, height) = if io::stdout().is_terminal() {
        ratatui::crossterm::terminal::size().unwrap_or(SIZE)
    } else {
        SIZE
    };
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    let area = buf.area;
    screen::draw(view, Palette::Plain, area, &mut buf);
    screen::text(&buf)
}

/// Writes a text; false if nobody reads on.
fn is_read(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true).context("writing"),
    }
}
