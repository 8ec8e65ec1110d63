//! Jobs on several hosts: network namespaces on a bridge, which only root can make. The "remote
//! shell" enters them; agents, ranks and connections are as between machines.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use margay_tests::hangs;
use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, Job, Words, descendants_named, mark, nothing_is_left, send, text};
use margay_tests::{command, run, stage, succeed};

fn out(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn programs_of_one_host_run_on_several() {
    let Some(hosts) = Hosts::make(3) else { return };
    let built = Built::mpi("mpi/hosts.c");
    for (each, ranks) in [(2, 6), (1, 2)] {
        let options = format!("-ppn {each} -n {ranks}");
        let words = hosts
            .mpiexec(&options)
            .and(built.path())
            .and_all(&each.to_string());
        let said = words.succeed(110);
        assert_eq!(said.matches("is content").count(), ranks, "{said}");
        for host in 1..=ranks / each {
            let name = hosts.name(host as u32);
            assert_eq!(said.matches(&name).count(), each, "{said}");
        }
    }
}

/// The same programs that are tested on one host, which check themselves.
#[test]
fn what_works_on_one_host_works_on_several() {
    let Some(hosts) = Hosts::make(3) else { return };
    let file = hosts.folder.path().join("file");
    let file = file.to_str().expect("text");
    for (ranks, source, arguments) in [
        (6, "mpi/point.c", ""),
        (4, "mpi/collectives.c", ""),
        (4, "mpi/communicators.c", "hosts"),
        (6, "mpi/topology.c", ""),
        (4, "mpi/window.c", ""),
        (6, "mpi/window_model.c", ""),
        (4, "mpi/partitioned.c", ""),
        (4, "mpi/session.c", ""),
        (6, "mpi/outstanding.c", ""),
        (4, "mpi/files.c", file),
        (6, "model/collectives.c", "17 120"),
        (6, "model/messages.c", "17 200"),
        (4, "model/inter.c", "17 200"),
        (4, "model/programs.c", "17 20 25 2"),
    ] {
        let built = Built::mpi(source);
        let words = hosts.mpiexec(&format!("-ppn 2 -n {ranks}"));
        words.and(built.path()).and_all(arguments).succeed(110);
    }
}

/// A rank that computes when it has sent something has sent it.
#[test]
fn messages_go_while_their_sender_computes() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("mpi/hosts_first.c");
    for options in ["", "-encrypt"] {
        let file = hosts.folder.path().join(format!("came{options}"));
        let words = hosts.mpiexec("-ppn 1 -n 2").and_all(options);
        words.and(built.path()).and(file).succeed(110);
    }
}

/// Processes that ranks leave in the background end with the job, as on one host.
#[test]
fn what_ranks_leave_in_the_background_is_ended() {
    let Some(hosts) = Hosts::make(2) else { return };
    let mut command = hosts.mpiexec("-ppn 1").command(110);
    let mark = mark(&mut command);
    let output = run(command.args(["sh", "-c", "setsid sleep 1000 & sleep 1000 & echo hi"]));
    assert_eq!(out(&output), ["hi", "hi"], "{}", text(&output));
    assert!(output.status.success(), "{}", text(&output));
    nothing_is_left(&mark);
}

/// What is sent is the same when it is encrypted on its way.
#[test]
fn packets_between_hosts_may_be_encrypted() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("mpi/hosts.c");
    let words = hosts.mpiexec("-encrypt -ppn 2").and(built.path()).and("2");
    let said = words.succeed(110);
    assert_eq!(said.matches("is content").count(), 4, "{said}");
}

