//! Arguments that are wrong, in words. The library refuses most of them as well; what is said here
//! has the line and the remedy.

use margay_core_datatype::Basic;
use margay_core_reduce::{Op, is_valid};

use crate::checker::Checker;
use crate::comm::op_name;
use crate::finding::{Call, Finding, Kind};
use crate::record::Record;
use crate::state::*;

impl Checker {
    fn wrong(&self, process: usize, call: &Call, what: impl AsRef<str>) -> Option<Finding> {
        let rank = self.processes[process].rank;
        let found = Finding::new(Kind::Argument)
            .say(format!("rank {rank}: "))
            .call(call)
            .say(": ");
        Some(found.say(what))
    }

    /// An object that has been freed, with the call that did it.
    fn freed(&self, process: usize, call: &Call, handle: u64) -> Option<Finding> {
        let (object, by) = self.processes[process].freed.get(&handle)?;
        let found = self.wrong(
            process,
            call,
            format!("the {} has been freed by ", object.name()),
        )?;
        Some(found.call(by).say("; free it after its last use"))
    }

    pub(crate) fn wrong_comm(&self, process: usize, call: &Call, comm: u64) -> Option<Finding> {
        let own = &self.processes[process];
        if own.comms.contains_key(&comm) {
            return None;
        }
        self.freed(process, call, comm).or_else(|| match comm {
            MPI_COMM_NULL => self.wrong(
                process,
                call,
                "the communicator is MPI_COMM_NULL; use one of which this rank is a member",
            ),
            handle if handle < FIRST_OWN => self.wrong(
                process,
                call,
                format!("{} is no communicator", handle_name(handle)),
            ),
            _ => None,
        })
    }

    pub(crate) fn wrong_type(&self, process: usize, call: &Call, handle: u64) -> Option<Finding> {
        let own = &self.processes[process];
        if Basic::from_handle(handle).is_some() {
            return None;
        }
        if let Some(of) = own.types.get(&handle) {
            return match of.is_committed {
                true => None,
                false => self.wrong(
                    process,
                    call,
                    "the datatype is not committed; call MPI_Type_commit before its first use",
                ),
            };
        }
        self.freed(process, call, handle).or_else(|| match handle {
            MPI_DATATYPE_NULL => self.wrong(
                process,
                call,
                "the datatype is MPI_DATATYPE_NULL; use a valid one",
            ),
            handle if handle < FIRST_OWN => self.wrong(
                process,
                call,
                format!("{} is no datatype", handle_name(handle)),
            ),
            _ => None,
        })
    }

    /// Buffer, count and datatype.
    pub(crate) fn wrong_data(
        &self,
        process: usize,
        call: &Call,
        (buffer, count, of): (u64, i64, u64),
    ) -> Option<Finding> {
        if count < 0 {
            return self.wrong(
                process,
                call,
                format!("the count is {count}; it must not be negative"),
            );
        }
        if let Some(found) = self.wrong_type(process, call, of) {
            return Some(found);
        }
        let is_basic = Basic::from_handle(of).is_some();
        if buffer == 0 && count > 0 && is_basic {
            return self.wrong(
                process,
                call,
                format!("the buffer of {count} elements is a null pointer; pass its address"),
            );
        }
        None
    }

    pub(crate) fn wrong_peer(
        &self,
        process: usize,
        call: &Call,
        (peer, tag, comm): (i64, i64, u64),
        receives: bool,
    ) -> Option<Finding> {
        if let Some(found) = self.wrong_comm(process, call, comm) {
            return Some(found);
        }
        let own = &self.processes[process];
        let what = if receives { "source" } else { "destination" };
        let allowed = peer == MPI_PROC_NULL || (receives && peer == MPI_ANY_SOURCE);
        if let Some(id) = own
            .comms
            .get(&comm)
            .filter(|id| !self.comms[**id].is_opaque)
        {
            let size = self.comms[*id].peers().len() as i64;
            if !allowed && !(0..size).contains(&peer) {
                let named = if peer == MPI_ANY_SOURCE {
                    "MPI_ANY_SOURCE".into()
                } else {
                    peer.to_string()
                };
                return self.wrong(
                    process,
                    call,
                    format!(
                        "the {what} is {named}; the communicator has the ranks 0 to {}",
                        size - 1
                    ),
                );
            }
        }
        if peer == MPI_PROC_NULL
            || (receives && tag == MPI_ANY_TAG)
            || (0..=own.tag_limit).contains(&tag)
        {
            return None;
        }
        let named = if tag == MPI_ANY_TAG {
            "MPI_ANY_TAG".into()
        } else {
            tag.to_string()
        };
        self.wrong(
            process,
            call,
            format!("the tag is {named}; tags are 0 to {}", own.tag_limit),
        )
    }

