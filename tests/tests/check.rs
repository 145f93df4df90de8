//! `millpond check`, and the warnings of `-t`: what is said of a configuration before it is used.

use millpond_testkit::{Kind, binary};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

/// Writes a configuration and what it includes into a directory of its own, and runs the binary
/// with the words and the path of the file behind them.
fn run(words: &[&str], conf: &str, files: &[(&str, &str)]) -> Output {
    let dir = tempfile::tempdir().expect("a run");
    for (name, text) in files {
        fs::write(dir.path().join(name), text).expect("a run");
    }
    let path = dir.path().join("nginx.conf");
    fs::write(
        &path,
        conf.replace("%%DIR%%", &dir.path().to_string_lossy()),
    )
    .expect("a run");
    let binary = binary(Kind::Millpond).expect("the binary");
    Command::new(binary)
        .args(words)
        .arg(&path)
        .env("NO_COLOR", "1")
        .output()
        .expect("a run")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("a run")
}

/// The part of a report under a heading.
fn section<'a>(report: &'a str, heading: &str) -> &'a str {
    let found = report
        .split("\n\n")
        .find(|part| part.trim_start().starts_with(heading));
    found.unwrap_or_else(|| panic!("no \"{heading}\" in: {report}"))
}

const MIXED: &str = "
events { multi_accept on; }
mail { server { listen 53; protocol imap; } }
http {
    include lost.types;
    include site.conf;
    lua_package_path /x;
    upstream app { server no.such.host.invalid:80; }
    server {
        listen 127.0.0.1:8080;
        location /a { content_by_lua_block { if x then y = { \"}\" } end } }
        location /b { proxy_pass http://app; }
    }
}
";

#[test]
fn every_line_is_counted_and_every_mistake_is_named_with_its_place() {
    let output = run(
        &["check"],
        MIXED,
        &[("site.conf", "tcp_nopush on;\nsendfile on;\n")],
    );
    assert_eq!(output.status.code(), Some(1));
    let report = stdout(&output);
    let refused = section(&report, "Refused");
    for (name, line) in [
        ("mail", 3),
        ("lua_package_path", 7),
        ("content_by_lua_block", 11),
    ] {
        let place = format!("  {name}  nginx.conf:{line}\n");
        assert!(refused.contains(&place), "{name}: {refused}");
    }
    assert!(refused.starts_with("Refused: the configuration cannot be used with it (3)"));
    let absent = section(&report, "Not on this machine");
    assert!(
        absent.contains("lost.types") && absent.contains("no.such.host.invalid"),
        "{absent}"
    );
    let idle = section(&report, "No effect");
    assert!(idle.contains("tcp_nopush  site.conf:1") && idle.contains("multi_accept"));
    let works = section(&report, "Works");
    assert!(
        works.contains("location 2") && works.contains("sendfile"),
        "{works}"
    );
    assert!(
        !works.contains("tcp_nopush") && !works.contains(" mail"),
        "{works}"
    );
    assert!(
        report.lines().all(|line| line.chars().count() <= 80),
        "{report}"
    );
    assert!(!report.contains('\u{1b}'));
}

#[test]
fn the_exit_status_tells_the_three_outcomes_apart() {
    let good = "events {} http { server { listen 127.0.0.1:1; } }";
    for (conf, status) in [
        (good, 0),
        (
            "events {} http { upstream a { server no.such.host.invalid; } }",
            0,
        ),
        ("events {} http { perl_modules x; }", 1),
        ("events {} http { include lost.conf; }", 2),
        ("events {} http { server {", 2),
    ] {
        let output = run(&["check"], conf, &[]);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{conf}: {}",
            stdout(&output)
        );
    }
    let binary = binary(Kind::Millpond).unwrap();
    let lost = Command::new(binary)
        .args(["check", "/no/such/file"])
        .output()
        .unwrap();
    assert_eq!(lost.status.code(), Some(2));
}

#[test]
fn programs_get_the_same_as_one_object() {
    let output = run(
        &["check", "--json", "-c"],
        MIXED,
        &[("site.conf", "tcp_nopush on;")],
    );
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    for part in [
        "\"outcome\":\"refused\"",
        "\"directive\":\"mail\",\"code\":\"unsupported_directive\"",
        "\"directive\":\"lua_package_path\",\"code\":\"unknown_directive\"",
        "\"no_effect\":[{\"directive\":\"multi_accept\"",
        "\"line\":3,\"column\":1}",
        "\"location\":2",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let count = |char| text.matches(char).count();
    assert_eq!((count('{'), count('[')), (count('}'), count(']')));
}

const SUSPECT: &str = "
pid %%DIR%%/pid; error_log stderr;
events {}
http {
    access_log off;
    proxy_cache_path %%DIR%%/c keys_zone=z:1m inactive=10;
    server {
        listen 127.0.0.1:0;
        # millpond: allow(list_not_inherited)
        location / { proxy_pass http://127.0.0.1:1; proxy_cache z; }
    }
}
";

#[test]
fn a_test_warns_and_is_successful() {
    let conf = SUSPECT.replace("127.0.0.1:0", "127.0.0.1:18099");
    let output = run(&["-t", "-c"], &conf, &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in [
        "[warn] \"inactive=10\" removes entries of zone \"z\" after 10 s",
        "code: inactive_short",
        "code: no_valid_time",
        "syntax is ok",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(said.trim_end().ends_with("test is successful"), "{said}");
    let allowed = conf
        .replace(
            "location / {",
            "location / {\n # millpond: allow(no_valid_time)\n",
        )
        .replace("proxy_pass http://127.0.0.1:1; ", "")
        .replace(
            "proxy_cache z;",
            "proxy_cache z; proxy_pass http://127.0.0.1:1;",
        );
    let said = String::from_utf8(run(&["-t", "-c"], &allowed, &[]).stderr).unwrap();
    assert!(!said.contains("no_valid_time"), "{said}");
}

#[test]
fn the_examples_work_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf");
    let demo = tempfile::tempdir().unwrap();
    let demo_path = demo.path().display().to_string();
    let names = ["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    fs::write(demo.path().join("demo.pem"), made.cert.pem()).unwrap();
    fs::write(
        demo.path().join("demo.key"),
        made.signing_key.serialize_pem(),
    )
    .unwrap();
    let mut count = 0;
    for dir in [root.clone(), root.join("examples")] {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap_or_default();
            if !text.contains("events") || path.extension().is_none_or(|it| it != "conf") {
                continue;
            }
            let binary = binary(Kind::Millpond).unwrap();
            // The demo's directory, which whoever runs the file by hand makes first, with a key.
            let copy = demo.path().join(path.file_name().unwrap());
            fs::write(&copy, text.replace("/tmp/millpond-demo", &demo_path)).unwrap();
            let output = Command::new(binary)
                .arg("check")
                .arg(if text.contains("/tmp/millpond-demo") {
                    &copy
                } else {
                    &path
                })
                .output()
                .unwrap();
            let report = stdout(&output);
            assert!(!report.contains("Refused"), "{}: {report}", path.display());
            count += 1;
        }
    }
    assert!(count >= 7, "{count} examples");
}

/// Certificates that end soon, or that are for other names.
#[test]
fn certificates_that_end_or_do_not_fit_are_named() {
    let signed = |name: &str, days: i64| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let subject = &mut params.distinguished_name;
        subject.push(rcgen::DnType::CommonName, name);
        let day = Duration::from_secs(86_400);
        let now = SystemTime::now();
        params.not_before = (now - 400 * day).into();
        params.not_after = match u32::try_from(days) {
            Ok(days) => (now + days * day + day / 2).into(),
            Err(_) => (now - day).into(),
        };
        let certificate = params.self_signed(&key).expect("a certificate");
        certificate.pem() + &key.serialize_pem()
    };
    let server = |name: &str, file: &str| {
        format!(
            "server {{ listen 127.0.0.1:1 ssl; server_name {name}; ssl_certificate {file}; \
             ssl_certificate_key {file}; }}"
        )
    };
    let servers = [
        server("long.example _", "long.pem"),
        server("soon.example", "soon.pem"),
        server("*.ended.example", "ended.pem"),
        server("other.example", "long.pem"),
    ];
    let conf = format!("events {{}} http {{ {} }}", servers.join("\n"));
    let files = [
        ("long.pem", &*signed("long.example", 60)),
        ("soon.pem", &*signed("soon.example", 12)),
        ("ended.pem", &*signed("*.ended.example", -1)),
    ];
    let report = stdout(&run(&["check"], &conf, &files));
    for told in [
        "the certificate \"CN=soon.example\" ends in 12 days",
        "the certificate \"CN=*.ended.example\" has ended: clients refuse it",
        "no certificate of this server is for the name \"other.example\"",
    ] {
        assert_eq!(report.matches(told).count(), 1, "{told}: {report}");
    }
    assert!(
        !report.contains("name \"long") && !report.contains("name \"*"),
        "{report}"
    );
    assert!(!report.contains("\"CN=long.example\" ends"), "{report}");
}

/// `nginx -T` on this machine, of a folder as Debian has it, and the folder itself.
#[test]
fn a_folder_and_what_nginx_prints_of_it_have_the_same_report() {
    let Some(nginx) = binary(Kind::Nginx) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a run");
    let path = |name: &str| dir.path().join(name);
    for folder in ["sites-enabled", "conf.d", "snippets"] {
        fs::create_dir(path(folder)).expect("a run");
    }
    let main = "pid x.pid; error_log stderr; events { multi_accept on; }
http {
    include mime.types;
    include conf.d/*.conf;
    include sites-enabled/*;
}
";
    let site = "server {
    listen 127.0.0.1:8080;
    include snippets/common.conf;
    location /old { dav_methods PUT; }
}
";
    for (name, text) in [
        ("nginx.conf", main),
        ("mime.types", "types { text/html html; }\n"),
        ("sites-enabled/default", site),
        ("conf.d/gzip.conf", "gzip on;\n"),
        ("snippets/common.conf", "server_name a.example;"),
    ] {
        fs::write(path(name), text).expect("a run");
    }
    let printed = Command::new(nginx)
        .args(["-T", "-e", "stderr", "-c"])
        .arg(path("nginx.conf"))
        .arg("-p")
        .arg(dir.path())
        .output()
        .expect("a run");
    let input = path("printed");
    fs::write(&input, [printed.stderr, printed.stdout].concat()).expect("a run");
    let check = |word: &Path| {
        let output = Command::new(binary(Kind::Millpond).expect("the binary"))
            .args([Path::new("check"), word])
            .env("NO_COLOR", "1")
            .stdin(fs::File::open(&input).expect("a run"))
            .output()
            .expect("a run");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        stdout(&output)
    };
    let of_folder = check(dir.path());
    let refused = section(&of_folder, "Refused");
    assert!(
        refused.contains("dav_methods  sites-enabled/default:4"),
        "{refused}"
    );
    assert!(
        of_folder.contains("12 directives in 5 files"),
        "{of_folder}"
    );
    // The files are gone, as on another machine.
    for name in [
        "sites-enabled/default",
        "conf.d/gzip.conf",
        "mime.types",
        "nginx.conf",
    ] {
        fs::remove_file(path(name)).expect("a run");
    }
    assert_eq!(check(Path::new("-")), of_folder);
}

#[test]
fn an_input_without_a_configuration_is_none() {
    let output = Command::new(binary(Kind::Millpond).expect("the binary"))
        .args(["check", "-"])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("a run");
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("no configuration in the standard input"),
        "{told}"
    );
}

/// A configuration of many hands: directives of modules, of older versions, and mistakes.
const STRANGE: &[(&str, &str)] = &[
    (
        "nginx.conf",
        "load_module modules/ngx_http_image_filter_module.so;
pid x.pid; error_log stderr;
events { worker_connections 64; }
http {
    include %%DIR%%/mime.types;
    include %%DIR%%/sites-enabled/*;
    limit_zone one $binary_remote_addr 10m;
    vhost_traffic_status_zone;
    lua_shared_dict dogs 1m;
    init_by_lua_block {
        dogs = \"} {\"
    }
    pagespeed on; pagespeed FileCachePath /x;
    upstream app { fair; server 127.0.0.1:9; 127.0.0.1:10; check interval=1000; }
}
",
    ),
    ("mime.types", "types { text/html html; }\n"),
    (
        "sites-enabled/default",
        "server {
    listen 127.0.0.1:8443 default_server ssl http2 spdy;
    listen 127.0.0.1:8444
           ssl http2;  # both
    ssl_certificate a.pem; ssl_certificate_key a.pem;
    satisfy_any on;
    pagespeed off;
    location / { fancyindex on; proxy_pass http://app; }
    location /lua {
        content_by_lua_block {
            if x then y = { \"}\" } end
        }
    }
    location /film { image_filter resize 1 1; vod hls; hls; }
    location /status { vhost_traffic_status_display_format html; vhost_traffic_status_display; }
    location /counted { vhost_traffic_status_bypass_stats on; }
}
",
    ),
    (
        "sites-enabled/old",
        "server { listen 127.0.0.1:8445; ssl on; ssl_certificate a.pem; ssl_certificate_key a.pem; }
server { listen 127.0.0.1:8446; ssl off; location / { return 200; } }
",
    ),
];

struct Tree(tempfile::TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        let dir = tempfile::tempdir().expect("a run");
        let from = dir.path().join("etc");
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        for (name, text) in files.iter().chain(&[("a.pem", &*pem)]) {
            let path = from.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a run");
            fs::write(path, text.replace("%%DIR%%", &from.to_string_lossy())).expect("a run");
        }
        Tree(dir)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
    }

    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = Command::new(binary(Kind::Millpond).expect("the binary"))
            .args(words)
            .current_dir(self.0.path())
            .env("NO_COLOR", "1")
            .output()
            .expect("a run");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// `-t` of a configuration below a folder.
    fn test(&self, folder: &str) -> (Option<i32>, String) {
        let dir = self.0.path().join(folder);
        let (prefix, conf) = (format!("{}/", dir.display()), dir.join("nginx.conf"));
        self.run(&["-t", "-p", &prefix, "-c", &conf.display().to_string()])
    }
}

#[test]
fn a_fixed_copy_of_a_strangers_folder_is_right() {
    let tree = Tree::new(STRANGE);
    let (status, said) = tree.run(&["check", "--fix", "copy", "etc"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("This configuration works as it is."),
        "{said}"
    );
    assert!(said.contains("sites-enabled/default:"), "{said}");
    let (status, said) = tree.test("copy");
    assert_eq!(status, Some(0), "{said}");
    let site = tree.read("copy/sites-enabled/default");
    for expected in [
        "    # millpond check --fix: replaced \"listen 127.0.0.1:8443 default_server ssl http2 spdy;\": ",
        "    listen 127.0.0.1:8443 default_server ssl; http2 on;\n",
        "    listen 127.0.0.1:8444\n           ssl;  # both\n",
        "    satisfy any;\n",
        "\n# fancyindex on;\n proxy_pass http://app; }\n",
        "        # content_by_lua_block {\n        #     if x",
        "        # }\n        return 501;\n    }\n",
    ] {
        assert!(site.contains(expected), "{expected}: {site}");
    }
    assert_eq!(site.matches("http2 on").count(), 1, "{site}");
    let status = "\n# vhost_traffic_status_display;\nreturn 501; }\n";
    assert!(site.contains(status), "{site}");
    assert_eq!(site.matches("return 501;").count(), 3, "{site}");
    let main = tree.read("copy/nginx.conf");
    for expected in [
        "    include \"mime.types\";\n",
        "    limit_conn_zone $binary_remote_addr zone=one:10m;\n",
        "    # vhost_traffic_status_zone;\n",
        "least_conn;",
        "server 127.0.0.1:10;",
        "# check interval=1000;",
    ] {
        assert!(main.contains(expected), "{expected}: {main}");
    }
    let old = tree.read("copy/sites-enabled/old");
    assert!(old.contains("listen 127.0.0.1:8445 ssl;"), "{old}");
    assert!(
        old.contains("# ssl on;") && old.contains("# ssl off;"),
        "{old}"
    );
    // The original is as it was, and a copy is right to the last word: nothing more is changed.
    for (name, text) in STRANGE {
        let from = tree.0.path().join("etc");
        let text = text.replace("%%DIR%%", &from.to_string_lossy());
        assert_eq!(tree.read(&format!("etc/{name}")), text);
    }
    let (_, said) = tree.run(&["check", "--fix", "again", "copy"]);
    assert!(said.starts_with("Changed (0)"), "{said}");
    assert_eq!(tree.read("again/nginx.conf"), main);
    // What is there is not overwritten.
    let (status, said) = tree.run(&["check", "--fix", "copy", "etc"]);
    assert!(status != Some(0) && said.contains("is not empty"), "{said}");
}

/// A line that decides who may ask stays, and the copy is refused like the original.
#[test]
fn what_decides_who_may_ask_is_not_taken_out() {
    let tree = Tree::new(&[(
        "nginx.conf",
        "pid x.pid; events {}
http { server { listen 127.0.0.1:8447;
    location /a { auth_ldap \"x\"; fancyindex on; }
    location /b { access_by_lua_block { ngx.exit(403) } }
    location /c { modsecurity on; }
    location /d { denny all; }
} }
",
    )]);
    let (status, said) = tree.run(&["check", "--fix", "one.conf", "etc"]);
    assert_eq!(status, Some(1), "{said}");
    let refused = section(&said, "Refused");
    for name in ["auth_ldap", "access_by_lua_block", "modsecurity", "denny"] {
        assert!(refused.contains(name), "{said}");
    }
    let copy = tree.read("one.conf");
    assert!(copy.contains("# fancyindex on;"), "{copy}");
    assert!(copy.contains("auth_ldap \"x\"; \n#"), "{copy}");
    assert!(
        !copy.contains("# auth") && !copy.contains("# access"),
        "{copy}"
    );
}

#[test]
fn files_are_changed_in_place_only_when_that_is_said() {
    let tree = Tree::new(STRANGE);
    let (status, said) = tree.run(&["check", "--fix", "--in-place", "etc"]);
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = tree.test("etc");
    assert_eq!(status, Some(0), "{said}");
    assert!(tree.read("etc/nginx.conf").contains("include "));
    let names = fs::read_dir(tree.0.path().join("etc/sites-enabled")).expect("a run");
    assert_eq!(names.count(), 2);
    for words in [
        &["check", "--fix"][..],
        &["check", "--fix", "--json", "etc"],
    ] {
        let (status, said) = tree.run(words);
        assert!(status != Some(0) && said.contains("requires"), "{said}");
    }
}
