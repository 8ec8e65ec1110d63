//! A file system for the time of a job, for `mpiexec -pfs`: this process makes, mounts, drains and
//! removes it. It outlives the launcher, whose end it sees by that of its standard input, so
//! nothing is left when the launcher is killed.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use margay_core_stripes::Layout;
use margay_job_launch::hosts::is_this_machine;
use margay_svc_pfs_options::{JobOptions, Owned, PROGRAM, Sharing};
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::process::{beside, host_name, lead_session};
use margay_sys_os::signal::{SIGHUP, SIGINT, SIGTERM, SignalFd, SignalSet};

use crate::disks::{Disks, Others};
use crate::leftovers::{self, Held, MOUNT, NAME, PREFIX, STATE, STRIPES, new_directory};
use crate::making::make;
use crate::registry::{self, Known};
use crate::{ask, clear_dead, connect, drain, mounts, serve_for, share};

/// The host of a directory that each host of the job has.
const EACH: &str = "each";

/// Stripe directories where none are named.
const TEMPORARY: usize = 4;

/// Bytes of a stripe unit.
const UNIT: usize = 64 << 10;

/// How long a stripe directory may take to answer, in seconds.
const DEADLINE: u64 = 30;

/// How long the ranks may still use the mount when the job has ended, and how often that is looked
/// at.
const LEFT_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often the progress is shown.
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// What the launcher reads when the file system can be used; its path is on the next line.
pub const READY: &str = "ready";

/// The file system of a job.
struct Files {
    known: Known,
    mount: PathBuf,
    sharing: Sharing,
    service: Child,
}

/// Makes the file system, and removes it when the launcher has ended with the job.
///
/// # Errors
/// In words.
pub fn run(options: &JobOptions) -> Result<(), String> {
    let Some(base) = &options.base else {
        return again_with_base();
    };
    lead_session();
    // Before the service is started, which has its own: a signal ends the copying only.
    let set = SignalSet::of(&[SIGHUP, SIGINT, SIGTERM]);
    set.block();
    let signals = SignalFd::new(&set).map_err(|error| format!("cannot wait: {error}"))?;
    sweep(options);
    let mut held = match Held::begin(base) {
        Ok(held) => held,
        Err(text) => {
            let _ = fs::remove_dir_all(base);
            return Err(text);
        }
    };
    let mut files = match begin(options, base, &mut held) {
        Ok(files) => files,
        Err(text) => {
            held.remove();
            return Err(text);
        }
    };
    let mut stdout = io::stdout();
    let said = writeln!(stdout, "{READY}\n{}", files.mount.display());
    // When the launcher has gone already, its end is seen below.
    let _ = said.and_then(|()| stdout.flush());
    // The job has ended, or its launcher has died.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let drained = match &options.drain {
        Some(to) => files.drain(to, options, signals),
        None => Ok(()),
    };
    match drained {
        Ok(()) => {
            // Where this cannot be noted, it may be found as kept after a kill.
            let _ = held.note(None);
            files.end();
            held.remove();
            Ok(())
        }
        Err(text) => {
            files.stop();
            let there = |path: &&String| registry::elsewhere(path).is_some();
            let there: Vec<&str> = (files.known.directories.iter().filter(there))
                .map(String::as_str)
                .collect();
            Err(format!("{text}; {} {}", held.found_in(), there.join(" "))
                .trim_end()
                .into())
        }
    }
}

/// Makes the directory of the job, and runs this program again with its registry there.
fn again_with_base() -> Result<(), String> {
    let base = new_directory(&plain(&env::temp_dir())?)?;
    let failed = |error: io::Error| format!("cannot run {PROGRAM}: {error}");
    let program = beside(PROGRAM).map_err(failed)?;
    let mut words: Vec<OsString> = env::args_os().skip(1).collect();
    let at = words
        .iter()
        .position(|word| word == "job")
        .map_or(0, |at| at + 1);
    words.insert(at, format!("--base={}", base.display()).into());
    let error = Command::new(program)
        .args(words)
        .env("XDG_STATE_HOME", base.join(STATE))
        .exec();
    let _ = fs::remove_dir(&base);
    Err(failed(error))
}

