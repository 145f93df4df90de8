//! `ssi` and its directives: what commands put into a page, and what broken and hostile pages come
//! to.
//!
//! What `everywhere` checks holds for nginx, too, and is checked there when its binary is at hand.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Result;
use millpond_testkit::{Answer, Client, Framing, Gate, Kind, Origin, Proxy, Request, read_until};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m;
    log_format parts '$uri $status $http_x_name';
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        types { text/html html; text/plain txt; }
        ssi on;
        set $from_conf 'conf';
        location / { }
        location /silent/ { alias %%DIR%%/www/; ssi_silent_errors on; }
        location /dated/ { alias %%DIR%%/www/; ssi_last_modified on; }
        location /short/ { alias %%DIR%%/www/; ssi_value_length 8; }
        location /plain/ { alias %%DIR%%/www/; ssi_types text/plain; }
        location /off/ { alias %%DIR%%/www/; ssi off; }
        location /gzip/ { alias %%DIR%%/www/; gzip on; gzip_min_length 1; }
        location /in/open { internal; return 200 'inside'; }
        location /in/args { return 200 '[$uri|$args|$request_uri|$request_method]'; }
        location /in/sets { set $from_conf 'changed'; return 200 ''; }
        location /in/denied { deny all; }
        location /in/missing { return 404; }
        location /in/big { subrequest_output_buffer_size 4; return 200 '12345'; }
        location /logged/ {
            log_subrequest on; access_log %%DIR%%/parts.log parts;
            alias %%DIR%%/www/;
        }
        location /origin/ { proxy_pass http://%%ORIGIN%%/; }
        location /stored/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache z; proxy_cache_valid 200 1h;
        }
    }";

/// Pages, each with what it becomes.
const PAGES: &[(&str, &str, &str)] = &[
    (
        "text",
        "no < commands <!-- here -->",
        "no < commands <!-- here -->",
    ),
    (
        "include",
        "a<!--#include virtual='/part.html' -->b",
        "a(part)b",
    ),
    (
        "relative",
        "a<!--#include virtual='part.html' -->b",
        "a(part)b",
    ),
    (
        "file",
        "<!--#include file='part.html' -->|<!--#include file='part.html' -->",
        "(part)|(part)",
    ),
    (
        "nested",
        "<!--#include virtual='/include.html' -->.",
        "a(part)b.",
    ),
    (
        "plain",
        "<!--#include virtual='/echo.txt' -->",
        "<!--#echo var='uri' -->",
    ),
    (
        "args",
        "<!--#include virtual='/in/args?a=$arg_q' -->",
        "[/in/args|a=1|/args.html?q=1|GET]",
    ),
    (
        "escaped",
        "<!--#include virtual='/in/args%20b' -->",
        "[/in/args b||/escaped.html?q=1|GET]",
    ),
    ("internal", "<!--#include virtual='/in/open' -->", "inside"),
    (
        "echo",
        "<!--#echo var='uri' --><!--#echo var='nothing' -->",
        "/echo.html(none)",
    ),
    (
        "default",
        "<!--#echo var='nothing' default='d' --><!--#echo var='nothing' default='' -->",
        "d",
    ),
    (
        "encoding",
        "<!--#set var='v' value='<\"&>' --><!--#echo var='v' --><!--#echo var='v' encoding='none' -->\
         <!--#echo var='v' encoding='url' -->",
        "&lt;&quot;&amp;&gt;<\"&>%3C%22&%3E",
    ),
    (
        "set",
        "<!--#set var='v' value='1' --><!--#set var='v' value='$v${v}2' --><!--#echo var='V' -->",
        "112",
    ),
    (
        "quoted",
        "<!--#set var='v' value='\\$v \\a \\'' --><!--#echo var='v' encoding='none' -->",
        "$v \\a '",
    ),
    ("conf", "<!--#echo var='from_conf' -->", "conf"),
    (
        "shared",
        "<!--#include file='/in/sets' --><!--#echo var='from_conf' -->",
        "changed",
    ),
    (
        "kept",
        "<!--#include virtual='/part.html' set='p' -->[<!--#echo var='p' -->]",
        "[(part)]",
    ),
    (
        "failed",
        "<!--#include virtual='/in/missing' set='p' -->[<!--#echo var='p' -->]",
        "[]",
    ),
    (
        "waited",
        "<!--#include virtual='/part.html' wait='yes' -->!",
        "(part)!",
    ),
    (
        "if",
        "<!--#if expr='$arg_q = 1' -->yes<!--#else -->no<!--#endif -->",
        "yes",
    ),
    (
        "elif",
        "<!--#if expr='$arg_x' -->a<!--#elif expr='$arg_q != 2' -->b<!--#else -->c<!--#endif -->",
        "b",
    ),
    (
        "regex",
        "<!--#if expr='$uri = /(?<n>r.g)(e)/' --><!--#echo var='n' --><!--#echo var='2' --><!--#endif -->",
        "rege",
    ),
    (
        "hidden",
        "<!--#if expr='$arg_x' --><!--#echo var='uri' --><!--#nonsense --><!--#endif -->.",
        ".",
    ),
    (
        "block",
        "<!--#block name='b' -->[<!--#echo var='uri' -->]<!--#endblock -->\
         <!--#include virtual='/in/missing' stub='b' -->",
        "[/in/missing]",
    ),
    (
        "emptystub",
        "<!--#block name='b' -->stub<!--#endblock --><!--#include virtual='/empty.html' stub='b' -->\
         <!--#include virtual='/part.html' stub='b' -->",
        "stub(part)",
    ),
    (
        "timefmt",
        "<!--#config timefmt='T%%' --><!--#echo var='date_gmt' --><!--#echo var='date_local' -->",
        "T%T%",
    ),
    (
        "errmsg",
        "<!--#config errmsg='oh' --><!--#nonsense -->!",
        "oh!",
    ),
    (
        "denied",
        "<!--#include virtual='/in/denied' set='p' -->.",
        ".",
    ),
    ("unfinished", "a<!--#echo var='uri'", "a"),
];

