//! Stripes of single files, copies, and directories that are added and removed while programs use
//! the files, through the commands of the parallel file system.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use margay_sys_os::signal;
use margay_tests::jobs::Built;
use margay_tests::pfs::{Place, noise, said, tool};
use margay_tests::{command, run, stage};

fn striped(place: &Place, path: &str) -> String {
    let said = place.pfs(&["stripe", path]);
    said.trim_end().split_once(": ").unwrap().1.to_owned()
}

/// Bytes in the `data` of a stripe directory that take space.
fn stored(place: &Place, directory: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let data = place.path(directory).join("data");
    fs::metadata(data).map_or(0, |facts| facts.blocks() * 512)
}

#[test]
fn files_and_directories_have_stripes_of_their_own() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    place.refused(
        &["create", "scratch", "d1", "d2", "d3", "--factor", "3"],
        "choose 1 to 2",
    );
    place.pfs(&[
        "create", "scratch", "d1", "d2", "d3", "d4", "d5", "--unit", "256K",
    ]);
    place.pfs(&["mount", "scratch", "mnt"]);
    assert_eq!(striped(&place, "mnt"), "stripe unit 262144, 4 in a row");
    fs::create_dir(mnt.join("narrow")).unwrap();
    place.pfs(&["stripe", "mnt/narrow", "--unit", "64K", "--factor", "2"]);
    let bytes = noise(1, 5_000_000);
    fs::write(mnt.join("narrow/file"), &bytes).unwrap();
    fs::write(mnt.join("wide"), &bytes).unwrap();
    assert_eq!(
        striped(&place, "mnt/narrow/file"),
        "stripe unit 65536, 2 in a row"
    );
    place.refused(
        &["stripe", "mnt/wide", "--factor", "1"],
        "it has been written",
    );
    place.refused(
        &["stripe", "mnt/narrow", "--factor", "5"],
        "now they are 65536 2",
    );
    place.refused(&["stripe", "d1"], "mount it");
    // To lay a file out takes more than the right to write to it.
    fs::write(mnt.join("empty"), "").unwrap();
    tool("chmod", &["666", "mnt/empty"], place.folder.path());
    tool("chmod", &["-R", "a+rX", "."], place.folder.path());
    if margay_sys_os::port::user() == 0 {
        let mut stripe = command("setpriv", 60);
        stripe
            .args(["--reuid", "65534", "--clear-groups"])
            .arg(stage().join("bin/margay"))
            .args(["pfs", "stripe", "mnt/empty", "--factor", "1"])
            .current_dir(place.folder.path());
        let output = run(&mut stripe);
        assert!(
            said(&output).contains("only its owner"),
            "{}",
            said(&output)
        );
    }
    place.pfs(&["stop", "scratch"]);
    fs::remove_dir_all(place.path("d2")).unwrap();
    place.pfs(&["mount", "scratch", "mnt"]);
    for file in ["narrow/file", "wide"] {
        assert!(fs::read(mnt.join(file)).unwrap() == bytes, "{file}");
    }
    place.pfs(&["stripe", "mnt/narrow", "--default"]);
    assert_eq!(
        striped(&place, "mnt/narrow"),
        "stripe unit 262144, 4 in a row"
    );
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn copies_are_spread_over_all_directories() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    place.pfs(&["create", "scratch", "d1", "d2", "d3", "d4", "--copies", "2"]);
    place.pfs(&["mount", "scratch", "mnt"]);
    let bytes = noise(2, 8 << 20);
    fs::write(mnt.join("file"), &bytes).unwrap();
    tool("sync", &["-f", "mnt/file"], place.folder.path());
    assert!(
        place
            .pfs(&["status", "scratch"])
            .contains("64.0 KiB, 2 copies")
    );
    for directory in ["d1", "d2", "d3", "d4"] {
        let there = stored(&place, directory);
        assert!((4 << 20..5 << 20).contains(&there), "{directory}: {there}");
    }
    fs::remove_dir_all(place.path("d3")).unwrap();
    assert!(fs::read(mnt.join("file")).unwrap() == bytes);
    place.pfs(&["replace", "scratch", "d3", "d5"]);
    place.pfs(&["rebuild", "scratch", "--wait"]);
    assert!(
        place
            .pfs(&["check", "scratch"])
            .contains("everything is right")
    );
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn directories_are_added_and_removed_while_files_are_used() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    place.pfs(&["create", "scratch", "d1", "d2", "d3"]);
    place.pfs(&["mount", "scratch", "mnt"]);
    let kept = noise(3, 20_000_000);
    fs::write(mnt.join("kept"), &kept).unwrap();
    place.refused(&["resize", "scratch", "--add", "d1"], "already");
    place.refused(
        &["resize", "scratch", "--remove", "d7"],
        "is no stripe directory",
    );
    fs::create_dir(place.path("full")).unwrap();
    fs::write(place.path("full/x"), "x").unwrap();
    place.refused(&["resize", "scratch", "--add", "full"], "is not empty");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = EndOnDrop(&is_over);
        let writer = scope.spawn(|| {
            let file = fs::File::create_new(mnt.join("written")).unwrap();
            let mut all = Vec::new();
            let mut n = 0;
            while !is_over.load(Ordering::SeqCst) {
                n += 1;
                let at = n as usize * 7919 % 3_000_000;
                let bytes = noise(n, n as usize * 131 % 100_000 + 1);
                file.write_all_at(&bytes, at as u64).unwrap();
                all.resize(all.len().max(at + bytes.len()), 0);
                all[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            all
        });
        place.pfs(&["resize", "scratch", "--add", "d4", "--wait"]);
        place.pfs(&[
            "resize", "scratch", "--add", "d5", "--remove", "d1", "--wait",
        ]);
        drop(end);
        let written = writer.join().unwrap();
        assert!(fs::read(mnt.join("written")).unwrap() == written);
    });
    assert!(fs::read(mnt.join("kept")).unwrap() == kept);
    assert_eq!(striped(&place, "mnt/kept"), "stripe unit 65536, 3 in a row");
    assert_eq!(fs::read_dir(place.path("d1")).unwrap().count(), 0);
    assert!(
        place
            .pfs(&["check", "scratch"])
            .contains("everything is right")
    );
    let status = place.pfs(&["status", "scratch"]);
    assert!(
        status.contains("4 directories") && !status.contains("/d1\n"),
        "{status}"
    );
    place.refused(
        &[
            "resize", "scratch", "--remove", "d2", "--remove", "d3", "--remove", "d4",
        ],
        "at least 2",
    );
    place.pfs(&["stop", "scratch"]);
    // Without a service the command does it itself.
    place.pfs(&["resize", "scratch", "--add", "d6"]);
    place.pfs(&["mount", "scratch", "mnt"]);
    assert_eq!(striped(&place, "mnt/kept"), "stripe unit 65536, 4 in a row");
    assert!(fs::read(mnt.join("kept")).unwrap() == kept);
    place.pfs(&["stop", "scratch"]);
}

