//! Shared memory that another process has filled: joining it, and what a rank reads from it
//! afterwards. Either it is refused, or all that is reached lies inside.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use margay_core_registry::{Facts, NoteKey};
use margay_net_shm::platform;
use margay_net_transport::Thresholds;
use margay_run_engine::{Limits, Policy, Rank};
use margay_sys_shm::inbox::Inbox;
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::segment::Segment;

/// A change of a word of a sound segment.
#[derive(Arbitrary, Debug)]
enum Change {
    /// Of the header, by number.
    Header(u8, u64),
    /// To a multiple of the page, which most fields of the header are.
    Page(u8, u16),
    /// Of any word, beginning with the cells.
    Anywhere(u16, u64),
    /// Of a small word.
    Half(u16, u32),
}

#[derive(Arbitrary, Debug)]
struct Input {
    ranks: u8,
    changes: Vec<Change>,
    /// How long the file is instead, in units of 512 bytes.
    length: Option<u32>,
    me: u32,
    note: u32,
    bytes: u64,
}

/// The words of a header of a page.
const WORDS: u64 = 4096 / 8;

fn made(input: &Input) -> std::io::Result<File> {
    let sizes = Sizes {
        ranks: u32::from(input.ranks % 5),
        heap_bytes: 1 << 20,
        arena_bytes: 4096,
    };
    let segment = Segment::create(sizes).expect("a segment");
    segment.registry().describe(&Facts {
        job: 1,
        cores: 1,
        command: "fuzz".into(),
        ..Facts::default()
    });
    let file = File::from(segment.fd().try_clone_to_owned()?);
    for change in &input.changes {
        match *change {
            Change::Header(at, value) => {
                file.write_all_at(&value.to_ne_bytes(), u64::from(at) % WORDS * 8)?
            }
            Change::Page(at, pages) => {
                let value = u64::from(pages) * 4096;
                file.write_all_at(&value.to_ne_bytes(), u64::from(at) % WORDS * 8)?;
            }
            Change::Anywhere(at, value) => {
                file.write_all_at(&value.to_ne_bytes(), 4096 + u64::from(at) * 8)?
            }
            Change::Half(at, value) => {
                file.write_all_at(&value.to_ne_bytes(), u64::from(at) * 4)?
            }
        }
    }
    if let Some(length) = input.length {
        file.set_len(u64::from(length) * 512)?;
    }
    Ok(file)
}

fuzz_target!(|input: Input| {
    let Ok(file) = made(&input) else { return };
    let segment = match Segment::join(file.into()) {
        Ok(segment) => Arc::new(segment),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let ranks = segment.ranks();
    let registry = segment.registry();
    for rank in [0, input.me % ranks, ranks - 1] {
        let _ = (
            registry.identity(rank),
            registry.phase(rank),
            registry.has_failed(rank),
            registry.waits(rank),
            registry.call(rank),
        );
        let mut inbox = Inbox::new(&segment, rank);
        for _ in 0..4 {
            inbox.take(|letter| {
                let ring = letter.opened().map(|ring| ring.has_next());
                let _ = (ring, letter.closed(), letter.words()[0]);
                letter.payload(5000).with(|bytes| bytes.len() <= 4096)
            });
        }
        for key in [input.note, 0, u32::MAX].map(NoteKey) {
            if let Some(note) = segment.note(rank, key) {
                let _ = note.iter().map(|word| word.load(Ordering::Relaxed)).max();
            }
        }
    }
    let _ = (registry.facts(), registry.failures(), registry.aborted());
    let _ = (
        segment.heap_left(),
        segment.heap_used(),
        segment.heap_alloc(input.bytes),
    );
    if ranks <= 64 {
        let thresholds = Arc::new(Thresholds::measured());
        let platform = platform(&segment, input.me % ranks, thresholds, true);
        let rank = Rank::over(platform, Limits::default(), Policy::new(ranks, 1));
        for _ in 0..3 {
            rank.progress();
        }
    }
});
