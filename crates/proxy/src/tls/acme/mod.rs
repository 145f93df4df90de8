//! `acme_issuer`, `acme_certificate`, `acme_shared_zone`, and `ssl_certificate auto`: certificates
//! that are ordered from an authority.
//!
//! ```text
//! lines of http ─► issuers ┐
//! lines of servers ────────┴─ end of the configuration ─► plan ─► thread of `millpond-acme`
//!                                      └─► server: the certificate that its handshakes take
//! ```
//!
//! Reading starts nothing: the plan is handed over when the configuration is put into force.

pub mod certificate;
pub mod handshake;
pub mod issuer;
pub mod variables;

use millpond_exchange::scope::parts::{Part, Place};
use std::sync::Arc;

use millpond_acme::tend::Plan;
use millpond_acme::{Issuer, Ordered, Work};
use millpond_conf::Span;

/// The issuers and orders of a configuration.
#[derive(Debug, Default)]
pub struct Orders {
    issuers: Vec<Arc<Issuer>>,
    orders: Vec<Order>,
}

impl Part for Orders {
    const PLACE: Place = Place::Orders;
}

/// A certificate of an issuer.
#[derive(Debug)]
pub struct Order {
    /// The issuer.
    pub issuer: Arc<Issuer>,
    /// The certificate.
    pub ordered: Arc<Ordered>,
    /// The first line that orders it.
    pub span: Span,
}

impl Orders {
    /// True if nothing is ordered, and no authority asks for anything.
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// The certificates with their issuers, each once.
    pub fn iter(&self) -> impl Iterator<Item = &Order> {
        self.orders.iter()
    }

    /// The work of each issuer.
    pub fn plan(&self) -> Plan {
        let work = self.issuers.iter().map(|issuer| {
            let orders = self.orders.iter();
            let own = orders.filter(|order| Arc::ptr_eq(&order.issuer, issuer));
            Work {
                issuer: Arc::clone(issuer),
                orders: own.map(|order| Arc::clone(&order.ordered)).collect(),
            }
        });
        work.collect()
    }

    fn issuer(&self, name: &str) -> Option<&Arc<Issuer>> {
        self.issuers.iter().find(|issuer| issuer.name == name)
    }

    fn add(&mut self, new: Order) {
        let is_known = self
            .iter()
            .any(|known| Arc::ptr_eq(&known.ordered, &new.ordered));
        if !is_known {
            self.orders.push(new);
        }
    }
}
