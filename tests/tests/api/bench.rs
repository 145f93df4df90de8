//! A proxy with zones of all kinds, and how it is asked.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, Request, Response,
};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

pub(crate) const WAIT: Duration = Duration::from_secs(20);

const CONF: &str = "
%%GLOBALS%%
worker_processes 2;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/pond keys_zone=pond:1m max_size=100m;
    proxy_cache_valid 200 1h;
    proxy_cache_key $uri;
    limit_req_zone $arg_k zone=slow:1m rate=1r/m;
    limit_req_zone $arg_k zone=dry:1m rate=1r/m;
    limit_conn_zone $arg_k zone=few:1m;
    limit_req_log_level info;
    upstream farm {
        zone farm 64k;
        server %%ORIGIN%% weight=3 max_fails=2 max_conns=50;
        server 127.0.0.1:%%PORT_DEAD%% down;
    }
    upstream fixed { server %%ORIGIN%%; }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name shop;
        status_zone shop;
        location /api { status_zone api; api write=on; }
        location /read/ { status_zone off; api; }
        location /closed { api; deny all; }
        location /pages/ {
            status_zone pages;
            proxy_pass http://farm;
            proxy_cache pond;
            location /pages/inside/ { proxy_pass http://farm; }
            location /pages/quiet/ { status_zone off; return 204; }
            location /pages/if/ {
                if ($arg_a) { status_zone chosen; return 202; }
                return 201;
            }
        }
        location /moved { error_page 418 = @moved; return 418; }
        location @moved { status_zone moved; return 200 moved; }
        location /gone { return 444; }
        location /slow {
            limit_req zone=slow burst=1 nodelay;
            limit_conn few 100;
            error_page 404 = @moved;
        }
        location /dry {
            limit_req zone=dry burst=1;
            limit_req_dry_run on;
            error_page 404 = @moved;
        }
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name blog;
        status_zone blog;
        location / { return 200 blog; }
    }
}
";

/// The proxy and its origin.
pub(crate) struct Bench {
    pub(crate) origin: Origin,
    pub(crate) proxy: Proxy,
    pub(crate) client: Client,
}

impl Bench {
    pub(crate) fn start() -> Result<Bench> {
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).body("a page of ten"));
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .origin(&origin)
            .log_check(LogCheck::On)
            .start()?;
        let client = Client::new(proxy.port());
        Ok(Bench {
            origin,
            proxy,
            client,
        })
    }

    /// A page, or whatever else, of a host.
    pub(crate) fn get(&self, host: &str, path: &str) -> Result<Response> {
        self.client.send(&Request::get(path).host(host))
    }

    pub(crate) fn ask(&self, method: &str, path: &str) -> Result<Response> {
        self.client.send(&asking(method, path))
    }

    /// Answer of the API for a path below its location.
    pub(crate) fn told(&self, path: &str) -> Result<Value> {
        let response = self.ask("GET", &format!("/api{path}"))?;
        let text = response.text();
        ensure!(response.status == 200, "{path}: {} {text}", response.status);
        serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))
    }

    /// Waits until something that is told is as it must be: an answer is counted after its last
    /// byte.
    pub(crate) fn settles(&self, path: &str, is_right: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let look = || {
            last = self.told(path).ok()?;
            is_right(&last).then(|| last.clone())
        };
        let settled = Deadline::after(WAIT).poll(look);
        settled.with_context(|| format!("{path}: {last}"))
    }
}

/// A request of a program: what changes something says that no form of a page sent it.
pub(crate) fn asking(method: &str, target: &str) -> Request {
    let request = Request::new(method, target).host("shop");
    match method {
        "POST" | "PATCH" | "DELETE" => request.header("Content-Type", "application/json"),
        _ => request,
    }
}

/// The document as it stands in the manual.
pub(crate) fn document() -> Result<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
