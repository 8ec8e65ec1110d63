//! Encryption of a connection: AES-256-GCM with a key for each direction, made of the job's secret
//! and of what both sides said at random. `docs/wire.md` draws a record.
//!
//! A record holds one packet. Records are numbered from 0 in each direction, and the number is the
//! nonce: so a record that is changed, left out, repeated or moved does not open, and ends the
//! connection. A key is used for one connection, whose records never reach the end of 64 bits.

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit};

use crate::frame::LONGEST;

/// Bytes before the sealed packet.
pub(crate) const BEFORE: usize = 4;
/// Bytes behind it.
pub(crate) const BEHIND: usize = 16;

/// The bytes are no record of the other side.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forged;

/// The keys of a connection.
pub(crate) struct Keys {
    /// Of what the side sends that connected.
    pub(crate) connecting: [u8; 32],
    /// Of what the side sends that listened.
    pub(crate) listening: [u8; 32],
}

/// Both directions of a connection, as one side has them.
pub(crate) struct Seals {
    out: Direction,
    incoming: Direction,
}

struct Direction {
    cipher: Aes256Gcm,
    records: u64,
}

impl Direction {
    fn new(key: &[u8; 32]) -> Direction {
        Direction {
            cipher: Aes256Gcm::new(key.into()),
            records: 0,
        }
    }

    fn next_nonce(&mut self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.records.to_le_bytes());
        self.records += 1;
        nonce
    }
}

impl Seals {
    pub(crate) fn new(keys: &Keys, connected: bool) -> Seals {
        let (out, incoming) = match connected {
            true => (&keys.connecting, &keys.listening),
            false => (&keys.listening, &keys.connecting),
        };
        Seals {
            out: Direction::new(out),
            incoming: Direction::new(incoming),
        }
    }

    /// Makes a record of the packet that lies behind [`BEFORE`] bytes of room.
    pub(crate) fn seal(&mut self, bytes: &mut Vec<u8>) {
        let nonce = self.out.next_nonce();
        let (head, packet) = bytes.split_at_mut(BEFORE);
        head.copy_from_slice(&(packet.len() as u32).to_le_bytes());
        let cipher = &self.out.cipher;
        let tag = cipher
            .encrypt_inout_detached(&nonce.into(), head, packet.into())
            .expect("a packet is shorter than 64 GiB");
        bytes.extend_from_slice(&tag);
    }

    /// Opens the record at the beginning of some bytes. Returns where in them its packet begins and
    /// ends, none while some of the record is missing.
    pub(crate) fn open(&mut self, bytes: &mut [u8]) -> Result<Option<(usize, usize)>, Forged> {
        let Some((head, rest)) = bytes.split_first_chunk_mut::<BEFORE>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*head) as usize;
        if len > LONGEST {
            return Err(Forged);
        }
        let Some((record, _)) = rest.split_at_mut_checked(len + BEHIND) else {
            return Ok(None);
        };
        let (packet, tag) = record.split_at_mut(len);
        let tag: [u8; BEHIND] = (&*tag).try_into().map_err(|_| Forged)?;
        let nonce = self.incoming.next_nonce();
        let cipher = &self.incoming.cipher;
        cipher
            .decrypt_inout_detached(&nonce.into(), head, packet.into(), &tag.into())
            .map_err(|_| Forged)?;
        Ok(Some((BEFORE, BEFORE + len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (Seals, Seals) {
        let keys = Keys {
            connecting: [1; 32],
            listening: [2; 32],
        };
        (Seals::new(&keys, true), Seals::new(&keys, false))
    }

    fn sealed(seals: &mut Seals, packet: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; BEFORE];
        bytes.extend_from_slice(packet);
        seals.seal(&mut bytes);
        bytes
    }

    #[test]
    fn records_open_in_their_order_and_in_one_direction_only() {
        let (mut a, mut b) = both();
        let mut records: Vec<Vec<u8>> = (0u8..3).map(|n| sealed(&mut a, &[n; 50])).collect();
        assert!(!records[1].windows(8).any(|eight| eight == [1; 8]));
        for cut in 0..records[0].len() {
            assert_eq!(b.open(&mut records[0][..cut].to_vec()), Ok(None), "{cut}");
        }
        assert_eq!(
            b.open(&mut records[0].clone()),
            Ok(Some((BEFORE, BEFORE + 50)))
        );
        assert_eq!(
            b.open(&mut records[2].clone()),
            Err(Forged),
            "one is missing"
        );
        let (_, mut b) = both();
        let mut more = records[0].clone();
        more.extend_from_slice(&records[1]);
        let (from, to) = b.open(&mut more).unwrap().unwrap();
        assert_eq!(more[from..to], [0; 50]);
        let (from, to) = b.open(&mut more[to + BEHIND..]).unwrap().unwrap();
        assert_eq!(to - from, 50);
        assert_eq!(b.open(&mut records[1].clone()), Err(Forged), "again");
        // What a side has sent itself does not open.
        let (mut a, _) = both();
        assert_eq!(a.open(&mut records[0]), Err(Forged));
    }

    #[test]
    fn a_changed_bit_is_noticed() {
        for bit in 0..8 * (BEFORE + 5 + BEHIND) {
            let (mut a, mut b) = both();
            let mut record = sealed(&mut a, b"hello");
            record[bit / 8] ^= 1 << (bit % 8);
            // A longer length waits for bytes that never open.
            assert!(!matches!(b.open(&mut record), Ok(Some(_))), "bit {bit}");
        }
    }

    /// Computed by Python's `cryptography` for this version: key of 32 bytes 1, record 0.
    #[test]
    fn records_are_those_of_the_first_version() {
        let record = sealed(&mut both().0, b"hello");
        let hex: String = record.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, RECORD_IN_HEX);
    }

    const RECORD_IN_HEX: &str = "05000000d750f4b01a3a1335f9a4e68af83f043a76275c44d1";
}
