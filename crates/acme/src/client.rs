//! The client's side of ACME (RFC 8555): an account, orders, validations, certificates.
//!
//! ```text
//! directory ─► account ─► order ─► each name: show, tell, wait ─► request ─► wait ─► chain
//! ```
//!
//! 1. Each loop has a bound: tries with another nonce, redirects, the time of a validation and of
//!    the making of a certificate.

use std::ops::Range;
use std::time::Duration;

use millpond_semantics::date::parse_http_date_by_rfc;
use millpond_system::clock;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::base64url;
use crate::challenge;
use crate::csr;
use crate::error::Error;
use crate::http::{Answer, Ask};
use crate::issued::{self, Issued};
use crate::issuer::{Issuer, Need, Terms};
use crate::jws::{self, Sender};
use crate::key::Key;
use crate::ordered::Ordered;
use crate::resource::{Account, Authorization, Directory, Order, Problem, RenewalInfo, Status};
use crate::url::Url;

/// Tries of a message whose nonce was not taken (each refusal brings a new one; where a fifth of
/// them is refused, one message in ten million is given up).
const NONCE_TRIES: usize = 10;
/// Redirects that are followed (nginx's module: 10).
const REDIRECTS_MAX: usize = 10;
/// The time for a validation, and for the making of a certificate (nginx's module: 60 s each).
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest pause between two looks, unless the authority asks for a longer one, and then.
const LOOK_MAX: Duration = Duration::from_secs(8);
const LOOK_MAX_ASKED: i64 = 60;
/// The longest time that a refusal may ask to be waited for, in seconds: a week, the longest of
/// Let's Encrypt's limits. Whoever asks for more is asked once a week.
const REFUSED_MAX: i64 = 7 * 86_400;
/// Other chains that are looked at for a preferred one (arbitrary: authorities have two or three).
const CHAINS_MAX: usize = 8;

/// The client of an authority.
pub(crate) struct Client<'a> {
    issuer: &'a Issuer,
    key: &'a Key,
    directory: Directory,
    nonce: Option<String>,
    account: Option<String>,
}

/// Advice on when to renew.
#[derive(Debug)]
pub(crate) struct Advice {
    pub(crate) window: Range<i64>,
    /// Seconds for which it holds.
    pub(crate) holds: Option<i64>,
    pub(crate) explanation: Option<String>,
}

impl<'a> Client<'a> {
    /// Asks for the directory.
    pub(crate) async fn new(issuer: &'a Issuer, key: &'a Key) -> Result<Self, Error> {
        let answer = get(issuer, &issuer.uri).await?;
        Ok(Self {
            issuer,
            key,
            directory: read(&answer)?,
            nonce: None,
            account: None,
        })
    }

    /// True if the authority gives advice on when to renew.
    pub(crate) fn gives_advice(&self) -> bool {
        self.directory.renewal_info.is_some()
    }

    /// Finds the account of the key, or makes one; returns its URL.
    pub(crate) async fn register(&mut self) -> Result<String, Error> {
        let meta = &self.directory.meta;
        if meta.external_account_required && self.issuer.binding.is_none() {
            let why = "the authority takes accounts of its customers alone: \
                       \"external_account_key\" is needed";
            return Err(Error::Configuration(why.to_owned()));
        }
        if let (Some(terms), Terms::Unsaid) = (&meta.terms_of_service, self.issuer.terms) {
            let why = format!(
                "the terms of service were not accepted: read {terms}, and say \
                 \"accept_terms_of_service\""
            );
            return Err(Error::Configuration(why));
        }
        let url = self.url(&self.directory.new_account)?;
        let mut account = json!({});
        if self.issuer.terms == Terms::Accepted {
            account["termsOfServiceAgreed"] = true.into();
        }
        if !self.issuer.contacts.is_empty() {
            account["contact"] = self.issuer.contacts.clone().into();
        }
        if let Some(binding) = &self.issuer.binding {
            let with = (binding.id.as_str(), binding.secret.as_slice());
            account["externalAccountBinding"] = jws::bind(self.key, with, url.as_str())?;
        }
        self.account = None;
        let answer = self.post(&url, &account.to_string()).await?;
        let account: Account = read(&answer)?;
        if account.status != Status::Valid {
            let why = "the account is not valid any more: it was deactivated or revoked";
            return Err(Error::Configuration(why.to_owned()));
        }
        let place = answer.field("location").unwrap_or_default();
        let account = url.join(place).map_err(Error::Answer)?.as_str().to_owned();
        self.account = Some(account.clone());
        Ok(account)
    }

