//! Configuration texts with names in them, and what is put around them.
//!
//! A name is `%%NAME%%`. Names that begin with `PORT` get a free port each; `DIR` is the directory;
//! `GLOBALS` and `HTTP` are what every test needs in the main and http contexts.
//!
//! 1. The same text runs on both servers: what only one of them needs stands in `GLOBALS`.
//! 2. A port keeps its number when the text is replaced, so that a reload can be tested.

use super::Kind;
use crate::client::Protocol;
use crate::ports::free_port;
use std::io;
use std::path::Path;

/// The line by which most servers of tests listen.
const LISTEN: &str = "listen 127.0.0.1:%%PORT%%;";
/// The one beside it for HTTP/3.
const QUIC: &str = "listen 127.0.0.1:%%PORT%% quic;";

#[derive(Clone, Debug)]
pub(super) struct Template {
    kind: Kind,
    text: String,
    values: Vec<(String, String)>,
    ports: Vec<(String, u16)>,
    /// The protocol that servers speak beside HTTP/1.
    protocol: Protocol,
}

impl Template {
    pub(super) fn new(kind: Kind, text: &str) -> Template {
        Template {
            kind,
            text: text.to_string(),
            values: Vec::new(),
            ports: Vec::new(),
            protocol: Protocol::Http1,
        }
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.values.retain(|(known, _)| known != name);
        self.values.push((name.to_string(), value.to_string()));
    }

    pub(super) fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Lines in the http context beside those that all need.
    fn more(&self) -> &'static str {
        match self.protocol {
            Protocol::Http1 => "",
            Protocol::Http2 | Protocol::Streams => "http2 on;\n",
            Protocol::Http3 => {
                "ssl_certificate %%DIR%%/h3.pem;\nssl_certificate_key %%DIR%%/h3.key;\n"
            }
        }
    }

    pub(super) fn set_text(&mut self, text: &str) {
        self.text = text.to_string();
    }

    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    pub(super) fn port(&self, name: &str) -> u16 {
        self.ports
            .iter()
            .find(|(known, _)| known == name)
            .map_or(0, |(_, port)| *port)
    }

    /// Chooses a port for every name that has none.
    pub(super) fn choose_ports(&mut self) -> io::Result<()> {
        for name in port_names(&self.text) {
            if self.port(&name) == 0 {
                let port = free_port()?;
                self.set(&name, &port.to_string());
                self.ports.push((name, port));
            }
        }
        Ok(())
    }

    /// Forgets the ports, so that others are chosen.
    pub(super) fn forget_ports(&mut self) {
        self.ports.clear();
    }

    /// The whole file.
    pub(super) fn render(&self, dir: &Path) -> String {
        let mut text = if self.text.contains("events {") || self.text.contains("events{") {
            self.text.clone()
        } else {
            format!(
                "%%GLOBALS%%\nevents {{}}\nhttp {{\n%%HTTP%%\n{}\n}}\n",
                self.text
            )
        };
        text = text.replace("%%GLOBALS%%", &(self.modules() + self.globals()));
        text = text.replace("%%HTTP%%", &(self.more().to_owned() + &http(&self.text)));
        if self.protocol == Protocol::Http3 {
            text = text.replace(LISTEN, &[LISTEN, QUIC].join(" "));
        }
        for (name, value) in &self.values {
            text = text.replace(&format!("%%{name}%%"), value);
        }
        text.replace("%%DIR%%", &dir.display().to_string())
    }

    /// The modules that nginx has in files of their own.
    fn modules(&self) -> String {
        const MODULES: [(&str, &str); 6] = [
            ("set_escape_uri", "ndk_http"),
            ("set_escape_uri", "http_set_misc"),
            ("more_", "http_headers_more_filter"),
            ("brotli ", "http_brotli_filter"),
            ("brotli_static ", "http_brotli_static"),
            ("stream {", "stream"),
        ];
        let mut lines = String::new();
        for (mark, module) in MODULES {
            if self.kind == Kind::Nginx && self.text.contains(mark) {
                let name = match module {
                    "ndk_http" => "ndk_http_module".to_string(),
                    module => format!("ngx_{module}_module"),
                };
                let file = format!("/usr/lib/nginx/modules/{name}.so");
                lines.push_str(&format!("load_module {file};\n"));
            }
        }
        lines
    }

    fn globals(&self) -> &'static str {
        match self.kind {
            // Files of the test belong to root when tests run as root, and workers must reach them.
            Kind::Nginx if is_root() => {
                "daemon off;\nuser root;\npid %%DIR%%/server.pid;\nerror_log %%DIR%%/error.log info;"
            }
            _ => "daemon off;\npid %%DIR%%/server.pid;\nerror_log %%DIR%%/error.log info;",
        }
    }
}

/// Lines that the http context needs: no path outside of the directory is used.
fn http(text: &str) -> String {
    let mut lines = String::new();
    if !text.contains("access_log") {
        lines.push_str("access_log off;\n");
    }
    lines.push_str("client_body_temp_path %%DIR%%/client_temp;");
    for protocol in ["proxy", "fastcgi", "uwsgi", "scgi"] {
        lines.push_str(&format!("\n{protocol}_temp_path %%DIR%%/{protocol}_temp;"));
    }
    lines
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The names of ports in a text, each once.
fn port_names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .split("%%")
        .filter(|word| *word == "PORT" || word.starts_with("PORT_"))
        .filter(|word| {
            word.chars()
                .all(|c| c.is_ascii_uppercase() || "_0123456789".contains(c))
        })
        .map(str::to_string)
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_bare_text_is_wrapped() {
        let text = "server { listen %%PORT%%; listen %%PORT_TWO%%; root %%DIR%%; }";
        let mut template = Template::new(Kind::Millpond, text);
        template.choose_ports().unwrap();
        let conf = template.render(Path::new("/d"));
        assert!(conf.contains("events {}"));
        assert!(!conf.contains("%%"));
        assert!(conf.contains(&format!(
            "listen {}; listen {}; root /d;",
            template.port("PORT"),
            template.port("PORT_TWO")
        )));
    }

    #[test]
    fn ports_keep_their_numbers_when_the_text_changes() {
        let mut template = Template::new(Kind::Millpond, "listen %%PORT%%;");
        template.choose_ports().unwrap();
        let port = template.port("PORT");
        template.set_text("listen %%PORT%%; listen %%PORT_B%%;");
        template.choose_ports().unwrap();
        assert_eq!(template.port("PORT"), port);
        assert_ne!(template.port("PORT_B"), 0);
    }
}
