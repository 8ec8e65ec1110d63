//! Heads that stand by: one takes over when the one that leads, or its host, is gone. Jobs go on,
//! and each runs once.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use margay_sys_os::process::PidFd;
use margay_tests::batch::said;
use margay_tests::hosts::Hosts;
use margay_tests::jobs::{mark, nothing_is_left};
use margay_tests::postgres::Postgres;
use margay_tests::queue_hosts::environment;
use margay_tests::{command, run, stage};
use serde_json::Value;

/// Hosts whose user has one home directory on all of them, and a database.
struct Site {
    hosts: Hosts,
    store: String,
    mark: String,
}

impl Site {
    fn new(number: u32, database: &str) -> Option<Site> {
        let server = Postgres::shared()?;
        let hosts = Hosts::make(number)?;
        Some(Site::of(hosts, server.database(database, "postgres")))
    }

    fn of(hosts: Hosts, store: String) -> Site {
        let number = hosts.number;
        let site = Site {
            hosts,
            store,
            mark: mark(&mut Command::new("true")),
        };
        // A host that is off cannot be reached. Each has a folder of its own for what runs, which
        // the others do not see.
        let folder = site.hosts.folder.path();
        let run = folder.join("run");
        let own = format!("mount --bind {0}.$0 {0}", run.display());
        site.hosts.write_reach(&site.hosts.shell_that(&own));
        fs::create_dir(&run).unwrap();
        for host in 1..=number {
            fs::create_dir(site.path(&format!("run.{}", site.hosts.name(host)))).unwrap();
        }
        fs::create_dir(site.path("tmp")).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.hosts.folder.path().join(name)
    }

    /// A command on a host.
    fn margay(&self, host: u32, line: &str) -> Command {
        let mut margay = command(self.path("reach"), 120);
        let folder = self.path("");
        margay
            .arg(self.hosts.name(host))
            .arg(format!(
                "cd {} && exec {}/bin/margay {line}",
                folder.display(),
                stage().display()
            ))
            .env("HOME", &folder)
            .env("TMPDIR", self.path("tmp"))
            .envs(environment(&self.hosts, &self.mark));
        margay
    }

    fn output(&self, host: u32, line: &str) -> Output {
        let mut output = run(&mut self.margay(host, line));
        // What start-up files print.
        let greeting = format!("welcome to {}\n", self.hosts.name(host));
        if let Some(rest) = output.stdout.strip_prefix(greeting.as_bytes()) {
            output.stdout = rest.to_vec();
        }
        output
    }

