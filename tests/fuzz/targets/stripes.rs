//! What a stripe directory of the parallel file system has: changes in the log, the state, and any
//! bytes at any place. Each is stored with the checksums that it has to have, as drawn in
//! docs/pfs-format.md: a hostile author knows them, too.
#![no_main]

use std::collections::{BTreeMap, HashMap};
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, OnceLock};

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use margay_core_stripes::Layout;
use margay_fs_stripes::{Clock, Disk, Making, PARTS, Part, ROOT, Space, Store, StoreMaking, kind};

const BLOCK: usize = 4096;
const DISKS: usize = 3;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Log(&'a [u8]),
    State(&'a [u8]),
    Bytes(Vec<(u8, u8, u32, &'a [u8])>),
}

/// A part in memory, of which only blocks are there that were written.
#[derive(Clone, Default)]
struct Stored {
    blocks: BTreeMap<u64, Vec<u8>>,
    len: u64,
}

#[derive(Default)]
struct Memory(Mutex<HashMap<Part, Stored>>);

impl Memory {
    fn put(&self, part: Part, mut at: u64, bytes: &[u8]) {
        let mut parts = self.0.lock().expect("no panic");
        let stored = parts.entry(part).or_default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let from = (at % BLOCK as u64) as usize;
            let (piece, others) = rest.split_at(rest.len().min(BLOCK - from));
            let block = stored.blocks.entry(at / BLOCK as u64);
            let block = block.or_insert_with(|| vec![0; BLOCK]);
            block[from..from + piece.len()].copy_from_slice(piece);
            at += piece.len() as u64;
            rest = others;
        }
        stored.len = stored.len.max(at);
    }

    fn all(&self, part: Part) -> Vec<u8> {
        let mut bytes = vec![0; self.len(part).expect("a length") as usize];
        self.read(part, 0, &mut bytes).expect("memory");
        bytes
    }
}

impl Disk for Memory {
    fn read(&self, part: Part, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let parts = self.0.lock().expect("no panic");
        let Some(stored) = parts.get(&part) else {
            return Ok(0);
        };
        let len = stored.len.saturating_sub(at).min(into.len() as u64) as usize;
        let (mut at, mut rest) = (at, &mut into[..len]);
        while !rest.is_empty() {
            let from = (at % BLOCK as u64) as usize;
            let (piece, others) = rest.split_at_mut(rest.len().min(BLOCK - from));
            match stored.blocks.get(&(at / BLOCK as u64)) {
                Some(block) => piece.copy_from_slice(&block[from..from + piece.len()]),
                None => piece.fill(0),
            }
            at += piece.len() as u64;
            rest = others;
        }
        Ok(len)
    }

    fn write(&self, part: Part, at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|p| p.iter().copied()).collect();
        self.put(part, at, &bytes);
        Ok(())
    }

    fn sync(&self, _: Part) -> io::Result<()> {
        Ok(())
    }

    fn cut(&self, part: Part, len: u64) -> io::Result<()> {
        let mut parts = self.0.lock().expect("no panic");
        let stored = parts.entry(part).or_default();
        let mut gone = stored.blocks.split_off(&len.div_ceil(BLOCK as u64));
        gone.clear();
        stored.len = len;
        Ok(())
    }

    fn len(&self, part: Part) -> io::Result<u64> {
        let parts = self.0.lock().expect("no panic");
        Ok(parts.get(&part).map_or(0, |stored| stored.len))
    }

    fn punch(&self, _: Part, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn reserve(&self, _: Part, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space {
            total: 1 << 40,
            free: 1 << 39,
        })
    }

    fn is_present(&self) -> bool {
        true
    }
}

fn clock() -> Clock {
    Arc::new(|| 1_000_000)
}

fn make(store: &Store, name: &[u8], kind: u32) -> u64 {
    let how = Making {
        mode: kind | 0o755,
        ..Making::default()
    };
    store.make(ROOT, name, &how).expect("a new name").ino
}

/// A file system with a directory and two files.
fn original() -> &'static Vec<HashMap<Part, Stored>> {
    static ORIGINAL: OnceLock<Vec<HashMap<Part, Stored>>> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        let disks: Vec<Arc<Memory>> = (0..DISKS).map(|_| Arc::default()).collect();
        let making = StoreMaking {
            name: "fuzz".into(),
            layout: Layout::new(DISKS, 1, 64 << 10).expect("a layout"),
            members: (0..DISKS as u64)
                .map(|n| (format!("d{n}"), n + 1))
                .collect(),
            id: 7,
            uid: 0,
            gid: 0,
        };
        let own = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Disk>);
        let store = Store::create(&making, own.collect(), clock()).expect("a new one");
        make(&store, b"folder", kind::FOLDER);
        let wide = make(&store, b"wide", kind::FILE);
        let narrow = make(&store, b"narrow", kind::FILE);
        store
            .set_stripes(narrow, None, Some(1))
            .expect("it is empty");
        for ino in [wide, narrow] {
            store.write(ino, 0, &[5; 150_000]).expect("there is room");
        }
        store.sync().expect("there is room");
        drop(store);
        let parts = disks
            .iter()
            .map(|disk| disk.0.lock().expect("no panic").clone());
        parts.collect()
    })
}

