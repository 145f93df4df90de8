//! `proxy_redirect_follow`: redirects of an origin that are followed here, not by the client.
//!
//! ```text
//! ask ─► 301 302 303 307 308 ─► a URL? the next one? allowed? ─► its addresses ─► ask ─► …
//!                                   │          │
//!                                   │          └─ refused: 502, and a line that says why
//!                                   └─ none to be followed: the redirect is the answer
//! ```
//!
//! What comes at the end is the answer to the request that was asked first: it is stored under its
//! key, and each exchange on the way is counted, logged and traced like any other.
//!
//! Invariants:
//! 1. Another host is connected to by the addresses that were judged: its name is not resolved
//!    again between judgement and connection.
//! 2. Credentials of the client and of the configuration, and certificates, go to the first origin
//!    only; once it was left they go to nobody.
//! 3. Only GET and HEAD without a body are followed (RFC 9110 §15.4: a client may do it for them
//!    without asking its user).

mod reach;

use std::sync::Arc;

use millpond_conf::OffOr;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_system::address::Address;
use millpond_system::network::Network;
use millpond_wire::header::Known;
use millpond_wire::http1::Method;
use millpond_wire::url::{Place, Scheme, Url};

use super::ask::Ask;
use super::exchange::{Fetched, fetch_with};
use super::group::Group;
use super::pass::{self, PassTarget, Resolved};
use crate::request::Request;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::failure::{Failure, UpstreamFailure, UpstreamKind};
use millpond_exchange::protocol::Protocol;
use millpond_exchange::trace::asked;

/// Redirects that are followed by `on`.
const USUAL: u32 = 5;
/// The most that can be set (arbitrary: browsers stop at twenty).
const MOST: u32 = 50;

/// Settings of redirects that are followed.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct FollowPolicy {
    /// Follows redirects of HTTP upstreams (301, 302, 303, 307 and 308) to GET and HEAD, up to the
    /// number, or five with `on`. The answer at the end is the one of the request, and is stored
    /// under its key; `proxy_redirect` is for what is not followed.
    ///
    /// A redirect to the origin itself (its name in `proxy_pass`, or the Host field that it was
    /// sent) goes to the same group. The name of another host is looked up by `resolver`; an
    /// address that is private, loopback, link-local, of a cloud's metadata or otherwise not
    /// routed is refused, unless it lies in a network of `allow`. The addresses that were judged
    /// are those that are connected to. From https to http is refused without `downgrade`.
    ///
    /// Another host is sent no Authorization, no Cookie, no certificate of `proxy_ssl_certificate`
    /// and no signature of `proxy_aws_sign`, and its own name in Host and for TLS;
    /// `proxy_ssl_verify` holds for it, too.
    ///
    /// Too many redirects, one that leads back, and one that is refused are answered with 502, or
    /// from the cache by `proxy_cache_use_stale invalid_header`. Other methods, requests with a
    /// body, and URLs that are not of http or https get the redirect as it came.
    #[directive(name = "proxy_redirect_follow", default = "off")]
    pub follow: OffOr<Follow>,
}

/// Rules by which redirects are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// The number of redirects that one request follows.
    pub most: u32,
    allowed: Vec<Network>,
    downgrade: Downgrade,
}

/// Rule for redirects from https to http.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Downgrade {
    Refused,
    Followed,
}

impl FromArgs for Follow {
    const SYNTAX: &'static str = "on | number [allow=address | allow=network] ... [downgrade]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let most = match args.at_least(1)? {
            [first, ..] if first.text == "on" => USUAL,
            _ => args.word::<u32>(0)?,
        };
        if most == 0 || most > MOST {
            let message = format!("the number of redirects must be between 1 and {MOST}");
            return Err(ArgError::value(0, message));
        }
        let mut follow = Follow {
            most,
            allowed: Vec::new(),
            downgrade: Downgrade::Refused,
        };
        for (index, word) in args.words.iter().enumerate().skip(1) {
            if word.text == "downgrade" {
                follow.downgrade = Downgrade::Followed;
                continue;
            }
            let network = word.text.strip_prefix("allow=").map(Network::parse);
            match network {
                Some(Some((network, _))) if network != Network::Unix => {
                    follow.allowed.push(network);
                }
                _ => {
                    let message = format!("invalid parameter \"{}\"", word.text);
                    return Err(ArgError::value(index, message));
                }
            }
        }
        Ok(follow)
    }
}

