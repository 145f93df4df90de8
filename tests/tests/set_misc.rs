//! `set_md5`, `set_escape_uri` and the other directives of set-misc-nginx-module, and
//! `more_set_input_headers`, `more_clear_input_headers` of headers-more: the same answers come from
//! nginx with Debian's modules.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Kind, Proxy, Request};
use std::collections::BTreeSet;
use std::path::Path;

const COMPUTED: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        set_unescape_uri $a $arg_a;
        location /unescape { return 200 \"[$a]\"; }
        location /escape { set_escape_uri $r $a; return 200 \"[$r]\"; }
        location /base64 {
            set_encode_base64 $r $a;
            set_decode_base64 $d $r;
            set_encode_base64url $u $a;
            set_decode_base64url $v $u;
            return 200 \"[$r][$d][$u][$v]\";
        }
        location /base32 {
            set_encode_base32 $r $a;
            set_decode_base32 $d $r;
            return 200 \"[$r][$d]\";
        }
        location /from/base64 { set_decode_base64 $r $arg_a; return 200 \"[$r]\"; }
        location /from/base64url { set_decode_base64url $r $arg_a; return 200 \"[$r]\"; }
        location /from/hex { set_decode_hex $r $arg_a; return 200 \"[$r]\"; }
        location /digest {
            set_encode_hex $r $a;
            set_md5 $m $a;
            set_sha1 $s $a;
            set_hmac_sha1 $h1 key $a;
            set_hmac_sha256 $h2 key $a;
            set_encode_hex $h1;
            set_encode_hex $h2;
            return 200 \"[$r][$m][$s][$h1][$h2]\";
        }
        location /quote {
            set_quote_sql_str $r $a;
            set_quote_pgsql_str $p $a;
            set_quote_json_str $j $a;
            return 200 \"[$r][$p][$j]\";
        }
        location /empty { set $x $arg_a; set_if_empty $x other; return 200 \"[$x]\"; }
        location /random { set_random $r $arg_a $arg_b; return 200 \"[$r]\"; }
        location /rotate { set_rotate $r 1 3; return 200 \"[$r]\"; }
        location /secure {
            set_secure_random_alphanum $r $arg_a;
            set_secure_random_lcalpha $s $arg_a;
            return 200 \"[$r][$s]\";
        }
        location /today { set_local_today $r; return 200 \"[$r]\"; }
        location /if { if ($arg_a) { set_md5 $r $arg_a; return 200 \"[$r]\"; } return 200 no; }
    }";

fn kinds(modules: &[&str]) -> impl Iterator<Item = Kind> {
    let file = |module: &&str| format!("/usr/lib/nginx/modules/{module}.so");
    let has_modules = modules
        .iter()
        .map(file)
        .all(|file| Path::new(&file).exists());
    Kind::both().filter(move |kind| *kind == Kind::Millpond || has_modules)
}

/// The answers of both programs, which must be the same, if both are here.
fn answers(text: &str, modules: &[&str], requests: &[Request]) -> Result<Vec<(u16, Vec<u8>)>> {
    let mut found: Option<Vec<(u16, Vec<u8>)>> = None;
    for kind in kinds(modules) {
        let proxy = Proxy::new(kind, text).start()?;
        let client = Client::new(proxy.port());
        let mut answers = Vec::new();
        for request in requests {
            let response = client
                .send(request)
                .with_context(|| format!("{request:?}"))?;
            let is_failure = response.status >= 500;
            let body = if is_failure {
                Vec::new()
            } else {
                response.body.to_vec()
            };
            answers.push((response.status, body));
        }
        if let Some(others) = &found {
            for ((ours, theirs), request) in others.iter().zip(&answers).zip(requests) {
                ensure!(
                    ours == theirs,
                    "{request:?}: {ours:?}, and nginx: {theirs:?}"
                );
            }
        }
        found.get_or_insert(answers);
    }
    found.context("an answer")
}

const SET_MISC: [&str; 2] = ["ndk_http_module", "ngx_http_set_misc_module"];

fn computed(paths: &[String]) -> Result<Vec<(u16, Vec<u8>)>> {
    let requests: Vec<Request> = paths.iter().map(|path| Request::get(path)).collect();
    answers(COMPUTED, &SET_MISC, &requests)
}

/// A text of an answer.
fn text(answer: &(u16, Vec<u8>)) -> String {
    String::from_utf8_lossy(&answer.1).into_owned()
}

#[test]
fn texts_are_quoted_escaped_and_coded_as_by_the_module() -> Result<()> {
    let texts = [
        "",
        "h",
        "he",
        "hel",
        "hell",
        "hello",
        "a%20b/c%3F%26%3D~!*'()-_.%e4%25%22%3c%7c+",
        "a%20b+c%2Bd%zz%4",
        "%e4%00x",
        "hello%ff%fewor",
        "a'b%22c%5Cd%0a%0d%09%00%1ae",
        "%c3%a4%08%0c%1f",
        "%e4%b8%adb%ff",
        "%",
        "%a",
        "%4%41",
        "%%41",
    ];
    let ways = [
        "unescape", "escape", "base64", "base32", "digest", "quote", "if",
    ];
    let mut paths: Vec<String> = texts
        .iter()
        .flat_map(|text| ways.iter().map(move |way| format!("/{way}?a={text}")))
        .collect();
    paths.extend((0x20..0x7f).map(|byte| format!("/escape?a=%{byte:02x}")));
    let digits = [
        "", "aGVsbG8", "aGVsbG8=", "a*b", "-_8", "616", "6162", "zz", "6G",
    ];
    for digits in digits {
        let ways = ["base64", "base64url", "hex"];
        paths.extend(ways.iter().map(|way| format!("/from/{way}?a={digits}")));
    }
    paths.extend(["", "x"].map(|text| format!("/empty?a={text}")));
    let answers = computed(&paths)?;
    let of = |path: &str| {
        let at = paths.iter().position(|it| it == path);
        at.and_then(|at| answers.get(at)).map(text)
    };
    ensure!(
        of("/digest?a=hello").is_some_and(|it| it.contains("5d41402abc4b2a76b9719d911017c592"))
    );
    ensure!(of("/quote?a=").as_deref() == Some("[''][''][null]"));
    ensure!(of("/empty?a=").as_deref() == Some("[other]"));
    Ok(())
}

#[test]
fn numbers_and_signs_are_of_their_ranges() -> Result<()> {
    let paths = [
        "/random?a=5&b=5",
        "/random?a=x&b=3",
        "/random?a=-1&b=-1",
        "/secure?a=0",
        "/secure?a=x",
        "/secure?a=65",
        "/rotate",
        "/rotate",
        "/rotate",
        "/rotate",
        "/today",
    ];
    let answers = computed(&paths.map(str::to_string))?;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.0).collect();
    ensure!(
        statuses == [200, 500, 500, 500, 500, 500, 200, 200, 200, 200, 200],
        "{statuses:?}"
    );
    ensure!(answers.first().map(text).as_deref() == Some("[5]"));
    // One worker of nginx counts for itself.
    let turns: Vec<String> = answers.iter().skip(6).take(4).map(text).collect();
    ensure!(turns == ["[1]", "[2]", "[3]", "[1]"], "{turns:?}");
    let proxy = Proxy::new(Kind::Millpond, COMPUTED).start()?;
    let client = Client::new(proxy.port());
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let response = client.send(&Request::get("/random?a=9&b=3"))?;
        let number = String::from_utf8_lossy(&response.body).into_owned();
        ensure!(
            ["[3]", "[4]", "[5]", "[6]", "[7]", "[8]", "[9]"].contains(&&*number),
            "{number}"
        );
        seen.insert(number);
        let response = client.send(&Request::get("/secure?a=64"))?;
        let signs = String::from_utf8_lossy(&response.body).into_owned();
        let (first, second) = signs.split_once("][").context("two texts")?;
        ensure!(first.len() == 65 && second.len() == 65, "{signs}");
        ensure!(
            first
                .bytes()
                .skip(1)
                .all(|byte| byte.is_ascii_alphanumeric()),
            "{signs}"
        );
        ensure!(
            second
                .bytes()
                .take(64)
                .all(|byte| byte.is_ascii_lowercase()),
            "{signs}"
        );
        ensure!(seen.insert(signs), "the same signs twice");
    }
    // 100 draws of seven numbers.
    ensure!(seen.len() > 104, "{seen:?}");
    Ok(())
}

const INPUT: &str = "
    more_set_input_headers \"X-Outer: o\";
    server {
        listen 127.0.0.1:%%PORT%%;
        location /here {
            more_set_input_headers \"X-A: $arg_a\" \"User-Agent: me\";
            more_clear_input_headers X-B \"X-C*\";
            more_set_input_headers -r \"X-D: d\";
            more_set_input_headers -t text/plain \"X-T: t\";
            rewrite ^ /told last;
        }
        location /passed {
            more_set_input_headers \"X-A: $arg_a\" \"User-Agent: me\";
            more_clear_input_headers X-B \"X-C*\";
            more_set_input_headers -r \"X-D: d\";
            more_set_input_headers -t text/plain \"X-T: t\";
            proxy_pass http://127.0.0.1:%%PORT%%/told;
        }
        location /if {
            if ($arg_a) { more_set_input_headers \"X-A: from if\"; }
            proxy_pass http://127.0.0.1:%%PORT%%/told;
        }
        location /told {
            return 200 \"[$http_x_a][$http_x_b][$http_x_cc][$http_x_d][$http_x_t][$http_x_outer]\
                        [$http_user_agent]\";
        }
    }";

#[test]
fn fields_of_requests_are_changed_as_by_the_module() -> Result<()> {
    let requests: Vec<Request> = [
        "/here?a=1",
        "/here?a=",
        "/passed?a=1",
        "/passed?a=",
        "/if?a=1",
        "/if",
    ]
    .iter()
    .flat_map(|path| {
        let plain = Request::get(path).header("X-A", "was").header("X-B", "b");
        let more = plain.clone().header("X-Cc", "c").header("x-d", "d0");
        let typed = more.clone().header("Content-Type", "text/plain");
        [Request::get(path), plain, more, typed]
    })
    .collect();
    let answers = answers(INPUT, &["ngx_http_headers_more_filter_module"], &requests)?;
    // Of the third request of the third path.
    let told = answers.get(10).map(text);
    ensure!(told.as_deref() == Some("[1][][][d][][o][me]"), "{told:?}");
    Ok(())
}
