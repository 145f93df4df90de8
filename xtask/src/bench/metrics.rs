//! Figures that Millpond tells of itself.

use anyhow::{Context, Result};
use millpond_testkit::{Client, Proxy};

/// A server with the metrics, and one with its health, for the http block.
pub(super) const SERVER: &str = "
    server {
        listen 127.0.0.1:%%PORT_METRICS%%;
        location / { metrics; }
        location = /ready { health; }
    }";

/// Value of a metric, of the first line with that name.
pub(super) fn value(proxy: &Proxy, name: &str) -> Result<f64> {
    let page = Client::new(port(proxy)).get("/")?.text();
    let found = page.lines().find_map(|line| {
        let labels = line.strip_prefix(name)?;
        let is_it = labels.starts_with(['{', ' ']);
        is_it.then(|| labels.rsplit(' ').next()?.parse().ok())?
    });
    found.with_context(|| format!("there is no metric {name}"))
}

/// True if requests are welcome: all that was stored is known again.
pub(super) fn is_ready(proxy: &Proxy) -> bool {
    let health = Client::new(port(proxy)).get("/ready");
    health.is_ok_and(|answer| answer.status == 200)
}

fn port(proxy: &Proxy) -> u16 {
    proxy.named_port("PORT_METRICS")
}
