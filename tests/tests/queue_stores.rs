//! What the queue keeps, in a file and in a database alike; and what a database brings: a head that
//! has it, a server that is away, errors in words.
#![forbid(unsafe_code)]

use std::fs;
use std::time::Duration;

use margay_sys_os::process::PidFd;
use margay_tests::batch::said;
use margay_tests::postgres::Postgres;
use margay_tests::queue::Queue;
use margay_tests::run;

/// Makes two tests of each: with a file and with a database.
macro_rules! in_both {
    ($($test:ident)*) => {
        mod in_a_file {
            $(#[test]
            fn $test() {
                super::$test("file");
            })*
        }

        mod in_a_database {
            $(#[test]
            fn $test() {
                let Some(server) = super::Postgres::shared() else { return };
                // Names have up to 63 letters.
                let name = &stringify!($test)[..20];
                super::$test(&server.database(name, "postgres"));
            })*
        }
    };
}

in_both! {
    arrays_dependencies_and_holds_decide_when_a_job_starts
    a_head_that_is_killed_at_any_moment_loses_no_job_and_runs_none_twice
    jobs_go_on_without_the_head_and_end_as_lost_when_their_supervisor_is_killed
    an_array_of_fifty_thousand_is_accepted_and_cancelled
    rules_are_set_kept_and_followed
    what_has_ended_is_charged_and_kept
}

fn arrays_dependencies_and_holds_decide_when_a_job_starts(store: &str) {
    let queue = Queue::up_in(4, store);
    let array = queue.submit(&[
        "-a",
        "1-4%2",
        "-o",
        "a-%a",
        "--",
        "sh",
        "-c",
        "echo $SLURM_ARRAY_TASK_ID; test $SLURM_ARRAY_TASK_ID != 3",
    ]);
    let after = queue.submit(&[
        "-d",
        &format!("afternotok:{array}"),
        "-o",
        "after",
        "--",
        "echo",
        "after",
    ]);
    let never = queue.submit(&["-d", &format!("afterok:{array}"), "--", "true"]);
    let held = queue.submit(&["--hold", "-o", "held", "--", "echo", "held"]);
    let behind = queue.submit(&["-d", &format!("afterok:{held}"), "--", "true"]);
    queue.ok(&["wait", &after]);
    for task in 1..=4 {
        assert_eq!(queue.read(&format!("a-{task}")), format!("{task}\n"));
    }
    assert_eq!(queue.state_of(&format!("{array}_3")), "failed");
    run(&mut queue.margay(&["wait", &never]));
    assert_eq!(queue.state_of(&never), "cancelled");
    assert!(queue.ok(&["explain", &never]).contains("which cannot come"));
    assert!(queue.ok(&["explain", &held]).contains("margay release"));
    assert!(
        queue
            .ok(&["explain", &behind])
            .contains(&format!("waits for {held} to succeed"))
    );
    assert_eq!(queue.rows(&[]).len(), 2);
    queue.ok(&["release", &held]);
    queue.ok(&["wait", &behind]);
    assert_eq!(queue.read("held"), "held\n");
    queue.refused(&["submit", "-d", "afterok:999", "--", "true"], "no job 999");
}

