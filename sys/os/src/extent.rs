//! Ranges of plain files: writing pieces at an offset, taking space and giving it back, and how
//! much there is.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fstatfs, statvfs, syncfs};
use rustix::io::{Errno, ReadWriteFlags, preadv, preadv2, pwritev, retry_on_intr};
use rustix::mount::UnmountFlags;

/// The kernel takes at most this many pieces in one call.
const MOST_PIECES: usize = 1024;

/// Writes all pieces, one after the other, from `offset` on.
///
/// # Errors
/// What the system says; some bytes may have been written.
pub fn write_all_at(file: &File, mut offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
    let mut rest: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = rest.as_mut_slice();
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let some = &rest[..rest.len().min(MOST_PIECES)];
        let written = retry_on_intr(|| pwritev(file, some, offset))?;
        if written == 0 {
            // A write of no bytes without an error: the device takes no more.
            return Err(Errno::NOSPC.into());
        }
        offset += written as u64;
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}

/// Brings all that was written to the file system of a file where it outlives the machine's next
/// failure.
///
/// # Errors
/// What the system says.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    Ok(retry_on_intr(|| syncfs(file))?)
}

/// Lets the system begin to store what was written to a file, without waiting for that. What cannot
/// be stored is said by the sync that follows.
pub fn begin_to_store(file: &File) {
    // SAFETY: the call takes numbers, and the descriptor is open.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Gives the space of a range back; it reads as zeros afterwards.
///
/// # Errors
/// What the system says, in particular that the file system cannot do that.
pub fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(retry_on_intr(|| fallocate(file, how, offset, len))?)
}

/// Takes space for a range without changing the length of the file.
///
/// # Errors
/// What the system says, in particular that there is none, or that the file system cannot do that.
pub fn reserve(file: &File, at: u64, len: u64) -> io::Result<()> {
    let how = FallocateFlags::KEEP_SIZE;
    Ok(retry_on_intr(|| fallocate(file, how, at, len))?)
}

/// Reads into all pieces, one after the other, from `offset` on; fewer bytes only at the end of the
/// file.
///
/// # Errors
/// What the system says.
pub fn read_at(file: &File, offset: u64, pieces: &mut [&mut [u8]]) -> io::Result<usize> {
    let mut rest: Vec<IoSliceMut<'_>> = pieces.iter_mut().map(|p| IoSliceMut::new(p)).collect();
    let mut rest = rest.as_mut_slice();
    let mut done = 0;
    IoSliceMut::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let most = rest.len().min(MOST_PIECES);
        let got = retry_on_intr(|| preadv(file, &mut rest[..most], offset + done as u64))?;
        if got == 0 {
            break;
        }
        done += got;
        IoSliceMut::advance_slices(&mut rest, got);
    }
    Ok(done)
}

/// Reads from `offset` on if all of it is in memory; none where it is not, or where the file system
/// does not know.
#[must_use]
pub fn read_now(file: &File, offset: u64, into: &mut [u8]) -> Option<usize> {
    let len = into.len();
    let mut pieces = [IoSliceMut::new(into)];
    let read = preadv2(file, &mut pieces, offset, ReadWriteFlags::NOWAIT).ok()?;
    (read == len).then_some(read)
}

/// Lets the system begin to read a range that is wanted soon.
///
/// # Errors
/// What the system says.
pub fn will_need(file: &File, offset: u64, len: u64) -> io::Result<()> {
    Ok(fadvise(
        file,
        offset,
        NonZeroU64::new(len),
        Advice::WillNeed,
    )?)
}

/// Whether a file lies in memory: its file system is tmpfs or ramfs.
#[must_use]
pub fn is_memory(file: &File) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    #[allow(
        clippy::unnecessary_cast,
        reason = "it has another type on other processors"
    )]
    fstatfs(file).is_ok_and(|facts| [TMPFS, RAMFS].contains(&(facts.f_type as i64)))
}

/// Ends a mount, as root may. `is_lazy`: at once, also while it is in use.
///
/// # Errors
/// What the system says.
pub fn unmount(path: &Path, is_lazy: bool) -> io::Result<()> {
    let how = if is_lazy {
        UnmountFlags::DETACH | UnmountFlags::NOFOLLOW
    } else {
        UnmountFlags::NOFOLLOW
    };
    Ok(rustix::mount::unmount(path, how)?)
}

/// The bytes of the file system at `path`: all, and those that may still be written.
///
/// # Errors
/// What the system says.
pub fn space(path: &Path) -> io::Result<(u64, u64)> {
    let facts = statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    Ok((bytes(facts.f_blocks), bytes(facts.f_bavail)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn pieces_are_written_one_after_the_other_and_holes_read_as_zeros() {
        let path = std::env::temp_dir().join(format!("margay-extent-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("a new file");
        std::fs::remove_file(&path).expect("it is there");
        let many: Vec<IoSlice<'_>> = (0..3000).map(|_| IoSlice::new(b"abc")).collect();
        write_all_at(&file, 5, &many).expect("written");
        write_all_at(&file, 0, &[IoSlice::new(b""), IoSlice::new(b"12345")]).expect("written");
        write_all_at(&file, 0, &[]).expect("nothing to write");
        let mut all = vec![0; 9005];
        let (some, more) = all.split_at_mut(4000);
        let got = read_at(&file, 0, &mut [some, &mut [], more]).expect("read");
        assert_eq!(got, 9005);
        let got = read_at(&file, 9000, &mut [&mut [0; 3], &mut [0; 9]]).expect("read");
        assert_eq!(got, 5);
        assert_eq!(&all[..8], b"12345abc");
        assert_eq!(all[5..], *b"abc".repeat(3000));
        if punch(&file, 0, 4096).is_ok() {
            file.read_exact_at(&mut all, 0).expect("read");
            assert_eq!(all[..4096], [0; 4096]);
            assert_eq!(all[4096], b"abc"[(4096 - 5) % 3]);
        }
        if read_now(&file, 0, &mut all[..100]).is_some() {
            assert_eq!(all[..100], [0; 100]);
        }
        sync_file_system(&file).expect("all is stored");
        will_need(&file, 0, 4096).expect("advice is taken");
        let memory = std::path::Path::new("/dev/shm");
        if memory.is_dir() {
            assert!(is_memory(&File::open(memory).expect("it is there")));
        }
        let error = unmount(Path::new("/none"), false).expect_err("nothing is there");
        assert!(error.raw_os_error().is_some());
        let (total, free) = space(Path::new("/")).expect("a file system");
        assert!(total >= free && total > 0);
    }
}
