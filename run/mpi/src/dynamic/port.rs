//! Connecting groups: accept and connect over ports, `MPI_Comm_join`.
//!
//! The roots meet over a named socket and tell each other who is in their groups:
//!
//! ```text
//! connecting root                                    accepting root
//!   HELLO its processes' addresses ──────────────────────>   makes the bridge
//!   <──────────────── WELCOME addresses, bridge, number of the communicator
//!   both tell their groups, everybody joins the bridge
//!   DONE ────────────────────────────────────────────────>
//!   <──────────────────────────────────────────────── DONE
//! ```
//!
//! A rank sleeps on its doorbell while it waits for a message of the socket, so whoever writes one rings it: the name of a
//! port tells where the doorbell is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_group::Group;
use margay_run_engine::Pending;
use margay_run_engine::monitor::Knob;
use margay_sys::clock;
use margay_sys::port::{Channel, Listener};
use margay_sys::segment::Segment;

use super::Address;
use crate::collective::Operation;
use crate::comm::{Comm, Parts};
use crate::constants::info::MPI_INFO_NULL;
use crate::constants::limit::MPI_MAX_PORT_NAME;
use crate::error::*;
use crate::{Mpi, fail};

/// The first word of each message between roots.
const HELLO: i32 = 0x4d47_0001;
const WELCOME: i32 = 0x4d47_0002;
const DONE: i32 = 0x4d47_0003;
const REFUSED: i32 = 0x4d47_0004;

/// The ports that this process has opened, by name.
#[derive(Default)]
pub struct Ports {
    open: BTreeMap<String, Arc<Port>>,
    count: u32,
}

/// A port: a name, and those who have connected.
pub struct Port {
    name: String,
    listener: Listener,
}

/// The other root.
pub(crate) struct Peer {
    channel: Channel,
    /// Its job's segment and its rank there, to wake it.
    home: Option<(Arc<Segment>, u32)>,
    /// How long its first words are waited for.
    patience: Patience,
}

/// How long the other side is waited for: until when, and how many seconds that were at first; none: without end.
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience(Option<(u64, u64)>);

impl Patience {
    /// So many seconds from now on; 0 is without end.
    fn seconds(seconds: u64) -> Patience {
        let until_ns = || clock::now_ns().saturating_add(seconds.saturating_mul(1_000_000_000));
        Patience((seconds != 0).then(|| (until_ns(), seconds)))
    }

    /// An error when it is over.
    fn check(self, what: &str) -> Result<()> {
        if let Some((until_ns, seconds)) = self.0
            && clock::now_ns() >= until_ns
        {
            fail!(
                MPI_ERR_PORT,
                "nobody {what} within {seconds} s; the info key timeout or MARGAY_CONNECT_TIMEOUT sets this time"
            );
        }
        Ok(())
    }
}

/// How roots come together.
pub(crate) enum Dial<'a> {
    /// By waiting at a port; asked now and then whether there is still hope.
    Accept(&'a Port, &'a mut dyn FnMut() -> Result<()>),
    /// By connecting to a port.
    Connect(&'a str, Patience),
    /// Over a socket that is there.
    Socket(Channel),
}

impl Peer {
    fn send(&self, words: &[i32]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        self.channel.send(&bytes).map_err(lost)?;
        if let Some((home, rank)) = &self.home {
            home.cell(*rank).bell().ring();
        }
        Ok(())
    }
}

fn lost(error: std::io::Error) -> Error {
    Error::new(
        MPI_ERR_PORT,
        format!("the processes on the other side are gone ({error})"),
    )
}

fn words_of(bytes: &[u8]) -> Vec<i32> {
    let word = |w: &[u8]| i32::from_ne_bytes(w.try_into().expect("four bytes"));
    bytes.chunks_exact(4).map(word).collect()
}

