//! Configurations that nginx refuses when it reads them: the test of a configuration refuses them,
//! too, and what is like them and right passes.

use anyhow::{Context, Result};
use millpond_testkit::{Kind, binary};
use std::collections::BTreeSet;
use std::process::Command;

/// Tests a configuration; true if it passes, and the message about it.
fn test(text: &str) -> Result<(bool, String)> {
    test_by(Kind::Millpond, text)
}

/// Tests a configuration by either program, like [`test`].
fn test_by(kind: Kind, text: &str) -> Result<(bool, String)> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("main.conf"), text)?;
    let program = binary(kind).context("no binary")?;
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

/// Variables that nginx lets a configuration give values to can be given values: those that it
/// does not have, too, since a configuration may have them as its own.
#[test]
fn variables_that_are_free_in_nginx_are_free() -> Result<()> {
    let manual = include_str!("../../docs/variables.md");
    let quoted = manual.split('`').skip(1).step_by(2);
    let names: BTreeSet<&str> = quoted.filter_map(|text| text.strip_prefix('$')).collect();
    let plain = names.into_iter().filter(|name| {
        name.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    });
    let (mut free, mut refused) = (0, Vec::new());
    for name in plain {
        let conf = in_location(&format!("set ${name} x; return 200 ${name};"));
        if !test_by(Kind::Nginx, &conf)?.0 {
            continue;
        }
        free += 1;
        if !test(&conf)?.0 {
            refused.push(name);
        }
    }
    assert_eq!(refused, [""; 0], "of {free} that nginx takes");
    assert!(free > 30, "{free}");
    Ok(())
}

/// Lines that nginx refuses in a location are refused.
#[test]
fn lines_that_mean_nothing_are_refused() -> Result<()> {
    let size = |name: &str| format!("\"{name}\" directive invalid value");
    for (lines, message) in [
        ("limit_rate string;", size("limit_rate")),
        (
            "more_set_headers -s 4xx 'X-A: b';",
            "invalid digit in status code: \"4xx\"".into(),
        ),
        (
            "more_clear_headers -a X-A;",
            "invalid option name: \"-a\"".into(),
        ),
        ("more_clear_headers -t;", "option takes an argument".into()),
        (
            "more_set_headers -t text/html;",
            "invalid number of arguments in \"more_set_headers\" directive".into(),
        ),
        (
            "more_set_headers 'Content-Length: 5';",
            "\"Content-Length\" is the server's own, and cannot be set".into(),
        ),
        ("limit_rate 1g;", size("limit_rate")),
        ("limit_rate_after 1y;", size("limit_rate_after")),
        ("proxy_limit_rate string;", size("proxy_limit_rate")),
        ("fastcgi_limit_rate string;", size("fastcgi_limit_rate")),
        ("proxy_bind name;", "invalid address \"name\"".into()),
        ("uwsgi_bind [a];", "invalid address \"[a]\"".into()),
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
        (
            "proxy_cookie_flags ~*a secure;",
            "quantifier does not follow a repeatable item".into(),
        ),
        (
            "proxy_cookie_domain ~*a b;",
            "quantifier does not follow a repeatable item".into(),
        ),
    ] {
        let (passes, said) = test(&in_location(lines))?;
        assert!(!passes && said.contains(&message), "{lines}: {said}");
    }
    Ok(())
}

/// `off` stands alone among the lines of its directive in a block, and `default` behind the address
/// that it is made from.
#[test]
fn rules_for_answers_of_upstreams_must_make_sense_together() -> Result<()> {
    let pass = "proxy_pass http://127.0.0.1:1;";
    let duplicate = |name: &str| format!("\"{name}\" directive is duplicate");
    let after = "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive";
    let variables = "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with \
                     variables";
    for (lines, message) in [
        ("proxy_redirect default;", after.into()),
        (
            "proxy_redirect default; proxy_pass http://127.0.0.1:1;",
            after.into(),
        ),
        (
            "proxy_pass http://127.0.0.1:$arg_port; proxy_redirect default;",
            variables.into(),
        ),
        (
            "fastcgi_pass 127.0.0.1:1; proxy_redirect default;",
            after.into(),
        ),
        (
            "proxy_redirect off; proxy_redirect a b;",
            duplicate("proxy_redirect"),
        ),
        (
            "proxy_redirect a b; proxy_redirect off;",
            duplicate("proxy_redirect"),
        ),
        (
            "proxy_redirect off; proxy_redirect off;",
            duplicate("proxy_redirect"),
        ),
        (
            "proxy_cookie_path off; proxy_cookie_path a b;",
            duplicate("proxy_cookie_path"),
        ),
        (
            "proxy_cookie_domain a b; proxy_cookie_domain off;",
            duplicate("proxy_cookie_domain"),
        ),
        (
            "proxy_cookie_flags off; proxy_cookie_flags off;",
            duplicate("proxy_cookie_flags"),
        ),
    ] {
        let (passes, said) = test(&in_location(lines))?;
        assert!(!passes && said.contains(&message), "{lines}: {said}");
    }
    for lines in [
        "proxy_redirect default; proxy_redirect default; proxy_redirect a b; proxy_redirect a b;",
        "proxy_redirect off; proxy_cookie_path a b; proxy_cookie_path a b; proxy_cookie_flags off;",
    ] {
        let (passes, said) = test(&in_location(&format!("{pass} {lines}")))?;
        assert!(passes, "{lines}: {said}");
    }
    Ok(())
}

