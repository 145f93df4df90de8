//! Variables: built-in ones, `map`, `geo` and `split_clients`.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        request_variables(),
        header_variables(),
        argument_variables(),
        upstream_variables(),
        variables_with_values_of_the_configuration(),
        map_kinds(),
        map_hostnames(),
        map_regex(),
        map_volatile(),
        geo(),
        split_clients(),
    ]
}

fn request_variables() -> Scenario {
    let names = [
        "request_method",
        "request_uri",
        "uri",
        "document_uri",
        "args",
        "query_string",
        "is_args",
        "scheme",
        "host",
        "server_name",
        "server_port",
        "server_addr",
        "server_protocol",
        "remote_addr",
        "request",
        "https",
        "http_host",
        "content_length",
        "content_type",
        "document_root",
        "request_filename",
        "remote_user",
        "request_completion",
        "body_bytes_sent",
        "hostname_unset",
        "binary_remote_addr",
        "limit_rate",
        "connection_requests",
    ];
    let mut conf = String::from("set $hostname_unset \"\";\n");
    let mut scenario = Scenario::new("request-variables");
    for name in names {
        conf.push_str(&format!(
            "location /{name} {{ return 200 \"[${name}]\"; }}\n"
        ));
        let request = Request::post(&format!("/{name}/a%20b?x=y&z"), "body")
            .host("LocalHost:123")
            .header("Authorization", "Basic dXNlcjpwYXNz")
            .header("Content-Type", "text/x");
        scenario = scenario.send(request);
    }
    scenario.server(&conf)
}

