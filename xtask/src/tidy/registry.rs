//! The registry in the shared segment is touched only by code that makes a job or joins one. All
//! other code asks `Peers`, which other implementations answer, too.

use std::sync::LazyLock;

use regex::Regex;

use super::{File, Finding};

static USE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\.\s*registry\(\)").expect("a constant pattern"));

/// The code that may: files whose paths begin like this.
const MAKERS: [&str; 10] = [
    "sys/shm/",
    "net/shm/",
    // The launcher and its guard make the job.
    "job/launch/src/guard.rs",
    "job/launch/src/setup.rs",
    // An agent makes the job's part on its host, and enters what it hears of others.
    "job/launch/src/hosts/",
    // A rank sleeps on its word and its sockets.
    "net/hosts/",
    // A launcher is recognized by its process id in the segment that it holds.
    "job/registry/",
    // The first process of a host makes the job's part there, where another launcher started them.
    "net/wireup/src/meet.rs",
    // A process joins its job.
    "abi/process/src/open.rs",
    // NX's controlling process makes an application.
    "run/nx/src/control.rs",
];

/// Checks one file; unit tests at its end and folders of tests may make jobs of their own.
pub fn check(file: &File) -> Vec<Finding> {
    let is_source = file.path.ends_with(".rs") && file.path.contains("/src/");
    if !is_source || MAKERS.iter().any(|maker| file.path.starts_with(maker)) {
        return vec![];
    }
    let text = file.text.as_deref().unwrap_or("");
    let code = text.split("#[cfg(test)]").next().unwrap_or("");
    USE.find_iter(code)
        .map(|found| {
            let line = code[..found.start()].lines().count().max(1);
            let what =
                "the segment's registry is for code that makes a job or joins one; ask `Peers`";
            Finding::new(&file.path, line, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        check(&File {
            path: path.into(),
            text: Some(text.into()),
            executable: false,
        })
        .len()
    }

    #[test]
    fn who_reaches_round_peers_is_found() {
        let source = "fn f(s: &Segment) -> u32 {\n    s.registry().failures() + s\n        .registry().cores()\n}\n";
        for path in [
            "run/mpi/src/recover.rs",
            "job/observe/src/mesh.rs",
            "abi/mpi/src/comm.rs",
        ] {
            assert_eq!(findings(path, source), 2, "{path}");
        }
    }

    #[test]
    fn makers_of_jobs_and_tests_may() {
        let source = "fn f(s: &Segment) { s.registry(); }\n";
        for path in [
            "net/shm/src/platform.rs",
            "job/launch/src/setup.rs",
            "abi/process/src/open.rs",
            "run/engine/tests/worlds.rs",
        ] {
            assert_eq!(findings(path, source), 0, "{path}");
        }
        let tested = format!("fn g() {{}}\n#[cfg(test)]\nmod tests {{ {source} }}\n");
        assert_eq!(findings("run/dynamic/src/port.rs", &tested), 0);
        assert_eq!(
            findings("run/mpi/src/lib.rs", "fn f(m: &Model) { m.registry_of(); }"),
            0
        );
    }
}