const ERROR: &str = "[an error occurred while processing the directive]";

/// Pages with a mistake; each becomes the error text alone.
const MISTAKES: &[(&str, &str)] = &[
    ("unknown", "<!--#nonsense -->"),
    ("nothing", "<!--#include -->"),
    ("both", "<!--#include virtual='/a' file='b' -->"),
    ("unsafe", "<!--#include virtual='/../a' -->"),
    ("context", "<!--#endif -->"),
    ("twice", "<!--#echo var='a' var='b' -->"),
    ("lacking", "<!--#echo -->"),
    ("stray", "<!--#echo what='a' -->"),
    ("unquoted", "<!--#echo var=a -->"),
    ("expression", "<!--#if expr='a b' -->"),
    ("bracket", "<!--#set var='a' value='${b' -->"),
    ("pattern", "<!--#if expr='a = /(/' -->"),
    ("nostub", "<!--#include virtual='/a' stub='b' -->"),
    ("wait", "<!--#include virtual='/a' wait='maybe' -->"),
];

fn start(kind: Kind, origin: &Origin) -> Result<Proxy> {
    let mut proxy = Proxy::new(kind, CONF)
        .origin(origin)
        .file("www/part.html", "(part)")
        .file("www/empty.html", "")
        .file("www/echo.txt", "<!--#echo var='uri' -->");
    for (name, text, _) in PAGES {
        proxy = proxy.file(&format!("www/{name}.html"), text);
    }
    for (name, text) in MISTAKES {
        proxy = proxy.file(&format!("www/{name}.html"), text);
    }
    proxy.start()
}

fn everywhere(check: impl Fn(&Proxy, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let origin = Origin::start()?;
        let proxy = start(kind, &origin)?;
        check(&proxy, &Client::new(proxy.port()))?;
    }
    Ok(())
}

#[test]
fn commands_are_replaced_by_what_they_stand_for() -> Result<()> {
    everywhere(|_, client| {
        for (name, _, expected) in PAGES {
            let response = client.get(&format!("/{name}.html?q=1"))?;
            assert_eq!(
                (response.status, response.text().as_str()),
                (200, *expected),
                "{name}"
            );
        }
        Ok(())
    })
}

