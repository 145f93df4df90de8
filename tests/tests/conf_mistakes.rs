//! Configurations that nginx refuses when it reads them: the test of a configuration refuses them,
//! too, and what is like them and right passes.

use anyhow::{Context, Result};
use millpond_testkit::{Kind, binary};
use std::process::Command;

/// Whether a configuration passes its test, and what is said about it.
fn test(text: &str) -> Result<(bool, String)> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("main.conf"), text)?;
    let program = binary(Kind::Millpond).context("no binary")?;
    let output = Command::new(program)
        .args(["-t", "-e", "stderr", "-c", "main.conf", "-p"])
        .arg(dir.path())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output.status.success(), said))
}

/// A configuration with these lines in a location.
fn in_location(lines: &str) -> String {
    format!(
        "events {{}} pid x.pid; http {{ access_log off; server {{ listen 127.0.0.1:1;
         location / {{ {lines} }} }} }}"
    )
}

/// Lines that nginx refuses in a location are refused.
#[test]
fn lines_that_mean_nothing_are_refused() -> Result<()> {
    let size = |name: &str| format!("\"{name}\" directive invalid value");
    for (lines, message) in [
        ("limit_rate string;", size("limit_rate")),
        ("limit_rate 1g;", size("limit_rate")),
        ("limit_rate_after 1y;", size("limit_rate_after")),
        ("proxy_limit_rate string;", size("proxy_limit_rate")),
        ("fastcgi_limit_rate string;", size("fastcgi_limit_rate")),
        ("proxy_bind name;", "invalid address \"name\"".into()),
        ("uwsgi_bind [::1];", "invalid address \"[::1]\"".into()),
        (
            "internal off;",
            "invalid number of arguments in \"internal\" directive".into(),
        ),
        (
            "if ($uri) { recursive_error_pages on; }",
            "\"recursive_error_pages\" directive is not allowed here".into(),
        ),
        (
            "memcached_pass 127.0.0.1:1;",
            "unknown \"memcached_key\" variable".into(),
        ),
        (
            "set $memcached_key a; memcached_pass 127.0.0.1;",
            "no port in upstream \"127.0.0.1\"".into(),
        ),
        (
            "memcached_next_upstream http_404;",
            "invalid value \"http_404\"".into(),
        ),
        (
            "memcached_cache off;",
            "unknown directive \"memcached_cache\"".into(),
        ),
        ("proxy_cookie_flags on;", "invalid parameter \"on\"".into()),
        (
            "valid_referers none blocked;",
            "without any valid referer".into(),
        ),
    ] {
        let (passes, said) = test(&in_location(lines))?;
        assert!(!passes && said.contains(&message), "{lines}: {said}");
    }
    Ok(())
}

/// Lines like them that nginx takes are taken.
#[test]
fn lines_like_them_that_are_right_pass() -> Result<()> {
    for lines in [
        "limit_rate $arg_rate; limit_rate_after 10k; proxy_limit_rate 1m;",
        "proxy_bind 127.0.0.1; uwsgi_bind [::1]:0; fastcgi_bind $arg_from;",
        "internal; recursive_error_pages on;",
        "proxy_cookie_flags off; stub_status on;",
        "valid_referers none blocked; valid_referers server_names;",
        "secure_link_secret word;",
        "set $memcached_key $uri; memcached_pass $arg_to; memcached_bind off;",
        "memcached_next_upstream not_found off; memcached_socket_keepalive on;",
    ] {
        let (passes, said) = test(&in_location(lines))?;
        assert!(passes, "{lines}: {said}");
    }
    Ok(())
}

/// Blocks that have no arguments are refused with some.
#[test]
fn blocks_have_no_arguments_that_mean_nothing() -> Result<()> {
    for (text, name) in [
        ("events x {} http {}", "events"),
        ("events {} http x {}", "http"),
        (
            "events {} http { server x { listen 127.0.0.1:1; } }",
            "server",
        ),
    ] {
        let (passes, said) = test(text)?;
        let message = format!("invalid number of arguments in \"{name}\" directive");
        assert!(!passes && said.contains(&message), "{text}: {said}");
    }
    Ok(())
}

/// A secret of signed links may stand in a server or around all of them, as in nginx.
#[test]
fn a_secret_of_links_may_stand_outside_of_locations() -> Result<()> {
    for text in [
        "events {} pid x.pid; http { secure_link_secret word; }",
        "events {} pid x.pid; http { server { listen 127.0.0.1:1; secure_link_secret word; } }",
    ] {
        let (passes, said) = test(text)?;
        assert!(passes, "{text}: {said}");
    }
    Ok(())
}

/// Root is told at the test, not at the next start, that the process has no user to become.
#[test]
fn a_user_that_is_none_is_refused_to_root() -> Result<()> {
    let text = |user: &str| format!("user {user}; pid x.pid; events {{}} http {{}}");
    let is_root = rustix::process::geteuid().is_root();
    let (passes, said) = test(&text("no-such-user-here"))?;
    assert_eq!(passes, !is_root, "{said}");
    assert_eq!(said.contains("unknown user"), is_root, "{said}");
    let (passes, said) = test(&text("root"))?;
    assert!(passes, "{said}");
    Ok(())
}
