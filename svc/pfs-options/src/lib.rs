//! The options of `margay pfs`.
//!
//! `margay` takes help, manual pages and completions from this definition, and the program that
//! does the work, `margay-pfs`, its parser. They are a crate of their own so that `margay` does not
//! link a file system.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// The program that does the work, beside `margay` in the same folder.
pub const PROGRAM: &str = "margay-pfs";

/// Make and use a parallel file system: files striped over directories, with parity.
#[derive(Clone, Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct PfsOptions {
    #[command(subcommand)]
    pub action: Action,
}

/// What is done.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// Make a parallel file system in empty directories
    Create {
        /// Its name: letters, digits, `-`, `_` and `.`
        name: String,
        /// The stripe directories: empty, or not there yet; best each on a disk of its own;
        /// HOST:/PATH is on another host
        #[arg(required = true, value_hint = ValueHint::DirPath)]
        directories: Vec<PathBuf>,
        /// How many directories may be lost without a loss of data: 0, 1 or 2
        #[arg(long, default_value_t = 1)]
        parity: usize,
        /// Store each unit of data this often instead: 2 or 3 copies are parity 1 or 2 with one
        /// unit in a row
        #[arg(long, value_name = "NUMBER", conflicts_with_all = ["parity", "factor"],
              value_parser = clap::value_parser!(u8).range(2..=3))]
        copies: Option<u8>,
        /// Units of data in a row of a file; without this as many as there are directories for
        #[arg(long, value_name = "UNITS")]
        factor: Option<usize>,
        /// Bytes of a stripe unit: 64K, 128K, 256K, 512K or 1M
        #[arg(long, value_name = "BYTES", default_value = "64K", value_parser = bytes)]
        unit: usize,
        /// A directory that takes the place of one that fails, at once; may be repeated
        #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
        spare: Vec<PathBuf>,
        #[command(flatten)]
        reaching: Reaching,
    },
    /// Show the parallel file systems of this user
    List,
    /// Start the service of a parallel file system
    Start {
        /// The parallel file system
        name: String,
        #[command(flatten)]
        serving: Serving,
        #[command(flatten)]
        reaching: Reaching,
    },
    /// Unmount a parallel file system and end its service
    Stop {
        /// The parallel file system
        name: String,
    },
    /// Remove a parallel file system that is stopped, with all of its files
    Remove {
        /// The parallel file system
        name: String,
        /// All of its files may be lost
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        reaching: Reaching,
    },
    /// Mount a parallel file system; its service is started if it does not run
    Mount {
        /// The parallel file system
        name: String,
        /// Where: a directory
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
        /// Which reads are noted in the time of the last access: `relative` (the first after a
        /// change, and one a day), `always` or `never`
        #[arg(long, value_name = "WHEN", default_value = "relative",
              value_parser = ["relative", "always", "never"])]
        atime: String,
        #[command(flatten)]
        sharing: Sharing,
        #[command(flatten)]
        serving: Serving,
    },
    /// Unmount a parallel file system, on all hosts; its service goes on
    Umount {
        /// The parallel file system
        name: String,
    },
    /// Show how a parallel file system and its stripe directories are
    Status {
        /// The parallel file system
        name: String,
    },
    /// Look at all data, checksums and names, and change nothing; ends with 1 when something is
    /// wrong
    Check {
        /// The parallel file system
        name: String,
    },
    /// Put an empty directory in the place of a stripe directory, and rebuild it
    Replace {
        /// The parallel file system
        name: String,
        /// The stripe directory to be replaced
        #[arg(value_hint = ValueHint::DirPath)]
        old: PathBuf,
        /// The new one: empty, or not there yet
        #[arg(value_hint = ValueHint::DirPath)]
        new: PathBuf,
    },
    /// Add or remove stripe directories, and move the files to where they belong then
    Resize {
        /// The parallel file system
        name: String,
        /// A new stripe directory: empty, or not there yet; may be repeated
        #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
        add: Vec<PathBuf>,
        /// A stripe directory that is to go; may be repeated
        #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
        remove: Vec<PathBuf>,
        /// Wait until all files are moved, and show the progress
        #[arg(long)]
        wait: bool,
    },
    /// Show how files are striped; or set it, of new files in a directory or of an empty file
    Stripe {
        /// Files and directories of a mounted file system
        #[arg(required = true, value_hint = ValueHint::AnyPath)]
        paths: Vec<PathBuf>,
        /// Bytes of a stripe unit: from 64K to the unit of the file system
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        unit: Option<usize>,
        /// Units of data in a row
        #[arg(long, value_name = "UNITS")]
        factor: Option<usize>,
        /// As the file system has it
        #[arg(long, conflicts_with_all = ["unit", "factor"])]
        default: bool,
    },
    /// Rebuild stripe directories that were replaced, or that failed and are there again
    Rebuild {
        /// The parallel file system
        name: String,
        /// Wait until it is complete, and show the progress
        #[arg(long)]
        wait: bool,
        /// The part of the time, in percent, that rebuild, scrub and check take while others use
        /// the file system; from now on, also for what goes on
        #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
        share: Option<u8>,
    },
    /// Keep an empty directory that takes the place of a stripe directory that fails, at once
    Spare {
        /// The parallel file system
        name: String,
        /// The directory: empty, or not there yet
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
        /// It is no spare any more
        #[arg(long)]
        remove: bool,
    },
    /// Show what each stripe directory and each client does, every second
    Top {
        /// The parallel file system
        name: String,
        /// Show one second, and end
        #[arg(long)]
        once: bool,
    },
    /// Show how much each user and group stores, or limit that
    Quota {
        /// The parallel file system
        name: String,
        /// Whose limits are set: a name or a number
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// The limits of a group are set instead: a name or a number
        #[arg(long, value_name = "GROUP", conflicts_with = "user")]
        group: Option<String>,
        /// The bytes that the user or group may store, such as 500M, 10G or 1T; `none` for no limit
        #[arg(long, value_name = "BYTES", value_parser = limit)]
        space: Option<u64>,
        /// The files and directories that the user or group may have; `none` for no limit
        #[arg(long, value_name = "NUMBER", value_parser = limit)]
        files: Option<u64>,
    },
    /// Look at all data and write what is damaged anew
    Scrub {
        /// The parallel file system
        name: String,
    },
    /// Run the service in the foreground, as `start` does in the background
    #[command(hide = true)]
    Serve {
        /// The parallel file system
        name: String,
        #[command(flatten)]
        serving: Serving,
        /// End when the standard input ends; whether stripe directories of other hosts are kept
        /// then
        #[arg(long = "owned")]
        owner: Option<Owned>,
        #[command(flatten)]
        reaching: Reaching,
    },
    /// Mount a file system of another host, which hands over how that is reached
    #[command(hide = true)]
    Attach {
        /// Stay until it is unmounted
        #[arg(long)]
        keep: bool,
    },
    /// Make a file system for the time of a job, as `mpiexec -pfs` does
    #[command(hide = true)]
    Job(JobOptions),
}

