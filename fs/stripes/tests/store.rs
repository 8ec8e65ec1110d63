//! The store over directories of the system and over disks that forget, compared with a plain
//! model in memory.
#![forbid(unsafe_code)]

mod common;

use common::{FaultyDisk, Random, World};

use margay_fs_stripes::{
    Allocating, Amount, Fault, Health, Making, Owner, Part, ROOT, Renaming, Setting, kind,
};

fn file_mode() -> Making {
    Making {
        mode: kind::FILE | 0o644,
        ..Making::default()
    }
}

/// Random writes, cuts, syncs and restarts of one file against a vector of bytes.
fn model_run(seed: u64, directories: usize, parity: usize) {
    let mut random = Random(seed);
    let mut world = World::new(directories, parity, seed);
    let mut store = world.create();
    let ino = store.make(ROOT, b"file", &file_mode()).unwrap().ino;
    let row = store.state().base.row_bytes();
    let mut model: Vec<u8> = Vec::new();
    for step in 0..60 {
        match random.below(12) {
            0..=4 => {
                let at = random.below(5 * row as u64) as usize;
                let len = match random.below(3) {
                    0 => random.below(100),
                    1 => random.below(row as u64),
                    _ => random.below(3 * row as u64),
                } as usize;
                let at = if random.below(2) == 0 {
                    at / 4096 * 4096
                } else {
                    at
                };
                let bytes = random.bytes(len);
                store.write(ino, at as u64, &bytes).unwrap();
                if len > 0 {
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].copy_from_slice(&bytes);
                }
            }
            5 => {
                let size = random.below(6 * row as u64) as usize;
                store
                    .setattr(ino, &Setting::default(), Some(size as u64))
                    .unwrap();
                model.resize(size, 0);
            }
            6 => store.sync_file(ino).unwrap(),
            7 => store.write_out_all().unwrap(),
            8 => {
                store.sync().unwrap();
                drop(store);
                store = world.open();
            }
            9 | 10 => {
                let at = random.below(5 * row as u64);
                let len = random.below(3 * row as u64) + 1;
                let (at, len) = if random.below(2) == 0 {
                    (
                        at / row as u64 * row as u64,
                        len.next_multiple_of(row as u64),
                    )
                } else {
                    (at, len)
                };
                let grows = random.below(2) == 0;
                let how = Allocating::Zeros { grows };
                store.allocate(ino, at, len, how).unwrap();
                let (at, end) = (at as usize, (at + len) as usize);
                if grows {
                    model.resize(model.len().max(end), 0);
                }
                let end = end.min(model.len());
                if at < end {
                    model[at..end].fill(0);
                    if (at, end) == (0, model.len()) {
                        store.sync().unwrap();
                        assert_eq!(store.getattr(ino).unwrap().blocks, 0);
                        assert_eq!(store.seek(ino, 0, false), Err(Fault::NoData));
                    }
                }
            }
            _ => {
                let end = random.below(6 * row as u64) + 1;
                let how = Allocating::Space { grows: true };
                store.allocate(ino, 0, end, how).unwrap();
                model.resize(model.len().max(end as usize), 0);
                for is_hole in [false, true] {
                    let from = random.below(end);
                    // What is called a hole has no bytes.
                    if let (Ok(at), false) = (store.seek(ino, from, false), is_hole) {
                        assert!(model[from as usize..at as usize].iter().all(|b| *b == 0));
                    } else if let Ok(at) = store.seek(ino, from, is_hole) {
                        assert!(at >= from && at <= model.len() as u64);
                    }
                }
            }
        }
        let mut all = vec![0xee; model.len() + 10];
        let len = store.read(ino, 0, &mut all).unwrap();
        assert_eq!(len, model.len(), "seed {seed}, step {step}");
        assert!(
            all[..len] == model[..],
            "seed {seed}, step {step}: contents"
        );
        assert_eq!(store.getattr(ino).unwrap().attr.size, model.len() as u64);
    }
    store.sync().unwrap();
    assert_eq!(store.check(&|| false).unwrap(), Vec::<String>::new());
    // The loss of any directories up to the parity.
    drop(store);
    for first in 0..directories {
        for second in 0..directories {
            let mut world = world.copy();
            if parity > 0 {
                world.lose(first);
            }
            if parity > 1 {
                world.lose(second);
            }
            let store = world.open();
            let mut all = vec![0; model.len()];
            store.read(ino, 0, &mut all).unwrap();
            assert!(all == model, "seed {seed} without {first}, {second}");
            if parity < 2 {
                break;
            }
        }
    }
}

