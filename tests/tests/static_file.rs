//! `root`, `alias`, `index`, `autoindex`, `random_index`, `try_files`, `types`,
//! `absolute_redirect`, `open_file_cache`: files.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Client, Kind, Proxy, Request, Response};
use std::fs::{File, FileTimes};
use std::time::SystemTime;

const CONF: &str = "
    types { text/html html; image/x-thing thing; }
    default_type text/x-default;
    sendfile on;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name site.example;
        root %%DIR%%/www;
        location / { }
        location /i/ { alias %%DIR%%/www/d/; index none.html $arg_name.html page.html; }
        location ~ ^/re/(.+)$ { alias %%DIR%%/www/$1; }
        location /tried/ { try_files $uri $uri/ /d/page.html?from=$uri; }
        location /status/ { try_files $uri =410; }
        location /named/ { try_files $uri @other; }
        location @other { return 200 \"named $uri\"; }
        location /relative/ { absolute_redirect off; alias %%DIR%%/www/; }
        location /portless/ {
            port_in_redirect off; server_name_in_redirect on;
            alias %%DIR%%/www/;
        }
        location /list/ { autoindex on; autoindex_format json; alias %%DIR%%/www/; }
        location /any/ { random_index on; alias %%DIR%%/www/d/; }
        location /kept/ { open_file_cache max=10; open_file_cache_valid 1h; alias %%DIR%%/www/; }
    }";

fn start(kind: Kind) -> Result<(Proxy, Client)> {
    let proxy = Proxy::new(kind, CONF)
        .file("www/a.thing", "thing")
        .file("www/b.other", "other")
        .file("www/with space/x", "x")
        .file("www/d/page.html", "page")
        .file("www/d/other.html", "other page")
        .file("www/tried/here", "here")
        .file("www/tried/folder/index.html", "index")
        .start()?;
    let client = Client::new(proxy.port());
    Ok((proxy, client))
}

/// Runs a check on Millpond, and on nginx if it is there.
fn everywhere(check: impl Fn(&Proxy, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let (proxy, client) = start(kind)?;
        check(&proxy, &client)?;
    }
    Ok(())
}

fn get(client: &Client, path: &str) -> Result<Response> {
    client.send(&Request::get(path).host("site.example"))
}

#[test]
fn path_is_mapped_by_root_and_alias() -> Result<()> {
    everywhere(|_, client| {
        for (path, status, body) in [
            ("/a.thing", 200, "thing"),
            ("/i/page.html", 200, "page"),
            ("/i/", 200, "page"),
            ("/i/?name=other", 200, "other page"),
            ("/re/d/page.html", 200, "page"),
            ("/tried/here", 200, "here"),
            ("/tried/folder/", 200, "index"),
            ("/tried/nothing", 200, "page"),
            ("/named/nothing", 200, "named /named/nothing"),
            ("/with%20space/x", 200, "x"),
        ] {
            let response = get(client, path)?;
            assert_eq!(
                (response.status, &*response.text()),
                (status, body),
                "{path}"
            );
        }
        Ok(())
    })
}

#[test]
fn what_is_no_file_has_its_own_status() -> Result<()> {
    everywhere(|_, client| {
        for (method, path, status) in [
            ("GET", "/nothing", 404),
            ("GET", "/nothing/", 404),
            ("GET", "/d/", 403),
            ("GET", "/a.thing/", 404),
            ("GET", "/status/nothing", 410),
            ("POST", "/a.thing", 405),
            ("PUT", "/a.thing", 405),
            ("DELETE", "/d/", 405),
        ] {
            let request = Request::new(method, path).host("site.example");
            assert_eq!(client.send(&request)?.status, status, "{method} {path}");
        }
        Ok(())
    })
}

#[test]
fn head_of_a_file_says_what_it_is() -> Result<()> {
    everywhere(|_, client| {
        let response = get(client, "/a.thing")?;
        assert_eq!(response.header("Content-Type"), Some("image/x-thing"));
        assert_eq!(response.header("Content-Length"), Some("5"));
        assert_eq!(response.header("Accept-Ranges"), Some("bytes"));
        assert!(response.header("Last-Modified").is_some());
        let etag = response.header("ETag").unwrap_or_default();
        assert!(etag.ends_with("-5\""), "{etag}");
        let request = Request::head("/a.thing").host("site.example");
        let head = client.send(&request)?;
        assert_eq!(head.header("Content-Length"), Some("5"));
        assert_eq!(head.header("ETag"), Some(etag));
        assert_eq!(
            get(client, "/b.other")?.header("Content-Type"),
            Some("text/x-default")
        );
        Ok(())
    })
}

#[test]
fn folder_without_its_slash_is_redirected() -> Result<()> {
    everywhere(|proxy, client| {
        let port = proxy.port();
        for (path, location) in [
            ("/d", format!("http://site.example:{port}/d/")),
            ("/d?x=1", format!("http://site.example:{port}/d/?x=1")),
            (
                "/with%20space",
                format!("http://site.example:{port}/with%20space/"),
            ),
            ("/relative/d", "/relative/d/".to_owned()),
            ("/portless/d", "http://site.example/portless/d/".to_owned()),
            ("/re/d", format!("http://site.example:{port}/re/d/")),
        ] {
            let response = get(client, path)?;
            assert_eq!(response.status, 301, "{path}");
            assert_eq!(response.header("Location"), Some(&*location), "{path}");
        }
        Ok(())
    })
}

