//! Requests: started, completed, lost.

use crate::checker::Checker;
use crate::finding::{Finding, Kind};
use crate::record::{Item, Record};
use crate::state::*;

impl Checker {
    /// A call has made a request.
    pub(crate) fn new_request(&mut self, process: usize, record: &Record, before: &Running) {
        let handle = record.handle(0);
        if record.code != 0 || handle == MPI_REQUEST_NULL || handle < FIRST_OWN {
            return;
        }
        let name = before.call.name.as_str();
        let is_persistent = name.ends_with("_init");
        let comm_at = match name {
            "MPI_Psend_init" | "MPI_Precv_init" => Some(6),
            _ => None,
        };
        let is_partitioned = comm_at.is_some();
        let partitions = match before.items.get(1) {
            Some(crate::record::Item::Number(n)) if is_partitioned => *n,
            _ => 0,
        };
        let request = Request {
            call: before.call.clone(),
            is_persistent,
            is_active: !is_persistent,
            items: before.items.clone(),
            posted: before.posted.first().copied(),
            collective: before.collective,
            partitions,
            ready: Vec::new(),
            was_started: false,
            may_be_freed: false,
            in_vain: None,
        };
        self.handle_is_new(process, handle);
        self.processes[process].requests.insert(handle, request);
    }

    /// Requests are started.
    pub(crate) fn start(&mut self, process: usize, record: &Record) -> Option<Finding> {
        let call = self.processes[process].call(process, &record.name, record.site);
        let rank = self.processes[process].rank;
        let mut problem = None;
        for &handle in record.list(0) {
            let own = &mut self.processes[process];
            let Some(request) = own.requests.get_mut(&(handle as u64)) else {
                continue;
            };
            let made = request.call.clone();
            let wrong = match (request.is_persistent, request.is_active) {
                (false, _) => "starts a request that is not persistent, made by ",
                (true, true) => "starts a request that is active already, made by ",
                (true, false) => {
                    request.is_active = true;
                    request.was_started = true;
                    request.may_be_freed = false;
                    request.in_vain = None;
                    request.ready = vec![
                        false;
                        usize::try_from(request.partitions)
                            .unwrap_or_default()
                            .min(1 << 20)
                    ];
                    let request = request.clone();
                    self.started(process, handle as u64, request);
                    continue;
                }
            };
            problem = Some(
                Finding::new(Kind::Request)
                    .say(format!("rank {rank}: "))
                    .call(&call)
                    .say(format!(" {wrong}"))
                    .call(&made)
                    .say("; wait for it first, and start only persistent requests"),
            );
        }
        problem
    }

    /// A persistent operation has been started: it uses memory, sends or posts a receive.
    fn started(&mut self, process: usize, handle: u64, request: Request) {
        let name = request.call.name.as_str();
        let record = Record {
            phase: crate::record::Phase::Before,
            name: name.into(),
            site: request.call.site.address,
            thread: 0,
            code: 0,
            items: request.items.clone(),
        };
        let posted = match name {
            "MPI_Send_init" | "MPI_Ssend_init" | "MPI_Bsend_init" | "MPI_Rsend_init" => {
                self.message_of(process, &record, false, Some(Until::Request(handle)));
                None
            }
            "MPI_Recv_init" => {
                self.message_of(process, &record, true, Some(Until::Request(handle)))
            }
            _ => {
                self.uses_of_operation(process, &record, &request.call, handle);
                None
            }
        };
        if let Some(request) = self.processes[process].requests.get_mut(&handle) {
            request.posted = posted;
        }
    }

    /// Whether a call that has completed requests has to wait for records of other processes.
    pub(crate) fn completion_waits(&self, process: usize, record: &Record) -> bool {
        let own = &self.processes[process];
        let statuses = record.list(1);
        record.list(0).iter().enumerate().any(|(i, handle)| {
            let Some(request) = own.requests.get(&(*handle as u64)) else {
                return false;
            };
            let status = statuses.get(4 * i..4 * i + 4).unwrap_or_default();
            let message = request.posted.is_some_and(|posted| {
                self.receive_waits(process, comm_of(request), posted, status)
            });
            message
                || request
                    .collective
                    .is_some_and(|place| self.collective_waits(process, place))
        })
    }

