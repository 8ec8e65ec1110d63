//! The endpoint.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{NonNull, null, null_mut};

use crate::library::{Found, Functions, OpenError, Wanted, provider_of};
use crate::memory::{READS, Region};
use crate::raw;

/// Completions that are taken at once.
const AT_ONCE: usize = 32;
/// Entries of the queue of completions: all operations that may be under way.
const COMPLETIONS: usize = 2048;
/// Longest address of an endpoint in bytes.
const ADDRESS: usize = 256;
/// Longest piece of memory that is read at once. Messages of 1 MiB between two hosts that are
/// namespaces of a machine with two cores, provider `tcp`: 3.8 GB/s with pieces of 64 KiB, 5.5 with
/// 128 KiB, 2.0 with 256 KiB, 2.3 with 1 MiB; copied into buffers 2.7.
const LONGEST_READ: usize = 128 << 10;
/// The system's number for an endpoint that is closed.
const ESHUTDOWN: i32 = 108;

/// The number by which the library knows another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(u64);

impl Peer {
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// An operation that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The buffer was sent and may be used again.
    Sent(usize),
    /// It could not be sent: the system's number for why.
    NotSent(usize, i32),
    /// A message is in the buffer, of this number of bytes.
    Received(usize, usize),
    /// Nothing was received into the buffer, which may be used again.
    NotReceived(usize),
    /// A read into the region has come to its end, with the system's number for why nothing was
    /// read, or 0.
    Read(usize, i32),
}

/// Who may use the memory of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Ours,
    Sending,
    Receiving,
}

/// What the library keeps of an operation, and behind it which buffer that is of, or which region.
#[repr(C)]
pub(crate) struct Context {
    library: [*mut c_void; 8],
    buffer: usize,
}

impl Context {
    pub(crate) fn new(buffer: usize) -> Context {
        Context {
            library: [null_mut(); 8],
            buffer,
        }
    }
}

struct Buffer {
    memory: NonNull<u8>,
    is_used: Use,
    context: Box<Context>,
    region: Option<NonNull<raw::Mr>>,
}

/// An endpoint with its buffers, all of which have the same length.
// Fields: the library's objects, in the order in which they are closed, and what the provider asks
// for.
pub struct Endpoint {
    pub(crate) endpoint: NonNull<raw::Ep>,
    completions: NonNull<raw::Cq>,
    addresses: NonNull<raw::Av>,
    pub(crate) domain: NonNull<raw::Domain>,
    fabric: NonNull<raw::Fabric>,
    provider: String,
    address: Vec<u8>,
    buffers: Vec<Buffer>,
    bytes: usize,
    most_sends: usize,
    pub(crate) registers: bool,
    pub(crate) binds_regions: bool,
    /// Others name memory of this process by its address here.
    pub(crate) virtual_addresses: bool,
    /// 0 where the provider does not read.
    pub(crate) longest_read: usize,
    pub(crate) regions: Vec<Option<Region>>,
    pub(crate) last_key: u32,
    is_open: bool,
    descriptor: Option<RawFd>,
}

// SAFETY: the library's objects may be used by any thread, one at a time, which `&mut` ensures.
unsafe impl Send for Endpoint {}

/// The objects of an endpoint that is being made; closed in this order when something fails.
#[derive(Default)]
struct Parts(Vec<*mut raw::Fid>);

impl Drop for Parts {
    fn drop(&mut self) {
        for &fid in self.0.iter().rev() {
            close(fid);
        }
    }
}

/// Closes an object. Returns whether the library has done so.
pub(crate) fn close(fid: *mut raw::Fid) -> bool {
    // SAFETY: an open object of the library's, which is not used afterwards.
    unsafe { ((*(*fid).ops).close)(fid) == 0 }
}

impl Endpoint {
    /// Opens an endpoint whose messages have up to `bytes` bytes.
    ///
    /// # Errors
    /// When there is no library or provider, or the provider refuses.
    pub fn open(wanted: &Wanted<'_>, bytes: usize) -> Result<Endpoint, OpenError> {
        let functions = Functions::load(wanted.library)?;
        let found = functions.find(wanted)?;
        Endpoint::of(&functions, &found, bytes)
    }

