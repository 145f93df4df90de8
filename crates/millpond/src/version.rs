//! `-v`, `-V`, `-h`, `--help`, `--version`: name, version, what works, and the options.
//!
//! Programs that ask nginx what it was built with read the last line of `-V`. It is written from
//! [`MODULES`] and from the directives that there are: an optional module is named when it works, a
//! default one denied when it does not.

use std::fmt::Write as _;

use millpond_server::directives;

use crate::arguments::{Arguments, CONF_PATH, ERROR_LOG, PREFIX};

/// The version of nginx whose behaviour is followed.
const NGINX_VERSION: &str = "1.31.5";

/// Habit of nginx's build about a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Built {
    /// Module that nginx builds unless told otherwise; named with `--without-` when it is missing
    /// here.
    ByDefault,
    /// Module that nginx builds only when told to; named with `--with-` when it works here.
    OnDemand,
}

/// nginx's modules as its configure script names them, each with a directive that is implemented if
/// and only if the module works here.
const MODULES: &[(&str, Built, &str)] = &[
    ("http_ssl_module", Built::OnDemand, "ssl_certificate"),
    ("http_v2_module", Built::OnDemand, "http2"),
    ("http_v3_module", Built::OnDemand, "http3"),
    ("http_realip_module", Built::OnDemand, "set_real_ip_from"),
    ("http_addition_module", Built::OnDemand, "add_after_body"),
    ("http_sub_module", Built::OnDemand, "sub_filter"),
    ("http_gunzip_module", Built::OnDemand, "gunzip"),
    ("http_gzip_static_module", Built::OnDemand, "gzip_static"),
    ("http_auth_request_module", Built::OnDemand, "auth_request"),
    ("http_secure_link_module", Built::OnDemand, "secure_link"),
    ("http_slice_module", Built::OnDemand, "slice"),
    ("http_stub_status_module", Built::OnDemand, "stub_status"),
    ("http_dav_module", Built::OnDemand, "dav_methods"),
    ("http_flv_module", Built::OnDemand, "flv"),
    ("http_mp4_module", Built::OnDemand, "mp4"),
    ("http_random_index_module", Built::OnDemand, "random_index"),
    ("http_xslt_module", Built::OnDemand, "xslt_stylesheet"),
    ("http_image_filter_module", Built::OnDemand, "image_filter"),
    ("http_perl_module", Built::OnDemand, "perl"),
    ("http-cache", Built::ByDefault, "proxy_cache"),
    ("http_charset_module", Built::ByDefault, "charset"),
    ("http_gzip_module", Built::ByDefault, "gzip"),
    ("http_ssi_module", Built::ByDefault, "ssi"),
    ("http_userid_module", Built::ByDefault, "userid"),
    ("http_access_module", Built::ByDefault, "allow"),
    ("http_auth_basic_module", Built::ByDefault, "auth_basic"),
    ("http_mirror_module", Built::ByDefault, "mirror"),
    (
        "http_autoindex_module",
        Built::ByDefault,
        "autoindex_format",
    ),
    ("http_geo_module", Built::ByDefault, "geo"),
    ("http_map_module", Built::ByDefault, "map"),
    (
        "http_split_clients_module",
        Built::ByDefault,
        "split_clients",
    ),
    ("http_referer_module", Built::ByDefault, "valid_referers"),
    ("http_rewrite_module", Built::ByDefault, "rewrite"),
    ("http_proxy_module", Built::ByDefault, "proxy_pass"),
    ("http_fastcgi_module", Built::ByDefault, "fastcgi_pass"),
    ("http_uwsgi_module", Built::ByDefault, "uwsgi_pass"),
    ("http_scgi_module", Built::ByDefault, "scgi_pass"),
    ("http_grpc_module", Built::ByDefault, "grpc_pass"),
    ("http_memcached_module", Built::ByDefault, "memcached_pass"),
    ("http_limit_conn_module", Built::ByDefault, "limit_conn"),
    ("http_limit_req_module", Built::ByDefault, "limit_req"),
    ("http_empty_gif_module", Built::ByDefault, "empty_gif"),
    ("http_browser_module", Built::ByDefault, "modern_browser"),
    ("http_tunnel_module", Built::ByDefault, "tunnel_pass"),
    ("http_upstream_hash_module", Built::ByDefault, "hash"),
    ("http_upstream_ip_hash_module", Built::ByDefault, "ip_hash"),
    (
        "http_upstream_least_conn_module",
        Built::ByDefault,
        "least_conn",
    ),
    (
        "http_upstream_least_time_module",
        Built::ByDefault,
        "least_time",
    ),
    ("http_upstream_random_module", Built::ByDefault, "random"),
    ("http_upstream_sticky_module", Built::ByDefault, "sticky"),
    (
        "http_upstream_keepalive_module",
        Built::ByDefault,
        "keepalive",
    ),
    ("http_upstream_zone_module", Built::ByDefault, "zone"),
    ("stream", Built::OnDemand, "preread_buffer_size"),
    (
        "stream_realip_module",
        Built::OnDemand,
        "preread_buffer_size",
    ),
    (
        "stream_ssl_module",
        Built::OnDemand,
        "ssl_handshake_timeout",
    ),
    ("stream_ssl_preread_module", Built::OnDemand, "ssl_preread"),
    ("stream_pass_module", Built::ByDefault, "pass"),
];