#[test]
fn mistakes_show_the_error_text_and_silent_ones_nothing() -> Result<()> {
    everywhere(|_, client| {
        for (name, _) in MISTAKES {
            assert_eq!(
                client.get(&format!("/{name}.html"))?.text(),
                ERROR,
                "{name}"
            );
            assert_eq!(
                client.get(&format!("/silent/{name}.html"))?.text(),
                "",
                "{name}"
            );
        }
        Ok(())
    })
}

#[test]
fn directives_decide_what_is_searched_and_what_the_head_says() -> Result<()> {
    everywhere(|_, client| {
        let page = client.get("/include.html")?;
        assert!(page.is_chunked());
        for name in ["Last-Modified", "ETag", "Accept-Ranges", "Content-Length"] {
            assert_eq!(page.header(name), None, "{name}");
        }
        let dated = client.get("/dated/include.html")?;
        assert!(dated.header("Last-Modified").is_some());
        assert!(
            dated
                .header("ETag")
                .is_some_and(|tag| tag.starts_with("W/"))
        );
        assert_eq!(client.get("/plain/echo.txt")?.text(), "/plain/echo.txt");
        assert_eq!(client.get("/off/echo.html")?.text(), PAGES[9].1);
        assert_eq!(
            client.get("/short/relative.html")?.text(),
            format!("a{ERROR}b")
        );
        let head = client.send(&Request::head("/include.html"))?;
        assert_eq!((head.status, head.body.len()), (200, 0));
        let ranged = client.send(&Request::get("/include.html").header("Range", "bytes=0-0"))?;
        assert_eq!((ranged.status, ranged.text().as_str()), (200, "a(part)b"));
        Ok(())
    })
}

#[test]
fn page_that_includes_itself_ends_in_an_error() -> Result<()> {
    everywhere(|proxy, client| {
        proxy.write_file("www/loop.html", "x<!--#include virtual='/loop.html' -->")?;
        let page = client.get("/loop.html")?;
        assert_eq!(page.text(), "x".repeat(52) + ERROR);
        assert!(
            proxy
                .error_log()
                .contains("subrequests cycle while processing \"/loop.html\"")
        );
        Ok(())
    })
}

#[test]
fn what_does_not_fit_into_memory_ends_the_page_without_an_answer() -> Result<()> {
    everywhere(|proxy, client| {
        proxy.write_file(
            "www/toobig.html",
            "<!--#include virtual='/in/big' set='v' -->.",
        )?;
        let response = client.get("/toobig.html");
        assert!(response.is_err() || response.is_ok_and(|response| response.status == 0));
        assert!(proxy.error_log().contains("too big subrequest response: 5"));
        Ok(())
    })
}

#[test]
fn logged_parts_have_lines_of_their_own() -> Result<()> {
    everywhere(|proxy, client| {
        client.get("/logged/relative.html")?;
        let lines = proxy.wait_for_lines("parts.log", 2)?;
        assert_eq!(
            lines,
            ["/logged/part.html 200 -", "/logged/relative.html 200 -"]
        );
        Ok(())
    })
}

/// All parts are asked for at once, and sent in the order of the page; each is stored for itself.
#[test]
fn parts_are_fetched_at_the_same_time_and_stored_each_for_itself() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    for part in 0..4 {
        let answer = Answer::new(200).body(format!("<{part}>")).hold_head(&gate);
        origin.route(&format!("/{part}"), answer);
    }
    let proxy = start(Kind::Millpond, &origin)?;
    let include = |part| format!("<!--#include virtual='/stored/{part}' -->");
    proxy.write_file("www/four.html", (0..4).map(include).collect::<String>())?;
    let client = Client::new(proxy.port());
    let mut connection = client.connect()?;
    connection.send_raw(&Request::get("/four.html").encode())?;
    origin.wait_for_requests(4)?;
    gate.open();
    assert_eq!(connection.read_response("GET")?.text(), "<0><1><2><3>");
    assert_eq!(client.get("/four.html")?.text(), "<0><1><2><3>");
    assert_eq!(origin.requests().len(), 4);
    Ok(())
}

