//! The fleet of a configuration that gives configuration, and the connection to it.
//!
//! There is one thread, and it waits for each answer.

use anyhow::{Context, Result, anyhow, bail};
use millpond_conf::one_line;
use millpond_exchange::settings::Conf;
use millpond_fleet::config::ConfigConf;
use millpond_fleet::config::known::Known;
use millpond_fleet::nats::NatsLog;
use millpond_fleet::node::FleetConf;
use millpond_server::source::bundled::Beside;
use millpond_server::source::{ConfSource, Reading};
use tokio::runtime::Runtime;

use super::options::Options;

/// The fleet.
pub(super) struct Site {
    pub(super) fleet: FleetConf,
    pub(super) config: ConfigConf,
    runtime: Runtime,
    log: NatsLog,
}

/// Reads a configuration; its mistakes are the error.
pub(super) fn read(source: &ConfSource, beside: Beside) -> Result<Conf> {
    let source = ConfSource {
        beside,
        ..source.clone()
    };
    let reading = source.read();
    let Reading {
        conf,
        sources,
        diagnostics,
        ..
    } = &reading;
    if conf.is_none() {
        let mistakes = reading.mistakes();
        bail!("{}", mistakes.join("\n          "));
    }
    for warning in diagnostics.iter() {
        if warning.severity == millpond_conf::Severity::Warning {
            eprintln!("millpond: {}", one_line(warning, sources));
        }
    }
    reading.conf.context("no configuration")
}

impl Site {
    /// Connects to the fleet of a configuration.
    pub(super) fn open(options: &Options) -> Result<Site> {
        // What the fleet has given may be wrong, which is what commands are for.
        let conf = read(&options.process.source(), Beside::Nothing)?;
        let mut fleets = conf.declared.fleets.into_iter();
        let giving = fleets.find_map(|fleet| fleet.config.clone().map(|config| (fleet, config)));
        let (fleet, config) = giving.context(
            "no \"fleet\" of this configuration has \"config on\" (-c names another file)",
        )?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let log = runtime
            .block_on(NatsLog::connect(fleet.log.clone()))
            .map_err(|failure| anyhow!("{failure}"))?;
        Ok(Site {
            fleet,
            config,
            runtime,
            log,
        })
    }

    /// Does something with the connection.
    pub(super) fn run<T, E: std::fmt::Display>(
        &self,
        of: impl AsyncFnOnce(&NatsLog) -> Result<T, E>,
    ) -> Result<T> {
        let done = self.runtime.block_on(of(&self.log));
        done.map_err(|failure| anyhow!("{failure}"))
    }

    /// Everything that is known.
    pub(super) fn known(&self) -> Result<Known> {
        self.run(async |log| log.known(&self.config.trusted).await)
    }
}
