//! A queue for tests that call the commands of other batch systems.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::hosts::Hosts;
use crate::queue::{place, reach};
use crate::{command, run, stage};

/// A queue of a test's own; it ends with the test.
pub struct Queue {
    pub folder: tempfile::TempDir,
    /// What `margay up` has for it.
    pub place: Vec<String>,
    hosts: Option<Hosts>,
}

/// All that a command printed.
pub fn said(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

impl Queue {
    /// Starts one with this many slots.
    ///
    /// # Panics
    /// When the test cannot go on.
    pub fn up(slots: u32) -> Queue {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("run")).unwrap();
        let (hosts, place) = place(slots);
        let queue = Queue {
            folder,
            place,
            hosts,
        };
        let mut up = queue.prepared(stage().join("bin/margay"));
        let output = run(up.arg("up").args(&queue.place));
        assert!(output.status.success(), "{}", said(&output));
        queue
    }

    /// A file in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program that would use it.
    pub fn prepared(&self, program: PathBuf) -> Command {
        let mut prepared = command(program, 120);
        prepared
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("USER", "someone")
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_RUNTIME_DIR", self.path("run"));
        reach(&mut prepared, self.hosts.as_ref());
        prepared
    }

    /// Calls a command of another batch system.
    ///
    /// # Panics
    /// When the test cannot go on.
    pub fn call(&self, words: &[&str]) -> Output {
        let program = stage().join("share/margay/compat/bin").join(words[0]);
        run(self.prepared(program).args(&words[1..]))
    }

    /// What a command prints that succeeds.
    ///
    /// # Panics
    /// When the test cannot go on.
    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same without the end of the line.
    ///
    /// # Panics
    /// When the test cannot go on.
    pub fn line(&self, words: &[&str]) -> String {
        self.ok(words).trim_end().to_owned()
    }

    /// Checks that a command fails with this exit code and says why.
    ///
    /// # Panics
    /// When the test cannot go on.
    pub fn refused(&self, words: &[&str], code: i32, why: &str) {
        let output = self.call(words);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            said(&output)
        );
        assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
    }

    /// Calls `margay`.
    ///
    /// # Panics
    /// When the test cannot go on.
    pub fn margay(&self, words: &[&str]) -> Output {
        run(self.prepared(stage().join("bin/margay")).args(words))
    }

    /// Waits for a job, whatever its end.
    ///
    /// # Panics
    /// When the test cannot go on.
    pub fn wait(&self, job: &str) {
        let number = job.split(['.', '[']).next().unwrap();
        self.margay(&["wait", number]);
    }

    /// The text of a file in its folder.
    ///
    /// # Panics
    /// When the test cannot go on.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Writes a file into its folder.
    ///
    /// # Panics
    /// When the test cannot go on.
    pub fn script(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Waits until a file has a whole line.
    ///
    /// # Panics
    /// When the test cannot go on.
    pub fn until(&self, name: &str) {
        while !fs::read_to_string(self.path(name)).is_ok_and(|text| text.ends_with('\n')) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Also after a test that failed.
        for words in [&["cancel", "--all"][..], &["wait", "--all"], &["down"]] {
            let _ = self
                .prepared(stage().join("bin/margay"))
                .args(words)
                .output();
        }
    }
}
