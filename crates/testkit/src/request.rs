//! Requests as tests say them, whatever protocol carries them.

use crate::message::{Fields, encode_latin1};

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method as it is written in the request line.
    pub method: String,
    /// Path and query, as they are written.
    pub target: String,
    pub(crate) fields: Fields,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    None,
    Length(Vec<u8>),
    Chunked(Vec<Vec<u8>>),
}

impl Request {
    /// A request without fields but `Host: localhost`.
    pub fn new(method: &str, target: &str) -> Request {
        Request {
            method: method.to_string(),
            target: target.to_string(),
            fields: Fields(vec![("Host".to_string(), "localhost".to_string())]),
            body: Body::None,
        }
    }

    /// A GET request.
    pub fn get(target: &str) -> Request {
        Request::new("GET", target)
    }

    /// A HEAD request.
    pub fn head(target: &str) -> Request {
        Request::new("HEAD", target)
    }

    /// A POST request with a body of known length.
    pub fn post(target: &str, body: impl AsRef<[u8]>) -> Request {
        Request::new("POST", target).body(body)
    }

    /// Adds a field.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.fields.push(name, value);
        self
    }

    /// Replaces the Host field.
    pub fn host(mut self, host: &str) -> Request {
        self.fields.0.retain(|(name, _)| name != "Host");
        self.fields
            .0
            .insert(0, ("Host".to_string(), host.to_string()));
        self
    }

    /// Sends a body with Content-Length.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Request {
        self.body = Body::Length(body.as_ref().to_vec());
        self
    }

    /// Sends a body as these chunks.
    pub fn chunks(mut self, chunks: &[&str]) -> Request {
        self.body = Body::Chunked(chunks.iter().map(|c| c.as_bytes().to_vec()).collect());
        self
    }

    /// The request's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = encode_latin1(&format!("{} {} HTTP/1.1\r\n", self.method, self.target));
        self.fields.encode(&mut out);
        match &self.body {
            Body::None => out.extend(b"\r\n"),
            Body::Length(body) => {
                out.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
                out.extend(body);
            }
            Body::Chunked(chunks) => {
                out.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for chunk in chunks {
                    out.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    out.extend(chunk);
                    out.extend(b"\r\n");
                }
                out.extend(b"0\r\n\r\n");
            }
        }
        out
    }
}