/// Each rank waits for one of the next host: what no host sees alone is reported with all ranks,
/// and shown in one view.
#[test]
fn a_deadlock_across_hosts_is_found_and_all_ranks_are_in_one_view() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("why/stands.c");
    let words = hosts.mpiexec("-deadlock end -ppn 2");
    let mut job = Job::start(&words.and(built.path()).and("circle"), 100);
    job.until("ready", 4);
    let number = job.pid().to_string();
    let view = |program: &str, arguments: &str| {
        let words = Words::default().and(stage().join("bin").join(program));
        words.and_all(arguments).succeed(30)
    };
    // Agents report once a second.
    let began = Instant::now();
    let jobs = loop {
        let jobs = view("showmesh", "--json");
        if jobs.matches("\"call\": \"MPI_Recv\"").count() >= 4
            || began.elapsed() > Duration::from_secs(30)
        {
            break jobs;
        }
    };
    for host in 1..=2 {
        let place = format!("\"host\": \"{}\"", hosts.name(host));
        assert_eq!(jobs.matches(&place).count(), 2, "{jobs}");
    }
    let found = "deadlock: 0 → 1 → 2 → 3 → 0";
    // Only waits that have lasted count, and the hosts' reports are up to a second old.
    let began = Instant::now();
    loop {
        let why = view("margay", &format!("why {number}"));
        if why.contains(found) {
            // The agents of the hosts say where their ranks are.
            assert!(why.contains(" at stands.c:"), "{why}");
            assert!(!why.contains("no stack"), "{why}");
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{why}");
    }
    let calls = view("margay", &format!("why --calls=2 {number}"));
    for rank in 0..4 {
        let head = format!("rank {rank}: its last 2 calls\n");
        assert!(calls.contains(&head), "{calls}");
    }
    assert_eq!(calls.matches(" at stands.c:").count(), 8, "{calls}");
    let end = job.ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(1), "{}", end.err);
    assert_eq!(end.err.matches(found).count(), 1, "{}", end.err);
    assert_eq!(end.err.matches(" at stands.c:").count(), 4, "{}", end.err);
}

/// The agents of the hosts say of each thread in which call it waits and where.
#[test]
fn threads_of_ranks_on_other_hosts_are_shown_with_their_calls() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi_with("why/threads.c", &["-fopenmp"]);
    let words = hosts.mpiexec("-deadlock end -ppn 1 -n 2");
    let job = Job::start(&words.and(built.path()).and("probes"), 100);
    let end = job.ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(1), "{}", end.err);
    for (rank, other) in [(0, 1), (1, 0)] {
        for said in [
            format!("rank {rank}: waiting in MPI_Probe for rank {other}, tag 5 at threads.c:"),
            format!(
                "rank {rank}, another thread: waiting in MPI_Recv for rank {other}, tag 1 at threads.c:"
            ),
        ] {
            assert!(end.err.contains(&said), "no {said}: {}", end.err);
        }
    }
}

