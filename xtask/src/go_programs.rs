//! Programs of the Go module proxy that tests need, at pinned versions, below `target/tools`:
//! h2spec, the suite of RFC 9113 and RFC 7541, pebble, an authority that speaks ACME, nats-server,
//! which keeps the logs of fleets, versitygw, an S3 server, and helm and kubeconform, which check
//! the chart.
//!
//! 1. They are installed where packages are: unasked on machines of continuous integration only,
//!    else by `cargo xtask setup`. Without them, or without Go, their tests are skipped.

use crate::packages::{self, MayInstall};
use crate::workspace;
use std::path::PathBuf;
use std::process::Command;

/// The programs, and the modules with their versions.
const PROGRAMS: [(&str, &str); 6] = [
    (
        "h2spec",
        "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible",
    ),
    (
        "pebble",
        "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1",
    ),
    ("nats-server", "github.com/nats-io/nats-server/v2@v2.15.2"),
    (
        "versitygw",
        "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
    ),
    ("helm", "helm.sh/helm/v3/cmd/helm@v3.22.0"),
    (
        "kubeconform",
        "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
    ),
];

fn folder() -> PathBuf {
    workspace::root().join("target/tools/bin")
}

/// Their names, for people.
pub(crate) fn names() -> String {
    PROGRAMS.map(|(name, _)| name).join(", ")
}

/// Installs those that are missing, where that is allowed and can be done; says why not otherwise.
pub(crate) fn ensure(may_install: MayInstall) {
    for (name, module) in PROGRAMS {
        if folder().join(name).is_file() {
            continue;
        }
        let reason = match may_install {
            MayInstall::Never => "`cargo xtask setup` installs it",
            MayInstall::Unasked if !packages::runs("go", &["version"]) => "there is no Go",
            MayInstall::Unasked if install(name, module) => continue,
            MayInstall::Unasked => "it cannot be installed",
        };
        println!("{name}: {reason}; what needs it is skipped");
    }
}

/// True if it was installed.
fn install(name: &str, module: &str) -> bool {
    println!("{name}: {module} is installed into target/tools");
    let mut command = Command::new("go");
    command.args(["install", module]).env("GOBIN", folder());
    command.status().is_ok_and(|status| status.success())
}
