//! Directories that are away for a while, more of them than there is parity, and directories that
//! are let go.
#![forbid(unsafe_code)]

mod common;

use common::{Random, World};
use margay_fs_stripes::{Health, Making, ROOT, Store, kind};

/// Makes a file with these bytes, which are stored when this returns true.
fn put(store: &Store, name: &str, bytes: &[u8]) -> bool {
    let how = Making {
        mode: kind::FILE | 0o644,
        ..Making::default()
    };
    let made = store.make(ROOT, name.as_bytes(), &how);
    made.is_ok_and(|made| store.write_all(made.ino, 0, bytes).is_ok()) && store.sync().is_ok()
}

fn has(store: &Store, name: &str, bytes: &[u8]) -> bool {
    let known = store.lookup(ROOT, name.as_bytes()).expect("it is there");
    let mut found = vec![0; bytes.len() + 1];
    let len = store.read(known.ino, 0, &mut found).expect("it is read");
    found[..len] == *bytes
}

/// All directories but one go away, one after the other or together, while files are written. When
/// they are back, everything is there that was stored.
#[test]
fn all_is_there_again_when_more_directories_were_away_than_there_is_parity() {
    for seed in 0..60 {
        let mut random = Random(seed + 1);
        let (directories, parity) = [(3, 1), (4, 2), (5, 2)][random.below(3) as usize];
        let mut world = World::new(directories, parity, 7);
        let store = world.create();
        let mut stored: Vec<(String, Vec<u8>)> = Vec::new();
        let mut number = 0;
        let mut write = |store: &Store, random: &mut Random| {
            let name = format!("f{number}");
            number += 1;
            let len = 1 + random.below(400_000) as usize;
            let bytes = random.bytes(len);
            put(store, &name, &bytes).then_some((name, bytes))
        };
        stored.extend(write(&store, &mut random));
        assert_eq!(stored.len(), 1);
        for n in 1..directories {
            world.disks[n].break_down();
            if random.below(2) == 0 {
                stored.extend(write(&store, &mut random));
            }
        }
        assert_eq!(write(&store, &mut random), None, "seed {seed}");
        drop(store);
        for disk in &world.disks {
            disk.come_back();
        }
        let store = world.open();
        for (name, bytes) in &stored {
            assert!(has(&store, name, bytes), "seed {seed}: {name}");
        }
        assert!(put(&store, "next", b"next"), "seed {seed}");
    }
}

/// A service that ends lets its directories go, and does not take them for dead.
#[test]
fn directories_that_are_let_go_have_not_failed() {
    let mut world = World::new(3, 1, 7);
    let store = world.create();
    assert!(put(&store, "file", &[5; 100_000]));
    store.close();
    for disk in &world.disks[1..] {
        disk.break_down();
    }
    assert!(!put(&store, "late", b"late"));
    assert!(store.sync().is_err());
    for disk in &world.disks {
        disk.come_back();
    }
    let store = world.open();
    let state = store.state();
    assert!(state.members.iter().all(|m| m.health == Health::Good));
    assert!(has(&store, "file", &[5; 100_000]));
}
