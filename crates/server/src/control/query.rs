//! Parameters of the API: the query of a request, and values of it that are understood.
//!
//! A name may come once, and one that nobody knows is an error: a slip of the pen in a filter must
//! not list, or purge, everything. The error tells the names that there are.

use bytes::Bytes;
use millpond_semantics::uri::{EscapeKind, escape, unescape};

/// Names and values, in order.
pub type Parameters = Vec<(String, Bytes)>;

/// The segments of a target's path, and its parameters.
pub(super) fn split(target: &[u8]) -> (Vec<String>, Parameters) {
    let mut halves = target.splitn(2, |byte| *byte == b'?');
    let path = halves.next().unwrap_or_default();
    let query = halves.next().unwrap_or_default();
    let segments = path
        .split(|byte| *byte == b'/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| String::from_utf8_lossy(&unescape(segment)).into_owned());
    (segments.collect(), parameters(query))
}

/// The parameters of a query.
pub(crate) fn parameters(query: &[u8]) -> Parameters {
    let pairs = query.split(|byte| *byte == b'&');
    let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let name = unescape(halves.next().unwrap_or_default());
        let value = unescape(halves.next().unwrap_or_default());
        (
            String::from_utf8_lossy(&name).into_owned(),
            Bytes::from(value.into_owned()),
        )
    });
    pairs.collect()
}

/// A target for the segments of a path and parameters.
pub fn join(segments: &[String], parameters: &Parameters) -> String {
    let mut target = String::new();
    for segment in segments {
        target.push('/');
        target.push_str(&escaped(segment.as_bytes()));
    }
    for (index, (name, value)) in parameters.iter().enumerate() {
        target.push(if index == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        target.push_str(&escaped(value));
    }
    target
}

fn escaped(bytes: &[u8]) -> String {
    let escaped = escape(bytes, EscapeKind::UriComponent);
    String::from_utf8_lossy(&escaped).into_owned()
}

/// Parameters that are taken one after the other.
#[derive(Debug)]
pub(crate) struct Reader {
    left: Parameters,
    /// The names that were looked for.
    known: Vec<&'static str>,
}

impl Reader {
    pub(crate) fn new(parameters: &Parameters) -> Reader {
        Reader {
            left: parameters.clone(),
            known: Vec::new(),
        }
    }

    /// The value of a name, if it is there.
    pub(super) fn text(&mut self, name: &'static str) -> Option<Bytes> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        let at = self.left.iter().position(|(known, _)| known == name)?;
        Some(self.left.remove(at).1)
    }

    /// All values of a name that may come more than once.
    pub(super) fn texts(&mut self, name: &'static str) -> Vec<Bytes> {
        std::iter::from_fn(|| self.text(name)).collect()
    }

    /// A number.
    pub(super) fn number(&mut self, name: &'static str) -> Result<Option<u64>, String> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let number = std::str::from_utf8(&text).ok();
        match number.and_then(|text| text.parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("\"{name}\" must be a number")),
        }
    }

    /// True if a switch is on: its parameter is there, and is not `0`.
    pub(super) fn is_on(&mut self, name: &'static str) -> bool {
        self.text(name).is_some_and(|value| value.as_ref() != b"0")
    }

    /// Nothing else may be there.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => {
                let known = match self.known.as_slice() {
                    [] => "there are none".to_string(),
                    names => format!("there are {}", names.join(", ")),
                };
                Err(format!("unknown or repeated parameter \"{name}\": {known}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_is_split_again() {
        let parameters: Parameters = [
            ("key", &b"http://a/b?c=d&e#f%20 \xff\x00"[..]),
            ("empty", b""),
            ("plus", b"a+b"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_string(), Bytes::copy_from_slice(value)))
        .collect();
        let segments = ["zones".to_string(), "a b?/c".to_string()];
        let target = join(&segments, &parameters);
        assert!(target.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(split(target.as_bytes()), (segments.to_vec(), parameters));
        let expected = (vec!["a".to_string()], vec![("b".to_string(), Bytes::new())]);
        assert_eq!(split(b"/a/?&b"), expected);
    }

    #[test]
    fn every_parameter_is_understood_or_refused() {
        let read = |query: &str| Reader::new(&split(format!("/?{query}").as_bytes()).1);
        let mut reader = read("a=1&b=x&s&t=0");
        assert_eq!(reader.number("a"), Ok(Some(1)));
        assert_eq!(reader.number("a"), Ok(None));
        assert!(reader.number("b").is_err());
        assert!(reader.is_on("s") && !reader.is_on("t") && !reader.is_on("u"));
        assert_eq!(reader.end(), Ok(()));
        let mut twice = read("a=1&a=2");
        assert_eq!(twice.number("a"), Ok(Some(1)));
        assert!(twice.end().is_err());
        assert_eq!(read("t=a&t=b").texts("t"), [&b"a"[..], b"b"]);
        let mut slip = read("prefx=a");
        assert_eq!((slip.text("prefix"), slip.text("site")), (None, None));
        let said = slip.end().unwrap_err();
        assert!(
            said.ends_with("\"prefx\": there are prefix, site"),
            "{said}"
        );
    }
}
