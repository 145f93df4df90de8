//! `cargo xtask quick [AREA]`: the tests of one area, in under a minute on a tree that is built.
//!
//! An area is a subject with tests of behaviour (`AREAS`), a crate with its unit tests, or a file
//! of `tests/tests` by its name. What they need is built first, the binary too, so that no result
//! is that of an older one. Without an area they are listed.
//!
//! 1. Each file of `tests/tests` is in an area, or in `LONG` because it takes too long for one.
//!
//! Does not replace `cargo xtask test`, which runs everything.

use crate::tally::Tally;
use crate::{checks, rust_tests, workspace};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// A subject, and the tests that show most of it.
struct Area {
    name: &'static str,
    about: &'static str,
    /// Crates whose unit tests are run.
    crates: &'static [&'static str],
    /// Files or folders of `tests/tests`.
    tests: &'static [&'static str],
}

const AREAS: &[Area] = &[
    Area {
        name: "configuration",
        about: "the language, its mistakes, `check`, `explain`, `-t`",
        crates: &["conf", "conf-derive"],
        tests: &[
            "check",
            "conf_mistakes",
            "dry_test",
            "explain",
            "expressions",
            "nginx_lines",
        ],
    },
    Area {
        name: "caching",
        about: "keys, variants, admission, what is stored and for how long",
        crates: &["cache"],
        tests: &[
            "cache_valid",
            "cached_only",
            "proxy_cache_dictionaries",
            "proxy_cache_encodings",
            "admission",
            "cache_args",
            "cache_formats",
            "cache_variables",
            "proxy_cache_max_variants",
        ],
    },
    Area {
        name: "coalescing",
        about: "one request to the origin for many",
        crates: &[],
        tests: &["coalescing", "coalescing_stale", "read_along"],
    },
    Area {
        name: "slices",
        about: "ranges and bodies in slices",
        crates: &[],
        tests: &["range", "slices"],
    },
    Area {
        name: "purge",
        about: "purging, by key, prefix, host, site and tag",
        crates: &[],
        tests: &["proxy_cache_purge"],
    },
    Area {
        name: "fleet",
        about: "purges that hold on all nodes of a fleet",
        crates: &["fleet", "tier"],
        tests: &["fleet"],
    },
    Area {
        name: "conformance",
        about: "the RFCs of caching",
        crates: &["semantics"],
        tests: &[
            "proxy_cache_conformance",
            "proxy_cache_graphql",
            "proxy_cache_groups",
            "proxy_cache_no_vary_search",
            "proxy_cache_query",
            "proxy_cache_status_header",
            "proxy_cache_targeted_control",
            "proxy_cache_vary",
            "resumed",
            "proxy_cdn_loop",
            "proxy_status_header",
            "rfc9111_letter",
            "rfc9111_shared",
        ],
    },
    Area {
        name: "sites",
        about: "counters by site, and bytes by origin and cache",
        crates: &[],
        tests: &[
            "cache_bytes",
            "cache_site",
            "cache_site_counters",
            "cache_site_exact",
            "cache_site_info",
            "cache_site_invented",
            "cache_site_quota",
            "cdn_day",
        ],
    },
    Area {
        name: "tools",
        about: "`millpond cache`, `why`, `top`, `sensor`, the catalogue",
        crates: &[],
        tests: &[
            "cache_tool",
            "cache_warm",
            "catalogue",
            "monitors",
            "sensor",
            "sensor_outside",
            "top",
            "why",
            "why_gates",
        ],
    },
    Area {
        name: "control",
        about: "the API, metrics, the dashboard",
        crates: &[],
        tests: &[
            "api",
            "api_warm",
            "cache_events",
            "dashboard",
            "dashboard_trouble",
            "health",
            "metrics",
            "otel",
            "otel_signals",
        ],
    },
    Area {
        name: "http",
        about: "requests, heads, connections of clients",
        crates: &[],
        tests: &[
            "early_hints",
            "headers",
            "hostile_client",
            "location",
            "geoip2",
            "map",
            "proxy_pass_trailers",
            "real_clients",
            "request_body_file",
            "rewrite",
            "set_misc",
            "tunnel",
            "tunnel_pass",
            "websocket",
        ],
    },
    Area {
        name: "scripts",
        about: "functions in JavaScript",
        crates: &["script"],
        tests: &[
            "scripts",
            "script_fetch",
            "script_cache",
            "script_hostile",
            "script_modules",
            "script_periodic",
            "script_xml",
        ],
    },
    Area {
        name: "certificates",
        about: "certificates that are ordered from an authority",
        crates: &["acme"],
        tests: &["acme"],
    },
    Area {
        name: "access",
        about: "who may have an answer, and how often",
        crates: &[],
        tests: &[
            "access",
            "auth_jwt",
            "auth_request",
            "limit",
            "secure_link_hmac",
            "userid",
        ],
    },
    Area {
        name: "files",
        about: "static files, and filters on the way out",
        crates: &[],
        tests: &[
            "addition",
            "charset",
            "disable_symlinks",
            "error_page",
            "gunzip",
            "codings",
            "gzip",
            "ssi",
            "static_file",
            "sub_filter",
        ],
    },
    Area {
        name: "upstream",
        about: "groups, peers, exchanges, names",
        crates: &[],
        tests: &[
            "balance",
            "upstream_queue",
            "buffering",
            "grpc",
            "hostile_origin",
            "behind_clients",
            "http2_lines",
            "http2_origin",
            "h2spec",
            "http2",
            "http2_downgrade",
            "http2_floods",
            "http3",
            "https",
            "keepalive",
            "quiet",
            "mirror",
            "proxy_aws_sign",
            "proxy_bind",
            "proxy_redirect_follow",
            "resolver",
            "store_files",
            "upstream_log",
        ],
    },
    Area {
        name: "stream",
        about: "sessions of TCP",
        crates: &["stream"],
        tests: &["stream"],
    },
    Area {
        name: "applications",
        about: "FastCGI, SCGI, uwsgi, memcached",
        crates: &[],
        tests: &["applications", "fastcgi", "memcached"],
    },
    Area {
        name: "disks",
        about: "zones on disks: several of them, scrubbing, limits",
        crates: &[],
        tests: &["disks", "scrub", "space_back", "store_limit"],
    },
    Area {
        name: "crashes",
        about: "what a killed process leaves",
        crates: &[],
        tests: &["kill", "kill_at_once", "kill_mixed"],
    },
    Area {
        name: "memory",
        about: "large bodies, and readers that stall",
        crates: &[],
        tests: &[
            "conf_bounds",
            "huge_body",
            "huge_video",
            "slow_readers",
            "stalled_readers",
        ],
    },
    Area {
        name: "user",
        about: "started as root with `user`, rights of files",
        crates: &[],
        tests: &["as_user", "modes"],
    },
    Area {
        name: "process",
        about: "start, signals, reload, limits of the process",
        crates: &["millpond"],
        tests: &[
            "command_line",
            "process",
            "process_limits",
            "reload_zones",
            "landlock",
            "service_manager",
            "upgrade",
            "worker_connections",
        ],
    },
    Area {
        name: "logs",
        about: "error and access logs",
        crates: &[],
        tests: &["logs"],
    },
    Area {
        name: "shipped",
        about: "examples, documents, the demo",
        crates: &[],
        tests: &[
            "demo",
            "documents",
            "gauge",
            "real_life",
            "seeds",
            "shipped",
        ],
    },
];

