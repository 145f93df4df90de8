//! State that the crates above keep for the process: one value of each type that asks for a place.
//!
//! It lives as long as what the workers share, so over reloads, and is made when it is first asked
//! for.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The values, by their types.
#[derive(Debug, Default)]
pub struct Guests(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Guests {
    /// The value of a type.
    pub fn of<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Arc::<T>::default());
        // The key is the type's.
        Arc::downcast(Arc::clone(value)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_type_has_one_value() {
        let guests = Guests::default();
        guests.of::<AtomicU32>().store(7, Ordering::Relaxed);
        assert_eq!(guests.of::<AtomicU32>().load(Ordering::Relaxed), 7);
        assert_eq!(*guests.of::<u32>(), 0);
    }
}
