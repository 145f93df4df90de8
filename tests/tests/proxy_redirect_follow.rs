//! `proxy_redirect_follow`: redirects of origins that are followed here.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, NameServer, Origin, Proxy, Recorded, Request, binary,
};

const CONF: &str = "
    proxy_cache_path cache keys_zone=pond:1m;
    log_format asked '$upstream_method $upstream_host $upstream_uri $upstream_status '
                     '$upstream_redirects';
    upstream_log upstream.log asked;
    resolver %%DNS%% ipv6=off;
    proxy_set_header Authorization 'Basic ours';
    proxy_set_header X-Kept yes;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_redirect_follow 3 allow=127.0.0.1;
            proxy_pass http://%%ORIGIN%%;
        }
        location /cached/ {
            proxy_redirect_follow on allow=127.0.0.0/8;
            proxy_cache pond; proxy_cache_valid 200 301 302 1h;
            proxy_pass http://%%ORIGIN%%;
        }
        location /sliced/ {
            proxy_redirect_follow on allow=127.0.0.1;
            proxy_cache pond; proxy_cache_valid 200 206 1h; slice 64k;
            proxy_pass http://%%ORIGIN%%;
        }
        location /closed/ {
            proxy_redirect_follow on;
            proxy_pass http://%%ORIGIN%%;
        }
        location /signed/ {
            proxy_redirect_follow on allow=127.0.0.1;
            proxy_aws_sign region=r access_key=a secret_key=b;
            proxy_pass http://%%ORIGIN%%;
        }
        location /off/ { proxy_pass http://%%ORIGIN%%; }
    }";

fn redirect(status: u16, to: &str) -> Answer {
    Answer::new(status).header("Location", to).body("moved")
}

struct Run {
    first: Origin,
    other: Origin,
    dns: NameServer,
    proxy: Proxy,
}

impl Run {
    fn start() -> Result<Run> {
        let (first, other, dns) = (Origin::start()?, Origin::start()?, NameServer::start()?);
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .origin(&first)
            .value("DNS", &dns.address())
            .log_check(LogCheck::Off)
            .start()?;
        Ok(Run {
            first,
            other,
            dns,
            proxy,
        })
    }

    fn client(&self) -> Client {
        Client::new(self.proxy.port())
    }

    /// A URL of the other origin.
    fn other(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.other.port())
    }

    fn last(&self, origin: &Origin) -> Result<Recorded> {
        origin.requests().pop().context("a request")
    }
}

#[test]
fn every_kind_of_redirect_is_followed_and_each_step_is_logged() -> Result<()> {
    let run = Run::start()?;
    for status in [301, 302, 303, 307, 308] {
        run.first
            .route(&format!("/{status}"), redirect(status, "/deep/../next?a#b"));
    }
    run.first.route("/next", redirect(302, &run.other("/end")));
    run.other.route("/end", Answer::new(200).body("there"));
    for status in [301, 302, 303, 307, 308] {
        let answer = run.client().get(&format!("/{status}"))?;
        assert_eq!(
            (answer.status, answer.text()),
            (200, "there".to_string()),
            "{status}"
        );
        assert_eq!(answer.header("Location"), None);
        assert_eq!(run.last(&run.first)?.target, "/next?a");
        assert_eq!(run.last(&run.other)?.target, "/end");
    }
    let head = run.client().send(&Request::head("/301"))?;
    assert_eq!(
        (head.status, run.last(&run.other)?.method),
        (200, "HEAD".to_string())
    );
    let lines = run.proxy.wait_for_lines("upstream.log", 18)?;
    let host = format!("127.0.0.1:{}", run.first.port());
    let expected = [
        format!("GET {host} /301 301 0"),
        format!("GET {host} /next?a 302 1"),
        format!("GET 127.0.0.1:{} /end 200 2", run.other.port()),
    ];
    for line in expected {
        assert!(lines.contains(&line), "{line}: {lines:?}");
    }
    assert_eq!(run.client().get("/off/x")?.status, 404);
    Ok(())
}

