//! Parallel regions and leagues; the calls that prepare them; who is who in them.

use std::ffi::{c_char, c_int, c_void};

use margay_abi_omp::region;
use margay_abi_omp::runtime::{read, runtime, with};
use margay_core_openmp::format::Interface;
use margay_run_openmp::team::{Context, Request};
use margay_sys_threads::border::inside;

use crate::microtask::{Microtask, MicrotaskCall, variadic, with_arguments};
use crate::{Ident, number};

/// # Safety
/// What the compiler promises: the microtask with these arguments is the region, for each member
/// once.
unsafe fn fork(microtask: Microtask, arguments: &[*mut c_void]) {
    let mut call = MicrotaskCall {
        microtask,
        arguments,
    };
    // SAFETY: by the caller's promise; the call lives until the region is over.
    let body = unsafe { call.body() };
    with(|context| {
        let request = Request {
            interface: Interface::Llvm,
            ..context.calls.request.take()
        };
        context.parallel(body, request, None, None);
    });
}

variadic! {
    /// # Safety
    /// `(const Ident *, int count, Microtask, ...)`: the microtask with the `count` addresses that
    /// follow it is the region, for each member once.
    __kmpc_fork_call => fork_call
}

/// # Safety
/// As of `__kmpc_fork_call`, with its arguments.
unsafe extern "C-unwind" fn fork_call(
    count: c_int,
    microtask: Microtask,
    registers: *const *mut c_void,
    stack: *const *mut c_void,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        with_arguments(count, registers, stack, |arguments| {
            fork(microtask, arguments)
        });
    }
}

/// # Safety
/// The microtask with `argument`, if that is not null, is the region, for each member once.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_fork_call_if(
    _: *const Ident,
    _count: c_int,
    microtask: Microtask,
    condition: c_int,
    argument: *mut c_void,
) {
    if condition == 0 {
        with(|context| context.calls.request.set(one_member()));
    }
    let arguments = [argument];
    let given = if argument.is_null() {
        &[]
    } else {
        &arguments[..]
    };
    // SAFETY: by the caller's promise.
    unsafe { fork(microtask, given) };
}

fn one_member() -> Request {
    Request {
        threads: 1,
        interface: Interface::Llvm,
        ..Request::default()
    }
}

/// The caller runs the region itself.
///
/// # Safety
/// The compiler calls it where its interface has it: once for what it has begun, inside of that
/// construct.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_serialized_parallel(_: *const Ident, _: c_int) {
    unsafe extern "C-unwind" fn nothing(_: *mut c_void) {}
    with(|context| context.calls.request.take());
    // SAFETY: the region has one member, which the caller runs; and the compiler ends it by the
    // next function.
    unsafe { region::begin(nothing, std::ptr::null_mut(), one_member(), None) };
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_end_serialized_parallel(_: *const Ident, _: c_int) {
    region::end();
}

variadic! {
    /// # Safety
    /// `(const Ident *, int count, Microtask, ...)`: the microtask with the `count` addresses that
    /// follow it is the region, for each team once.
    __kmpc_fork_teams => fork_teams
}

/// # Safety
/// As of `__kmpc_fork_teams`, with its arguments.
unsafe extern "C-unwind" fn fork_teams(
    count: c_int,
    microtask: Microtask,
    registers: *const *mut c_void,
    stack: *const *mut c_void,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        with_arguments(count, registers, stack, |arguments| {
            let mut call = MicrotaskCall {
                microtask,
                arguments,
            };
            let body = call.body();
            with(|context| {
                let (teams, limit) = context.calls.league.take();
                context.league(body, or_one(context, teams), limit);
            });
        });
    }
}

/// The number of teams where neither a clause nor a variable gives one is LLVM's.
fn or_one(context: &Context, teams: u32) -> u32 {
    let given = &context.runtime().icvs.teams;
    if teams == 0 && given.load(std::sync::atomic::Ordering::Relaxed) == 0 {
        1
    } else {
        teams
    }
}

fn positive(value: c_int) -> u32 {
    value.max(0) as u32
}

fn push(change: impl FnOnce(&mut Request)) {
    with(|context| {
        let mut request = context.calls.request.get();
        change(&mut request);
        context.calls.request.set(request);
    });
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_push_num_threads(_: *const Ident, _: c_int, threads: c_int) {
    push(|request| {
        request.threads = positive(threads);
        request.inner_threads = None;
    });
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_push_num_threads_strict(
    loc: *const Ident,
    gtid: c_int,
    threads: c_int,
    _severity: c_int,
    _message: *const c_char,
) {
    __kmpc_push_num_threads(loc, gtid, threads);
}

/// # Safety
/// The list has `length` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_push_num_threads_list(
    loc: *const Ident,
    gtid: c_int,
    length: u32,
    list: *const c_int,
) {
    if length == 0 {
        return;
    }
    // SAFETY: by the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(list, length as usize) };
    __kmpc_push_num_threads(loc, gtid, list[0]);
    if length > 1 {
        let inner: Vec<u32> = list[1..]
            .iter()
            .map(|&threads| positive(threads).max(1))
            .collect();
        let inner = runtime().icvs.keep_list(&inner);
        push(|request| request.inner_threads = Some(inner));
    }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_push_num_threads_list_strict(
    loc: *const Ident,
    gtid: c_int,
    length: u32,
    list: *const c_int,
    _severity: c_int,
    _message: *const c_char,
) {
    // SAFETY: by the caller's promise.
    unsafe { __kmpc_push_num_threads_list(loc, gtid, length, list) };
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_pop_num_threads(_: *const Ident, _: c_int) {
    push(|request| {
        request.threads = 0;
        request.inner_threads = None;
    });
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_push_proc_bind(_: *const Ident, _: c_int, bind: c_int) {
    push(|request| request.bind = positive(bind));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_push_num_teams(
    _: *const Ident,
    _: c_int,
    teams: c_int,
    limit: c_int,
) {
    with(|context| context.calls.league.set((positive(teams), positive(limit))));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_push_num_teams_51(
    loc: *const Ident,
    gtid: c_int,
    least: c_int,
    most: c_int,
    limit: c_int,
) {
    __kmpc_push_num_teams(loc, gtid, if most > 0 { most } else { least }, limit);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_set_thread_limit(_: *const Ident, _: c_int, limit: c_int) {
    with(|context| context.limit_threads(positive(limit)));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_global_thread_num(_: *const Ident) -> c_int {
    read(number).unwrap_or_else(|| with(number))
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_global_num_threads(_: *const Ident) -> c_int {
    with(|context| context.team.size.max(runtime().environment.cores) as c_int)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_bound_thread_num(_: *const Ident) -> c_int {
    with(|context| context.id as c_int)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_bound_num_threads(_: *const Ident) -> c_int {
    with(|context| context.team.size as c_int)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_in_parallel(_: *const Ident) -> c_int {
    with(|context| c_int::from(context.team.active_level() > 0))
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_ok_to_fork(_: *const Ident) -> c_int {
    1
}

/// The library is ready from the time when it is loaded.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_begin(_: *const Ident, _flags: c_int) {
    inside(|| {
        runtime();
    });
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_end(_: *const Ident) {}
