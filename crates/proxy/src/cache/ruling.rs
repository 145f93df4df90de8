//! The way to code of another module that rules of answers before they are stored.
//!
//! The exchange with the origin (`exchange.rs`) asks for a ruling, once for each answer.

use millpond_cache::ruling::Ruling;
use millpond_cache::targeted::EachField;
use millpond_exchange::scope::parts::{Part, Place};

use crate::request::Request;

/// The code: it gets the request, and status and fields of the answer.
#[derive(Clone, Copy, Debug)]
pub struct RulingHook(pub fn(&mut Request, u16, EachField<'_>) -> Option<Ruling>);

impl Part for RulingHook {
    const PLACE: Place = Place::RulingHook;
}
