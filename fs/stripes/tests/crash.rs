//! Crashes at every write, the loss or scrambling of directories, and scrambled files: what was
//! synced is right, and nothing panics.
#![forbid(unsafe_code)]

mod common;

use std::collections::BTreeMap;

use common::{Random, World};
use margay_fs_stripes::{Allocating, Fault, Making, ROOT, Renaming, Setting, Store, kind};

/// What a file may be after a crash: as it was synced, or as it became since.
#[derive(Clone, Default)]
struct Expected {
    synced: Option<Vec<u8>>,
    /// Contents after each change since the sync; none where it was deleted.
    since: Vec<Option<Vec<u8>>>,
}

type Model = BTreeMap<u8, Expected>;

impl Expected {
    fn now(&self) -> Option<&Vec<u8>> {
        self.since.last().unwrap_or(&self.synced).as_ref()
    }
}

fn name(n: u8) -> Vec<u8> {
    format!("file-{n}").into_bytes()
}

/// Changes files at random until the world ends or the steps are done.
fn work(world: &mut World, store: &Store, model: &mut Model, random: &mut Random, steps: usize) {
    let row = store.state().base.row_bytes();
    for _ in 0..steps {
        let n = random.below(4) as u8;
        let expected = model.entry(n).or_default();
        let done = match random.below(13) {
            0..=4 => write(store, expected, random, n, row),
            5 => cut(store, expected, random, n, row),
            6 => unlink(store, expected, n),
            7 => {
                let to = (n + 1) % 4;
                match store.rename((ROOT, &name(n)), (ROOT, &name(to)), Renaming::Replace) {
                    Ok(()) => {
                        store.forget_all();
                        let contents = expected.now().cloned();
                        expected.since.push(None);
                        model.entry(to).or_default().since.push(contents);
                        Ok(())
                    }
                    Err(Fault::Missing) => Ok(()),
                    Err(fault) => Err(fault),
                }
            }
            8 => store.write_out_all(),
            9 => hole(store, expected, random, n, row),
            10 => resize(world, store, random),
            // A part of the moves, as when the service ends.
            11 => {
                let most = random.below(4);
                let moved = std::cell::Cell::new(0);
                store.spread(&|| moved.replace(moved.get() + 1) >= most)
            }
            _ => store.sync().map(|()| {
                for expected in model.values_mut() {
                    if let Some(last) = expected.since.pop() {
                        expected.synced = last;
                    }
                    expected.since.clear();
                }
            }),
        };
        if done.is_err() {
            return;
        }
    }
}

/// Adds a directory, or lets one go, where there are few or many.
fn resize(world: &mut World, store: &Store, random: &mut Random) -> Result<(), Fault> {
    let over = store.current().over;
    if over.count() < 4 + store.current().parity && world.disks.len() < 8 {
        let (path, id, disk) = world.more();
        return store.add(&path, id, disk).map_err(|_| Fault::Broken);
    }
    let leaving = over.numbers().nth(random.below(2) as usize);
    match store.retire(&[leaving.unwrap_or(0)]) {
        Err(_) if world.has_ended() => Err(Fault::Broken),
        _ => Ok(()),
    }
}

fn write(
    store: &Store,
    expected: &mut Expected,
    random: &mut Random,
    n: u8,
    row: usize,
) -> Result<(), Fault> {
    let ino = match store.lookup(ROOT, &name(n)) {
        Ok(known) => known.ino,
        Err(_) => {
            let how = Making {
                mode: kind::FILE | 0o644,
                ..Making::default()
            };
            expected.since.push(Some(Vec::new()));
            let ino = store.make(ROOT, &name(n), &how)?.ino;
            if random.below(2) == 0 {
                let most = store.current().over.count() - store.current().parity;
                let data = random.below(most as u64) as usize + 1;
                store.set_stripes(ino, Some(64 << 10), Some(data))?;
            }
            ino
        }
    };
    let at = random.below(2 * row as u64) as usize;
    let len = random.below(2 * row as u64) as usize + 1;
    let bytes = random.bytes(len);
    let mut contents = expected.now().cloned().unwrap_or_default();
    contents.resize(contents.len().max(at + bytes.len()), 0);
    contents[at..at + bytes.len()].copy_from_slice(&bytes);
    // Noted before it is tried: a write that fails may have been done in part.
    expected.since.push(Some(contents));
    store.write_all(ino, at as u64, &bytes)
}