/// The checker looks at the ranks of all hosts, and compares what they do.
#[test]
fn the_checker_looks_at_the_ranks_of_all_hosts() {
    let Some(hosts) = Hosts::make(2) else { return };
    let wrong = Built::mpi("check/wrong.c");
    let words = hosts.mpiexec("-check -ppn 2 -n 3");
    let output = run(&mut words.and(wrong.path()).and("type").command(60));
    let said = err(&output);
    assert!(said.contains("check: datatype mismatch: rank "), "{said}");
    assert!(said.contains(" at wrong.c:"), "{said}");
    assert!(!said.contains("looked at"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let right = Built::mpi("mpi/hosts.c");
    let words = hosts.mpiexec("-check -ppn 2 -n 4").and(right.path());
    let output = run(&mut words.and("2").command(60));
    let said = err(&output);
    assert!(said.contains("check: no errors found"), "{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
}

/// The line of a call that failed on another host, and what was called there before a crash, though
/// nothing is left there.
#[test]
fn the_last_calls_of_another_host_are_in_the_report() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("check/wrong.c");
    let words = hosts.mpiexec("-ppn 1 -n 2").and(built.path());
    let output = run(&mut words.clone().and("argument").command(60));
    let said = err(&output);
    let error = "got an error in MPI_Send at wrong.c:";
    assert!(said.contains(error), "{said}");
    // Also of a rank that ends as if all were well.
    let output = run(&mut words.and("early").command(60));
    let said = err(&output);
    let last = "without MPI_Finalize; its last MPI call was MPI_Recv at wrong.c:";
    assert!(said.contains(last), "{said}");
}

/// Which requests ranks of another host wait for, and which messages they have not asked for, with
/// the lines that made them, on whichever host these are.
#[test]
fn requests_and_messages_of_another_host_are_named_with_their_lines() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = hangs::Built::mpi("-O1 -g");
    let report = |what: &str| {
        let words = hosts.mpiexec("-ppn 1 -n 2 -deadlock end").and(built.path());
        err(&run(&mut words.and(what).command(100)))
    };
    let said = report("requests");
    for part in [
        format!(
            "rank 1, tag 7 (MPI_Irecv at {}, request 2 of 2)",
            built.line("second")
        ),
        format!("(MPI_Ibcast with root 0 at {})", built.line("broadcast")),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    let said = report("unexpected");
    for (mark, tag, messages) in [("tag", 8, "1 message"), ("communicator", 7, "2 messages")] {
        let from = format!("rank 1 has {messages} from rank 0 with tag {tag}");
        let line = format!(
            "{from} (MPI_Send at {}) that no receive matches; ",
            built.line(mark)
        );
        assert!(said.contains(&line), "{line}: {said}");
    }
}

/// A profile has the ranks of all hosts, also where none runs on the host of the launcher.
#[test]
fn a_profile_has_the_ranks_of_all_hosts() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = hangs::Built::mpi("-O1 -g");
    let words = hosts.mpiexec("-ppn 1 -n 2").and(built.path());
    let mut job = Job::start(&words.and("barrier"), 100);
    job.until("ready", 2);
    let pid = job.pid().to_string();
    let profile = |words: &str| {
        let margay = Words::default().and(stage().join("bin/margay"));
        let margay = margay.and("profile").and(&pid).and_all(words);
        margay.succeed(30)
    };
    let all = profile("--seconds 2 --json");
    let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
    let all = &all["profile"];
    for rank in 0..2 {
        assert_eq!(all["ranks"][rank]["rank"], rank, "{all}");
        let counted = &all["counted"][rank];
        let seconds = counted["seconds"].as_f64().expect("a number");
        assert!(counted["rank"] == rank && seconds > 0.0, "{all}");
    }
    assert!(all["ranks"][0]["waits"].as_u64() > Some(0), "{all}");
    assert!(all["ranks"][1]["runs"].as_u64() > Some(0), "{all}");
    let waits = all["waits"].as_array().expect("a list");
    assert!(waits.iter().any(|of| of["name"] == "MPI_Barrier"), "{all}");
    let first = &all["places"][0];
    assert_eq!(first["function"], "step()", "{all}");
    let lines = ["step", "compute"].map(|mark| built.line(mark));
    assert!(lines.iter().any(|line| first["place"] == **line), "{all}");
    assert_eq!(first["ranks"][0]["name"], 1, "{all}");
    assert!(profile("--seconds 1").contains("step()"));
    send("TERM", job.pid());
    job.ended_with_nothing_left();
}

/// The only rank of a job has its output and its errors apart, or together where they go to one
/// place.
#[test]
fn output_and_errors_of_a_single_rank_stay_apart() {
    let Some(hosts) = Hosts::make(1) else { return };
    let text = "for k in 1 2 3; do echo out $k; echo err $k >&2; done";
    let output = hosts.run("-n 1", text);
    assert_eq!(out(&output), ["out 1", "out 2", "out 3"]);
    assert_eq!(err(&output), "err 1\nerr 2\nerr 3\n");
    // The shell's own errors go where its output goes.
    let mut together = hosts.mpiexec("-n 1").after("exec 2>&1").command(110);
    let output = run(together.args(["sh", "-c", text]));
    let lines = "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), lines);
}

/// Blocks of ranks on hosts, equal and unequal ones, and ranks that are dealt out in turn.
#[test]
fn collectives_that_are_divided_by_hosts_give_what_they_must() {
    let Some(hosts) = Hosts::make(3) else { return };
    let built = Built::mpi("mpi/hosts_collectives.c");
    for options in ["-ppn 2", "-ppn 2 -n 5", "-n 5"] {
        let said = hosts.mpiexec(options).and(built.path()).succeed(110);
        assert_eq!(said.trim(), "ok", "{options}");
    }
}

#[test]
fn input_output_environment_directory_and_codes_are_as_on_one_host() {
    let Some(hosts) = Hosts::make(2) else { return };
    let echo = "echo $MARGAY_RANK $MARGAY_SIZE $MARGAY_LOCAL_RANK $MARGAY_LOCAL_SIZE $WHAT $PWD; echo e$MARGAY_RANK >&2";
    let output = hosts.run("-ppn 2 -wdir /usr -env WHAT given", echo);
    assert_eq!(
        out(&output),
        [
            "0 4 0 2 given /usr",
            "1 4 1 2 given /usr",
            "2 4 0 2 given /usr",
            "3 4 1 2 given /usr"
        ],
        "{}",
        text(&output)
    );
    assert_eq!(
        err(&output).lines().filter(|l| l.starts_with('e')).count(),
        4
    );
    let output = hosts.run("-l", "hostname");
    let expected = [1, 2].map(|host| format!("[{}] {}", host - 1, hosts.name(host)));
    assert_eq!(out(&output), expected, "{}", text(&output));
    // Files with the names of their ranks' hosts.
    let pattern = hosts.folder.path().join("files/%h.%p");
    let options = format!("-output-files {}", pattern.display());
    assert!(hosts.run(&options, "hostname").stdout.is_empty());
    for host in 1..=2 {
        let name = hosts.name(host);
        let file = (hosts.folder.path()).join(format!("files/{name}.{}", host - 1));
        assert_eq!(std::fs::read_to_string(file).unwrap(), name + "\n");
    }
    // A lot of output, whole and in order, from all at once.
    let output = hosts.run("-ppn 2 -output ordered", "seq 1 40000");
    let wanted: String = (1..=40_000).map(|n| format!("{n}\n")).collect();
    let wanted = wanted.repeat(4);
    let is_same = |(at, (a, b)): (usize, (&u8, &u8))| (a != b).then_some(at);
    let differs = (output.stdout.iter().zip(wanted.as_bytes()).enumerate()).find_map(is_same);
    assert!(
        output.stdout == wanted.as_bytes(),
        "{} bytes came of {}, the first that differs is {differs:?}; {}: {}",
        output.stdout.len(),
        wanted.len(),
        output.status,
        err(&output)
    );
    // Also when nobody reads it until long after the ranks have ended.
    let mut command = hosts.mpiexec("").and_all("seq 1 40000").command(60);
    let late = command.stdout(Stdio::piped()).spawn().expect("it starts");
    std::thread::sleep(Duration::from_secs(10));
    let late = late.wait_with_output().expect("it ends");
    assert!(late.status.success(), "{}", late.status);
    assert_eq!(out(&late).len(), 80_000);
    // Standard input goes to the first rank, the others read its end.
    let mut command = hosts.mpiexec("").command(60);
    let program = "cat | wc -c";
    let input: String = "x".repeat(700_000);
    let mut child = command
        .args(["sh", "-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("it is read");
    drop(stdin);
    assert_eq!(
        out(&child.wait_with_output().expect("it ends")),
        ["0", "700000"]
    );
    for (program, code, said) in [
        ("test $MARGAY_RANK != 1 || exit 7", 7, "rank 1 (pid"),
        (
            "test $MARGAY_RANK = 0 || kill -SEGV $$; sleep 60",
            139,
            "was killed by SIGSEGV",
        ),
        ("exec /no/such", 127, "no/such"),
    ] {
        let output = hosts.run("", program);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{program}: {}",
            text(&output)
        );
        assert!(err(&output).contains(said), "{program}: {}", text(&output));
    }
    let output = hosts.run("-n 2", "test $MARGAY_RANK != 1 || exit 3; sleep 60");
    assert!(
        err(&output).contains(&format!("on {}", hosts.name(2))),
        "{}",
        text(&output)
    );
}

#[test]
fn what_is_wrong_is_said_with_the_hosts_name() {
    let Some(hosts) = Hosts::make(2) else { return };
    let (first, second) = (hosts.name(1), hosts.name(2));
    let with = |shell: &str, list: &str, program: &str| {
        let words = Words::default().and(stage().join("bin/mpiexec"));
        let mut command = words.command(60);
        command.args(["-launcher-exec", shell, "-host", list, program]);
        let mark = mark(&mut command);
        let output = run(&mut command);
        nothing_is_left(&mark);
        output
    };
    let shell = hosts.shell();
    let shell = shell.to_str().expect("text");
    for (shell, list, program, code, said) in [
        (
            shell,
            "no-such-host,localhost",
            "true",
            1,
            "host no-such-host: the remote shell ended",
        ),
        (
            "/no/such/shell",
            &*second,
            "true",
            1,
            "cannot run '/no/such/shell'",
        ),
        (
            shell,
            &*format!("{first},{second}"),
            "/no/such/program",
            127,
            "'/no/such/program'",
        ),
        (
            "echo hello %h",
            &*second,
            "true",
            1,
            "before an agent ran there",
        ),
        ("false", &*second, "true", 1, "before an agent ran there"),
    ] {
        let output = with(shell, list, program);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{said}: {}",
            text(&output)
        );
        assert!(err(&output).contains(said), "{said}: {}", text(&output));
    }
}

/// A job of which each rank says that it runs, and then runs for long.
fn long(hosts: &Hosts) -> Job {
    let program = hosts.folder.path().join("long");
    std::fs::write(&program, "echo running\nexec sleep 300\n").expect("the folder takes files");
    let words = hosts.mpiexec("-ppn 2").and("sh").and(program);
    let mut job = Job::start(&words, 60);
    job.until("running", 2 * hosts.number as usize);
    job
}

#[test]
fn whoever_dies_nothing_is_left_on_any_host() {
    let Some(hosts) = Hosts::make(2) else { return };
    // The launcher: nobody is there to say anything.
    let job = long(&hosts);
    send("KILL", job.pid());
    job.ended_with_nothing_left();
    // The process that talks to the hosts.
    let job = long(&hosts);
    send("KILL", descendants_named(job.pid(), "margay-relay")[0]);
    assert_eq!(job.ended_with_nothing_left().status.code(), Some(137));
    // An agent.
    let job = long(&hosts);
    let agents = descendants_named(job.pid(), "margay-agent");
    assert_eq!(agents.len(), 2);
    send("KILL", agents[1]);
    let end = job.ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(1), "{}", end.err);
    let said = end.err.matches(": the agent has gone").count();
    assert_eq!(said, 1, "{}", end.err);
    // A host's guard.
    let job = long(&hosts);
    send("KILL", descendants_named(job.pid(), "margay-guard")[0]);
    let end = job.ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(137), "{}", end.err);
    // A rank.
    let job = long(&hosts);
    send("KILL", descendants_named(job.pid(), "sleep")[0]);
    let end = job.ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(137), "{}", end.err);
    assert!(end.err.contains("SIGKILL"), "{}", end.err);
    // The user.
    let job = long(&hosts);
    send("INT", job.pid());
    let end = job.ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(130), "{}", end.err);
}