/// What becomes of the stripe directories of a job that lie on other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Owned {
    Kept,
    Temporary,
}

/// The file system of a job.
#[derive(Clone, Debug, Args)]
pub struct JobOptions {
    /// The launcher, for its messages
    #[arg(long, default_value = "mpiexec")]
    pub launcher: String,
    /// Where what is in it is copied to before it is removed
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub drain: Option<PathBuf>,
    /// How many directories may be lost without a loss of data
    #[arg(long)]
    pub parity: Option<usize>,
    /// The directory of the mount and the registry, which is made without this
    #[arg(long)]
    pub base: Option<PathBuf>,
    #[command(flatten)]
    pub sharing: Sharing,
    /// Where its stripe directories are made; none: temporary ones
    #[arg(value_hint = ValueHint::DirPath)]
    pub directories: Vec<PathBuf>,
}

/// Which hosts have it.
#[derive(Clone, Debug, Args)]
pub struct Sharing {
    /// Mount it on these hosts, at the same path on each of them, and on this one only where it is
    /// among them: a,b,node[01-04]
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub hosts: Vec<String>,
    #[command(flatten)]
    pub reaching: Reaching,
}

/// How other hosts are reached, and reach this one.
#[derive(Clone, Debug, Args)]
pub struct Reaching {
    /// The remote shell, with its options [default: ssh -x -o BatchMode=yes -o ConnectTimeout=10]
    #[arg(
        long,
        env = "MARGAY_RSH",
        value_name = "COMMAND",
        hide_env_values = true
    )]
    pub launcher_exec: Option<String>,
    /// The ports at the first free one of which the service is reached by other hosts, for
    /// firewalls [default: any]
    #[arg(long, value_name = "FIRST:LAST", value_parser = port_range)]
    pub port_range: Option<(u16, u16)>,
}