/// Tests that are in no area, since each alone takes most of a minute, or more.
const LONG: &[&str] = &[
    "bounds",
    "coalescing_thousand",
    "differential",
    "reload_under_load",
];

/// Runs an area's tests, or lists the areas.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    match args {
        [] => {
            list()?;
            Ok(Tally::default())
        }
        [name] => run_area(name),
        _ => bail!("one area at a time, not {}", args.join(" ")),
    }
}

fn list() -> Result<()> {
    println!("cargo xtask quick AREA, where AREA is one of\n");
    for area in AREAS {
        println!("  {:14} {}", area.name, area.about);
    }
    println!(
        "\nor a crate, for its unit tests:\n\n{}",
        indented(&crates()?)
    );
    println!(
        "\nor a file of tests/tests:\n\n{}",
        indented(&behaviours()?)
    );
    println!("\nof which these take longest: {}", LONG.join(", "));
    Ok(())
}

/// Names in lines of a width that fits everywhere.
fn indented(names: &BTreeSet<String>) -> String {
    let mut lines = vec![String::from(" ")];
    for name in names {
        if lines
            .last()
            .is_some_and(|line| line.len() + name.len() > 90)
        {
            lines.push(String::from(" "));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(name);
        }
    }
    lines.join("\n")
}

fn run_area(name: &str) -> Result<Tally> {
    let (units, tests) = chosen(name)?;
    let start = Instant::now();
    let mut tally = Tally::default();
    if !tests.is_empty() && !checks::build_quick_binary().status()?.success() {
        bail!("the binary does not build");
    }
    for krate in &units {
        tally += rust_tests::run(unit_tests(krate))?;
    }
    if !tests.is_empty() {
        let mut command = workspace::cargo(&["test", "-p", "millpond-tests", "--no-fail-fast"]);
        // The one that was built just now is judged, whatever the environment names.
        command.env_remove("MILLPOND_BIN");
        for test in &tests {
            command.args(["--test", test]);
        }
        tally += rust_tests::run(command)?;
    }
    println!("{name} took {} s", start.elapsed().as_secs());
    Ok(tally)
}

