//! `proxy_aws_sign`: requests to an origin that only answers what is signed.
//!
//! The verifier here is written from the description of Signature Version 4, and shares nothing
//! with what it judges; versitygw, an S3 server, is asked besides where it is installed.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use aws_lc_rs::{digest, hmac};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, Manners, Origin, Proxy, Recorded, Request, Resource,
    Response, free_port, skip,
};

const ID: &str = "AKIDMILLPOND";
const SECRET: &str = "hush/HUSH+secret";
const TOKEN: &str = "token/of+session=";
const REGION: &str = "eu-north-1";

const CONF: &str = "
    proxy_cache_path cache keys_zone=pond:1m;
    log_format asked '$upstream_method $upstream_uri $upstream_range $upstream_status';
    upstream_log upstream.log asked;
    upstream tries { server 127.0.0.1:%%PORT_DEAD%%; server %%ORIGIN%%; }
    map $arg_v $secret { default hush/HUSH+secret; wrong wrong; }
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_set_header Host bucket.s3.example;
        client_body_buffer_size 8k;
        location / {
            proxy_aws_sign region=eu-north-1 access_key=AKIDMILLPOND secret_key=$secret
                           session_token=token/of+session=;
            proxy_pass http://%%ORIGIN%%;
        }
        location /file/ {
            proxy_aws_sign region=eu-north-1 credentials=keys.ini profile=pond;
            proxy_pass http://%%ORIGIN%%;
        }
        location /chunks/ {
            proxy_aws_sign region=eu-north-1 access_key=AKIDMILLPOND secret_key=$secret
                           payload=signed;
            proxy_pass http://%%ORIGIN%%;
        }
        location /stream/ {
            proxy_aws_sign region=eu-north-1 access_key=AKIDMILLPOND secret_key=$secret
                           payload=signed;
            proxy_request_buffering off;
            proxy_pass http://%%ORIGIN%%;
        }
        location /es/ {
            proxy_aws_sign region=eu-north-1 service=es access_key=AKIDMILLPOND secret_key=$secret;
            proxy_request_buffering off;
            proxy_pass http://%%ORIGIN%%;
        }
        location /sliced/ {
            proxy_aws_sign region=eu-north-1 access_key=AKIDMILLPOND secret_key=$secret;
            proxy_cache pond; proxy_cache_valid 200 206 1h; slice 64k;
            proxy_pass http://%%ORIGIN%%;
        }
        location /stale/ {
            proxy_aws_sign region=eu-north-1 access_key=AKIDMILLPOND secret_key=$secret;
            proxy_cache pond; proxy_cache_revalidate on; proxy_cache_background_update on;
            proxy_cache_use_stale updating;
            proxy_pass http://%%ORIGIN%%;
        }
        location /tries/ {
            proxy_aws_sign region=eu-north-1 access_key=AKIDMILLPOND secret_key=$secret;
            proxy_next_upstream error http_503;
            proxy_pass http://tries;
        }
        location /unsigned/ { proxy_aws_sign off; proxy_pass http://%%ORIGIN%%; }
    }";

fn keys(secret: &str) -> String {
    format!(
        "[default]\naws_access_key_id = no\n[pond]\naws_access_key_id = {ID}\n\
         aws_secret_access_key = {secret}\n"
    )
}