#[test]
fn a_file_is_as_a_plain_one_and_survives_the_loss_of_directories() {
    for seed in 0..12 {
        for (directories, parity) in [(1, 0), (3, 0), (2, 1), (4, 1), (3, 2), (5, 2)] {
            model_run(seed * 100 + directories as u64 * 10, directories, parity);
        }
    }
}

#[test]
fn access_control_lists_follow_modes_and_are_inherited() {
    const ACCESS: &[u8] = b"system.posix_acl_access";
    const DEFAULT: &[u8] = b"system.posix_acl_default";
    let list = |entries: &[(u16, u16, u32)]| {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&rights.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    };
    let none = u32::MAX;
    let with_user = |owner, user, group, mask, others| {
        list(&[
            (1, owner, none),
            (2, user, 1000),
            (4, group, none),
            (16, mask, none),
            (32, others, none),
        ])
    };
    let mut world = World::new(3, 1, 4);
    let store = world.create();
    let folder = Making {
        mode: kind::FOLDER | 0o777,
        umask: 0o022,
        ..Making::default()
    };
    let folder_ino = store.make(ROOT, b"folder", &folder).unwrap().ino;
    let mode =
        |store: &margay_fs_stripes::Store, ino| store.getattr(ino).unwrap().attr.mode & 0o777;
    assert_eq!(mode(&store, folder_ino), 0o755);
    let set = |ino, name: &[u8], value: &[u8]| store.set_attribute(ino, name, Some(value), None);
    assert_eq!(set(folder_ino, ACCESS, b"none"), Err(Fault::Invalid));
    set(folder_ino, ACCESS, &with_user(7, 7, 5, 3, 0)).unwrap();
    assert_eq!(mode(&store, folder_ino), 0o730);
    let changed = Setting {
        mode: Some(0o750),
        ..Setting::default()
    };
    store.setattr(folder_ino, &changed, None).unwrap();
    assert_eq!(
        store.attribute(folder_ino, ACCESS),
        Ok(with_user(7, 7, 5, 5, 0))
    );
    set(folder_ino, DEFAULT, &with_user(7, 7, 5, 7, 4)).unwrap();
    // The default list counts instead of the umask.
    let file = Making {
        umask: 0o077,
        mode: kind::FILE | 0o666,
        ..Making::default()
    };
    let file = store.make(folder_ino, b"file", &file).unwrap().ino;
    assert_eq!(mode(&store, file), 0o664);
    assert_eq!(store.attribute(file, ACCESS), Ok(with_user(6, 7, 5, 6, 4)));
    let inner = store.make(folder_ino, b"inner", &folder).unwrap().ino;
    assert_eq!(
        store.attribute(inner, DEFAULT),
        Ok(with_user(7, 7, 5, 7, 4))
    );
    // One that a mode can say is none.
    set(
        file,
        ACCESS,
        &list(&[(1, 6, none), (4, 0, none), (32, 0, none)]),
    )
    .unwrap();
    assert_eq!(store.attribute(file, ACCESS), Err(Fault::NoAttribute));
    store.sync().unwrap();
    drop(store);
    let store = world.open();
    assert_eq!(mode(&store, file), 0o600);
    assert_eq!(
        store.attribute(folder_ino, ACCESS),
        Ok(with_user(7, 7, 5, 5, 0))
    );
}

