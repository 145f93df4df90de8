//! Names that no directive has: of which module for nginx they are, or which name was meant.
//!
//! Modules that do not come with nginx, and those of NGINX Plus, have directives that public
//! configurations are full of. One table says whose they are, and what does the same here.

use millpond_conf::suggest;

use super::all_directives;
use super::table;

/// A module, and the directives that it is known by.
#[derive(Debug)]
pub(crate) struct Module {
    /// Names, with spaces between them; a star stands for anything, at either end.
    pub names: &'static str,
    /// The name of the module.
    pub module: &'static str,
    /// The thing that is here in the module's place, as a clause; empty if nothing is.
    pub instead: &'static str,
}

const fn row(module: &'static str, names: &'static str, instead: &'static str) -> Module {
    Module {
        names,
        module,
        instead,
    }
}

/// The table; the first row that has a name counts.
pub(crate) const MODULES: &[Module] = &[
    row(
        "zstd-nginx-module",
        "zstd_dict_file",
        "answers are compressed by \"zstd\" without a dictionary, which no browser has",
    ),
    row(
        "ngx_unzip, ngx_zip",
        "zip zip_* unzip_*",
        "\"proxy_pass\" passes to a server that makes and reads archives",
    ),
    row(
        "ngx_cache_purge",
        "cache_purge_* *_cache_purge_*",
        "\"proxy_cache_purge\" takes the forms of that module and says of each purge what it did",
    ),
    row(
        "ngx_slowfs_cache",
        "slowfs_*",
        "\"proxy_cache\" keeps what is read from a slow disk behind a server of its own",
    ),
    row(
        "srcache-nginx-module",
        "srcache_*",
        "\"proxy_cache\" stores answers",
    ),
    row(
        "lua-nginx-module (OpenResty)",
        "*_by_lua* lua_*",
        "\"map\", \"if\", \"rewrite\" and \"auth_request\" decide without a script",
    ),
    #[cfg(not(feature = "script"))]
    row(
        "njs",
        "js_*",
        "\"map\", \"if\", \"rewrite\" and \"auth_request\" decide without a script",
    ),
    row(
        "nginx-module-vts",
        "vhost_traffic_status vhost_traffic_status_*",
        "\"status_zone\", \"metrics\", \"api\" and \"dashboard\" show traffic",
    ),
    row(
        "nginx-module-sts",
        "server_traffic_status server_traffic_status_*",
        "\"status_zone\", \"metrics\", \"api\" and \"dashboard\" show traffic",
    ),
    row(
        "ngx_pagespeed",
        "pagespeed pagespeed_*",
        "\"gzip\", \"brotli\" and \"expires\" are the part of it that a proxy can do",
    ),
    row(
        "ModSecurity-nginx",
        "modsecurity modsecurity_*",
        "\"map\", \"deny\" and \"limit_req\" refuse by field, address and rate, and \"auth_request\" \
         asks a server that looks at requests",
    ),
    row(
        "naxsi",
        "SecRules* LearningMode CheckRule BasicRule MainRule",
        "\"map\", \"deny\" and \"limit_req\" refuse by field, address and rate",
    ),
    row(
        "echo-nginx-module",
        "echo echo_*",
        "\"return\" answers with a text",
    ),
    row(
        "set-misc-nginx-module",
        "set_hashed_upstream set_formatted_gmt_time set_formatted_local_time set_misc_* \
         set_base32_alphabet set_base32_padding",
        "\"map\" and \"set\" make variables of others",
    ),
    row(
        "form-input-nginx-module",
        "set_form_input set_form_input_*",
        "\"auth_request\" asks a server that reads forms",
    ),
    row("array-var-nginx-module", "array_*", ""),
    row(
        "encrypted-session-nginx-module",
        "encrypted_session_* set_encrypt_session",
        "",
    ),
    row(
        "iconv-nginx-module",
        "iconv_* set_iconv",
        "\"charset\" converts between charsets",
    ),
    row("xss-nginx-module", "xss_*", ""),
    row("rds-json-nginx-module", "rds_*", ""),
    row("drizzle-nginx-module", "drizzle_*", ""),
    row("ngx_postgres", "postgres_*", ""),
    row(
        "memc-nginx-module",
        "memc_*",
        "\"memcached_pass\" asks memcached",
    ),
    row("redis2-nginx-module", "redis2_*", ""),
    row("ngx_http_redis", "redis_*", ""),
    row(
        "nginx-upload-progress-module",
        "upload_progress upload_progress_* track_uploads report_uploads",
        "browsers tell how far an upload is",
    ),
    row(
        "nginx-upload-module",
        "upload_*",
        "\"client_body_in_file_only\" keeps bodies as files for an origin",
    ),
    row(
        "nginx-push-stream-module",
        "push_stream_*",
        "\"proxy_pass\" passes WebSockets and streams of events to a server that publishes",
    ),
    row(
        "Nchan",
        "nchan_* push_authorized_channels_only push_channel_* push_m* push_publisher \
         push_store_messages push_subscriber*",
        "\"proxy_pass\" passes WebSockets and streams of events to a server that publishes",
    ),
    row(
        "nginx-rtmp-module",
        "rtmp rtmp_*",
        "a server of its own takes the stream, and \"proxy_cache\" keeps the HLS or DASH that it \
         makes",
    ),
    row(
        "nginx-vod-module",
        "vod vod_*",
        "\"slice\" and \"proxy_cache\" keep what such a server makes",
    ),
    row(
        "ngx_http_substitutions_filter_module",
        "subs_*",
        "\"sub_filter\" replaces texts in answers",
    ),
    row(
        "ngx-fancyindex",
        "fancyindex fancyindex_*",
        "\"autoindex\" lists folders",
    ),
    row(
        "nginx-dav-ext-module",
        "dav_ext_*",
        "\"proxy_pass\" passes to a server of WebDAV",
    ),
    row(
        "testcookie-nginx-module",
        "testcookie testcookie_*",
        "\"map\" of a cookie and \"return\" ask for one",
    ),
    row(
        "nginx-upstream-fair",
        "fair upstream_fair_*",
        "\"least_conn\" prefers idle servers",
    ),
    row(
        "ngx_upstream_jdomain",
        "jdomain",
        "\"resolver\" and servers with \"resolve\" follow names",
    ),
    row("nginx-upsync-module", "upsync upsync_*", ""),
    row("ngx_http_dyups_module", "dyups_*", ""),
    row(
        "nginx_upstream_check_module",
        "check check_*",
        "\"proxy_next_upstream\" and max_fails take failing servers out",
    ),
    row(
        "Phusion Passenger",
        "passenger_*",
        "\"proxy_pass\" passes to its own server",
    ),
    row("nginx_ajp_module", "ajp_*", "\"proxy_pass\" passes by HTTP"),
    row(
        "ngx_aws_auth",
        "aws_*",
        "\"proxy_aws_sign\" signs requests to an origin",
    ),
    row(
        "nginx-auth-ldap",
        "auth_ldap auth_ldap_* ldap_server",
        "\"auth_request\" asks a server",
    ),
    row(
        "ngx_http_auth_pam_module",
        "auth_pam auth_pam_*",
        "\"auth_request\" asks a server",
    ),
    row(
        "spnego-http-auth-nginx-module",
        "auth_gss auth_gss_*",
        "\"auth_request\" asks a server",
    ),
    row(
        "nginx-http-auth-digest",
        "auth_digest auth_digest_*",
        "\"auth_basic\" asks for passwords",
    ),
    row(
        "nginx_accept_language_module",
        "set_from_accept_language",
        "\"map\" $http_accept_language to a value",
    ),
    row(
        "Tengine",
        "concat concat_* trim trim_* footer footer_types sysguard sysguard_* req_status*",
        "",
    ),
    row(
        "nginx-opentracing",
        "opentracing opentracing_*",
        "\"otel_trace\" records requests for OpenTelemetry",
    ),
    row(
        "opentelemetry-nginx",
        "opentelemetry opentelemetry_*",
        "\"otel_trace\" does the same by the directives of nginx's own module",
    ),
    row(
        "nginx-length-hiding-filter-module",
        "length_hiding length_hiding_*",
        "\"gzip\" turned off for answers with secrets does what it is for",
    ),
    row(
        "ngx_devel_kit",
        "upstream_list",
        "\"split_clients\" and \"hash\" choose among upstreams",
    ),
    row(
        "ngx_http_proxy_connect_module",
        "proxy_connect proxy_connect_allow proxy_connect_address proxy_connect_bind \
         proxy_connect_response proxy_connect_send_timeout",
        "",
    ),
    row(
        "nginx_cookie_flag_module",
        "set_cookie_flag",
        "\"proxy_cookie_flags\" sets flags of cookies",
    ),
    row(
        "ngx_security_headers",
        "security_headers security_headers_* hide_server_tokens",
        "\"add_header\", \"more_set_headers\" and \"server_tokens\" do it field by field",
    ),
    row(
        "nginx-http-shibboleth",
        "shib_request shib_request_*",
        "\"auth_request\" asks a server",
    ),
    row(
        "ip2location-nginx, ip2proxy-nginx",
        "ip2location_* ip2proxy_*",
        "\"geo\" maps addresses to values",
    ),
    row(
        "ngx_waf",
        "waf waf_*",
        "\"map\", \"deny\" and \"limit_req\" refuse by field, address and rate",
    ),
    row(
        "replace-filter-nginx-module",
        "replace_filter replace_filter_*",
        "\"sub_filter\" replaces texts in answers",
    ),
    row(
        "nginx-sorted-querystring-module",
        "sorted_querystring_*",
        "\"cache_args\" tells which arguments count, in any order",
    ),
    row(
        "ngx_log_if",
        "access_log_bypass_if",
        "\"access_log\" has the parameter if=",
    ),
    row(
        "nginx-statsd, graphite-nginx-module",
        "statsd_* graphite_*",
        "\"metrics\" and \"api\" tell counters",
    ),
    row(
        "ngx_kafka_module, nginx-kafka-log-module",
        "kafka kafka_*",
        "\"access_log\" logs to files and syslog",
    ),
    row(
        "ngx_small_light, nginx-video-thumbextractor-module",
        "small_light small_light_* video_thumbextractor*",
        "\"proxy_cache\" keeps what a server behind \"proxy_pass\" makes of pictures",
    ),
    row(
        "nginx before 1.8",
        "limit_zone spdy_* satisfy_any",
        "\"limit_conn_zone\", \"http2\" and \"satisfy\" took their places",
    ),
    row(
        "NGINX Plus",
        "auth_oidc auth_oidc_* oidc_provider",
        "\"auth_request\" asks a server",
    ),
    row(
        "NGINX Plus",
        "health_check health_check_* match",
        "\"proxy_next_upstream\" and max_fails take failing servers out",
    ),
    row(
        "NGINX Plus",
        "keyval keyval_zone",
        "\"map\" maps keys to values",
    ),
    row("NGINX Plus", "zone_sync zone_sync_*", ""),
    row(
        "NGINX Plus",
        "status status_format upstream_conf",
        "\"api\" and \"dashboard\" show what is going on",
    ),
    row("NGINX Plus", "f4f f4f_* hls hls_*", ""),
    row(
        "NGINX Plus",
        "session_log session_log_*",
        "\"access_log\" logs requests",
    ),
    row("NGINX App Protect", "app_protect_*", ""),
];

