//! The life of a proxy under the kit, shown with nginx where it is installed.

use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, binary};

const CONF: &str =
    "server { listen 127.0.0.1:%%PORT%%; location / { proxy_pass http://%%ORIGIN%%; }
                    location /file { root %%DIR%%/html; } }";

#[test]
fn a_proxy_starts_serves_restarts_and_survives_being_killed() {
    if binary(Kind::Nginx).is_none() {
        println!("skipped: nginx is not installed");
        return;
    }
    let origin = Origin::start().unwrap();
    origin.route("/a", Answer::new(200).body("from the origin"));
    let mut proxy = Proxy::new(Kind::Nginx, CONF)
        .origin(&origin)
        .file("html/file", "from disk")
        .start()
        .unwrap();
    let client = Client::new(proxy.port());
    assert_eq!(client.get("/a").unwrap().text(), "from the origin");
    let file = client.get("/file").unwrap();
    assert_eq!(file.text(), "from disk");
    let date = file.header("Last-Modified");
    assert_eq!(date, Some("Sun, 09 Sep 2001 01:46:40 GMT"));
    proxy.restart().unwrap();
    assert_eq!(client.get("/a").unwrap().status, 200);
    proxy.kill9().unwrap();
    assert!(client.get("/a").is_err());
    proxy.restart().unwrap();
    assert_eq!(client.get("/a").unwrap().status, 200);
    proxy.quit().unwrap();
}

#[test]
fn a_bad_configuration_is_an_error_that_says_why() {
    if binary(Kind::Nginx).is_none() {
        println!("skipped: nginx is not installed");
        return;
    }
    let error = Proxy::new(Kind::Nginx, "no_such_directive on;").start();
    let text = format!("{:#}", error.unwrap_err());
    assert!(
        text.contains("unknown directive \"no_such_directive\""),
        "{text}"
    );
}
