//! `scgi_pass`, `uwsgi_pass`: what applications are asked, byte by byte, and how their answers are
//! read.
//!
//! An application here is a socket that takes one connection and answers with given bytes. What is
//! expected holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::{Context, Result};
use millpond_testkit::{Client, Kind, Proxy, Request, Response};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        location /scgi {
            scgi_pass %%APP%%;
            scgi_pass_request_headers off;
            scgi_param HTTP_HOST '';
            scgi_param SCGI 1;
            scgi_param METHOD $request_method;
            scgi_param NONE $arg_none if_not_empty;
        }
        location /uwsgi {
            uwsgi_pass uwsgi://%%APP%%;
            uwsgi_pass_request_headers off;
            uwsgi_param HTTP_HOST '';
            uwsgi_param A b;
            uwsgi_modifier1 5;
            uwsgi_modifier2 7;
        }
    }";

const CACHED: &str = "
    scgi_cache_path %%DIR%%/scgi keys_zone=s:1m;
    uwsgi_cache_path %%DIR%%/uwsgi keys_zone=u:1m;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /scgi {
            scgi_pass %%APP%%;
            scgi_pass_request_headers off;
            scgi_param HTTP_HOST '';
            scgi_param SCGI 1;
            scgi_cache s;
            scgi_cache_key $uri;
            scgi_cache_valid 1h;
        }
        location /uwsgi {
            uwsgi_pass %%APP%%;
            uwsgi_pass_request_headers off;
            uwsgi_param HTTP_HOST '';
            uwsgi_param A b;
            uwsgi_cache u;
            uwsgi_cache_key $uri;
            uwsgi_cache_valid 1h;
        }
    }";

/// Takes one request, which ends with `end`, and answers it.
fn answer_one(listener: &TcpListener, end: &[u8], answer: &str) -> Result<Vec<u8>> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (mut asked, mut buf) = (Vec::new(), [0; 4096]);
    while !asked.ends_with(end) {
        let count = stream.read(&mut buf)?;
        anyhow::ensure!(count > 0, "the request breaks off: {asked:?}");
        asked.extend_from_slice(buf.get(..count).context("what was read")?);
    }
    stream.write_all(answer.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    Ok(asked)
}

/// An application for one request.
fn application(end: &[u8], answer: &str) -> Result<(String, JoinHandle<Result<Vec<u8>>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let (end, answer) = (end.to_vec(), answer.to_string());
    let asked = std::thread::spawn(move || answer_one(&listener, &end, &answer));
    Ok((address, asked))
}

/// Checks what an application was asked, and what the client got, on each server.
fn everywhere(
    request: &Request,
    (end, answer): (&[u8], &str),
    check: impl Fn(&[u8], &Response),
) -> Result<()> {
    for kind in Kind::both() {
        let (address, asked) = application(end, answer)?;
        let proxy = Proxy::new(kind, CONF).value("APP", &address).start()?;
        let response = Client::new(proxy.port()).send(request)?;
        let asked = asked.join().ok().context("the application panicked")??;
        check(&asked, &response);
    }
    Ok(())
}

#[test]
fn an_scgi_request_is_a_netstring_and_a_body() -> Result<()> {
    let request = Request::post("/scgi", "body");
    everywhere(
        &request,
        (b"body", "Status: 201 Made\n\nyes"),
        |asked, response| {
            let expected = b"36:CONTENT_LENGTH\x004\x00SCGI\x001\x00METHOD\x00POST\x00,body";
            assert_eq!(
                asked.escape_ascii().to_string(),
                expected.escape_ascii().to_string()
            );
            assert_eq!((response.status, response.text().as_str()), (201, "yes"));
        },
    )
}

#[test]
fn a_uwsgi_request_is_a_head_of_four_bytes_parameters_and_a_body() -> Result<()> {
    let request = Request::post("/uwsgi", "body");
    everywhere(&request, (b"body", "A: b\n\nyes"), |asked, response| {
        let expected = b"\x05\x06\x00\x07\x01\x00A\x01\x00bbody";
        assert_eq!(
            asked.escape_ascii().to_string(),
            expected.escape_ascii().to_string()
        );
        assert_eq!((response.status, response.text().as_str()), (200, "yes"));
    })
}

#[test]
fn an_answer_may_begin_with_a_status_line() -> Result<()> {
    for (path, end) in [("/scgi", &b","[..]), ("/uwsgi", b"b")] {
        let answer = "HTTP/1.1 404 Not Here\r\nContent-Length: 2\r\n\r\nno";
        everywhere(&Request::get(path), (end, answer), |_, response| {
            assert_eq!((response.status, response.text().as_str()), (404, "no"));
            assert!(response.is_complete());
        })?;
    }
    Ok(())
}

#[test]
fn an_answer_that_is_shorter_than_announced_is_broken_off() -> Result<()> {
    let answer = "Content-Length: 10\n\nhalf";
    everywhere(&Request::get("/scgi"), (b",", answer), |_, response| {
        assert!(!response.is_complete(), "{response:?}");
    })
}

/// An answer to HEAD is kept for GET only with the body that it announces.
#[test]
fn an_answer_to_head_is_none_to_get() -> Result<()> {
    let whole = "Content-Length: 4\r\n\r\nbody";
    for (path, end) in [("/scgi", &b","[..]), ("/uwsgi", b"b")] {
        for to_head in ["Content-Length: 4\r\n\r\n", whole] {
            for kind in Kind::both() {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let address = listener.local_addr()?.to_string();
                // The second one may not be asked any more.
                let answers = [to_head, whole];
                std::thread::spawn(move || {
                    answers.map(|answer| answer_one(&listener, end, answer).ok())
                });
                let proxy = Proxy::new(kind, CACHED).value("APP", &address);
                let proxy = proxy.start()?;
                let client = Client::new(proxy.port());
                assert_eq!(client.send(&Request::head(path))?.status, 200, "{path}");
                assert_eq!(client.get(path)?.text(), "body", "{kind:?} {path}");
            }
        }
    }
    Ok(())
}

#[test]
fn an_answer_that_changes_the_protocol_is_refused() -> Result<()> {
    let (address, asked) = application(b"b", "HTTP/1.1 101 Switching\r\n\r\n")?;
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .value("APP", &address)
        .start()?;
    let request = Request::get("/uwsgi")
        .header("Upgrade", "x")
        .header("Connection", "upgrade");
    let response = Client::new(proxy.port()).send(&request)?;
    assert_eq!(response.status, 502);
    asked.join().ok().context("the application panicked")??;
    Ok(())
}
