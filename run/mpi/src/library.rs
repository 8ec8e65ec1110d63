//! Communicators of libraries that live beside MPI on the same rank (NX, MPL).
//!
//! A library has numbers of its own for its communicators, so no message of one library can be
//! taken by another. Its collective operations are MPI's: the same schedules, the same ways through
//! shared memory.

use std::sync::Arc;

use margay_core_datatype::Basic;
use margay_core_group::Group;
use margay_core_reduce as reduce;
use margay_sys_os::user::Mem;

use crate::Mpi;
use crate::comm::{Comm, Parts};
use crate::comm::{FOREIGN, RESERVED};
use crate::error::*;
use crate::fail;
use crate::op::{Bound, Op};
use crate::operation::{Elements, Operand};

/// How many numbers there are for communicators of libraries.
pub const NUMBERS: u32 = FOREIGN - RESERVED;

/// The numbers from here on are MPL's, those below it NX's.
pub const MPL: u32 = 48 << 10;

/// Returns the context of point-to-point messages of the communicator with that number of a
/// library; the one above it is that of its collective operations. A library may use both otherwise
/// when it makes no communicator with the number.
///
/// # Panics
/// When there is no such number.
#[must_use]
pub const fn context(number: u32) -> u32 {
    assert!(number < NUMBERS, "libraries have fewer numbers");
    2 * (RESERVED + number)
}

impl Mpi {
    /// Returns a communicator of `members` with a number for which they alone use it. No message is
    /// needed: everybody makes it.
    ///
    /// # Errors
    /// When the calling process is not a member.
    pub fn library_comm(&self, number: u32, members: &Arc<Group>, name: &str) -> Result<Arc<Comm>> {
        let Some(rank) = members.rank(self.rank.world_rank()) else {
            fail!(MPI_ERR_GROUP, "the calling process is not in '{name}'");
        };
        let comm = Arc::new(Comm::new(Parts {
            id: Some(context(number) / 2),
            rank,
            group: members.clone(),
            remote: None,
            inner: None,
            topology: None,
        }));
        comm.set_name(name.into());
        self.comm_add(comm.clone())?;
        Ok(comm)
    }

    /// `count` elements of a predefined type, each process's part of a collective operation.
    #[must_use]
    pub fn operand(&self, mem: Mem, count: u64, basic: Basic) -> Operand {
        Operand {
            mem,
            count,
            datatype: self.basic(basic),
        }
    }

    /// `count` elements of a predefined type for a predefined operation.
    #[must_use]
    pub fn reduced(&self, op: reduce::Op, count: u64, basic: Basic) -> Elements {
        let place = (basic.handle() - 0x200) as usize;
        let ty = self.basics[place].as_ref();
        let ty = ty.expect("every basic type is there");
        Elements {
            count,
            datatype: ty.datatype.clone(),
            op: Bound::new(Op::Builtin(op), ty),
        }
    }
}