/// The path of a directory as the kernel shows it.
fn plain(folder: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(folder).map_err(|error| {
        let shown = folder.display();
        match error.kind() {
            ErrorKind::NotFound => {
                format!("there is no directory {shown}; make it, or name another one")
            }
            _ => format!("cannot use the directory {shown}: {error}"),
        }
    })
}

/// Removes what earlier jobs left, and names what is kept of them.
fn sweep(options: &JobOptions) {
    let folders = [env::temp_dir()];
    let folders: Vec<PathBuf> = (folders.iter().chain(&options.directories))
        .filter_map(|folder| fs::canonicalize(folder).ok())
        .collect();
    for kept in leftovers::sweep(&folders) {
        eprintln!("{}: {kept}", options.launcher);
    }
}

fn begin(options: &JobOptions, base: &Path, held: &mut Held) -> Result<Files, String> {
    if let Some(to) = &options.drain {
        if let Some((host, _)) = to.to_str().and_then(registry::elsewhere) {
            return Err(format!(
                "cannot copy to {}: name a directory of this host, or one that both hosts have; {host} is another one",
                to.display()
            ));
        }
        // Better now than when the job has computed for a day.
        fs::create_dir_all(to)
            .and_then(|()| try_to_write_in(to))
            .map_err(|error| format!("cannot write to {}: {error}", to.display()))?;
    }
    let mut stripes = Vec::new();
    if options.directories.is_empty() {
        stripes.extend((0..TEMPORARY).map(|n| base.join(format!("{STRIPES}.{n}"))));
    }
    for directory in &options.directories {
        for place in places(directory, &options.sharing.hosts) {
            stripes.push(match place {
                Place::Here(folder) => held.add(&plain(&folder)?)?.join(STRIPES),
                Place::There(host, folder) => {
                    let name = format!("{PREFIX}{:x}", registry::lot()?);
                    format!("{host}:{}/{name}", folder.trim_end_matches('/')).into()
                }
            });
        }
    }
    held.note(None)?;
    let count = stripes.len();
    let parity = options.parity.unwrap_or_else(|| {
        let is_on_disks_of_their_own = !options.directories.is_empty();
        usize::from(is_on_disks_of_their_own && count > 2)
    });
    let layout = Layout::new(count, parity, UNIT)?;
    let mount = base.join(MOUNT);
    DirBuilder::new()
        .mode(0o700)
        .create(&mount)
        .map_err(|error| format!("cannot make {}: {error}", mount.display()))?;
    let known = make(
        NAME,
        &stripes,
        layout,
        &[],
        Others::new(Some(Owned::Kept), &options.sharing.reaching),
    )?;
    let service = serve_for(
        &known,
        DEADLINE,
        Some(owned(options)),
        &options.sharing.reaching,
    )?;
    let mut sharing = options.sharing.clone();
    let has_this = sharing.hosts.iter().any(|host| is_this_machine(host));
    if !sharing.hosts.is_empty() && !has_this {
        sharing.hosts.push(host_name());
    }
    let mut files = Files {
        known,
        mount,
        sharing,
        service,
    };
    // From now on there is something to be copied.
    let to = options.drain.as_deref().map(plain).transpose();
    let begun = to.and_then(|to| held.note(to.as_deref()).and_then(|()| files.mount()));
    if begun.is_err() {
        files.end();
    }
    begun.map(|()| files)
}

/// What becomes of stripe directories on other hosts when the service is gone.
fn owned(options: &JobOptions) -> Owned {
    match options.drain {
        Some(_) => Owned::Kept,
        None => Owned::Temporary,
    }
}

/// Where a stripe directory is made.
enum Place {
    Here(PathBuf),
    There(String, String),
}

/// The places that a directory names: one on this host, on another one, or on each of the job's.
fn places(directory: &Path, hosts: &[String]) -> Vec<Place> {
    let Some((host, path)) = directory.to_str().and_then(registry::elsewhere) else {
        return vec![Place::Here(directory.to_owned())];
    };
    let of = |host: &String| match is_this_machine(host) {
        true => Place::Here(path.into()),
        false => Place::There(host.clone(), path.into()),
    };
    match host == EACH && !hosts.is_empty() {
        true => hosts.iter().map(of).collect(),
        false if host == EACH => vec![Place::Here(path.into())],
        false => vec![of(&host.to_owned())],
    }
}