/// Neither the client's nor the configuration's credentials go to another origin, and none come
/// back once it was left.
#[test]
fn credentials_are_for_the_first_origin() -> Result<()> {
    let run = Run::start()?;
    run.first.route("/a", redirect(302, "/b"));
    run.first.route("/b", redirect(302, &run.other("/c")));
    let back = format!("http://127.0.0.1:{}/d", run.first.port());
    run.other.route("/c", redirect(302, &back));
    run.first.route("/d", Answer::new(200).body("x"));
    let request = Request::get("/a")
        .header("Cookie", "a=b")
        .header("X-Client", "c");
    assert_eq!(run.client().send(&request)?.status, 200);
    let asked = run.first.requests();
    for request in &asked[..2] {
        assert_eq!(
            request.header("Authorization"),
            Some("Basic ours"),
            "{request:?}"
        );
        assert_eq!(request.header("Cookie"), Some("a=b"), "{request:?}");
    }
    for request in [&run.last(&run.other)?, &asked[2]] {
        assert_eq!(request.header("Authorization"), None, "{request:?}");
        assert_eq!(request.header("Cookie"), None, "{request:?}");
        assert_eq!(request.header("X-Kept"), Some("yes"));
        assert_eq!(request.header("X-Client"), Some("c"));
    }
    let host = format!("127.0.0.1:{}", run.other.port());
    assert_eq!(run.last(&run.other)?.header("Host"), Some(&*host));
    // A signature is a credential, too.
    run.first
        .route("/signed/a", redirect(302, &run.other("/c")));
    assert_eq!(run.client().get("/signed/a")?.status, 200);
    assert!(run.last(&run.other)?.header("X-Amz-Date").is_none());
    Ok(())
}

#[test]
fn the_answer_is_stored_under_the_first_key() -> Result<()> {
    let run = Run::start()?;
    run.first
        .route("/cached/a", redirect(301, &run.other("/end")));
    run.other.route("/end", Answer::new(200).body("there"));
    for _ in 0..3 {
        let answer = run.client().get("/cached/a")?;
        assert_eq!((answer.status, answer.text()), (200, "there".to_string()));
    }
    assert_eq!(
        (run.first.requests().len(), run.other.requests().len()),
        (1, 1)
    );
    Ok(())
}

/// Each slice goes its own way, with its own range.
#[test]
fn slices_follow_with_their_ranges() -> Result<()> {
    let run = Run::start()?;
    run.first
        .route("/sliced/a", redirect(302, &run.other("/big")));
    let manners = millpond_testkit::Manners::of(200_000);
    run.other
        .resource("/big", &millpond_testkit::Resource::new(manners));
    assert_eq!(run.client().get("/sliced/a")?.body.len(), 200_000);
    let asked = run.other.requests();
    let ranges: BTreeSet<_> = asked.iter().filter_map(|it| it.header("Range")).collect();
    assert!(!ranges.is_empty(), "{ranges:?}");
    assert_eq!(run.first.requests().len(), run.other.requests().len());
    Ok(())
}

#[test]
fn what_leads_nowhere_is_refused() -> Result<()> {
    let run = Run::start()?;
    for at in 0..5 {
        run.first.route(
            &format!("/many{at}"),
            redirect(302, &format!("/many{}", at + 1)),
        );
    }
    run.first.route("/loop", redirect(302, "/pool"));
    run.first.route("/pool", redirect(302, "/loop"));
    run.first
        .route("/closed/a", redirect(302, &run.other("/end")));
    run.first.route(
        "/closed/b",
        redirect(302, "http://169.254.169.254/latest/meta-data"),
    );
    run.first
        .route("/closed/c", redirect(302, "http://inner.example/"));
    run.first
        .route("/closed/d", redirect(302, "http://[::ffff:127.0.0.1]:9/"));
    run.first
        .route("/closed/e", redirect(302, "http://none.example/"));
    run.dns.addresses("inner.example", &["10.0.0.1"]);
    for (path, why) in [
        ("/many0", "it is more than 3 redirects away"),
        ("/loop", "it was asked already"),
        ("/closed/a", "its address 127.0.0.1:"),
        (
            "/closed/b",
            "its address 169.254.169.254:80 is not one of the internet",
        ),
        (
            "/closed/c",
            "its address 10.0.0.1:80 is not one of the internet",
        ),
        ("/closed/d", "which is not followed: its address"),
        ("/closed/e", "none.example could not be resolved"),
    ] {
        let answer = run.client().get(path)?;
        assert_eq!(answer.status, 502, "{path}");
        let is_told = || run.proxy.error_log().contains(why).then_some(());
        let told = Deadline::after(Duration::from_secs(5)).poll(is_told);
        told.with_context(|| format!("{path}: {}", run.proxy.error_log()))?;
    }
    assert_eq!(run.other.requests().len(), 0);
    Ok(())
}

/// A name is followed to the addresses that were judged, and no others.
#[test]
fn names_are_resolved_once_and_their_inner_addresses_left_out() -> Result<()> {
    let run = Run::start()?;
    let url = format!("http://files.example:{}/end", run.other.port());
    run.first.route("/a", redirect(302, &url));
    run.other.route("/end", Answer::new(200).body("there"));
    run.dns
        .addresses("files.example", &["10.0.0.1", "127.0.0.1"]);
    for _ in 0..4 {
        let answer = run.client().get("/a")?;
        assert_eq!((answer.status, answer.text()), (200, "there".to_string()));
    }
    let host = format!("files.example:{}", run.other.port());
    assert_eq!(run.last(&run.other)?.header("Host"), Some(&*host));
    Ok(())
}