fn start(origin: &Origin, conf: &str) -> Result<Proxy> {
    Proxy::new(Kind::Millpond, conf)
        .origin(origin)
        .file("keys.ini", keys(SECRET))
        .start()
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Escapes are undone, and done again as AWS does them.
fn respell(text: &str, kept: &str) -> String {
    let (mut out, bytes) = (String::new(), text.as_bytes());
    let mut at = 0;
    while at < bytes.len() {
        let escape = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let byte = match escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                at += 2;
                byte
            }
            None => bytes[at],
        };
        at += 1;
        if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The claims of an Authorization field.
struct Claims {
    scope: String,
    names: String,
    signature: String,
    time: String,
    key: Vec<u8>,
}

fn claims(request: &Recorded, service: &str) -> Result<Claims> {
    let field = request.header("Authorization").context("a signature")?;
    let rest = field
        .strip_prefix("AWS4-HMAC-SHA256 ")
        .context(field.to_string())?;
    let parts: BTreeMap<_, _> = rest
        .split(',')
        .filter_map(|it| it.trim().split_once('='))
        .collect();
    let (id, scope) = parts["Credential"].split_once('/').context("a scope")?;
    ensure!(id == ID, "{id}");
    let time = request.header("X-Amz-Date").context("a time")?.to_string();
    let day = &time[..8];
    ensure!(
        scope == format!("{day}/{REGION}/{service}/aws4_request"),
        "{scope}"
    );
    let mut key = mac(format!("AWS4{SECRET}").as_bytes(), day.as_bytes());
    for part in [REGION, service, "aws4_request"] {
        key = mac(&key, part.as_bytes());
    }
    Ok(Claims {
        key,
        time,
        scope: scope.to_string(),
        names: parts["SignedHeaders"].to_string(),
        signature: parts["Signature"].to_string(),
    })
}

/// Checks a request; its body, without signed chunks.
fn verify(request: &Recorded, service: &str) -> Result<Vec<u8>> {
    let claims = claims(request, service)?;
    let (path, query) = request
        .target
        .split_once('?')
        .unwrap_or((&request.target, ""));
    let path = match service {
        "s3" => respell(path, "-._~/"),
        _ => path.replace('%', "%25"),
    };
    let query = query.split('&').filter(|it| !it.is_empty());
    let spell = |text: &str| respell(&text.replace('+', "%20"), "-._~");
    let mut query: Vec<String> = query
        .map(|it| it.split_once('=').unwrap_or((it, "")))
        .map(|(name, value)| format!("{}={}", spell(name), spell(value)))
        .collect();
    query.sort();
    let mut lines = String::new();
    for name in claims.names.split(';') {
        let value = request.header(name).with_context(|| format!("no {name}"))?;
        lines.push_str(&format!("{name}:{}\n", value.trim()));
    }
    for (name, _) in request.headers.0.iter() {
        let name = name.to_ascii_lowercase();
        let must = name == "host" || name == "range" || name.starts_with("x-amz-");
        let is_signed = claims.names.split(';').any(|it| it == name);
        ensure!(!must || is_signed, "{name} is not signed");
    }
    let told = request.header("X-Amz-Content-Sha256");
    ensure!(told.is_some() == (service == "s3"), "{told:?}");
    let hash = told.map_or_else(|| sha(&request.body), str::to_string);
    let canonical = format!(
        "{}\n{path}\n{}\n{lines}\n{}\n{hash}",
        request.method,
        query.join("&"),
        claims.names
    );
    let (time, scope) = (&claims.time, &claims.scope);
    let text = format!(
        "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
        sha(canonical.as_bytes())
    );
    let own = hex(&mac(&claims.key, text.as_bytes()));
    ensure!(own == claims.signature, "another signature: {canonical}");
    match hash.as_str() {
        "UNSIGNED-PAYLOAD" => Ok(request.body.clone()),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => unchunk(request, &claims),
        hash => {
            ensure!(hash == sha(&request.body), "another body");
            Ok(request.body.clone())
        }
    }
}

/// The body of signed chunks.
fn unchunk(request: &Recorded, claims: &Claims) -> Result<Vec<u8>> {
    ensure!(request.header("Content-Encoding") == Some("aws-chunked"));
    let (mut rest, mut body, mut last) = (&request.body[..], Vec::new(), claims.signature.clone());
    loop {
        let end = rest
            .windows(2)
            .position(|it| it == b"\r\n")
            .context("a line")?;
        let line = std::str::from_utf8(&rest[..end])?;
        let (len, signature) = line
            .split_once(";chunk-signature=")
            .context("a signature")?;
        let len = usize::from_str_radix(len, 16)?;
        let chunk = rest.get(end + 2..end + 2 + len).context("a chunk")?;
        let (time, scope) = (&claims.time, &claims.scope);
        let text = format!(
            "AWS4-HMAC-SHA256-PAYLOAD\n{time}\n{scope}\n{last}\n{}\n{}",
            sha(b""),
            sha(chunk)
        );
        last = hex(&mac(&claims.key, text.as_bytes()));
        ensure!(last == signature, "another signature of a chunk");
        body.extend_from_slice(chunk);
        rest = &rest[end + 2 + len + 2..];
        if len == 0 {
            ensure!(rest.is_empty(), "bytes behind the end");
            let told = request.header("X-Amz-Decoded-Content-Length");
            ensure!(told == Some(&body.len().to_string()), "{told:?}");
            return Ok(body);
        }
    }
}

fn last(origin: &Origin) -> Result<Recorded> {
    origin.requests().pop().context("a request")
}

#[test]
fn requests_are_signed_in_the_spelling_that_is_sent() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200));
    let proxy = start(&origin, CONF)?;
    let client = Client::new(proxy.port());
    for target in [
        "/",
        "/a%20b+c/%C3%A4?x-id=GetObject&list-type=2&prefix=a%2Fb+c&acl",
        "/a//b",
        "/?b=1&a=2&a=1&&c",
    ] {
        assert_eq!(client.get(target)?.status, 200, "{target}");
        let request = last(&origin)?;
        verify(&request, "s3").context(target)?;
        assert_eq!(request.header("X-Amz-Security-Token"), Some(TOKEN));
        assert_eq!(request.header("Host"), Some("bucket.s3.example"));
        // The time is now.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let time = request.header("X-Amz-Date").context("a time")?;
        let seconds: u64 = time[9..11].parse::<u64>()? * 3600
            + time[11..13].parse::<u64>()? * 60
            + time[13..15].parse::<u64>()?;
        let apart = (now % 86_400).abs_diff(seconds);
        assert!(!(60..=86_340).contains(&apart), "{time}");
    }
    client.send(&Request::get("/r").header("Range", "bytes=3-7"))?;
    let request = last(&origin)?;
    verify(&request, "s3")?;
    assert_eq!(request.header("Range"), Some("bytes=3-7"));
    client.get("/unsigned/x")?;
    assert_eq!(last(&origin)?.header("Authorization"), None);
    Ok(())
}

