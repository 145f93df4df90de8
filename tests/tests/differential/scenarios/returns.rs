//! `return` in all its forms, and the redirects that it and others make.

use crate::scenario::Scenario;
use millpond_testkit::Request;

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        return_forms(),
        return_closes(),
        return_in_server(),
        redirect_hosts(),
        redirect_relative(),
        redirect_server_name(),
        redirect_by_pages(),
    ]
}

fn redirect_by_pages() -> Scenario {
    let mut scenario = Scenario::new("msie-refresh")
        .server(
            "msie_refresh on; msie_padding off;
             location /301 { return 301 /to; }
             location /302 { return 302 \"http://other.test/a b<\\\">?c=%20#d\"; }
             location /303 { return 303 /to; }
             location /page { error_page 404 http://other.test/404; return 404; }
             location /code { error_page 404 =301 http://other.test/404; return 404; }
             location /rewrite { rewrite ^ /to permanent; }
             location /off { msie_refresh off; return 301 /to; }",
        )
        .file("html/folder/x", "x");
    for agent in [
        "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
        "MSIE 7.0; Opera",
        "MSIE 7",
        "MSIE 7.",
        "MSIE 7.0",
        "Mozilla/5.0",
    ] {
        for path in [
            "/301", "/302", "/303", "/page", "/code", "/rewrite", "/off", "/folder", "/none",
        ] {
            scenario = scenario.get_with(path, "User-Agent", agent);
        }
    }
    scenario
        .get("/301")
        .send(Request::head("/301").header("User-Agent", "MSIE 7.0"))
        .send(Request::post("/301", "x").header("User-Agent", "MSIE 7.0"))
}

fn return_forms() -> Scenario {
    Scenario::new("return-forms")
        .server(
            "location /200 { return 200; }
             location /text { return 200 \"text $arg_a\"; }
             location /json { default_type application/json; return 200 '{\"a\":1}'; }
             location /204 { return 204; }
             location /301 { return 301 /to?$args; }
             location /302 { return 302 http://other.test/x; }
             location /303 { return 303 $scheme://$host/y; }
             location /307 { return 307 /to; }
             location /308 { return 308 /to; }
             location /url { return http://other.test/; }
             location /https { return https://other.test/; }
             location /bare { return $scheme://$host/z; }
             location /400 { return 400; }
             location /403 { return 403 no; }
             location /404 { return 404; }
             location /410 { return 410; }
             location /418 { return 418; }
             location /451 { return 451 \"\"; }
             location /500 { return 500; }
             location /503 { return 503 later; }
             location /599 { return 599 odd; }
             location /299 { return 299 odd; }",
        )
        .gets(&[
            "/200",
            "/text?a=b",
            "/json",
            "/204",
            "/301?a",
            "/302",
            "/303",
            "/307",
            "/308",
            "/url",
            "/https",
            "/bare",
            "/400",
            "/403",
            "/404",
            "/410",
            "/418",
            "/451",
            "/500",
            "/503",
            "/599",
            "/299",
        ])
        .head("/text")
        .head("/404")
        .send(Request::post("/text", "body"))
        .send(Request::post("/204", "body"))
}

fn return_closes() -> Scenario {
    Scenario::new("return-444")
        .server("location / { return 444; }")
        .raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn return_in_server() -> Scenario {
    Scenario::new("return-in-server")
        .server(
            "if ($arg_stop) { return 200 \"stopped $arg_stop\"; }
             location / { return 200 location; }",
        )
        .gets(&["/", "/?stop=1", "/?stop=0", "/?stop="])
}

fn redirect_hosts() -> Scenario {
    let conf = "server { listen 127.0.0.1:%%PORT%%; server_name a.test; root %%DIR%%/html;
                    location /p { port_in_redirect off; return 301 /to; }
                    location /dir { }
                    location / { return 301 /to; } }";
    Scenario::new("redirect-hosts")
        .http(conf)
        .file("html/dir/a", "a")
        .send(Request::get("/").host("a.test"))
        .send(Request::get("/").host("b.test:99"))
        .send(Request::get("/p").host("a.test"))
        .send(Request::get("/dir?x=y").host("a.test"))
        .raw("GET / HTTP/1.0\r\n\r\n")
}

fn redirect_relative() -> Scenario {
    Scenario::new("redirect-relative")
        .server(
            "absolute_redirect off;
             location /to { return 301 /there; }
             location /rw { rewrite ^ /there redirect; }
             location /full { return 302 http://a.test/; }
             location /dir { }",
        )
        .file("html/dir/a", "a")
        .gets(&["/to", "/rw", "/full", "/dir", "/dir?a=b"])
}

fn redirect_server_name() -> Scenario {
    let conf = "server { listen 127.0.0.1:%%PORT%%; server_name first.test second.test;
                    server_name_in_redirect on; return 301 /to; }
                server { listen 127.0.0.1:%%PORT_TWO%%; server_name \"\";
                    server_name_in_redirect on; return 301 /to; }";
    Scenario::new("redirect-server-name")
        .http(conf)
        .send(Request::get("/").host("second.test"))
        .send(Request::get("/").host("other.test"))
}
