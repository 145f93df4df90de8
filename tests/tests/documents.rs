//! What the documents show works: the configuration in README.md caches, and every file that they
//! link to is there.

use millpond_testkit::{Answer, Client, Kind, Origin, Proxy};
use std::path::Path;

const README: &str = include_str!("../../README.md");
const ARCHITECTURE: &str = include_str!("../../docs/architecture.md");

#[test]
fn the_configuration_to_start_from_caches() {
    let (_, rest) = README.split_once("```nginx\n").unwrap();
    let (conf, _) = rest.split_once("```").unwrap();
    assert_eq!(conf.lines().count(), 10);
    let conf = conf
        .replace("events {}", "%%GLOBALS%%\nevents {}")
        .replace("http {\n", "http {\n%%HTTP%%\n")
        .replace("/var/cache/millpond", "%%DIR%%/cache")
        .replace("listen 80;", "listen 127.0.0.1:%%PORT%%;")
        .replace("127.0.0.1:3000", "%%ORIGIN%%");
    let origin = Origin::start().unwrap();
    origin.route("/", Answer::new(200).body("hello"));
    let proxy = Proxy::new(Kind::Millpond, &conf)
        .origin(&origin)
        .start()
        .unwrap();
    let client = Client::new(proxy.port());
    for _ in 0..3 {
        assert_eq!(client.get("/").unwrap().text(), "hello");
    }
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn what_the_documents_link_to_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (dir, text) in [("", README), ("docs", ARCHITECTURE)] {
        for link in text.split("](").skip(1) {
            let target = link.split(')').next().unwrap();
            if !target.contains("://") {
                let path = root.join(dir).join(target);
                assert!(path.exists(), "{} is not there", path.display());
            }
        }
    }
}