/// Lines that nginx lets stand more than once in a block: values add up, but the last expression
/// that splits a path counts. Its commands have no check of duplicates in their setters.
const LEGAL_REPEATS: [&str; 17] = [
    "proxy_cache_bypass $arg_a; proxy_cache_bypass $arg_b $arg_c;",
    "proxy_no_cache $arg_a; proxy_no_cache $arg_b;",
    "fastcgi_cache_bypass $arg_a; fastcgi_cache_bypass $arg_b;",
    "fastcgi_no_cache $arg_a; fastcgi_no_cache $arg_b;",
    "uwsgi_cache_bypass $arg_a; uwsgi_cache_bypass $arg_b;",
    "uwsgi_no_cache $arg_a; uwsgi_no_cache $arg_b;",
    "scgi_cache_bypass $arg_a; scgi_cache_bypass $arg_b;",
    "scgi_no_cache $arg_a; scgi_no_cache $arg_b;",
    "early_hints $arg_a; early_hints $arg_b;",
    "gzip_proxied expired; gzip_proxied auth;",
    "keepalive_disable msie6; keepalive_disable safari;",
    "userid_flags secure; userid_flags httponly;",
    "fastcgi_split_path_info ^(a)(.*)$; fastcgi_split_path_info ^(b)(.*)$;",
    "proxy_next_upstream error; proxy_next_upstream timeout;",
    "proxy_ignore_headers Expires; proxy_ignore_headers Vary;",
    "proxy_cache_use_stale error; proxy_cache_use_stale timeout;",
    "proxy_cache_methods GET; proxy_cache_methods HEAD;",
];

#[test]
fn what_nginx_lets_stand_twice_stands_twice() -> Result<()> {
    for lines in LEGAL_REPEATS {
        let text = in_location(lines);
        let (passes, said) = test(&text)?;
        assert!(passes, "{lines}: {said}");
        let (passes, said) = test_by(Kind::Nginx, &text)?;
        // An older nginx does not have all of them.
        assert!(passes || said.contains("unknown directive"), "{said}");
    }
    Ok(())
}

/// A block that stands twice, or not at all, is a mistake in both programs.
#[test]
fn events_stand_once() -> Result<()> {
    let missing = "no \"events\" section in configuration";
    for (text, message) in [
        ("", missing),
        ("pid x.pid;", missing),
        ("http {}", missing),
        ("events {} events {}", "\"events\" directive is duplicate"),
        (
            "events {} http { server { listen 127.0.0.1:1; location / { internal; internal; } } }",
            "\"internal\" directive is duplicate",
        ),
    ] {
        for kind in [Kind::Millpond, Kind::Nginx] {
            let (passes, said) = test_by(kind, text)?;
            assert!(!passes && said.contains(message), "{kind:?} {text}: {said}");
        }
    }
    assert!(test("events {} pid x.pid;")?.0, "nothing to serve is legal");
    Ok(())
}

