//! The derives: grammar, inheritance, protocols and the tables.

mod family;

use std::path::PathBuf;
use std::time::Duration;

use family::{LocationConf, Reason, Satisfy, Valid, resolve};
use millpond_conf::{
    ByteSize, ConfPath, Contexts, Diagnostics, Family, LoadOptions, Offset, ParseContext, Scope,
    Style, Tree, check_table, load_text,
};
use proptest::prelude::*;

fn tree(text: &str) -> Tree {
    let mut diagnostics = Diagnostics::new();
    let tree = load_text("t.conf", text, &LoadOptions::default(), &mut diagnostics);
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    tree
}

/// The settings of the only location of a text without mistakes.
fn location(text: &str) -> (LocationConf, ParseContext) {
    let mut cx = ParseContext::new("/prefix", "/conf");
    let tree = tree(text);
    let mut all = resolve(&tree.statements, &mut cx);
    let rendered = cx.diagnostics.render(&tree.sources, Style::Plain);
    assert_eq!(rendered, "");
    assert_eq!(all.len(), 1);
    (all.remove(0).1, cx)
}

/// The messages for a text with mistakes.
fn messages(text: &str) -> Vec<String> {
    let mut cx = ParseContext::new("/prefix", "/conf");
    resolve(&tree(text).statements, &mut cx);
    cx.diagnostics.iter().map(|it| it.message.clone()).collect()
}

#[test]
fn defaults_fill_what_nobody_set() {
    let (conf, cx) = location("http { server { location / { } } }");
    assert_eq!(conf.core.root, PathBuf::from("/prefix/html"));
    assert_eq!(conf.core.max_body, Offset(1 << 20));
    assert_eq!(conf.core.buffers.size, ByteSize(32 << 10));
    assert_eq!(conf.core.index, ["index.html"]);
    assert_eq!(conf.core.satisfy, Satisfy::All);
    assert!(conf.core.internal.is_none() && conf.core.types.is_none());
    assert_eq!((conf.core.computed, conf.name.as_str()), (0, ""));
    assert!(
        !conf.proxy.cache.lock
            && conf.proxy.cache.zone.is_none()
            && conf.proxy.cache.valid.is_empty()
    );
    assert!(conf.proxy.cache.use_stale.contains(Reason::Off));
    assert_eq!(conf.proxy.cache.key.variables().count(), 3);
    assert!(cx.variables.lookup("request_uri").is_some());
}

#[test]
fn innermost_value_wins() {
    let (conf, _) = location(
        "http { proxy_cache_lock on; proxy_cache_lock_timeout 1s; root /a;
           server { root /b; certificate c.pem;
             location / { proxy_cache_lock_timeout 200ms; internal; worker_name a; worker_name b; } } }",
    );
    assert!(conf.proxy.cache.lock);
    assert_eq!(conf.proxy.cache.lock_timeout, Duration::from_millis(200));
    assert_eq!(conf.core.root, PathBuf::from("/b"));
    assert_eq!(conf.core.worker.as_deref(), Some("b"));
    assert_eq!(conf.core.certificates, [ConfPath("/conf/c.pem".into())]);
    assert!(conf.core.internal.is_some());
}

#[test]
fn inner_list_replaces_the_outer_one() {
    let valid = |statuses: &[u16], seconds| Valid {
        statuses: statuses.to_vec(),
        time: Duration::from_secs(seconds),
    };
    let text = "http { proxy_cache_valid 1m; server {
                  proxy_cache_valid 200 302 10m; proxy_cache_valid 404 1m; location / { } } }";
    let (conf, _) = location(text);
    assert_eq!(
        conf.proxy.cache.valid,
        [valid(&[200, 302], 600), valid(&[404], 60)]
    );
    let (conf, _) = location("http { proxy_cache_valid 1m; server { location / { } } }");
    assert_eq!(conf.proxy.cache.valid, [valid(&[], 60)]);
}

#[test]
fn protocols_have_directives_of_their_own() {
    let (conf, _) = location("http { server { location / { fastcgi_cache_lock on; } } }");
    assert!(conf.fastcgi.cache.lock && !conf.proxy.cache.lock);
    let directives = LocationConf::directives();
    let lock = directives.iter().find(|it| it.name == "fastcgi_cache_lock");
    let lock = lock.expect("declared for the protocol");
    assert!(lock.doc.contains("# Differs from nginx"));
    assert!(
        lock.doc.contains("`fastcgi_cache_lock` stream"),
        "{}",
        lock.doc
    );
    assert_eq!((lock.syntax, lock.default), ("on | off", Some("off")));
    assert_eq!(lock.contexts.names(), ["http", "server", "location"]);
    assert!(
        lock.source.contains("tests/family/mod.rs:"),
        "{}",
        lock.source
    );
}

#[test]
fn a_directive_may_belong_to_some_protocols_only() {
    let (conf, _) = location("http { fastcgi_param a; server { location / { } } }");
    assert_eq!(conf.fastcgi.trailer.param.as_deref(), Some("a"));
    assert_eq!(conf.proxy.trailer.param, None);
    assert!(conf.fastcgi.trailer.trailers, "the default");
    let directives = LocationConf::directives();
    let names = |suffix: &str| -> Vec<&str> {
        let names = directives.iter().map(|it| &*it.name);
        names.filter(|name| name.ends_with(suffix)).collect()
    };
    assert_eq!(names("_param"), ["fastcgi_param"]);
    assert_eq!(names("_pass_trailers"), ["proxy_pass_trailers"]);
    let refused = messages("http { proxy_param a; server { location / { } } }");
    assert!(
        refused[0].starts_with("unknown directive \"proxy_param\""),
        "{refused:?}"
    );
}

