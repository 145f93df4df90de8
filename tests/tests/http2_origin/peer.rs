//! Origins of HTTP/2: the engine in the role of a server, with a script for each request, and
//! frames that are written by hand.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::{Bytes, BytesMut};
use millpond_testkit::{Kind, LogCheck, Proxy};
use millpond_wire::header::{Field, Fields};
use millpond_wire::http2::{BodyLength, Config, Connection as Engine, End, Event, Role};

pub(crate) const WAIT: Duration = Duration::from_secs(10);

const CONF: &str = "
    upstream kept { server 127.0.0.1:%%PEER%%; keepalive 4; }
    server {
        listen 127.0.0.1:%%PORT%%;
        client_max_body_size 8m;
        location / { proxy_pass http://kept; proxy_http_version 2; }
        location /new/ { proxy_pass http://127.0.0.1:%%PEER%%; proxy_http_version 2; }
        location /live/ {
            proxy_pass http://kept;
            proxy_http_version 2;
            proxy_request_buffering off;
            proxy_buffering off;
        }
        location /pkg. { grpc_pass grpc://kept; grpc_set_header X-Set $request_method; }
        location /var/ { grpc_pass $arg_to; }
        location /dead/ { grpc_pass 127.0.0.1:1; error_page 502 = /unavailable; }
        location = /unavailable {
            internal;
            default_type application/grpc;
            add_header grpc-status 14;
            return 204;
        }
    }";

/// A request as the origin has heard it.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) connection: usize,
    pub(crate) stream: u32,
    pub(crate) line: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Heard {
    pub(crate) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(it, _)| it == name);
        found.next().map(|(_, value)| &**value)
    }
}

/// The treatment of a request by an origin.
pub(crate) type Script = Arc<dyn Fn(&mut Talk, &Heard) -> Result<()> + Send + Sync>;

/// An origin.
pub(crate) struct Peer {
    pub(crate) port: u16,
    pub(crate) heard: Arc<Mutex<Vec<Heard>>>,
}

impl Peer {
    pub(crate) fn start(
        config: Config,
        script: impl Fn(&mut Talk, &Heard) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Peer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (on_thread, script): (_, Script) = (Arc::clone(&heard), Arc::new(script));
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().flatten().enumerate() {
                let (heard, script) = (Arc::clone(&on_thread), Arc::clone(&script));
                std::thread::spawn(move || {
                    // A connection that ends is the end of its thread.
                    let _ = Talk::new(socket, Role::Server, config)
                        .and_then(|mut talk| talk.serve(number + 1, &heard, &*script));
                });
            }
        });
        Ok(Peer { port, heard })
    }

    /// One that answers every request by its path.
    pub(crate) fn simple() -> Result<Peer> {
        Peer::start(Config::default(), |talk, heard| {
            talk.body(heard.stream)?;
            talk.answer(heard.stream, &[], heard.path().to_owned())
        })
    }

    pub(crate) fn proxy(&self, kind: Kind) -> Result<Proxy> {
        self.proxy_of(kind, CONF)
    }

    pub(crate) fn proxy_of(&self, kind: Kind, conf: &str) -> Result<Proxy> {
        let proxy = Proxy::new(kind, conf).value("PEER", &self.port.to_string());
        proxy.log_check(LogCheck::Off).start()
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A connection as the origin has it.
pub(crate) struct Talk {
    pub(crate) socket: TcpStream,
    pub(crate) engine: Engine,
    pub(crate) input: BytesMut,
    /// True while the body of the request is to come.
    pub(crate) has_body: bool,
}

impl Talk {
    pub(crate) fn new(socket: TcpStream, role: Role, config: Config) -> Result<Talk> {
        socket.set_read_timeout(Some(WAIT))?;
        let mut talk = Talk {
            socket,
            engine: Engine::new(role, config),
            input: BytesMut::new(),
            has_body: false,
        };
        talk.flush()?;
        Ok(talk)
    }

    pub(crate) fn serve(
        &mut self,
        connection: usize,
        heard: &Mutex<Vec<Heard>>,
        script: &(dyn Fn(&mut Talk, &Heard) -> Result<()> + Send + Sync),
    ) -> Result<()> {
        loop {
            let Event::Request { stream, head, body } = self.next()? else {
                continue;
            };
            self.has_body = body != BodyLength::None;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let fields = head.fields().map(|it| (text(it.name), text(it.value)));
            let request = Heard {
                connection,
                stream,
                line: text(head.line()),
                fields: fields
                    .map(|(name, value)| (name.to_lowercase(), value))
                    .collect(),
            };
            heard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(request.clone());
            script(self, &request)?;
        }
    }

    pub(crate) fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.engine.next_event(&mut self.input, Duration::ZERO) {
                return Ok(event);
            }
            self.flush()?;
            let mut buf = [0; 16 * 1024];
            match self.socket.read(&mut buf)? {
                0 => bail!("closed"),
                count => self.input.extend_from_slice(&buf[..count]),
            }
        }
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        loop {
            self.engine.produce(64 * 1024);
            let Some(piece) = self.engine.output().take() else {
                return Ok(());
            };
            self.socket.write_all(&piece)?;
        }
    }

    /// The body of a request.
    pub(crate) fn body(&mut self, id: u32) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        if !self.has_body {
            return Ok(body);
        }
        loop {
            match self.next()? {
                Event::Data { stream, bytes } if stream == id => {
                    self.engine.consume(stream, bytes.len());
                    body.extend_from_slice(&bytes);
                }
                Event::End { stream, .. } if stream == id => return Ok(body),
                Event::Gone { why, .. } => bail!("gone: {why:?}"),
                _ => {}
            }
        }
    }

    /// Answers, with trailers if there are any.
    pub(crate) fn answer(
        &mut self,
        id: u32,
        trailers: &[(&str, &str)],
        body: String,
    ) -> Result<()> {
        self.engine.send_answer(id, (200, End::Later), |head| {
            head.any(b"content-type", b"application/grpc");
        });
        self.engine.push(id, Bytes::from(body));
        let trailers: Fields = trailers.iter().map(|it| field(it.0, it.1)).collect();
        self.engine.finish(id, Some(&trailers));
        self.flush()?;
        while !self.engine.is_sent(id) {
            self.next()?;
        }
        self.engine.release(id);
        self.flush()
    }
}

pub(crate) fn field(name: &str, value: &str) -> Field {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Field::new(bytes(name), bytes(value))
}

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let head = [&[a, b, c, kind, flags][..], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// A block of fields, each as it is.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let line = |it: &(&str, &str)| [vec![0], text(it.0), text(it.1)].concat();
    fields.iter().flat_map(line).collect()
}
