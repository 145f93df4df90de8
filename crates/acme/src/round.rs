//! One look at all certificates of an issuer: what is due is done.
//!
//! ```text
//! not loaded ─► folder ─► held, or nothing
//! due: advice ─► the authority is asked when to renew
//! due: order  ─► account, order, certificate ─► folder, handshakes
//! ```
//!
//! What fails is logged with the time of the next try, and neither stops the other certificates nor
//! takes away what is there.

use std::sync::Arc;

use jiff::Timestamp;
use millpond_system::chance;
use millpond_system::log::error::{Level, os_error};

use crate::client::Client;
use crate::error::Error;
use crate::issued::Issued;
use crate::issuer::{AccountKey, Issuer};
use crate::key::{Key, KeyKind};
use crate::ordered::Ordered;
use crate::resource::Problem;
use crate::schedule::{Due, Timing};
use crate::state::{ACCOUNT_KEY, ACCOUNT_URL, Folder, new_name};
use crate::work::{Work, log, now_s};

/// The account of an issuer, and what is remembered of it.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The key that was made, with its kind, and the folder that it is of.
    made: Option<(KeyKind, Option<Folder>, Key)>,
    /// The times of registrations that failed.
    pause: Option<Timing>,
    /// The end of the pause that the authority asked for.
    until: Option<i64>,
    /// The authority will not have it as it is configured.
    is_refused: bool,
}

impl Account {
    /// Notes that the configuration has changed: what failed is tried again.
    pub(crate) fn change(&mut self, work: &Work) {
        self.is_refused = false;
        let now = now_s();
        let until = self.until.filter(|until| *until > now);
        if let Some(pause) = &mut self.pause {
            pause.forget_failures(now, until);
        }
        for ordered in &work.orders {
            let mut state = ordered.state();
            state.is_refused = false;
            let until = state.until.filter(|until| *until > now);
            state.timing.forget_failures(now, until);
        }
    }

    /// Does what is due; returns the time at which something is due again.
    pub(crate) async fn round(&mut self, work: &Work) -> i64 {
        for ordered in &work.orders {
            load(&work.issuer, ordered);
        }
        let is_due = |due| !matches!(due, Due::Nothing(_));
        if !work.orders.iter().any(|it| is_due(self.due(it))) {
            return self.next(work);
        }
        match self.key(&work.issuer) {
            Ok(key) => match Client::new(&work.issuer, &key).await {
                Ok(mut client) => self.tend(work, &mut client).await,
                Err(error) => self.all_failed(work, &error),
            },
            Err(error) => self.all_failed(work, &error),
        }
        self.next(work)
    }

    /// Notes for all that is due that it cannot be done.
    fn all_failed(&self, work: &Work, error: &Error) {
        for ordered in &work.orders {
            match self.due(ordered) {
                Due::Order => order_failed(&work.issuer, ordered, error),
                Due::Advice => advice_failed(&work.issuer, ordered, error),
                Due::Nothing(_) => {}
            }
        }
    }

    async fn tend(&mut self, work: &Work, client: &mut Client<'_>) {
        let issuer = &work.issuer;
        let mut is_known = false;
        for ordered in &work.orders {
            if self.due(ordered) == Due::Advice {
                ask_for_advice(issuer, ordered, client).await;
            }
            if self.due(ordered) != Due::Order {
                continue;
            }
            if !is_known {
                ordered.say("an account is being looked for");
                let found = self.register(issuer, client).await;
                if let Err(error) = found {
                    self.account_failed(issuer, work, &error);
                    return;
                }
                is_known = true;
            }
            order(issuer, ordered, client).await;
            if self.due(ordered) == Due::Advice {
                ask_for_advice(issuer, ordered, client).await;
            }
        }
    }

