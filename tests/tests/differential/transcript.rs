//! Transcript of a run, as pairs of key and value that can be compared.
//!
//! ```text
//! 1.status            200
//! 1.header.x-cache    MISS
//! 1.body              hello
//! origin.1.line       GET /a HTTP/1.1
//! ```
//!
//! Names are put back where ports and directories stand, and what must differ is evened out:
//! fields that are ignored, the server's name in error pages, the boundary of several ranges,
//! dates that are relative to now, and the bytes of a gzip coding (the text is compared, not its
//! compression).

use crate::scenario::{Scenario, Words};
use flate2::read::GzDecoder;
use millpond_testkit::{End, Fields, Proxy, Recorded, Response};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;

/// The key of why a server did not start.
pub const START: &str = "start";

/// Longest body that is shown; a longer one stands as its length and a hash.
const SHOWN: usize = 2048;

/// Names that stand for ports, origins and the directory, longest first.
#[derive(Clone)]
pub struct Names(Vec<(String, String)>);

impl Names {
    /// No names: for a server that did not start.
    pub fn none() -> Names {
        Names(Vec::new())
    }

    /// The names of a running proxy.
    pub fn new(proxy: &Proxy) -> Names {
        let mut pairs = vec![(proxy.dir().display().to_string(), "%%DIR%%".to_string())];
        for (name, value) in proxy.values() {
            if name.starts_with("PORT") {
                pairs.push((value.to_string(), format!("%%{name}%%")));
            } else {
                pairs.push((value.to_string(), format!("%%{name}%%")));
                if let Some((_, port)) = value.split_once(':')
                    && !port.contains('/')
                {
                    pairs.push((port.to_string(), format!("%%PORT OF {name}%%")));
                }
            }
        }
        pairs.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Names(pairs)
    }

    fn restore(&self, text: &str) -> String {
        self.0.iter().fold(text.to_string(), |text, (value, name)| {
            replace_word(&text, value, name)
        })
    }
}

/// Replaces `word` where no letter or digit stands next to it.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(word) {
        let touches =
            before.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric);
        out.push_str(before);
        out.push_str(if touches { word } else { by });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// A key whose values differ.
pub struct Difference {
    /// Key of the pair that differs.
    pub key: String,
    first: Option<String>,
    second: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<String>| match value {
            Some(value) => format!("{value:?}"),
            None => "nothing".to_string(),
        };
        write!(
            f,
            "{}: nginx {}, ours {}",
            self.key,
            show(&self.first),
            show(&self.second)
        )
    }
}

/// Transcript of a run.
pub struct Transcript {
    pairs: Vec<(String, String)>,
    names: Names,
    ignored: Vec<&'static str>,
    words: Words,
}

impl Transcript {
    /// An empty transcript; what the scenario ignores is left out.
    pub fn new(names: Names, scenario: &Scenario) -> Transcript {
        Transcript {
            pairs: Vec::new(),
            names,
            ignored: scenario.ignored.clone(),
            words: scenario.words,
        }
    }

    /// An empty transcript of the same kind.
    pub fn blank(&self) -> Transcript {
        Transcript {
            pairs: Vec::new(),
            names: self.names.clone(),
            ignored: self.ignored.clone(),
            words: self.words,
        }
    }

    /// Adds a fact.
    pub fn push(&mut self, key: &str, value: &str) {
        let value = self.names.restore(value);
        self.pairs.push((key.to_string(), value));
    }

    /// Adds a response under `prefix`.
    pub fn push_response(&mut self, prefix: &str, response: &Response) {
        let mut status = format!("{} {}", response.version, response.status);
        if self.words == Words::Compared {
            status.push(' ');
            status.push_str(&response.reason);
        }
        self.push(&format!("{prefix}.status"), &status);
        for interim in &response.interim {
            self.push(&format!("{prefix}.interim"), &interim.status.to_string());
        }
        let shown = ShownBody::of(response);
        let mut fields = response.headers.clone();
        for (name, value) in &mut fields.0 {
            *value = shown.field(name, value, response);
        }
        self.push_fields(&format!("{prefix}.header"), &fields);
        self.push(&format!("{prefix}.body"), &shown.text);
        self.push_fields(&format!("{prefix}.trailer"), &response.trailers);
        let end = match &response.end {
            End::Complete => "complete",
            End::Truncated(_) => "truncated",
        };
        self.push(&format!("{prefix}.end"), end);
    }

    /// Adds what an origin saw under `prefix`.
    pub fn push_requests(&mut self, prefix: &str, requests: &[Recorded]) {
        self.push(&format!("{prefix}.requests"), &requests.len().to_string());
        for (index, request) in requests.iter().enumerate() {
            let prefix = format!("{prefix}.{}", index + 1);
            let line = format!("{} {} {}", request.method, request.target, request.version);
            self.push(&format!("{prefix}.line"), &line);
            self.push_fields(&format!("{prefix}.header"), &request.headers);
            if !request.body.is_empty() {
                self.push(&format!("{prefix}.body"), &show(&request.body));
            }
        }
    }