fn cut(
    store: &Store,
    expected: &mut Expected,
    random: &mut Random,
    n: u8,
    row: usize,
) -> Result<(), Fault> {
    let Ok(known) = store.lookup(ROOT, &name(n)) else {
        return Ok(());
    };
    let size = random.below(3 * row as u64) as usize;
    let mut contents = expected.now().cloned().unwrap_or_default();
    contents.resize(size, 0);
    expected.since.push(Some(contents));
    let done = store.setattr(known.ino, &Setting::default(), Some(size as u64));
    done.map(drop)
}

fn hole(
    store: &Store,
    expected: &mut Expected,
    random: &mut Random,
    n: u8,
    row: usize,
) -> Result<(), Fault> {
    let Ok(known) = store.lookup(ROOT, &name(n)) else {
        return Ok(());
    };
    let from = random.below(2 * row as u64) as usize;
    let len = random.below(2 * row as u64) as usize + 1;
    let mut contents = expected.now().cloned().unwrap_or_default();
    let end = (from + len).min(contents.len());
    if from < end {
        contents[from..end].fill(0);
    }
    expected.since.push(Some(contents));
    let how = Allocating::Zeros { grows: false };
    store.allocate(known.ino, from as u64, len as u64, how)
}

fn unlink(store: &Store, expected: &mut Expected, n: u8) -> Result<(), Fault> {
    match store.unlink(ROOT, &name(n), false) {
        Err(Fault::Missing) => Ok(()),
        done => {
            expected.since.push(None);
            store.forget_all();
            done
        }
    }
}

/// Every block of every file is as it was synced, or as it was at some time since.
fn verify(store: &Store, model: &Model, what: &str) {
    let lines = store.check(&|| false).unwrap();
    assert!(
        !lines.iter().any(|l| l.contains("lost")),
        "{what}: {lines:?}"
    );
    for (n, expected) in model {
        let found = match store.lookup(ROOT, &name(*n)) {
            Ok(known) => {
                let mut bytes = vec![0; known.attr.size as usize];
                let len = store.read(known.ino, 0, &mut bytes);
                assert_eq!(len, Ok(bytes.len()), "{what}: file {n}");
                Some(bytes)
            }
            Err(Fault::Missing) => None,
            Err(fault) => panic!("{what}: file {n}: {fault}"),
        };
        if expected.since.is_empty() {
            assert!(found == expected.synced, "{what}: file {n} was synced");
            continue;
        }
        let Some(found) = found else {
            let may_be_gone = expected.synced.is_none() || expected.since.contains(&None);
            assert!(may_be_gone, "{what}: file {n} is gone");
            continue;
        };
        let times: Vec<&Vec<u8>> = expected
            .since
            .iter()
            .chain([&expected.synced])
            .flatten()
            .collect();
        for (block, bytes) in found.chunks(4096).enumerate() {
            let zeros = vec![0; bytes.len()];
            let at = block * 4096;
            // What lies behind the end at some time is zeros then.
            let may_be = |contents: &Vec<u8>| {
                let there = contents.get(at..).unwrap_or_default();
                let there = &there[..there.len().min(bytes.len())];
                bytes[..there.len()] == *there && bytes[there.len()..] == zeros[there.len()..]
            };
            let is_right = times.iter().any(|contents| may_be(contents));
            assert!(is_right, "{what}: file {n}, block {block} is of no time");
        }
    }
}

