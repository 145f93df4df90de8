//! `millpond demo --fleet`: its page shows what the nodes have, and each purge as it comes to them;
//! nothing is left of it.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Browser, Client, Deadline, Kind, Request, binary, free_port};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::kit::{WAIT, program};

/// A running demo and what it printed.
struct Demo {
    child: Child,
    text: String,
}

impl Demo {
    /// Starts it; none where there is no server of NATS.
    fn start(more: &[&str]) -> Result<Option<Demo>> {
        let Some(nats) = program() else {
            return Ok(None);
        };
        let mut child = Command::new(binary(Kind::Millpond).context("no binary")?)
            .args(["demo", "--fleet"])
            .args(more)
            .env("NATS_SERVER", nats)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let text = String::new();
        let mut demo = Demo { child, text };
        for line in output.lines() {
            let line = line?;
            demo.text.push_str(&line);
            demo.text.push('\n');
            if line.starts_with("Ctrl-C") {
                return Ok(Some(demo));
            }
        }
        anyhow::bail!("the demo ended, and printed: {}", demo.text)
    }

    fn page(&self) -> Result<Client> {
        let line = self.text.lines().find(|line| line.contains("  page "));
        let url = line.and_then(|line| line.split_whitespace().nth(1));
        let authority = url.context("no page")?.trim_start_matches("http://");
        Ok(Client::at(authority.trim_end_matches('/').parse()?))
    }

    fn folder(&self) -> Result<PathBuf> {
        let line = self.text.lines().last().context("no last line")?;
        let folder = line.split_whitespace().last().context("no folder")?;
        Ok(PathBuf::from(folder.trim_end_matches('.')))
    }

    fn board(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.page()?.get("/board")?.text())?)
    }

    /// Numbers of the processes that run.
    fn processes(&self) -> Result<Vec<Pid>> {
        let board = self.board()?;
        let parts = board["parts"].as_array().context("parts")?.iter();
        let numbers = parts.chain([&board["nats"]]).map(|it| &it["pid"]);
        let pid = |number: &Value| Pid::from_raw(i32::try_from(number.as_i64()?).ok()?);
        Ok(numbers.filter_map(pid).collect())
    }

    /// Asks for what a button of the page does.
    fn press(&self, target: &str) -> Result<()> {
        let request = Request::new("POST", target).header("Millpond-Demo", "1");
        let answer = self.page()?.send(&request)?;
        ensure!(answer.status == 200, "{target}: {}", answer.text());
        Ok(())
    }

    /// Waits for a state of the board.
    fn wait_for(&self, name: &str, is_there: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let seen = Deadline::after(WAIT).poll(|| {
            last = self.board().ok()?;
            is_there(&last).then(|| last.clone())
        });
        seen.with_context(|| format!("{name}: {last:#}"))
    }

    /// Ends it, as Ctrl-C does, and looks for what is left.
    fn end(mut self) -> Result<()> {
        let (folder, processes) = (self.folder()?, self.processes()?);
        ensure!(folder.join("n1/millpond.conf").is_file(), "{folder:?}");
        ensure!(processes.len() == 4, "{processes:?}");
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("process id")?;
        kill_process(pid, Signal::INT)?;
        let ended = || self.child.try_wait().ok().flatten();
        let status = Deadline::after(WAIT)
            .poll(ended)
            .context("it does not end")?;
        ensure!(status.success(), "{status}");
        ensure!(!folder.exists(), "{} is left", folder.display());
        for pid in processes {
            ensure!(test_kill_process(pid).is_err(), "{pid:?} is left");
        }
        Ok(())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It has ended if the test got so far; if not, it gets the chance to end its children.
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::INT));
        let ended = Deadline::after(WAIT).poll(|| self.child.try_wait().ok().flatten());
        if ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Editions of a page that the three nodes have.
fn editions(board: &Value, path: &str) -> Vec<Option<u64>> {
    let nodes = board["board"]["nodes"].as_array().into_iter().flatten();
    nodes.map(|node| node["has"][path].as_u64()).collect()
}

/// True if the newest purge has arrived at these nodes, by the clock.
fn has_arrived(board: &Value, nodes: &[usize]) -> bool {
    let purge = &board["board"]["purges"][0]["nodes"];
    let mut nodes = nodes.iter();
    nodes.all(|node| purge[node]["after"].as_f64().is_some_and(|ms| ms > 0.0))
}

