//! `sub_filter` and its directives: strings that are replaced in answers.
//!
//! What `everywhere` checks holds for nginx, too, and is checked there when its binary is at hand.

use std::io::Write;
use std::net::TcpStream;

use anyhow::Result;
use millpond_testkit::{Answer, Client, Framing, Gate, Kind, Origin, Proxy, Request, read_until};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        types { text/html html; text/css css; }
        sub_filter needle '[$uri]';
        location / { }
        location /off/ { alias %%DIR%%/www/; sub_filter_once off; }
        location /two/ {
            alias %%DIR%%/www/;
            sub_filter_once off; sub_filter hay H; sub_filter NEEDLE N;
        }
        location /css/ { alias %%DIR%%/www/; sub_filter_types text/css; }
        location /dated/ { alias %%DIR%%/www/; sub_filter_last_modified on; }
        location /empty/ { alias %%DIR%%/www/; sub_filter '$arg_what' ''; sub_filter_types *; }
        location /origin/ { proxy_pass http://%%ORIGIN%%/; sub_filter_types *; sub_filter_once off; }
        location /gzip/ { alias %%DIR%%/www/; gzip on; gzip_min_length 1; }
    }";

fn everywhere(check: impl Fn(&Origin, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let origin = Origin::start()?;
        let proxy = Proxy::new(kind, CONF)
            .origin(&origin)
            .file("www/page.html", "hay Needle hay needle hay")
            .file("www/page.css", "needle")
            .file("www/nothing.html", "")
            .start()?;
        check(&origin, &Client::new(proxy.port()))?;
    }
    Ok(())
}

#[test]
fn strings_are_replaced_once_or_everywhere() -> Result<()> {
    everywhere(|_, client| {
        for (path, expected) in [
            ("/page.html", "hay [/page.html] hay needle hay"),
            (
                "/off/page.html",
                "hay [/off/page.html] hay [/off/page.html] hay",
            ),
            ("/two/page.html", "H N H N H"),
            ("/page.css", "needle"),
            ("/css/page.css", "[/css/page.css]"),
            ("/empty/page.html?what=hay+", "hay Needle hay needle hay"),
            ("/empty/page.html?what=hay", " Needle hay needle hay"),
            ("/empty/page.html", "hay Needle hay needle hay"),
            ("/nothing.html", ""),
        ] {
            assert_eq!(client.get(path)?.text(), expected, "{path}");
        }
        Ok(())
    })
}

#[test]
fn changed_answer_is_another_representation() -> Result<()> {
    everywhere(|_, client| {
        let page = client.get("/page.html")?;
        for name in ["Last-Modified", "ETag", "Content-Length"] {
            assert_eq!(page.header(name), None, "{name}");
        }
        let dated = client.get("/dated/page.html")?;
        assert!(dated.header("Last-Modified").is_some());
        assert!(
            dated
                .header("ETag")
                .is_some_and(|tag| tag.starts_with("W/"))
        );
        let request = Request::get("/gzip/page.html").header("Accept-Encoding", "gzip");
        assert_eq!(
            client.send(&request)?.header("Content-Encoding"),
            Some("gzip")
        );
        let head = client.send(&Request::head("/page.html"))?;
        assert_eq!((head.status, head.body.len()), (200, 0));
        Ok(())
    })
}

#[test]
fn bodies_of_upstreams_are_searched_across_their_pieces() -> Result<()> {
    everywhere(|origin, client| {
        let text = "0123456789 nee needle".repeat(20_000);
        let answer = Answer::new(200).body(&text);
        origin.route("/length", answer.clone());
        origin.route("/chunked", answer.framing(Framing::Chunked));
        for path in ["/length", "/chunked"] {
            let full = format!("/origin{path}");
            let expected = text.replace("needle", &format!("[{full}]"));
            assert!(client.get(&full)?.text() == expected, "{path}");
        }
        Ok(())
    })
}

/// Bytes that cannot be a beginning are sent at once; the rest as soon as it is known.
#[test]
fn only_a_beginning_waits_for_more() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    let answer = Answer::new(200).body("text and needle");
    origin.route("/slow", answer.hold_body_at(12, &gate));
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    stream.write_all(b"GET /origin/slow HTTP/1.0\r\n\r\n")?;
    read_until(&mut stream, "\r\n\r\ntext and ")?;
    gate.open();
    assert_eq!(read_until(&mut stream, "]")?, "[/origin/slow]");
    Ok(())
}
