//! The parallel file system through its commands: standard tools on a mount, the loss of a stripe
//! directory while it is used, the death of the service, and what the commands refuse.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use margay_tests::jobs::Built;
use margay_tests::pfs::{Place, noise, said, tool};
use margay_tests::{command, run, stage};

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
    // It waits for what it rebuilds, though another one has no replacement yet.
    place.refused(&["rebuild", "scratch", "--wait"], "replace scratch");
    let status = place.pfs(&["status", "scratch"]);
    let is = |how, name| status.contains(&format!("  {how:13} {}\n", place.path(name).display()));
    assert!(is("good", "n1") && is("failed", "d3"), "{status}");
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
    // The service that was started for it ends.
    place.refused(&["mount", "scratch", "d1"], "is a stripe directory");
    place.refused(&["stop", "scratch"], "does not run");
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
    place.kill_service("-9");
    drop(file);
    fs::remove_dir_all(place.path("d4")).unwrap();
    assert!(place.pfs(&["mount", "scratch", "mnt"]).contains("had died"));
    assert!(fs::read(mnt.join("file")).unwrap() == bytes);
    place.pfs(&["umount", "scratch"]);
    place.refused(&["umount", "scratch"], "is not mounted");
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn nothing_is_left_behind_by_a_service_that_ends() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    let create: Vec<&str> = [["create", "scratch"].as_slice(), &DIRECTORIES].concat();
    place.pfs(&create);
    // The end of the machine, while a program has a file open and does not sync it.
    place.pfs(&["mount", "scratch", "mnt"]);
    let file = fs::File::create(mnt.join("open")).unwrap();
    file.write_all_at(b"written last", 100_000).unwrap();
    place.refused(&["stop", "scratch"], "end what uses it");
    place.kill_service("-TERM");
    assert!(!place.is_mounted());
    assert!(!place.path("state/margay/pfs/scratch.sock").exists());
    assert!(file.write_all_at(b"too late", 0).is_err());
    drop(file);
    // Its death, found by each command that may be the next.
    for next in ["umount", "stop", "mount"] {
        place.pfs(&["mount", "scratch", "mnt"]);
        let bytes = fs::read(mnt.join("open")).unwrap();
        assert!(bytes[100_000..] == *b"written last" && bytes.len() == 100_012);
        place.kill_service("-9");
        assert!(place.pfs(&["list"]).contains("scratch  stopped"));
        let words: &[&str] = match next {
            "mount" => &["mount", "scratch", "mnt"],
            _ => &[next, "scratch"],
        };
        assert!(place.pfs(words).contains("had died"), "{next}");
        assert_eq!(place.is_mounted(), next == "mount");
    }
    // Somebody else unmounts, and at once it is mounted again.
    tool(
        "sh",
        &["-c", "fusermount3 -u mnt || umount mnt"],
        place.folder.path(),
    );
    place.pfs(&["mount", "scratch", "mnt"]);
    place.pfs(&["stop", "scratch"]);
    assert!(place.service().is_none() && !place.is_mounted());
}

#[test]
fn without_parity_a_lost_directory_is_an_error_and_never_wrong_data() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    let create: Vec<&str> = [["create", "scratch"].as_slice(), &DIRECTORIES].concat();
    place.pfs(&[create.as_slice(), &["--parity", "0"]].concat());
    place.pfs(&["mount", "scratch", "mnt"]);
    fs::write(mnt.join("file"), noise(5, 1 << 20)).unwrap();
    tool("sync", &["mnt/file"], place.folder.path());
    fs::remove_dir_all(place.path("d3")).unwrap();
    let file = fs::File::options()
        .write(true)
        .open(mnt.join("file"))
        .unwrap();
    let _ = file.write_all_at(&noise(6, 1 << 20), 0);
    assert!(file.sync_all().is_err());
    drop(file);
    assert!(fs::read(mnt.join("file")).is_err());
    place.refused(&["stop", "scratch"], "not stored");
    assert!(place.service().is_none() && !place.is_mounted());
    place.refused(&["mount", "scratch", "mnt"], "3 of 4 stripe directories");
}

