//! What each call means.

use crate::checker::Checker;
use crate::finding::{Call, Finding, Kind};
use crate::record::{Item, Phase, Record};
use crate::state::*;
use crate::types::{Data, Type};

/// Kinds of calls that are handled alike.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Send,
    Receive,
    Exchange,
    Collective,
    /// Collective, without data: the communicator is this item.
    Together(usize),
    Complete,
    Access,
    Synchronize,
    NewType,
    Other,
}

pub fn sort(name: &str) -> Sort {
    match name {
        "MPI_Send" | "MPI_Bsend" | "MPI_Ssend" | "MPI_Rsend" | "MPI_Isend" | "MPI_Issend"
        | "MPI_Irsend" | "MPI_Ibsend" | "MPI_Send_init" | "MPI_Ssend_init" | "MPI_Rsend_init"
        | "MPI_Bsend_init" => Sort::Send,
        "MPI_Recv" | "MPI_Irecv" | "MPI_Recv_init" => Sort::Receive,
        "MPI_Sendrecv" | "MPI_Isendrecv" | "MPI_Sendrecv_replace" | "MPI_Isendrecv_replace" => {
            Sort::Exchange
        }
        "MPI_Comm_dup"
        | "MPI_Comm_idup"
        | "MPI_Comm_split"
        | "MPI_Comm_split_type"
        | "MPI_Comm_create"
        | "MPI_Cart_create"
        | "MPI_Cart_sub"
        | "MPI_Graph_create"
        | "MPI_Dist_graph_create"
        | "MPI_Dist_graph_create_adjacent"
        | "MPI_Intercomm_merge"
        | "MPI_Intercomm_create"
        | "MPI_Comm_free" => Sort::Together(0),
        "MPI_Win_create"
        | "MPI_Win_allocate"
        | "MPI_Win_allocate_shared"
        | "MPI_Win_create_dynamic" => Sort::Together(3),
        "MPI_Wait" | "MPI_Waitall" | "MPI_Waitany" | "MPI_Waitsome" | "MPI_Test"
        | "MPI_Testall" | "MPI_Testany" | "MPI_Testsome" => Sort::Complete,
        "MPI_Put"
        | "MPI_Rput"
        | "MPI_Get"
        | "MPI_Rget"
        | "MPI_Accumulate"
        | "MPI_Raccumulate"
        | "MPI_Get_accumulate"
        | "MPI_Rget_accumulate"
        | "MPI_Fetch_and_op"
        | "MPI_Compare_and_swap" => Sort::Access,
        "MPI_File_get_view" => Sort::NewType,
        name if name.starts_with("MPI_Type_")
            && !matches!(name, "MPI_Type_free" | "MPI_Type_commit") =>
        {
            Sort::NewType
        }
        "MPI_Win_free" => Sort::Other,
        name if name.starts_with("MPI_Win_") && !name.starts_with("MPI_Win_get") => {
            Sort::Synchronize
        }
        _ if is_collective(name) => Sort::Collective,
        _ => Sort::Other,
    }
}

fn is_collective(name: &str) -> bool {
    const WORDS: [&str; 11] = [
        "barrier",
        "bcast",
        "gather",
        "scatter",
        "alltoall",
        "reduce",
        "scan",
        "allgather",
        "allreduce",
        "exscan",
        "neighbor_",
    ];
    let rest = name
        .strip_prefix("MPI_")
        .unwrap_or_default()
        .to_ascii_lowercase();
    let rest = rest
        .strip_prefix('i')
        .filter(|r| WORDS.iter().any(|w| r.starts_with(w)))
        .unwrap_or(&rest);
    WORDS.iter().any(|w| rest.starts_with(w))
}