/// Nobody gets what is not theirs signed with this server's keys.
#[test]
fn fields_of_a_client_for_aws_are_not_signed() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200));
    let proxy = start(&origin, CONF)?;
    let request = Request::get("/x")
        .header("Authorization", "Basic eDp5")
        .header("X-Amz-Copy-Source", "/other/thing")
        .header("x-amz-acl", "public-read");
    Client::new(proxy.port()).send(&request)?;
    let request = last(&origin)?;
    verify(&request, "s3")?;
    assert_eq!(request.header("X-Amz-Copy-Source"), None);
    assert_eq!(request.header("x-amz-acl"), None);
    Ok(())
}

#[test]
fn bodies_are_hashed_unsigned_or_in_signed_chunks() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200));
    let proxy = start(&origin, CONF)?;
    let client = Client::new(proxy.port());
    let (small, large) = (vec![b's'; 100], vec![b'l'; 200_000]);
    for (path, body, expected) in [
        ("/x", &small, sha(&small)),
        ("/x", &large, "UNSIGNED-PAYLOAD".to_string()),
        ("/chunks/x", &small, sha(&small)),
        (
            "/chunks/x",
            &large,
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".to_string(),
        ),
        (
            "/stream/x",
            &large,
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".to_string(),
        ),
    ] {
        let request = Request::new("PUT", path).body(body);
        assert_eq!(client.send(&request)?.status, 200, "{path}");
        let request = last(&origin)?;
        assert_eq!(&verify(&request, "s3").context(path)?, body, "{path}");
        assert_eq!(
            request.header("X-Amz-Content-Sha256"),
            Some(&*expected),
            "{path}"
        );
    }
    // Other services want every body hashed, whatever is buffered.
    for body in [&small, &large] {
        assert_eq!(
            client
                .send(&Request::new("PUT", "/es/a%20b").body(body))?
                .status,
            200
        );
        verify(&last(&origin)?, "es")?;
    }
    Ok(())
}

