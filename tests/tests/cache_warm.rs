//! `millpond cache warm`: what a list, a catalogue or a sitemap names is there before users ask,
//! at the pace that was wished, and once only.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use millpond_testkit::{Answer, Client, Deadline, Gate, Kind, Origin, Proxy, Request, binary};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $host$uri$is_args$args;
        proxy_cache_valid 200 1h;
        add_header X-Cache-Status $upstream_cache_status always;
        location / { proxy_pass http://%%ORIGIN%%; }
    }";

struct Site {
    client: Client,
    proxy: Proxy,
    origin: Origin,
}

impl Site {
    fn start() -> Result<Self> {
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).body("page"));
        origin.route("/gone", Answer::new(404).body("gone"));
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        Ok(Site {
            client: Client::new(proxy.port()),
            proxy,
            origin,
        })
    }

    fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(binary(Kind::Millpond).context("no binary")?);
        command.args(["cache", "warm", "--json", "--rate", "1000", "--to"]);
        command.arg(format!("127.0.0.1:{}", self.proxy.port()));
        command.args(args);
        Ok(command)
    }

    /// Runs it with an input: figures, exit status and what it complained of.
    fn warm(&self, args: &[&str], input: &str) -> Result<(Value, Option<i32>, String)> {
        let mut command = self.command(args)?;
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().context("no input")?;
        stdin.write_all(input.as_bytes())?;
        drop(stdin);
        told(child.wait_with_output()?)
    }

    fn is_hit(&self, path: &str) -> Result<bool> {
        let request = Request::get(path).host("shop.example");
        let answer = self.client.send(&request)?;
        Ok(answer.header("X-Cache-Status") == Some("HIT"))
    }

    fn asked(&self) -> usize {
        self.origin.requests().len()
    }
}

fn told(output: Output) -> Result<(Value, Option<i32>, String)> {
    let (said, errors) = (
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    );
    let figures = serde_json::from_str(&said).with_context(|| format!("{said}{errors}"))?;
    Ok((figures, output.status.code(), errors))
}

fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[test]
fn what_a_list_names_is_there_before_users_ask() -> Result<()> {
    let site = Site::start()?;
    site.origin
        .route("/large", Answer::new(200).offset_body(3_000_000, 1));
    let list = "# the shop\nhttp://shop.example/a\n\nhttp://shop.example/b?c=d\n\
                http://shop.example/large\nhttp://shop.example/gone\n";
    let (figures, code, errors) = site.warm(&["-"], list)?;
    assert_eq!(figures["answered"], 4);
    assert_eq!(figures["failed"], 1);
    assert_eq!(figures["bytes"], 4 + 4 + 3_000_000 + 4);
    assert_eq!(
        (&figures["statuses"]["200"], &figures["cache"]["MISS"]),
        (&3.into(), &4.into())
    );
    assert_eq!(code, Some(1));
    assert!(errors.contains("http://shop.example/gone: 404"), "{errors}");
    for path in ["/a", "/b?c=d", "/large"] {
        assert!(site.is_hit(path)?, "{path}");
    }
    let (figures, code, _) = site.warm(&["-"], "http://shop.example/a\n")?;
    assert_eq!((&figures["cache"]["HIT"], code), (&1.into(), Some(0)));
    Ok(())
}

/// A catalogue is what another cache exports.
#[test]
fn another_caches_catalogue_is_a_list() -> Result<()> {
    let (old, new) = (Site::start()?, Site::start()?);
    let list = "http://shop.example/a\nhttp://shop.example/b\n";
    old.warm(&["-"], list)?;
    let conf = old.proxy.dir().join("nginx.conf");
    let export = || -> Result<Option<String>> {
        let mut export = Command::new(binary(Kind::Millpond).context("no binary")?);
        let exported = export.args(["cache", "export", "-c"]).arg(&conf).output()?;
        let catalogue = String::from_utf8(exported.stdout)?;
        // An answer may be whole before it is stored.
        Ok((catalogue.lines().count() == 2).then_some(catalogue))
    };
    let exported = Deadline::after(Duration::from_secs(10)).poll(|| export().transpose());
    let catalogue = exported.context("it is not exported")??;
    let (figures, code, _) = new.warm(&["-"], &catalogue)?;
    assert_eq!((&figures["answered"], code), (&2.into(), Some(0)));
    assert!(new.is_hit("/a")? && new.is_hit("/b")?);
    Ok(())
}