/// The parts of a port's name: process, number of the port in it, descriptor, id of the segment and rank there.
fn parse(name: &str) -> Option<(String, Address)> {
    let mut parts = name.strip_prefix("margay:")?.split(':');
    let pid = parts.next()?.parse().ok()?;
    let number: u32 = parts.next()?.parse().ok()?;
    let address = Address {
        pid,
        descriptor: parts.next()?.parse().ok()?,
        segment: parts.next()?.parse().ok()?,
        rank: parts.next()?.parse().ok()?,
    };
    Some((socket_name(pid, number), address))
}

fn socket_name(pid: u32, number: u32) -> String {
    format!("margay-port-{pid}-{number}")
}

impl Mpi {
    /// `MPI_Open_port`: the name.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open_port(&self) -> Result<String> {
        let port = Arc::new(self.make_port()?);
        let name = port.name.clone();
        let mut ports = self.ports.lock().expect("no panic under this lock");
        ports.open.insert(name.clone(), port);
        Ok(name)
    }

    pub(crate) fn make_port(&self) -> Result<Port> {
        self.home()?;
        let own = self.own_address();
        let number = {
            let mut ports = self.ports.lock().expect("no panic under this lock");
            ports.count += 1;
            ports.count
        };
        let listener = Listener::bind(&socket_name(own.pid, number))
            .map_err(|e| Error::new(MPI_ERR_OTHER, format!("cannot open a port: {e}")))?;
        let Address {
            segment,
            rank,
            pid,
            descriptor,
        } = own;
        let name = format!("margay:{pid}:{number}:{descriptor}:{segment}:{rank}");
        debug_assert!(name.len() < MPI_MAX_PORT_NAME);
        Ok(Port { name, listener })
    }

    /// `MPI_Close_port`
    ///
    /// # Errors
    /// When the process has not opened it.
    pub fn close_port(&self, name: &str) -> Result<()> {
        let mut ports = self.ports.lock().expect("no panic under this lock");
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
                let ports = self.ports.lock().expect("no panic under this lock");
                ports.open.get(&name).cloned()
            };
            let patience = self.patience(info)?;
            let mut hope = || patience.check("connected to the port");
            match port {
                Some(port) => self.dial(Dial::Accept(&port, &mut hope)),
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
            self.dial(Dial::Connect(&name, self.patience(info)?))
        })
    }

    /// How long the other side is waited for: the info key `timeout` in seconds, else the control variable.
    fn patience(&self, info: u32) -> Result<Patience> {
        let entries = self.info(info)?;
        let Some((_, value)) = entries.into_iter().find(|(key, _)| key == "timeout") else {
            let tuning = &self.rank.monitor().tuning;
            return Ok(Patience::seconds(tuning.get(Knob::ConnectTimeout)));
        };
        match value.trim().parse() {
            Ok(seconds) => Ok(Patience::seconds(seconds)),
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
            self.dial(Dial::Socket(channel))
        })
    }

    pub(crate) fn root_of(&self, comm: &Comm, root: i32) -> Result<u32> {
        match u32::try_from(root) {
            Ok(root) if root < comm.size() => Ok(root),
            _ => fail!(MPI_ERR_ROOT, "root {root} is not in {}", comm.describe()),
        }
    }

    /// A communicator of this process alone.
    fn solitary(&self) -> Result<Arc<Comm>> {
        let me = self.rank.world_rank();
        Ok(Arc::new(Comm::new(Parts {
            id: Some(self.propose_for(false)?),
            rank: 0,
            group: Arc::new(Group::range(me, 1)),
            remote: None,
            inner: None,
            topology: None,
        })))
    }

    /// Meets the other root. Returns it, and whether this side makes the bridge.
    pub(crate) fn dial(&self, how: Dial<'_>) -> Result<(Peer, bool)> {
        match how {
            Dial::Connect(name, patience) => {
                let (socket, address) = parse(name).ok_or_else(|| no_port(name))?;
                let home = Segment::join_of(address.pid, address.descriptor, address.segment);
                let home = home.map_err(|_| no_port(name))?;
                if address.rank >= home.ranks() {
                    return Err(no_port(name));
                }
                let channel = Channel::connect(&socket).map_err(|_| no_port(name))?;
                let home = Some((Arc::new(home), address.rank));
                let peer = Peer {
                    channel,
                    home,
                    patience,
                };
                Ok((peer, false))
            }
            Dial::Accept(port, hope) => {
                let accepted = self.rank.block(
                    |_| match port.listener.accept() {
                        Ok(None) => hope().err().map(Err),
                        // Whoever has given up meanwhile is not meant.
                        Ok(Some(channel)) if channel.is_closed() => None,
                        Ok(Some(channel)) => Some(Ok(channel)),
                        Err(error) => Some(Err(lost(error))),
                    },
                    |_| Some(Pending::Elsewhere),
                )?;
                let peer = Peer {
                    channel: accepted,
                    home: None,
                    patience: Patience::default(),
                };
                Ok((peer, true))
            }
            Dial::Socket(channel) => {
                let mut peer = Peer {
                    channel,
                    home: None,
                    patience: Patience::default(),
                };
                let own = self.own_address();
                let mut words = vec![HELLO];
                words.extend(own.words());
                peer.send(&words)?;
                let words = self.hear_root(&mut peer, HELLO, Address::WORDS)?;
                let other = Address::from_words(&words);
                self.find_bell(&mut peer, &other)?;
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

    fn find_bell(&self, peer: &mut Peer, address: &Address) -> Result<()> {
        let home = if address.segment == self.home()?.id() {
            self.home()?.clone()
        } else {
            let (pid, number) = (address.pid, address.descriptor);
            let joined = Segment::join_of(pid, number, address.segment);
            Arc::new(joined.map_err(|e| Error::new(MPI_ERR_PORT, e.to_string()))?)
        };
        if address.rank >= home.ranks() {
            fail!(MPI_ERR_PORT, "the other side is not a rank of its job");
        }
        peer.home = Some((home, address.rank));
        Ok(())
    }

    /// Waits for a message of the other root; its words behind the first, at least `least` of them.
    fn hear_root(&self, peer: &mut Peer, kind: i32, least: usize) -> Result<Vec<i32>> {
        let message = self.rank.block(
            |_| match peer.channel.receive() {
                Ok(None) => peer.patience.check("accepted at the port").err().map(Err),
                Ok(Some(message)) => Some(Ok(message)),
                Err(error) => Some(Err(lost(error))),
            },
            |_| Some(Pending::Elsewhere),
        )?;
        peer.patience = Patience::default();
        let mut words = words_of(&message);
        match words.first() {
            Some(&first) if first == kind && words.len() > least => Ok(words.split_off(1)),
            Some(&REFUSED) => fail!(MPI_ERR_PORT, "the other side has given up"),
            _ => fail!(
                MPI_ERR_PORT,
                "the other side speaks another language; both must be of the same Margay"
            ),
        }
    }

    /// Makes an inter-communicator of `comm` and of the group of the root whom `dial` finds. The handle.
    pub(crate) fn unite(
        &self,
        comm: &Arc<Comm>,
        root: u32,
        dial: impl FnOnce() -> Result<(Peer, bool)>,
    ) -> Result<u32> {
        let own = self.addresses(comm)?;
        let leads = comm.rank == root;
        let mut held = None;
        let mut words = Vec::new();
        let mut problem = None;
        if leads {
            match dial().and_then(|(peer, makes)| self.shake(comm, &own, peer, makes)) {
                Ok((peer, bridge, agreed)) => {
                    held = Some((peer, bridge));
                    words = agreed;
                }
                Err(error) => problem = Some(error),
            }
        }
        let words = self.tell_group(comm, root, words, problem)?;
        // First our own, then the others; whoever makes the bridge comes first in it.
        let (numbers, rest) = ((words[0] as u32, words[1] as u32), &words[3..]);
        let bridge = (words[2] != 0).then(|| Address::from_words(&rest[..Address::WORDS]));
        let remote = Address::list(&rest[Address::WORDS..]);
        let mut members = own.clone();
        match words[2] {
            1 => members.extend(&remote),
            _ => members.splice(0..0, remote.iter().copied()).for_each(drop),
        }
        let _meeting = self.begin_meeting();
        let met = self.meet(&remote, bridge, &members);
        // Everybody must have joined before anybody may rely on it or end.
        let mut joined = [i32::from(met.is_ok())];
        self.and_words(comm, &mut joined)?;
        let mut problem = None;
        if let Some((mut peer, bridge)) = held {
            let done = peer
                .send(&[DONE, joined[0]])
                .and_then(|()| self.hear_root(&mut peer, DONE, 1));
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
        let told = self.tell_group(comm, root, vec![1], problem);
        let remote = met?;
        told?;
        let remote =
            Group::from_processes(remote).map_err(|e| Error::new(MPI_ERR_INTERN, e.to_string()))?;
        self.add_intercomm(comm, numbers, comm.group.clone(), Arc::new(remote))
    }

    /// The root's part: the words for its group. `[number, inner number, how, bridge, remote addresses]`, `how` being 0
    /// without a bridge, 1 when our group comes first in it, 2 when theirs does.
    #[allow(clippy::type_complexity)]
    fn shake(
        &self,
        comm: &Comm,
        own: &[Address],
        mut peer: Peer,
        makes: bool,
    ) -> Result<(Peer, Option<Arc<Segment>>, Vec<i32>)> {
        let list = |all: &[Address]| all.iter().flat_map(Address::words).collect::<Vec<i32>>();
        let inner = self.propose_for(self.spans(comm))? as i32;
        let nowhere = [0; Address::WORDS];
        if !makes {
            let mut hello = vec![HELLO, comm.rank as i32];
            hello.extend(list(own));
            peer.send(&hello)?;
            // Number, whether there is a bridge, bridge, addresses.
            let welcome = self.hear_root(&mut peer, WELCOME, 2 + Address::WORDS)?;
            let how = if welcome[1] == 0 { 0 } else { 2 };
            let mut words = vec![welcome[0], inner, how];
            words.extend(&welcome[2..]);
            return Ok((peer, None, words));
        }
        let hello = self.hear_root(&mut peer, HELLO, 1)?;
        let remote = Address::list(&hello[1..]);
        let Some(root) = remote.get(hello[0] as usize) else {
            fail!(MPI_ERR_PORT, "the other side has no root");
        };
        self.find_bell(&mut peer, root)?;
        if let Some(both) = remote.iter().find(|r| own.iter().any(|o| o.same(r))) {
            let _ = peer.send(&[REFUSED]);
            fail!(
                MPI_ERR_COMM,
                "the process with pid {} is on both sides; the groups must be disjoint",
                both.pid
            );
        }
        let first = own[0].segment;
        let alike = own.iter().chain(&remote).all(|a| a.segment == first);
        let bridge = if alike {
            None
        } else {
            Some(Mpi::make_bridge(own.len() + remote.len())?)
        };
        let place = bridge
            .as_ref()
            .map_or(nowhere, |b| Address::of(b, 0).words());
        let id = self.propose_for(!alike)? as i32;
        let how = i32::from(bridge.is_some());
        let mut welcome = vec![WELCOME, id, how];
        welcome.extend(place);
        welcome.extend(list(own));
        peer.send(&welcome)?;
        let mut words = vec![id, inner, how];
        words.extend(place);
        words.extend(list(&remote));
        Ok((peer, bridge, words))
    }

    /// The addresses of a communicator's processes.
    pub(crate) fn addresses(&self, comm: &Arc<Comm>) -> Result<Vec<Address>> {
        let all = self.gather_all(comm, &self.own_address().words())?;
        Ok(all.iter().map(|words| Address::from_words(words)).collect())
    }

    /// The root's words for all, or its problem: then all have an error.
    pub(crate) fn tell_group(
        &self,
        comm: &Arc<Comm>,
        root: u32,
        words: Vec<i32>,
        problem: Option<Error>,
    ) -> Result<Vec<i32>> {
        let mut head = match &problem {
            Some(error) => [-1, error.code()],
            None => [words.len() as i32, 0],
        };
        self.broadcast_words(comm, root, &mut head)?;
        if let Some(error) = problem {
            return Err(error);
        }
        if head[0] < 0 {
            fail!(
                head[1],
                "it failed at the root, rank {root} of {}",
                comm.describe()
            );
        }
        let mut words = words;
        words.resize(head[0] as usize, 0);
        self.broadcast_words(comm, root, &mut words)?;
        Ok(words)
    }

    /// The smallest of everybody's words.
    fn and_words(&self, comm: &Arc<Comm>, words: &mut [i32; 1]) -> Result<()> {
        let all = self.gather_all(comm, words)?;
        words[0] = all.iter().map(|w| w[0]).min().unwrap_or(0);
        Ok(())
    }

    /// `MPI_Comm_disconnect`: waits for everybody, then frees.
    ///
    /// # Errors
    /// As [`Mpi::comm_free`].
    pub fn comm_disconnect(&self, handle: u32) -> Result<()> {
        let comm = self.comm(handle)?;
        if !matches!(
            handle,
            crate::constants::comm::MPI_COMM_WORLD | crate::constants::comm::MPI_COMM_SELF
        ) {
            self.collective(&comm, Operation::Barrier)?;
        }
        drop(comm);
        self.comm_free(handle)
    }

    /// Connects to those who spawned this job, if it was spawned; `MPI_Comm_get_parent` then gives the handle.
    ///
    /// # Errors
    /// When they are gone.
    pub fn connect_parent(&self, name: &str) -> Result<()> {
        let name = || Ok(name.to_string());
        let handle = self.comm_connect(&self.world, 0, name, MPI_INFO_NULL)?;
        self.comm(handle)?.set_name("MPI_COMM_PARENT".into());
        self.parent.store(handle, Ordering::Release);
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
    /// What others connect to.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use margay_run_engine::Rank;
    use margay_sys::segment::Sizes;

    use super::*;

    fn segment() -> Arc<Segment> {
        let sizes = Sizes {
            ranks: 2,
            heap_bytes: 16 << 20,
            arena_bytes: 0,
        };
        let segment = Segment::create(sizes).expect("a segment");
        segment.header().describe(1, 0, 1, "test");
        Arc::new(segment)
    }

    /// What joining comes to when the other side says this and then hangs up.
    fn joined(home: &Arc<Segment>, messages: &[&[i32]]) -> Result<u32> {
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
        Mpi::new(Rank::in_segment(home, 0), &[]).comm_join(ours.as_raw_fd())
    }

    #[test]
    fn words_of_another_root_that_mean_nothing_are_errors() {
        let (home, other) = (segment(), segment());
        // Rank 1 of the own job makes the bridge or we do, depending on the order of addresses.
        let here = Address::of(&home, 1).words();
        let there = Address::of(&other, 0).words();
        let nowhere = [
            Address::of(&other, 2).words(),
            Address::of(&home, 2).words(),
        ];
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
                cases.push(vec![hello.clone(), said(HELLO, &[&[0], &first, &rank])]);
                let welcome = said(WELCOME, &[&[7, 0], &[0; Address::WORDS], &rank]);
                cases.push(vec![hello.clone(), welcome, vec![DONE, 1]]);
            }
        }
        for case in cases {
            let messages: Vec<&[i32]> = case.iter().map(Vec::as_slice).collect();
            assert!(joined(&home, &messages).is_err(), "{case:?}");
        }
    }
}
