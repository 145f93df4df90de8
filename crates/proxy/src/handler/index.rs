//! `index`: the file that stands for a folder.
//!
//! The names are tried in order; the first that exists is gone on with by an internal redirect to
//! its path, so that the location of that path decides how it is served. An absolute name is
//! redirected to without a look.
//!
//! Sources: nginx ngx_http_index_handler.

use std::sync::Arc;

use bytes::BytesMut;
use millpond_conf::{ArgError, Args, FromArgs, Template};
use millpond_system::log::error::Level;

use crate::content::open_file::{self, Kind, PathError};
use crate::content::path::{self, FilePath};
use crate::content::settings::ContentSettings;
use crate::handler::settings::HandlerSettings;
use crate::log::request_error;
use crate::phase::{self, Flow};
use crate::request::Request;
use millpond_exchange::failure::Failure;

/// The files that stand for a folder.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct IndexPolicy {
    /// The files that are tried, in order. Names may hold variables; an absolute one belongs at the
    /// end.
    #[directive(name = "index", default = "index.html", repeat)]
    pub names: Vec<IndexNames>,
}

/// The names of one directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexNames(pub Vec<Template>);

impl FromArgs for IndexNames {
    const SYNTAX: &'static str = "file ...";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        let last = words.len() - 1;
        let mut names = Vec::with_capacity(words.len());
        for (at, word) in words.iter().enumerate() {
            if word.text.is_empty() {
                let message = "index \"\" in \"index\" directive is invalid";
                return Err(ArgError::value(at, message));
            }
            if word.text.starts_with('/') && at != last {
                let message = "only the last index in \"index\" directive should be absolute";
                args.cx.diagnostics.push_warning(word.span, message);
            }
            names.push(args.word(at)?);
        }
        Ok(IndexNames(names))
    }
}

/// Goes on with the first index file that exists; `None` if there is none.
pub(crate) fn run(req: &mut Request) -> Result<Option<Flow>, Failure> {
    let location = Arc::clone(&req.location);
    let mut path: Option<FilePath> = None;
    let mut is_folder_tested = false;
    for template in location
        .settings
        .of::<HandlerSettings>()
        .index
        .names
        .iter()
        .flat_map(|names| &names.0)
    {
        let name = req.eval(template);
        if name.first() == Some(&b'/') {
            let query = req.query();
            return phase::redirect(req, name, query).map(Some);
        }
        let folder = match &mut path {
            Some(folder) => folder,
            none => none.insert(path::map(req)?),
        };
        let folder_len = folder.bytes.len();
        folder.bytes.extend_from_slice(&name);
        let tested = open_file::test(req, &folder.bytes);
        match tested {
            Ok(_) => return redirect_to(req, &name).map(Some),
            Err(error) => {
                check_folder(req, folder, folder_len, error, &mut is_folder_tested)?;
            }
        }
        folder.bytes.truncate(folder_len);
    }
    Ok(None)
}

fn redirect_to(req: &mut Request, name: &[u8]) -> Result<Flow, Failure> {
    let mut uri = BytesMut::with_capacity(req.uri.len() + name.len());
    uri.extend_from_slice(&req.uri);
    uri.extend_from_slice(name);
    let query = req.query();
    phase::redirect(req, uri.freeze(), query)
}

/// Decides whether the next name may be tried: not when the folder itself is missing or closed.
fn check_folder(
    req: &mut Request,
    file: &FilePath,
    folder_len: usize,
    error: PathError,
    is_tested: &mut bool,
) -> Result<(), Failure> {
    use rustix::io::Errno;
    match error.errno {
        Errno::NOTDIR | Errno::NAMETOOLONG | Errno::ACCESS => {
            return Err(index_failure(req, &file.bytes, error));
        }
        Errno::LOOP | Errno::MLINK => return Err(Failure::Status(403)),
        _ => {}
    }
    if !std::mem::replace(is_tested, true) {
        let folder = file.bytes.get(..folder_len).unwrap_or_default();
        test_folder(req, folder, &file.bytes)?;
    }
    if error.is_missing() {
        return Ok(());
    }
    error.log(req, Level::Crit, &file.bytes);
    Err(Failure::Status(500))
}

fn test_folder(req: &mut Request, folder: &[u8], file: &[u8]) -> Result<(), Failure> {
    match open_file::test(req, folder) {
        Ok(Kind::Directory) => Ok(()),
        // An alias without a slash at its end: names are appended to it, and it need not be a
        // folder.
        Ok(_) if folder.last() != Some(&b'/') => Ok(()),
        Ok(_) => {
            let folder = String::from_utf8_lossy(folder);
            request_error::write(
                req,
                Level::Alert,
                format_args!("\"{folder}\" is not a directory"),
            );
            Err(Failure::Status(500))
        }
        Err(error) if error.is_missing() => Err(index_failure(req, file, error)),
        Err(error) if error.is_denied() => Ok(()),
        Err(error) => {
            error.log(req, Level::Crit, folder);
            Err(Failure::Status(500))
        }
    }
}

fn index_failure(req: &Request, file: &[u8], error: PathError) -> Failure {
    let (path, reason) = (String::from_utf8_lossy(file), error.reason());
    if error.is_denied() {
        request_error::write(
            req,
            Level::Error,
            format_args!("\"{path}\" is forbidden {reason}"),
        );
        return Failure::Status(403);
    }
    if req
        .location
        .settings
        .of::<ContentSettings>()
        .open_file
        .log_not_found
    {
        request_error::write(
            req,
            Level::Error,
            format_args!("\"{path}\" is not found {reason}"),
        );
    }
    Failure::Status(404)
}

/// The failure of a request for a folder that nothing stands for.
pub(crate) fn forbidden(req: &mut Request) -> Result<Failure, Failure> {
    let path = path::map(req)?;
    let path = String::from_utf8_lossy(&path.bytes);
    let message = format_args!("directory index of \"{path}\" is forbidden");
    request_error::write(req, Level::Error, message);
    Ok(Failure::Status(403))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{Diagnostics, LoadOptions, ParseContext, load_text};

    fn read(text: &str) -> (Result<IndexNames, ArgError>, ParseContext) {
        let mut cx = ParseContext::new("/prefix", "/conf");
        let mut diagnostics = Diagnostics::new();
        let tree = load_text("t.conf", text, &LoadOptions::default(), &mut diagnostics);
        let st = &tree.statements[0];
        let names = IndexNames::from_args(&mut Args {
            name: &st.name,
            words: &st.args,
            body: None,
            cx: &mut cx,
        });
        (names, cx)
    }

    #[test]
    fn absolute_name_belongs_at_the_end() {
        for (text, warnings) in [
            ("index a.html b.html;", 0),
            ("index a.html /b.html;", 0),
            ("index /a.html b.html;", 1),
        ] {
            let (names, cx) = read(text);
            assert!(names.is_ok(), "{text}");
            assert_eq!(cx.diagnostics.len(), warnings, "{text}");
        }
        assert!(read("index \"\";").0.is_err());
        assert_eq!(read("index;").0, Err(ArgError::Count));
    }
}
