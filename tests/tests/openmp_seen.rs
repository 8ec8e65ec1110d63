//! OpenMP seen from outside: gdb with the script that the library brings, on running processes and
//! core files, and `margay threads`.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use margay_tests::{command, program, run, scratch, stage, succeed, unprivileged};

fn compile(compiler: &str, folder: &Path) -> PathBuf {
    let executable = folder.join(format!("seen_{compiler}"));
    let mut compile = command(compiler, 120);
    compile
        .current_dir(folder)
        .args(["-O0", "-g", "-fopenmp"])
        .arg(program("openmp").join("seen.c"))
        .arg("-o");
    succeed(compile.arg(&executable));
    executable
}

/// A process of the program, ended with the value.
struct Seen(Child);

impl Seen {
    /// Starts it and waits until its members are where they stay.
    fn start(executable: &Path, mode: &str) -> Seen {
        Seen::start_with(executable, mode, &stage().join("lib/gomp"))
    }

    fn start_with(executable: &Path, mode: &str, libraries: &Path) -> Seen {
        let mut command = Command::new(executable);
        command
            .arg(mode)
            .env("LD_LIBRARY_PATH", libraries)
            // Core files hold all stacks.
            .env("OMP_STACKSIZE", "256K")
            .stdout(Stdio::piped());
        // Members in a futex would be taken for such ones elsewhere; two threads, however many
        // cores there are.
        margay_sys_os::signal::take_defaults_in(&mut command);
        let mut seen = Seen(command.spawn().expect("the program starts"));
        let mut line = String::new();
        let output = seen.0.stdout.as_mut().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it says something");
        assert_eq!(line, "ready\n");
        seen
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// `margay threads --json` of it, once it says what `is_there` asks for.
    fn when(&self, is_there: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let report = threads(&["--json", &self.pid()]);
            let view = serde_json::from_slice(&report.stdout).unwrap_or_default();
            if is_there(&view) {
                return view;
            }
            assert!(Instant::now() < until, "{view} {report:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all members of the outermost team have come to where they stay.
    fn settled(&self) -> serde_json::Value {
        self.when(|view| {
            let team = &view["teams"][0];
            let waits = |id: usize| team["member"][id]["waits_for"].as_str().unwrap_or("");
            let is_begun = |id: usize| !team["member"][id]["thread"].is_null();
            [0, 1, 3, 4].map(waits) == ["barrier"; 4]
                && waits(2) == "lock or critical"
                && [5, 6, 7].into_iter().all(is_begun)
        })
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn threads(arguments: &[&str]) -> Output {
    let mut threads = command(stage().join("bin/margay"), 20);
    run(threads.arg("threads").args(arguments))
}

/// What `margay threads` says on standard error, when it refuses.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// gdb with these commands, and with leave to load what is in the stage tree.
fn gdb(arguments: &[&str], commands: &[&str]) -> String {
    let mut gdb = command("gdb", 120);
    gdb.args(["-nx", "-q", "-batch", "-iex"])
        .arg(format!(
            "add-auto-load-safe-path {}",
            stage().canonicalize().expect("the stage tree").display()
        ))
        .args(["-iex", "set debuginfod enabled off", "-iex", "set width 0"]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    // Last, since a program's arguments may be among them.
    let output = run(gdb.args(arguments));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The line of a member in `info members`.
fn line<'t>(report: &'t str, member: &str) -> &'t str {
    let prefix = format!("  {member} ");
    let found = report.lines().find(|line| line.starts_with(&prefix));
    found.unwrap_or_else(|| panic!("no member {member} in\n{report}"))
}

/// Commands whose output [`is_complete`] checks.
const COMMANDS: [&str; 8] = [
    "info members",
    "member 1.2",
    "bt",
    "info locals",
    "up",
    "member off",
    "member apply 1 bt",
    "thread apply all bt",
];

fn is_complete(report: &str) {
    assert!(report.contains("Team 1: 8 members of main."), "{report}");
    let expected = [
        ("1.0", "barrier", "wait_at_the_barrier"),
        ("1.1", "barrier", "wait_at_the_barrier"),
        ("1.2", "lock or critical", "wait_for_the_lock"),
        ("1.3", "barrier", "wait_at_the_barrier"),
        ("1.4", "barrier", "wait_at_the_barrier"),
        ("1.6", "", "sleep_for_long"),
        ("1.7", "", "spin"),
    ];
    for (member, wait, function) in expected {
        let line = line(report, member);
        assert!(line.contains(wait), "{line}\n{report}");
        assert!(
            line.contains(&format!("{function} () at seen.c:")),
            "{line}\n{report}"
        );
    }
    // The member's own variables, in the frame that has been selected.
    assert!(report.contains("\nmine = 20\n"), "{report}");
    assert!(report.contains("wait_for_the_lock (number=2)"), "{report}");
    for member in 0..8 {
        assert!(
            report.contains(&format!("\nMember 1.{member} (")),
            "{report}"
        );
    }
    // gdb says so of stacks whose end it does not find.
    for bad in ["corrupt stack", "Backtrace stopped", "Python Exception"] {
        assert!(!report.contains(bad), "{report}");
    }
}

#[test]
fn gdb_lists_and_unwinds_members_of_processes_and_of_core_files() {
    for compiler in ["gcc", "clang-19"] {
        let folder = scratch();
        let executable = compile(compiler, folder.path());
        let executable = executable.to_str().expect("a plain path");
        let seen = Seen::start(Path::new(executable), "flat");
        seen.settled();
        let core = folder.path().join("core");
        let core = core.to_str().expect("a plain path");
        let generate = format!("generate-core-file {core}");
        let live = [&COMMANDS[..], &[&generate]].concat();
        let report = gdb(&["-p", &seen.pid()], &live);
        is_complete(&report);
        assert!(
            report.contains(&format!("Saved corefile {core}")),
            "{report}"
        );
        // The process goes on as before.
        seen.settled();
        is_complete(&gdb(&[executable, core], &COMMANDS));
    }
}

#[test]
fn gdb_shows_teams_inside_of_others() {
    let folder = scratch();
    let executable = compile("gcc", folder.path());
    let seen = Seen::start(&executable, "nested");
    seen.settled();
    let of_inner = |view: &serde_json::Value| {
        view["teams"][1]["member"][0]["waits_for"] == "lock or critical"
            && view["teams"][1]["parent"] == serde_json::json!([1, 5])
    };
    let view = seen.when(of_inner);
    assert_eq!(view["teams"][0]["member"][5]["state"], "inside", "{view}");
    let report = gdb(
        &["-p", &seen.pid()],
        &["info members", "member 1.5", "info locals", "member 9.9"],
    );
    assert!(
        report.contains("Team 2 in member 1.5: 3 members of fork_inside."),
        "{report}"
    );
    let outer = line(&report, "1.5");
    assert!(
        outer.contains("team 2") && outer.contains("fork_inside () at"),
        "{report}"
    );
    assert!(
        line(&report, "2.0").contains("wait_for_the_lock () at"),
        "{report}"
    );
    assert!(report.contains("there is no member 9.9"), "{report}");
}

#[test]
fn gdb_shows_tasks_of_iml() {
    let folder = scratch();
    let executable = folder.path().join("seen_iml");
    let mut compile = command("gcc", 120);
    compile
        .args(["-O0", "-g", "-I"])
        .arg(stage().join("include"))
        .arg(program("iml").join("seen.c"))
        .arg("-L")
        .arg(stage().join("lib"))
        .args(["-liml", "-o"]);
    succeed(compile.arg(&executable));
    let seen = Seen::start_with(&executable, "", &stage().join("lib"));
    let report = gdb(
        &["-p", &seen.pid()],
        &[
            "info members",
            "member 0.1",
            "bt",
            "info locals",
            "member apply all bt",
            "member 0.9",
        ],
    );
    assert!(report.contains("Outside of teams:"), "{report}");
    assert!(
        line(&report, "0.1").contains("stay () at seen.c:"),
        "{report}"
    );
    // A task in a task, on one stack, and the library between them.
    let trace = report.split_once("in stay (mine=10").expect(&report).1;
    let outer = trace.find("in outer (").expect(&report);
    assert!(
        trace.find("in inner (").expect(&report) < outer && trace[..outer].contains("iml_Wait"),
        "{report}"
    );
    assert!(report.contains("\nMember 0.1 ("), "{report}");
    assert!(report.contains("\nall = "), "{report}");
    assert!(report.contains("there is no member 0.9"), "{report}");
    for bad in ["corrupt stack", "Backtrace stopped", "Python Exception"] {
        assert!(!report.contains(bad), "{report}");
    }
    // It has tasks and no teams.
    let view = seen.when(|view| view["teams"].is_array());
    assert_eq!(view["members"], 0, "{view}");
}

#[test]
fn gdb_goes_on_with_a_process_after_a_member_was_selected() {
    let folder = scratch();
    let executable = compile("gcc", folder.path());
    let gomp = stage().join("lib/gomp");
    let environment = format!("set environment LD_LIBRARY_PATH {}", gomp.display());
    let report = gdb(
        &["--args", executable.to_str().expect("a plain path"), "ends"],
        &[
            "info members",
            &environment,
            "break wait_at_the_end",
            "run",
            "info members",
            "member 1.0",
            "bt",
            "delete",
            "continue",
            "info members",
        ],
    );
    assert!(report.contains("Team 1: 8 members"), "{report}");
    assert!(report.contains("exited normally"), "{report}");
}

#[test]
fn valgrind_knows_the_stacks_of_members() {
    let folder = scratch();
    let executable = compile("gcc", folder.path());
    let mut valgrind = command("valgrind", 120);
    valgrind
        .arg("--error-exitcode=9")
        .arg(executable)
        .arg("ends")
        .env("LD_LIBRARY_PATH", stage().join("lib/gomp"));
    let output = run(&mut valgrind);
    let report = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert!(report.contains("ERROR SUMMARY: 0 errors"), "{report}");
    assert!(!report.contains("switching stacks"), "{report}");
}

#[test]
fn the_command_shows_members_of_programs_of_gcc_and_clang() {
    for compiler in ["gcc", "clang-19"] {
        let folder = scratch();
        let executable = compile(compiler, folder.path());
        let seen = Seen::start(&executable, "nested");
        seen.settled();
        let view = seen.when(|view| view["teams"][1]["member"][2]["waits_for"] == "end of region");
        let team = &view["teams"][0];
        let function = team["function"].as_str().unwrap_or("");
        assert!(function.starts_with("main."), "{view}");
        assert_eq!(view["members"], 11, "{view}");
        assert_eq!(view["teams"][1]["level"], 2, "{view}");
        let report = succeed(
            command(stage().join("bin/margay"), 20)
                .arg("threads")
                .arg(seen.pid()),
        );
        assert!(
            report.contains(" of 11 members run, in 2 teams on "),
            "{report}"
        );
        assert!(report.contains("waits: barrier"), "{report}");
        assert!(
            report.contains("team 2 in member 1.5: 3 members of fork_inside"),
            "{report}"
        );
        assert!(
            report.lines().all(|line| line.chars().count() <= 80),
            "{report}"
        );
    }
}

#[test]
fn the_command_says_why_it_shows_nothing() {
    // Another program.
    let mut other = Command::new("sleep")
        .arg("100")
        .spawn()
        .expect("sleep starts");
    let report = refused(&threads(&[&other.id().to_string()]));
    assert!(report.contains("does not use Margay's threads"), "{report}");
    other.kill().expect("it is there");
    // One that has ended and has not been waited for, and one that is gone.
    for _ in 0..2 {
        let until = Instant::now() + Duration::from_secs(20);
        let report = loop {
            let report = refused(&threads(&[&other.id().to_string()]));
            if report.contains("there is no process") || Instant::now() > until {
                break report;
            }
        };
        assert!(report.contains("there is no process"), "{report}");
        other.wait().expect("it is a child");
    }
    // Another user's.
    let folder = scratch();
    let executable = compile("gcc", folder.path());
    let seen = Seen::start(&executable, "flat");
    let is_root = succeed(command("id", 10).arg("-u")).trim() == "0";
    let (mut asks, pid) = if is_root {
        (unprivileged(20), seen.pid())
    } else {
        (command("env", 20), "1".to_owned())
    };
    let report = refused(&run(asks
        .arg(stage().join("bin/margay"))
        .args(["threads", &pid])));
    assert!(report.contains("belongs to another user"), "{report}");
}
