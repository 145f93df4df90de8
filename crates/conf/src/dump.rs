//! The text of `nginx -T`: all files of a configuration, one behind the other, from a machine that
//! need not be this one.
//!
//! ```text
//! nginx: configuration file /etc/nginx/nginx.conf test is successful (if both streams are kept)
//! # configuration file /etc/nginx/nginx.conf:
//! events { } …
//!
//! # configuration file /etc/nginx/conf.d/site.conf:
//! server { } …
//! ```
//!
//! The first file is the main one. Folders are what the paths of the files say of them, so that
//! patterns find the files that nginx has found.
//!
//! What it does not do: a line of a file that looks like a mark is taken for one.

use std::path::{Path, PathBuf};

use crate::files::Seen;

/// The begin of the line before a file; a colon ends it.
const MARK: &[u8] = b"# configuration file ";

/// Reads what `nginx -T` has printed: the path of the main file, and all files; none if there is no
/// file in it.
pub fn read_dump(text: &[u8]) -> Option<(PathBuf, Seen)> {
    let mut main = None;
    let mut seen = Seen::default();
    let mut file: Option<(PathBuf, Vec<u8>)> = None;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if let Some(path) = path_in(line) {
            main.get_or_insert_with(|| path.clone());
            finish(&mut seen, file.replace((path, Vec::new())));
        } else if let Some((_, content)) = &mut file {
            content.extend_from_slice(line);
        }
    }
    finish(&mut seen, file);
    Some((main?, seen))
}

/// The path that a line before a file names.
fn path_in(line: &[u8]) -> Option<PathBuf> {
    let named = line.strip_prefix(MARK)?.trim_ascii_end();
    let name = str::from_utf8(named.strip_suffix(b":")?).ok()?;
    let path = Path::new(name);
    path.is_absolute().then(|| path.to_owned())
}

/// Notes a file that has come to its end.
fn finish(seen: &mut Seen, file: Option<(PathBuf, Vec<u8>)>) {
    let Some((path, mut content)) = file else {
        return;
    };
    // nginx puts an end of line behind each file.
    if content.ends_with(b"\n\n") {
        content.pop();
    }
    seen.note(path, content);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Diagnostics, Files, LoadOptions, load};
    use std::sync::Arc;

    const DUMP: &str = "\
nginx: the configuration file /etc/nginx/nginx.conf syntax is ok
nginx: configuration file /etc/nginx/nginx.conf test is successful
# configuration file /etc/nginx/nginx.conf:
a;
include mime.types;
include /etc/nginx/conf.d/*.conf;
include sites-enabled/*;

# configuration file /etc/nginx/mime.types:
b;

# configuration file /etc/nginx/conf.d/2.conf:
d;

# configuration file /etc/nginx/conf.d/1.conf:
# configuration file is a comment
c;

# configuration file /etc/nginx/sites-enabled/default:
e;";

    #[test]
    fn files_of_another_machine_are_read_as_they_were_there() {
        let (main, seen) = read_dump(DUMP.as_bytes()).unwrap();
        assert_eq!(main, Path::new("/etc/nginx/nginx.conf"));
        let mut diagnostics = Diagnostics::new();
        let options = LoadOptions {
            files: Files::Seen(Arc::new(seen)),
            ..LoadOptions::default()
        };
        let tree = load(&main, &options, &mut diagnostics);
        let told: Vec<&str> = diagnostics.iter().map(|it| it.message.as_str()).collect();
        assert_eq!(told, [""; 0]);
        let names = tree.statements.iter().map(|it| it.name.text.as_str());
        assert_eq!(names.collect::<String>(), "abcde");
        let places = tree.sources.files().map(|file| file.path().to_owned());
        assert_eq!(places.count(), 5);
    }

    #[test]
    fn what_has_no_file_is_none() {
        for text in [
            "",
            "events { }",
            "# configuration file x:",
            "# configuration file /x",
            " # configuration file /x:",
        ] {
            assert!(read_dump(text.as_bytes()).is_none(), "{text}");
        }
    }
}