/// Text that is to be printed first; none when nothing was asked for.
pub(crate) fn text(arguments: &Arguments) -> Option<String> {
    if !arguments.show.version {
        return None;
    }
    let mut out = line();
    if arguments.show.help {
        out.push_str(&help());
    }
    if arguments.show.configure {
        // Writing into a String never fails.
        let _ = writeln!(out, "nginx version: nginx/{NGINX_VERSION} (compatible)");
        let chains = millpond_tls::certificate::library();
        let _ = writeln!(
            out,
            "built with {chains} for certificates, rustls for handshakes"
        );
        let _ = writeln!(out, "TLS SNI support enabled");
        let _ = writeln!(out, "configure arguments:{}", configure_arguments());
    }
    Some(out)
}

/// Name and version, as `nginx -v` writes them.
pub(crate) fn line() -> String {
    format!("millpond version: millpond/{}\n", env!("CARGO_PKG_VERSION"))
}

fn configure_arguments() -> String {
    let mut out = format!(
        " --prefix={PREFIX} --conf-path={CONF_PATH} --error-log-path={ERROR_LOG} --with-threads"
    );
    for (name, built, directive) in MODULES {
        let word = match (built, directives::is_implemented(directive)) {
            (Built::OnDemand, true) => "with",
            (Built::ByDefault, false) => "without",
            (Built::OnDemand, false) | (Built::ByDefault, true) => continue,
        };
        let _ = write!(out, " --{word}-{name}");
    }
    out
}

pub(crate) fn help() -> String {
    format!(
        "Usage: millpond [-?hvVtTq] [-s signal] [-p prefix]
                [-e filename] [-c filename] [-g directives]

Options:
  -?,-h         : this help
  -v            : show version and exit
  -V            : show version and what works of nginx, then exit
  -t            : test the configuration and exit
  -T            : test the configuration, print it and exit
  -q            : during a test, print only errors
  -s signal     : tell the running process: stop, quit, reopen, reload
  --wait        : with -s reload, wait for the outcome; exit with 1, and say why, if refused
  -p prefix     : where relative paths start (default: {PREFIX})
  -e filename   : error log until the configuration names one (default: {ERROR_LOG})
  -c filename   : configuration file (default: {CONF_PATH})
  -g directives : directives that stand before those of the file
A relative file name starts at the prefix; where there is none, at the current directory.

Commands, each with --help:
  millpond check    : how a configuration fares, before anything is switched over
  millpond explain  : a directive, a variable, a status, or a request, explained
  millpond cache    : what is in the caches, and purging
  millpond fleet    : how far a node is behind, and purging on all nodes
  millpond why      : what a request would get now, and why
  millpond top      : what a process does, live
  millpond sensor   : one question about a process, answered for Nagios and Icinga
  millpond gauge    : loads, verifies and compares servers
  millpond demo     : an origin, a page, and Millpond between them, or a fleet

"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_on_demand_modules_are_not_named_at_all() {
        // A program that looks for "slice" must not find it in a denial.
        let text = configure_arguments();
        for (name, built, directive) in MODULES {
            let expected = match (built, directives::is_implemented(directive)) {
                (Built::OnDemand, true) => text.contains(&format!("--with-{name}")),
                (Built::ByDefault, false) => text.contains(&format!("--without-{name}")),
                _ => !text.contains(name),
            };
            assert!(expected, "{name}");
        }
    }

    #[test]
    fn every_module_is_known_by_a_directive_of_nginx() {
        let names = include_str!("../../server/src/directives/nginx-directives.txt");
        for (name, _, directive) in MODULES {
            assert!(
                names.lines().any(|line| line == *directive),
                "{name}: {directive}"
            );
        }
    }
}
