//! The browser: Chromium without a window, driven through its DevTools protocol.
//!
//! ```text
//! call ──► fd 3 ──► chromium ──► fd 4 ──► a thread ──► answer of the call, or a note: a request
//!          JSON, ended by a zero byte                   that the page made, a problem that it had
//! ```
//!
//! 1. Every wait has a deadline.
//! 2. Each browser has a profile of its own, which is removed at the end with it.
//! 3. A page's problems are kept until they are taken: exceptions, errors on the console, and what
//!    its policy forbade.
//!
//! Does not install Chromium; where there is none, [`Browser::start`] gives `None`.

use crate::deadline::Deadline;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

/// Name of the program.
const PROGRAM: &str = "chromium";
/// The longest wait for an answer; a browser that starts on a busy machine takes many seconds.
const WAIT: Duration = Duration::from_secs(60);

/// Shell command that starts the browser: its two pipes are those of its input and output, under
/// the numbers that it wants.
const START: &str = "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";
const ARGUMENTS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
];

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    requests: Vec<String>,
    problems: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser with an empty page of this size; `None` where there is no Chromium.
    pub fn start(width: u32, height: u32) -> Result<Option<Browser>> {
        Browser::start_with((width, height), &[])
    }

    /// Starts a browser with further arguments.
    pub fn start_with((width, height): (u32, u32), more: &[&str]) -> Result<Option<Browser>> {
        let folders = env::var_os("PATH").unwrap_or_default();
        if !env::split_paths(&folders).any(|folder| folder.join(PROGRAM).is_file()) {
            return Ok(None);
        }
        let profile = tempfile::tempdir()?;
        let mut child = Command::new("sh")
            .args(["-c", START, PROGRAM])
            .args(ARGUMENTS)
            .args(more)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--window-size={width},{height}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let to = child.stdin.take().context("its input")?;
        let output = child.stdout.take().context("its output")?;
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let Ok(message) = serde_json::from_slice(&message) else {
                    return;
                };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            to,
            from,
            session: None,
            calls: 0,
            requests: Vec::new(),
            problems: Vec::new(),
            _profile: profile,
        };
        browser.attach()?;
        Ok(Some(browser))
    }

    fn attach(&mut self) -> Result<()> {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let id = target["targetId"].as_str().context("a page")?;
        let about = json!({ "targetId": id, "flatten": true });
        let session = self.call("Target.attachToTarget", about)?;
        let session = session["sessionId"].as_str().context("a session")?;
        self.session = Some(session.to_string());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(())
    }

    /// Asks the browser something; notes that come meanwhile are kept.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        let mut bytes = call.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes)?;
        let deadline = Deadline::after(WAIT);
        loop {
            let message = self.from.recv_timeout(deadline.left());
            let mut message = message.with_context(|| format!("no answer to {method}"))?;
            if message["id"] != json!(self.calls) {
                self.note(&message);
                continue;
            }
            if let Some(error) = message.get("error") {
                bail!("{method}: {error}");
            }
            return Ok(message["result"].take());
        }
    }

    fn note(&mut self, message: &Value) {
        let about = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                let url = about["request"]["url"].as_str().unwrap_or_default();
                self.requests.push(url.to_string());
            }
            "Runtime.exceptionThrown" => self.problems.push(about["exceptionDetails"].to_string()),
            "Log.entryAdded" if about["entry"]["level"] == "error" => {
                self.problems.push(about["entry"].to_string());
            }
            "Runtime.consoleAPICalled" if about["type"] == "error" => {
                self.problems.push(about["args"].to_string());
            }
            _ => {}
        }
    }

    /// Goes to a page.
    pub fn open(&mut self, url: &str) -> Result<()> {
        let opened = self.call("Page.navigate", json!({ "url": url }))?;
        match opened.get("errorText") {
            Some(error) => bail!("{url}: {error}"),
            None => Ok(()),
        }
    }

    /// The value of an expression of JavaScript in the page.
    pub fn eval(&mut self, expression: &str) -> Result<Value> {
        let about = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", about)?;
        match answer.get("exceptionDetails") {
            Some(exception) => bail!("{expression}: {exception}"),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Waits until an expression has this value.
    pub fn wait_for(&mut self, expression: &str, expected: &Value) -> Result<()> {
        let mut last = Ok(Value::Null);
        let deadline = Deadline::after(WAIT);
        let found = deadline.poll(|| {
            last = self.eval(expression);
            last.as_ref()
                .is_ok_and(|value| value == expected)
                .then_some(())
        });
        found.with_context(|| format!("{expression} is {last:?}, not {expected}"))
    }

    /// Presses and releases a key; a printable one is typed.
    pub fn press(&mut self, key: &str) -> Result<()> {
        let text = match key {
            "Enter" => "\r",
            _ if key.chars().count() == 1 => key,
            _ => "",
        };
        // The code of Enter is what makes a button act.
        let code = if key == "Enter" { 13 } else { 0 };
        let about = json!({
            "type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code,
        });
        self.call("Input.dispatchKeyEvent", about)?;
        let about = json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", about)?;
        Ok(())
    }

    /// Types a text where the focus is.
    pub fn type_text(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({ "text": text }))?;
        Ok(())
    }

    /// The URLs that pages asked for since the last time.
    pub fn take_requests(&mut self) -> Vec<String> {
        std::mem::take(&mut self.requests)
    }

    /// Takes the problems of pages since the last call.
    pub fn take_problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends with its pipes, too, but the profile is removed now.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
