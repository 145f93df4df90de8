//! `max_ranges`: one range, several, none; If-Range and 416.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Client, Kind, Proxy, Request, Response};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        location / { }
        location /two/ { max_ranges 2; alias %%DIR%%/www/; }
        location /none/ { max_ranges 0; alias %%DIR%%/www/; }
        location /page/ { error_page 416 /small; alias %%DIR%%/www/; }
    }";

/// Larger than what is read into memory, so that it is sent as a file.
const LARGE: usize = 100_000;

fn large() -> Vec<u8> {
    (0..LARGE).map(|at| b'a' + (at % 26) as u8).collect()
}

fn everywhere(check: impl Fn(&Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF)
            .file("www/small", "0123456789")
            .file("www/large", large())
            .start()?;
        check(&Client::new(proxy.port()))?;
    }
    Ok(())
}

fn get(client: &Client, path: &str, range: &str) -> Result<Response> {
    client.send(&Request::get(path).header("Range", range))
}

#[test]
fn one_range_is_sent_as_it_is() -> Result<()> {
    everywhere(|client| {
        for (path, range, content_range, body) in [
            ("/small", "bytes=0-0", "bytes 0-0/10", "0".into()),
            ("/small", "bytes=2-5", "bytes 2-5/10", "2345".into()),
            ("/small", "bytes=-3", "bytes 7-9/10", "789".into()),
            ("/small", "bytes=7-99", "bytes 7-9/10", "789".into()),
            (
                "/large",
                "bytes=99990-",
                "bytes 99990-99999/100000",
                String::from_utf8_lossy(&large()[99_990..]).into_owned(),
            ),
        ] {
            let response = get(client, path, range)?;
            assert_eq!(response.status, 206, "{range}");
            assert_eq!(response.header("Content-Range"), Some(content_range));
            assert_eq!(response.text(), body);
        }
        Ok(())
    })
}

#[test]
fn several_ranges_are_parts() -> Result<()> {
    everywhere(|client| {
        for (path, text) in [("/small", b"0123456789".to_vec()), ("/large", large())] {
            let response = get(client, path, "bytes=0-1,4-5,-1")?;
            assert_eq!(response.status, 206);
            let content_type = response.header("Content-Type").unwrap_or_default();
            let (_, boundary) = content_type.split_once("boundary=").unwrap_or_default();
            let len = text.len();
            let expected: String = [(0, 2), (4, 6), (len - 1, len)]
                .iter()
                .map(|(start, end)| {
                    format!(
                        "\r\n--{boundary}\r\nContent-Type: text/plain\r\n\
                         Content-Range: bytes {start}-{}/{len}\r\n\r\n{}",
                        end - 1,
                        String::from_utf8_lossy(&text[*start..*end])
                    )
                })
                .collect();
            assert_eq!(response.text(), format!("{expected}\r\n--{boundary}--\r\n"));
        }
        Ok(())
    })
}

#[test]
fn ranges_that_count_for_nothing_get_the_whole() -> Result<()> {
    everywhere(|client| {
        for (path, range, status) in [
            ("/small", "lines=1-2", 200),
            ("/small", "bytes=0-9,0-9", 200),
            ("/two/small", "bytes=0-0,2-2", 206),
            ("/two/small", "bytes=0-0,2-2,4-4", 200),
            ("/none/small", "bytes=0-0", 200),
        ] {
            assert_eq!(get(client, path, range)?.status, status, "{path} {range}");
        }
        Ok(())
    })
}

#[test]
fn range_outside_of_the_file_is_refused() -> Result<()> {
    everywhere(|client| {
        for range in ["bytes=10-", "bytes=x", "bytes=5-2", "bytes=-x"] {
            let response = get(client, "/small", range)?;
            assert_eq!(response.status, 416, "{range}");
            assert_eq!(response.header("Content-Range"), Some("bytes */10"));
            let response = get(client, "/page/small", range)?;
            assert_eq!((response.status, &*response.text()), (416, "0123456789"));
        }
        Ok(())
    })
}

#[test]
fn if_range_lets_a_range_count_for_the_same_file_only() -> Result<()> {
    everywhere(|client| {
        let whole = client.get("/small")?;
        let field = |name| whole.header(name).unwrap_or_default().to_owned();
        for (validator, status) in [
            (field("ETag"), 206),
            (field("Last-Modified"), 206),
            ("\"other\"".to_owned(), 200),
            ("Thu, 01 Jan 1970 00:00:01 GMT".to_owned(), 200),
        ] {
            let request = Request::get("/small").header("Range", "bytes=0-0");
            let response = client.send(&request.header("If-Range", &validator))?;
            assert_eq!(response.status, status, "{validator}");
        }
        Ok(())
    })
}