    /// Orders a certificate; `replaces` names the one that it is in place of.
    pub(crate) async fn order(
        &mut self,
        ordered: &Ordered,
        replaces: Option<&str>,
    ) -> Result<Issued, Error> {
        let (place, order) = self.new_order(ordered, replaces).await?;
        for authorization in &order.authorizations {
            let url = self.url(authorization)?;
            self.authorize(&url).await?;
        }
        let key = Key::generate(ordered.kind)?;
        let order = self.wait_until_ready(&place).await?;
        let csr = csr::request(&ordered.names, &key, self.issuer.subject)?;
        let payload = json!({ "csr": base64url::encode(&csr) }).to_string();
        let url = self.url(&order.finalize)?;
        let answer = self.post(&url, &payload).await?;
        let certificate = self.wait_for_certificate(&place, answer).await?;
        let chain = self.chain(&certificate).await?;
        let pem = key.to_pem()?;
        let unusable = |why| Error::Answer(format!("the certificate cannot be used: {why}"));
        let issued = Issued::read(&chain, &String::from_utf8_lossy(&pem)).map_err(unusable)?;
        let now_s = clock::now_ms().div_euclid(1000);
        match issued.flaw(&ordered.names, now_s) {
            Some(why) => Err(unusable(why)),
            None => Ok(issued),
        }
    }

    async fn new_order(
        &mut self,
        ordered: &Ordered,
        replaces: Option<&str>,
    ) -> Result<(Url, Order), Error> {
        let mut wanted = json!({ "identifiers": ordered.names });
        if let Some(profile) = self.profile()? {
            wanted["profile"] = profile.into();
        }
        let url = self.url(&self.directory.new_order)?;
        let mut answer = Err(Error::Answer(String::new()));
        if let Some(replaces) = replaces {
            let mut wanted = wanted.clone();
            wanted["replaces"] = replaces.into();
            answer = self.post(&url, &wanted.to_string()).await;
        }
        let is_of_replaced = match &answer {
            Ok(_) => false,
            Err(error) => error.problem().is_some_and(Problem::may_be_of_replaced),
        };
        if replaces.is_none() || is_of_replaced {
            answer = self.post(&url, &wanted.to_string()).await;
        }
        let answer = answer?;
        let place = url.join(answer.field("location").unwrap_or_default());
        Ok((place.map_err(Error::Answer)?, read(&answer)?))
    }

