//! `proxy_cache_targeted_control`: fields that take the place of Cache-Control and Expires here
//! (RFC 9213), under nginx's rules and under those of RFC 9111.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Response};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_targeted_control Mine-Cache-Control CDN-Cache-Control;
        add_header X-Cache $upstream_cache_status always;
        location /nginx/ { proxy_pass http://%%ORIGIN%%/; }
        location /rfc/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_conformance rfc9111; }
        location /off/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_targeted_control off; }
    }";

type Case<'c> = (&'c [(&'c str, &'c str)], &'c str);

const PAST: (&str, &str) = ("Expires", "Sun, 06 Nov 1994 08:49:37 GMT");

/// Fields of an answer, and how it is found the second time.
const CASES: [Case<'_>; 10] = [
    (&[("CDN-Cache-Control", "max-age=600")], "HIT"),
    (&[("CDN-Cache-Control", "max-age=600"), PAST], "HIT"),
    (
        &[
            ("Cache-Control", "no-store"),
            ("CDN-Cache-Control", "max-age=600"),
        ],
        "HIT",
    ),
    (
        &[
            ("Cache-Control", "max-age=600"),
            ("CDN-Cache-Control", "no-store"),
        ],
        "MISS",
    ),
    (
        &[
            ("Cache-Control", "max-age=600"),
            ("CDN-Cache-Control", "private"),
        ],
        "MISS",
    ),
    (
        &[
            ("CDN-Cache-Control", "no-store"),
            ("Mine-Cache-Control", "max-age=600"),
        ],
        "HIT",
    ),
    (
        &[
            ("Cache-Control", "no-store"),
            ("CDN-Cache-Control", "max-age=600, &&"),
        ],
        "MISS",
    ),
    (
        &[
            ("Cache-Control", "no-store"),
            ("CDN-Cache-Control", "max-age=\"600\""),
        ],
        "MISS",
    ),
    (
        &[("Cache-Control", "max-age=600"), ("CDN-Cache-Control", "")],
        "HIT",
    ),
    (
        &[
            ("Cache-Control", "max-age=600"),
            ("CDN-Cache-Control", "none"),
        ],
        "MISS",
    ),
];

fn second_of(client: &Client, path: &str) -> Result<Response> {
    client.get(path)?;
    client.get(path)
}

fn label(response: &Response) -> &str {
    response.header("X-Cache").unwrap_or("-")
}

/// §2.2: the first field of the list that is valid and not empty decides, in both modes.
#[test]
fn a_targeted_field_takes_the_place_of_cache_control_and_expires() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    for (number, (fields, expected)) in CASES.iter().enumerate() {
        let mut answer = Answer::new(200).body("body");
        for (name, value) in *fields {
            answer = answer.header(name, value);
        }
        origin.route(&format!("/{number}"), answer);
        for mode in ["nginx", "rfc"] {
            let response = second_of(&client, &format!("/{mode}/{number}"))?;
            assert_eq!(label(&response), *expected, "{mode}: {fields:?}");
        }
    }
    Ok(())
}

/// Without the list the field means nothing; X-Accel-Expires is stronger than it; clients get it.
#[test]
fn the_field_counts_only_where_it_is_listed_and_behind_accel_expires() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let field = "CDN-Cache-Control";
    origin.route("/a", Answer::new(200).header(field, "max-age=600"));
    let response = second_of(&client, "/off/a")?;
    assert_eq!(label(&response), "MISS");
    assert_eq!(response.header(field), Some("max-age=600"));
    for (accel, control, expected) in [
        ("600", "no-store", "HIT"),
        ("0", "max-age=600", "MISS"),
        ("off", "max-age=600", "HIT"),
    ] {
        let answer = Answer::new(200)
            .header("X-Accel-Expires", accel)
            .header(field, control);
        let path = format!("/accel-{accel}");
        origin.route(&path, answer);
        let response = second_of(&client, &format!("/nginx{path}"))?;
        assert_eq!(label(&response), expected, "{accel}, {control}");
    }
    Ok(())
}

/// RFC 9213 §3.1: CDN-Cache-Control speaks to every CDN, so that a cache by the RFCs obeys it
/// unless it is told not to.
#[test]
fn by_the_rfc_the_common_field_counts_without_a_list() -> Result<()> {
    const UNLISTED: &str = "
        proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
        server {
            listen 127.0.0.1:%%PORT%%;
            proxy_cache z;
            add_header X-Cache $upstream_cache_status always;
            location /nginx/ { proxy_pass http://%%ORIGIN%%/; }
            location /rfc/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_conformance rfc9111; }
            location /off/ {
                proxy_pass http://%%ORIGIN%%/;
                proxy_cache_conformance rfc9111;
                proxy_cache_targeted_control off;
            }
            location /mine/ {
                proxy_pass http://%%ORIGIN%%/;
                proxy_cache_conformance rfc9111;
                proxy_cache_targeted_control Mine-Cache-Control;
            }
        }";
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, UNLISTED)
        .origin(&origin)
        .start()?;
    let client = Client::new(proxy.port());
    for (path, control, targeted, expected) in [
        ("/rfc/a", "no-store", "max-age=600", "HIT"),
        ("/rfc/b", "max-age=600", "no-store", "MISS"),
        ("/rfc/c", "max-age=600", "max-age=", "HIT"),
        ("/nginx/d", "max-age=600", "no-store", "HIT"),
        ("/off/e", "max-age=600", "no-store", "HIT"),
        ("/mine/f", "max-age=600", "no-store", "HIT"),
    ] {
        let answer = Answer::new(200)
            .header("Cache-Control", control)
            .header("CDN-Cache-Control", targeted)
            .body("body");
        let (_, route) = path.split_at(path.len() - 2);
        origin.route(route, answer);
        assert_eq!(label(&second_of(&client, path)?), expected, "{path}");
    }
    Ok(())
}
