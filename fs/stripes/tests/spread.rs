//! Layouts of single files, and directories that are added and removed while files are used.
#![forbid(unsafe_code)]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Random, World};
use margay_fs_stripes::{Fault, Health, Making, ROOT, Store, kind};

const UNIT: usize = 64 << 10;

fn make(store: &Store, folder: u64, name: &[u8], kind: u32) -> u64 {
    let how = Making {
        mode: kind | 0o755,
        ..Making::default()
    };
    store.make(folder, name, &how).unwrap().ino
}

fn contents(store: &Store, ino: u64) -> Vec<u8> {
    let mut bytes = vec![0; store.getattr(ino).unwrap().attr.size as usize];
    assert_eq!(store.read(ino, 0, &mut bytes), Ok(bytes.len()));
    bytes
}

/// Files of several layouts with random contents.
fn files(store: &Store, random: &mut Random) -> Vec<(u64, Vec<u8>)> {
    let current = store.current();
    let layouts = [
        (None, None),
        (Some(UNIT), Some(1)),
        (Some(2 * UNIT), Some(2)),
        (Some(UNIT), None),
    ];
    let all = layouts.into_iter().zip(b'a'..).map(|((unit, data), name)| {
        let ino = make(store, ROOT, &[name], kind::FILE);
        if (unit, data) != (None, None) {
            store.set_stripes(ino, unit, data).unwrap();
        }
        let layout = store.stripes(ino).unwrap();
        assert_eq!(layout.data, data.unwrap_or(current.data));
        let len = random.below(5 * layout.row_bytes() as u64) as usize + 1;
        let bytes = random.bytes(len);
        store.write(ino, 0, &bytes).unwrap();
        (ino, bytes)
    });
    all.collect()
}

#[test]
fn files_have_layouts_of_their_own_that_last() {
    for (directories, parity) in [(4, 1), (5, 2), (3, 0)] {
        let mut random = Random(directories as u64);
        let mut world = World::new(directories, parity, 7).with_slots(2 * UNIT);
        let store = world.create();
        let files = files(&store, &mut random);
        let layouts: Vec<_> = files.iter().map(|(ino, _)| store.stripes(*ino)).collect();
        store.sync().unwrap();
        assert_eq!(store.check(&|| false), Ok(vec![]));
        drop(store);
        // Twice, as the first start writes the snapshot that the second one reads.
        drop(world.open());
        for lost in 0..directories {
            let mut world = world.copy();
            if parity > 0 {
                world.lose(lost);
            }
            if parity > 1 {
                world.lose((lost + 1) % directories);
            }
            let store = world.open();
            for ((ino, bytes), layout) in files.iter().zip(&layouts) {
                assert_eq!(store.stripes(*ino), *layout);
                assert!(contents(&store, *ino) == *bytes);
            }
        }
    }
}

#[test]
fn a_directory_says_how_new_files_in_it_are_laid_out() {
    let mut world = World::new(5, 1, 7).with_slots(4 * UNIT);
    let store = world.create();
    let folder = make(&store, ROOT, b"folder", kind::FOLDER);
    assert_eq!(store.stripes(folder), Ok(store.current()));
    store.set_stripes(folder, Some(UNIT), Some(2)).unwrap();
    let inner = make(&store, folder, b"inner", kind::FOLDER);
    let file = make(&store, inner, b"file", kind::FILE);
    let laid = |store: &Store, ino| store.stripes(ino).map(|l| (l.unit_bytes, l.data));
    for ino in [folder, inner, file] {
        assert_eq!(laid(&store, ino), Ok((UNIT, 2)));
    }
    store.set_stripes(inner, None, None).unwrap();
    assert_eq!(laid(&store, inner), Ok((4 * UNIT, 4)));
    assert_eq!(store.attributes(folder), Ok(vec![]));
    // What is impossible, and what is too late.
    for (unit, data) in [(Some(8 * UNIT), None), (Some(5), None), (None, Some(5))] {
        assert_eq!(store.set_stripes(file, unit, data), Err(Fault::Invalid));
        assert_eq!(store.set_stripes(folder, unit, data), Err(Fault::Invalid));
    }
    store.write(file, 0, b"x").unwrap();
    assert_eq!(store.set_stripes(file, None, None), Err(Fault::Exists));
    store.sync().unwrap();
    drop(store);
    let store = world.open();
    assert_eq!(laid(&store, folder), Ok((UNIT, 2)));
    assert_eq!(laid(&store, file), Ok((UNIT, 2)));
}