/// Appends a frame of changes to a log.
fn append(disk: &Memory, part: Part, contents: &[u8]) {
    let log = disk.all(part);
    let word = |at: usize, len: usize| -> Option<u64> {
        let bytes = log.get(at..at + len)?.iter().rev();
        Some(bytes.fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let (mut end, mut frames, mut before) = (0, 0, 0);
    let number = word(8, 8).unwrap_or(0);
    while log.get(end..end + 4) == Some(b"MPFL") && word(end + 8, 8) == Some(number) {
        before = word(end + 28, 4).unwrap_or(0) as u32;
        end += 32 + word(end + 4, 4).unwrap_or(0) as usize;
        frames += 1;
    }
    if frames == 0 {
        return;
    }
    let mut head = Vec::from(*b"MPFL");
    head.extend((contents.len() as u32).to_le_bytes());
    head.extend(number.to_le_bytes());
    head.extend((frames as u64).to_le_bytes());
    head.extend(2_u32.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c_append(before, &head), contents);
    head.extend(sum.to_le_bytes());
    disk.put(part, end as u64, &[&head, contents].concat());
}

/// The bytes of a state.
fn state(contents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from(*b"MARGAYPF");
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend((contents.len() as u32).to_le_bytes());
    bytes.extend(contents);
    let sum = crc32c::crc32c(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn used(store: &Store) {
    let _ = store.check(&|| false);
    for ino in 0..8 {
        let mut bytes = [0; 10_000];
        let _ = store.read(ino, 140_000, &mut bytes);
        let _ = store.list(ino, 0, 100);
        let _ = store.write(ino, 60_000, &bytes);
        let _ = store.stripes(ino);
    }
    let _ = store.sync();
    let _ = store.scrub(&|| false);
    let _ = store.spread(&|| false);
}

fuzz_target!(|data: &[u8]| {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else {
        return;
    };
    let parts = original().iter().cloned();
    let disks: Vec<Arc<Memory>> = parts
        .map(|parts| Arc::new(Memory(Mutex::new(parts))))
        .collect();
    match input {
        Input::Log(contents) => {
            for disk in &disks {
                for part in [Part::Log(0), Part::Log(1)] {
                    append(disk, part, contents);
                }
            }
        }
        Input::State(contents) => {
            for n in 0..2 {
                disks[0].put(Part::State(n), 0, &state(contents));
            }
        }
        Input::Bytes(changes) => {
            for (disk, part, at, bytes) in changes {
                let part = PARTS[usize::from(part) % PARTS.len()];
                disks[usize::from(disk) % DISKS].put(part, u64::from(at % 400_000), bytes);
            }
        }
    }
    let all = disks
        .iter()
        .map(|disk| Some(Arc::clone(disk) as Arc<dyn Disk>));
    if let Ok(store) = Store::open(7, all.collect(), clock()) {
        used(&store);
    }
});
