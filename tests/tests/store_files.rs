//! `proxy_store`, `proxy_store_access`, `proxy_temp_path`: answers that are kept as files.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Gate, Kind, Origin, Proxy, Request};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/root;
        location / { proxy_pass http://%%ORIGIN%%; proxy_store on; }
        location /alias/ {
            proxy_pass http://%%ORIGIN%%;
            alias %%DIR%%/other/;
            proxy_store on;
            proxy_store_access group:rw all:r;
        }
        location /named/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_store %%DIR%%/named/$arg_name-$upstream_http_x_part;
            location /named/off { proxy_pass http://%%ORIGIN%%; proxy_store off; }
        }
    }";

const WAIT: Duration = Duration::from_secs(10);

fn everywhere(check: impl Fn(&Origin, &Proxy, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let origin = Origin::start()?;
        let proxy = Proxy::new(kind, CONF).origin(&origin).start()?;
        check(&origin, &proxy, &Client::new(proxy.port()))?;
    }
    Ok(())
}

/// Waits for a file: it is there after its answer's last byte, not before.
fn wait_for(path: &Path) -> Result<Vec<u8>> {
    let read = || std::fs::read(path).ok();
    Deadline::after(WAIT)
        .poll(read)
        .with_context(|| format!("{} does not come", path.display()))
}

fn mode(path: &Path) -> Result<u32> {
    Ok(path.metadata()?.permissions().mode() & 0o777)
}

/// Files in a folder and the folders inside.
fn count_files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let count = |path: &Path| if path.is_dir() { count_files(path) } else { 1 };
    entries.map(|entry| count(&entry.path())).sum()
}

#[test]
fn a_complete_answer_becomes_a_file_with_the_time_and_mode_asked_for() -> Result<()> {
    everywhere(|origin, proxy, client| {
        let answer = Answer::new(200).body("kept").header("X-Part", "part");
        origin.route("/*", answer.last_modified("Thu, 01 Jan 1998 00:00:00 GMT"));
        for (path, file, file_mode) in [
            ("/a/b", "root/a/b", 0o600),
            ("/alias/c", "other/c", 0o664),
            ("/named/?name=d", "named/d-part", 0o600),
        ] {
            assert_eq!(client.get(path)?.text(), "kept");
            let file = proxy.dir().join(file);
            assert_eq!(wait_for(&file)?, b"kept", "{path}");
            assert_eq!(mode(&file)?, file_mode, "{path}");
            let time = file.metadata()?.modified()?.duration_since(UNIX_EPOCH)?;
            assert_eq!(time.as_secs(), 883_612_800, "{path}");
        }
        assert_eq!(count_files(&proxy.dir().join("proxy_temp")), 0);
        Ok(())
    })
}

#[test]
fn an_empty_answer_becomes_an_empty_file_and_a_new_answer_takes_its_place() -> Result<()> {
    everywhere(|origin, proxy, client| {
        let answers = ["", "second"].map(|body| Answer::new(200).body(body));
        origin.sequence("/a", answers.to_vec());
        let file = proxy.dir().join("root/a");
        for body in ["", "second"] {
            client.get("/a")?;
            let is_new = || std::fs::read_to_string(&file).is_ok_and(|text| text == body);
            let came = Deadline::after(WAIT).poll(|| is_new().then_some(()));
            assert!(came.is_some(), "{body:?}");
        }
        Ok(())
    })
}

#[test]
fn other_answers_leave_nothing_behind() -> Result<()> {
    everywhere(|origin, proxy, client| {
        origin.route("/*", Answer::new(200).body("kept"));
        origin.route("/missing", Answer::new(404).body("no"));
        origin.route("/cut", Answer::new(200).body("0123456789").drop_after(5));
        origin.route("/part", Answer::new(206).body("part"));
        for request in [
            Request::get("/missing"),
            Request::get("/cut"),
            Request::get("/part"),
            Request::head("/head"),
            Request::get("/named/off?name=off"),
        ] {
            // A cut answer may be an error of the client's, too.
            let _ = client.send(&request);
        }
        client.get("/last")?;
        wait_for(&proxy.dir().join("root/last"))?;
        assert_eq!(count_files(&proxy.dir().join("root")), 1);
        assert_eq!(count_files(&proxy.dir().join("named")), 0);
        assert_eq!(count_files(&proxy.dir().join("proxy_temp")), 0);
        Ok(())
    })
}

#[test]
fn an_answer_is_kept_when_its_client_leaves() -> Result<()> {
    everywhere(|origin, proxy, client| {
        for (path, hold) in [("/head", 0), ("/body", 5)] {
            let gate = Gate::new();
            let answer = Answer::new(200).body("0123456789");
            origin.route(
                path,
                match hold {
                    0 => answer.hold_head(&gate),
                    at => answer.hold_body_at(at, &gate),
                },
            );
            origin.forget_requests();
            let mut connection = client.connect()?;
            connection.send_raw(&Request::get(path).encode())?;
            origin.wait_for_requests(1)?;
            drop(connection);
            // The proxy has seen that the client left, or sees it while it sends.
            client.get("/other")?;
            gate.open();
            let file = proxy.dir().join("root").join(path.trim_start_matches('/'));
            assert_eq!(wait_for(&file)?, b"0123456789", "{path}");
        }
        Ok(())
    })
}

#[test]
fn a_level_keeps_answers_in_one_way() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("kept"));
    let conf = "
        proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
        proxy_cache_valid 1h;
        server {
            listen 127.0.0.1:%%PORT%%;
            root %%DIR%%/root;
            proxy_cache z;
            add_header X-Cache $upstream_cache_status;
            location /cached { proxy_pass http://%%ORIGIN%%; }
            location /stored { proxy_pass http://%%ORIGIN%%; proxy_store on; }
        }";
    let proxy = Proxy::new(Kind::Millpond, conf).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    for (path, status) in [("/cached", Some("MISS")), ("/stored", None)] {
        assert_eq!(client.get(path)?.header("X-Cache"), status, "{path}");
    }
    wait_for(&proxy.dir().join("root/stored"))?;
    assert_eq!(count_files(&proxy.dir().join("root")), 1);
    Ok(())
}

/// nginx before 1.23 tries to use the empty name, and says so at the highest level.
#[test]
fn a_name_that_turns_out_empty_keeps_nothing() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("kept"));
    let conf = "
        server {
            listen 127.0.0.1:%%PORT%%;
            location / { proxy_pass http://%%ORIGIN%%; proxy_store $arg_name; }
        }";
    let proxy = Proxy::new(Kind::Millpond, conf).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let file = proxy.dir().join("file");
    client.get("/")?;
    client.get(&format!("/?name={}", file.display()))?;
    assert_eq!(wait_for(&file)?, b"kept");
    assert_eq!(count_files(&proxy.dir().join("proxy_temp")), 0);
    Ok(())
}
