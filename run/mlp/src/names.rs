//! Named parts of the arena.

use margay_sys_mlp::group::{Arena, MAX_NAMES, NAME_BYTES, Named};
use margay_sys_os::memory;

use crate::constants::*;
use crate::error::{Error, Result};
use crate::{ENV_ARENA, Group, bytes_text, refuse};

const PAGE: u64 = 4096;
/// Parts of less than a page begin at two lines of the cache, which processors fetch together.
const ALIGN: u64 = 128;

impl Group {
    /// `mlp_arena`: makes the arena, with `bytes` for the program.
    ///
    /// # Errors
    /// When there is one already, when it is larger than the memory that the process may use, or
    /// when the system refuses.
    pub fn make_arena(&self, bytes: u64) -> Result<()> {
        if let Some(arena) = self.arena.get() {
            let data = arena.data();
            refuse!(
                MLP_ERR_STATE,
                "there is an arena of {} already; its size is set by one process, before all other calls",
                bytes_text(data.end - data.start)
            );
        }
        self.keep(checked_arena(bytes)?);
        Ok(())
    }

    /// `mlp_alloc`: the address of the part with that name, which is made if it is not there;
    /// zeroed then.
    ///
    /// # Errors
    /// When it is there with another size, when there is no room, or the name is none.
    pub fn alloc(&self, name: &str, bytes: u64) -> Result<usize> {
        check_name(name)?;
        if bytes == 0 {
            refuse!(
                MLP_ERR_ARGUMENT,
                "'{name}' of 0 bytes is asked for; a part of the arena has at least one"
            );
        }
        let arena = self.arena()?;
        self.with_names(arena, || {
            if let Some(there) = arena.find(name) {
                if there.bytes != bytes {
                    refuse!(
                        MLP_ERR_NAME,
                        "'{name}' is there with {} bytes, made by process {}, and {bytes} are asked for",
                        there.bytes,
                        there.maker
                    );
                }
                return Ok(arena.address(there.offset));
            }
            let mut parts = arena.named();
            let offset = match gap(&mut parts, arena.data(), bytes) {
                Ok(offset) => offset,
                Err(largest) => refuse!(
                    MLP_ERR_MEMORY,
                    "no room for '{name}' of {}: the largest free part of the arena has {}; make a larger one \
                     by mlp_arena before everything else, or by {ENV_ARENA}",
                    bytes_text(bytes),
                    bytes_text(largest)
                ),
            };
            let part = Named {
                name: name.to_owned(),
                offset,
                bytes,
                maker: self.process(),
            };
            if !arena.enter(&part) {
                refuse!(
                    MLP_ERR_MEMORY,
                    "no place for the name '{name}': the arena has {MAX_NAMES} parts already; put several things into one"
                );
            }
            Ok(arena.address(offset))
        })
    }

    /// `mlp_find`: address and bytes of the part with that name, none when it is not there.
    ///
    /// # Errors
    /// When the name is none.
    pub fn find(&self, name: &str) -> Result<Option<(usize, u64)>> {
        check_name(name)?;
        let arena = self.arena()?;
        let part = self.with_names(arena, || Ok(arena.find(name)))?;
        Ok(part.map(|part| (arena.address(part.offset), part.bytes)))
    }

    /// `mlp_free`: the part no longer exists, and its memory is returned to the system.
    ///
    /// # Errors
    /// When there is no such part.
    pub fn free(&self, name: &str) -> Result<()> {
        let arena = self.arena()?;
        let part = self.part(name)?;
        self.with_names(arena, || {
            // A process that dies between the two leaves a part that is zero, not memory that is
            // not.
            arena.clear(part.offset, part.bytes);
            arena.remove(name);
            Ok(())
        })
    }

    /// Returns the part with that name.
    pub(crate) fn part(&self, name: &str) -> Result<Named> {
        check_name(name)?;
        let arena = self.arena()?;
        let part = self.with_names(arena, || Ok(arena.find(name)))?;
        part.ok_or_else(|| no_part(name))
    }

    /// Runs `f` while no other thread changes the table of names.
    fn with_names<R>(&self, arena: &Arena, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let me = self.holder();
        let lock = &arena.header().names_lock;
        // The table is whole at any time, so it does not matter whether a process died while it
        // held the lock.
        if lock
            .lock(me, self.policy(arena), |p| is_alive(arena, p))
            .is_err()
        {
            refuse!(
                MLP_ERR_STATE,
                "the call was made by a signal handler that interrupted another one"
            );
        }
        let result = f();
        lock.unlock(me)
            .map_err(|_| Error::new(MLP_ERR_STATE, "the arena's lock was released meanwhile"))?;
        result
    }
}

/// Whether a process of the group lives.
pub(crate) fn is_alive(arena: &Arena, process: u32) -> bool {
    (1..=margay_sys_mlp::robust::MAX_PROCESSES).contains(&process)
        && arena.member(process).state() == margay_sys_mlp::group::State::Living
}

