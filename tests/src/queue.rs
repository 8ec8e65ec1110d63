//! A user's queue in a folder of its own, through its commands.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::batch::said;
use crate::hosts::Hosts;
use crate::postgres::Postgres;
use crate::{command, run, stage};

/// Set where the queues of a test program have their states in a database.
pub const IN_DATABASE: &str = "MARGAY_TEST_IN_DATABASE";
/// Set to a number where the slots of the queues of a test program are on as many hosts.
pub const ON_HOSTS: &str = "MARGAY_TEST_ON_HOSTS";

/// Where a queue has its slots and its state, as `margay up` has it: on this host, or, where
/// [`ON_HOSTS`] is set, divided among hosts, of which each has at least one; in a file, or, where
/// [`IN_DATABASE`] is set, in a database of its own.
///
/// # Panics
/// When hosts or a database are wanted that cannot be made.
#[must_use]
pub fn place(slots: u32) -> (Option<Hosts>, Vec<String>) {
    static DATABASES: AtomicU32 = AtomicU32::new(0);
    let (hosts, mut words) = slots_of(slots);
    if env::var_os(IN_DATABASE).is_some() {
        let server = Postgres::shared().expect("who sets it knows that there is a server");
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let url = server.database(&format!("queue{number}"), "postgres");
        words.extend(["--store".to_owned(), url]);
    }
    (hosts, words)
}

fn slots_of(slots: u32) -> (Option<Hosts>, Vec<String>) {
    let Some(number) = env::var(ON_HOSTS).ok().and_then(|n| n.parse().ok()) else {
        return (None, vec!["--slots".to_owned(), slots.to_string()]);
    };
    let hosts = Hosts::make(number).expect("who sets it knows that hosts can be made");
    let each = |host: u32| slots / number + u32::from(host <= slots % number);
    let list: Vec<String> = (1..=number.min(slots))
        .map(|host| format!("{}:{}", hosts.name(host), each(host)))
        .collect();
    (Some(hosts), vec!["--hosts".to_owned(), list.join(",")])
}

/// Lets a command reach the hosts of its queue.
pub fn reach(command: &mut Command, hosts: Option<&Hosts>) {
    if let Some(hosts) = hosts {
        command.env("MARGAY_RSH", hosts.shell());
    }
}

/// A queue of its own; it ends with the test.
pub struct Queue {
    pub folder: tempfile::TempDir,
    hosts: Option<Hosts>,
}

impl Queue {
    /// Without a head yet.
    pub fn not_up() -> Queue {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("run")).unwrap();
        let hosts = None;
        Queue { folder, hosts }
    }

    /// With its slots and its state where [`place`] has them.
    pub fn up(slots: u32) -> Queue {
        let mut queue = Queue::not_up();
        let (hosts, words) = place(slots);
        queue.hosts = hosts;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        queue.ok(&[&["up"], &words[..]].concat());
        queue
    }

    /// With its state in this store.
    pub fn up_in(slots: u32, store: &str) -> Queue {
        let queue = Queue::not_up();
        queue.ok(&["up", "--slots", &slots.to_string(), "--store", store]);
        queue
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.path("state/margay/queue")
    }

    /// A program with the queue's folders.
    pub fn prepared(&self, program: impl AsRef<OsStr>) -> Command {
        let mut prepared = command(program, 120);
        prepared
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_RUNTIME_DIR", self.path("run"));
        reach(&mut prepared, self.hosts.as_ref());
        prepared
    }

    pub fn margay(&self, words: &[&str]) -> Command {
        let mut margay = self.prepared(stage().join("bin/margay"));
        margay.args(words);
        margay
    }

    pub fn ok(&self, words: &[&str]) -> String {
        let output = run(&mut self.margay(words));
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn refused(&self, words: &[&str], why: &str) {
        let output = run(&mut self.margay(words));
        assert!(!output.status.success(), "{words:?} succeeded");
        assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
    }

    /// Submits a job, and returns its number.
    pub fn submit(&self, words: &[&str]) -> String {
        let number = self.ok(&[&["submit", "--parsable"], words].concat());
        number.trim().to_owned()
    }

    pub fn rows(&self, words: &[&str]) -> Vec<Value> {
        let text = self.ok(&[&["queue", "--json"], words].concat());
        serde_json::from_str(&text).unwrap()
    }

    pub fn state_of(&self, job: &str) -> String {
        self.rows(&[job])[0]["state"].as_str().unwrap().to_owned()
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn script(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Waits until a file is there with a line.
    pub fn until(&self, name: &str) {
        while !fs::read_to_string(self.path(name)).is_ok_and(|text| text.ends_with('\n')) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The process of the head.
    pub fn head(&self) -> Option<u32> {
        let said = said(&run(&mut self.margay(&["up"])));
        said.split("process ")
            .nth(1)?
            .split(')')
            .next()?
            .parse()
            .ok()
    }

    pub fn socket(&self) -> UnixStream {
        let address = fs::read_to_string(self.state().join("address")).unwrap();
        UnixStream::connect(address.trim_end()).unwrap()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Also after a test that failed.
        let _ = self.margay(&["cancel", "--all"]).output();
        let _ = self.margay(&["wait", "--all"]).output();
        let _ = self.margay(&["down"]).output();
    }
}
