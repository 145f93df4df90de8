//! Directives of nginx that are not supported; a configuration that has one is refused by name.
//!
//! Nothing that changes answers is ignored in silence: the reason says what is missing and, where
//! there is one, what to do instead.

/// A group of refused directives.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Names, with spaces between them.
    pub names: &'static str,
    /// The part that the names belong to in nginx, and what to do instead.
    pub reason: &'static str,
}

/// The table.
pub(crate) const REFUSED: &[Refused] = &[
    Refused {
        names: "perl_modules perl_require perl perl_set",
        reason: "embedded Perl is not supported; \"map\", \"if\", \"rewrite\" and \"auth_request\" decide without \
                 a script",
    },
    Refused {
        names: "js_load_http_native_module js_load_stream_native_module",
        reason: "native code is not loaded into this program; \"js_import\" reads modules in \
                 JavaScript",
    },
    Refused {
        names: "mail auth_http auth_http_timeout auth_http_header auth_http_pass_client_cert \
                protocol timeout max_errors imap_client_buffer imap_capabilities imap_auth \
                pop3_capabilities pop3_auth proxy proxy_buffer proxy_pass_error_message \
                xclient proxy_smtp_auth smtp_client_buffer smtp_greeting_delay \
                smtp_capabilities smtp_auth starttls",
        reason: "the mail proxy is not part of this program",
    },
    Refused {
        names: "proxy_downstream_buffer proxy_upstream_buffer",
        reason: "nginx has \"proxy_buffer_size\" in their place",
    },
    Refused {
        names: "uwsgi_string",
        reason: "uwsgi requests with a string instead of parameters are not supported",
    },
    Refused {
        names: "xslt_stylesheet xslt_param xslt_string_param xslt_types xslt_last_modified \
                xml_entities xml_external_entities",
        reason: "XSLT is not supported; \"proxy_cache\" keeps what a server behind \"proxy_pass\" \
                 makes",
    },
    Refused {
        names: "image_filter image_filter_jpeg_quality image_filter_webp_quality \
                image_filter_sharpen image_filter_transparency image_filter_interlace \
                image_filter_buffer",
        reason: "image conversion is not supported; \"proxy_cache\" keeps what a server behind \
                 \"proxy_pass\" makes of pictures",
    },
    Refused {
        names: "geoip_country geoip_org geoip_city geoip_proxy geoip_proxy_recursive",
        reason: "databases of the first GeoIP, which nobody makes any more, are not read; \"geoip2\" \
                 reads .mmdb files, and \"geoip2_proxy\" names proxies",
    },
    Refused {
        names: "dav_methods dav_access create_full_put_path min_delete_depth",
        reason: "WebDAV is not supported; \"proxy_pass\" passes its methods to a server that has it",
    },
    Refused {
        names: "modern_browser ancient_browser modern_browser_value ancient_browser_value",
        reason: "browser detection is not supported; use \"map $http_user_agent\"",
    },
    Refused {
        names: "degradation degrade",
        reason: "degradation is not supported",
    },
    Refused {
        names: "google_perftools_profiles",
        reason: "profiling by gperftools is not supported; use perf",
    },
    Refused {
        names: "client_body_early_read",
        reason: "bodies are read when a handler asks for them",
    },
];

/// The reason why a directive is refused.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    REFUSED
        .iter()
        .find(|row| row.names.split_ascii_whitespace().any(|it| it == name))
        .map(|row| row.reason)
}