/// Lets a thread of the test end, also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_resize_goes_on_after_the_service_was_killed() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    place.pfs(&["create", "scratch", "d1", "d2", "d3"]);
    place.pfs(&["mount", "scratch", "mnt"]);
    let files: Vec<Vec<u8>> = (0..40).map(|n| noise(n, 1_500_000)).collect();
    let name = |n: usize| mnt.join(format!("f{n}"));
    for (n, bytes) in files.iter().enumerate() {
        fs::write(name(n), bytes).unwrap();
    }
    tool("sync", &["-f", "mnt/f0"], place.folder.path());
    // It takes 1 % of the time while something else is asked. The services after this one take more
    // again: with them it may be over before it is seen to go on.
    place.pfs(&["rebuild", "scratch", "--share", "1"]);
    let layout = "stripe unit 65536, 3 in a row";
    let is_moved = |n: usize| striped(&place, &format!("mnt/f{n}")) == layout;
    let goes_on = |round| match round {
        0 => stored(&place, "d4") > 1 << 20,
        _ => place.pfs(&["status", "scratch"]).contains("resize: "),
    };
    for round in 0..3 {
        let end = Instant::now() + Duration::from_secs(60);
        let service = place.service().unwrap();
        let number = service.file_name().unwrap().to_string_lossy();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _end = EndOnDrop(&is_over);
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    // The mount ends with the service.
                    let _ = fs::read(name(0));
                }
            });
            let mut resize = place.margay(&["resize", "scratch", "--add", "d4"]);
            resize.stdout(Stdio::null()).stderr(Stdio::null());
            let adding = (round == 0).then(|| resize.spawn().unwrap());
            while !(goes_on(round) || round > 0 && (0..files.len()).all(is_moved)) {
                assert!(Instant::now() < end, "nothing moves");
                std::thread::yield_now();
            }
            // At once: the whole resize takes a part of a second.
            signal::send(number.parse().unwrap(), signal::SIGKILL).unwrap();
            adding.map(|mut command| command.wait());
            Place::until_gone(&service);
        });
        place.pfs(&["mount", "scratch", "mnt"]);
    }
    place.pfs(&["resize", "scratch", "--wait"]);
    for (n, bytes) in files.iter().enumerate() {
        assert!(fs::read(name(n)).unwrap() == *bytes, "file {n}");
        let path = format!("mnt/f{n}");
        assert_eq!(striped(&place, &path), layout);
    }
    assert!(
        place
            .pfs(&["check", "scratch"])
            .contains("everything is right")
    );
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn mpi_io_lays_a_new_file_out_as_its_hints_ask() {
    let Some(place) = Place::new() else { return };
    let built = Built::mpi("pfs/hints.c");
    place.pfs(&[
        "create", "scratch", "d1", "d2", "d3", "d4", "--unit", "256K",
    ]);
    place.pfs(&["mount", "scratch", "mnt"]);
    for (n, words) in [
        ["131072", "2", "131072", "2"],
        ["65536", "100", "65536", "3"],
        // No unit of this file system.
        ["4096", "1", "262144", "1"],
        ["10000000", "3", "262144", "3"],
    ]
    .iter()
    .enumerate()
    {
        let mut mpiexec = command(stage().join("bin/mpiexec"), 60);
        let file = place.mount().join(format!("file{n}"));
        mpiexec
            .args(["-n", "3"])
            .arg(Path::new(&built.path()))
            .arg(file)
            .args(words);
        let output = run(&mut mpiexec);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n");
    }
    place.pfs(&["stop", "scratch"]);
}

