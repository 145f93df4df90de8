//! Lines of the directive.

use millpond_conf::value::{ArgError, Args, FromArgs as _};
use millpond_conf::{LoadOptions, ParseContext, load_text};
use millpond_system::network;

use super::Follow;

fn read(text: &str) -> Result<Follow, ArgError> {
    let options = LoadOptions::default();
    let tree = load_text("t.conf", text, &options, &mut Default::default());
    let line = &tree.statements[0];
    Follow::from_args(&mut Args {
        name: &line.name,
        words: &line.args,
        body: None,
        cx: &mut ParseContext::new("/prefix", "/conf"),
    })
}

#[test]
fn lines_have_a_number_and_networks() {
    assert_eq!(read("f on;").unwrap().most, 5);
    assert_eq!(read("f 50;").unwrap().most, 50);
    for text in [
        "f 0;",
        "f 51;",
        "f many;",
        "f on allow=unix:;",
        "f on allow=x;",
        "f on what;",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn inner_addresses_are_allowed_by_their_networks() {
    let closed = read("f on;").unwrap();
    let open = read("f on allow=10.0.0.0/8 allow=fd00::/8;").unwrap();
    for (address, of_closed, of_open) in [
        ("10.1.2.3", false, true),
        ("[fd00::1]", false, true),
        ("[::ffff:10.1.2.3]", false, true),
        ("192.168.0.1", false, false),
        ("1.1.1.1", true, true),
    ] {
        let address = network::parse_address(format!("{address}:80").as_bytes()).unwrap();
        assert_eq!(closed.allows(&address), of_closed, "{address}");
        assert_eq!(open.allows(&address), of_open, "{address}");
    }
}