    /// The profile to ask for, if the authority has it.
    fn profile(&self) -> Result<Option<&'a str>, Error> {
        let Some(profile) = &self.issuer.profile else {
            return Ok(None);
        };
        let is_known = self.directory.meta.profiles.contains_key(&profile.name);
        match (is_known, profile.need) {
            (true, _) => Ok(Some(&profile.name)),
            (false, Need::Preferred) => Ok(None),
            (false, Need::Required) => {
                let why = format!("the authority has no profile \"{}\"", profile.name);
                Err(Error::Configuration(why))
            }
        }
    }

    /// Proves that a name is ours, unless the authority knows it.
    async fn authorize(&mut self, url: &Url) -> Result<(), Error> {
        let authorization: Authorization = read(&self.post(url, "").await?)?;
        let name = authorization.identifier.value.clone();
        match authorization.status {
            Status::Valid => return Ok(()),
            Status::Pending => {}
            _ => return Err(self.not_validated(&name, Problem::default())),
        }
        let way = self.issuer.challenge;
        let mut offered = authorization.challenges.iter();
        let Some(challenge) = offered.find(|it| it.kind == way.name()) else {
            let why = format!("\"{name}\" cannot be validated by {}", way.name());
            return Err(Error::Configuration(why));
        };
        let identifier = crate::identifier::Identifier::read(&name)
            .map(|mut names| names.remove(0))
            .map_err(|why| Error::Answer(why.to_string()))?;
        let proof = format!("{}.{}", challenge.token, self.key.thumbprint()?);
        // Until this function ends, the authority may look.
        let _entry = challenge::show(way, &identifier, &challenge.token, &proof)?;
        let told = self.url(&challenge.url)?;
        let mut answer = self.post(&told, "{}").await?;
        let mut looks = Looks::new();
        loop {
            if !looks.pause(&answer).await {
                let detail = "it takes too long";
                return Err(Error::Answer(format!("validation of \"{name}\": {detail}")));
            }
            answer = self.post(url, "").await?;
            let authorization: Authorization = read(&answer)?;
            match authorization.status {
                Status::Valid => return Ok(()),
                Status::Pending | Status::Processing => {}
                _ => {
                    let mut of_way = authorization.challenges.into_iter();
                    let failed = of_way.find(|it| it.kind == way.name());
                    let problem = failed.and_then(|it| it.error).unwrap_or_default();
                    return Err(self.not_validated(&name, problem));
                }
            }
        }
    }

    fn not_validated(&self, name: &str, problem: Problem) -> Error {
        Error::Validation {
            name: name.to_owned(),
            way: self.issuer.challenge.name(),
            problem,
        }
    }

    async fn wait_until_ready(&mut self, place: &Url) -> Result<Order, Error> {
        let mut looks = Looks::new();
        loop {
            let answer = self.post(place, "").await?;
            let order: Order = read(&answer)?;
            match order.status {
                Status::Ready => return Ok(order),
                Status::Pending | Status::Processing if looks.pause(&answer).await => {}
                status => return Err(refused(order.error, status)),
            }
        }
    }

    /// Waits until the certificate is made; returns its URL.
    async fn wait_for_certificate(&mut self, place: &Url, first: Answer) -> Result<Url, Error> {
        let mut looks = Looks::new();
        let mut answer = first;
        loop {
            let order: Order = read(&answer)?;
            match (order.status, order.certificate) {
                (Status::Valid, Some(certificate)) => {
                    return place.join(&certificate).map_err(Error::Answer);
                }
                (Status::Processing | Status::Ready, _) if looks.pause(&answer).await => {}
                (status, _) => return Err(refused(order.error, status)),
            }
            answer = self.post(place, "").await?;
        }
    }

    /// The chain, or another one if that is preferred.
    async fn chain(&mut self, url: &Url) -> Result<String, Error> {
        let answer = self.post(url, "").await?;
        let others = alternates(url, &answer);
        let usual = text(answer)?;
        let Some(preferred) = &self.issuer.chain else {
            return Ok(usual);
        };
        if issued::leads_to(&usual, preferred) {
            return Ok(usual);
        }
        for other in others.into_iter().take(CHAINS_MAX) {
            let chain = text(self.post(&other, "").await?)?;
            if issued::leads_to(&chain, preferred) {
                return Ok(chain);
            }
        }
        Ok(usual)
    }

    /// Asks for advice about a certificate; nobody has to say who he is for that.
    pub(crate) async fn advice(&self, id: &str) -> Result<Advice, Error> {
        let base = self.directory.renewal_info.as_deref().unwrap_or_default();
        let url = self.url(&format!("{}/{id}", base.trim_end_matches('/')))?;
        let answer = get(self.issuer, &url).await?;
        let info: RenewalInfo = read(&answer)?;
        let second = |text: &str| {
            let time = text.parse::<jiff::Timestamp>();
            time.map(jiff::Timestamp::as_second)
                .map_err(|why| Error::Answer(format!("{url}: {why}")))
        };
        let window = second(&info.suggested_window.start)?..second(&info.suggested_window.end)?;
        // RFC 9773 §4.2: whoever gets such a window takes it for none.
        if window.is_empty() {
            return Err(Error::Answer(format!(
                "{url}: the window ends before it begins"
            )));
        }
        Ok(Advice {
            window,
            holds: retry_after(&answer),
            explanation: info.explanation,
        })
    }

    fn url(&self, text: &str) -> Result<Url, Error> {
        self.issuer.uri.join(text).map_err(Error::Answer)
    }

    /// Sends a signed message; an empty one asks for what is there.
    async fn post(&mut self, url: &Url, payload: &str) -> Result<Answer, Error> {
        let mut outcome = Err(Error::Answer("it takes no nonce".to_owned()));
        for _ in 0..NONCE_TRIES {
            let nonce = match self.nonce.take() {
                Some(nonce) => nonce,
                None => self.fresh_nonce().await?,
            };
            let sender = self.account.as_deref().map_or(Sender::Key, Sender::Account);
            let message = jws::sign(self.key, sender, (url.as_str(), &nonce), payload)?;
            let asked = self.issuer.way.ask(url, Ask::Post(&message)).await;
            let answer = asked.map_err(Error::Connection)?;
            self.nonce = answer.field("replay-nonce").map(str::to_owned);
            outcome = judge(url, answer);
            // RFC 8555 §6.5: the same message, with the nonce of the refusal.
            let kind = outcome.as_ref().err().and_then(Error::problem);
            if kind.is_none_or(|problem| problem.kind() != "badNonce") {
                break;
            }
        }
        outcome
    }

    async fn fresh_nonce(&self) -> Result<String, Error> {
        let url = self.url(&self.directory.new_nonce)?;
        let asked = self.issuer.way.ask(&url, Ask::Head).await;
        let answer = asked.map_err(Error::Connection)?;
        let nonce = answer.field("replay-nonce").map(str::to_owned);
        nonce.ok_or_else(|| Error::Answer(format!("{url}: it gives no nonce")))
    }
}

