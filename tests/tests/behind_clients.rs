//! Work that goes on behind a request (updates of the cache, mirrored requests, `post_action`) is
//! that client's to the end, whoever asks next on the same connection.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Gate, Kind, Origin, Proxy, Request};
use std::time::Duration;

const CONF: &str = r#"
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    log_format up "$remote_addr $upstream_reason $upstream_uri $request_length $connection_requests";
    upstream_log %%DIR%%/up.log up;
    limit_req_zone $remote_addr zone=few:1m rate=1r/m;
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Real-IP;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /update {
            proxy_pass http://%%ORIGIN%%;
            proxy_set_header X-Client $remote_addr;
            proxy_cache z;
            proxy_cache_use_stale updating;
            proxy_cache_background_update on;
        }
        location /mirrored { mirror /copy; proxy_pass http://%%ORIGIN%%; }
        location = /copy {
            internal;
            proxy_pass http://%%ORIGIN%%/copy;
            proxy_set_header X-Client $remote_addr;
        }
        location /acted { post_action /action; return 200 "$remote_addr"; }
        location = /action {
            internal;
            proxy_pass http://%%ORIGIN%%/action;
            proxy_set_header X-Client $remote_addr;
        }
        location /judged { post_action /refused; return 200 "$remote_addr"; }
        location = /refused {
            internal;
            proxy_pass http://%%ORIGIN%%/refused;
            proxy_intercept_errors on;
            error_page 500 /allowed;
        }
        location = /allowed {
            internal;
            allow 2.2.2.2;
            deny all;
            limit_req zone=few;
            proxy_pass http://%%ORIGIN%%/allowed;
            proxy_set_header X-Client $remote_addr;
        }
        location / { limit_req zone=few; return 200 "$remote_addr"; }
    }"#;

const WAIT: Duration = Duration::from_secs(20);

struct Setup {
    origin: Origin,
    proxy: Proxy,
    client: Client,
}

impl Setup {
    fn new() -> Result<Self> {
        let origin = Origin::start()?;
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        let client = Client::new(proxy.port());
        Ok(Setup {
            origin,
            proxy,
            client,
        })
    }

    /// The line of an exchange about `uri` for that reason, once it is there.
    fn line(&self, reason: &str, uri: &str) -> Result<Vec<String>> {
        let found = || {
            let log = self.proxy.read_file("up.log");
            let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
            let mut lines = log.lines().map(words);
            lines.find(|line| line[1] == reason && line[2] == uri)
        };
        let line = Deadline::after(WAIT).poll(found);
        line.with_context(|| format!("{reason} {uri}: {}", self.proxy.read_file("up.log")))
    }

    /// Waits until the origin was asked so often for a path, and says for which client it was asked
    /// last.
    fn asked_for(&self, path: &str, count: usize) -> Result<String> {
        let found = || {
            let all = self.origin.requests();
            let asked: Vec<_> = all.iter().filter(|one| one.path() == path).collect();
            (asked.len() >= count).then(|| asked[count - 1].header("X-Client").map(str::to_owned))
        };
        let client = Deadline::after(WAIT).poll(found);
        client
            .flatten()
            .with_context(|| format!("{path}, {count} times"))
    }
}

fn from(path: &str, address: &str) -> Request {
    Request::get(path).header("X-Real-IP", address)
}

/// Two requests of one connection, the second while the work behind the first goes on.
fn one_after_another(setup: &Setup, path: &str) -> Result<()> {
    let mut connection = setup.client.connect()?;
    ensure!(connection.exchange(&from(path, "2.2.2.2"))?.status == 200);
    let second = connection.exchange(&from("/", "3.3.3.3"))?;
    ensure!(second.text() == "3.3.3.3", "{}", second.text());
    Ok(())
}

#[test]
fn an_update_is_of_the_client_that_caused_it() -> Result<()> {
    let setup = Setup::new()?;
    let stored = |text: &str| {
        Answer::new(200)
            .header("Cache-Control", "max-age=1")
            .body(text)
    };
    setup.origin.route("/update", stored("old"));
    setup.client.send(&from("/update", "1.1.1.1"))?;
    let gate = Gate::new();
    setup
        .origin
        .route("/update", stored("new").hold_head(&gate));
    let mut connection = setup.client.connect()?;
    let asked = || {
        let answer = connection.exchange(&from("/update", "2.2.2.2")).ok()?;
        assert_eq!(answer.text(), "old");
        (setup.origin.requests().len() == 2).then_some(())
    };
    // Until it has expired.
    Deadline::after(WAIT).poll(asked).context("an update")?;
    assert_eq!(setup.asked_for("/update", 2)?, "2.2.2.2");
    let second = connection.exchange(&from("/", "3.3.3.3"))?;
    assert_eq!(second.text(), "3.3.3.3");
    gate.open();
    let line = setup.line("background", "/update")?;
    assert_eq!(line[0], "2.2.2.2", "{line:?}");
    Ok(())
}

#[test]
fn a_mirrored_request_is_of_the_client_that_is_mirrored() -> Result<()> {
    let setup = Setup::new()?;
    let gate = Gate::new();
    setup
        .origin
        .route("/copy", Answer::new(200).hold_head(&gate));
    setup.origin.route("/mirrored", Answer::new(200));
    one_after_another(&setup, "/mirrored")?;
    assert_eq!(setup.asked_for("/copy", 1)?, "2.2.2.2");
    gate.open();
    let line = setup.line("pass", "/copy")?;
    assert_eq!(line[0], "2.2.2.2", "{line:?}");
    assert_eq!(
        line[4], "1",
        "{line:?}: the first request of its connection"
    );
    Ok(())
}

#[test]
fn a_post_action_is_of_the_client_that_was_answered() -> Result<()> {
    let setup = Setup::new()?;
    let gate = Gate::new();
    setup
        .origin
        .route("/action", Answer::new(200).hold_head(&gate));
    one_after_another(&setup, "/acted")?;
    assert_eq!(setup.asked_for("/action", 1)?, "2.2.2.2");
    gate.open();
    let line = setup.line("pass", "/action")?;
    assert_eq!(line[0], "2.2.2.2", "{line:?}");
    let length = "GET /acted HTTP/1.1\r\n".len();
    let of_next = "GET / HTTP/1.1\r\n".len();
    let long: usize = line[3].parse()?;
    assert!(long > length && long != of_next, "{line:?}");
    assert_eq!(
        line[4], "1",
        "{line:?}: the first request of its connection"
    );
    Ok(())
}

/// What an action meets late, `allow`, `deny` and the key of a limit among it, is judged by the
/// address of its own client: the next one's would be denied, and has used up its rate.
#[test]
fn late_verdicts_are_about_the_client_that_was_answered() -> Result<()> {
    let setup = Setup::new()?;
    let gate = Gate::new();
    let failed = Answer::new(500).hold_head(&gate);
    setup.origin.route("/refused", failed);
    setup.origin.route("/allowed", Answer::new(200));
    one_after_another(&setup, "/judged")?;
    gate.open();
    assert_eq!(setup.asked_for("/allowed", 1)?, "2.2.2.2");
    Ok(())
}
