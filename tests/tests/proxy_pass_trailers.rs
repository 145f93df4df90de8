//! `proxy_pass_trailers`, `sticky cookie`: what comes with one answer only, and is not stored.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Framing, Kind, Origin, Proxy};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    add_header X-Cache $upstream_cache_status;
    upstream peers { server %%ORIGIN%%; sticky cookie peer; }
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /on/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_pass_trailers on;
            proxy_hide_header X-Secret;
        }
        location /cached/ {
            proxy_pass http://peers/;
            proxy_pass_trailers on;
            proxy_cache z;
            proxy_cache_valid 200 1h;
        }
    }";

fn bench() -> Result<(Origin, Proxy, Client)> {
    let origin = Origin::start()?;
    let answer = Answer::new(200).body("body").framing(Framing::Chunked);
    let answer = answer.trailer("X-Sum", "5").trailer("X-Secret", "s");
    origin.route("/a", answer.trailer("Content-Length", "1"));
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    Ok((origin, proxy, client))
}

/// Trailer fields of the origin reach the client where it is said so, but for those that are hidden
/// from it wherever they stand, and those that would say where a body ends.
#[test]
fn trailers_are_passed_where_it_is_said_so() -> Result<()> {
    let (_origin, _proxy, client) = bench()?;
    for (path, trailer) in [("/a", None), ("/on/a", Some("5"))] {
        let response = client.get(path)?;
        assert_eq!((response.status, &*response.text()), (200, "body"));
        assert_eq!(response.trailers.value("X-Sum"), trailer, "{path}");
        for never in ["X-Secret", "Content-Length"] {
            assert_eq!(response.trailers.value(never), None, "{path} {never}");
        }
    }
    Ok(())
}

/// An answer of a cache has neither trailers nor a cookie that binds its reader to somebody else's
/// peer.
#[test]
fn answer_of_a_cache_has_no_trailers_and_binds_nobody() -> Result<()> {
    let (_origin, _proxy, client) = bench()?;
    for (cache, is_bound) in [("MISS", true), ("HIT", false)] {
        let response = client.get("/cached/a")?;
        assert_eq!((response.status, &*response.text()), (200, "body"));
        assert_eq!(response.header("X-Cache"), Some(cache));
        assert_eq!(response.trailers.value("X-Sum"), None, "{cache}");
        assert_eq!(response.header("Set-Cookie").is_some(), is_bound, "{cache}");
    }
    Ok(())
}