    fn of(functions: &Functions, found: &Found, bytes: usize) -> Result<Endpoint, OpenError> {
        let info = found.pointer();
        // SAFETY: the library's information, with all of its parts.
        let (provider, mr_mode, av_type, most_sends, longest, reads) = unsafe {
            let domain = &*(*info).domain_attr;
            let sends = (*(*info).tx_attr).size;
            let longest = (*(*info).ep_attr).max_msg_size;
            let provider = provider_of(&*info);
            let caps = (*info).caps;
            let reads = caps & raw::READING == raw::READING && domain.mr_key_size <= 8;
            (
                provider,
                domain.mr_mode,
                domain.av_type,
                sends,
                longest,
                reads,
            )
        };
        let failed = |call: &'static str, code: isize| OpenError::Failed {
            provider: provider.clone(),
            call,
            error: io::Error::from_raw_os_error(-code as i32),
        };
        let done = |call: &'static str, code: c_int| match code {
            0 => Ok(()),
            code => Err(failed(call, code as isize)),
        };
        if longest < bytes {
            // EMSGSIZE
            return Err(failed("fi_endpoint", -90));
        }
        let mut parts = Parts::default();
        // SAFETY: each call gets objects that the calls before it have opened, and structures that
        // are valid for it; what it opens is closed by `parts` where a later one fails.
        unsafe {
            let mut fabric: *mut raw::Fabric = null_mut();
            let code = (functions.open_fabric)((*info).fabric_attr, &raw mut fabric, null_mut());
            done("fi_fabric", code)?;
            parts.0.push(fabric.cast());
            let mut domain: *mut raw::Domain = null_mut();
            let code = ((*(*fabric).ops).domain)(fabric, info, &raw mut domain, null_mut());
            done("fi_domain", code)?;
            parts.0.push(domain.cast());
            let mut attributes = raw::AvAttr {
                kind: match av_type {
                    raw::AV_UNSPEC => raw::AV_TABLE,
                    kind => kind,
                },
                rx_ctx_bits: 0,
                count: 0,
                ep_per_node: 0,
                name: null(),
                map_addr: null_mut(),
                flags: 0,
            };
            let mut addresses: *mut raw::Av = null_mut();
            let open = (*(*domain).ops).av_open;
            let code = open(domain, &raw mut attributes, &raw mut addresses, null_mut());
            done("fi_av_open", code)?;
            parts.0.push(addresses.cast());
            let (opened, can_wait) = open_queue(domain);
            let completions = opened.map_err(|code| failed("fi_cq_open", code as isize))?;
            parts.0.push(completions.cast());
            let mut endpoint: *mut raw::Ep = null_mut();
            let code = ((*(*domain).ops).endpoint)(domain, info, &raw mut endpoint, null_mut());
            done("fi_endpoint", code)?;
            parts.0.push(endpoint.cast());
            let own: *mut raw::Fid = endpoint.cast();
            let bind = (*(*own).ops).bind;
            done("fi_ep_bind", bind(own, addresses.cast(), 0))?;
            let both = raw::SEND | raw::RECV;
            done("fi_ep_bind", bind(own, completions.cast(), both))?;
            let enabled = ((*(*own).ops).control)(own, raw::ENABLE, null_mut());
            done("fi_enable", enabled)?;
            let mut address = vec![0; ADDRESS];
            let mut length = address.len();
            let name = (*(*endpoint).cm).get_name;
            let code = name(own, address.as_mut_ptr().cast(), &raw mut length);
            done("fi_getname", code)?;
            address.truncate(length);
            let mut descriptor: c_int = -1;
            let queue: *mut raw::Fid = completions.cast();
            let asked = can_wait
                && ((*(*queue).ops).control)(queue, raw::GETWAIT, (&raw mut descriptor).cast())
                    == 0;
            parts.0.clear();
            let some = |pointer| NonNull::new(pointer).expect("the call has opened it");
            Ok(Endpoint {
                endpoint: some(endpoint),
                completions: NonNull::new(completions).expect("the call has opened it"),
                addresses: NonNull::new(addresses).expect("the call has opened it"),
                domain: NonNull::new(domain).expect("the call has opened it"),
                fabric: NonNull::new(fabric).expect("the call has opened it"),
                provider,
                address,
                buffers: Vec::new(),
                bytes,
                most_sends,
                registers: mr_mode & raw::MR_LOCAL != 0,
                binds_regions: mr_mode & raw::MR_ENDPOINT != 0,
                virtual_addresses: mr_mode & raw::MR_VIRT_ADDR != 0,
                longest_read: if reads { longest.min(LONGEST_READ) } else { 0 },
                regions: Vec::new(),
                last_key: 0,
                is_open: true,
                descriptor: (asked && descriptor >= 0).then_some(descriptor),
            })
        }
    }

    /// The provider's name.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// What others [insert](Self::insert) to reach this endpoint.
    #[must_use]
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// How many messages may be on their way at once.
    #[must_use]
    pub fn most_sends(&self) -> usize {
        self.most_sends
    }

    /// What becomes readable when there is something to [`poll`](Self::poll), as long as the
    /// endpoint is there and [`may_sleep`](Self::may_sleep) has said so; none where the provider
    /// cannot wake anybody.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the queue of completions keeps it open, and lives as long as `self`.
        self.descriptor
            .map(|number| unsafe { BorrowedFd::borrow_raw(number) })
    }

    /// Whether this process may wait for the [`descriptor`](Self::descriptor); otherwise it has to
    /// poll again.
    pub fn may_sleep(&mut self) -> bool {
        let mut queue: *mut raw::Fid = self.completions.as_ptr().cast();
        let fabric = self.fabric.as_ptr();
        // SAFETY: both are open, and the list has one entry.
        let code = unsafe { ((*(*fabric).ops).trywait)(fabric, &raw mut queue, 1) };
        self.descriptor.is_some() && code == 0
    }

    /// Makes another endpoint known, by its address.
    ///
    /// # Errors
    /// When the provider cannot use that address.
    pub fn insert(&mut self, address: &[u8]) -> io::Result<Peer> {
        let mut peer = raw::ADDR_UNSPEC;
        // The provider reads as many bytes as its addresses have.
        let mut padded = [0u8; ADDRESS];
        let used = address.len();
        if used != self.address.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        padded[..used].copy_from_slice(address);
        let addresses = self.addresses.as_ptr();
        // SAFETY: an open table, and one address as long as this endpoint's own.
        let inserted = unsafe {
            let insert = (*(*addresses).ops).insert;
            insert(
                addresses,
                padded.as_ptr().cast(),
                1,
                &raw mut peer,
                0,
                null_mut(),
            )
        };
        if inserted == 1 && peer != raw::ADDR_UNSPEC {
            return Ok(Peer(peer));
        }
        Err(match inserted {
            code if code < 0 => io::Error::from_raw_os_error(-code),
            _ => io::ErrorKind::InvalidInput.into(),
        })
    }

    /// Makes another endpoint unknown.
    pub fn remove(&mut self, peer: Peer) {
        let mut peer = peer.0;
        let addresses = self.addresses.as_ptr();
        // SAFETY: an open table, and one number of it.
        let _ = unsafe { ((*(*addresses).ops).remove)(addresses, &raw mut peer, 1, 0) };
    }

    /// Makes one more buffer. Returns its number.
    ///
    /// # Errors
    /// When there is no memory, or the provider cannot register it.
    pub fn add_buffer(&mut self) -> io::Result<usize> {
        let buffer = self.buffers.len();
        let memory = vec![0u8; self.bytes].into_boxed_slice();
        let memory = NonNull::from(Box::leak(memory)).cast::<u8>();
        let mut region = null_mut();
        if self.registers {
            let domain = self.domain.as_ptr();
            let access = raw::SEND | raw::RECV;
            // SAFETY: an open domain, and memory that is kept until the region is closed.
            let code = unsafe {
                let register = (*(*domain).mr).reg;
                register(
                    domain.cast(),
                    memory.as_ptr().cast(),
                    self.bytes,
                    access,
                    0,
                    buffer as u64,
                    0,
                    &raw mut region,
                    null_mut(),
                )
            };
            let bound = code == 0 && (!self.binds_regions || self.bind(region));
            if !bound {
                // SAFETY: made above, and nobody has it.
                drop(unsafe { free(memory, self.bytes) });
                return Err(io::Error::from_raw_os_error(if code == 0 {
                    22
                } else {
                    -code
                }));
            }
        }
        self.buffers.push(Buffer {
            memory,
            is_used: Use::Ours,
            context: Box::new(Context::new(buffer)),
            region: NonNull::new(region),
        });
        Ok(buffer)
    }

    /// Binds a region to the endpoint, which some providers ask for.
    pub(crate) fn bind(&self, region: *mut raw::Mr) -> bool {
        let fid: *mut raw::Fid = region.cast();
        // SAFETY: both are open.
        unsafe {
            ((*(*fid).ops).bind)(fid, self.endpoint.as_ptr().cast(), 0) == 0
                && ((*(*fid).ops).control)(fid, raw::ENABLE, null_mut()) == 0
        }
    }

    /// The memory of a buffer that is not under way.
    ///
    /// # Panics
    /// When it is.
    #[must_use]
    pub fn buffer(&mut self, buffer: usize) -> &mut [u8] {
        let of = &self.buffers[buffer];
        assert!(of.is_used == Use::Ours, "the library has buffer {buffer}");
        // SAFETY: the buffer is ours as long as nothing is posted with it, for which `self` is
        // needed; it has that many bytes.
        unsafe { std::slice::from_raw_parts_mut(of.memory.as_ptr(), self.bytes) }
    }

    /// Sends the first `len` bytes of a buffer. Returns false where there is no room now.
    ///
    /// # Errors
    /// When the peer cannot be reached.
    ///
    /// # Panics
    /// When the buffer is under way or shorter.
    pub fn send(&mut self, buffer: usize, len: usize, to: Peer) -> io::Result<bool> {
        assert!(len <= self.bytes, "{len} bytes");
        self.check_open()?;
        let of = &mut self.buffers[buffer];
        assert!(of.is_used == Use::Ours, "the library has buffer {buffer}");
        let endpoint = self.endpoint.as_ptr();
        // SAFETY: the memory and the context stay as they are until the operation is over.
        let code = unsafe {
            let send = (*(*endpoint).msg).send;
            let (memory, context) = (of.memory.as_ptr().cast(), &raw mut *of.context);
            let descriptor = of.region.map_or(null_mut(), |r| r.as_ref().descriptor);
            send(endpoint, memory, len, descriptor, to.0, context.cast())
        };
        let began = began(code)?;
        if began {
            of.is_used = Use::Sending;
        }
        Ok(began)
    }

    /// Has the next message received into a buffer. Returns false where there is no room now.
    ///
    /// # Errors
    /// When the provider refuses.
    ///
    /// # Panics
    /// When the buffer is under way.
    pub fn receive(&mut self, buffer: usize) -> io::Result<bool> {
        self.check_open()?;
        let of = &mut self.buffers[buffer];
        assert!(of.is_used == Use::Ours, "the library has buffer {buffer}");
        let endpoint = self.endpoint.as_ptr();
        // SAFETY: as for sending.
        let code = unsafe {
            let receive = (*(*endpoint).msg).recv;
            let (memory, context) = (of.memory.as_ptr().cast(), &raw mut *of.context);
            let descriptor = of.region.map_or(null_mut(), |r| r.as_ref().descriptor);
            let anybody = raw::ADDR_UNSPEC;
            receive(
                endpoint,
                memory,
                self.bytes,
                descriptor,
                anybody,
                context.cast(),
            )
        };
        let began = began(code)?;
        if began {
            of.is_used = Use::Receiving;
        }
        Ok(began)
    }

    /// Closes the endpoint, after which the library writes into no memory of this process. Returns
    /// false when the library refuses. Nobody can be reached any more then.
    pub fn shut(&mut self) -> bool {
        if self.is_open && close(self.endpoint.as_ptr().cast()) {
            self.is_open = false;
            for region in self.regions.iter_mut().flatten() {
                region.end_all();
            }
        }
        !self.is_open
    }

    /// # Errors
    /// When the endpoint is closed.
    pub(crate) fn check_open(&self) -> io::Result<()> {
        match self.is_open {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(ESHUTDOWN)),
        }
    }

    /// Lets the provider go on, and adds what is over to `done`, a bounded number of operations.
    ///
    /// # Errors
    /// When the provider fails.
    pub fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        self.check_open()?;
        let mut entries = [const { MaybeUninit::<raw::CqEntry>::uninit() }; AT_ONCE];
        let queue = self.completions.as_ptr();
        // SAFETY: an open queue, and room for as many entries of its format.
        let read = unsafe {
            let read = (*(*queue).ops).read;
            read(queue, entries.as_mut_ptr().cast(), AT_ONCE)
        };
        if read > 0 {
            for entry in &entries[..(read as usize).min(AT_ONCE)] {
                // SAFETY: the call has filled it.
                let entry = unsafe { entry.assume_init() };
                self.end(entry.context, entry.len, 0, done);
            }
            return Ok(());
        }
        match -read as c_int {
            0 | raw::EAGAIN => Ok(()),
            raw::EAVAIL => {
                let mut error = MaybeUninit::<raw::CqError>::zeroed();
                // SAFETY: an open queue, and room for an error, for which zeros are values, too.
                let (code, error) = unsafe {
                    let read = (*(*queue).ops).read_error;
                    let code = read(queue, error.as_mut_ptr(), 0);
                    (code, error.assume_init())
                };
                if code > 0 {
                    let why = if error.error == 0 { 5 } else { error.error };
                    self.end(error.context, error.len, why, done);
                }
                Ok(())
            }
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// An operation is over, with that error or 0.
    fn end(&mut self, context: *mut c_void, len: usize, error: i32, done: &mut Vec<Done>) {
        // Some errors are of no operation.
        let Some(context) = NonNull::new(context.cast::<Context>()) else {
            return;
        };
        // SAFETY: the library returns an operation's context, which its buffer or region keeps.
        let buffer = unsafe { context.as_ref().buffer };
        if buffer & READS != 0 {
            let number = buffer & !READS;
            let region = self.regions.get_mut(number).and_then(Option::as_mut);
            if region.is_some_and(|region| region.end(context)) {
                done.push(Done::Read(number, error));
            }
            return;
        }
        let Some(of) = self.buffers.get_mut(buffer) else {
            return;
        };
        let was = std::mem::replace(&mut of.is_used, Use::Ours);
        done.push(match (was, error) {
            (Use::Sending, 0) => Done::Sent(buffer),
            (Use::Sending, error) => Done::NotSent(buffer, error),
            (Use::Receiving, 0) => Done::Received(buffer, len.min(self.bytes)),
            (Use::Receiving, _) => Done::NotReceived(buffer),
            (Use::Ours, _) => return,
        });
    }
}

