//! `allow`, `deny`, `satisfy`, `limit_except`, `auth_basic`, `set_real_ip_from`, `valid_referers`:
//! who may.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Client, Kind, Proxy, Request};

const CONF: &str = r#"
    set_real_ip_from 127.0.0.1;
    set_real_ip_from 192.0.2.0/24;
    real_ip_header X-Forwarded-For;
    real_ip_recursive on;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name localhost;
        root %%DIR%%/www;
        location / { try_files /a =404; }
        location /rules {
            deny 10.0.0.1;
            allow 10.0.0.0/8;
            allow 2001:db8::/32;
            deny all;
            try_files /a =404;
        }
        location /methods {
            limit_except GET { deny all; }
            error_page 405 =200 /a;
        }
        location /password {
            auth_basic "a realm";
            auth_basic_user_file %%DIR%%/users;
            try_files /a =404;
            location /password/open { auth_basic off; try_files /a =404; }
        }
        location /both {
            deny 10.0.0.1;
            auth_basic "a realm";
            auth_basic_user_file %%DIR%%/users;
            try_files /a =404;
        }
        location /any {
            satisfy any;
            allow 10.0.0.1;
            deny all;
            auth_basic "a realm";
            auth_basic_user_file %%DIR%%/users;
            try_files /a =404;
        }
        location /address { return 200 "$remote_addr $realip_remote_addr"; }
        location /referer {
            valid_referers none blocked server_names *.example.com example.org/path ~\.net;
            return 200 "[$invalid_referer]";
        }
    }"#;

const USERS: &str = "# name:password\n\
    plain:{PLAIN}secret\n\
    sha:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n\
    apr1:$apr1$salt$Xxd1irWT9ycqoYxGFn4cb.\n\
    md5:$1$salt$qJH7.N4xYta3aEG/dfqo/0:comment\n";

/// `plain:secret`, `plain:wrong`, `sha:password`, `apr1:password`, `md5:password`, `nobody:x`.
const PLAIN: &str = "Basic cGxhaW46c2VjcmV0";
const WRONG: &str = "Basic cGxhaW46d3Jvbmc=";
const SHA: &str = "Basic c2hhOnBhc3N3b3Jk";
const APR1: &str = "basic YXByMTpwYXNzd29yZA==";
const MD5: &str = "Basic bWQ1OnBhc3N3b3Jk";
const NOBODY: &str = "Basic bm9ib2R5Ong=";

fn everywhere(check: impl Fn(&Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF)
            .file("www/a", "a")
            .file("users", USERS)
            .start()?;
        check(&Client::new(proxy.port()))?;
    }
    Ok(())
}

fn from(path: &str, address: &str) -> Request {
    Request::get(path)
        .host("localhost")
        .header("X-Forwarded-For", address)
}

#[test]
fn the_first_rule_about_a_client_decides() -> Result<()> {
    everywhere(|client| {
        for (address, status) in [
            ("10.0.0.1", 403),
            ("10.0.0.2", 200),
            ("11.0.0.1", 403),
            ("2001:db8::1", 200),
            ("::1", 403),
            ("::ffff:10.0.0.2", 200),
        ] {
            let response = client.send(&from("/rules", address))?;
            assert_eq!(response.status, status, "{address}");
        }
        Ok(())
    })
}

#[test]
fn clients_behind_trusted_proxies_have_their_own_address() -> Result<()> {
    everywhere(|client| {
        for (list, text) in [
            ("10.0.0.1", "10.0.0.1 127.0.0.1"),
            ("10.0.0.1, 192.0.2.7", "10.0.0.1 127.0.0.1"),
            ("10.0.0.1, 11.0.0.1, 192.0.2.7", "11.0.0.1 127.0.0.1"),
            ("10.0.0.1,192.0.2.7:80", "10.0.0.1 127.0.0.1"),
            ("nonsense, 192.0.2.7", "192.0.2.7 127.0.0.1"),
            ("nonsense", "127.0.0.1 127.0.0.1"),
        ] {
            assert_eq!(client.send(&from("/address", list))?.text(), text, "{list}");
        }
        Ok(())
    })
}

#[test]
fn an_address_is_the_requests_and_not_the_connections() -> Result<()> {
    everywhere(|client| {
        let mut connection = client.connect()?;
        for (request, text) in [
            (from("/address", "10.0.0.1"), "10.0.0.1 127.0.0.1"),
            (
                Request::get("/address").host("localhost"),
                "127.0.0.1 127.0.0.1",
            ),
            (from("/address", "10.0.0.2"), "10.0.0.2 127.0.0.1"),
        ] {
            assert_eq!(connection.exchange(&request)?.text(), text);
        }
        Ok(())
    })
}

#[test]
fn other_methods_have_other_settings() -> Result<()> {
    everywhere(|client| {
        for (method, status) in [("GET", 404), ("HEAD", 404), ("POST", 403), ("DELETE", 403)] {
            let request = Request::new(method, "/methods").host("localhost");
            assert_eq!(client.send(&request)?.status, status, "{method}");
        }
        Ok(())
    })
}

#[test]
fn passwords_open_what_asks_for_them() -> Result<()> {
    everywhere(|client| {
        for (credentials, status) in [
            (PLAIN, 200),
            (SHA, 200),
            (APR1, 200),
            (MD5, 200),
            (WRONG, 401),
            (NOBODY, 401),
            ("Basic", 401),
            ("Basic !", 401),
            ("Bearer x", 401),
        ] {
            let request = Request::get("/password").host("localhost");
            let response = client.send(&request.header("Authorization", credentials))?;
            assert_eq!(response.status, status, "{credentials}");
            let challenge = (status == 401).then_some("Basic realm=\"a realm\"");
            assert_eq!(
                response.header("WWW-Authenticate"),
                challenge,
                "{credentials}"
            );
        }
        let response = client.send(&Request::get("/password/open").host("localhost"))?;
        assert_eq!(response.status, 200);
        Ok(())
    })
}

#[test]
fn gates_must_all_open_or_any_one() -> Result<()> {
    everywhere(|client| {
        for (path, address, credentials, status) in [
            ("/both", "10.0.0.1", PLAIN, 403),
            ("/both", "10.0.0.2", PLAIN, 200),
            ("/both", "10.0.0.2", WRONG, 401),
            ("/any", "10.0.0.1", WRONG, 200),
            ("/any", "10.0.0.2", PLAIN, 200),
            ("/any", "10.0.0.2", WRONG, 401),
        ] {
            let request = from(path, address).header("Authorization", credentials);
            let response = client.send(&request)?;
            assert_eq!(response.status, status, "{path} {address} {credentials}");
            assert_eq!(response.header("WWW-Authenticate").is_some(), status == 401);
        }
        Ok(())
    })
}

#[test]
fn referers_are_judged_by_host_and_path() -> Result<()> {
    everywhere(|client| {
        for (referer, text) in [
            (None, "[]"),
            (Some("no url at all"), "[]"),
            (Some("http://localhost/"), "[]"),
            (Some("http://a.example.com"), "[]"),
            (Some("https://A.EXAMPLE.com:80/x"), "[]"),
            (Some("http://example.com/"), "[1]"),
            (Some("http://example.org/path/x"), "[]"),
            (Some("http://example.org/other"), "[1]"),
            (Some("http://some.net/"), "[]"),
            (Some("http://elsewhere/"), "[1]"),
        ] {
            let mut request = Request::get("/referer").host("localhost");
            if let Some(referer) = referer {
                request = request.header("Referer", referer);
            }
            assert_eq!(client.send(&request)?.text(), text, "{referer:?}");
        }
        Ok(())
    })
}
