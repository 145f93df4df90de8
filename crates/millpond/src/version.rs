//! `-v`, `-V`, `-h`: name, version, what works, and the options.
//!
//! Programs that ask nginx what it was built with read the last line of `-V`. [`MODULES`] is the one table it is written from: an
//! optional module is named when it works, a default one denied when it does not.

use std::fmt::Write as _;

use crate::arguments::{Arguments, CONF_PATH, ERROR_LOG, PREFIX};

/// The version of nginx whose behaviour is followed.
const NGINX_VERSION: &str = "1.31.5";

/// Whether nginx builds a module unless it is told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Built {
    /// It does; named with `--without-` when it is missing here.
    ByDefault,
    /// It does not; named with `--with-` when it works here.
    OnDemand,
}

/// Whether a module's directives work here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Works,
    Missing,
}

/// nginx's modules as its configure script names them.
const MODULES: &[(&str, Built, State)] = &[
    ("http_ssl_module", Built::OnDemand, State::Missing),
    ("http_v2_module", Built::OnDemand, State::Missing),
    ("http_v3_module", Built::OnDemand, State::Missing),
    ("http_realip_module", Built::OnDemand, State::Works),
    ("http_addition_module", Built::OnDemand, State::Missing),
    ("http_sub_module", Built::OnDemand, State::Missing),
    ("http_gunzip_module", Built::OnDemand, State::Missing),
    ("http_gzip_static_module", Built::OnDemand, State::Works),
    ("http_auth_request_module", Built::OnDemand, State::Missing),
    ("http_secure_link_module", Built::OnDemand, State::Missing),
    ("http_slice_module", Built::OnDemand, State::Missing),
    ("http_stub_status_module", Built::OnDemand, State::Works),
    ("http-cache", Built::ByDefault, State::Missing),
    ("http_charset_module", Built::ByDefault, State::Works),
    ("http_gzip_module", Built::ByDefault, State::Works),
    ("http_ssi_module", Built::ByDefault, State::Missing),
    ("http_userid_module", Built::ByDefault, State::Missing),
    ("http_access_module", Built::ByDefault, State::Works),
    ("http_auth_basic_module", Built::ByDefault, State::Missing),
    ("http_mirror_module", Built::ByDefault, State::Missing),
    ("http_autoindex_module", Built::ByDefault, State::Missing),
    ("http_geo_module", Built::ByDefault, State::Works),
    ("http_map_module", Built::ByDefault, State::Works),
    ("http_split_clients_module", Built::ByDefault, State::Works),
    ("http_referer_module", Built::ByDefault, State::Works),
    ("http_rewrite_module", Built::ByDefault, State::Works),
    ("http_proxy_module", Built::ByDefault, State::Works),
    ("http_fastcgi_module", Built::ByDefault, State::Missing),
    ("http_uwsgi_module", Built::ByDefault, State::Missing),
    ("http_scgi_module", Built::ByDefault, State::Missing),
    ("http_grpc_module", Built::ByDefault, State::Missing),
    ("http_memcached_module", Built::ByDefault, State::Missing),
    ("http_limit_conn_module", Built::ByDefault, State::Works),
    ("http_limit_req_module", Built::ByDefault, State::Works),
    ("http_empty_gif_module", Built::ByDefault, State::Missing),
    ("http_browser_module", Built::ByDefault, State::Missing),
    ("http_tunnel_module", Built::ByDefault, State::Missing),
    (
        "http_upstream_hash_module",
        Built::ByDefault,
        State::Missing,
    ),
    (
        "http_upstream_ip_hash_module",
        Built::ByDefault,
        State::Missing,
    ),
    (
        "http_upstream_least_conn_module",
        Built::ByDefault,
        State::Missing,
    ),
    (
        "http_upstream_least_time_module",
        Built::ByDefault,
        State::Missing,
    ),
    (
        "http_upstream_random_module",
        Built::ByDefault,
        State::Missing,
    ),
    (
        "http_upstream_sticky_module",
        Built::ByDefault,
        State::Missing,
    ),
    (
        "http_upstream_keepalive_module",
        Built::ByDefault,
        State::Works,
    ),
    ("http_upstream_zone_module", Built::ByDefault, State::Works),
];

/// What is to be printed first; none when nothing was asked for.
pub(crate) fn text(arguments: &Arguments) -> Option<String> {
    if !arguments.show.version {
        return None;
    }
    let mut out = format!("millpond version: millpond/{}\n", env!("CARGO_PKG_VERSION"));
    if arguments.show.help {
        out.push_str(&help());
    }
    if arguments.show.configure {
        // Writing into a String never fails.
        let _ = writeln!(out, "nginx version: nginx/{NGINX_VERSION} (compatible)");
        let _ = writeln!(out, "configure arguments:{}", configure_arguments());
    }
    Some(out)
}

fn configure_arguments() -> String {
    let mut out = format!(
        " --prefix={PREFIX} --conf-path={CONF_PATH} --error-log-path={ERROR_LOG} --with-threads"
    );
    for (name, built, state) in MODULES {
        let word = match (built, state) {
            (Built::OnDemand, State::Works) => "with",
            (Built::ByDefault, State::Missing) => "without",
            _ => continue,
        };
        let _ = write!(out, " --{word}-{name}");
    }
    out
}

fn help() -> String {
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
  -p prefix     : where relative paths start (default: {PREFIX})
  -e filename   : error log until the configuration names one (default: {ERROR_LOG})
  -c filename   : configuration file (default: {CONF_PATH})
  -g directives : directives that stand before those of the file

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
        for (name, built, state) in MODULES {
            let is_named = text.contains(name);
            let expected = match (built, state) {
                (Built::OnDemand, State::Works) => text.contains(&format!("--with-{name}")),
                (Built::ByDefault, State::Missing) => text.contains(&format!("--without-{name}")),
                _ => !is_named,
            };
            assert!(expected, "{name}");
        }
    }
}
