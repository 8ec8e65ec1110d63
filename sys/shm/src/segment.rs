//! The job's shared memory: one memfd that the launcher makes and every rank inherits.
//!
//! The layout is drawn byte by byte in `docs/segment.md`. The file is sparse: its length is
//! address space, memory is used when a page is touched, and a memfd has no size limit but memory
//! itself, so touching a page inside the length never ends in SIGBUS. Nothing has a name in the
//! file system, so nothing is left behind when everybody dies.
//!
//! | module | what |
//! | --- | --- |
//! | [`layout`](crate::layout) | where the parts begin, header and cells |
//! | [`mapping`] | the file and its mappings in this process |
//! | [`registry`](crate::registry) | who the ranks are and what they do |
//! | [`allocator`](crate::allocator) | memory for pipes, boards and windows |
//! | [`inbox`](crate::inbox) | where those leave messages for a rank that have no ring to it |
//!
//! Every shared field is an atomic; a corrupt or hostile peer can make values wrong, never
//! references invalid: each offset that is read from the segment is checked before use.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_core_registry::hosts;

use crate::layout::{Header, Layout, MAGIC, PAGE, RankCell, Sizes, VERSION};
use crate::mapping::{self, Mapping, SegmentError};

/// A mapping of the job's segment. Cheap to share by `Arc`; all access is through atomics or
/// through the typed parts ([`crate::ring`], [`crate::pool`], [`crate::board`]).
#[derive(Debug)]
pub struct Segment {
    pub(crate) fd: OwnedFd,
    /// The number of the file, which no other segment of the machine has at the same time.
    id: u64,
    pub(crate) layout: Layout,
    /// Everything but the arenas.
    main: Mapping,
    /// Each rank's arena, once it is mapped.
    pub(crate) arenas: Box<[OnceLock<Mapping>]>,
    /// Set for each rank whose sending side has been made here.
    pub(crate) senders: Box<[OnceLock<()>]>,
    /// Ranks may sleep on descriptors.
    pub(crate) has_doorbells: AtomicBool,
    /// The socket from which this process rings doorbells.
    pub(crate) ringer: OnceLock<Option<UnixDatagram>>,
}

impl Segment {
    /// Makes a new segment and maps it. The descriptor is close-on-exec; the launcher lets ranks
    /// inherit it by clearing that flag in the child. Under a limit of file size it is smaller.
    ///
    /// # Errors
    /// When the kernel refuses the memfd, its size or the mapping.
    pub fn create(sizes: Sizes) -> Result<Segment, SegmentError> {
        let sizes = mapping::file_limit().map_or(sizes, |limit| sizes.within(limit));
        let layout = Layout::new(sizes);
        let file = mapping::create(layout.total_bytes())?;
        let segment = Segment::over(file, layout)?;
        let header = segment.header();
        layout.write(header);
        let first_free = layout.first_free();
        header.heap_next.0.store(first_free, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Joins the segment behind an inherited descriptor (see
    /// [`ENV_SEGMENT`](crate::environment::ENV_SEGMENT)) or one opened through `/proc/<pid>/fd`.
    /// Takes the descriptor over.
    ///
    /// # Errors
    /// When it is not a segment of this version or cannot be mapped.
    pub fn join(fd: OwnedFd) -> Result<Segment, SegmentError> {
        let file = File::from(fd);
        let length = mapping::metadata(&file)?.len();
        if length < PAGE {
            return Err(SegmentError::Format(format!("it has {length} bytes")));
        }
        let probe = Mapping::new(&file, 0, PAGE as usize)?;
        // SAFETY: the mapping is a page long, page-aligned, and `Header` consists of atomics and
        // fits into a page (asserted at compile time).
        let header = unsafe { probe.base().cast::<Header>().as_ref() };
        let magic = header.magic.load(Ordering::Acquire);
        if magic != MAGIC {
            return Err(SegmentError::Format(other_magic(magic)));
        }
        let Some(layout) = Layout::read(header, length) else {
            return Err(SegmentError::Format(format!(
                "its header contradicts its length of {length} bytes"
            )));
        };
        let segment = Segment::over(file, layout)?;
        if segment.registry().has_note(0, hosts::KEY) {
            segment.use_doorbells();
        }
        Ok(segment)
    }

    fn over(file: File, layout: Layout) -> Result<Segment, SegmentError> {
        let id = mapping::metadata(&file)?.ino();
        let main = Mapping::new(&file, 0, layout.heap_end as usize)?;
        Ok(Segment {
            fd: file.into(),
            id,
            layout,
            main,
            arenas: (0..layout.ranks).map(|_| OnceLock::new()).collect(),
            senders: (0..layout.ranks).map(|_| OnceLock::new()).collect(),
            has_doorbells: AtomicBool::new(false),
            ringer: OnceLock::new(),
        })
    }

    /// Joins by the number of an inherited descriptor; marks it close-on-exec again so that the
    /// rank's own children do not hold the job's memory.
    ///
    /// # Errors
    /// As [`Segment::join`], and when the descriptor is not open.
    pub fn join_inherited(number: RawFd) -> Result<Segment, SegmentError> {
        Segment::join(mapping::inherited(number)?)
    }

    /// Joins the segment with that id which a process holds as its descriptor `number`.
    ///
    /// # Errors
    /// As [`Segment::join`], and when the process does not hold it (any more).
    pub fn join_of(pid: u32, number: RawFd, id: u64) -> Result<Segment, SegmentError> {
        let path = format!("/proc/{pid}/fd/{number}");
        let gone = || SegmentError::Format(format!("process {pid} does not hold it any more"));
        // What the number stands for now may be a pipe or a device, which must not be opened.
        let is_it = |m: &Metadata| m.is_file() && m.ino() == id;
        if std::fs::metadata(&path).is_ok_and(|m| !is_it(&m)) {
            return Err(gone());
        }
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|error| SegmentError::Os {
            what: "open another job's memory beside",
            error,
        })?;
        if !is_it(&mapping::metadata(&file)?) {
            return Err(gone());
        }
        if !mapping::is_sealed(&file) {
            return Err(SegmentError::Format(
                "its size is not sealed, so that it could be cut off while it is used".to_owned(),
            ));
        }
        Segment::join(file.into())
    }

    /// What tells this segment from all others of the machine.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Bytes of memory that the segment takes: of its pages that have been touched.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let file = self.fd.try_clone().map(File::from);
        let blocks = file.and_then(|file| file.metadata()).map(|of| of.blocks());
        blocks.unwrap_or(0) * 512
    }

    /// Ranks in the job.
    #[must_use]
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.layout.ranks
    }

