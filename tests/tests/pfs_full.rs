//! A parallel file system on full disks and at the end of quotas: a write says how much it has
//! written, through the kernel and past it, and the file has that and nothing more.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::FileExt;

use margay_sys_os::port::user;
use margay_tests::jobs::Built;
use margay_tests::pfs::{Disk, Place, noise, said};
use margay_tests::{command, run, stage};

/// Bytes of each of the disks.
const DISK: u64 = 24 << 20;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Errors of Linux.
const NO_SPACE: u64 = 28;
const OVER_QUOTA: u64 = 122;

/// Four small disks, with a file system on them that is mounted. Only root can make them.
fn small(parity: &str) -> Option<(Vec<Disk>, Place)> {
    if user() != 0 {
        eprintln!("not run: only root can make small disks");
        return None;
    }
    let place = Place::new()?;
    let disks = NAMES.map(|name| Disk::new(&place, name, DISK));
    let [a, b, c, d] = &NAMES.map(|name| format!("{name}/d"));
    place.pfs(&["create", "scratch", a, b, c, d, "--parity", parity]);
    place.pfs(&["mount", "scratch", "mnt"]);
    Some((disks.into(), place))
}

/// Writes a file of the mount until there is an error; returns its length and the error.
fn fill(place: &Place, name: &str, is_direct: bool, piece: usize, most: u64) -> (u64, u64) {
    let built = Built::plain("pfs/full.c", &["-D_GNU_SOURCE"]);
    let mut program = command("env", 120);
    if is_direct {
        let library = stage().join("lib/pfs/libmargay_pfs.so.1");
        program.arg(format!("LD_PRELOAD={}", library.display()));
        program.arg("MARGAY_PFS_DIRECT=1");
    }
    program.arg(built.path()).arg(place.mount().join(name));
    let output = run(program.args([piece.to_string(), most.to_string()]));
    assert!(output.status.success(), "{}", said(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    let (end, error) = said.split_once(' ').unwrap();
    (end.parse().unwrap(), error.parse().unwrap())
}

#[test]
fn a_full_disk_ends_a_file_with_what_was_written() {
    for (parity, is_direct, piece) in [
        ("0", false, 7001),
        ("0", true, 5_000_003),
        ("1", false, 5_000_003),
        ("1", true, 7001),
        ("2", false, 300_000),
        ("2", true, 2_500_000),
    ] {
        let Some((_disks, place)) = small(parity) else {
            return;
        };
        let what = format!("{parity} {is_direct} {piece}");
        // Something that can go afterwards.
        fs::write(place.mount().join("other"), vec![1; 4 << 20]).unwrap();
        let (end, error) = fill(&place, "file", is_direct, piece, 1 << 30);
        assert_eq!(error, NO_SPACE, "{what}");
        let data = 4 - parity.parse::<u64>().unwrap();
        assert!(end > data * DISK / 2 && end < data * DISK, "{what}: {end}");
        // What goes makes room, for what waits in memory and for more.
        fs::remove_file(place.mount().join("other")).unwrap();
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(place.mount().join("file"))
            .unwrap();
        file.sync_all().unwrap();
        // Nothing is behind the end, also when the file is longer.
        file.set_len(end + 4096).unwrap();
        let mut behind = [1; 4096];
        file.read_exact_at(&mut behind, end).unwrap();
        assert_eq!(behind, [0; 4096], "{what}");
        file.set_len(end).unwrap();
        let more = end + (1 << 20);
        assert_eq!(fill(&place, "file", is_direct, piece, more), (more, 0));
        drop(file);
        place.pfs(&["stop", "scratch"]);
        place.pfs(&["mount", "scratch", "mnt"]);
        // It reads all of it.
        assert_eq!(fill(&place, "file", false, 1 << 20, more), (more, 0));
        place.pfs(&["check", "scratch"]);
        place.pfs(&["stop", "scratch"]);
    }
}

/// Small files until there is no space for more; then one that is as large as there is space.
fn fill_with_files(place: &Place) -> u32 {
    let write = |n: u32| {
        let file = fs::File::create(place.mount().join(format!("f{n}")))?;
        file.write_all_at(&noise(u64::from(n), 200_000), 0)?;
        file.sync_all()
    };
    let files = (0..).find(|n| write(*n).is_err()).unwrap();
    fs::remove_file(place.mount().join(format!("f{files}"))).unwrap();
    let (_, error) = fill(place, "rest", false, 4096, 1 << 30);
    assert_eq!(error, NO_SPACE);
    files
}

#[test]
fn files_of_a_full_disk_are_cut_within_a_row() {
    for parity in ["0", "1", "2"] {
        let Some((_disks, place)) = small(parity) else {
            return;
        };
        let files = fill_with_files(&place);
        assert!(files > 60, "{files}");
        let holds = |n: u32, len: u32| {
            let bytes = fs::read(place.mount().join(format!("f{n}"))).unwrap();
            assert!(
                bytes == noise(u64::from(n), 200_000)[..len as usize],
                "{parity} {n}"
            );
        };
        let len = |n: u32| 100_000 + 1000 * (n % 90);
        for n in 0..files {
            let path = place.mount().join(format!("f{n}"));
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_len(u64::from(len(n))).unwrap();
            file.sync_all().unwrap();
            holds(n, len(n));
            if n == files / 2 {
                place.kill_service("-9");
                drop(file);
                place.pfs(&["mount", "scratch", "mnt"]);
            }
        }
        (0..files).for_each(|n| holds(n, len(n)));
        place.pfs(&["check", "scratch"]);
        fs::remove_file(place.mount().join("rest")).unwrap();
        place.pfs(&["stop", "scratch"]);
    }
}

#[test]
fn a_full_disk_is_an_error_of_those_who_wrote() {
    let Some((_disks, place)) = small("1") else {
        return;
    };
    fill_with_files(&place);
    let built = Built::plain("pfs/closes.c", &["-D_GNU_SOURCE"]);
    let path = place.mount().join("f0");
    let output = run(command(built.path(), 60).arg(&path));
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 0 28 0 28 ");
    // It goes on waiting, and is stored when there is space.
    assert!(fs::File::open(&path).unwrap().sync_all().is_err());
    fs::remove_file(place.mount().join("f1")).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    place.pfs(&["stop", "scratch"]);
    place.pfs(&["mount", "scratch", "mnt"]);
    assert!(fs::read(&path).unwrap().starts_with(b"in memory!"));
    place.pfs(&["stop", "scratch"]);
}

#[test]
fn a_quota_ends_a_file_with_what_was_written() {
    for parity in ["0", "1", "2"] {
        let Some((_disks, place)) = small(parity) else {
            return;
        };
        place.pfs(&["quota", "scratch", "--user", "root", "--space", "5M"]);
        for is_direct in [false, true] {
            for piece in [7001, 300_000, 2_500_000] {
                let (end, error) = fill(&place, "file", is_direct, piece, 1 << 30);
                let what = format!("{parity} {is_direct} {piece}: {end} {error}");
                assert_eq!(error, OVER_QUOTA, "{what}");
                assert_eq!(end, 5 << 20, "{what}");
                fs::remove_file(place.mount().join("file")).unwrap();
            }
        }
        place.pfs(&["stop", "scratch"]);
    }
}
