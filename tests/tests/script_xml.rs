//! The module `xml`: njs's own tests of it, where a clone of njs is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use millpond_testkit::{Client, Kind, LogCheck, Proxy, skip};

const CONF: &str = "
    %%GLOBALS%%
    events {}
    http {
    %%HTTP%%
    js_import test.js;
    js_time_limit 60s;
    js_context_reuse 0;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { js_content test.report; }
    }
    }";

/// The files that njs's tests say they include, and what they report to.
const INCLUDES: [&str; 5] = [
    "assert.js",
    "compatFs.js",
    "compatWebcrypto.js",
    "compatNjs.js",
    "runTsuite.js",
];
const REPORT: &str = "
    globalThis.told = ['not done'];
    console.log = (text) => told.push(text);
    globalThis.$DONE = (error) => { told[0] = error === undefined ? 'done' : String(error); };
    const report = (r) => r.return(200, told.join('\\n'));
    export default { report };";

/// The folder `test` of njs, beside the tests of its module for nginx.
fn folder() -> Option<PathBuf> {
    let nginx = PathBuf::from(std::env::var_os("NJS_TESTS_DIR")?);
    let njs = nginx.parent()?.parent()?;
    Some(njs.join("test"))
}

fn told(folder: &Path, file: &str) -> Result<String> {
    let read = |path: &Path| {
        let text = fs::read_to_string(path);
        text.with_context(|| path.display().to_string())
    };
    let mut text = REPORT.to_string();
    for name in INCLUDES {
        text += &read(&folder.join("harness").join(name))?;
    }
    // Its paths begin where njs lies.
    let here = format!("`{}/", folder.display());
    text += &read(&folder.join("xml").join(file))?.replace("`test/", &here);
    if !text.contains("$DONE)") {
        text += "$DONE();";
    }
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .file("test.js", text)
        .log_check(LogCheck::Off)
        .start()?;
    Ok(Client::new(proxy.port()).get("/")?.text())
}

#[test]
fn tests_of_njs_pass() -> Result<()> {
    let Some(folder) = folder() else {
        skip("NJS_TESTS_DIR is not set");
        return Ok(());
    };
    for file in [
        "xml.t.mjs",
        "saml_verify.t.mjs",
        "external_entity_ignored.t.js",
    ] {
        let told = told(&folder, file)?;
        ensure!(told == "done", "{file}: {told}");
    }
    Ok(())
}
