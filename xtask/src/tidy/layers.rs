//! Dependencies point one way: `abi, cli -> run, job -> net, fs -> sys`, and anybody may use `core`.

use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, TargetKind};

use super::Finding;
use super::rust::SYSTEM_CRATES;

/// A crate of the workspace, as far as the rules ask.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Path of its Cargo.toml from the root.
    pub manifest: String,
    /// Names of what it depends on, and whether only its tests do.
    pub dependencies: Vec<(String, bool)>,
    /// Paths of its library's and programs' root files.
    pub roots: Vec<String>,
}

impl Crate {
    /// The top-level folder that it lies in.
    fn layer(&self) -> &str {
        self.manifest.split('/').next().unwrap_or("")
    }

    /// The folder of the crate, from the root.
    fn folder(&self) -> &str {
        self.manifest.strip_suffix("/Cargo.toml").unwrap_or("")
    }
}

/// What each layer may use beside itself and `core`. What drives everything (tests, bench, xtask) may use all, and
/// nothing may use it.
const LAYERS: [(&str, &[&str]); 8] = [
    ("core", &[]),
    ("sys", &[]),
    ("net", &["sys"]),
    ("fs", &["sys"]),
    ("run", &["net", "fs", "sys"]),
    ("job", &["net", "sys"]),
    ("abi", &["run", "job", "net", "fs", "sys"]),
    ("cli", &["run", "job", "net", "fs", "sys"]),
];
const DRIVERS: [&str; 3] = ["tests", "bench", "xtask"];

/// The rooms of layers that have an order inside: each may use those that stand before it.
const ROOMS: [&[&str]; 2] = [
    &["job/registry", "job/observe", "job/launch"],
    &["bench/common", "bench/suite", "bench/peers"],
];

/// Whether the order of the rooms allows a dependency, by the folders of both.
fn is_in_order(from: &str, to: &str) -> bool {
    ROOMS.iter().all(|rooms| {
        let place = |folder| rooms.iter().position(|room| *room == folder);
        match (place(from), place(to)) {
            (Some(from), Some(to)) => to < from,
            _ => true,
        }
    })
}

/// The workspace's crates from `cargo metadata`.
pub fn crates(metadata: &Metadata, root: &Path) -> Vec<Crate> {
    let relative = |path: &Path| {
        path.strip_prefix(root)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned()
    };
    let wanted = [
        TargetKind::Lib,
        TargetKind::CDyLib,
        TargetKind::Bin,
        TargetKind::ProcMacro,
        TargetKind::RLib,
    ];
    metadata
        .workspace_packages()
        .into_iter()
        .map(|package| Crate {
            name: package.name.to_string(),
            manifest: relative(package.manifest_path.as_std_path()),
            dependencies: package
                .dependencies
                .iter()
                .map(|dependency| {
                    (
                        dependency.name.clone(),
                        dependency.kind == DependencyKind::Development,
                    )
                })
                .collect(),
            roots: package
                .targets
                .iter()
                .filter(|target| target.kind.iter().any(|kind| wanted.contains(kind)))
                .map(|target| relative(target.src_path.as_std_path()))
                .collect(),
        })
        .collect()
}