#[test]
fn sitemaps_lead_to_pages_and_to_sitemaps() -> Result<()> {
    let site = Site::start()?;
    let index = "<sitemapindex xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>\
        <sitemap><loc>http://shop.example/one.xml</loc></sitemap>\
        <sitemap><loc>http://shop.example/two.xml.gz</loc></sitemap>\
        <sitemap><loc>http://shop.example/index.xml</loc></sitemap></sitemapindex>";
    let pages = |path: &str| {
        format!("<urlset><url><loc>http://shop.example/{path}?x=1&amp;y=2</loc></url></urlset>")
    };
    let mut zipped = GzEncoder::new(Vec::new(), Compression::default());
    zipped.write_all(pages("b").as_bytes())?;
    site.origin
        .route("/index.xml", Answer::new(200).body(index));
    site.origin
        .route("/one.xml", Answer::new(200).body(pages("a")));
    site.origin
        .route("/two.xml.gz", Answer::new(200).body(zipped.finish()?));
    let url = "http://shop.example/index.xml";
    let (figures, code, errors) = site.warm(&["--sitemap", url], "")?;
    assert_eq!(
        (&figures["answered"], code),
        (&2.into(), Some(0)),
        "{errors}"
    );
    assert!(site.is_hit("/a?x=1&y=2")? && site.is_hit("/b?x=1&y=2")?);
    let output = site
        .command(&["--sitemap", "http://shop.example/gone"])?
        .output()?;
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr)?;
    assert!(said.contains("/gone: it is answered with 404"), "{said}");
    Ok(())
}

#[test]
fn what_is_done_is_left_out_the_next_time() -> Result<()> {
    let site = Site::start()?;
    let file = site.proxy.dir().join("done");
    let resume = ["-", "--resume", file.to_str().context("a path")?];
    let list = "http://shop.example/a\nhttp://shop.example/gone\n";
    let (figures, ..) = site.warm(&resume, list)?;
    assert_eq!(
        (&figures["answered"], &figures["skipped"]),
        (&2.into(), &0.into())
    );
    assert_eq!(text(&file)?, "http://shop.example/a\n");
    let more = format!("{list}http://shop.example/b\n");
    let (figures, ..) = site.warm(&resume, &more)?;
    assert_eq!(
        (&figures["answered"], &figures["skipped"]),
        (&2.into(), &1.into())
    );
    // What a crash has cut off is done again.
    let cut = text(&file)?.trim_end_matches("b\n").to_owned();
    fs::write(&file, cut)?;
    let (figures, ..) = site.warm(&resume, &more)?;
    assert_eq!(figures["skipped"], 1);
    assert!(text(&file)?.ends_with("\nhttp://shop.example/b\n"));
    Ok(())
}

#[test]
fn an_interrupt_begins_nothing_more_and_tells_what_is_left() -> Result<()> {
    let site = Site::start()?;
    let gate = Gate::new();
    site.origin
        .route("/held", Answer::new(200).body("held").hold_head(&gate));
    let file = site.proxy.dir().join("list");
    fs::write(
        &file,
        "http://shop.example/a\nhttp://shop.example/held\nhttp://shop.example/b\n",
    )?;
    let mut command = site.command(&["--users", "1"])?;
    command
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn()?;
    site.origin.wait_for_requests(2)?;
    let pid = Pid::from_raw(i32::try_from(child.id())?).context("a process")?;
    kill_process(pid, Signal::INT)?;
    let (figures, code, _) = told(child.wait_with_output()?)?;
    gate.open();
    assert_eq!(
        (&figures["answered"], &figures["left"]),
        (&1.into(), &2.into())
    );
    assert_eq!(code, Some(1));
    assert_eq!(site.asked(), 2);
    Ok(())
}

#[test]
fn requests_keep_their_pace() -> Result<()> {
    let site = Site::start()?;
    let list: String = (0..11)
        .map(|n| format!("http://shop.example/{n}\n"))
        .collect();
    let began = Instant::now();
    let (figures, ..) = site.warm(&["-", "--rate", "20", "--users", "11"], &list)?;
    assert_eq!(figures["answered"], 11);
    // Ten pauses of 50 ms between eleven requests.
    assert!(began.elapsed() >= Duration::from_millis(500));
    Ok(())
}

#[test]
fn what_cannot_be_asked_for_is_refused_before_anything_is_asked() -> Result<()> {
    let site = Site::start()?;
    for (input, said) in [
        (
            "http://shop.example/a\nnowhere\n",
            "line 2: the URL is not http://",
        ),
        ("{\"url\":3\n", "line 1"),
    ] {
        let mut command = site.command(&["-"])?;
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().context("no input")?;
        stdin.write_all(input.as_bytes())?;
        drop(stdin);
        let output = child.wait_with_output()?;
        let errors = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{errors}");
    }
    assert_eq!(site.asked(), 0);
    Ok(())
}
