//! `proxy_cache_encodings … dcb dcz`: stored answers that are encoded by a dictionary which the
//! client has (RFC 9842).
//!
//! What comes is decoded by the programs `brotli` and `zstd` where they are there and know
//! dictionaries, and always by the libraries.

use std::fs;
use std::io::Read;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Kind, Origin, Proxy, Request, Response};
use sha2::{Digest, Sha256};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m;
    proxy_cache z;
    proxy_cache_key $host$uri$is_args$args;
    proxy_cache_valid any 1h;
    proxy_cache_encodings br zstd dcb dcz;
    add_header X-Cache $upstream_cache_status always;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache_purge PURGE types=all;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /plain/ { proxy_pass http://%%ORIGIN%%; proxy_cache_encodings br; }
        location = /metrics { metrics; }
    }";

/// Time that an encoding may take to be made on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn script(version: u32) -> String {
    let line = |it: u32| {
        format!(
            "function f{}(x) {{ return x * {}; }}\n",
            it,
            it * 7919 % 1009
        )
    };
    let lines: String = (0..400).map(line).collect();
    format!("// version {version}\n{lines}")
}

fn answer(version: u32) -> Answer {
    Answer::new(200)
        .header("Content-Type", "text/javascript")
        .header("ETag", &format!("\"{version}\""))
        .body(script(version))
}

/// Available-Dictionary for a body.
fn available(body: &str) -> String {
    format!(":{}:", base64(&Sha256::digest(body)))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let number = (0..3).fold(0, |sum, it| {
            sum << 8 | u32::from(three.get(it).copied().unwrap_or(0))
        });
        let letter = |it: usize| {
            let is_used = it <= three.len();
            let letter = LETTERS[(number >> (18 - 6 * it) & 63) as usize];
            if is_used { char::from(letter) } else { '=' }
        };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

struct Site {
    client: Client,
    proxy: Proxy,
    origin: Origin,
}

impl Site {
    fn start() -> Result<Self> {
        let origin = Origin::start()?;
        let offers = |version, field: &str| answer(version).header("Use-As-Dictionary", field);
        origin.route("/app/1.js", offers(1, "match=\"/app/*.js\", id=\"one\""));
        origin.route("/app/*", answer(2));
        origin.route("/other/*", answer(3));
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        Ok(Site {
            client: Client::new(proxy.port()),
            proxy,
            origin,
        })
    }

    fn get(&self, (host, path): (&str, &str), fields: &[(&str, &str)]) -> Result<Response> {
        let request = Request::get(path).host(host);
        let with = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
        self.client.send(&fields.iter().fold(request, with))
    }

    /// Asks as a client that has version 1.
    fn get_by(&self, path: &str, coding: &str) -> Result<Response> {
        let hash = available(&script(1));
        let fields = [("Accept-Encoding", coding), ("Available-Dictionary", &hash)];
        self.get(("shop.example", path), &fields)
    }

    /// The same, until the answer is in the coding.
    fn get_in(&self, path: &str, coding: &str) -> Result<Response> {
        let look = || match self.get_by(path, coding) {
            Ok(response) if response.header("Content-Encoding") != Some(coding) => None,
            done => Some(done),
        };
        let kept = Deadline::after(PATIENCE).poll(look);
        kept.with_context(|| format!("{path} is not kept in {coding}"))?
    }

    /// Has version 1 kept as a dictionary.
    fn keep_dictionary(&self) -> Result<()> {
        for _ in 0..2 {
            self.get(("shop.example", "/app/1.js"), &[])?;
        }
        Deadline::after(PATIENCE)
            .poll(|| (self.counted("dictionary_kept").ok()? == 1).then_some(()))
            .context("no dictionary is kept")
    }

    fn counted(&self, rule: &str) -> Result<u64> {
        let page = self.client.get("/metrics")?.text();
        let label = format!("rule=\"{rule}\"}} ");
        let found = page.lines().find_map(|line| line.split_once(&label));
        Ok(found.context("no such rule")?.1.parse()?)
    }
}

/// The body behind magic number and hash (§4, §5), decoded with a dictionary.
fn decode(coding: &str, body: &[u8], dictionary: &str) -> Result<String> {
    let magic: &[u8] = match coding {
        "dcb" => &[0xff, 0x44, 0x43, 0x42],
        _ => &[0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0],
    };
    let stream = body.strip_prefix(magic).context("the magic number")?;
    let hash = Sha256::digest(dictionary);
    let stream = stream.strip_prefix(&hash[..]).context("the hash")?;
    let mut text = String::new();
    let dictionary = dictionary.as_bytes();
    if coding == "dcb" {
        let bytes = dictionary.to_vec().into();
        brotli::Decompressor::new_with_custom_dict(stream, 4096, bytes)
            .read_to_string(&mut text)?;
    } else {
        zstd::stream::read::Decoder::with_ref_prefix(stream, dictionary)?
            .read_to_string(&mut text)?;
    }
    let folder = tempfile::tempdir()?;
    let (encoded, with) = (folder.path().join("encoded"), folder.path().join("with"));
    // A reader of zstd skips the frame with the hash.
    fs::write(&encoded, if coding == "dcb" { stream } else { body })?;
    fs::write(&with, dictionary)?;
    let (program, option) = match coding {
        "dcb" => ("brotli", "--dictionary="),
        _ => ("zstd", "--patch-from="),
    };
    let help = Command::new(program).arg("-h").arg("-v").output();
    if help
        .is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains(option.trim_end_matches('=')))
    {
        let mut command = Command::new(program);
        let decoded = command
            .args(["-d", "-c"])
            .arg(format!("{option}{}", with.display()))
            .arg(&encoded)
            .output()?;
        ensure!(decoded.status.success(), "{decoded:?}");
        ensure!(
            decoded.stdout == text.as_bytes(),
            "{program} reads something else"
        );
    }
    Ok(text)
}

