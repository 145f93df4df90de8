//! The state of an HTTP/1 connection: the body of its one request, and what goes on behind it.
//!
//! Its requests are read and answered in `downstream/http1`.

pub mod behind;
mod body;
mod inform;
mod quiet;

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use self::behind::Behind;
use self::body::Incoming;
use super::carrier::Carrier;

pub use self::quiet::Quiet;

/// An HTTP/1 connection, and the state of the one request that is on it.
pub struct Http1 {
    carrier: Carrier,
    /// True when the connection may serve another request after the current one.
    pub keep_alive: Cell<bool>,
    /// The part of the current request's body that is still to come.
    incoming: RefCell<Incoming>,
    /// True while the client waits for `100 Continue` before it sends its body.
    wants_continue: Cell<bool>,
    /// Work that goes on behind its requests.
    behind: Rc<Behind>,
}

impl Deref for Http1 {
    type Target = Carrier;

    fn deref(&self) -> &Carrier {
        &self.carrier
    }
}

impl Http1 {
    /// A connection, before its first request.
    pub fn new(carrier: Carrier) -> Self {
        Http1 {
            carrier,
            keep_alive: Cell::new(false),
            incoming: RefCell::default(),
            wants_continue: Cell::new(false),
            behind: Rc::default(),
        }
    }
}
