//! The flight recorder, `mpiexec -trace` and `-profile`, `margay trace`, `margay view`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use margay_tests::browser::View;
use margay_tests::jobs::{Built, Job, Words, descendants_named, mark, nothing_is_left, send};
use margay_tests::{command, program, run, scratch, stage, succeed};
use serde_json::Value;

const RANKS: usize = 3;

/// `late.c` of `programs/trace`, compiled; its folder goes away with it.
struct Late(tempfile::TempDir);

/// Compiles a program of `programs/trace` into a folder.
fn compile(name: &str, folder: &Path) {
    let mpicc = stage().join("bin/mpicc");
    let source = program("trace").join(name).with_extension("c");
    succeed(
        command(mpicc, 300)
            .args(["-g", "-O1"])
            .arg(source)
            .arg("-o")
            .arg(folder.join(name)),
    );
}

/// `12`: the line of a program of `programs/trace` that the comment marks.
fn line_of(name: &str, mark: &str) -> usize {
    let source = program("trace").join(name).with_extension("c");
    let text = std::fs::read_to_string(source).unwrap();
    let wanted = format!("LINE {mark} */");
    let at = text.lines().position(|line| line.contains(&wanted));
    at.unwrap() + 1
}

impl Late {
    fn new() -> Late {
        let folder = scratch();
        compile("late", folder.path());
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
        format!("late.c:{}", line_of("late", mark))
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
fn calls_in_quick_succession_are_all_counted() {
    let late = Late::new();
    let (status, err) = late.run(&["-profile=out.json"], "quick");
    assert_eq!((status, err.as_str()), (Some(0), ""));
    let text = std::fs::read_to_string(late.file("out.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let of = |call: &str| {
        let all = json["calls"].as_array().unwrap();
        all.iter().find(|c| c["call"] == call).map(|c| &c["calls"])
    };
    for (call, number) in [
        ("MPI_Allreduce", 20_000),
        ("MPI_Barrier", 1),
        ("MPI_Finalize", 1),
    ] {
        assert_eq!(
            of(call),
            Some(&Value::from(number * RANKS)),
            "{call}: {text}"
        );
    }
}

/// For each call how long it waited in a profile, in nanoseconds: by the call and by its sites.
fn waits_of_calls_and_sites(profile: &Value) -> BTreeMap<String, [u64; 2]> {
    let mut waits: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (column, list) in ["calls", "sites"].into_iter().enumerate() {
        for of in profile[list].as_array().unwrap() {
            let waited = of["waiting_s"].as_f64().unwrap() * 1e9;
            let call = of["call"].as_str().unwrap().to_owned();
            waits.entry(call).or_default()[column] += waited.round() as u64;
        }
    }
    waits
}

#[test]
fn a_profile_names_who_was_late_and_where() {
    let late = Late::new();
    let (status, err) = late.run(&["-profile"], "later");
    assert_eq!(status, Some(0), "{err}");
    let cause = format!(
        "load imbalance: rank 1 at {} (MPI_Isend)",
        late.line("send")
    );
    assert!(err.contains(&cause), "{err}");
    let (status, err) = late.run(&["-profile=out.json"], "later");
    assert_eq!((status, err.as_str()), (Some(0), ""));
    let text = std::fs::read_to_string(late.file("out.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let first = &json["causes"][0];
    assert_eq!(first["rank"], 1, "{json}");
    assert_eq!(first["place"], late.line("send").as_str(), "{json}");
    assert_eq!(first["kind"], "load imbalance");
    assert_eq!(first["works_to"], late.line("send").as_str(), "{json}");
    let recv = json["calls"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["call"] == "MPI_Recv");
    assert_eq!(recv.unwrap()["calls"], 10 * RANKS);
    let waits = waits_of_calls_and_sites(&json);
    assert!(waits.values().any(|[call, _]| *call > 0), "{json}");
    for (call, [of_call, of_sites]) in waits {
        assert_eq!(of_call, of_sites, "{call}: {json}");
    }
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

/// What `otf2-print` prints of an archive; none without it.
fn printed(anchor: &str) -> Option<String> {
    if !Path::new("/usr/bin/otf2-print").exists() {
        println!("note: there is no otf2-print here: what is in archives is not tested");
        return None;
    }
    let mut print = command("otf2-print", 60);
    Some(succeed(print.args(["-Werror", "-A", anchor])))
}

/// The lines that begin with a word, with single spaces and without times.
fn lines_of(printed: &str, word: &str) -> Vec<String> {
    let words = printed
        .lines()
        .map(|line| line.split_whitespace().collect());
    let wanted = words.filter(|line: &Vec<&str>| line.first() == Some(&word));
    let mut lines: Vec<String> = wanted
        .map(|mut line| {
            if word.starts_with("MPI_") {
                line.remove(2);
            }
            line[1..].join(" ")
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn an_otf2_archive_says_what_the_program_did() {
    const RANKS: usize = 4;
    let folder = scratch();
    let folder = folder.path();
    compile("archive", folder);
    let mut job = command(stage().join("bin/mpiexec"), 60);
    job.current_dir(folder);
    succeed(job.args(["-n", "4", "-trace", "run.mtrace", "./archive"]));
    let convert = || {
        let mut convert = margay(&["trace", "convert"], Path::new("run.mtrace"));
        convert.current_dir(folder).args(["--to", "otf2"]);
        convert
    };
    assert_eq!(succeed(&mut convert()), "run.otf2/traces.otf2\n");
    // It replaces an archive, and nothing else.
    succeed(&mut convert());
    let files = |path: &str| std::fs::read_dir(folder.join(path)).unwrap().count();
    assert_eq!(
        (files("."), files("run.otf2"), files("run.otf2/traces")),
        (3, 3, 8)
    );
    std::fs::write(folder.join("run.otf2/notes"), "").unwrap();
    let refused = run(&mut convert());
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{why}");
    assert!(
        why.contains("run.otf2 has other files than those of an OTF2 archive"),
        "{why}"
    );
    assert!(folder.join("run.otf2/notes").exists() && files(".") == 3);

    let anchor = folder.join("run.otf2/traces.otf2");
    let Some(printed) = printed(&anchor.to_string_lossy()) else {
        return;
    };
    let lines = |word: &str| lines_of(&printed, word);
    let world = "Communicator: \"MPI_COMM_WORLD\" <0>";
    // The parts have numbers of their first ranks; 4 ranks come after two numbers of MPI's own.
    let part = |rank: usize| {
        let first = rank % 2;
        format!(
            "Communicator: \"communicator {}\" <{}>",
            8 + first,
            1 + first
        )
    };
    let rank = |rank: usize| format!("(\"rank {rank}\" <{rank}>)");
    let ring = |from: usize| format!("{world}, Tag: 7, Length: {}", 4 * (1 + from));
    let in_part = |from: usize| format!("{}, Tag: 3, Length: 20", part(from));
    let mut sent: Vec<String> = (0..RANKS)
        .map(|from| {
            let to = (from + 1) % RANKS;
            format!("{from} Receiver: {to} {}, {}", rank(to), ring(from))
        })
        .chain(
            (0..2).map(|from| format!("{from} Receiver: 1 {}, {}", rank(from + 2), in_part(from))),
        )
        .collect();
    sent.sort();
    assert_eq!(lines("MPI_SEND"), sent);
    let received =
        (0..2).map(|from| format!("{} Sender: 0 {}, {}", from + 2, rank(from), in_part(from)));
    assert_eq!(lines("MPI_RECV"), received.collect::<Vec<_>>());
    let requested = (0..RANKS).map(|to| {
        let from = (to + RANKS - 1) % RANKS;
        let what = format!("{} {}, {}, Request: 0", from, rank(from), ring(from));
        format!("{to} Sender: {what}")
    });
    assert_eq!(lines("MPI_IRECV"), requested.collect::<Vec<_>>());
    let posted = (0..RANKS).map(|rank| format!("{rank} Request: 0"));
    assert_eq!(lines("MPI_IRECV_REQUEST"), posted.collect::<Vec<_>>());

    let mut operations: Vec<String> = Vec::new();
    for of in 0..RANKS {
        let mut did = |operation: &str, communicator: &str, root: Option<usize>, bytes| {
            let root = root.map_or("NONE".into(), |root| format!("{root} {}", rank(root)));
            let (sent, got): (u32, u32) = bytes;
            operations.push(format!(
                "{of} Operation: {operation}, {communicator}, Root: {root}, Sent: {sent}, Received: {got}"
            ));
        };
        did("CREATE_HANDLE", world, None, (0, 0));
        did(
            "BCAST",
            world,
            Some(2),
            if of == 2 { (80, 0) } else { (0, 80) },
        );
        did("ALLREDUCE", &part(of), None, (12, 12));
        did("GATHER", world, Some(1), (8, if of == 1 { 32 } else { 0 }));
        did("BARRIER", world, None, (0, 0));
    }
    operations.sort();
    assert_eq!(lines("MPI_COLLECTIVE_END"), operations);
    assert_eq!(lines("MPI_COLLECTIVE_BEGIN").len(), operations.len());
    calls_are_regions_with_lines(&printed);
}

/// Enough of the calls of `archive.c`, and of the definitions.
fn calls_are_regions_with_lines(printed: &str) {
    const RANKS: usize = 4;
    let lines = |word: &str| lines_of(printed, word);
    let (enters, leaves) = (lines("ENTER").len(), lines("LEAVE").len());
    assert_eq!(enters, leaves);
    // Sends, receives, posts and so on, and the program.
    let of_region = |name: &str| {
        let region = format!("Region: \"{name}\" ");
        let lines = printed.lines().filter(|line| line.starts_with("ENTER"));
        lines.filter(|line| line.contains(&region)).count()
    };
    assert_eq!(["MPI_Send", "MPI_Recv"].map(of_region), [2, 2]);
    for name in [
        "MPI_Irecv",
        "MPI_Isend",
        "MPI_Waitall",
        "MPI_Bcast",
        "archive",
    ] {
        assert_eq!(of_region(name), RANKS, "{name}");
    }
    let regions = lines("REGION");
    for (name, mark) in [
        ("MPI_Send", "send"),
        ("MPI_Recv", "receive"),
        ("MPI_Irecv", "post"),
        ("MPI_Waitall", "wait"),
        ("MPI_Bcast", "broadcast"),
    ] {
        let line = line_of("archive", mark);
        let (name, at) = (
            format!("Name: \"{name}\" "),
            format!("Begin: {line}, End: {line}"),
        );
        let found = regions.iter().find(|region| region.contains(&name));
        let found = found.unwrap_or_else(|| panic!("{name}: {printed}"));
        assert!(
            found.contains("/archive.c\"") && found.ends_with(&at),
            "{found}"
        );
    }
    assert_eq!(lines("LOCATION_GROUP").len(), RANKS);
    let clock = lines("CLOCK_PROPERTIES").remove(0);
    assert!(clock.contains("Ticks per Seconds: 1000000000"), "{clock}");
    assert!(clock.contains("Date: 20"), "{clock}");
}

#[test]
fn an_otf2_archive_is_written_of_any_trace_that_is_read() {
    let late = Late::new();
    let whole = std::fs::read(late.trace()).unwrap();
    for (name, length) in [
        ("cut", whole.len() / 2),
        ("empty", 64),
        ("whole", whole.len()),
    ] {
        let file = late.file(name).with_extension("mtrace");
        std::fs::write(&file, &whole[..length]).unwrap();
        let anchor = succeed(margay(&["trace", "convert"], &file).args(["--to", "otf2"]));
        let Some(printed) = printed(anchor.trim()) else {
            return;
        };
        let events = |word: &str| lines_of(&printed, word).len();
        let (sent, received) = (events("MPI_SEND"), events("MPI_RECV"));
        assert_eq!(events("ENTER"), events("LEAVE"), "{printed}");
        match name {
            "whole" => assert_eq!((sent, received), (30, 30), "{printed}"),
            "empty" => assert_eq!((sent, events("ENTER")), (0, 0), "{printed}"),
            _ => assert!(events("LOCATION") > 0, "{printed}"),
        }
    }
    let refused = run(margay(&["trace", "convert"], &late.file("whole.mtrace"))
        .args(["--to", "otf2", "--output"])
        .arg("/dev/full"));
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("/dev/full is there and is no folder"), "{why}");
}

#[test]
fn the_page_is_served_to_who_knows_its_address() {
    let late = Late::new();
    let file = late.trace();
    let view = View::of(&file);
    let address = view.address().strip_prefix("http://").unwrap();
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
    drop(view);
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

#[test]
fn a_recorder_that_is_killed_is_named() {
    let built = Built::mpi("why/stands.c");
    let folder = scratch();
    let words = Words::default()
        .and(stage().join("bin/mpiexec"))
        .and_all("-timeout 60 -trace")
        .and(folder.path().join("run.mtrace"))
        .and_all("-n 2")
        .and(built.path())
        .and_all("circle");
    let mut job = Job::start(&words, 70);
    job.until("ready", 2);
    let pid = job.pid();
    send("KILL", descendants_named(pid, "margay-trace")[0]);
    send("INT", pid);
    let err = job.ended_with_nothing_left().err;
    let said = "mpiexec: the recorder of the job was ended by SIGKILL (killed)";
    assert!(err.contains(said), "{err}");
}