impl Checker {
    /// Takes the items of the record.
    pub(crate) fn before(&mut self, process: usize, record: &mut Record) {
        let call = self.processes[process].call(process, &record.name, record.site);
        if record.phase == Phase::Before && !self.processes[process].is_known {
            return;
        }
        let sort = sort(&record.name);
        self.threads_begin(process, record, &call);
        let mut running = Running {
            call: call.clone(),
            items: Vec::new(),
            problem: match self.processes[process].is_finalized {
                true => Some(self.after_finalize(process, &call)),
                false => self.problem(process, record, &call, sort),
            },
            collective: None,
            posted: Vec::new(),
            sent: None,
        };
        if running.problem.is_none() {
            let is_init = record.name.ends_with("_init");
            match sort {
                Sort::Send if !is_init => {
                    running.sent = self.message_of(process, record, false, None);
                }
                Sort::Receive if !is_init => {
                    running
                        .posted
                        .extend(self.message_of(process, record, true, None));
                }
                Sort::Exchange => {
                    running.sent = self.message_at(process, record, 0, false, None);
                    running
                        .posted
                        .extend(self.message_at(process, record, 5, true, None));
                }
                Sort::Collective => {
                    self.uses_of_call(process, record, &call);
                    running.collective =
                        self.begin_collective(process, record, record.handle(8), true);
                }
                Sort::Together(at) => {
                    running.collective =
                        self.begin_collective(process, record, record.handle(at), false);
                }
                Sort::Other if record.name == "MPI_Mprobe" => {
                    let posted = self.post(
                        process,
                        call,
                        None,
                        record.number(0),
                        record.number(1),
                        record.handle(2),
                    );
                    running.posted.extend(posted);
                }
                Sort::Other if record.name == "MPI_Finalize" => self.leaks(process, record),
                Sort::Other if matches!(record.name.as_str(), "MPI_Mrecv" | "MPI_Imrecv") => {
                    self.receives_probed(process, record, &call);
                }
                _ => {}
            }
        }
        running.items = std::mem::take(&mut record.items);
        let own = &mut self.processes[process];
        if own.running.len() > 1 && !own.is_multithreaded {
            own.is_multithreaded = true;
        }
        let outer = own.running.insert(record.thread, running);
        if let Some(outer) = outer.filter(|outer| calls_back(&outer.call.name)) {
            own.outer.entry(record.thread).or_default().push(outer);
        }
    }

    /// Takes the call that this record ends; that around it goes on.
    fn end_running(&mut self, process: usize, record: &Record) -> Option<Running> {
        let own = &mut self.processes[process];
        let running = own.running.get(&record.thread)?;
        if running.call.name != record.name && calls_back(&running.call.name) {
            return None;
        }
        let running = own.running.remove(&record.thread);
        if let Some(outer) = own.outer.get_mut(&record.thread).and_then(Vec::pop) {
            own.running.insert(record.thread, outer);
        }
        running
    }

    /// A call after `MPI_Finalize`. In a session it is right, and then it returns.
    fn after_finalize(&self, process: usize, call: &Call) -> Finding {
        let rank = self.processes[process].rank;
        Finding::new(Kind::CallOrder)
            .say(format!("rank {rank}: "))
            .call(call)
            .say(" after MPI_Finalize; call it before")
    }

