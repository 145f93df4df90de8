//! `client_body_in_file_only`, `client_body_temp_path`, `client_body_buffer_size`: request bodies
//! in files.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, Origin, Proxy, Request};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        client_body_buffer_size 1k;
        add_header X-File $request_body_file;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /on { client_body_in_file_only on; proxy_pass http://%%ORIGIN%%; }
        location /clean { client_body_in_file_only clean; proxy_pass http://%%ORIGIN%%; }
        location /levels {
            client_body_in_file_only on;
            client_body_temp_path %%DIR%%/levels 1 2;
            proxy_pass http://%%ORIGIN%%;
        }
        location /relative {
            client_body_in_file_only on;
            client_body_temp_path relative;
            proxy_pass http://%%ORIGIN%%;
        }
    }";

const WAIT: Duration = Duration::from_secs(10);

fn everywhere(check: impl Fn(&Origin, &Proxy, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).body("passed"));
        let proxy = Proxy::new(kind, CONF).origin(&origin).start()?;
        check(&origin, &proxy, &Client::new(proxy.port()))?;
    }
    Ok(())
}

/// The file that a request's body was in.
fn file_of(client: &Client, path: &str, body: &str) -> Result<Option<PathBuf>> {
    let response = client.send(&Request::post(path, body))?;
    assert_eq!(response.status, 200, "{path}");
    Ok(response.header("X-File").map(PathBuf::from))
}

fn files_in(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, |entries| entries.count())
}

#[test]
fn a_body_is_in_a_file_when_it_is_too_large_or_when_it_is_asked_for() -> Result<()> {
    everywhere(|origin, proxy, client| {
        let (small, large) = ("small", "large".repeat(4000));
        for (path, body, is_in_file, stays) in [
            ("/", small, false, false),
            ("/", &large[..], true, false),
            ("/on", small, true, true),
            ("/on", &large[..], true, true),
            ("/clean", small, true, false),
        ] {
            origin.forget_requests();
            let file = file_of(client, path, body)?;
            assert_eq!(file.is_some(), is_in_file, "{path}");
            assert_eq!(origin.requests()[0].body, body.as_bytes(), "{path}");
            let Some(file) = file else { continue };
            if stays {
                assert_eq!(std::fs::read_to_string(&file)?, body, "{path}");
                let mode = file.metadata()?.permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{path}");
            } else {
                let gone = || (!file.exists()).then_some(());
                let gone = Deadline::after(WAIT).poll(gone);
                gone.with_context(|| format!("{} stays", file.display()))?;
            }
        }
        assert!(
            proxy
                .error_log()
                .contains("is buffered to a temporary file")
        );
        Ok(())
    })
}

#[test]
fn files_stand_in_the_folder_and_its_levels() -> Result<()> {
    everywhere(|_, proxy, client| {
        let file = file_of(client, "/levels", "body")?.context("a file")?;
        let name = file.file_name().context("a name")?.to_string_lossy();
        let (rest, last) = name.split_at(name.len() - 1);
        let folder = proxy.dir().join("levels").join(last);
        let folder = folder.join(&rest[rest.len() - 2..]);
        assert_eq!(file, folder.join(&*name));
        // The prefix is where relative paths start.
        let file = file_of(client, "/relative", "body")?.context("a file")?;
        assert_eq!(file.parent(), Some(proxy.dir().join("relative").as_path()));
        Ok(())
    })
}

#[test]
fn an_upload_that_is_broken_off_leaves_no_file() -> Result<()> {
    everywhere(|origin, proxy, client| {
        let folder = proxy.dir().join("client_temp");
        let before = files_in(&folder);
        let mut connection = client.connect()?;
        let head = "POST /clean HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n";
        connection.send_raw(head.as_bytes())?;
        connection.send_raw("part of it".repeat(1000).as_bytes())?;
        let came = Deadline::after(WAIT).poll(|| (files_in(&folder) > before).then_some(()));
        came.context("no file comes")?;
        drop(connection);
        let left = Deadline::after(WAIT).poll(|| (files_in(&folder) == before).then_some(()));
        left.context("the file stays")?;
        assert_eq!(origin.requests().len(), 0);
        Ok(())
    })
}
