//! The store over disks that are full: what does not fit is refused, what was written stays, and
//! what goes makes room.
#![forbid(unsafe_code)]

mod common;

use common::{Random, World};

use margay_fs_stripes::{Fault, Health, Making, ROOT, Store, kind};

fn file_mode() -> Making {
    Making {
        mode: kind::FILE | 0o644,
        ..Making::default()
    }
}

#[test]
fn a_full_directory_is_no_failed_one_and_deleting_helps() {
    let mut world = World::new(3, 1, 1);
    let store = world.create();
    let row = store.state().base.row_bytes();
    world.limit(Some(40 << 20));
    let mut count = 0;
    let full = loop {
        let name = format!("f{count}");
        let file = store.make(ROOT, name.as_bytes(), &file_mode()).unwrap().ino;
        if let Err(fault) = store.write(file, 0, &vec![7; 8 * row]) {
            break fault;
        }
        count += 1;
    };
    assert_eq!(full, Fault::NoSpace);
    assert!(count > 10, "{count} files fit");
    assert!(
        store
            .state()
            .members
            .iter()
            .all(|m| m.health == Health::Good)
    );
    for n in 0..count {
        store
            .unlink(ROOT, format!("f{n}").as_bytes(), false)
            .unwrap();
        store.forget_all();
    }
    let file = store
        .lookup(ROOT, format!("f{count}").as_bytes())
        .unwrap()
        .ino;
    store.write(file, 0, &vec![8; 20 * row]).unwrap();
    store.sync_file(file).unwrap();
    assert_eq!(store.check(&|| false).unwrap(), Vec::<String>::new());
}

/// A write of a full disk has written what it says, and the file ends there.
#[test]
fn a_write_that_finds_no_space_has_written_what_it_says() {
    for (parity, piece) in [
        (0, 7001),
        (1, 7001),
        (2, 7001),
        (0, 1 << 20),
        (1, 700_001),
        (2, 5 << 20),
    ] {
        let mut world = World::new(4, parity, 9);
        let store = world.create();
        let ino = store.make(ROOT, b"file", &file_mode()).unwrap().ino;
        world.limit(Some(6 << 20));
        let bytes = Random(parity as u64).bytes(32 << 20);
        let mut end = 0;
        let fault = loop {
            let rest = &bytes[end..];
            match store.write(ino, end as u64, &rest[..piece.min(rest.len())]) {
                Ok(len) => end += len,
                Err(fault) => break fault,
            }
            assert_eq!(store.getattr(ino).unwrap().attr.size, end as u64);
        };
        assert_eq!(fault, Fault::NoSpace);
        // The last row may wait for what completes it.
        let row = store.state().base.row_bytes();
        let data = 4 - parity;
        // One slot is kept for cutting files.
        let room = (6 << 20) / (row / data) * row - row;
        assert!(
            end + row > room && end <= room + row,
            "{parity} {piece} {end}"
        );
        let holds = |store: &margay_fs_stripes::Store| {
            assert_eq!(store.getattr(ino).unwrap().attr.size, end as u64);
            let mut got = vec![0; end + 1];
            assert_eq!(store.read(ino, 0, &mut got), Ok(end));
            assert!(got[..end] == bytes[..end]);
        };
        holds(&store);
        // What is in the middle of the row is as it was, too.
        if end % row > 2 {
            let at = (end / row * row) as u64 + 1;
            let rest = vec![1; row - 1];
            assert_eq!(store.write(ino, at, &rest), Err(Fault::NoSpace));
            holds(&store);
        }
        world.limit(None);
        store.sync().unwrap();
        holds(&store);
        drop(store);
        holds(&world.open());
    }
}

/// A log is written at each start, and a full file system must start, too.
#[test]
fn a_full_file_system_starts_again_and_again() {
    for parity in [0, 1, 2] {
        let mut world = World::new(4, parity, 8);
        let store = world.create();
        let value = vec![7; 60_000];
        let mut named = 0;
        let mut make = |store: &margay_fs_stripes::Store| {
            let made = store.make(ROOT, format!("f{named}").as_bytes(), &file_mode())?;
            store.set_attribute(made.ino, b"user.a", Some(&value), None)?;
            store.sync()?;
            named += 1;
            Ok::<_, Fault>(named)
        };
        for _ in 0..100 {
            make(&store).unwrap();
        }
        for disk in &world.disks {
            disk.take_all_space();
        }
        let mut last = 100;
        let fault = loop {
            match make(&store) {
                Ok(now) => last = now,
                Err(fault) => break fault,
            }
        };
        assert_eq!(fault, Fault::NoSpace);
        assert!(last > 110, "{last} names found space");
        drop(store);
        for _ in 0..3 {
            let store = world.open();
            for n in 0..last {
                assert!(store.lookup(ROOT, format!("f{n}").as_bytes()).is_ok());
            }
        }
        let store = world.open();
        for n in 0..last {
            let name = format!("f{n}");
            store.unlink(ROOT, name.as_bytes(), false).unwrap();
            store.forget_all();
        }
        store.sync().unwrap();
        assert_eq!(store.check(&|| false).unwrap(), Vec::<String>::new());
    }
}

