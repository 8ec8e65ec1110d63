//! Connecting groups: accept and connect over ports, `MPI_Comm_join`.
//!
//! The roots meet over a named socket and send each other the members of their groups:
//!
//! ```text
//! connecting root                                    accepting root
//!   HELLO its processes' addresses ──────────────────────>   makes the bridge
//!   <──────────────── WELCOME addresses, bridge, number of the communicator
//!   both inform their groups, everybody joins the bridge
//!   DONE ────────────────────────────────────────────────>
//!   <──────────────────────────────────────────────── DONE
//! ```
//!
//! For a bridge over the network they also send each other, before DONE, where their processes
//! listen.
//!
//! On one host the socket has a name in the abstract namespace. A rank sleeps on its event count
//! while it waits for a message, so a process that writes one wakes it: the name of a port says
//! where the event count is. Ports of jobs on several hosts are at the addresses of the root's
//! host, and their names hold a secret: who has the name may connect. A root that waits for
//! somebody on another host looks often.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use margay_core_group::Group;
use margay_net_tcp::talk::Door;
use margay_run_engine::Pending;
use margay_run_engine::monitor::Tunable;
use margay_sys_os::port::{Channel, Listener};
use margay_sys_os::sockets::fill_random;

use margay_run_mpi::comm::{Comm, Parts};
use margay_run_mpi::constants::info::MPI_INFO_NULL;
use margay_run_mpi::constants::limit::MPI_MAX_PORT_NAME;
use margay_run_mpi::error::*;
use margay_run_mpi::fail;
use margay_run_mpi::foreign::{Address, Agreed, NewBridge, PLACE_WORDS};

use super::Dynamic;
use super::callers::{Callers, FarCallers, HELLO, Hello, Line, Refusal};
use super::deadline::Deadline;
use super::peer::{CONTACTS, DONE, Peer, WELCOME};
use super::target::{Far, Target, parse, socket_name};

/// The ports that this process has opened, by name.
#[derive(Default)]
pub struct Ports {
    open: BTreeMap<String, Arc<Port>>,
}

/// A port: a name, and the processes that have connected.
pub struct Port {
    name: String,
    place: Place,
}

/// Where others connect to.
enum Place {
    Near(Listener),
    Far(Mutex<FarCallers>),
}

/// How roots come together.
pub(crate) enum Role<'a> {
    /// By waiting at a port; asked now and then whether there is still hope.
    Accept(&'a Port, &'a mut dyn FnMut() -> Result<()>),
    /// By connecting to a port.
    Connect(&'a str, Deadline),
    /// Over a socket that is there.
    Socket(Channel),
}

#[cold]
fn not_accepted(error: &std::io::Error) -> Error {
    Error::new(
        MPI_ERR_PORT,
        format!(
            "no connection to the port can be taken: {error}; with too many open files, close some or raise their number \
             (ulimit -n)"
        ),
    )
}

