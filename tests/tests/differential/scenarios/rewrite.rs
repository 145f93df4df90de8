//! `rewrite`, `set`, `if` and `break`.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        rewrite_flags(),
        rewrite_arguments(),
        rewrite_captures_and_escapes(),
        rewrite_in_server(),
        rewrite_loop(),
        set_variables(),
        if_conditions(),
        if_files(),
        if_as_location(),
        if_after_pass(),
        break_ends_the_phase(),
    ]
}

fn rewrite_flags() -> Scenario {
    Scenario::new("rewrite-flags")
        .server(
            "location /last { rewrite ^/last/(.*)$ /to/$1 last; return 500; }
             location /break { rewrite ^/break/(.*)$ /to/$1 break; proxy_pass http://%%ORIGIN%%; }
             location /none { rewrite ^/none/(.*)$ /to/$1; rewrite ^/to/a$ /to/b; }
             location /redirect { rewrite ^/redirect/(.*)$ /to/$1 redirect; }
             location /permanent { rewrite ^/permanent/(.*)$ /to/$1 permanent; }
             location /http { rewrite ^ http://other.test/x; }
             location /https { rewrite ^/https/(.*)$ https://other.test/$1?b=c; }
             location /scheme { rewrite ^ $scheme://other.test/; }
             location /miss { rewrite ^/other /to/x last; return 200 unchanged; }
             location /to/ { return 200 \"$uri?$args\"; }",
        )
        .answer("/to/*", Answer::new(200).body("origin"))
        .gets(&[
            "/last/a?x=y",
            "/break/a?x=y",
            "/none/a",
            "/redirect/a?x=y",
            "/permanent/a",
            "/http?a=b",
            "/https/a?x=y",
            "/scheme?a",
            "/miss",
        ])
}

fn rewrite_arguments() -> Scenario {
    Scenario::new("rewrite-arguments")
        .server(
            "location /add { rewrite ^ /to?a=1 last; }
             location /drop { rewrite ^ /to? last; }
             location /replace { rewrite ^ /to?a=1? last; }
             location /move { rewrite ^/move/(.*)$ /to?p=$1 last; }
             location /args { set $args new=$args; rewrite ^ /to last; }
             location /red { rewrite ^ /to? permanent; }
             location /redargs { rewrite ^ /to?a=1 redirect; }
             location /to { return 200 \"$uri|$args|$request_uri|$is_args\"; }",
        )
        .gets(&[
            "/add?x=y",
            "/add",
            "/drop?x=y",
            "/replace?x",
            "/move/a/b?x=y",
            "/args?x",
            "/red?x=y",
            "/redargs?x=y",
        ])
}

fn rewrite_captures_and_escapes() -> Scenario {
    Scenario::new("rewrite-escapes")
        .server(
            "location /c/ { rewrite ^/c/(?<name>.*)$ /to/$name last; }
             location /q/ { rewrite ^/q/(.*)$ /to?q=$1 last; }
             location /r/ { rewrite ^/r/(.*)$ /to/$1 redirect; }
             location /rq/ { rewrite ^/rq/(.*)$ /to?q=$1 redirect; }
             location /case { rewrite (?i)^/CASE$ /to/case last; }
             location /brace { rewrite \"^/brace/(\\d{2})$\" /to/$1 last; return 200 other; }
             location /to { return 200 \"$uri|$args\"; }",
        )
        .gets(&[
            "/c/a%20b",
            "/q/a%20b",
            "/q/a%26b%3dc",
            "/r/a%20b%3f",
            "/rq/a%20b%26",
            "/c/%C3%A9",
            "/r/%C3%A9",
            "/case",
            "/brace/12",
            "/brace/123",
            "/r/a+b%2Bc",
            "/r/%25",
        ])
}

fn rewrite_in_server() -> Scenario {
    Scenario::new("rewrite-in-server")
        .server(
            "rewrite ^/a$ /b;
             rewrite ^/b$ /c last;
             rewrite ^/c$ /d;
             location /b { return 200 b; }
             location /c { return 200 c; }
             location /d { return 200 d; }
             location / { return 200 $uri; }",
        )
        .gets(&["/a", "/b", "/c", "/x"])
}

fn rewrite_loop() -> Scenario {
    Scenario::new("rewrite-loop")
        .server(
            "location /a { rewrite ^ /b last; }
             location /b { rewrite ^ /a last; }
             location /i { rewrite ^/i(.*)$ /i$1x last; }",
        )
        .get("/a")
}

fn set_variables() -> Scenario {
    Scenario::new("set-variables")
        .server(
            "set $a server; set $b \"$a-$arg_x\"; set $empty \"\";
             location / { return 200 \"$a|$b|$empty|$uri\"; }
             location /in { set $a location; return 200 \"$a|$b\"; }
             location /chain { set $c 1; set $c \"${c}2\"; set $c \"${c}3\"; return 200 $c; }
             location /builtin { set $http_x set; return 200 \"$http_x\"; }
             location /brace { return 200 \"${a}text $a-text ${b}\"; }",
        )
        .gets(&["/?x=y", "/in?x=%20", "/chain", "/brace"])
        .get_with("/builtin", "X", "client")
}

fn if_conditions() -> Scenario {
    Scenario::new("if-conditions")
        .server(
            "location /true { if ($arg_a) { return 200 yes; } return 200 no; }
             location /equal { if ($arg_a = b) { return 200 yes; } return 200 no; }
             location /unequal { if ($arg_a != b) { return 200 yes; } return 200 no; }
             location /match { if ($arg_a ~ ^b(.)$) { return 200 \"yes $1\"; } return 200 no; }
             location /imatch { if ($arg_a ~* ^B) { return 200 yes; } return 200 no; }
             location /not { if ($arg_a !~ ^b) { return 200 yes; } return 200 no; }
             location /inot { if ($arg_a !~* ^B) { return 200 yes; } return 200 no; }
             location /space { if ( $arg_a = \"b c\" ) { return 200 yes; } return 200 no; }
             location /method { if ($request_method = POST) { return 405; }
                 return 200 $request_method; }
             location /two { set $x 0; if ($arg_a) { set $x 1; } if ($arg_b) { set $x \"${x}1\"; }
                             if ($x = 11) { return 200 both; } return 200 $x; }",
        )
        .gets(&[
            "/true",
            "/true?a=0",
            "/true?a=1",
            "/true?a=",
            "/true?a=00",
            "/equal?a=b",
            "/equal?a=B",
            "/unequal?a=b",
            "/unequal",
            "/match?a=bc",
            "/match?a=bcd",
            "/imatch?a=bc",
            "/not?a=bc",
            "/not?a=c",
            "/inot?a=bc",
            "/space?a=b",
            "/two?a=1&b=1",
            "/two?a=1",
            "/method",
        ])
        .send(Request::post("/method", ""))
}

fn if_files() -> Scenario {
    Scenario::new("if-files")
        .server(
            "set $r \"\";
             if (-f $document_root$uri) { set $r \"${r}f\"; }
             if (!-f $document_root$uri) { set $r \"${r}!f\"; }
             if (-d $document_root$uri) { set $r \"${r}d\"; }
             if (-e $document_root$uri) { set $r \"${r}e\"; }
             if (!-e $document_root$uri) { set $r \"${r}!e\"; }
             if (-x $document_root$uri) { set $r \"${r}x\"; }
             location / { return 200 $r; }",
        )
        .file("html/file", "x")
        .file("html/dir/file", "x")
        .gets(&["/file", "/dir", "/dir/", "/none"])
}

fn if_as_location() -> Scenario {
    Scenario::new("if-as-location")
        .server(
            "location /a {
                 set $x 1;
                 add_header X-Where outer;
                 if ($arg_in) { add_header X-Where inner; set $x 2; }
                 add_header X-Value $x;
                 return 200 \"$x\";
             }
             location /p {
                 proxy_set_header X-A outer;
                 if ($arg_in) { proxy_pass http://%%ORIGIN%%; }
                 proxy_pass http://%%ORIGIN%%/other/;
             }
             location /static {
                 if ($arg_in) { expires 1h; }
             }",
        )
        .answer("/*", Answer::new(200).body("origin"))
        .file("html/static", "static")
        .gets(&[
            "/a",
            "/a?in=1",
            "/p/x",
            "/p/x?in=1",
            "/static",
            "/static?in=1",
        ])
}

/// The handler of a block stays in force when another one holds behind it, its upstream does not.
fn if_after_pass() -> Scenario {
    Scenario::new("if-after-pass")
        .server(
            "error_log /dev/null; error_page 500 =500 /500;
             location /500 { return 500 lost; }
             location /a { if ($arg_p) { proxy_pass http://%%ORIGIN%%; } if ($arg_x) { set $x 1; } }
             location /v { if ($arg_p) { proxy_pass http://%%ORIGIN%%$uri; }
                           if ($arg_x) { set $x 1; } if ($arg_y) { set $x 2; } }
             location /r { if ($arg_p) { proxy_pass http://%%ORIGIN%%; }
                           if ($arg_x) { return 200 returned; } }
             location /o { if ($arg_p) { proxy_pass http://%%ORIGIN%%; } if ($arg_x) { set $x 1; }
                           proxy_pass http://%%ORIGIN%%/outer/; }
             location /t { if ($arg_x) { set $x 1; } if ($arg_p) { proxy_pass http://%%ORIGIN%%; } }
             location /l { if ($arg_p) { proxy_pass http://%%ORIGIN%%; } if ($arg_x) { set $x 1; }
                           if ($arg_z) { rewrite ^ /a last; } }",
        )
        .answer("/*", Answer::new(200).body("origin"))
        .file("html/a", "file a")
        .gets(&[
            "/a",
            "/a?x=1",
            "/a?p=1",
            "/a?p=1&x=1",
            "/v?p=1&x=1",
            "/v?p=1&y=1",
            "/v?p=1&x=1&y=1",
            "/r?p=1&x=1",
            "/o?p=1&x=1",
            "/t?p=1&x=1",
            "/l?p=1&x=1",
            "/l?p=1&x=1&z=1",
            "/l?x=1&z=1",
        ])
}

fn break_ends_the_phase() -> Scenario {
    Scenario::new("break")
        .server(
            "location /a { set $x 1; break; set $x 2; return 500; }
             location /b { if ($arg_stop) { break; } return 200 returned; }
             location / { return 200 $uri; }",
        )
        .file("html/a", "file a")
        .file("html/b", "file b")
        .gets(&["/a", "/b", "/b?stop=1"])
}
