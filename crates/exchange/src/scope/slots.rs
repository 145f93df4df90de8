//! Values that are found by their types, while a configuration is read.
//!
//! Each file keeps what it has read so far in a slot of a type of its own: nobody else has to know
//! of it, and no two files can meet in one slot. A look-up is one in a hash table, so that requests
//! have none: what they need is taken out of the slots when a block ends.

use std::any::{Any, TypeId};
use std::collections::HashMap;

/// At most one value of each type.
#[derive(Debug, Default)]
pub struct Slots(HashMap<TypeId, Box<dyn Any>>);

impl Slots {
    /// The value of a type; none when nobody has put one.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// The value of a type, made now when nobody has put one.
    pub fn of<T: Any + Default>(&mut self) -> &mut T {
        let slot = self.0.entry(TypeId::of::<T>());
        let value = slot.or_insert_with(|| Box::new(T::default()));
        // A value stands under its own type: `put` and the line above are all that add one.
        value
            .downcast_mut()
            .expect("a slot has a value of its type")
    }

    /// Puts a value in place of the one that is there.
    pub fn put<T: Any>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(value));
    }

    /// Takes the value of a type out.
    pub fn take<T: Any>(&mut self) -> Option<T> {
        let value = self.0.remove(&TypeId::of::<T>())?;
        value.downcast().ok().map(|value| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Mine(Vec<u8>);

    #[test]
    fn each_type_has_a_value_of_its_own() {
        let mut slots = Slots::default();
        assert_eq!(slots.get::<Mine>(), None);
        slots.of::<Mine>().0.push(1);
        slots.of::<Mine>().0.push(2);
        slots.of::<Vec<u8>>().push(3);
        assert_eq!(slots.get::<Mine>(), Some(&Mine(vec![1, 2])));
        assert_eq!(slots.take::<Vec<u8>>(), Some(vec![3]));
        assert_eq!(slots.take::<Vec<u8>>(), None);
        slots.put(Mine(vec![4]));
        assert_eq!(slots.take(), Some(Mine(vec![4])));
    }
}