impl Follow {
    fn allows(&self, address: &Address) -> bool {
        let is_public = match address {
            Address::Inet(socket) => reach::is_public(socket.ip()),
            Address::Unix(_) => false,
        };
        is_public || self.allowed.iter().any(|network| network.contains(address))
    }
}

/// A step on the way of redirects, for those who write the request of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Number of redirects that were followed; a byte, as an [`Ask`] stands in each walk.
    pub(crate) number: u8,
    /// True if another origin than the first is asked.
    pub(crate) is_foreign: bool,
    /// True once the first origin was left. INVARIANT 2.
    pub(crate) has_left: bool,
}

impl Hop {
    /// True for a field that is for the first origin only.
    pub(crate) fn withholds(self, name: &[u8]) -> bool {
        const OURS: [&[u8]; 3] = [b"authorization", b"cookie", b"proxy-authorization"];
        self.has_left && OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours))
    }
}

/// The rules of a location; none where redirects are the client's.
pub(crate) fn policy(req: &Request) -> Option<&Follow> {
    let settings = &req.location.settings;
    settings.of::<UpstreamSettings>().follow.follow.on()
}

/// The number of redirects that a request follows at most; none where they are the client's.
pub fn most(req: &Request, protocol: Protocol) -> Option<u32> {
    let is_safe = matches!(req.method, Method::Get | Method::Head);
    let follow = policy(req).filter(|_| is_safe && protocol == Protocol::Http)?;
    Some(follow.most)
}

/// True if an answer is a redirect that may be followed.
fn is_due(req: &Request, protocol: Protocol, (ask, fetched): (&Ask, &Fetched)) -> bool {
    let is_redirect = matches!(fetched.head.status, 301 | 302 | 303 | 307 | 308);
    if !is_redirect || protocol != Protocol::Http || ask.peer.is_some() {
        return false;
    }
    let settings = req.location.settings.of::<UpstreamSettings>();
    // INVARIANT 3.
    let has_body = !matches!(req.body, RequestBody::None) || settings.pass_http.set_body.is_some();
    let is_safe = |method: &[u8]| matches!(Method::of(method), Method::Get | Method::Head);
    let trace = req.upstream.borrow();
    let attempt = trace.attempts.last();
    let is_safe = attempt
        .and_then(|attempt| asked::method(&attempt.head))
        .is_some_and(is_safe);
    policy(req).is_some() && is_safe && !has_body
}

/// The way of redirects so far.
struct Way {
    rules: Follow,
    /// Names that the first origin has.
    names: Vec<Place>,
    here: Url,
    seen: Vec<String>,
    hop: Hop,
}

/// The answer at the end of redirects, if the first answer is one that is followed.
pub(super) async fn followed(
    req: &mut Request,
    first: (&PassTarget, &Resolved),
    ask: &Ask,
    fetched: Box<Fetched>,
) -> Result<Box<Fetched>, Failure> {
    // Whoever follows goes on by himself.
    if ask.hop.is_some() || !is_due(req, first.0.protocol, (ask, &fetched)) {
        return Ok(fetched);
    }
    Box::pin(follow(req, first, ask, fetched)).await
}

/// Follows redirects, from the first one on.
async fn follow(
    req: &mut Request,
    (target, resolved): (&PassTarget, &Resolved),
    ask: &Ask,
    fetched: Box<Fetched>,
) -> Result<Box<Fetched>, Failure> {
    let Some(mut way) = Way::begin(req, resolved) else {
        return Ok(fetched);
    };
    let named = {
        let trace = req.upstream.borrow();
        (trace.host.clone(), trace.port)
    };
    let followed = way.go(req, (target, resolved), ask, fetched).await;
    let mut trace = req.upstream.borrow_mut();
    // The name of what the location passes to is that of the first origin.
    (trace.host, trace.port) = named;
    drop(trace);
    followed
}

