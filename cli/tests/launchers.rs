//! Options and variables of other launchers: what scripts for Open MPI, MPICH and Intel MPI say and
//! look for.

mod common;

use std::fs;

use common::*;
use margay_sys_os::cpu;

/// Standard error without the launcher's name, line by line.
fn message(done: &Done) -> Vec<&str> {
    let lines = done.err.lines();
    lines
        .map(|l| l.strip_prefix("margay run: ").unwrap_or(l))
        .collect()
}

#[test]
fn every_way_to_say_how_many_ranks_runs_that_many() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let own = margay_job_launch::report::host_name();
    let slots = file("slots", "localhost slots=3 max_slots=9\n");
    let hydra = file("hydra", &format!("{own}:2\nlocalhost:1\n"));
    let batch = file("batch", "localhost\nlocalhost\nlocalhost\nlocalhost\n");
    let plain = file("plain", "localhost\n");
    for (options, ranks) in [
        ("-npernode 3".to_owned(), 3),
        ("-N 3".into(), 3),
        ("-ppn 3".into(), 3),
        ("-perhost 2 -n 4".into(), 4),
        ("-pernode".into(), 1),
        ("-H localhost:3".into(), 3),
        (format!("-H {own}:1,localhost:2"), 3),
        ("--host localhost,localhost".into(), 2),
        ("-H localhost:2 -np 3".into(), 3),
        ("--map-by ppr:2:node:OVERSUBSCRIBE".into(), 2),
        (format!("--hostfile {slots}"), 3),
        (format!("-machinefile {hydra}"), 3),
        (format!("-f {batch}"), 4),
        (format!("--hostfile {batch} -np 2"), 2),
        (format!("-hostfile {plain}"), cpu::usable_cores()),
        ("-launcher ssh -iface lo -rmk user --mca btl self,vader --allow-run-as-root --oversubscribe -np 3".into(), 3),
    ] {
        let done = run(&mut command(&format!("{options} echo x")));
        let got = (done.code(), done.out.lines().count());
        assert_eq!(got, (0, ranks), "{options}: {}", done.err);
    }
}

#[test]
fn other_hosts_and_options_without_a_counterpart_are_refused_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong");
    fs::write(&wrong, "localhost slots=2\nfar-away slots=x\n").unwrap();
    let wrong = wrong.to_str().unwrap();
    for (options, expected) in [
        ("-H -oProxyCommand=x", "is not the name of a host"),
        (
            &format!("--hostfile {wrong}"),
            "line 2: 'slots=x' has no number",
        ),
        ("-npernode 2 -n 4", "this host takes 2 of them"),
        (
            "-H far-away -port-range 9:1",
            "this is not a range of ports",
        ),
        ("-gdb", "gdbserver"),
        ("--report-uri -", "showmesh"),
        ("--rankfile /no/such", "cannot read it"),
        ("--npernodes 2", "is --npernode meant?"),
        ("--map-by moon", "choose slot, core, socket"),
        ("--map-by slot:PE=4000", "4000 cores each do not fit"),
        ("-cpu-set 4000", "core 4000 may not be used here"),
        ("-outfile-pattern x%q", "'%q'"),
        ("-configfile /no/such", "cannot read the file of programs"),
        ("-n 60000 -nooversubscribe", "more than the"),
    ] {
        // A file of programs is the last word.
        let program = if options.contains("-configfile") {
            ""
        } else {
            "true"
        };
        let done = run(&mut command(&format!("{options} {program}")));
        assert_eq!(
            (done.code(), done.err.lines().count()),
            (2, 1),
            "{options}: {}",
            done.err
        );
        assert!(done.err.contains(expected), "{options}: {}", done.err);
    }
}

#[test]
fn a_file_of_programs_makes_one_job() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("programs");
    let text = "# two programs\n-n 1 -env A 1 sh -c 'echo a $MARGAY_RANK $A'\n-n 2 sh -c \"echo b \\$MARGAY_SIZE\"\n";
    fs::write(&path, text).unwrap();
    for option in ["-configfile", "--app"] {
        let done = run(command(option).arg(&path));
        assert_eq!(done.sorted(), ["a 0 1", "b 3", "b 3"], "{}", done.err);
    }
}

const BOTH: &str = "echo out $MARGAY_RANK; echo err $MARGAY_RANK >&2";

