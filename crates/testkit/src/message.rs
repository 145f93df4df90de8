//! Heads of HTTP/1.x messages: start line and fields, as they stood on the wire.
//!
//! Bytes outside of ASCII are kept as the characters of the same number (ISO 8859-1), so nothing is
//! lost and everything prints. Field order and the case of names are kept.
//!
//! 1. Parsing is strict: a line without CRLF, a missing colon or a folded line is an error, so
//!    that what a proxy sends badly cannot pass unseen.

use anyhow::{Context, Result, bail};

/// Header or trailer fields, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(String, String)>);

impl Fields {
    /// The first value of `name`, whatever its case.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Every value of `name`, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// True if `name` occurs.
    pub fn contains(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// True if a comma-separated list field holds `token`.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(','))
            .any(|item| item.trim().eq_ignore_ascii_case(token))
    }

    /// Appends a field.
    pub fn push(&mut self, name: &str, value: &str) {
        self.0.push((name.to_string(), value.to_string()));
    }

    /// Writes the fields, each with its CRLF.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.0 {
            out.extend(encode_latin1(name));
            out.extend(b": ");
            out.extend(encode_latin1(value));
            out.extend(b"\r\n");
        }
    }

    /// Parses field lines, without the empty line that ends them.
    pub(crate) fn parse(text: &str) -> Result<Fields> {
        let mut fields = Fields::default();
        for line in text.split_terminator("\r\n") {
            if line.contains(['\r', '\n']) || line.starts_with([' ', '\t']) {
                bail!("bad line end or folded line: {line:?}");
            }
            let (name, value) = line
                .split_once(':')
                .with_context(|| format!("field line without a colon: {line:?}"))?;
            if name.is_empty() || name.contains([' ', '\t']) {
                bail!("bad field name: {line:?}");
            }
            fields.push(name, value.trim_matches([' ', '\t']));
        }
        Ok(fields)
    }
}

/// A request's line and fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Method as written.
    pub method: String,
    /// Target as written, with its query.
    pub target: String,
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// Header fields.
    pub fields: Fields,
}

impl RequestHead {
    pub(crate) fn parse(bytes: &[u8]) -> Result<RequestHead> {
        let text = decode_latin1(bytes);
        let (line, fields) = text.split_once("\r\n").context("no CRLF")?;
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(method), Some(target), Some(version), None) => Ok(RequestHead {
                method: method.to_string(),
                target: target.to_string(),
                version: version.to_string(),
                fields: Fields::parse(fields)?,
            }),
            _ => bail!("bad request line: {line:?}"),
        }
    }
}

/// A response's line and fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// The status code.
    pub status: u16,
    /// Words behind the status.
    pub reason: String,
    /// Header fields.
    pub fields: Fields,
}

impl ResponseHead {
    pub(crate) fn parse(bytes: &[u8]) -> Result<ResponseHead> {
        let text = decode_latin1(bytes);
        let (line, fields) = text.split_once("\r\n").context("no CRLF")?;
        let mut words = line.splitn(3, ' ');
        let version = words.next().unwrap_or_default();
        let status = words.next().unwrap_or_default();
        if !version.starts_with("HTTP/1.") {
            bail!("bad status line: {line:?}");
        }
        Ok(ResponseHead {
            version: version.to_string(),
            status: status
                .parse()
                .with_context(|| format!("bad status line: {line:?}"))?,
            reason: words.next().unwrap_or_default().to_string(),
            fields: Fields::parse(fields)?,
        })
    }
}

/// Bytes as the characters of the same number.
pub(crate) fn decode_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The reverse of `decode_latin1`; characters that have no byte are written as UTF-8.
pub(crate) fn encode_latin1(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u8::try_from(character) {
            Ok(byte) => out.push(byte),
            Err(_) => out.extend(character.to_string().bytes()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_keep_order_and_case_and_bad_ones_are_refused() {
        let head = ResponseHead::parse(b"HTTP/1.1 200 OK\r\nX-B: 1\r\nx-a:  2 \r\n").unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.fields.value("X-A"), Some("2"));
        assert_eq!(head.fields.0[0].0, "X-B");
        for bad in [
            &b"HTTP/1.1 200 OK\r\nno colon\r\n"[..],
            b"HTTP/1.1 200 OK\r\nA: 1\r\n folded\r\n",
            b"HTTP/1.1 200 OK\r\nA : 1\r\n",
            b"HTTP/1.1 abc\r\n",
            b"ICY 200\r\n",
        ] {
            assert!(ResponseHead::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_byte_survives_decoding() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(encode_latin1(&decode_latin1(&bytes)), bytes);
    }
}
