//! Scripts of sessions: `js_access`, `js_preread`, `js_filter`, and what computes variables.

use super::{LONG, Peer, certificate, connect, lines, poll, read_all, say};
use anyhow::{Context, Result, ensure};
use millpond_testkit::{Kind, LogCheck, Proxy, ProxyBuilder, free_port};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::thread;

/// A server with the inside of a `stream` block, and a module `s.js`.
fn scripted(inside: &str, module: &str) -> ProxyBuilder {
    let text = format!(
        "%%GLOBALS%%\nerror_log %%DIR%%/e.log info;\nevents {{}}\n\
         stream {{ js_import s.js; js_time_limit 2s;\n{inside}\n}}\n"
    );
    Proxy::new(Kind::Millpond, &text).file("s.js", module)
}

/// All that a server answers to these bytes.
fn ask(proxy: &Proxy, name: &str, text: &str) -> Result<String> {
    let mut stream = connect(proxy.named_port(name))?;
    stream.write_all(text.as_bytes())?;
    Ok(read_all(&mut stream))
}

/// The document's example, which stands in its chapter about sessions.
#[test]
fn example_of_the_document_does_what_it_says() -> Result<()> {
    let text = fs::read_to_string("../docs/script.md")?;
    let (_, chapter) = text.split_once("\n## Sessions\n").context("no chapter")?;
    let block = |kind: &str| -> Result<&str> {
        let (_, rest) = chapter
            .split_once(&format!("```{kind}\n"))
            .with_context(|| format!("no block of {kind}"))?;
        Ok(rest.split_once("```").context("no end")?.0)
    };
    let (one, two) = (free_port()?.to_string(), free_port()?.to_string());
    let placed = |text: &str| text.replace("8081", &one).replace("8082", &two);
    let conf = placed(block("nginx")?).replace("8080", "%%PORT%%");
    let proxy = Proxy::new(Kind::Millpond, &format!("%%GLOBALS%%\nevents {{}}\n{conf}"))
        .file("example.js", placed(block("js")?))
        .start()?;
    let sessions: Vec<&str> = block("text")?.lines().collect();
    ensure!(sessions.len() >= 3, "{sessions:?}");
    for line in sessions {
        let (said, heard) = line.split_once("->").context("no answer")?;
        let said = said.trim_end().replace("\\n", "\n");
        assert_eq!(ask(&proxy, "PORT", &said)?, heard.trim(), "{line}");
    }
    Ok(())
}

/// njs: `ngx_stream_js_phase_handler`, and nginx's phases: who is allowed meets no other rule.
#[test]
fn access_is_decided_before_the_rules_of_addresses() -> Result<()> {
    let server = |name: &str, rule: &str| {
        let port = name.to_uppercase();
        format!(
            "server {{ listen 127.0.0.1:%%PORT_{port}%%; js_access s.{name}; {rule} return in; }}"
        )
    };
    let inside = [
        "log_format word '$server_port $status'; access_log %%DIR%%/word.log word;".to_owned(),
        server("allow", "deny all;"),
        server("later", "deny all;"),
        server("decline", "deny all;"),
        server("refuse", ""),
        server("code", ""),
        server("nothing", ""),
        server("throws", ""),
        server("rejects", ""),
        server("hears", ""),
    ]
    .join("\n");
    let module = "
        function allow(s) { s.allow(); }
        async function later(s) {
            await new Promise((done) => setTimeout(done, 1));
            s.done();
        }
        function decline(s) { s.decline(); }
        function refuse(s) { s.deny(); }
        function code(s) { s.done(503); }
        function nothing(s) {}
        function throws(s) { s.allow(); throw new Error('on purpose'); }
        async function rejects(s) { s.allow(); throw new Error('in a promise'); }
        function hears(s) { s.on('upload', (data) => { if (data) { s.allow(); } }); }
        export default { allow, later, decline, refuse, code, nothing, throws, rejects, hears };";
    let proxy = scripted(&inside, module).start()?;
    let cases = [
        ("allow", "in", 200),
        ("later", "in", 200),
        ("decline", "", 403),
        ("refuse", "", 403),
        ("code", "", 503),
        ("nothing", "", 500),
        ("throws", "", 500),
        ("rejects", "", 500),
        // There are no bytes in this phase.
        ("hears", "", 500),
    ];
    for (name, answer, status) in cases {
        let name = format!("PORT_{}", name.to_uppercase());
        assert_eq!(ask(&proxy, &name, "x")?, answer, "{name}");
        let line = format!("{} {status}", proxy.named_port(&name));
        lines(&proxy, "word.log", &line, 1).context(name)?;
    }
    for words in [
        "js function \"s.nothing\" has decided nothing",
        "js exception: Error: on purpose",
        "Error: in a promise",
    ] {
        lines(&proxy, "e.log", words, 1).context(words)?;
    }
    Ok(())
}

