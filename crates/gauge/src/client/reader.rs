//! A client of HTTP/1.1 for bodies that nobody knows: it reads them to their end, and compares
//! nothing.
//!
//! A body that is cut off is a fault, as for the clients that compare.

use std::sync::Arc;

use super::Target;
use super::fault::Fault;
use super::head::Head;
use super::http1::Http1;
use super::journal::Journal;

/// One user: one request at a time, on a connection that is kept.
#[derive(Debug)]
pub struct Reader {
    target: Arc<Target>,
    link: Http1,
}

impl Reader {
    /// A reader that has no connection yet. The target's protocol is not looked at.
    pub fn new(target: Arc<Target>) -> Self {
        let link = Http1::new(Arc::clone(&target), Journal::default());
        Self { target, link }
    }

    /// Gets a path with field lines (`Name: value`) besides Host; each piece of the body is given
    /// away. The target's timeout is for all of it.
    pub async fn get(
        &mut self,
        path: &str,
        fields: &[String],
        each: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<Head, Fault> {
        let timeout = self.target.timeout;
        let visit = self.link.visit(("GET", path), fields, each);
        let ended = tokio::time::timeout(timeout, visit).await;
        let head = ended.unwrap_or(Err(Fault::Timeout(timeout)));
        if head.as_ref().map_or(true, |head| head.is_last) {
            self.link.hang_up();
        }
        head
    }
}
