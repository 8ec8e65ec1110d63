//! The direct way: programs of this host read and write files past the kernel, through memory that
//! they have in common with the service.
//!
//! A program opens a file on the mount as any other, and the kernel checks whether it may. Who has
//! the descriptor may ask on it for an invitation, with which a process of the same user comes in
//! by one connection, for that open file and what it was opened for. The right ends when the last
//! descriptor of the open file is closed.
//!
//! What the kernel keeps of a file would be wrong after a write that it does not see:
//! - Names and attributes of a file with a direct way are kept for no time, as on a mount of
//!   several hosts.
//! - Data is in the page cache only if the file is mapped. Each read by which the kernel fills it
//!   ends the direct ways of the file: it waits for requests under way, and all later ones are
//!   refused, as long as the file is open. Such reads are the ones for which no process is named
//!   as the owner of locks.
//! - The size tells who maps a file, or reads it in other ways than one after the other, how much
//!   there is. Where somebody has a file open without a direct way, a program that has made it
//!   longer asks the kernel for the size, which it hears then; who opens it later hears it as well.
//!   So does a program that says of itself that it may map the file.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use margay_fs_storage::direct::wire::{
    Answer, INVITATION, Invitation, MOST, PLACES, REQUEST, Request, socket_name,
};
use margay_fs_stripes::Store;
use margay_sys_os::packets::{Hall, Packets, common_memory};
use margay_sys_os::sockets::fill_random;
use margay_sys_os::user::Mem;

use crate::clients::{Clients, Kind};
use crate::fuse::{AccessTimes, errno};
use crate::lock::lock;
use crate::near::Near;

/// How long a program may take to show its ticket, and to hear an answer.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

/// Connections at a time, and those of one user who is not the service's.
const MOST_LINES: usize = 1024;
const MOST_OF_USER: usize = 256;

/// Stack of a thread that serves a connection.
const STACK: usize = 512 << 10;

/// How long nobody is let in when there is no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// What an open file allows, as the lowest bits of its handle.
const READS: u64 = 1;
const WRITES: u64 = 2;
/// Its reads are not noted.
const IS_QUIET: u64 = 4;
const RIGHTS: u32 = 3;

/// Flags of an open file, of Linux.
const ACCESS: i32 = 3;
const NO_ACCESS_TIME: i32 = 0o1_000_000;

type Ticket = [u8; 16];

/// Whether a file may be read and written directly; locked for reading by each request.
type Gate = Arc<RwLock<bool>>;

/// A file that is open.
struct Opened {
    /// Open files of the kernel.
    count: u64,
    /// Guests among them.
    guests: u64,
    gate: Gate,
}

/// An open file with a direct way.
struct Guest {
    ino: u64,
    handle: u64,
    /// It changes while the gate is locked.
    is_over: AtomicBool,
    is_written: AtomicBool,
    gate: Gate,
    times: AccessTimes,
}

#[derive(Default)]
struct Table {
    files: HashMap<u64, Opened>,
    /// By handle, with the ticket that was not used yet.
    guests: HashMap<u64, (Arc<Guest>, Option<Ticket>)>,
    /// Handle and user.
    tickets: HashMap<Ticket, (u64, u32)>,
    /// Connections by user.
    lines: HashMap<u32, usize>,
}

/// All direct ways of a file system.
pub struct Direct {
    store: Arc<Store>,
    clients: Arc<Clients>,
    near: Arc<Near>,
    hall: [u8; 16],
    last: AtomicU64,
    /// Guests there are, so that nobody looks for one where there is none.
    guests: AtomicUsize,
    table: Mutex<Table>,
}

fn read(gate: &RwLock<bool>) -> RwLockReadGuard<'_, bool> {
    gate.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(gate: &RwLock<bool>) -> RwLockWriteGuard<'_, bool> {
    gate.write().unwrap_or_else(PoisonError::into_inner)
}