#[test]
fn a_quota_refuses_what_is_too_much_and_is_kept() {
    let Some(place) = Place::new() else { return };
    let create: Vec<&str> = [["create", "scratch"].as_slice(), &DIRECTORIES].concat();
    place.pfs(&create);
    place.pfs(&["mount", "scratch", "mnt"]);
    let user = fs::metadata(place.path("d1")).unwrap();
    let user = std::os::unix::fs::MetadataExt::uid(&user).to_string();
    let set = |more: &[&str]| {
        let words = ["quota", "scratch", "--user", &user];
        place.pfs(&[words.as_slice(), more].concat());
    };
    set(&["--space", "3M"]);
    // The top directory is one of the files.
    set(&["--files", "4"]);
    let is_over = |error: std::io::Error| error.kind() == std::io::ErrorKind::QuotaExceeded;
    let path = place.mount().join("file");
    let bytes = noise(1, 4 << 20);
    assert!(fs::write(&path, &bytes).is_err_and(is_over));
    let len = fs::metadata(&path).unwrap().len();
    assert!((2 << 20..=3 << 20).contains(&len), "{len}");
    assert!(fs::read(&path).unwrap() == bytes[..len as usize]);
    fs::write(place.mount().join("empty"), b"").unwrap();
    fs::create_dir(place.mount().join("folder")).unwrap();
    assert!(fs::create_dir(place.mount().join("more")).is_err_and(is_over));
    // It is kept, also where the service is started anew, and set while none runs.
    place.pfs(&["stop", "scratch"]);
    let quota = place.pfs(&["quota", "scratch"]);
    assert!(quota.contains(" of 3.0 MiB, 4 of 4 files"), "{quota}");
    set(&["--space", "none"]);
    place.pfs(&["mount", "scratch", "mnt"]);
    fs::write(&path, &bytes).unwrap();
    let status = place.pfs(&["status", "scratch"]);
    assert!(status.contains("4.0 MiB, 4 of 4 files"), "{status}");
    assert!(fs::write(place.mount().join("more"), b"").is_err_and(is_over));
    fs::remove_file(&path).unwrap();
    fs::write(place.mount().join("more"), b"").unwrap();
    place.refused(
        &["quota", "scratch", "--user", "no-such", "--files", "1"],
        "no user",
    );
    place.refused(&["quota", "scratch", "--user", &user], "name a limit");
    place.refused(
        &["quota", "scratch", "--user", &user, "--space", "x"],
        "no limit",
    );
    // A group that nobody here is in, by the group of a directory.
    let shared = place.mount().join("folder");
    if std::os::unix::fs::chown(&shared, None, Some(54_321)).is_ok() {
        set(&["--files", "none"]);
        tool("chmod", &["g+s", "mnt/folder"], place.folder.path());
        let words = ["quota", "scratch", "--group", "54321", "--space", "1M"];
        place.pfs(&[words.as_slice(), &["--files", "2"]].concat());
        let path = shared.join("file");
        assert!(fs::write(&path, &bytes).is_err_and(is_over));
        assert!(fs::write(shared.join("more"), b"").is_err_and(is_over));
        let quota = place.pfs(&["quota", "scratch"]);
        let line = quota.lines().find(|line| line.contains("group 54321"));
        assert!(
            line.is_some_and(|line| line.ends_with(" of 1.0 MiB, 2 of 2 files")),
            "{quota}"
        );
    }
    place.refused(&["quota", "scratch", "--files", "1"], "--user or --group");
    place.refused(
        &["quota", "scratch", "--group", "no-such", "--files", "1"],
        "no group",
    );
    place.pfs(&["check", "scratch"]);
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn a_spare_takes_the_place_of_a_directory_that_is_lost() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    let create: Vec<&str> = [["create", "scratch"].as_slice(), &DIRECTORIES].concat();
    place.refused(
        &[create.as_slice(), &["--spare", "d1"]].concat(),
        "named twice",
    );
    place.pfs(&[create.as_slice(), &["--spare", "s1"]].concat());
    place.refused(&["spare", "scratch", "d1"], "is a stripe directory");
    place.refused(&["spare", "scratch", "s1"], "already");
    place.pfs(&["spare", "scratch", "s2"]);
    place.pfs(&["mount", "scratch", "mnt", "--atime", "always"]);
    place.pfs(&["spare", "scratch", "s2", "--remove"]);
    place.refused(&["spare", "scratch", "s2", "--remove"], "is no spare");
    let bytes = noise(9, 4 << 20);
    fs::write(mnt.join("file"), &bytes).unwrap();
    let file = fs::File::open(mnt.join("file")).unwrap();
    file.sync_all().unwrap();
    place.pfs(&["rebuild", "scratch", "--share", "50"]);
    fs::remove_dir_all(place.path("d3")).unwrap();
    // Nobody does anything; the file is read and written meanwhile.
    while !place
        .pfs(&["status", "scratch"])
        .contains("took the place of")
    {
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == bytes);
    }
    place.pfs(&["rebuild", "scratch", "--wait"]);
    let top = place.pfs(&["top", "scratch", "--once"]);
    assert!(top.contains("s1 (good)"), "{top}");
    drop(file);
    place.pfs(&["stop", "scratch"]);
    assert!(
        place
            .pfs(&["check", "scratch"])
            .contains("everything is right")
    );
}

