//! Handles of objects that the program creates, and the tables in which they stand.
//!
//! A handle is a number of 31 bits, so that it also fits a Fortran integer: the kind of object in
//! bits 27 to 30, a generation in bits 20 to 26, the place in the table in bits 0 to 19. Kinds
//! start at 1, so no handle of ours is below 4096, where the standard ABI has its predefined ones.
//! The generation of a place changes with each object that stands there: a handle of a freed object
//! is recognised, until the place has been used 128 times more.

/// The kinds of object that have handles.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Comm = 1,
    Group,
    Datatype,
    Op,
    Info,
    Errhandler,
    Request,
    Message,
    Win,
    /// A receive that is under way, by its place among the engine's requests.
    Receive,
    Session = 12,
    File = 13,
}

/// The handle value of everything that is not a handle (a pointer beyond 31 bits, say).
pub const NO_HANDLE: u32 = u32::MAX;

/// What a handle of a closed file, or of no file at all, becomes on its way in: errors on it are
/// errors on a file.
pub const NO_FILE: u32 = (Kind::File as u32) << 27 | 0x07ff_ffff;

/// Whether a handle is one of a kind, be the object there or not.
#[must_use]
pub fn is_of(handle: u32, kind: Kind) -> bool {
    handle >> 27 == kind as u32
}

const PLACE_BITS: u32 = 20;
const GENERATION_BITS: u32 = 7;
const PLACES: usize = 1 << PLACE_BITS;
/// The generations of a place.
pub(crate) const GENERATIONS: u32 = 1 << GENERATION_BITS;

/// Returns the handle of the same place in another generation. Those of an object that stays for
/// ever name nothing else.
#[inline(always)]
pub(crate) fn with_generation(handle: u32, generation: u32) -> u32 {
    handle & !((GENERATIONS - 1) << PLACE_BITS) | generation << PLACE_BITS
}

/// Returns the generation of a handle.
#[inline(always)]
pub(crate) fn generation(handle: u32) -> u32 {
    handle >> PLACE_BITS & (GENERATIONS - 1)
}

/// Returns the handle of a place in a table that is not one of ours. None when the place is too far
/// back for one.
#[inline(always)]
pub(crate) fn of_place(kind: Kind, place: u32, generation: u32) -> Option<u32> {
    let handle = (kind as u32) << 27 | place;
    ((place as usize) < PLACES).then(|| with_generation(handle, generation & (GENERATIONS - 1)))
}

/// Returns the place of a handle.
#[inline(always)]
pub(crate) fn place(handle: u32) -> u32 {
    handle & (PLACES as u32 - 1)
}

/// Objects of one kind by handle. Looking up costs two comparisons; adding and removing take
/// constant time.
#[derive(Debug)]
pub struct Table<T> {
    kind: Kind,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    /// Returns an empty table; allocates nothing.
    #[must_use]
    pub const fn new(kind: Kind) -> Table<T> {
        Table {
            kind,
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds an object and returns its handle, `None` when a million objects of the kind exist.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.slots.len() < PLACES => {
                self.slots.push(Slot {
                    generation: 0,
                    value: None,
                });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[place as usize];
        slot.value = Some(value);
        Some((self.kind as u32) << 27 | slot.generation << PLACE_BITS | place)
    }

    #[inline]
    fn place(&self, handle: u32) -> Option<usize> {
        let place = place(handle);
        let slot = self.slots.get(place as usize)?;
        let expected = (self.kind as u32) << 27 | slot.generation << PLACE_BITS | place;
        (expected == handle).then_some(place as usize)
    }

    /// Returns the object of a handle; `None` for a handle that was freed or never given.
    #[inline]
    #[must_use]
    pub fn get(&self, handle: u32) -> Option<&T> {
        self.slots[self.place(handle)?].value.as_ref()
    }

    /// As [`Table::get`], to change it.
    #[inline]
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        let place = self.place(handle)?;
        self.slots[place].value.as_mut()
    }

    /// As [`remove`](Self::remove), where nobody wants the object.
    #[inline]
    pub fn discard(&mut self, handle: u32) {
        if let Some(place) = self.place(handle) {
            let slot = &mut self.slots[place];
            slot.value = None;
            slot.generation = (slot.generation + 1) & (GENERATIONS - 1);
            self.free.push(place as u32);
        }
    }

    /// Takes the object out; its handle is invalid from now on.
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        let place = self.place(handle)?;
        let slot = &mut self.slots[place];
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & (GENERATIONS - 1);
        self.free.push(place as u32);
        Some(value)
    }

    /// Returns all handles in use with their objects.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let kind = self.kind as u32;
        self.slots.iter().enumerate().filter_map(move |(i, slot)| {
            let handle = kind << 27 | slot.generation << PLACE_BITS | i as u32;
            slot.value.as_ref().map(|value| (handle, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_is_not_found_again() {
        let mut table = Table::new(Kind::Info);
        let a = table.insert("a").unwrap();
        let b = table.insert("b").unwrap();
        assert!(a >= 0x1000 && b >= 0x1000 && a <= i32::MAX as u32);
        assert_eq!(table.remove(a), Some("a"));
        assert_eq!(table.get(a), None);
        let c = table.insert("c").unwrap();
        assert_ne!(a, c);
        assert_eq!(table.get(c), Some(&"c"));
        assert_eq!(table.get(b), Some(&"b"));
        assert_eq!(table.remove(a), None);
    }

    #[test]
    fn another_kind_is_another_handle() {
        let mut comms = Table::new(Kind::Comm);
        let mut groups = Table::new(Kind::Group);
        let comm = comms.insert(1).unwrap();
        let group = groups.insert(1).unwrap();
        assert_eq!(groups.get(comm), None);
        assert_eq!(comms.get(group), None);
    }

    #[test]
    fn the_largest_handle_fits_a_fortran_integer() {
        let largest = (Kind::Session as u32) << 27 | 127 << 20 | (PLACES as u32 - 1);
        assert!(i32::try_from(largest).is_ok());
    }
}
