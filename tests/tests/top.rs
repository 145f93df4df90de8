//! `millpond top`: what it shows is what happens, on a terminal, as text and as JSON; a process
//! that ends and comes back is told of.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Kind, Origin, Proxy, Request, binary};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

const CONF: &str = "
%%GLOBALS%%
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/pond keys_zone=pond:1m max_size=200m inactive=1d;
    proxy_cache_valid 200 1h;
    server {
        listen 127.0.0.1:%%PORT%%;
        cache_site shop;
        proxy_cache pond;
        location / { proxy_pass http://%%ORIGIN%%; }
    }
}
";

fn start() -> Result<(Origin, Proxy)> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("page"));
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    Ok((origin, proxy))
}

fn ask(proxy: &Proxy, times: usize) -> Result<()> {
    let client = Client::new(proxy.port());
    for _ in 0..times {
        client.send(&Request::get("/a").host("shop"))?;
    }
    Ok(())
}

fn top(proxy: &Proxy, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(binary(Kind::Millpond).context("the binary")?);
    command.arg("top").args(words).arg("-p").arg(proxy.dir());
    command.arg("-c").arg(proxy.dir().join("nginx.conf"));
    Ok(command)
}

#[test]
fn looks_are_text_and_json_for_scripts() -> Result<()> {
    let (_origin, proxy) = start()?;
    ask(&proxy, 3)?;
    let words = ["--once", "--every", "100ms", "--pane", "sites"];
    let output = top(&proxy, &words)?.output()?;
    ensure!(output.status.success(), "{output:?}");
    let screen = String::from_utf8(output.stdout)?;
    assert_eq!(screen.lines().count(), 24);
    assert!(!screen.contains('\u{1b}'), "{screen}");
    let shop = screen.lines().find(|line| line.starts_with("shop"));
    assert!(shop.context("a site")?.contains(" 66.7% "), "{screen}");
    // Looks go on while requests come: the numbers are those of the process.
    let mut child = top(&proxy, &["--json", "--every", "100ms"])?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("output")?).lines();
    let mut first = None;
    let found = Deadline::after(WAIT).poll(|| {
        if first.is_some() {
            ask(&proxy, 1).ok()?;
        }
        let look: Value = serde_json::from_str(&lines.next()?.ok()?).ok()?;
        let requests = look["answers"]["requests"].as_u64()?;
        let first = *first.get_or_insert(requests);
        let is_moving = look["answers"]["requests_per_s"].as_f64()? > 0.0;
        (requests > first && is_moving).then_some(look)
    });
    let look = found.context("it moves")?;
    assert_eq!(look["pid"], proxy.pid().context("a process")?);
    assert_eq!(look["zones"][0]["name"], "pond");
    assert_eq!(look["sites"][0]["site"], "shop");
    assert_eq!(look["origin"]["requests"], 1);
    // Whoever reads no more ends it.
    drop(lines);
    ensure!(child.wait()?.success());
    Ok(())
}

#[test]
fn what_cannot_be_shown_is_said() -> Result<()> {
    let (_origin, mut proxy) = start()?;
    let refused = |words: &[&str]| -> Result<String> {
        let output = top(&proxy, words)?.stdin(Stdio::null()).output()?;
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        Ok(String::from_utf8(output.stderr)?)
    };
    assert!(refused(&[])?.contains("this is no terminal"));
    assert!(refused(&["--colour"])?.contains("usage: millpond top"));
    proxy.quit()?;
    let output = top(&proxy, &["--once"])?.output()?;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr)?.contains("nobody listens on"));
    Ok(())
}

/// A program on a terminal of its own.
struct OnTerminal {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl OnTerminal {
    /// None where there is no `script`, which makes the terminal.
    fn start(command: &str) -> Result<Option<OnTerminal>> {
        let sized = format!("stty rows 24 cols 100; exec {command}");
        let spawned = Command::new("script")
            .args(["-qfec", &sized, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match spawned {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            spawned => spawned?,
        };
        let mut out = child.stdout.take().context("output")?;
        let said = Arc::<Mutex<String>>::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut piece) {
                let text = String::from_utf8_lossy(&piece[..count]).into_owned();
                heard.lock().expect("no panic").push_str(&text);
            }
        });
        Ok(Some(OnTerminal { child, said }))
    }

    fn press(&mut self, keys: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("input")?;
        input.write_all(keys.as_bytes())?;
        Ok(input.flush()?)
    }

    /// Waits until a word is written that was not there before; blanks may be left out between
    /// words.
    fn wait_for(&self, text: &str) -> Result<()> {
        let is_said = || {
            let mut said = self.said.lock().expect("no panic");
            let at = said.find(text)?;
            said.drain(..at + text.len());
            Some(())
        };
        let found = Deadline::after(WAIT).poll(is_said);
        found.with_context(|| format!("{text} in {:?}", self.said.lock().expect("no panic")))
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_terminal_shows_a_restart_and_is_given_back() -> Result<()> {
    let (_origin, mut proxy) = start()?;
    ask(&proxy, 3)?;
    let binary = binary(Kind::Millpond).context("the binary")?;
    let socket = proxy.dir().join("server.control");
    let command = format!(
        "{} top --every 100ms --socket {}",
        binary.display(),
        socket.display()
    );
    let Some(mut terminal) = OnTerminal::start(&command)? else {
        millpond_testkit::skip("there is no script");
        return Ok(());
    };
    terminal.wait_for("\u{1b}[?1049h")?;
    terminal.wait_for("asked")?;
    terminal.press("2")?;
    terminal.wait_for("shop")?;
    proxy.quit()?;
    terminal.wait_for("nobody")?;
    proxy.restart()?;
    let pid = proxy.pid().context("a process")?.to_string();
    // Its counters begin again, and so does what is shown.
    terminal.press("1")?;
    ask(&proxy, 2)?;
    terminal.wait_for("asked")?;
    terminal.press("?")?;
    terminal.wait_for("choose")?;
    terminal.press("xq")?;
    terminal.wait_for("\u{1b}[?1049l")?;
    ensure!(terminal.child.wait()?.success());
    let once = top(&proxy, &["--once", "--every", "100ms"])?.output()?;
    let screen = String::from_utf8(once.stdout)?;
    assert!(screen.contains(&format!("process {pid}")), "{screen}");
    Ok(())
}
