//! Memory of the program's that the library reads into, or that other endpoints read.
//!
//! A region holds its memory's claim until it is [released](Endpoint::release), which it can be
//! only when nothing is read into it any more. So the library never has memory that its owner has
//! taken back, whatever becomes of the other side.

use std::io;
use std::ptr::{NonNull, null_mut};

use margay_sys_os::user::Mem;

use crate::endpoint::{Context, Endpoint, Peer, began, close, failed};
use crate::raw;

/// Set in a context's number for one that reads, whose other bits are the region's.
pub(crate) const READS: usize = 1 << (usize::BITS - 1);
/// Reads into one region at once.
const AT_ONCE: usize = 4;
/// The least key of a region: those of the endpoint's own buffers are below.
const FIRST_KEY: u32 = 1 << 20;

/// How others read memory that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The region's number at this endpoint.
    pub region: usize,
    /// What it is called by those who read.
    pub key: u64,
    /// Where its first byte is, for them.
    pub address: u64,
}

/// Memory of the program's.
pub(crate) struct Region {
    mem: Mem,
    offset: i64,
    len: usize,
    registered: Option<NonNull<raw::Mr>>,
    /// A context for each read that may be under way, and whether it is.
    contexts: Vec<(Box<Context>, bool)>,
}

impl Region {
    fn is_read_into(&self) -> bool {
        self.contexts.iter().any(|(_, is_used)| *is_used)
    }

    /// All reads are over.
    pub(crate) fn end_all(&mut self) {
        for (_, is_used) in &mut self.contexts {
            *is_used = false;
        }
    }

    /// A read is over. Returns false for one that is none of its.
    pub(crate) fn end(&mut self, context: NonNull<Context>) -> bool {
        let mut all = self.contexts.iter_mut();
        let own = all.find(|(own, _)| std::ptr::eq(&raw const **own, context.as_ptr()));
        own.is_some_and(|(_, is_used)| std::mem::take(is_used))
    }
}

