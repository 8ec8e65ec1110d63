//! The options of hosts that dial in.

use clap::Args;
use margay_core_registry::network::JOIN_PORT;

/// For how many seconds hosts and launcher wait for each other.
const WAIT: &str = "300";

/// Hosts that dial in.
#[derive(Clone, Debug, Args)]
pub struct JoinOptions {
    /// Run on as many hosts that dial in: on each of them `margay agent --join` runs, with the same
    /// MARGAY_JOIN_TOKEN. Without -ppn each gets as many ranks as it has cores
    #[arg(long = "join", value_name = "HOSTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub join: Option<u32>,

    /// The port at which hosts join
    #[arg(long = "join-port", value_name = "PORT", default_value_t = JOIN_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub join_port: u16,

    /// For how many seconds hosts may join
    #[arg(long = "join-wait", value_name = "SECONDS", default_value = WAIT)]
    pub join_wait: u64,
}

/// Serve as the agent of this host: for a launcher that starts it, or for one that waits until this
/// host joins (mpiexec -join).
#[derive(Clone, Debug, Args)]
pub struct AgentOptions {
    /// Join the launcher that waits on this host; the token is in MARGAY_JOIN_TOKEN [default port:
    /// 7117]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub join: Option<String>,

    /// For how many seconds the launcher may be away
    #[arg(long, value_name = "SECONDS", default_value = WAIT, requires = "join")]
    pub wait: u64,
}
