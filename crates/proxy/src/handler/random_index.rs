//! `random_index`: any of a folder's files stands for it.
//!
//! Sources: nginx ngx_http_random_index_handler.

use bytes::BytesMut;
use millpond_system::chance;

use super::folder;
use crate::content::open_file::Kind;
use crate::content::path;
use crate::handler::settings::HandlerSettings;
use crate::phase::{self, Flow};
use crate::request::Request;
use millpond_exchange::failure::Failure;

/// The choice by chance of the file that stands for a folder.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(location)]
pub struct RandomIndexPolicy {
    /// Answers a request for a folder with one of the folder's files, a different one each time;
    /// those whose names begin with a dot are never chosen.
    ///
    /// # Differs from nginx
    ///
    /// A folder with more than 100,000 entries is answered with 500.
    #[directive(name = "random_index", default = "off")]
    pub enabled: bool,
}

/// Goes on with any file of the folder; `None` where none is wanted or there is none.
pub(crate) fn run(req: &mut Request) -> Result<Option<Flow>, Failure> {
    if !req
        .location
        .settings
        .of::<HandlerSettings>()
        .random_index
        .enabled
    {
        return Ok(None);
    }
    let path = path::map(req)?;
    let mut files = folder::open(req, &path.bytes)?.read(req)?;
    files.retain(|entry| entry.kind == Kind::File);
    // More files than a usize holds do not fit into memory.
    let chosen = chance::below(files.len() as u64) as usize;
    let Some(file) = files.get(chosen) else {
        return Ok(None);
    };
    let mut uri = BytesMut::with_capacity(req.uri.len() + file.name.len());
    uri.extend_from_slice(&req.uri);
    uri.extend_from_slice(&file.name);
    let query = req.query();
    phase::redirect(req, uri.freeze(), query).map(Some)
}