const PREREAD: &str = "
    function until(s, name, mark) {
        s.on(name, (data) => {
            if (data.includes(mark)) {
                s.variables.heard = `${data.constructor.name} ${data.length}`;
                s.done();
            }
        });
    }
    function text(s) { until(s, 'upload', '\\n'); }
    function bytes(s) { until(s, 'upstream', 10); }
    function looks(s) { s.on('upload', () => {}); }
    function leaves(s) { s.on('upload', () => { s.off('upload'); s.decline(); }); }
    export default { text, bytes, looks, leaves };";

/// njs: a function gets all first bytes again when more have come; they stay for the peer.
#[test]
fn first_bytes_are_looked_at_and_stay() -> Result<()> {
    let peer = Peer::echo("")?;
    let [certificate, key] = certificate("a.example")?;
    let inside = "
        js_var $heard nothing;
        log_format word '$server_port $status $bytes_received'; access_log %%DIR%%/word.log word;
        server { listen 127.0.0.1:%%PORT%%; js_preread s.text; proxy_pass %%PEER%%; }
        server { listen 127.0.0.1:%%PORT_HEARD%%; js_preread s.text; return $heard; }
        server { listen 127.0.0.1:%%PORT_BYTES%%; js_preread s.bytes; return $heard; }
        server { listen 127.0.0.1:%%PORT_FULL%%; js_preread s.looks; preread_buffer_size 8;
                 return in; }
        server { listen 127.0.0.1:%%PORT_LATE%%; js_preread s.looks; preread_timeout 50ms;
                 return in; }
        server { listen 127.0.0.1:%%PORT_NAME%%; js_preread s.leaves; ssl_preread on;
                 return \"name $ssl_preread_server_name\"; }
        server { listen 127.0.0.1:%%PORT_SECRET%% ssl; js_preread s.text; return $heard;
                 ssl_certificate %%DIR%%/c.pem; ssl_certificate_key %%DIR%%/k.pem; }
        server { listen 127.0.0.1:%%PORT_OPEN%%; proxy_pass 127.0.0.1:%%PORT_SECRET%%;
                 proxy_ssl on; }";
    let proxy = scripted(inside, PREREAD)
        .value("PEER", &peer.address)
        .file("c.pem", certificate)
        .file("k.pem", key)
        .start()?;
    // In pieces, of which the first decides nothing.
    let mut stream = connect(proxy.port())?;
    for piece in ["a", "bc", "\nrest"] {
        stream.write_all(piece.as_bytes())?;
    }
    let mut back = [0; 8];
    stream.read_exact(&mut back)?;
    assert_eq!(&back, b"abc\nrest");
    assert_eq!(ask(&proxy, "PORT_HEARD", "hello\n")?, "String 6");
    assert_eq!(ask(&proxy, "PORT_BYTES", "hello\n")?, "Buffer 6");
    assert_eq!(ask(&proxy, "PORT_OPEN", "hidden\n")?, "String 7");
    assert_eq!(ask(&proxy, "PORT_FULL", "12345678")?, "");
    assert_eq!(ask(&proxy, "PORT_LATE", "x")?, "");
    // A function that declines leaves the look to `ssl_preread`.
    assert_eq!(ask(&proxy, "PORT_NAME", "no handshake")?, "name ");
    let port = |name: &str| proxy.named_port(name);
    for line in [
        format!("{} 400 8", port("PORT_FULL")),
        format!("{} 200 1", port("PORT_LATE")),
    ] {
        lines(&proxy, "word.log", &line, 1).context(line)?;
    }
    Ok(())
}

const FILTER: &str = "
    function same(s) {
        s.on('upstream', (data, flags) => s.send(data, flags));
        s.on('downstream', (data, flags) => s.send(data, flags));
    }
    function nothing(s) {}
    function letters(s) {
        let isFirst = true;
        s.on('upload', (data, flags) => {
            if (isFirst) {
                isFirst = false;
                s.sendDownstream('welcome ');
            }
            s.send(data.toUpperCase(), flags);
        });
        s.on('download', (data, flags) => {
            if (flags.last) {
                s.send(` end ${flags.from_upstream}`);
            } else {
                s.send(`<${data}>`);
            }
        });
    }
    function once(s) {
        s.on('upload', (data, flags) => {
            s.send(`${data}+`);
            s.off('upload');
        });
    }
    function waits(s) {
        s.on('upload', async (data, flags) => {
            if (flags.last) {
                return;
            }
            const reply = await new Promise((done) => setTimeout(() => done('late '), 1));
            s.send(reply + data, { from_upstream: false });
        });
    }
    function unsaid(s) {
        s.on('upload', (data, flags) => {
            s.off('upload');
            setTimeout(() => {
                try { s.send('x'); } catch (e) { s.sendDownstream(`${e.name}: ${e.message}`); }
            }, 1);
        });
    }
    function text(s) {
        s.on('download', (data, flags) => s.send(`[${data} ${flags.last}]`, flags));
    }
    function early(s) { s.send('x'); }
    function throws(s) { s.on('upload', () => { throw new Error('on purpose'); }); }
    function rejects(s) { s.on('upload', async () => { throw new Error('in a promise'); }); }
    function decides(s) { s.on('upload', () => s.done()); }
    export default { same, nothing, letters, once, waits, unsaid, text, early, throws, rejects,
                     decides };";

/// njs: `ngx_stream_js_body_filter`.
#[test]
fn filters_change_what_goes_through() -> Result<()> {
    let peer = Peer::echo("")?;
    let names = [
        "nothing", "letters", "once", "waits", "unsaid", "early", "throws", "rejects", "decides",
    ];
    let server = |name: &&str| {
        let port = name.to_uppercase();
        format!(
            "server {{ listen 127.0.0.1:%%PORT_{port}%%; js_filter s.{name}; \
             proxy_pass %%PEER%%; proxy_half_close on; }}"
        )
    };
    let servers: Vec<String> = names.iter().map(server).collect();
    let inside = format!(
        "log_format word '$server_port $status'; access_log %%DIR%%/word.log word;\n{}\n\
         server {{ listen 127.0.0.1:%%PORT%%; js_filter s.text; return \"a b\"; }}",
        servers.join("\n")
    );
    let proxy = scripted(&inside, FILTER)
        .value("PEER", &peer.address)
        .start()?;
    assert_eq!(ask(&proxy, "PORT", "")?, "[a b true]");
    let port = |name: &str| proxy.named_port(&format!("PORT_{}", name.to_uppercase()));
    for (name, len, heard) in [
        ("nothing", 3, "abc"),
        ("letters", 13, "welcome <ABC> end true"),
        ("once", 4, "abc+"),
        ("waits", 8, "late abc"),
        (
            "unsaid",
            3,
            "TypeError: from_upstream flag is expected when called asynchronously",
        ),
    ] {
        assert_eq!(say(port(name), "abc", len)?, heard, "{name}");
    }
    for name in ["early", "throws", "rejects", "decides"] {
        let named = format!("PORT_{}", name.to_uppercase());
        assert_eq!(ask(&proxy, &named, "abc")?, "", "{name}");
        let line = format!("{} 500", port(name));
        lines(&proxy, "word.log", &line, 1).context(name)?;
    }
    for words in [
        "TypeError: cannot send buffer in this handler",
        "Error: on purpose",
        "Error: in a promise",
        "TypeError: should not be called while filtering",
    ] {
        lines(&proxy, "e.log", words, 1).context(words)?;
    }
    Ok(())
}

/// Invariant of `filter.rs`: a direction is read when nothing of it waits.
#[test]
fn filters_hand_on_large_streams_whole() -> Result<()> {
    let peer = Peer::echo("")?;
    let inside = "server { listen 127.0.0.1:%%PORT%%; js_filter s.same; proxy_pass %%PEER%%; }";
    let proxy = scripted(inside, FILTER)
        .value("PEER", &peer.address)
        .start()?;
    let sent: Vec<u8> = (0..2_000_000_u32).map(|it| (it % 251) as u8).collect();
    let stream = connect(proxy.port())?;
    let writer = {
        let (mut stream, sent) = (stream.try_clone()?, sent.clone());
        thread::spawn(move || stream.write_all(&sent))
    };
    let mut back = vec![0; sent.len()];
    (&stream).read_exact(&mut back)?;
    writer.join().expect("the writer ends")?;
    assert!(back == sent);
    Ok(())
}

/// One context for a session: what a phase has learnt is there for the next, for variables and at
/// the exit.
#[test]
fn a_session_is_one_context_from_access_to_exit() -> Result<()> {
    let inside = "
        js_shared_dict_zone zone=count:64k type=number;
        js_var $own 'unset $remote_addr';
        js_set $told s.told;
        js_set $fixed s.fixed;
        map $told $mapped { default 'map of $told'; }
        log_format word '$mapped|$own|$status'; access_log %%DIR%%/word.log word;
        server {
            listen 127.0.0.1:%%PORT%%; js_access s.access; js_preread s.preread; js_filter s.filter;
            return $told;
        }
        server { listen 127.0.0.1:%%PORT_FIXED%%; return \"$fixed $own\"; }
        server { listen 127.0.0.1:%%PORT_UDP%% udp; js_access s.packets; return $own; }";
    let module = "
        let steps = [];
        function access(s) {
            steps = ['access'];
            njs.on('exit', () => s.error(`gone ${s.status} ${steps} ${s.variables.bytes_sent}`));
            ngx.shared.count.incr('sessions', 1);
            s.allow();
        }
        function preread(s) {
            s.on('upload', (data) => { if (data) { steps.push('preread'); s.done(); } });
        }
        function filter(s) {
            s.on('download', (data, flags) => { steps.push('filter'); s.send(data, flags); });
        }
        function told(s) {
            s.variables.own = 'set';
            return `${steps} ${ngx.shared.count.get('sessions')}`;
        }
        function fixed(s) { return `${s} ${s.remoteAddress} ${s.rawVariables.remote_addr.length}`; }
        function packets(s) {
            s.variables.own = `${s.variables.protocol} ${s.remoteAddress}`;
            s.allow();
        }
        export default { access, preread, filter, told, fixed, packets };";
    let proxy = scripted(inside, module).start()?;
    assert_eq!(ask(&proxy, "PORT", "x")?, "access,preread 1");
    let word = "map of access,preread 1|set|200";
    lines(&proxy, "word.log", word, 1).context(word)?;
    let gone = "js: gone 200 access,preread,filter 16";
    lines(&proxy, "e.log", gone, 1).context(gone)?;
    let expected = "[object Stream Session] 127.0.0.1 9 unset 127.0.0.1";
    assert_eq!(ask(&proxy, "PORT_FIXED", "")?, expected);
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(LONG))?;
    socket.send_to(b"x", ("127.0.0.1", proxy.named_port("PORT_UDP")))?;
    let mut room = [0; 100];
    let count = socket.recv(&mut room)?;
    assert_eq!(String::from_utf8_lossy(&room[..count]), "UDP 127.0.0.1");
    Ok(())
}

/// Other servers, runs without sessions, and dictionaries that `http` has by the same line.
#[test]
fn sessions_ask_other_servers_and_share_with_requests() -> Result<()> {
    let text = "%%GLOBALS%%
        env WORD=environment;
        events {}
        http {
            %%HTTP%%
            js_import s.js;
            js_shared_dict_zone zone=all:64k;
            server { listen 127.0.0.1:%%PORT_HTTP%%; location / { return 200 $arg_name; }
                     location /seen { js_content s.seen; } }
        }
        stream {
            js_import s.js;
            js_time_limit 2s;
            js_shared_dict_zone zone=all:64k;
            js_var $asked http://127.0.0.1:%%PORT_HTTP%%/?name=;
            js_var $who;
            server { listen 127.0.0.1:%%PORT%%; js_preread s.asks; return \"$who\"; }
            server { listen 127.0.0.1:%%PORT_B%%; js_periodic s.ticks interval=10ms; return b; }
        }";
    let module = "
        async function ask(s, name) {
            const reply = await ngx.fetch(s.variables.asked + name);
            return reply.text();
        }
        function asks(s) {
            s.on('upload', async (data) => {
                if (data) {
                    s.off('upload');
                    s.variables.who = `${await ask(s, data)} ${process.env.WORD}`;
                    s.done();
                }
            });
        }
        async function ticks(s) {
            ngx.shared.all.set('tick', `${s[Symbol.toStringTag]} ${await ask(s, 'tick')}`);
        }
        function seen(r) { r.return(200, String(ngx.shared.all.get('tick'))); }
        export default { asks, ticks, seen };";
    let proxy = Proxy::new(Kind::Millpond, text)
        .file("s.js", module)
        .start()?;
    assert_eq!(ask(&proxy, "PORT", "anna")?, "anna environment");
    let client = millpond_testkit::Client::new(proxy.named_port("PORT_HTTP"));
    let is_there = || {
        let seen = client.get("/seen").map(|it| it.text());
        seen.is_ok_and(|it| it == "PeriodicSession tick")
    };
    poll(is_there).context("a run of js_periodic")
}

/// The bounds end the session that they meet, and say so; others go on.
#[test]
fn bounds_end_a_session_with_a_line_in_the_log() -> Result<()> {
    let peer = Peer::echo("")?;
    let inside = "
        log_format word '$server_port $status'; access_log %%DIR%%/word.log word;
        server { listen 127.0.0.1:%%PORT%%; js_filter s.same; proxy_pass %%PEER%%; }
        server { listen 127.0.0.1:%%PORT_TIME%%; js_filter s.loops; js_time_limit 50ms;
                 proxy_pass %%PEER%%; }
        server { listen 127.0.0.1:%%PORT_FIRST%%; js_preread s.loops; js_time_limit 50ms;
                 return in; }
        server { listen 127.0.0.1:%%PORT_MEMORY%%; js_filter s.fills; js_memory_limit 8m;
                 proxy_pass %%PEER%%; }";
    let module = "
        const kept = [];
        function same(s) { s.on('upload', (data, flags) => s.send(data, flags)); }
        function loops(s) { s.on('upload', (data) => { for (; data;); }); }
        function fills(s) {
            s.on('upload', () => { for (;;) { kept.push('x'.repeat(1000)); } });
        }
        export default { same, loops, fills };";
    let proxy = scripted(inside, module)
        .value("PEER", &peer.address)
        .start()?;
    let mut other = connect(proxy.port())?;
    round(&mut other)?;
    for (name, words) in [
        (
            "PORT_TIME",
            "js script was stopped after 50 ms (\"js_time_limit\")",
        ),
        (
            "PORT_FIRST",
            "js script was stopped after 50 ms (\"js_time_limit\")",
        ),
        ("PORT_MEMORY", "of \"js_memory_limit\""),
    ] {
        assert_eq!(ask(&proxy, name, "x")?, "", "{name}");
        lines(&proxy, "e.log", words, 1).context(words)?;
        let line = format!("{} 500", proxy.named_port(name));
        lines(&proxy, "word.log", &line, 1).context(name)?;
    }
    round(&mut other)
}

/// A byte there and back.
fn round(stream: &mut TcpStream) -> Result<()> {
    let mut byte = [0];
    stream.write_all(b"x")?;
    stream.read_exact(&mut byte)?;
    ensure!(byte == *b"x" || byte == *b"y", "{byte:?}");
    Ok(())
}

/// A session keeps the modules that it began with, over a reload and in a graceful end.
#[test]
fn sessions_keep_their_scripts_over_a_reload() -> Result<()> {
    let peer = Peer::echo("")?;
    let inside = "server { listen 127.0.0.1:%%PORT%%; js_filter s.filter; proxy_pass %%PEER%%; }";
    let module = "
        function filter(s) { s.on('upload', (data, flags) => s.send(data + 'first', flags)); }
        export default { filter };";
    let builder = scripted(inside, module).value("PEER", &peer.address);
    let mut proxy = builder.start()?;
    let mut old = connect(proxy.port())?;
    let told = |stream: &mut TcpStream, len: usize| -> Result<String> {
        stream.write_all(b"x")?;
        let mut back = vec![0; len];
        stream.read_exact(&mut back)?;
        Ok(String::from_utf8(back)?)
    };
    assert_eq!(told(&mut old, 6)?, "xfirst");
    proxy.write_file("s.js", module.replace("first", "later"))?;
    proxy.reload()?;
    let is_new = || {
        let stream = connect(proxy.port());
        stream.is_ok_and(|mut stream| told(&mut stream, 6).is_ok_and(|it| it == "xlater"))
    };
    poll(is_new).context("the new module")?;
    assert_eq!(told(&mut old, 6)?, "xfirst");
    proxy.signal(Signal::QUIT)?;
    poll(|| connect(proxy.port()).is_err()).context("the end of listening")?;
    assert_eq!(told(&mut old, 6)?, "xfirst");
    old.shutdown(Shutdown::Both)?;
    proxy.quit()
}

/// Each is refused by its name.
#[test]
fn what_sessions_cannot_have_stops_the_start() -> Result<()> {
    let module = "function f(s) {} export default { f };";
    for (inside, words) in [
        (
            "server { listen 127.0.0.1:%%PORT%% udp; js_filter s.f; return x; }",
            "\"js_filter\" is not supported for sessions of UDP",
        ),
        (
            "js_preread s.f; server { listen 127.0.0.1:%%PORT%% udp; return x; }",
            "\"js_preread\" is not supported for sessions of UDP",
        ),
        (
            "server { listen 127.0.0.1:%%PORT%%; js_content s.f; return x; }",
            "\"js_content\" directive is not allowed here",
        ),
        (
            "server { listen 127.0.0.1:%%PORT%%; js_cache_key s.f; return x; }",
            "\"js_cache_key\" directive is not allowed here",
        ),
        (
            "server { listen 127.0.0.1:%%PORT%%; js_periodic s.f worker_affinity=0101010; \
             return x; }",
            "is not equal to the size of \"worker_affinity\" mask",
        ),
    ] {
        let started = scripted(inside, module).log_check(LogCheck::Off).start();
        let why = format!("{:?}", started.err().context(words)?);
        assert!(
            why.contains(words.trim()) || why.contains(&words.replace('"', "\\\"")),
            "{why}"
        );
    }
    let conf = "%%GLOBALS%%\nevents {}\nstream { server { listen 127.0.0.1:%%PORT%%; \
                js_filter s.f; return x; } }";
    let started = Proxy::new(Kind::Millpond, conf)
        .log_check(LogCheck::Off)
        .start();
    let why = format!("{:?}", started.err().context("no imports")?).replace('\\', "");
    assert!(
        why.contains("no imports defined for \"js_filter\" \"s.f\""),
        "{why}"
    );
    Ok(())
}
