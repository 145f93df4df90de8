//! The manual as documents: `docs/directives.md`, `docs/variables.md` and `docs/metrics.md`.
//!
//! `cargo xtask docs` writes them, and the tests of the project compare them with what would be
//! written now.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use millpond_server::directives::manual::{self, Entry, OWN_MODULE, Standing};
use millpond_server::metrics::{Metric, Names};

/// The text of a document.
pub(super) fn document(name: &str) -> Option<String> {
    match name {
        "directives" => Some(directives()),
        "variables" => Some(variables()),
        "metrics" => Some(metrics()),
        _ => None,
    }
}

const NOTICE: &str =
    "<!-- Written by `cargo xtask docs` from the code; change the doc comments there. -->\n";

const DIRECTIVES: &str = "# Directives\n\n\
    Every directive of nginx 1.31, by the module that it belongs to, and those that nginx does \
    not have. A directive works, or is *accepted without effect* because no answer would change, \
    or is *refused* by name when a configuration has it. `millpond explain NAME` prints an entry, \
    `millpond check FILE` says how a configuration fares.\n";

const VARIABLES: &str = "# Variables\n\n\
    Every variable of nginx 1.31, by the module that it belongs to. Further ones are defined by \
    `set`, `map`, `geo`, `split_clients` and the named groups of expressions. `millpond explain \
    '$NAME'` prints an entry.\n";

const METRICS: &str = "# Metrics

`metrics;` in a location answers with counters that Prometheus and its like read. This is all it
takes:

```nginx
server {
    listen 127.0.0.1:9145;
    location = /metrics { metrics; }
}
```

```yaml
scrape_configs:
  - job_name: millpond
    static_configs:
      - targets: [\"127.0.0.1:9145\"]
```

The page tells who uses the cache and for what, so let only your monitoring ask for it: an address
like that, `allow` and `deny`, or `auth_basic`.

`contrib/prometheus/` has rules for recording and alerts, `contrib/grafana/` a dashboard.

- **Formats.** A client that asks for OpenMetrics 1.0 in its Accept field gets that, as Prometheus
  does; any other gets Prometheus text 0.0.4. The series are the same. In OpenMetrics the family of
  a counter has no `_total`, that of an info no `_info`.
- **Exactness.** Every answer and every exchange is counted once, by the worker that had it, and the
  page is the sum. Counters begin with the process, those of sites with the file that
  `cache_site_counters` names. A page is read counter by counter, while requests go on.
- **Bounds.** Labels come from the configuration, except the names of sites: `metrics sites=N;`
  gives lines of their own to the N sites with the most requests (500 without it, at most 4096), and
  all others are one site `*`. A site that comes to the N or leaves them changes what `*` has, so
  take rates of all sites from `millpond_cache_responses_total`. Series of statuses, codes and
  reasons that nothing was counted for are left out where there can be many.
- **Times** fall into fixed buckets, so histograms of several machines can be added. The first byte
  is the moment at which the head of the answer is handed to the system; the time to it begins
  when the head of the request is whole. The time of a request begins with its first byte and ends
  when the answer is sent or its client is gone.
- **Other names.** `metrics names=nginxplus;` and `metrics names=vts;` tell what there is under the
  names of nginx-prometheus-exporter for NGINX Plus and of nginx-module-vts, so that dashboards and
  alerts for those go on working; two locations can have different names. Those pages are always
  Prometheus text.