/// The cable of a host is cut while its ranks and those of another talk; the remote shell's own
/// connection, a pipe here, remains.
#[test]
fn a_cut_cable_is_reported_and_ends_the_job() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("mpi/hosts_talk.c");
    hosts.cut_while_they_talk("", &built);
}

/// Where the ranks go on without those that die, they go on without a host, too: without one whose
/// agent is gone, and one whose cable is cut.
#[test]
fn the_ranks_of_other_hosts_go_on_when_a_host_is_lost() {
    let built = Built::mpi("mpi/hosts_recover.c");
    for cuts in [false, true] {
        let Some(hosts) = Hosts::make(3) else { return };
        let words = hosts.mpiexec("-continue-on-failure -ppn 2");
        let mut job = Job::start(&words.and(built.path()), 100);
        job.until("running", 6);
        if cuts {
            assert!(hosts.works("ip -n @s link set @p2 down"));
        } else {
            send("KILL", descendants_named(job.pid(), "margay-agent")[1]);
        }
        job.until("4 are left", 1);
        let end = job.ended_with_nothing_left();
        assert_eq!(end.status.code(), Some(137), "{}", end.err);
        assert!(end.err.contains(&hosts.name(2)), "{}", end.err);
        assert!(end.err.contains("SIGKILL"), "{}", end.err);
    }
}