/// The module of a name, if it is known for it.
pub(crate) fn module_of(name: &str) -> Option<&'static Module> {
    MODULES.iter().find(|row| {
        let mut patterns = row.names.split_ascii_whitespace();
        patterns.any(|pattern| is_match(pattern, name))
    })
}

/// The help for an unknown name that belongs to a module.
pub(crate) fn help_of_module(name: &str) -> Option<String> {
    let row = module_of(name)?;
    let separator = if row.instead.is_empty() { "" } else { "; " };
    Some(format!(
        "it belongs to {}, which is not part of this program{separator}{}",
        row.module, row.instead
    ))
}

/// The help for an unknown name.
pub(crate) fn help(name: &str) -> Option<String> {
    let nearest = || {
        let directives = all_directives().iter().map(|directive| &*directive.name);
        let names = directives.chain(table::rows().map(|row| row.name));
        let nearest = suggest(name, names)?;
        Some(format!("did you mean \"{nearest}\"?"))
    };
    help_of_module(name).or_else(nearest)
}

fn is_match(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(rest), Some(_)) => name.contains(rest.trim_end_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directives::{is_implemented, no_effect, refused};

    const NGINX: &str = include_str!("nginx-directives.txt");

    #[test]
    fn directives_of_modules_name_the_module() {
        for (name, module) in [
            ("zstd_dict_file", "zstd-nginx-module"),
            ("cache_purge_response_type", "ngx_cache_purge"),
            ("content_by_lua_block", "lua-nginx-module (OpenResty)"),
            ("access_by_lua", "lua-nginx-module (OpenResty)"),
            ("lua_shared_dict", "lua-nginx-module (OpenResty)"),
            ("vhost_traffic_status_zone", "nginx-module-vts"),
            ("pagespeed", "ngx_pagespeed"),
            ("modsecurity_rules_file", "ModSecurity-nginx"),
            ("srcache_fetch", "srcache-nginx-module"),
            ("echo_sleep", "echo-nginx-module"),
            ("set_hashed_upstream", "set-misc-nginx-module"),
            ("upload_pass", "nginx-upload-module"),
            ("upload_progress", "nginx-upload-progress-module"),
            ("nchan_publisher", "Nchan"),
            ("rtmp", "nginx-rtmp-module"),
            ("auth_oidc", "NGINX Plus"),
            ("health_check", "NGINX Plus"),
            ("zone_sync_server", "NGINX Plus"),
        ] {
            assert_eq!(
                module_of(name).map(|row| row.module),
                Some(module),
                "{name}"
            );
        }
        let told = help("xss_get").unwrap();
        let expected = "it belongs to xss-nginx-module, which is not part of this program";
        assert_eq!(told, expected);
        assert!(!help_of_module("xss_get").unwrap().ends_with("; "));
        assert_eq!(help("gzi").as_deref(), Some("did you mean \"gzip\"?"));
        assert_eq!(help("tpyo_of_nobody"), None);
    }

    /// Names from the tables of commands of modules that Debian has.
    const OF_MODULES: &str = include_str!("../../../../tests/foreign/module-directives.txt");

    #[test]
    fn directives_of_debians_modules_are_known_or_told_of() {
        let lines = OF_MODULES.lines().filter(|line| !line.starts_with('#'));
        let names = lines.filter_map(|line| line.split(' ').nth(1));
        let is_told = |name: &&str| {
            is_implemented(name)
                || refused::find(name).is_some()
                || no_effect::find(name).is_some()
                || module_of(name).is_some()
        };
        let untold: Vec<&str> = names.filter(|name| !is_told(name)).collect();
        assert!(untold.is_empty(), "{untold:?}");
    }

    #[test]
    fn no_directive_that_is_known_is_taken_for_one_of_a_module() {
        let known = NGINX.lines().map(str::to_string);
        let ours = all_directives().iter().map(|it| it.name.to_string());
        let blocks = table::rows().map(|row| row.name.to_string());
        let all = known.chain(ours).chain(blocks);
        let taken: Vec<String> = all.filter(|name| module_of(name).is_some()).collect();
        assert!(taken.is_empty(), "{taken:?}");
    }

    #[test]
    fn what_is_here_instead_is_here() {
        for row in MODULES {
            let quoted = row.instead.split('"').skip(1).step_by(2);
            for name in quoted.filter(|name| *name != "resolve") {
                assert!(is_implemented(name), "{}: {name}", row.module);
            }
            for pattern in row.names.split_ascii_whitespace() {
                assert!(pattern.trim_matches('*').len() > 2, "{pattern}");
            }
        }
    }
}
