//! The checksum of a stored trace.

/// The checksum of Ethernet and zip, by the processor's product without carries where it has one: a
/// large trace has gigabytes of it.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}
