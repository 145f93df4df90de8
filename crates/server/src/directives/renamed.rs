//! Directives of older versions that have another name now, and the lines that say the same; of
//! those that are known and not here, the change that takes them out.
//!
//! A line takes a place only if it means the same to the last word. What nobody knows is left: it
//! may be a name misspelt, and nobody can tell which.

use millpond_conf::source::Span;
use millpond_conf::tree::Statement;

/// The change of a statement that is known and not here: another line, or none.
pub(crate) fn change(statement: &Statement) -> (Span, String) {
    line(statement).unwrap_or((statement.span, String::new()))
}

/// The line for a statement, without its semicolon, and the place of the words that it replaces.
fn line(statement: &Statement) -> Option<(Span, String)> {
    let words: Vec<&str> = statement.args.iter().map(|word| &*word.text).collect();
    let line = match (statement.name.text.as_str(), words.as_slice()) {
        // nginx 0.8: the directive has had two words since 0.6.25.
        ("satisfy_any", ["on"]) => "satisfy any".to_string(),
        ("satisfy_any", ["off"]) => "satisfy all".to_string(),
        // nginx 1.1.8.
        ("limit_zone", [name, variable, size]) => {
            format!("limit_conn_zone {variable} zone={name}:{size}")
        }
        ("proxy_downstream_buffer" | "proxy_upstream_buffer", [size]) => {
            format!("proxy_buffer_size {size}")
        }
        _ => return None,
    };
    Some((statement.span, line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{LoadOptions, load_text};

    #[test]
    fn lines_have_the_words_of_today() {
        for (old, new) in [
            ("satisfy_any on;", Some("satisfy any")),
            ("satisfy_any off;", Some("satisfy all")),
            ("satisfy_any maybe;", None),
            (
                "limit_zone one $binary_remote_addr 10m;",
                Some("limit_conn_zone $binary_remote_addr zone=one:10m"),
            ),
            ("proxy_upstream_buffer 8k;", Some("proxy_buffer_size 8k")),
            ("gzip on;", None),
        ] {
            let options = LoadOptions::default();
            let tree = load_text("t.conf", old, &options, &mut Default::default());
            let line = line(&tree.statements[0]).map(|(_, line)| line);
            assert_eq!(line.as_deref(), new, "{old}");
        }
    }
}
