//! Slots that are reused, with a generation each, so that an old handle never names a new thing.

/// Names an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub(crate) index: u32,
    generation: u32,
}

impl Key {
    /// Where the entry stands; small numbers are used first.
    #[must_use]
    #[inline]
    pub fn index(self) -> u32 {
        self.index
    }

    /// How many entries have stood there before, modulo 2^32.
    #[must_use]
    #[inline]
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// As a number, for packets.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_bits(bits: u64) -> Key {
        Key {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let index = match self.free.pop() {
            Some(index) => {
                // The slot is empty; without this every insertion would call its destructor.
                std::mem::forget(self.slots[index as usize].1.replace(value));
                index
            }
            None => {
                self.slots.push((0, Some(value)));
                (self.slots.len() - 1) as u32
            }
        };
        Key {
            index,
            generation: self.slots[index as usize].0,
        }
    }

    /// Returns the entry at an index that a peer or a queue of ours names.
    #[inline]
    pub(crate) fn at(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.1.as_mut()
    }

    /// As [`at`](Self::at), read-only.
    pub(crate) fn look(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.1.as_ref()
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let (generation, value) = self.slots.get(key.index as usize)?;
        value.as_ref().filter(|_| *generation == key.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut(key.index as usize)?;
        value.as_mut().filter(|_| *generation == key.generation)
    }

    /// As [`remove`](Self::remove), without taking the entry out.
    #[inline]
    pub(crate) fn discard(&mut self, index: u32) {
        if let Some((generation, value)) = self.slots.get_mut(index as usize)
            && value.is_some()
        {
            *value = None;
            *generation = generation.wrapping_add(1);
            self.free.push(index);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let (generation, value) = self.slots.get_mut(index as usize)?;
        let value = value.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    /// Returns the key of the entry at an index.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let (generation, value) = self.slots.get(index as usize)?;
        value.as_ref().map(|_| Key {
            index,
            generation: *generation,
        })
    }

    /// Whether any entry pleases.
    pub(crate) fn any(&self, pleases: impl Fn(&T) -> bool) -> bool {
        self.iter().any(pleases)
    }

    /// Returns the first entry that pleases.
    pub(crate) fn find(&self, pleases: impl Fn(&T) -> bool) -> Option<&T> {
        self.iter().find(|entry| pleases(entry))
    }

    /// Returns the indices of all entries.
    pub(crate) fn indices(&self) -> Vec<u32> {
        let used = self.slots.iter().enumerate().filter(|(_, s)| s.1.is_some());
        used.map(|(index, _)| index as u32).collect()
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.1.as_ref())
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_names_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert('a');
        assert_eq!(slab.remove(a.index), Some('a'));
        let b = slab.insert('b');
        assert_eq!(a.index, b.index);
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.get(b), Some(&'b'));
        assert_eq!(slab.len(), 1);
    }
}
