//! The checksum of a stored trace.

/// The checksum of Ethernet and zip, eight bytes at a time: a large trace has gigabytes of it.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    /// Of a byte, and of one with this many zero bytes after it.
    const TABLES: [[u32; 256]; 8] = {
        let mut tables = [[0; 256]; 8];
        let mut i = 0;
        while i < 256 * 8 {
            let (zeros, byte) = (i / 256, i % 256);
            let mut value = if zeros == 0 {
                byte as u32
            } else {
                tables[zeros - 1][byte]
            };
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 {
                    value >> 1 ^ 0xedb8_8320
                } else {
                    value >> 1
                };
                bit += 1;
            }
            tables[zeros][byte] = value;
            i += 1;
        }
        tables
    };
    let mut eights = bytes.chunks_exact(8);
    let crc = eights.by_ref().fold(!0, |crc: u32, eight| {
        let crc = crc.to_le_bytes();
        let mixed = |at: usize| eight[at] ^ crc.get(at).copied().unwrap_or(0);
        (0..8).fold(0, |sum, at| sum ^ TABLES[7 - at][usize::from(mixed(at))])
    });
    !eights.remainder().iter().fold(crc, |crc, &byte| {
        crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)]
    })
}