    fn push_fields(&mut self, prefix: &str, fields: &Fields) {
        let mut by_name: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, value) in &fields.0 {
            let name = name.to_ascii_lowercase();
            by_name.entry(name).or_default().push(value);
        }
        for (name, values) in by_name {
            if !self.ignored.contains(&name.as_str()) {
                self.push(&format!("{prefix}.{name}"), &values.join("\n"));
            }
        }
    }

    /// Differences between `self` and `other`, in the order of the keys of `self`, then of `other`.
    pub fn differences(&self, other: &Transcript) -> Vec<Difference> {
        let first = self.values();
        let second = other.values();
        let mut keys: Vec<&str> = Vec::new();
        if first.contains_key(START) != second.contains_key(START) {
            // A server that did not start has nothing else to compare.
            keys.push(START);
            return differing(&keys, &first, &second);
        }
        for (key, _) in self.pairs.iter().chain(&other.pairs) {
            if !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
        differing(&keys, &first, &second)
    }

    /// The values by key; those of a key that stands twice are joined.
    fn values(&self) -> Values<'_> {
        let mut values: Values<'_> = BTreeMap::new();
        for (key, value) in &self.pairs {
            values
                .entry(key)
                .and_modify(|known| {
                    known.push('\n');
                    known.push_str(value);
                })
                .or_insert_with(|| value.clone());
        }
        values
    }
}

type Values<'a> = BTreeMap<&'a str, String>;

fn differing(keys: &[&str], first: &Values<'_>, second: &Values<'_>) -> Vec<Difference> {
    keys.iter()
        .map(|key| Difference {
            key: key.to_string(),
            first: first.get(key).cloned(),
            second: second.get(key).cloned(),
        })
        .filter(|difference| difference.first != difference.second)
        .collect()
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.pairs {
            writeln!(f, "{key}: {value:?}")?;
        }
        Ok(())
    }
}

/// A body with what must differ evened out.
struct ShownBody {
    text: String,
    /// True if the text is not what was sent, so that its length may differ.
    evened: Evened,
}

#[derive(Clone, PartialEq, Eq)]
enum Evened {
    No,
    ServerName,
    Boundary(String),
}

impl ShownBody {
    fn of(response: &Response) -> ShownBody {
        let body = if response.header("Content-Encoding") == Some("gzip") {
            unzip(&response.body)
        } else {
            response.body.clone()
        };
        let text = show(&body);
        let mark = "<hr><center>";
        if let Some((before, after)) = text.split_once(mark)
            && let Some((_, after)) = after.split_once("</center>")
        {
            return ShownBody {
                text: format!("{before}{mark}SERVER</center>{after}"),
                evened: Evened::ServerName,
            };
        }
        if let Some((_, boundary)) = response
            .header("Content-Type")
            .and_then(|value| value.split_once("boundary="))
        {
            return ShownBody {
                text: text.replace(boundary, "BOUNDARY"),
                evened: Evened::Boundary(boundary.to_string()),
            };
        }
        ShownBody {
            text,
            evened: Evened::No,
        }
    }

    /// A field's value with what depends on the evened body, or on the time of day, evened too.
    fn field(&self, name: &str, value: &str, response: &Response) -> String {
        if name.eq_ignore_ascii_case("Content-Length") && self.evened != Evened::No {
            let right = value == response.body.len().to_string();
            return if right { "of the body" } else { value }.to_string();
        }
        if let Evened::Boundary(boundary) = &self.evened {
            return value.replace(boundary, "BOUNDARY");
        }
        if name.eq_ignore_ascii_case("Expires")
            && let Some(expires) = seconds_of(value)
            && let Some(date) = response.header("Date").and_then(seconds_of)
            && expires.abs_diff(date) < 400 * 86_400
        {
            return format!("Date {:+} s", expires - date);
        }
        value.to_string()
    }
}

fn unzip(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    match GzDecoder::new(bytes).read_to_end(&mut text) {
        Ok(_) => text,
        Err(error) => format!("broken gzip: {error}").into_bytes(),
    }
}

/// A body as text; a long one as its length and hash.
fn show(body: &[u8]) -> String {
    if body.len() <= SHOWN {
        return body.iter().map(|byte| char::from(*byte)).collect();
    }
    // FNV-1a with 64 bits.
    let hash = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{} bytes, hash {hash:016x}", body.len())
}

/// Seconds since 1970 of a date like `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of(date: &str) -> Option<i64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let words: Vec<&str> = date.split([' ', ':']).collect();
    let [_, day, month, year, hour, minute, second, "GMT"] = words.as_slice() else {
        return None;
    };
    let number = |text: &&str| text.parse::<i64>().ok();
    let month = i64::try_from(MONTHS.find(month)? / 3).ok()? + 1;
    let (day, year) = (number(day)?, number(year)?);
    // Days from the civil calendar: the year begins in March, so that the leap day is its last.
    let shifted = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + day_of_year - 719_468;
    Some(((days * 24 + number(hour)?) * 60 + number(minute)?) * 60 + number(second)?)
}
