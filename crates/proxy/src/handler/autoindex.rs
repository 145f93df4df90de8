//! `autoindex`, `autoindex_format`, `autoindex_exact_size`, `autoindex_localtime`: lists of folders
//! that no file stands for.
//!
//! Folders come first, then everything else, both by the bytes of their names. The page for people
//! has a line for each: its name, cut after `NAME_WIDTH` characters, the time of its change and its
//! size. The other formats are for programs, and have times in UTC and sizes in bytes.
//!
//! Sources: nginx ngx_http_autoindex_module.

use std::fmt::Write as _;

use bytes::Bytes;
use millpond_semantics::date::{civil, format_http_date};
use millpond_semantics::uri::{EscapeKind, escape_html, escape_into};
use millpond_system::clock;
use millpond_system::log::stamp::offset_at;
use millpond_wire::http1::Method;

use super::folder::{self, Entry};
use crate::content::open_file::Kind;
use crate::content::path;
use crate::filter::charset;
use crate::handler::settings::HandlerSettings;
use crate::request::Request;
use crate::var::request::argument;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;

/// Characters of a name that the page shows.
const NAME_WIDTH: usize = 50;
/// The length of the part that is shown of a longer name, before two dots and an angle.
const NAME_CUT: usize = NAME_WIDTH - 3;
/// The longest name of a function that JSONP may call (nginx: 128).
const CALLBACK_MAX: usize = 128;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// Lists of folders.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct AutoIndexPolicy {
    /// Answers a request for a folder without an index file with a list of the folder's entries;
    /// entries whose names begin with a dot are left out.
    ///
    /// # Differs from nginx
    ///
    /// A folder with more than 100,000 entries is answered with 500.
    #[directive(name = "autoindex", default = "off")]
    pub enabled: bool,
    /// The format of lists. With `jsonp`, the argument `callback` of the request names the function
    /// that is called; without it the list is JSON.
    #[directive(name = "autoindex_format", default = "html")]
    pub format: ListFormat,
    /// Gives the page times of the local zone; else they are of UTC.
    #[directive(name = "autoindex_localtime", default = "off")]
    pub is_local: bool,
    /// Gives the page sizes in bytes; else they are rounded to K, M and G.
    #[directive(name = "autoindex_exact_size", default = "on")]
    pub is_exact: bool,
}

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum ListFormat {
    /// A page.
    #[word("html")]
    Html,
    /// An array.
    #[word("json")]
    Json,
    /// A call with an array.
    #[word("jsonp")]
    JsonP,
    /// A document.
    #[word("xml")]
    Xml,
}

/// The form of the lines of a page.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// True if names are counted by characters of UTF-8; else by bytes.
    is_utf8: bool,
    is_exact: bool,
    /// Seconds that the page's times are ahead of UTC.
    offset: i32,
}

/// Answers with the list of the folder; `None` where none is wanted.
pub(crate) fn run(req: &mut Request) -> Result<Option<Response>, Failure> {
    let policy = &req.location.settings.of::<HandlerSettings>().autoindex;
    if !policy.enabled || !matches!(req.method, Method::Get | Method::Head) {
        return Ok(None);
    }
    let format = policy.format;
    let callback = match format {
        ListFormat::JsonP => callback(&req.args).ok_or(Failure::Status(400))?,
        _ => &[],
    };
    let callback = Bytes::copy_from_slice(callback);
    let path = path::map(req)?;
    let folder = folder::open(req, &path.bytes)?;
    let content_type = match format {
        ListFormat::Html => "text/html",
        ListFormat::Xml => "text/xml; charset=utf-8",
        ListFormat::JsonP if !callback.is_empty() => "application/javascript",
        ListFormat::Json | ListFormat::JsonP => "application/json",
    };
    let mut body = Vec::new();
    if !req.is_head() {
        let mut entries = folder.read(req)?;
        entries.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
        match format {
            ListFormat::Html => write_page(req, &entries, &mut body),
            ListFormat::Xml => write_xml(&entries, &mut body),
            ListFormat::Json | ListFormat::JsonP => write_json(&callback, &entries, &mut body),
        }
    }
    let content_type = Bytes::from_static(content_type.as_bytes());
    let mut response = Response::text(200, content_type, Bytes::from(body));
    // nginx: the head is sent before the folder is read.
    response.length = None;
    Ok(Some(response))
}

/// The sort key of an entry in the list.
fn place(entry: &Entry) -> (bool, &[u8]) {
    (entry.kind != Kind::Directory, &entry.name)
}

