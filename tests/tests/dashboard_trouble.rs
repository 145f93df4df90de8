//! The dashboard and `millpond top` while an origin is dead, and on a phone: what fails is said,
//! and no number is cut off. `MILLPOND_PICTURES=dir` keeps pictures of what was looked at (Base64).

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Browser, Client, Kind, LogCheck, Origin, Proxy, Request, binary, free_port,
};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const CONF: &str = "
%%GLOBALS%%
control unix:%%DIR%%/control;
events { }
http {
    %%HTTP%%
    keepalive_requests 1000000;
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=10m;
    proxy_cache z;
    proxy_cache_valid 200 1h;
    proxy_cache_key $host$uri;
    upstream lonely { server 127.0.0.1:%%DEAD%%; }
    upstream well { server %%ORIGIN%%; }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name shop.example blog.example;
        cache_site $host;
        status_zone pages;
        location / { proxy_pass http://well; }
        location /dead/ { proxy_pass http://lonely; proxy_cache off; }
        location = /look { dashboard; }
    }
}
";

/// Requests that go on until this is dropped.
struct Load {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Load {
    /// Asks for these paths in turns.
    fn of(proxy: &Proxy, paths: &'static [&'static str]) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let (port, must_end) = (proxy.port(), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let mut connection = Client::new(port).connect()?;
            for path in paths.iter().cycle() {
                if must_end.load(Ordering::Relaxed) {
                    return Ok(());
                }
                connection.exchange(&Request::get(path).host("shop.example"))?;
            }
            Ok(())
        });
        Load {
            is_over,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("a thread")?;
        thread.join().expect("a client does not panic")
    }
}

fn start(origin: &Origin) -> Result<Proxy> {
    origin.route("/*", Answer::new(200).body("some bytes of a page"));
    // Nobody listens there.
    let dead = free_port()?.to_string();
    Proxy::new(Kind::Millpond, CONF)
        .origin(origin)
        .value("DEAD", &dead)
        .log_check(LogCheck::Off)
        .start()
}

/// Keeps a picture of the whole page.
fn picture(browser: &mut Browser, name: &str, width: u64) -> Result<()> {
    let Some(dir) = std::env::var_os("MILLPOND_PICTURES") else {
        return Ok(());
    };
    let height = browser.eval("document.documentElement.scrollHeight")?;
    let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
    let wanted = json!({ "format": "png", "clip": clip, "captureBeyondViewport": true });
    let taken = browser.call("Page.captureScreenshot", wanted)?;
    let data = taken["data"].as_str().context("a picture")?;
    let file = Path::new(&dir).join(name);
    std::fs::write(file, data)?;
    Ok(())
}