/// Strangers at the ports at which ranks listen: garbage, half a greeting, and nothing at all.
#[test]
fn strangers_at_the_ports_change_nothing() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("mpi/hosts.c");
    // The scan runs on the second host, against the ports of the first.
    let scan = hosts.folder.path().join("scan");
    let text = "for round in 1 2 3; do for port in 41000 41001 41002 41003; do printf 'MARGAYt\\001garbage' > /dev/tcp/10.77.0.1/$port; head -c 5000 /dev/urandom > /dev/tcp/10.77.0.1/$port; sleep 9 < /dev/tcp/10.77.0.1/$port & done; done 2>/dev/null; exit 0\n";
    std::fs::write(&scan, text).expect("the folder takes files");
    let mut scanner = Command::new("ip")
        .args(["netns", "exec", &hosts.name(2), "bash"])
        .arg("-c")
        .arg(format!(
            "for i in 1 2 3 4 5 6 7 8 9 10; do . {}; sleep 0.05; done",
            scan.display()
        ))
        .spawn()
        .expect("bash is there");
    for _ in 0..4 {
        let words = hosts
            .mpiexec("-ppn 2 -port-range 41000:41003")
            .and(built.path())
            .and("2");
        let said = words.succeed(110);
        assert_eq!(said.matches("is content").count(), 4, "{said}");
    }
    assert!(scanner.wait().expect("it ends").success());
}

