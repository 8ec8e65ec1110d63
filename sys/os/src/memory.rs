//! Memory: how much of it this process may have, and on which node it lies.
//!
//! Linux's calls for memory nodes (`set_mempolicy`, `mbind`, `move_pages`) have no wrappers in the
//! C library, nor in `rustix`. They decide where pages lie and never what is in them, so they are
//! safe for any address.

use std::ffi::{c_int, c_long, c_uint, c_ulong};
use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

const PAGE: usize = 4096;
/// Nodes that a mask here can name.
const MOST_NODES: usize = 1024;
const MPOL_DEFAULT: c_int = 0;
const MPOL_BIND: c_int = 2;
const MPOL_MF_MOVE: c_uint = 2;

type Mask = [c_ulong; MOST_NODES / c_ulong::BITS as usize];

/// Installed memory in bytes.
#[must_use]
pub fn installed_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    u64::from(machine.mem_unit).saturating_mul(machine.totalram)
}

/// How many bytes this process may have: the machine's memory and swap, cut by the memory limit of
/// its cgroup; none when the system does not tell.
#[must_use]
pub fn limit_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok()?;
    let machine = meminfo(&machine, "MemTotal:")? + meminfo(&machine, "SwapTotal:").unwrap_or(0);
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = membership.lines().flat_map(cgroup_limits);
    Some(limits.fold(machine, u64::min))
}

/// Bytes of address space that this process may still take (`ulimit -v`); none without a limit.
#[must_use]
pub fn address_space_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(limit.saturating_sub(meminfo(&status, "VmSize:")?))
}

/// Bytes of memory that a process has now, shared ones included; 0 when it has ended.
#[must_use]
pub fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    meminfo(&status, "VmRSS:").unwrap_or(0)
}

/// The same, with its share of what several processes have; where the system does not say that, all
/// of what it has.
#[must_use]
pub fn proportional_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    meminfo(&text, "Pss:").unwrap_or_else(|| resident_bytes(pid))
}

/// How many mappings this process may still make; none when the system does not tell.
#[must_use]
pub fn mappings_left() -> Option<u64> {
    let most = fs::read_to_string("/proc/sys/vm/max_map_count").ok()?;
    let most: u64 = most.trim().parse().ok()?;
    let used = fs::read_to_string("/proc/self/maps").ok()?.lines().count() as u64;
    Some(most.saturating_sub(used))
}

/// The memory limits of one line of `/proc/self/cgroup`, from the cgroup up to the root.
fn cgroup_limits(line: &str) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (root, file) = if controllers.is_empty() {
        ("/sys/fs/cgroup", "memory.max")
    } else if controllers.split(',').any(|c| c == "memory") {
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    let mut at = path.trim_matches('/');
    let mut limits = Vec::new();
    loop {
        let text = fs::read_to_string(format!("{root}/{at}/{file}")).unwrap_or_default();
        limits.extend(text.trim().parse::<u64>());
        if at.is_empty() {
            return limits;
        }
        at = at.rfind('/').map_or("", |slash| &at[..slash]);
    }
}

/// A line of `/proc/meminfo` or of a process's `status`, in bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes << 10)
}

/// From now on the calling thread gets memory from `node` only.
///
/// # Errors
/// When there is no such node or the process may not use it.
pub fn take_from(node: u32) -> io::Result<()> {
    let mask = mask(node)?;
    // SAFETY: the kernel reads as many bits of `mask` as the call says, one less than its length,
    // as it counts.
    let done = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            MPOL_BIND,
            mask.as_ptr(),
            MOST_NODES,
        )
    };
    report(done)
}

/// From now on the calling thread gets memory from the node on which it runs, or from others when
/// that is full.
pub fn take_from_anywhere() {
    // SAFETY: no mask is handed over.
    unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_DEFAULT, 0, 0) };
}

/// The pages of `[address, address + bytes)` lie on `node` from now on; those that are elsewhere
/// move. Both are multiples of the page's size.
///
/// # Errors
/// When the range is not mapped, there is no such node, or the process may not use it.
pub fn bind(address: usize, bytes: usize, node: u32) -> io::Result<()> {
    let mask = mask(node)?;
    // SAFETY: as in `take_from`; the call moves pages without changing what is in them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            address,
            bytes,
            MPOL_BIND,
            mask.as_ptr(),
            MOST_NODES,
            MPOL_MF_MOVE,
        )
    };
    report(done)
}

/// On which node each page of `[address, address + bytes)` lies; none for a page that is not there
/// because nobody has touched it.
///
/// # Errors
/// When the kernel has no memory nodes.
pub fn nodes_of(address: usize, bytes: usize) -> io::Result<Vec<Option<u32>>> {
    let first = address & !(PAGE - 1);
    let pages: Vec<usize> = (first..address + bytes).step_by(PAGE).collect();
    let mut all = Vec::with_capacity(pages.len());
    for pages in pages.chunks(512) {
        let mut status = [0i32; 512];
        // SAFETY: both arrays have at least as many entries as the call says; without a list of
        // nodes nothing is moved.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                pages.len(),
                pages.as_ptr(),
                std::ptr::null::<c_int>(),
                status.as_mut_ptr(),
                0,
            )
        };
        report(done)?;
        let nodes = status[..pages.len()].iter();
        all.extend(nodes.map(|&node| u32::try_from(node).ok()));
    }
    Ok(all)
}

fn mask(node: u32) -> io::Result<Mask> {
    let mut mask: Mask = [0; _];
    let bits = c_ulong::BITS;
    let word = mask.get_mut((node / bits) as usize);
    *word.ok_or(Errno::INVAL)? |= 1 << (node % bits);
    Ok(mask)
}

fn report(done: c_long) -> io::Result<()> {
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_system() {
        let text = "MemTotal:       24532956 kB\nMemFree:  1 kB\nSwapTotal:             0 kB\n";
        assert_eq!(meminfo(text, "MemTotal:"), Some(24_532_956 << 10));
        assert_eq!(meminfo(text, "SwapTotal:"), Some(0));
        assert_eq!(meminfo(text, "SwapFree:"), None);
        assert!(limit_bytes().is_some_and(|bytes| bytes > 64 << 20));
    }

    #[test]
    fn pages_are_bound_and_found_where_they_were_bound() {
        let memory = vec![1u8; 64 * PAGE];
        let address = (memory.as_ptr() as usize).next_multiple_of(PAGE);
        // A kernel that was built without memory nodes has nothing to bind and says so.
        let Err(error) = bind(address, 32 * PAGE, 0) else {
            let nodes = nodes_of(address, 32 * PAGE).unwrap();
            assert_eq!(nodes, [Some(0); 32]);
            assert!(bind(address, 32 * PAGE, 777).is_err(), "no such node");
            assert!(bind(address, 32 * PAGE, 99_999).is_err(), "no such number");
            return;
        };
        assert_eq!(
            error.raw_os_error(),
            Some(Errno::NOSYS.raw_os_error()),
            "{error}"
        );
    }

    #[test]
    fn a_thread_takes_memory_from_a_node() {
        let nodes = std::thread::spawn(|| {
            let bound = take_from(0);
            let memory = vec![1u8; 64 * PAGE];
            take_from_anywhere();
            bound.and_then(|()| nodes_of(memory.as_ptr() as usize, memory.len()))
        });
        match nodes.join().unwrap() {
            Ok(nodes) => assert!(nodes.iter().flatten().all(|&node| node == 0)),
            Err(error) => {
                assert_eq!(
                    error.raw_os_error(),
                    Some(Errno::NOSYS.raw_os_error()),
                    "{error}"
                );
            }
        }
    }
}
