//! `memcached_pass` and its like: what a memcached server is asked, and what clients get of its
//! answers.
//!
//! What is expected holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Client, Kind, Proxy, Request};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

const CONF: &str = "
    upstream kept { server %%APP%%; keepalive 4; }
    upstream two { server %%APP%%; server %%OTHER%%; }
    types { text/html html; }
    default_type a/b;
    server {
        listen 127.0.0.1:%%PORT%%;
        set $memcached_key $uri;
        location / { memcached_pass %%APP%%; }
        location /gzip { memcached_pass %%APP%%; memcached_gzip_flag 6; }
        location /small { memcached_pass %%APP%%; memcached_buffer_size 16; }
        location /kept { set $memcached_key $arg_key; memcached_pass kept; }
        location /next { memcached_pass two; memcached_next_upstream not_found invalid_response; }
        location /stay { memcached_pass two; }
        location /page { error_page 404 502 = @page; memcached_pass %%APP%%; }
        location @page { return 200 page; }
    }";

/// A server that answers each line by a script; it notes the lines with the number of the
/// connection that they came on.
struct Server {
    address: String,
    asked: Arc<Mutex<Vec<(usize, String)>>>,
}

type Script = fn(&str) -> &'static str;

impl Server {
    fn start(script: Script) -> Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (Ok(stream), noted) = (stream, Arc::clone(&noted)) else {
                    continue;
                };
                std::thread::spawn(move || serve(&stream, (number, &noted), script));
            }
        });
        Ok(Server { address, asked })
    }

    fn take_asked(&self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn serve(
    mut stream: &TcpStream,
    (number, noted): (usize, &Mutex<Vec<(usize, String)>>),
    script: Script,
) {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|count| count > 0) {
        let mut asked = noted.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push((number, line.clone()));
        drop(asked);
        if stream.write_all(script(&line).as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

/// Starts each server before a memcached server that follows the script, with another one that has
/// everything.
fn everywhere(script: Script, check: impl Fn(&Client, &Server) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let server = Server::start(script)?;
        let other = Server::start(|line| match line {
            "get /next\r\n" => "VALUE /next 0 5\r\nother\r\nEND\r\n",
            "get /stay\r\n" => "VALUE /stay 0 5\r\nother\r\nEND\r\n",
            _ => "END\r\n",
        })?;
        let proxy = Proxy::new(kind, CONF)
            .value("APP", &server.address)
            .value("OTHER", &other.address)
            .start()?;
        check(&Client::new(proxy.port()), &server)?;
    }
    Ok(())
}

const VALUES: Script = |line| match line {
    "get /a.html\r\n" => "VALUE /a.html 0 8\r\n<b>a</b>\r\nEND\r\n",
    "get /a%20%01b\r\n" => "VALUE /a%20%01b 0 4\r\nthat\r\nEND\r\n",
    "get /gzip\r\n" => "VALUE /gzip 12 4\r\nthat\r\nEND\r\n",
    "get /gzip/not\r\n" => "VALUE /gzip/not 9 4\r\nthat\r\nEND\r\n",
    "get /empty\r\n" => "VALUE /empty 0 0\r\n\r\nEND\r\n",
    "get /end\r\n" => "VALUE /end 0 7\r\n\r\nEND\r\n\r\nEND\r\n",
    _ => "END\r\n",
};

#[test]
fn a_value_is_an_answer_of_the_type_that_the_name_says() -> Result<()> {
    everywhere(VALUES, |client, server| {
        let response = client.get("/a.html")?;
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "<b>a</b>")
        );
        for (name, value) in [
            ("Content-Type", Some("text/html")),
            ("Content-Length", Some("8")),
            ("Accept-Ranges", Some("bytes")),
            ("Content-Encoding", None),
            ("Last-Modified", None),
        ] {
            assert_eq!(response.header(name), value, "{name}");
        }
        assert_eq!(client.get("/empty")?.text(), "");
        assert_eq!(client.get("/end")?.text(), "\r\nEND\r\n");
        let lines = server.take_asked().into_iter().map(|(_, line)| line);
        let lines: Vec<String> = lines.collect();
        assert_eq!(lines, ["get /a.html\r\n", "get /empty\r\n", "get /end\r\n"]);
        Ok(())
    })
}

#[test]
fn a_key_is_one_word() -> Result<()> {
    everywhere(VALUES, |client, _| {
        let response = client.get("/a%20%01b")?;
        assert_eq!(
            (response.text().as_str(), response.header("Content-Type")),
            ("that", Some("a/b"))
        );
        // Nothing can be asked for.
        assert_eq!(client.get("/kept?key=")?.status, 500);
        Ok(())
    })
}