/// Opens a queue of completions. Says whether a process that sleeps is woken by it; some providers
/// cannot.
///
/// # Safety
/// The domain is open.
unsafe fn open_queue(domain: *mut raw::Domain) -> (Result<*mut raw::Cq, c_int>, bool) {
    let mut completions: *mut raw::Cq = null_mut();
    let mut open = |wait_object| {
        let mut attributes = raw::CqAttr {
            size: COMPLETIONS,
            flags: 0,
            format: raw::CQ_FORMAT_MSG,
            wait_object,
            signaling_vector: 0,
            wait_condition: 0,
            wait_set: null_mut(),
        };
        // SAFETY: an open domain by the caller's promise, and structures valid for the call.
        unsafe {
            let open = (*(*domain).ops).cq_open;
            open(
                domain,
                &raw mut attributes,
                &raw mut completions,
                null_mut(),
            )
        }
    };
    let can_wait = open(raw::WAIT_FD) == 0;
    let code = if can_wait { 0 } else { open(raw::WAIT_NONE) };
    let queue = if code == 0 {
        Ok(completions)
    } else {
        Err(code)
    };
    (queue, can_wait)
}

/// Whether an operation has begun, which it has not where there is no room for it.
pub(crate) fn began(code: isize) -> io::Result<bool> {
    match -code as c_int {
        0 => Ok(true),
        raw::EAGAIN => Ok(false),
        _ => Err(failed(code)),
    }
}