/// Asks for something that everybody may see.
async fn get(issuer: &Issuer, url: &Url) -> Result<Answer, Error> {
    let mut url = url.clone();
    for _ in 0..REDIRECTS_MAX {
        let asked = issuer.way.ask(&url, Ask::Get).await;
        let answer = asked.map_err(Error::Connection)?;
        if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
            return judge(&url, answer);
        }
        let place = answer.field("location").unwrap_or_default();
        url = url.join(place).map_err(Error::Answer)?;
    }
    Err(Error::Answer(format!("{url}: too many redirects")))
}

/// An answer, or the refusal that it is.
fn judge(url: &Url, answer: Answer) -> Result<Answer, Error> {
    if answer.is_good() {
        return Ok(answer);
    }
    let after = retry_after(&answer).map(|seconds| seconds.min(REFUSED_MAX));
    match serde_json::from_slice::<Problem>(&answer.body) {
        Ok(problem) => Err(Error::Problem { problem, after }),
        Err(_) if after.is_some() => {
            let problem = Problem::of_status(answer.status);
            Err(Error::Problem { problem, after })
        }
        Err(_) => {
            let why = format!("{url}: unexpected status {}", answer.status);
            Err(Error::Connection(why))
        }
    }
}

fn refused(problem: Option<Problem>, status: Status) -> Error {
    match problem {
        Some(problem) => Error::Problem {
            problem,
            after: None,
        },
        None => Error::Answer(format!("the order came to be {status:?} for no reason")),
    }
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    serde_json::from_slice(&answer.body)
        .map_err(|why| Error::Answer(format!("the answer cannot be read ({why})")))
}

fn text(answer: Answer) -> Result<String, Error> {
    String::from_utf8(answer.body).map_err(|_| Error::Answer("the chain is no text".to_owned()))
}

/// Seconds of Retry-After, as a number or until a date.
fn retry_after(answer: &Answer) -> Option<i64> {
    let value = answer.field("retry-after")?.trim();
    let seconds = value.parse::<u32>().map(i64::from).ok();
    seconds.or_else(|| {
        let now = clock::now_ms().div_euclid(1000);
        let date = parse_http_date_by_rfc(value.as_bytes(), now)?;
        Some((date - now).max(0))
    })
}

/// The other chains that an answer names (RFC 8555 §7.4.2).
fn alternates(url: &Url, answer: &Answer) -> Vec<Url> {
    let mut found = Vec::new();
    for field in &answer.fields {
        if !field.name.eq_ignore_ascii_case(b"link") {
            continue;
        }
        let value = String::from_utf8_lossy(&field.value);
        for link in value.split(',') {
            let Some((target, rest)) = link
                .trim()
                .strip_prefix('<')
                .and_then(|it| it.split_once('>'))
            else {
                continue;
            };
            let rest = rest.replace([' ', '"'], "");
            if rest.split(';').any(|it| it == "rel=alternate") {
                found.extend(url.join(target));
            }
        }
    }
    found
}

/// Looks at something that takes the authority a while, within [`PATIENCE`].
struct Looks {
    end: clock::Instant,
    next: Duration,
}

impl Looks {
    fn new() -> Self {
        Self {
            end: clock::instant() + PATIENCE,
            next: Duration::from_secs(1),
        }
    }

    /// Waits as long as an answer asks for, or ever longer; false once the time is over.
    async fn pause(&mut self, answer: &Answer) -> bool {
        if clock::instant() >= self.end {
            return false;
        }
        let wanted = retry_after(answer).map(|seconds| seconds.min(LOOK_MAX_ASKED));
        let asked = wanted.and_then(|seconds| u64::try_from(seconds).ok());
        clock::pause(asked.map_or(self.next, Duration::from_secs)).await;
        self.next = (self.next * 2).min(LOOK_MAX);
        true
    }
}
