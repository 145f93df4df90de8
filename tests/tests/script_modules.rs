//! Modules that scripts find, as requests use them: `fs`, `process`, forms; and what they may cost.

use anyhow::{Result, ensure};
use millpond_testkit::{Client, Kind, LogCheck, Proxy, Request};

const CONF: &str = "
    %%GLOBALS%%
    env GIVEN;
    env SET=here;
    events {}
    http {
    %%HTTP%%
    js_import one.js;
    js_time_limit 200ms;
    js_memory_limit 16m;
    server {
        listen 127.0.0.1:%%PORT%%;
        client_body_buffer_size 64k;
        location /env { js_content one.env; }
        location /count { js_content one.count; }
        location /form { js_content one.form; }
        location /big { js_content one.big; }
        location /pipe { js_content one.pipe; }
        location /alive { return 200 alive; }
    }
    }";

const ONE: &str = r#"
    import fs from 'fs';
    function env(r) {
        const { GIVEN, SET, OTHER } = process.env;
        r.return(200, [GIVEN, SET, OTHER, process.pid === process.ppid, process.argv.length > 0]);
    }
    async function count(r) {
        const path = `${ngx.conf_prefix}count`;
        const handle = await fs.promises.open(path, 'a');
        await handle.write('x');
        await handle.close();
        r.return(200, (await fs.promises.stat(path)).size);
    }
    async function form(r) {
        try {
            const form = await r.readRequestForm({ maxKeys: 3 });
            const told = [];
            form.forEach((value, key) => told.push(`${key}:${value.name || value}`));
            r.return(200, `${told} ${form.has('a')} ${form.hasFiles()} ${form.get('none')}`);
        } catch (error) {
            r.return(400, error.message);
        }
    }
    function big(r) { r.return(200, fs.readFileSync('/dev/zero').length); }
    function pipe(r) { r.return(200, fs.readFileSync(`${ngx.conf_prefix}pipe`).length); }
    export default { env, count, form, big, pipe };"#;

fn proxy() -> Result<Proxy> {
    Proxy::new(Kind::Millpond, CONF)
        .file("one.js", ONE)
        .variable("GIVEN", "by the shell")
        .variable("OTHER", "hidden")
        .log_check(LogCheck::Off)
        .start()
}

#[test]
fn scripts_see_files_and_the_variables_that_they_may() -> Result<()> {
    let proxy = proxy()?;
    let client = Client::new(proxy.port());
    let text = client.get("/env")?.text();
    ensure!(text == "by the shell,here,,false,true", "{text}");
    for expected in ["1", "2", "3"] {
        let text = client.get("/count")?.text();
        ensure!(text == expected, "{text}");
    }
    ensure!(proxy.read_file("count") == "xxx");
    Ok(())
}

#[test]
fn what_never_ends_ends_its_request_only() -> Result<()> {
    let proxy = proxy()?;
    let client = Client::new(proxy.port());
    ensure!(client.get("/big")?.status == 500);
    let pipe = proxy.dir().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status()?;
    ensure!(made.success());
    // Nobody writes to it.
    let response = client.get("/pipe")?;
    ensure!(response.text() == "0", "{}", response.text());
    ensure!(client.get("/alive")?.text() == "alive");
    ensure!(
        proxy
            .error_log()
            .contains("js exception: Error: File too large")
    );
    Ok(())
}

#[test]
fn forms_are_read() -> Result<()> {
    let proxy = proxy()?;
    let client = Client::new(proxy.port());
    let multipart = "multipart/form-data; boundary=\"b\"";
    let part = |name: &str, value: &str| {
        format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\n{value}\r\n")
    };
    let whole = part("name=a", "1") + &part("name=\"f\"; filename=\"x.txt\"", "--b") + "--b--\r\n";
    let plain = "application/x-www-form-urlencoded; charset=utf-8";
    for (kind, body, status, text) in [
        (
            plain,
            "a=1+2&b=%C3%A4&=c",
            200,
            "a:1 2,b:ä,:c true false null",
        ),
        (plain, "", 200, " false false null"),
        (plain, "a=1&a=2&a=3&a=4", 400, "maxKeys limit exceeded"),
        (plain, "a=%4", 400, "malformed percent escape"),
        (multipart, whole.as_str(), 200, "a:1,f:x.txt true true null"),
        (multipart, "--b--", 200, " false false null"),
        (
            multipart,
            "--b\r\n\r\n\r\n--b--",
            400,
            "missing Content-Disposition header",
        ),
        (
            multipart,
            "--b\r\n",
            400,
            "missing multipart header separator",
        ),
        (multipart, "--c--", 400, "malformed multipart body"),
        (
            "multipart/form-data",
            "--b--",
            400,
            "multipart boundary is required",
        ),
        ("text/plain", "a=1", 400, "unsupported content type"),
    ] {
        let request = Request::new("POST", "/form").header("Content-Type", kind);
        let response = client.send(&request.body(body))?;
        ensure!(
            (response.status, response.text().as_str()) == (status, text),
            "{kind} {body}: {} {}",
            response.status,
            response.text()
        );
    }
    Ok(())
}