/// Returns an arena of the size in the environment, else of half of the memory that the process may
/// use.
pub(crate) fn default_arena() -> Result<Arena> {
    let bytes = match std::env::var(ENV_ARENA) {
        Ok(text) => match parse_bytes(&text) {
            Some(bytes) => bytes,
            None => refuse!(
                MLP_ERR_ARGUMENT,
                "{ENV_ARENA} is '{text}'; it is a number of bytes, perhaps with K, M, G or T"
            ),
        },
        Err(_) => memory::limit_bytes().unwrap_or(2 << 30) / 2,
    };
    checked_arena(bytes)
}

fn checked_arena(bytes: u64) -> Result<Arena> {
    if bytes == 0 {
        refuse!(MLP_ERR_ARGUMENT, "an arena of 0 bytes is asked for");
    }
    if let Some(limit) = memory::limit_bytes()
        && bytes > limit
    {
        refuse!(
            MLP_ERR_MEMORY,
            "an arena of {} is more than the {} of memory that this process may use; ask for less",
            bytes_text(bytes),
            bytes_text(limit)
        );
    }
    Arena::create(bytes).map_err(|error| Error::new(MLP_ERR_SYSTEM, error.to_string()))
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES {
        refuse!(
            MLP_ERR_ARGUMENT,
            "the name '{name}' has {} bytes; a name has 1 to {NAME_BYTES}",
            name.len()
        );
    }
    Ok(())
}

fn no_part(name: &str) -> Error {
    Error::new(
        MLP_ERR_NAME,
        format!("the arena has no part '{name}'; mlp_alloc makes one"),
    )
}

/// Returns the lowest offset in `room` at which `bytes` are free; the largest free part when there
/// is none.
fn gap(
    parts: &mut [Named],
    room: std::ops::Range<u64>,
    bytes: u64,
) -> std::result::Result<u64, u64> {
    let align = if bytes < PAGE { ALIGN } else { PAGE };
    parts.sort_by_key(|part| part.offset);
    let mut largest = 0;
    let mut from = room.start;
    let ends = parts
        .iter()
        .map(|part| (part.offset, part.offset + part.bytes));
    for (to, next) in ends.chain([(room.end, room.end)]) {
        let start = from.next_multiple_of(align);
        let free = to.saturating_sub(start);
        if free >= bytes {
            return Ok(start);
        }
        largest = largest.max(free);
        // What begins a page behind a small part must not share its page: pages are what lies on a
        // node.
        from = from.max(next);
    }
    Err(largest)
}

fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let shift = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 {
        text
    } else {
        &text[..text.len() - 1]
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("4096", Some(4096)),
            ("3k", Some(3072)),
            (" 2G", Some(2 << 30)),
            ("G", None),
            ("-1", None),
            ("99999999T", None),
            ("", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }

    #[test]
    fn the_lowest_gap_is_taken() {
        let part = |offset, bytes| Named {
            name: "x".into(),
            offset,
            bytes,
            maker: 1,
        };
        let room = 0..5 * PAGE;
        assert_eq!(gap(&mut [], room.clone(), 5 * PAGE), Ok(0));
        assert_eq!(gap(&mut [], room.clone(), 5 * PAGE + 1), Err(5 * PAGE));
        let mut parts = [part(2 * PAGE, PAGE), part(0, 100)];
        assert_eq!(gap(&mut parts, room.clone(), 100), Ok(128));
        assert_eq!(gap(&mut parts, room.clone(), PAGE), Ok(PAGE));
        assert_eq!(gap(&mut parts, room.clone(), 2 * PAGE), Ok(3 * PAGE));
        assert_eq!(gap(&mut parts, room, 3 * PAGE), Err(2 * PAGE));
    }

    #[test]
    fn parts_are_made_found_and_freed() {
        let group = Group::new();
        group.make_arena(1 << 20).unwrap();
        assert_eq!(
            group.make_arena(1 << 20).unwrap_err().number(),
            MLP_ERR_STATE
        );
        let a = group.alloc("a", 10_000).unwrap();
        assert_eq!(a % 4096, 0);
        assert_eq!(group.alloc("a", 10_000).unwrap(), a);
        let error = group.alloc("a", 20_000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "'a' is there with 10000 bytes, made by process 1, and 20000 are asked for"
        );
        assert_eq!(group.find("a").unwrap(), Some((a, 10_000)));
        assert_eq!(group.find("b").unwrap(), None);
        let error = group.alloc("b", 2 << 20).unwrap_err();
        assert!(error.to_string().contains("largest free part"), "{error}");
        group.free("a").unwrap();
        assert_eq!(group.free("a").unwrap_err().number(), MLP_ERR_NAME);
        assert_eq!(group.alloc("b", 1 << 20).unwrap(), a);
        assert!(group.alloc("", 1).is_err() && group.alloc("c", 0).is_err());
    }

    #[test]
    fn an_arena_larger_than_memory_is_refused() {
        let error = Group::new().make_arena(1 << 60).unwrap_err();
        assert_eq!(error.number(), MLP_ERR_MEMORY);
        let text = error.to_string();
        assert!(
            text.starts_with("an arena of 1048576.0 TiB is more than the "),
            "{text}"
        );
    }
}
