//! Statuses: how a session ended, as `$status` and the log have it.
//!
//! They are those of nginx, which took them from HTTP. A phase that ends a session says so by an
//! error that is a status, 200 among them.

/// The end of a session before its content, or the end of it: a status.
pub(crate) type Ended = u16;

/// The status of a session that went as it should.
pub(crate) const OK: Ended = 200;
/// The status of a session whose client sent what could not be read.
pub(crate) const BAD_REQUEST: Ended = 400;
/// The status of a session that something here failed.
pub(crate) const OUR_FAULT: Ended = 500;
