//! Disks in memory that end the world at any write, forget what was not synced, lie, and break
//! down.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use margay_core_stripes::Layout;
use margay_fs_stripes::{Clock, Disk, Part, Space, Store, StoreMaking};

/// Bytes that a real disk writes at once or not at all.
const SECTOR: usize = 512;

/// Numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }
}

/// What was done to a part since its last sync.
#[derive(Clone)]
enum Done {
    Write(u64, Vec<u8>),
    Cut(u64),
}

#[derive(Clone, Default)]
struct File {
    now: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<Done>,
}

fn apply(bytes: &mut Vec<u8>, done: &Done) {
    match done {
        Done::Write(at, new) => {
            let at = *at as usize;
            if bytes.len() < at + new.len() {
                bytes.resize(at + new.len(), 0);
            }
            bytes[at..at + new.len()].copy_from_slice(new);
        }
        Done::Cut(len) => bytes.resize(*len as usize, 0),
    }
}

/// A disk in memory.
#[derive(Default)]
pub struct FaultyDisk {
    files: Mutex<BTreeMap<Part, File>>,
    /// Operations until the world ends, shared by all disks of a world.
    budget: Arc<AtomicI64>,
    is_broken: AtomicBool,
    /// Most bytes of data, 0 for any.
    limit: AtomicU64,
    /// A part for which there is no space.
    full: Mutex<Option<Part>>,
    /// What was taken ahead for each part.
    reserved: Mutex<Vec<(Part, u64, u64)>>,
    /// Nothing may take more space than it has.
    has_no_space: AtomicBool,
}

impl FaultyDisk {
    pub fn new() -> Arc<FaultyDisk> {
        FaultyDisk::with(Arc::new(AtomicI64::new(i64::MAX)))
    }

    fn with(budget: Arc<AtomicI64>) -> Arc<FaultyDisk> {
        Arc::new(FaultyDisk {
            budget,
            ..FaultyDisk::default()
        })
    }

    #[allow(dead_code)]
    pub fn shared() -> Arc<dyn Disk> {
        FaultyDisk::new()
    }

    /// From now on everything fails.
    #[allow(dead_code)]
    pub fn break_down(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
    }

    /// It is there again, as it was left.
    #[allow(dead_code)]
    pub fn come_back(&self) {
        self.is_broken.store(false, Ordering::SeqCst);
    }

    /// Flips a bit of the data or of the checksums.
    #[allow(dead_code)]
    pub fn flip(&self, is_record: bool, bit: u64) {
        let part = if is_record { Part::Sums } else { Part::Data };
        let mut files = self.files.lock().unwrap();
        let file = files.get_mut(&part).unwrap();
        // In the second slot of 64 KiB, which is full: the first one is kept for cutting files.
        let at = if is_record {
            80 + bit / 8 % 64
        } else {
            (64 << 10) + bit / 8
        };
        file.now[at as usize] ^= 1 << (bit % 8);
    }

    /// From now on there is no space for this part.
    #[allow(dead_code)]
    pub fn fill(&self, part: Option<Part>) {
        *self.full.lock().unwrap() = part;
    }

    /// From now on no part grows beyond what was taken ahead for it.
    #[allow(dead_code)]
    pub fn take_all_space(&self) {
        self.has_no_space.store(true, Ordering::SeqCst);
    }

    /// Whether there is space for a range of a part.
    fn has_space(&self, part: Part, at: u64, end: u64) -> bool {
        let len = |files: &BTreeMap<Part, File>| files.get(&part).map_or(0, |f| f.now.len() as u64);
        let is_taken =
            |taken: &(Part, u64, u64)| taken.0 == part && taken.1 <= at && end <= taken.2;
        !self.has_no_space.load(Ordering::SeqCst)
            || end <= len(&self.files.lock().unwrap())
            || self.reserved.lock().unwrap().iter().any(is_taken)
    }

    /// Fills a part of a file with noise.
    #[allow(dead_code)]
    pub fn scramble(&self, random: &mut Random) {
        for file in self.files.lock().unwrap().values_mut() {
            let len = file.now.len();
            match random.below(3) {
                0 => file.now = random.bytes(len),
                1 if len > 0 => {
                    let at = random.below(len as u64) as usize;
                    let more = random.below((len - at) as u64) as usize;
                    let noise = random.bytes(more);
                    file.now[at..at + more].copy_from_slice(&noise);
                }
                _ => file.now.truncate(random.below(len as u64 + 1) as usize),
            }
            file.synced = file.now.clone();
        }
    }

