//! Variables of nginx that have no value here, and those that are refused.
//!
//! An absent variable is accepted, because formats of logs name it, and has no value: "-" in a log,
//! nothing in a string. The reason says what would have to be there. A refused variable belongs to
//! a module that is not there; it would steer answers, so that a configuration with it is refused.
//!
//! Invariant: a record of a variable that works is stronger than a row of these tables.

/// A group of variables.
#[derive(Debug)]
pub struct Absent {
    /// Names without `$`, with spaces between them.
    pub names: &'static str,
    /// The reason why there is no value, as a clause.
    pub reason: &'static str,
}

/// Variables without a value.
pub const ABSENT: &[Absent] = &[
    Absent {
        names: "ssl_protocol ssl_cipher ssl_ciphers ssl_curve ssl_curves ssl_sigalg ssl_sigalgs \
                ssl_session_id ssl_session_reused ssl_early_data ssl_server_name \
                ssl_alpn_protocol ssl_ech_status ssl_ech_outer_server_name ssl_client_cert \
                ssl_client_raw_cert ssl_client_escaped_cert ssl_client_s_dn ssl_client_i_dn \
                ssl_client_s_dn_legacy ssl_client_i_dn_legacy ssl_client_serial \
                ssl_client_fingerprint ssl_client_verify ssl_client_v_start ssl_client_v_end \
                ssl_client_v_remain ssl_client_sigalg",
        reason: "connections of clients are not encrypted",
    },
    Absent {
        names: "tcpinfo_rtt tcpinfo_rttvar tcpinfo_snd_cwnd tcpinfo_rcv_space",
        reason: "the kernel is not asked about connections",
    },
    Absent {
        names: "proxy_add_via",
        reason: "nginx makes it for its own use",
    },
];

/// Variables of modules that are not there.
pub const REFUSED: &[Absent] = &[
    Absent {
        names: "msie modern_browser ancient_browser",
        reason: "browser detection is not supported; use \"map $http_user_agent\"",
    },
    Absent {
        names: "geoip_country_code geoip_country_code3 geoip_country_name geoip_org \
                geoip_city_continent_code geoip_city_country_code geoip_city_country_code3 \
                geoip_city_country_name geoip_region geoip_region_name geoip_city \
                geoip_postal_code geoip_latitude geoip_longitude geoip_dma_code geoip_area_code",
        reason: "databases of the first GeoIP are not read; \"geoip2\" defines such variables from an \
                 .mmdb file",
    },
];

/// True if a name is one that never has a value.
pub fn is_absent(name: &str) -> bool {
    find(ABSENT, name).is_some()
}

/// The reason why a configuration with this variable is refused, if it is one of nginx's.
pub fn refusal(name: &str) -> Option<&'static str> {
    find(REFUSED, name)
}

fn find(table: &'static [Absent], name: &str) -> Option<&'static str> {
    let has = |row: &&Absent| {
        let mut names = row.names.split_ascii_whitespace();
        names.any(|it| it == name)
    };
    table.iter().find(has).map(|row| row.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whole() {
        assert!(is_absent("ssl_protocol") && !is_absent("ssl_proto") && !is_absent("host"));
        assert!(refusal("geoip_org").is_some());
        assert!(refusal("geoip").is_none());
    }
}
