//! Reductions of tasks. The runtime makes each member's copies of the variables, by a table like
//! those of gcc's compilers; here their values are initialized at first use, and combined at the
//! end of the group, by functions of the program.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use margay_abi_omp::fatal;
use margay_abi_omp::runtime::with;
use margay_run_openmp::team::Context;
use margay_run_openmp::work::ShareOptions;
use margay_sys_threads::border::outside;
use margay_sys_threads::reduction_table::ReductionTable;

use crate::{Ident, Opaque};

type Init = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
type Combine = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
type Destroy = unsafe extern "C-unwind" fn(*mut c_void);

/// `kmp_task_red_input_t`, which older compilers pass.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OldInput {
    shared: *mut c_void,
    size: usize,
    init: Option<Init>,
    destroy: Option<Destroy>,
    combine: Option<Combine>,
    flags: u32,
}

/// `kmp_taskred_input_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Input {
    shared: *mut c_void,
    original: *mut c_void,
    size: usize,
    init: Option<Init>,
    destroy: Option<Destroy>,
    combine: Option<Combine>,
    flags: u32,
}

impl From<&OldInput> for Input {
    fn from(old: &OldInput) -> Input {
        Input {
            shared: old.shared,
            original: ptr::null_mut(),
            size: old.size,
            init: old.init,
            destroy: old.destroy,
            combine: old.combine,
            flags: old.flags,
        }
    }
}

/// A construct with reductions: the table that the runtime knows, whose words are at the beginning,
/// and what is done with the copies.
struct Reducing {
    words: Vec<usize>,
    variables: Vec<Variable>,
    members: usize,
    /// Whether members share the copies, each with a table and variables of its own.
    is_shared: bool,
}

struct Variable {
    input: Input,
    /// Of the copy among the copies of a member; a word that is not 0 once it has a value follows
    /// it.
    offset: usize,
    flag: usize,
}

/// The words of a table, as `run/openmp`'s reductions have them.
const COUNT: usize = 0;
const BYTES: usize = 1;
const ALIGN_THEN_BASE: usize = 2;
const FIRST: usize = 7;
const WORDS: usize = 3;
/// Copies of different members and variables share no cache line.
const LINE: usize = 64;

impl Reducing {
    fn new(members: u32, is_shared: bool, inputs: impl Iterator<Item = Input>) -> Box<Reducing> {
        let mut variables = Vec::new();
        // The first line of the first member counts those that are over.
        let mut bytes = LINE;
        for input in inputs {
            let offset = bytes;
            let flag = offset + input.size.next_multiple_of(LINE);
            bytes = flag + LINE;
            variables.push(Variable {
                input,
                offset,
                flag,
            });
        }
        let mut words = vec![0; FIRST + variables.len() * WORDS];
        words[COUNT] = variables.len();
        words[BYTES] = bytes;
        words[ALIGN_THEN_BASE] = LINE;
        for (at, variable) in variables.iter().enumerate() {
            words[FIRST + at * WORDS] = variable.input.shared as usize;
            words[FIRST + at * WORDS + 1] = variable.offset;
        }
        Box::new(Reducing {
            words,
            variables,
            members: members as usize,
            is_shared,
        })
    }

    /// Lets it live until `end_group`. Returns the runtime's table, and the address by which this
    /// is found again: that of the table's words, behind which it is kept.
    fn publish(self: Box<Self>) -> (ReductionTable<'static>, usize) {
        let raw = Box::into_raw(self);
        // SAFETY: just made; the words stay where they are.
        let words = unsafe { (*raw).words.as_mut_ptr() };
        // A word of each variable is the runtime's, and the table has six before: one that nobody
        // uses refers back here. SAFETY: the table has this word.
        unsafe { words.add(BACK).write(raw as usize) };
        // SAFETY: the table lives until the construct is over.
        (unsafe { ReductionTable::claim(words) }, raw as usize)
    }

    /// The one whose table is at `words`.
    ///
    /// # Safety
    /// The table was published, and its construct is not over.
    unsafe fn of_table<'a>(words: usize) -> &'a Reducing {
        // SAFETY: by the caller's promise.
        unsafe { &*(*(words as *const usize).add(BACK) as *const Reducing) }
    }

    fn base(&self) -> usize {
        self.words[ALIGN_THEN_BASE]
    }

    /// The counter of members that are over with a shared construct.
    ///
    /// # Safety
    /// The copies are there.
    unsafe fn over(&self) -> &AtomicUsize {
        // SAFETY: by the caller's promise; they begin with it.
        unsafe { &*(self.base() as *const AtomicUsize) }
    }

    /// Combines all copies that have values with the variables.
    ///
    /// # Safety
    /// The copies are there, and nobody uses them.
    unsafe fn combine(&self) {
        for member in 0..self.members {
            let own = self.base() + member * self.words[BYTES];
            for Variable {
                input,
                offset,
                flag,
            } in &self.variables
            {
                // SAFETY: by the caller's promise, and what the compiler promises of the functions.
                unsafe {
                    if *((own + flag) as *const usize) == 0 {
                        continue;
                    }
                    let copy = (own + offset) as *mut c_void;
                    outside(|| {
                        if let Some(combine) = input.combine {
                            combine(input.shared, copy);
                        }
                        if let Some(destroy) = input.destroy {
                            destroy(copy);
                        }
                    });
                }
            }
        }
    }
}

/// The word of a table that neither the runtime nor this module uses otherwise.
const BACK: usize = 5;

