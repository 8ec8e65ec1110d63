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
use margay_svc_pfs_options::{JobOptions, PROGRAM};
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::process::{beside, lead_session};
use margay_sys_os::signal::{SIGHUP, SIGINT, SIGTERM, SignalFd, SignalSet};

use crate::registry::Known;
use crate::{ask, clear_dead, connect, drain, make, mounts, serve_for};

/// Name of the file system in its own registry.
const NAME: &str = "job";

/// Where it is mounted below the job's directory, and where its registry is.
const MOUNT: &str = "files";
const STATE: &str = "state";

/// How the directories of a job are called, followed by its process.
const PREFIX: &str = "margay-pfs-";

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

/// The directories of a job, which are removed with it.
struct Places {
    /// The directory of the mount and the registry.
    base: PathBuf,
    stripes: Vec<PathBuf>,
}

/// The file system of a job.
struct Files {
    known: Known,
    mount: PathBuf,
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
    let mut places = Places {
        base: base.clone(),
        stripes: Vec::new(),
    };
    let begun = begin(options, &mut places);
    let mut files = match begun {
        Ok(files) => files,
        Err(text) => {
            places.remove();
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
            files.end();
            places.remove();
            Ok(())
        }
        Err(text) => {
            files.stop();
            let state = base.join(STATE);
            Err(format!(
                "{text}; what the job wrote is kept: XDG_STATE_HOME={} margay pfs mount {NAME} DIRECTORY shows \
                 it, and these can be removed then: {}",
                state.display(),
                places.all()
            ))
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

/// Makes a directory with a new name, for this user alone.
fn new_directory(folder: &Path) -> Result<PathBuf, String> {
    let pid = std::process::id();
    let mut number = 0;
    loop {
        let path = folder.join(match number {
            0 => format!("{PREFIX}{pid}"),
            _ => format!("{PREFIX}{pid}.{number}"),
        });
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < 1000 => number += 1,
            Err(error) => return Err(format!("cannot make {}: {error}", path.display())),
        }
    }
}

fn begin(options: &JobOptions, places: &mut Places) -> Result<Files, String> {
    if let Some(to) = &options.drain {
        // Better now than when the job has computed for a day.
        fs::create_dir_all(to)
            .and_then(|()| try_to_write_in(to))
            .map_err(|error| format!("cannot write to {}: {error}", to.display()))?;
    }
    if options.directories.is_empty() {
        for n in 0..TEMPORARY {
            places
                .stripes
                .push(places.base.join(format!("stripes.{n}")));
        }
    }
    for directory in &options.directories {
        places.stripes.push(new_directory(&plain(directory)?)?);
    }
    let count = places.stripes.len();
    let parity = options.parity.unwrap_or_else(|| {
        let is_on_disks_of_their_own = !options.directories.is_empty();
        usize::from(is_on_disks_of_their_own && count > 2)
    });
    let layout = Layout::new(count, parity, UNIT)?;
    let mount = places.base.join(MOUNT);
    DirBuilder::new()
        .mode(0o700)
        .create(&mount)
        .map_err(|error| format!("cannot make {}: {error}", mount.display()))?;
    let known = make(NAME, &places.stripes, layout, &[])?;
    let service = serve_for(&known, DEADLINE, true)?;
    let mut files = Files {
        known,
        mount,
        service,
    };
    let mounted = files.mount();
    if mounted.is_err() {
        files.end();
    }
    mounted.map(|()| files)
}

/// Makes a file and removes it.
fn try_to_write_in(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".{PREFIX}{}", std::process::id()));
    fs::File::create_new(&path)?;
    fs::remove_file(&path)
}

impl Places {
    /// Removes all that the file system had.
    fn remove(&self) {
        for path in self.stripes.iter().chain([&self.base]) {
            if let Err(error) = fs::remove_dir_all(path)
                && error.kind() != ErrorKind::NotFound
            {
                eprintln!("margay pfs: cannot remove {}: {error}", path.display());
            }
        }
    }

    fn all(&self) -> String {
        let outside = self
            .stripes
            .iter()
            .filter(|path| !path.starts_with(&self.base));
        let all: Vec<_> = [&self.base].into_iter().chain(outside).collect();
        let all: Vec<String> = all.iter().map(|path| path.display().to_string()).collect();
        all.join(" ")
    }
}

impl Files {
    fn mount(&self) -> Result<(), String> {
        ask(
            &self.known,
            &["mount", &self.mount.to_string_lossy(), "relative"],
        )
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
            self.service = serve_for(&self.known, DEADLINE, true)?;
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
