//! The configuration that servers are measured on: one worker, and one cache in front of an origin.

/// The parts of a configuration that differ from one benchmark to the next.
pub(crate) struct Conf<'a> {
    /// Lines of `http`.
    pub(crate) http: &'a str,
    /// The upstream that requests are passed to.
    pub(crate) pass: &'a str,
    /// Lines of the location.
    pub(crate) location: &'a str,
    /// Connections of a worker.
    pub(crate) room: usize,
}

impl Default for Conf<'_> {
    fn default() -> Self {
        Conf {
            http: "access_log off; sendfile on;",
            pass: "http://%%ORIGIN%%",
            location: "",
            room: 4096,
        }
    }
}

impl Conf<'_> {
    /// The text of it, for the test kit.
    pub(crate) fn text(&self) -> String {
        TEXT.replace("%%LINES%%", self.http)
            .replace("%%LOCATION%%", self.location)
            .replace("%%PASS%%", self.pass)
            .replace("%%ROOM%%", &self.room.to_string())
    }
}

const TEXT: &str = r"
%%GLOBALS%%
worker_processes 1;
events { worker_connections %%ROOM%%; }
http {
    %%HTTP%%
    tcp_nopush on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    proxy_cache_path %%DIR%%/cache levels=1:2 keys_zone=bench:256m max_size=8g inactive=1h
                     use_temp_path=off;
    %%LINES%%
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass %%PASS%%;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_cache bench;
            proxy_cache_valid 200 1h;
            add_header X-Cache-Status $upstream_cache_status;
            %%LOCATION%%
        }
    }
}
";
