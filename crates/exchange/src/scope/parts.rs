//! Parts of a configuration, a server or a location that belong to the modules above.
//!
//! A module that requests pass keeps what it was configured with in a type of its own, and this
//! table knows it by its [`Place`] only. A look-up is an index and a comparison of types, so
//! requests can afford it; what is read while a configuration is walked stands in
//! `slots::Slots`.
//!
//! Invariant: a value stands at the place that its type names, and no two types name one place.

use std::any::Any;
use std::fmt;

/// A type that has a place in the table.
pub trait Part: Any + Send + Sync {
    /// The place of the type.
    const PLACE: Place;
}

/// The places of all parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Settings of the way to upstreams.
    Upstreams,
    /// Settings of logs.
    Logs,
    /// Settings of filters.
    Filters,
    /// Settings of files and error pages.
    ContentSettings,
    /// Settings of handlers.
    Handlers,
    /// Settings of rewriting.
    Rewriting,
    /// Settings of conditions.
    Conditions,
    /// Settings of variables.
    VariableSettings,
    /// Settings of subrequests.
    Subrequests,
    /// Settings of encryption.
    Encryption,
    /// The rewrite directives of a location.
    Script,
    /// The caches of a location.
    Caches,
    /// The content handler of a location.
    Content,
    /// The files that a location tries first.
    FirstFiles,
    /// The changes of texts that a location makes.
    Texts,
    /// The zone in which requests are counted.
    StatusZone,
    /// The number of a server's site.
    SiteMemo,
    /// The certificates of a server.
    Certificates,
    /// The certificate that is ordered for a server.
    Order,
    /// The mark of a server that has tunnels.
    Tunnels,
    /// The handlers of all phases.
    Steps,
    /// The meanings of variables.
    Variables,
    /// Open cache zones.
    Zones,
    /// The groups of upstreams.
    Groups,
    /// The zones of limits.
    LimitZones,
    /// The names of status zones.
    StatusZones,
    /// The certificates that are ordered, of all servers.
    Orders,
    /// The tables of `charset_map`.
    CharsetMaps,
    /// The logs of a block whose servers have others.
    BlockLogs,
    /// The scripts of a location.
    Scripts,
    /// The code that looks at the heads of a location's answers.
    HeadHook,
    /// The code that rules of answers before they are stored.
    RulingHook,
    /// The names of variables that scripts have.
    ScriptNames,
}

impl Place {
    /// The count of places.
    const COUNT: usize = Place::ScriptNames as usize + 1;
}

/// At most one value for each place.
pub struct Parts([Option<Box<dyn Any + Send + Sync>>; Place::COUNT]);

// The standard library has it for 32 elements at most.
impl Default for Parts {
    fn default() -> Self {
        Parts([const { None }; Place::COUNT])
    }
}

impl Parts {
    /// The value of a type; none where nobody has put one.
    #[inline(always)]
    pub fn get<T: Part>(&self) -> Option<&T> {
        match &self.0[T::PLACE as usize] {
            Some(value) => value.downcast_ref(),
            None => None,
        }
    }

    /// The value of a type, to be changed; none where nobody has put one.
    pub fn get_mut<T: Part>(&mut self) -> Option<&mut T> {
        self.0[T::PLACE as usize].as_mut()?.downcast_mut()
    }

    /// The value of a type that is put before anybody asks.
    ///
    /// # Panics
    ///
    /// Where nobody has put one, which is a fault of the table at the top: a walk merges the
    /// settings of every module for each server and location.
    #[inline(always)]
    pub fn of<T: Part>(&self) -> &T {
        self.get().expect("settings of every module are merged")
    }

    /// The same, to be changed.
    pub fn of_mut<T: Part>(&mut self) -> &mut T {
        self.get_mut().expect("settings of every module are merged")
    }

    /// Puts a value in place of the one that is there.
    pub fn put<T: Part>(&mut self, value: T) {
        self.0[T::PLACE as usize] = Some(Box::new(value));
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.0.iter().enumerate();
        let taken = places.filter_map(|(place, value)| value.as_ref().map(|_| place));
        f.debug_set().entries(taken).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Mine(u8);

    impl Part for Mine {
        const PLACE: Place = Place::Logs;
    }

    struct Theirs;

    impl Part for Theirs {
        const PLACE: Place = Place::Subrequests;
    }

    #[test]
    fn a_type_has_the_value_at_its_place() {
        let mut parts = Parts::default();
        assert!(parts.get::<Mine>().is_none());
        parts.put(Mine(1));
        parts.put(Theirs);
        if let Some(mine) = parts.get_mut::<Mine>() {
            mine.0 += 1;
        }
        assert_eq!(parts.get::<Mine>().map(|mine| mine.0), Some(2));
    }
}
