//! `client_max_body_size`, `client_body_timeout`, `client_body_buffer_size`,
//! `client_body_in_file_only`, `client_body_in_single_buffer`, `client_body_temp_path`: request
//! bodies.
//!
//! A handler reads a body piece by piece (`Client::next_chunk`), collects it ([`read_all`]), or
//! leaves it to the wire.
//!
//! Invariants:
//! 1. Memory for a collected body never passes `client_body_buffer_size` by more than one read; the
//!    rest is in an unlinked or named file.
//! 2. A body longer than `client_max_body_size` is refused before it is stored anywhere.

use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use millpond_system::log::error::Level;
use millpond_system::temp_file::TempFile;

use crate::request::Request;
use millpond_exchange::client::body::{BodyFile, RequestBody};
use millpond_exchange::failure::Failure;
use millpond_exchange::settings::clients::body::{BodyPolicy, InFileOnly};

/// Refuses a streamed body when more has come than allowed.
pub fn check_received(req: &Request, received: u64) -> Result<(), Failure> {
    let max = req.location.settings.body.max_size.0;
    if max > 0 && received > max {
        Err(too_large(received))
    } else {
        Ok(())
    }
}

/// Refuses a body that is announced longer than allowed; called when the location is known.
pub fn check_announced(req: &Request) -> Result<(), Failure> {
    let max = req.location.settings.body.max_size.0;
    match req.body {
        RequestBody::Unread {
            length: Some(length),
        } if max > 0 && length > max => Err(too_large(length)),
        _ => Ok(()),
    }
}

fn too_large(length: u64) -> Failure {
    Failure::too_large(format!(
        "client intended to send too large body: {length} bytes"
    ))
}

/// True if [`read_all`] has something to do: a body is to come, or its client waits to be told to
/// go on, which nginx tells it also before a body that is empty.
pub fn is_to_be_read(req: &Request) -> bool {
    matches!(req.body, RequestBody::Unread { .. }) || req.client.waits_to_be_asked()
}

/// Collects the whole body into memory or a file.
pub async fn read_all(req: &mut Request) -> Result<(), Failure> {
    if req.is_clients_own() {
        // nginx: also before a body that is there already, or empty.
        req.client.ask_for_body().await?;
    }
    let RequestBody::Unread { length } = req.body else {
        return Ok(());
    };
    let policy = req.location.settings.body.clone();
    let mut sink = Sink::new(&policy, length);
    loop {
        let chunk = req.client.next_chunk(policy.timeout).await?;
        let is_end = chunk.is_empty();
        if is_end && (sink.file.is_some() || policy.in_file_only == InFileOnly::Off) {
            break;
        }
        // nginx: an empty body has a file, too, where files are asked for.
        sink.len += chunk.len() as u64;
        if policy.max_size.0 > 0 && sink.len > policy.max_size.0 {
            return Err(too_large(sink.len));
        }
        let was_in_memory = sink.file.is_none();
        sink.write(&policy, &chunk)?;
        if was_in_memory && let Some(temp) = &sink.file {
            note_file(req, &policy, temp);
        }
        if is_end || req.client.is_body_done() {
            break;
        }
    }
    req.body = sink.finish();
    Ok(())
}

/// nginx: that a body does not fit into its buffer is worth a warning, unless files were asked for.
fn note_file(req: &Request, policy: &BodyPolicy, temp: &TempFile) {
    let level = match policy.in_file_only {
        InFileOnly::Off => Level::Warn,
        InFileOnly::On | InFileOnly::Clean => Level::Notice,
    };
    let path = temp.path().display();
    let message = format_args!("a client request body is buffered to a temporary file {path}");
    crate::log::request_error::write(req, level, message);
}

/// Collector of a body.
struct Sink {
    memory: BytesMut,
    file: Option<TempFile>,
    len: u64,
}

impl Sink {
    fn new(policy: &BodyPolicy, length: Option<u64>) -> Self {
        let buffer = policy.buffer_size.0;
        let capacity = length.unwrap_or(0).min(buffer) as usize;
        Sink {
            memory: BytesMut::with_capacity(capacity),
            file: None,
            len: 0,
        }
    }

    fn write(&mut self, policy: &BodyPolicy, chunk: &[u8]) -> Result<(), Failure> {
        let fits = (self.memory.len() + chunk.len()) as u64 <= policy.buffer_size.0;
        if self.file.is_none() && fits && policy.in_file_only == InFileOnly::Off {
            self.memory.extend_from_slice(chunk);
            return Ok(());
        }
        let temp = match &mut self.file {
            Some(temp) => temp,
            None => {
                let temp = create_file(policy).map_err(Failure::disk)?;
                (&*temp.file)
                    .write_all(&self.memory)
                    .map_err(Failure::disk)?;
                self.memory.clear();
                self.file.insert(temp)
            }
        };
        (&*temp.file).write_all(chunk).map_err(Failure::disk)
    }

    fn finish(self) -> RequestBody {
        match self.file {
            Some(temp) => RequestBody::File(Rc::new(BodyFile {
                file: Arc::clone(&temp.file),
                path: temp.path().to_owned(),
                len: self.len,
                _temp: temp,
            })),
            None => RequestBody::Memory(self.memory.freeze()),
        }
    }
}

/// A file for a body.
fn create_file(policy: &BodyPolicy) -> std::io::Result<TempFile> {
    let mut temp = TempFile::create(&policy.temp_path)?;
    match policy.in_file_only {
        // nginx: nobody is to look for it by its name, and so nothing of it is left after a crash.
        InFileOnly::Off => temp.unlink()?,
        InFileOnly::Clean => {}
        // nginx: what came of a body that was broken off stays, too.
        InFileOnly::On => temp.keep(),
    }
    Ok(temp)
}
