//! `rewrite`, `set`, `if`, `return`, `break`: the directives that run in the order of the file.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Client, Kind, Proxy, Request};

const CONF: &str = r#"
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name localhost;
        root %%DIR%%/www;
        set $server_level "s:$uri";
        set $unset "";
        if ($arg_gate = shut) { return 403; }
        rewrite ^/from-server/(.*)$ /show/$1?by=$1;

        location /show/ { return 200 "$uri?$args"; }
        location /level/ { return 200 "$server_level"; }
        location /last/ { rewrite ^/last/(.*)$ /show/$1 last; return 200 never; }
        location /break/ { rewrite ^/break/(.*)$ /show/$1 break; return 200 never; }
        location /on/ {
            rewrite ^/on/a/(.*)$ /on/b/$1;
            rewrite ^/on/b/(.*)$ /show/$1?c=2;
        }
        location /args/ { rewrite ^/args/(.*)$ /show/x?a=$1; }
        location /no-args/ { rewrite ^/no-args/(.*)$ /show/x?a=$1?; }
        location /named/ { rewrite ^/named/(?<part>.*)$ /show/$part; }
        location /loop/ { rewrite ^/loop/(.*)$ /loop/$1x; }
        location /empty/ { rewrite ^/empty/(.*)$ $1 break; return 200 never; }
        location /temporary/ { rewrite ^/temporary/(.*)$ /to/$1 redirect; }
        location /permanent/ { rewrite ^/permanent/(.*)$ /to/$1 permanent; }
        location /away/ { rewrite ^/away/(.*)$ http://away.example/$1; }
        location /away-args/ { rewrite ^/away-args/(.*)$ https://away.example/?q=$1; }

        location /captured/ {
            if ($uri ~ ^/captured/(.+)$) { set $part $1; }
            return 200 "$part";
        }
        location /captured-late/ {
            rewrite ^/captured-late/(.*)$ /other/$1;
            set $part $1;
            return 200 "$part";
        }
        location /value { return 200 "${arg_a}b$is_args$args"; }
        location /change-args { set $args "x=1&$args"; return 200 "$args $arg_x"; }
        location /truth {
            if ($arg_v) { return 200 true; }
            return 200 false;
        }
        location /compare {
            if ($arg_v = "a b") { return 200 same; }
            if ($arg_v != c) { return 200 other; }
            return 200 c;
        }
        location /match {
            if ($arg_v ~ ^a(.)c$) { return 200 "sensitive $1"; }
            if ($arg_v ~* ^a(.)c$) { return 200 "insensitive $1"; }
            if ($arg_v !~ x) { return 200 "without x"; }
            if ($arg_v !~* Y) { return 200 "without y"; }
            return 200 "with both";
        }
        location /file {
            if (-f $document_root/$arg_n) { return 200 file; }
            if (-d $document_root/$arg_n) { return 200 folder; }
            if (!-e $document_root/$arg_n) { return 200 nothing; }
        }
        location /stop {
            set $a 1;
            if ($arg_stop) { set $a 2; break; }
            return 200 "$a";
        }
        location /settings {
            add_header X-Which outer;
            if ($arg_inner) { add_header X-Which inner; }
            if ($arg_other) { set $unset other; }
        }
    }"#;

fn everywhere(check: impl Fn(&Proxy, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF)
            .file("www/index.html", "index")
            .file("www/settings", "settings")
            .file("www/folder/x", "x")
            .start()?;
        check(&proxy, &Client::new(proxy.port()))?;
    }
    Ok(())
}

fn get(client: &Client, path: &str) -> Result<millpond_testkit::Response> {
    client.send(&Request::get(path).host("localhost"))
}

fn texts(rows: &[(&str, &str)]) -> Result<()> {
    everywhere(|_, client| {
        for (path, text) in rows {
            assert_eq!(get(client, path)?.text(), *text, "{path}");
        }
        Ok(())
    })
}

#[test]
fn paths_are_replaced_and_looked_up_again() -> Result<()> {
    texts(&[
        ("/from-server/a", "/show/a?by=a"),
        ("/from-server/a?b", "/show/a?by=a&b"),
        ("/last/a?b", "/show/a?b"),
        ("/on/a/x?y", "/show/x?c=2&y"),
        ("/named/a", "/show/a?"),
        ("/level/a", "s:/level/a"),
    ])
}

