//! A place in which tests make and mount a parallel file system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{command, run, stage};

/// A place for stripe directories and a mount point; what is mounted ends with it.
pub struct Place {
    pub folder: tempfile::TempDir,
}

impl Place {
    /// Says why in words where nothing can be mounted.
    pub fn new() -> Option<Place> {
        if fs::File::open("/dev/fuse").is_err() {
            eprintln!("not run: /dev/fuse cannot be opened, which a mount takes");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        Some(Place { folder })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn mount(&self) -> PathBuf {
        self.path("mnt")
    }

    pub fn margay(&self, words: &[&str]) -> Command {
        let mut margay = command(stage().join("bin/margay"), 60);
        margay
            .arg("pfs")
            .args(words)
            .current_dir(self.folder.path())
            .env("XDG_STATE_HOME", self.path("state"));
        margay
    }

    pub fn pfs(&self, words: &[&str]) -> String {
        let output = run(&mut self.margay(words));
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The process of the service, by its folder in `/proc`.
    pub fn service(&self) -> Option<PathBuf> {
        let state = format!("XDG_STATE_HOME={}\0", self.path("state").display());
        let found = fs::read_dir("/proc").unwrap().flatten().find(|entry| {
            let of = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let words = String::from_utf8_lossy(&of("cmdline")).into_owned();
            words.contains("\0serve\0")
                && words.ends_with("\0scratch\0")
                && String::from_utf8_lossy(&of("environ")).contains(&state)
        });
        found.map(|entry| entry.path())
    }

    /// Sends a signal to the service, and returns when it is gone.
    pub fn kill_service(&self, signal: &str) {
        let service = self.service().expect("the service runs");
        let number = service.file_name().unwrap().to_string_lossy();
        tool("kill", &[signal, &number], self.folder.path());
        Place::until_gone(&service);
    }

    /// Returns when a service that ends is gone.
    pub fn until_gone(service: &Path) {
        // Its stripe directories are free when it is gone, or only waits for its parent to notice.
        // Its first thread may wait for that while others still have them.
        let threads = || fs::read_dir(service.join("task")).map_or(0, Iterator::count);
        let stat = service.join("stat");
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) || threads() > 1 {
            std::thread::yield_now();
        }
    }

    /// Whether anything is mounted at the mount point.
    pub fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(&format!(" {} ", self.mount().display()))
    }

    pub fn refused(&self, words: &[&str], why: &str) {
        let output = run(&mut self.margay(words));
        assert!(!output.status.success(), "{words:?} succeeded");
        assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Where a test has failed half-way; otherwise nothing is mounted or runs.
        let _ = self.margay(&["stop", "scratch"]).output();
        let _ = Command::new("umount").arg("-l").arg(self.mount()).output();
    }
}

/// A small disk in memory, until this is dropped.
pub struct Disk(PathBuf);

impl Disk {
    /// One in the place, as that name. Only root can make it.
    pub fn new(place: &Place, name: &str, bytes: u64) -> Disk {
        let path = place.path(name);
        fs::create_dir(&path).unwrap();
        let size = format!("size={bytes}");
        let words = ["-t", "tmpfs", "-o", &size, "none", name];
        tool("mount", &words, place.folder.path());
        Disk(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The directories of a [mounted] file system.
pub const DIRECTORIES: [&str; 4] = ["d1", "d2", "d3", "d4"];

/// A file system of four directories, mounted; none where nothing can be.
pub fn mounted(parity: &str) -> Option<Place> {
    let place = Place::new()?;
    let create: Vec<&str> = [["create", "scratch"].as_slice(), &DIRECTORIES].concat();
    place.pfs(&[create.as_slice(), &["--parity", parity]].concat());
    place.pfs(&["mount", "scratch", "mnt"]);
    Some(place)
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn tool(program: &str, arguments: &[&str], folder: &Path) {
    let output = run(command(program, 60).args(arguments).current_dir(folder));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        said(&output)
    );
}

pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}