/// # Safety
/// There are `count` inputs, whose functions and variables are what the compiler promises.
unsafe fn register<T>(count: c_int, inputs: *const T) -> Opaque
where
    for<'a> Input: From<&'a T>,
{
    // SAFETY: by the caller's promise.
    let inputs = unsafe { std::slice::from_raw_parts(inputs, count.max(0) as usize) };
    with(|context| {
        let reducing = Reducing::new(context.team.size, false, inputs.iter().map(Input::from));
        let (table, address) = reducing.publish();
        context.register(table);
        context.calls.set_group_table(address);
        address as Opaque
    })
}

impl From<&Input> for Input {
    fn from(input: &Input) -> Input {
        *input
    }
}

/// # Safety
/// There are `count` inputs.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_task_reduction_init(
    _: c_int,
    count: c_int,
    inputs: *const OldInput,
) -> Opaque {
    // SAFETY: by the caller's promise.
    unsafe { register(count, inputs) }
}

/// # Safety
/// There are `count` inputs.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_taskred_init(
    _: c_int,
    count: c_int,
    inputs: *const Input,
) -> Opaque {
    // SAFETY: by the caller's promise.
    unsafe { register(count, inputs) }
}

/// Begins the taskgroup of a region or a work share with task reductions: the members share the
/// copies.
///
/// # Safety
/// As of `register`.
unsafe fn register_shared<T>(count: c_int, inputs: *const T) -> Opaque
where
    for<'a> Input: From<&'a T>,
{
    // SAFETY: by the caller's promise.
    let inputs = unsafe { std::slice::from_raw_parts(inputs, count.max(0) as usize) };
    with(|context| {
        let reducing = Reducing::new(context.team.size, true, inputs.iter().map(Input::from));
        let (table, address) = reducing.publish();
        let options = ShareOptions {
            memory: None,
            reductions: Some(table),
        };
        context.begin_share(None, options, None);
        context.calls.enter_group();
        context.calls.set_group_table(address);
        address as Opaque
    })
}

/// # Safety
/// There are `count` inputs.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_task_reduction_modifier_init(
    _: *const Ident,
    _: c_int,
    _is_work_share: c_int,
    count: c_int,
    inputs: *const OldInput,
) -> Opaque {
    // SAFETY: by the caller's promise.
    unsafe { register_shared(count, inputs) }
}

/// # Safety
/// There are `count` inputs.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_taskred_modifier_init(
    _: *const Ident,
    _: c_int,
    _is_work_share: c_int,
    count: c_int,
    inputs: *const Input,
) -> Opaque {
    // SAFETY: by the caller's promise.
    unsafe { register_shared(count, inputs) }
}

/// The last member that is over combines all copies with its own variables, which the program then
/// reduces like those of the others.
///
/// # Safety
/// The compiler calls it where its interface has it: once for what it has begun, inside of that
/// construct.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_task_reduction_modifier_fini(
    _: *const Ident,
    _: c_int,
    _is_work_share: c_int,
) {
    with(|context| {
        // The copies live as long as this.
        let kept = context.inherited.borrow().clone();
        context.unregister_share(true);
        let address = context.calls.leave_group();
        if address != 0 {
            // SAFETY: the address is from `publish`, and this is the end of its construct, whose
            // tasks are over.
            let reducing = unsafe { Box::from_raw(address as *mut Reducing) };
            debug_assert!(reducing.is_shared);
            // SAFETY: the copies are kept; the last member is alone with them.
            unsafe {
                if reducing.over().fetch_add(1, Ordering::AcqRel) + 1 == reducing.members {
                    reducing.combine();
                }
            }
        }
        drop(kept);
    });
}

/// A taskgroup with reductions is over: combines the copies and frees them.
///
/// # Safety
/// `address` is what `register` has returned for this group.
pub(crate) unsafe fn end_group(context: &Context, address: usize) {
    // SAFETY: by the caller's promise.
    let reducing = unsafe { Box::from_raw(address as *mut Reducing) };
    // SAFETY: the tasks of the group are over, and the copies are freed below.
    unsafe { reducing.combine() };
    context.unregister(reducing.words.as_ptr() as usize);
}

/// The address of the calling member's copy of a variable.
///
/// # Safety
/// The compiler calls it where its interface has it: once for what it has begun, inside of that
/// construct.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_task_reduction_get_th_data(
    _: c_int,
    _group: Opaque,
    variable: Opaque,
) -> Opaque {
    with(|context| {
        let Some(found) = context.find_copy(variable as usize) else {
            fatal(&format!(
                "a task says that it reduces the variable at {variable:p}, but no construct around it does"
            ));
        };
        // SAFETY: the construct is not over as long as a task reduces its variables.
        let reducing = unsafe { Reducing::of_table(found.table) };
        let known = reducing
            .variables
            .iter()
            .find(|known| known.offset == found.offset);
        let copy = found.address as *mut c_void;
        if let Some(Variable {
            input,
            offset,
            flag,
        }) = known
        {
            let has_value = (found.address - offset + flag) as *mut usize;
            // SAFETY: the word is in this member's copies, which only it uses; the functions are
            // what the compiler promises.
            unsafe {
                if *has_value == 0 {
                    *has_value = 1;
                    if let Some(init) = input.init {
                        let original = if input.original.is_null() {
                            input.shared
                        } else {
                            input.original
                        };
                        outside(|| init(copy, original));
                    }
                }
            }
        }
        copy
    })
}