    /// The thing that is due for a certificate.
    fn due(&self, ordered: &Ordered) -> Due {
        let now = now_s();
        let state = ordered.state();
        let due = state.timing.due(now);
        if due != Due::Order {
            return due;
        }
        let pause = self.pause.as_ref().map(|pause| pause.due(now));
        match pause {
            _ if self.is_refused || state.is_refused => Due::Nothing(i64::MAX),
            Some(Due::Nothing(until)) => Due::Nothing(until),
            _ => Due::Order,
        }
    }

    fn next(&self, work: &Work) -> i64 {
        let all = work.orders.iter().map(|ordered| match self.due(ordered) {
            Due::Nothing(at) => at,
            Due::Order | Due::Advice => now_s(),
        });
        all.min().unwrap_or(i64::MAX)
    }

    /// The account's key: given, remembered, kept, or made.
    fn key(&mut self, issuer: &Issuer) -> Result<Key, Error> {
        let kind = match &issuer.account {
            AccountKey::Given(key) => return Ok(key.clone()),
            AccountKey::Made(kind) => *kind,
        };
        if let Some((known, folder, key)) = &self.made
            && (known, folder) == (&kind, &issuer.folder)
        {
            return Ok(key.clone());
        }
        let kept = kept(issuer, ACCOUNT_KEY, |text| {
            Key::from_pem(text.as_bytes()).map_err(|why| why.to_string())
        });
        let key = match kept {
            Some(key) => key,
            None => make_key(issuer, kind)?,
        };
        self.made = Some((kind, issuer.folder.clone(), key.clone()));
        Ok(key)
    }

    /// Finds the account, or makes one.
    async fn register(&mut self, issuer: &Issuer, client: &mut Client<'_>) -> Result<(), Error> {
        let url = client.register().await?;
        self.pause = None;
        let text = format!("{url}\n{}\n", issuer.uri);
        let known = kept(issuer, ACCOUNT_URL, |text| Ok(text.to_owned()));
        if known.as_deref() != Some(&text) {
            log(Level::Notice, issuer, format_args!("the account is {url}"));
            keep(issuer, &[(ACCOUNT_URL, &text)]);
        }
        Ok(())
    }

    fn account_failed(&mut self, issuer: &Issuer, work: &Work, error: &Error) {
        let is_for_good = matches!(error, Error::Configuration(_))
            || error.problem().is_some_and(Problem::is_of_account);
        let why = format!("the account cannot be had: {error}");
        for ordered in &work.orders {
            if self.due(ordered) == Due::Order {
                ordered.fail(&why);
            }
        }
        let (level, then) = if is_for_good {
            self.is_refused = true;
            (Level::Error, FOR_GOOD.to_owned())
        } else {
            let pause = self.pause.get_or_insert(Timing::NOTHING);
            let now = now_s();
            self.until = error.after().map(|after| now + after);
            pause.order_failed(now, self.until, chance::word());
            let at = shown(pause.next_order());
            (Level::Warn, format!("the next try is at {at}"))
        };
        log(level, issuer, format_args!("{why}; {then}"));
    }
}

/// The end of a message about something that no other try would mend.
const FOR_GOOD: &str = "there is no other try before the configuration is read again";

/// Makes the key of an account, and keeps it.
fn make_key(issuer: &Issuer, kind: KeyKind) -> Result<Key, Error> {
    let key = Key::generate(kind)?;
    let pem = key.to_pem()?;
    keep(issuer, &[(ACCOUNT_KEY, &String::from_utf8_lossy(&pem))]);
    Ok(key)
}

/// Looks for a certificate in the folder, once.
pub(crate) fn load(issuer: &Issuer, ordered: &Ordered) {
    if std::mem::replace(&mut ordered.state().is_loaded, true) {
        return;
    }
    let found = kept_pair(issuer, &ordered.label);
    if let Some(issued) = found {
        let timing = Timing::held(&issued.valid, chance::word());
        ordered.restore(issued, timing);
    }
}

