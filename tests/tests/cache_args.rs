//! `cache_args`: keys that do not depend on the order of arguments, nor on those that mean nothing.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    cache_args drop utm_* fbclid;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $host$uri?$cache_args;
        proxy_cache_valid 200 1h;
        add_header X-Cache $upstream_cache_status always;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /all/ { cache_args all; return 200 \"$cache_args\"; }
        location /keep/ { cache_args keep id; return 200 \"$cache_args\"; }
        location /drop/ { return 200 \"$cache_args\"; }
        location /set/ { set $args b=2&utm_c=3&a=1; return 200 \"$cache_args\"; }
    }";

/// Order and dropped arguments do not tell answers apart; the origin sees what the client sent.
#[test]
fn requests_that_differ_in_dropped_arguments_share_an_answer() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/a", Answer::new(200).body("body"));
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    for (target, label) in [
        ("/a?y=2&utm_source=m&x=1", "MISS"),
        ("/a?x=1&y=2", "HIT"),
        ("/a?y=2&fbclid=7&x=%31", "HIT"),
        ("/a?x=1&%75tm_x=9&y=2", "HIT"),
        ("/a?x=1&y=3", "MISS"),
        ("/a?x=1&utm_x=1;y=2&y=2", "MISS"),
    ] {
        let response = client.get(target)?;
        assert_eq!(response.header("X-Cache"), Some(label), "{target}");
    }
    let asked = origin.requests();
    let targets: Vec<&str> = asked.iter().map(|it| it.target.as_str()).collect();
    assert_eq!(targets.first(), Some(&"/a?y=2&utm_source=m&x=1"));
    assert_eq!(targets.len(), 3);
    Ok(())
}

/// An inner list replaces the outer one, and the variable may be used anywhere.
#[test]
fn inner_lists_replace_outer_ones() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    for (target, expected) in [
        ("/all/?utm_b=2&id=1", "id=1&utm_b=2"),
        ("/keep/?utm_b=2&id=1&a", "id=1"),
        ("/drop/?utm_b=2&id=1&a", "a&id=1"),
        ("/drop/?utm_b=2", ""),
        ("/set/?z=9", "a=1&b=2"),
    ] {
        assert_eq!(client.get(target)?.text(), expected, "{target}");
    }
    Ok(())
}
