//! The documents hold: the configuration in README.md caches, every file that a document links to
//! is there, the index names every document, and operators are told about every alert.

use millpond_testkit::{Answer, Client, Kind, Origin, Proxy};
use std::path::{Path, PathBuf};

const README: &str = include_str!("../../README.md");

#[test]
fn the_configuration_to_start_from_caches() {
    let (_, rest) = README.split_once("```nginx\n").unwrap();
    let (conf, _) = rest.split_once("```").unwrap();
    assert_eq!(conf.lines().count(), 14);
    let conf = conf
        .replace("events {}", "%%GLOBALS%%\nevents {}")
        .replace("http {\n", "http {\n%%HTTP%%\n")
        .replace("/var/cache/millpond", "%%DIR%%/cache")
        .replace("listen 80;", "listen 127.0.0.1:%%PORT%%;")
        .replace("listen 443 ssl;", "listen 127.0.0.1:%%PORT_TLS%% ssl;")
        .replace("/etc/millpond", "%%DIR%%")
        .replace("127.0.0.1:3000", "%%ORIGIN%%");
    let site = rcgen::generate_simple_self_signed([String::from("site")]).unwrap();
    let origin = Origin::start().unwrap();
    origin.route("/", Answer::new(200).body("hello"));
    let proxy = Proxy::new(Kind::Millpond, &conf)
        .origin(&origin)
        .file("site.pem", site.cert.pem())
        .file("site.key", site.signing_key.serialize_pem())
        .start()
        .unwrap();
    // Whoever speaks plainly there is told that it is not the way.
    let encrypted = Client::new(proxy.named_port("PORT_TLS"));
    assert_eq!(encrypted.get("/").unwrap().status, 400);
    let client = Client::new(proxy.port());
    for _ in 0..3 {
        assert_eq!(client.get("/").unwrap().text(), "hello");
    }
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn what_the_documents_link_to_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for document in documents(&root) {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap();
            if !target.is_empty() && !target.contains("://") {
                let path = document.with_file_name(target);
                assert!(path.exists(), "{}: {target}", document.display());
            }
        }
    }
}

#[test]
fn the_site_of_varnish_is_a_configuration() {
    let text = include_str!("../../docs/from-varnish.md");
    let (_, rest) = text.split_once("```nginx\n").unwrap();
    let (conf, _) = rest.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("nginx.conf"), conf).unwrap();
    let binary = millpond_testkit::binary(Kind::Millpond).unwrap();
    let mut check = std::process::Command::new(binary);
    let output = check.arg("check").arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn every_document_is_in_the_index() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let index = std::fs::read_to_string(root.join("docs/README.md")).unwrap();
    for document in documents(&root) {
        let name = document.file_name().unwrap().to_str().unwrap();
        let is_indexed =
            index.contains(&format!("/{name})")) || index.contains(&format!("({name})"));
        let is_at_the_root = document.parent() == Some(&root);
        assert!(
            is_indexed || is_at_the_root || name == "README.md",
            "{name} is in no index"
        );
    }
}

#[test]
fn operators_are_told_what_to_do_about_each_alert_and_sensor() {
    let operations = include_str!("../../docs/operations.md");
    let rules = include_str!("../../contrib/prometheus/millpond.rules.yml");
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 10);
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        assert!(operations.contains(name), "nothing about {name}");
    }
    let binary = millpond_testkit::binary(Kind::Millpond).unwrap();
    let asked = std::process::Command::new(binary)
        .args(["sensor", "--help"])
        .output();
    let help = String::from_utf8(asked.unwrap().stdout).unwrap();
    let named = help
        .lines()
        .filter_map(|line| line.split("millpond sensor").nth(1));
    let words = named.filter_map(|rest| rest.split_whitespace().next());
    let sensors: Vec<&str> = words.flat_map(|words| words.split('|')).collect();
    assert!(sensors.len() > 8, "{sensors:?}");
    for sensor in sensors {
        assert!(
            operations.contains(&format!("| `{sensor}")),
            "nothing about {sensor}"
        );
    }
}

/// The documents at the root, in `docs` and its decisions.
fn documents(root: &Path) -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/decisions"].map(|folder| root.join(folder));
    let entries = folders
        .iter()
        .flat_map(|folder| folder.read_dir().expect("a folder"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_document = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    let documents: Vec<PathBuf> = paths.filter(is_document).collect();
    assert!(documents.len() > 20, "{documents:?}");
    documents
}
