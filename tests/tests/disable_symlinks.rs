//! `disable_symlinks`: files behind symbolic links.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Client, Kind, LogCheck, Proxy};
use std::os::unix::fs::{lchown, symlink};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        disable_symlinks on from=$document_root;
        location / { }
        location /owner/ { disable_symlinks if_not_owner from=%%DIR%%; alias %%DIR%%/www/; }
        location /all/ { disable_symlinks off; alias %%DIR%%/www/; }
        location /tried/ { root %%DIR%%/www; try_files $uri $uri.txt =410; }
        location /tested/ { if (-f $request_filename) { return 204; } }
        location /begin/ { disable_symlinks on from=%%DIR%%/www/folder;
                           alias %%DIR%%/www/folder/; }
        location /packed { gzip_static always; }
        open_file_cache max=16;
        open_file_cache_errors on;
    }";

/// A file behind a link is missing or forbidden where links are not followed, whoever asks:
/// try_files, `if`, compressed files, and a cache of open files that another rule has filled.
#[test]
fn links_are_followed_only_where_the_rule_says_so() -> Result<()> {
    for kind in Kind::both() {
        // Files that cannot be looked at are logged.
        let proxy = Proxy::new(kind, CONF)
            .file("www/file", "file")
            .file("www/real/file", "in a folder")
            .file("www/real/index.html", "index")
            .file("www/tried/link.txt", "tried")
            .file("www/tested/file", "")
            .file("www/packed.txt", "packed")
            .log_check(LogCheck::Off)
            .start()?;
        let www = proxy.dir().join("www");
        symlink("file", www.join("link"))?;
        symlink("real", www.join("folder"))?;
        symlink("../file", www.join("tried/link"))?;
        symlink("file", www.join("tested/link"))?;
        symlink("file", www.join("real/link"))?;
        symlink("packed.txt", www.join("packed.txt.gz"))?;
        symlink("/etc/passwd", www.join("theirs"))?;
        if rustix::process::geteuid().is_root() {
            lchown(www.join("theirs"), Some(65534), Some(65534))?;
        }
        let client = Client::new(proxy.port());
        for (path, status) in [
            ("/file", 200),
            ("/real/file", 200),
            ("/real/", 200),
            // The cache of open files is filled under one rule, and asked under others.
            ("/all/link", 200),
            ("/link", 403),
            ("/all/link", 200),
            ("/owner/link", 200),
            ("/all/theirs", 200),
            ("/owner/theirs", 403),
            ("/all/folder/file", 200),
            ("/owner/folder/file", 200),
            ("/folder/file", 404),
            ("/folder/", 404),
            ("/real/link", 403),
            ("/tried/link", 200),
            ("/tested/file", 204),
            ("/tested/link", 403),
            ("/begin/file", 200),
            ("/begin/link", 403),
            ("/packed.txt", 200),
        ] {
            let response = client.get(path)?;
            assert_eq!(response.status, status, "{kind:?} {path}");
        }
        assert_eq!(client.get("/tried/link")?.text(), "tried");
        let packed = client.get("/packed.txt")?;
        assert_eq!(packed.header("content-encoding"), None, "{kind:?}");
    }
    Ok(())
}
