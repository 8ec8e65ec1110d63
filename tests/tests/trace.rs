//! The flight recorder, `mpiexec -trace` and `-profile`, `margay trace`, `margay view`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use margay_tests::jobs::{mark, nothing_is_left};
use margay_tests::{command, program, run, scratch, stage, succeed};
use serde_json::Value;

const RANKS: usize = 3;

/// The program of `programs/trace`, compiled; its folder goes away with it.
struct Late(tempfile::TempDir);

impl Late {
    fn new() -> Late {
        let folder = scratch();
        let mpicc = stage().join("bin/mpicc");
        let source = program("trace").join("late.c");
        let out = folder.path().join("late");
        succeed(
            command(mpicc, 300)
                .args(["-g", "-O1"])
                .arg(source)
                .arg("-o")
                .arg(out),
        );
        Late(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("late")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `late.c:12`: the line that the comment marks.
    fn line(&self, mark: &str) -> String {
        let text = std::fs::read_to_string(program("trace").join("late.c")).unwrap();
        let wanted = format!("LINE {mark} */");
        let at = text
            .lines()
            .position(|line| line.contains(&wanted))
            .unwrap();
        format!("late.c:{}", at + 1)
    }

    /// Runs it with options of the launcher; what it prints on standard error.
    fn run(&self, options: &[&str], arguments: &str) -> (Option<i32>, String) {
        let mut job = command(stage().join("bin/mpiexec"), 60);
        job.args(["-n", &RANKS.to_string()])
            .args(options)
            .arg(self.path());
        job.args(arguments.split_whitespace())
            .current_dir(self.0.path());
        let mark = mark(&mut job);
        let output = run(&mut job);
        nothing_is_left(&mark);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), err)
    }

    fn trace(&self) -> PathBuf {
        let (status, err) = self.run(&["-trace", "run.mtrace"], "");
        assert_eq!(status, Some(0), "{err}");
        assert!(err.contains(" records in run.mtrace"), "{err}");
        self.file("run.mtrace")
    }
}

fn margay(words: &[&str], file: &Path) -> Command {
    let mut margay = command(stage().join("bin/margay"), 60);
    margay.args(words).arg(file);
    margay
}

#[test]
fn the_last_calls_of_a_rank_survive_it() {
    let late = Late::new();
    let (code, err) = late.run(&[], "crash");
    assert_eq!(code, Some(139), "{err}");
    let last = err.lines().rfind(|line| line.contains("mpiexec: rank 1: "));
    let last = last.unwrap_or_else(|| panic!("{err}"));
    let barrier = format!(
        "MPI_Barrier of 3 ranks, 0 bytes at {}",
        late.line("barrier")
    );
    assert!(last.contains(&barrier), "{err}");
    let receive = late.line("receive");
    assert!(err.contains(&format!("from rank 0, tag 9, 4 bytes at {receive}")));
}