    pub(crate) fn wrong_root(
        &self,
        process: usize,
        call: &Call,
        root: i64,
        comm: u64,
    ) -> Option<Finding> {
        let id = self.processes[process].comms.get(&comm)?;
        let group = &self.comms[*id];
        let size = group.peers().len() as i64;
        let special = group.is_inter && matches!(root, MPI_PROC_NULL | MPI_ROOT);
        if group.is_opaque || special || (0..size).contains(&root) {
            return None;
        }
        self.wrong(
            process,
            call,
            format!(
                "the root is {root}; the communicator has the ranks 0 to {}",
                size - 1
            ),
        )
    }

    pub(crate) fn wrong_op(
        &self,
        process: usize,
        call: &Call,
        op: u64,
        of: u64,
    ) -> Option<Finding> {
        if op == MPI_OP_NULL {
            return self.wrong(
                process,
                call,
                "the operation is MPI_OP_NULL; use a valid one",
            );
        }
        if let Some(known) = Op::from_handle(op) {
            if !known.is_collective() {
                return self.wrong(
                    process,
                    call,
                    format!("{known} is for one-sided communication only"),
                );
            }
            let basic = self.processes[process]
                .data_type(of)
                .and_then(|t| t.basic());
            return match basic {
                Some(basic) if !is_valid(known, basic) => self.wrong(
                    process,
                    call,
                    format!("{known} is not defined on {basic}; see the table of operations in the standard"),
                ),
                _ => None,
            };
        }
        self.freed(process, call, op)
            .or_else(|| match op < FIRST_OWN {
                true => self.wrong(
                    process,
                    call,
                    format!("{} is no operation", handle_name(op)),
                ),
                false => None,
            })
    }

    pub(crate) fn wrong_window(&self, process: usize, call: &Call, win: u64) -> Option<Finding> {
        if self.processes[process].windows.contains_key(&win) {
            return None;
        }
        self.freed(process, call, win).or_else(|| match win {
            MPI_WIN_NULL => {
                self.wrong(process, call, "the window is MPI_WIN_NULL; use a valid one")
            }
            _ => None,
        })
    }

    /// Buffers of a reduction must not be the same.
    pub(crate) fn aliased(&self, process: usize, call: &Call, a: u64, b: u64) -> Option<Finding> {
        if a != b || a <= 2 {
            return None;
        }
        self.wrong(
            process,
            call,
            "the buffers to send and to receive are the same; use MPI_IN_PLACE",
        )
    }

    pub(crate) fn wrong_memory(
        &self,
        process: usize,
        call: &Call,
        base: u64,
        bytes: i64,
        unit: i64,
    ) -> Option<Finding> {
        if bytes < 0 {
            return self.wrong(
                process,
                call,
                format!("the window has {bytes} bytes; the size must not be negative"),
            );
        }
        if unit <= 0 {
            return self.wrong(
                process,
                call,
                format!("the unit of displacements is {unit}; it must be positive"),
            );
        }
        if call.name == "MPI_Win_create" && base == 0 && bytes > 0 {
            return self.wrong(
                process,
                call,
                format!("the memory of {bytes} bytes is a null pointer; pass its address"),
            );
        }
        None
    }

    pub(crate) fn wrong_shape(
        &self,
        process: usize,
        record: &Record,
        call: &Call,
    ) -> Option<Finding> {
        let wrong = match record.name.as_str() {
            "MPI_Comm_split" if record.number(1) < 0 && record.number(1) != MPI_UNDEFINED => {
                format!(
                    "the color is {}; it must not be negative, or be MPI_UNDEFINED",
                    record.number(1)
                )
            }
            "MPI_Cart_create" if record.list(1).iter().any(|d| *d <= 0) => {
                "a dimension is not positive; see MPI_Dims_create".to_owned()
            }
            _ => return None,
        };
        let rank = self.processes[process].rank;
        Some(
            Finding::new(Kind::Argument)
                .say(format!("rank {rank}: "))
                .call(call)
                .say(": ")
                .say(wrong),
        )
    }