#[test]
fn a_break_keeps_the_location_and_its_handler() -> Result<()> {
    everywhere(|_, client| {
        assert_eq!(get(client, "/break/a")?.status, 404);
        Ok(())
    })
}

#[test]
fn arguments_of_a_replacement_come_before_the_old_ones() -> Result<()> {
    texts(&[
        ("/args/v?b=1", "/show/x?a=v&b=1"),
        ("/no-args/v?b=1", "/show/x?a=v"),
        ("/args/a%20b%26c", "/show/x?a=a%20b%26c"),
        ("/args/a+b", "/show/x?a=a%2Bb"),
        ("/args/a&b", "/show/x?a=a&b"),
    ])
}

#[test]
fn captures_are_escaped_until_a_replacement_matched() -> Result<()> {
    texts(&[
        ("/captured/a%20b", "a%20b"),
        ("/captured-late/a%20b", "a b"),
        ("/captured/a&b", "a&b"),
    ])
}

#[test]
fn redirects_have_their_status_and_target() -> Result<()> {
    everywhere(|proxy, client| {
        let own = format!("http://localhost:{}", proxy.port());
        for (path, status, location) in [
            ("/temporary/a?b", 302, format!("{own}/to/a?b")),
            ("/permanent/a", 301, format!("{own}/to/a")),
            ("/permanent/a%20b%0d", 301, format!("{own}/to/a%20b%0D")),
            ("/away/a", 302, "http://away.example/a".to_owned()),
            (
                "/away-args/a?b",
                302,
                "https://away.example/?q=a&b".to_owned(),
            ),
        ] {
            let response = get(client, path)?;
            assert_eq!(response.status, status, "{path}");
            assert_eq!(response.header("Location"), Some(&*location), "{path}");
        }
        Ok(())
    })
}

#[test]
fn endless_and_empty_replacements_are_errors() -> Result<()> {
    everywhere(|proxy, client| {
        assert_eq!(get(client, "/loop/a")?.status, 500);
        assert_eq!(get(client, "/empty/")?.status, 500);
        let log = proxy.error_log();
        assert!(log.contains("rewrite or internal redirection cycle while processing"));
        assert!(log.contains("the rewritten URI has a zero length"));
        Ok(())
    })
}

#[test]
fn conditions_compare_match_and_look_at_files() -> Result<()> {
    texts(&[
        ("/truth", "false"),
        ("/truth?v=", "false"),
        ("/truth?v=0", "false"),
        ("/truth?v=00", "true"),
        ("/truth?v=x", "true"),
        ("/compare?v=a", "other"),
        ("/compare?v=c", "c"),
        ("/match?v=abc", "sensitive b"),
        ("/match?v=ABC", "insensitive B"),
        ("/match?v=q", "without x"),
        ("/match?v=x", "without y"),
        ("/match?v=xy", "with both"),
        ("/file?n=index.html", "file"),
        ("/file?n=folder", "folder"),
        ("/file?n=none", "nothing"),
        ("/file?n=index.html/x", "nothing"),
    ])
}

#[test]
fn values_are_put_together_when_they_are_set() -> Result<()> {
    texts(&[
        ("/value?a=1", "1b?a=1"),
        ("/value", "b"),
        ("/change-args?y=2", "x=1&y=2 1"),
        ("/stop", "1"),
    ])
}

#[test]
fn break_ends_the_directives_and_the_request_goes_on() -> Result<()> {
    everywhere(|_, client| {
        assert_eq!(get(client, "/stop?stop=1")?.status, 404);
        assert_eq!(get(client, "/level/a?gate=shut")?.status, 403);
        Ok(())
    })
}

#[test]
fn settings_of_the_last_block_that_applies_are_in_force() -> Result<()> {
    everywhere(|_, client| {
        for (path, which) in [
            ("/settings", Some("outer")),
            ("/settings?inner=1", Some("inner")),
            ("/settings?inner=1&other=1", Some("outer")),
        ] {
            let response = get(client, path)?;
            assert_eq!(response.header("X-Which"), which, "{path}");
        }
        Ok(())
    })
}
