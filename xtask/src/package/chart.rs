//! The checks of the Helm chart, `contrib/helm/millpond`, without a cluster.
//!
//! ```text
//! values ──helm template──► manifests ──kubeconform──► schemas of two versions of Kubernetes
//!                                   └─► millpond.conf ──► millpond check
//! ```
//!
//! The schemas are those that the package kubernetes-validate of Python ships, rewritten so that
//! they find each other as files. Kinds that are no part of Kubernetes (ServiceMonitor) have none
//! and are left out.

use super::check::{Checked, files, said};
use super::{ignore_missing, target};
use crate::workspace;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest Kubernetes that the chart says it runs on, and a newer one.
const VERSIONS: [&str; 2] = ["1.25.0", "1.35.0"];

/// Schemas of the kinds in the chart, and of what they share.
const SCHEMAS: [&str; 7] = [
    "_definitions",
    "configmap-v1",
    "networkpolicy-networking-v1",
    "poddisruptionbudget-policy-v1",
    "service-v1",
    "serviceaccount-v1",
    "statefulset-apps-v1",
];

fn chart() -> PathBuf {
    workspace::root().join("contrib/helm/millpond")
}

fn tools() -> PathBuf {
    workspace::root().join("target/tools")
}

/// The schemas as they are shipped.
fn schemas_of_python() -> PathBuf {
    tools().join("python/kubernetes_validate/kubernetes-json-schema")
}

/// The programs and schemas that are missing for the check, and what installs them.
pub(super) fn missing() -> Option<String> {
    let wanted = [
        ("helm", tools().join("bin/helm")),
        ("kubeconform", tools().join("bin/kubeconform")),
        ("kubernetes-validate", schemas_of_python()),
    ];
    let missing = wanted.iter().filter(|(_, path)| !path.exists());
    let names: Vec<&str> = missing.map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{} in target/tools: `cargo xtask setup` installs them with Go and Python",
            names.join(", ")
        )
    })
}

/// Each set of values gives manifests that Kubernetes takes, with a configuration that the program
/// takes; a manifest with a mistake is refused, so that the check can fail.
pub(super) fn check() -> Result<Checked> {
    if let Some(what) = missing() {
        return Ok(Checked::No(what));
    }
    let folder = target().join("chart");
    fs::remove_dir_all(&folder).or_else(ignore_missing)?;
    let mut sets = vec![chart().join("values.yaml")];
    sets.extend(files(&chart().join("ci"))?);
    for version in VERSIONS {
        let schemas = folder.join(version);
        let from = schemas_of_python().join(format!("v{version}-local-strict"));
        write_schemas(&from, &schemas)?;
        for values in &sets {
            let manifests = helm("template", version, values)?;
            conforms(&manifests, &schemas).with_context(|| values.display().to_string())?;
            let mistake = manifests.replace("  serviceName:", "  serviceNaem:");
            ensure!(
                conforms(&mistake, &schemas).is_err(),
                "a mistake in a manifest is not seen"
            );
        }
    }
    for values in &sets {
        helm("lint", VERSIONS[1], values)?;
        let manifests = helm("template", VERSIONS[1], values)?;
        serves(&manifests, &folder.join("conf")).with_context(|| values.display().to_string())?;
    }
    Ok(Checked::Yes)
}

fn helm(task: &str, version: &str, values: &Path) -> Result<String> {
    let mut command = Command::new(tools().join("bin/helm"));
    command.arg(task);
    if task == "template" {
        command.arg("pond");
    }
    command.arg(chart()).arg("--values").arg(values);
    command.args(["--kube-version", version]);
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm {task}: {text}{why}");
    Ok(text)
}

/// Writes the schemas of a version so that they name each other by their paths.
fn write_schemas(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let shared = format!("\"file://{}#", to.join("_definitions.json").display());
    for name in SCHEMAS {
        let file = format!("{name}.json");
        let shipped = fs::read_to_string(from.join(&file)).with_context(|| file.clone())?;
        let text = shipped.replace("\"/api/_definitions.json#", &shared);
        let mut schema: Value = serde_json::from_str(&text)?;
        // It would be what relative names begin at.
        schema.as_object_mut().context("no object")?.remove("$id");
        fs::write(to.join(file), serde_json::to_vec(&schema)?)?;
    }
    Ok(())
}

fn conforms(manifests: &str, schemas: &Path) -> Result<()> {
    let place = schemas.join("{{.ResourceKind}}{{.KindSuffix}}.json");
    let mut child = Command::new(tools().join("bin/kubeconform"))
        .args(["-strict", "-skip", "ServiceMonitor", "-schema-location"])
        .arg(place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let input = child.stdin.take().context("no input")?;
    // Dropped at once, so that the program sees the end.
    { input }.write_all(manifests.as_bytes())?;
    let output = child.wait_with_output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{told}");
    Ok(())
}

/// The configuration in the manifests is one that the program takes.
fn serves(manifests: &str, folder: &Path) -> Result<()> {
    let start = "  millpond.conf: |\n";
    let (_, rest) = manifests.split_once(start).context("no configuration")?;
    let is_inside = |line: &&str| line.starts_with("    ") || line.trim().is_empty();
    let lines: Vec<&str> = rest.lines().take_while(is_inside).collect();
    fs::create_dir_all(folder)?;
    fs::copy(
        workspace::root().join("conf/mime.types"),
        folder.join("mime.types"),
    )?;
    let path = folder.join("millpond.conf");
    fs::write(&path, lines.join("\n"))?;
    said(Command::new(workspace::binary()).arg("check").arg(&path))?;
    Ok(())
}