/// Makes a file and removes it.
fn try_to_write_in(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".{PREFIX}{}", std::process::id()));
    fs::File::create_new(&path)?;
    fs::remove_file(&path)
}

impl Files {
    /// Mounts it here, or on the hosts of the job and here, where it is copied from.
    fn mount(&self) -> Result<(), String> {
        let path = self.mount.to_string_lossy();
        if self.sharing.hosts.is_empty() {
            return ask(&self.known, &["mount", &path, "relative"]);
        }
        share(&self.known, &path, "relative", &self.sharing, true)
    }

    /// Copies everything to `to`; where the service has died, by a new one.
    fn drain(
        &mut self,
        to: &Path,
        options: &JobOptions,
        mut signals: SignalFd,
    ) -> Result<(), String> {
        // What came earlier was for the job, which has ended.
        while signals.take().is_some() {}
        if connect(&self.known)?.is_none() {
            eprintln!(
                "{}: the service of the job's file system had died; what it had stored is copied",
                options.launcher
            );
            clear_dead(&self.known)?;
            // Where hosts shared it, the others are not wanted any more.
            self.sharing.hosts.clear();
            mounts::clear_dead_at(NAME, &self.mount)?;
            self.service = serve_for(
                &self.known,
                DEADLINE,
                Some(Owned::Kept),
                &self.sharing.reaching,
            )?;
            self.mount()?;
        }
        let mut shown = Shown {
            begun: Instant::now(),
            last: None,
            options,
            to,
            signals,
        };
        let failed = |text| {
            format!(
                "what is in -pfs was not all copied to {}: {text}",
                to.display()
            )
        };
        let copied = drain::copy(&self.mount, to, &mut shown).map_err(failed)?;
        if copied.special > 0 {
            eprintln!(
                "{}: {} pipes, sockets and devices were not copied to {}",
                options.launcher,
                copied.special,
                to.display()
            );
        }
        Ok(())
    }

    /// Unmounts, also when something uses it still.
    fn unmount(&self) {
        let end = Instant::now() + LEFT_WITHIN;
        if !self.sharing.hosts.is_empty() {
            while ask(&self.known, &["umount"]).is_err() && Instant::now() < end {
                std::thread::sleep(LOOK_EVERY);
            }
            // Where all have gone, that is refused.
            let _ = ask(&self.known, &["umount", "lazy"]);
            return;
        }
        while mounts::unmount(&self.mount, false).is_err() {
            if !mounts::of(NAME).contains(&self.mount) {
                return;
            }
            if Instant::now() > end {
                if let Err(text) = mounts::unmount(&self.mount, true) {
                    eprintln!("margay pfs: {text}");
                }
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Ends it at once: what it has is going to be removed, so nothing is stored any more.
    fn end(&mut self) {
        self.unmount();
        let _ = self.service.kill();
        let _ = self.service.wait();
        let opener = Disks::new(
            NAME,
            Duration::from_secs(DEADLINE),
            Others::new(Some(Owned::Kept), &self.sharing.reaching),
        );
        for path in &self.known.directories {
            if registry::elsewhere(path).is_some() {
                opener.remove(path);
            }
        }
    }

    /// Ends it with everything stored.
    fn stop(&mut self) {
        self.unmount();
        if let Err(text) = ask(&self.known, &["stop"]) {
            eprintln!("margay pfs: {text}");
        }
        let _ = self.service.wait();
    }
}

/// Shows how far the copying is.
struct Shown<'a> {
    begun: Instant,
    last: Option<Instant>,
    options: &'a JobOptions,
    to: &'a Path,
    signals: SignalFd,
}

impl drain::Watch for Shown<'_> {
    fn goes_on(&mut self, done: u64, all: u64) -> bool {
        let now = Instant::now();
        let last = self.last.unwrap_or(self.begun);
        if now > last + SHOW_EVERY && io::stderr().is_terminal() {
            self.last = Some(now);
            eprintln!(
                "{}: {} of {} MB copied to {}",
                self.options.launcher,
                done / 1_000_000,
                all / 1_000_000,
                self.to.display()
            );
        }
        let mut poll = PollSet::default();
        let signalled = poll.add_readable(self.signals.as_fd());
        let looked = poll.wait(Some(Duration::ZERO));
        looked.is_err() || !poll.ready(signalled).readable || self.signals.take().is_none()
    }
}
