//! Reads an arena of MLP of version 1 that was put together byte by byte from `docs/mlp.md`, with
//! nothing of the code that writes arenas: a change of the layout shows here, and asks for a new
//! version.

#![cfg(not(loom))]

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use margay_sys_mlp::group::{Arena, ArenaError, Named, Phase, State, Use};
use margay_sys_mlp::robust::{HeldBy, Holder, WaitPolicy};

const MEMBERS: u64 = 4096;
const SLOTS: u64 = 36_864;
const NAMES: u64 = 167_936;
const DATA: u64 = 2_097_152;
const TOTAL: u64 = DATA + 65_536;
const BASE: u64 = 0x2000_0000_0000;

/// A file in memory that fields are written into.
struct Image(File);

impl Image {
    fn new() -> Image {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create(c"old", flags).unwrap());
        file.set_len(TOTAL).unwrap();
        Image(file)
    }

    fn u32(&self, at: u64, value: u32) {
        self.0.write_all_at(&value.to_ne_bytes(), at).unwrap();
    }

    fn u64(&self, at: u64, value: u64) {
        self.0.write_all_at(&value.to_ne_bytes(), at).unwrap();
    }

    fn head(&self, version: u8, base: u64) {
        (&self.0).write_all(b"MARGMLP").unwrap();
        (&self.0).write_all(&[version]).unwrap();
        self.u64(8, TOTAL);
        self.u64(16, base);
        self.u64(24, DATA);
    }

    fn attach(&self) -> Result<Arena, ArenaError> {
        Arena::attach(OwnedFd::from(self.0.try_clone().unwrap()))
    }
}

#[test]
fn an_arena_of_version_1_is_read() {
    let image = Image::new();
    image.head(1, BASE);
    for (at, value) in [
        (32, 2),
        (36, 3),
        (40, 4),
        (44, 2),
        (48, 1),
        (52, 77),
        (56, 1),
    ] {
        image.u32(at, value);
    }
    image.u32(64, 2);
    // The lock of names is held by thread 9 of process 2, and somebody sleeps.
    image.u32(68, 1 << 31 | 2 << 22 | 9);
    // In generation 1 five barriers are complete.
    image.u64(128, 1 << 49 | 5 << 16);
    image.u64(192, 1 << 49 | 5 << 16);
    // Process 2: pid, state, status, first slot, threads, active, ready, memory.
    for (n, value) in [1002, 3, 11u32.wrapping_neg(), 1, 2, 1, 0, 1]
        .into_iter()
        .enumerate()
    {
        image.u32(MEMBERS + 2 * 64 + 4 * n as u64, value);
    }
    // The third slot: CPU, node, wanted back from process 1, thread.
    for (n, value) in [6, 1, 3 << 16 | 1, 4321].into_iter().enumerate() {
        image.u32(SLOTS + 2 * 16 + 4 * n as u64, value);
    }
    // The second name.
    image.u32(NAMES + 128, 1);
    image.u32(NAMES + 128 + 4, 2);
    image.u64(NAMES + 128 + 8, DATA + 4096);
    image.u64(NAMES + 128 + 16, 5000);
    image.0.write_all_at(b"flow", NAMES + 128 + 24).unwrap();
    // A lock of the program's.
    image.u32(DATA + 8, 1 << 22 | 5);

    let arena = image.attach().unwrap();
    let header = arena.header();
    assert_eq!(arena.address(0), BASE as usize);
    assert_eq!(arena.data(), DATA..TOTAL);
    assert_eq!(header.phase(), Phase::Running);
    let number = |field: &std::sync::atomic::AtomicU32| field.load(Ordering::Relaxed);
    let numbers = [
        number(&header.processes),
        number(&header.usable_cores),
        number(&header.tolerant),
        number(&header.guard),
        number(&header.gone),
    ];
    assert_eq!(numbers, [2, 4, 1, 77, 1]);
    assert!(header.names_lock.unlock(Holder::new(2, 9)).is_ok());
    assert_eq!(
        header.barrier.wait(1, 1, WaitPolicy::CORE_EACH, || false),
        Ok(())
    );
    assert!(
        header
            .barrier
            .wait(2, 1, WaitPolicy::CORE_EACH, || false)
            .is_err()
    );

    let member = arena.member(2);
    assert_eq!(member.state(), State::Dead);
    assert_eq!(member.status.load(Ordering::Relaxed), -11);
    assert_eq!(member.memory.load(Ordering::Relaxed), 1);
    let fields = [
        &member.pid,
        &member.first_slot,
        &member.threads,
        &member.active,
    ];
    assert_eq!(fields.map(number), [1002, 1, 2, 1]);

    let slots = arena.slots();
    assert_eq!(slots.len(), 3);
    let slot = &slots[2];
    assert_eq!(slot.usage(), Use::Wanted(1));
    assert_eq!(
        [&slot.cpu, &slot.node, &slot.thread].map(number),
        [6, 1, 4321]
    );

    let flow = Named {
        name: "flow".into(),
        offset: DATA + 4096,
        bytes: 5000,
        maker: 2,
    };
    assert_eq!(arena.named(), [flow]);
    let lock = arena.lock_at(BASE as usize + DATA as usize + 8).unwrap();
    let holder = Holder::new(1, 5);
    assert_eq!(lock.unlock(Holder::new(1, 6)), Err(HeldBy(Some(holder))));
    assert!(lock.unlock(holder).is_ok());
}

#[test]
fn others_are_refused_with_the_reason() {
    let image = Image::new();
    assert!(matches!(image.attach(), Err(ArenaError::Foreign)));
    image.head(2, BASE);
    let error = image.attach().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the arena has version 2 and this library reads version 1; use the library that made it"
    );
    let image = Image::new();
    image.head(1, BASE + 5);
    assert!(matches!(image.attach(), Err(ArenaError::Damaged(_))));
    let image = Image::new();
    image.head(1, BASE + (1 << 40));
    image.u64(8, TOTAL + 4096);
    assert!(matches!(image.attach(), Err(ArenaError::Damaged(_))));
    image.u64(8, TOTAL);
    let first = image.attach().unwrap();
    let error = image.attach().unwrap_err();
    assert!(matches!(error, ArenaError::AddressTaken(_)), "{error}");
    drop(first);
    image.attach().unwrap();
}
