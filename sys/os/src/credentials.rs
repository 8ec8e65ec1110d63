//! The users of the system: their names, who owns a process, and becoming another user for good.

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::io;

/// The most bytes that the system's entry of a user may have.
const MOST_BYTES: usize = 1 << 20;

/// Looks an entry of the system's list of users up: its name and its number; none where there is no
/// such entry.
fn look_up(
    find: &dyn Fn(*mut libc::passwd, &mut [c_char], *mut *mut libc::passwd) -> i32,
) -> io::Result<Option<(String, u32)>> {
    let mut buffer: Vec<c_char> = vec![0; 4096];
    loop {
        // SAFETY: an all-zero entry is a valid value.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found: *mut libc::passwd = std::ptr::null_mut();
        let error = find(&raw mut entry, &mut buffer, &raw mut found);
        if error == libc::ERANGE && buffer.len() < MOST_BYTES {
            buffer.resize(buffer.len() * 4, 0);
            continue;
        }
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        if found.is_null() {
            return Ok(None);
        }
        // SAFETY: the entry was found, so its name is a string in `buffer`.
        let name = unsafe { CStr::from_ptr(entry.pw_name) };
        return Ok(Some((name.to_string_lossy().into_owned(), entry.pw_uid)));
    }
}

/// The name of a user, if the system knows one.
#[must_use]
pub fn user_name(uid: u32) -> Option<String> {
    find_name(uid).ok().flatten()
}

/// The name of a user, none if there is none.
///
/// # Errors
/// When the system cannot say: its list may be on another host.
pub fn find_name(uid: u32) -> io::Result<Option<String>> {
    let find = |entry, buffer: &mut [c_char], found| {
        // SAFETY: all point to memory of ours, and the buffer has the size that is said.
        unsafe { libc::getpwuid_r(uid, entry, buffer.as_mut_ptr(), buffer.len(), found) }
    };
    Ok(look_up(&find)?.map(|(name, _)| name))
}

/// The number of the user of this name, if there is one.
#[must_use]
pub fn user_number(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let find = |entry, buffer: &mut [c_char], found| {
        // SAFETY: as above; the name ends with a zero byte.
        unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry,
                buffer.as_mut_ptr(),
                buffer.len(),
                found,
            )
        }
    };
    look_up(&find).ok()?.map(|(_, uid)| uid)
}

/// The user who has started a process: also where a program has the rights of another one (setuid).
/// None when there is no such process.
#[must_use]
pub fn real_user(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Makes this process, which root has started and which has one thread, that of a user for good: it
/// has these groups alone, and nothing of root's, the keys that the kernel keeps for sessions
/// included.
///
/// # Errors
/// When the system refuses; the process is then to end, because a part may have been done.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let done = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: no pointers; a kernel without keys gives an error, and then there are none to leave.
    unsafe { libc::syscall(libc::SYS_keyctl, 1, 0) };
    // SAFETY: the list has as many numbers as is said; the others take no pointers.
    done(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: as above.
    done(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: as above.
    done(unsafe { libc::setresuid(uid, uid, uid) })?;
    // SAFETY: as above. It has to fail: what was given up cannot be taken back.
    if uid != 0 && unsafe { libc::setresuid(0, 0, 0) } == 0 {
        return Err(io::Error::other("the system lets it become root again"));
    }
    Ok(())
}

/// The permissions that new files of this process do not have.
#[must_use]
pub fn file_mask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
        .unwrap_or(0o022)
}

/// Sets these permissions.
pub fn set_file_mask(mask: u32) {
    let mode = rustix::fs::Mode::from_raw_mode(mask & 0o777);
    let _ = rustix::process::umask(mode);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_this_process_a_user() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(user_number("root"), Some(0));
        assert_eq!(user_number("no\0body"), None);
        assert_eq!(user_number("nobody has this name"), None);
        let own = rustix::process::getuid().as_raw();
        assert_eq!(real_user(std::process::id()), Some(own));
        assert_eq!(real_user(0), None);
        assert!(file_mask() <= 0o777);
    }
}
