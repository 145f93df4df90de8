//! `dashboard`: the nodes of the fleet, as one of them shows them.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Browser, LogCheck, Origin};
use serde_json::json;

use crate::config::{Desk, pushed};
use crate::kit::{NODE, Nats, Node, node_of};
use crate::nats;

/// Rows of the table: name, state, position and version of each node.
const ROWS: &str = "[...document.querySelectorAll('#fleets tbody tr')].map((row) =>
    [0, 2, 4, 6].map((number) => row.children[number].textContent).join(' ')).join('; ')";
/// Lag of a node by its own words, in seconds.
const LAG: &str = "parseFloat(document.querySelector('#fleets tbody tr').children[3].textContent)";

#[test]
fn dashboard_shows_all_nodes_and_the_one_that_has_died() -> Result<()> {
    let nats = nats!();
    let Some(mut browser) = Browser::start(1280, 900)? else {
        millpond_testkit::skip("there is no Chromium");
        return Ok(());
    };
    let origin = Origin::start()?;
    let conf = NODE.replace(
        "location = /ready",
        "location /look { dashboard; } location = /ready",
    );
    let start = |name| Node::start(node_of(&conf, (name, nats.port), &origin));
    let (first, mut second) = (start("n1")?, start("n2")?);
    first.purge_everywhere("/a")?;
    browser.open(&format!("http://127.0.0.1:{}/look", first.proxy.port()))?;
    // Positions go on with each beat.
    let known = format!("{ROWS}.replaceAll(/ [0-9,]+ (?=\\d+\\.\\d+\\.\\d+)/g, ' at ')");
    let version = env!("CARGO_PKG_VERSION");
    let all = format!("n1 (this one) up to date at {version}; n2 up to date at {version}");
    browser.wait_for(&known, &json!(all))?;
    let lag = browser.eval(LAG)?.as_f64().context("a lag")?;
    ensure!((0.0..=3.0).contains(&lag), "{lag}");
    if let Some(dir) = std::env::var_os("MILLPOND_PICTURES") {
        browser.eval("document.getElementById('fleets').scrollIntoView()")?;
        let taken = browser.call("Page.captureScreenshot", json!({ "format": "png" }))?;
        let file = std::path::Path::new(&dir).join("fleet.png.base64");
        std::fs::write(file, taken["data"].as_str().context("a picture")?)?;
    }

    second.proxy.kill9()?;
    let silent = format!("n1 (this one) up to date at {version}; n2 silent at {version}");
    browser.wait_for(&known, &json!(silent))?;
    let problems = browser.take_problems();
    ensure!(problems.is_empty(), "{problems:?}");
    Ok(())
}

/// Columns of a table, row by row.
fn rows(section: &str, columns: &[usize]) -> String {
    format!(
        "[...document.querySelectorAll('#{section} tbody tr')].map((row) =>
        {columns:?}.map((number) => row.children[number].textContent).join(' ')).join('; ')"
    )
}

#[test]
fn dashboard_shows_what_nodes_have_made_of_configuration_and_how_a_tier_is() -> Result<()> {
    const LIMIT: &str = "limit_req_zone $uri zone=pages:1m rate=1r/s;";
    let nats = nats!();
    let Some(mut browser) = Browser::start(1280, 900)? else {
        millpond_testkit::skip("there is no Chromium");
        return Ok(());
    };
    let (desk, folder) = (Desk::new()?, tempfile::tempdir()?);
    let place = format!("file://{}", folder.path().display());
    let zone = format!(
        "proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m fleet=edge tier={place};"
    );
    let able = Node::start(desk.builder("able", nats.port, &zone)?)?;
    let unable = desk.builder("unable", nats.port, LIMIT)?;
    let _unable = Node::start(unable.log_check(LogCheck::Off))?;
    browser.open(&format!("http://127.0.0.1:{}/look", able.proxy.port()))?;
    let tier = json!(format!("z {place} asked 0 0"));
    browser.wait_for(&rows("tiers", &[0, 1, 2, 10, 11]), &tier)?;

    desk.push(&able, &pushed("one"), &[])?;
    let settled = json!("able (this one) settled 1; unable settled 1");
    let states = rows("rollout", &[0, 2, 3]);
    browser.wait_for(&states, &settled)?;
    std::fs::write(desk.path("conf/more/zone.conf"), LIMIT)?;
    desk.push(&able, &pushed("two"), &[])?;
    let refused = json!("able (this one) settled 2; unable refused 1");
    browser.wait_for(&states, &refused)?;
    let told = "document.querySelector('#rollout tbody tr:last-child').children[5].textContent
        .includes('pages') + ' ' + document.querySelector('#rollout li').textContent
        .startsWith('Revision 2 (')
        + ' ' + document.querySelector('#attention').textContent
        .includes('Node unable of fleet edge: revision 2 of the configuration is refused: ')";
    browser.wait_for(told, &json!("true true true"))?;
    if let Some(dir) = std::env::var_os("MILLPOND_PICTURES") {
        browser.eval("document.getElementById('rollout').scrollIntoView()")?;
        let taken = browser.call("Page.captureScreenshot", json!({ "format": "png" }))?;
        let file = std::path::Path::new(&dir).join("rollout.png.base64");
        std::fs::write(file, taken["data"].as_str().context("a picture")?)?;
    }
    let problems = browser.take_problems();
    ensure!(problems.is_empty(), "{problems:?}");
    Ok(())
}