/// A program or a picture, named by mistake, is refused in a few lines that steer no terminal.
#[test]
fn a_file_that_is_no_text_is_refused_in_few_plain_words() -> Result<()> {
    // Bytes of an arithmetic sequence: every control byte, and no end of a line for long.
    let noise = |len: u32| -> Vec<u8> {
        let bytes = (0..len).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8);
        bytes.filter(|byte| !b"\n{}".contains(byte)).collect()
    };
    let mut word = b"events {} \x1b[31m\x9b\x07 x; ".to_vec();
    word.extend(noise(400_000));
    for bytes in [noise(400_000), word] {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("main.conf"), &bytes)?;
        let output = Command::new(binary(Kind::Millpond).context("no binary")?)
            .args(["-t", "-e", "stderr", "-c", "main.conf", "-p"])
            .arg(dir.path())
            .output()?;
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr)?;
        let steers = |char: char| char.is_control() && char != '\n';
        assert!(!said.contains(steers), "{said:?}");
        assert!(said.len() < 200_000, "{} bytes", said.len());
        let longest = said.lines().map(str::len).max().unwrap_or_default();
        assert!(longest < 4000, "a line of {longest} bytes");
    }
    Ok(())
}

/// Outside of locations there is nothing that `proxy_redirect default` could be made from.
#[test]
fn a_redirect_by_default_needs_an_address_in_its_block() -> Result<()> {
    for text in [
        "events {} pid x.pid; http { proxy_redirect default; }",
        "events {} pid x.pid; http { server { listen 127.0.0.1:1; proxy_redirect default; } }",
    ] {
        let (passes, said) = test(text)?;
        let message = "should be placed after the \"proxy_pass\" directive";
        assert!(!passes && said.contains(message), "{text}: {said}");
    }
    Ok(())
}

/// Times and number of the kernel's probes are read, not only the words `on` and `off`.
#[test]
fn probes_of_idle_connections_are_times_and_a_number() -> Result<()> {
    let text = |value: &str| {
        format!(
            "events {{}} pid x.pid; http {{ access_log off;
             server {{ listen 127.0.0.1:1 so_keepalive={value}; }} }}"
        )
    };
    for value in [
        "x", "", "::", ":::", "0", "0:0:0", "::x", "1m:x", "1h:1:1:1", "-1", "5ms",
    ] {
        let (passes, said) = test(&text(value))?;
        let message = format!("invalid so_keepalive value: \"{value}\"");
        assert!(!passes && said.contains(&message), "{value}: {said}");
    }
    for value in ["on", "off", "1m", "1m:2", "1m:2:3", ":2", "1m::", "::5"] {
        let (passes, said) = test(&text(value))?;
        assert!(passes, "{value}: {said}");
    }
    Ok(())
}

/// The zone of a group has one size, which one of those that name it tells.
#[test]
fn zones_of_groups_have_one_size() -> Result<()> {
    let text = |first: &str, second: &str| {
        format!(
            "events {{}} pid x.pid; http {{
             upstream a {{ zone {first}; server 127.0.0.1:1; }}
             upstream b {{ zone {second}; server 127.0.0.1:1; }} }}"
        )
    };
    for (first, second, message) in [
        ("z", "z", "zero size shared memory zone \"z\""),
        ("z 64k", "y", "zero size shared memory zone \"y\""),
        (
            "z 64k",
            "z 128k",
            "the size 131072 of shared memory zone \"z\" conflicts with already declared size 65536",
        ),
    ] {
        let (passes, said) = test(&text(first, second))?;
        assert!(
            !passes && said.contains(message),
            "{first}, {second}: {said}"
        );
    }
    for (first, second) in [
        ("z 64k", "z"),
        ("z", "z 64k"),
        ("z 64k", "z 64k"),
        ("z 64k", "y 1m"),
    ] {
        let (passes, said) = test(&text(first, second))?;
        assert!(passes, "{first}, {second}: {said}");
    }
    Ok(())
}