    /// A call has completed requests.
    pub(crate) fn completed(&mut self, process: usize, record: &Record) {
        let statuses = record.list(1).to_vec();
        let handles: Vec<u64> = record.list(0).iter().map(|h| *h as u64).collect();
        for (i, handle) in handles.iter().enumerate() {
            let status = statuses.get(4 * i..4 * i + 4).unwrap_or_default();
            let Some(request) = self.processes[process].requests.get(handle) else {
                continue;
            };
            if let Some(posted) = request.posted.filter(|_| !status.is_empty()) {
                self.received(process, comm_of(request), posted, status);
            }
        }
        for (i, handle) in handles.iter().enumerate() {
            let status = statuses.get(4 * i..4 * i + 4).unwrap_or_default();
            let Some(request) = self.processes[process].requests.get(handle) else {
                continue;
            };
            let (posted, collective, comm) = (request.posted, request.collective, comm_of(request));
            let is_access = request.call.name.starts_with("MPI_R");
            let access = is_access.then(|| request.call.clone());
            if let Some(posted) = posted {
                match status.is_empty() {
                    true => self.lose_track(process, comm),
                    false => self.receive_ended(process, comm, posted),
                }
            }
            if let Some(place) = collective {
                self.end_collective(process, place);
            }
            if let Some(call) = access {
                self.access_done(process, &call);
            }
            let own = &mut self.processes[process];
            own.uses.end_request(*handle);
            match own.requests.get_mut(handle) {
                Some(request) if request.is_persistent => {
                    request.is_active = false;
                    request.posted = None;
                }
                _ => {
                    own.requests.remove(handle);
                }
            }
        }
    }

    /// A program that waits for a persistent request that has not been started. That is no error
    /// as such, and it ends at once. It is one when the request never is and something is missing.
    pub(crate) fn wait_in_vain(&mut self, process: usize, record: &Record) {
        let own = &mut self.processes[process];
        let call = own.call(process, &record.name, record.site);
        let [handle] = record.list(0) else {
            return;
        };
        let Some(request) = own.requests.get_mut(&(*handle as u64)) else {
            return;
        };
        if request.is_persistent && !request.was_started && request.in_vain.is_none() {
            let found = Finding::new(Kind::Request)
                .say(format!("rank {}: ", own.rank))
                .call(&call)
                .say(" waits for a request that is never started, made by ")
                .call(&request.call);
            request.in_vain = Some(found.say("; call MPI_Start first"));
        }
    }

    /// What requests were waited for and never started, at the end.
    pub(crate) fn waited_in_vain(&mut self) {
        let requests = (self.processes.iter_mut()).flat_map(|own| own.requests.values_mut());
        let mut found: Vec<Finding> = requests.filter_map(|r| r.in_vain.take()).collect();
        found.extend((self.processes.iter_mut()).filter_map(|own| own.in_vain.take()));
        found.into_iter().for_each(|f| self.report(f));
    }

    /// The program knows that these requests are complete, or needs not know it.
    pub(crate) fn is_said_complete(&mut self, process: usize, record: &Record) {
        for handle in record.list(0) {
            let own = &mut self.processes[process];
            own.uses.end_request(*handle as u64);
            if let Some(request) = own.requests.get_mut(&(*handle as u64)) {
                request.may_be_freed = true;
            }
        }
    }

    /// Of a job in which no process could go on: the operations of the requests that they wait for.
    pub(crate) fn waited_for(&mut self) {
        let mut found = Vec::new();
        for (process, own) in self
            .processes
            .iter()
            .enumerate()
            .filter(|(_, p)| p.is_of_job)
        {
            for running in own.running.values() {
                let is_wait = running.call.name.starts_with("MPI_Wait");
                let handles = match running.items.first() {
                    Some(Item::List(handles)) if is_wait => &handles[..],
                    _ => &[],
                };
                let requests = handles
                    .iter()
                    .filter_map(|h| own.requests.get(&(*h as u64)));
                found.extend(
                    requests
                        .filter(|request| request.is_active)
                        .find_map(|request| self.lacks(process, running, request)),
                );
            }
        }
        found.into_iter().for_each(|f| self.report(f));
    }

    /// What a request that is waited for lacks.
    fn lacks(&self, process: usize, running: &Running, request: &Request) -> Option<Finding> {
        let waits = |kind: Kind| {
            Finding::new(kind)
                .say(format!("rank {}: ", self.processes[process].rank))
                .call(&running.call)
                .say(" waits for ")
                .call(&request.call)
        };
        let is_unmet = |posted| self.has_no_message(process, comm_of(request), posted);
        if request.posted.is_some_and(is_unmet) {
            return Some(waits(Kind::Unmatched).say(", whose message nobody has sent"));
        }
        let missing = self.missing(request.collective?)?;
        let said = format!(", to which rank {missing} has not come");
        Some(waits(Kind::Collective).say(said))
    }

    /// A request is cancelled, and may be freed then. Which message it leaves is not known.
    pub(crate) fn cancels(&mut self, process: usize, record: &Record) {
        let handle = record.list(0).first().map(|h| *h as u64);
        let request = handle.and_then(|h| self.processes[process].requests.get(&h));
        if let Some(Item::Number(comm)) = request.and_then(|r| r.items.get(5)) {
            self.lose_track(process, *comm as u64);
        }
        self.is_said_complete(process, record);
    }