impl Direct {
    /// Listens for programs until the process ends.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin(
        store: &Arc<Store>,
        clients: &Arc<Clients>,
        near: &Arc<Near>,
    ) -> io::Result<Arc<Direct>> {
        let mut name = [0; 16];
        fill_random(&mut name)?;
        let hall = Hall::open(&socket_name(name))?;
        let direct = Arc::new(Direct {
            store: Arc::clone(store),
            clients: Arc::clone(clients),
            near: Arc::clone(near),
            hall: name,
            last: AtomicU64::new(0),
            guests: AtomicUsize::new(0),
            table: Mutex::default(),
        });
        let host = Arc::clone(&direct);
        std::thread::spawn(move || {
            loop {
                match hall.accept() {
                    Ok(line) => host.admit(line),
                    // Some are free when others have left.
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        });
        Ok(direct)
    }

    /// Notes that the kernel has opened a file with these flags; returns the handle.
    pub fn opened(&self, ino: u64, flags: i32) -> u64 {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        let rights = match flags & ACCESS {
            0 => READS,
            1 => WRITES,
            _ => READS | WRITES,
        };
        let quiet = if flags & NO_ACCESS_TIME == 0 {
            0
        } else {
            IS_QUIET
        };
        let mut table = lock(&self.table);
        let opened = table.files.entry(ino).or_insert_with(|| Opened {
            count: 0,
            guests: 0,
            gate: Arc::new(RwLock::new(true)),
        });
        opened.count += 1;
        number << RIGHTS | quiet | rights
    }

    /// Notes that the kernel has closed it, for good.
    pub fn closed(&self, ino: u64, handle: u64) {
        let guest = lock(&self.table).guests.get(&handle).cloned();
        if let Some((guest, _)) = &guest {
            // The kernel may forget the file from now on, and keep what it hears of it.
            let _gate = write(&guest.gate);
            guest.is_over.store(true, Ordering::SeqCst);
        }
        let mut table = lock(&self.table);
        if let Some((_, ticket)) = table.guests.remove(&handle) {
            self.guests.fetch_sub(1, Ordering::SeqCst);
            if let Some(unused) = ticket {
                table.tickets.remove(&unused);
            }
        }
        if let Some(opened) = table.files.get_mut(&ino) {
            opened.count = opened.count.saturating_sub(1);
            opened.guests -= u64::from(guest.is_some());
            if opened.count == 0 {
                table.files.remove(&ino);
            }
        }
    }

    /// Notes that the mount is over: nothing is open any more.
    pub fn close_all(&self) {
        let files: Vec<(u64, u64)> = {
            let table = lock(&self.table);
            let guests = table.guests.iter();
            guests
                .map(|(handle, (guest, _))| (guest.ino, *handle))
                .collect()
        };
        for (ino, handle) in files {
            self.closed(ino, handle);
        }
        lock(&self.table).files.clear();
    }

    /// Notes that the kernel is going to keep data of a file.
    pub fn cached(&self, ino: u64) {
        let gate = lock(&self.table)
            .files
            .get(&ino)
            .map(|o| Arc::clone(&o.gate));
        if let Some(gate) = gate.filter(|gate| *read(gate)) {
            *write(&gate) = false;
        }
    }

    /// Whether a file may be written past the kernel.
    pub fn is_used(&self, ino: u64) -> bool {
        self.guests.load(Ordering::SeqCst) > 0
            && lock(&self.table)
                .files
                .get(&ino)
                .is_some_and(|o| o.guests > 0)
    }

    /// Whether an open file was written directly since this was asked last.
    pub fn take_written(&self, handle: u64) -> bool {
        self.guests.load(Ordering::SeqCst) > 0
            && lock(&self.table)
                .guests
                .get(&handle)
                .is_some_and(|(guest, _)| guest.is_written.swap(false, Ordering::SeqCst))
    }

    /// Whether somebody has a file open without a direct way.
    fn is_shared(&self, ino: u64) -> bool {
        let table = lock(&self.table);
        table.files.get(&ino).is_some_and(|o| o.count > o.guests)
    }

    /// Lets a user in who has a file open. The kernel must forget the attributes of the file before
    /// it is said.
    pub fn invite(
        &self,
        ino: u64,
        handle: u64,
        user: u32,
        times: AccessTimes,
    ) -> Option<[u8; INVITATION]> {
        let mut ticket = [0; 16];
        fill_random(&mut ticket).ok()?;
        let mut table = lock(&self.table);
        let table = &mut *table;
        let opened = table.files.get_mut(&ino)?;
        // Who waits for it ends the direct way.
        if handle == 0 || !opened.gate.try_read().is_ok_and(|is_open| *is_open) {
            return None;
        }
        let guest = table.guests.entry(handle).or_insert_with(|| {
            opened.guests += 1;
            self.guests.fetch_add(1, Ordering::SeqCst);
            let guest = Guest {
                ino,
                handle,
                is_over: AtomicBool::new(false),
                is_written: AtomicBool::new(false),
                gate: Arc::clone(&opened.gate),
                times,
            };
            (Arc::new(guest), None)
        });
        if let Some(unused) = guest.1.replace(ticket) {
            table.tickets.remove(&unused);
        }
        table.tickets.insert(ticket, (handle, user));
        let invitation = Invitation {
            user: margay_sys_os::port::user(),
            hall: self.hall,
            ticket,
        };
        Some(invitation.to_bytes())
    }

    /// Serves a connection in a thread of its own.
    fn admit(self: &Arc<Direct>, line: Packets) {
        let Ok((user, process)) = line.peer() else {
            return;
        };
        let is_own = user == margay_sys_os::port::user();
        {
            let lines = &mut lock(&self.table).lines;
            let of_user = lines.get(&user).copied().unwrap_or(0);
            let all: usize = lines.values().sum();
            if all >= MOST_LINES || (!is_own && of_user >= MOST_OF_USER) {
                return;
            }
            lines.insert(user, of_user + 1);
        }
        let host = Arc::clone(self);
        let thread = std::thread::Builder::new().stack_size(STACK);
        let spawned = thread.spawn(move || {
            // A connection that fails is over, which the program notices.
            let _ = host.attend(&line, user, process);
            host.left(user);
        });
        if spawned.is_err() {
            self.left(user);
        }
    }

    fn left(&self, user: u32) {
        let lines = &mut lock(&self.table).lines;
        if let Some(count) = lines.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                lines.remove(&user);
            }
        }
    }

    fn attend(&self, line: &Packets, user: u32, process: u32) -> io::Result<()> {
        line.wait_for(Some(HEARD_WITHIN), Some(HEARD_WITHIN))?;
        let mut ticket = [0; 16];
        let len = line.receive(&mut ticket)?;
        let redeemed = (len == ticket.len()).then(|| self.redeem(&ticket, user));
        let Some(guest) = redeemed.flatten() else {
            return Ok(());
        };
        let (file, memory) = common_memory(PLACES * MOST)?;
        line.send_descriptor(file.as_fd())?;
        drop(file);
        line.wait_for(None, Some(HEARD_WITHIN))?;
        let mut served = Served {
            direct: self,
            guest: &guest,
            user,
            process,
            memory,
            is_short: false,
            // Who is somebody else could change bytes between their checksum and the disk.
            own: (user != margay_sys_os::port::user()).then(Vec::new),
        };
        let mut bytes = [0; REQUEST];
        while line.receive(&mut bytes)? == REQUEST {
            let request = Request::from_bytes(&bytes);
            let answer = request.map_or(Answer::Refused, |request| served.serve(request));
            line.send(&answer.to_bytes())?;
        }
        Ok(())
    }

    fn redeem(&self, ticket: &Ticket, user: u32) -> Option<Arc<Guest>> {
        let mut table = lock(&self.table);
        let (handle, _) = *table.tickets.get(ticket).filter(|known| known.1 == user)?;
        table.tickets.remove(ticket);
        let (guest, unused) = table.guests.get_mut(&handle)?;
        *unused = None;
        Some(Arc::clone(guest))
    }
}