    /// What is wrong with a call before it is made.
    fn problem(
        &mut self,
        process: usize,
        record: &Record,
        call: &Call,
        sort: Sort,
    ) -> Option<Finding> {
        let data = |at: usize| {
            (
                record.handle(at),
                record.number(at + 1),
                record.handle(at + 2),
            )
        };
        match sort {
            Sort::Send | Sort::Receive => {
                let receives = sort == Sort::Receive;
                let peer = (record.number(3), record.number(4), record.handle(5));
                let wrong = self.wrong_peer(process, call, peer, receives);
                if wrong.is_some() || peer.0 == MPI_PROC_NULL {
                    return wrong;
                }
                self.wrong_data(process, call, data(0))
            }
            Sort::Exchange => {
                let peer =
                    |at: usize| (record.number(at), record.number(at + 1), record.handle(10));
                (self.wrong_peer(process, call, peer(3), false))
                    .or_else(|| self.wrong_peer(process, call, peer(8), true))
                    .or_else(|| self.wrong_data(process, call, data(0)))
                    .or_else(|| self.wrong_data(process, call, data(5)))
            }
            Sort::Collective => self.wrong_collective(process, record, call),
            Sort::Together(at) => {
                let comm = record.handle(at);
                let memory = match record.name.as_str() {
                    "MPI_Win_create" | "MPI_Win_allocate" | "MPI_Win_allocate_shared" => self
                        .wrong_memory(
                            process,
                            call,
                            record.handle(0),
                            record.number(1),
                            record.number(2),
                        ),
                    _ => None,
                };
                self.wrong_comm(process, call, comm)
                    .or(memory)
                    .or_else(|| self.wrong_shape(process, record, call))
            }
            Sort::Complete => {
                self.wait_in_vain(process, record);
                None
            }
            Sort::Access => {
                let wrong = self
                    .wrong_window(process, call, record.handle(12))
                    .or_else(|| self.wrong_access(process, record, call));
                if wrong.is_some() {
                    return wrong;
                }
                self.access(process, record)
            }
            Sort::Synchronize => self
                .wrong_window(process, call, record.handle(0))
                .or_else(|| self.before_synchronization(process, record)),
            Sort::NewType => {
                let of = record.items.get(1).map(|item| match item {
                    Item::Number(handle) => vec![*handle as u64],
                    Item::List(handles) => handles.iter().map(|h| *h as u64).collect(),
                    Item::Text(_) => Vec::new(),
                });
                let is_wrong = |handle: &u64| {
                    self.processes[process].data_type(*handle).is_none()
                        && (*handle == MPI_DATATYPE_NULL || *handle > 0)
                };
                of.unwrap_or_default()
                    .into_iter()
                    .find(|h| is_wrong(h))
                    .and_then(|h| self.wrong_type(process, call, h))
            }
            Sort::Other => match record.name.as_str() {
                "MPI_Win_free" => self
                    .wrong_window(process, call, record.handle(0))
                    .or_else(|| self.frees_window(process, record)),
                "MPI_Start" | "MPI_Startall" => self.start(process, record),
                "MPI_Pready" => self.ready(process, record, 1),
                "MPI_Pready_range" => self.ready(process, record, 2),
                "MPI_Request_free" => {
                    self.frees_request(process, record);
                    None
                }
                "MPI_Probe" | "MPI_Mprobe" => self.wrong_peer(
                    process,
                    call,
                    (record.number(0), record.number(1), record.handle(2)),
                    true,
                ),
                "MPI_Cancel" => {
                    self.cancels(process, record);
                    None
                }
                "MPI_Psend_init" | "MPI_Precv_init" => {
                    let receives = record.name == "MPI_Precv_init";
                    let peer = (record.number(4), record.number(5), record.handle(6));
                    self.wrong_peer(process, call, peer, receives)
                }
                _ => None,
            },
        }
    }

    /// The message of a call on one: sends it, or posts a receive. Returns its number.
    pub(crate) fn message_of(
        &mut self,
        process: usize,
        record: &Record,
        receives: bool,
        until: Option<Until>,
    ) -> Option<usize> {
        self.message_at(process, record, 0, receives, until)
    }

    fn message_at(
        &mut self,
        process: usize,
        record: &Record,
        at: usize,
        receives: bool,
        until: Option<Until>,
    ) -> Option<usize> {
        let call = self.processes[process].call(process, &record.name, record.site);
        let comm = match sort(&record.name) {
            Sort::Exchange => record.handle(10),
            _ => record.handle(5),
        };
        let (buffer, count, of) = (
            record.handle(at),
            record.number(at + 1),
            record.handle(at + 2),
        );
        let (peer, tag) = (record.number(at + 3), record.number(at + 4));
        if peer == MPI_PROC_NULL {
            return None;
        }
        let is_copied = record.name.contains("replace")
            || record.name.contains("send") && record.name.to_ascii_lowercase().contains("bsend");
        if !is_copied && !record.name.starts_with("MPI_I") {
            self.uses(process, &call, (buffer, count, of), receives, until);
        }
        let data = Data {
            count,
            of: self.processes[process].data_type(of),
        };
        match receives {
            true => self.post(process, call, Some(data), peer, tag, comm),
            false => self.send(process, call, data, peer, tag, comm),
        }
    }

