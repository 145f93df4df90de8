//! The store of objects, with limits of time and size.
//!
//! Questions are asked once and have the tier's time; writes are nobody's wait, have more of it,
//! and are repeated. Credentials are those of the environment, of the machine or of the container,
//! as `object_store` finds them.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::tier_path::{Scheme, TierPath};
use millpond_store::{make_parents, make_private_folder};
use millpond_system::clock;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    ClientConfigKey, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    RetryConfig, UpdateVersion,
};

/// Time for one object that is written: a slice on a line of a megabit a second.
const WRITE_WITHIN: Duration = Duration::from_secs(40);
/// Times that a write is repeated.
const WRITE_TRIES: usize = 3;

/// Failure of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The store did not answer in time.
    #[error("it does not answer in time")]
    Slow,
    /// The store failed.
    #[error("{0}")]
    Failed(String),
    /// An object is not what was written.
    #[error("an object is not what was written ({0})")]
    Wrong(&'static str),
}

impl Fault {
    fn of(error: &Error) -> Fault {
        // Some repeat answers of servers, which may be long.
        let text: String = error.to_string().chars().take(300).collect();
        Fault::Failed(text.replace(|c: char| c.is_control(), " "))
    }
}

/// An object with its version.
#[derive(Clone, Debug)]
pub struct Object {
    /// The bytes.
    pub bytes: Bytes,
    /// The version, for who replaces it.
    pub version: UpdateVersion,
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object is there.
    Written,
    /// Another one was there first, or has replaced what was to be replaced.
    Other,
}

/// A store.
#[derive(Clone, Debug)]
pub struct Objects {
    /// For questions.
    asked: Arc<dyn ObjectStore>,
    /// For writes.
    written: Arc<dyn ObjectStore>,
}

impl Objects {
    /// The store of a tier; the error says what is missing.
    pub fn open(path: &TierPath) -> Result<Objects, String> {
        let once = RetryConfig {
            max_retries: 0,
            retry_timeout: path.timeout,
            ..RetryConfig::default()
        };
        let often = RetryConfig {
            max_retries: WRITE_TRIES,
            retry_timeout: WRITE_WITHIN,
            ..RetryConfig::default()
        };
        Ok(Objects {
            asked: open(path, once)?,
            written: open(path, often)?,
        })
    }

    /// An object of at most so many bytes; none if it is not there.
    pub async fn get(
        &self,
        place: &Path,
        (most, within): (u64, Duration),
    ) -> Result<Option<Object>, Fault> {
        let getting = async {
            let result = match self.asked.get_opts(place, GetOptions::default()).await {
                Err(Error::NotFound { .. }) => return Ok(None),
                result => result.map_err(|error| Fault::of(&error))?,
            };
            let size = result.meta.size;
            if size > most {
                return Err(Fault::Wrong("too long"));
            }
            let version = UpdateVersion {
                e_tag: result.meta.e_tag.clone(),
                version: result.meta.version.clone(),
            };
            let bytes = result.bytes().await.map_err(|error| Fault::of(&error))?;
            if bytes.len() as u64 != size {
                return Err(Fault::Wrong("cut"));
            }
            Ok(Some(Object { bytes, version }))
        };
        let outcome = clock::within(within, getting).await;
        outcome.unwrap_or(Err(Fault::Slow))
    }

    /// Writes an object where there is none.
    pub async fn create(&self, place: &Path, bytes: Bytes) -> Result<Put, Fault> {
        self.put(place, bytes, PutMode::Create).await
    }

    /// Writes an object in place of one that was read.
    pub async fn replace(
        &self,
        place: &Path,
        (bytes, version): (Bytes, UpdateVersion),
    ) -> Result<Put, Fault> {
        let mode = PutMode::Update(version);
        match self.put_opts(place, bytes.clone(), mode).await? {
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                // Whichever comes last stays: heads say themselves what they are worth.
                self.put(place, bytes, PutMode::Overwrite).await
            }
            outcome => judged(outcome),
        }
    }

    /// Removes an object, if it is there.
    pub async fn delete(&self, place: &Path) -> Result<(), Fault> {
        let deleting = self.written.delete(place);
        let outcome = clock::within(WRITE_WITHIN, deleting).await;
        match outcome.ok_or(Fault::Slow)? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Fault::of(&error)),
        }
    }

    async fn put(&self, place: &Path, bytes: Bytes, mode: PutMode) -> Result<Put, Fault> {
        judged(self.put_opts(place, bytes, mode).await?)
    }

    async fn put_opts(
        &self,
        place: &Path,
        bytes: Bytes,
        mode: PutMode,
    ) -> Result<Result<(), Error>, Fault> {
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let putting = self.written.put_opts(place, bytes.into(), options);
        let outcome = clock::within(WRITE_WITHIN, putting).await;
        Ok(outcome.ok_or(Fault::Slow)?.map(drop))
    }
}

fn judged(outcome: Result<(), Error>) -> Result<Put, Fault> {
    match outcome {
        Ok(()) => Ok(Put::Written),
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Put::Other),
        Err(error) => Err(Fault::of(&error)),
    }
}

fn open(path: &TierPath, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>, String> {
    let within = format!("{}ms", retry.retry_timeout.as_millis());
    // Names are in the order of the builders' own.
    let client = [
        (ClientConfigKey::Timeout, within.clone()),
        (ClientConfigKey::ConnectTimeout, within),
    ];
    let is_plain = path
        .endpoint
        .as_ref()
        .is_some_and(|it| it.starts_with("http://"));
    let plain = is_plain.then(|| (ClientConfigKey::AllowHttp, "true".to_owned()));
    let client = client.into_iter().chain(plain);
    let failed = |error: &dyn Display| error.to_string();
    Ok(match path.scheme {
        Scheme::S3 => {
            let mut builder = AmazonS3Builder::from_env()
                .with_bucket_name(&path.bucket)
                .with_conditional_put(S3ConditionalPut::ETagMatch)
                .with_retry(retry);
            for (key, value) in client {
                builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
            }
            if let Some(endpoint) = &path.endpoint {
                builder = builder.with_endpoint(endpoint);
            }
            if let Some(region) = &path.region {
                builder = builder.with_region(region);
            }
            Arc::new(builder.build().map_err(|error| failed(&error))?)
        }
        Scheme::Gcs => {
            let mut builder = GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(&path.bucket)
                .with_retry(retry);
            for (key, value) in client {
                builder = builder.with_config(GoogleConfigKey::Client(key), value);
            }
            if let Some(endpoint) = &path.endpoint {
                builder = builder.with_base_url(endpoint);
            }
            Arc::new(builder.build().map_err(|error| failed(&error))?)
        }
        Scheme::Azure => {
            let mut builder = MicrosoftAzureBuilder::from_env()
                .with_container_name(&path.bucket)
                .with_retry(retry);
            for (key, value) in client {
                builder = builder.with_config(AzureConfigKey::Client(key), value);
            }
            if let Some(endpoint) = &path.endpoint {
                builder = builder.with_endpoint(endpoint.clone());
            }
            Arc::new(builder.build().map_err(|error| failed(&error))?)
        }
        Scheme::File => {
            let folder = std::path::Path::new(&path.bucket);
            make_parents(folder).map_err(|error| failed(&error))?;
            make_private_folder(folder).map_err(|error| failed(&error))?;
            let opened = LocalFileSystem::new_with_prefix(folder);
            // Folders go with the last object in them.
            Arc::new(
                opened
                    .map_err(|error| failed(&error))?
                    .with_automatic_cleanup(true),
            )
        }
    })
}
