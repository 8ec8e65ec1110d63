//! Several transports as one: the job's own, and one for each group of processes of other jobs that
//! this one has met.
//!
//! Processes of this rank's job keep their numbers; those of other jobs get the numbers that
//! follow, in the order in which they were met. A process that can no longer be reached keeps its
//! number, too; messages to it are dropped.
//!
//! A rank sleeps in one place, the futex word of its own job's registry. A transport to others
//! wakes words of its own, on which nobody sleeps, so this transport wakes the right ranks after
//! each step that a peer may be waiting for.

#![forbid(unsafe_code)]

use margay_net_transport::{
    Advance, Destination, Head, Packet, Sink, Ticket, Transport, WHOLE, World,
};
use margay_sys_os::user::Mem;

/// The transport; see the module.
pub struct Worlds {
    /// The transport of this rank's job; none only while this value takes its place.
    home: Option<Box<dyn Transport>>,
    me: u32,
    own: u32,
    worlds: Vec<Option<World>>,
    /// World and rank in it of each process of another job.
    routes: Vec<Option<(usize, u32)>>,
    /// World, its ticket and the peer of each direct copy with another job.
    copies: Vec<Option<(usize, Ticket, u32)>>,
}

/// Tickets from here on are of copies with other jobs.
const FOREIGN: u32 = 1 << 31;

impl Worlds {
    /// Takes the place of `home`, which stays as the transport of this rank's job.
    pub fn around(home: &mut Box<dyn Transport>) {
        let (me, own) = (home.me(), home.size());
        let around = |home| Worlds {
            home,
            me,
            own,
            worlds: Vec::new(),
            routes: Vec::new(),
            copies: Vec::new(),
        };
        let inner = std::mem::replace(home, Box::new(around(None)));
        *home = Box::new(around(Some(inner)));
    }

    fn home(&mut self) -> &mut dyn Transport {
        &mut **self.home.as_mut().expect("it is around one")
    }

    /// World and rank in it of a process of another job, if it can be reached.
    fn route(&self, process: u32) -> Option<(usize, u32)> {
        *self.routes.get((process - self.own) as usize)?
    }

    /// Asks the transport to a process, which may be one of another job.
    fn asks(&self, to: u32, what: impl Fn(&dyn Transport, u32) -> bool) -> bool {
        if to < self.own {
            return self.home.as_ref().is_some_and(|home| what(&**home, to));
        }
        let world = |at: usize| self.worlds.get(at).and_then(Option::as_ref);
        self.route(to)
            .is_some_and(|(at, rank)| world(at).is_some_and(|world| what(&*world.transport, rank)))
    }

    fn world(&mut self, at: usize) -> &mut World {
        self.worlds[at].as_mut().expect("routes lead to worlds")
    }
}

/// Numbers the senders of one world's packets, and notes whom to wake.
struct Numbered<'a> {
    sink: &'a mut dyn Sink,
    processes: &'a [u32],
    senders: Vec<u32>,
}

impl Numbered<'_> {
    fn number(&mut self, from: u32) -> u32 {
        if self.senders.last() != Some(&from) {
            self.senders.push(from);
        }
        self.processes[from as usize]
    }
}

impl Sink for Numbered<'_> {
    fn packet(&mut self, from: u32, packet: Packet<'_>) {
        let from = self.number(from);
        self.sink.packet(from, packet);
    }

    fn destination(&mut self, from: u32, head: &Head, len: usize) -> Option<Destination> {
        let from = self.processes[from as usize];
        self.sink.destination(from, head, len)
    }

    fn landed(&mut self, from: u32, head: &Head, len: usize) {
        let from = self.number(from);
        self.sink.landed(from, head, len);
    }
}

