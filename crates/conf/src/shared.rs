//! Names of zones in shared memory: each belongs to the module that names it first.
//!
//! nginx has one table of such zones for all modules, so that a table of requests cannot be named
//! where connections are counted. Here every module keeps its zones to itself; this table only
//! tells them apart while a configuration is read.

use std::collections::HashMap;

/// The module whose zones are the same in both halves of a configuration.
pub const OF_BOTH: &str = "js";

/// The zones that lines have named so far.
#[derive(Debug, Default)]
pub struct SharedZones {
    users: HashMap<String, (&'static str, Side)>,
    side: Side,
}

/// The half of a configuration that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// Requests: `http`.
    #[default]
    Requests,
    /// Sessions: `stream`, whose modules are others.
    Sessions,
}

impl SharedZones {
    /// Goes on with another half.
    pub fn turn_to(&mut self, side: Side) {
        self.side = side;
    }

    /// Notes that a line of a module names a zone, before or behind its declaration; the error is
    /// nginx's.
    pub fn name(&mut self, zone: &str, module: &'static str) -> Result<(), String> {
        let side = if module == OF_BOTH {
            Side::Requests
        } else {
            self.side
        };
        let user = (module, side);
        let known = self.users.entry(zone.to_owned()).or_insert(user);
        if *known == user {
            return Ok(());
        }
        Err(format!(
            "the shared memory zone \"{zone}\" is already declared for a different use"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_of_one_module() {
        let mut zones = SharedZones::default();
        assert_eq!(zones.name("a", "limit_req"), Ok(()));
        assert_eq!(zones.name("a", "limit_req"), Ok(()));
        assert_eq!(zones.name("b", "limit_conn"), Ok(()));
        let message = "the shared memory zone \"a\" is already declared for a different use";
        assert_eq!(zones.name("a", "limit_conn"), Err(message.to_owned()));
        zones.turn_to(Side::Sessions);
        assert_eq!(zones.name("a", "limit_req"), Err(message.to_owned()));
        assert_eq!(zones.name("c", "limit_conn"), Ok(()));
        assert_eq!(zones.name("d", OF_BOTH), Ok(()));
        zones.turn_to(Side::Requests);
        assert_eq!(zones.name("d", OF_BOTH), Ok(()));
    }
}