    /// Whether what a call returned can only be judged once more records have come.
    pub(crate) fn waits(&self, process: usize, record: &Record) -> bool {
        if record.phase == Phase::Before && sort(&record.name) == Sort::Access {
            return self.access_waits(process, record);
        }
        if record.phase != Phase::After || record.code != 0 {
            return false;
        }
        let own = &self.processes[process];
        let Some(running) = own.running.get(&record.thread) else {
            return sort(&record.name) == Sort::Complete && self.completion_waits(process, record);
        };
        match sort(&record.name) {
            Sort::Complete => self.completion_waits(process, record),
            Sort::Receive | Sort::Exchange if record.items.len() == 1 => {
                match running.posted.first() {
                    Some(posted) if !record.list(0).is_empty() => {
                        self.receive_waits(process, running_comm(running), *posted, record.list(0))
                    }
                    _ => false,
                }
            }
            Sort::Other if record.name == "MPI_Mprobe" => {
                running.posted.first().is_some_and(|posted| {
                    self.receive_waits(process, running_comm(running), *posted, record.list(1))
                })
            }
            _ if record.name.starts_with("MPI_I") && !record.name.starts_with("MPI_Intercomm") => {
                false
            }
            _ if record.name.ends_with("_init") => false,
            _ => running
                .collective
                .is_some_and(|place| self.collective_waits(process, place)),
        }
    }

    pub(crate) fn after(&mut self, process: usize, record: &Record) {
        let sort = sort(&record.name);
        let running = self.end_running(process, record);
        match record.name.as_str() {
            "MPI_Init" => {
                let initialized = Some((record.thread, record.number(0)));
                self.processes[process].threads.initialized = initialized;
                return;
            }
            "MPI_Request_get_status" => return self.is_said_complete(process, record),
            _ => {}
        }
        if let Some(problem) = running.as_ref().and_then(|r| r.problem.clone())
            && record.code == 0
            && !self.processes[process].is_finalized
            && sort != Sort::Complete
        {
            self.report(problem);
        }
        if sort == Sort::Complete {
            if record.code == 0 {
                self.completed(process, record);
            }
            return;
        }
        let Some(running) = running else {
            return;
        };
        if record.code != 0 {
            if record.name.starts_with("MPI_Pready") {
                // Which partitions are ready now is not known.
                self.forget_requests(process, &running);
            }
            if let Some(comm) = collective_comm(&record.name, &running.items) {
                self.collective_failed(process, comm);
            }
            if let Some(sent) = running.sent {
                self.not_sent(process, running_comm(&running), sent);
            }
            for _ in &running.posted {
                self.lose_track(process, running_comm(&running));
            }
            return;
        }
        match sort {
            Sort::Receive | Sort::Exchange | Sort::Send
                if record.name.starts_with("MPI_I") || record.name.ends_with("_init") =>
            {
                self.new_request(process, record, &running);
                self.uses_of_request(process, record, &running);
            }
            Sort::Receive | Sort::Exchange => {
                for &posted in &running.posted {
                    let comm = running_comm(&running);
                    self.received(process, comm, posted, record.list(0));
                    self.receive_ended(process, comm, posted);
                }
            }
            Sort::Collective | Sort::Together(_) => {
                self.after_collective(process, record, &running)
            }
            Sort::Access => self.new_request(process, record, &running),
            Sort::Synchronize => self.synchronized(process, record),
            Sort::NewType => self.new_type(process, record, &running),
            _ => self.after_other(process, record, &running),
        }
    }

