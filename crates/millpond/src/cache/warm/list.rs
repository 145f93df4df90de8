//! The URLs: lines of a list or of a catalogue, and those of sitemaps (sitemaps.org).
//!
//! 1. A sitemap that names sitemaps leads to them, `DEPTH` deep and `SITEMAPS_MAX` in all.
//! 2. A sitemap is no longer than `SITEMAP_MAX`, compressed or not.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::MultiGzDecoder;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use super::ask;
use super::options::Options;
use crate::url::Url;

/// Sitemaps in sitemaps in sitemaps (the protocol knows one level).
const DEPTH: usize = 3;
/// Sitemaps in all.
const SITEMAPS_MAX: usize = 10_000;
/// The longest sitemap: the protocol's 50 MB, and some.
const SITEMAP_MAX: usize = 64 << 20;
/// First bytes of what gzip has compressed (RFC 1952 §2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The URLs of a file, or of the standard input.
pub(super) fn read(path: &str, scheme: &str) -> Result<Vec<String>> {
    if path == "-" {
        return lines(std::io::stdin().lock(), scheme).context("the standard input");
    }
    let file = File::open(path).with_context(|| path.to_owned())?;
    lines(BufReader::new(file), scheme).with_context(|| path.to_owned())
}

fn lines(from: impl BufRead, scheme: &str) -> Result<Vec<String>> {
    let mut urls = Vec::new();
    for (number, line) in from.lines().enumerate() {
        let line = line?;
        let url = of_line(line.trim(), scheme).with_context(|| format!("line {}", number + 1))?;
        urls.extend(url);
    }
    Ok(urls)
}