#[test]
fn names_links_and_attributes_survive_a_restart() {
    let mut world = World::new(4, 1, 1);
    let store = world.create();
    let folder = Making {
        mode: kind::FOLDER | 0o2755,
        gid: 7,
        ..Making::default()
    };
    let a = store.make(ROOT, b"a", &folder).unwrap().ino;
    let b = store
        .make(
            a,
            b"b",
            &Making {
                gid: 9,
                ..folder.clone()
            },
        )
        .unwrap();
    assert_eq!((b.attr.gid, b.attr.mode & 0o7777), (7, 0o2755));
    let file = store.make(a, b"file", &file_mode()).unwrap().ino;
    store.write(file, 0, b"contents").unwrap();
    store.link(file, b.ino, b"other").unwrap();
    let target = Making {
        mode: kind::LINK | 0o777,
        target: b"../file".to_vec(),
        ..Making::default()
    };
    let link = store.make(b.ino, b"link", &target).unwrap().ino;
    store
        .set_attribute(file, b"user.x", Some(b"1"), None)
        .unwrap();
    store
        .rename((a, b"b"), (ROOT, b"moved"), Renaming::NoReplace)
        .unwrap();
    assert_eq!(
        store.rename((ROOT, b"a"), (b.ino, b"x"), Renaming::Replace),
        Ok(())
    );
    assert_eq!(
        store.rename((ROOT, b"moved"), (a, b"loop"), Renaming::Replace),
        Err(Fault::Invalid)
    );
    assert_eq!(store.unlink(ROOT, b"moved", true), Err(Fault::NotEmpty));
    assert_eq!(store.unlink(ROOT, b"moved", false), Err(Fault::Folder));
    assert_eq!(store.make(ROOT, b"moved", &file_mode()), Err(Fault::Exists));
    assert_eq!(
        store.make(ROOT, &[b'n'; 256], &file_mode()),
        Err(Fault::LongName)
    );
    let how = Setting {
        mtime: Some(-5),
        mode: Some(0o600),
        ..Setting::default()
    };
    store.setattr(file, &how, None).unwrap();
    store.write_out_all().unwrap();
    let before = store.getattr(file).unwrap();
    store.sync().unwrap();
    drop(store);
    let store = world.open();
    let moved = store.lookup(ROOT, b"moved").unwrap();
    assert_eq!(moved.attr.nlink, 3);
    let x = store.lookup(moved.ino, b"x").unwrap();
    assert_eq!(store.lookup(x.ino, b"..").unwrap().ino, moved.ino);
    let known = store.lookup(x.ino, b"file").unwrap();
    assert_eq!(known, before);
    assert_eq!((known.attr.nlink, known.attr.mtime), (2, -5));
    assert_eq!(store.lookup(moved.ino, b"other").unwrap().ino, file);
    assert_eq!(store.readlink(link).unwrap(), b"../file");
    assert_eq!(store.attribute(file, b"user.x").unwrap(), b"1");
    let names: Vec<_> = store.list(moved.ino, 0, 100).unwrap();
    let names: Vec<_> = names.iter().map(|e| e.name.as_slice()).collect();
    assert_eq!(names, [b".".as_slice(), b"..", b"other", b"link", b"x"]);
    assert_eq!(store.check(&|| false).unwrap(), Vec::<String>::new());
}

#[test]
fn a_listing_goes_on_where_it_was_while_entries_go() {
    let mut world = World::new(2, 0, 1);
    let store = world.create();
    for n in 0..50 {
        store
            .make(ROOT, format!("f{n}").as_bytes(), &file_mode())
            .unwrap();
    }
    let (mut after, mut seen) = (0, 0);
    loop {
        let some = store.list(ROOT, after, 7).unwrap();
        let Some(last) = some.last() else { break };
        after = last.next;
        for entry in some {
            if entry.name.starts_with(b"f") {
                seen += 1;
                store.unlink(ROOT, &entry.name, false).unwrap();
            }
        }
    }
    assert_eq!(seen, 50);
    assert_eq!(store.list(ROOT, 0, 100).unwrap().len(), 2);
}

#[test]
fn a_deleted_file_lives_as_long_as_somebody_has_it() {
    let mut world = World::new(3, 1, 1);
    let store = world.create();
    let file = store.make(ROOT, b"file", &file_mode()).unwrap().ino;
    store.write(file, 0, b"still there").unwrap();
    store.unlink(ROOT, b"file", false).unwrap();
    let mut bytes = [0; 11];
    assert_eq!(store.read(file, 0, &mut bytes), Ok(11));
    assert_eq!(&bytes, b"still there");
    store.forget(file, 1);
    assert_eq!(store.read(file, 0, &mut bytes), Err(Fault::Missing));
    store.sync().unwrap();
    drop(store);
    assert_eq!(world.open().getattr(file), Err(Fault::Missing));
}

#[test]
fn a_flipped_bit_is_served_right_found_and_mended() {
    for (directories, parity) in [(4, 1), (5, 2)] {
        let mut world = World::new(directories, parity, 3);
        let store = world.create();
        let file = store.make(ROOT, b"file", &file_mode()).unwrap().ino;
        let mut random = Random(5);
        let bytes = random.bytes(3 * store.state().base.row_bytes() + 100);
        store.write(file, 0, &bytes).unwrap();
        store.sync().unwrap();
        for n in 0..directories {
            for is_record in [false, true] {
                world.disks[n].flip(is_record, 8 * 5000 + n as u64);
                let mut all = vec![0; bytes.len()];
                store.read(file, 0, &mut all).unwrap();
                assert!(all == bytes);
                let found = store.check(&|| false).unwrap();
                assert_eq!(found.len(), 1, "{found:?}");
                assert!(found[0].starts_with("/file, row "), "{found:?}");
                let done = store.scrub(&|| false).unwrap();
                assert_eq!((done.mended, done.lost), (1, 0));
                assert_eq!(store.check(&|| false).unwrap(), Vec::<String>::new());
            }
        }
    }
}