impl Dynamic<'_> {
    /// `MPI_Open_port`: the name.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open_port(&self) -> Result<String> {
        let is_far = self.mpi.own_address().system == 0;
        let port = Arc::new(self.make_port(is_far)?);
        let name = port.name.clone();
        let mut ports = self.state.ports.lock().expect("no panic under this lock");
        ports.open.insert(name.clone(), port);
        Ok(name)
    }

    /// Opens a port: for processes of this host, or over the network for all.
    pub(crate) fn make_port(&self, is_far: bool) -> Result<Port> {
        let outside = self.mpi.outside()?;
        if is_far {
            let failed = |e| Error::new(MPI_ERR_OTHER, format!("cannot open a port: {e}"));
            let (listener, contact) = outside.listen().map_err(failed)?;
            let (mut number, mut secret) = ([0; 8], [0; 32]);
            fill_random(&mut number).map_err(failed)?;
            fill_random(&mut secret).map_err(failed)?;
            let far = Far {
                contact,
                number: u64::from_le_bytes(number),
                secret,
            };
            let name = far.name();
            debug_assert!(name.len() < MPI_MAX_PORT_NAME);
            let callers = FarCallers::new(Door::new(listener, far.number, secret));
            let place = Place::Far(Mutex::new(callers));
            return Ok(Port { name, place });
        }
        let own = self.mpi.own_address();
        // At random, so that nobody can take the next names away.
        let number = RandomState::new().hash_one(own.rank);
        let listener = Listener::bind(&socket_name(own.pid, number))
            .map_err(|e| Error::new(MPI_ERR_OTHER, format!("cannot open a port: {e}")))?;
        let Address {
            job,
            system,
            rank,
            pid,
            descriptor,
        } = own;
        let name = format!("margay:{pid}:{number:016x}:{descriptor}:{job}:{system:016x}:{rank}");
        debug_assert!(name.len() < MPI_MAX_PORT_NAME);
        let place = Place::Near(listener);
        Ok(Port { name, place })
    }

    /// `MPI_Close_port`
    ///
    /// # Errors
    /// When the process has not opened it.
    pub fn close_port(&self, name: &str) -> Result<()> {
        let mut ports = self.state.ports.lock().expect("no panic under this lock");
        match ports.open.remove(name) {
            Some(_) => Ok(()),
            None => Err(no_port(name)),
        }
    }

    /// `MPI_Comm_accept`; the port's name matters at the root.
    ///
    /// # Errors
    /// When the root has not opened the port, the other side goes away, or nobody comes in time.
    pub fn comm_accept(
        &self,
        comm: &Arc<Comm>,
        root: i32,
        name: impl FnOnce() -> Result<String>,
        info: u32,
    ) -> Result<u32> {
        let root = self.root_of(comm, root)?;
        self.unite(comm, root, || {
            let name = name()?;
            let port = {
                let ports = self.state.ports.lock().expect("no panic under this lock");
                ports.open.get(&name).cloned()
            };
            let deadline = self.deadline(info)?;
            let mut hope = || deadline.check(self.mpi.rank().clock(), "connected to the port");
            match port {
                Some(port) => self.join(Role::Accept(&port, &mut hope)),
                None => Err(no_port(&name)),
            }
        })
    }

    /// `MPI_Comm_connect`; the port's name matters at the root.
    ///
    /// # Errors
    /// When there is no such port, the other side goes away, or nobody accepts in time.
    pub fn comm_connect(
        &self,
        comm: &Arc<Comm>,
        root: i32,
        name: impl FnOnce() -> Result<String>,
        info: u32,
    ) -> Result<u32> {
        let root = self.root_of(comm, root)?;
        self.unite(comm, root, || {
            let name = name()?;
            self.join(Role::Connect(&name, self.deadline(info)?))
        })
    }

    /// Returns how long the other side is waited for: the info key `timeout` in seconds, else the
    /// control variable.
    fn deadline(&self, info: u32) -> Result<Deadline> {
        let entries = self.mpi.info(info)?;
        let Some((_, value)) = entries.into_iter().find(|(key, _)| key == "timeout") else {
            let tuning = &self.mpi.rank().monitor().tuning;
            return Ok(Deadline::seconds(
                tuning.get(Tunable::ConnectTimeout),
                self.mpi.rank().clock(),
            ));
        };
        match value.trim().parse() {
            Ok(seconds) => Ok(Deadline::seconds(seconds, self.mpi.rank().clock())),
            Err(_) => fail!(
                MPI_ERR_INFO_VALUE,
                "timeout is '{value}', which is not a number of seconds"
            ),
        }
    }

    /// `MPI_Comm_join`: an inter-communicator with the process at the other end of a socket.
    ///
    /// # Errors
    /// When the descriptor is not a connected socket.
    pub fn comm_join(&self, descriptor: i32) -> Result<u32> {
        let comm = self.solitary()?;
        self.unite(&comm, 0, || {
            let channel = Channel::of_descriptor(descriptor).map_err(|e| {
                Error::new(
                    MPI_ERR_ARG,
                    format!("descriptor {descriptor} is not a connected socket ({e})"),
                )
            })?;
            self.join(Role::Socket(channel))
        })
    }

    pub(crate) fn root_of(&self, comm: &Comm, root: i32) -> Result<u32> {
        match u32::try_from(root) {
            Ok(root) if root < comm.size() => Ok(root),
            _ => fail!(MPI_ERR_ROOT, "root {root} is not in {}", comm.describe()),
        }
    }

    /// Returns a communicator of this process alone.
    fn solitary(&self) -> Result<Arc<Comm>> {
        let me = self.mpi.rank().world_rank();
        Ok(Arc::new(Comm::new(Parts {
            id: Some(self.mpi.propose_for(false)?),
            rank: 0,
            group: Arc::new(Group::range(me, 1)),
            remote: None,
            inner: None,
            topology: None,
        })))
    }

    /// Meets the other root. Returns it, and whether this side makes the bridge.
    pub(crate) fn join(&self, how: Role<'_>) -> Result<(Peer, bool)> {
        match how {
            Role::Connect(name, deadline) => {
                let target = parse(name).ok_or_else(|| no_port(name))?;
                if let Target::Near(_, address) = &target {
                    let home = self.mpi.find_home(address).map_err(|_| no_port(name))?;
                    if address.rank >= home.size() {
                        return Err(no_port(name));
                    }
                }
                let line = self.connect(&target, deadline)?;
                let mut peer = Peer::over(line.map_err(|_| no_port(name))?);
                match &target {
                    Target::Near(_, address) => self.find_event_count(&mut peer, address)?,
                    Target::Far(_) => peer.attending = Some(self.mpi.outside()?.attend()),
                }
                peer.deadline = deadline;
                peer.target = Some(target);
                Ok((peer, false))
            }
            Role::Accept(port, hope) => Ok((self.accept(port, hope)?, true)),
            Role::Socket(channel) => {
                let mut peer = Peer::over(Line::Near(channel));
                // Who is at the other end is not known yet.
                peer.attending = Some(self.mpi.outside()?.attend());
                let own = self.mpi.own_address();
                let mut words = vec![HELLO];
                words.extend(own.words());
                peer.send(&words)?;
                let words = self.receive_from_root(&mut peer, HELLO, Address::WORDS)?;
                let other = Address::from_words(&words);
                self.find_event_count(&mut peer, &other)?;
                if own.same(&other) {
                    fail!(
                        MPI_ERR_ARG,
                        "the socket is connected to this process itself"
                    );
                }
                Ok((peer, own < other))
            }
        }
    }

    /// Waits at a port for a process that says HELLO and can be reached; others are dropped.
    fn accept(&self, port: &Port, hope: &mut dyn FnMut() -> Result<()>) -> Result<Peer> {
        let mut callers = Callers::default();
        let attending = match &port.place {
            Place::Near(_) => None,
            Place::Far(_) => Some(self.mpi.outside()?.attend()),
        };
        let mut next = |now_ns| match &port.place {
            Place::Near(listener) => callers.next(listener, now_ns),
            Place::Far(callers) => {
                let mut callers = callers.lock().expect("no panic under this lock");
                Ok(callers.next(now_ns))
            }
        };
        loop {
            let (line, hello) = self.mpi.rank().block(
                |_| match next(self.mpi.rank().clock().now_ns()) {
                    Ok(None) => hope().err().map(Err),
                    Ok(Some(caller)) => Some(Ok(caller)),
                    Err(error) => Some(Err(not_accepted(&error))),
                },
                |_| Some(Pending::Elsewhere),
            )?;
            let mut peer = Peer::over(line);
            match self.find_event_count(&mut peer, &hello.root) {
                Ok(()) => {
                    peer.hello = Some(hello);
                    if attending.is_some() {
                        peer.attending = attending;
                    }
                    return Ok(peer);
                }
                Err(_) => Refusal::Unreachable.tell(&mut peer.line),
            }
        }
    }

    /// Makes an inter-communicator of `comm` and of the group of the root whom `join` finds. The
    /// handle.
    pub(crate) fn unite(
        &self,
        comm: &Arc<Comm>,
        root: u32,
        join: impl FnOnce() -> Result<(Peer, bool)>,
    ) -> Result<u32> {
        let own = self.mpi.addresses(comm)?;
        let leads = comm.rank == root;
        let mut held = None;
        let mut words = Vec::new();
        let mut problem = None;
        if leads {
            match join().and_then(|(peer, makes)| self.shake(comm, &own, peer, makes)) {
                Ok((peer, bridge, agreed)) => {
                    held = Some((peer, bridge));
                    words = agreed;
                }
                Err(error) => problem = Some(error),
            }
        }
        let words = self.mpi.tell_group(comm, root, words, problem)?;
        let agreed = Agreed::from_words(&own, &words);
        let _connecting = self.mpi.begin_connecting();
        let ways = self.mpi.find_ways(comm, root, &agreed, |ours| {
            let Some((peer, _)) = &mut held else {
                fail!(MPI_ERR_INTERN, "the root has met nobody");
            };
            peer.send(&[&[CONTACTS], ours].concat())?;
            self.receive_from_root(peer, CONTACTS, 0)
        })?;
        let met = self.mpi.meet(&agreed, ways);
        // Everybody must have joined before anybody may rely on it or end.
        let mut joined = [i32::from(met.is_ok())];
        self.and_words(comm, &mut joined)?;
        let mut problem = None;
        if let Some((mut peer, bridge)) = held {
            let done = peer
                .send(&[DONE, joined[0]])
                .and_then(|()| self.receive_from_root(&mut peer, DONE, 1));
            drop(bridge);
            match done {
                Ok(theirs) if theirs.first() == Some(&1) && joined[0] == 1 => {}
                Ok(_) => {
                    problem = Some(Error::new(
                        MPI_ERR_PORT,
                        "not all processes could join the memory for both groups",
                    ));
                }
                Err(error) => problem = Some(error),
            }
        }
        let sent = self.mpi.tell_group(comm, root, vec![1], problem);
        let remote = met?;
        sent?;
        let remote =
            Group::from_processes(remote).map_err(|e| Error::new(MPI_ERR_INTERN, e.to_string()))?;
        self.mpi
            .add_intercomm(comm, agreed.numbers, comm.group.clone(), Arc::new(remote))
    }

    /// The root's part: the words for its group, as [`Agreed::from_words`] reads them.
    #[allow(clippy::type_complexity)]
    fn shake(
        &self,
        comm: &Comm,
        own: &[Address],
        mut peer: Peer,
        makes: bool,
    ) -> Result<(Peer, Option<NewBridge>, Vec<i32>)> {
        let list = |all: &[Address]| all.iter().flat_map(Address::words).collect::<Vec<i32>>();
        let inner = self.mpi.propose_for(self.mpi.spans(comm))? as i32;
        if !makes {
            let encrypts = self.mpi.outside()?.encrypts();
            let mut hello = vec![HELLO, comm.rank as i32, i32::from(encrypts)];
            hello.extend(list(own));
            // Number, which bridge there is, its place, addresses.
            let welcome = self.greet(&mut peer, &hello, 2 + PLACE_WORDS)?;
            peer.deadline = Deadline::default();
            let how = match welcome[1] {
                0 => 0,
                1 => 2,
                3 => 4,
                _ => fail!(
                    MPI_ERR_PORT,
                    "the other side's WELCOME names no bridge that there is"
                ),
            };
            let mut words = vec![welcome[0], inner, how];
            words.extend(&welcome[2..]);
            return Ok((peer, None, words));
        }
        let hello = match peer.hello.take() {
            Some(hello) => hello,
            // Over a socket of the program.
            None => {
                let words = self.receive_from_root(&mut peer, HELLO, 2)?;
                let Some(hello) = Hello::from_words(&words) else {
                    fail!(MPI_ERR_PORT, "the other side's HELLO contradicts itself");
                };
                self.find_event_count(&mut peer, &hello.root)?;
                hello
            }
        };
        let encrypts = hello.encrypts;
        let remote = hello.group;
        if let Some(both) = remote.iter().find(|r| own.iter().any(|o| o.same(r))) {
            Refusal::BothSides.tell(&mut peer.line);
            fail!(
                MPI_ERR_COMM,
                "the process with pid {} is on both sides; the groups must be disjoint",
                both.pid
            );
        }
        let alike = own.iter().chain(&remote).all(|a| a.is_of_job(&own[0]));
        let bridge = if alike {
            None
        } else {
            Some(self.mpi.make_bridge(own, &remote, encrypts)?)
        };
        let (how, place) = Agreed::how(bridge.as_ref());
        let id = self.mpi.propose_for(!alike)? as i32;
        let mut welcome = vec![WELCOME, id, how];
        welcome.extend(&place);
        welcome.extend(list(own));
        peer.send(&welcome)?;
        let mut words = vec![id, inner, how];
        words.extend(place);
        words.extend(list(&remote));
        Ok((peer, bridge, words))
    }

    /// The smallest of everybody's words.
    fn and_words(&self, comm: &Arc<Comm>, words: &mut [i32; 1]) -> Result<()> {
        let all = self.mpi.gather_all(comm, words)?;
        words[0] = all.iter().map(|w| w[0]).min().unwrap_or(0);
        Ok(())
    }

    /// Connects to the processes that spawned this job, if it was spawned; `MPI_Comm_get_parent`
    /// then gives the handle.
    ///
    /// # Errors
    /// When they are gone.
    pub fn connect_parent(&self, name: &str) -> Result<()> {
        let name = || Ok(name.to_string());
        let handle = self.comm_connect(self.mpi.comm_world(), 0, name, MPI_INFO_NULL)?;
        self.mpi.comm(handle)?.set_name("MPI_COMM_PARENT".into());
        self.mpi.set_parent(handle);
        Ok(())
    }
}