    fn ok(&self, host: u32, line: &str) -> String {
        let output = self.output(host, line);
        assert!(output.status.success(), "{line}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn up(&self, host: u32, options: &str) -> String {
        self.ok(host, &format!("up --store '{}' {options}", self.store))
    }

    /// Submits a job that says where it runs, and ends when there is a file `go`.
    fn begin(&self, host: u32, options: &str, out: &str) -> String {
        let script = format!(
            "#!/bin/sh\necho $(hostname) $SLURM_RESTART_COUNT >> {out}\nwhile [ ! -e go ]; do sleep 0.05; done\nexit 3\n"
        );
        fs::write(self.path(out).with_extension("sh"), script).unwrap();
        let line = format!("submit --parsable -o log {options} {out}.sh");
        let job = self.ok(host, &line).trim().to_owned();
        self.until(&format!("{out} of job {job}"), || {
            !self.lines(out).is_empty()
        });
        job
    }

    fn row(&self, host: u32, job: &str) -> Value {
        let text = self.ok(host, &format!("queue --json {job}"));
        let rows: Value = serde_json::from_str(&text).unwrap();
        rows[0].clone()
    }

    fn state(&self, host: u32, job: &str) -> String {
        self.row(host, job)["state"].as_str().unwrap().to_owned()
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{what} does not come"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the head of a host answers for itself.
    fn until_leads(&self, host: u32) {
        let name = self.hosts.name(host);
        self.until(&format!("the lead of {name}"), || {
            let output = self.output(host, "up");
            output.status.success() && !said(&output).contains("on host")
        });
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The process of the head that a host asks.
    fn head(&self, host: u32) -> PidFd {
        let text = self.ok(host, "up");
        let number = text.split("process ").nth(1).unwrap();
        let number: String = number.chars().take_while(char::is_ascii_digit).collect();
        PidFd::open(number.parse().unwrap()).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Also after a test that failed. The last one leads, whichever that is.
        for host in 1..=self.hosts.number {
            let _ = self.margay(host, "cancel --all").output();
            let _ = self.margay(host, "wait --all").output();
            let _ = self.margay(host, "down").output();
        }
    }
}

#[test]
fn a_head_that_stands_by_takes_over_and_jobs_go_on() {
    let Some(site) = Site::new(3, "heads_killed") else {
        return;
    };
    let name = |host| site.hosts.name(host);
    let up = site.up(1, &format!("--slots 2 --hosts {}", site.hosts.names()));
    assert!(up.contains("6 slots on 3 of 3 hosts"), "{up}");
    let refused = said(&site.output(2, "up --standby --store 'postgresql:///none?host=/nowhere'"));
    assert!(refused.contains("/nowhere"), "{refused}");
    let by = said(&site.output(2, "up --standby"));
    let expected = format!("this host stands by for the head on host {}", name(1));
    assert!(by.contains(&expected), "{by}");
    site.until("the name of the one that stands by", || {
        site.ok(1, "node")
            .contains(&format!("standing by: {}", name(2)))
    });
    let text = said(&site.output(2, "up"));
    assert!(
        text.contains(&format!("on host {}; {} stands by", name(1), name(2))),
        "{text}"
    );

    // Commands of the host that stands by reach the head, and those of other hosts of the machine.
    let text = said(&site.output(3, "node"));
    assert!(
        text.contains(&format!("standing by: {}", name(2))),
        "{text}"
    );
    for host in [2, 3] {
        let text = said(&site.output(host, "slurm srun true"));
        assert!(text.contains(&format!("which is {}", name(1))), "{text}");
    }
    let jobs: Vec<String> = (0..6)
        .map(|at| site.begin(1 + at % 3, "", &format!("out{at}")))
        .collect();
    let places: Vec<String> = (0..6)
        .map(|at| site.lines(&format!("out{at}"))[0].clone())
        .collect();
    for host in 1..=3 {
        let count = places
            .iter()
            .filter(|place| place.starts_with(&name(host)))
            .count();
        assert_eq!(count, 2, "{places:?}");
    }
    let waits = site.ok(2, "submit --parsable -o late -- hostname");

    let head = site.head(1);
    let killed = Instant::now();
    head.kill();
    site.until_leads(2);
    println!(
        "another head answered after {} ms",
        killed.elapsed().as_millis()
    );
    for job in &jobs {
        assert_eq!(site.state(2, job), "running");
    }
    site.until("the way from the third host", || {
        let output = site.output(3, "node");
        said(&output).contains(&name(3))
    });
    // All slots are known to be in use.
    site.until("all hosts", || {
        let node = site.ok(2, "node");
        node.matches("full").count() == 3
    });
    assert_eq!(site.state(2, waits.trim()), "waiting");
    // One is cancelled, of which the other head's supervisor has to hear.
    site.ok(2, &format!("cancel {}", jobs[0]));
    site.until("the cancelled job", || {
        site.state(2, &jobs[0]) == "cancelled"
    });
    fs::write(site.path("go"), "").unwrap();
    let _ = site.output(2, "wait --all");
    for (at, job) in jobs.iter().enumerate().skip(1) {
        let row = site.row(2, job);
        assert_eq!(row["exit_code"], 3, "{row}");
        assert_eq!(site.lines(&format!("out{at}")).len(), 1);
    }
    assert_eq!(site.state(2, waits.trim()), "done");

    // The first host stands by in its turn.
    let by = site.up(1, "--standby");
    assert!(
        by.contains(&format!("the head on host {}", name(2))),
        "{by}"
    );
    let refused = said(&site.output(3, &format!("up --store '{}'", site.store)));
    assert!(
        refused.contains("stand by for it: margay up --standby"),
        "{refused}"
    );
    site.ok(2, "down");
    site.until_leads(1);
    assert_eq!(site.ok(1, "submit --parsable --wait -- true").trim(), "8");
    site.ok(1, "down");
    nothing_is_left(&site.mark);
}

#[test]
fn commands_that_wait_ask_the_head_that_has_taken_over() {
    let Some(site) = Site::new(2, "heads_asked") else {
        return;
    };
    let name = |host| site.hosts.name(host);
    site.up(1, &format!("--slots 3 --hosts {}", site.hosts.names()));
    site.up(2, "--standby");
    let job = site.begin(1, "", "named");
    for at in 0..3 {
        site.begin(1, "", &format!("fill{at}"));
    }
    let goes = "while [ ! -e go ]; do sleep 0.05; done";
    fs::write(
        site.path("waited.sh"),
        format!("#!/bin/sh\n{goes}\nexit 4\n"),
    )
    .unwrap();
    let program = format!("slurm srun sh -c 'echo ran; touch held; {goes}; hostname; exit 5'");
    let lines = [
        (1, format!("wait {job}")),
        (2, format!("wait {job}")),
        (2, "wait --all".to_owned()),
        (1, "submit --wait -o log waited.sh".to_owned()),
        (1, program),
        (1, "slurm srun sh -c 'hostname; exit 6'".to_owned()),
    ];
    let outputs: Vec<Output> = std::thread::scope(|scope| {
        let mut commands = Vec::new();
        for (at, (host, line)) in lines.iter().enumerate() {
            let site = &site;
            commands.push(scope.spawn(move || site.output(*host, line)));
            // The last one finds no free slot, because those before it have begun.
            let jobs = [4, 4, 4, 5, 6, 7][at];
            site.until("a job of a command", || {
                let text = site.ok(1, "queue --json");
                let rows: Value = serde_json::from_str(&text).unwrap();
                rows.as_array().unwrap().len() == jobs
            });
        }
        site.until("the program", || site.path("held").exists());
        // Each has asked this head by now, and is heard of it nothing.
        site.until("the commands", || {
            let text = site.ok(1, "node");
            text.contains(&format!("standing by: {}", name(2)))
        });
        site.head(1).kill();
        site.until_leads(2);
        fs::write(site.path("go"), "").unwrap();
        let ended = commands.into_iter().map(|command| command.join().unwrap());
        ended.collect()
    });
    let codes: Vec<Option<i32>> = outputs.iter().map(|own| own.status.code()).collect();
    let all: Vec<String> = outputs.iter().map(said).collect();
    assert_eq!(codes, [1, 1, 1, 1, 5, 6].map(Some), "{all:#?}");
    for text in &all[..2] {
        assert!(
            text.contains("the next head of the queue is asked"),
            "{text}"
        );
        assert!(
            text.contains(&format!("job {job} (named.sh): exit code 3")),
            "{text}"
        );
    }
    assert!(all[2].contains("(named.sh): exit code 3"), "{}", all[2]);
    assert!(all[3].contains("(waited.sh): exit code 4"), "{}", all[3]);
    // Their output comes to the host of the command, although the head is elsewhere now.
    let printed = |at: usize| String::from_utf8_lossy(&outputs[at].stdout).into_owned();
    let is_host = |text: &str| [1, 2].map(name).iter().any(|host| text.trim_end() == *host);
    let rest = printed(4);
    let rest = rest.strip_prefix("ran\n").unwrap_or_default();
    assert!(is_host(rest), "{}: {}", printed(4), all[4]);
    assert!(is_host(&printed(5)), "{}: {}", printed(5), all[5]);
    site.ok(2, "down");
    nothing_is_left(&site.mark);
}

#[test]
fn jobs_of_a_host_that_is_gone_run_again_or_are_lost() {
    let Some(site) = Site::new(2, "heads_gone") else {
        return;
    };
    let name = |host| site.hosts.name(host);
    site.up(1, &format!("--slots 2 --hosts {}", site.hosts.names()));
    site.ok(1, "set policy lost-after=2s");
    site.up(2, "--standby");
    let again = site.begin(1, "--requeue", "again");
    let lost = site.begin(1, "", "lost");
    assert!(site.lines("again")[0].starts_with(&name(1)));
    assert!(site.lines("lost")[0].starts_with(&name(1)));
    site.hosts.switch_off(1);
    site.until_leads(2);
    site.until("the end of the lost job", || site.state(2, &lost) == "lost");
    let note = site.row(2, &lost)["note"].as_str().unwrap().to_owned();
    assert!(note.contains(&format!("host {}", name(1))), "{note}");
    site.until("the second run", || site.lines("again").len() == 2);
    assert!(site.lines("again")[1].starts_with(&name(2)));
    site.hosts.switch_on(1);
    fs::write(site.path("go"), "").unwrap();
    let _ = site.output(2, "wait --all");
    assert_eq!(site.row(2, &again)["exit_code"], 3);
    assert_eq!(site.lines("again").len(), 2);
    site.ok(2, "down");
    nothing_is_left(&site.mark);
}

#[test]
fn a_head_that_was_stopped_finds_that_another_one_leads_and_stands_by() {
    let Some(site) = Site::new(2, "heads_stopped") else {
        return;
    };
    let name = |host| site.hosts.name(host);
    site.up(1, "--slots 3");
    site.ok(1, "set policy lost-after=3s");
    site.up(2, "--standby --slots 3");
    let stays = site.begin(1, "", "stays");
    let given_up = site.begin(2, "", "given-up");
    let head = site.head(1);
    let stopped = Instant::now();
    head.signal(margay_sys_os::signal::SIGSTOP);
    site.until_leads(2);
    println!(
        "another head answered after {} ms",
        stopped.elapsed().as_millis()
    );
    assert_eq!(site.state(2, &stays), "running");
    let new = site.ok(2, "submit --parsable --wait -o new -- hostname");
    assert_eq!(site.lines("new"), [name(2)], "{new}");
    // What is given up while its host cannot be reached ends there when the head is back.
    site.hosts.cut_off(1);
    site.ok(2, &format!("cancel {given_up}"));
    site.until("its end", || site.state(2, &given_up) == "cancelled");
    site.hosts.switch_on(1);
    assert_eq!(site.state(2, &stays), "running");
    head.signal(margay_sys_os::signal::SIGCONT);
    site.until("the old head to stand by", || {
        site.ok(2, "node")
            .contains(&format!("standing by: {}", name(1)))
    });
    // Commands there reach the new one.
    assert_eq!(site.state(1, &stays), "running");
    // And when that is gone, the first one leads again, with its jobs.
    site.head(2).kill();
    site.until_leads(1);
    assert_eq!(site.state(1, &stays), "running");
    fs::write(site.path("go"), "").unwrap();
    let _ = site.output(1, "wait --all");
    assert_eq!(site.row(1, &stays)["exit_code"], 3);
    assert_eq!(site.lines("stays").len(), 1);
    site.ok(1, "down");
    nothing_is_left(&site.mark);
}

#[test]
fn a_host_that_is_cut_off_loses_the_lead_and_what_is_given_up_ends_there() {
    let Some(hosts) = Hosts::make(3) else { return };
    let Some(server) = Postgres::on(&hosts, 3) else {
        return;
    };
    server.database("heads_cut", "postgres");
    let store = format!("postgresql://postgres@{}/heads_cut", Hosts::address(3));
    let site = Site::of(hosts, store);
    let name = |host| site.hosts.name(host);
    site.up(1, "--slots 2");
    site.ok(1, "set policy lost-after=2s");
    site.up(2, "--standby --slots 2");
    let again = site.begin(1, "--requeue", "again");
    // The remote shell goes another way than the cable.
    site.hosts.cut_off(1);
    let cut = Instant::now();
    assert!(site.hosts.works("ip -n @s link set @p1 down"));
    site.until_leads(2);
    println!(
        "another head answered after {} ms",
        cut.elapsed().as_millis()
    );
    site.until("the second run", || site.lines("again").len() == 2);
    assert!(site.lines("again")[1].starts_with(&name(2)));
    // The first one runs until its host is back, and is not there twice afterwards.
    assert!(site.hosts.works("ip -n @s link set @p1 up"));
    site.hosts.switch_on(1);
    site.until("the old head to stand by", || {
        site.ok(2, "node")
            .contains(&format!("standing by: {}", name(1)))
    });
    let first = site.path(&format!("state/margay/queue/jobs/{again}"));
    site.until("the end of the first run", || !first.exists());
    fs::write(site.path("go"), "").unwrap();
    let _ = site.output(2, "wait --all");
    assert_eq!(site.row(2, &again)["exit_code"], 3);
    assert_eq!(site.lines("again").len(), 2);
    site.ok(1, "down");
    site.ok(2, "down");
    nothing_is_left(&site.mark);
}

#[test]
fn a_queue_moves_to_another_host_while_its_jobs_run() {
    let Some(site) = Site::new(2, "heads_moved") else {
        return;
    };
    site.up(1, "--slots 2");
    let cancelled = site.begin(1, "", "cancelled");
    let stays = site.begin(1, "", "stays");
    site.ok(1, "down --leave");
    // The home directory is that of both, and names the store; what runs is the first one's.
    let up = site.ok(2, "up --slots 2");
    assert!(up.contains("2 running"), "{up}");
    let own = format!("state/margay/queue-on-{}", site.hosts.name(2));
    assert!(site.path(&own).is_dir());
    site.ok(2, &format!("cancel {cancelled}"));
    site.until("the cancelled job", || {
        site.state(2, &cancelled) == "cancelled"
    });
    fs::write(site.path("go"), "").unwrap();
    let _ = site.output(2, "wait --all");
    assert_eq!(site.row(2, &stays)["exit_code"], 3);
    assert_eq!(site.lines("stays").len(), 1);
    site.ok(2, "down");
    nothing_is_left(&site.mark);
}

#[test]
fn heads_that_all_stand_by_choose_one() {
    let Some(site) = Site::new(3, "heads_together") else {
        return;
    };
    let line = format!("up --standby --slots 1 --store '{}'", site.store);
    let said: Vec<String> = std::thread::scope(|scope| {
        let ups: Vec<_> = (1..=3)
            .map(|host| {
                let (site, line) = (&site, &line);
                scope.spawn(move || site.ok(host, line))
            })
            .collect();
        ups.into_iter().map(|up| up.join().unwrap()).collect()
    });
    let leading = said.iter().filter(|text| text.contains("the queue is up"));
    assert_eq!(leading.count(), 1, "{said:?}");
    // One that asks before the chosen one can be reached says so, and cannot name its host yet.
    let standing = said
        .iter()
        .filter(|text| text.contains("this host stands by for the head"));
    assert_eq!(standing.count(), 2, "{said:?}");
    for host in 1..=3 {
        site.ok(host, "submit --wait -- true");
    }
    for host in 1..=3 {
        site.ok(host, "down");
    }
    nothing_is_left(&site.mark);
}