fn a_head_that_is_killed_at_any_moment_loses_no_job_and_runs_none_twice(store: &str) {
    let queue = Queue::up_in(4, store);
    let mut accepted: Vec<String> = Vec::new();
    // MARGAY_TEST_KILLS=10000 looks at more moments.
    let kills = std::env::var("MARGAY_TEST_KILLS");
    let kills = kills.map_or(25, |kills| kills.parse::<u64>().unwrap());
    for round in 0..kills {
        let head = PidFd::open(queue.head().unwrap()).unwrap();
        std::thread::scope(|scope| {
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let line = "echo $SLURM_JOB_ID >> ran; sleep 0.02";
                        let words = [
                            "submit",
                            "--parsable",
                            "-o",
                            "/dev/null",
                            "--",
                            "sh",
                            "-c",
                            line,
                        ];
                        let mut numbers = Vec::new();
                        for _ in 0..3 {
                            let output = run(&mut queue.margay(&words));
                            // Without an answer it may have been accepted or not.
                            if output.status.success() {
                                numbers.push(said(&output).trim().to_owned());
                            }
                        }
                        numbers
                    })
                })
                .collect();
            // Each at another microsecond of the first 23 ms, as these numbers have no divisor in
            // common.
            std::thread::sleep(Duration::from_micros(round * 1700 % 23_003));
            head.kill();
            for submitter in submitters {
                accepted.extend(submitter.join().unwrap());
            }
        });
        while !head.has_ended() {
            std::thread::yield_now();
        }
        queue.ok(&["up", "--slots", "4"]);
    }
    // On a machine so busy that every head was killed before it could accept anything, this one is.
    let line = "echo $SLURM_JOB_ID >> ran";
    accepted.push(queue.submit(&["-o", "/dev/null", "--", "sh", "-c", line]));
    queue.ok(&["wait", "--all"]);
    let ran = queue.read("ran");
    let mut ran: Vec<&str> = ran.lines().collect();
    let count = ran.len();
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), count, "a job ran twice");
    for job in &accepted {
        assert!(ran.contains(&job.as_str()), "job {job} is lost");
    }
    assert!(
        queue
            .rows(&["--all"])
            .iter()
            .all(|row| row["state"] == "done")
    );
}

fn jobs_go_on_without_the_head_and_end_as_lost_when_their_supervisor_is_killed(store: &str) {
    let queue = Queue::up_in(2, store);
    let job = queue.submit(&[
        "-o",
        "out",
        "--",
        "sh",
        "-c",
        "echo begun; while test ! -e go; do sleep 0.01; done; exit 5",
    ]);
    queue.until("out");
    queue.ok(&["down", "--leave"]);
    queue.script("go", "");
    queue.ok(&["up", "--slots", "2"]);
    queue.refused(&["wait", &job], "exit code 5");
    fs::remove_file(queue.path("go")).unwrap();
    let killed = |job: &str| {
        let claim = queue.state().join(format!("jobs/{job}/claim"));
        let supervisor: u32 = fs::read_to_string(claim).unwrap().trim().parse().unwrap();
        PidFd::open(supervisor).unwrap().kill();
    };
    // What it leaves ends with it, also outside its session and without its environment.
    let script = "env -i setsid sleep 1000 & echo $! >one; env -i sleep 1000 & echo $! >two; \
                  setsid sh -c 'env -i sleep 1000 & echo $! >three; wait' & \
                  until test -s three; do sleep 0.01; done; echo begun >out2; wait";
    let job = queue.submit(&["--", "sh", "-c", script]);
    queue.until("out2");
    let left = ["one", "two", "three"].map(|name| {
        let pid = fs::read_to_string(queue.path(name)).unwrap();
        PidFd::open(pid.trim().parse().unwrap()).unwrap()
    });
    killed(&job);
    queue.refused(&["wait", &job], "lost");
    assert!(left.iter().all(PidFd::has_ended));
    // The second run does not begin before the first has ended.
    let script = "if test -e first; then \
                  ! grep -q '^State:.[^Z]' /proc/$(cat first)/status; exit; fi; \
                  setsid sleep 1000 & echo $! >first.new; mv first.new first; wait";
    let job = queue.submit(&["--requeue", "--", "sh", "-c", script]);
    queue.until("first");
    killed(&job);
    queue.ok(&["wait", &job]);
}

fn an_array_of_fifty_thousand_is_accepted_and_cancelled(store: &str) {
    let queue = Queue::up_in(2, store);
    queue.refused(
        &["submit", "-a", "0-100000", "--", "true"],
        "at most 100000",
    );
    let job = queue.submit(&["--hold", "-a", "0-49999", "--", "true"]);
    assert!(queue.ok(&["node"]).contains("50000"));
    queue.ok(&["cancel", &job]);
    assert_eq!(queue.rows(&[]).len(), 0);
}

