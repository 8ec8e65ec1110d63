//! The parallel file system through its commands: standard tools on a mount, the loss of a stripe
//! directory while it is used, the death of the service, and what the commands refuse.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use margay_tests::{command, run, stage};

/// A place for stripe directories and a mount point; what is mounted ends with it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// Says why in words where nothing can be mounted.
    fn new() -> Option<Place> {
        if fs::File::open("/dev/fuse").is_err() {
            eprintln!("not run: /dev/fuse cannot be opened, which a mount takes");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        Some(Place { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mount(&self) -> PathBuf {
        self.path("mnt")
    }

    fn margay(&self, words: &[&str]) -> Command {
        let mut margay = command(stage().join("bin/margay"), 60);
        margay
            .arg("pfs")
            .args(words)
            .current_dir(self.folder.path())
            .env("XDG_STATE_HOME", self.path("state"));
        margay
    }

    fn pfs(&self, words: &[&str]) -> String {
        let output = run(&mut self.margay(words));
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, words: &[&str], why: &str) {
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

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn tool(program: &str, arguments: &[&str], folder: &Path) {
    let output = run(command(program, 60).args(arguments).current_dir(folder));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        said(&output)
    );
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

const DIRECTORIES: [&str; 4] = ["d1", "d2", "d3", "d4"];

#[test]
fn standard_tools_work_and_a_directory_is_lost_replaced_and_rebuilt() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    let create: Vec<&str> = [["create", "scratch"].as_slice(), &DIRECTORIES].concat();
    place.pfs(&[create.as_slice(), &["--parity", "1"]].concat());
    place.pfs(&["mount", "scratch", "mnt"]);
    // A repository with objects, links and permissions.
    let source = place.path("source");
    fs::create_dir(&source).unwrap();
    for n in 0..50_u64 {
        fs::write(source.join(format!("f{n}")), noise(n, 3000 * n as usize)).unwrap();
    }
    tool("git", &["init", "-q", "."], &source);
    tool("git", &["add", "."], &source);
    let commit = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-qm",
        "first",
    ];
    tool("git", &commit, &source);
    tool(
        "git",
        &["clone", "-q", "../source", "../mnt/clone"],
        &source,
    );
    tool("cp", &["-a", "source", "mnt/copy"], place.folder.path());
    tool(
        "sh",
        &["-c", "tar cf - source | tar xf - -C mnt"],
        place.folder.path(),
    );
    tool(
        "dd",
        &[
            "if=source/f49",
            "of=mnt/big",
            "bs=4k",
            "seek=1000",
            "conv=fsync",
            "status=none",
        ],
        place.folder.path(),
    );
    let all_right = || {
        tool("git", &["fsck", "--strict"], &mnt.join("clone"));
        tool("diff", &["-r", "source", "mnt/copy"], place.folder.path());
        tool("diff", &["-r", "source", "mnt/source"], place.folder.path());
        let big = fs::read(mnt.join("big")).unwrap();
        assert!(big[..4_096_000].iter().all(|byte| *byte == 0));
        assert!(big[4_096_000..] == noise(49, 3000 * 49));
    };
    all_right();
    fs::remove_dir_all(place.path("d2")).unwrap();
    fs::write(mnt.join("after"), noise(7, 1 << 20)).unwrap();
    tool("sync", &["mnt/after"], place.folder.path());
    assert!(
        place
            .pfs(&["status", "scratch"])
            .contains("degraded: 0 more")
    );
    all_right();
    place.refused(&["check", "scratch"], "is degraded");
    place.refused(
        &["replace", "scratch", "d1", "d6"],
        "do not have all of its data",
    );
    place.pfs(&["replace", "scratch", "d2", "d5"]);
    assert!(
        place
            .pfs(&["rebuild", "scratch", "--wait"])
            .contains("are complete")
    );
    assert!(
        place
            .pfs(&["check", "scratch"])
            .contains("everything is right")
    );
    // The new one replaces another.
    fs::remove_dir_all(place.path("d1")).unwrap();
    all_right();
    assert!(fs::read(mnt.join("after")).unwrap() == noise(7, 1 << 20));
    place.pfs(&["stop", "scratch"]);
    assert_eq!(fs::read_dir(&mnt).unwrap().count(), 0);
}

#[test]
fn two_directories_are_replaced_at_once_and_scrub_mends_a_scrambled_one() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    let create: Vec<&str> = [["create", "scratch"].as_slice(), &DIRECTORIES].concat();
    place.pfs(&[create.as_slice(), &["--parity", "2"]].concat());
    place.pfs(&["mount", "scratch", "mnt"]);
    let bytes = noise(1, 8 << 20);
    fs::write(mnt.join("file"), &bytes).unwrap();
    for old in ["d1", "d3"] {
        fs::remove_dir_all(place.path(old)).unwrap();
    }
    assert!(fs::read(mnt.join("file")).unwrap() == bytes);
    place.pfs(&["replace", "scratch", "d1", "n1"]);
    place.pfs(&["replace", "scratch", "d3", "n3"]);
    place.pfs(&["rebuild", "scratch", "--wait"]);
    place.pfs(&["check", "scratch"]);
    // Noise in the middle of a directory's data.
    let data = fs::File::options()
        .write(true)
        .open(place.path("d2/data"))
        .unwrap();
    data.write_all_at(&noise(2, 300_000), 100_000).unwrap();
    assert!(fs::read(mnt.join("file")).unwrap() == bytes);
    place.refused(&["check", "scratch"], "scrub");
    place.pfs(&["scrub", "scratch"]);
    assert!(
        place
            .pfs(&["check", "scratch"])
            .contains("everything is right")
    );
    place.pfs(&["stop", "scratch"]);
    // The same without a service.
    place.pfs(&["check", "scratch"]);
}

#[test]
fn what_was_synced_outlives_the_service_and_wrong_words_are_refused() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    place.refused(
        &["create", "scratch", "d1", "--parity", "1"],
        "name at least 2",
    );
    place.refused(&["create", "a/b", "d1", "d2"], "is no name");
    place.refused(&["create", "scratch", "d1", "d1"], "named twice");
    place.refused(
        &["mount", "scratch", "mnt"],
        "there is no parallel file system",
    );
    let create: Vec<&str> = [["create", "scratch"].as_slice(), &DIRECTORIES].concat();
    place.pfs(&create);
    place.refused(&create, "already");
    place.refused(&["create", "other", "d1", "d9"], "is not empty");
    place.refused(&["stop", "scratch"], "does not run");
    place.refused(&["mount", "scratch", "nowhere"], "cannot mount");
    place.pfs(&["mount", "scratch", "mnt"]);
    place.refused(&["mount", "scratch", "mnt"], "is mounted at");
    let bytes = noise(3, 3 << 20);
    let file = fs::File::options()
        .write(true)
        .create_new(true)
        .open(mnt.join("file"))
        .unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    // The service is killed while the file is open and half of another one is written.
    fs::write(mnt.join("unsynced"), &bytes).unwrap();
    let state = place.path("state").display().to_string();
    let killed = fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        let of = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        of("cmdline").ends_with(b"\0serve\0scratch\0")
            && String::from_utf8_lossy(&of("environ"))
                .contains(&format!("XDG_STATE_HOME={state}\0"))
    });
    let killed = killed.expect("the service runs").file_name();
    tool(
        "kill",
        &["-9", &killed.to_string_lossy()],
        place.folder.path(),
    );
    // Its stripe directories are free when it is gone, or has only its parent to be told that.
    let killed = Path::new("/proc").join(&killed).join("stat");
    while fs::read_to_string(&killed).is_ok_and(|stat| !stat.contains(") Z ")) {
        std::thread::yield_now();
    }
    drop(file);
    place.refused(&["mount", "scratch", "mnt"], "has died; unmount that");
    tool(
        "sh",
        &["-c", "fusermount3 -u mnt || umount mnt"],
        place.folder.path(),
    );
    fs::remove_dir_all(place.path("d4")).unwrap();
    place.pfs(&["mount", "scratch", "mnt"]);
    assert!(fs::read(mnt.join("file")).unwrap() == bytes);
    place.pfs(&["umount", "scratch"]);
    place.refused(&["umount", "scratch"], "is not mounted");
    place.pfs(&["stop", "scratch"]);
}
