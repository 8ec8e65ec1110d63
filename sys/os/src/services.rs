//! Published names: services and the texts that say where they are.
//!
//! A name lives as long as the process that has published it. Where the service is stands in a
//! nameless file of that process. Two sockets in the abstract namespace lead to it: one to have the
//! service's name alone, and one whose own name says which file of which process it is. The kernel
//! lists those, so looking a name up asks nobody, and nothing is left behind when a process dies.
//! Names are the user's: others do not see them.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use crate::descriptor::memory_file;
use crate::port::{self, Listener};

/// Longest text in bytes.
const LONGEST: u64 = 4096;

/// A name that is published as long as this lives.
#[derive(Debug)]
pub struct Published {
    _sockets: [Listener; 2],
    _file: File,
}

/// Returns the socket's name for a service: of bounded length, and without characters that the
/// kernel's list would not show.
fn socket_name(service: &str) -> String {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, service).hash(&mut hasher);
        hasher.finish()
    };
    format!(
        "margay-name-{}-{:016x}{:016x}",
        port::user(),
        half(0),
        half(1)
    )
}

impl Published {
    /// Publishes that a service is at `place`.
    ///
    /// # Errors
    /// When somebody of the same user has published it (`AddrInUse`), or the system refuses.
    pub fn new(service: &str, place: &str) -> io::Result<Published> {
        let name = socket_name(service);
        let alone = Listener::bind(&name)?;
        let mut file = memory_file()?;
        file.write_all(place.as_bytes())?;
        let (pid, number) = (std::process::id(), file.as_raw_fd());
        let leads = Listener::bind(&format!("{name}={pid}:{number}"))?;
        Ok(Published {
            _sockets: [alone, leads],
            _file: file,
        })
    }
}

/// Returns where a service is; none when nobody of the same user has published it.
#[must_use]
pub fn look_up(service: &str) -> Option<String> {
    let prefix = format!("{}=", socket_name(service));
    port::names(&prefix).into_iter().find_map(|name| {
        let (pid, number) = name.strip_prefix(&prefix)?.split_once(':')?;
        text_of(pid.parse().ok()?, number.parse().ok()?)
    })
}

/// Returns the text in this file of a process. Anybody can take a socket's name that says so: what
/// is no nameless file of a process of this user is not opened.
fn text_of(pid: u32, number: u32) -> Option<String> {
    if std::fs::metadata(format!("/proc/{pid}")).ok()?.uid() != port::user() {
        return None;
    }
    let path = format!("/proc/{pid}/fd/{number}");
    let metadata = std::fs::metadata(&path).ok()?;
    let is_nameless =
        std::fs::read_link(&path).ok()?.as_os_str() == "/memfd:margay-spool (deleted)";
    if !is_nameless || metadata.len() >= LONGEST {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_as_long_as_it_is_published_and_has_one_owner() {
        let service = format!("services-test {}", std::process::id());
        assert_eq!(look_up(&service), None);
        let published = Published::new(&service, "here").unwrap();
        assert_eq!(look_up(&service).as_deref(), Some("here"));
        let again = Published::new(&service, "there").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        drop(published);
        assert_eq!(look_up(&service), None);
    }
}