#[test]
fn a_profile_names_who_was_late_and_where() {
    let late = Late::new();
    let (status, err) = late.run(&["-profile"], "");
    assert_eq!(status, Some(0), "{err}");
    let cause = format!(
        "rank 1 late at {} (MPI_Isend) cost others",
        late.line("send")
    );
    assert!(err.contains(&cause), "{err}");
    let (status, err) = late.run(&["-profile=out.json"], "");
    assert_eq!((status, err.as_str()), (Some(0), ""));
    let text = std::fs::read_to_string(late.file("out.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let first = &json["causes"][0];
    assert_eq!(first["rank"], 1, "{json}");
    assert_eq!(first["place"], late.line("send").as_str(), "{json}");
    assert_eq!(first["kind"], "late sender");
    let recv = json["calls"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["call"] == "MPI_Recv");
    assert_eq!(recv.unwrap()["calls"], 10 * RANKS);
    let sent: Vec<_> = json["matrix"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| {
            (
                m["from"].as_u64(),
                m["to"].as_u64(),
                m["messages"].as_u64(),
                m["bytes"].as_u64(),
            )
        })
        .collect();
    let ring = |from, to| (Some(from), Some(to), Some(10), Some(40));
    assert_eq!(sent, [ring(0, 1), ring(1, 2), ring(2, 0)]);
    assert_eq!((&json["lost"], &json["unmatched"]), (&0.into(), &0.into()));
}

#[test]
fn a_trace_is_converted_and_cut_anywhere_useful() {
    let late = Late::new();
    let file = late.trace();
    let converted = |to: &str| {
        let mut convert = margay(&["trace", "convert"], &file);
        let path = succeed(convert.args(["--to", to]));
        std::fs::read(path.trim()).unwrap()
    };
    let chrome: Value = serde_json::from_slice(&converted("chrome")).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    let count = |name: &str| {
        events
            .iter()
            .filter(|e| e["ph"] == "X" && e["name"] == name)
            .count()
    };
    assert_eq!(
        (count("MPI_Isend"), count("MPI_Recv"), count("MPI_Barrier")),
        (30, 30, 3)
    );
    let receive = events.iter().find(|e| e["name"] == "MPI_Recv").unwrap();
    assert_eq!(receive["args"]["at"], late.line("receive").as_str());
    assert_eq!(events.iter().filter(|e| e["ph"] == "s").count(), 30);
    assert!(converted("perfetto").len() > 3000);
    let picl = converted("picl");
    let text = String::from_utf8_lossy(&picl);
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("-3 -52 "))
            .count(),
        30
    );
    let profile = succeed(&mut margay(
        &["trace", "profile"],
        &file.with_extension("picl"),
    ));
    assert!(profile.contains("late sender"), "{profile}");
    let whole = std::fs::read(&file).unwrap();
    let cut = late.file("cut.mtrace");
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let output = run(&mut margay(&["trace", "profile"], &cut));
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("has no end: it was cut"));
    let none = run(&mut margay(&["trace", "profile"], &late.path()));
    assert!(String::from_utf8_lossy(&none.stderr).contains("it is no trace of Margay"));
}

#[test]
fn the_page_is_served_to_who_knows_its_address() {
    let late = Late::new();
    let file = late.trace();
    let mut view = Command::new(stage().join("bin/margay"))
        .arg("view")
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(view.stdout.as_mut().unwrap())
        .read_line(&mut address)
        .unwrap();
    let address = address.trim().strip_prefix("http://").unwrap();
    let (host, path) = address.split_once('/').unwrap();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let page = get(path);
    assert!(page.starts_with("HTTP/1.1 200 OK") && page.contains(&late.line("receive")));
    assert!(get("").starts_with("HTTP/1.1 404"));
    view.kill().unwrap();
    view.wait().unwrap();
    let html = late.file("page.html");
    succeed(margay(&["view"], &file).arg("--html").arg(&html));
    assert!(
        std::fs::read_to_string(html)
            .unwrap()
            .ends_with("</html>\n")
    );
}

#[test]
fn a_full_disk_does_not_hold_the_program_up() {
    let late = Late::new();
    let (status, err) = late.run(&["-trace", "/dev/full"], "");
    assert_eq!(status, Some(0), "{err}");
    assert!(
        err.contains("the trace /dev/full is incomplete: No space left"),
        "{err}"
    );
    let (status, err) = late.run(&["-trace", "/nowhere/run.mtrace"], "");
    assert_eq!(status, Some(0), "{err}");
    assert!(
        err.contains("cannot write the trace /nowhere/run.mtrace"),
        "{err}"
    );
    succeed(command(Path::new("mkfifo"), 10).arg(late.file("pipe")));
    for option in ["-trace=pipe", "-profile=pipe"] {
        let (status, err) = late.run(&[option], "");
        assert_eq!(status, Some(0), "{err}");
        assert!(err.contains("pipe: it is a pipe"), "{err}");
    }
}