    fn after_collective(&mut self, process: usize, record: &Record, running: &Running) {
        let is_open = record.name.ends_with("_init")
            || record.name == "MPI_Comm_idup"
            || (record.name.starts_with("MPI_I") && !record.name.starts_with("MPI_Intercomm"));
        if is_open {
            self.new_request(process, record, running);
            self.uses_of_request(process, record, running);
            return;
        }
        if let Some(place) = running.collective {
            self.end_collective(process, place);
        }
        let made = |object: Object| ((object, record.handle(0)), running.call.clone());
        match record.name.as_str() {
            "MPI_Comm_free" => self.frees(process, Object::Comm, record, running),
            name if name.starts_with("MPI_Win_") => {
                self.new_window(process, record, running.collective);
                let (key, call) = made(Object::Win);
                self.processes[process].objects.insert(key, call);
            }
            _ if record.items.len() == 5 => {
                self.new_comm(process, record, running.collective);
                if record.handle(0) != MPI_COMM_NULL {
                    let (key, call) = made(Object::Comm);
                    self.processes[process].objects.insert(key, call);
                }
            }
            _ => {}
        }
    }

    fn new_type(&mut self, process: usize, record: &Record, running: &Running) {
        let handle = record.handle(0);
        if handle < FIRST_OWN {
            return;
        }
        let own = &mut self.processes[process];
        let count = |n: i64| u64::try_from(n).ok();
        let known = |handle: i64| own.data_type(handle as u64);
        let is_dense = matches!(record.name.as_str(), "MPI_Type_contiguous" | "MPI_Type_dup");
        let mut of = match (running.items.first(), running.items.get(1)) {
            (Some(Item::Number(n)), Some(Item::Number(of))) => match count(*n) {
                Some(n) => Type::of(&[(n, known(*of))], is_dense),
                None => Type::unknown(),
            },
            (Some(Item::List(counts)), Some(Item::Number(of))) => {
                let blocks: Vec<_> = counts
                    .iter()
                    .filter_map(|n| Some((count(*n)?, known(*of))))
                    .collect();
                Type::of(&blocks, false)
            }
            (Some(Item::List(counts)), Some(Item::List(of))) => {
                let blocks: Vec<_> = counts
                    .iter()
                    .zip(of)
                    .filter_map(|(n, of)| Some((count(*n)?, known(*of))))
                    .collect();
                Type::of(&blocks, false)
            }
            _ => Type::unknown(),
        };
        let of_dup = match running.items.get(1) {
            Some(Item::Number(of)) if record.name == "MPI_Type_dup" => known(*of),
            _ => None,
        };
        // Whether a part of another type is committed, the library alone knows.
        let is_of_library = is_of_library(&record.name);
        let name = record.name.as_str();
        let is_part = matches!(name, "MPI_Type_get_contents" | "MPI_File_get_view");
        of.is_committed = is_part || is_of_library || of_dup.is_some_and(|of| of.is_committed);
        own.types.insert(handle, of);
        own.freed.remove(&handle);
        if !is_of_library {
            let key = (Object::Type, handle);
            own.objects.insert(key, running.call.clone());
        }
    }