fn rules_are_set_kept_and_followed(store: &str) {
    let queue = Queue::up_in(4, store);
    queue.ok(&[
        "set",
        "queue",
        "fast",
        "priority=10",
        "time=1h",
        "user-running=1",
    ]);
    queue.ok(&["set", "policy", "backfill=conservative", "fair-share=7d"]);
    queue.ok(&["set", "reservation", "lecture", "slots=1", "time=1h"]);
    queue.refused(&["set", "queue", "fast", "colour=red"], "'colour'");
    queue.ok(&["down"]);
    queue.ok(&["up", "--slots", "4"]);
    let rules = queue.ok(&["set"]);
    for line in [
        "queue fast priority=10",
        "backfill=conservative",
        "reservation lecture slots=1",
    ] {
        assert!(rules.contains(line), "{rules}");
    }
    queue.refused(
        &["submit", "-p", "slow", "--", "true"],
        "there are: compute fast",
    );
    queue.refused(&["submit", "-p", "fast", "--", "true"], "at most 1:00:00");
    queue.refused(
        &["submit", "-p", "fast", "-t", "2h", "--", "true"],
        "at most 1:00:00",
    );
    let first = queue.submit(&["-n", "2", "-p", "fast", "-t", "1h", "--", "sleep", "1000"]);
    let second = queue.submit(&["-p", "fast", "-t", "1h", "--", "true"]);
    // One slot is reserved.
    let large = queue.submit(&["-n", "2", "-t", "1h", "--", "true"]);
    let inside = [
        "submit",
        "--wait",
        "--reservation",
        "lecture",
        "-t",
        "1",
        "--",
        "true",
    ];
    queue.ok(&inside);
    assert_eq!(queue.state_of(&first), "running");
    let text = queue.ok(&["explain", &second]);
    assert!(text.contains("1 job of its user at once"), "{text}");
    let text = queue.ok(&["explain", &large]);
    assert!(
        text.contains(&format!("if these had ended: {first}")),
        "{text}"
    );
    queue.ok(&["set", "remove", "reservation", "lecture"]);
    queue.ok(&["wait", &large]);
    queue.refused(&inside, "no reservation 'lecture'");
    queue.ok(&["cancel", &first]);
    queue.ok(&["wait", &second]);
}

fn what_has_ended_is_charged_and_kept(store: &str) {
    let queue = Queue::up_in(2, store);
    queue.ok(&["submit", "--wait", "-n", "2", "-A", "a,\"b", "--", "true"]);
    // Letters of several bytes, and those that texts of SQL, JSON and arrays have a meaning for.
    let name = "\u{e4}'\\{},\"$1";
    queue.ok(&["submit", "--wait", "-J", name, "-o", "out", "--", "true"]);
    queue.refused(
        &["submit", "--wait", "--requeue-exit", "9", "--", "/no/such"],
        "cannot execute",
    );
    let line = "echo x >> runs; test $(wc -l < runs) = 3 || exit 75";
    let again = [
        "submit",
        "--wait",
        "--requeue-exit",
        "75",
        "--",
        "sh",
        "-c",
        line,
    ];
    queue.ok(&again);
    for _ in 0..2 {
        let text = queue.ok(&["account", "--csv"]);
        assert!(text.contains("\"a,\"\"b\",1,"), "{text}");
        let rows = queue.rows(&["--all"]);
        let column =
            |name: &str| -> Vec<&serde_json::Value> { rows.iter().map(|row| &row[name]).collect() };
        assert_eq!(column("name")[1], name);
        assert_eq!(column("runs"), [0, 0, 0, 2]);
        assert_eq!(column("state"), ["done", "done", "not-started", "done"]);
        assert_eq!(column("id"), [1, 2, 3, 4]);
        queue.ok(&["down"]);
        queue.ok(&["up", "--slots", "2"]);
    }
    assert_eq!(queue.submit(&["--", "true"]), "5");
    queue.ok(&["wait", "5"]);
}

