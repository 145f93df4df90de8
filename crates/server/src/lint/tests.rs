//! Tables for each lint: what it finds, and what looks like it and is right.

use millpond_conf::{LoadOptions, Severity, load_text};

use super::*;

/// The codes of the warnings about a text, in order, each with the line that it is about.
fn warnings(text: &str) -> Vec<(&'static str, usize)> {
    let mut diagnostics = Diagnostics::new();
    let tree = load_text("x.conf", text, &LoadOptions::default(), &mut diagnostics);
    run(&tree.statements, &tree.sources, &mut diagnostics);
    let place = |it: &Diagnostic| tree.sources.place(it.span.unwrap()).unwrap().line;
    diagnostics
        .iter()
        .map(|it| {
            assert_eq!(it.severity, Severity::Warning, "{}", it.message);
            assert!(it.help.is_some(), "{} says what to write", it.message);
            (it.code.unwrap().name, place(it))
        })
        .collect()
}

/// Checks the codes that each text of a table is warned of.
fn check(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let found: Vec<&str> = warnings(text).into_iter().map(|(code, _)| code).collect();
        assert_eq!(found, *expected, "{text}");
    }
}

/// A server that stores in zone `z`, with more lines; nothing else to warn of.
fn caching(zone: &str, lines: &str) -> String {
    format!(
        "http {{ proxy_cache_path /c keys_zone=z:1m {zone}; server {{ location / {{ \
         proxy_pass http://a; proxy_cache z; {lines} }} }} }}"
    )
}

#[test]
fn inactive_that_is_shorter_than_a_minute_or_than_the_freshness_is_found() {
    for (zone, lines, is_found) in [
        ("inactive=10", "proxy_cache_valid 200 5s;", true),
        ("inactive=59s", "proxy_cache_valid 200 5s;", true),
        ("inactive=60s", "proxy_cache_valid 200 5s;", false),
        ("inactive=10m", "proxy_cache_valid 200 10m;", false),
        ("inactive=10m", "proxy_cache_valid 200 11m;", true),
        (
            "inactive=1h",
            "proxy_cache_valid 200 1m; proxy_cache_valid any 1d;",
            true,
        ),
        ("", "proxy_cache_valid 10m;", false),
        ("", "proxy_cache_valid 11m;", true),
    ] {
        let expected = Vec::from_iter(is_found.then_some("inactive_short"));
        check(&[(&caching(zone, lines), &expected)]);
    }
}

#[test]
fn a_zone_without_times_is_found_once_where_it_is_named() {
    let text = "http {\n proxy_cache_path /c keys_zone=z:1m;\n server {\n proxy_cache z;\n \
                location /a { proxy_pass http://a; }\n location /b { proxy_pass http://b; }\n \
                location /c { proxy_pass http://b; proxy_cache off; }\n } }";
    assert_eq!(warnings(text), [("no_valid_time", 4)]);
    let with_time = text.replace("proxy_cache z;", "proxy_cache z; proxy_cache_valid 1m;");
    assert_eq!(warnings(&with_time), []);
    let of_files = "http { server { proxy_cache z; location / { root /r; } } }";
    assert_eq!(warnings(of_files), []);
}

#[test]
fn every_protocol_is_looked_at() {
    let text = caching("", "").replace("proxy_", "fastcgi_");
    assert_eq!(warnings(&text), [("no_valid_time", 1)]);
}

#[test]
fn stale_entries_that_are_updated_in_the_foreground_are_found() {
    let stale = "proxy_cache_valid 1m; proxy_cache_use_stale error updating;";
    let behind = format!("{stale} proxy_cache_background_update on;");
    let error = "proxy_cache_valid 1m; proxy_cache_use_stale error;";
    check(&[
        (&caching("", stale), &["updating_in_foreground"]),
        (&caching("", &behind), &[]),
        (&caching("", error), &[]),
    ]);
}

#[test]
fn personal_answers_that_are_stored_for_all_are_found() {
    for (lines, is_found) in [
        ("proxy_cache_bypass $cookie_session;", true),
        ("proxy_cache_bypass $http_authorization;", true),
        (
            "map_is_unknown x; proxy_cache_bypass $http_pragma $is_admin;",
            true,
        ),
        ("proxy_cache_bypass $http_pragma $arg_refresh;", false),
        (
            "proxy_cache_bypass $cookie_a; proxy_no_cache $cookie_a;",
            false,
        ),
    ] {
        let expected = Vec::from_iter(is_found.then_some("bypass_is_stored"));
        let lines = format!("proxy_cache_valid 1m; {lines}");
        check(&[(&caching("", &lines), &expected)]);
    }
}

/// Two servers with a zone, a key and what each location has.
fn sites(key: &str, first: &str, second: &str) -> String {
    format!(
        "http {{ proxy_cache_valid 1m; {key} \
         server {{ server_name a; location / {{ proxy_cache z; {first} }} }} \
         server {{ server_name b; location / {{ proxy_cache z; {second} }} }} }}"
    )
}

