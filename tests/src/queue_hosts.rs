//! A user's queue of several hosts, through its commands.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::batch::said;
use crate::hosts::Hosts;
use crate::jobs::{MARK, mark};
use crate::{command, run, stage};

/// A queue of hosts that may be switched off; it ends with the test.
pub struct Queue {
    pub hosts: Hosts,
    pub mark: String,
    /// The host on which its commands are called; none is this machine.
    pub on: Option<u32>,
    /// A process in whose mount namespace they are called, and the head is.
    pub within: Option<u32>,
}

/// Where the commands of a queue of these hosts keep what they know, and how they reach the hosts.
#[must_use]
pub fn environment(hosts: &Hosts, mark: &str) -> [(&'static str, OsString); 4] {
    let path = |name: &str| hosts.folder.path().join(name).into_os_string();
    [
        ("XDG_STATE_HOME", path("state")),
        ("XDG_RUNTIME_DIR", path("run")),
        ("MARGAY_RSH", path("reach")),
        (MARK, mark.into()),
    ]
}

impl Queue {
    pub fn up(hosts: Hosts) -> Queue {
        let mark = mark(&mut Command::new("true"));
        let queue = Queue {
            hosts,
            mark,
            on: None,
            within: None,
        };
        // A host that is off cannot be reached.
        queue.hosts.write_reach(&queue.hosts.shell());
        fs::create_dir(queue.path("run")).unwrap();
        fs::create_dir(queue.path("tmp")).unwrap();
        queue
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.hosts.folder.path().join(name)
    }

    pub fn margay(&self, line: &str) -> Command {
        let program = stage().join("bin/margay");
        let mut margay = match self.on.map(|host| self.hosts.name(host)) {
            None if self.within.is_some() => {
                let mut command = command("nsenter", 120);
                let pid = self.within.unwrap_or_default();
                command.arg(format!("--mount=/proc/{pid}/ns/mnt"));
                command.args(["--", "env", "-C"]).arg(self.path(""));
                command.arg(program);
                command
            }
            None => command(program, 120),
            Some(name) => {
                let mut command = command("ip", 120);
                command
                    .args(["netns", "exec", &name, "unshare", "-u", "sh", "-c"])
                    .args(["hostname $0; exec \"$@\"", &name])
                    .arg(program);
                command
            }
        };
        margay
            .args(line.split_whitespace())
            .current_dir(self.hosts.folder.path())
            .env("HOME", self.hosts.folder.path())
            .env("TMPDIR", self.path("tmp"))
            .envs(environment(&self.hosts, &self.mark));
        margay
    }

    /// A program of the installation.
    pub fn program(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = command(stage().join("bin").join(words.next().unwrap()), 120);
        command
            .args(words)
            .current_dir(self.hosts.folder.path())
            .env("MARGAY_PARTITIONS", self.path("common"))
            .envs(environment(&self.hosts, &self.mark));
        command
    }

    /// The applications in partitions, by the processes of their launchers.
    pub fn applications(&self) -> Vec<(u32, Value)> {
        let output = run(&mut self.program("margay part pspart -json ."));
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = all["applications"].as_array().unwrap().clone();
        let pid = |own: &Value| u32::try_from(own["pid"].as_u64().unwrap()).unwrap();
        all.into_iter().map(|own| (pid(&own), own)).collect()
    }

    pub fn ok(&self, line: &str) -> String {
        let output = run(&mut self.margay(line));
        assert!(output.status.success(), "{line}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn refused(&self, line: &str, why: &str) {
        let output = run(&mut self.margay(line));
        let text = said(&output);
        assert!(
            !output.status.success() && text.contains(why),
            "{line}: {text}"
        );
    }

    /// Runs a script as a job, and returns what it printed.
    pub fn job(&self, options: &str, script: &str) -> (Output, String) {
        fs::write(self.path("script"), format!("#!/bin/sh\n{script}\n")).unwrap();
        let output = run(&mut self.margay(&format!("submit -W -o out {options} script")));
        let printed = fs::read_to_string(self.path("out")).unwrap_or_default();
        (output, printed)
    }

    /// Submits a job that says where it runs and goes on until it is ended.
    pub fn begin(&self, options: &str, out: &str) -> String {
        let script = format!("#!/bin/sh\nhostname >> {out}\nsleep 600\n");
        fs::write(self.path("lasting"), script).unwrap();
        let line = format!("submit --parsable -o log {options} lasting");
        self.ok(&line).trim().to_owned()
    }

    pub fn row(&self, job: &str) -> Value {
        let text = self.ok(&format!("queue --json {job}"));
        let rows: Value = serde_json::from_str(&text).unwrap();
        rows[0].clone()
    }

    pub fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        for _ in 0..1200 {
            if is_so() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{what} does not come: {}", self.ok("node"));
    }

    pub fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The state of a host in `margay node`.
    pub fn state_of(&self, host: u32) -> String {
        let (listed, name) = (self.ok("node"), self.hosts.name(host));
        let line = listed.lines().find(|line| line.starts_with(&name));
        let words = line.unwrap_or_else(|| panic!("{name} is not in {listed}"));
        words.split_whitespace().nth(1).unwrap().to_owned()
    }

    /// The slots of a host.
    pub fn slots_of_a_host(&self) -> u32 {
        let listed = self.ok("node");
        let line = listed.lines().nth(1).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Also after a test that failed.
        let _ = self.margay("cancel --all").output();
        let _ = self.margay("wait --all").output();
        let _ = self.margay("down").output();
    }
}
