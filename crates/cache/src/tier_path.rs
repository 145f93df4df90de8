//! `proxy_cache_path … tier=`: the place of a zone's second tier, as it is written.
//!
//! | parameter | default |
//! |---|---|
//! | `tier` | none |
//! | `tier_endpoint`, `tier_region` | what the environment says |
//! | `tier_min_hits` | 2 |
//! | `tier_min_size` | 64k |
//! | `tier_min_ttl` | 10h |
//! | `tier_queue` | 256m |
//! | `tier_timeout` | 1s |
//!
//! Reading opens nothing. What the second tier is, stands in `millpond_tier`.

use std::time::Duration;

use millpond_conf::value::{parse_duration, parse_offset};

use crate::copies::HITS_MAX;

/// Hits before an entry is written, unless it is said.
const HITS: u32 = 2;
/// The least size of a body, unless it is said: a request costs as much for less.
const SIZE: u64 = 64 << 10;
/// The least lifetime, unless it is said.
const LIFETIME: Duration = Duration::from_secs(10 * 3600);
/// Bytes that may wait to be written, unless it is said.
const QUEUE: u64 = 256 << 20;
/// Bytes that may wait to be written, at least: one slice.
const QUEUE_MIN: u64 = 4 << 20;
/// Time that a request waits, unless it is said.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time that a request may wait (arbitrary; most origins are faster).
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Kind of an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// S3, and what speaks like it.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// A folder.
    File,
}

/// Second tier of a zone as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierPath {
    /// Kind of the store.
    pub scheme: Scheme,
    /// The bucket or container; the folder of a store of files.
    pub bucket: String,
    /// Begin of the names of all objects; may be empty.
    pub prefix: String,
    /// URL of the store, where it is not that of the cloud.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// Hits before an entry is written.
    pub min_hits: u32,
    /// The least size of a body.
    pub min_size: u64,
    /// The least lifetime.
    pub min_ttl: Duration,
    /// Bytes of bodies that may wait to be written.
    pub queue: u64,
    /// The longest time that a request waits for the tier.
    pub timeout: Duration,
}

impl TierPath {
    /// The URL of the place, without an end that is not needed.
    pub fn url(&self) -> String {
        let (bucket, prefix) = (&self.bucket, &self.prefix);
        let scheme = match self.scheme {
            Scheme::S3 => "s3",
            Scheme::Gcs => "gs",
            Scheme::Azure => "az",
            Scheme::File => "file",
        };
        match prefix.as_str() {
            "" => format!("{scheme}://{bucket}"),
            _ => format!("{scheme}://{bucket}/{prefix}"),
        }
    }

    /// The tier at a URL, with nothing else said.
    pub fn parse(url: &str) -> Result<TierPath, String> {
        let wrong = |why: &str| format!("invalid tier \"{url}\": {why}");
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| wrong("it must begin with s3://, gs://, az:// or file:///"))?;
        let scheme = match scheme {
            "s3" => Scheme::S3,
            "gs" => Scheme::Gcs,
            "az" => Scheme::Azure,
            "file" => Scheme::File,
            _ => return Err(wrong("it must begin with s3://, gs://, az:// or file:///")),
        };
        let (bucket, prefix) = match scheme {
            Scheme::File if !rest.starts_with('/') => {
                return Err(wrong("the path must be absolute"));
            }
            Scheme::File => (rest, ""),
            _ => rest.split_once('/').unwrap_or((rest, "")),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if scheme != Scheme::File && (bucket.is_empty() || !bucket.bytes().all(is_name)) {
            return Err(wrong("there is no bucket in it"));
        }
        let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_name);
        let prefix = prefix.trim_end_matches('/');
        if !prefix.is_empty() && !prefix.split('/').all(is_part) {
            return Err(wrong(
                "a prefix has letters, digits, \"-\", \"_\", \".\" and \"/\"",
            ));
        }
        Ok(TierPath {
            scheme,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            endpoint: None,
            region: None,
            min_hits: HITS,
            min_size: SIZE,
            min_ttl: LIFETIME,
            queue: QUEUE,
            timeout: TIMEOUT,
        })
    }
}

/// The parameters of a second tier while they are read, in any order.
#[derive(Debug, Default)]
pub(crate) struct TierParameters {
    url: Option<String>,
    others: Vec<(String, String)>,
}

impl TierParameters {
    /// Takes a word; none if it is not about a tier.
    pub(crate) fn take(&mut self, word: &str) -> Option<Result<(), String>> {
        let (name, value) = word.split_once('=')?;
        if name == "tier" {
            self.url = Some(value.to_owned());
        } else if name.starts_with("tier_") {
            self.others.push((name.to_owned(), value.to_owned()));
        } else {
            return None;
        }
        Some(Ok(()).and_then(|()| match value {
            "" => Err(format!("invalid parameter \"{word}\"")),
            _ => Ok(()),
        }))
    }

