//! Signed links, ids of clients, and the pixel that needs no file.

use crate::scenario::Scenario;
use millpond_testkit::Request;

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        signed_links(),
        signed_paths(),
        inherited(),
        user_ids(),
        empty_gif(),
    ]
}

fn signed_links() -> Scenario {
    let over = "mQbE8NItADG2QHHaVM07WA";
    let good = "19Yf0ZS1r4g-MzwwaS6WTQ";
    Scenario::new("secure-link")
        .server(
            "add_header X-Link \"$secure_link;$secure_link_expires\" always;
             location /signed/ {
                 secure_link $arg_md5;
                 secure_link_md5 \"$uri secret\";
                 if ($secure_link = \"\") { return 403; }
                 return 200 \"$secure_link $secure_link_expires\";
             }
             location /timed/ {
                 secure_link $arg_md5,$arg_until;
                 secure_link_md5 \"$secure_link_expires$uri $remote_addr secret\";
                 if ($secure_link = \"\") { return 403; }
                 if ($secure_link = \"0\") { return 410; }
                 return 200 \"$secure_link $secure_link_expires\";
             }
             location /half/ { secure_link $arg_md5; return 200 \"-$secure_link-\"; }
             location /none/ { return 200 \"-$secure_link$secure_link_expires-\"; }",
        )
        .gets(&[
            "/signed/a?md5=-Rn_T61jNx8vjiVVrxVL3w",
            "/signed/a?md5=-Rn_T61jNx8vjiVVrxVL3w==",
            "/signed/a?md5=-Rn_T61jNx8vjiVVrxVL3w=",
            "/signed/a?md5=-Rn_T61jNx8vjiVVrxVL3wAA",
            "/signed/a?md5=+Rn/T61jNx8vjiVVrxVL3w",
            "/signed/b?md5=-Rn_T61jNx8vjiVVrxVL3w",
            "/signed/a?md5=-Rn_T61jNx8vjiVVrxVL3",
            "/signed/a?md5=",
            "/signed/a",
            "/half/a?md5=-Rn_T61jNx8vjiVVrxVL3w",
            "/none/a",
            &format!("/timed/a?md5={good}&until=4102444800"),
            &format!("/timed/a?md5={good}&until=4102444801"),
            &format!("/timed/a?md5={good}&until=04102444800"),
            &format!("/timed/a?md5={good}"),
            &format!("/timed/a?md5={over}&until=1"),
            &format!("/timed/a?md5={over}&until=0"),
            &format!("/timed/a?md5={over}&until=-1"),
            &format!("/timed/a?md5={over}&until=1,2"),
        ])
}

fn user_ids() -> Scenario {
    let id = "fwAAAWFiY2RlZmdoAwMDAg";
    let mut scenario = Scenario::new("userid")
        .server(
            "userid on; userid_mark x;
             add_header X-Got \"-$uid_got-\";
             location /set { add_header X-Set $uid_set; add_header X-Reset \"-$uid_reset-\"; return 200; }
             location /attributes {
                 userid_expires max; userid_domain .example.org; userid_path /p;
                 userid_flags samesite=lax httponly secure; userid_p3p 'CP=\"NOI\"';
                 return 204;
             }
             location /marked { userid_mark =; return 404; }
             location /unmarked { userid_mark off; add_header X-Set \"-$uid_set-\"; return 200; }
             location /log { userid log; add_header X-Set \"-$uid_set-\"; return 200; }
             location /off { userid off; add_header X-Set \"-$uid_set-\"; return 200; }
             location /name { userid_name other; return 200; }
             location /v1 { userid v1; return 200; }",
        )
        .get("/log")
        .get("/off");
    for path in [
        "/set",
        "/attributes",
        "/marked",
        "/unmarked",
        "/log",
        "/off",
        "/v1",
    ] {
        for padding in ["==", "x=", "x", ""] {
            scenario = scenario.get_with(path, "Cookie", &format!("a=b; UID={id}{padding}"));
        }
    }
    scenario.get_with("/name", "Cookie", &format!("uid=x; other={id}=="))
}

fn signed_paths() -> Scenario {
    Scenario::new("secure-link-secret")
        .file("html/a/b.txt", "signed")
        .server(
            "location /p/ {
                 secure_link_secret secret;
                 if ($secure_link = \"\") { return 403; }
                 rewrite ^ /$secure_link break;
             }",
        )
        .gets(&[
            "/p/245a63e18ff3ba6b9c9e1ffa7159a280/a/b.txt",
            "/p/245A63E18FF3BA6B9C9E1FFA7159A280/a/b.txt",
            "/p/245a63e18ff3ba6b9c9e1ffa7159a280/a/c.txt",
            "/p/245a63e18ff3ba6b9c9e1ffa7159a281/a/b.txt",
            "/p/245a63e18ff3ba6b9c9e1ffa7159a280/",
            "/p/245a63e18ff3ba6b9c9e1ffa7159a280",
            "/p/xyz/a/b.txt",
            "/p/",
        ])
}

fn inherited() -> Scenario {
    Scenario::new("secure-link-inherited")
        .server(
            "secure_link $arg_md5;
         secure_link_md5 \"$uri secret\";
         location /signed/ { return 200 \"-$secure_link-\"; }
         location /p/ {
             secure_link_secret secret;
             location /p/245a63e18ff3ba6b9c9e1ffa7159a280/a { return 200 \"-$secure_link-\"; }
             location /p/inside/ { secure_link_md5 \"other\"; return 200 \"-$secure_link-\"; }
             return 200 \"-$secure_link-\";
         }",
        )
        .gets(&[
            "/signed/a?md5=-Rn_T61jNx8vjiVVrxVL3w",
            "/p/245a63e18ff3ba6b9c9e1ffa7159a280/a/b.txt",
            "/p/inside/a?md5=-Rn_T61jNx8vjiVVrxVL3w",
            "/p/a?md5=-Rn_T61jNx8vjiVVrxVL3w",
        ])
}

fn empty_gif() -> Scenario {
    Scenario::new("empty-gif")
        .server("location / { empty_gif; } location /e { empty_gif; expires 1h; etag on; }")
        .ignore("expires")
        .gets(&["/", "/e?x=1"])
        .head("/")
        .get_with("/", "If-Modified-Since", "Mon, 28 Sep 1970 06:00:00 GMT")
        .get_with("/", "If-Modified-Since", "Mon, 28 Sep 1970 06:00:01 GMT")
        .get_with("/", "Range", "bytes=0-3")
        .send(Request::post("/", "x"))
        .send(Request::new("PUT", "/"))
}