#[test]
fn directories_are_added_and_removed_while_files_are_written() {
    for (directories, parity) in [(2, 0), (4, 2)] {
        let mut random = Random(parity as u64);
        let mut world = World::new(directories, parity, 7).with_slots(2 * UNIT);
        let mut store = world.create();
        let mut files = files(&store, &mut random);
        for round in 0..4 {
            if round % 2 == 0 {
                let (path, id, disk) = world.more();
                store.add(&path, id, disk).unwrap();
            } else {
                store.retire(&[round / 2]).unwrap();
            }
            assert!(store.has_to_spread());
            // All of the time, although others use the files.
            store.set_share(100);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (store, is_over) = (&store, &is_over);
                let writers: Vec<_> = files
                    .iter_mut()
                    .take(2)
                    .zip(1..)
                    .map(|((ino, bytes), seed)| {
                        scope.spawn(move || {
                            let mut random = Random(seed + 10 * round as u64);
                            while !is_over.load(Ordering::SeqCst) {
                                let end = bytes.len().min(20 * UNIT) as u64 + 100;
                                let at = random.below(end) as usize;
                                let len = random.below(3 * UNIT as u64) as usize + 1;
                                let new = random.bytes(len);
                                store.write(*ino, at as u64, &new).unwrap();
                                bytes.resize(bytes.len().max(at + new.len()), 0);
                                bytes[at..at + new.len()].copy_from_slice(&new);
                                let mut back = vec![0; new.len()];
                                store.read(*ino, at as u64, &mut back).unwrap();
                                assert!(back == new);
                            }
                        })
                    })
                    .collect();
                store.spread(&|| false).unwrap();
                is_over.store(true, Ordering::SeqCst);
                for writer in writers {
                    writer.join().unwrap();
                }
            });
            assert!(!store.has_to_spread());
            let over = store.current().over;
            for (ino, bytes) in &files {
                assert_eq!(store.stripes(*ino).unwrap().over, over);
                assert!(contents(&store, *ino) == *bytes);
            }
            store.sync().unwrap();
            assert_eq!(store.check(&|| false), Ok(vec![]));
            // What is added takes the number of what was removed.
            let members = store.state().members;
            let removed = members.iter().position(|m| m.health == Health::Removed);
            assert_eq!(removed, (round % 2 == 1).then_some(round / 2));
            drop(store);
            if parity > 0 {
                let mut world = world.copy();
                world.lose(directories);
                let store = world.open();
                for (ino, bytes) in &files {
                    assert!(contents(&store, *ino) == *bytes);
                }
            }
            store = world.open();
        }
    }
}

#[test]
fn a_removed_directory_is_not_needed_and_its_number_is_given_again() {
    let mut world = World::new(4, 1, 7);
    let store = world.create();
    let ino = make(&store, ROOT, b"file", kind::FILE);
    let bytes = Random(3).bytes(20 * UNIT);
    store.write(ino, 0, &bytes).unwrap();
    store.retire(&[1]).unwrap();
    store.spread(&|| false).unwrap();
    let (path, id, disk) = world.more();
    drop(store);
    world.lose(1);
    let store = world.open();
    assert!(contents(&store, ino) == bytes);
    assert_eq!((store.current().data, store.state().members.len()), (2, 4));
    store.add(&path, id, disk).unwrap();
    assert_eq!(store.state().members[1].path, path);
    store.spread(&|| false).unwrap();
    assert_eq!(store.current(), store.state().base);
    assert!(contents(&store, ino) == bytes);
    // Too few for the parity.
    for n in [0, 1] {
        store.retire(&[n]).unwrap();
        store.spread(&|| false).unwrap();
    }
    let error = store.retire(&[2]).unwrap_err();
    assert!(error.contains("at least 2"), "{error}");
}