    /// The descriptor, for handing down.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Wakes a rank that sleeps because it waits for what was stored here.
    ///
    /// # Panics
    /// When `rank` is not in the job.
    #[inline]
    pub fn wake(&self, rank: u32) {
        if self.cell(rank).event_count.0.wake() && self.has_doorbells.load(Ordering::Relaxed) {
            self.ring(rank);
        }
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: offset 0 is mapped for at least a page, aligned, and holds only atomics.
        unsafe { self.main.base().cast::<Header>().as_ref() }
    }

    #[inline]
    pub(crate) fn cell(&self, rank: u32) -> &RankCell {
        let ranks = self.layout.ranks;
        assert!(rank < ranks, "rank {rank} of {ranks}");
        let offset = self.layout.cells_offset as usize + rank as usize * size_of::<RankCell>();
        // SAFETY: the layout was checked to have all cells inside the mapping, aligned.
        unsafe { self.main.base().add(offset).cast::<RankCell>().as_ref() }
    }

    /// The address in this process of an offset in the part before the arenas.
    ///
    /// # Safety
    /// The offset must be at most the heap's end.
    pub(crate) unsafe fn at(&self, offset: u64) -> NonNull<u8> {
        // SAFETY: by the caller's promise inside of the mapping, which ends with the heap.
        unsafe { self.main.base().add(offset as usize) }
    }
}

/// What is wrong with a magic that is not ours.
fn other_magic(magic: u64) -> String {
    let [name @ .., version] = magic.to_ne_bytes();
    if MAGIC.to_ne_bytes().starts_with(&name) {
        format!("its format has version {version}, this one reads version {VERSION}")
    } else {
        format!("it does not begin with 'MARGAY' but with {magic:#018x}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use margay_core_registry::Facts;

    pub(crate) fn small(ranks: u32) -> Segment {
        Segment::create(Sizes {
            ranks,
            heap_bytes: 1 << 20,
            arena_bytes: 1 << 21,
        })
        .unwrap()
    }

    pub(crate) fn roomy() -> Segment {
        Segment::create(Sizes {
            ranks: 2,
            heap_bytes: 4 << 20,
            arena_bytes: 0,
        })
        .unwrap()
    }

    #[test]
    fn a_second_mapping_sees_what_the_first_wrote() {
        let a = small(3);
        a.registry().describe(&Facts {
            job: 77,
            launcher: 4,
            started_ns: 5,
            command: "a.out -x".into(),
            cores: 2,
            is_tolerant: false,
        });
        a.registry().identify(2, 1234, Some(1), 0);
        let b = Segment::join(a.fd().try_clone_to_owned().unwrap()).unwrap();
        let b = (b.ranks(), b.registry());
        assert_eq!(b.0, 3);
        let facts = b.1.facts();
        assert_eq!((facts.job, facts.command.as_str()), (77, "a.out -x"));
        assert_eq!(b.1.identity(2).pid, 1234);
        assert_eq!(b.1.identity(2).core, Some(1));
    }

    #[test]
    fn a_descriptor_that_somebody_has_is_not_taken_over() {
        use std::os::fd::{AsRawFd, IntoRawFd};
        let a = small(1);
        let error = Segment::join_inherited(a.fd().as_raw_fd()).unwrap_err();
        assert!(error.to_string().contains("was not inherited"), "{error}");
        assert!(Segment::join_inherited(-1).is_err());
        // As the launcher hands it down: not close-on-exec.
        let number = rustix::io::dup(a.fd()).unwrap().into_raw_fd();
        let b = Segment::join_inherited(number).unwrap();
        assert_eq!(b.id(), a.id());
        assert!(Segment::join_inherited(number).is_err(), "twice");
    }

    #[test]
    fn other_files_are_refused() {
        let file = File::open("/proc/self/exe").unwrap();
        let error = Segment::join(OwnedFd::from(file)).unwrap_err();
        assert!(error.to_string().contains("shared memory"), "{error}");
        let empty = mapping::create(0).unwrap();
        let error = Segment::join(empty.into()).unwrap_err();
        assert!(matches!(error, SegmentError::Format(_)), "{error}");
    }
}