#[test]
fn slices_refreshes_and_retries_are_signed_each() -> Result<()> {
    let origin = Origin::start()?;
    origin.resource("/sliced/*", &Resource::new(Manners::of(300_000)));
    let stale = Answer::new(200)
        .header("Cache-Control", "max-age=1")
        .etag("\"1\"")
        .body("x");
    origin.route("/stale/*", stale.revalidates());
    origin.sequence("/tries/*", vec![Answer::new(200)]);
    let proxy = start(&origin, CONF)?;
    let client = Client::new(proxy.port());
    assert_eq!(client.get("/sliced/x")?.body.len(), 300_000);
    let ranges: Vec<_> = origin
        .requests()
        .iter()
        .map(|it| it.header("Range").map(str::to_string))
        .collect();
    assert!(ranges.iter().any(Option::is_some), "{ranges:?}");
    // It is stale in a second, and refreshed in the background.
    let is_refresh = |it: &Recorded| it.header("If-None-Match").is_some();
    let refreshed = || {
        client.get("/stale/x").ok()?;
        origin.requests().iter().any(is_refresh).then_some(())
    };
    Deadline::after(Duration::from_secs(10))
        .poll(refreshed)
        .context("a refresh")?;
    for request in origin.requests() {
        verify(&request, "s3").with_context(|| format!("{request:?}"))?;
    }
    Ok(())
}

#[test]
fn a_try_of_another_peer_is_signed_too() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .file("keys.ini", keys(SECRET))
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    for _ in 0..2 {
        assert_eq!(client.get("/tries/x")?.status, 200);
        verify(&last(&origin)?, "s3")?;
    }
    assert!(proxy.error_log().contains("Connection refused"));
    Ok(())
}

/// A file of keys is read again; without one nothing is sent, and no key is told to anybody.
#[test]
fn keys_of_a_file_change_and_are_told_to_nobody() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200));
    let mut proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .log_check(LogCheck::Off)
        .file("keys.ini", "[pond]\naws_access_key_id=HUSH\n")
        .start()?;
    proxy.set_log_check(LogCheck::Off);
    let client = Client::new(proxy.port());
    assert_eq!(client.get("/file/x")?.status, 500);
    assert_eq!(origin.requests().len(), 0);
    let log = proxy.error_log();
    assert!(
        log.contains("the profile \"pond\" has no \"aws_secret_access_key\""),
        "{log}"
    );
    let is_good = || {
        client
            .get("/file/x")
            .is_ok_and(|it| it.status == 200)
            .then_some(())
    };
    let is_right = || {
        client.get("/file/x").ok()?;
        verify(&origin.requests().pop()?, "s3").ok().map(|_| ())
    };
    proxy.write_file("keys.ini", keys("HUSH"))?;
    Deadline::after(Duration::from_secs(10))
        .poll(is_good)
        .context("keys")?;
    assert!(verify(&last(&origin)?, "s3").is_err());
    proxy.write_file("keys.ini", keys(SECRET))?;
    Deadline::after(Duration::from_secs(10))
        .poll(is_right)
        .context("other keys")?;
    // A file that goes away leaves its keys.
    proxy.write_file("keys.ini", "")?;
    let is_told = || {
        proxy
            .error_log()
            .contains("older ones are used")
            .then_some(())
    };
    Deadline::after(Duration::from_secs(10))
        .poll(|| is_good().and_then(|()| is_told()))
        .context("a line")?;
    for told in [proxy.error_log(), proxy.read_file("upstream.log")] {
        assert!(
            !told.contains("HUSH") && !told.contains(SECRET) && !told.contains(TOKEN),
            "{told}"
        );
    }
    Ok(())
}

