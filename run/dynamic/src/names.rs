//! Published names: services and the ports at which they are.
//!
//! A name lives as long as the process that published it. In a job on one host the process itself
//! publishes it there (`sys/os/src/services.rs`). A job on several hosts has its names at the
//! launcher's host, whose relay publishes them in the same way: the process keeps a connection to
//! its host's agent for each of its names. So names of all jobs that were started from one host are
//! found by all of them.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use margay_net_platform::asks::{Ask, VARIABLE};
use margay_run_engine::Pending;
use margay_run_mpi::error::*;
use margay_run_mpi::fail;
use margay_sys_os::port::Channel;
use margay_sys_os::services::{Published, look_up};

use super::Dynamic;

/// What this process has published: the port of each service, and what keeps the name.
#[derive(Default)]
pub struct Names {
    published: BTreeMap<String, (String, Kept)>,
}

/// What keeps a name until it is dropped: the name itself, or the connection to the agent.
trait Keeps: Send {}

impl Keeps for Published {}
impl Keeps for Channel {}

type Kept = Box<dyn Keeps>;

impl Dynamic<'_> {
    /// Asks the launcher's host; the connection over which the answer comes. None in a job that has
    /// no agents.
    pub(crate) fn ask(&self, ask: &Ask) -> Result<Option<Channel>> {
        let is_near = self.mpi.own_address().system != 0;
        let Some(agent) = std::env::var(VARIABLE).ok().filter(|_| !is_near) else {
            return Ok(None);
        };
        let lost = |error: std::io::Error| {
            let text = format!("the agent of this host cannot be asked: {error}");
            Error::new(MPI_ERR_OTHER, text)
        };
        let channel = Channel::connect(&agent).map_err(lost)?;
        if !channel.is_trusted() {
            return Err(lost(ErrorKind::PermissionDenied.into()));
        }
        channel.send(&ask.encode()).map_err(lost)?;
        Ok(Some(channel))
    }

    /// Waits for the answer to a question.
    fn answer(&self, channel: &mut Channel) -> Result<String> {
        let _attending = self.mpi.outside()?.attend();
        let answer = self.mpi.rank().block(
            |_| channel.receive().transpose(),
            |_| Some(Pending::Elsewhere),
        );
        match answer {
            Ok(answer) => Ok(String::from_utf8_lossy(&answer).into_owned()),
            Err(error) => fail!(
                MPI_ERR_OTHER,
                "the launcher's host has not answered: {error}"
            ),
        }
    }

    /// `MPI_Publish_name`
    ///
    /// # Errors
    /// When somebody of the same user has published it.
    pub fn publish_name(&self, service: &str, port_name: &str) -> Result<()> {
        let ask = Ask::Publish {
            service: service.into(),
            port: port_name.into(),
        };
        let kept = match self.ask(&ask)? {
            Some(mut channel) => {
                let refused = self.answer(&mut channel)?;
                if !refused.is_empty() {
                    fail!(MPI_ERR_SERVICE, "{refused}");
                }
                Box::new(channel) as Kept
            }
            None => {
                let published = Published::new(service, port_name);
                Box::new(published.map_err(|e| match e.kind() {
                    ErrorKind::AddrInUse => Error::new(
                        MPI_ERR_SERVICE,
                        format!("the service '{service}' is published already"),
                    ),
                    _ => Error::new(MPI_ERR_OTHER, format!("cannot publish '{service}': {e}")),
                })?)
            }
        };
        let mut names = self.state.names.lock().expect("no panic under this lock");
        let entry = (port_name.to_string(), kept);
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
            Some((port, _)) if port == port_name => {
                names.published.remove(service);
                Ok(())
            }
            Some((port, _)) => fail!(
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
        let found = match self.ask(&Ask::Lookup(service.into()))? {
            Some(mut channel) => {
                let port = self.answer(&mut channel)?;
                (!port.is_empty()).then_some(port)
            }
            None => look_up(service),
        };
        match found {
            Some(port) => Ok(port),
            None => fail!(
                MPI_ERR_NAME,
                "no process has published the service '{service}'"
            ),
        }
    }
}