/// A file system is removed with its files, and with nothing that belongs to another one.
#[test]
fn a_file_system_is_removed_only_when_it_is_stopped_and_that_is_wanted() {
    let Some(place) = Place::new() else { return };
    place.mount();
    place.pfs(&["create", "old", "d1", "d2", "d3", "--parity", "1"]);
    place.pfs(&["mount", "old", "mnt"]);
    fs::write(place.path("mnt/file"), noise(1, 1 << 20)).unwrap();
    place.refused(&["remove", "old", "--yes"], "margay pfs stop old");
    place.pfs(&["stop", "old"]);
    place.refused(&["remove", "old"], "all files of 'old' would be lost");
    // One of its directories is another file system's by now, and one is gone.
    fs::remove_dir_all(place.path("d2")).unwrap();
    fs::remove_dir_all(place.path("d3")).unwrap();
    place.pfs(&["create", "new", "d2", "--parity", "0"]);
    let said = place.pfs(&["remove", "old", "--yes"]);
    assert!(
        said.contains("d2 is a stripe directory of another"),
        "{said}"
    );
    assert!(said.contains("d3/lock: No such file"), "{said}");
    assert_eq!(fs::read_dir(place.path("d1")).unwrap().count(), 0);
    place.refused(&["status", "old"], "no parallel file system 'old'");
    place.pfs(&["mount", "new", "mnt"]);
    fs::write(place.path("mnt/file"), "new").unwrap();
    place.pfs(&["stop", "new"]);
    place.pfs(&["remove", "new", "--yes"]);
    assert_eq!(place.pfs(&["list"]), "");
}