fn as_phone(browser: &mut Browser) -> Result<()> {
    let phone = json!({ "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true });
    browser.call("Emulation.setDeviceMetricsOverride", phone)?;
    Ok(())
}

const TROUBLE: &str = "document.getElementById('state').dataset.trouble";
const ATTENTION: &str = "document.getElementById('attention').textContent";
/// State that a peer's row shows.
fn state_of(group: &str) -> String {
    format!(
        "[...document.querySelectorAll('#upstreams tbody tr')]\
         .find(row => row.textContent.includes('{group}'))?.querySelector('.badge').textContent"
    )
}

#[test]
fn a_dead_origin_is_said_and_a_healthy_one_is_not() -> Result<()> {
    let Some(mut browser) = Browser::start(1280, 900)? else {
        println!("skipped: there is no Chromium");
        return Ok(());
    };
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    let load = Load::of(&proxy, &["/a", "/b", "/c"]);
    browser.open(&format!("http://127.0.0.1:{}/look", proxy.port()))?;
    browser.wait_for(&state_of("well"), &json!("up"))?;
    browser.wait_for(TROUBLE, &json!("false"))?;
    // A rate is shown at once, and it is that of the last seconds.
    let is_rate = "/^[1-9].*\\/s$/.test([...document.querySelectorAll('.tile')]\
                   .find(it => it.textContent.startsWith('Requests'))\
                   .querySelector('strong').textContent)";
    browser.wait_for(is_rate, &json!(true))?;
    picture(&mut browser, "healthy.b64", 1280)?;
    load.end()?;

    let load = Load::of(&proxy, &["/a", "/dead/x", "/b"]);
    browser.wait_for(TROUBLE, &json!("true"))?;
    browser.wait_for(&state_of("lonely"), &json!("all tries fail"))?;
    browser.wait_for(&state_of("well"), &json!("up"))?;
    for said in [
        "Origins fail: ",
        "Clients are answered 5xx: ",
        "All tries with peer 127.0.0.1:",
    ] {
        browser.wait_for(&format!("{ATTENTION}.includes('{said}')"), &json!(true))?;
    }
    let legend = "[...document.querySelectorAll('.chart')]\
                  .find(it => it.textContent.startsWith('Answers by class'))\
                  .querySelectorAll('.legend li b')[4].textContent";
    browser.wait_for(&format!("/^[1-9]/.test({legend})"), &json!(true))?;
    picture(&mut browser, "dead.b64", 1280)?;
    as_phone(&mut browser)?;
    picture(&mut browser, "dead-phone.b64", 390)?;
    load.end()?;
    let problems = browser.take_problems();
    ensure!(problems.is_empty(), "{problems:?}");
    Ok(())
}

/// On a phone all columns are there, and none lies outside of the page.
#[test]
fn a_phone_shows_every_column() -> Result<()> {
    let Some(mut browser) = Browser::start(390, 844)? else {
        println!("skipped: there is no Chromium");
        return Ok(());
    };
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    as_phone(&mut browser)?;
    let load = Load::of(&proxy, &["/a", "/b"]);
    browser.open(&format!("http://127.0.0.1:{}/look", proxy.port()))?;
    browser.wait_for(&state_of("well"), &json!("up"))?;
    browser.wait_for(
        "document.documentElement.scrollWidth <= innerWidth",
        &json!(true),
    )?;
    let cut = "[...document.querySelectorAll('td:not([colspan])')].filter(cell => {\
                 const box = cell.getBoundingClientRect();\
                 const isCut = box.width === 0 || box.right > innerWidth + 1;\
                 return isCut && !cell.closest('[hidden]');\
               }).map(cell => cell.textContent).join()";
    browser.wait_for(cut, &json!(""))?;
    picture(&mut browser, "phone.b64", 390)?;
    load.end()
}

#[test]
fn top_says_that_origins_fail() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    let load = Load::of(&proxy, &["/a", "/dead/x", "/b"]);
    let mut command = Command::new(binary(Kind::Millpond).context("the binary")?);
    command.args(["top", "--once", "--every", "500ms", "-c"]);
    let output = command.arg(proxy.dir().join("nginx.conf")).output()?;
    let screen = String::from_utf8(output.stdout)?;
    for said in ["ORIGINS FAIL ", "5xx/s", " live"] {
        ensure!(screen.contains(said), "{said}: {screen}");
    }
    assert_eq!(screen.lines().count(), 24, "{screen}");
    assert!(
        screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
    if let Some(dir) = std::env::var_os("MILLPOND_PICTURES") {
        std::fs::write(Path::new(&dir).join("top.txt"), &screen)?;
    }
    let mut command = Command::new(binary(Kind::Millpond).context("the binary")?);
    command.args(["top", "--once", "--json", "--every", "500ms", "-c"]);
    let output = command.arg(proxy.dir().join("nginx.conf")).output()?;
    let figures: Value = serde_json::from_slice(&output.stdout)?;
    assert!(
        figures["exchanges"]["failed_per_s"].as_f64() > Some(0.0),
        "{figures}"
    );
    load.end()
}
