//! The context of what runs here: one word, set for as long as a call lasts.
//!
//! A runtime that is called from anywhere in a program finds out by it on whose behalf. The word
//! belongs to the thread, and where others may run on its thread before a call returns, it is put
//! aside ([`aside`]).

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::ptr;

use crate::border::Border;
use crate::here::{Header, Here, here};

/// A context, with what tells its type.
#[repr(C)]
#[derive(Debug)]
pub struct Context<T: 'static> {
    kind: TypeId,
    value: T,
}

impl<T: 'static> Context<T> {
    /// A context that nobody is in.
    pub fn new(value: T) -> Self {
        Context {
            kind: TypeId::of::<T>(),
            value,
        }
    }

    /// Runs `f` in this context; the one before is in force again afterwards.
    pub fn enter<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: the context lives until this call returns, and `Back` takes it away before, in
        // whatever way `f` ends.
        let _back = Back(unsafe { self.install() });
        f(&self.value)
    }

    /// Makes this the context of what runs here; returns the one before.
    ///
    /// # Safety
    /// It lives and stays where it is until the word that this returns is [put
    /// back](Word::put_back), and no reference that [`with`] lends outlives that.
    #[must_use]
    pub unsafe fn install(&self) -> Word {
        exchange(Word(ptr::from_ref(self).cast()))
    }

    /// What it was made of.
    pub fn get(&self) -> &T {
        &self.value
    }
}

/// Makes `context` the one of this thread when it is in no other, until the thread ends.
pub fn root<T: 'static>(context: Context<T>) {
    let context = Box::new(context);
    // SAFETY: the box is kept until the thread ends, and `Root` takes the context away before it is
    // dropped; a thread that is ending already keeps it for good.
    let _ = unsafe { context.install() };
    let mut root = Some(Root(Some(context)));
    let kept = ROOT.try_with(|place| *place.borrow_mut() = root.take());
    if kept.is_err() {
        std::mem::forget(root);
    }
}

thread_local! {
    static ROOT: RefCell<Option<Root>> = const { RefCell::new(None) };
}

struct Root(Option<Box<dyn Any>>);

impl Drop for Root {
    fn drop(&mut self) {
        exchange(Word::none());
        drop(self.0.take());
    }
}

struct Back(Word);

impl Drop for Back {
    fn drop(&mut self) {
        exchange(Word(self.0.0));
    }
}

/// A context, or none, while something else runs here.
#[derive(Debug)]
pub struct Word(*const Header);

impl Word {
    pub(crate) const fn none() -> Self {
        Word(ptr::null())
    }

    /// This one, and none in its place.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Word::none())
    }

    /// Makes this the context of what runs here again.
    ///
    /// # Safety
    /// On the thread where [`Context::install`] returned it, while the context before is still
    /// there: contexts that are installed and entered end in the reverse order.
    pub unsafe fn put_back(self) {
        exchange(self);
    }
}

/// Runs `f` in no context; the one before is in force again afterwards. Others may run on this
/// thread before `f` returns: each leaves it with its own context put aside.
pub fn aside<R>(f: impl FnOnce() -> R) -> R {
    let _back = Back(exchange(Word::none()));
    f()
}

/// Puts another word in place and returns the one that was there.
pub(crate) fn exchange(word: Word) -> Word {
    // SAFETY: the set is in force.
    Word(unsafe { &*here() }.context.replace(word.0))
}

/// Lends the context of what runs here, if it has one of this type. What `f` does is
/// [inside](crate::border) the runtime.
#[inline]
pub fn with<T: 'static, R>(f: impl FnOnce(Option<&T>) -> R) -> R {
    with_border(|context, _| f(context))
}

/// The same with the border, for `f` that crosses it again.
#[inline]
pub fn with_border<T: 'static, R>(f: impl FnOnce(Option<&T>, Border<'_>) -> R) -> R {
    // SAFETY: the set is in force, now and when `f` goes on and has ended: a stack keeps its thread
    // and its set.
    let here = unsafe { &*here() };
    here.inside(|| f(context_of(here), Border(here)))
}

/// The same without crossing the border, for `f` that only reads and writes memory of its caller's.
#[inline]
pub fn read<T: 'static, R>(f: impl FnOnce(Option<&T>) -> R) -> R {
    // SAFETY: as in `with_border`.
    f(context_of(unsafe { &*here() }))
}

/// The same for a call that stays [outside](crate::border), but for what `f` does inside by means
/// of the border; none where the caller is inside.
#[inline]
pub fn with_outside<T: 'static, R>(f: impl FnOnce(Option<&T>, Border<'_>) -> R) -> R {
    // SAFETY: as in `with_border`.
    let here = unsafe { &*here() };
    let context = if here.is_inside() {
        None
    } else {
        context_of(here)
    };
    f(context, Border(here))
}

#[inline]
fn context_of<T: 'static>(here: &Here) -> Option<&T> {
    let at = here.context.get();
    // SAFETY: the word is null or that of a context which lives: `enter` takes it away before it
    // returns, on the stack (each fiber has its own word) on which it came, `root` before it is
    // dropped, and who calls `install` or `put_back`, which are unsafe, promises it. The kind says
    // that it is a `Context<T>`; the layout is fixed (`repr(C)`).
    unsafe {
        match at.as_ref() {
            Some(header) if header.kind == TypeId::of::<T>() => {
                Some(&(*at.cast::<Context<T>>()).value)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::border;

    #[test]
    fn contexts_nest_and_know_their_type() {
        with::<u32, _>(|none| assert!(none.is_none()));
        Context::new(1_u32).enter(|_| {
            Context::new(2_u32).enter(|_| with(|there: Option<&u32>| assert_eq!(there, Some(&2))));
            with(|there: Option<&u32>| assert_eq!(there, Some(&1)));
            with::<u64, _>(|other| assert!(other.is_none()));
            aside(|| with::<u32, _>(|none| assert!(none.is_none())));
            with(|there: Option<&u32>| assert_eq!(there, Some(&1)));
        });
        with::<u32, _>(|none| assert!(none.is_none()));
    }

    #[test]
    fn reading_does_not_cross_the_border_and_calls_from_inside_are_refused() {
        Context::new(1_u32).enter(|_| {
            read(|there: Option<&u32>| assert!(there == Some(&1) && !border::is_inside()));
            with_outside(|there: Option<&u32>, line| {
                assert!(there == Some(&1) && !border::is_inside());
                line.inside(|| {
                    assert!(border::is_inside());
                    read(|there: Option<&u32>| assert_eq!(there, Some(&1)));
                    with_outside(|none: Option<&u32>, _| assert!(none.is_none()));
                });
                assert!(!border::is_inside());
            });
            with_border(|there: Option<&u32>, line| {
                assert!(there == Some(&1) && border::is_inside());
                line.outside(|| assert!(!border::is_inside()));
            });
        });
    }
}
