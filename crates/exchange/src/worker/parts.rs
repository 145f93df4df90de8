//! State of a worker, or of a generation on it, that belongs to the modules above.
//!
//! A module keeps what it has for each worker in a type of its own, and this table knows it by its
//! [`Place`] only. A look-up is an index and a comparison of types; a value is made when it is
//! first asked for.
//!
//! Invariant: a value stands at the place that its type names, and no two types name one place.

use std::any::Any;
use std::cell::OnceCell;

/// A type that has a place in the table.
pub trait Part: Kept + Default {
    /// The place of the type.
    const PLACE: Place;
}

/// A value as the table has it.
pub trait Kept: Any {
    /// Closes something that nobody uses at the moment, to make room for others; false if there is
    /// nothing.
    fn make_room(&self) -> bool {
        false
    }
}

/// The places of all parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Idle connections to upstream peers.
    Peers,
    /// The endpoints of QUIC.
    Endpoints,
    /// Files that stay open for the next request.
    Files,
    /// Engines of scripts.
    Scripts,
    /// Idle connections of scripts to other servers.
    Fetches,
    /// Clients' connections that have been quiet for a while.
    Quiet,
}

impl Place {
    /// The count of places.
    const COUNT: usize = Place::Quiet as usize + 1;
}

/// At most one value for each place.
#[derive(Default)]
pub struct Parts([OnceCell<Box<dyn Kept>>; Place::COUNT]);

impl Parts {
    /// The value of a type.
    ///
    /// # Panics
    ///
    /// Where two types name one place, which is a fault of this program.
    pub fn of<T: Part>(&self) -> &T {
        let value: &dyn Any = &**self.0[T::PLACE as usize].get_or_init(|| Box::new(T::default()));
        value.downcast_ref().expect("a place has one type")
    }

    /// Asks the values, one after another, to make room; false if none can.
    pub(super) fn make_room(&self) -> bool {
        let mut kept = self.0.iter().filter_map(OnceCell::get);
        kept.any(|value| value.make_room())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[derive(Default)]
    struct Mine(Cell<u8>);

    impl Kept for Mine {
        fn make_room(&self) -> bool {
            self.0.get() > 0
        }
    }

    impl Part for Mine {
        const PLACE: Place = Place::Peers;
    }

    #[test]
    fn a_type_has_one_value() {
        let parts = Parts::default();
        assert!(!parts.make_room());
        parts.of::<Mine>().0.set(1);
        assert_eq!(parts.of::<Mine>().0.get(), 1);
        assert!(parts.make_room());
    }
}
