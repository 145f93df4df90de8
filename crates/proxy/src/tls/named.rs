//! Certificates whose names have variables: read when a connection needs them.
//!
//! ```text
//! worker: names of the connection ─► kept? ─yes─► identities
//!                                     └─no─► a thread reads the files; the handshake waits
//! ```
//!
//! 1. A worker never waits for a file: only the handshake does.
//! 2. No more than `READERS` threads read at a time; the others' handshakes wait for them, within
//!    their own timeouts.

use std::sync::Arc;

use millpond_conf::Template;
use millpond_system::clock::{self, Instant};
use millpond_tls::Identity;
use millpond_tls::certificate::password::Password;
use millpond_tls::certificate::source::Source;
use tokio::sync::Semaphore;

use super::certificate_cache::{CertificateCache, Found, Pair};
use super::objects::{self, Stamp};
use super::settings::FileName;

/// Threads that read certificates at a time (arbitrary: files are short, and disks slow at most).
const READERS: usize = 16;

static PLACES: Semaphore = Semaphore::const_new(READERS);

/// The certificates of a connection.
pub type Identities = Arc<[Arc<Identity>]>;

/// Certificates and their keys, by names with variables.
#[derive(Debug)]
pub struct NamedCertificates {
    /// The directives' values for certificates and keys.
    pub files: Vec<[FileName; 2]>,
    /// Passwords of keys.
    pub passwords: Vec<Password>,
    /// The cache, if there is one.
    pub cache: Option<Arc<CertificateCache>>,
}

impl NamedCertificates {
    /// The names that the templates have for a connection; why not, if one is no text.
    pub fn names(
        &self,
        mut eval: impl FnMut(&Template) -> bytes::Bytes,
    ) -> Result<Vec<Pair>, String> {
        let mut names = Vec::new();
        for files in &self.files {
            let [certificate, key] = files.each_ref().map(|file| {
                let value = eval(&file.name);
                match std::str::from_utf8(&value) {
                    Ok(text) if !text.contains('\0') => Ok(Arc::<str>::from(text)),
                    _ => {
                        let shown = String::from_utf8_lossy(&value).into_owned();
                        Err(format!("cannot load certificate \"{shown}\": invalid name"))
                    }
                }
            });
            names.push([certificate?, key?]);
        }
        Ok(names)
    }

    /// The certificates of these names.
    pub async fn load(self: &Arc<Self>, names: Vec<Pair>) -> Result<Identities, String> {
        if let Some(kept) = self.kept(&names, clock::instant()) {
            return Ok(kept);
        }
        // INVARIANT 2.
        let Ok(place) = PLACES.acquire().await else {
            return Err("certificates cannot be read any more".to_owned());
        };
        let this = Arc::clone(self);
        let job = tokio::task::spawn_blocking(move || {
            let _place = place;
            let mut identities = Vec::new();
            for (files, pair) in this.files.iter().zip(names) {
                objects::put_identity(&mut identities, this.read(files, pair)?);
            }
            Ok(Identities::from(identities))
        });
        let outcome = job.await;
        outcome.unwrap_or_else(|_| Err("reading of certificates was given up".to_owned()))
    }

    /// The certificates of these names, if all of them are kept.
    fn kept(&self, names: &[Pair], now: Instant) -> Option<Identities> {
        let cache = self.cache.as_ref()?;
        let mut identities = Vec::new();
        for pair in names {
            let Found::Fresh(identity) = cache.find(pair, now) else {
                return None;
            };
            objects::put_identity(&mut identities, identity);
        }
        Some(identities.into())
    }

    fn read(&self, files: &[FileName; 2], pair: Pair) -> Result<Arc<Identity>, String> {
        let now = clock::instant();
        let stamps = stamps(files, &pair);
        let found = self.cache.as_ref().map(|cache| cache.find(&pair, now));
        if let Some(identity) = found.and_then(|found| found.still(&stamps)) {
            self.keep(pair, &identity, stamps, now);
            return Ok(identity);
        }
        // nginx: files that do not fit may just be changing.
        let outcome = self.read_files(files, &pair);
        let (identity, is_encrypted) = match outcome.or_else(|_| self.read_files(files, &pair)) {
            Ok(read) => read,
            Err(why) => {
                let cache = self.cache.iter();
                cache.for_each(|cache| cache.forget(&pair));
                return Err(why);
            }
        };
        if !is_encrypted {
            self.keep(pair, &identity, stamps, now);
        }
        Ok(identity)
    }

    fn read_files(
        &self,
        [certificate, key]: &[FileName; 2],
        [certificate_name, key_name]: &Pair,
    ) -> Result<(Arc<Identity>, bool), String> {
        let chain = objects::chain(certificate, certificate_name, &mut objects::read)?;
        let key = objects::key(key, key_name, &self.passwords, &mut objects::read)?;
        let identity = objects::identity(chain, &key)?;
        Ok((identity, key.key.is_encrypted))
    }

    fn keep(&self, pair: Pair, identity: &Arc<Identity>, stamps: [Stamp; 2], now: Instant) {
        if let Some(cache) = &self.cache {
            cache.keep(pair, Arc::clone(identity), stamps, now);
        }
    }
}

/// The state of the files of a pair.
fn stamps([certificate, key]: &[FileName; 2], [of_certificate, of_key]: &Pair) -> [Stamp; 2] {
    let certificate = match Source::of_certificate(of_certificate) {
        Source::Text(_) => Stamp::of(None),
        Source::File(name) | Source::Store(name) => {
            Stamp::of(Some(certificate.path(name.as_bytes())))
        }
    };
    let key = match Source::of_key(of_key) {
        Ok(Source::Text(_)) => Stamp::of(None),
        Ok(Source::File(name) | Source::Store(name)) => Stamp::of(Some(key.path(name.as_bytes()))),
        Err(_) => Stamp::Unknown,
    };
    [certificate, key]
}
