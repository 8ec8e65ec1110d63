//! Regions of the form in which the caller runs the first member between two calls.

use std::cell::RefCell;
use std::ffi::c_void;

use margay_run_openmp::team::{Context, Request};
use margay_run_openmp::work::Loop;
use margay_sys_threads::outlined::Outlined;
use margay_sys_threads::slot;

use crate::Body;
use crate::runtime::with;

thread_local! {
    /// The regions that have begun, the innermost last. Each member has a list of its own, as it
    /// has thread-local variables of its own; the first one adds to that of the member outside.
    static BEGUN: RefCell<Vec<Begun>> = const { RefCell::new(Vec::new()) };
}

struct Begun {
    first: Box<slot::Context<Context>>,
    outside: slot::Word,
}

/// Begins a region.
///
/// # Safety
/// What the compiler promises: `body(data)` is the region, for each member but the first once. The
/// calling thread calls [`end`] next for this region.
pub unsafe fn begin(body: Body, data: *mut c_void, request: Request, share: Option<Loop>) {
    // SAFETY: by the caller's promise.
    let body = unsafe { Outlined::new(body, data) };
    let first = with(|context| Box::new(context.begin(body, request, share)));
    // SAFETY: the box is kept in the list until `end` has taken the context away.
    let outside = unsafe { first.install() };
    first.get().begun();
    BEGUN.with(|begun| begun.borrow_mut().push(Begun { first, outside }));
}

/// Ends the innermost of these regions.
pub fn end() {
    let Some(begun) = BEGUN.with(|begun| begun.borrow_mut().pop()) else {
        return;
    };
    begun.first.get().end();
    // SAFETY: this thread has installed it in `begin`, and regions end in the reverse order, the
    // last of the list first.
    unsafe { begun.outside.put_back() };
    let team = begun.first.get().team;
    drop(begun.first);
    with(|context| context.joined(team));
}
