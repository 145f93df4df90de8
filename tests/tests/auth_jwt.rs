//! `auth_jwt`: tokens let in, and what they say is known.

use anyhow::{Context, Result};
use aws_lc_rs::hmac;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request, binary};
use millpond_wire::base64;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const CONF: &str = "
    auth_jwt_claim_set $city address city;
    auth_jwt_claim_set $audience aud;
    auth_jwt_header_set $kind typ;
    log_format sub '$uri $status [$jwt_claim_sub]';
    access_log %%DIR%%/access.log sub;
    map $jwt_claim_role $is_admin { admin 1; default 0; }
    server {
        listen 127.0.0.1:%%PORT%%;
        auth_jwt_key_file keys.json;
        location / {
            auth_jwt Ponds;
            try_files /none @said;
        }
        location @said {
            set $claims '$jwt_claim_sub|$jwt_claim_N|$city|$audience';
            return 200 '$claims|$jwt_header_alg|$kind|$jwt_payload';
        }
        location /files/ { auth_jwt Ponds; alias %%DIR%%/www/; }
        location /files/free { auth_jwt off; alias %%DIR%%/www/a.txt; }
        location /cookie { auth_jwt Ponds token=$cookie_auth; alias %%DIR%%/www/a.txt; }
        location /late { auth_jwt Ponds; auth_jwt_leeway 1h; alias %%DIR%%/www/a.txt; }
        location /admin {
            auth_jwt Ponds;
            auth_jwt_require $jwt_claim_sub;
            auth_jwt_require $is_admin error=403;
            alias %%DIR%%/www/a.txt;
        }
        location /two { auth_jwt Ponds; auth_jwt_key_file keys.json; auth_jwt_key_file more.json;
                        alias %%DIR%%/www/a.txt; }
        location /lost { auth_jwt Ponds; auth_jwt_key_file lost.json; alias %%DIR%%/www/a.txt; }
        location /any {
            satisfy any; deny all;
            auth_jwt Ponds;
            alias %%DIR%%/www/a.txt;
        }
        location /fetched {
            auth_jwt Ponds; auth_jwt_key_file none.json;
            auth_jwt_key_request /jwks; auth_jwt_key_cache 1h;
            alias %%DIR%%/www/a.txt;
        }
        location /asked { auth_jwt Ponds; auth_jwt_key_request /jwks; auth_jwt_key_cache 1h;
                          auth_jwt_key_file more.json; alias %%DIR%%/www/a.txt; }
        location = /jwks { internal; proxy_pass http://%%ORIGIN%%; }
        location /broken {
            auth_jwt Ponds; auth_jwt_key_file none.json; auth_jwt_key_request /broken_jwks;
            alias %%DIR%%/www/a.txt;
        }
        location = /broken_jwks { internal; return 503; }
    }";

fn url(bytes: &[u8]) -> String {
    let text = base64::encode(bytes);
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}

fn keys(secret: &str) -> String {
    format!(
        r#"{{"keys":[{{"kty":"oct","k":"{}"}}]}}"#,
        url(secret.as_bytes())
    )
}

fn token(secret: &str, header: &str, claims: &str) -> String {
    let signed = format!("{}.{}", url(header.as_bytes()), url(claims.as_bytes()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", url(tag.as_ref()))
}

/// A token of the first secret.
fn good(claims: &str) -> String {
    token("first", r#"{"alg":"HS256","typ":"JWT"}"#, claims)
}

fn now() -> Result<i64> {
    Ok(i64::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    )?)
}

fn start(origin: &Origin) -> Result<(Proxy, Client)> {
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(origin)
        .file("keys.json", keys("first"))
        .file("more.json", keys("second"))
        .file("none.json", keys("nobody's"))
        .file("www/a.txt", "inside")
        .start()?;
    let client = Client::new(proxy.port());
    Ok((proxy, client))
}

fn bearer(client: &Client, path: &str, token: &str) -> Result<millpond_testkit::Response> {
    client.send(&Request::get(path).header("Authorization", &format!("Bearer {token}")))
}

#[test]
fn a_right_token_lets_in_and_its_claims_are_variables() -> Result<()> {
    let origin = Origin::start()?;
    let (proxy, client) = start(&origin)?;
    let claims = r#"{"sub":"me","n":7,"aud":["a","b"],"address":{"city":"Ghent"}}"#;
    let answer = bearer(&client, "/x", &good(claims))?;
    let expected = format!("me|7|Ghent|a,b|HS256|JWT|{claims}");
    assert_eq!((answer.status, answer.text()), (200, expected));
    let logged = proxy.wait_for_lines("access.log", 1)?;
    assert_eq!(logged, ["/x 200 [me]"]);
    Ok(())
}

#[test]
fn without_a_right_token_the_answer_is_401_and_variables_are_empty() -> Result<()> {
    let origin = Origin::start()?;
    let (proxy, client) = start(&origin)?;
    let bare = client.get("/files/a.txt")?;
    assert_eq!(bare.status, 401);
    assert_eq!(
        bare.header("WWW-Authenticate"),
        Some("Bearer realm=\"Ponds\"")
    );
    let claims = r#"{"sub":"eve"}"#;
    let unsigned = format!("{}.{}.", url(br#"{"alg":"none"}"#), url(claims.as_bytes()));
    let right = good(claims);
    let cut = right
        .get(..right.len() - 2)
        .context("it is longer")?
        .to_string();
    let tokens = [
        token("other", r#"{"alg":"HS256"}"#, claims),
        token("first", r#"{"alg":"HS512"}"#, claims),
        token("first", r#"{"alg":"HS256","crit":["exp"]}"#, claims),
        token("first", r#"{"alg":"HS256"}"#, r#"{"sub":"a","sub":"eve"}"#),
        format!("{right}AA"),
        format!("{right}=="),
        unsigned,
        cut,
        "a".to_string(),
        "x".repeat(6000),
    ];
    for token in &tokens {
        let answer = bearer(&client, "/files/a.txt", token)?;
        assert_eq!(answer.status, 401, "{token}");
        let asked = "Bearer realm=\"Ponds\",error=\"invalid_token\"";
        assert_eq!(answer.header("WWW-Authenticate"), Some(asked), "{token}");
    }
    let logged = proxy.wait_for_lines("access.log", 1 + tokens.len())?;
    assert!(
        logged.iter().all(|line| line == "/files/a.txt 401 [-]"),
        "{logged:?}"
    );
    let log = proxy.error_log();
    assert!(
        log.contains("JWT: no key verifies the signature of the token"),
        "{log}"
    );
    assert!(!log.contains(&right), "{log}");
    Ok(())
}

#[test]
fn times_of_tokens_are_heeded_with_the_leeway() -> Result<()> {
    let origin = Origin::start()?;
    let (_proxy, client) = start(&origin)?;
    let now = now()?;
    for (claims, strict, lenient) in [
        (format!("{{\"exp\":{}}}", now + 600), 200, 200),
        (format!("{{\"exp\":{}}}", now - 600), 401, 200),
        (format!("{{\"exp\":{}}}", now - 6000), 401, 401),
        (format!("{{\"nbf\":{}}}", now + 600), 401, 200),
        ("{\"exp\":\"never\"}".to_string(), 401, 401),
    ] {
        let token = good(&claims);
        assert_eq!(
            bearer(&client, "/files/a.txt", &token)?.status,
            strict,
            "{claims}"
        );
        assert_eq!(
            bearer(&client, "/late", &token)?.status,
            lenient,
            "{claims}"
        );
    }
    Ok(())
}

#[test]
fn locations_say_where_tokens_stand_and_what_they_must_have() -> Result<()> {
    let origin = Origin::start()?;
    let (_proxy, client) = start(&origin)?;
    let token = good(r#"{"sub":"me"}"#);
    let in_cookie = Request::get("/cookie").header("Cookie", &format!("auth={token}"));
    assert_eq!(client.send(&in_cookie)?.status, 200);
    assert_eq!(bearer(&client, "/cookie", &token)?.status, 401);
    assert_eq!(client.get("/files/free")?.status, 200);
    assert_eq!(client.get("/any")?.status, 401);
    assert_eq!(bearer(&client, "/any", &token)?.status, 200);
    for (claims, expected) in [
        (r#"{"sub":"me","role":"admin"}"#, 200),
        (r#"{"sub":"me","role":"user"}"#, 403),
        (r#"{"sub":"me"}"#, 403),
        (r#"{"role":"admin"}"#, 401),
        (r#"{"sub":"0","role":"admin"}"#, 401),
    ] {
        assert_eq!(
            bearer(&client, "/admin", &good(claims))?.status,
            expected,
            "{claims}"
        );
    }
    Ok(())
}

#[test]
fn keys_come_from_files_and_requests_and_are_kept() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/jwks", Answer::new(200).body(keys("third")));
    let (proxy, client) = start(&origin)?;
    let by = |secret: &str| token(secret, r#"{"alg":"HS256"}"#, "{}");
    for secret in ["first", "second"] {
        assert_eq!(
            bearer(&client, "/two", &by(secret))?.status,
            200,
            "{secret}"
        );
    }
    assert_eq!(bearer(&client, "/files/a.txt", &by("second"))?.status, 401);
    for _ in 0..3 {
        assert_eq!(bearer(&client, "/fetched", &by("third"))?.status, 200);
        assert_eq!(bearer(&client, "/fetched", &by("first"))?.status, 401);
    }
    assert_eq!(origin.requests().len(), 1, "the keys are asked for once");
    // A file that changes counts at once where nothing is kept.
    proxy.write_file("keys.json", keys("fourth"))?;
    assert_eq!(bearer(&client, "/files/a.txt", &by("fourth"))?.status, 200);
    assert_eq!(bearer(&client, "/files/a.txt", &by("first"))?.status, 401);
    Ok(())
}

#[test]
fn without_keys_nobody_is_let_in() -> Result<()> {
    let origin = Origin::start()?;
    let (proxy, client) = start(&origin)?;
    for path in ["/lost", "/broken"] {
        assert_eq!(bearer(&client, path, &good("{}"))?.status, 500, "{path}");
    }
    let log = proxy.error_log();
    assert!(
        log.contains("no keys in") && log.contains("the answer has status 503"),
        "{log}"
    );
    Ok(())
}

#[test]
fn kinds_that_are_not_known_are_refused_by_name_and_explain_names_the_gate() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("nginx.conf");
    let run = |lines: &str, words: &[&str]| -> Result<String> {
        let text = format!("events {{}} http {{ server {{ listen 8080; {lines} }} }}");
        std::fs::write(&file, text)?;
        let out = Command::new(binary(Kind::Millpond).context("the binary")?)
            .args(words)
            .arg("-c")
            .arg(&file)
            .output()?;
        Ok(String::from_utf8([out.stdout, out.stderr].concat())?)
    };
    for (lines, expected) in [
        (
            "auth_jwt_type encrypted;",
            "tokens of the type \"encrypted\" are not supported",
        ),
        ("auth_jwt a b;", "invalid parameter \"b\""),
        ("auth_jwt_require error=403;", "number of arguments"),
        (
            "auth_jwt_require $uri error=404;",
            "invalid parameter \"error=404\"",
        ),
    ] {
        let said = run(lines, &["-t"])?;
        assert!(said.contains(expected), "{said}");
    }
    let lines = "auth_jwt Ponds; auth_jwt_key_file k; root /var/empty;";
    let said = run(lines, &["explain", "http://127.0.0.1:8080/"])?;
    assert!(
        said.contains("\"auth_jwt\" wants a token for \"Ponds\""),
        "{said}"
    );
    Ok(())
}
