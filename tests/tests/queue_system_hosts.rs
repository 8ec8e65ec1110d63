//! The queue that all users of several hosts share: as whom jobs run on the other hosts, who may
//! read and write what there and here, and as whom commands of other hosts ask.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use margay_sys_os::process::PidFd;
use margay_tests::batch::said;
use margay_tests::hosts::Hosts;
use margay_tests::jobs::{MARK, mark, nothing_is_left};
use margay_tests::postgres::Postgres;
use margay_tests::users::{ONE, OTHER, chmod, install, number};
use margay_tests::{command, run};
use serde_json::Value;

/// Hosts on which folders of the system are each host's own, and an installation of root's.
struct Site {
    hosts: Hosts,
    mark: String,
}

impl Site {
    fn make(number_of_hosts: u32) -> Option<Site> {
        let hosts = Hosts::make(number_of_hosts)?;
        let site = Site {
            hosts,
            mark: mark(&mut Command::new("true")),
        };
        chmod(&site.path(""), 0o755);
        let own = site.path("of");
        let first = format!(
            "mount --rbind /run/netns {0}/run.$0/netns && mount --rbind {0}/run.$0 /run && mount --bind {0}/lib.$0 /var/lib",
            own.display()
        );
        fs::create_dir(&own).unwrap();
        for host in 1..=site.hosts.number {
            for folder in ["run", "lib"] {
                let path = own.join(format!("{folder}.{}", site.hosts.name(host)));
                fs::create_dir(&path).unwrap();
                chmod(&path, 0o755);
            }
        }
        for host in 1..=site.hosts.number {
            fs::create_dir(own.join(format!("run.{}/netns", site.hosts.name(host)))).unwrap();
        }
        site.hosts.write_reach(&site.hosts.shell_that(&first));
        install(
            &site.path(""),
            &[
                "margay",
                "margay-machine",
                "margay-part",
                "margay-queue",
                "mpiexec",
            ],
        );
        Some(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.hosts.folder.path().join(name)
    }

    /// A command of a user on a host.
    fn on(&self, host: u32, user: &str, line: &str) -> Command {
        let mut reach = command(self.path("reach"), 120);
        let become_user = match user {
            "root" => String::new(),
            _ => {
                let groups = if user == ONE { "4,24" } else { "27" };
                format!("setpriv --reuid {user} --regid {user} --groups {groups}")
            }
        };
        let folder = self.path("");
        reach
            .arg(self.hosts.name(host))
            .arg(format!(
                "exec env -i HOME={0}/{user} PATH={0}/margay/bin:/usr/bin:/bin:/usr/sbin:/sbin MARGAY_RSH={0}/reach {MARK}={1} \
                 {become_user} sh -c 'cd \"$HOME\" && umask 027 && exec {line}'",
                folder.display(),
                self.mark
            ));
        reach
    }

    fn output(&self, host: u32, user: &str, line: &str) -> Output {
        let mut output = run(&mut self.on(host, user, line));
        // What start-up files print.
        let greeting = format!("welcome to {}\n", self.hosts.name(host));
        if let Some(rest) = output.stdout.strip_prefix(greeting.as_bytes()) {
            output.stdout = rest.to_vec();
        }
        output
    }

    fn ok(&self, host: u32, user: &str, line: &str) -> String {
        let output = self.output(host, user, line);
        assert!(output.status.success(), "{user}: {line}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, host: u32, user: &str, line: &str, why: &str) {
        let output = self.output(host, user, line);
        assert!(!output.status.success(), "{user}: {line} succeeded");
        assert!(
            said(&output).contains(why),
            "{user}: {line}: {}",
            said(&output)
        );
    }

    fn script(&self, user: &str, name: &str, text: &str) {
        let path = self.path(user).join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        chown(&path, number("-u", user), None).unwrap();
    }

    fn row(&self, user: &str, job: &str) -> Value {
        let text = self.ok(1, user, &format!("margay queue --json {job}"));
        let rows: Value = serde_json::from_str(&text).unwrap();
        rows[0].clone()
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..1200 {
            if is_so() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{what} does not come");
    }

    /// The process of the head that a host asks.
    fn head(&self, host: u32) -> PidFd {
        let text = self.ok(host, "root", "margay up --system");
        let head = text.split("process ").nth(1).unwrap();
        let head: String = head.chars().take_while(char::is_ascii_digit).collect();
        PidFd::open(head.parse().unwrap()).unwrap()
    }

    /// Folders of jobs on a host.
    fn left_on(&self, host: u32) -> usize {
        let name = format!("of/lib.{}/margay/jobs", self.hosts.name(host));
        fs::read_dir(self.path(&name)).map_or(0, Iterator::count)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Also after a test that failed.
        // The head may be on any of them.
        for host in 1..=self.hosts.number {
            let _ = self.on(host, "root", "margay cancel --all").output();
            let _ = self.on(host, "root", "margay wait --all").output();
            let _ = self.on(host, "root", "margay down --system").output();
        }
    }
}

#[test]
fn jobs_on_other_hosts_run_as_their_users_and_so_is_their_output_written() {
    let Some(site) = Site::make(2) else { return };
    let name = |host| site.hosts.name(host);
    // The head's host has no slots, so jobs run on the other one.
    let up = site.output(
        1,
        "root",
        &format!("margay up --system --slots 2 --hosts {}", name(2)),
    );
    assert!(up.status.success(), "{}", said(&up));
    assert!(
        said(&up).contains("2 slots on 1 of 1 hosts"),
        "{}",
        said(&up)
    );

    let who = "hostname; id -un; id -G; umask; pwd; echo error >&2; cat /proc/self/loginuid > /dev/null; echo again > /dev/stdout";
    site.script(
        ONE,
        "who",
        &format!("{who}\nhead -1 $PBS_NODEFILE; ls -l $0 | cut -c1-10"),
    );
    site.ok(1, ONE, "margay submit --wait -o out who");
    let out = site.path(ONE).join("out");
    let text = fs::read_to_string(&out).unwrap();
    let home = site.path(ONE).canonicalize().unwrap();
    let expected = format!(
        "{0}\n{ONE}\n{1} 4 24\n0027\n{2}\nerror\nagain\n{0}\n-rwx------\n",
        name(2),
        number("-g", ONE).unwrap(),
        home.display()
    );
    assert_eq!(text, expected);
    let file = fs::metadata(&out).unwrap();
    assert_eq!(Some(file.uid()), number("-u", ONE));
    assert_eq!(file.mode() & 0o777, 0o640, "the mask is the user's");

    // What the user may not write or enter, the job may not either, here and there.
    fs::create_dir(site.path("kept")).unwrap();
    chmod(&site.path("kept"), 0o700);
    std::os::unix::fs::symlink(site.path("kept/file"), site.path(ONE).join("link")).unwrap();
    let input = format!("#SBATCH --input={}/x\ncat", site.path("kept").display());
    site.script(ONE, "reads", &input);
    let enters = format!("-D {} -- true", site.path("kept").display());
    for (words, why) in [
        ("-o link -- true", "Permission denied"),
        (&*enters, "its directory"),
        ("reads", "cannot open the input file"),
    ] {
        let output = site.output(1, ONE, &format!("margay submit --wait {words}"));
        let text = said(&output);
        assert!(
            !output.status.success() && text.contains(why),
            "{words}: {text}"
        );
    }
    assert!(!site.path("kept/file").exists());

    // Much output, and its order.
    site.script(
        ONE,
        "much",
        "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exit 7",
    );
    site.refused(
        1,
        ONE,
        "margay submit --wait -o much.out much",
        "exit code 7",
    );
    let text = fs::read_to_string(site.path(ONE).join("much.out")).unwrap();
    assert!(
        text.lines()
            .enumerate()
            .all(|(at, line)| line == format!("line {at}"))
    );
    assert_eq!(text.lines().count(), 20000);

    // Nothing of a job is left there.
    site.until("the end of folders", || site.left_on(2) == 0);
    commands_of_the_other_host(&site);
    site.ok(1, "root", "margay down --system");
    nothing_is_left(&site.mark);
}

/// Commands of users on the other host ask as these, and change nothing of others.
fn commands_of_the_other_host(site: &Site) {
    site.script(
        ONE,
        "lasting",
        "echo $$ > process; trap '' TERM; sleep 600 & wait; wait",
    );
    let job = site.ok(2, ONE, "margay submit --parsable -o lasting.out lasting");
    let job = job.trim();
    assert_eq!(site.row("root", job)["user"], ONE);
    site.until("the job", || site.path(ONE).join("process").exists());
    site.refused(
        2,
        OTHER,
        &format!("margay cancel {job}"),
        "is of the user daemon",
    );
    site.refused(
        2,
        OTHER,
        "margay set policy backfill=none",
        "the right to change the rules",
    );
    site.refused(2, OTHER, "margay down --system", "needs the right of root");
    let text = site.ok(2, OTHER, "margay queue");
    assert!(text.contains(ONE), "{text}");
    assert_eq!(site.row(OTHER, job)["note"], "");
    // A job's user signals it, and ends it.
    site.ok(2, ONE, &format!("margay cancel {job}"));
    site.refused(2, ONE, &format!("margay wait {job}"), "cancelled");
    site.refused(
        2,
        ONE,
        "margay slurm srun true",
        &format!("which is {}", site.hosts.name(1)),
    );
    site.ok(2, "root", "margay node");
    // A job's own commands ask the queue, too.
    site.script(
        OTHER,
        "again",
        "margay submit --parsable -o second -- id -un",
    );
    site.ok(1, OTHER, "margay submit --wait -o first again");
    site.ok(1, OTHER, "margay wait --all");
    let second = fs::read_to_string(site.path(OTHER).join("second")).unwrap();
    assert_eq!(second.trim(), OTHER);
}

#[test]
fn hosts_are_found_again_and_a_program_that_others_can_change_is_not_run() {
    let Some(site) = Site::make(2) else { return };
    chmod(&site.path("margay"), 0o777);
    site.refused(
        1,
        "root",
        "margay up --system",
        "can be changed by others than root",
    );
    chmod(&site.path("margay"), 0o755);
    site.ok(
        1,
        "root",
        &format!(
            "margay up --system --slots 1 --hosts {}",
            site.hosts.names()
        ),
    );
    site.until("both hosts", || {
        site.ok(1, "root", "margay node").matches("idle").count() == 2
    });
    // The head is killed: the next one has the same hosts.
    let head = site.head(1);
    head.kill();
    site.until("its end", || head.has_ended());
    let text = site.ok(1, "root", "margay up --system");
    assert!(text.contains("2 slots on 2 of 2 hosts"), "{text}");
    site.ok(1, "root", "margay down --system");
    nothing_is_left(&site.mark);
}

#[test]
fn a_second_head_serves_all_users_and_takes_over() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let Some(site) = Site::make(3) else { return };
    let name = |host| site.hosts.name(host);
    let store = server.database("heads_of_all", "postgres");
    let hosts = site.hosts.names();
    site.ok(
        1,
        "root",
        &format!("margay up --system --slots 2 --hosts {hosts} --store {store}"),
    );
    site.refused(
        2,
        ONE,
        "margay up --system --standby",
        "needs the right of root",
    );
    let by = site.ok(
        2,
        "root",
        &format!("margay up --system --standby --store {store}"),
    );
    let expected = format!("this host stands by for the head on host {}", name(1));
    assert!(by.contains(&expected), "{by}");
    site.until("the name of the one that stands by", || {
        let node = site.ok(3, OTHER, "margay node");
        node.contains(&format!("standing by: {}", name(2)))
    });
    let again = site.ok(2, "root", "margay up --system --standby");
    assert!(again.contains(&expected), "{again}");

    // Commands of its users count as theirs, and not as root's.
    let lasting = |out: &str| {
        format!("id -un >> {out}\nid -G >> {out}\nwhile [ ! -e go ]; do sleep 0.05; done\nexit 3")
    };
    site.script(ONE, "stays", &lasting("stays.who"));
    site.script(ONE, "ends", &lasting("ends.who"));
    let submit = |script: &str| {
        let line = format!("margay submit --parsable -o {script}.out {script}");
        let job = site.ok(2, ONE, &line).trim().to_owned();
        let who = site.path(ONE).join(format!("{script}.who"));
        site.until("the job", || {
            fs::read_to_string(&who).is_ok_and(|text| text.lines().count() == 2)
        });
        let groups = number("-g", ONE).unwrap();
        let expected = format!("{ONE}\n{groups} 4 24\n");
        assert_eq!(fs::read_to_string(&who).unwrap(), expected);
        job
    };
    let (stays, ends) = (submit("stays"), submit("ends"));
    assert_eq!(site.row("root", &stays)["user"], ONE);
    let of = "is of the user daemon";
    site.refused(2, OTHER, &format!("margay cancel {stays}"), of);
    site.refused(2, OTHER, "margay set policy backfill=none", "is root");
    site.refused(
        2,
        ONE,
        "margay slurm srun true",
        &format!("which is {}", name(1)),
    );
    site.refused(2, OTHER, "margay down --system", "needs the right of root");

    // The head is killed: users' jobs go on, and their commands reach the next one.
    site.head(1).kill();
    site.until("the lead of the second host", || {
        let output = site.output(2, "root", "margay up --system");
        output.status.success() && !said(&output).contains("on host")
    });
    site.until("commands of the third host", || {
        let output = site.output(3, ONE, &format!("margay queue --json {stays}"));
        said(&output).contains("running")
    });
    site.refused(3, OTHER, &format!("margay cancel {ends}"), of);
    site.ok(3, ONE, &format!("margay cancel {ends}"));
    site.refused(2, ONE, &format!("margay wait {ends}"), "cancelled");
    fs::write(site.path(ONE).join("go"), "").unwrap();
    site.refused(2, ONE, &format!("margay wait {stays}"), "exit code 3");
    site.script(OTHER, "new", "id -un");
    site.ok(2, OTHER, "margay submit --wait -o new.out new");
    let new = fs::read_to_string(site.path(OTHER).join("new.out")).unwrap();
    assert_eq!(new.trim(), OTHER);

    // The first host stands by in its turn, and leads again.
    let by = site.ok(
        1,
        "root",
        &format!("margay up --system --standby --store {store}"),
    );
    assert!(by.contains(&name(2)), "{by}");
    site.ok(2, "root", "margay down --system");
    site.until("the lead of the first host", || {
        let output = site.output(1, OTHER, "margay node");
        output.status.success() && !said(&output).contains("standing by")
    });
    site.ok(1, ONE, "margay submit --wait -o last.out -- true");
    site.ok(1, "root", "margay down --system");
    nothing_is_left(&site.mark);
}

/// A service that ends with the test.
struct Service(PidFd);

impl Drop for Service {
    fn drop(&mut self) {
        self.0.kill();
    }
}

#[test]
fn jobs_of_users_take_turns_on_hosts() {
    let Some(site) = Site::make(2) else { return };
    let [a, b] = [1, 2].map(|host| site.hosts.name(host));
    site.ok(
        1,
        "root",
        &format!("margay up --system --slots 2 --hosts {a},{b}"),
    );
    let rule = "margay set queue day partition=day";
    site.refused(1, "root", rule, "margay part init");
    let started = site.ok(1, "root", "margay part init");
    let pid = started.split("process ").nth(1).unwrap();
    let service = Service(PidFd::open(pid.split(';').next().unwrap().parse().unwrap()).unwrap());
    let make = format!("margay part mkpart -hosts {a},{b} -rq 300 day");
    site.ok(1, "root", &make);
    site.ok(1, "root", rule);
    let says = "echo $MARGAY_RSH > way; while test ! -e stop; do id -u >> ../log; done";
    let log = site.path("log");
    fs::write(&log, "").unwrap();
    chmod(&log, 0o666);
    let jobs = [ONE, OTHER].map(|user| {
        site.script(user, "says", says);
        let job = site.ok(1, user, "margay submit --parsable -p day -N 2 -n 2 says");
        job.trim().to_owned()
    });
    let lines = || -> Vec<String> {
        let text = fs::read_to_string(&log).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let switches = || lines().windows(2).filter(|two| two[0] != two[1]).count();
    site.until("turns", || switches() > 3);
    assert!(switches() * 10 < lines().len(), "{}", switches());
    // What a job starts on the other host is held there, for its user alone.
    let way = fs::read_to_string(site.path(ONE).join("way")).unwrap();
    let name = way
        .split(" into ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let line = format!("margay-queue within {name} {b} \"id -u; id -G\"");
    let user = site.ok(2, ONE, "id -u");
    let said_there = site.ok(2, ONE, &line);
    assert_eq!(said_there, format!("{user}{}", site.ok(2, ONE, "id -G")));
    site.refused(2, OTHER, &line, "is none of the job's");
    for user in [ONE, OTHER] {
        site.script(user, "stop", "");
    }
    for (user, job) in [ONE, OTHER].iter().zip(&jobs) {
        site.ok(1, user, &format!("margay wait {job}"));
    }
    // Who lacks the right to run there does not.
    site.ok(1, "root", "margay part chpart -mod 700 day");
    let job = site.ok(1, ONE, "margay submit --parsable -p day -- true");
    let job = job.trim();
    site.output(1, ONE, &format!("margay wait {job}"));
    let row = site.row(ONE, job);
    assert_eq!(row["state"], "not-started", "{row}");
    site.ok(1, "root", "margay down --system");
    drop(service);
    nothing_is_left(&site.mark);
}
