//! `secure_link_hmac`: links that are signed with a key.
//!
//! The tokens were made by another program: Python's `hmac` and `base64.urlsafe_b64encode`, with
//! the key `word`.

use anyhow::Result;
use millpond_testkit::{Client, Kind, Proxy, Request};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        secure_link_hmac_secret word;
        location /plain/ {
            secure_link_hmac $arg_st;
            secure_link_hmac_message $uri;
            return 200 '[$secure_link_hmac]';
        }
        location /sha1/ {
            secure_link_hmac $arg_st;
            secure_link_hmac_message $uri;
            secure_link_hmac_algorithm sha1;
            return 200 '[$secure_link_hmac]';
        }
        location /timed/ {
            secure_link_hmac $arg_st,$arg_ts,$arg_e;
            secure_link_hmac_message $uri$arg_ts$arg_e;
            return 200 '[$secure_link_hmac] $secure_link_hmac_expires';
        }
        location /token/ {
            secure_link_hmac_message /plain/a;
            return 200 $secure_link_hmac_token;
        }
        location /none/ { return 200 '[$secure_link_hmac]$secure_link_hmac_token'; }
    }";

#[test]
fn token_of_the_message_and_its_time_decide() -> Result<()> {
    let proxy = Proxy::new(Kind::Millpond, CONF).start()?;
    let plain = "zRfB_QoQ0p8kcEvgVJIhVt1BHkTLnn5Pbnt6w3zpga8";
    let sha1 = "2iPSuCudFvgWbha2wEIwsTcrHLw";
    let (good, over) = (
        "KHGHef6VbhuTRKsxR1nM0qqznbrpSYi83l9wkLSIzOw",
        "xCHhHGsNk8Q4CLnldDSl-mEJnSGbkFob88euIufJRn0",
    );
    let of_date = "Dd7_lHKJvwZ8ng_dfHVAL_sqU5H_FjFCSLVWvZqXCNw";
    for (target, expected) in [
        (format!("/plain/a?st={plain}"), "[1]".to_string()),
        (format!("/plain/a?st={plain}="), "[1]".to_string()),
        (format!("/plain/b?st={plain}"), "[]".to_string()),
        (format!("/plain/a?st=A{}", &plain[1..]), "[]".to_string()),
        (format!("/plain/a?st={plain}AAAA"), "[]".to_string()),
        ("/plain/a?st=".to_string(), "[]".to_string()),
        (format!("/sha1/a?st={sha1}"), "[1]".to_string()),
        (format!("/sha1/a?st={plain}"), "[]".to_string()),
        (
            format!("/timed/a?st={good}&ts=1700000000&e=4102444800"),
            "[1] 4102444800".to_string(),
        ),
        (
            format!("/timed/a?st={over}&ts=1700000000&e=60"),
            "[0] 60".to_string(),
        ),
        (
            format!("/timed/a?st={over}&ts=1700000000&e=61"),
            "[] 61".to_string(),
        ),
        (
            format!("/timed/a?st={of_date}&ts=2023-11-14T22:13:20Z&e=4102444800"),
            "[1] 4102444800".to_string(),
        ),
        (
            format!("/timed/a?st={good}&ts=never&e=4102444800"),
            "[] 4102444800".to_string(),
        ),
        ("/token/a".to_string(), plain.to_string()),
        ("/none/a".to_string(), "[]".to_string()),
    ] {
        let found = Client::new(proxy.port())
            .send(&Request::get(&target))?
            .text();
        assert_eq!(found, expected, "{target}");
    }
    Ok(())
}

#[test]
fn unknown_algorithm_is_refused_at_the_start() {
    let conf = "secure_link_hmac_algorithm whirlpool; server { listen 127.0.0.1:%%PORT%%; }";
    let why = format!(
        "{:#}",
        Proxy::new(Kind::Millpond, conf).start().unwrap_err()
    );
    assert!(why.contains("whirlpool"), "{why}");
}
