//! Who asks for jobs, and from where.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use margay_sys_os::credentials::{file_mask, user_name, user_number};
use margay_sys_os::process::host_name;
use serde::{Deserialize, Serialize};

use crate::Bytes;

/// As whom a job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// What the orders of one request have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shared {
    /// The environment, `NAME=VALUE` each.
    pub environment: Vec<Bytes>,
    /// Where the command was called.
    pub directory: Bytes,
    pub user: String,
    /// On which host, for jobs that have their terminal there.
    #[serde(default)]
    pub host: Option<String>,
    /// Permissions that new files do not have.
    #[serde(default)]
    pub file_mask: Option<u32>,
    /// In the queue that all users share, which writes it itself: as whom the jobs run.
    #[serde(default)]
    pub owner: Option<Owner>,
}

impl Shared {
    /// Of this process.
    ///
    /// # Errors
    /// In words, when its directory is gone.
    pub fn here() -> Result<Shared, String> {
        let directory = env::current_dir()
            .map_err(|error| format!("cannot tell the current directory: {error}"))?;
        let variable = |(name, value): (OsString, OsString)| {
            Bytes::from([name.as_bytes(), b"=", value.as_bytes()].concat())
        };
        Ok(Shared {
            environment: env::vars_os().map(variable).collect(),
            directory: Bytes(directory.into_os_string()),
            user: user(),
            host: Some(host_name()),
            file_mask: Some(file_mask()),
            owner: None,
        })
    }
}

/// The name of this process's user: that of `USER`, unless it is somebody else's.
#[must_use]
pub fn user() -> String {
    let own = margay_sys_os::port::user();
    let named = env::var("USER").ok();
    let is_anothers = |name: &String| user_number(name).is_some_and(|uid| uid != own);
    named
        .filter(|name| !is_anothers(name))
        .or_else(|| user_name(own))
        .unwrap_or_else(|| own.to_string())
}