    /// The disk after the machine failed: what was synced, and of the rest whatever chance left,
    /// sector by sector.
    fn after_crash(&self, random: &mut Random, budget: Arc<AtomicI64>) -> FaultyDisk {
        let files = self.files.lock().unwrap();
        let mut left = BTreeMap::new();
        let how = random.below(4);
        for (part, file) in &*files {
            let mut bytes = file.synced.clone();
            for done in &file.since {
                let Done::Write(at, new) = done else {
                    if how == 1 || random.below(2) == 0 {
                        apply(&mut bytes, done);
                    }
                    continue;
                };
                let mut from = 0;
                while from < new.len() {
                    let rest = SECTOR - (*at as usize + from) % SECTOR;
                    let to = (from + rest).min(new.len());
                    let is_kept = match how {
                        0 => false,
                        1 => true,
                        _ => random.below(2) == 0,
                    };
                    if is_kept {
                        let part = Done::Write(at + from as u64, new[from..to].to_vec());
                        apply(&mut bytes, &part);
                    }
                    from = to;
                }
            }
            left.insert(
                *part,
                File {
                    now: bytes.clone(),
                    synced: bytes,
                    since: Vec::new(),
                },
            );
        }
        FaultyDisk {
            files: Mutex::new(left),
            budget,
            ..FaultyDisk::default()
        }
    }

    fn step(&self) -> io::Result<()> {
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is broken"));
        }
        if self.budget.fetch_sub(1, Ordering::SeqCst) <= 0 {
            self.budget.store(0, Ordering::SeqCst);
            return Err(io::Error::other("the world has ended"));
        }
        Ok(())
    }

    fn change(&self, part: Part, done: Done) {
        let mut files = self.files.lock().unwrap();
        let file = files.entry(part).or_default();
        apply(&mut file.now, &done);
        file.since.push(done);
    }
}

impl Disk for FaultyDisk {
    fn read(&self, part: Part, at: u64, into: &mut [u8]) -> io::Result<usize> {
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is broken"));
        }
        let files = self.files.lock().unwrap();
        let Some(file) = files.get(&part) else {
            return Ok(0);
        };
        let at = (at as usize).min(file.now.len());
        let len = into.len().min(file.now.len() - at);
        into[..len].copy_from_slice(&file.now[at..at + len]);
        Ok(len)
    }

    fn write(&self, part: Part, at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|p| p.iter().copied()).collect();
        let limit = self.limit.load(Ordering::SeqCst);
        let end = at + bytes.len() as u64;
        let is_full = *self.full.lock().unwrap() == Some(part) || !self.has_space(part, at, end);
        if is_full || (part == Part::Data && limit > 0 && end > limit) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Err(error) = self.step() {
            // The write that the end of the world meets is half done.
            if !self.is_broken.load(Ordering::SeqCst) {
                self.change(part, Done::Write(at, bytes[..bytes.len() / 2].to_vec()));
            }
            return Err(error);
        }
        self.change(part, Done::Write(at, bytes));
        Ok(())
    }

    fn sync(&self, part: Part) -> io::Result<()> {
        self.step()?;
        let mut files = self.files.lock().unwrap();
        let file = files.entry(part).or_default();
        file.synced = file.now.clone();
        file.since.clear();
        Ok(())
    }

    fn cut(&self, part: Part, len: u64) -> io::Result<()> {
        self.step()?;
        self.change(part, Done::Cut(len));
        let mut reserved = self.reserved.lock().unwrap();
        reserved.retain(|taken| taken.0 != part);
        reserved.push((part, 0, len));
        Ok(())
    }

    fn len(&self, part: Part) -> io::Result<u64> {
        let files = self.files.lock().unwrap();
        Ok(files.get(&part).map_or(0, |file| file.now.len() as u64))
    }

    fn punch(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        self.step()?;
        let end = self.len(part)?.min(at + len);
        if end > at {
            self.change(part, Done::Write(at, vec![0xbd; (end - at) as usize]));
        }
        Ok(())
    }

    fn reserve(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        if !self.has_space(part, at, at + len) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.reserved.lock().unwrap().push((part, at, at + len));
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space {
            total: 1 << 30,
            free: 1 << 29,
        })
    }

    fn is_present(&self) -> bool {
        true
    }
}

