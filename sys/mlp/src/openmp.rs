//! The OpenMP runtime that the program brought with it, whichever it is: libgomp, LLVM's libomp
//! (which has libgomp's entry points too) or Margay's. It is found by the names of its functions in
//! the process, so nothing has to be linked.

use std::ffi::{CStr, c_int, c_uint, c_void};

type Region = extern "C" fn(*mut c_void);

/// An OpenMP runtime.
#[derive(Clone, Copy, Debug)]
pub struct OpenMp {
    set_num_threads: extern "C" fn(c_int),
    get_thread_num: extern "C" fn() -> c_int,
    in_parallel: extern "C" fn() -> c_int,
    /// Runs a function in all threads of a team: what compilers call for a parallel region.
    parallel: Option<extern "C" fn(Region, *mut c_void, c_uint, c_uint)>,
    /// Binds the members of teams, in a runtime where these are not threads: Margay's.
    set_places: Option<extern "C" fn(*const u32, usize) -> c_int>,
}

impl OpenMp {
    /// The runtime of this process, none when there is none.
    #[must_use]
    pub fn find() -> Option<OpenMp> {
        let set_num_threads = symbol(c"omp_set_num_threads")?;
        let get_thread_num = symbol(c"omp_get_thread_num")?;
        let in_parallel = symbol(c"omp_in_parallel")?;
        let parallel = symbol(c"GOMP_parallel");
        let set_places = symbol(c"GOMP_margay_places");
        // SAFETY: OpenMP's specification, the binary interface of gcc's libgomp, and for the last
        // one `abi/gomp`, say that functions of these names have these types. Runtimes stay loaded.
        unsafe {
            Some(OpenMp {
                set_num_threads: std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(
                    set_num_threads,
                ),
                get_thread_num: std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(
                    get_thread_num,
                ),
                in_parallel: std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(
                    in_parallel,
                ),
                parallel: parallel.map(|p| {
                    std::mem::transmute::<
                        *mut c_void,
                        extern "C" fn(Region, *mut c_void, c_uint, c_uint),
                    >(p)
                }),
                set_places: set_places.map(|p| {
                    std::mem::transmute::<*mut c_void, extern "C" fn(*const u32, usize) -> c_int>(p)
                }),
            })
        }
    }

    /// Parallel regions of the calling thread get `threads` threads from now on
    /// (`omp_set_num_threads`).
    pub fn set_threads(&self, threads: u32) {
        (self.set_num_threads)(threads as c_int);
    }

    /// Threads of teams of the calling thread sleep from now on when they wait, instead of keeping
    /// their CPUs. Returns whether the runtime has a way to say so; libgomp only heeds the
    /// environment, when it is loaded.
    pub fn wait_asleep(&self) -> bool {
        if self.has_members() {
            // Margay's has the function for programs that call it, and waits as it sees fit.
            return false;
        }
        let Some(set_blocktime) = symbol(c"kmp_set_blocktime") else {
            return false;
        };
        // SAFETY: LLVM's and Intel's runtimes document this function of one integer, milliseconds.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(set_blocktime)(0) };
        true
    }

    /// Whether members of teams are not threads in this runtime, so that it has to bind them itself
    /// ([`bind_members`](Self::bind_members)).
    #[must_use]
    pub fn has_members(&self) -> bool {
        self.set_places.is_some()
    }

    /// From now on member t of the teams of the calling thread runs on CPU `cpus[t]`, whichever
    /// thread runs it. Returns whether the runtime does that.
    #[must_use]
    pub fn bind_members(&self, cpus: &[u32]) -> bool {
        self.set_places
            .is_some_and(|set_places| set_places(cpus.as_ptr(), cpus.len()) != 0)
    }

    /// Whether the calling thread is in a parallel region.
    #[must_use]
    pub fn in_parallel(&self) -> bool {
        (self.in_parallel)() != 0
    }

    /// Calls `each` in every thread of a parallel region of up to `threads` threads, with the
    /// thread's number in the team. Returns whether it could: not every runtime has a way to do
    /// that without a compiler.
    pub fn in_each_thread(&self, threads: u32, each: &(dyn Fn(u32) + Sync)) -> bool {
        struct Work<'a> {
            each: &'a (dyn Fn(u32) + Sync),
            number: extern "C" fn() -> c_int,
        }
        extern "C" fn region(work: *mut c_void) {
            // SAFETY: the address of the `Work` below, which lives until all threads have left the
            // region.
            let work = unsafe { &*work.cast::<Work<'_>>() };
            (work.each)((work.number)() as u32);
        }
        let Some(parallel) = self.parallel else {
            return false;
        };
        let mut work = Work {
            each,
            number: self.get_thread_num,
        };
        parallel(region, (&raw mut work).cast(), threads, 0);
        true
    }
}

/// The address of a function that the program or a library of it has.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `name` is a C string; the program's own scope is searched, nothing is loaded.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// Writes out what C's and Fortran's output buffers of this process hold, so that a copy of the
/// process does not write it as well.
pub fn flush_output() {
    // SAFETY: a null stream means all of them.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    if let Some(flush) = symbol(c"_gfortran_flush_i4") {
        // SAFETY: gfortran's FLUSH of one integer by address; a null address means all units.
        unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_int)>(flush)(
                std::ptr::null_mut(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_openmp_has_none() {
        assert!(symbol(c"getpid").is_some());
        assert!(OpenMp::find().is_none());
        flush_output();
    }
}