#[test]
fn a_failed_directory_is_replaced_and_rebuilt() {
    let mut world = World::new(4, 1, 3);
    let store = world.create();
    let file = store.make(ROOT, b"file", &file_mode()).unwrap().ino;
    let mut random = Random(5);
    let row = store.state().base.row_bytes();
    let mut bytes = random.bytes(9 * row + 100);
    store.write(file, 0, &bytes).unwrap();
    store.sync().unwrap();
    world.disks[2].break_down();
    let more = random.bytes(2 * row);
    store.write(file, row as u64, &more).unwrap();
    bytes[row..3 * row].copy_from_slice(&more);
    store.sync().unwrap();
    assert_eq!(store.state().members[2].health, Health::Failed);
    assert!(store.events().iter().any(|e| e.contains("failed")));
    let mut all = vec![0; bytes.len()];
    store.read(file, 0, &mut all).unwrap();
    assert!(all == bytes);
    // Another failure is too much.
    world.disks[2] = FaultyDisk::new();
    store.replace(2, "new", 99, world.disk(2)).unwrap();
    assert!(store.replace(1, "more", 98, FaultyDisk::shared()).is_err());
    store.rebuild(&|| false).unwrap();
    assert_eq!(store.state().members[2].health, Health::Good);
    assert_eq!(store.check(&|| false).unwrap(), Vec::<String>::new());
    drop(store);
    for lost in 0..4 {
        let mut world = world.copy();
        world.lose(lost);
        let store = world.open();
        store.read(file, 0, &mut all).unwrap();
        assert!(all == bytes, "without {lost}");
    }
}

/// The next log is whole in one directory when the other one finds no space for it. It must not be
/// taken for the one in force at the next start, which has more.
#[test]
fn a_log_that_not_every_directory_could_take_is_withdrawn() {
    for full in [0, 1] {
        let mut world = World::new(2, 1, 7);
        let store = world.create();
        let ino = store.make(ROOT, b"file", &file_mode()).unwrap().ino;
        store.sync().unwrap();
        // The first log is log.1, so the next one is log.0.
        world.disks[full].fill(Some(Part::Log(0)));
        let value = vec![7; 60_000];
        for n in 0..400_u32 {
            let value = [value.as_slice(), &n.to_le_bytes()].concat();
            store
                .set_attribute(ino, b"user.a", Some(&value), None)
                .unwrap();
        }
        // The log is long, and its replacement fails.
        store.sync().unwrap();
        store.make(ROOT, b"later", &file_mode()).unwrap();
        store.sync().unwrap();
        assert_eq!(store.state().members[full].health, Health::Good);
        drop(store);
        world.disks[full].fill(None);
        let mut world = world.after_crash(&mut Random(full as u64));
        let store = world.open();
        assert!(store.lookup(ROOT, b"later").is_ok(), "without {full}");
    }
}