/// Neither a mistake in the line nor an explanation shows a key.
#[test]
fn keys_are_not_in_messages_of_the_configuration() -> Result<()> {
    let binary = millpond_testkit::binary(Kind::Millpond).context("the binary")?;
    let dir = tempfile::tempdir()?;
    let line = "proxy_aws_sign region=r access_key=AKID secret_key=HUSH session_token=HUSH";
    for (line, status) in [
        (format!("{line} what=x;"), false),
        (format!("{line} 'secretkey=HUSH';"), false),
        (format!("{line};"), true),
    ] {
        let conf = format!(
            "error_log e.log; pid x.pid; events {{}}\nhttp {{ access_log off; server {{ listen 127.0.0.1:9; location / {{\n{line}\n\
             proxy_pass http://127.0.0.1:9; }} }} }}"
        );
        std::fs::write(dir.path().join("nginx.conf"), conf)?;
        let run = |args: &[&str]| -> Result<(bool, String)> {
            let output = Command::new(&binary)
                .args(args)
                .current_dir(dir.path())
                .output()?;
            let text = [output.stdout, output.stderr].concat();
            Ok((
                output.status.success(),
                String::from_utf8_lossy(&text).into_owned(),
            ))
        };
        let prefix = format!("{}/", dir.path().display());
        let (tested, said) = run(&["-t", "-e", "stderr", "-p", &prefix, "-c", "nginx.conf"])?;
        assert_eq!(tested, status, "{said}");
        let (_, checked) = run(&["check", "nginx.conf"])?;
        let (is_explained, explained) = run(&["explain", "-c", "nginx.conf", "http://x:9/"])?;
        assert!(is_explained, "{explained}");
        for said in [said, checked, explained] {
            assert!(!said.contains("HUSH"), "{said}");
        }
    }
    Ok(())
}