/// What became of a request.
struct Done {
    len: usize,
    /// Of the file, as far as it was known before.
    has_grown: bool,
}

/// A connection that is served.
struct Served<'a> {
    direct: &'a Direct,
    guest: &'a Guest,
    user: u32,
    process: u32,
    memory: Mem,
    /// Whether the last write was not done as a whole.
    is_short: bool,
    /// Where the bytes of another user are meanwhile.
    own: Option<Vec<u8>>,
}

impl Served<'_> {
    fn serve(&mut self, request: Request) -> Answer {
        let Request {
            writes,
            thread,
            len,
            ..
        } = request;
        let right = if writes { WRITES } else { READS };
        if self.guest.handle & right == 0 {
            return Answer::Refused;
        }
        let kind = match writes {
            true => Kind::Write(len as usize),
            false => Kind::Read(len as usize),
        };
        self.direct.near.serves(thread, kind.is_small());
        self.direct
            .clients
            .count(None, self.user, self.process, kind);
        let is_open = read(&self.guest.gate);
        if !*is_open || self.guest.is_over.load(Ordering::SeqCst) {
            return Answer::Refused;
        }
        let done = if writes && request.follows && self.is_short {
            // It was on its way when the request before it could not be done as a whole.
            return Answer::Done(0);
        } else if writes {
            let done = self.write(request);
            self.is_short = !matches!(&done, Ok(done) if done.len == len as usize);
            done
        } else {
            self.read(request)
        };
        match done {
            Ok(Done { len, has_grown })
                if has_grown && (request.maps || self.direct.is_shared(self.guest.ino)) =>
            {
                Answer::Grown(len as u32)
            }
            Ok(Done { len, .. }) => Answer::Done(len as u32),
            Err(fault) => Answer::Failed(errno(fault).code()),
        }
    }

    fn read(&mut self, request: Request) -> margay_fs_stripes::Result<Done> {
        let (at, len) = (i64::from(request.place) * MOST as i64, request.len as usize);
        let (store, ino) = (&self.direct.store, self.guest.ino);
        let got = match &mut self.own {
            None => self
                .memory
                .with_bytes_mut(at, len, |bytes| store.read(ino, request.offset, bytes))?,
            Some(own) => {
                own.resize(len.max(own.len()), 0);
                let got = store.read(ino, request.offset, &mut own[..len])?;
                self.memory.write(at, &own[..got]);
                got
            }
        };
        let is_noted = self.guest.handle & IS_QUIET == 0 && got > 0;
        if is_noted && self.guest.times != AccessTimes::Never {
            store.accessed(ino, self.guest.times == AccessTimes::Always);
        }
        Ok(Done {
            len: got,
            has_grown: false,
        })
    }

    fn write(&mut self, request: Request) -> margay_fs_stripes::Result<Done> {
        let (at, len) = (i64::from(request.place) * MOST as i64, request.len as usize);
        let (store, ino) = (&self.direct.store, self.guest.ino);
        let size = store.getattr(ino)?.attr.size;
        self.guest.is_written.store(true, Ordering::SeqCst);
        let len = match &mut self.own {
            None => self
                .memory
                .with_bytes(at, len, |bytes| store.write(ino, request.offset, bytes))?,
            Some(own) => {
                own.resize(len.max(own.len()), 0);
                self.memory.read(at, &mut own[..len]);
                store.write(ino, request.offset, &own[..len])?
            }
        };
        // As the kernel asks for it where who writes is not root.
        if self.user != 0 {
            store.kill_ids(ino)?;
        }
        Ok(Done {
            len,
            has_grown: request.offset + len as u64 > size,
        })
    }
}
