//! Writes the manual pages of all commands of the stage tree: `xtask-manual STAGE`.
//!
//! Those of `margay` and its other names come from the definition of their options, those of the
//! compiler wrappers from what the wrappers themselves say of theirs (`mpicc -help`).
//! `cargo xtask stage` runs this program. It is a crate of its own, because it links the product,
//! which does not link it.
#![forbid(unsafe_code)]

mod command;
mod page;
mod wrapper;

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::ExitCode;

use flate2::Compression;
use flate2::write::GzEncoder;
use margay_cli::{options, poe};
use page::Page;

/// Other names of commands, whose pages are links to another one.
const ALIASES: [(&str, &[&str]); 9] = [
    ("margay", &["margay-machine"]),
    ("mpiexec", &["mpirun", "yod", "margay-run", "margay-check"]),
    ("showmesh", &["margay-mesh"]),
    ("margay-agent", &["margay-join"]),
    ("margay-ps", &["margay-system"]),
    ("margay-make", &["margay-shell"]),
    ("mpicc", &["mpcc"]),
    ("mpicxx", &["mpic++", "mpCC"]),
    ("mpifort", &["mpif90", "mpif77", "mpxlf"]),
];

/// Guides of the installed tree that say more about a command.
const GUIDES: [(&str, &[&str]); 28] = [
    ("margay-agent", &["docs/hosts.md"]),
    ("margay-trace", &["docs/view.md"]),
    ("margay-view", &["docs/view.md"]),
    (
        "margay",
        &[
            "README.md",
            "docs/tutorial.md",
            "docs/lesson.md",
            "docs/troubleshooting.md",
        ],
    ),
    (
        "mpiexec",
        &[
            "docs/tutorial.md",
            "docs/launcher.md",
            "docs/check.md",
            "docs/moving.md",
        ],
    ),
    ("poe", &["docs/mpl.md"]),
    ("showmesh", &["docs/launcher.md"]),
    ("margay-markers", &["docs/mpl.md"]),
    ("margay-why", &["docs/why.md", "docs/lesson.md"]),
    ("margay-omp", &["docs/openmp.md"]),
    ("margay-threads", &["docs/openmp.md"]),
    ("margay-bench", &["docs/bench.md"]),
    ("margay-fortran", &["docs/fortran.md"]),
    ("margay-part", &["docs/partitions.md"]),
    ("margay-pfs", &["docs/pfs.md"]),
    ("margay-ps", &["docs/hosts.md"]),
    ("margay-kill", &["docs/hosts.md"]),
    ("margay-make", &["docs/hosts.md"]),
    ("margay-up", &["docs/jobs.md"]),
    ("margay-down", &["docs/jobs.md"]),
    ("margay-submit", &["docs/jobs.md"]),
    ("margay-wait", &["docs/jobs.md"]),
    ("margay-queue", &["docs/jobs.md"]),
    ("margay-cancel", &["docs/jobs.md"]),
    ("margay-hold", &["docs/jobs.md"]),
    ("margay-release", &["docs/jobs.md"]),
    ("margay-explain", &["docs/jobs.md"]),
    ("margay-account", &["docs/jobs.md"]),
];

fn main() -> ExitCode {
    let Some(stage) = std::env::args_os().nth(1) else {
        eprintln!("xtask-manual: say where the tree is: xtask-manual stage");
        return ExitCode::from(2);
    };
    match write(Path::new(&stage)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask-manual: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes all pages, packed as `man` reads them: they take a third.
fn write(stage: &Path) -> Result<(), String> {
    let folder = stage.join("share/man/man1");
    let failed = |path: &Path, e: std::io::Error| format!("cannot write {}: {e}", path.display());
    // Old pages, which may be links to others.
    match fs::remove_dir_all(&folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(&folder, e)),
        _ => {}
    }
    fs::create_dir_all(&folder).map_err(|e| failed(&folder, e))?;
    let path = |name: &str| folder.join(format!("{name}.1.gz"));
    let mut pages = commands();
    for name in ["mpicc", "mpicxx", "mpifort"] {
        pages.push(wrapper::page(name, &wrapper::help(stage, name)?));
    }
    for page in &mut pages {
        page.names.extend(aliases(&page.name).iter().copied());
        let guides = GUIDES.iter().find(|(name, _)| *name == page.name);
        page.guides = guides.map_or(&[], |(_, guides)| guides);
        let path_of_page = path(&page.name);
        let packed = packed(page.text().as_bytes());
        let written = packed.and_then(|bytes| fs::write(&path_of_page, bytes));
        written.map_err(|e| failed(&path_of_page, e))?;
        for alias in aliases(&page.name) {
            let link = path(alias);
            symlink(format!("{}.1.gz", page.name), &link).map_err(|e| failed(&link, e))?;
        }
    }
    Ok(())
}

/// By gzip, without a name and a time: two builds make the same bytes.
fn packed(text: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text)?;
    packed.finish()
}

fn aliases(name: &str) -> &'static [&'static str] {
    let found = ALIASES.iter().find(|(of, _)| *of == name);
    found.map_or(&[], |(_, aliases)| aliases)
}

/// The pages of `margay`, of its commands and of its other names.
fn commands() -> Vec<Page> {
    let mut margay = options::margay_command();
    // What it hands on to its commands, such as --version.
    margay.build();
    let mut pages = vec![
        command::page("margay", margay.clone()),
        command::page("mpiexec", options::run_command("mpiexec")),
        command::page("showmesh", options::mesh_command("showmesh")),
        command::page("poe", poe::command()),
    ];
    for sub in margay.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("margay-{}", sub.get_name());
        let definition = match sub.get_name() {
            // Also called mpiexec and showmesh, under whose names they have their pages.
            "run" | "mesh" => continue,
            "why" => options::why_command(),
            "markers" => options::markers_command(),
            "threads" => options::threads_command(),
            "bench" => margay_cli_bench_options::command(),
            "pfs" => margay_svc_pfs_options::command(),
            _ => sub.clone(),
        };
        pages.push(command::page(&name, definition));
    }
    let part = margay
        .get_subcommands()
        .find(|sub| sub.get_name() == "part");
    let mut of_others = vec![("pfs", margay_svc_pfs_options::command())];
    of_others.extend(part.map(|part| ("part", part.clone())));
    for (name, mut command) in of_others {
        command.build();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let name = format!("margay-{name}-{}", sub.get_name());
            pages.push(command::page(&name, sub.clone()));
        }
    }
    pages.push(command::page(
        "margay-bench-threads",
        margay_cli_bench_options::threads_command(),
    ));
    pages.push(command::page(
        "margay-bench-files",
        margay_cli_bench_options::files_command(),
    ));
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_margay_has_a_page_or_is_another_name_of_one() {
        let pages = commands();
        let has = |name: &str| pages.iter().any(|page| page.name == name);
        let margay = options::margay_command();
        for sub in margay.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let name = format!("margay-{}", sub.get_name());
            let is_alias = ALIASES
                .iter()
                .any(|(of, names)| has(of) && names.contains(&name.as_str()));
            assert!(has(&name) || is_alias, "{name}");
        }
        for name in options::COMMANDS {
            let is_alias = ALIASES.iter().any(|(_, names)| names.contains(&name));
            assert!(has(name) || is_alias, "{name}");
        }
        for (name, _) in GUIDES {
            assert!(has(name), "{name}");
        }
    }
}
