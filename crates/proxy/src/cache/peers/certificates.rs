//! `peer_ssl_certificate`, `peer_ssl_certificate_key`, `peer_ssl_trusted_certificate`: nodes that
//! show each other certificates, and judge them by an authority of the fleet.
//!
//! ```text
//! asking: own certificate still good? ─► TLS ─► the owner's, for its name? ─► the question
//! asked:  signature good? ─► a certificate of the connection? ─► good, for who asks? ─► the answer
//! ```
//!
//! 1. A certificate is good if the authority has signed it, it has begun and not ended, and it is
//!    for the name that its node has in the fleet.
//! 2. The certificate of who asks is judged anew for each request; that of who is asked when a
//!    connection is made. No session is resumed.
//! 3. What is not good costs a request to the origin, and says so in the error log.
//!
//! The listener is the server's own: it takes the connections, and asks for certificates
//! (`ssl_verify_client optional_no_ca`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use millpond_fleet::node::Node;
use millpond_system::log::error::Level;
use millpond_tls::certificate::facts::Certificate;
use millpond_tls::certificate::failure::Failure as Unreadable;
use millpond_tls::certificate::origin::{OriginRefused, OriginVerifier};
use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use millpond_tls::certificate::{host, load};
use millpond_tls::{CertificateDer, ClientContext, ClientSettings, Identity, Sni};

use crate::log::request_error;
use crate::request::Request;
use crate::tls::origins::Origin;
use crate::upstream::encryption::Encryption;

/// Certificates that may stand between a node's and the authority.
const DEPTH: u32 = 1;
/// Milliseconds between two lines on the node's own certificate.
const TOLD_EACH_MS: i64 = 60_000;

/// Texts of the three files.
#[derive(Clone, Debug)]
pub struct Texts {
    /// The node's own certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// The authority.
    pub trusted: String,
}

/// Certificates of the nodes of a fleet, as one of them knows them.
#[derive(Debug)]
pub struct Certificates {
    /// Context of connections to other nodes, and judge of what they show.
    origin: Arc<Origin>,
    /// Judge of who asks.
    asking: OriginVerifier,
    own: Vec<CertificateDer<'static>>,
    told_at_ms: AtomicI64,
}

impl Certificates {
    /// Those of the node with this name.
    ///
    /// # Errors
    /// A text cannot be used, or the certificate is not for the node.
    pub fn new(texts: &Texts, node: &str) -> Result<Certificates, String> {
        let of = |what: &'static str| move |why: Unreadable| format!("\"{what}\": {why}");
        let own = load::chain(texts.certificate.as_bytes()).map_err(of("peer_ssl_certificate"))?;
        let is_for_node = own.first().is_some_and(|it| host::is_good_for(it, node));
        if !is_for_node {
            return Err(format!(
                "\"peer_ssl_certificate\" is not for node \"{node}\""
            ));
        }
        let certified = load::key(texts.key.as_bytes(), &[])
            .and_then(|key| load::certified(own.clone(), &key))
            .map_err(of("peer_ssl_certificate_key"))?;
        let judge = |peer| {
            let anchors = Anchors {
                authorities: &[texts.trusted.as_bytes()],
                revocations: &[],
            };
            let rules = Rules {
                peer,
                depth: DEPTH,
                time: None,
            };
            let trust = Trust::new(anchors, rules).map_err(of("peer_ssl_trusted_certificate"))?;
            Ok::<_, String>(OriginVerifier::new(Arc::new(trust)))
        };
        // The chain is judged when the handshake is over.
        let mut settings = ClientSettings::new(Arc::new(OriginVerifier::unverified()));
        settings.sni = Sni::Off;
        let identity = Identity::new(certified.cert, certified.key);
        settings.identities.push(Arc::new(identity));
        let context = ClientContext::new(&settings).map_err(|error| error.to_string())?;
        Ok(Certificates {
            origin: Arc::new(Origin {
                context,
                verifier: judge(Peer::Origin)?,
                named: None,
            }),
            asking: judge(Peer::Client)?,
            own,
            told_at_ms: AtomicI64::new(i64::MIN),
        })
    }

    /// The encryption of connections to a node; none if the own certificate is not good, which is
    /// told.
    pub(super) fn encryption(
        &self,
        req: &Request,
        (node, to): (&Node, &str),
        now_ms: i64,
    ) -> Option<Encryption> {
        let own = self.asking.check(&self.own, &node.conf().log.node);
        let Err(why) = own else {
            return Some(Encryption::to(&self.origin, to));
        };
        let told = self.told_at_ms.load(Relaxed);
        if now_ms.saturating_sub(told) >= TOLD_EACH_MS {
            self.told_at_ms.store(now_ms, Relaxed);
            let (why, fleet) = (fault(&why), node.conf().name());
            let message = format_args!(
                "no node of fleet \"{fleet}\" is asked: the own peer_ssl_certificate is not good: \
                 {why}"
            );
            request_error::write(req, Level::Error, message);
        }
        None
    }

    /// True for a certificate of who asks that is good for its name; what is not is told.
    fn is_good(&self, req: &Request, shown: Option<&Certificate>, from: &str) -> bool {
        let refused = match shown {
            Some(shown) => match self.asking.check(&[shown.der()], from) {
                Ok(()) => return true,
                Err(why) => fault(&why),
            },
            None => "it shows none".to_owned(),
        };
        let message = format_args!("node \"{from}\" is refused by its certificate: {refused}");
        request_error::write(req, Level::Error, message);
        false
    }
}

/// The words of a refusal without its subject: here it is no upstream's.
fn fault(refused: &OriginRefused) -> String {
    match refused {
        OriginRefused::Chain(fault) => fault.to_string(),
        OriginRefused::Name(name) => format!("it is not for \"{name}\""),
    }
}

/// Certificates of all fleets of a configuration, by their names. Locations have the table before
/// all fleets are read.
#[derive(Clone, Debug, Default)]
pub struct OfFleets(Arc<RwLock<BTreeMap<String, Arc<Certificates>>>>);

impl OfFleets {
    /// Enters those of a fleet.
    pub fn put(&self, fleet: &str, certificates: Certificates) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(fleet.to_owned(), Arc::new(certificates));
    }

    /// Those of a fleet, if its nodes have any.
    pub(super) fn of(&self, fleet: &str) -> Option<Arc<Certificates>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(fleet).cloned()
    }

    /// True for a request of a node that has shown what the fleet wants to see.
    pub(super) fn admit(&self, req: &Request, node: &Node, from: &[u8]) -> bool {
        let Some(certificates) = self.of(node.conf().name()) else {
            return true;
        };
        let agreed = req.client.connection.tls.get();
        let shown = agreed.and_then(|agreed| agreed.certificate.as_ref());
        certificates.is_good(req, shown, &String::from_utf8_lossy(from))
    }
}