/// The error that a call has returned.
pub(crate) fn failed(code: isize) -> io::Error {
    io::Error::from_raw_os_error(-code as c_int)
}

/// The memory of a buffer, to be freed.
///
/// # Safety
/// It was made with that length, and nobody has it any more.
unsafe fn free(memory: NonNull<u8>, bytes: usize) -> Box<[u8]> {
    let memory = std::ptr::slice_from_raw_parts_mut(memory.as_ptr(), bytes);
    // SAFETY: by the caller's promise.
    unsafe { Box::from_raw(memory) }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Closed, an endpoint does nothing with its buffers any more. One that does not close keeps
        // them, and everything that it stands on.
        if !self.shut() {
            std::mem::take(&mut self.buffers)
                .into_iter()
                .for_each(std::mem::forget);
            std::mem::take(&mut self.regions)
                .into_iter()
                .for_each(std::mem::forget);
            return;
        }
        self.release_all();
        for buffer in std::mem::take(&mut self.buffers) {
            let is_free = buffer.region.is_none_or(|r| close(r.as_ptr().cast()));
            if is_free {
                // SAFETY: made by `add_buffer` with that length; the library has let go of it.
                drop(unsafe { free(buffer.memory, self.bytes) });
            }
        }
        close(self.completions.as_ptr().cast());
        close(self.addresses.as_ptr().cast());
        close(self.domain.as_ptr().cast());
        close(self.fabric.as_ptr().cast());
    }
}