#[test]
fn conditions_are_answered_for_files() -> Result<()> {
    everywhere(|_, client| {
        let etag = get(client, "/a.thing")?.header("ETag").map(str::to_owned);
        let etag = etag.unwrap_or_default();
        for (field, value, status) in [
            ("If-None-Match", &*etag, 304),
            ("If-None-Match", "\"other\"", 200),
            ("If-Match", "\"other\"", 412),
            ("If-Modified-Since", "Tue, 19 Jan 2038 03:14:07 GMT", 200),
            ("If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:01 GMT", 412),
        ] {
            let request = Request::get("/a.thing").host("site.example");
            let response = client.send(&request.header(field, value))?;
            assert_eq!(response.status, status, "{field}: {value}");
            assert_eq!(response.status == 304, response.body.is_empty());
        }
        Ok(())
    })
}

/// Folders come first, whatever their names are, and links are what they lead to.
#[test]
fn list_has_folders_first() -> Result<()> {
    everywhere(|proxy, client| {
        let www = proxy.dir().join("www");
        std::os::unix::fs::symlink(www.join("d"), www.join("z.link"))?;
        std::os::unix::fs::symlink(www.join("nowhere"), www.join("broken"))?;
        let list: Vec<serde_json::Value> = serde_json::from_slice(&get(client, "/list/")?.body)?;
        let names: Vec<_> = list
            .iter()
            .map(|it| {
                (
                    it["name"].as_str(),
                    it["type"].as_str(),
                    it["size"].as_u64(),
                )
            })
            .collect();
        let entry = |name, kind, size| (Some(name), Some(kind), size);
        let expected = [
            entry("d", "directory", None),
            entry("tried", "directory", None),
            entry("with space", "directory", None),
            entry("z.link", "directory", None),
            entry("a.thing", "file", Some(5)),
            entry("b.other", "file", Some(5)),
            entry("broken", "other", None),
        ];
        assert_eq!(names, expected);
        Ok(())
    })
}

#[test]
fn every_file_of_a_folder_may_stand_for_it() -> Result<()> {
    everywhere(|_, client| {
        let mut missing = vec!["page", "other page"];
        // One of two files is missed a hundred times in a row about once in 10^30.
        for _ in 0..100 {
            let page = get(client, "/any/")?.text();
            missing.retain(|it| *it != page);
        }
        assert!(missing.is_empty(), "{missing:?}");
        Ok(())
    })
}

#[test]
fn open_file_is_served_until_its_time_is_over() -> Result<()> {
    everywhere(|proxy, client| {
        assert_eq!(get(client, "/kept/a.thing")?.text(), "thing");
        std::fs::remove_file(proxy.dir().join("www/a.thing"))?;
        assert_eq!(get(client, "/kept/a.thing")?.text(), "thing");
        assert_eq!(get(client, "/a.thing")?.status, 404);
        Ok(())
    })
}

/// An alias in a location whose path was rewritten is worth an alert in nginx.
#[test]
fn alias_is_no_place_for_a_path_that_was_rewritten() -> Result<()> {
    let conf = "
        server {
            listen 127.0.0.1:%%PORT%%;
            location /moved/ { rewrite ^ /elsewhere break; alias %%DIR%%/www/; }
        }";
    let proxy = Proxy::new(Kind::Millpond, conf).start()?;
    assert_eq!(Client::new(proxy.port()).get("/moved/x")?.status, 500);
    assert!(proxy.error_log().contains("where URI was rewritten"));
    Ok(())
}

/// A file that is sent keeps its time of access: to write that down is to wait for the journal of a
/// disk that may be stalled. Not so in nginx.
#[test]
fn sending_a_file_leaves_its_time_of_access() -> Result<()> {
    let (proxy, client) = start(Kind::Millpond)?;
    proxy.write_file("www/long", vec![b'x'; 1 << 20])?;
    let path = proxy.dir().join("www/long");
    let accessed = || -> Result<SystemTime> { Ok(path.metadata()?.accessed()?) };
    let age = || -> Result<()> {
        // Before its time of modification: with `relatime` a read changes it.
        let times = FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH);
        Ok(File::options().write(true).open(&path)?.set_times(times)?)
    };
    age()?;
    std::fs::read(&path)?;
    if accessed()? == SystemTime::UNIX_EPOCH {
        println!("reads leave no times here in any case");
        return Ok(());
    }
    age()?;
    for path in ["/long", "/kept/long", "/i/../long"] {
        assert_eq!(get(&client, path)?.body.len(), 1 << 20);
    }
    assert_eq!(accessed()?, SystemTime::UNIX_EPOCH);
    Ok(())
}