    fn after_other(&mut self, process: usize, record: &Record, running: &Running) {
        let handle = record.handle(0);
        let object = match record.name.as_str() {
            "MPI_Type_free" => return self.frees(process, Object::Type, record, running),
            "MPI_Group_free" => return self.frees(process, Object::Group, record, running),
            "MPI_Op_free" => return self.frees(process, Object::Op, record, running),
            "MPI_Win_free" => return self.frees(process, Object::Win, record, running),
            "MPI_File_close" => return self.frees(process, Object::File, record, running),
            "MPI_Comm_disconnect" => return self.frees(process, Object::Comm, record, running),
            "MPI_Type_commit" => {
                if let Some(of) = self.processes[process].types.get_mut(&handle) {
                    of.is_committed = true;
                }
                return;
            }
            "MPI_Psend_init" | "MPI_Precv_init" => {
                return self.new_request(process, record, running);
            }
            "MPI_Imrecv" => {
                self.new_request(process, record, running);
                return self.uses_of_request(process, record, running);
            }
            // One of a session may be freed after MPI_Finalize, and that is the end of those with
            // other jobs.
            "MPI_Comm_create_from_group"
            | "MPI_Intercomm_create_from_groups"
            | "MPI_Comm_accept"
            | "MPI_Comm_connect"
            | "MPI_Comm_join"
            | "MPI_Comm_spawn"
            | "MPI_Comm_spawn_multiple"
            | "MPI_Comm_get_parent" => return self.new_comm(process, record, None),
            "MPI_Comm_create_group" | "MPI_Comm_idup_with_info" => {
                self.new_comm(process, record, None);
                Object::Comm
            }
            "MPI_Mprobe" => {
                for &posted in &running.posted {
                    let comm = running_comm(running);
                    self.received(process, comm, posted, record.list(1));
                    self.probed(process, comm, posted, handle);
                    self.receive_ended(process, comm, posted);
                }
                return;
            }
            "MPI_Finalize" => {
                self.processes[process].is_finalized = true;
                return;
            }
            "MPI_Op_create" => Object::Op,
            "MPI_File_open" => Object::File,
            name if name.starts_with("MPI_Group_") || name.ends_with("_group") => Object::Group,
            _ => return,
        };
        if handle >= FIRST_OWN {
            let own = &mut self.processes[process];
            own.objects.insert((object, handle), running.call.clone());
            own.freed.remove(&handle);
        }
    }

    fn frees(&mut self, process: usize, object: Object, record: &Record, running: &Running) {
        let handle = record.handle(0);
        // Another thread has got the handle for a new object since.
        let is_new_again =
            matches!(running.items.first(), Some(Item::Number(of)) if *of as u64 != handle);
        if object == Object::Comm && is_new_again {
            return;
        }
        let own = &mut self.processes[process];
        own.objects.remove(&(object, handle));
        match object {
            Object::Comm => {
                own.comms.remove(&handle);
            }
            Object::Type => {
                own.types.remove(&handle);
            }
            Object::Win => {
                let id = own.windows.remove(&handle).map(|own| own.id);
                id.into_iter()
                    .for_each(|id| self.fenced(process, id, u32::MAX));
            }
            _ => {}
        }
        let own = &mut self.processes[process];
        if handle >= FIRST_OWN {
            own.freed.insert(handle, (object, running.call.clone()));
        }
    }
}

/// Whether a call calls functions of the program that copy and delete attributes, which may call
/// others.
fn calls_back(call: &str) -> bool {
    const CALLS: [&str; 8] = [
        "MPI_Comm_free",
        "MPI_Comm_disconnect",
        "MPI_Comm_dup",
        "MPI_Comm_idup",
        "MPI_Type_free",
        "MPI_Type_dup",
        "MPI_Win_free",
        "MPI_Finalize",
    ];
    CALLS.contains(&call)
}

/// Whether the datatypes that a call gives out are the library's, which the program does not free.
fn is_of_library(call: &str) -> bool {
    let is_f90 = call.starts_with("MPI_Type_create_f90_");
    is_f90 || matches!(call, "MPI_Type_match_size" | "MPI_Type_get_value_index")
}

/// The communicator of a collective call.
pub fn collective_comm(name: &str, items: &[Item]) -> Option<u64> {
    let at = match sort(name) {
        Sort::Collective => 8,
        Sort::Together(at) => at,
        _ => return None,
    };
    match items.get(at) {
        Some(Item::Number(handle)) => Some(*handle as u64),
        _ => None,
    }
}

/// The communicator of a call on messages.
fn running_comm(running: &Running) -> u64 {
    let at = match running.call.name.as_str() {
        "MPI_Mprobe" => 2,
        name if sort(name) == Sort::Exchange => 10,
        _ => 5,
    };
    match running.items.get(at) {
        Some(Item::Number(n)) => *n as u64,
        _ => 0,
    }
}