impl Endpoint {
    /// Whether memory can be offered and read; not with all providers.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.longest_read > 0
    }

    /// Lets others read `len` bytes at `offset` of `mem`, until they are
    /// [released](Self::release).
    ///
    /// # Errors
    /// When the provider cannot register that memory, or no memory at all.
    ///
    /// # Panics
    /// When the memory does not cover these bytes.
    pub fn offer(&mut self, mem: &Mem, offset: i64, len: usize) -> io::Result<Offered> {
        if !self.reads() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let region = self.register(mem, offset, len, raw::REMOTE_READ)?;
        let Some(Region {
            registered: Some(registered),
            ..
        }) = &self.regions[region]
        else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // SAFETY: an open region.
        let key = unsafe { registered.as_ref().key };
        let address = match self.virtual_addresses {
            true => mem.address().wrapping_add_signed(offset as isize) as u64,
            false => 0,
        };
        if key == raw::NO_KEY {
            self.release(region);
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Offered {
            region,
            key,
            address,
        })
    }

    /// Makes `len` bytes at `offset` of `mem` a region to [read](Self::read) into. Returns its
    /// number.
    ///
    /// # Errors
    /// When the provider cannot register that memory.
    ///
    /// # Panics
    /// When the memory does not cover these bytes.
    pub fn prepare(&mut self, mem: &Mem, offset: i64, len: usize) -> io::Result<usize> {
        if self.registers {
            return self.register(mem, offset, len, raw::READ);
        }
        assert!(mem.covers(offset, len), "{len} bytes at {offset}");
        Ok(self.enter(mem, offset, len, None))
    }

    fn enter(
        &mut self,
        mem: &Mem,
        offset: i64,
        len: usize,
        registered: Option<NonNull<raw::Mr>>,
    ) -> usize {
        let region = Region {
            mem: mem.clone(),
            offset,
            len,
            registered,
            contexts: Vec::new(),
        };
        let at = self.regions.iter().position(Option::is_none);
        let at = at.unwrap_or_else(|| {
            self.regions.push(None);
            self.regions.len() - 1
        });
        self.regions[at] = Some(region);
        at
    }

    fn register(&mut self, mem: &Mem, offset: i64, len: usize, access: u64) -> io::Result<usize> {
        assert!(mem.covers(offset, len), "{len} bytes at {offset}");
        self.last_key = self.last_key.wrapping_add(1).max(FIRST_KEY);
        let mut registered = null_mut();
        let domain = self.domain.as_ptr();
        // SAFETY: an open domain, and memory that the region's claim keeps until it is closed.
        let code = unsafe {
            let register = (*(*domain).mr).reg;
            register(
                domain.cast(),
                mem.at(offset, len).cast(),
                len,
                access,
                0,
                self.last_key.into(),
                0,
                &raw mut registered,
                null_mut(),
            )
        };
        if code != 0 {
            return Err(failed(code as isize));
        }
        let region = self.enter(mem, offset, len, NonNull::new(registered));
        if self.binds_regions && !self.bind(registered) {
            self.release(region);
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(region)
    }

    /// Reads up to `len` bytes, from `at` on in a region, out of memory that `from` has offered:
    /// `key` and `address` are of the first of them. Returns how many the read that has begun is
    /// of; none where there is no room for one now.
    ///
    /// # Errors
    /// When the peer cannot be reached.
    ///
    /// # Panics
    /// When the region does not cover these bytes.
    pub fn read(
        &mut self,
        (region, at, len): (usize, usize, usize),
        from: Peer,
        (key, address): (u64, u64),
    ) -> io::Result<Option<usize>> {
        self.check_open()?;
        let of = self.regions[region].as_mut().expect("a region");
        assert!(
            at.checked_add(len).is_some_and(|end| end <= of.len),
            "{len} bytes from {at} of {}",
            of.len
        );
        let len = len.min(self.longest_read);
        let free = of.contexts.iter().position(|(_, is_used)| !is_used);
        let free = match free {
            Some(free) => free,
            None if of.contexts.len() < AT_ONCE => {
                let context = Context::new(READS | region);
                of.contexts.push((Box::new(context), false));
                of.contexts.len() - 1
            }
            None => return Ok(None),
        };
        let memory = of.mem.at(of.offset + at as i64, len);
        let (context, is_used) = &mut of.contexts[free];
        let endpoint = self.endpoint.as_ptr();
        // SAFETY: the region keeps the memory and the context until the operation is over.
        // Providers that can read have a table of functions for it.
        let code = unsafe {
            let read = (*(*endpoint).rma).read;
            let descriptor = of.registered.map_or(null_mut(), |r| r.as_ref().descriptor);
            let context: *mut Context = &raw mut **context;
            read(
                endpoint,
                memory.cast(),
                len,
                descriptor,
                from.number(),
                address,
                key,
                context.cast(),
            )
        };
        *is_used = began(code)?;
        Ok(is_used.then_some(len))
    }

    /// Whether something is read into a region.
    #[must_use]
    pub fn is_read_into(&self, region: usize) -> bool {
        let of = self.regions.get(region).and_then(Option::as_ref);
        of.is_some_and(Region::is_read_into)
    }

    /// Takes a region back: others cannot read it any more.
    ///
    /// # Panics
    /// When something is [read into](Self::is_read_into) it.
    pub fn release(&mut self, region: usize) {
        if let Some(of) = self.regions[region].take() {
            assert!(!of.is_read_into(), "region {region} is read into");
            if let Some(registered) = of.registered {
                close(registered.as_ptr().cast());
            }
        }
    }

    /// Closes all regions of an endpoint that is closed itself.
    pub(crate) fn release_all(&mut self) {
        for of in self.regions.drain(..).flatten() {
            if let Some(registered) = of.registered {
                close(registered.as_ptr().cast());
            }
        }
    }
}
