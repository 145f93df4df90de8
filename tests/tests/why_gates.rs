//! `millpond why` and `millpond explain`: who may, which values skip the cache, and what becomes of
//! what is stale; what they say of a refusal is what a client gets.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Gate, Kind, LogCheck, Origin, Proxy, Request, binary,
};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const CONF: &str = "
%%GLOBALS%%
control unix:%%DIR%%/control;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/cache keys_zone=pond:1m max_size=20m;
    proxy_cache pond;
    proxy_cache_valid 200 1h;
    proxy_cache_key $host$uri;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache_bypass $arg_fresh $http_x_fresh; }
        location /denied { deny 127.0.0.1; allow all; proxy_pass http://%%ORIGIN%%; }
        location /allowed { allow 127.0.0.0/8; deny all; proxy_pass http://%%ORIGIN%%; }
        location /locked {
            auth_basic \"the realm\";
            auth_basic_user_file %%DIR%%/users;
            proxy_pass http://%%ORIGIN%%;
        }
        location /any {
            satisfy any;
            deny all;
            auth_basic \"the realm\";
            auth_basic_user_file %%DIR%%/users;
            proxy_pass http://%%ORIGIN%%;
        }
        location /read {
            limit_except GET { deny all; }
            proxy_pass http://%%ORIGIN%%;
        }
        location /waits { proxy_cache_valid 200 1s; proxy_pass http://%%ORIGIN%%; }
        location /updating {
            proxy_cache_valid 200 1s;
            proxy_cache_use_stale updating;
            proxy_pass http://%%ORIGIN%%;
        }
        location /behind {
            proxy_cache_valid 200 1s;
            proxy_cache_use_stale updating;
            proxy_cache_background_update on;
            proxy_pass http://%%ORIGIN%%;
        }
    }
}
";

const WAIT: Duration = Duration::from_secs(20);

struct Bench {
    origin: Origin,
    proxy: Proxy,
}

impl Bench {
    fn start() -> Result<Bench> {
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).body("page"));
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .origin(&origin)
            .file("users", "name:{PLAIN}secret\n")
            .log_check(LogCheck::Off)
            .start()?;
        Ok(Bench { origin, proxy })
    }

    fn run(&self, command: &str, path: &str, words: &[&str]) -> Result<String> {
        let url = format!("http://shop:{}{path}", self.proxy.port());
        let mut run = Command::new(binary(Kind::Millpond).context("the binary")?);
        run.args([command, &url, "-c"])
            .arg(self.proxy.dir().join("nginx.conf"));
        let output = run.args(words).output()?;
        let said = String::from_utf8(output.stdout)?;
        ensure!(
            !said.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(said)
    }

    fn get(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Result<u16> {
        let request = Request::new(method, path).host("shop");
        let with = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
        let request = fields.iter().fold(request, with);
        Ok(Client::new(self.proxy.port()).send(&request)?.status)
    }

    fn why(&self, path: &str, words: &[&str]) -> Result<Value> {
        let said = self.run("why", path, &[&["--json"], words].concat())?;
        Ok(serde_json::from_str(&said)?)
    }
}

/// Method, path, whether name and password are there, and what a gate says.
type Asked = (&'static str, &'static str, bool, Option<&'static str>);
const REQUESTS: [Asked; 9] = [
    ("GET", "/a", false, None),
    (
        "GET",
        "/denied",
        false,
        Some("\"deny\" keeps 127.0.0.1 out (403)"),
    ),
    (
        "GET",
        "/allowed",
        false,
        Some("\"allow\" lets 127.0.0.1 in"),
    ),
    (
        "GET",
        "/locked",
        false,
        Some("\"auth_basic\" wants a name and a password"),
    ),
    (
        "GET",
        "/locked",
        true,
        Some("\"auth_basic\" checks the name and the password"),
    ),
    (
        "GET",
        "/any",
        false,
        Some("\"satisfy any\": one gate that opens is enough"),
    ),
    (
        "GET",
        "/any",
        true,
        Some("\"satisfy any\": one gate that opens is enough"),
    ),
    ("GET", "/read", false, None),
    (
        "POST",
        "/read",
        false,
        Some("\"limit_except\" of the location does not name POST"),
    ),
];

#[test]
fn a_refusal_that_is_told_is_the_one_that_clients_get() -> Result<()> {
    let bench = Bench::start()?;
    let password = ("Authorization", "Basic bmFtZTpzZWNyZXQ=");
    let field = "Authorization: Basic bmFtZTpzZWNyZXQ=";
    for (method, path, is_known, gate) in REQUESTS {
        let context = format!("{method} {path} {is_known}");
        let fields = if is_known { &[password][..] } else { &[] };
        let status = bench.get(method, path, fields)?;
        let mut words = vec!["-X", method];
        if is_known {
            words.extend(["-H", field]);
        }
        let told = bench.why(path, &words)?;
        let expected = (status >= 400).then_some(u64::from(status));
        assert_eq!(told["refused"].as_u64(), expected, "{context}: {told}");
        let gates = told["gates"].to_string().replace("\\\"", "\"");
        match gate {
            Some(gate) => assert!(gates.contains(gate), "{context}: {gates}"),
            None => assert_eq!(gates, "[]", "{context}"),
        }
        let explained = bench.run("explain", path, &words)?;
        let answer = expected.map(|status| format!("answer    status {status}\n"));
        let answer = answer.unwrap_or("answer    the upstream: ".to_owned());
        assert!(explained.contains(&answer), "{context}: {explained}");
        assert!(
            gate.is_none_or(|gate| explained.contains(gate)),
            "{context}: {explained}"
        );
    }
    // Of another client.
    let told = bench.why("/allowed", &["--client", "192.0.2.7"])?;
    assert_eq!(told["refused"], 403, "{told}");
    Ok(())
}

#[test]
fn the_value_that_skips_the_cache_is_told() -> Result<()> {
    let bench = Bench::start()?;
    ensure!(bench.get("GET", "/a", &[])? == 200);
    let skipped = "the look-up is skipped (bypass: $http_x_fresh is \"1\"): the origin is asked";
    let told = bench.why("/a?fresh=0", &["-H", "X-Fresh: 1"])?;
    assert_eq!(told["verdict"], skipped);
    let values = told["cache"]["bypass"].to_string();
    let expected = r#"[{"text":"$arg_fresh","value":"0"},{"text":"$http_x_fresh","value":"1"}]"#;
    assert_eq!(values, expected);
    for command in ["why", "explain"] {
        let said = bench.run(command, "/a?fresh=0", &["-H", "X-Fresh: 1"])?;
        for line in [
            "bypass    $arg_fresh is \"0\"\n",
            "          $http_x_fresh is \"1\"\n",
        ] {
            assert!(said.contains(line), "{said}");
        }
    }
    let told = bench.why("/a", &[])?;
    assert_eq!(told["verdict"], "it is answered from the cache");
    Ok(())
}

#[test]
fn what_becomes_of_what_is_stale_is_told() -> Result<()> {
    let bench = Bench::start()?;
    let paths = ["/waits", "/updating", "/behind"];
    for path in paths {
        ensure!(bench.get("GET", path, &[])? == 200);
    }
    let verdict = |path: &str, expected: &str| {
        let is_told = || {
            let told = bench.why(path, &[]).ok()?;
            told["verdict"].as_str()?.ends_with(expected).then_some(())
        };
        let told = Deadline::after(WAIT).poll(is_told);
        told.with_context(|| format!("{path}: {:?}", bench.why(path, &[])))
    };
    verdict(
        "/waits",
        "the origin is asked whether it has changed, or for a new one",
    )?;
    let others = "the origin is asked, and others are served the stale answer meanwhile (updating)";
    verdict("/updating", others)?;
    let behind = "it is served while the origin is asked behind it (background update)";
    verdict("/behind", behind)?;
    // Somebody updates.
    let gate = Gate::new();
    let slow = Answer::new(200).offset_body(100_000, 1);
    bench.origin.route("/*", slow.hold_body_at(10, &gate));
    let mut updates = Vec::new();
    for path in ["/waits", "/updating"] {
        let mut client = Client::new(bench.proxy.port()).connect()?;
        client.send_raw(&Request::get(path).host("shop").encode())?;
        updates.push(client);
    }
    verdict(
        "/waits",
        "it is being updated, and the request waits for that",
    )?;
    let served = "it is served, since another request updates it (updating)";
    verdict("/updating", served)?;
    gate.open();
    Ok(())
}