#[test]
fn sites_whose_keys_may_be_the_same_are_found() {
    const PASS: &str = "proxy_pass http://app;";
    const WITH_HOST: &str = "proxy_pass http://app; proxy_set_header Host $host;";
    const OTHER: &str = "proxy_pass http://other; proxy_set_header Host $host;";
    for (key, first, second, is_found) in [
        ("proxy_cache_key $uri;", PASS, PASS, true),
        ("proxy_cache_key $uri;", PASS, OTHER, true),
        ("proxy_cache_key $host$uri;", PASS, OTHER, false),
        ("proxy_cache_key $http_host$uri;", PASS, OTHER, false),
        ("proxy_cache_key $site$uri;", PASS, OTHER, false),
        ("", PASS, PASS, false),
        ("", WITH_HOST, WITH_HOST, true),
        ("", WITH_HOST, OTHER, false),
        (
            "proxy_cache_key $proxy_host$uri;",
            WITH_HOST,
            WITH_HOST,
            true,
        ),
    ] {
        let text = sites(key, first, second);
        let expected = Vec::from_iter(is_found.then_some("cache_key_without_host"));
        check(&[(&text, &expected)]);
        let one_site = text.replace("server_name b;", "server_name a;");
        check(&[(&one_site, &[])]);
    }
}

#[test]
fn keys_that_clients_can_spell_at_will_are_found() {
    for (key, is_found) in [
        ("$uri $http_user_agent", true),
        ("$uri $cookie_id", true),
        ("$uri ${http_accept_encoding}", true),
        ("$host$uri$is_args$args", false),
        ("$http_host$uri", false),
        ("$uri$coding", false),
    ] {
        let lines = format!("proxy_cache_valid 1m; proxy_cache_key \"{key}\";");
        let expected = Vec::from_iter(is_found.then_some("cache_key_unbounded"));
        check(&[(&caching("", &lines), &expected)]);
    }
}

#[test]
fn values_of_clients_that_run_into_each_other_in_a_key_are_found() {
    for (key, is_found) in [
        ("$scheme$host$request_uri", false),
        ("$host$uri$is_args$args", false),
        ("$host$uri?$cache_args", false),
        ("$request_method$host$uri$args", true),
        ("$host$arg_a$arg_b", true),
        ("$host$arg_a${arg_b}", true),
        ("$host/$arg_a $arg_b", false),
        ("$request_uri$remote_user", true),
        ("$uri$slice_range", false),
        ("$host$uri$device", false),
    ] {
        let lines = format!("proxy_cache_valid 1m; proxy_cache_key \"{key}\";");
        let expected = Vec::from_iter(is_found.then_some("cache_key_ambiguous"));
        check(&[(&caching("", &lines), &expected)]);
    }
}

#[test]
fn lists_that_an_inner_list_replaces_are_found() {
    let text = |outer: &str, inner: &str| {
        format!("http {{ server {{ {outer} location / {{ {inner} }} }} }}")
    };
    for (outer, inner, is_found) in [
        ("add_header A 1;", "add_header B 2;", true),
        ("add_header A 1;", "add_header a 2;", false),
        ("add_header A 1;", "", false),
        (
            "add_header A 1;",
            "add_header B 2; add_header_inherit merge;",
            false,
        ),
        (
            "add_header A 1; add_header_inherit merge;",
            "add_header B 2;",
            false,
        ),
        (
            "proxy_set_header Host $host;",
            "proxy_set_header A 1;",
            true,
        ),
        ("fastcgi_param A 1;", "fastcgi_param B 1;", true),
        ("", "add_header B 2;", false),
    ] {
        let expected = Vec::from_iter(is_found.then_some("list_not_inherited"));
        check(&[(&text(outer, inner), &expected)]);
    }
}

#[test]
fn only_rewriting_is_safe_in_an_if_of_a_location() {
    let text =
        |inner: &str| format!("http {{ server {{ location / {{ if ($a) {{ {inner} }} }} }} }}");
    for (inner, is_found) in [
        ("return 403;", false),
        ("set $b 1; rewrite ^ /x last; break;", false),
        ("proxy_pass http://a;", true),
        ("set $b 1; add_header A 1;", true),
    ] {
        let expected = Vec::from_iter(is_found.then_some("if_in_location"));
        check(&[(&text(inner), &expected)]);
    }
    let in_server = "http { server { if ($a) { access_log off; } } }";
    check(&[(in_server, &[])]);
}

#[test]
fn names_that_nobody_can_resolve_are_found() {
    let groups = "upstream app { server 127.0.0.1:1; } map $uri $group { default app; /b 10.0.0.1; } \
                  map $uri $mixed { default app; /b b.example; }";
    for (lines, is_found) in [
        ("proxy_pass http://$host;", true),
        ("proxy_pass http://$host$request_uri;", true),
        ("proxy_pass http://app$request_uri;", false),
        ("proxy_pass http://127.0.0.1:80$request_uri;", false),
        ("proxy_pass http://[::1]$request_uri;", false),
        ("proxy_pass http://b.example$request_uri;", true),
        ("proxy_pass http://$arg_a.example/;", true),
        ("proxy_pass http://$group$uri;", false),
        ("proxy_pass http://${group};", false),
        ("proxy_pass http://$mixed;", true),
        ("set $to http://app; proxy_pass $to;", false),
        ("set $to b.example; proxy_pass http://$to/x;", true),
        ("resolver 127.0.0.1; proxy_pass http://$host;", false),
        ("proxy_pass http://unix:/run/$host.sock;", false),
        ("proxy_pass http://b.example;", false),
    ] {
        let text = format!("http {{ {groups} server {{ location / {{ {lines} }} }} }}");
        let expected = Vec::from_iter(is_found.then_some("pass_without_resolver"));
        check(&[(&text, &expected)]);
    }
}

