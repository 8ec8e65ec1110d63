//! The Python wheel in a fresh environment: its commands, a program in each language, mpi4py's
//! binary package with and without mpiexec, and nothing left when it is gone.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use margay_sys_os::process::PidFd;
use margay_tests::{command, program, run, scratch, stage, succeed};

/// A command of an environment, with its folder of programs first in the path.
fn inside(environment: &Path, name: &str, limit_s: u32) -> Command {
    let bin = environment.join("bin");
    let mut all = command(bin.join(name), limit_s);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path))).unwrap();
    all.env("PATH", path)
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    all
}

/// Every file below a folder that Python did not write by itself.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("__pycache__") {
                continue;
            }
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

#[test]
fn the_wheel_installs_works_and_goes() {
    let folder = scratch();
    let wheel = succeed(
        command(env!("CARGO"), 500)
            .args(["run", "--quiet", "--package", "xtask", "--", "wheel"])
            .arg(folder.path())
            .env("MARGAY_STAGE", stage()),
    );
    let environment = folder.path().join("environment");
    succeed(
        command("python3", 120)
            .args(["-m", "venv"])
            .arg(&environment),
    );
    let before = files(&environment);
    succeed(
        inside(&environment, "pip", 120)
            .args(["install", "--quiet", "--no-index"])
            .arg(wheel.trim_end()),
    );

    // The package tells where it is, and its library can be loaded.
    let report = succeed(inside(&environment, "python", 60).args([
        "-c",
        "import ctypes, margay_mpi as m\n\
         assert (m.include() / 'mpi.h').exists() and (m.bin() / 'mpiexec').exists()\n\
         library = ctypes.CDLL(str(m.library()))\n\
         major, minor = ctypes.c_int(), ctypes.c_int()\n\
         library.MPI_Abi_get_version(ctypes.byref(major), ctypes.byref(minor))\n\
         print(m.prefix(), major.value)",
    ]));
    assert_eq!(
        report,
        format!("{} 1\n", environment.canonicalize().unwrap().display())
    );

    // Programs in C and Fortran, through the environment's own wrappers and launcher.
    for (wrapper, source, expected) in [
        ("mpicc", "project/hello.c", "sum of ranks 3\n"),
        ("mpifort", "fortran/modern.f90", "ok\n"),
    ] {
        let executable = folder.path().join(wrapper);
        succeed(
            inside(&environment, wrapper, 120)
                .current_dir(folder.path())
                .arg(program(source))
                .arg("-o")
                .arg(&executable),
        );
        let printed = succeed(
            inside(&environment, "mpiexec", 60)
                .args(["-n", "3"])
                .arg(&executable),
        );
        assert_eq!(printed, expected);
    }

    // The client of a queue: the queue itself is of a whole installation.
    let kept = folder.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    let of_queue = |mut command: Command| {
        command.current_dir(folder.path()).env("HOME", &kept);
        command.env("XDG_STATE_HOME", &kept);
        command.env("XDG_RUNTIME_DIR", &kept);
        command
    };
    let of_tree = |name: &str, limit_s| of_queue(command(stage().join("bin").join(name), limit_s));
    let refused = run(of_queue(inside(&environment, "margay", 60)).arg("up"));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("use the margay of a whole"), "{said}");
    succeed(of_tree("margay", 60).args(["up", "--slots", "2"]));
    let mut api = of_tree("margay-queue", 120).arg("api").spawn().unwrap();
    let script = "import os, time\n\
        from margay_mpi.queue import Queue\n\
        while not os.path.exists(os.environ['XDG_STATE_HOME'] + '/margay/queue/api.sock'): time.sleep(0.01)\n\
        queue = Queue()\n\
        job = queue.submit(command=['sh', '-c', 'exit 3'], options=['-n', '2'])\n\
        print(queue.wait(job)[0]['exit_code'], queue.machine()['slots'])";
    let printed = succeed(of_queue(inside(&environment, "python", 60)).args(["-c", script]));
    assert_eq!(printed, "3 2\n");
    succeed(of_tree("margay", 60).arg("down"));
    PidFd::open(api.id()).unwrap().signal(15);
    assert!(api.wait().unwrap().success());

    // mpi4py as a binary package; mpi4py.rs compiles its sources.
    succeed(inside(&environment, "pip", 300).args(["install", "--quiet", "mpi4py"]));
    let printed = succeed(inside(&environment, "mpiexec", 60).args([
        "-n",
        "4",
        "python",
        "-m",
        "mpi4py.bench",
        "helloworld",
    ]));
    for rank in 0..4 {
        assert!(
            printed.contains(&format!("I am process {rank} of 4")),
            "{printed}"
        );
    }

    // Without mpiexec, too, unless the user names another library.
    let script = "from mpi4py import MPI; print(MPI.COMM_WORLD.size, MPI.Get_library_version())";
    let alone = succeed(inside(&environment, "python", 60).args(["-c", script]));
    assert!(alone.starts_with("1 Margay"), "{alone}");
    let other = run(inside(&environment, "python", 60)
        .args(["-c", script])
        .env("MPI4PY_LIBMPI", "/nowhere/libmpi.so.12"));
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(
        !other.status.success() && said.contains("/nowhere"),
        "{said}"
    );

    succeed(inside(&environment, "pip", 120).args(["uninstall", "--yes", "mpi4py", "margay-mpi"]));
    assert_eq!(files(&environment), before);
    let gone = run(inside(&environment, "python", 60).args(["-c", "import margay_mpi"]));
    assert!(!gone.status.success());
}