#[test]
fn one_head_has_a_database_and_another_folder_goes_on_with_it() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let store = server.database("one_head", "postgres");
    let first = Queue::up_in(2, &store);
    let head = first.head().unwrap();
    first.ok(&["submit", "--wait", "--", "true"]);
    let up = ["up", "--slots", "2", "--store", &store];
    let second = Queue::not_up();
    let text = said(&run(&mut second.margay(&up)));
    assert!(text.contains(&format!("process {head} on host")), "{text}");
    assert!(
        text.contains("margay up --standby")
            && text.contains("margay down")
            && text.contains("schema=NAME"),
        "{text}"
    );
    // Nothing is remembered of what failed.
    second.ok(&["up", "--slots", "2"]);
    assert_eq!(second.rows(&["--all"]).len(), 0);
    second.refused(&up, "is kept in another place (file)");
    second.ok(&["down"]);
    let schema = format!("{store}&schema=other");
    second.ok(&["up", "--slots", "2", "--store", &schema]);
    assert_eq!(second.rows(&["--all"]).len(), 0);
    second.ok(&["down"]);
    // A head of another folder follows what runs.
    let job = first.submit(&[
        "-o",
        "out",
        "--",
        "sh",
        "-c",
        "echo begun; while test ! -e go; do sleep 0.01; done",
    ]);
    first.until("out");
    first.ok(&["down", "--leave"]);
    first.refused(
        &["up", "--store", "file"],
        "jobs run whose state is kept elsewhere",
    );
    second.ok(&up);
    assert_eq!(second.state_of(&job), "running");
    first.script("go", "");
    second.ok(&["wait", &job]);
    assert_eq!(second.rows(&["--all"]).len(), 2);
    assert_eq!(second.submit(&["--", "true"]), "3");
    second.ok(&["wait", "3"]);
    // One that was killed leaves the database to the next.
    let killed = PidFd::open(second.head().unwrap()).unwrap();
    killed.kill();
    while !killed.has_ended() {
        std::thread::yield_now();
    }
    first.ok(&["up", "--slots", "2"]);
    assert_eq!(first.rows(&["--all"]).len(), 3);
}

#[test]
fn a_database_that_is_away_loses_nothing_of_what_jobs_do() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let queue = Queue::up_in(1, &server.database("away", "postgres"));
    let line = "echo begun; while test ! -e go; do sleep 0.01; done; exit 7";
    let job = queue.submit(&["-o", "out", "--", "sh", "-c", line]);
    let next = queue.submit(&["-o", "next", "--", "echo", "next"]);
    queue.until("out");
    server.cut("away", false);
    for words in [&["queue"][..], &["submit", "--", "true"], &["cancel", &job]] {
        queue.refused(words, "looks for the database again");
    }
    queue.script("go", "");
    server.cut("away", true);
    queue.until("next");
    while !run(&mut queue.margay(&["queue"])).status.success() {
        std::thread::sleep(Duration::from_millis(10));
    }
    queue.refused(&["wait", &job], "exit code 7");
    queue.ok(&["wait", &next]);
    // Ended connections that are back at once.
    for round in 0..5u64 {
        server.cut("away", true);
        let known = |queue: &Queue| {
            let output = run(&mut queue.margay(&[
                "submit",
                "--parsable",
                "--",
                "sh",
                "-c",
                "echo x >> ran",
            ]));
            output.status.success()
        };
        std::thread::sleep(Duration::from_millis(round));
        while !known(&queue) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    queue.ok(&["wait", "--all"]);
    assert_eq!(queue.read("ran").lines().count(), 5);
    assert_eq!(queue.rows(&["--all"]).len(), 7);
    // The queue ends without its database as well.
    server.cut("away", false);
    queue.ok(&["down"]);
    queue.refused(&["up"], "not currently accepting connections");
    server.cut("away", true);
    queue.ok(&["up", "--slots", "1"]);
    assert_eq!(queue.rows(&["--all"]).len(), 7);
}