/// Without a right to make namespaces: two hosts of one name are this machine, and no agent is
/// needed for it.
#[test]
fn this_machine_alone_needs_no_agent() {
    let output = succeed(command(stage().join("bin/mpiexec"), 60).args([
        "-launcher-exec",
        "/no/such/shell",
        "-host",
        "localhost:2",
        "echo",
        "x",
    ]));
    assert_eq!(output, "x\nx\n");
}

/// An address that both hosts have leads nowhere, and of the addresses by which they reach each
/// other none is of IPv4. Two jobs run at the same time.
#[test]
fn decoys_and_ipv6_alone_are_no_obstacle() {
    let Some(hosts) = Hosts::make(2) else { return };
    for host in 1..=2 {
        for line in [
            "ip -n @hN link add docker0 type bridge",
            "ip -n @hN addr add 172.17.0.1/16 dev docker0",
            "ip -n @hN link set docker0 up",
            "ip -n @hN addr add fd00:77::N/64 dev @vN nodad",
            "ip -n @hN addr del 10.77.0.N/24 dev @vN",
        ] {
            let line = line.replace('N', &host.to_string());
            assert!(hosts.works(&line), "{line}");
        }
    }
    let built = Built::mpi("mpi/hosts.c");
    let words = hosts.mpiexec("-ppn 2").and(built.path()).and("2");
    let other = words.command(110).stdout(Stdio::piped()).spawn();
    let other = other.expect("it starts");
    let said = words.succeed(110);
    assert_eq!(said.matches("is content").count(), 4, "{said}");
    let other = other.wait_with_output().expect("it ends");
    assert!(other.status.success(), "{}", text(&other));
}

/// A host stands still: its processes are there, and none of them runs.
#[test]
fn a_frozen_host_is_reported_and_ends_the_job() {
    let Some(hosts) = Hosts::make(2) else { return };
    let job = long(&hosts);
    let agents = descendants_named(job.pid(), "margay-agent");
    send("STOP", agents[1]);
    let end = job.ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(1), "{}", end.err);
    assert!(end.err.contains("has not answered for 8 s"), "{}", end.err);
}
