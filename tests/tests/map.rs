//! `map`, `split_clients`, `geo`: variables computed from other values.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Client, Kind, Proxy, Request};

const CONF: &str = r#"
    map $arg_a $value {
        default none;
        ""      empty;
        word    found;
        \default escaped;
        ~^n(.)$ "n:$1";
        ~*^x(?<letter>.)$ "x:$letter:$uri";
        ~^[a-y] letter;
        include %%DIR%%/more.map;
    }
    map $arg_host $site {
        hostnames;
        default         none;
        example.com     exact;
        .example.org    any;
        *.example.com   under;
        www.example.*   before;
        ~^.+\.net$      net;
    }
    map "$arg_a:$arg_b" $pair { default other; "1:2" both; }
    map $uri $once { default "[$uri]"; }
    map $uri $always { volatile; default "[$uri]"; }
    map $round $round { default "r$round"; }
    split_clients $arg_a $third { 33.3% first; 33.3% second; * rest; }
    geo $arg_ip $place {
        default      far;
        10.0.0.0/8   ten;
        10.1.0.0/16  inner;
        10.2.0.0/16  gone;
        delete       10.2.0.0/16;
        2001:db8::/32 six;
    }
    geo $arg_ip $range {
        ranges;
        default far;
        10.0.0.0-10.0.1.255 wide;
        10.0.0.7-10.0.0.9   narrow;
    }
    geo $arg_ip $behind {
        proxy 127.0.0.1;
        default direct;
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name localhost;
        location /value { return 200 "$value"; }
        location /site { return 200 "$site"; }
        location /pair { return 200 "$pair"; }
        location /third { return 200 "$third"; }
        location /place { return 200 "$place $range"; }
        location /round { return 200 "ok $round"; }
        location /first {
            set $before "$once$always";
            rewrite ^ /second;
            return 200 "$before$once$always";
        }
    }"#;

fn texts(rows: &[(&str, &str)]) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF)
            .file("more.map", "more included;")
            .start()?;
        let client = Client::new(proxy.port());
        for (path, text) in rows {
            let response = client.send(&Request::get(path).host("localhost"))?;
            assert_eq!(response.text(), *text, "{path} {kind:?}");
        }
    }
    Ok(())
}

#[test]
fn names_come_before_expressions_and_in_any_case() -> Result<()> {
    texts(&[
        ("/value", "empty"),
        ("/value?a=word", "found"),
        ("/value?a=WORD", "found"),
        ("/value?a=default", "escaped"),
        ("/value?a=n1", "n:1"),
        ("/value?a=N1", "none"),
        ("/value?a=Xy", "x:y:/value"),
        ("/value?a=other", "letter"),
        ("/value?a=zzz", "none"),
        ("/value?a=more", "included"),
        ("/pair?a=1&b=2", "both"),
        ("/pair?a=1&b=3", "other"),
    ])
}

#[test]
fn host_names_may_have_wildcards_and_a_last_dot() -> Result<()> {
    texts(&[
        ("/site?host=example.com", "exact"),
        ("/site?host=EXAMPLE.com.", "exact"),
        ("/site?host=a.example.com", "under"),
        ("/site?host=a.b.example.com", "under"),
        ("/site?host=example.org", "any"),
        ("/site?host=a.example.org", "any"),
        ("/site?host=www.example.de", "before"),
        ("/site?host=www.example.co.uk", "before"),
        ("/site?host=x.net", "net"),
        ("/site?host=net", "none"),
        ("/site", "none"),
    ])
}

#[test]
fn a_value_is_kept_for_the_request_unless_it_is_volatile() -> Result<()> {
    texts(&[("/first", "[/first][/first][/first][/second]")])
}

#[test]
fn shares_are_cut_where_nginx_cuts_them() -> Result<()> {
    texts(&[
        ("/third?a=1", "first"),
        ("/third?a=2", "first"),
        ("/third?a=3", "second"),
        ("/third?a=client", "second"),
        ("/third?a=10.0.0.1", "second"),
    ])
}

#[test]
fn addresses_are_found_by_prefix_or_range() -> Result<()> {
    texts(&[
        ("/place?ip=10.9.0.1", "ten far"),
        ("/place?ip=10.1.0.1", "inner far"),
        ("/place?ip=10.2.0.1", "ten far"),
        ("/place?ip=10.0.1.200", "ten wide"),
        ("/place?ip=10.0.0.8", "ten narrow"),
        ("/place?ip=10.0.0.10", "ten wide"),
        ("/place?ip=2001:db8::1", "six far"),
        ("/place?ip=::1", "far far"),
        ("/place?ip=nonsense", "far far"),
        ("/place", "far far"),
    ])
}

#[test]
fn a_value_that_leads_to_itself_ends() -> Result<()> {
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .file("more.map", "more included;")
        .start()?;
    let client = Client::new(proxy.port());
    let response = client.send(&Request::get("/round").host("localhost"))?;
    assert!(response.text().starts_with("ok"), "{}", response.text());
    assert!(
        proxy
            .error_log()
            .contains("cycle while evaluating variable")
    );
    Ok(())
}
