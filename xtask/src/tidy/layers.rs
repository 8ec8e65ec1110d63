//! Dependencies point one way: `abi, cli -> run, svc, job -> fs, net -> sys`, and anybody may use
//! `core`. Within `run` they do, too: `mpi, nx, mpl -> engine` and `openmp -> threads`, and within
//! `sys`, `job` and `bench`. Every crate is in the workspace, or nobody would build it, check it or
//! apply these rules to it.

use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, TargetKind};

use super::rust::SYSTEM_CRATES;
use super::{File, Finding};

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
    /// Returns the top-level folder that it lies in.
    fn layer(&self) -> &str {
        self.manifest.split('/').next().unwrap_or("")
    }

    /// Returns the folder of the crate, from the root.
    fn folder(&self) -> &str {
        self.manifest.strip_suffix("/Cargo.toml").unwrap_or("")
    }
}

/// What each layer may use beside itself and `core`. What drives everything (tests, bench, xtask)
/// may use all, and nothing may use it.
const LAYERS: [(&str, &[&str]); 9] = [
    ("core", &[]),
    ("sys", &[]),
    ("net", &["sys"]),
    ("fs", &["net", "sys"]),
    ("run", &["net", "fs", "sys"]),
    ("job", &["net", "sys"]),
    ("svc", &["job", "net", "fs", "sys"]),
    ("abi", &["run", "job", "net", "fs", "sys"]),
    ("cli", &["run", "job", "svc", "net", "fs", "sys"]),
];

const DRIVERS: [&str; 3] = ["tests", "bench", "xtask"];

/// The crate whose commands work also while the product does not compile: these rules, for one.
const INDEPENDENT: &str = "xtask";

/// Workspaces of their own: manifest and why.
const OTHER_WORKSPACES: [(&str, &str); 1] = [(
    "tests/fuzz/Cargo.toml",
    "all of it is compiled with the fuzzer's instrumentation; `make fuzz` builds it",
)];

/// What each crate of a layer with rooms may use of that layer. In these layers a crate that is not
/// in the table may use none.
const ROOMS: [(&str, &[&str]); 23] = [
    ("sys/os", &[]),
    ("sys/shm", &["sys/os"]),
    ("sys/threads", &["sys/os"]),
    ("sys/mlp", &["sys/os"]),
    ("sys/fabric", &["sys/os"]),
    ("run/engine", &[]),
    ("run/mpi", &["run/engine"]),
    ("run/windows", &["run/engine", "run/mpi"]),
    ("run/files", &["run/engine", "run/mpi"]),
    ("run/dynamic", &["run/engine", "run/mpi"]),
    ("run/nx", &["run/engine", "run/mpi"]),
    ("run/mpl", &["run/engine", "run/mpi"]),
    ("run/threads", &[]),
    ("run/openmp", &["run/threads"]),
    ("run/mlp", &[]),
    ("job/registry", &[]),
    ("job/stacks", &[]),
    ("job/partitions", &[]),
    ("job/observe", &["job/registry", "job/stacks"]),
    ("job/launch", &["job/observe", "job/registry"]),
    ("bench/common", &[]),
    ("bench/suite", &["bench/common"]),
    ("bench/peers", &["bench/common", "bench/suite"]),
];

/// Whether one crate of a layer may use another of the same layer.
fn may_use_beside(from: &Crate, to: &Crate) -> bool {
    let has_rooms = ROOMS
        .iter()
        .any(|(room, _)| room.split('/').next() == Some(from.layer()));
    let rule = ROOMS.iter().find(|(room, _)| *room == from.folder());
    !has_rooms || rule.is_some_and(|(_, allowed)| allowed.contains(&to.folder()))
}

