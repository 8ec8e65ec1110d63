//! Published names: services and the ports at which they are.
//!
//! A name lives as long as the process that published it. The port stands in a nameless file of
//! that process. Two sockets in the abstract namespace lead to it: one to have the service's name
//! alone, and one whose own name says which file of which process it is. The kernel lists those, so
//! looking a name up asks nobody, and nothing is left behind when a process dies. Names are the
//! user's: others do not see them.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use margay_sys_os::descriptor::memory_file;
use margay_sys_os::port::{self, Listener};

use margay_run_mpi::constants::limit::MPI_MAX_PORT_NAME;
use margay_run_mpi::error::*;
use margay_run_mpi::fail;

use super::Dynamic;

/// What this process has published: the port of each service, and what keeps the name.
#[derive(Default)]
pub struct Names {
    published: BTreeMap<String, (String, [Listener; 2], File)>,
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

/// Returns the port that stands in this file of a process. Anybody can take a socket's name that
/// says so: what is no nameless file of a process of this user is not opened.
fn port_of(pid: u32, number: u32) -> Option<String> {
    if std::fs::metadata(format!("/proc/{pid}")).ok()?.uid() != port::user() {
        return None;
    }
    let path = format!("/proc/{pid}/fd/{number}");
    let metadata = std::fs::metadata(&path).ok()?;
    let is_nameless =
        std::fs::read_link(&path).ok()?.as_os_str() == "/memfd:margay-spool (deleted)";
    if !is_nameless || metadata.len() >= MPI_MAX_PORT_NAME as u64 {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

impl Dynamic<'_> {
    /// `MPI_Publish_name`
    ///
    /// # Errors
    /// When somebody of the same user has published it.
    pub fn publish_name(&self, service: &str, port_name: &str) -> Result<()> {
        let name = socket_name(service);
        let taken = |e: std::io::Error| match e.kind() {
            ErrorKind::AddrInUse => Error::new(
                MPI_ERR_SERVICE,
                format!("the service '{service}' is published already"),
            ),
            _ => Error::new(MPI_ERR_OTHER, format!("cannot publish '{service}': {e}")),
        };
        let alone = Listener::bind(&name).map_err(taken)?;
        let mut file = memory_file().map_err(taken)?;
        file.write_all(port_name.as_bytes()).map_err(taken)?;
        let (pid, number) = (std::process::id(), file.as_raw_fd());
        let place = Listener::bind(&format!("{name}={pid}:{number}")).map_err(taken)?;
        let mut names = self.state.names.lock().expect("no panic under this lock");
        let entry = (port_name.to_string(), [alone, place], file);
        names.published.insert(service.to_string(), entry);
        Ok(())
    }

    /// `MPI_Unpublish_name`
    ///
    /// # Errors
    /// When this process has not published it.
    pub fn unpublish_name(&self, service: &str, port_name: &str) -> Result<()> {
        let mut names = self.state.names.lock().expect("no panic under this lock");
        match names.published.get(service) {
            Some((port, ..)) if port == port_name => {
                names.published.remove(service);
                Ok(())
            }
            Some((port, ..)) => fail!(
                MPI_ERR_SERVICE,
                "the service '{service}' is at port '{port}', not at '{port_name}'"
            ),
            None => fail!(
                MPI_ERR_SERVICE,
                "this process has not published the service '{service}'"
            ),
        }
    }

    /// `MPI_Lookup_name`: the port.
    ///
    /// # Errors
    /// When nobody of the same user has published it.
    pub fn lookup_name(&self, service: &str) -> Result<String> {
        let prefix = format!("{}=", socket_name(service));
        let found = port::names(&prefix).into_iter().find_map(|name| {
            let (pid, number) = name.strip_prefix(&prefix)?.split_once(':')?;
            port_of(pid.parse().ok()?, number.parse().ok()?)
        });
        match found {
            Some(port) => Ok(port),
            None => fail!(
                MPI_ERR_NAME,
                "no process has published the service '{service}'"
            ),
        }
    }
}