#[cold]
fn no_port(name: &str) -> Error {
    Error::new(
        MPI_ERR_PORT,
        format!("there is no port '{name}'; is the process that opened it still there?"),
    )
}

impl Port {
    /// Returns what others connect to.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use margay_core_registry::Facts;
    use margay_net_platform::this_system;
    use margay_net_shm::platform;
    use margay_net_transport::Thresholds;
    use margay_run_engine::{JobAddress, Limits, Policy, Rank};
    use margay_run_mpi::Mpi;
    use margay_sys_shm::layout::Sizes;
    use margay_sys_shm::segment::Segment;

    use super::*;
    use crate::DynamicState;

    fn segment() -> Arc<Segment> {
        let sizes = Sizes {
            ranks: 2,
            heap_bytes: 16 << 20,
            arena_bytes: 0,
        };
        let segment = Segment::create(sizes).expect("a segment");
        segment.registry().describe(&Facts {
            job: 1,
            cores: 1,
            command: "test".into(),
            ..Facts::default()
        });
        Arc::new(segment)
    }

    fn address(home: &Segment, rank: u32) -> [i32; Address::WORDS] {
        let job = JobAddress {
            id: home.id(),
            system: this_system(),
            pid: std::process::id(),
            descriptor: home.fd().as_raw_fd(),
        };
        Address::of(job, rank).words()
    }