    pub(crate) fn wrong_access(
        &self,
        process: usize,
        record: &Record,
        call: &Call,
    ) -> Option<Finding> {
        let target = record.number(6);
        let own = self.processes[process].windows.get(&record.handle(12))?;
        let size = self.windows[own.id].members.len() as i64;
        if size > 0 && target != MPI_PROC_NULL && !(0..size).contains(&target) {
            let rank = self.processes[process].rank;
            return Some(
                Finding::new(Kind::Argument)
                    .say(format!("rank {rank}: "))
                    .call(call)
                    .say(format!(
                        ": the target is {target}; the window has the ranks 0 to {}",
                        size - 1
                    )),
            );
        }
        let is_get = matches!(record.name.as_str(), "MPI_Get" | "MPI_Rget");
        let at = if is_get { 3 } else { 0 };
        let origin = (
            record.handle(at),
            record.number(at + 1),
            record.handle(at + 2),
        );
        let target = (MPI_IN_PLACE, record.number(8), record.handle(10));
        let is_no_op = record.handle(11) == 0x3d;
        (if is_no_op {
            None
        } else {
            self.wrong_data(process, call, origin)
        })
        .or_else(|| self.wrong_data(process, call, target))
    }

    pub(crate) fn wrong_collective(
        &self,
        process: usize,
        record: &Record,
        call: &Call,
    ) -> Option<Finding> {
        let comm = record.handle(8);
        if let Some(found) = self.wrong_comm(process, call, comm) {
            return Some(found);
        }
        let own = &self.processes[process];
        let group = &self.comms[*own.comms.get(&comm)?];
        if group.is_inter || record.name.contains("eighbor") {
            return None;
        }
        let root = record.number(6);
        if root != -32768
            && let Some(found) = self.wrong_root(process, call, root, comm)
        {
            return Some(found);
        }
        let is_root = root == -32768 || group.rank_of(own.rank).is_some_and(|r| r as i64 == root);
        let base = record.name.to_ascii_lowercase();
        let (sends, receives) = match () {
            () if base.contains("scatter") && !base.contains("reduce") => (is_root, true),
            () if base.contains("gather") && !base.contains("all") => (true, is_root),
            () if base.contains("bcast") => (true, false),
            () => (true, is_root),
        };
        let side = |at: usize| {
            let (buffer, counts, types) =
                (record.handle(at), record.list(at + 1), record.list(at + 2));
            if buffer == MPI_IN_PLACE {
                return None;
            }
            let least = counts.iter().min().copied().unwrap_or_default();
            let wrong = types
                .iter()
                .find_map(|of| self.wrong_type(process, call, *of as u64));
            wrong.or_else(|| {
                let is_one = counts.len() == 1 && types.len() == 1;
                let of = types.first().map(|of| *of as u64)?;
                match (is_one, least < 0) {
                    (true, _) => self.wrong_data(process, call, (buffer, counts[0], of)),
                    (false, true) => self.wrong_data(process, call, (buffer, least, of)),
                    _ => None,
                }
            })
        };
        if sends && let Some(found) = side(0) {
            return Some(found);
        }
        if receives && let Some(found) = side(3) {
            return Some(found);
        }
        let op = record.handle(7);
        if op != 0 {
            let of = record
                .list(2)
                .first()
                .map(|of| *of as u64)
                .unwrap_or_default();
            if let Some(found) = self.wrong_op(process, call, op, of) {
                return Some(found);
            }
        }
        if sends && receives && record.list(1).iter().any(|c| *c > 0) {
            return self.aliased(process, call, record.handle(0), record.handle(3));
        }
        None
    }
}

fn handle_name(handle: u64) -> String {
    match (Basic::from_handle(handle), Op::from_handle(handle)) {
        (Some(basic), _) => basic.to_string(),
        (_, Some(_)) => op_name(handle),
        _ => format!("the handle {handle:#x}"),
    }
}
