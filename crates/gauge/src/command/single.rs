//! `gauge run` and `gauge origin`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::arguments::{OriginArguments, OutputArguments, RunArguments};
use super::{Outcome, Scheme, Verdict, watch};
use crate::client::Trust;
use crate::load::{self, Shared};
use crate::module::Module;
use crate::origin::Origin;
use crate::report::{self, About, Report};

/// Asks a server that runs.
pub(crate) fn run(wanted: &RunArguments) -> Result<Outcome> {
    let Some(url) = &wanted.url else {
        bail!("where is the server? Say --url http://HOST[:PORT] or https://HOST[:PORT]");
    };
    let Server {
        address,
        host,
        scheme,
    } = server(url)?;
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
    let target = wanted.load.target(address, host, scheme)?;
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
    eprintln!("origin on {}; Ctrl-C ends it", origin.url());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(tokio::signal::ctrl_c())?;
    println!("{}", serde_json::to_string_pretty(&origin.counts())?);
    Ok(Verdict::Right)
}

/// Server that a URL names.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// Value of `Host`.
    host: String,
    scheme: Scheme,
}

/// Server of `http://HOST[:PORT]` or `https://HOST[:PORT]`.
fn server(url: &str) -> Result<Server> {
    let (rest, usual, is_https) = match (url.strip_prefix("http://"), url.strip_prefix("https://"))
    {
        (Some(rest), _) => (rest, 80, false),
        (None, Some(rest)) => (rest, 443, true),
        (None, None) => bail!("{url}: wanted http://HOST[:PORT] or https://HOST[:PORT]"),
    };
    let host = rest.trim_end_matches('/');
    if host.contains('/') {
        bail!("{url}: the module chooses the path");
    }
    let with_port = host
        .rsplit_once(':')
        .filter(|(_, port)| port.parse::<u16>().is_ok());
    let (name, named) = match with_port {
        Some((name, _)) => (name, host.to_owned()),
        None => (host, format!("{host}:{usual}")),
    };
    let mut found = named
        .to_socket_addrs()
        .with_context(|| format!("{url}: unknown host"))?;
    let address = found
        .next()
        .with_context(|| format!("{url}: the host has no address"))?;
    let scheme = if is_https {
        Scheme::Https(name.to_owned(), Trust::System)
    } else {
        Scheme::Http
    };
    Ok(Server {
        address,
        host: host.to_owned(),
        scheme,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server() {
        let https = |name: &str| Scheme::Https(name.to_owned(), Trust::System);
        for (url, port, host, scheme) in [
            (
                "http://127.0.0.1:8080/",
                8080,
                "127.0.0.1:8080",
                Scheme::Http,
            ),
            ("http://127.0.0.1", 80, "127.0.0.1", Scheme::Http),
            ("https://127.0.0.1", 443, "127.0.0.1", https("127.0.0.1")),
            ("https://[::1]:8443", 8443, "[::1]:8443", https("[::1]")),
        ] {
            let server = server(url).expect("a URL");
            let found = (server.address.port(), &*server.host, server.scheme);
            assert_eq!(found, (port, host, scheme), "{url}");
        }
        for url in ["127.0.0.1", "ftp://127.0.0.1", "http://127.0.0.1/a"] {
            assert!(server(url).is_err(), "{url}");
        }
    }
}
