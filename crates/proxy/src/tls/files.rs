//! Files of certificates, keys and lists, read while a configuration is.
//!
//! Each file is read once for a configuration, however many servers and locations name it: one that
//! is a pipe has its bytes only once.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millpond_conf::{Files as Source, ParseContext, Span};
use millpond_tls::Identity;
use millpond_tls::certificate::failure::{Failure, Thing};
use millpond_tls::certificate::password::{self, Password};

use super::objects;
use super::settings::FileName;
use millpond_exchange::scope::build::Builder;

/// The files that were read so far.
#[derive(Default)]
pub struct Files {
    source: Source,
    known: HashMap<PathBuf, Arc<[u8]>>,
}

/// Mistake at a place of the configuration.
pub type Mistake = (Span, String);

impl Files {
    /// The files of a configuration that is being read, and its parse context.
    pub fn of(builder: &mut Builder) -> (&mut Files, &mut ParseContext) {
        let (files, cx) = builder.with_cx::<Files>();
        files.source = cx.files.clone();
        (files, cx)
    }

    /// The bytes of a file.
    pub fn read(&mut self, path: &Path) -> io::Result<Arc<[u8]>> {
        if let Some(known) = self.known.get(path) {
            return Ok(Arc::clone(known));
        }
        let bytes = self.source.read_with(path, objects::read)?;
        self.known.insert(path.to_owned(), Arc::clone(&bytes));
        Ok(bytes)
    }

    /// The text that a directive names.
    pub fn text(&mut self, file: &FileName, thing: Thing) -> Result<Arc<[u8]>, Mistake> {
        let name = literal(file)?;
        let path = file.path(name.as_bytes());
        self.read(&path).map_err(|error| {
            let path = path.to_string_lossy();
            let failure = Failure::open(&path, &error);
            (file.span, thing.cannot_load(&path, &failure))
        })
    }

    /// The certificate of a directive with its key.
    pub fn identity(
        &mut self,
        certificate: &FileName,
        key: &FileName,
        passwords: &[Password],
    ) -> Result<Arc<Identity>, Mistake> {
        let mut read = |path: &Path| self.read(path);
        let chain = objects::chain(certificate, literal(certificate)?, &mut read)
            .map_err(|why| (certificate.span, why))?;
        let of_key = |why| (key.span, why);
        let read_key = objects::key(key, literal(key)?, passwords, &mut read).map_err(of_key)?;
        objects::identity(chain, &read_key).map_err(of_key)
    }

    /// The passwords of a directive; none without one.
    pub fn passwords(&mut self, file: Option<&FileName>) -> Result<Vec<Password>, Mistake> {
        let Some(file) = file else {
            return Ok(Vec::new());
        };
        let path = file.path(literal(file)?.as_bytes());
        let shown = path.to_string_lossy();
        let text = self.read(&path).map_err(|error| {
            let why = millpond_system::log::error::os_error(&error);
            (file.span, format!("open() \"{shown}\" failed ({why})"))
        })?;
        password::passwords(&text).map_err(|why| (file.span, format!("{why} in \"{shown}\"")))
    }
}

/// The text of a name, which may not have variables here.
pub fn literal(file: &FileName) -> Result<&str, Mistake> {
    let text = file
        .literal()
        .and_then(|text| std::str::from_utf8(text).ok());
    text.ok_or_else(|| {
        (
            file.span,
            String::from("variables in the names of certificates are not supported"),
        )
    })
}

/// Reports a mistake, once for each place.
pub fn report(cx: &mut ParseContext, (span, message): Mistake) {
    let is_known = cx.diagnostics.iter().any(|known| known.span == Some(span));
    if !is_known || span == Span::NONE {
        cx.diagnostics.push_error(span, message);
    }
}
