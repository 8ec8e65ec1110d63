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
            &["margay", "margay-machine", "margay-queue", "mpiexec"],
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

    /// Folders of jobs on a host.
    fn left_on(&self, host: u32) -> usize {
        let name = format!("of/lib.{}/margay/jobs", self.hosts.name(host));
        fs::read_dir(self.path(&name)).map_or(0, Iterator::count)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Also after a test that failed.
        let _ = self.on(1, "root", "margay cancel --all").output();
        let _ = self.on(1, "root", "margay wait --all").output();
        let _ = self.on(1, "root", "margay down --system").output();
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
    let text = site.ok(1, "root", "margay up --system");
    let head = text.split("process ").nth(1).unwrap();
    let head: String = head.chars().take_while(char::is_ascii_digit).collect();
    let head = PidFd::open(head.parse().unwrap()).unwrap();
    head.kill();
    site.until("its end", || head.has_ended());
    let text = site.ok(1, "root", "margay up --system");
    assert!(text.contains("2 slots on 2 of 2 hosts"), "{text}");
    site.ok(1, "root", "margay down --system");
    nothing_is_left(&site.mark);
}
