//! How programs come to several hosts and where their ranks run: programs that the hosts do not
//! have, bindings, devices, and addresses at which another program answers nobody.
#![forbid(unsafe_code)]

use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, Job, mark, nothing_is_left, text};
use margay_tests::run;

/// A program of MPI and a script, on hosts where their folder is empty; and a host where there is
/// nothing and nothing was sent, which is named before a rank starts anywhere.
#[test]
fn programs_are_sent_to_hosts_that_do_not_have_them() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("mpi/hosts.c");
    let folder = built.path();
    let folder = folder.parent().expect("it is in a folder");
    let script = folder.join("script");
    std::fs::write(&script, "#!/bin/sh\necho \"$1 on $(hostname)\"\n").expect("it takes files");
    assert!(hosts.works(&format!("chmod 755 {}", script.display())));
    let shell = hosts.shell_that(&format!("mount -t tmpfs none {}", folder.display()));
    let words = |options: &str| hosts.mpiexec_by(&shell, options);
    let said = words("-stage -ppn 2").and(built.path()).and("2");
    let said = said.succeed(110);
    assert_eq!(said.matches("is content").count(), 4, "{said}");
    let said = words("-stage").and(&script).and("hello").succeed(60);
    for host in 1..=2 {
        let line = format!("hello on {}\n", hosts.name(host));
        assert!(said.contains(&line), "{said}");
    }
    let mut command = words("").and(&script).command(60);
    let mark = mark(&mut command);
    let output = run(&mut command);
    nothing_is_left(&mark);
    assert_eq!(output.status.code(), Some(127), "{}", text(&output));
    assert!(
        text(&output).contains("does not exist"),
        "{}",
        text(&output)
    );
    assert!(output.stdout.is_empty(), "{}", text(&output));
}

/// What says on one host where ranks run says so on each of several.
#[test]
fn bindings_and_devices_are_those_of_each_host() {
    let Some(hosts) = Hosts::make(2) else { return };
    let program = "echo $MARGAY_RANK $CUDA_VISIBLE_DEVICES $(grep Cpus_allowed_list /proc/self/status | cut -f2)";
    let output = hosts.run("-ppn 2 -gpus=4 -bind 0,0 -report-bindings", program);
    let mut lines: Vec<&str> = std::str::from_utf8(&output.stdout)
        .expect("text")
        .lines()
        .collect();
    lines.sort_unstable();
    let wanted = ["0 0,1 0", "1 2,3 0", "2 0,1 0", "3 2,3 0"];
    assert_eq!(lines, wanted, "{}", text(&output));
    for rank in 0..4 {
        let host = hosts.name(rank / 2 + 1);
        let line = format!("mpiexec: rank {rank} on {host}: core 0\n");
        assert_eq!(text(&output).matches(&line).count(), 1, "{}", text(&output));
    }
    let output = hosts.run(
        "-ppn 2 -map-by node -cpu-set 0",
        "echo $MARGAY_RANK $(hostname)",
    );
    for rank in 0..4 {
        let line = format!("{rank} {}\n", hosts.name(rank % 2 + 1));
        assert!(text(&output).contains(&line), "{}", text(&output));
    }
    let output = hosts.run("-bind 4095", "true");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    // Whichever host says it first.
    let said = ": -bind: core 4095 may not be used here";
    assert!(text(&output).contains(said), "{}", text(&output));
}

/// What spawned processes write is output of the rank that spawns them, with its label.
#[test]
fn output_of_spawned_processes_is_that_of_their_parent() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("mpi/hosts_children.c");
    let words = hosts.mpiexec("-l -ppn 2").and(built.path());
    let job = Job::start(&words, 110);
    let mark = job.mark().to_owned();
    let ended = job.ended();
    nothing_is_left(&mark);
    assert!(ended.status.success(), "{}\n{}", ended.out, ended.err);
    for child in 0..2 {
        let line = format!("[1] child {child} speaks\n");
        assert_eq!(ended.out.matches(&line).count(), 1, "{}", ended.out);
    }
    assert!(ended.out.contains("[1] no zombies\n"), "{}", ended.out);
}

/// One address of a host leads to another program, which takes connections and never answers, and
/// the others cannot be reached.
#[test]
fn an_address_at_which_nobody_answers_is_reported_and_ends_the_job() {
    let Some(hosts) = Hosts::make(3) else { return };
    for line in [
        // Both have the address; from the first host it is reached at the third.
        "ip -n @h2 link add decoy type bridge",
        "ip -n @h2 addr add 10.78.0.9/32 dev decoy",
        "ip -n @h2 link set decoy up",
        "ip -n @h3 addr add 10.78.0.9/32 dev lo",
        "ip -n @h1 route add 10.78.0.9/32 via 10.77.0.3",
        "ip -n @h1 route add unreachable 10.77.0.2/32",
    ] {
        assert!(hosts.works(line), "{line}");
    }
    let listen = "import socket,time\nall=[socket.create_server(('10.78.0.9',port)) for port in range(41000,41004)]\nprint('listening',flush=True)\ntime.sleep(300)";
    let listener = margay_tests::jobs::Words::default()
        .and_all("ip netns exec")
        .and(hosts.name(3))
        .and_all("python3 -c");
    let mut listener = Job::start(&listener.and(listen), 120);
    listener.until("listening", 1);
    let built = Built::mpi("mpi/hosts_one_way.c");
    let names = format!("{},{}", hosts.name(1), hosts.name(2));
    let words = hosts.mpiexec_on(&names, "-port-range 41000:41003");
    let job = Job::start(&words.and(built.path()), 90);
    let mark = job.mark().to_owned();
    let ended = job.ended();
    nothing_is_left(&mark);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.err);
    let pair = format!(
        "rank 0 on host {} cannot reach rank 1 on host {}: something else takes",
        hosts.name(1),
        hosts.name(2)
    );
    assert!(ended.err.contains(&pair), "{}", ended.err);
    assert!(ended.err.contains("10.78.0.9"), "{}", ended.err);
}