/// The client's conditions and ranges are about the page; parts are asked for as they are.
#[test]
fn parts_are_asked_for_without_the_clients_conditions() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/part", Answer::new(200).body("whole"));
    let proxy = start(Kind::Millpond, &origin)?;
    proxy.write_file("www/passed.html", "<!--#include virtual='/origin/part' -->")?;
    let request = Request::get("/passed.html")
        .header("Range", "bytes=1-2")
        .header("If-None-Match", "\"x\"")
        .header("X-Name", "kept");
    assert_eq!(Client::new(proxy.port()).send(&request)?.text(), "whole");
    let requests = origin.requests();
    assert_eq!(requests[0].header("Range"), None);
    assert_eq!(requests[0].header("If-None-Match"), None);
    assert_eq!(requests[0].header("X-Name"), Some("kept"));
    Ok(())
}

#[test]
fn thousands_of_parts_arrive_in_order() -> Result<()> {
    let origin = Origin::start()?;
    origin.answer_with("/*", |request| {
        Answer::new(200).body(format!("{},", request.path()))
    });
    let proxy = start(Kind::Millpond, &origin)?;
    let include = |part| format!("<!--#include virtual='/origin/{part}' -->\n");
    proxy.write_file("www/many.html", (0..2000).map(include).collect::<String>())?;
    let expected: String = (0..2000).map(|part| format!("/{part},\n")).collect();
    let text = Client::new(proxy.port()).get("/many.html")?.text();
    let mut lines = text.lines().zip(expected.lines());
    assert_eq!(lines.find(|(line, expected)| line != expected), None);
    assert_eq!(text.len(), expected.len());
    Ok(())
}

/// A part whose origin is dead is an error page in the page; one that breaks off breaks the page.
#[test]
fn dying_origins_are_seen_in_the_page() -> Result<()> {
    let origin = Origin::start()?;
    let whole = Answer::new(200).offset_body(50_000, 1);
    origin.route(
        "/broken",
        whole.framing(Framing::Chunked).drop_after(16_384),
    );
    origin.route("/dead", Answer::raw(""));
    let proxy = start(Kind::Millpond, &origin)?;
    let include = |part: &str| format!("a<!--#include virtual='/origin/{part}' -->b");
    proxy.write_file("www/dead.html", include("dead"))?;
    proxy.write_file("www/broken.html", include("broken"))?;
    let client = Client::new(proxy.port());
    let dead = client.get("/dead.html")?;
    assert_eq!(dead.status, 200);
    let text = dead.text();
    assert!(text.starts_with('a') && text.contains("502 Bad Gateway") && text.ends_with('b'));
    let broken = client.get("/broken.html")?;
    assert_eq!(
        (broken.is_complete(), broken.body.len()),
        (false, 1 + 16_384)
    );
    Ok(())
}

/// The exchanges of all parts end with their client.
#[test]
fn client_that_leaves_ends_all_exchanges() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let conf = format!(
        "server {{
            listen 127.0.0.1:%%PORT%%;
            root %%DIR%%/www; types {{ text/html html; }}
            location / {{ ssi on; }}
            location /origin/ {{ proxy_pass http://127.0.0.1:{port}; }}
        }}"
    );
    let include = |part| format!("text<!--#include virtual='/origin/{part}' -->");
    let proxy = Proxy::new(Kind::Millpond, &conf)
        .file("www/page.html", (0..5).map(include).collect::<String>())
        .start()?;
    let mut leaver = Client::new(proxy.port()).connect()?;
    leaver.send_raw(&Request::get("/page.html").encode())?;
    let mut peers = Vec::new();
    for number in 0..5 {
        let (mut peer, _) = listener.accept()?;
        peer.set_read_timeout(Some(Duration::from_secs(10)))?;
        // Some are left before their head, some within the body.
        let mut head = [0; 4096];
        let len = peer.read(&mut head)?;
        if number % 2 == 0 && head[..len].starts_with(b"GET /origin/") {
            peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin")?;
        }
        peers.push(peer);
    }
    drop(leaver);
    for mut peer in peers {
        let mut rest = Vec::new();
        // A reset is an end, too.
        let end = peer.read_to_end(&mut rest);
        let is_late = end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!is_late, "an exchange goes on");
    }
    Ok(())
}