/// The function that the request names, empty for none; `None` if it is no name.
fn callback(args: &[u8]) -> Option<&[u8]> {
    let name = argument(args, b"callback").unwrap_or_default();
    let mut bytes = name.iter();
    let is_name = bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    (is_name && name.len() <= CALLBACK_MAX).then_some(name)
}

fn write_page(req: &mut Request, entries: &[Entry], out: &mut Vec<u8>) {
    let charset = charset::name_for(req, b"text/html");
    let policy = &req.location.settings.of::<HandlerSettings>().autoindex;
    let page = Page {
        is_utf8: charset.is_some_and(|name| name.eq_ignore_ascii_case(b"utf-8")),
        is_exact: policy.is_exact,
        offset: if policy.is_local {
            offset_at(clock::now_ms().div_euclid(1000))
        } else {
            0
        },
    };
    let title = escape_html(&req.uri);
    out.extend_from_slice(b"<html>\r\n<head><title>Index of ");
    out.extend_from_slice(&title);
    out.extend_from_slice(b"</title></head>\r\n<body>\r\n<h1>Index of ");
    out.extend_from_slice(&title);
    out.extend_from_slice(b"</h1><hr><pre><a href=\"../\">../</a>\r\n");
    for entry in entries {
        page.write_line(entry, out);
    }
    out.extend_from_slice(b"</pre><hr></body>\r\n</html>\r\n");
}

impl Page {
    fn write_line(self, entry: &Entry, out: &mut Vec<u8>) {
        let is_folder = entry.kind == Kind::Directory;
        out.extend_from_slice(b"<a href=\"");
        escape_into(&entry.name, EscapeKind::UriComponent, out);
        out.extend_from_slice(if is_folder { b"/\">" } else { b"\">" });
        let (shown, mut width) = self.shown(&entry.name);
        out.extend_from_slice(&escape_html(shown));
        if width > NAME_WIDTH {
            out.extend_from_slice(b"..&gt;</a>");
        } else {
            if is_folder && width < NAME_WIDTH {
                out.push(b'/');
                width += 1;
            }
            out.extend_from_slice(b"</a>");
            out.resize(out.len() + NAME_WIDTH - width, b' ');
        }
        let mut rest = String::new();
        self.write_facts(entry, &mut rest);
        out.extend_from_slice(rest.as_bytes());
    }

    /// The part of a name that is shown, and the count of characters of the whole name.
    fn shown(self, name: &[u8]) -> (&[u8], usize) {
        let text = str::from_utf8(name).ok().filter(|_| self.is_utf8);
        let Some(text) = text else {
            let len = name.len();
            let end = if len > NAME_WIDTH { NAME_CUT } else { len };
            return (name.get(..end).unwrap_or_default(), len);
        };
        let count = text.chars().count();
        let end = match text.char_indices().nth(NAME_CUT) {
            Some((end, _)) if count > NAME_WIDTH => end,
            _ => name.len(),
        };
        (name.get(..end).unwrap_or_default(), count)
    }

    /// Time and size. Writing into a String never fails.
    fn write_facts(self, entry: &Entry, out: &mut String) {
        let at = civil(entry.modified.saturating_add(i64::from(self.offset)));
        let month = at.month_name();
        let month = String::from_utf8_lossy(&month);
        let _ = write!(
            out,
            " {:02}-{month}-{} {:02}:{:02} ",
            at.day, at.year, at.hour, at.minute
        );
        let is_folder = entry.kind == Kind::Directory;
        let _ = match (self.is_exact, is_folder) {
            (true, true) => write!(out, "{:>19}", '-'),
            (true, false) => write!(out, "{:>19}", entry.len),
            (false, true) => write!(out, "{:>7}", '-'),
            (false, false) => write!(out, "{:>7}", rounded(entry.len)),
        };
        out.push_str("\r\n");
    }
}

/// A size in as few digits as tell enough.
fn rounded(len: u64) -> String {
    let (unit, letter) = match len {
        len if len >= GIB => (GIB, "G"),
        len if len >= MIB => (MIB, "M"),
        len if len > 9999 => (KIB, "K"),
        len => return len.to_string(),
    };
    let whole = len / unit + u64::from(len % unit >= unit / 2);
    format!("{whole}{letter}")
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Directory => "directory",
        Kind::File => "file",
        Kind::Other => "other",
    }
}