/// Time passes by one with each look.
pub fn clock() -> Clock {
    let ticks = AtomicI64::new(1_000_000);
    Arc::new(move || ticks.fetch_add(1, Ordering::SeqCst))
}

/// A file system's disks.
pub struct World {
    pub disks: Vec<Arc<FaultyDisk>>,
    lost: Vec<bool>,
    pub layout: Layout,
    budget: Arc<AtomicI64>,
    id: u64,
}

#[allow(dead_code)]
impl World {
    pub fn new(directories: usize, parity: usize, id: u64) -> World {
        let budget = Arc::new(AtomicI64::new(i64::MAX));
        World {
            disks: (0..directories)
                .map(|_| FaultyDisk::with(Arc::clone(&budget)))
                .collect(),
            lost: vec![false; directories],
            layout: Layout::new(directories, parity, 64 << 10).unwrap(),
            budget,
            id,
        }
    }

    /// The same with slots of this size in bytes.
    pub fn with_slots(mut self, bytes: usize) -> World {
        let width = self.layout.width();
        self.layout = Layout::new(width, self.layout.parity, bytes).unwrap();
        self
    }

    /// Another disk, for a directory that is added.
    pub fn more(&mut self) -> (String, u64, Arc<dyn Disk>) {
        let n = self.disks.len();
        self.disks.push(FaultyDisk::with(Arc::clone(&self.budget)));
        self.lost.push(false);
        (format!("d{n}"), 1000 + n as u64, self.disk(n))
    }

    pub fn disk(&self, n: usize) -> Arc<dyn Disk> {
        Arc::clone(&self.disks[n]) as Arc<dyn Disk>
    }

    pub fn create(&mut self) -> Store {
        let making = StoreMaking {
            name: "world".into(),
            layout: self.layout,
            members: (0..self.disks.len())
                .map(|n| (format!("d{n}"), 1000 + n as u64))
                .collect(),
            id: self.id,
            uid: 0,
            gid: 0,
        };
        let disks = (0..self.disks.len()).map(|n| self.disk(n)).collect();
        Store::create(&making, disks, clock()).unwrap()
    }

    pub fn open(&mut self) -> Store {
        self.try_open().unwrap()
    }

    pub fn try_open(&mut self) -> Result<Store, String> {
        let disks = (0..self.disks.len())
            .map(|n| (!self.lost[n]).then(|| self.disk(n)))
            .collect();
        Store::open(self.id, disks, clock())
    }

    pub fn lose(&mut self, n: usize) {
        self.lost[n] = true;
    }

    /// Ends the world after this number of operations.
    pub fn end_after(&self, operations: i64) {
        self.budget.store(operations, Ordering::SeqCst);
    }

    pub fn has_ended(&self) -> bool {
        self.budget.load(Ordering::SeqCst) <= 0
    }

    pub fn limit(&self, bytes: Option<u64>) {
        for disk in &self.disks {
            disk.limit.store(bytes.unwrap_or(0), Ordering::SeqCst);
        }
    }

    /// The same disks, everything kept.
    pub fn copy(&self) -> World {
        let budget = Arc::new(AtomicI64::new(i64::MAX));
        let copy = |disk: &Arc<FaultyDisk>| {
            Arc::new(FaultyDisk {
                files: Mutex::new(disk.files.lock().unwrap().clone()),
                budget: Arc::clone(&budget),
                ..FaultyDisk::default()
            })
        };
        World {
            disks: self.disks.iter().map(copy).collect(),
            lost: self.lost.clone(),
            layout: self.layout,
            budget: Arc::clone(&budget),
            id: self.id,
        }
    }

    /// The disks after the machine failed.
    pub fn after_crash(&self, random: &mut Random) -> World {
        let budget = Arc::new(AtomicI64::new(i64::MAX));
        World {
            disks: self
                .disks
                .iter()
                .map(|disk| Arc::new(disk.after_crash(random, Arc::clone(&budget))))
                .collect(),
            lost: self.lost.clone(),
            layout: self.layout,
            budget,
            id: self.id,
        }
    }
}
