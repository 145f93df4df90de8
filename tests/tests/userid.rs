//! `userid` and its directives: ids that are new each time.
//!
//! What becomes of ids that clients bring is compared with nginx (`differential`). Every fact holds
//! for nginx, too, and is checked there when its binary is at hand.

use anyhow::{Context, Result};
use millpond_testkit::{Client, Kind, Proxy, Request, Response};

const CONF: &str = "
    map $arg_reset $uid_reset { default $arg_reset; }
    server {
        listen 127.0.0.1:%%PORT%%;
        error_log %%DIR%%/notice.log notice;
        userid on;
        add_header X-Set $uid_set;
        location / { return 200; }
        location /plain { userid_mark m; add_header X-Set \"\"; return 404; }
        location /service { userid_service 65534; userid_expires 1d; return 200; }
        location /v1 { userid v1; return 200; }
        location /unsaid { add_header X-None 1; return 200; }
    }";

/// Runs a check on Millpond, and on nginx if it is there.
fn everywhere(check: impl Fn(&Proxy, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF).start()?;
        let client = Client::new(proxy.port());
        check(&proxy, &client)?;
    }
    Ok(())
}

/// The cookie of an answer: its value, and what follows.
fn cookie(response: &Response) -> Result<(String, String)> {
    let field = response.header("Set-Cookie").context("no cookie")?;
    let (value, rest) = field.split_once(';').context("no attributes")?;
    let value = value.strip_prefix("uid=").context("another name")?;
    Ok((value.to_owned(), rest.to_owned()))
}

fn set(response: &Response) -> String {
    let field = response.header("X-Set").unwrap_or_default();
    field.strip_prefix("uid=").unwrap_or(field).to_owned()
}

#[test]
fn every_client_without_an_id_gets_its_own() -> Result<()> {
    everywhere(|_, client| {
        let mut ids = Vec::new();
        for path in ["/", "/", "/unsaid", "/plain", "/v1"] {
            let (value, rest) = cookie(&client.get(path)?)?;
            assert_eq!(rest, " path=/", "{path}");
            let is_marked = value.ends_with("m=");
            assert_eq!((value.len(), is_marked), (24, path == "/plain"), "{value}");
            ids.push(value);
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 5, "{ids:?}");
        Ok(())
    })
}

#[test]
fn id_is_kept_unless_it_is_reset() -> Result<()> {
    everywhere(|proxy, client| {
        let first = client.get("/")?;
        let (value, _) = cookie(&first)?;
        let ask = |path: &str| {
            let request = Request::get(path).header("Cookie", &format!("a=b; uid={value}"));
            client.send(&request)
        };
        for path in ["/", "/?reset=0", "/unsaid?reset="] {
            assert_eq!(ask(path)?.header("Set-Cookie"), None, "{path}");
        }
        for path in ["/?reset=1", "/?reset=log"] {
            let (other, _) = cookie(&ask(path)?)?;
            assert_ne!(other, value, "{path}");
        }
        let was_reset = format!("userid cookie \"uid={}\" was reset", set(&first));
        let log = std::fs::read_to_string(proxy.dir().join("notice.log"))?;
        assert_eq!(log.matches(&was_reset).count(), 1, "{log}");
        Ok(())
    })
}

#[test]
fn first_number_tells_who_gave_the_id() -> Result<()> {
    everywhere(|_, client| {
        let number = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        for (path, expected) in [
            ("/", number([127, 0, 0, 1])),
            ("/service", number([0, 0, 0xff, 0xfe])),
            ("/v1", number([0; 4])),
        ] {
            let id = set(&client.get(path)?);
            assert_eq!(id.len(), 32, "{path} {id}");
            assert!(id.starts_with(&expected), "{path} {id}");
        }
        let (_, rest) = cookie(&client.get("/service")?)?;
        assert!(rest.starts_with(" expires="), "{rest}");
        Ok(())
    })
}
