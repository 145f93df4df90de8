//! `try_files`: the first file that exists, else a fallback.
//!
//! ```text
//! try_files $uri $uri/ /index.php?q=$uri;     file, folder, internal redirect
//! try_files $uri @app;                        file, named location
//! try_files $uri =404;                        file, status
//! ```
//!
//! A file that exists becomes the path of the request, which goes on in the same location. The
//! setting belongs to the block that has it and is not inherited.
//!
//! Sources: nginx ngx_http_try_files_handler.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use millpond_conf::{Contexts, Statement, Template};
use millpond_system::log::error::Level;

use crate::content::open_file::{self, Kind};
use crate::content::path::{self, FilePath, Mapping};
use crate::content::settings::ContentSettings;
use crate::phase::{self, Flow};
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::{Part, Place};

/// The rows of this file.
pub const ROWS: &[Row] = &[Row {
    name: "try_files",
    contexts: Contexts::SERVER.union(Contexts::LOCATION),
    syntax: "file ... uri | file ... =code",
    is_block: false,
    pass: Pass::First,
    doc: "Tries files in order and goes on with the first that exists; a name that ends in a slash is a \
          folder. If there is none, the last argument says how to go on: a path, a named location or a status.",
    apply: declare,
}];

/// The paths that are tried, and the fallback when nothing is found.
#[derive(Debug)]
pub struct TryFiles {
    candidates: Vec<Candidate>,
    fallback: Fallback,
}

impl Part for TryFiles {
    const PLACE: Place = Place::FirstFiles;
}

#[derive(Debug)]
struct Candidate {
    name: Template,
    kind: Kind,
}

#[derive(Debug)]
enum Fallback {
    Status(u16),
    /// A path with or without a query, or `@name`.
    Target(Template),
}

fn declare(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if draft.has::<TryFiles>() {
        builder.error(statement.span, "\"try_files\" directive is duplicate");
        return;
    }
    if let Some(files) = compile(builder, statement) {
        draft.put(files);
    }
}

/// Compiles the arguments; a mistake is reported and `None`.
fn compile(builder: &mut Builder, statement: &Statement) -> Option<TryFiles> {
    let (last, files) = match statement.args.as_slice() {
        [files @ .., last] if !files.is_empty() => (last, files),
        _ => {
            let message = "invalid number of arguments in \"try_files\" directive";
            builder.error(statement.span, message);
            return None;
        }
    };
    let mut candidates = Vec::with_capacity(files.len());
    for word in files {
        let (text, kind) = match word.text.strip_suffix('/') {
            Some(folder) => (folder, Kind::Directory),
            None => (word.text.as_str(), Kind::File),
        };
        let name = template(builder, text, word.span)?;
        candidates.push(Candidate { name, kind });
    }
    let fallback = match last.text.strip_prefix('=') {
        Some(code) => match code.parse() {
            Ok(code) if code <= 999 => Fallback::Status(code),
            _ => {
                builder.error(last.span, format!("invalid code \"{}\"", last.text));
                return None;
            }
        },
        None => Fallback::Target(template(builder, &last.text, last.span)?),
    };
    Some(TryFiles {
        candidates,
        fallback,
    })
}

fn template(builder: &mut Builder, text: &str, span: millpond_conf::Span) -> Option<Template> {
    match Template::parse(text, span, &mut builder.cx.variables) {
        Ok(template) => Some(template),
        Err(error) => {
            builder.error(span, error.to_string());
            None
        }
    }
}

/// Tries the files of the location.
pub fn run(req: &mut Request) -> Result<Flow, Failure> {
    if req.location.parts.get::<TryFiles>().is_none() {
        return Ok(Flow::Next);
    }
    let location = Arc::clone(&req.location);
    let Some(rule) = location.parts.get::<TryFiles>() else {
        return Ok(Flow::Next);
    };
    let mapping = location.settings.of::<ContentSettings>().root.mapping();
    let mut path = path::document_root(req);
    for candidate in &rule.candidates {
        let name = relative(req.eval(&candidate.name), &candidate.name, mapping);
        path.set_tail(&name);
        if is_there(req, &path, candidate.kind) {
            found(req, name, candidate.kind, mapping);
            return Ok(Flow::Next);
        }
    }
    match &rule.fallback {
        Fallback::Status(status) => Err(Failure::Status(*status)),
        Fallback::Target(target) => {
            let target = relative(req.eval(target), target, mapping);
            fall_back(req, target)
        }
    }
}

/// nginx: a value made from variables loses the path that the alias stands for.
fn relative(value: Bytes, template: &Template, mapping: &Mapping) -> Bytes {
    match mapping {
        Mapping::Replace { prefix }
            if template.as_literal().is_none() && value.starts_with(prefix) =>
        {
            value.slice(prefix.len()..)
        }
        _ => value,
    }
}

fn is_there(req: &mut Request, path: &FilePath, kind: Kind) -> bool {
    match open_file::test(req, &path.bytes) {
        // nginx asks only whether it is a folder.
        Ok(found) => (found == Kind::Directory) == (kind == Kind::Directory),
        Err(error) => {
            if !error.is_missing() {
                error.log(req, Level::Crit, &path.bytes);
            }
            false
        }
    }
}

/// Makes the file that was found the path of the request.
fn found(req: &mut Request, name: Bytes, kind: Kind, mapping: &Mapping) {
    match mapping {
        Mapping::Append => req.uri = name,
        Mapping::Whole if kind == Kind::Directory => {}
        Mapping::Whole => {
            req.uri = name;
            req.path.adds_to_alias = true;
        }
        Mapping::Replace { prefix } => {
            let mut uri = BytesMut::with_capacity(prefix.len() + name.len());
            uri.extend_from_slice(prefix);
            uri.extend_from_slice(&name);
            req.uri = uri.freeze();
        }
    }
}

fn fall_back(req: &mut Request, target: Bytes) -> Result<Flow, Failure> {
    if target.first() == Some(&b'@') {
        return phase::redirect_named(req, &target);
    }
    let (uri, query) = match memchr::memchr(b'?', &target) {
        Some(at) => (target.slice(..at), target.slice(at + 1..)),
        None => (target, Bytes::new()),
    };
    // nginx: `$args` exists, also where the fallback has none.
    phase::redirect(req, uri, Some(query))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{ParseContext, Span};

    #[test]
    fn value_of_variables_loses_the_path_of_the_alias() {
        let mut cx = ParseContext::default();
        let uri = Template::parse("$uri", Span::NONE, &mut cx.variables).unwrap();
        let plain = Template::literal("/i/a");
        let alias = Mapping::Replace {
            prefix: Bytes::from_static(b"/i/"),
        };
        for (value, template, mapping, expected) in [
            ("/i/a", &uri, &alias, "a"),
            ("/x/a", &uri, &alias, "/x/a"),
            ("/i/a", &plain, &alias, "/i/a"),
            ("/i/a", &uri, &Mapping::Append, "/i/a"),
            ("/i/a", &uri, &Mapping::Whole, "/i/a"),
        ] {
            let value = Bytes::from_static(value.as_bytes());
            assert_eq!(relative(value, template, mapping), expected);
        }
    }
}