async fn ask_for_advice(issuer: &Issuer, ordered: &Ordered, client: &Client<'_>) {
    let id = ordered.issued().and_then(|issued| issued.id.clone());
    let Some(id) = id.filter(|_| client.gives_advice()) else {
        ordered.state().timing.no_advice();
        return;
    };
    let (now, names) = (now_s(), ordered.shown());
    match client.advice(&id).await {
        Ok(advice) => {
            let mut state = ordered.state();
            let told = (&advice.window, advice.holds);
            state.timing.advised(now, told, chance::word());
            let at = shown(state.timing.next_order());
            drop(state);
            let explained = advice.explanation.map(|url| format!(" ({url})"));
            let more = explained.unwrap_or_default();
            let message = format_args!("{names} is to be renewed at {at}{more}");
            log(Level::Info, issuer, message);
        }
        Err(error) => advice_failed(issuer, ordered, &error),
    }
}

fn advice_failed(issuer: &Issuer, ordered: &Ordered, error: &Error) {
    let mut state = ordered.state();
    state.timing.advice_failed(now_s(), chance::word());
    drop(state);
    let names = ordered.shown();
    let message = format_args!("no advice on when to renew {names}: {error}");
    log(Level::Warn, issuer, message);
}

async fn order(issuer: &Issuer, ordered: &Arc<Ordered>, client: &mut Client<'_>) {
    ordered.say("it has been ordered, and is being waited for");
    let old = ordered.issued();
    let id = old.as_ref().and_then(|old| old.id.as_deref());
    let replaces = id.filter(|_| client.gives_advice());
    match client.order(ordered, replaces).await {
        Ok(issued) => {
            let [key, chain] = pair(&ordered.label);
            keep(issuer, &[(&key, &issued.key), (&chain, &issued.chain)]);
            let mut timing = Timing::held(&issued.valid, chance::word());
            if old.is_some() {
                timing.rest(&issued.valid);
            }
            let message = format!(
                "the certificate for {} was {}, until {}",
                ordered.shown(),
                if old.is_some() { "renewed" } else { "issued" },
                shown(issued.valid.end)
            );
            ordered.put(issued, timing);
            log(Level::Notice, issuer, format_args!("{message}"));
        }
        Err(error) => order_failed(issuer, ordered, &error),
    }
}

fn order_failed(issuer: &Issuer, ordered: &Ordered, error: &Error) {
    ordered.fail(&error.to_string());
    let is_for_good = matches!(error, Error::Configuration(_))
        || error.problem().is_some_and(Problem::is_of_order);
    let now = now_s();
    let mut state = ordered.state();
    // nginx's module: what is tried again is a warning.
    let (level, then) = if is_for_good {
        state.is_refused = true;
        (Level::Error, FOR_GOOD.to_owned())
    } else {
        state.until = error.after().map(|after| now + after);
        let until = state.until;
        state.timing.order_failed(now, until, chance::word());
        let at = shown(state.timing.next_order());
        (Level::Warn, format!("the next try is at {at}"))
    };
    drop(state);
    let names = ordered.shown();
    let message = format_args!("no certificate for {names}: {error}; {then}");
    log(level, issuer, message);
}

/// The content of a file, if it is there and can be used; one that cannot is set aside.
fn kept<T>(issuer: &Issuer, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
    let folder = issuer.folder.as_ref()?;
    let why = match folder.read(name) {
        Ok(None) => return None,
        Ok(Some(text)) => match read(&text) {
            Ok(value) => return Some(value),
            Err(why) => why,
        },
        Err(error) => error.to_string(),
    };
    set_aside(issuer, folder, (name, &why));
    None
}

/// The files of a certificate: of its key and of its chain.
fn pair(label: &str) -> [String; 2] {
    ["key", "crt"].map(|end| format!("{label}.{end}"))
}