#[test]
fn a_head_that_was_stopped_while_another_took_over_does_nothing_more() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let store = server.database("stopped", "postgres");
    let first = Queue::up_in(1, &store);
    let job = first.submit(&["--hold", "--", "sh", "-c", "echo x >> ../ran"]);
    let head = first.head().unwrap();
    let process = PidFd::open(head).unwrap();
    process.signal(margay_sys_os::signal::SIGSTOP);
    // The server does so itself after 8 seconds.
    server.cut("stopped", true);
    let second = Queue::up_in(1, &store);
    second.ok(&["release", &job]);
    second.ok(&["wait", &job]);
    process.signal(margay_sys_os::signal::SIGCONT);
    // It stands by, and passes on what commands of its folder ask.
    while !second.ok(&["node"]).contains("standing by") {
        std::thread::sleep(Duration::from_millis(10));
    }
    let log = fs::read_to_string(first.state().join("head.log")).unwrap();
    assert!(
        log.contains("another one now") && log.contains("this one stands by"),
        "{log}"
    );
    assert_eq!(first.rows(&["--all"])[0]["state"], "done");
    first.ok(&["down"]);
    assert!(!second.ok(&["node"]).contains("standing by"));
}

#[test]
fn tables_of_each_older_version_are_brought_to_this_one() {
    // What each version after the first added, undone.
    const UNDONE: [&str; 5] = [
        "ALTER TABLE margay.head DROP COLUMN queue, DROP COLUMN machine; \
         ALTER TABLE margay.jobs DROP COLUMN term, DROP COLUMN parts; \
         DROP TABLE margay.terms, margay.standbys;",
        "ALTER TABLE margay.head DROP COLUMN kind;",
        "ALTER TABLE margay.jobs DROP COLUMN energy_mj;",
        "ALTER TABLE margay.jobs DROP COLUMN hosts;",
        "ALTER TABLE margay.jobs DROP COLUMN steps; DROP INDEX margay.ended_at;",
    ];
    let Some(server) = Postgres::shared() else {
        return;
    };
    for version in 1..=UNDONE.len() {
        let name = format!("older{version}");
        let queue = Queue::up_in(1, &server.database(&name, "postgres"));
        let line = "echo begun; while test ! -e go; do sleep 0.01; done; exit 7";
        let job = queue.submit(&["-o", "out", "--", "sh", "-c", line]);
        queue.until("out");
        queue.ok(&["down", "--leave"]);
        let undone = UNDONE[version - 1..].concat();
        let set = format!("{undone} UPDATE margay.version SET number = {version}");
        server.sql(&name, &set);
        if version == 1 {
            // That version did not write the name of the queue.
            let order = queue.state().join(format!("jobs/{job}/order"));
            let text = fs::read_to_string(&order).unwrap();
            let mut said: serde_json::Value = serde_json::from_str(&text).unwrap();
            said.as_object_mut().unwrap().remove("queue").unwrap();
            fs::write(&order, said.to_string()).unwrap();
        }
        queue.ok(&["up", "--slots", "1"]);
        assert_eq!(queue.state_of(&job), "running");
        queue.script("go", "");
        queue.refused(&["wait", &job], "exit code 7");
        let now = server.sql(&name, "SELECT number FROM margay.version");
        assert_eq!(now, (UNDONE.len() + 1).to_string());
    }
}

