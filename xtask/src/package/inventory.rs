//! The crates that a build of the program is made of, as cargo resolved them: a file of CycloneDX
//! beside the packages, and a list in the program.
//!
//! ```text
//! cargo metadata ──► millpond ──► what it depends on ──► …    without what only tests need
//!                        ├─► millpond-VERSION.cdx.json        CycloneDX 1.5
//!                        └─► section .dep-v0                  as cargo-auditable writes it, zlib
//! ```
//!
//! Who has the program alone can ask databases of defects about it (`cargo audit bin`, Trivy,
//! Grype, Syft read the section). Both forms are sorted, and have no time but that of the commit.
//!
//! Sources: <https://cyclonedx.org/docs/1.5/json/>, PARSING.md of cargo-auditable.

use crate::workspace;
use anyhow::{Context, Result, ensure};
use flate2::{Compression, write::ZlibEncoder};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// A crate of the program.
#[derive(Clone, Debug)]
struct Crate {
    name: String,
    version: String,
    license: Option<String>,
    about: Option<String>,
    /// The checksum of Cargo.lock; crates of the workspace have none.
    sha256: Option<String>,
    /// True if it only builds others.
    is_for_building: bool,
    /// Ids of what it depends on.
    needs: BTreeSet<String>,
}

impl Crate {
    /// The name among all package managers.
    fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }

    fn component(&self) -> Value {
        let mut made = json!({
            "type": "library",
            "bom-ref": self.purl(),
            "name": self.name,
            "version": self.version,
            "scope": if self.is_for_building { "excluded" } else { "required" },
            "purl": self.purl(),
        });
        if let Some(license) = &self.license {
            let expression = license.replace('/', " OR ");
            made["licenses"] = json!([{ "expression": expression }]);
        }
        if let Some(about) = &self.about {
            made["description"] = json!(about.trim());
        }
        if let Some(sum) = &self.sha256 {
            made["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        made
    }
}

/// All crates of the program, by the ids that cargo gives them.
#[derive(Clone, Debug)]
pub(super) struct Inventory {
    crates: BTreeMap<String, Crate>,
    /// The program itself.
    root: String,
}

impl Inventory {
    /// Asks cargo what the program is made of on a kind of machine.
    pub(super) fn of(triple: &str) -> Result<Inventory> {
        let mut ask = workspace::cargo(&["metadata", "--format-version", "1", "--locked"]);
        let output = ask.args(["--filter-platform", triple]).output()?;
        ensure!(
            output.status.success(),
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let lock = std::fs::read_to_string(workspace::root().join("Cargo.lock"))?;
        read(&serde_json::from_slice(&output.stdout)?, &checksums(&lock))
    }

    /// The document of CycloneDX; the time is one of RFC 3339.
    pub(super) fn cyclonedx(&self, time: &str) -> Result<String> {
        let own = self.crates.get(&self.root).context("no program")?;
        let mut root = own.component();
        root["type"] = json!("application");
        let others = self.crates.iter().filter(|(id, _)| **id != self.root);
        let depends = |one: &Crate| {
            let refs = one.needs.iter().filter_map(|id| self.crates.get(id));
            let on: Vec<String> = refs.map(Crate::purl).collect();
            json!({ "ref": one.purl(), "dependsOn": on })
        };
        let document = json!({
            "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": { "timestamp": time, "component": root },
            "components": others.map(|(_, one)| one.component()).collect::<Vec<_>>(),
            "dependencies": self.crates.values().map(depends).collect::<Vec<_>>(),
        });
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }

    /// The bytes of the section.
    pub(super) fn section(&self) -> Result<Vec<u8>> {
        let ids: Vec<&String> = self.crates.keys().collect();
        let package = |(id, one): (&String, &Crate)| {
            let positions = one
                .needs
                .iter()
                .filter_map(|id| ids.binary_search(&id).ok());
            let mut made = json!({
                "name": one.name,
                "version": one.version,
                "source": if one.sha256.is_some() { "crates.io" } else { "local" },
                "kind": if one.is_for_building { "build" } else { "runtime" },
                "dependencies": positions.collect::<Vec<_>>(),
            });
            if *id == self.root {
                made["root"] = json!(true);
            }
            made
        };
        let list: Vec<Value> = self.crates.iter().map(package).collect();
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(json!({ "packages": list }).to_string().as_bytes())?;
        Ok(encoder.finish()?)
    }
}

/// Checksums of crates by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |text: &str, name: &str| {
        let start = format!("{name} = \"");
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix(&start)?.strip_suffix('"'));
        found.map(str::to_string)
    };
    let package = |text: &str| {
        let key = (value(text, "name")?, value(text, "version")?);
        Some((key, value(text, "checksum")?))
    };
    lock.split("[[package]]").filter_map(package).collect()
}

