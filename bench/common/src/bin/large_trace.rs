//! Writes a trace as large as one of a real run of many ranks: `large_trace FILE RANKS RECORDS`,
//! the records of all ranks together. Each rank sends to its right neighbour, receives from its
//! left one and, every fourth time, takes part in an `MPI_Allreduce`; some ranks compute longer.
//! The format is that of `docs/mtrace.md`; blocks come in the order in which a recorder writes.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufWriter, Write};

const JOB: u32 = 1;
const SITE: u32 = 2;
const RECORDS: u32 = 3;
const END: u32 = 5;
/// Kinds of records.
const SEND: u64 = 2;
const RECEIVE: u64 = 3;
const COLLECTIVE: u64 = 5;
const NO_RANK: u32 = u32::MAX;
/// Records of a rank that a block holds.
const BLOCK: u64 = 1000;
const STEP_NS: u64 = 100_000;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let (Some(file), Some(ranks), Some(records)) = (words.get(1), number(2), number(3)) else {
        eprintln!("use: large_trace FILE RANKS RECORDS");
        std::process::exit(2);
    };
    let table = table();
    let mut to = BufWriter::with_capacity(1 << 20, File::create(file)?);
    let mut head = [0; 64];
    head[..8].copy_from_slice(b"MTRACE\0\x01");
    head[8..12].copy_from_slice(&(ranks as u32).to_le_bytes());
    to.write_all(&head)?;
    let mut bytes = Vec::new();
    text(&mut bytes, "./large");
    text(&mut bytes, "box");
    block(&mut to, &table, JOB, &bytes)?;
    for (site, call) in (1_u32..).zip(["MPI_Send", "MPI_Recv", "MPI_Allreduce"]) {
        bytes.clear();
        bytes.extend(site.to_le_bytes());
        bytes.extend((10 + site).to_le_bytes());
        for word in [call, "main()", "large.c", "large"] {
            text(&mut bytes, word);
        }
        block(&mut to, &table, SITE, &bytes)?;
    }
    let of_rank = records / ranks.max(1);
    for first in (0..of_rank).step_by(BLOCK as usize) {
        for rank in 0..ranks {
            bytes.clear();
            bytes.extend((rank as u32).to_le_bytes());
            bytes.extend((1000 + rank as u32).to_le_bytes());
            bytes.extend(0_u64.to_le_bytes());
            for index in first..(first + BLOCK).min(of_rank) {
                let words = record(rank, ranks, index);
                words
                    .iter()
                    .for_each(|word| bytes.extend(word.to_le_bytes()));
            }
            block(&mut to, &table, RECORDS, &bytes)?;
        }
    }
    let end = of_rank / 9 * 4 * STEP_NS + 5 * STEP_NS;
    block(&mut to, &table, END, &end.to_le_bytes())?;
    to.flush()
}

/// Nine records are four steps: send and receive in each, and a reduction at the end.
fn record(rank: u64, ranks: u64, index: u64) -> [u64; 4] {
    let (round, place) = (index / 9, index % 9);
    let began = (round * 4 + place / 2) * STEP_NS;
    let late = (rank * 7919 + round * 104_729) % 40_000;
    let (kind, peer, start, length, site, tag) = match place {
        8 => (
            COLLECTIVE,
            u64::from(NO_RANK),
            began - 50_000 + late,
            45_000 - late,
            3,
            ranks,
        ),
        at if at % 2 == 0 => (SEND, (rank + 1) % ranks, began + late, 900, 1, 7),
        _ => {
            let before = (rank + ranks - 1) % ranks;
            (RECEIVE, before, began + 45_000, 1_000 + late / 8, 2, 7)
        }
    };
    [
        start,
        length | site << 32,
        peer & 0xffff_ffff | tag << 32,
        4096 | kind << 56,
    ]
}

fn text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u32).to_le_bytes());
    to.extend(text.as_bytes());
}

fn block(to: &mut impl Write, table: &[u32; 256], kind: u32, payload: &[u8]) -> io::Result<()> {
    let sum = payload.iter().fold(!0_u32, |sum, &byte| {
        table[usize::from(sum as u8 ^ byte)] ^ sum >> 8
    });
    for word in [kind, payload.len() as u32, !sum, 0] {
        to.write_all(&word.to_le_bytes())?;
    }
    to.write_all(payload)?;
    to.write_all(&[0; 8][..payload.len().next_multiple_of(8) - payload.len()])
}

/// The checksum's table, as Ethernet and zip have it.
fn table() -> [u32; 256] {
    std::array::from_fn(|at| {
        (0..8).fold(at as u32, |value, _| match value & 1 {
            1 => value >> 1 ^ 0xedb8_8320,
            _ => value >> 1,
        })
    })
}