#[test]
fn files_get_the_output_of_their_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let in_folder =
        |options: &str, script: &str| run(shell(options, script).current_dir(folder.path()));
    let host = margay_job_launch::report::host_name();

    let done = in_folder(
        "-n 3 -outfile-pattern logs/o.%r.%h -errfile-pattern=logs/e.%g.%p.%r",
        BOTH,
    );
    assert_eq!((done.code(), &*done.out, &*done.err), (0, "", ""));
    for rank in 0..3 {
        assert_eq!(
            read(&format!("logs/o.{rank}.{host}")),
            format!("out {rank}\n")
        );
        assert_eq!(read(&format!("logs/e.0.0.{rank}")), format!("err {rank}\n"));
    }

    // As Open MPI writes them; what goes there is shown as well.
    let done = in_folder("-n 11 --output-filename run", BOTH);
    assert_eq!(
        (done.code(), done.out.lines().count()),
        (0, 11),
        "{}",
        done.err
    );
    assert_eq!(done.err.lines().count(), 11);
    assert_eq!(read("run/1/rank.07/stdout"), "out 7\n");
    assert_eq!(read("run/1/rank.10/stderr"), "err 10\n");
    let done = in_folder("-n 2 --output-filename quiet:nocopy,nojobid", BOTH);
    assert_eq!((&*done.out, &*done.err), ("", ""));
    assert_eq!(read("quiet/rank.1/stdout"), "out 1\n");

    // Ranks with one name share the file, and lines stay whole.
    let script =
        "for i in 1 2 3 4 5 6 7 8 9; do printf 'be'; printf 'gin %s end\n' $MARGAY_RANK; done";
    let done = in_folder("-n 3 -l -output-files one -error-files one", script);
    assert_eq!(done.out, "");
    let mut lines: Vec<String> = read("one").lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 27);
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(*line, format!("[{0}] begin {0} end", at / 9));
    }

    // With an order on the terminal, and only one rank there.
    let done = in_folder(
        "-n 3 -output ordered -output-files x.%r -tee",
        "echo $MARGAY_RANK",
    );
    assert_eq!(done.out, "0\n1\n2\n");
    assert_eq!(read("x.1"), "1\n");
    let done = in_folder(
        "-n 3 -output ordered -output-files y.%r",
        "echo $MARGAY_RANK",
    );
    assert_eq!((done.code(), &*done.out, &*read("y.2")), (0, "", "2\n"));
    let done = in_folder(
        "-n 3 -output rank:1 -output-files z.%r -tee",
        "echo $MARGAY_RANK",
    );
    assert_eq!((&*done.out, &*read("z.2")), ("1\n", "2\n"));
}

#[test]
fn a_file_that_cannot_be_written_ends_the_job_in_a_line() {
    let done = run(&mut shell(
        "-n 2 -outfile-pattern /dev/full",
        "echo x; sleep 60",
    ));
    assert_eq!(done.code(), 1, "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert!(
        done.err
            .contains("cannot write the job's output to '/dev/full'"),
        "{}",
        done.err
    );
}

#[test]
fn errors_become_output_in_their_order() {
    let script = "echo a; echo b >&2; echo c";
    for (options, lines) in [
        ("-n 1 --merge-stderr-to-stdout", 3),
        ("-n 2 --output merge", 6),
    ] {
        let done = run(&mut shell(options, script));
        assert_eq!((done.code(), &*done.err), (0, ""));
        assert_eq!(done.out.lines().count(), lines);
        if lines == 3 {
            assert_eq!(done.out, "a\nb\nc\n");
        }
    }
}

#[test]
fn each_line_has_its_time_and_rank() {
    let done = run(&mut shell(
        "-n 2 --timestamp-output --tag-output",
        "echo a; echo b",
    ));
    assert_eq!(done.out.lines().count(), 4, "{}", done.err);
    for line in done.out.lines() {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(
            ["[0] a", "[0] b", "[1] a", "[1] b"].contains(&rest),
            "{line}"
        );
        let is_digit = |at: usize| time.as_bytes()[at].is_ascii_digit();
        assert_eq!(
            (time.len(), &time[10..11], &time[23..]),
            (24, "T", "Z"),
            "{line}"
        );
        assert!(
            [0, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20, 22]
                .into_iter()
                .all(is_digit),
            "{line}"
        );
    }
}

#[test]
fn what_is_asked_for_is_shown() {
    let host = margay_job_launch::report::host_name();
    for option in ["--display-map", "-print-rank-map", "--display map"] {
        let done = run(&mut command(&format!("{option} -n 2 true : -n 1 echo")));
        let expected = [
            format!("host {host}: ranks 0-1: true"),
            format!("host {host}: rank 2: echo"),
        ];
        assert_eq!(message(&done), expected, "{option}");
    }
    let done = run(&mut command("--display-allocation -n 1 true"));
    assert!(
        done.err.contains(&format!("host {host}: core")),
        "{}",
        done.err
    );
    let core = cpu::affinity()[0];
    let done = run(&mut command(&format!("-v -n 1 -bind {core} true")));
    let lines = message(&done);
    assert_eq!(lines.len(), 3, "{}", done.err);
    assert_eq!(lines[2], format!("rank 0 on {host}: core {core}"));
}