/// Reads what cargo says, beginning at the program.
fn read(said: &Value, sums: &BTreeMap<(String, String), String>) -> Result<Inventory> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let by_id = |values: &Value| -> BTreeMap<String, Value> {
        let pair = |value: Value| Some((value["id"].as_str()?.to_string(), value));
        list(values).into_iter().filter_map(pair).collect()
    };
    let (packages, nodes) = (by_id(&said["packages"]), by_id(&said["resolve"]["nodes"]));
    let is_program = |id: &&String| packages.get(*id).is_some_and(|it| it["name"] == "millpond");
    let root = packages.keys().find(is_program).context("no millpond")?;
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    let mut open = vec![(root.clone(), false)];
    while let Some((id, is_for_building)) = open.pop() {
        // One that is needed at run time, too, is looked at again.
        if crates
            .get(&id)
            .is_some_and(|it| !it.is_for_building || is_for_building)
        {
            continue;
        }
        let package = packages.get(&id).with_context(|| id.clone())?;
        let node = nodes.get(&id).with_context(|| id.clone())?;
        let mut needs = BTreeSet::new();
        for edge in list(&node["deps"]) {
            let kinds = list(&edge["dep_kinds"]);
            let is_normal = kinds.iter().any(|it| it["kind"].is_null());
            let other = edge["pkg"].as_str().unwrap_or_default().to_string();
            if is_normal || kinds.iter().any(|it| it["kind"] == "build") {
                needs.insert(other.clone());
                let is_macro = is_macro(packages.get(&other));
                open.push((other, is_for_building || !is_normal || is_macro));
            }
        }
        let text = |name: &str| package[name].as_str().map(str::to_string);
        let (name, version) = (text("name"), text("version"));
        let key = name.zip(version).with_context(|| id.clone())?;
        let made = Crate {
            name: key.0.clone(),
            version: key.1.clone(),
            license: text("license"),
            about: text("description"),
            sha256: sums.get(&key).cloned(),
            is_for_building,
            needs,
        };
        crates.insert(id, made);
    }
    Ok(Inventory {
        crates,
        root: root.clone(),
    })
}

/// True if a crate runs in the compiler.
fn is_macro(package: Option<&Value>) -> bool {
    let targets = package.and_then(|it| it["targets"].as_array());
    let of_macro = |target: &Value| target["kind"] == json!(["proc-macro"]);
    targets.is_some_and(|all| all.iter().any(of_macro))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, kind: &str) -> Value {
        json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
                "targets": [{ "kind": [kind] }] })
    }

    fn edge(name: &str, kind: Value) -> Value {
        json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] })
    }

    #[test]
    fn tests_need_what_the_program_does_not_have() {
        let said = json!({
            "packages": [package("millpond", "bin"), package("a", "lib"), package("b", "lib"),
                         package("m", "proc-macro"), package("t", "lib")],
            "resolve": { "nodes": [
                { "id": "millpond", "deps": [edge("a", Value::Null), edge("m", Value::Null),
                                             edge("t", json!("dev"))] },
                { "id": "a", "deps": [edge("b", json!("build"))] },
                { "id": "b", "deps": [] },
                { "id": "m", "deps": [edge("a", Value::Null)] },
                { "id": "t", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n";
        let made = read(&said, &checksums(lock)).unwrap();
        let all = made.crates.values();
        let seen: Vec<_> = all
            .map(|it| (it.name.as_str(), it.is_for_building))
            .collect();
        let expected = [("a", false), ("b", true), ("m", true), ("millpond", false)];
        assert_eq!(seen, expected);
        let text = made.cyclonedx("2026-01-01T00:00:00Z").unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["components"].as_array().unwrap().len(), 3);
        assert_eq!(document["components"][0]["hashes"][0]["content"], "00ff");
        let first = &document["dependencies"][3];
        assert_eq!(
            first["dependsOn"],
            json!(["pkg:cargo/a@1.0.0", "pkg:cargo/m@1.0.0"])
        );
    }
}
