//! How a rank reaches processes of other jobs: through memory those that are near, where its own
//! job is in one memory, too, and all others over the network.

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use margay_net_platform::{
    Attending, Attention, Contact, Crossing, JobAddress, Outside, Peers, Platform, SystemClock,
};
use margay_net_tcp::{GOODBYE, Tcp, Wiring};
use margay_net_transport::Transport;
use margay_sys_os::sockets::{self, Epoll};
use margay_sys_shm::environment::ENV_PORT_RANGE;

use crate::distant::{Distant, Gone};

/// A bridge with up to this many processes connects all that belong to different jobs at once, so
/// that each notices the ends of all others. In larger ones, a process notices the ends of those
/// with which it has communicated.
const MOST_AT_ONCE: usize = 256;

/// Lets a rank that shares memory with all of its job reach other hosts, too.
pub fn reach_out(platform: &mut Platform) {
    if let Some(near) = platform.outside.take() {
        platform.outside = Some(Arc::new(Reach {
            near: Some(near),
            own: None,
            attention: Attention::default(),
            sockets: None,
            encrypts: false,
            jobs: Mutex::default(),
        }));
    }
}

/// See the module.
pub(crate) struct Reach {
    /// How those are reached with which this job can share memory.
    near: Option<Arc<dyn Outside>>,
    /// Where this job is, if it is on several hosts.
    own: Option<JobAddress>,
    /// Of a rank without memory in common with others.
    attention: Attention,
    /// What the rank sleeps on, and how long it sleeps at most: where it has sockets anyway.
    sockets: Option<(Arc<Epoll>, Arc<AtomicU64>)>,
    encrypts: bool,
    /// The jobs on other hosts that this rank has met, by the system and id of their addresses: as
    /// many as the program makes.
    jobs: Mutex<HashMap<(u64, u64), Arc<Distant>>>,
}

impl Reach {
    /// Of a rank of the job with that id, which is on several hosts.
    pub(crate) fn of_hosts(
        id: u64,
        sockets: (Arc<Epoll>, Arc<AtomicU64>),
        encrypts: bool,
        attention: Attention,
    ) -> Reach {
        Reach {
            near: None,
            own: Some(JobAddress {
                id,
                system: 0,
                pid: std::process::id(),
                descriptor: -1,
            }),
            attention,
            sockets: Some(sockets),
            encrypts,
            jobs: Mutex::default(),
        }
    }

    fn distant(&self, job: &JobAddress) -> Arc<Distant> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = jobs.entry((job.system, job.id));
        entry
            .or_insert_with(|| Arc::new(Distant::job(job.id)))
            .clone()
    }
}

/// Returns the ports of [`ENV_PORT_RANGE`].
fn ports() -> Option<(u16, u16)> {
    let text = std::env::var(ENV_PORT_RANGE).ok()?;
    let (first, last) = text.split_once(':').unwrap_or((&text, &text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first != 0 && first <= last).then_some((first, last))
}

impl Outside for Reach {
    fn address(&self) -> JobAddress {
        match &self.near {
            Some(near) => near.address(),
            None => self.own.unwrap_or_default(),
        }
    }

    fn find(&self, job: JobAddress) -> io::Result<Arc<dyn Peers>> {
        match &self.near {
            Some(near) if job.is_near(&near.address()) => near.find(job),
            _ => Ok(self.distant(&job)),
        }
    }

    fn make_bridge(&self, ranks: u32) -> io::Result<(JobAddress, Arc<dyn Peers>)> {
        match &self.near {
            Some(near) => near.make_bridge(ranks),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn join_bridge(
        &self,
        bridge: JobAddress,
        me: u32,
    ) -> io::Result<(Arc<dyn Peers>, Box<dyn Transport>)> {
        match &self.near {
            Some(near) => near.join_bridge(bridge, me),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn encrypts(&self) -> bool {
        self.encrypts
    }

    fn listen(&self) -> io::Result<(TcpListener, Contact)> {
        let listener = sockets::listen(ports())?;
        let port = listener.local_addr()?.port();
        let mut addresses = sockets::own_addresses();
        addresses.truncate(Contact::MOST);
        Ok((listener, Contact { addresses, port }))
    }

    fn cross(&self, crossing: Crossing) -> io::Result<(Arc<dyn Peers>, Box<dyn Transport>)> {
        let Crossing {
            key,
            secret,
            encrypts,
            me,
            listener,
            members,
        } = crossing;
        let own = self.address();
        let attending = self.sockets.is_none().then(|| self.attend());
        let size = members.len() as u32;
        let peers = Arc::new(Distant::bridge(key, size, attending));
        // A process that is near is known better by its job's memory.
        let is_foreign = |job: &JobAddress| !job.is_of_job(&own);
        let home = |(_, job, rank): &(Contact, JobAddress, u32)| {
            is_foreign(job).then(|| (self.distant(job), *rank))
        };
        let homes: Vec<Option<(Arc<Distant>, u32)>> = members.iter().map(home).collect();
        let foreign = |at: &u32| homes[*at as usize].is_some();
        let reached: Vec<u32> = (me + 1..size).filter(foreign).collect();
        for (home, rank) in homes.iter().flatten() {
            home.meet(*rank);
        }
        let bridge = peers.clone();
        let on_lost = move |rank: u32, errno: i32| {
            let how = if errno == GOODBYE {
                Gone::Left
            } else {
                Gone::Lost
            };
            bridge.lose(rank, how);
            if let Some((home, rank)) = &homes[rank as usize] {
                home.lose(*rank, how);
            }
        };
        let wiring = Wiring {
            me,
            job: key,
            secret,
            addresses: (members.into_iter())
                .map(|(contact, ..)| (contact.addresses.into(), contact.port))
                .collect(),
            listener,
            encrypts,
            says_goodbye: true,
        };
        let soon = self.sockets.as_ref().map(|(_, soon)| soon.clone());
        let mut tcp = Tcp::new(wiring, Arc::new(SystemClock), Box::new(on_lost))?;
        if let (Some((epoll, _)), Some(soon)) = (&self.sockets, soon) {
            epoll.add(tcp.epoll().as_fd(), margay_net_tcp::OTHERS, false)?;
            tcp.share_soon(soon);
        }
        if size as usize <= MOST_AT_ONCE {
            reached.into_iter().for_each(|rank| tcp.reach(rank));
        }
        Ok((peers, Box::new(tcp)))
    }

    fn attend(&self) -> Attending {
        match &self.near {
            Some(near) => near.attend(),
            None => self.attention.begin(),
        }
    }
}
