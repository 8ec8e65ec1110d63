//! The options of `margay ps`, `margay kill` and `margay make`: what is done on all hosts of a
//! machine's jobs.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::hosts::{HostList, host_file, hosts};

/// List the processes of the jobs that were started here, on all of their hosts.
#[derive(Clone, Debug, Args)]
pub struct PsOptions {
    /// Print a JSON object for each process, one a line
    #[arg(long)]
    pub json: bool,
    /// These jobs only, by the process id of their mpiexec
    #[arg(value_name = "JOB")]
    pub jobs: Vec<u64>,
}

/// Send jobs, or single ranks of theirs on any host, a signal: TERM where none is named. `margay
/// ps` lists them. Ranks on other hosts are reached by ssh, or by the command that MARGAY_RSH
/// names.
#[derive(Clone, Debug, Args)]
pub struct KillOptions {
    /// `-SIGNAL` or `-s SIGNAL`, by name or number, and jobs (1234) or ranks (1234.5)
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "[-SIGNAL] JOB[.RANK]"
    )]
    pub words: Vec<OsString>,
}

/// Run GNU make, with its jobs on several hosts: each command runs on the next host that has a free
/// place, in the same directory and with the same environment. The directory has to be on all
/// hosts. A make within a make runs here; what it starts goes to the hosts again.
#[derive(Clone, Debug, Args)]
pub struct MakeOptions {
    /// The hosts, with as many places as stand behind their names, 1 without a number
    #[arg(long = "host", alias = "hosts", value_name = "HOST[:PLACES],...", value_parser = hosts)]
    pub host: Option<HostList>,
    /// Read the hosts from a file, a line each
    #[arg(long = "hostfile", value_name = "FILE", value_parser = host_file, value_hint = ValueHint::FilePath)]
    pub host_file: Option<HostList>,
    /// The remote shell, as for mpiexec [default: ssh -x -o BatchMode=yes -o ConnectTimeout=10]
    #[arg(
        long = "launcher-exec",
        env = "MARGAY_RSH",
        value_name = "COMMAND",
        hide_env_values = true
    )]
    pub remote_shell: Option<String>,
    /// Options and goals of make; without -j as many jobs run as there are places
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "MAKE'S WORDS"
    )]
    pub words: Vec<OsString>,
}
