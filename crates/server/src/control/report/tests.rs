//! Tests of the lines of the API.

use super::*;

#[test]
fn a_url_is_told_if_host_and_key_tell_it() {
    for (key, host, expected) in [
        ("shop/a?b", "shop", Some("//shop/a?b")),
        ("http://origin/a", "shop", Some("http://shop/a")),
        ("https://shop/", "shop", Some("https://shop/")),
        ("httporigin:80/a/b", "shop", Some("//shop/a/b")),
        ("http://shop", "shop", None),
        ("no path", "shop", None),
        ("/a", "", None),
    ] {
        assert_eq!(url(key, host).as_deref(), expected, "{key}");
    }
}