#[test]
fn parts_of_a_value_can_be_had() -> Result<()> {
    everywhere(VALUES, |client, _| {
        let part = client.send(&Request::get("/a.html").header("Range", "bytes=1-3"))?;
        assert_eq!((part.status, part.text().as_str()), (206, "b>a"));
        assert_eq!(part.header("Content-Range"), Some("bytes 1-3/8"));
        let head = client.send(&Request::head("/a.html"))?;
        assert_eq!(
            (head.status, head.header("Content-Length")),
            (200, Some("8"))
        );
        assert_eq!(client.send(&Request::post("/a.html", "x"))?.status, 405);
        Ok(())
    })
}

#[test]
fn what_is_not_there_is_not_found() -> Result<()> {
    everywhere(VALUES, |client, _| {
        let response = client.get("/none")?;
        assert_eq!(response.status, 404);
        assert!(response.text().contains("<h1>404 Not Found</h1>"));
        let page = client.get("/page")?;
        assert_eq!((page.status, page.text().as_str()), (200, "page"));
        Ok(())
    })
}

#[test]
fn a_flag_says_that_a_value_is_compressed() -> Result<()> {
    everywhere(VALUES, |client, _| {
        for (path, coding) in [("/gzip", Some("gzip")), ("/gzip/not", None)] {
            let response = client.send(&Request::get(path).header("Accept-Encoding", "gzip"))?;
            assert_eq!(response.header("Content-Encoding"), coding, "{path}");
            assert_eq!(response.text(), "that", "{path}");
        }
        Ok(())
    })
}

#[test]
fn an_answer_that_is_none_is_a_bad_gateway() -> Result<()> {
    let script: Script = |line| match line {
        "get /error\r\n" => "ERROR\r\n",
        "get /key\r\n" => "VALUE /other 0 1\r\nx\r\nEND\r\n",
        "get /length\r\n" => "VALUE /length 0 1x\r\nx\r\nEND\r\n",
        "get /feed\r\n" => "END\n",
        "get /gzip\r\n" => "VALUE /gzip x 1\r\nx\r\nEND\r\n",
        "get /small\r\n" => "VALUE /small 0 1\r\nx\r\nEND\r\n",
        "get /next\r\n" => "NEXT\r\n",
        "get /stay\r\n" => "STAY\r\n",
        _ => "VALUE /flags x 1\r\nx\r\nEND\r\n",
    };
    everywhere(script, |client, _| {
        for path in [
            "/error", "/key", "/length", "/feed", "/gzip", "/small", "/stay",
        ] {
            assert_eq!(client.get(path)?.status, 502, "{path}");
        }
        assert_eq!(client.get("/next")?.text(), "other");
        // Flags that nobody asks about may be anything.
        assert_eq!(client.get("/flags")?.text(), "x");
        Ok(())
    })
}

#[test]
fn the_next_server_may_have_it() -> Result<()> {
    everywhere(VALUES, |client, _| {
        assert_eq!(client.get("/next")?.text(), "other");
        assert_eq!(client.get("/next")?.text(), "other");
        Ok(())
    })
}

#[test]
fn a_connection_is_kept_after_what_ended_as_it_must() -> Result<()> {
    let script: Script = |line| match line {
        "get whole\r\n" => "VALUE whole 0 4\r\nthat\r\nEND\r\n",
        "get more\r\n" => "VALUE more 0 4\r\nthat\r\nEND\r\nmore",
        "get other\r\n" => "VALUE other 0 4\r\nthat\r\nERROR\r\n",
        _ => "END\r\n",
    };
    everywhere(script, |client, server| {
        for (key, number) in [
            ("whole", 0),
            ("none", 0),
            ("whole", 0),
            ("more", 0),
            ("whole", 1),
            ("other", 1),
            ("none", 2),
        ] {
            let response = client.get(&format!("/kept?key={key}"))?;
            if key != "none" {
                assert_eq!(response.text(), "that", "{key}");
            }
            let line = format!("get {key}\r\n");
            assert_eq!(server.take_asked(), [(number, line)]);
        }
        // The body of an answer to HEAD is not read, and its connection of no use.
        client.send(&Request::head("/kept?key=whole"))?;
        client.get("/kept?key=whole")?;
        let numbers = server.take_asked().into_iter().map(|(number, _)| number);
        assert_eq!(numbers.collect::<Vec<_>>(), [2, 3]);
        Ok(())
    })
}