#[test]
fn demo_shows_a_purge_on_all_nodes_and_on_one_that_was_away() -> Result<()> {
    let Some(demo) = Demo::start(&[])? else {
        return Ok(());
    };
    demo.press("/ask")?;
    let has = |edition, path| move |board: &Value| editions(board, path) == [edition; 3];
    demo.wait_for("all have it", has(Some(1), "/news"))?;
    // What the origin has changed is what the caches still have, until it is purged.
    demo.press("/edit?page=/news")?;
    demo.press("/ask?node=0&page=/news")?;
    let board = demo.wait_for("all have it still", has(Some(1), "/news"))?;
    ensure!(board["pages"][1]["edition"] == json!(2), "{board}");
    ensure!(
        board["board"]["nodes"][0]["asked"]["/news"]["label"] == json!("HIT"),
        "{board}"
    );

    demo.press("/purge?node=1&kind=exact&what=/news")?;
    demo.wait_for("the purge", |board| has_arrived(board, &[0, 1, 2]))?;
    let board = demo.wait_for("none has it", has(None, "/news"))?;
    ensure!(editions(&board, "/prices") == [Some(1); 3], "{board}");
    demo.press("/ask?page=/news")?;
    demo.wait_for("the newer one", has(Some(2), "/news"))?;

    // A node that is away takes the purge from the log when it is back.
    demo.press("/kill?node=2")?;
    demo.wait_for("a node is away", |it| {
        it["board"]["nodes"][2]["state"] == json!("gone")
    })?;
    demo.press("/purge?node=0&kind=tag&what=front")?;
    demo.wait_for("two nodes", |board| {
        has_arrived(board, &[0, 1]) && board["board"]["purges"][0]["nodes"][2] == json!("away")
    })?;
    demo.press("/start?node=2")?;
    let board = demo.wait_for("the third", |board| {
        let is_there = board["board"]["nodes"][2]["state"] == json!("up_to_date");
        is_there && board["board"]["purges"][0]["nodes"][2] == json!("caught_up")
    })?;
    ensure!(
        board["board"]["purges"]
            .as_array()
            .is_some_and(|it| it.len() == 2),
        "{board}"
    );
    demo.wait_for("not on its disk either", has(None, "/news"))?;
    demo.wait_for("other tags stay", has(Some(1), "/prices"))?;

    // No page of another site presses a button.
    let outside = Request::new("POST", "/kill?node=0");
    ensure!(
        demo.page()?.send(&outside)?.status == 403,
        "without the field"
    );
    ensure!(demo.processes()?.len() == 4, "all run");
    demo.end()
}

#[test]
fn page_of_the_demo_shows_and_purges_in_a_browser() -> Result<()> {
    let Some(mut browser) = Browser::start(1180, 1000)? else {
        millpond_testkit::skip("there is no Chromium");
        return Ok(());
    };
    // The ports by option: the page's, and five behind it.
    let first = free_port()?;
    let Some(demo) = Demo::start(&["--port", &first.to_string()])? else {
        return Ok(());
    };
    browser.open(&format!("http://127.0.0.1:{first}/"))?;
    let cells = "[...document.querySelectorAll('#pages tr:nth-child(2) .cell b')]
        .map((it) => it.textContent).join(', ')";
    browser.wait_for(cells, &json!("nothing, nothing, nothing"))?;
    browser.eval("document.getElementById('ask-all').click()")?;
    browser.wait_for(cells, &json!("edition 1, edition 1, edition 1"))?;
    browser.eval(
        "document.querySelector('#pages tr:nth-child(2) [title=\"Make a newer edition\"]').click()",
    )?;
    let old = "document.querySelectorAll('.cell.old').length";
    browser.wait_for(old, &json!(3))?;
    picture(&mut browser, "before")?;
    browser
        .eval("document.querySelector('#pages tr:nth-child(2) [title=\"Purge at n2\"]').click()")?;
    browser.wait_for(cells, &json!("nothing, nothing, nothing"))?;
    let row = "[...document.querySelectorAll('#purges tr:first-child td')]
        .map((it) => it.textContent.replace(/[0-9.]+ ms/, 'N ms')).join(', ')";
    let all = "/news, n2, acknowledged after N ms, N ms, N ms, N ms";
    browser.wait_for(row, &json!(all))?;
    picture(&mut browser, "after")?;
    let problems = browser.take_problems();
    ensure!(problems.is_empty(), "{problems:?}");
    demo.end()
}

fn picture(browser: &mut Browser, name: &str) -> Result<()> {
    let Some(dir) = std::env::var_os("MILLPOND_PICTURES") else {
        return Ok(());
    };
    let taken = browser.call("Page.captureScreenshot", json!({ "format": "png" }))?;
    let file = Path::new(&dir).join(format!("fleet-demo-{name}.png.base64"));
    Ok(std::fs::write(
        file,
        taken["data"].as_str().context("a picture")?,
    )?)
}

#[test]
fn demo_without_nats_says_how_to_get_it() -> Result<()> {
    let empty = tempfile::tempdir()?;
    let missing = "/no/such/program";
    for (option, variable) in [(&[][..], ""), (&["--nats", missing], ""), (&[], missing)] {
        let mut command = Command::new(binary(Kind::Millpond).context("no binary")?);
        command.args(["demo", "--fleet"]).args(option);
        command
            .env("PATH", empty.path())
            .env("NATS_SERVER", variable);
        let output = command.output()?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(1), "{said}");
        ensure!(said.contains("apt-get install nats-server"), "{said}");
    }
    Ok(())
}