#[test]
fn ranks_are_bound_as_the_options_say() {
    let mask = cpu::affinity();
    let last = mask[mask.len() - 1].to_string();
    let cores = |options: &str| {
        let done = run(&mut shell(
            options,
            "grep Cpus_allowed_list /proc/self/status",
        ));
        assert_eq!(done.code(), 0, "{options}: {}", done.err);
        let lists = done
            .out
            .lines()
            .map(|l| l.split_whitespace().last().unwrap().to_owned());
        lists.collect::<Vec<_>>()
    };
    assert_eq!(
        cores(&format!("-n 3 -cpu-set {last} -bind none")),
        [&*last; 3]
    );
    assert_eq!(cores(&format!("-n 2 --cpu-list {last}")), [&*last; 2]);
    assert_eq!(
        cores(&format!("-n 1 --bind-to core --cpu-set {last}")),
        [&*last]
    );
    assert_eq!(cores(&format!("-n 1 --cpu-bind list:{last}")), [&*last]);
    assert_eq!(cores("-n 1 --bind-to node"), cores("-n 1 --bind-to none"));
    let all = mask.len();
    let own = cores(&format!("-n 1 --map-by slot:PE={all}"));
    assert_eq!(own, cores("-n 1 --bind-to none"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ranks");
    fs::write(&file, format!("rank 0=localhost slot={last}\n")).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(cores(&format!("-n 1 --rankfile {file}")), [&*last]);
    // More ranks than cores: an error, unless it is allowed.
    let many = all + 1;
    let done = run(&mut command(&format!("-n {many} --bind-to core true")));
    assert_eq!(done.code(), 2);
    assert_eq!(
        cores(&format!("-n {many} --bind-to core:overload-allowed")).len(),
        many
    );
}

#[test]
fn frameworks_find_their_rank_and_no_library_finds_a_launcher() {
    let mut command = shell("-n 3 -output ordered", "env | sort");
    // As in a job of another launcher.
    for (name, value) in [
        ("PMI_FD", "7"),
        ("PMI_SIZE", "64"),
        ("PMIX_NAMESPACE", "x"),
        ("PMIX_RANK", "9"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "64"),
        ("OMPI_MCA_btl", "self"),
        ("SLURM_JOB_ID", "5"),
    ] {
        command.env(name, value);
    }
    let done = run(&mut command);
    let count = |line: &str| done.out.lines().filter(|l| *l == line).count();
    for name in [
        "MARGAY_RANK",
        "MARGAY_LOCAL_RANK",
        "PMI_RANK",
        "MPI_LOCALRANKID",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_NODE_RANK",
    ] {
        for rank in 0..3 {
            assert_eq!(count(&format!("{name}={rank}")), 1, "{name}: {}", done.err);
        }
    }
    for name in [
        "MARGAY_SIZE",
        "MARGAY_LOCAL_SIZE",
        "PMI_SIZE",
        "MPI_LOCALNRANKS",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ] {
        assert_eq!(count(&format!("{name}=3")), 3, "{name}");
    }
    assert_eq!(count("OMPI_MCA_btl=self") + count("SLURM_JOB_ID=5"), 6);
    for gone in ["PMI_FD=", "PMI_PORT=", "PMIX_", "HYDI_"] {
        assert!(!done.out.lines().any(|l| l.starts_with(gone)), "{gone}");
    }
}

#[test]
fn each_rank_sees_its_gpus() {
    let script = "echo $MARGAY_RANK $CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES $ZE_AFFINITY_MASK";
    let seen = |options: &str, selected: Option<&str>| {
        let mut command = shell(options, script);
        for name in [
            "CUDA_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "ZE_AFFINITY_MASK",
        ] {
            command.env_remove(name);
        }
        if let Some(selected) = selected {
            command.env("CUDA_VISIBLE_DEVICES", selected);
        }
        let done = run(&mut command);
        let mut lines: Vec<String> = done.out.lines().map(|l| l.trim().to_owned()).collect();
        lines.sort_unstable();
        (done.code(), lines)
    };
    let ok = |lines: &[&str]| (0, lines.iter().map(|&l| l.to_owned()).collect::<Vec<_>>());
    assert_eq!(
        seen("-n 3 -gpus 2", None),
        ok(&["0 0 0 0", "1 1 1 1", "2 0 0 0"])
    );
    assert_eq!(
        seen("-n 2 -gpus=4", None),
        ok(&["0 0,1 0,1 0,1", "1 2,3 2,3 2,3"])
    );
    // A batch system has selected some.
    assert_eq!(seen("-n 2 -gpus", Some("6,7")), ok(&["0 6", "1 7"]));
    assert_eq!(seen("-n 2 -gpus 3", Some("6,7")), (2, Vec::new()));
    assert_eq!(seen("-n 1", Some("6")), ok(&["0 6"]));
}

#[test]
fn only_what_is_listed_of_the_environment_is_passed_on() {
    let with = |options: &str| {
        let mut command = command(options);
        command.arg("/usr/bin/env");
        command.env("KEPT", "1").env("OTHER", "2");
        let done = run(&mut command);
        let has = |name: &str| done.out.lines().any(|l| l.starts_with(&format!("{name}=")));
        assert!(has("MARGAY_RANK"), "{options}: {}", done.err);
        (has("KEPT"), has("OTHER"), has("SET"))
    };
    assert_eq!(with("-n 1 -genvall -genv SET=3"), (true, true, true));
    assert_eq!(with("-n 1 -genvlist KEPT -genv SET 3"), (true, false, true));
    assert_eq!(with("-n 1 -envlist KEPT,SET"), (true, false, false));
    assert_eq!(with("-n 1 -genvnone -x SET=3"), (false, false, true));
    assert_eq!(with("-n 1 -genvnone -x OTHER"), (false, true, false));
    assert_eq!(with("-n 1 -genvexcl KEPT"), (false, true, false));
}

#[test]
fn ranks_that_wait_for_one_that_never_called_mpi_init_are_not_left_waiting() {
    let line = "-n 1 %act init call:MPI_Recv wait:recv:1:5 sleep:60000 : -n 1 true";
    let done = run(&mut command(line));
    assert_eq!(done.code(), 1, "{}", done.err);
    let expected = [
        "rank 0 waits for rank 1, which has ended without calling MPI_Init",
        "no rank can go on; the job has been ended",
    ];
    assert_eq!(message(&done)[..2], expected, "{}", done.err);
    assert!(
        message(&done)[2].starts_with("hint: every rank must run a program that uses this library")
    );

    // A collective operation of the other ranks may go on, so nothing is said. Rank 1 ends last:
    // without it rank 0 would wait in vain.
    let line = "-n 2 %act only:0 init wait:coll:any:any sleep:3000 fin exit:0 all init sleep:5000 fin exit:0 : -n 1 true";
    let done = run(&mut command(line));
    assert_eq!((done.code(), &*done.err), (0, ""));

    // Where another rank computes it is said, and the job goes on.
    let line =
        "run -n 2 ACT only:0 init wait:recv:2:any sleep:60000 all init sleep:60000 : -n 1 true";
    let mut command = fresh("sh");
    command.args(["-c", "exec \"$@\" 2>&1", "sh", margay()]);
    for word in line.split(' ') {
        match word {
            "ACT" => command.arg(act()),
            _ => command.arg(word),
        };
    }
    let mut job = Running::start(command.env(MARK, mark()));
    job.until("rank 0 waits for rank 2, which has ended without calling MPI_Init");
    job.until("does not join the job\n");
    assert!(
        !job.seen().contains("the job has been ended"),
        "{}",
        job.seen()
    );
    send("INT", job.pid());
    assert_eq!(job.end().code(), 128 + 2);
}

#[test]
fn the_report_tells_a_rank_that_has_not_called_mpi_init_from_one_that_computes() {
    let line = "-timeout 3 -n 1 %act init call:MPI_Recv wait:recv:1:5 sleep:60000 : -n 1 sleep 60 : -n 1 %act init sleep:60000";
    let done = run(&mut command(line));
    assert_eq!(done.code(), 124);
    let lines = message(&done);
    assert!(
        lines.contains(&"rank 1: outside MPI and using no CPU, has not called MPI_Init"),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"rank 1 has not called MPI_Init"),
        "{lines:?}"
    );
    assert!(
        !lines.iter().any(|l| l.contains("rank 2 has not")),
        "{lines:?}"
    );
    // A job without MPI says nothing of the kind.
    let done = run(&mut command("-timeout 1 -n 2 sleep 60"));
    assert!(
        !done
            .err
            .lines()
            .any(|l| l.ends_with("has not called MPI_Init") && !l.contains(':')),
        "{}",
        done.err
    );
}