#[test]
fn jobs_of_a_database_that_was_made_anew_have_nothing_of_the_old_ones() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let store = server.database("anew", "postgres");
    let queue = Queue::up_in(2, &store);
    let line = "echo begun > old; trap 'sleep 1; echo gone >> old; exit 9' TERM; while :; do sleep 0.01; done";
    for _ in 0..2 {
        queue.submit(&["-o", "out", "--", "sh", "-c", line]);
        queue.until("old");
    }
    let head = PidFd::open(queue.head().unwrap()).unwrap();
    head.kill();
    while !head.has_ended() {
        std::thread::yield_now();
    }
    server.sql("anew", "DROP SCHEMA margay CASCADE");
    queue.ok(&["up", "--slots", "2"]);
    // The old ones have been ended, and the new ones of their numbers begin.
    assert!(
        queue.read("old").ends_with("gone\n"),
        "{}",
        queue.read("old")
    );
    for job in ["1", "2"] {
        assert_eq!(
            queue.submit(&["-o", "new", "--", "sh", "-c", "exit 3"]),
            job
        );
        queue.refused(&["wait", job], "exit code 3");
    }
    let log = fs::read_to_string(queue.state().join("head.log")).unwrap();
    let line = log
        .lines()
        .find(|line| line.contains("of a queue that was here before"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    let (time, _) = line.split_once(" margay-queue: ").unwrap();
    let is_time = |at: usize, c: char| match at {
        4 | 7 => c == '-',
        10 => c == ' ',
        13 | 16 => c == ':',
        _ => c.is_ascii_digit(),
    };
    assert!(
        time.len() == 19 && time.chars().enumerate().all(|(at, c)| is_time(at, c)),
        "{line}"
    );
    // The queue of all users is none of a user's.
    queue.ok(&["down"]);
    server.sql("anew", "UPDATE margay.head SET kind = 'system'");
    for words in [&["up"][..], &["up", "--standby"]] {
        queue.refused(
            words,
            "has a queue of all users of a machine; root starts it with margay up --system",
        );
    }
}

#[test]
fn what_is_wrong_with_a_database_is_said_in_words() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let queue = Queue::not_up();
    let refused = |store: &str, why: &str| queue.refused(&["up", "--store", store], why);
    refused("mysql://db/q", "postgresql://user@host/database");
    refused("postgresql://ann:hidden@db/q", "~/.pgpass");
    refused("postgresql:///q?host=/nowhere", "/nowhere");
    refused("postgresql:///q?colour=red", "colour");
    refused(
        &server.url("none_there", "postgres"),
        "create it: createdb none_there",
    );
    server.sql("postgres", "CREATE ROLE plain LOGIN");
    let store = server.database("of_others", "plain");
    refused(&store, "GRANT CREATE ON DATABASE of_others TO plain");
    server.sql("of_others", "CREATE SCHEMA margay");
    refused(&store, "GRANT ALL ON SCHEMA margay TO plain");
    server.sql("of_others", "GRANT ALL ON SCHEMA margay TO plain");
    queue.ok(&["up", "--slots", "1", "--store", &store]);
    queue.ok(&["down"]);
    server.sql("of_others", "UPDATE margay.version SET number = 99");
    refused(&store, "version 99");
    server.sql(
        "postgres",
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0",
    );
    refused(&server.url("latin", "postgres"), "encoding LATIN1");
    // Passwords are those of libpq.
    server.sql("postgres", "CREATE ROLE secret LOGIN PASSWORD 'hidden'");
    server.sql("postgres", "CREATE DATABASE secrets OWNER secret");
    let store = server.url("secrets", "secret");
    refused(&store, "HOST:PORT:DATABASE:USER:PASSWORD");
    queue.script(".pgpass", "*:*:*:secret:wrong\n");
    use std::os::unix::fs::PermissionsExt;
    let own = fs::Permissions::from_mode(0o600);
    fs::set_permissions(queue.path(".pgpass"), own).unwrap();
    refused(&store, "password authentication failed");
    queue.script(".pgpass", "*:*:*:secret:hidden\n");
    queue.ok(&["up", "--slots", "1", "--store", &store]);
    queue.ok(&["submit", "--wait", "--", "true"]);
}