    /// The tier, of a zone in this fleet.
    pub(crate) fn settle(self, fleet: Option<&str>) -> Result<Option<TierPath>, String> {
        let Some(url) = self.url else {
            return match self.others.first() {
                Some((name, _)) => Err(format!("\"{name}\" needs \"tier=\"")),
                None => Ok(None),
            };
        };
        let mut tier = TierPath::parse(&url)?;
        if fleet.is_none() {
            return Err(
                "\"tier=\" needs \"fleet=\": only the log of a fleet knows what was purged when a \
                 disk of this zone is lost, and purged bodies would come back"
                    .to_owned(),
            );
        }
        for (name, value) in &self.others {
            apply(&mut tier, name, value)?;
        }
        Ok(Some(tier))
    }
}

fn apply(tier: &mut TierPath, name: &str, value: &str) -> Result<(), String> {
    let invalid = || format!("invalid {name} value \"{name}={value}\"");
    let size = || parse_offset(value).ok_or_else(invalid);
    let time = || parse_duration(value).ok_or_else(invalid);
    match name {
        "tier_endpoint" => {
            let plain = value.strip_prefix("http://");
            let host = plain.or(value.strip_prefix("https://"));
            if host.is_none_or(str::is_empty) || tier.scheme == Scheme::File {
                return Err(invalid());
            }
            tier.endpoint = Some(value.to_owned());
        }
        "tier_region" if tier.scheme == Scheme::S3 => tier.region = Some(value.to_owned()),
        "tier_min_hits" => {
            let hits = value.parse().ok();
            let is_possible = |hits: &u32| (1..=HITS_MAX).contains(hits);
            tier.min_hits = hits.filter(is_possible).ok_or_else(invalid)?;
        }
        "tier_min_size" => tier.min_size = size()?,
        "tier_min_ttl" => tier.min_ttl = time()?,
        "tier_queue" => {
            tier.queue = Some(size()?)
                .filter(|size| *size >= QUEUE_MIN)
                .ok_or_else(invalid)?;
        }
        "tier_timeout" => {
            let is_possible = |time: &Duration| !time.is_zero() && *time <= TIMEOUT_MAX;
            tier.timeout = Some(time()?).filter(is_possible).ok_or_else(invalid)?;
        }
        _ => return Err(format!("invalid parameter \"{name}={value}\"")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_store_a_bucket_and_a_prefix() {
        let table = [
            ("s3://b", Some((Scheme::S3, "b", ""))),
            ("s3://b/p", Some((Scheme::S3, "b", "p"))),
            ("gs://b.c/p/q/", Some((Scheme::Gcs, "b.c", "p/q"))),
            ("az://b/", Some((Scheme::Azure, "b", ""))),
            ("file:///srv/tier", Some((Scheme::File, "/srv/tier", ""))),
            ("file://srv", None),
            ("s3://", None),
            ("s3:///p", None),
            ("s3://b/p//q", None),
            ("s3://b/p q", None),
            ("ftp://b", None),
            ("b", None),
        ];
        for (url, expected) in table {
            let tier = TierPath::parse(url).ok();
            let found = tier.map(|it| (it.scheme, it.bucket, it.prefix));
            let expected = expected.map(|(s, b, p)| (s, b.to_owned(), p.to_owned()));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn parameters_need_a_tier_and_a_tier_needs_a_fleet() {
        let settle = |words: &[&str], fleet| {
            let mut parameters = TierParameters::default();
            for word in words {
                parameters.take(word).unwrap()?;
            }
            parameters.settle(fleet)
        };
        assert_eq!(settle(&[], None), Ok(None));
        let why = settle(&["tier_queue=8m"], Some("f")).unwrap_err();
        assert_eq!(why, "\"tier_queue\" needs \"tier=\"");
        let why = settle(&["tier=s3://b"], None).unwrap_err();
        assert!(why.starts_with("\"tier=\" needs \"fleet=\": "), "{why}");
        let words = ["tier_min_hits=3", "tier=s3://b", "tier_timeout=200ms"];
        let tier = settle(&words, Some("f")).unwrap().unwrap();
        assert_eq!((tier.min_hits, tier.timeout.as_millis()), (3, 200));
        for wrong in [
            "tier_min_hits=0",
            "tier_min_hits=201",
            "tier_min_size=x",
            "tier_queue=1m",
            "tier_timeout=0",
            "tier_timeout=2m",
            "tier_endpoint=minio",
            "tier_what=1",
            "tier_region=",
        ] {
            assert!(
                settle(&["tier=s3://b", wrong], Some("f")).is_err(),
                "{wrong}"
            );
        }
        assert!(settle(&["tier=file:///t", "tier_region=a"], Some("f")).is_err());
    }
}
