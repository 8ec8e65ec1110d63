//! NX programs in partitions: the nodes that they name, partitions that they make for themselves,
//! their account, and their priority.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use margay_sys_os::cpu;
use margay_tests::voices::{Voice, said};
use margay_tests::{command, run, scratch, stage, succeed};

const NX: Voice = Voice {
    name: "nx",
    libraries: &["-lnx"],
    environment: &[],
};

/// A user's partitions, for this test alone.
struct Place(tempfile::TempDir);

impl Place {
    fn at_home<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .current_dir(self.0.path())
            .env("XDG_STATE_HOME", self.0.path())
            .env("MARGAY_PARTITIONS", self.0.path().join("common"))
            .env_remove("NX_DFLT_PART")
            .env_remove("NX_DFLT_SIZE")
    }

    fn command(&self, program: &Path, line: &str) -> Command {
        let mut command = command(program, 120);
        self.at_home(command.args(line.split_whitespace()));
        command
    }

    fn part(&self, line: &str) -> String {
        succeed(&mut self.command(&stage().join("bin/margay"), &format!("part {line}")))
    }

    fn applications(&self) -> Vec<serde_json::Value> {
        let all: serde_json::Value =
            serde_json::from_str(&self.part("pspart -json .")).expect("JSON");
        all["applications"].as_array().expect("a list").clone()
    }

    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(100);
        while !is_so() {
            assert!(Instant::now() < end, "{what}: {:?}", self.applications());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn start(&self, program: &Path, line: &str) -> Running {
        let mut command = Command::new(program);
        self.at_home(command.args(line.split_whitespace()));
        Running(command.stdout(Stdio::piped()).spawn().expect("it starts"))
    }
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn gang(place: &Place) -> PathBuf {
    NX.compile(place.0.path(), "gang")
}

/// The first and the last core of this test.
fn ends() -> (usize, usize) {
    let cores = cpu::affinity();
    (cores[0], cores[cores.len() - 1])
}

#[test]
fn nodes_that_are_named_are_those_of_the_machine_or_the_partition() {
    let place = Place(scratch());
    let program = gang(&place);
    let (first, last) = ends();
    let count = cpu::affinity().len();
    let highest = count - 1;
    let line = |node: usize, nodes: usize, core: usize| {
        format!("node {node} of {nodes}: 1 core, the first {core} {core}\n")
    };
    let own = |text: &str| succeed(&mut place.command(&program, text));
    let launched = |text: &str| {
        let mut launcher = place.command(&stage().join("bin/mpiexec"), text);
        succeed(launcher.arg(&program))
    };
    assert_eq!(own(&format!("-on {highest}")), line(highest, count, last));
    assert_eq!(own("-on 0"), line(0, 1, first));
    assert_eq!(
        launched(&format!("-on {highest}")),
        line(highest, count, last)
    );
    if count > 1 {
        let both = launched(&format!("-output ordered -on {highest},0"));
        let expected = line(highest, count, last) + &line(0, count, first);
        assert_eq!(both, expected);
    }
    // By another binding the user says more; with more nodes than cores none is a core.
    let list = format!("-bind {first} -on {highest}");
    assert_eq!(launched(&list), line(highest, count, first));
    let many = launched(&format!("-output ordered -on 0..{count}"));
    assert!(
        many.starts_with(&format!("node 0 of {}: {count} core", count + 1)),
        "{many}"
    );
    // In a partition they are its nodes, whatever the machine calls them.
    place.part(&format!("mkpart -nd {highest} end"));
    let (at_end, _) = in_partition(&place, "end");
    assert_eq!(own("-pn end -on 0"), line(0, 1, at_end));
    assert_eq!(own("-pn end"), line(0, 1, at_end));
    let mut command = place.command(&program, "-pt 0 -pn");
    let output = succeed(command.arg("").env("NX_DFLT_PART", "end"));
    assert_eq!(output, line(0, 1, at_end));
}

/// The cores of a partition: the first, and all as the system prints them.
fn in_partition(place: &Place, name: &str) -> (usize, String) {
    let line = place.part(&format!(
        "pexec {name} grep Cpus_allowed_list /proc/self/status"
    ));
    let list = line.split_whitespace().nth(1).expect("a list").to_owned();
    let first = list.split([',', '-']).next().and_then(|n| n.parse().ok());
    (first.expect("a number"), list)
}

#[test]
fn a_program_makes_a_partition_and_controls_its_application_there() {
    let place = Place(scratch());
    let program = NX.compile(place.0.path(), "owner");
    // One node, where the machine may have more, and no partition is left.
    let expected = "node 0 of 1 has 1 core\n1 nodes\n";
    assert_eq!(succeed(&mut place.command(&program, "")), expected);
    assert!(!place.part("lspart").contains("own"));
    // The options decide; with more nodes than it has they share them.
    let output = succeed(&mut place.command(&program, "-sz 2"));
    assert!(
        output.ends_with("2 nodes\n") && output.contains("node 1 of 2 has 1 core"),
        "{output}"
    );
}

#[test]
fn partitions_in_which_applications_take_turns_are_chosen_by_the_launcher() {
    let place = Place(scratch());
    let program = NX.compile(place.0.path(), "control");
    place.part("mkpart -sz 1 -rq 100 turns");
    let output = run(&mut place.command(&program, "fork -pn turns"));
    assert!(!output.status.success());
    let text = said(&output);
    assert!(
        text.contains("take turns") && text.contains("mpiexec -pn"),
        "{text}"
    );
    let output = run(&mut place.command(&program, "fork -pn none"));
    assert!(said(&output).contains("there is no partition '.compute.none'"));
}

#[test]
fn an_account_is_shown_with_the_application() {
    let place = Place(scratch());
    let program = NX.compile(place.0.path(), "owner");
    let running = place.start(&program, "oceanography end");
    let job = running.0.id();
    let showmesh = |line: &str| {
        let line = format!("{line} --job {job}");
        let output = run(&mut place.command(&stage().join("bin/showmesh"), &line));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let account = "\"account\": \"oceanography\"";
    place.until("an account", || showmesh("--json").contains(account));
    let text = showmesh("--once");
    assert!(text.contains("account oceanography\n"), "{text}");
    let text = showmesh("--once --plain");
    assert!(text.contains("Account: oceanography.\n"), "{text}");
    fs::write(place.0.path().join("end"), "").unwrap();
}

#[test]
fn the_priority_of_an_nx_program_decides_whose_turn_it_is() {
    let place = Place(scratch());
    let program = gang(&place);
    place.part("mkpart -sz 1 -rq 100 one");
    let of = |own: &Running| {
        let all = place.applications();
        all.into_iter().find(|found| found["pid"] == own.0.id())
    };
    let low = place.start(&program, "-pn one -sz 1 -pri 3 low");
    place.until("a turn", || {
        of(&low).is_some_and(|own| own["active"] == true)
    });
    assert_eq!(of(&low).unwrap()["priority"], 3);
    // A higher one takes over, and keeps its turn for many quanta.
    let mut high = place.start(&program, "-pn one -sz 1 -pri 6 high");
    place.until("the higher one", || {
        of(&high).is_some_and(|own| own["active"] == true)
    });
    let before = of(&low).unwrap()["ran_ms"].clone();
    place.until("many quanta", || {
        of(&high).is_some_and(|own| own["ran_ms"].as_u64() > Some(1000))
    });
    let now = of(&low).unwrap();
    assert_eq!(
        (&now["active"], &now["ran_ms"]),
        (&false.into(), &before),
        "{now}"
    );
    fs::write(place.0.path().join("high"), "").unwrap();
    assert!(high.0.wait().unwrap().success());
    // A program gives itself another priority, and with it the turn.
    place.until("the lower one", || {
        of(&low).is_some_and(|own| own["active"] == true)
    });
    let own = place.start(&program, "-pn one -sz 1 -pri 3 own 7");
    place.until("nx_pri", || {
        of(&own).is_some_and(|own| own["priority"] == 7)
    });
    place.until("its turn", || {
        of(&own).is_some_and(|own| own["active"] == true)
    });
    let before = of(&low).unwrap()["ran_ms"].clone();
    let since = of(&own).unwrap()["ran_ms"].as_u64();
    place.until("quanta", || {
        of(&own).unwrap()["ran_ms"].as_u64() > since.map(|ms| ms + 600)
    });
    assert_eq!(of(&low).unwrap()["ran_ms"], before);
    for name in ["own", "low"] {
        fs::write(place.0.path().join(name), "").unwrap();
    }
}

#[test]
fn every_call_on_partitions_and_cubes_has_a_form_in_fortran() {
    let place = Place(scratch());
    fs::rename(gang(&place), place.0.path().join("node")).unwrap();
    let program = NX.compile_fortran(place.0.path(), "partitions");
    let output = succeed(&mut place.command(&program, ""));
    assert!(output.ends_with("all right\n"), "{output}");
    assert_eq!(output.matches("of 2: ").count(), 2, "{output}");
    assert_eq!(output.matches("node 2 of 3: ").count(), 1, "{output}");
}
