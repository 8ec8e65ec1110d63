//! The functions that make and free windows of all flavors. How a window is made is in `make.rs`.

use margay_run_mpi::constants::errhandler::MPI_ERRORS_ARE_FATAL;
use margay_run_mpi::error::*;
use margay_run_mpi::{Operation, fail};
use margay_sys_os::user::Mem;

use super::make::{Memory, Wanted};
use super::{Flavor, Windows, hints};

/// Where an allocated window begins in its first page. Buffers of programs mostly begin at a page
/// or 16 bytes behind (large ones of `malloc`), and reading one stream while another of nearly the
/// same offset in its pages is written is slow: a bare loop adds 64 KiB of doubles in 0.61 µs (Zen
/// 5), but in 0.89 when they come from 16 bytes behind the offset of the sums, and a copy to 32
/// bytes behind takes 0.66 instead of 0.50.
const SKEW: usize = 2048;

impl Windows<'_> {
    /// `MPI_Win_create` over `size` bytes at the base of `mem`.
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn create(&self, comm: u32, mem: Mem, (size, unit): (i64, i64), info: u32) -> Result<u32> {
        let parent = self.mpi.intracomm(comm)?;
        let size = check_sizes(size, unit)?;
        let hints = self.mpi.info(info)?;
        if size > 0 && mem.address() == 0 {
            fail!(
                MPI_ERR_BASE,
                "base is a null pointer and size is {size}; use size 0 for a window without memory"
            );
        }
        self.make(
            &Wanted::new(self.mpi, &parent, Flavor::Create, (size, unit), &hints),
            Memory::User(mem),
        )
    }

    /// `MPI_Win_allocate`: the window and the address of its memory here.
    ///
    /// # Errors
    /// When an argument is invalid or some process gets no memory.
    pub fn allocate(&self, comm: u32, (size, unit): (i64, i64), info: u32) -> Result<(u32, usize)> {
        let parent = self.mpi.intracomm(comm)?;
        let size = check_sizes(size, unit)?;
        let hints = self.mpi.info(info)?;
        let alignment = hints::alignment(&hints);
        let memory = self.mpi.rank().memory_among(parent.group.processes());
        let shared = if memory.is_none() || self.mpi.spans(&parent) {
            None
        } else {
            let bytes = size.checked_add(alignment.max(SKEW) as u64);
            bytes.and_then(|bytes| self.mpi.rank().alloc_shared(bytes))
        };
        let memory = match shared {
            Some(address) if alignment > SKEW => {
                Memory::Arena(address, address.next_multiple_of(alignment))
            }
            Some(address) => Memory::Arena(address, address + SKEW),
            // More than fits the arena, and the others attach to it; or there is no memory for all.
            None => Mem::pages(size as usize).map_or(Memory::Nothing, Memory::Pages),
        };
        let handle = self.make(
            &Wanted::new(self.mpi, &parent, Flavor::Allocate, (size, unit), &hints),
            memory,
        )?;
        Ok((handle, self.window(handle)?.values.base))
    }

    /// `MPI_Win_allocate_shared`: the window and the address of this rank's part.
    ///
    /// # Errors
    /// When an argument is invalid, the processes share no memory or not enough is left.
    pub fn allocate_shared(
        &self,
        comm: u32,
        (size, unit): (i64, i64),
        info: u32,
    ) -> Result<(u32, usize)> {
        let parent = self.mpi.intracomm(comm)?;
        let size = check_sizes(size, unit)?;
        let hints = self.mpi.info(info)?;
        let alone = parent.size() == 1;
        let memory = self.mpi.rank().memory_among(parent.group.processes());
        if !alone && (memory.is_none() || self.mpi.spans(&parent)) {
            fail!(
                MPI_ERR_RMA_SHARED,
                "the processes of {} share no memory (they are on several hosts or of several jobs, or {} is set); make the communicator with MPI_Comm_split_type",
                parent.describe(),
                margay_sys_shm::environment::ENV_BYTES_ONLY
            );
        }
        let own = |bytes| match self.mpi.rank().alloc_shared(bytes) {
            Some(address) => Memory::Arena(address, address),
            None if alone => Mem::pages(bytes as usize).map_or(Memory::Nothing, Memory::Pages),
            None => Memory::Nothing,
        };
        let memory = if hints::is_set(&hints, "alloc_shared_noncontig") {
            own(size)
        } else {
            // All parts in one piece of memory of rank 0, in the order of ranks.
            let sizes = self.exchange_longs(&parent, &[size])?;
            let total = sizes.iter().try_fold(0u64, |sum, s| sum.checked_add(s[0]));
            match total {
                Some(total) if parent.rank == 0 => own(total),
                Some(_) => Memory::Nothing,
                None => fail!(MPI_ERR_SIZE, "the sizes together exceed 64 bits"),
            }
        };
        let handle = self.make(
            &Wanted::new(self.mpi, &parent, Flavor::Shared, (size, unit), &hints),
            memory,
        )?;
        Ok((handle, self.window(handle)?.values.base))
    }

    /// `MPI_Win_create_dynamic`
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn create_dynamic(&self, comm: u32, info: u32) -> Result<u32> {
        let parent = self.mpi.intracomm(comm)?;
        let hints = self.mpi.info(info)?;
        self.make(
            &Wanted::new(self.mpi, &parent, Flavor::Dynamic, (0, 1), &hints),
            Memory::Nothing,
        )
    }

    /// `MPI_Win_free`
    ///
    /// # Errors
    /// When an epoch is open, a delete function of an attribute refuses, or an operation failed at
    /// its target.
    pub fn free(&self, handle: u32) -> Result<()> {
        let window = self.window(handle)?;
        {
            let epoch = window.epoch();
            if !epoch.is_quiet() {
                return window.refused("MPI_Win_free", &epoch);
            }
        }
        let attributes = std::mem::take(&mut *window.attributes());
        if let Err((rest, error)) = attributes.delete_all(handle) {
            *window.attributes() = rest;
            return Err(error);
        }
        let completed = self.complete_operations(&window, None);
        // No memory is freed before all live processes are done with it.
        if self.mpi.may_be_survived(&window.comm) {
            self.mpi.agree_to_go_on(&window.comm);
        } else {
            self.mpi.collective(&window.comm, Operation::Barrier)?;
        }
        if let Some(serving) = &window.serving {
            serving.stop(self.mpi.rank());
        }
        let errhandler = std::mem::replace(&mut window.state().errhandler, MPI_ERRORS_ARE_FATAL);
        let _ = self.mpi.errhandler_release(errhandler);
        self.table().remove(handle);
        window.comm.close_channel(self.mpi.rank());
        for table in window.attachments().take_made() {
            let _ = self.mpi.rank().free_shared(table);
        }
        if let Some(hook) = &window.hook {
            self.mpi
                .rank()
                .with_engine(|engine| engine.remove_progress_hook(hook));
        }
        self.give_memory_back(&window.made);
        completed
    }
}

fn check_sizes(size: i64, unit: i64) -> Result<u64> {
    if unit <= 0 {
        fail!(MPI_ERR_DISP, "disp_unit is {unit}; it must be positive");
    }
    match u64::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => fail!(MPI_ERR_SIZE, "size is {size}; it must not be negative"),
    }
}
