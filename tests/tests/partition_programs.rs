//! A partition is the set of processors that MPI, MLP, OpenMP and IML have; and the Paragon's
//! commands under their own names.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use margay_sys_os::cpu;
use margay_tests::{command, program, run, scratch, stage, succeed};

/// A user's partitions, for this test alone.
struct Place(tempfile::TempDir);

impl Place {
    fn command(&self, program: &Path, line: &str) -> Command {
        let mut command = command(program, 120);
        command
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .env("XDG_STATE_HOME", self.0.path())
            .env("MARGAY_PARTITIONS", self.0.path().join("common"));
        for name in [
            "NX_DFLT_PART",
            "OMP_NUM_THREADS",
            "OMP_PLACES",
            "OMP_PROC_BIND",
        ] {
            command.env_remove(name);
        }
        command
    }

    fn margay(&self, line: &str) -> String {
        succeed(&mut self.command(&stage().join("bin/margay"), line))
    }
}

fn compile(folder: &Path) -> PathBuf {
    let executable = folder.join("processors");
    succeed(
        command(stage().join("bin/mpicc"), 120)
            .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-fopenmp", "-pthread"])
            .args(["-Wall", "-Wextra", "-Werror"])
            .arg(program("processors.c"))
            .args(["-lmlp", "-liml", "-o"])
            .arg(&executable),
    );
    executable
}

/// How many processors were counted, and all cores of the lines.
fn seen(text: &str) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let mut counts = BTreeSet::new();
    let mut cores = BTreeSet::new();
    for line in text.lines() {
        let (count, list) = line.split_once(':').unwrap_or_else(|| panic!("{text}"));
        counts.insert(count.parse().unwrap_or_else(|_| panic!("{text}")));
        cores.extend(
            list.split_whitespace()
                .map(|core| core.parse::<usize>().unwrap()),
        );
    }
    (counts, cores)
}

#[test]
fn a_partition_is_the_set_of_processors_that_programs_have() {
    let place = Place(scratch());
    let executable = compile(place.0.path());
    let all = cpu::affinity();
    let last = all.len() - 1;
    place.margay(&format!("part mkpart -nd {last} end"));
    let list = place.margay("part pexec end grep Cpus_allowed_list /proc/self/status");
    let core: usize = list.split_whitespace().nth(1).unwrap().parse().unwrap();
    let name = executable.display();
    let mpiexec = stage().join("bin/mpiexec");
    let ran = |line: &str| seen(&succeed(&mut place.command(&mpiexec, line)));
    let one = |count: usize| (BTreeSet::from([count]), BTreeSet::from([core]));
    // As many ranks as nodes, and more of them on the same ones.
    assert_eq!(ran(&format!("-pn end {name} mpi")), one(1));
    assert_eq!(ran(&format!("-pn end -n 3 {name} mpi")), one(3));
    let whole = (BTreeSet::from([all.len()]), all.iter().copied().collect());
    assert_eq!(ran(&format!("-pn .compute {name} mpi")), whole);
    for (what, count) in [("omp", 1), ("mlp", 2), ("iml", 1)] {
        for start in [
            format!("part pexec end {name} {what}"),
            format!(
                "part exec end {} -pn end -n 1 {name} {what}",
                mpiexec.display()
            ),
        ] {
            assert_eq!(seen(&place.margay(&start)), one(count), "{start}");
        }
    }
    // Margay's OpenMP library, too.
    let margay = stage().join("bin/margay");
    let line = format!("part pexec end {} omp {name} omp", margay.display());
    assert_eq!(seen(&place.margay(&line)), one(1));
    // On all nodes there is more to see.
    for what in ["omp", "iml", "mlp"] {
        let (_, cores) = seen(&place.margay(&format!("part pexec .compute {name} {what}")));
        let most = if what == "mlp" {
            2.min(all.len())
        } else {
            all.len()
        };
        assert_eq!(cores.len(), most, "{what}");
    }
}

#[test]
fn the_commands_of_the_paragon_have_their_own_names() {
    let place = Place(scratch());
    let folder = stage().join("share/margay/compat/bin");
    let status = |name: &str, line: &str| run(&mut place.command(&folder.join(name), line));
    let own = |name: &str, line: &str| succeed(&mut place.command(&folder.join(name), line));
    let cores = cpu::affinity().len();
    own("mkpart", "-sz 1 -rq 5m -epl 7 -mod rwxr-x--- mine");
    own("mkpart", "-nd 0 -ss mine.first");
    own("mkpart", "-sz 1x1 -sps -mod 700 .compute.mine.second");
    let listed = own("lspart", "-r");
    for row in [
        "    750     1     0    5m   7 .compute.mine\n",
        "    750     1     1     -   7 .compute.mine.first\n",
        "    700     1     1   SPS   7 .compute.mine.second\n",
    ] {
        assert!(listed.contains(row), "{row}: {listed}");
    }
    // What cannot be had as asked is an error, and fewer nodes with -rlx.
    let many = (cores + 3).to_string();
    let output = status("mkpart", &format!("-sz {many} most"));
    assert!(!output.status.success());
    own("mkpart", &format!("-sz {many} -rlx most"));
    own("mkpart", &format!("-nd 0..{many} -rlx listed"));
    own("mkpart", &format!("-sz {many}x2 -rlx square"));
    let listed = own("lspart", "");
    for name in ["most", "listed", "square"] {
        let row = format!("    755 {cores:>5} {cores:>5}     -  10 .compute.{name}\n");
        assert!(listed.contains(&row), "{row}: {listed}");
    }
    let output = status("mkpart", &format!("-nd {many} -rlx none"));
    assert!(!output.status.success());
    own("chpart", "-nm yours -epl 2 -ss -mod 711 mine");
    assert!(own("showpart", "yours").contains(".compute.yours"));
    assert!(own("lspart", "").contains("    711     1     0     -   2 .compute.yours\n"));
    assert_eq!(own("pexec", "yours.first nproc"), "1\n");
    assert_eq!(status("pexec", "yours sh -c false").status.code(), Some(1));
    assert_eq!(own("pspart", "yours").lines().count(), 1);
    assert!(!status("rmpart", "yours").status.success());
    own("rmpart", "-r -f yours");
    assert!(!own("lspart", "").contains("yours"));
}