- **Traces.** `traceparent` and `tracestate` of a request go on to the origin that is asked for it,
  as they came; `$http_traceparent` writes them to a log. `otel_trace` records requests as spans and
  sends them to a collector ([operations](operations.md)). Without one, three lines begin a trace
  ([below](#a-trace-for-each-request)).

## A trace for each request

```nginx
map $request_id $span { \"~^(?<begin>.{16})\" $begin; }
map $http_traceparent $trace { \"\" \"00-$request_id-$span-01\"; default $http_traceparent; }
proxy_set_header traceparent $trace;
```

A request that comes without a trace begins one, which the origin is told; `$trace` in a log names
it. As ever, a `proxy_set_header` in a location takes the place of those around it.
";

/// Headings of the metrics, by whose names they have.
const METRIC_NAMES: [(Names, &str); 3] = [
    (Names::Millpond, "## Millpond's names"),
    (Names::NginxPlus, "## `names=nginxplus`"),
    (Names::Vts, "## `names=vts`"),
];

fn metrics() -> String {
    let mut out = format!("{NOTICE}{METRICS}");
    for (names, title) in METRIC_NAMES {
        // Writing into a String never fails.
        let _ = writeln!(out, "\n{title}\n");
        out.push_str("| name | kind | labels | meaning |\n|---|---|---|---|\n");
        for Metric {
            name,
            kind,
            labels,
            doc,
            ..
        } in names.metrics()
        {
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            let (kind, labels) = (kind.name(), labels.join(", "));
            let _ = writeln!(out, "| `{name}` | {kind} | {labels} | {doc} |");
        }
    }
    out
}

fn directives() -> String {
    let entries = manual::directives();
    let mut out = format!("{NOTICE}{DIRECTIVES}");
    let works = count(&entries, |it| *it == Standing::Works);
    let idle = count(&entries, |it| matches!(it, Standing::NoEffect(_)));
    let refused = count(&entries, |it| matches!(it, Standing::Refused(_)));
    // Writing into a String never fails.
    let _ = writeln!(
        out,
        "\n{works} work, {idle} have no effect, {refused} are refused.\n"
    );
    let has_use = |entries: &[&Entry]| {
        let is_refused = |entry: &&Entry| matches!(entry.standing, Standing::Refused(_));
        !entries.iter().all(is_refused)
    };
    let (used, refused): (Vec<_>, Vec<_>) = by_module(&entries)
        .into_iter()
        .partition(|(_, entries)| has_use(entries));
    for (module, _) in &used {
        let _ = writeln!(out, "- [{}](#{})", title(module), anchor(module));
    }
    out.push_str("- [Refused modules](#refused-modules)\n");
    for (module, entries) in used {
        let _ = writeln!(out, "\n## {}", title(module));
        for entry in entries.iter().filter(|it| it.standing == Standing::Works) {
            push_directive(&mut out, entry);
        }
        push_rest(&mut out, &entries);
    }
    out.push_str("\n## Refused modules\n");
    for (module, entries) in refused {
        let _ = writeln!(out, "\n### {module}\n");
        push_reasons(&mut out, &entries, refusal);
    }
    out
}

fn variables() -> String {
    let entries = manual::variables();
    let mut out = format!("{NOTICE}{VARIABLES}");
    for (module, entries) in by_module(&entries) {
        let _ = writeln!(out, "\n## {}\n", title(module));
        for entry in entries.iter().filter(|it| it.standing == Standing::Works) {
            let _ = writeln!(out, "- `{}`: {}", entry.name, entry.text);
        }
        push_rest(&mut out, &entries);
    }
    out
}

fn count(entries: &[Entry], is_counted: impl Fn(&Standing) -> bool) -> usize {
    let mut names: Vec<&str> = entries
        .iter()
        .filter(|entry| is_counted(&entry.standing))
        .map(|entry| &*entry.name)
        .collect();
    names.dedup();
    names.len()
}

/// The entries of each module that has any, in the order of the manual; ours first.
fn by_module(entries: &[Entry]) -> Vec<(&'static str, Vec<&Entry>)> {
    let mut modules = manual::modules();
    modules.rotate_right(1);
    let of_module = |module: &'static str| {
        let entries = entries.iter().filter(|entry| entry.module == module);
        (module, entries.collect::<Vec<_>>())
    };
    let all = modules.into_iter().map(of_module);
    all.filter(|(_, entries)| !entries.is_empty()).collect()
}

fn title(module: &str) -> &str {
    match module {
        OWN_MODULE => "Not in nginx",
        module => module,
    }
}

fn anchor(module: &str) -> String {
    title(module).to_ascii_lowercase().replace(' ', "-")
}

fn push_directive(out: &mut String, entry: &Entry) {
    let _ = writeln!(out, "\n### {}\n\n```text", entry.name);
    let _ = writeln!(out, "Syntax:  {}", entry.syntax);
    let default = entry.default.as_deref().unwrap_or("none");
    let _ = writeln!(out, "Default: {default}");
    let _ = writeln!(out, "Context: {}", entry.contexts.names().join(", "));
    let _ = writeln!(out, "Since:   {}", entry.since);
    let _ = writeln!(out, "```\n\n{}", entry.text);
    if let Some(differences) = &entry.differences {
        let _ = writeln!(out, "\n**Differs from nginx.** {differences}");
    }
}

/// Adds the directives that do not work.
fn push_rest(out: &mut String, entries: &[&Entry]) {
    let kinds: [(&str, Reason); 2] = [("Accepted without effect", idleness), ("Refused", refusal)];
    for (heading, reason) in kinds {
        if entries.iter().any(|entry| reason(entry).is_some()) {
            let _ = writeln!(out, "\n**{heading}**\n");
            push_reasons(out, entries, reason);
        }
    }
}

/// The reason why an entry does not work, if it is of one kind.
type Reason = fn(&Entry) -> Option<&'static str>;

fn idleness(entry: &Entry) -> Option<&'static str> {
    match entry.standing {
        Standing::NoEffect(reason) => Some(reason),
        _ => None,
    }
}

fn refusal(entry: &Entry) -> Option<&'static str> {
    match entry.standing {
        Standing::Refused(reason) => Some(reason),
        _ => None,
    }
}

/// A line for each reason, with all names that have it.
fn push_reasons(out: &mut String, entries: &[&Entry], reason: Reason) {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for entry in entries {
        if let Some(reason) = reason(entry) {
            let name = format!("`{}`", entry.name);
            by_reason.entry(reason).or_default().push(name);
        }
    }
    for (reason, names) in by_reason {
        let _ = writeln!(out, "- {}: {reason}.", names.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_in_its_document() {
        let text = directives();
        for entry in manual::directives() {
            let works = format!("\n### {}\n", entry.name);
            let other = format!("`{}`", entry.name);
            assert!(
                text.contains(&works) || text.contains(&other),
                "{}",
                entry.name
            );
        }
        let text = variables();
        for entry in manual::variables() {
            assert!(
                text.contains(&format!("`{}`", entry.name)),
                "{}",
                entry.name
            );
        }
        assert_eq!(document("tenets"), None);
    }
}
