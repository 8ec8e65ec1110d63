//! Partitions through their commands: what is made, refused, kept, and which cores programs get.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use margay_tests::pfs::{Place as Files, tool};
use margay_tests::{command, run, scratch, stage, succeed};

/// A user's state folder.
struct Place(tempfile::TempDir);

impl Place {
    fn command(&self, name: &str, words: &[&str]) -> Command {
        let mut command = command(stage().join("bin").join(name), 60);
        command
            .args(words)
            .env("XDG_STATE_HOME", self.0.path())
            .env_remove("NX_DFLT_PART");
        command
    }

    fn part(&self, line: &str) -> String {
        let words: Vec<&str> = std::iter::once("part").chain(line.split(' ')).collect();
        succeed(&mut self.command("margay", &words))
    }

    /// Runs a command that fails, and returns what it says in one line.
    fn refused(&self, words: &[&str], status: i32) -> String {
        let words: Vec<&str> = std::iter::once("part")
            .chain(words.iter().copied())
            .collect();
        let output = run(&mut self.command("margay", &words));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{words:?}: {said}");
        said
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("margay/partitions")
    }

    /// The file that keeps the partitions.
    fn file(&self) -> PathBuf {
        let files = fs::read_dir(self.folder())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut tables = files.filter(|path| path.extension().is_none_or(|e| e != "lock"));
        tables.next().expect("a table")
    }

    fn listed(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.part(line)).expect("JSON")
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The cores of the machine as the first process has them.
fn cores() -> usize {
    let status = fs::read_to_string("/proc/1/status").unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed:"))
        .unwrap();
    mask.chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit.count_ones() as usize)
        .sum()
}