/// The URL of a line; none if it has none on purpose. One without a scheme gets this one: not every
/// cache key tells it.
fn of_line(line: &str, scheme: &str) -> Result<Option<String>> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let is_entry = line.starts_with('{');
    let named = if is_entry {
        let entry: serde_json::Value = serde_json::from_str(line)?;
        // An entry whose key is no URL cannot be asked for.
        let Some(url) = entry["url"].as_str() else {
            return Ok(None);
        };
        url.to_owned()
    } else {
        line.to_owned()
    };
    let url = if named.starts_with("//") {
        format!("{scheme}:{named}")
    } else {
        named
    };
    match Url::parse(&url) {
        Ok(_) => Ok(Some(url)),
        // A catalogue has whatever clients have asked for.
        Err(error) if is_entry => {
            eprintln!("millpond: {url:?}: {error}: not asked for");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The URLs of a sitemap, and of those that it names.
pub(super) async fn sitemap(options: &Rc<Options>, url: &str) -> Result<Vec<String>> {
    let mut seen = HashSet::from([url.to_owned()]);
    let (mut level, mut urls) = (vec![url.to_owned()], Vec::new());
    for _ in 0..=DEPTH {
        let mut next = Vec::new();
        for url in std::mem::take(&mut level) {
            let text = fetch(options, &url).await.with_context(|| url.clone())?;
            let sitemap = parse(&text).with_context(|| url.clone())?;
            urls.extend(sitemap.pages);
            next.extend(
                sitemap
                    .sitemaps
                    .into_iter()
                    .filter(|it| seen.insert(it.clone())),
            );
        }
        ensure!(
            seen.len() <= SITEMAPS_MAX,
            "more than {SITEMAPS_MAX} sitemaps"
        );
        if next.is_empty() {
            return Ok(urls);
        }
        level = next;
    }
    bail!("sitemaps that lead deeper than {DEPTH}")
}

async fn fetch(options: &Rc<Options>, url: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut is_long = false;
    let mut keep = |piece: &[u8]| {
        is_long |= bytes.len() + piece.len() > SITEMAP_MAX;
        if !is_long {
            bytes.extend_from_slice(piece);
        }
    };
    let status = ask::get(options, url, &mut keep).await?.status;
    ensure!(status == 200, "it is answered with {status}");
    ensure!(!is_long, "it is longer than {SITEMAP_MAX} bytes");
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut text = Vec::new();
    let most = SITEMAP_MAX as u64 + 1;
    MultiGzDecoder::new(&bytes[..])
        .take(most)
        .read_to_end(&mut text)?;
    ensure!(
        text.len() <= SITEMAP_MAX,
        "it is longer than {SITEMAP_MAX} bytes"
    );
    Ok(text)
}

/// Names in a sitemap.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sitemap {
    pages: Vec<String>,
    sitemaps: Vec<String>,
}

/// Reads a sitemap: the text of each `loc` that stands in a `url` or in a `sitemap`.
fn parse(text: &[u8]) -> Result<Sitemap> {
    let text = std::str::from_utf8(text).context("it is not in UTF-8")?;
    let mut reader = Reader::from_str(text);
    let (mut found, mut open, mut loc) = (Sitemap::default(), Vec::new(), String::new());
    loop {
        match reader.read_event()? {
            Event::Eof => break,
            Event::Start(tag) => {
                open.push(tag.local_name().as_ref().to_owned());
                loc.clear();
            }
            Event::Text(part) => loc.push_str(&part),
            Event::CData(part) => loc.push_str(&part),
            Event::GeneralRef(name) => match name.resolve_char_ref()? {
                Some(letter) => loc.push(letter),
                None => {
                    let letter = resolve_predefined_entity(&name);
                    loc.push_str(letter.with_context(|| format!("the entity {}", &*name))?);
                }
            },
            Event::End(_) => {
                let ends = open.pop().is_some_and(|name| name == "loc");
                let of = open.last().map(String::as_str);
                match (ends, of) {
                    (true, Some("url")) => found.pages.push(asked(&loc)?),
                    (true, Some("sitemap")) => found.sitemaps.push(asked(&loc)?),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    ensure!(open.is_empty(), "it is cut off");
    Ok(found)
}

fn asked(text: &str) -> Result<String> {
    let url = text.trim();
    Url::parse(url).with_context(|| format!("\"{url}\""))?;
    Ok(url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_urls_or_entries_of_a_catalogue() {
        let text = "# pages\nhttp://a/x\n\n{\"url\":\"https://b/y?z\",\"hits\":3}\n{\"key\":\"k\"}\n//c/\n\
                    {\"url\":\"//c/\u{fffd}\"}\n";
        let urls = lines(text.as_bytes(), "https").unwrap();
        assert_eq!(urls, ["http://a/x", "https://b/y?z", "https://c/"]);
        for text in ["a/x\n", "{\"url\":\n", "ftp://a/\n", "http://a/b c\n"] {
            let error = lines(format!("\n{text}").as_bytes(), "http").unwrap_err();
            assert!(format!("{error:#}").starts_with("line 2"), "{error:#}");
        }
    }

    #[test]
    fn a_sitemap_names_pages_and_sitemaps() {
        let text = "<?xml version='1.0'?><urlset xmlns='x' xmlns:image='y'>\
            <url><loc> http://a/?x=1&amp;y=&#50; </loc><image:image><image:loc>http://a/i.png\
            </image:loc></image:image></url><url><loc><![CDATA[http://a/b]]></loc></url></urlset>";
        let found = parse(text.as_bytes()).unwrap();
        assert_eq!(found.pages, ["http://a/?x=1&y=2", "http://a/b"]);
        let text = "<sitemapindex><sitemap><loc>http://a/s.xml.gz</loc></sitemap></sitemapindex>";
        assert_eq!(
            parse(text.as_bytes()).unwrap().sitemaps,
            ["http://a/s.xml.gz"]
        );
    }

    #[test]
    fn what_is_no_sitemap_is_refused() {
        for text in [
            "<urlset><url>",
            "<urlset><url><loc>nowhere</loc></url></urlset>",
            "<urlset><url><loc>http://a/&what;</loc></url></urlset>",
            "<a></b>",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
