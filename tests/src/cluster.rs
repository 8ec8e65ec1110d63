//! Hosts on one machine that have a parallel file system together.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::hosts::Hosts;
use crate::{run, stage};

/// How long something may take that happens by itself.
const WITHIN: Duration = Duration::from_secs(60);

/// Hosts of which the first has the service.
pub struct Cluster {
    pub hosts: Hosts,
}

impl Cluster {
    pub fn new(number: u32) -> Option<Cluster> {
        Cluster::of(|| Hosts::with_mounts(number))
    }

    /// Hosts that are reached by OpenSSH.
    pub fn over_ssh(number: u32) -> Option<Cluster> {
        Cluster::of(|| Hosts::with_ssh(number))
    }

    fn of(hosts: impl FnOnce() -> Option<Hosts>) -> Option<Cluster> {
        if fs::File::open("/dev/fuse").is_err() {
            eprintln!("not run: /dev/fuse cannot be opened, which a mount takes");
            return None;
        }
        let hosts = hosts()?;
        fs::create_dir(hosts.folder.path().join("mnt")).unwrap();
        Some(Cluster { hosts })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.hosts.folder.path().join(name)
    }

    /// What a command of the shell in the folder of the hosts is there.
    pub fn here(&self, text: &str) -> String {
        let folder = self.hosts.folder.path().display();
        let shell = self.hosts.shell();
        format!(
            "cd {folder}; export XDG_STATE_HOME={folder}/state TMPDIR={folder} MARGAY_RSH={}; {text}",
            shell.display()
        )
    }

    pub fn on(&self, host: u32, text: &str) -> String {
        self.hosts.said(host, &self.here(text))
    }

    pub fn pfs(&self, words: &str) -> String {
        let margay = stage().join("bin/margay");
        self.on(1, &format!("{} pfs {words}", margay.display()))
    }

    pub fn refused(&self, words: &str) -> String {
        let margay = stage().join("bin/margay");
        let text = self.here(&format!("{} pfs {words}", margay.display()));
        let output = run(&mut self.hosts.on(1, &text));
        assert!(!output.status.success(), "{words} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Begins a command on a host.
    pub fn begin(&self, host: u32, text: &str) -> Child {
        let mut command = self.hosts.on(host, &self.here(text));
        command.stdout(Stdio::null()).spawn().unwrap()
    }

    /// Makes a file system with a directory on each of three hosts, and mounts it on all of them.
    pub fn mounted(&self) {
        let [a, b, c] = [1, 2, 3].map(|host| self.hosts.name(host));
        let folder = self.hosts.folder.path().display();
        self.pfs(&format!(
            "create scratch d1 {b}:{folder}/d2 {c}:{folder}/d3"
        ));
        self.pfs(&format!("mount scratch mnt --hosts {a},{b},{c}"));
    }

    pub fn mounted_again(&self) {
        let names = self.hosts.named("@h[1-2,3]");
        self.pfs(&format!("mount scratch mnt --hosts '{names}'"));
    }

    pub fn path_is_on(&self, host: u32, path: &str) -> bool {
        self.on(host, &format!("test -e {path} && echo yes || echo no")) == "yes\n"
    }

    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + WITHIN;
        while !holds() {
            assert!(
                Instant::now() < end,
                "{what}: {}",
                self.pfs("status scratch")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The process of this program on a host that has a file open whose path ends so.
    pub fn keeper(&self, host: u32, end: &str) -> u32 {
        let find = format!(
            "for p in $(ip netns pids {}); do ls -l /proc/$p/fd 2>/dev/null | grep -q -- '{end}$' && echo $p; done; true",
            self.hosts.name(host)
        );
        let found = self.on(host, &find);
        found
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("'{found}' is not one process"))
    }

    /// Kills the processes of a host whose words have something in them.
    pub fn kill(&self, host: u32, word: &str) {
        let name = self.hosts.name(host);
        self.on(
            host,
            &format!(
                "for p in $(ip netns pids {name}); do [ $p = $$ ] || ! tr '\\0' ' ' < /proc/$p/cmdline | \
                 grep -q -- '^{word}' || kill -KILL $p; done"
            ),
        );
    }

    pub fn nothing_is_left(&self) {
        for host in 1..=self.hosts.number {
            let name = self.hosts.name(host);
            self.until("processes end", || {
                let pids = self.on(
                    host,
                    &format!("ip netns pids {name} | xargs -r ps -o args= -p"),
                );
                !pids.contains("margay")
            });
            // Mounts of other tests may have been there when the host was made.
            let folder = self.hosts.folder.path().display();
            let mounts = format!("grep '{folder}.* pfs:' /proc/self/mountinfo || true");
            let mounts = self.on(host, &mounts);
            assert_eq!(mounts, "", "host {host}");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Where a test has failed half-way.
        if std::thread::panicking() {
            for host in 1..=self.hosts.number {
                let folder = self.hosts.folder.path().display();
                let ends = format!(
                    "umount -l {folder}/mnt; ip netns pids {} | xargs -r kill -KILL",
                    self.hosts.name(host)
                );
                let _ = run(&mut self.hosts.on(host, &ends));
            }
        }
    }
}