/// versitygw, with a bucket.
struct Gateway {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Gateway {
    fn start() -> Result<Option<Gateway>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("a root")?;
        let named = std::env::var_os("VERSITYGW").map(PathBuf::from);
        let program = named.unwrap_or_else(|| root.join("target/tools/bin/versitygw"));
        if !program.is_file() {
            skip("versitygw is not installed: `cargo xtask setup`, where there is Go");
            return Ok(None);
        }
        let (port, dir) = (free_port()?, tempfile::tempdir()?);
        let (objects, sidecar) = (dir.path().join("objects"), dir.path().join("sidecar"));
        std::fs::create_dir_all(objects.join("bucket"))?;
        std::fs::create_dir(&sidecar)?;
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(program);
        command.args(["--port", &address, "--access", ID, "--secret", SECRET]);
        command.args(["--region", REGION, "posix", "--sidecar"]);
        command.arg(sidecar).arg(objects);
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let gateway = Gateway {
            child,
            port,
            _dir: dir,
        };
        let listens = || TcpStream::connect(("127.0.0.1", port)).ok();
        Deadline::after(Duration::from_secs(20))
            .poll(listens)
            .context("versitygw does not listen")?;
        Ok(Some(gateway))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// A server of S3 takes what is signed here: objects with names of all kinds, lists, parts of
/// objects, and uploads in each form.
#[test]
fn an_s3_server_answers() -> Result<()> {
    let Some(gateway) = Gateway::start()? else {
        return Ok(());
    };
    let address = format!("127.0.0.1:{}", gateway.port);
    // The bucket is the first part of the path; the location's name goes.
    let conf = CONF
        .replace("proxy_set_header Host bucket.s3.example;", "")
        .replace("session_token=token/of+session=", "")
        .replace("%%ORIGIN%%;\n", "%%S3%%/;\n");
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, &conf)
        .origin(&origin)
        .value("S3", &address)
        .file("keys.ini", keys(SECRET))
        .start()?;
    let client = Client::new(proxy.port());
    let put = |path: &str, body: &[u8]| -> Result<Response> {
        client.send(&Request::new("PUT", path).body(body))
    };
    let bodies = [vec![b'a'; 10], vec![b'b'; 300_000]];
    for (at, location) in ["/", "/chunks/", "/stream/", "/file/"]
        .into_iter()
        .enumerate()
    {
        for body in &bodies {
            let name = format!("bucket/a%20b+{at}%C3%A4/{}", body.len());
            let answer = put(&format!("{location}{name}"), body)?;
            assert_eq!(answer.status, 200, "{location}{name}: {}", answer.text());
            let read = client.get(&format!("/sliced/{name}"))?;
            assert_eq!((read.status, &read.body), (200, body), "{location}{name}");
        }
    }
    let part =
        client.send(&Request::get("/bucket/a%20b+1%C3%A4/10").header("Range", "bytes=2-4"))?;
    assert_eq!((part.status, part.text()), (206, "aaa".to_string()));
    let list = client.get("/bucket?list-type=2&prefix=a+b%2B1&max-keys=10")?;
    assert_eq!(list.status, 200, "{}", list.text());
    assert_eq!(list.text().matches("<Key>").count(), 2, "{}", list.text());
    assert_eq!(client.get("/bucket/a?v=wrong")?.status, 403);
    Ok(())
}

/// The values that nginx's S3 gateway is configured with, as its entry point settles them.
fn settings(bucket: &str) -> Vec<(&'static str, String)> {
    [
        ("AWS_ACCESS_KEY_ID", ID),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_SIGS_VERSION", "4"),
        ("S3_BUCKET_NAME", "bucket"),
        ("S3_SERVER", "127.0.0.1"),
        ("S3_SERVER_PORT", "443"),
        ("S3_SERVER_PROTO", "http"),
        ("S3_REGION", REGION),
        ("S3_STYLE", "path"),
        ("S3_SERVICE", "s3"),
        ("S3_UPSTREAM", bucket),
        ("S3_HOST_HEADER", bucket),
        ("DEBUG", "false"),
        ("ALLOW_DIRECTORY_LIST", "false"),
        ("PROVIDE_INDEX_PAGE", "false"),
        ("APPEND_SLASH_FOR_POSSIBLE_DIRECTORY", "false"),
        ("DIRECTORY_LISTING_PATH_PREFIX", ""),
        ("FOUR_O_FOUR_ON_EMPTY_BUCKET", "false"),
        ("STRIP_LEADING_DIRECTORY_PATH", ""),
        ("PREFIX_LEADING_DIRECTORY_PATH", ""),
        ("PROXY_CACHE_MAX_SIZE", "10m"),
        ("PROXY_CACHE_INACTIVE", "60m"),
        ("PROXY_CACHE_SLICE_SIZE", "1m"),
        ("PROXY_CACHE_VALID_OK", "1h"),
        ("PROXY_CACHE_VALID_NOTFOUND", "1m"),
        ("PROXY_CACHE_VALID_FORBIDDEN", "30s"),
        ("HEADER_PREFIXES_TO_STRIP", ""),
        ("CORS_ENABLED", "0"),
        ("CORS_ALLOWED_ORIGIN", "*"),
        ("CORS_ALLOW_PRIVATE_NETWORK_ACCESS", ""),
        ("LIMIT_METHODS_TO", "GET HEAD"),
        ("LIMIT_METHODS_TO_CSV", "GET, HEAD"),
        ("DNS_RESOLVERS", "127.0.0.1"),
    ]
    .map(|(name, value)| (name, value.to_string()))
    .into()
}

/// The text of a file of the gateway's, in the folder of its own or of the open-source nginx, with
/// values in place and files in the place of their includes.
fn gateway_file(folder: &Path, name: &str, settings: &[(&str, String)]) -> Result<String> {
    let places = [
        format!("common/etc/nginx/templates/{name}.template"),
        format!("oss/etc/nginx/templates/{name}.template"),
        format!("oss/etc/nginx/conf.d/{name}"),
    ];
    let mut found = places.iter().map(|place| folder.join(place));
    let path = found.find(|path| path.is_file());
    let mut text = std::fs::read_to_string(path.with_context(|| name.to_string())?)?;
    for (name, value) in settings {
        text = text.replace(&format!("${{{name}}}"), value);
        if name.contains('_') {
            text = text.replace(&format!("${name}"), value);
        }
    }
    text = text
        .replace("/var/cache/nginx/", "cache/")
        .replace("/etc/nginx/include/", "include/");
    let mut whole = String::new();
    for line in text.lines() {
        let included = line.trim().strip_prefix("include /etc/nginx/conf.d/");
        match included.and_then(|it| it.strip_suffix(';')) {
            // The folder has this one for what is added to the server.
            Some("gateway/s3_server.conf") => whole += "listen 127.0.0.1:%%PORT%%;",
            Some(name) => whole += &gateway_file(folder, name, settings)?,
            // XSLT, which is not supported, makes folders' pages only.
            None if line.trim().starts_with("xslt_") => {}
            None => whole += line,
        }
        whole.push('\n');
    }
    Ok(whole)
}

#[test]
fn the_gateway_of_nginx_runs_as_it_is() -> Result<()> {
    let Some(folder) = std::env::var_os("S3_GATEWAY_DIR").map(PathBuf::from) else {
        skip("S3_GATEWAY_DIR is not set");
        return Ok(());
    };
    let origin = Origin::start()?;
    let settings = settings(&origin.address());
    let read = |name: &str| gateway_file(&folder, name, &settings);
    let main = std::fs::read_to_string(folder.join("common/etc/nginx/nginx.conf"))?;
    let env: String = main
        .lines()
        .filter(|line| line.starts_with("env "))
        .collect();
    let http = read("upstreams.conf")? + &read("cache.conf")? + &read("default.conf")?;
    let conf = format!("%%GLOBALS%%\n{env}\nevents {{}}\nhttp {{ %%HTTP%%\n{http} }}");
    let mut proxy = Proxy::new(Kind::Millpond, &conf).log_check(LogCheck::Off);
    for name in ["awscredentials", "awssig2", "awssig4", "s3gateway", "utils"] {
        let path = format!("include/{name}.js");
        let text = std::fs::read(folder.join("common/etc/nginx").join(&path))?;
        proxy = proxy.file(&path, text);
    }
    for (name, value) in &settings {
        proxy = proxy.variable(name, value);
    }
    let proxy = proxy.start()?;
    let object = || {
        Answer::new(200)
            .header("x-amz-request-id", "1")
            .body("object")
    };
    origin.route("/bucket/a/b%20%28c%29.txt", object());
    origin.route("/bucket/none", Answer::new(404).body("<Error/>"));
    let client = Client::new(proxy.port());
    for _ in 0..2 {
        let response = client.get("/a/b%20(c).txt")?;
        ensure!(response.status == 200, "{response:?}");
        ensure!(response.text() == "object" && response.header("x-amz-request-id").is_none());
    }
    // The second one was answered from the cache.
    let asked = origin.requests();
    ensure!(asked.len() == 1, "{asked:?}");
    verify(&asked[0], "s3")?;
    ensure!(client.get("/none")?.status == 404);
    ensure!(client.send(&Request::new("PUT", "/a"))?.status == 405);
    ensure!(client.get("/health")?.status == 200);
    Ok(())
}