/// How the service works.
#[derive(Clone, Debug, Args)]
pub struct Serving {
    /// A stripe directory that has not answered for this time in seconds fails, if the service is
    /// started by this
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub deadline: u64,
}

/// Reads a range of ports, or one port.
///
/// # Errors
/// When it is none.
pub fn port_range(text: &str) -> Result<(u16, u16), String> {
    let parts = text.split_once([':', '-']).unwrap_or((text, text));
    match (parts.0.parse(), parts.1.parse()) {
        (Ok(first), Ok(last)) if first > 0 && first <= last => Ok((first, last)),
        _ => Err("this is not a range of ports; write: 40000:40100".into()),
    }
}

/// Reads a number of bytes such as 64K or 1M.
fn bytes(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.to_ascii_uppercase().strip_suffix(['K', 'M']) {
        Some(digits) if text.ends_with(['K', 'k']) => (digits.to_owned(), 1 << 10),
        Some(digits) => (digits.to_owned(), 1 << 20),
        None => (text.to_owned(), 1),
    };
    let number: Option<usize> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("'{text}' is no number of bytes; write for example 64K or 1M"))
}

/// Reads a limit such as 10G; 0 is none.
fn limit(text: &str) -> Result<u64, String> {
    if text == "none" {
        return Ok(0);
    }
    let at = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(at.unwrap_or(text.len()));
    let shift = match unit {
        "" => Some(0),
        "K" | "k" => Some(10),
        "M" | "m" => Some(20),
        "G" | "g" => Some(30),
        "T" | "t" => Some(40),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok().filter(|number| *number > 0);
    shift
        .zip(number)
        .and_then(|(shift, number)| number.checked_mul(1 << shift))
        .ok_or_else(|| {
            format!("'{text}' is no limit; write a number above 0, such as 500M or 10G, or none")
        })
}

/// Returns the parser of `margay pfs`.
#[must_use]
pub fn command() -> clap::Command {
    let command = clap::Command::new("margay-pfs")
        .version(concat!("(Margay) ", env!("CARGO_PKG_VERSION")))
        .display_name("margay pfs")
        .bin_name("margay pfs");
    PfsOptions::augment_args(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        command().debug_assert();
    }

    #[test]
    fn numbers_of_bytes_have_units() {
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("1m"), Ok(1 << 20));
        assert_eq!(bytes("65536"), Ok(65536));
        assert_eq!((limit("10G"), limit("7")), (Ok(10 << 30), Ok(7)));
        assert_eq!((limit("1t"), limit("none")), (Ok(1 << 40), Ok(0)));
        for text in ["", "0", "G", "-1", "1.5G", "1GB", "99999999T", "1 G"] {
            assert!(limit(text).is_err(), "{text}");
        }
        assert!(bytes("K").is_err() && bytes("64G").is_err() && bytes("99999999999999M").is_err());
    }
}