/// One schedule: work, the end of the world after some operations, chance about what was not
/// synced, the loss or scrambling of as many directories as there is parity, and a look; then more
/// work on what is left.
fn schedule(seed: u64, directories: usize, parity: usize, end: i64) -> bool {
    let what = format!("seed {seed}, {directories} with {parity}, end after {end}");
    let mut random = Random(seed);
    let slots = if seed.is_multiple_of(2) {
        64 << 10
    } else {
        128 << 10
    };
    let mut world = World::new(directories, parity, seed).with_slots(slots);
    let store = world.create();
    let mut model = Model::new();
    if end % 3 == 1 {
        // Directories are then written by several threads.
        store.set_helpers(2);
    }
    world.end_after(end);
    work(&mut world, &store, &mut model, &mut random, 40);
    let has_ended = world.has_ended();
    drop(store);
    let mut world = world.after_crash(&mut random);
    let mut lost = Vec::new();
    // Those that belong to it.
    let belongs = |n: &usize| {
        let read = margay_fs_stripes::read_state(&*world.disk(*n));
        matches!(read, Ok(margay_fs_stripes::Read::State(_)))
    };
    let there: Vec<usize> = (0..world.disks.len()).filter(belongs).collect();
    while lost.len() < parity {
        let n = there[random.below(there.len() as u64) as usize];
        if !lost.contains(&n) {
            lost.push(n);
        }
    }
    for n in lost {
        if random.below(2) == 0 {
            world.lose(n);
        } else {
            world.disks[n].scramble(&mut random);
        }
    }
    let store = world.try_open().unwrap_or_else(|e| panic!("{what}: {e}"));
    verify(&store, &model, &what);
    // What is there now is what the next sync makes sure.
    let mut again = Model::new();
    for n in 0..4 {
        let contents = store.lookup(ROOT, &name(n)).ok().map(|known| {
            let mut bytes = vec![0; known.attr.size as usize];
            store.read(known.ino, 0, &mut bytes).unwrap();
            bytes
        });
        again.entry(n).or_default().synced = contents;
    }
    store.sync().unwrap();
    work(&mut world, &store, &mut again, &mut random, 10);
    verify(&store, &again, &what);
    drop(store);
    let mut world = world.after_crash(&mut random);
    let store = world
        .try_open()
        .unwrap_or_else(|e| panic!("{what}, again: {e}"));
    verify(&store, &again, &format!("{what}, again"));
    has_ended
}

fn seeds() -> u64 {
    let asked = std::env::var("MARGAY_TEST_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(2)
}

#[test]
fn what_was_synced_is_right_whenever_the_world_ends() {
    for seed in 0..seeds() {
        for (directories, parity) in [(2, 1), (4, 1), (5, 2), (3, 0)] {
            let mut end = 0;
            loop {
                let has_ended = schedule(seed, directories, parity, end);
                if !has_ended {
                    break;
                }
                end += 1 + end / 16;
            }
        }
    }
}

#[test]
fn scrambled_directories_are_refused_or_right_and_never_a_panic() {
    for seed in 0..20 * seeds() {
        let mut random = Random(seed);
        let parity = random.below(3) as usize;
        let directories = parity + 1 + random.below(3) as usize;
        let mut world = World::new(directories, parity, seed);
        let store = world.create();
        let mut model = Model::new();
        work(&mut world, &store, &mut model, &mut random, 20);
        store.sync().unwrap();
        drop(store);
        for disk in &world.disks {
            if random.below(2) == 0 {
                disk.scramble(&mut random);
            }
        }
        let Ok(store) = world.try_open() else {
            continue;
        };
        let _ = store.check(&|| false);
        let _ = store.scrub(&|| false);
        for n in 0..4 {
            if let Ok(known) = store.lookup(ROOT, &name(n)) {
                let mut bytes = vec![0; known.attr.size as usize];
                let _ = store.read(known.ino, 0, &mut bytes);
                let _ = store.write(known.ino, 5, b"more");
            }
        }
        let _ = store.sync();
    }
}