/// Makes files until there is no space for more; returns how many there are.
fn fill(store: &Store, bytes: &[u8]) -> u32 {
    for n in 0.. {
        let name = format!("f{n}");
        let ino = store.make(ROOT, name.as_bytes(), &file_mode()).unwrap().ino;
        let written = store.write_all(ino, 0, bytes);
        if written.and_then(|()| store.sync()).is_err() {
            store.unlink(ROOT, name.as_bytes(), false).unwrap();
            store.forget_all();
            // What it took is free only where it was never written.
            return n;
        }
    }
    unreachable!("the disks are full")
}

/// Cutting a file writes a row anew, and a full disk has a place for that: again and again, and
/// whenever the machine fails meanwhile, the file is as before or as after.
#[test]
fn a_file_on_a_full_disk_is_cut_within_a_row() {
    for (parity, limit) in [(0, 1 << 20), (1, 1 << 20), (2, 2 << 20)] {
        let mut world = World::new(4, parity, 3);
        let store = world.create();
        let row = store.state().base.row_bytes();
        world.limit(Some(limit));
        let bytes = Random(parity as u64).bytes(row + row / 2);
        let files = fill(&store, &bytes);
        assert!(files > 4, "{files}");
        let find = |store: &Store, n| {
            let known = store.lookup(ROOT, format!("f{n}").as_bytes()).unwrap();
            known.ino
        };
        // What the last file took is taken again: there is no free slot.
        let last = store.make(ROOT, b"last", &file_mode()).unwrap().ino;
        while store
            .write(last, store.getattr(last).unwrap().attr.size, &bytes[..4096])
            .is_ok()
        {}
        let _ = store.sync();
        let holds = |store: &Store, ino, len: usize| {
            let mut got = vec![9; bytes.len()];
            assert_eq!(store.read(ino, 0, &mut got), Ok(len));
            assert!(got[..len] == bytes[..len], "{parity} {len}");
        };
        for (n, len) in (0..files).zip([1, 4096, 5000, row - 1, row + 1, row + 5000]) {
            let ino = find(&store, n);
            for len in [len, len / 2] {
                store.set_size(ino, len as u64).unwrap();
                holds(&store, ino, len);
                // Nothing is behind the end.
                store.set_size(ino, bytes.len() as u64).unwrap();
                let mut got = vec![9; bytes.len()];
                store.read(ino, 0, &mut got).unwrap();
                assert!(got[len..].iter().all(|byte| *byte == 0));
                store.set_size(ino, len as u64).unwrap();
            }
        }
        drop(store);
        let store = world.open();
        assert_eq!(store.check(&|| false).unwrap(), Vec::<String>::new());
        drop(store);
        for (end, seed) in (1..60).zip(1..) {
            let mut other = world.copy();
            other.limit(Some(limit));
            let store = other.open();
            let ino = find(&store, files - 1);
            let before = store.getattr(ino).unwrap().attr.size as usize;
            let after = before / 3;
            other.end_after(end);
            let done = store.set_size(ino, after as u64);
            let done = done.and_then(|()| store.sync_file(ino));
            drop(store);
            let mut left = other.after_crash(&mut Random(seed));
            let store = left.open();
            let size = store.getattr(ino).unwrap().attr.size as usize;
            assert!(size == after || (size == before && done.is_err()), "{size}");
            holds(&store, ino, size);
            assert_eq!(store.check(&|| false).unwrap(), Vec::<String>::new());
        }
    }
}

/// A kernel gives its reference to a deleted file back after its answer, while the next write is
/// already there.
#[test]
fn a_write_finds_the_space_of_a_file_that_a_client_is_about_to_forget() {
    let mut world = World::new(4, 1, 9);
    let store = world.create();
    world.limit(Some(6 << 20));
    let deleted = store.make(ROOT, b"deleted", &file_mode()).unwrap().ino;
    store.write_all(deleted, 0, &vec![1; 8 << 20]).unwrap();
    let ino = store.make(ROOT, b"file", &file_mode()).unwrap().ino;
    let bytes = vec![2; 1 << 20];
    let mut end = 0;
    while let Ok(len) = store.write(ino, end, &bytes) {
        end += len as u64;
    }
    store.unlink(ROOT, b"deleted", false).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            store.forget(deleted, 1);
        });
        store.write_all(ino, end, &vec![2; 6 << 20]).unwrap();
    });
}
