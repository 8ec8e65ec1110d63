//! POSIX access control lists: the stored form of Linux's extended attributes, and how they and the
//! mode of a file follow each other. The kernel decides by them who may do what.

/// The attribute with the list of a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";

/// The attribute of a directory with the list that new entries get.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEAD: usize = 4;
const ENTRY: usize = 8;

/// Tags of entries.
const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP: u16 = 4;
const NAMED_GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    rights: u16,
    id: u32,
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Reads a list; none when it is not one with owner, group and others, and a mask where there
    /// are named users or groups.
    pub fn decode(bytes: &[u8]) -> Option<Acl> {
        let (head, entries) = bytes.split_at_checked(HEAD)?;
        if head != VERSION.to_le_bytes() || !entries.len().is_multiple_of(ENTRY) {
            return None;
        }
        let entries = entries.chunks_exact(ENTRY).map(|bytes| {
            let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            Entry {
                tag: word(0),
                rights: word(2),
                id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            }
        });
        let acl = Acl(entries.collect());
        let count = |tag| acl.0.iter().filter(|entry| entry.tag == tag).count();
        let known = [OWNER, USER, GROUP, NAMED_GROUP, MASK, OTHERS];
        let is_right = [OWNER, GROUP, OTHERS].iter().all(|tag| count(*tag) == 1)
            && count(MASK) <= 1
            && (count(MASK) == 1 || count(USER) + count(NAMED_GROUP) == 0)
            && acl
                .0
                .iter()
                .all(|e| known.contains(&e.tag) && e.rights <= 7);
        is_right.then_some(acl)
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.rights.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    fn has(&self, tag: u16) -> bool {
        self.0.iter().any(|entry| entry.tag == tag)
    }

    /// Whether a mode says the same.
    pub fn is_plain(&self) -> bool {
        !self.has(MASK)
    }

    /// How far each of the three parts of a mode is shifted.
    fn shift(&self, tag: u16) -> Option<u32> {
        match tag {
            OWNER => Some(6),
            MASK => Some(3),
            GROUP if self.is_plain() => Some(3),
            OTHERS => Some(0),
            _ => None,
        }
    }

    /// The rights in the mode of a file with this list: the mask stands for the group.
    pub fn mode(&self) -> u32 {
        let part = |entry: &Entry| Some(u32::from(entry.rights) << self.shift(entry.tag)?);
        self.0.iter().filter_map(part).sum()
    }

    /// The list after the mode of its file was changed.
    pub fn with_mode(&self, mode: u32) -> Acl {
        let mut entries = self.0.clone();
        for entry in &mut entries {
            if let Some(shift) = self.shift(entry.tag) {
                entry.rights = ((mode >> shift) & 7) as u16;
            }
        }
        Acl(entries)
    }

    /// The list of a new file in a directory with this default list: nobody gets a right that the
    /// file is not made with.
    pub fn inherited(&self, mode: u32) -> Acl {
        self.with_mode(self.mode() & mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        let entry = |&(tag, rights, id)| Entry { tag, rights, id };
        Acl(entries.iter().map(entry).collect())
    }

    #[test]
    fn lists_are_read_as_they_were_written_and_incomplete_ones_are_none() {
        let acl = list(&[
            (OWNER, 7, 0),
            (USER, 6, 1000),
            (GROUP, 5, 0),
            (MASK, 4, 0),
            (OTHERS, 1, 0),
        ]);
        let bytes = acl.encode();
        assert_eq!(Acl::decode(&bytes), Some(acl.clone()));
        for len in 0..bytes.len() {
            assert_eq!(Acl::decode(&bytes[..len]), None, "{len} bytes");
        }
        assert!(!acl.is_plain());
        assert_eq!(acl.mode(), 0o741);
        let changed = acl.with_mode(0o620);
        assert_eq!((changed.mode(), changed.0[2].rights), (0o620, 5));
        assert_eq!(acl.inherited(0o666).mode(), 0o640);
        let without_mask = [(OWNER, 7, 0), (USER, 6, 1), (GROUP, 5, 0), (OTHERS, 1, 0)];
        assert_eq!(Acl::decode(&list(&without_mask).encode()), None);
        let plain = list(&[(OWNER, 6, 0), (GROUP, 4, 0), (OTHERS, 4, 0)]);
        assert_eq!(Acl::decode(&plain.encode()), Some(plain.clone()));
        assert!(plain.is_plain());
        assert_eq!(plain.with_mode(0o751).mode(), 0o751);
    }
}