/// Commands may hold only so much, and pages may remember only so much.
#[test]
fn endless_commands_and_growing_variables_are_errors() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(Kind::Millpond, &origin)?;
    let client = Client::new(proxy.port());
    for text in [
        format!("<!--#{} -->", "x".repeat(1 << 20)),
        format!("<!--#echo {}='' -->", "x".repeat(1 << 20)),
        format!("<!--#echo var='{}' -->", "x".repeat(1 << 20)),
        format!("<!--#echo {}-->", "a='b' ".repeat(100_000)),
    ] {
        proxy.write_file("www/long.html", format!("a{text}b"))?;
        assert_eq!(client.get("/long.html")?.text(), format!("a{ERROR}b"));
    }
    let doubling = "<!--#set var='v' value='$v$v' -->".repeat(64);
    proxy.write_file(
        "www/doubling.html",
        format!("<!--#set var='v' value='0123456789abcdef' -->{doubling}."),
    )?;
    let text = client.get("/doubling.html")?.text();
    assert!(
        text.starts_with(ERROR) && text.ends_with('.'),
        "{}",
        text.len()
    );
    Ok(())
}

/// The head and the text before a part do not wait for the part.
#[test]
fn text_is_sent_while_parts_are_waited_for() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    origin.route("/slow", Answer::new(200).body("slow").hold_head(&gate));
    let proxy = start(Kind::Millpond, &origin)?;
    proxy.write_file(
        "www/slow.html",
        "first<!--#include virtual='/origin/slow' -->last",
    )?;
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    stream.write_all(b"GET /slow.html HTTP/1.0\r\n\r\n")?;
    read_until(&mut stream, "\r\n\r\nfirst")?;
    gate.open();
    assert_eq!(read_until(&mut stream, "last")?, "slowlast");
    Ok(())
}

/// A part that was sent whole and ends later lets the page go on when it ends.
#[test]
fn late_end_of_a_part_is_noticed() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let conf = format!(
        "server {{
            listen 127.0.0.1:%%PORT%%;
            root %%DIR%%/www; types {{ text/html html; }}
            location / {{ ssi on; }}
            location /late {{ proxy_pass http://127.0.0.1:{port}; }}
        }}"
    );
    let page = |wait| format!("<!--#include virtual='/late' wait='{wait}' -->behind");
    let proxy = Proxy::new(Kind::Millpond, &conf)
        .file("www/yes.html", page("yes"))
        .file("www/no.html", page("no"))
        .start()?;
    for wait in ["yes", "no"] {
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
        stream.write_all(format!("GET /{wait}.html HTTP/1.0\r\n\r\n").as_bytes())?;
        let (mut peer, _) = listener.accept()?;
        read_until(&mut peer, "\r\n\r\n")?;
        peer.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nlate\r\n")?;
        read_until(&mut stream, "\r\n\r\nlate")?;
        peer.write_all(b"0\r\n\r\n")?;
        assert_eq!(read_until(&mut stream, "behind")?, "behind", "{wait}");
    }
    Ok(())
}

/// A page of many parts that are all at hand lets others have their turn before it ends.
#[test]
fn a_page_of_many_parts_does_not_hold_up_others() -> Result<()> {
    let conf = "
        log_format turns '$uri';
        server {
            listen 127.0.0.1:%%PORT%%;
            access_log %%DIR%%/turns.log turns;
            root %%DIR%%/www; types { text/html html; }
            location / { ssi on; }
            location /other { return 200 'other'; }
        }";
    // Enough text in front of the parts to be sent before them.
    let text = "text".repeat(4096);
    let parts = "<!--#include virtual='/empty.html' -->".repeat(3000);
    let proxy = Proxy::new(Kind::Millpond, conf)
        .file("www/empty.html", "")
        .file("www/page.html", format!("{text}{parts}end"))
        .start()?;
    let client = Client::new(proxy.port());
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    stream.write_all(b"GET /page.html HTTP/1.0\r\n\r\n")?;
    read_until(&mut stream, "text")?;
    assert_eq!(client.get("/other")?.text(), "other");
    read_until(&mut stream, "end")?;
    let turns = proxy.wait_for_lines("turns.log", 2)?;
    assert_eq!(turns, ["/other", "/page.html"]);
    Ok(())
}