    /// What joining comes to when the other side says this and then hangs up.
    fn joined(mpi: &Mpi, messages: &[&[i32]]) -> Result<u32> {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        for words in messages {
            let length = 4 * words.len() as u32;
            theirs.write_all(&length.to_ne_bytes()).expect("room");
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
            theirs.write_all(&bytes).expect("room");
        }
        theirs
            .shutdown(std::net::Shutdown::Write)
            .expect("a socket");
        let state = DynamicState::default();
        Dynamic::new(mpi, &state).comm_join(ours.as_raw_fd())
    }

    #[test]
    fn words_of_another_root_that_mean_nothing_are_errors() {
        let (home, other) = (segment(), segment());
        // Rank 1 of our job makes the bridge or we do, depending on the order of addresses.
        let here = address(&home, 1);
        let there = address(&other, 0);
        let nowhere = [address(&other, 2), address(&home, 2)];
        let said = |first: i32, words: &[&[i32]]| {
            let mut all = vec![first];
            words.iter().for_each(|w| all.extend_from_slice(w));
            all
        };
        let mut cases: Vec<Vec<Vec<i32>>> = vec![
            vec![],
            vec![vec![]],
            vec![vec![HELLO]],
            vec![said(HELLO, &[&here[..4]])],
            vec![vec![DONE, 1]],
        ];
        for first in [here, there] {
            let hello = said(HELLO, &[&first]);
            for second in [
                vec![HELLO],
                vec![HELLO, 0],
                vec![HELLO, -1],
                vec![WELCOME],
                vec![WELCOME, 1, 1, 2],
            ] {
                cases.push(vec![hello.clone(), second.clone()]);
                cases.push(vec![hello.clone(), second, vec![DONE]]);
            }
            for rank in nowhere {
                cases.push(vec![hello.clone(), said(HELLO, &[&[0, 0], &first, &rank])]);
                let welcome = said(WELCOME, &[&[7, 0], &[0; PLACE_WORDS], &rank]);
                cases.push(vec![hello.clone(), welcome, vec![DONE, 1]]);
            }
        }
        let platform = platform(&home, 0, Arc::new(Thresholds::measured()), true);
        let rank = Rank::over(platform, Limits::default(), Policy::new(2, 1));
        let mpi = Mpi::new(rank, &[]);
        for case in cases {
            let messages: Vec<&[i32]> = case.iter().map(Vec::as_slice).collect();
            assert!(joined(&mpi, &messages).is_err(), "{case:?}");
        }
    }
}
