//! `gauge run` and `gauge origin`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::arguments::{OriginArguments, OutputArguments, RunArguments};
use super::{Outcome, Verdict, watch};
use crate::load::{self, Shared};
use crate::module::Module;
use crate::origin::Origin;
use crate::report::{self, About, Report};

/// Asks a server that runs.
pub(crate) fn run(wanted: &RunArguments) -> Result<Outcome> {
    let Some(url) = &wanted.url else {
        bail!("where is the server? Say --url http://HOST[:PORT]");
    };
    let (address, host) = server(url)?;
    let host = wanted.host.clone().unwrap_or(host);
    let origin = match wanted.origin.listen {
        Some(_) => Some(Origin::start(wanted.origin.conf(wanted.load.load().seed))?),
        None => None,
    };
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let module = wanted.load.module(&format!("{:x}", since.as_millis()))?;
    if module.needs_origin() && origin.is_none() {
        bail!(
            "this module needs the built-in origin: give --origin ADDRESS:PORT, and have the server ask there"
        );
    }
    let target = wanted.load.target(address, host);
    let shared = Arc::new(Shared::new(target, origin, wanted.load.load()));
    let report = measure(&shared, &Arc::new(module), wanted.output.quiet)?;
    print(&wanted.output, &report::table(&report));
    Ok(Outcome {
        verdict: judge(&wanted.output, "run", &report),
        summary: String::new(),
        reports: vec![("run".to_owned(), report)],
    })
}

/// Runs all users, and sums up.
pub(crate) fn measure(
    shared: &Arc<Shared>,
    module: &Arc<Module>,
    is_quiet: bool,
) -> Result<Report> {
    let record = watch(shared, is_quiet, || load::run(shared, module))??;
    Ok(Report::new(
        module,
        shared,
        &record,
        shared.began().elapsed(),
    ))
}

/// Verdict on a report: is it right and within its limits? Each broken limit is told.
fn judge(output: &OutputArguments, name: &str, report: &Report) -> Verdict {
    let broken = broken_limits(output, report);
    for text in &broken {
        eprintln!("gauge: {name}: limit broken: {text}");
    }
    if report.is_right(output.claims()) && broken.is_empty() {
        Verdict::Right
    } else {
        Verdict::Wrong
    }
}

/// The limits that a report is not within.
pub(crate) fn broken_limits(output: &OutputArguments, report: &Report) -> Vec<String> {
    let limits = output.limits.iter();
    limits.filter_map(|limit| limit.broken(report)).collect()
}

/// Prints what a person reads, unless the standard output has the JSON.
pub(crate) fn print(output: &OutputArguments, text: &str) {
    if !output.is_mute && output.json.as_deref() != Some(Path::new("-")) {
        println!("{text}");
    }
}

/// Writes reports where they are wanted, each page with its facts first.
pub(crate) fn write_files(
    output: &OutputArguments,
    about: &About,
    reports: &[(String, Report)],
) -> Result<()> {
    if let Some(path) = &output.json {
        let text = match reports {
            [(_, report)] => serde_json::to_string_pretty(report)?,
            reports => serde_json::to_string_pretty(reports)?,
        };
        if path == Path::new("-") {
            println!("{text}");
        } else {
            write(path, &text)?;
        }
    }
    match &output.html {
        Some(path) => write(path, &report::page(about, reports)),
        None => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Serves an origin until it is interrupted.
pub(crate) fn serve(wanted: &OriginArguments) -> Result<Verdict> {
    let origin = Origin::start(wanted.conf(1))?;
    eprintln!("origin on {}; Ctrl-C ends it", origin.address());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(tokio::signal::ctrl_c())?;
    println!("{}", serde_json::to_string_pretty(&origin.counts())?);
    Ok(Verdict::Right)
}

/// Address and host of `http://HOST[:PORT]`.
fn server(url: &str) -> Result<(SocketAddr, String)> {
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("{url}: wanted http://HOST[:PORT]; TLS is not there yet");
    };
    let host = rest.trim_end_matches('/');
    if host.contains('/') {
        bail!("{url}: the module chooses the path");
    }
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let named = if has_port {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let mut found = named
        .to_socket_addrs()
        .with_context(|| format!("{url}: unknown host"))?;
    let address = found
        .next()
        .with_context(|| format!("{url}: the host has no address"))?;
    Ok((address, host.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server() {
        let (address, host) = server("http://127.0.0.1:8080/").expect("a URL");
        assert_eq!((address.port(), host.as_str()), (8080, "127.0.0.1:8080"));
        assert_eq!(server("http://127.0.0.1").expect("a URL").0.port(), 80);
        for url in ["127.0.0.1", "https://127.0.0.1", "http://127.0.0.1/a"] {
            assert!(server(url).is_err(), "{url}");
        }
    }
}
