//! Windows and their synchronization.

use std::ffi::c_int;
use std::sync::Arc;

use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::limit::MPI_MAX_OBJECT_NAME;
use margay_run_mpi::constants::win::MPI_WIN_NULL;
use margay_run_mpi::errhandler::Callback;
use margay_run_mpi::fail;

use crate::call::mpi;
use crate::comm::cut;
use crate::convert::Int;
use crate::types::*;
use crate::user::{Buf, ConstBuf, Place, Text, TextOut};

mpi! {
    /// Makes a window of memory of the program.
    count fn MPI_Win_create(base: Buf, size: MPI_Aint, disp_unit: Disp, info: MPI_Info, comm: MPI_Comm, win: Place<MPI_Win>) |mpi| on comm {
        let mem = base.claim(0, size.wide());
        let handle = mpi.windows().create(comm.value(), mem, (size.wide(), disp_unit.wide()), info.value())?;
        win.put("win", MPI_Win::new(handle))
    }

    /// Makes a window with memory.
    count fn MPI_Win_allocate(size: MPI_Aint, disp_unit: Disp, info: MPI_Info, comm: MPI_Comm, baseptr: Buf, win: Place<MPI_Win>) |mpi| on comm {
        let (handle, base) = mpi.windows().allocate(comm.value(), (size.wide(), disp_unit.wide()), info.value())?;
        baseptr.put_pointer("baseptr", base)?;
        win.put("win", MPI_Win::new(handle))
    }

    /// Makes a window with memory in which all load and store.
    count fn MPI_Win_allocate_shared(size: MPI_Aint, disp_unit: Disp, info: MPI_Info, comm: MPI_Comm, baseptr: Buf, win: Place<MPI_Win>) |mpi| on comm {
        let (handle, base) = mpi.windows().allocate_shared(comm.value(), (size.wide(), disp_unit.wide()), info.value())?;
        baseptr.put_pointer("baseptr", base)?;
        win.put("win", MPI_Win::new(handle))
    }

    /// Where the memory of a rank is in this process.
    count fn MPI_Win_shared_query(win: MPI_Win, rank: c_int, size: Place<MPI_Aint>, disp_unit: Place<Disp>, baseptr: Buf) |mpi| on win {
        let part = mpi.windows().part(win.value(), rank)?;
        size.put("size", part.size as MPI_Aint)?;
        disp_unit.put("disp_unit", crate::convert::fit("disp_unit", part.unit as i64)?)?;
        baseptr.put_pointer("baseptr", part.address)
    }

    /// Makes a window to which memory is attached later.
    fn MPI_Win_create_dynamic(info: MPI_Info, comm: MPI_Comm, win: Place<MPI_Win>) |mpi| on comm {
        win.put("win", MPI_Win::new(mpi.windows().create_dynamic(comm.value(), info.value())?))
    }

    /// Attaches memory to a dynamic window.
    fn MPI_Win_attach(win: MPI_Win, base: Buf, size: MPI_Aint) |mpi| on win {
        if size < 0 {
            fail!(MPI_ERR_SIZE, "size is {size}; it must not be negative");
        }
        if size > 0 && base.address() == 0 {
            fail!(MPI_ERR_BASE, "base is a null pointer and size is {size}");
        }
        mpi.windows().attach(win.value(), base.claim(0, size.wide()), size as u64)
    }

    /// Detaches memory.
    fn MPI_Win_detach(win: MPI_Win, base: ConstBuf) |mpi| on win {
        mpi.windows().detach(win.value(), base.address())
    }

    /// Frees a window.
    fn MPI_Win_free(win: Place<MPI_Win>) |mpi| {
        let handle = win.take("win")?.value();
        mpi.windows().free(handle).map_err(|e| e.on(handle))?;
        win.put("win", MPI_Win::new(MPI_WIN_NULL))
    }

    /// The group of a window's processes.
    fn MPI_Win_get_group(win: MPI_Win, group: Place<MPI_Group>) |mpi| on win {
        group.put("group", MPI_Group::new(mpi.windows().group(win.value())?))
    }

    /// Sets hints.
    fn MPI_Win_set_info(win: MPI_Win, info: MPI_Info) |mpi| on win {
        mpi.windows().set_info(&mpi.windows().window(win.value())?, info.value())
    }

    /// The hints in use.
    fn MPI_Win_get_info(win: MPI_Win, info_used: Place<MPI_Info>) |mpi| on win {
        let hints = mpi.windows().window(win.value())?.info();
        info_used.put("info_used", MPI_Info::new(mpi.info_create(hints)?))
    }

    /// Names a window.
    fn MPI_Win_set_name(win: MPI_Win, win_name: Text) |mpi| on win {
        let mut name = win_name.get("win_name")?;
        cut(&mut name, MPI_MAX_OBJECT_NAME - 1);
        mpi.windows().window(win.value())?.set_name(name);
        Ok(())
    }

    /// The name of a window.
    fn MPI_Win_get_name(win: MPI_Win, win_name: TextOut, resultlen: Place<c_int>) |mpi| on win {
        let name = match win.value() {
            MPI_WIN_NULL => "MPI_WIN_NULL".to_string(),
            handle => mpi.windows().window(handle)?.name(),
        };
        let n = win_name.put("win_name", &name, MPI_MAX_OBJECT_NAME)?;
        resultlen.put("resultlen", n as c_int)
    }

    /// Ends an epoch of all processes and begins the next.
    fn MPI_Win_fence(assert: c_int, win: MPI_Win) |mpi| on win {
        mpi.windows().fence(win.value(), assert)
    }

    /// Begins to access the windows of a group.
    fn MPI_Win_start(group: MPI_Group, assert: c_int, win: MPI_Win) |mpi| on win {
        mpi.windows().start(win.value(), &*mpi.group(group.value())?, assert)
    }

    /// Ends the access that `MPI_Win_start` began.
    fn MPI_Win_complete(win: MPI_Win) |mpi| on win {
        mpi.windows().complete(win.value())
    }

    /// Exposes the window to a group.
    fn MPI_Win_post(group: MPI_Group, assert: c_int, win: MPI_Win) |mpi| on win {
        mpi.windows().post(win.value(), &*mpi.group(group.value())?, assert)
    }

    /// Ends the exposure when all have completed.
    fn MPI_Win_wait(win: MPI_Win) |mpi| on win {
        mpi.windows().wait(win.value())
    }

    /// Whether all have completed; then the exposure has ended.
    fn MPI_Win_test(win: MPI_Win, flag: Place<c_int>) |mpi| on win {
        flag.put("flag", c_int::from(mpi.windows().test(win.value())?))
    }

    /// Locks the window of a target.
    fn MPI_Win_lock(lock_type: c_int, rank: c_int, assert: c_int, win: MPI_Win) |mpi| on win {
        mpi.windows().lock(win.value(), lock_type, rank, assert)
    }

    /// Unlocks the window of a target; everything is complete then.
    fn MPI_Win_unlock(rank: c_int, win: MPI_Win) |mpi| on win {
        mpi.windows().unlock(win.value(), rank)
    }

    /// Locks the windows of all.
    fn MPI_Win_lock_all(assert: c_int, win: MPI_Win) |mpi| on win {
        mpi.windows().lock_all(win.value(), assert)
    }

    /// Unlocks the windows of all; everything is complete then.
    fn MPI_Win_unlock_all(win: MPI_Win) |mpi| on win {
        mpi.windows().unlock_all(win.value())
    }

    /// Completes all operations on a target.
    fn MPI_Win_flush(rank: c_int, win: MPI_Win) |mpi| on win at once { mpi.windows().flush_at_once(win.value(), rank) } {
        mpi.windows().flush(win.value(), rank)
    }

    /// Completes all operations.
    fn MPI_Win_flush_all(win: MPI_Win) |mpi| on win {
        mpi.windows().flush_all(win.value())
    }

    /// Completes all operations on a target at the origin. (Here they are then complete at the
    /// target, too.)
    fn MPI_Win_flush_local(rank: c_int, win: MPI_Win) |mpi| on win at once { mpi.windows().flush_at_once(win.value(), rank) } {
        mpi.windows().flush(win.value(), rank)
    }

    /// Completes all operations at the origin.
    fn MPI_Win_flush_local_all(win: MPI_Win) |mpi| on win {
        mpi.windows().flush_all(win.value())
    }

    /// Orders loads and stores before and after it.
    fn MPI_Win_sync(win: MPI_Win) |mpi| on win {
        mpi.windows().sync(win.value())
    }

    /// Makes an error handler of a function.
    fn MPI_Win_create_errhandler(win_errhandler_fn: MPI_Win_errhandler_function, errhandler: Place<MPI_Errhandler>) |mpi| {
        let Some(function) = win_errhandler_fn else {
            fail!(MPI_ERR_ARG, "win_errhandler_fn is a null pointer");
        };
        errhandler.put("errhandler", MPI_Errhandler::new(mpi.errhandler_create(Arc::new(UserHandler(function)))?))
    }

    /// Gives a window an error handler.
    fn MPI_Win_set_errhandler(win: MPI_Win, errhandler: MPI_Errhandler) |mpi| on win {
        mpi.windows().set_errhandler(win.value(), errhandler.value())
    }

    /// The error handler of a window.
    fn MPI_Win_get_errhandler(win: MPI_Win, errhandler: Place<MPI_Errhandler>) |mpi| on win {
        errhandler.put("errhandler", MPI_Errhandler::new(mpi.windows().get_errhandler(win.value())?))
    }

    /// Calls the error handler of a window.
    fn MPI_Win_call_errhandler(win: MPI_Win, errorcode: c_int) |mpi| {
        let handle = win.value();
        mpi.windows().window(handle)?;
        let error = mpi.windows().call_errhandler(handle, errorcode);
        crate::call::raise(mpi, "MPI_Win_call_errhandler", Some(handle), error);
        Ok(())
    }
}

/// A function of the program as an error handler.
struct UserHandler(unsafe extern "C" fn(*mut MPI_Win, *mut c_int, ...));

impl Callback for UserHandler {
    fn call(&self, on: u32, code: i32) -> i32 {
        let mut win = MPI_Win::new(on);
        let mut code = code;
        // SAFETY: the program's function with the arguments that the standard gives it.
        unsafe { (self.0)(&raw mut win, &raw mut code) };
        code
    }
}