#[test]
fn aliases_that_let_clients_out_of_their_folder_are_found() {
    for (location, alias, is_found) in [
        ("/f", "/data/", true),
        ("^~ /f", "/data/", true),
        ("/f/", "/data/", false),
        ("/f", "/data", false),
        ("= /f", "/data/", false),
        ("~ ^/f", "/data/", false),
    ] {
        let text = format!("http {{ server {{ location {location} {{ alias {alias}; }} }} }}");
        let expected = Vec::from_iter(is_found.then_some("alias_traversal"));
        check(&[(&text, &expected)]);
    }
}

#[test]
fn a_comment_beside_the_place_silences_one_kind() {
    let text = |before: &str, behind: &str| {
        format!("http {{ server {{ location /f {{\n{before}\nalias /d/; {behind}\n }} }} }}")
    };
    for (before, behind, is_found) in [
        ("", "", true),
        ("# millpond: allow(alias_traversal)", "", false),
        (
            "# millpond: allow(no_valid_time, alias_traversal)",
            "",
            false,
        ),
        (
            "# millpond: allow(alias_traversal)\n  # for old links",
            "",
            false,
        ),
        ("", "# millpond: allow(alias_traversal)", false),
        ("# millpond: allow(no_valid_time)", "", true),
        ("# millpond: allow(alias_traversal)\n", "", true),
        ("root /x; # millpond: allow(alias_traversal)", "", true),
    ] {
        let expected = Vec::from_iter(is_found.then_some("alias_traversal"));
        check(&[(&text(before, behind), &expected)]);
    }
}

#[test]
fn workers_that_stay_root_are_found() {
    let server = |lines: &str| format!("http {{ server {{ {lines} return 204; }} }}");
    let found: &[&str] = &["workers_as_root"];
    check(&[
        (&server("listen 80;"), found),
        (&server("listen 8080; listen [::]:443;"), found),
        (&server("listen 127.0.0.1; listen 443;"), found),
        (&server("listen 8080; listen unix:/run/a.sock;"), &[]),
        (&format!("user www; {}", server("listen 80;")), &[]),
        (
            &server("\n# millpond: allow(workers_as_root)\nlisten 80;"),
            &[],
        ),
    ]);
}

#[test]
fn what_is_for_operators_and_open_to_everybody_is_found() {
    let in_location = |lines: &str| format!("http {{ server {{ location / {{ {lines} }} }} }}");
    for (lines, is_found) in [
        ("api write=on;", true),
        ("api hosts=a write=on;", true),
        ("dashboard;", true),
        ("metrics;", true),
        ("api;", false),
        ("api write=off;", false),
        ("api write=on; allow 127.0.0.1; deny all;", false),
        ("dashboard; deny all;", false),
        ("metrics; auth_basic x; auth_basic_user_file y;", false),
        ("metrics; auth_basic off;", true),
        ("metrics; auth_request /who;", false),
        ("location /m { metrics; } allow 10.0.0.0/8;", false),
    ] {
        let expected: &[&str] = if is_found {
            &["open_to_everybody"]
        } else {
            &[]
        };
        check(&[(&in_location(lines), expected)]);
    }
}

#[test]
fn what_is_against_the_rfc_that_is_followed_is_found() {
    let valid = "proxy_cache_valid 1m;";
    let by_rfc = format!("{valid} proxy_cache_conformance rfc9111;");
    let behind = "proxy_cache_use_stale error updating; proxy_cache_background_update on;";
    check(&[
        (&caching("", &format!("{valid} {behind}")), &[]),
        (
            &caching("", &format!("{by_rfc} {behind}")),
            &["rfc_stale_updating"],
        ),
        (
            &caching("", &format!("{by_rfc} proxy_cache_use_stale updating;")),
            &["rfc_stale_updating"],
        ),
        (
            &caching("", &format!("{by_rfc} proxy_cache_use_stale error;")),
            &[],
        ),
        (
            &caching("", &format!("{by_rfc} proxy_cache_methods GET POST;")),
            &["rfc_post_stored"],
        ),
        (
            &caching("", &format!("{by_rfc} proxy_cache_methods GET HEAD;")),
            &[],
        ),
        (
            &caching("", &format!("{valid} proxy_cache_methods POST;")),
            &[],
        ),
        (
            &caching("", &format!("{by_rfc} {behind}")).replace("proxy_", "fastcgi_"),
            &["rfc_stale_updating"],
        ),
    ]);
}