/// Returns the workspace's crates from `cargo metadata`.
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
            if from.layer() == to.layer() && !may_use_beside(from, to) {
                let what = format!(
                    "{} ({}) depends on {} ({}); within a layer, ARCHITECTURE.md's table says which may use which",
                    from.name,
                    from.folder(),
                    to.name,
                    to.folder()
                );
                findings.push(Finding::new(&from.manifest, 0, what));
            }
            if from.folder() == INDEPENDENT && !DRIVERS.contains(&to.layer()) {
                let what = format!(
                    "{INDEPENDENT} depends on {} ({}): no command, tidy above all, shall need a product that compiles; make a \
                     crate in {INDEPENDENT}/ that the command runs",
                    to.name,
                    to.folder()
                );
                findings.push(Finding::new(&from.manifest, 0, what));
            }
            if !right {
                let what = format!(
                    "{} ({}) depends on {} ({}); the direction is abi, cli -> run, svc, job -> fs, net -> sys, and all may use core",
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

/// Checks that every crate is in the workspace.
pub fn check_members(crates: &[Crate], files: &[File]) -> Vec<Finding> {
    files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"))
        .filter(|file| !crates.iter().any(|each| each.manifest == file.path))
        .filter(|file| !OTHER_WORKSPACES.iter().any(|(path, _)| *path == file.path))
        .map(|file| {
            let what = "is in no workspace, so nobody builds or checks it: name it in `members` of the root's Cargo.toml";
            Finding::new(&file.path, 0, what)
        })
        .collect()
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
            part("sys", "sys/os", &["libc", "rustix", "datatype"]),
            part("memory", "sys/shm", &["sys"]),
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
            part("objects", "run/mpi", &["engine", "sys"]),
            part("windows", "run/windows", &["engine", "objects"]),
            part("nx", "run/nx", &["engine", "objects"]),
            part("threads", "run/threads", &["sys"]),
            part("openmp", "run/openmp", &["threads"]),
            part("agent", "svc/agent", &["launch", "shm", "storage", "sys"]),
            part("mpi", "abi/mpi", &["engine", "sys", "datatype"]),
            part("margay", "cli", &["launch", "agent", "clap"]),
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
            ("sys/x", "shm"),
            ("net/x", "engine"),
            ("net/x", "storage"),
            ("fs/x", "launch"),
            ("fs/x", "engine"),
            ("job/x", "storage"),
            ("run/x", "launch"),
            ("run/x", "mpi"),
            ("job/x", "margay"),
            ("job/x", "agent"),
            ("run/x", "agent"),
            ("svc/x", "engine"),
            ("svc/x", "mpi"),
            ("abi/x", "agent"),
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
    fn files_may_use_the_network() {
        assert_eq!(check(&house(part("x", "fs/x", &["shm"]))), vec![]);
    }

    #[test]
    fn each_wrong_direction_within_a_layer_is_found() {
        for (folder, dependency) in [
            ("sys/os", "memory"),
            ("sys/threads", "memory"),
            ("job/registry", "launch"),
            ("job/observe", "launch"),
            ("bench/common", "suite"),
            ("run/engine", "objects"),
            ("run/engine", "threads"),
            ("run/mpi", "windows"),
            ("run/mpi", "nx"),
            ("run/mpi", "threads"),
            ("run/windows", "nx"),
            ("run/windows", "threads"),
            ("run/files", "windows"),
            ("run/dynamic", "windows"),
            ("run/nx", "windows"),
            ("run/nx", "threads"),
            ("run/mpl", "nx"),
            ("run/threads", "engine"),
            ("run/threads", "openmp"),
            ("run/openmp", "engine"),
            ("run/openmp", "objects"),
            ("run/mlp", "threads"),
            // Nothing says what a crate may use that is not in the table.
            ("run/other", "engine"),
        ] {
            let findings = check(&house(part("x", folder, &[dependency])));
            assert_eq!(findings.len(), 1, "{folder} -> {dependency}: {findings:?}");
            assert!(findings[0].what.contains("within a layer"), "{findings:?}");
        }
    }

    #[test]
    fn what_stands_on_another_room_may_use_it() {
        for (folder, dependency) in [
            ("sys/mlp", "sys"),
            ("job/observe", "registry"),
            ("run/mpi", "engine"),
            ("run/files", "objects"),
            ("run/dynamic", "objects"),
            ("run/mpl", "engine"),
            ("run/mpl", "objects"),
        ] {
            let crates = house(part("x", folder, &[dependency]));
            assert_eq!(check(&crates), vec![], "{folder} -> {dependency}");
        }
    }

    #[test]
    fn a_crate_in_no_workspace_is_found() {
        let file = |path: &str| File {
            path: path.into(),
            text: Some(String::new()),
            executable: false,
        };
        let files = [
            "Cargo.toml",
            "sys/os/Cargo.toml",
            "svc/agent/Cargo.toml",
            "svc/agent/src/lib.rs",
            "svc/other/Cargo.toml",
            "tests/fuzz/Cargo.toml",
        ]
        .map(file);
        let crates = house(part("x", "net/x", &[]));
        let findings = check_members(&crates, &files);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].path, "svc/other/Cargo.toml");
        assert!(findings[0].what.contains("in no workspace"));
    }

    #[test]
    fn the_projects_commands_do_not_link_the_product() {
        let findings = check(&house(part("xtask", "xtask", &["objects", "clap"])));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].what.contains("xtask depends on objects"));
        assert_eq!(
            check(&house(part("docs", "xtask/docs", &["objects"]))),
            vec![]
        );
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
