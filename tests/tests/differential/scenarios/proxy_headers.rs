//! Header fields to and from the origin.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        set_header(),
        request_fields_that_pass(),
        pass_request_headers_off(),
        hide_and_pass(),
        response_fields_that_pass(),
        redirects(),
        redirects_by_default(),
        cookies(),
        cookie_flags(),
        ignore_headers(),
    ]
}

fn set_header() -> Scenario {
    Scenario::new("proxy-set-header")
        .http("proxy_set_header X-Level http; proxy_set_header X-Http 1;")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; }
             location /own { proxy_pass http://%%ORIGIN%%; proxy_set_header X-Level location; }
             location /empty { proxy_pass http://%%ORIGIN%%; proxy_set_header Accept-Encoding \"\";
                               proxy_set_header X-Empty $arg_none; }
             location /real { proxy_pass http://%%ORIGIN%%; proxy_set_header X-Real-IP $remote_addr;
                 proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                 proxy_set_header X-Forwarded-Proto $scheme; }
             location /len { proxy_pass http://%%ORIGIN%%; proxy_set_header Content-Type text/x; }
             location /twice { proxy_pass http://%%ORIGIN%%; proxy_set_header X-A 1;
                               proxy_set_header X-A 2; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .send(
            Request::get("/")
                .header("X-Level", "client")
                .header("x-http", "client"),
        )
        .send(Request::get("/own").header("X-Http", "client"))
        .send(Request::get("/empty").header("Accept-Encoding", "gzip"))
        .send(Request::get("/real").header("X-Forwarded-For", "1.2.3.4"))
        .get("/real")
        .send(Request::post("/len", "x").header("Content-Type", "text/y"))
        .get("/twice")
}

fn request_fields_that_pass() -> Scenario {
    let mut request = Request::get("/").host("Client.Test:99");
    for (name, value) in [
        ("User-Agent", "me"),
        ("Accept", "*/*"),
        ("Keep-Alive", "5"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("Proxy-Connection", "x"),
        ("Range", "bytes=0-1"),
        ("If-Range", "\"x\""),
        ("If-None-Match", "\"x\""),
        ("Authorization", "Basic x"),
        ("Cookie", "a=1"),
        ("X-Twice", "1"),
        ("X-Twice", "2"),
        ("Expect-Not", "x"),
        ("Via", "1.1 a"),
        ("x-lower", "l"),
        ("X-Accel-Redirect", "/x"),
        ("Trailer", "X"),
        ("Proxy-Authorization", "x"),
    ] {
        request = request.header(name, value);
    }
    Scenario::new("request-fields-that-pass")
        .server("location / { proxy_pass http://%%ORIGIN%%; }")
        .answer("/*", Answer::new(200).body("ok"))
        .send(request)
}

fn pass_request_headers_off() -> Scenario {
    Scenario::new("proxy-pass-request-headers-off")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; proxy_pass_request_headers off;
                          proxy_set_header X-Mine 1; }
             location /body { proxy_pass http://%%ORIGIN%%; proxy_pass_request_body off; }
             location /nobody { proxy_pass http://%%ORIGIN%%; proxy_pass_request_body off;
                                proxy_set_header Content-Length \"\"; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .send(
            Request::get("/")
                .header("X-A", "1")
                .header("User-Agent", "me"),
        )
        .send(Request::post("/", "body").header("X-A", "1"))
        .send(Request::post("/nobody", "body").header("X-A", "1"))
}

fn hide_and_pass() -> Scenario {
    let answer = Answer::new(200)
        .header("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
        .header("Server", "origin")
        .header("X-Pad", "pad")
        .header("X-Accel-Expires", "0")
        .header("X-Accel-Limit-Rate", "off")
        .header("X-Accel-Buffering", "no")
        .header("X-Accel-Charset", "utf-8")
        .header("X-Secret", "1")
        .header("X-Powered-By", "x")
        .header("Content-Type", "text/plain")
        .body("ok");
    Scenario::new("proxy-hide-and-pass-header")
        .http("proxy_hide_header X-Secret;")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; }
             location /own { proxy_pass http://%%ORIGIN%%; proxy_hide_header x-powered-by; }
             location /pass { proxy_pass http://%%ORIGIN%%; proxy_pass_header Server;
                              proxy_pass_header Date; proxy_pass_header X-Accel-Expires;
                              proxy_pass_header X-Pad; add_header X-Server $sent_http_server; }",
        )
        .answer("/*", answer)
        .gets(&["/", "/own", "/pass"])
        .act(|run| {
            let response = run.client().get("/pass")?;
            let value = response.header("Server").unwrap_or_default().to_string();
            run.note("server", &value);
            let value = response.header("Date").unwrap_or_default().to_string();
            run.note("date", &value);
            Ok(())
        })
}

fn response_fields_that_pass() -> Scenario {
    let answer = Answer::new(200)
        .reason("Fine By Me")
        .header("ETag", "\"e\"")
        .header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
        .header("Cache-Control", "a")
        .header("Cache-Control", "b")
        .header("Link", "1")
        .header("Link", "2")
        .header("Set-Cookie", "a=1")
        .header("Set-Cookie", "b=2")
        .header("WWW-Authenticate", "Basic")
        .header("Keep-Alive", "timeout=5")
        .header("Content-Type", "text/plain; charset=x")
        .header("Content-Disposition", "x")
        .header("Refresh", "5")
        .header("Via", "1.0 x")
        .header("Age", "5")
        .header("X-Under_Score", "x")
        .header("x-lower", "x")
        .body("ok");
    Scenario::new("response-fields-that-pass")
        .server("location / { proxy_pass http://%%ORIGIN%%; }")
        .answer("/a", answer.clone())
        .answer("/304", Answer::new(304).etag("\"e\""))
        .answer("/204", Answer::new(204).header("X-A", "1"))
        .answer(
            "/none",
            Answer::new(200).header("Content-Type", "").body("x"),
        )
        .gets(&["/a", "/304", "/204", "/none"])
        .head("/a")
        .get_with("/a", "If-None-Match", "\"e\"")
        .get_with("/a", "If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")
}

fn redirects() -> Scenario {
    Scenario::new("proxy-redirect")
        .server(
            "location /off { proxy_pass http://%%ORIGIN%%; proxy_redirect off; }
             location /text { proxy_pass http://%%ORIGIN%%;
                 proxy_redirect http://old.test/a/ /b/; proxy_redirect http://old.test/ /c/; }
             location /regex { proxy_pass http://%%ORIGIN%%;
                 proxy_redirect ~^http://([^:/]+)(:\\d+)?/(.*)$ http://new.test/$1/$3; }
             location /named { proxy_pass http://%%ORIGIN%%;
                 proxy_redirect ~^http://(?<h>[^:/]+)(:\\d+)?/(?<rest>.*)$ http://$h.new/$rest; }
             location /iregex { proxy_pass http://%%ORIGIN%%;
                 proxy_redirect ~*^HTTP://OLD.TEST(/.*)$ $1; }
             location /var { proxy_pass http://%%ORIGIN%%; proxy_redirect http://$arg_h/ /v/; }
             location /mixed { proxy_pass http://%%ORIGIN%%; proxy_redirect default;
                 proxy_redirect http://old.test/ /c/; }",
        )
        .computed("/*", |request| {
            let location = request.target.split("to=").nth(1).unwrap_or("/x");
            Answer::new(302)
                .header("Location", location)
                .header("Refresh", &format!("5; url={location}"))
        })
        .gets(&[
            "/off?to=http://old.test/a",
            "/named?to=http://old.test:81/a",
            "/text?to=http://old.test/a/x",
            "/text?to=http://old.test/z",
            "/text?to=http://other.test/",
            "/text?to=/rel",
            "/regex?to=http://old.test:99/x?y",
            "/regex?to=/rel",
            "/iregex?to=http://old.test/x",
            "/var?h=old.test&to=http://old.test/y",
            "/mixed?to=http://old.test/x",
        ])
}

fn redirects_by_default() -> Scenario {
    Scenario::new("proxy-redirect-default")
        .http("upstream group { server %%ORIGIN%%; }")
        .server(
            "location /a/ { proxy_pass http://group/b/; }
             location /plain/ { proxy_pass http://group; }
             location /var/ { set $g group; proxy_pass http://$g; }
             location ~ ^/regex/ { proxy_pass http://group; }",
        )
        .computed("/*", |request| {
            let location = request.target.split("to=").nth(1).unwrap_or("/x");
            Answer::new(301).header("Location", location)
        })
        .gets(&[
            "/a/x?to=http://group/b/y",
            "/a/x?to=http://group/c",
            "/a/x?to=/b/y",
            "/a/x?to=http://group/b",
            "/plain/x?to=http://group/y",
            "/plain/x?to=http://group/plain/y",
            "/var/x?to=http://group/y",
            "/regex/x?to=http://group/y",
            "/a/x?to=rel",
            "/a/x?to=//group/b/y",
        ])
}

fn cookies() -> Scenario {
    let answer = Answer::new(200)
        .header("Set-Cookie", "a=1; Domain=old.test; Path=/old/x; HttpOnly")
        .header("Set-Cookie", "b=2; path=/other; domain=.sub.old.test")
        .header("Set-Cookie", "c=3")
        .body("ok");
    Scenario::new("proxy-cookies")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; }
             location /both { proxy_pass http://%%ORIGIN%%; proxy_cookie_domain old.test new.test;
                 proxy_cookie_path /old/ /new/; }
             location /regex { proxy_pass http://%%ORIGIN%%;
                 proxy_cookie_domain ~^\\.?([a-z]+)\\.old\\.test$ $1.new.test;
                 proxy_cookie_path ~^/(.+)$ /p/$1; }
             location /named { proxy_pass http://%%ORIGIN%%;
                 proxy_cookie_domain \"~\\.?(?P<zone>[a-z]+\\.test)$\" $zone;
                 proxy_cookie_path ~*^/OLD/(?<rest>.+)$ /p/$rest; add_header X-Rest <$rest>; }
             location /var { proxy_pass http://%%ORIGIN%%; proxy_cookie_domain $arg_d new.test;
                 proxy_cookie_path / /$arg_p/; }
             location /off { proxy_pass http://%%ORIGIN%%; proxy_cookie_domain off;
                 proxy_cookie_path off; }",
        )
        .answer("/*", answer)
        .gets(&[
            "/",
            "/both",
            "/regex",
            "/named",
            "/var?d=old.test&p=q",
            "/off",
        ])
}

fn cookie_flags() -> Scenario {
    let answer = Answer::new(200)
        .header("Set-Cookie", "a=1; secure; SameSite=Lax")
        .header("Set-Cookie", "b=2; HttpOnly; Path=/")
        .header("Set-Cookie", "c=3")
        .body("ok");
    Scenario::new("proxy-cookie-flags")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%;
                proxy_cookie_flags a nosecure samesite=strict;
                 proxy_cookie_flags b secure nohttponly;
                     proxy_cookie_flags ~c httponly samesite=none; }
             location /all { proxy_pass http://%%ORIGIN%%; proxy_cookie_flags ~ secure httponly; }
             location /no { proxy_pass http://%%ORIGIN%%; proxy_cookie_flags a nosamesite; }",
        )
        .answer("/*", answer)
        .gets(&["/", "/all", "/no"])
}

fn ignore_headers() -> Scenario {
    Scenario::new("proxy-ignore-headers")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; proxy_ignore_headers X-Accel-Redirect; }
             location /obey { proxy_pass http://%%ORIGIN%%; }
             location /in { internal; return 200 internal; }",
        )
        .answer(
            "/*",
            Answer::new(200)
                .header("X-Accel-Redirect", "/in")
                .body("origin"),
        )
        .gets(&["/", "/obey"])
}