/// §2.1, §2.2, §4, §5.
#[test]
fn a_client_that_has_a_dictionary_gets_what_differs_from_it() -> Result<()> {
    let site = Site::start()?;
    site.keep_dictionary()?;
    site.get(("shop.example", "/app/2.js"), &[])?;
    for coding in ["dcb", "dcz"] {
        let response = site.get_in("/app/2.js", coding)?;
        assert_eq!(decode(coding, &response.body, &script(1))?, script(2));
        ensure!(
            response.body.len() < 120,
            "{coding}: {}",
            response.body.len()
        );
        // §2.2: caches tell answers apart by both fields.
        assert_eq!(
            response.header("Vary"),
            Some("Accept-Encoding, Available-Dictionary")
        );
        let tag = response.header("ETag").context("no tag")?;
        ensure!(tag.starts_with(&format!("\"2-{coding}-")), "{tag}");
        let conditional = [
            ("Accept-Encoding", coding),
            ("Available-Dictionary", &available(&script(1))),
            ("If-None-Match", tag),
        ];
        let unchanged = site.get(("shop.example", "/app/2.js"), &conditional)?;
        assert_eq!(unchanged.status, 304);
    }
    // Without the dictionary the answer is another one, and says what it depends on.
    let plain = site.get(
        ("shop.example", "/app/2.js"),
        &[("Accept-Encoding", "dcb, dcz")],
    )?;
    assert_eq!(
        (plain.header("Content-Encoding"), plain.text()),
        (None, script(2))
    );
    assert_eq!(
        plain.header("Vary"),
        Some("Accept-Encoding, Available-Dictionary")
    );
    assert_eq!(site.origin.requests().len(), 2);
    assert!(site.counted("dictionary_hit")? >= 4);
    Ok(())
}

/// §2.1.1: a dictionary is for URLs that match, of its own origin; §2.2, §2.3: by its hash, and by
/// its id where one is said.
#[test]
fn a_dictionary_is_used_for_nothing_that_it_is_not_for() -> Result<()> {
    let site = Site::start()?;
    site.keep_dictionary()?;
    let hash = available(&script(1));
    let other = available(&script(2));
    let with = |hash| {
        vec![
            ("Accept-Encoding", "dcb, dcz"),
            ("Available-Dictionary", hash),
        ]
    };
    let named = |id| {
        let mut fields = with(hash.as_str());
        fields.push(("Dictionary-ID", id));
        fields
    };
    let cases = [
        (("shop.example", "/other/2.js"), with(&hash)),
        (("shop.example", "/app/2.css"), with(&hash)),
        (("mill.example", "/app/2.js"), with(&hash)),
        (("shop.example", "/plain/2.js"), with(&hash)),
        (("shop.example", "/app/3.js"), with(&other)),
        (("shop.example", "/app/3.js"), with("one")),
        (("shop.example", "/app/3.js"), named("\"two\"")),
    ];
    for _ in 0..2 {
        for (place, fields) in &cases {
            site.get(*place, fields)?;
        }
    }
    // What is made is made one after another.
    site.get(("shop.example", "/app/2.js"), &[])?;
    site.get_in("/app/2.js", "dcz")?;
    let right = site.get(("shop.example", "/app/2.js"), &named("\"one\""))?;
    ensure!(right.header("Content-Encoding").is_some());
    for (place, fields) in &cases {
        let response = site.get(*place, fields)?;
        assert_eq!(
            response.header("Content-Encoding"),
            None,
            "{place:?} {fields:?}"
        );
    }
    Ok(())
}

/// The version that clients have is one that the origin has replaced.
#[test]
fn a_dictionary_outlives_a_restart_and_its_resource_but_no_purge_of_all() -> Result<()> {
    let mut site = Site::start()?;
    site.keep_dictionary()?;
    site.proxy.restart()?;
    site.client = Client::new(site.proxy.port());
    site.origin.route("/app/1.js", answer(4));
    site.get(("shop.example", "/app/2.js"), &[])?;
    let response = site.get_in("/app/2.js", "dcz")?;
    assert_eq!(decode("dcz", &response.body, &script(1))?, script(2));
    let purge = Request::new("PURGE", "/").header("Purge-Type", "all");
    assert_eq!(site.client.send(&purge)?.status, 200);
    // What is made is made one after another, so that the second look comes late enough.
    for path in ["/app/2.js", "/app/3.js"] {
        site.get(("shop.example", path), &[])?;
        site.get_in(path, "br")?;
        let response = site.get_by("/app/2.js", "dcb, dcz")?;
        assert_eq!(response.header("Content-Encoding"), None);
    }
    Ok(())
}