impl Way {
    /// The way from what was asked last.
    fn begin(req: &Request, resolved: &Resolved) -> Option<Way> {
        let trace = req.upstream.borrow();
        let head = &trace.attempts.last()?.head;
        let scheme = if resolved.is_encrypted {
            Scheme::Https
        } else {
            Scheme::Http
        };
        let own = format!("{}:{}", bare(&resolved.host, resolved.port), resolved.port);
        let named = Place::of(scheme, own.as_bytes());
        let sent = asked::field(head, Known::Host).and_then(|host| Place::of(scheme, host));
        let names: Vec<Place> = sent.into_iter().chain(named).collect();
        let here = Url {
            place: names.first()?.clone(),
            target: asked::target(head)?.to_vec(),
        };
        Some(Way {
            rules: policy(req)?.clone(),
            names,
            seen: vec![here.to_string()],
            here,
            hop: Hop {
                number: 0,
                is_foreign: false,
                has_left: false,
            },
        })
    }

    async fn go(
        &mut self,
        req: &mut Request,
        (first, own): (&PassTarget, &Resolved),
        ask: &Ask,
        mut fetched: Box<Fetched>,
    ) -> Result<Box<Fetched>, Failure> {
        // Each round adds a URL to those that were seen, of which there are at most `most`.
        loop {
            let location = fetched.head.fields.get(Known::Location);
            let Some(there) = location.and_then(|location| self.here.join(location)) else {
                return Ok(fetched);
            };
            // What has come of it whole leaves its connection to the next.
            fetched.body.take_whole();
            drop(fetched);
            self.step(there)?;
            let resolved = self.resolved(req, own).await?;
            pass::note_resolved(req, &resolved);
            let target = if self.hop.is_foreign {
                first.foreign(resolved)
            } else {
                first.within(resolved)
            };
            let ask = Ask {
                hop: Some(self.hop),
                ..ask.clone()
            };
            fetched = Box::pin(fetch_with(req, &target, &ask)).await?;
            if !is_due(req, target.protocol, (&ask, &fetched)) {
                return Ok(fetched);
            }
        }
    }

    /// Goes to the next URL, if it may be gone to.
    fn step(&mut self, there: Url) -> Result<(), Failure> {
        let text = there.to_string();
        if u32::from(self.hop.number) >= self.rules.most {
            let most = self.rules.most;
            return Err(refused(
                &text,
                &format!("it is more than {most} redirects away"),
            ));
        }
        if self.seen.contains(&text) {
            return Err(refused(&text, "it was asked already"));
        }
        let schemes = (self.here.place.scheme, there.place.scheme);
        let is_down = schemes == (Scheme::Https, Scheme::Http);
        if is_down && self.rules.downgrade == Downgrade::Refused {
            return Err(refused(
                &text,
                "it is not encrypted, and what led to it was",
            ));
        }
        self.hop.number += 1;
        self.hop.is_foreign = !self.names.contains(&there.place);
        self.hop.has_left |= self.hop.is_foreign;
        self.seen.push(text);
        self.here = there;
        Ok(())
    }

    /// The peers of the next URL. INVARIANT 1.
    async fn resolved(&self, req: &Request, first: &Resolved) -> Result<Resolved, Failure> {
        let path = Some(self.here.target.clone().into());
        if !self.hop.is_foreign {
            return Ok(Resolved {
                path,
                ..first.clone()
            });
        }
        let place = &self.here.place;
        let addresses = pass::addresses(req, (&place.host, place.port)).await?;
        let allowed: Vec<Address> = addresses
            .iter()
            .filter(|address| self.rules.allows(address))
            .cloned()
            .collect();
        if allowed.is_empty() {
            let shown = addresses
                .first()
                .map(Address::to_string)
                .unwrap_or_default();
            let why = format!("its address {shown} is not one of the internet");
            return Err(refused(&self.here.to_string(), &why));
        }
        let name = format!("{}:{}", place.host, place.port);
        Ok(Resolved {
            group: Arc::new(Group::passing(name, allowed)),
            host: Arc::from(place.authority()),
            port: place.port,
            path,
            is_encrypted: place.scheme == Scheme::Https,
        })
    }
}

/// A host without its port.
fn bare(host: &str, port: u16) -> &str {
    host.strip_suffix(&format!(":{port}")).unwrap_or(host)
}

fn refused(url: &str, why: &str) -> Failure {
    let message = format!("upstream redirected to \"{url}\", which is not followed: {why}");
    Failure::Upstream(UpstreamFailure::new(UpstreamKind::InvalidHeader, &message))
}

#[cfg(test)]
mod tests;