/// A certificate that is kept, if it is there and can be used; what cannot is set aside.
fn kept_pair(issuer: &Issuer, label: &str) -> Option<Issued> {
    let folder = issuer.folder.as_ref()?;
    let why = match read_pair(folder, label) {
        Ok(issued) => return Some(issued),
        Err(why) => why,
    };
    for name in pair(label) {
        if !matches!(folder.read(&name), Ok(None)) {
            set_aside(issuer, folder, (&name, &why));
        }
    }
    None
}

fn read_pair(folder: &Folder, label: &str) -> Result<Issued, String> {
    let [key, chain] = pair(label);
    let read = |name: &str| {
        let read = folder.read(name).map_err(|error| error.to_string());
        read.and_then(|text| text.ok_or_else(|| format!("{name} is not there")))
    };
    let read_both = |chain: &str| Issued::read(&read(chain)?, &read(&key)?);
    read_both(&chain).or_else(|why| {
        // The new key may have got its place, and its chain not.
        let issued = read_both(&new_name(&chain)).map_err(|_| why)?;
        // If it fails, the next start finds it again.
        let _ = folder.take_new(&chain);
        Ok(issued)
    })
}

fn set_aside(issuer: &Issuer, folder: &Folder, (name, why): (&str, &str)) {
    let path = folder.path(name);
    let then = match folder.set_aside(name) {
        Ok(aside) => format!("it is kept as \"{}\"", aside.display()),
        Err(error) => format!("and it cannot be set aside ({error})"),
    };
    let message = format_args!("\"{}\" cannot be used: {why}; {then}", path.display());
    log(Level::Error, issuer, message);
}

/// Keeps files over the end of the process; what cannot be kept is used all the same.
fn keep(issuer: &Issuer, files: &[(&str, &str)]) {
    let Some(folder) = &issuer.folder else {
        return;
    };
    if let Err(error) = folder.write(files) {
        let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        let (names, why) = (names.join(", "), os_error(&error));
        let place = folder.0.display();
        let message = format_args!("writing {names} in \"{place}\" failed ({why})");
        log(Level::Error, issuer, message);
    }
}

/// A time, as it is logged.
fn shown(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds);
    time.map_or_else(|_| "no time".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identifier::Identifier;
    use std::fs;

    /// Two keys with chains of their own, in PEM.
    fn pairs() -> [[String; 2]; 2] {
        ["a.example", "b.example"].map(|name| {
            let key = Key::generate(KeyKind::P256).unwrap();
            let name = Identifier::Dns(name.to_owned());
            let chain = crate::challenge::self_made(&name, "proof", &key).unwrap();
            let texts = [key.to_pem().unwrap().to_vec(), chain.to_pem().unwrap()];
            texts.map(|text| String::from_utf8(text).unwrap())
        })
    }

    #[test]
    fn pairs_that_a_crash_has_torn_are_put_together() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder(dir.path().to_owned());
        let [[old_key, old_chain], [new_key, new_chain]] = pairs();
        for (files, expected) in [
            (
                vec![("x.key", &old_key), ("x.crt", &old_chain)],
                Some(&old_chain),
            ),
            // Before the first is renamed.
            (
                vec![
                    ("x.key", &old_key),
                    ("x.crt", &old_chain),
                    ("x.key.new", &new_key),
                    ("x.crt.new", &new_chain),
                ],
                Some(&old_chain),
            ),
            // Between the two.
            (
                vec![
                    ("x.key", &new_key),
                    ("x.crt", &old_chain),
                    ("x.crt.new", &new_chain),
                ],
                Some(&new_chain),
            ),
            (
                vec![("x.key", &new_key), ("x.crt.new", &new_chain)],
                Some(&new_chain),
            ),
            (vec![("x.key", &new_key), ("x.crt", &old_chain)], None),
            (vec![], None),
        ] {
            for entry in fs::read_dir(dir.path()).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
            for (name, text) in &files {
                fs::write(folder.path(name), text).unwrap();
            }
            let found = read_pair(&folder, "x").ok();
            assert_eq!(found.map(|it| it.chain).as_ref(), expected, "{files:?}");
        }
    }
}