#[test]
fn a_protocol_may_have_some_families_only() {
    let (conf, _) = location("http { memcached_timeout 2s; server { location / { } } }");
    assert_eq!(conf.memcached.trailer.timeout, Duration::from_secs(2));
    assert!(!conf.memcached.cache.lock, "the default");
    let refused = messages("http { memcached_cache_lock on; server { location / { } } }");
    let unknown = "unknown directive \"memcached_cache_lock\"";
    assert!(refused[0].starts_with(unknown), "{refused:?}");
    let directives = LocationConf::directives();
    let names = directives.iter().map(|it| &*it.name);
    let names: Vec<&str> = names.filter(|name| name.starts_with("memcached")).collect();
    assert_eq!(names, ["memcached_timeout"]);
}

#[test]
fn blocks_are_values_too() {
    let text = "http { types { text/html html htm; } server { location / { } } }";
    let (conf, _) = location(text);
    let types = conf.core.types.expect("set");
    let html = vec!["html".to_owned(), "htm".to_owned()];
    assert_eq!(types.0, [("text/html".to_owned(), html)]);
}

#[test]
fn mistakes_are_worded_as_nginx_words_them() {
    for (text, message) in [
        ("http { x on; }", "unknown directive \"x\""),
        ("root /;", "\"root\" directive is not allowed here"),
        (
            "http { internal; }",
            "\"internal\" directive is not allowed here",
        ),
        (
            "http { proxy_cache_lock on; proxy_cache_lock on; }",
            "\"proxy_cache_lock\" directive is duplicate",
        ),
        (
            "http { proxy_cache_lock maybe; }",
            "invalid value \"maybe\" in \"proxy_cache_lock\" directive, \
             it must be \"on\" or \"off\"",
        ),
        (
            "http { fastcgi_cache_lock; }",
            "invalid number of arguments in \"fastcgi_cache_lock\" directive",
        ),
        (
            "http { root / { } }",
            "directive \"root\" is not terminated by \";\"",
        ),
        (
            "http { types a; }",
            "directive \"types\" has no opening \"{\"",
        ),
        (
            "http { client_max_body_size 1q; }",
            "\"client_max_body_size\" directive invalid value \"1q\"",
        ),
        ("http { proxy_cache_key $; }", "invalid variable name"),
    ] {
        assert_eq!(messages(text), [message], "{text}");
    }
}

#[test]
fn all_mistakes_are_reported() {
    let text = "x; http { root; y; server { proxy_cache_lock 1; location / { z; } } }";
    assert_eq!(messages(text).len(), 5);
}

#[test]
fn raw_settings_know_where_they_were_set() {
    let tree = tree("proxy_cache_lock\n on;");
    let mut cx = ParseContext::default();
    let mut raw = <LocationConf as Scope>::Raw::default();
    let st = &tree.statements[0];
    let _ = LocationConf::apply(&mut raw, st, Contexts::HTTP, &mut cx);
    let span = LocationConf::span_of(&raw, "proxy_cache_lock");
    assert_eq!(span, Some(st.span));
    assert_eq!(LocationConf::span_of(&raw, "fastcgi_cache_lock"), None);
    assert_eq!(LocationConf::span_of(&raw, "nothing"), None);
    let mut raw = <family::CachePolicy as Family>::Raw::default();
    let _ = family::CachePolicy::apply(&mut raw, "proxy", st, Contexts::HTTP, &mut cx);
    assert_eq!(raw.span_of("proxy_cache_lock"), Some(st.span));
}

#[test]
fn defaults_are_parsed_once_for_a_context() {
    let mut cx = ParseContext::new("/prefix", "/conf");
    let raw = <LocationConf as Scope>::Raw::default();
    let first = LocationConf::resolve(&[&raw], &mut cx);
    let uses = cx.variables.uses().count();
    let second = LocationConf::resolve(&[&raw, &raw], &mut cx);
    assert_eq!(cx.variables.uses().count(), uses);
    assert_eq!(first.proxy.cache.key, second.proxy.cache.key);
}

proptest! {
    #[test]
    fn any_words_are_read(
        name in proptest::sample::select(names()),
        words in proptest::collection::vec("[a-z0-9$ \\-.{}öM]{0,6}|off|on|[0-9]{1,22}[kmgs]?", 0..4),
        body in any::<bool>(),
    ) {
        let words = words.iter().map(|word| format!(" \"{word}\""));
        let words = words.collect::<String>();
        let end = if body { "{ a b; }" } else { ";" };
        let tree = tree(&format!("http {{ server {{ location / {{ {name}{words}{end} }} }} }}"));
        let mut cx = ParseContext::new("/prefix", "/conf");
        let found = resolve(&tree.statements, &mut cx);
        prop_assert_eq!(found.len(), 1);
        cx.diagnostics.render(&tree.sources, Style::Plain);
    }
}

fn names() -> Vec<String> {
    let directives = LocationConf::directives().into_iter();
    directives
        .map(|directive| directive.name.into_owned())
        .collect()
}

#[test]
fn table_has_no_faults() {
    check_table(&LocationConf::directives());
}