/// Checks the direction of all dependencies, those of tests included.
pub fn check(crates: &[Crate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for from in crates {
        let allowed = LAYERS
            .iter()
            .find(|(layer, _)| *layer == from.layer())
            .map(|(_, allowed)| *allowed);
        if allowed.is_none() && !DRIVERS.contains(&from.layer()) {
            let what = format!(
                "{}: its folder '{}' is no layer of ARCHITECTURE.md",
                from.name,
                from.layer()
            );
            findings.push(Finding::new(&from.manifest, 0, what));
        }
        for (name, _) in &from.dependencies {
            if SYSTEM_CRATES.contains(&name.as_str()) && from.layer() != "sys" {
                let what = format!(
                    "{} depends on {name}: system calls stand only in sys/",
                    from.name
                );
                findings.push(Finding::new(&from.manifest, 0, what));
            }
            let Some(to) = crates.iter().find(|to| to.name == *name) else {
                continue;
            };
            let right = match allowed {
                _ if to.layer() == from.layer() => true,
                _ if DRIVERS.contains(&to.layer()) => false,
                Some(allowed) => to.layer() == "core" || allowed.contains(&to.layer()),
                None => true,
            };
            if !is_in_order(from.folder(), to.folder()) {
                let what = format!(
                    "{} depends on {}; the order is job: launch -> observe -> registry, bench: peers -> suite -> common",
                    from.folder(),
                    to.folder()
                );
                findings.push(Finding::new(&from.manifest, 0, what));
            }
            if !right {
                let what = format!(
                    "{} ({}) depends on {} ({}); the direction is abi, cli -> run, job -> net, fs -> sys, and all may use core",
                    from.name,
                    from.layer(),
                    to.name,
                    to.layer()
                );
                findings.push(Finding::new(&from.manifest, 0, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, folder: &str, dependencies: &[&str]) -> Crate {
        Crate {
            name: name.into(),
            manifest: format!("{folder}/Cargo.toml"),
            dependencies: dependencies
                .iter()
                .map(|name| ((*name).to_owned(), false))
                .collect(),
            roots: vec![],
        }
    }

    fn house(extra: Crate) -> Vec<Crate> {
        vec![
            part("schedule", "core/schedule", &["datatype"]),
            part("datatype", "core/datatype", &["thiserror"]),
            part("sys", "sys", &["libc", "rustix", "datatype"]),
            part("shm", "net/shm", &["sys", "datatype"]),
            part("storage", "fs/storage", &["sys", "datatype"]),
            part(
                "engine",
                "run/engine",
                &["shm", "storage", "sys", "schedule"],
            ),
            part("registry", "job/registry", &["sys"]),
            part("launch", "job/launch", &["registry", "sys"]),
            part("suite", "bench/suite", &["launch"]),
            part("mpi", "abi/mpi", &["engine", "sys", "datatype"]),
            part("margay", "cli", &["launch", "clap"]),
            part("tests", "tests", &["engine", "launch"]),
            extra,
        ]
    }

    #[test]
    fn the_house_as_designed_is_in_order() {
        assert_eq!(check(&house(part("other", "net/sim", &["shm"]))), vec![]);
    }

    #[test]
    fn each_wrong_direction_is_found() {
        for (folder, dependency) in [
            ("core/x", "sys"),
            ("core/x", "engine"),
            ("sys", "shm"),
            ("net/x", "engine"),
            ("net/x", "storage"),
            ("fs/x", "shm"),
            ("fs/x", "engine"),
            ("job/x", "storage"),
            ("run/x", "launch"),
            ("run/x", "mpi"),
            ("job/x", "margay"),
            ("cli", "mpi"),
            ("abi/x", "tests"),
            ("cli", "suite"),
        ] {
            let findings = check(&house(part("x", folder, &[dependency])));
            assert_eq!(findings.len(), 1, "{folder} -> {dependency}: {findings:?}");
            assert!(findings[0].what.contains("the direction is"));
        }
    }

    #[test]
    fn the_order_of_rooms_is_kept() {
        for (folder, dependency) in [
            ("job/registry", "launch"),
            ("job/observe", "launch"),
            ("bench/common", "suite"),
        ] {
            let findings = check(&house(part("x", folder, &[dependency])));
            assert_eq!(findings.len(), 1, "{folder} -> {dependency}: {findings:?}");
            assert!(findings[0].what.contains("the order is"));
        }
        let right = part("x", "job/observe", &["registry"]);
        assert_eq!(check(&house(right)), vec![]);
    }

    #[test]
    fn the_tests_dependencies_count_too() {
        let mut wrong = part("x", "core/x", &[]);
        wrong.dependencies.push(("sys".into(), true));
        assert_eq!(check(&house(wrong)).len(), 1);
    }

    #[test]
    fn the_operating_system_is_a_dependency_of_sys_alone() {
        for name in SYSTEM_CRATES {
            let findings = check(&house(part("x", "run/x", &[name])));
            assert_eq!(findings.len(), 1, "{name}");
            assert!(findings[0].what.contains("system calls stand only in sys/"));
        }
    }

    #[test]
    fn a_crate_in_an_unknown_folder_is_found() {
        assert!(
            check(&house(part("x", "misc/x", &[])))[0]
                .what
                .contains("no layer")
        );
    }
}