/// The kernel takes connections for it, so its commands wait, and say why.
#[test]
fn a_service_that_is_stopped_is_named() {
    let Some(place) = Place::new() else { return };
    place.pfs(&["create", "scratch", "d1", "d2"]);
    place.pfs(&["start", "scratch"]);
    let service = place.service().unwrap();
    let number = service.file_name().unwrap().to_string_lossy();
    tool("kill", &["-STOP", &number], place.folder.path());
    let mut asking = place
        .margay(&["status", "scratch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(asking.stderr.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    tool("kill", &["-CONT", &number], place.folder.path());
    assert!(line.contains(&format!("kill -CONT {number}")), "{line}");
    let output = asking.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("d2"));
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn a_directory_that_hangs_fails_after_the_deadline() {
    let Some(inner) = Place::new() else { return };
    let Some(place) = Place::new() else { return };
    // A stripe directory on a file system whose service is stopped with a signal.
    inner.pfs(&["create", "scratch", "i1", "--parity", "0"]);
    inner.pfs(&["mount", "scratch", "mnt"]);
    let hanging = inner.mount().join("d");
    let hanging = hanging.to_str().unwrap();
    place.pfs(&["create", "scratch", "d1", "d2", hanging]);
    // More than a disk takes that other programs keep busy.
    place.pfs(&["mount", "scratch", "mnt", "--deadline", "4"]);
    let bytes = noise(4, 3 << 20);
    let file = fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(place.mount().join("file"))
        .unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    let service = inner.service().unwrap();
    let number = service.file_name().unwrap().to_string_lossy();
    tool("kill", &["-STOP", &number], inner.folder.path());
    file.write_all_at(&bytes[..1 << 20], 3 << 20).unwrap();
    file.sync_all().unwrap();
    let mut found = vec![0; 4 << 20];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found[..3 << 20] == bytes && found[3 << 20..] == bytes[..1 << 20]);
    let status = place.pfs(&["status", "scratch"]);
    // For 4 seconds, or for 40 where a sync was the first to wait for it.
    assert!(status.contains("has not answered for 4"), "{status}");
    drop(file);
    tool("kill", &["-CONT", &number], inner.folder.path());
    // What hung keeps the directory until it has ended: `rebuild` says so until then.
    let guarded = fs::File::open(inner.mount().join("d/lock")).unwrap();
    while guarded.try_lock().is_err() {
        std::thread::yield_now();
    }
    drop(guarded);
    place.pfs(&["rebuild", "scratch", "--wait"]);
    assert!(
        place
            .pfs(&["check", "scratch"])
            .contains("everything is right")
    );
    place.pfs(&["stop", "scratch"]);
    inner.pfs(&["stop", "scratch"]);
}

#[test]
fn directories_of_others_and_what_others_may_change_are_refused() {
    let Some(place) = Place::new() else { return };
    let chmod = |path: &str, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(place.path(path), mode).unwrap();
    };
    let mode = |path: &str| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(place.path(path)).unwrap().mode() & 0o777
    };
    // One that is there becomes the owner's alone.
    fs::create_dir(place.path("d1")).unwrap();
    chmod("d1", 0o777);
    let create: Vec<&str> = [["create", "scratch"].as_slice(), &DIRECTORIES].concat();
    place.pfs(&create);
    for path in ["d1", "d2", "state/margay/pfs"] {
        assert_eq!(mode(path), 0o700, "{path}");
    }
    for path in ["d1/data", "d1/log.1", "state/margay/pfs/scratch.pfs"] {
        assert_eq!(mode(path), 0o600, "{path}");
    }
    chmod("d1", 0o777);
    place.pfs(&["start", "scratch"]);
    assert_eq!(mode("state/margay/pfs/scratch.sock"), 0o600);
    let status = place.pfs(&["status", "scratch"]);
    assert!(status.contains("chmod go-w"), "{status}");
    place.pfs(&["stop", "scratch"]);
    chmod("d1", 0o700);
    place.pfs(&["rebuild", "scratch", "--wait"]);
    place.pfs(&["check", "scratch"]);
    // Only root can make a directory somebody else's.
    fs::create_dir(place.path("d9")).unwrap();
    if std::os::unix::fs::chown(place.path("d9"), Some(65534), None).is_ok() {
        place.refused(&["create", "other", "d8", "d9"], "belongs to user 65534");
    }
}