/// RFC 9110 §15.4: other methods, and what is no URL of HTTP, are the client's.
#[test]
fn what_cannot_be_followed_is_passed_on() -> Result<()> {
    let run = Run::start()?;
    run.first.route("/post", redirect(307, "/x"));
    run.first.route("/ftp", redirect(302, "ftp://a.example/"));
    run.first.route("/none", Answer::new(302));
    run.first.route("/300", redirect(300, "/x"));
    for (request, status) in [
        (Request::post("/post", "x"), 307),
        (Request::get("/post").body("x"), 307),
        (Request::get("/ftp"), 302),
        (Request::get("/none"), 302),
        (Request::get("/300"), 300),
    ] {
        assert_eq!(run.client().send(&request)?.status, status, "{request:?}");
    }
    assert!(run.first.requests().iter().all(|it| it.target != "/x"));
    Ok(())
}

#[test]
fn an_explanation_says_how_many_are_followed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let conf = "events {} http { server { listen 127.0.0.1:9; location / { proxy_redirect_follow 3;
                proxy_pass http://127.0.0.1:9; } location /b { proxy_pass http://127.0.0.1:9; } } }";
    std::fs::write(dir.path().join("nginx.conf"), conf)?;
    let explain = |url: &str| -> Result<String> {
        let output = std::process::Command::new(binary(Kind::Millpond).context("the binary")?)
            .args(["explain", "-c", "nginx.conf", url])
            .current_dir(dir.path())
            .output()?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let told = "up to 3 are followed";
    assert!(
        explain("http://x:9/a")?.contains(told),
        "{}",
        explain("http://x:9/a")?
    );
    assert!(!explain("http://x:9/b")?.contains("are followed"));
    Ok(())
}

/// Origins that are encrypted, played by the server itself.
const ENCRYPTED: &str = "
    ssl_certificate own.pem; ssl_certificate_key own.pem; ssl_verify_client optional_no_ca;
    add_header X-Name '$ssl_server_name $ssl_client_s_dn.' always;
    server {
        listen 127.0.0.1:%%PORT_FIRST%% ssl;
        location /plain { return 302 http://127.0.0.1:%%PORT_PLAIN%%/end; }
        location /own { return 302 /end; }
        location /other { return 302 https://other.example:%%PORT_OTHER%%/end; }
        location / { return 200 first; }
    }
    server { listen 127.0.0.1:%%PORT_OTHER%% ssl; location / { return 200 other; } }
    server { listen 127.0.0.1:%%PORT_PLAIN%%; location / { return 200 plain; } }
    server {
        listen 127.0.0.1:%%PORT%%;
        resolver %%DNS%% ipv6=off;
        proxy_ssl_certificate own.pem; proxy_ssl_certificate_key own.pem;
        proxy_ssl_server_name on; proxy_ssl_name first.example;
        proxy_redirect_follow on allow=127.0.0.1;
        location / { proxy_pass https://127.0.0.1:%%PORT_FIRST%%; }
        location /down/ {
            proxy_redirect_follow on allow=127.0.0.1 downgrade;
            proxy_pass https://127.0.0.1:%%PORT_FIRST%%/;
        }
    }";

/// Another host has its own name for TLS, and is not told who asks; from https to http nothing goes
/// unless that is allowed.
#[test]
fn encryption_is_that_of_the_host_that_is_asked() -> Result<()> {
    let dns = NameServer::start()?;
    dns.addresses("other.example", &["127.0.0.1"]);
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()])?;
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    let proxy = Proxy::new(Kind::Millpond, ENCRYPTED)
        .value("DNS", &dns.address())
        .file("own.pem", pem)
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    let own = client.get("/own")?;
    assert_eq!((own.status, own.text()), (200, "first".to_string()));
    let name = own.header("X-Name").context("a name")?;
    assert!(name.starts_with("first.example CN="), "{name}");
    let other = client.get("/other")?;
    assert_eq!((other.status, other.text()), (200, "other".to_string()));
    assert_eq!(other.header("X-Name"), Some("other.example ."));
    assert_eq!(client.get("/plain")?.status, 502);
    let why = "it is not encrypted, and what led to it was";
    assert!(proxy.error_log().contains(why), "{}", proxy.error_log());
    assert_eq!(client.get("/down/plain")?.text(), "plain");
    Ok(())
}
