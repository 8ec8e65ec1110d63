//! Tests of arenas of groups.

use super::*;
use std::mem::offset_of;

const NAME_AT: usize = offset_of!(NameCell, name);

#[test]
fn the_tables_are_as_drawn() {
    assert_eq!(offset_of!(Header, processes), 32);
    assert_eq!(offset_of!(Header, tolerant), 48);
    assert_eq!(offset_of!(Header, names_lock), 68);
    assert_eq!(offset_of!(Header, barrier), 128);
    assert_eq!(offset_of!(Header, event_count), 256);
    assert_eq!(size_of::<Member>(), 64);
    assert_eq!(offset_of!(Member, memory), 28);
    assert_eq!(size_of::<ThreadSlot>(), 16);
    assert_eq!((size_of::<NameCell>(), NAME_AT), (128, 24));
    assert_eq!((MEMBERS, SLOTS, NAMES), (4096, 36_864, 167_936));
    const { assert!(NAMES + MAX_NAMES as u64 * 128 <= DATA) };
}

#[test]
fn names_are_entered_found_and_removed() {
    let arena = Arena::create(1 << 20).unwrap();
    let part = |name: &str, offset| Named {
        name: name.into(),
        offset,
        bytes: 100,
        maker: 1,
    };
    assert!(arena.enter(&part("a", DATA)) && arena.enter(&part("b", DATA + 128)));
    assert_eq!(arena.find("b"), Some(part("b", DATA + 128)));
    arena.remove("a");
    assert_eq!(arena.find("a"), None);
    assert!(arena.enter(&part("c", DATA)));
    assert_eq!(arena.named(), [part("c", DATA), part("b", DATA + 128)]);
    for wrong in ["", &"x".repeat(NAME_BYTES + 1)] {
        assert!(!arena.enter(&part(wrong, DATA)));
    }
    assert!(arena.enter(&part(&"x".repeat(NAME_BYTES), DATA + 256)));
    for n in 3..MAX_NAMES {
        assert!(arena.enter(&part(&n.to_string(), DATA)));
    }
    assert!(!arena.enter(&part("one too many", DATA)));
}

#[test]
fn cleared_memory_is_zero_and_its_neighbours_are_not() {
    let arena = Arena::create(1 << 20).unwrap();
    let (start, bytes) = (DATA + 100, 3 * PAGE);
    let word = |offset: u64| arena.lock_at(arena.address(offset)).unwrap();
    let me = crate::robust::Holder::new(1, 1);
    let set = [
        start - 4,
        start,
        DATA + PAGE,
        start + bytes - 4,
        start + bytes,
    ];
    for offset in set {
        word(offset).try_lock(me, |_| true).unwrap();
    }
    arena.clear(start, bytes);
    let held = set.map(|offset| word(offset).unlock(me).is_ok());
    assert_eq!(held, [true, false, false, false, true]);
}

#[test]
fn locks_are_in_the_programs_part_only() {
    let arena = Arena::create(PAGE).unwrap();
    assert!(arena.lock_at(arena.address(DATA)).is_some());
    assert!(arena.lock_at(arena.address(DATA + PAGE - 4)).is_some());
    for wrong in [DATA - 4, DATA + 2, DATA + PAGE, DATA + PAGE - 2, 0] {
        assert!(arena.lock_at(arena.address(wrong)).is_none(), "{wrong}");
    }
    assert!(arena.lock_at(0).is_none());
}

#[test]
fn an_arena_that_no_file_can_hold_is_refused() {
    assert!(Arena::create(u64::MAX - 5).is_err());
    assert!(Arena::create(u64::MAX / 2).is_err());
}

#[test]
fn who_uses_a_cpu_is_one_word() {
    for usage in [Use::Own, Use::Lent, Use::Borrowed(511), Use::Wanted(3)] {
        assert_eq!(Use::of(usage.word()), usage);
    }
}