/// A launcher whose job has a file system over three directories below this place.
fn with_files(place: &Place, mut mpiexec: Command, options: &[&str], script: &str) -> Command {
    let names = ["a", "b", "c"].map(|name| {
        let _ = fs::create_dir(place.path(name));
        place.path(name).display().to_string()
    });
    let _ = fs::create_dir(place.path("tmp"));
    mpiexec
        .arg(format!("-pfs={}", names.join(",")))
        .args(options)
        .args(["-n", "2", "sh", "-c", script])
        .current_dir(place.folder.path())
        .env("TMPDIR", place.path("tmp"));
    mpiexec
}

/// What a job with a file system has left: directories, mounts.
fn left_of_job(place: &Place) -> Vec<String> {
    let folders = ["a", "b", "c", "tmp"];
    let entries = folders
        .iter()
        .flat_map(|name| fs::read_dir(place.path(name)).into_iter().flatten())
        .flatten();
    let mut left: Vec<String> = entries
        .map(|entry| entry.path().display().to_string())
        .collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let below = format!(" {}", place.path("tmp").display());
    left.extend(
        mounts
            .lines()
            .filter(|l| l.contains(&below))
            .map(Into::into),
    );
    left
}

#[test]
fn a_job_has_a_file_system_that_is_drained_and_removed() {
    let Some(place) = Place::new() else { return };
    // Both ranks write at the same time; one of them fails.
    let script =
        "cd $MARGAY_PFS && mkdir $$ && head -c 3000000 /dev/zero | tr '\\0' x > $$/data && exit 3";
    let mpiexec = || command(stage().join("bin/mpiexec"), 60);
    let drain = ["-pfs-drain", "out/kept"];
    let output = run(&mut with_files(&place, mpiexec(), &drain, script));
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let drained: Vec<_> = fs::read_dir(place.path("out/kept")).unwrap().collect();
    assert!(!drained.is_empty());
    for entry in drained {
        let bytes = fs::read(entry.unwrap().path().join("data")).unwrap_or_default();
        assert!(bytes.iter().all(|byte| *byte == b'x'));
    }
    assert_eq!(left_of_job(&place), [""; 0]);
    // Where what it writes cannot be kept, it does not begin.
    fs::write(place.path("file"), b"").unwrap();
    for (options, why) in [
        (["-pfs-drain", "file"], "cannot write to file"),
        (["-pfs-parity", "3"], "0..=2"),
        (["-host", "nowhere"], "host nowhere: the remote shell ended"),
    ] {
        let output = run(&mut with_files(&place, mpiexec(), &options, "touch begun"));
        assert!(said(&output).contains(why), "{}", said(&output));
        assert!(!output.status.success() && !place.path("begun").exists());
        assert_eq!(left_of_job(&place), [""; 0]);
    }
}

#[test]
fn mpi_io_writes_whole_rows_and_atomic_mode_and_the_shared_pointer_are_right() {
    let Some(place) = Place::new() else { return };
    let built = Built::mpi("pfs/striped.c");
    // Rows of a length that is no power of two.
    let script = format!("exec {} $MARGAY_PFS/file 65536 3", built.path().display());
    let mpiexec = command(stage().join("bin/mpiexec"), 60);
    let mut mpiexec = with_files(&place, mpiexec, &["-pfs-parity", "0"], &script);
    let output = run(&mut mpiexec);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n");
    assert_eq!(left_of_job(&place), [""; 0]);
}