    /// A request is freed. One that is active goes on, and nobody learns when it is over.
    pub(crate) fn frees_request(&mut self, process: usize, record: &Record) {
        let Some(handle) = record.list(0).first().map(|h| *h as u64) else {
            return;
        };
        let own = &mut self.processes[process];
        let Some(mut request) = own.requests.remove(&handle) else {
            return;
        };
        own.uses.end_request(handle);
        let rank = own.rank;
        let call = own.call(process, &record.name, record.site);
        let in_vain = request.in_vain.take();
        let first = &mut self.processes[process].in_vain;
        *first = first.take().or(in_vain);
        if request.is_active && request.posted.is_some() {
            self.lose_track(process, comm_of(&request));
            if !request.may_be_freed {
                let found = Finding::new(Kind::Request)
                    .say(format!("rank {rank}: "))
                    .call(&call)
                    .say(" frees the request of ")
                    .call(&request.call)
                    .say(", so nobody can know when the message is in its buffer");
                self.report(found.say("; wait for it instead"));
            }
        }
    }

    /// Nothing more is known of the requests of a call.
    pub(crate) fn forget_requests(&mut self, process: usize, running: &Running) {
        for item in &running.items {
            if let Item::List(handles) = item {
                for handle in handles {
                    self.processes[process].requests.remove(&(*handle as u64));
                }
            }
        }
    }

    /// A partition is marked as ready.
    pub(crate) fn ready(
        &mut self,
        process: usize,
        record: &Record,
        list: usize,
    ) -> Option<Finding> {
        let call = self.processes[process].call(process, &record.name, record.site);
        let rank = self.processes[process].rank;
        let handle = record.list(list).first().map(|h| *h as u64)?;
        let request = self.processes[process].requests.get_mut(&handle)?;
        let (low, high) = match list {
            1 => (record.number(0), record.number(0)),
            _ => (record.number(0), record.number(1)),
        };
        let made = request.call.clone();
        let wrong = |what: String| {
            Some(
                Finding::new(Kind::Partition)
                    .say(format!("rank {rank}: "))
                    .call(&call)
                    .say(format!(": {what}, request of "))
                    .call(&made),
            )
        };
        if !request.is_active {
            return wrong("the request has not been started; call MPI_Start first".into());
        }
        for partition in low..=high.min(low + (1 << 20)) {
            match usize::try_from(partition)
                .ok()
                .and_then(|p| request.ready.get_mut(p))
            {
                None => {
                    let most = request.partitions - 1;
                    return wrong(format!(
                        "there is no partition {partition}; they are 0 to {most}"
                    ));
                }
                Some(true) => return wrong(format!("partition {partition} is ready already")),
                Some(ready) => *ready = true,
            }
        }
        None
    }

    /// What a process has not freed when it calls `MPI_Finalize`.
    pub(crate) fn leaks(&mut self, process: usize, record: &Record) {
        let own = &self.processes[process];
        let call = own.call(process, &record.name, record.site);
        let rank = own.rank;
        let mut found = Vec::new();
        for request in own.requests.values() {
            let is_open = request.is_active;
            let (what, remedy) = match (is_open, request.is_persistent) {
                (true, false) => (
                    "nobody has waited for",
                    "call MPI_Wait or MPI_Test until it is done",
                ),
                (true, true) => (
                    "is still active, and nobody has waited for it",
                    "call MPI_Wait",
                ),
                (false, _) => ("has not been freed", "call MPI_Request_free"),
            };
            let kind = if is_open { Kind::Request } else { Kind::Leak };
            let begin = match (is_open, request.is_persistent) {
                (true, false) => format!("rank {rank}: {what} the request of "),
                _ => format!("rank {rank}: the request of "),
            };
            let end = match (is_open, request.is_persistent) {
                (true, false) => String::new(),
                _ => format!(" {what}"),
            };
            found.push(
                Finding::new(kind)
                    .say(begin)
                    .call(&request.call)
                    .say(end)
                    .say(" before ")
                    .call(&call)
                    .say(format!("; {remedy}")),
            );
        }
        for ((object, _), made) in &own.objects {
            found.push(
                Finding::new(Kind::Leak)
                    .say(format!("rank {rank}: the {} of ", object.name()))
                    .call(made)
                    .say(" has not been freed before ")
                    .call(&call)
                    .say(format!("; {}", object.remedy())),
            );
        }
        found.into_iter().for_each(|f| self.report(f));
    }
}

/// The communicator of the request of an operation on messages.
fn comm_of(request: &Request) -> u64 {
    let number = |at: usize| match request.items.get(at) {
        Some(crate::record::Item::Number(n)) => *n as u64,
        _ => 0,
    };
    match request.call.name.as_str() {
        "MPI_Isendrecv" | "MPI_Isendrecv_replace" => number(10),
        _ => number(5),
    }
}
