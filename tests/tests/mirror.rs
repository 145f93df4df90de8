//! `mirror`, `mirror_request_body`: copies of requests that nobody waits for.
//!
//! What `everywhere` checks holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Gate, Kind, Origin, Proxy, Request};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        mirror /one;
        mirror /two;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /bare { mirror /one; mirror_request_body off; proxy_pass http://%%ORIGIN%%; }
        location /off { mirror off; proxy_pass http://%%ORIGIN%%; }
        location = /one { internal; proxy_pass http://%%ORIGIN%%/copy$request_uri; }
        location = /two { internal; return 200; }
    }";

fn start(kind: Kind) -> Result<(Origin, Proxy)> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("answer"));
    let proxy = Proxy::new(kind, CONF).origin(&origin).start()?;
    Ok((origin, proxy))
}

#[test]
fn copies_have_method_query_and_body() -> Result<()> {
    for kind in Kind::both() {
        let (origin, proxy) = start(kind)?;
        let client = Client::new(proxy.port());
        for (path, body) in [("/a?b=c", "body"), ("/bare/a", "")] {
            // nginx announces the body that it leaves out, so that its copy never comes to an end.
            if kind == Kind::Nginx && body.is_empty() {
                continue;
            }
            origin.forget_requests();
            let response = client.send(&Request::post(path, "body").header("X-Name", "x"))?;
            assert_eq!(response.text(), "answer");
            let requests = origin.wait_for_requests(2)?;
            let copy_path = format!("/copy{path}");
            let copy = requests.iter().find(|request| request.target == copy_path);
            let copy = copy.unwrap_or_else(|| panic!("{path}: no copy"));
            assert_eq!(copy.method, "POST", "{path}");
            assert_eq!(copy.header("X-Name"), Some("x"), "{path}");
            assert_eq!(copy.body, body.as_bytes(), "{path}");
        }
    }
    Ok(())
}

/// A mirror that is slow, dead or full of errors is nobody's trouble but its own.
#[test]
fn answers_do_not_wait_for_copies() -> Result<()> {
    let (origin, proxy) = start(Kind::Millpond)?;
    let gate = Gate::new();
    origin.route("/copy/slow", Answer::new(200).hold_head(&gate));
    origin.route("/copy/dead", Answer::raw(""));
    origin.route("/copy/wrong", Answer::new(500));
    let mut connection = Client::new(proxy.port()).connect()?;
    for path in ["/slow", "/dead", "/wrong", "/slow", "/off/slow"] {
        let response = connection.exchange(&Request::get(path))?;
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "answer"),
            "{path}"
        );
    }
    gate.open();
    let targets: Vec<String> = origin
        .wait_for_requests(9)?
        .into_iter()
        .map(|it| it.target)
        .collect();
    assert!(!targets.contains(&"/copy/off/slow".to_string()));
    Ok(())
}
