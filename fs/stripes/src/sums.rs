//! The record of a unit beside its data: which writing of the slot it belongs to, how many blocks
//! it has, and the checksum of each. The record's own checksum also covers which directory and
//! slot it is of, so that one at a wrong place is not taken for right.

use margay_core_stripes::BLOCK;

/// Bytes before the checksums: generation, blocks, checksum of the record.
const HEAD: usize = 16;

/// The record of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Generation of the row.
    pub generation: u64,
    /// Checksums of the blocks that are stored.
    pub sums: Vec<u32>,
}

/// Bytes of a record in a file system with slots of this size in bytes; records of consecutive
/// slots lie one after the other.
#[must_use]
pub fn record_bytes(slot_bytes: usize) -> usize {
    HEAD + 4 * (slot_bytes / BLOCK)
}

/// Checksums of the blocks of a unit; the last one may be short.
pub fn blocks(unit: &[u8]) -> impl Iterator<Item = u32> + '_ {
    unit.chunks(BLOCK).map(crc32c::crc32c)
}

/// Where a record belongs: the seed of its checksum.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The directory's id.
    pub member: u64,
    /// The slot.
    pub slot: u64,
}

fn checksum(place: Place, bytes: &[u8], count: usize) -> u32 {
    let mut crc = crc32c::crc32c(&place.member.to_le_bytes());
    crc = crc32c::crc32c_append(crc, &place.slot.to_le_bytes());
    crc = crc32c::crc32c_append(crc, &bytes[..12]);
    crc32c::crc32c_append(crc, &bytes[HEAD..HEAD + 4 * count])
}

/// Writes a record into `bytes`, which has the length of one.
pub fn encode(place: Place, record: &Record, bytes: &mut [u8]) {
    bytes.fill(0);
    bytes[..8].copy_from_slice(&record.generation.to_le_bytes());
    bytes[8..12].copy_from_slice(&(record.sums.len() as u32).to_le_bytes());
    for (sum, at) in record.sums.iter().zip(bytes[HEAD..].chunks_exact_mut(4)) {
        at.copy_from_slice(&sum.to_le_bytes());
    }
    let crc = checksum(place, bytes, record.sums.len());
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

/// Reads a record; none when it is not whole or of another place.
#[must_use]
pub fn decode(place: Place, bytes: &[u8]) -> Option<Record> {
    let word = |at: usize| bytes.get(at..at + 4).map(|b| b.try_into().expect("four"));
    let generation = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let count = u32::from_le_bytes(word(8)?) as usize;
    if count > (bytes.len().checked_sub(HEAD)?) / 4 {
        return None;
    }
    if u32::from_le_bytes(word(12)?) != checksum(place, bytes, count) {
        return None;
    }
    let sums = bytes[HEAD..HEAD + 4 * count]
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes(b.try_into().expect("four")))
        .collect();
    Some(Record { generation, sums })
}