/// The crates and the tests of an area.
fn chosen(name: &str) -> Result<(Vec<String>, Vec<String>)> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    if let Some(area) = AREAS.iter().find(|area| area.name == name) {
        return Ok((owned(area.crates), owned(area.tests)));
    }
    if crates()?.contains(name) {
        return Ok((vec![name.to_owned()], Vec::new()));
    }
    if behaviours()?.contains(name) {
        return Ok((Vec::new(), vec![name.to_owned()]));
    }
    bail!("there is no area {name}; `cargo xtask quick` lists them")
}

fn unit_tests(krate: &str) -> std::process::Command {
    let package = match krate {
        "millpond" => "millpond".to_owned(),
        other => format!("millpond-{other}"),
    };
    let source = workspace::root().join("crates").join(krate).join("src");
    let mut command = workspace::cargo(&["test", "-p", &package, "--no-fail-fast"]);
    for (file, target) in [("lib.rs", "--lib"), ("main.rs", "--bins")] {
        if source.join(file).exists() {
            command.arg(target);
        }
    }
    command
}

/// The crates below `crates/`.
fn crates() -> Result<BTreeSet<String>> {
    names(&workspace::root().join("crates"))
}

/// The files and folders of `tests/tests`.
fn behaviours() -> Result<BTreeSet<String>> {
    names(&workspace::root().join("tests/tests"))
}

fn names(folder: &Path) -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry?.file_name();
        Ok(name.to_string_lossy().trim_end_matches(".rs").to_owned())
    };
    entries.map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_of_behaviour_is_in_one_area_or_takes_too_long_for_one() {
        let areas = AREAS.iter().flat_map(|area| area.tests);
        let listed: Vec<&str> = areas.chain(LONG).copied().collect();
        for test in behaviours().unwrap() {
            let count = listed.iter().filter(|name| **name == test).count();
            assert_eq!(count, 1, "{test}: name it once in AREAS or LONG");
        }
        for name in listed {
            assert!(
                behaviours().unwrap().contains(name),
                "there is no test {name}"
            );
        }
    }

    #[test]
    fn areas_have_crates_and_names_of_their_own() {
        let crates = crates().unwrap();
        let mut names = BTreeSet::new();
        for area in AREAS {
            assert!(names.insert(area.name), "{}", area.name);
            assert!(
                area.crates.iter().all(|name| crates.contains(*name)),
                "{}",
                area.name
            );
        }
        assert!(chosen("no such area").is_err());
        assert_eq!(chosen("store").unwrap().0, ["store"]);
        assert_eq!(chosen("logs").unwrap().1, ["logs"]);
    }
}
