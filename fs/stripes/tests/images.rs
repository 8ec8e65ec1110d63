//! Stored file systems of earlier versions: each is read, whole and without a directory.
#![forbid(unsafe_code)]

mod common;

use std::io::IoSlice;
use std::sync::Arc;

use common::{FaultyDisk, clock};
use margay_fs_stripes::{Disk, Fault, PARTS, ROOT, Read, Store, read_state};

/// Disks with what an image lists.
fn disks(image: &str) -> Vec<Arc<FaultyDisk>> {
    let disks: Vec<_> = (0..3).map(|_| FaultyDisk::new()).collect();
    for line in image.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let disk = &disks[words[0].parse::<usize>().unwrap()];
        let part = *PARTS.iter().find(|part| part.name() == words[1]).unwrap();
        let at: u64 = words[2].parse().unwrap();
        let Some(hex) = words.get(3) else {
            disk.cut(part, at).unwrap();
            continue;
        };
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap())
            .collect();
        disk.write(part, at, &[IoSlice::new(&bytes)]).unwrap();
    }
    disks
}

fn contents(store: &Store, ino: u64) -> Vec<u8> {
    let mut bytes = vec![0; store.getattr(ino).unwrap().attr.size as usize];
    store.read(ino, 0, &mut bytes).unwrap();
    bytes
}

fn is_read(image: &str, version: &str, see: &dyn Fn(&Store, &str)) {
    for lost in [None, Some(0), Some(1), Some(2)] {
        let disks = disks(image);
        let Ok(Read::State(found)) = read_state(&*disks[0]) else {
            panic!("{version}: no state");
        };
        let used = disks
            .iter()
            .enumerate()
            .map(|(n, disk)| (Some(n) != lost).then(|| Arc::clone(disk) as Arc<dyn Disk>))
            .collect();
        let store = Store::open(found.state.id, used, clock()).unwrap();
        let what = format!("{version} without {lost:?}");
        assert_eq!(store.state().name, "image", "{what}");
        let numbers = store.lookup(ROOT, b"numbers").unwrap();
        let text: String = (1..=300).map(|n| format!("{n}\n")).collect();
        assert_eq!(contents(&store, numbers.ino), text.as_bytes(), "{what}");
        assert_eq!((numbers.attr.nlink, numbers.attr.mode), (2, 0o100_644));
        assert_eq!(numbers.attr.mtime, 981_173_106_000_000_000);
        assert_eq!(
            store.attribute(numbers.ino, b"user.colour"),
            Ok(b"green".to_vec())
        );
        let folder = store.lookup(ROOT, b"folder").unwrap();
        assert_eq!(
            (folder.attr.mode, folder.attr.uid, folder.attr.gid),
            (0o040_750, 1000, 1001)
        );
        let link = store.lookup(folder.ino, b"link").unwrap();
        assert_eq!(store.readlink(link.ino), Ok(b"../numbers".to_vec()));
        assert_eq!(
            store.lookup(folder.ino, b"second").unwrap().ino,
            numbers.ino
        );
        let sparse = contents(&store, store.lookup(ROOT, b"sparse").unwrap().ino);
        assert_eq!(sparse.len(), 1_000_003);
        assert!(sparse[..1_000_000].iter().all(|byte| *byte == 0));
        assert_eq!(sparse[1_000_000..], *b"end");
        assert_eq!(store.lookup(ROOT, b"none"), Err(Fault::Missing));
        if lost.is_none() {
            assert_eq!(store.check(&|| false), Ok(vec![]), "{what}");
        }
        see(&store, &what);
        store.write(numbers.ino, 0, b"2").unwrap();
        store.sync().unwrap();
    }
}

#[test]
fn a_file_system_of_version_1_is_read_and_written() {
    is_read(include_str!("images/v1.txt"), "version 1", &|_, _| {});
}

#[test]
fn a_file_system_of_version_2_is_read_and_written() {
    is_read(
        include_str!("images/v2.txt"),
        "version 2",
        &|store, what| {
            let holes = store.lookup(ROOT, b"holes").unwrap().ino;
            let bytes = contents(store, holes);
            assert_eq!(
                (bytes.len(), bytes[131_071], bytes[131_072]),
                (131_073, 0, b'x'),
                "{what}"
            );
            assert_eq!(store.seek(holes, 0, false), Ok(131_072));
            assert_eq!(store.stripes(holes), Ok(store.current()));
        },
    );
}

#[test]
fn a_file_system_of_version_3_is_read_and_written() {
    is_read(
        include_str!("images/v3.txt"),
        "version 3",
        &|store, what| {
            let single = store.lookup(ROOT, b"single").unwrap().ino;
            let file = store.lookup(single, b"file").unwrap().ino;
            assert_eq!(contents(store, file), b"one in a row\n", "{what}");
            for ino in [single, file] {
                assert_eq!(store.stripes(ino).unwrap().data, 1, "{what}");
            }
            assert_eq!(store.current().data, 2);
        },
    );
}