impl Transport for Worlds {
    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.own + self.routes.len() as u32
    }

    fn send(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        if to < self.own {
            return self.home().send(to, head, payload);
        }
        let Some((at, rank)) = self.route(to) else {
            return true;
        };
        let world = self.world(at);
        let sent = world.transport.send(rank, head, payload);
        if sent {
            world.wake(rank);
        }
        sent
    }

    fn send_fragment(
        &mut self,
        to: u32,
        head: Head,
        args: [u64; 2],
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        if to < self.own {
            return self.home().send_fragment(to, head, args, len, fill);
        }
        let Some((at, rank)) = self.route(to) else {
            fill(&mut vec![0; len]);
            return true;
        };
        let world = self.world(at);
        let sent = world.transport.send_fragment(rank, head, args, len, fill);
        if sent {
            world.wake(rank);
        }
        sent
    }

    fn fragment(&self, to: u32, remaining: u64) -> usize {
        if to < self.own {
            let home = self.home.as_ref().expect("it is around one");
            return home.fragment(to, remaining);
        }
        let world = |at: usize| self.worlds.get(at).and_then(Option::as_ref);
        match self
            .route(to)
            .and_then(|(at, rank)| Some((world(at)?, rank)))
        {
            Some((world, rank)) => world.transport.fragment(rank, remaining),
            None => remaining.min(WHOLE as u64) as usize,
        }
    }

    fn is_meeting(&self, to: u32) -> bool {
        self.asks(to, |transport, rank| transport.is_meeting(rank))
    }

    fn has_queued(&self) -> bool {
        let transports = self.worlds.iter().flatten().map(|world| &world.transport);
        self.home.iter().chain(transports).any(|t| t.has_queued())
    }

    fn is_queued(&self, to: u32) -> bool {
        self.asks(to, |transport, rank| transport.is_queued(rank))
    }

    fn is_flushed(&self) -> bool {
        let transports = self.worlds.iter().flatten().map(|world| &world.transport);
        self.home.iter().chain(transports).all(|t| t.is_flushed())
    }

    fn poll(&mut self, sink: &mut dyn Sink, spins: u32) -> bool {
        let others = self.worlds.iter().any(Option::is_some);
        let spins = if others { 1 } else { spins };
        let mut any = self.home().poll(sink, spins);
        for world in self.worlds.iter_mut().flatten() {
            let mut sink = Numbered {
                sink,
                processes: &world.processes,
                senders: Vec::new(),
            };
            any |= world.transport.poll(&mut sink, 1);
            for rank in sink.senders {
                (world.wakes[rank as usize])();
            }
        }
        any
    }

    fn offer(&mut self, to: u32, from: &Mem, offset: i64, len: u64) -> Option<(Ticket, [u64; 3])> {
        if to < self.own {
            return self.home().offer(to, from, offset, len);
        }
        let (at, rank) = self.route(to)?;
        let (ticket, words) = self.world(at).transport.offer(rank, from, offset, len)?;
        Some((self.enter(at, ticket, rank), words))
    }

    fn accept(
        &mut self,
        from: u32,
        words: [u64; 3],
        into: &Mem,
        offset: i64,
        len: u64,
    ) -> Option<Ticket> {
        if from < self.own {
            return self.home().accept(from, words, into, offset, len);
        }
        let (at, rank) = self.route(from)?;
        let world = self.world(at);
        let ticket = world.transport.accept(rank, words, into, offset, len)?;
        world.wake(rank);
        Some(self.enter(at, ticket, rank))
    }

    fn advance(&mut self, ticket: Ticket) -> Advance {
        let Some(copy) = ticket.0.checked_sub(FOREIGN) else {
            return self.home().advance(ticket);
        };
        let Some((at, inner, rank)) = self.copies[copy as usize] else {
            return Advance::Done;
        };
        let Some(world) = self.worlds[at].as_mut() else {
            self.copies[copy as usize] = None;
            return Advance::Done;
        };
        let step = world.transport.advance(inner);
        if step != Advance::Pending(false) {
            world.wake(rank);
        }
        if !matches!(step, Advance::Pending(_)) {
            self.copies[copy as usize] = None;
        }
        step
    }

    fn revoke(&mut self, ticket: Ticket) -> bool {
        let Some(copy) = ticket.0.checked_sub(FOREIGN) else {
            return self.home().revoke(ticket);
        };
        let Some((at, inner, _)) = self.copies[copy as usize] else {
            return false;
        };
        let world = self.worlds[at].as_mut();
        world.is_some_and(|world| world.transport.revoke(inner))
    }

    fn withdraw(&mut self, ticket: Ticket) {
        let Some(copy) = ticket.0.checked_sub(FOREIGN) else {
            return self.home().withdraw(ticket);
        };
        if let Some((at, inner, _)) = self.copies[copy as usize].take()
            && let Some(world) = self.worlds[at].as_mut()
        {
            world.transport.withdraw(inner);
        }
    }

    fn alloc_shared(&mut self, bytes: u64) -> Option<usize> {
        self.home().alloc_shared(bytes)
    }

    fn free_shared(&mut self, address: usize) -> bool {
        self.home().free_shared(address)
    }

    fn join(&mut self, world: World) -> Result<(), World> {
        let at = self.worlds.iter().position(Option::is_none);
        let at = at.unwrap_or(self.worlds.len());
        for (rank, &process) in (0..).zip(&world.processes) {
            let Some(foreign) = process.checked_sub(self.own) else {
                continue;
            };
            let foreign = foreign as usize;
            if foreign >= self.routes.len() {
                self.routes.resize(foreign + 1, None);
            }
            if world.routed[rank as usize] {
                self.routes[foreign] = Some((at, rank));
            }
        }
        if at == self.worlds.len() {
            self.worlds.push(None);
        }
        self.worlds[at] = Some(world);
        Ok(())
    }

    fn forget(&mut self, process: u32) {
        if process < self.own {
            self.home().forget(process);
        } else if let Some((at, rank)) = self.route(process) {
            self.world(at).transport.forget(rank);
        }
    }

    fn part(&mut self, key: u64) {
        for at in 0..self.worlds.len() {
            if self.worlds[at].as_ref().is_some_and(|w| w.key == key) {
                self.worlds[at] = None;
                for route in &mut self.routes {
                    route.take_if(|(world, _)| *world == at);
                }
                for copy in &mut self.copies {
                    copy.take_if(|(world, ..)| *world == at);
                }
            }
        }
    }
}

impl Worlds {
    fn enter(&mut self, at: usize, ticket: Ticket, rank: u32) -> Ticket {
        let entry = Some((at, ticket, rank));
        let place = match self.copies.iter().position(Option::is_none) {
            Some(place) => {
                self.copies[place] = entry;
                place
            }
            None => {
                self.copies.push(entry);
                self.copies.len() - 1
            }
        };
        Ticket(FOREIGN + place as u32)
    }
}