#[test]
fn programs_in_a_partition_have_its_cores_alone() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 one");
    place.part("mkpart -sz 1x1 --mod rwx------ one.sub");
    assert_eq!(place.part("pexec one nproc"), "1\n");
    assert_eq!(
        place
            .part("exec one.sub nproc --all")
            .trim()
            .parse::<usize>()
            .ok(),
        Some(cores())
    );
    let own = |words: &[&str]| {
        let output = run(&mut place.command("mpiexec", words));
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let rank = "grep Cpus_allowed_list /proc/self/status";
    let alone = place.part("pexec one grep Cpus_allowed_list /proc/self/status");
    assert_eq!(own(&["-pn", "one", "sh", "-c", rank]), alone);
    assert_eq!(
        own(&["-pn", ".compute.one.sub", "-n", "2", "sh", "-c", rank]),
        alone.repeat(2)
    );
    // A program's options are its own, whatever they look like.
    assert_eq!(place.part("pexec one echo -sz 4 -r -nd"), "-sz 4 -r -nd\n");
    let output = run(&mut place.command("mpiexec", &["-pn", "none", "true"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("there is no partition '.compute.none'"),
        "{}",
        said(&output)
    );
    // More nodes than there are.
    assert_eq!(own(&["-pn", "one:1", "sh", "-c", rank]), alone);
    let output = run(&mut place.command("mpiexec", &["-pn", "one:2", "-n", "1", "true"]));
    assert!(
        said(&output).contains("2 nodes: the partition '.compute.one' has 1; ask for no more (-pn"),
        "{}",
        said(&output)
    );
    let output = run(&mut place.command("mpiexec", &["-pn", "one", "-cpu-set", "0", "true"]));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let output = run(&mut place.command("margay", &["part", "pexec", "one", "sh", "-c", "exit 7"]));
    assert_eq!(output.status.code(), Some(7));
    assert!(
        place
            .refused(&["pexec", "one", "/no such"], 127)
            .contains("/no such cannot be run")
    );
    assert!(
        place
            .refused(&["pexec", "one", "/"], 126)
            .contains("/ cannot be run")
    );
}

#[test]
fn a_tree_of_partitions_is_made_listed_changed_and_removed() {
    let place = Place(scratch());
    place.part("mkpart -rq 10m -epl 5 a");
    place.part("mkpart -nd 0 -sps a.b");
    place.part("make a.b.c");
    let listed = place.listed("lspart -r -json .compute");
    let all = listed["partitions"].as_array().unwrap();
    let names: Vec<&str> = all
        .iter()
        .map(|p| p["partition"].as_str().unwrap())
        .collect();
    assert_eq!(names, [".compute.a", ".compute.a.b", ".compute.a.b.c"]);
    assert_eq!(all[0]["scheduling"], "600000ms");
    assert_eq!(all[0]["free"], cores() - 1);
    assert_eq!(all[2]["scheduling"], "sps");
    assert_eq!(all[2]["priority_limit"], 5);
    assert_eq!(all[2]["nodes"], serde_json::json!([0]));
    place.part("chpart -nm z -mod 700 -ss a.b");
    let text = place.part("lspart -r");
    assert!(
        text.contains("    700     1     0     -   5 .compute.a.z\n"),
        "{text}"
    );
    assert!(text.contains(".compute.a.z.c\n"), "{text}");
    assert!(
        place
            .part("showpart a.z")
            .lines()
            .nth(2)
            .unwrap()
            .contains("0 *")
    );
    let said = place.refused(&["rmpart", "a"], 1);
    assert!(
        said.contains("has subpartitions; remove them first"),
        "{said}"
    );
    place.part("rmpart -r -f a");
    assert_eq!(place.part("lspart").lines().count(), 1);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let place = Place(scratch());
    place.part("mkpart -mod 500 closed");
    let before = fs::read(place.file()).unwrap();
    let many = (cores() + 1).to_string();
    for (words, text) in [
        (
            &["mkpart", "closed"][..],
            "there is a partition '.compute.closed'",
        ),
        (&["mkpart", "no.sub"], "there is no partition '.compute.no'"),
        (&["mkpart", "-sz", &many, "big"], "cannot give the nodes"),
        (&["mkpart", "-sz", "9x999", "big"], "no rectangle of 9 rows"),
        (&["mkpart", "-nd", "9999", "big"], "it has no node 9999"),
        (
            &["mkpart", "../../etc"],
            "cannot be the name of a partition",
        ),
        (
            &["mkpart", "a\nb \u{1b}[31m"],
            "'a\\nb \\u{1b}[31m' cannot be the name",
        ),
        (&["mkpart", ""], "cannot be the name"),
        (&["rmpart", ".io"], "is always there"),
        (&["rmpart", "."], "is always there"),
        (&["chpart", "-nm", "x", ".compute"], "is always there"),
        (&["chpart", "-nm", "x.y", "closed"], "a new name has no dot"),
        (&["pexec", "no", "true"], "there is no partition"),
    ] {
        let said = place.refused(words, 1);
        assert!(said.contains(text), "{words:?}: {said}");
    }
    for words in [
        &["mkpart", "-sz", "0", "a"][..],
        &["mkpart", "-sz", "1", "-nd", "0", "a"],
        &["mkpart", "-mod", "999", "a"],
        &["mkpart", "-epl", "11", "a"],
        &["mkpart", "-rq", "25h", "a"],
        &["mkpart", "-ss", "-sps", "a"],
        &["mkpart", "-szz", "1", "a"],
        &["mkpart"],
        &["pexec", "a"],
    ] {
        place.refused(words, 2);
    }
    assert_eq!(fs::read(place.file()).unwrap(), before);
}

#[test]
fn damage_a_newer_version_and_a_place_without_room_are_reported() {
    let place = Place(scratch());
    place.part("mkpart kept");
    let file = place.file();
    let good = fs::read_to_string(&file).unwrap();
    for (text, why) in [
        (
            good.replace("partitions 1", "partitions 3"),
            "another version of Margay wrote it",
        ),
        (good.replace("end\n", ""), "its end is missing"),
        (good.replacen("mesh ", "mesh 7x", 1), "names no mesh"),
        (String::new(), "its first line"),
    ] {
        fs::write(&file, &text).unwrap();
        for words in [&["lspart"][..], &["mkpart", "b"]] {
            let said = place.refused(words, 1);
            assert!(
                said.contains(why) && said.contains("remove the file"),
                "{said}"
            );
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    fs::write(&file, &good).unwrap();
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    // No more than 0 bytes may be written to a file: as on a full disk.
    let full = "ulimit -f 0; trap '' XFSZ; exec \"$0\" part mkpart b";
    let margay = stage().join("bin/margay");
    let mut shell = command("sh", 60);
    shell
        .args(["-c", full])
        .arg(margay)
        .env("XDG_STATE_HOME", place.0.path());
    let output = run(&mut shell);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("nothing is changed"),
        "{}",
        said(&output)
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
    let names = fs::read_dir(place.folder())
        .unwrap()
        .map(|e| e.unwrap().path());
    assert!(
        names
            .into_iter()
            .all(|p| p.extension().is_none_or(|e| e != "new"))
    );
}

#[test]
fn service_and_io_partitions_run_commands_and_no_parallel_program() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 .service.edit");
    place.part("chpart -nd 0 .io");
    assert_eq!(place.part("pexec .io nproc"), "1\n");
    let said_of = |name: &str, words: &[&str]| {
        let output = run(&mut place.command(name, words));
        (output.status.code(), said(&output))
    };
    let why = "is for commands and programs of one process";
    for name in [".service", ".service.edit", ".io"] {
        let alone = said_of("mpiexec", &["-pn", name, "-n", "1", "true"]);
        assert_eq!(alone.0, Some(0), "{name}: {}", alone.1);
        for words in [
            &["-pn", name, "-n", "2", "true"][..],
            &["-pn", name, "true"],
        ] {
            let (status, text) = said_of("mpiexec", words);
            assert!(status == Some(2) && text.contains(why), "{words:?}: {text}");
        }
        let (status, text) = said_of("poe", &["true", "-rmpool", name, "-nodes", "1"]);
        assert!(status != Some(0) && text.contains(why), "{name}: {text}");
    }
    let listed = place.listed("lspart -json -r .");
    let of = |p: &serde_json::Value| format!("{} {}", p["partition"], p["kind"]).replace('"', "");
    let kinds: Vec<String> = listed["partitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(of)
        .collect();
    assert_eq!(
        kinds,
        [
            ".compute compute",
            ".io io",
            ".service service",
            ".service.edit service"
        ]
    );
    assert!(place.part("showpart .io").contains("for services of files"));
    place.part("mkpart .io.disks");
    for (words, text) in [
        (&["chpart", "-nd", "0", "."][..], "keeps its nodes"),
        (&["chpart", "-nd", "0", ".service.edit"], "keeps its nodes"),
        (&["chpart", "-nd", "9999", ".io"], "it has no node 9999"),
    ] {
        let said = place.refused(words, 1);
        assert!(said.contains(text), "{words:?}: {said}");
    }
    if cores() > 1 {
        let said = place.refused(&["chpart", "-nd", "1", ".io"], 1);
        assert!(
            said.contains("would lose node 0, which '.io.disks' in it has"),
            "{said}"
        );
    }
}

#[test]
fn a_parallel_file_system_is_served_by_the_cores_of_the_io_partition() {
    let Some(files) = Files::new() else { return };
    let last = (cores() - 1).to_string();
    let part = |words: &[&str]| {
        let mut command = command(stage().join("bin/margay"), 60);
        command.arg("part").args(words);
        succeed(command.env("XDG_STATE_HOME", files.path("state")))
    };
    part(&["chpart", "-nd", &last, ".io"]);
    let own = part(&[
        "pexec",
        ".io",
        "grep",
        "Cpus_allowed_list",
        "/proc/self/status",
    ]);
    files.pfs(&["create", "scratch", "d1", "d2"]);
    files.pfs(&["mount", "scratch", "mnt"]);
    fs::write(files.mount().join("file"), vec![7; 1 << 20]).unwrap();
    tool("sync", &["mnt/file"], files.folder.path());
    let service = files.service().expect("the service runs");
    let threads = fs::read_dir(service.join("task")).unwrap().flatten();
    let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).unwrap();
    let threads: Vec<String> = threads.map(of).collect();
    assert!(
        threads.len() > 1 && threads.iter().all(|t| t.contains(&own)),
        "{own}: {threads:?}"
    );
    files.pfs(&["stop", "scratch"]);
}

#[test]
fn many_commands_at_once_lose_nothing_and_a_killed_one_blocks_nobody() {
    let place = Place(scratch());
    let names: Vec<String> = (0..24).map(|at| format!("p{at}")).collect();
    let mut running: Vec<_> = (names.iter())
        .map(|name| {
            place
                .command("margay", &["part", "mkpart", name])
                .spawn()
                .unwrap()
        })
        .collect();
    // Some die at any moment; what they have made is whole.
    for at in [3, 11, 19] {
        let _ = running[at].kill();
    }
    let mut expected: Vec<String> = Vec::new();
    for (name, child) in names.iter().zip(&mut running) {
        if child.wait().unwrap().success() {
            expected.push(format!(".compute.{name}"));
        }
    }
    assert!(expected.len() >= 21, "{expected:?}");
    let listed = place.listed("lspart --json");
    let there: Vec<&str> = listed["partitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["partition"].as_str().unwrap())
        .collect();
    for name in &expected {
        assert!(there.contains(&name.as_str()), "{name}: {there:?}");
    }
    place.part("mkpart last");
}
