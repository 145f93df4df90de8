//! `types`, `default_type`: media types by file name.
//!
//! The extension is what follows the last dot of the path's last segment, in small letters; a name
//! that begins with its only dot has none. A block of types replaces those of the blocks around it.
//!
//! Sources: nginx ngx_http_set_exten, ngx_http_set_content_type.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{ArgError, Args, FromArgs};

use crate::content::settings::ContentSettings;
use crate::request::Request;

/// The longest extension that is looked up; no media type has one nearly as long (arbitrary).
const MAX_EXTENSION: usize = 64;

/// The types of file names without any `types` block.
const BUILT_IN: [(&[u8], &[u8]); 3] = [
    (b"html", b"text/html"),
    (b"gif", b"image/gif"),
    (b"jpg", b"image/jpeg"),
];

/// The media type of an answer that this server makes.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct TypesPolicy {
    /// Media types, each with the extensions that it stands for. Without any block, `html`, `gif`
    /// and `jpg` are known.
    #[directive(name = "types", block, repeat, syntax = "{ type extension ...; ... }")]
    pub tables: Vec<TypeTable>,
    /// The media type of names whose extension stands in no block of `types`.
    #[directive(name = "default_type", default = "text/plain")]
    pub default: MediaType,
}

/// A media type as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaType(pub Bytes);

impl FromArgs for MediaType {
    const SYNTAX: &'static str = "mime-type";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let word = args.one()?;
        Ok(MediaType(Bytes::from(word.text.clone())))
    }
}

/// One block of types; clones share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeTable(Arc<HashMap<Box<[u8]>, Bytes>>);

impl FromArgs for TypeTable {
    const SYNTAX: &'static str = "";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        if !args.words.is_empty() {
            return Err(ArgError::Count);
        }
        let mut table: HashMap<Box<[u8]>, Bytes> = HashMap::new();
        for line in args.body.unwrap_or_default() {
            let media_type = Bytes::from(line.name.text.clone());
            for word in &line.args {
                let extension = word.text.to_ascii_lowercase().into_bytes();
                let previous = table.insert(extension.into_boxed_slice(), media_type.clone());
                if let Some(previous) = previous {
                    let message = format!(
                        "duplicate extension \"{}\", content type: \"{}\", \
                         previous content type: \"{}\"",
                        word.text,
                        line.name.text,
                        String::from_utf8_lossy(&previous)
                    );
                    args.cx.diagnostics.push_warning(word.span, message);
                }
            }
        }
        Ok(TypeTable(Arc::new(table)))
    }
}

impl TypesPolicy {
    /// The media type for a path.
    pub fn type_of(&self, path: &[u8]) -> Bytes {
        match extension(path) {
            Some(extension) => self
                .find(extension)
                .unwrap_or_else(|| self.default.0.clone()),
            None => self.default.0.clone(),
        }
    }

    fn find(&self, extension: &[u8]) -> Option<Bytes> {
        let mut small = [0; MAX_EXTENSION];
        let small = small.get_mut(..extension.len())?;
        small.copy_from_slice(extension);
        small.make_ascii_lowercase();
        let small: &[u8] = small;
        if self.tables.is_empty() {
            let known = BUILT_IN.iter().find(|(name, _)| *name == small)?;
            return Some(Bytes::from_static(known.1));
        }
        let mut tables = self.tables.iter().rev();
        tables.find_map(|table| table.0.get(small).cloned())
    }
}

/// The media type for the path of a request.
pub(crate) fn content_type(req: &Request) -> Bytes {
    req.location
        .settings
        .of::<ContentSettings>()
        .types
        .type_of(&req.uri)
}

/// The extension of a path's last segment.
fn extension(path: &[u8]) -> Option<&[u8]> {
    let at = path.iter().rposition(|byte| matches!(byte, b'.' | b'/'))?;
    // nginx: a name that begins with the dot has no extension.
    let is_dot = path.get(at) == Some(&b'.');
    let before = at.checked_sub(1).and_then(|before| path.get(before));
    if !is_dot || at < 2 || before == Some(&b'/') {
        return None;
    }
    path.get(at + 1..).filter(|extension| !extension.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(tables: Vec<TypeTable>) -> TypesPolicy {
        TypesPolicy {
            tables,
            default: MediaType(Bytes::from_static(b"text/plain")),
        }
    }

    fn table(lines: &[(&str, &'static str)]) -> TypeTable {
        let lines = lines.iter();
        let lines =
            lines.map(|(name, of)| (name.as_bytes().into(), Bytes::from_static(of.as_bytes())));
        TypeTable(Arc::new(lines.collect()))
    }

    #[test]
    fn extension_is_what_follows_the_last_dot_of_the_name() {
        for (path, expected) in [
            ("/a.html", Some("html")),
            ("/a.tar.gz", Some("gz")),
            ("/a", None),
            ("/.html", None),
            ("/d/.html", None),
            ("/d.x/a", None),
            ("/d.x/", None),
            ("/a.", None),
            ("a.b", None),
            ("", None),
        ] {
            assert_eq!(
                extension(path.as_bytes()),
                expected.map(str::as_bytes),
                "{path}"
            );
        }
    }

    #[test]
    fn built_in_types_serve_until_there_is_a_block() {
        let without = policy(vec![]);
        assert_eq!(without.type_of(b"/a.HTML"), "text/html");
        assert_eq!(without.type_of(b"/a.png"), "text/plain");
        let with = policy(vec![table(&[("foo", "text/foo")])]);
        assert_eq!(with.type_of(b"/a.foo"), "text/foo");
        assert_eq!(with.type_of(b"/a.html"), "text/plain");
        let long = [b"/a.".as_slice(), &[b'x'; 200]].concat();
        assert_eq!(with.type_of(&long), "text/plain");
    }

    #[test]
    fn later_block_of_the_same_level_wins() {
        let both = policy(vec![
            table(&[("a", "x/1"), ("b", "x/2")]),
            table(&[("a", "x/3")]),
        ]);
        assert_eq!(both.type_of(b"/f.a"), "x/3");
        assert_eq!(both.type_of(b"/f.b"), "x/2");
    }
}
