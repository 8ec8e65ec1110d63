//! The mounts of a file system: one on this host, or several that hosts share.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{Config, MountOption, Session, SessionACL};
use margay_sys_os::fuse_device;

use crate::direct::Direct;
use crate::fuse::{AccessTimes, Mounted};
use crate::hosts::share::{MOST_DATA, Peers, Share};
use crate::lock::lock;
use crate::mounts;
use crate::registry;
use crate::service::{Service, cores};

/// How often waiting looks again.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long the kernel may take to end a mount.
const UNMOUNTED_WITHIN: Duration = Duration::from_secs(10);

/// How long the kernel may take to let go what nobody uses any more.
const GONE_WITHIN: Duration = Duration::from_millis(300);

/// How long hosts are waited for that are to unmount.
const HOSTS_UNMOUNTED_WITHIN: Duration = Duration::from_secs(20);

/// Waits until something is so, or for as long as `within`.
fn wait_until(within: Duration, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + within;
    while !is_so() && Instant::now() < end {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What keeps a mount that is nowhere any more.
fn still_used(path: &str) -> String {
    format!(
        "{path} was unmounted while programs used it, and they still do; end the programs that have files there"
    )
}

/// A mount on this host.
struct Mount {
    path: String,
    /// Requests of the kernel come from it.
    device: OwnedFd,
    thread: JoinHandle<()>,
}

/// All mounts.
#[derive(Default)]
pub struct Mounts {
    own: Option<Mount>,
    /// Those that share it, all at the same path.
    shares: Vec<Share>,
    path: String,
    peers: Arc<Peers>,
}

impl Service {
    /// The mounts, without those of hosts that have ended.
    fn mounts(&self) -> MutexGuard<'_, Mounts> {
        let mut mounts = lock(&self.mounts);
        mounts.shares.retain(|share| !share.is_over());
        mounts
    }

    pub(crate) fn mount(&self, path: &str, times: &str) -> Result<(), String> {
        let times =
            AccessTimes::named(times).ok_or_else(|| format!("'{times}' are no times of access"))?;
        let mut mounts = self.mounts();
        self.check_free(&mut mounts)?;
        let facts =
            fs::metadata(path).map_err(|error| format!("cannot mount at {path}: {error}"))?;
        if !facts.is_dir() {
            return Err(format!("cannot mount at {path}: it is not a directory"));
        }
        self.check_place(path)?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(mounts::source(&self.name)),
            MountOption::Subtype(mounts::SUBTYPE.into()),
            MountOption::DefaultPermissions,
        ];
        let is_root = margay_sys_os::port::user() == 0;
        if is_root {
            config.acl = SessionACL::All;
        }
        let cores = cores();
        config.n_threads = Some((2 * cores).clamp(4, 16));
        config.clone_fd = true;
        mounts::is_possible(is_root).map_err(|why| format!("cannot mount at {path}: {why}"))?;
        mounts::note(&registry::beside(&self.name, mounts::NOTE)?, path)?;
        let mut mounted = Mounted::new(Arc::clone(&self.store), times, Arc::clone(&self.clients));
        let begin = || Direct::begin(&self.store, &self.clients, &self.near).ok();
        let notifier = Arc::new(OnceLock::new());
        if let Some(direct) = self.direct.get_or_init(begin) {
            let (near, notifier) = (Arc::clone(&self.near), Arc::clone(&notifier));
            mounted = mounted.with_direct(Arc::clone(direct), near, notifier);
        }
        let session = Session::new(mounted, path, &config)
            .map_err(|error| mounts::refused(path, &error, is_root))?;
        let _ = notifier.set(session.notifier());
        let device = session.as_fd().try_clone_to_owned();
        let device = device.map_err(|error| format!("cannot mount at {path}: {error}"))?;
        let thread = std::thread::spawn(move || {
            if let Err(error) = session.run() {
                eprintln!("the mount ended: {error}");
            }
        });
        mounts.own = Some(Mount {
            path: path.to_owned(),
            device,
            thread,
        });
        Ok(())
    }

    /// Whether a mount is over, as when somebody else unmounted it. One that has just gone is
    /// waited for: what it left is written then.
    fn has_ended(&self, mount: &Mount) -> bool {
        let begin = Instant::now();
        while !mount.thread.is_finished() {
            // What was deleted last is freed and written after the kernel has ended it.
            let is_used = || !fuse_device::has_ended(mount.device.as_fd());
            let silent = begin.elapsed();
            if self.is_there(mount)
                || silent > UNMOUNTED_WITHIN
                || (silent > GONE_WITHIN && is_used())
            {
                return false;
            }
            std::thread::sleep(4 * LOOK_EVERY);
        }
        true
    }

    /// Refuses a mount beside others.
    fn check_free(&self, mounts: &mut Mounts) -> Result<(), String> {
        if let Some(there) = mounts.own.take_if(|mount| self.has_ended(mount)) {
            // A panic of it is over.
            let _ = there.thread.join();
        }
        let path = match (&mounts.own, mounts.shares.first()) {
            (Some(there), _) if !self.is_there(there) => {
                let used = still_used(&there.path);
                return Err(format!("cannot mount '{}' again: {used}", self.name));
            }
            (Some(there), _) => &there.path,
            (None, Some(_)) => &mounts.path,
            (None, None) => return Ok(()),
        };
        Err(format!(
            "'{}' is mounted at {path}; unmount it there first: margay pfs umount {}",
            self.name, self.name
        ))
    }

    fn check_place(&self, path: &str) -> Result<(), String> {
        let inside = |directory: &String| Path::new(path).starts_with(directory);
        if self.store.state().members.iter().any(|m| inside(&m.path)) {
            return Err(format!("cannot mount at {path}: it is a stripe directory"));
        }
        Ok(())
    }

    /// Begins to wait for hosts, whose names are parted by commas, that mount it at `path`, beside
    /// those that have. Returns how they reach this service, and a line for each with its session.
    pub(crate) fn share(
        &self,
        path: &str,
        times: &str,
        ports: &str,
        hosts: &str,
    ) -> Result<String, String> {
        let times =
            AccessTimes::named(times).ok_or_else(|| format!("'{times}' are no times of access"))?;
        let failed = |error: std::io::Error| format!("cannot wait for other hosts: {error}");
        let mut mounts = self.mounts();
        self.check_place(path)?;
        if mounts.path != path || mounts.shares.is_empty() {
            self.check_free(&mut mounts)?;
        }
        for host in hosts.split(',') {
            let there = mounts.shares.iter().find(|share| share.host == host);
            match there.map(|share| (share, share.is_up())) {
                Some((_, true)) => {
                    return Err(format!(
                        "'{}' is mounted at {path} on {host}; leave that host out, or unmount it first: margay pfs umount {}",
                        self.name, self.name
                    ));
                }
                // What is left of it is nobody's any more.
                Some((lost, false)) => lost.unmount(true),
                None => {}
            }
        }
        let ports = ports.split_once(':');
        let ports = ports.and_then(|(first, last)| first.parse().ok().zip(last.parse().ok()));
        let entrance = self.disks.entrance(ports).map_err(failed)?;
        path.clone_into(&mut mounts.path);
        let mut lines = entrance.lines();
        for host in hosts.split(',') {
            let (store, clients) = (Arc::clone(&self.store), Arc::clone(&self.clients));
            let mounted = Mounted::new(store, times, clients).shared(host, MOST_DATA);
            let share = Share::begin(host, mounted, &entrance, &mounts.peers).map_err(failed)?;
            lines += &format!("session {:x}\n", share.session());
            mounts.shares.push(share);
        }
        Ok(lines)
    }

    /// Takes hosts, whose names are parted by commas, out of those that share it.
    pub(crate) fn unshare(&self, hosts: &str) {
        let mut mounts = lock(&self.mounts);
        let is_one = |share: &Share| hosts.split(',').any(|host| host == share.host);
        for share in mounts.shares.iter().filter(|share| is_one(share)) {
            share.unmount(true);
        }
        wait_until(UNMOUNTED_WITHIN, || {
            mounts.shares.retain(|share| !share.is_over());
            !mounts.shares.iter().any(is_one)
        });
    }

    /// Whether a mount is where it was, and not only kept by programs that still use it.
    fn is_there(&self, mount: &Mount) -> bool {
        mounts::of(&self.name).contains(&PathBuf::from(&mount.path))
    }

    /// Where it is mounted, in words.
    pub(crate) fn mounted_at(&self) -> String {
        let mut mounts = self.mounts();
        mounts.own.take_if(|mount| mount.thread.is_finished());
        if let Some(own) = &mounts.own {
            return match self.is_there(own) {
                true => format!("mounted at {}", own.path),
                false => format!("not mounted; {}", still_used(&own.path)),
            };
        }
        let hosts: Vec<String> = (mounts.shares.iter())
            .map(|share| match share.is_up() {
                true => share.host.clone(),
                false => format!("{} (no connection)", share.host),
            })
            .collect();
        match hosts.is_empty() {
            true => "not mounted".into(),
            false => format!("mounted at {} on {}", mounts.path, hosts.join(", ")),
        }
    }

    pub(crate) fn unmount(&self, is_lazy: bool) -> Result<(), String> {
        let mut mounts = self.mounts();
        if !mounts.shares.is_empty() {
            return self.unmount_hosts(mounts, is_lazy);
        }
        let Some(there) = mounts.own.as_ref().filter(|mount| !self.has_ended(mount)) else {
            return Err(format!("'{}' is not mounted", self.name));
        };
        if !self.is_there(there) {
            let used = still_used(&there.path);
            return Err(format!("cannot end the mount of '{}': {used}", self.name));
        }
        mounts::unmount(Path::new(&there.path), is_lazy).map_err(|reason| {
            format!(
                "cannot unmount {}: {reason}; end what uses it, `fuser -m {}` shows that",
                there.path, there.path
            )
        })?;
        if let Some(mount) = mounts.own.take_if(|_| !is_lazy) {
            // The thread ends when the kernel ends the connection. Where another mount namespace
            // has a copy of the mount, that goes on, and is served as long as this process runs.
            wait_until(UNMOUNTED_WITHIN, || mount.thread.is_finished());
        }
        Ok(())
    }

    /// Lets all hosts unmount. One that cannot be reached does that itself when it has heard
    /// nothing for some time, and is not waited for.
    fn unmount_hosts(
        &self,
        mut mounts: MutexGuard<'_, Mounts>,
        is_lazy: bool,
    ) -> Result<(), String> {
        for share in &mounts.shares {
            share.unmount(is_lazy || !share.is_up());
        }
        let is_answered = |share: &Share| share.is_over() || share.kept().is_some();
        wait_until(HOSTS_UNMOUNTED_WITHIN, || {
            mounts.shares.iter().all(is_answered)
        });
        let path = mounts.path.clone();
        let mut reasons = Vec::new();
        mounts.shares.retain(|share| {
            if share.is_over() {
                return false;
            }
            reasons.push(match share.kept() {
                Some(why) => format!(
                    "cannot unmount {path} on {}: {why}; end what uses it, `fuser -m {path}` there shows that",
                    share.host
                ),
                None => format!(
                    "host {} does not answer; it is given up when it has been silent for a minute: try again then",
                    share.host
                ),
            });
            true
        });
        match reasons.is_empty() {
            true => Ok(()),
            false => Err(reasons.join("; ")),
        }
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let mounts = self.mounts();
        let own = mounts.own.as_ref();
        !mounts.shares.is_empty() || own.is_some_and(|mount| !self.has_ended(mount))
    }
}