/// Waits until both ranks of a job have made a file of this name, and removes these.
fn wait_for_begun(place: &Place, mpiexec: &mut Child) {
    let begun = || {
        let names = fs::read_dir(place.folder.path()).unwrap().flatten();
        let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("begun");
        names
            .filter(named)
            .map(|entry| entry.path())
            .collect::<Vec<_>>()
    };
    while begun().len() < 2 {
        assert!(mpiexec.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    for path in begun() {
        fs::remove_file(path).unwrap();
    }
}

/// The processes that keep the file system of a job: the keeper and the service.
fn keepers(place: &Place) -> Vec<String> {
    let state = format!("XDG_STATE_HOME={}/", place.path("tmp").display());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let keeps = |entry: &fs::DirEntry| {
        let of = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&of("environ")).contains(&state)
            && String::from_utf8_lossy(&of("cmdline")).contains("margay-pfs\0")
    };
    processes
        .filter(keeps)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn what_a_killed_job_with_files_left_is_removed_by_the_next_unless_it_was_to_be_copied() {
    let Some(place) = Place::new() else { return };
    let script =
        "echo half > $MARGAY_PFS/$$ && sync $MARGAY_PFS/$$ && touch begun.$$ && sleep 1000";
    let next = || {
        let mpiexec = command(stage().join("bin/mpiexec"), 60);
        let output = run(&mut with_files(&place, mpiexec, &[], "true"));
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    for options in [[].as_slice(), &["-pfs-drain", "out"]] {
        let mpiexec = Command::new(stage().join("bin/mpiexec"));
        let mut mpiexec = with_files(&place, mpiexec, options, script);
        let mut mpiexec = mpiexec.spawn().unwrap();
        wait_for_begun(&place, &mut mpiexec);
        // While it runs, nobody takes anything from it.
        assert_eq!(next(), "");
        let keepers = keepers(&place);
        assert_eq!(keepers.len(), 2, "{keepers:?}");
        // None of them sees the end of another.
        for (signal, process) in [("-STOP", None), ("-KILL", Some(mpiexec.id().to_string()))] {
            let mut words = vec![signal];
            words.extend(keepers.iter().map(String::as_str));
            words.extend(process.as_deref());
            tool("kill", &words, place.folder.path());
        }
        mpiexec.wait().unwrap();
        // Its files are closed behind its memory: only what waits for its parent has none.
        let is_there = |process: &String| {
            let state = fs::read_to_string(Path::new("/proc").join(process).join("stat"));
            state.is_ok_and(|state| !state.contains(") Z "))
        };
        while keepers.iter().any(is_there) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(left_of_job(&place).len() > 4, "{:?}", left_of_job(&place));
        if options.is_empty() {
            assert_eq!(next(), "");
            assert_eq!(left_of_job(&place), [""; 0]);
        }
    }
    // Of the second one, the directories are kept and named; the mount is gone.
    let why = next();
    assert!(why.contains("killed before all was copied to"), "{why}");
    assert_eq!(left_of_job(&place).len(), 4);
    let list = run(place.margay(&["list"]).env("TMPDIR", place.path("tmp")));
    let list = String::from_utf8(list.stdout).unwrap();
    let (_, state) = list.split_once("XDG_STATE_HOME=").expect("where it is");
    let state = state.split(' ').next().unwrap();
    for words in [["mount", "job", "mnt"].as_slice(), &["stop", "job"]] {
        if words[0] == "stop" {
            let kept = fs::read_dir(place.mount()).unwrap().flatten();
            let kept: Vec<_> = kept.map(|entry| fs::read(entry.path()).unwrap()).collect();
            assert_eq!(kept, [b"half\n", b"half\n"]);
        }
        let output = run(place.margay(words).env("XDG_STATE_HOME", state));
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    }
}

#[test]
fn nothing_is_left_of_a_job_with_files_whose_launcher_is_killed() {
    let Some(place) = Place::new() else { return };
    let script = "echo half > $MARGAY_PFS/$$ && touch begun.$$ && sleep 1000";
    let mpiexec = Command::new(stage().join("bin/mpiexec"));
    let mut mpiexec = with_files(&place, mpiexec, &["-pfs-drain", "out"], script);
    let mut mpiexec = mpiexec.spawn().unwrap();
    wait_for_begun(&place, &mut mpiexec);
    mpiexec.kill().unwrap();
    mpiexec.wait().unwrap();
    // The program that removes it sees the end of the launcher.
    let end = Instant::now() + Duration::from_secs(60);
    while !left_of_job(&place).is_empty() {
        assert!(Instant::now() < end, "left: {:?}", left_of_job(&place));
        std::thread::sleep(Duration::from_millis(20));
    }
    let drained = fs::read_dir(place.path("out")).unwrap().flatten();
    let drained: Vec<_> = drained
        .map(|entry| fs::read(entry.path()).unwrap())
        .collect();
    assert_eq!(drained, [b"half\n", b"half\n"]);
}