#[test]
fn a_user_has_no_more_than_the_quota_and_what_goes_makes_room() {
    let mut world = World::new(4, 1, 7);
    let store = world.create();
    let file = |uid| Making { uid, ..file_mode() };
    let limit = Amount {
        bytes: 8 << 20,
        files: 3,
    };
    store.set_quota(Owner::User(7), limit).unwrap();
    let ino = store.make(ROOT, b"a", &file(7)).unwrap().ino;
    let bytes = vec![1; 3 << 20];
    // Small parts wait in memory; they count as well.
    for n in 0..2 {
        for (at, part) in bytes.chunks(40_000).enumerate() {
            let at = (n * bytes.len() + at * 40_000) as u64;
            store.write(ino, at, part).unwrap();
        }
    }
    let end = 6 << 20;
    // As much is written as there is room for.
    assert_eq!(store.write(ino, end, &bytes), Ok(2 << 20));
    assert_eq!(store.getattr(ino).unwrap().attr.size, 8 << 20);
    assert_eq!(store.write(ino, 8 << 20, b"x"), Err(Fault::OverQuota));
    store
        .setattr(ino, &Setting::default(), Some(end + 100))
        .unwrap();
    assert_eq!(store.write(ino, end + 100, &bytes), Ok((2 << 20) - 100));
    store.setattr(ino, &Setting::default(), Some(end)).unwrap();
    // What is written over, and what belongs to others, takes nothing.
    store.write(ino, 0, &bytes).unwrap();
    store.write(ino, 5, &bytes[..100]).unwrap();
    let other = store.make(ROOT, b"other", &file(8)).unwrap().ino;
    store.write(other, 0, &bytes).unwrap();
    store.write(ino, end, &bytes[..2 << 20]).unwrap();
    assert_eq!(store.write(ino, 8 << 20, b"x"), Err(Fault::OverQuota));
    // Files have a limit of their own.
    store.make(ROOT, b"b", &file(7)).unwrap();
    store.make(ROOT, b"c", &file(7)).unwrap();
    let more = store.make(ROOT, b"d", &file(7));
    assert_eq!(more, Err(Fault::OverQuota));
    let room = |store: &margay_fs_stripes::Store| {
        store.sync().unwrap();
        let all = store.quotas();
        let is = |quota: &&margay_fs_stripes::Quota, user| quota.owner == Owner::User(user);
        let of = |user| all.iter().find(|quota| is(quota, user)).copied();
        (of(7).unwrap(), of(8).unwrap())
    };
    let (seven, eight) = room(&store);
    assert_eq!((seven.used, seven.limit), (limit, limit));
    assert_eq!((eight.used.files, eight.limit), (1, Amount::default()));
    // A file that gets this owner counts from then on.
    store.unlink(ROOT, b"b", false).unwrap();
    store.unlink(ROOT, b"c", false).unwrap();
    store.forget_all();
    store
        .setattr(ino, &Setting::default(), Some(1 << 20))
        .unwrap();
    let given = Setting {
        uid: Some(7),
        ..Setting::default()
    };
    store.setattr(other, &given, None).unwrap();
    let too_much = vec![1; (4 << 20) + 1];
    assert_eq!(store.write(ino, 1 << 20, &too_much), Ok(4 << 20));
    assert_eq!(store.attributes(ROOT), Ok(vec![]));
    // The log keeps the limits.
    store.sync().unwrap();
    drop(store);
    let store = world.open();
    let all = store.quotas();
    let seven = all.iter().find(|quota| quota.owner == Owner::User(7));
    assert_eq!(seven.map(|quota| quota.limit), Some(limit));
    assert_eq!(store.write(ino, 5 << 20, b"x"), Err(Fault::OverQuota));
    store.set_quota(Owner::User(7), Amount::default()).unwrap();
    store.write(ino, 5 << 20, b"x").unwrap();
}

#[test]
fn a_group_has_no_more_than_its_quota_whoever_of_it_writes() {
    let mut world = World::new(4, 1, 7);
    let store = world.create();
    let how = |kind, uid, gid| Making {
        mode: kind | 0o775,
        uid,
        gid,
        ..Making::default()
    };
    let limit = Amount {
        bytes: 2 << 20,
        files: 4,
    };
    let folder = store.make(ROOT, b"ours", &how(kind::FOLDER | 0o2000, 1, 50));
    let folder = folder.unwrap().ino;
    store.set_quota(Owner::Group(50), limit).unwrap();
    // What is made there belongs to the group, and so do directories in it.
    let inner = store
        .make(folder, b"inner", &how(kind::FOLDER, 2, 9))
        .unwrap();
    let first = store.make(inner.ino, b"a", &how(kind::FILE, 1, 9)).unwrap();
    let second = store.make(folder, b"b", &how(kind::FILE, 2, 9)).unwrap();
    assert_eq!((inner.attr.gid, first.attr.gid), (50, 50));
    let third = store.make(folder, b"c", &how(kind::FILE, 3, 9));
    assert_eq!(third, Err(Fault::OverQuota));
    let bytes = vec![1; 1 << 20];
    store.write(first.ino, 0, &bytes).unwrap();
    store.write(second.ino, 0, &bytes).unwrap();
    assert_eq!(
        store.write(second.ino, 1 << 20, b"x"),
        Err(Fault::OverQuota)
    );
    // A user's own limit holds as well, and neither takes from the other.
    store
        .set_quota(Owner::User(2), Amount { bytes: 1, files: 0 })
        .unwrap();
    let given = Setting {
        gid: Some(9),
        ..Setting::default()
    };
    store.setattr(first.ino, &given, None).unwrap();
    assert_eq!(
        store.write(second.ino, 1 << 20, b"x"),
        Err(Fault::OverQuota)
    );
    store.set_quota(Owner::User(2), Amount::default()).unwrap();
    store.write(second.ino, 1 << 20, b"x").unwrap();
    store.sync().unwrap();
    drop(store);
    let all = world.open().quotas();
    let group = all
        .iter()
        .find(|quota| quota.owner == Owner::Group(50))
        .unwrap();
    assert_eq!((group.limit, group.used.files), (limit, 3));
}