fn header_variables() -> Scenario {
    Scenario::new("header-variables")
        .server(
            "add_header X-Sent \"$sent_http_content_type|$sent_http_x_one|$sent_http_none\";
             location / { return 200 \"$http_x_one|$http_user_agent|$http_none|$http_cookie|$http_x_two\"; }
             location /cookie { return 200 \"$cookie_a|$cookie_b|$cookie_none\"; }
             location /fwd { return 200 \"$http_x_forwarded_for|$proxy_add_x_forwarded_for\"; }",
        )
        .send(Request::get("/").header("X-One", "1").header("User-Agent", "me").header("X_Two", "2"))
        .send(Request::get("/").header("x-ONE", " 1  "))
        .send(Request::get("/cookie").header("Cookie", "a=1; b=2; a=3"))
        .send(Request::get("/cookie").header("Cookie", "ab=1;b=\"q\"").header("Cookie", "a=x"))
        .send(Request::get("/fwd").header("X-Forwarded-For", "1.1.1.1, 2.2.2.2"))
        .get("/fwd")
}

fn argument_variables() -> Scenario {
    Scenario::new("argument-variables")
        .server(
            "location / { return 200 \"$arg_a|$arg_b|$arg_A|$arg_long_name\"; }
             location /set { set $args \"a=new&$args\";
                 return 200 \"$arg_a|$args|$query_string\"; }",
        )
        .gets(&[
            "/?a=1&b=2",
            "/?b=&a",
            "/?a=1&a=2",
            "/?xa=1",
            "/?A=1",
            "/?a=%20+&b=c=d",
            "/?&&a=1",
            "/?long_name=x",
            "/?",
            "/set?b=1",
        ])
}

/// Names that a configuration may use: those that nginx lets it give values to, and those that only
/// others than nginx have.
fn variables_with_values_of_the_configuration() -> Scenario {
    Scenario::new("variables-with-own-values")
        .http(
            "upstream backend { server %%ORIGIN%%; }
             map $uri $upstream_uri { /mapped mapped; default none; }
             geo $cache_site { 127.0.0.0/8 near; default far; }",
        )
        .server(
            "location /host { set $proxy_host backend; proxy_pass http://$proxy_host; }
             location /own { set $upstream_host backend; proxy_pass http://$upstream_host;
                 add_header X-Host $upstream_host; }
             location /ssl { set $ssl_protocol mine; return 200 \"$ssl_protocol $ssl_cipher\"; }
             location /mapped { return 200 \"$upstream_uri $cache_site\"; }
             location /if { if ($arg_x) { set $http3 yes; } return 200 \"[$http3]\"; }",
        )
        .gets(&[
            "/host",
            "/own",
            "/ssl",
            "/mapped",
            "/mapped/x",
            "/if",
            "/if?x=1",
        ])
}

fn upstream_variables() -> Scenario {
    let answer = Answer::new(201)
        .header("X-A", "1")
        .header("Set-Cookie", "c=d; Path=/")
        .body("12345");
    Scenario::new("upstream-variables")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%;
                 add_header X-Up \"$upstream_status|$upstream_addr|$upstream_response_length|$upstream_http_x_a|$upstream_cookie_c|$proxy_host|$proxy_port\" always; }
             location /refused { proxy_pass http://127.0.0.1:1;
                 add_header X-Up \"$upstream_status|$upstream_addr|$upstream_response_length\" always; }
             location /none { add_header X-Up \"[$upstream_status][$upstream_addr]\";
                 return 200 x; }",
        )
        .answer("/a", answer)
        .gets(&["/a", "/b", "/refused", "/none"])
}

fn map_kinds() -> Scenario {
    Scenario::new("map")
        .http(
            "map $arg_a $plain { default d; one 1; \"\" empty; Two 2; \\default escaped;
                \"a b\" space; three \"$arg_b!\"; }
             map $arg_a $nodefault { one 1; }
             map \"$arg_a:$arg_b\" $pair { \"x:y\" xy; default $arg_a; }
             map $plain $chained { 1 first; default other; }",
        )
        .server("location / { return 200 \"$plain|$nodefault|$pair|$chained\"; }")
        .gets(&[
            "/",
            "/?a=one",
            "/?a=ONE",
            "/?a=two",
            "/?a=default",
            "/?a=three&b=z",
            "/?a=x&b=y",
            "/?a=x&b=z",
            "/?a=zzz",
        ])
}

fn map_hostnames() -> Scenario {
    let conf = "map $http_x_host $h { hostnames; default none; exact.test exact; *.wild.test front;
                    .dot.test dot; back.* back; ~^re\\. regex; }";
    let mut scenario = Scenario::new("map-hostnames")
        .http(conf)
        .server("location / { return 200 $h; }");
    for host in [
        "exact.test",
        "EXACT.test",
        "a.wild.test",
        "wild.test",
        "dot.test",
        "x.dot.test",
        "back.org",
        "re.test",
        "exact.test.",
        "other",
        "back.a.b",
    ] {
        scenario = scenario.get_with("/", "X-Host", host);
    }
    scenario
}

fn map_regex() -> Scenario {
    Scenario::new("map-regex")
        .http(
            "map $uri $m { default none; ~^/a/(.+)$ \"a:$1\"; ~*^/B b;
                \"~^/n/(?<name>.+)$\" \"n:$name\";
                           /exact exact; ~/exact regex; \"~x{2}\" double; }",
        )
        .server("location / { return 200 \"$m|$name\"; }")
        .gets(&[
            "/a/1/2", "/b", "/B", "/n/x", "/exact", "/exact2", "/xx", "/c",
        ])
}

fn map_volatile() -> Scenario {
    Scenario::new("map-volatile")
        .http("map $v $cached { default $v; } map $v $fresh { volatile; default $v; }")
        .server(
            "location / { set $v 1; set $one \"$cached$fresh\"; set $v 2;
                return 200 \"$one$cached$fresh\"; }",
        )
        .get("/")
}

fn geo() -> Scenario {
    Scenario::new("geo")
        .http(
            "geo $g { default none; 127.0.0.0/8 local; 127.0.0.1 me; 10.0.0.0/8 ten; }
             geo $arg_ip $a { default none; 10.0.0.0/8 ten; 10.1.0.0/16 ten-one; 192.168.1.1 host;
                              delete 10.2.0.0/16; 2001:db8::/32 six; }
             geo $arg_ip $r { ranges; default none; 10.0.0.1-10.0.0.9 low;
                 10.0.0.10-10.0.0.20 high; }",
        )
        .server("location / { return 200 \"$g|$a|$r\"; }")
        .gets(&[
            "/?ip=10.3.0.1",
            "/?ip=10.1.2.3",
            "/?ip=192.168.1.1",
            "/?ip=8.8.8.8",
            "/?ip=2001:db8::1",
            "/?ip=10.0.0.5",
            "/?ip=10.0.0.15",
            "/?ip=nonsense",
            "/",
        ])
}

fn split_clients() -> Scenario {
    let mut scenario = Scenario::new("split-clients")
        .http(
            "split_clients \"$arg_u\" $s { 10% a; 20.5% b; 0.01% never; * rest; }
             split_clients \"${arg_u}x\" $t { 50% half; }",
        )
        .server("location / { return 200 \"$s|$t\"; }");
    for user in 0..20 {
        scenario = scenario.get(&format!("/?u=user-{user}"));
    }
    scenario
}