fn write_json(callback: &[u8], entries: &[Entry], out: &mut Vec<u8>) {
    if !callback.is_empty() {
        out.extend_from_slice(b"/* callback */\r\n");
        out.extend_from_slice(callback);
        out.push(b'(');
    }
    out.push(b'[');
    for (at, entry) in entries.iter().enumerate() {
        out.extend_from_slice(if at > 0 { b",\r\n" } else { b"\r\n" });
        out.extend_from_slice(b"{ \"name\":\"");
        escape_json(&entry.name, out);
        let (word, date) = (word(entry.kind), format_http_date(entry.modified));
        let date = String::from_utf8_lossy(&date);
        let facts = format!("\", \"type\":\"{word}\", \"mtime\":\"{date}\"");
        out.extend_from_slice(facts.as_bytes());
        if entry.kind == Kind::File {
            out.extend_from_slice(format!(", \"size\":{}", entry.len).as_bytes());
        }
        out.extend_from_slice(b" }");
    }
    out.extend_from_slice(b"\r\n]");
    if !callback.is_empty() {
        out.extend_from_slice(b");");
    }
}

/// RFC 8259 §7; bytes that are no UTF-8 stay as they are, as in nginx.
fn escape_json(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04X}").as_bytes()),
            _ => out.push(byte),
        }
    }
}

fn write_xml(entries: &[Entry], out: &mut Vec<u8>) {
    out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n");
    for entry in entries {
        let (word, at) = (word(entry.kind), civil(entry.modified));
        let head = format!(
            "<{word} mtime=\"{}-{:02}-{:02}T{:02}:{:02}:{:02}Z\"",
            at.year, at.month, at.day, at.hour, at.minute, at.second
        );
        out.extend_from_slice(head.as_bytes());
        if entry.kind == Kind::File {
            out.extend_from_slice(format!(" size=\"{}\"", entry.len).as_bytes());
        }
        out.push(b'>');
        out.extend_from_slice(&escape_html(&entry.name));
        out.extend_from_slice(format!("</{word}>\r\n").as_bytes());
    }
    out.extend_from_slice(b"</list>\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, len: u64) -> Entry {
        Entry {
            name: name.as_bytes().to_vec(),
            kind: Kind::File,
            len,
            modified: 1_000_000_000,
        }
    }

    fn line(is_utf8: bool, entry: &Entry) -> String {
        let page = Page {
            is_utf8,
            is_exact: true,
            offset: 0,
        };
        let mut out = Vec::new();
        page.write_line(entry, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sizes_are_rounded_to_the_nearest() {
        for (len, expected) in [
            (0, "0"),
            (9_999, "9999"),
            (10_000, "10K"),
            (10_751, "10K"),
            (10_752, "11K"),
            (MIB - 1, "1024K"),
            (MIB, "1M"),
            (MIB + MIB / 2 - 1, "1M"),
            (MIB + MIB / 2, "2M"),
            (GIB - 1, "1024M"),
            (GIB, "1G"),
            (3 * GIB / 2, "2G"),
        ] {
            assert_eq!(rounded(len), expected, "{len}");
        }
    }

    #[test]
    fn names_are_cut_by_characters_where_the_page_is_utf8() {
        let name = "ф".repeat(50);
        let shown = format!(">{name}</a> 09-Sep-2001 01:46 ");
        assert!(line(true, &file(&name, 1)).contains(&shown));
        let longer = "ф".repeat(51);
        let cut = format!(">{}..&gt;</a> 09", "ф".repeat(47));
        assert!(line(true, &file(&longer, 1)).contains(&cut));
        let bytes = "a".repeat(51);
        let cut = format!(">{}..&gt;</a> 09", "a".repeat(47));
        assert!(line(false, &file(&bytes, 1)).contains(&cut));
    }

    #[test]
    fn names_are_escaped_for_their_place() {
        let line = line(false, &file("a:<&>?\"", 7));
        let expected = "<a href=\"a%3A%3C%26%3E%3F%22\">a:&lt;&amp;&gt;?&quot;</a>";
        assert!(line.starts_with(expected), "{line}");
        let mut out = Vec::new();
        write_json(b"f", &[file("\"\\\n\u{1}", 7)], &mut out);
        let expected = "/* callback */\r\nf([\r\n{ \"name\":\"\\\"\\\\\\n\\u0001\", \
            \"type\":\"file\", \"mtime\":\"Sun, 09 Sep 2001 01:46:40 GMT\", \"size\":7 }\r\n]);";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn callbacks_are_names_or_nothing() {
        let long = format!("callback={}", "a".repeat(129));
        for (args, expected) in [
            ("", Some("")),
            ("callback=", Some("")),
            ("x=1&callback=a.b_1", Some("a.b_1")),
            ("callback=a(1)", None),
            (&long, None),
        ] {
            assert_eq!(
                callback(args.as_bytes()),
                expected.map(str::as_bytes),
                "{args}"
            );
        }
    }
}
