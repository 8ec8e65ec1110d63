//! Records of calls, as the hooks in a rank (`abi/check`) write them. Numbers are little-endian.
//!
//! ```text
//! u32   bytes that follow
//! u8    phase: 'b' before the call, 'a' after it, 's' where an address is, 'h' who it is,
//!       'c' a buffer of an open request has changed, 't' the program has loaded from or stored to
//!       memory that MPI is using, 'u' its loads and stores are not looked at, 'm' where in memory
//!       the records that follow are
//! u8    bytes of the name
//! ...   name: MPI_Send; functions of large counts have that of their small ones
//! u64   address of the call: the instruction behind it
//! u64   the kernel's number of the thread
//! i64   what the function returned; before a call 1 in a parallel region of OpenMP, where the
//!       program has only the level for one thread
//! items until the end:
//!   'n' i64               a number, a handle or an address
//!   'l' u32, i64 ...      a list of numbers
//!   't' u32, bytes ...    a text
//! ```

/// A record that is longer is no record.
pub const MOST_BYTES: u32 = 64 << 20;

/// When a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Before,
    After,
    Site,
    Hello,
    Changed,
    Touched,
    Unwatched,
    Memory,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Number(i64),
    List(Vec<i64>),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub phase: Phase,
    pub name: String,
    /// The address behind the call.
    pub site: u64,
    pub thread: u64,
    pub code: i64,
    pub items: Vec<Item>,
}

impl Record {
    /// Reads a record, without the number of its bytes; none when it is not one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Record> {
        let mut rest = Bytes(bytes);
        let phase = match rest.take(1)?[0] {
            b'b' => Phase::Before,
            b'a' => Phase::After,
            b's' => Phase::Site,
            b'h' => Phase::Hello,
            b'c' => Phase::Changed,
            b't' => Phase::Touched,
            b'u' => Phase::Unwatched,
            b'm' => Phase::Memory,
            _ => return None,
        };
        let length = usize::from(rest.take(1)?[0]);
        let name = String::from_utf8(rest.take(length)?.to_vec()).ok()?;
        let (site, thread) = (rest.number()? as u64, rest.number()? as u64);
        let code = rest.number()?;
        let mut items = Vec::new();
        while !rest.0.is_empty() {
            items.push(rest.item()?);
        }
        Some(Record {
            phase,
            name,
            site,
            thread,
            code,
            items,
        })
    }

    /// The number at a place; 0 where there is none.
    #[must_use]
    pub fn number(&self, at: usize) -> i64 {
        match self.items.get(at) {
            Some(Item::Number(number)) => *number,
            _ => 0,
        }
    }

    /// The handle or address at a place.
    #[must_use]
    pub fn handle(&self, at: usize) -> u64 {
        self.number(at) as u64
    }

    /// The list at a place; empty where there is none.
    #[must_use]
    pub fn list(&self, at: usize) -> &[i64] {
        match self.items.get(at) {
            Some(Item::List(list)) => list,
            _ => &[],
        }
    }

    /// The text at a place; empty where there is none.
    #[must_use]
    pub fn text(&self, at: usize) -> &str {
        match self.items.get(at) {
            Some(Item::Text(text)) => text,
            _ => "",
        }
    }
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn length(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    }

    fn item(&mut self) -> Option<Item> {
        Some(match self.take(1)?[0] {
            b'n' => Item::Number(self.number()?),
            b'l' => {
                let n = self.length()?;
                let bytes = self.take(n.checked_mul(8)?)?;
                let number = |b: &[u8]| i64::from_le_bytes(b.try_into().unwrap_or_default());
                Item::List(bytes.chunks_exact(8).map(number).collect())
            }
            b't' => {
                let n = self.length()?;
                Item::Text(String::from_utf8_lossy(self.take(n)?).into_owned())
            }
            _ => return None,
        })
    }
}
