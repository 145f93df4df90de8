//! The configuration: words, statements, and what they mean. Nothing panics, every mistake has a
//! place, and reading a text twice gives the same.

use millpond_conf::{Diagnostics, LoadOptions, ParseContext, Style, load_text};
use millpond_server::directives;

/// Reads a text as a configuration and builds it.
pub fn run(data: &[u8]) {
    // INVARIANT 1 of the crate: an include would read files of this machine, as does a key file.
    if data
        .windows(7)
        .any(|window| window.eq_ignore_ascii_case(b"include"))
    {
        return;
    }
    for text in [data.to_vec(), in_location(data)] {
        build(&text);
    }
}

/// The text inside a location, where most directives may stand.
fn in_location(data: &[u8]) -> Vec<u8> {
    [
        &b"events {} http { server { listen 127.0.0.1:1; location / { "[..],
        data,
        b" } } }",
    ]
    .concat()
}

fn build(text: &[u8]) {
    let options = LoadOptions::default();
    let mut cx = ParseContext::new("/nonexistent", "/nonexistent");
    let tree = load_text("fuzz.conf", text, &options, &mut cx.diagnostics);
    let is_well_formed = !cx.diagnostics.has_errors();
    let mut again = Diagnostics::new();
    load_text("fuzz.conf", text, &options, &mut again);
    assert_eq!(again.has_errors(), !is_well_formed);
    let (conf, cx) = directives::build(&tree, cx);
    if is_well_formed {
        assert_eq!(conf.is_none(), cx.diagnostics.has_errors());
    }
    let shown = cx.diagnostics.render(&tree.sources, Style::Plain);
    assert_eq!(shown.is_empty(), cx.diagnostics.is_empty());
}