/// Lines like them that nginx takes are taken.
#[test]
fn lines_like_them_that_are_right_pass() -> Result<()> {
    for lines in [
        "limit_rate $arg_rate; limit_rate_after 10k; proxy_limit_rate 1m;",
        "proxy_bind 127.0.0.1; uwsgi_bind [::1]:0; scgi_bind [::1]; fastcgi_bind $arg_from;",
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

/// A directive of a module that is not there is refused with the module's name, and with what there
/// is in its place; in a group of servers, too.
#[test]
fn directives_of_modules_are_refused_with_the_module() -> Result<()> {
    let (pagespeed, purge) = (
        in_location("pagespeed on;"),
        in_location("proxy_cache_purge on;"),
    );
    let group = "events {} http { upstream u { server 127.0.0.1:1; check interval=3000; } }";
    for (text, messages) in [
        (
            pagespeed.as_str(),
            [
                "unknown directive \"pagespeed\"",
                "it belongs to ngx_pagespeed",
            ],
        ),
        (
            group,
            [
                "unknown directive \"check\"",
                "it belongs to nginx_upstream_check_module",
            ],
        ),
    ] {
        let (is_good, said) = test(text)?;
        // Help is broken into lines.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            !is_good && messages.iter().all(|it| said.contains(it)),
            "{said}"
        );
    }
    let (is_good, said) = test(&purge)?;
    assert!(is_good, "{said}");
    Ok(())
}

/// Asks both programs about lines in `http`; each is refused by both, with these words.
fn both_refuse(cases: &[(&str, &str)]) -> Result<()> {
    for (lines, words) in cases {
        let text = format!("events {{}} pid x.pid; http {{ access_log off; {lines} }}");
        for kind in [Kind::Nginx, Kind::Millpond] {
            let (passes, said) = test_by(kind, &text)?;
            assert!(!passes && said.contains(words), "{kind:?} {lines}: {said}");
        }
    }
    Ok(())
}

/// Asks both programs about lines in `http`; both take them.
fn both_take(cases: &[&str]) -> Result<()> {
    for lines in cases {
        let text = format!("events {{}} pid x.pid; http {{ access_log off; {lines} }}");
        for kind in [Kind::Nginx, Kind::Millpond] {
            let (passes, said) = test_by(kind, &text)?;
            assert!(passes, "{kind:?} {lines}: {said}");
        }
    }
    Ok(())
}

/// Words of lines that are not obeyed are read all the same.
#[test]
fn lines_without_effect_have_their_grammar() -> Result<()> {
    let count = "invalid number of arguments in";
    both_refuse(&[
        ("map_hash_max_size;", count),
        ("map_hash_max_size 1 2;", count),
        ("map_hash_max_size 1k;", "invalid number"),
        ("types_hash_bucket_size -1;", "invalid number"),
        ("tcp_nopush;", count),
        ("tcp_nopush yes;", "it must be \"on\" or \"off\""),
        ("send_lowat 1g;", "invalid value"),
        ("output_buffers 2;", count),
        ("output_buffers 0 8k;", "invalid value"),
        ("aio maybe;", "invalid value"),
        ("directio on;", "invalid value"),
        ("directio_alignment x;", "invalid value"),
        ("request_pool_size;", count),
    ])?;
    both_take(&[
        "map_hash_max_size 0; types_hash_max_size 2048; tcp_nopush ON; send_lowat 0;",
        "output_buffers 1 64k; aio threads=default; directio 8g; directio_alignment 4k;",
    ])
}

/// A zone of shared memory is of the module that names it first.
#[test]
fn a_zone_of_shared_memory_has_one_use() -> Result<()> {
    let requests = "limit_req_zone $uri zone=a:1m rate=1r/s;";
    let connections = "limit_conn_zone $uri zone=a:1m;";
    let words = "the shared memory zone \"a\" is already declared for a different use";
    let cache = "proxy_cache_path c keys_zone=a:1m;";
    let group = "upstream u { zone a 1m; server 127.0.0.1:1; }";
    let sessions = "ssl_session_cache shared:a:1m;";
    let refused = [
        format!("{requests} limit_conn a 1;"),
        format!("limit_conn a 1; {requests}"),
        format!("{connections} limit_req zone=a;"),
        format!("{connections} {requests}"),
        format!("{connections} {cache}"),
        format!("{group} {connections}"),
        format!("{sessions} {group}"),
    ];
    let cases: Vec<_> = refused.iter().map(|lines| (&**lines, words)).collect();
    both_refuse(&cases)?;
    both_take(&[&format!(
        "{requests} limit_req zone=a; limit_req_zone $uri zone=b:1m rate=1r/s;"
    )])
}

/// nginx's `ngx_inet_addr()` adds up digits and counts dots.
#[test]
fn parts_of_networks_may_be_empty() -> Result<()> {
    both_take(&[
        "geo $a { 10.0.0./8 1; 010.1.0.0/16 2; }",
        "geo $a { ranges; 10.0.0.-10.0.0.9 1; }",
        "allow 10.0.0.; deny 10..0.0/8; set_real_ip_from 192.168.0./24;",
    ])?;
    both_refuse(&[
        ("geo $a { 10.0./16 1; }", "invalid network"),
        ("geo $a { 10.0.0.256 1; }", "invalid network"),
        ("allow 10.0.0;", "invalid parameter"),
    ])
}
